"""Patch dictionaries, and the method that learns them; `_sample` has the steps of learning.

Zisler, Zern, Petra and Schnörr, "Self-assignment flows for unsupervised data labeling on graphs",
SIAM J. Imaging Sci. 13 (2020), https://doi.org/10.1137/19M1298639; section 6.4.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf import methods
from napari_saf.arrays import as_list
from napari_saf.device import memory_errors_translated, torch
from napari_saf.dictionary._apply import Application, PatchSegmentation, Reconstruction
from napari_saf.dictionary._atoms import PatchAtoms
from napari_saf.dictionary._distance import centres_of, check_odd
from napari_saf.dictionary._sample import (
    ImagePatches,
    distances_between,
    flatten,
    pick_far_apart,
    refine_atoms,
    sketch,
    update_atoms,
    whole_images,
)
from napari_saf.errors import InvalidInput
from napari_saf.features import is_rgb
from napari_saf.flow import Basis, Flow, SelfAssignmentField, Start, normalize_
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.input import PLAIN
from napari_saf.parameters import documented, parameter
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation, Snapshot

_SAMPLE_BYTES = 2**28
_LIVE_SAMPLES = 2000
_SHARE_OF_FLOW = 0.8  # of the progress; the rest is the alignment of the atoms


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PatchDictionary(PatchAtoms):
    """Texture atoms, invariant under the symmetries of the square and small shifts.

    Parameters
    ----------
    atoms : array of shape (n_atoms, p, p, n_features), float32
        Scaled values: 0 and 1 are intensities `scaling.low` and `scaling.high` of an image.
    usage : array of int of shape (n_atoms,)
        Pixels labelled by each atom during learning.
    scaling : Scaling
        Map from image values to atom values.
    s, window, shift_window, any_contrast
        Parameters of `PatchDictionaryLearning`, and the side of the averaging window.
    distance : float
        Mean squared distance of a patch to its atom during learning.
    images : tuple of str
        Names of the training images.
    features : str
        Features of the atoms: "intensity", "lab", "texture", "local" or "patterns".
    software : str
        Version of napari-saf used for learning.

    Raises
    ------
    InvalidInput
        If a shape, a size or a number is invalid.

    Examples
    --------
    >>> stripes = np.tile(np.repeat([0.0, 1.0], 4), (48, 6))
    >>> dictionary = saf.PatchDictionary.learn(stripes, n_atoms=4, patch_size=5, n_samples=500)
    >>> found = dictionary.apply(stripes.T)  # rotated by 90 degrees
    >>> dictionary.atoms.shape[1:], found.labels.shape, found.psnr > 20
    ((5, 5, 1), (48, 48), True)
    """

    @classmethod
    def learn(
        cls,
        images: Sequence[ArrayLike] | NDArray[Any],
        *,
        n_atoms: int = 20,
        patch_size: int = 7,
        s: float = 0.0,
        window: int = 3,
        channel_axis: int | None = None,
        names: Sequence[str] = (),
        **options: Any,
    ) -> PatchDictionary:
        """Learn a dictionary from one or several images.

        Parameters
        ----------
        images : sequence of array, or array
            2-D images of any size with equal channels; or one such image.
        n_atoms, patch_size, s, options
            As in `PatchDictionaryLearning`; and `features` as in `PatchDictionary`.
        window : int
            Odd side of the averaging window.
        channel_axis : int, optional
            Axis of the channels. None: a last axis of 3 or 4 is RGB(A).
        names : sequence of str
            Names of the images, stored in the dictionary.

        Raises
        ------
        InvalidInput
            If images or parameters are invalid.
        """
        options |= {"n_atoms": n_atoms, "patch_size": patch_size, "s": s, "names": names}
        options |= {"window": window, "channel_axis": channel_axis}
        return methods.run_to_end(cls.iterate(images, **options)).dictionary

    @staticmethod
    def iterate(
        images: Sequence[ArrayLike] | NDArray[Any],
        *,
        window: int = 3,
        channel_axis: int | None = None,
        names: Sequence[str] = (),
        features: str = "intensity",
        cancelled: Callable[[], bool] = methods.not_cancelled,
        **options: Any,
    ) -> Generator[Snapshot, None, LearnedDictionary]:
        """Learn as `learn` does, yielding snapshots with labels and atoms."""
        method = PatchDictionaryLearning(**options)
        if isinstance(images, np.ndarray):
            has_channels = channel_axis is not None or is_rgb(images.shape)
            images = [images] if images.ndim == 2 + has_channels else list(images)
        kwargs = PLAIN | {"window": window, "channel_axis": channel_axis, "features": features}
        problem = Problem.from_images(images, **kwargs)
        result = yield from method.iterate(problem, cancelled=cancelled)
        assert isinstance(result, LearnedDictionary)
        learned = dataclasses.replace(result.dictionary, images=tuple(as_list(names, "names")))
        return dataclasses.replace(result, dictionary=learned)

    @memory_errors_translated("use a smaller image")
    def apply(
        self,
        image: ArrayLike,
        *,
        window: int = 3,
        channel_axis: int | None = None,
        reconstruction: Reconstruction = "blended",
        rho: float = 0.1,
        device: str = "auto",
        cancelled: Callable[[], bool] = methods.not_cancelled,
    ) -> PatchSegmentation:
        """Label an image with atoms, and reconstruct it from them.

        Parameters
        ----------
        image : array
            2-D, with the channels of the dictionary; the alpha of RGBA is dropped.
        window : int
            Odd side of the averaging window of the labels, the scale.
        channel_axis : int, optional
            Axis of the channels.
        reconstruction : {"matched", "blended", "fitted"}
            How atoms are combined; overlaps are averaged.
            "matched": the atom of each pixel's label at the matched centre, eq. (6.14).
            "blended": also the nearest atom around each pixel; better fits weigh more.
            "fitted": only the atom around each pixel that fits best with its own brightness and
            contrast.
        rho : float
            > 0; smaller values weight patches more relative to neighbours.
        device : str
            "auto", "cpu", "cuda" or "mps".
        cancelled : callable
            Called repeatedly; `Cancelled` is raised once it returns True.

        Raises
        ------
        InvalidInput
            If the image does not suit the dictionary, or an option is invalid.
        """
        pixels = self.planes(image, channel_axis)
        application = Application(self, pixels, reconstruction, device, cancelled)
        return application.run(window, rho, is_grey=np.ndim(image) == 2)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LearnedDictionary(Segmentation):
    """A learned dictionary, and the labels of its training images.

    Label l is atom l - 1; `prototypes` are the atoms, flattened.

    Attributes
    ----------
    dictionary : PatchDictionary
    alignment : tuple of float
        Mean squared distance of a patch to its atom in each alignment step; non-increasing.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.eye(24), features="intensity", weights="uniform")
    >>> learned = saf.PatchDictionaryLearning(n_atoms=3, patch_size=5, n_samples=200).run(problem)
    >>> learned.n_labels == len(learned.dictionary.atoms), learned.labels.shape
    (True, (24, 24))
    """

    dictionary: PatchDictionary
    alignment: tuple[float, ...]


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PatchDictionaryLearning(methods.AbstractFlow):
    """Learn texture atoms that are invariant under shifts, rotations and reflections.

    Nodes are the interior pixels; the rim takes the label of the nearest one. The affinity
    exp(-d / sigma^2) of the symmetric patch distance d is not positive semi-definite; its positive
    part is used. Atoms without pixels are dropped. `width` is sigma^2 relative to the median
    distance between landmarks, at least twice `n_atoms` of them; `epsilon` is per unit of distance
    over sigma.

    Examples
    --------
    >>> problem = saf.Problem.from_image(np.eye(24), features="intensity", weights="uniform")
    >>> learned = saf.PatchDictionaryLearning(n_atoms=3, patch_size=5, n_samples=200).run(problem)
    >>> learned.prototypes.shape == (learned.n_labels, 5 * 5)
    True
    """

    name: ClassVar[str] = "dictionary"
    title: ClassVar[str] = "Patch dictionary"
    summary: ClassVar[str] = (
        "Learns small patches, the atoms; each patch of an image resembles one of them up to "
        "rotation, reflection and small shifts."
    )

    # fmt: off
    n_atoms: int = parameter(
        20, label="Atoms up to", minimum=2, maximum=255,
        help="Maximum number of atoms; those that no patch resembles are dropped (c).")
    patch_size: int = parameter(
        7, label="Patch size", minimum=3, maximum=31, step=2,
        help="Side of an atom in pixels, an odd number.")
    s: float = parameter(
        0.0, label="Detail", minimum=0, maximum=1, step=0.05,
        ends=("smooth regions", "fine features"),
        help="From smooth regions of similar size to fine features (s).")
    shift_window: int = parameter(
        3, label="Shifts", minimum=1, maximum=15, step=2, advanced=True,
        help="Side of the window within which a patch may shift to fit its atom, an odd number.")
    any_contrast: bool = parameter(
        False, label="Any contrast", advanced=True,
        help="Match patches to atoms at any brightness and contrast, by shape alone.")
    refinements: int = parameter(
        5, label="Refinements", minimum=0, maximum=100, advanced=True,
        help="Rounds that assign every sampled patch to its nearest atom and update the atoms.")
    landmarks: int = parameter(
        40, label="Landmarks", minimum=2, maximum=1000, step=10, advanced=True,
        help="Number of sample patches that represent all others; more is more exact and slower "
        "(ell).")
    width: float = parameter(
        0.3, label="Texture tolerance", minimum=1e-3, maximum=100, step=0.1, advanced=True,
        help="Tolerated difference between similar patches; larger values merge more textures.")
    n_samples: int = parameter(
        20_000, label="Samples", minimum=10, maximum=10_000_000, step=10_000, advanced=True,
        help="Number of patches from which the atoms are computed.")
    epsilon: float = parameter(
        1.0, label="Initial confidence", minimum=1e-4, maximum=100, step=0.1, advanced=True,
        help="Confidence of the initial assignment; near 0 all labels start equally likely "
        "(epsilon).")
    seed: int = parameter(
        0, label="Random seed", minimum=0, maximum=2**31 - 1, advanced=True,
        help="The same seed gives the same atoms.")
    # fmt: on

    def __post_init__(self) -> None:
        # super() without arguments fails in a slotted dataclass.
        methods.AbstractFlow.__post_init__(self)
        check_odd("patch_size", self.patch_size, 3, 31)
        check_odd("shift_window", self.shift_window, 1, 15)

    def _iterate(self, call: methods.Call) -> methods.Iteration:
        grids, scaling, extractor = whole_images(call.problem, self.patch_size, self.shift_window)
        if call.initial is not None:
            raise InvalidInput(
                "initial: expected None, since a dictionary starts from its landmarks"
            )
        training = _Training(self, call, grids)
        result = yield from training.steps()
        counts = np.bincount(result.assignment.argmax(axis=1), minlength=len(training.atoms))
        order = result.columns
        prototypes = flatten(training.atoms)[order]
        dictionary = PatchDictionary(
            atoms=prototypes.reshape(len(order), self.patch_size, self.patch_size, -1),
            usage=counts[order].astype(np.int64),
            scaling=scaling,
            s=float(self.s),
            window=int(grids[0].window[0]),
            shift_window=int(self.shift_window),
            any_contrast=self.any_contrast,
            features=extractor.name,
            distance=training.objective[-1],
        )
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        fields["labels"] = training.patches.to_images(result.labels)
        fields |= {"prototypes": prototypes, "recipe": self.recipe(call.problem)}
        alignment = tuple(training.objective)
        return LearnedDictionary(**fields, dictionary=dictionary, alignment=alignment)

    def _n_columns(self, problem: Problem) -> int:
        return self.n_atoms

    def _numbers_per_node(
        self, problem: Problem, n_columns: int, device: torch.device
    ) -> tuple[float, float]:
        fields, _ = methods.AbstractFlow._numbers_per_node(self, problem, n_columns, device)
        return (fields + 2 * max(self.landmarks, 2 * self.n_atoms),) * 2


class _Training:
    """Self-assignment flow of patches, then alignment of `atoms` (n_atoms, n_features, p, p)."""

    def __init__(
        self, method: PatchDictionaryLearning, call: methods.Call, grids: Sequence[GridGraph]
    ) -> None:
        self._method, size, window = method, method.patch_size, method.shift_window
        shapes = [(grid.shape[0], grid.shape[1]) for grid in grids]
        self.patches = ImagePatches(call.features, shapes, size, window)
        pairs = zip(self.patches.fields, grids, strict=True)
        inner = [GridGraph(field.shape, window=grid.window) for field, grid in pairs]
        graph = inner[0] if isinstance(call.problem.graph, GridGraph) else GraphUnion(inner)
        # The flow uses affinities only: node features are placeholders.
        features = call.features.new_zeros(graph.n_nodes, 1)
        problem = Problem(features.cpu().numpy(), graph)
        self._call = methods.Call(
            problem, features, None, call.max_iterations, call.cancelled, call.began
        )
        rng = np.random.default_rng(method.seed)
        count = max(method.landmarks, 2 * method.n_atoms)
        self._landmarks, _ = self.patches.draw(count, rng)
        bytes_each = 4 * (size + window - 1) ** 2 * call.features.shape[1]
        count = min(method.n_samples, max(method.n_atoms, _SAMPLE_BYTES // bytes_each))
        self._sample, self._sample_nodes = self.patches.draw(count, rng)
        self._kernel: torch.Tensor | None = None
        self._live: torch.Tensor | None = None
        self.atoms = centres_of(self._landmarks[: method.n_atoms], size)
        self.objective: list[float] = []

    def flow(self) -> Flow:
        """Return the flow of the patches, started from distant landmarks; fewer if cancelled."""
        method, call = self._method, self._call
        block = distances_between(self._landmarks, method.patch_size)
        if not (block > 0).any():
            raise InvalidInput(
                "image: expected different patches, but all sampled patches are equal"
            )
        sigma2 = method.width * float(block[block > 0].median())
        chosen = pick_far_apart(block, method.n_atoms)
        order = chosen + sorted(set(range(len(block))).difference(chosen))
        self._landmarks, block = self._landmarks[order], block[order][:, order]
        distances = self.patches.distances(self._landmarks[: len(chosen)], call.cancelled)
        n_columns = distances.shape[1]
        self.atoms = centres_of(self._landmarks[:n_columns], method.patch_size).contiguous()
        is_reduced = n_columns < method.n_atoms and not call.cancelled()
        notes = (f"atoms reduced to {n_columns}: no more distinct patches",) if is_reduced else ()

        def make_field() -> SelfAssignmentField:
            remaining = self.patches.distances(self._landmarks[n_columns:], call.cancelled)
            call.raise_if_cancelled()
            kernel = torch.cat([distances, remaining], dim=1).div_(-sigma2).exp_()
            self._kernel = kernel[self._sample_nodes]
            basis = sketch(kernel, (block / -sigma2).exp()).to(call.features.dtype)
            return SelfAssignmentField(
                Basis([(basis, None)]),
                call.problem.graph.averager(call.features.device, call.features.dtype),
                call.features,
                n_columns,
                s=method.s,
                rho=method.rho,
                cancelled=call.cancelled,
            )

        scale = -method.epsilon / sigma2**0.5
        start = Start.at(normalize_((distances.sqrt() * scale).to(call.features.dtype)))
        return Flow(start, make_field, method.stepper, method.stop, notes)

    def steps(self) -> methods.Iteration:
        """Run the flow, then align the atoms; snapshots have image size and current atoms."""
        last: Snapshot | None = None

        def with_atoms(snapshot: Snapshot) -> Snapshot:
            nonlocal last
            last = dataclasses.replace(
                snapshot,
                fraction=_SHARE_OF_FLOW * snapshot.fraction,
                _read_labels=lambda: self.patches.to_images(snapshot.labels),
                _read_prototypes=lambda: self._live_atoms(snapshot.labels),
                _read_logarithm=None,
            )
            return last

        method, steps = self._method, methods.run_flow(self._method, self.flow(), self._call)
        result = yield from methods.map_steps(steps, with_atoms)
        rows = torch.from_numpy(result.assignment)[self._sample_nodes.cpu()]
        weights, labels = (tensor.to(self.atoms.device) for tensor in rows.max(dim=1))
        if self._kernel is not None:  # None if cancelled before
            # Initialise each atom with the landmark most similar to the patches of its label.
            scores = self._kernel.new_zeros(len(self.atoms), self._kernel.shape[1])
            scores.index_add_(0, labels, self._kernel * weights[:, None])
            best = self._landmarks[scores.argmax(dim=1)]
            self.atoms = centres_of(best, method.patch_size).contiguous()
        updates = refine_atoms(
            self._sample, self.atoms, labels, weights, method.refinements, method.any_contrast
        )
        for self.atoms, objective, remaining in updates:
            self.objective.append(objective)
            if self._call.cancelled():
                break
            assert last is not None
            yield dataclasses.replace(
                last,
                fraction=1 - (1 - _SHARE_OF_FLOW) * remaining,
                seconds=time.perf_counter() - self._call.began,
                _read_prototypes=functools.partial(flatten, self.atoms),
            )
        return result

    def _live_atoms(self, labels: LabelImage | list[LabelImage]) -> NDArray[np.float32]:
        """Update the mean sample patch of each label once, for display."""
        images = labels if isinstance(labels, list) else [labels]
        indices = self._sample_nodes[:_LIVE_SAMPLES].cpu().numpy()
        nodes = np.concatenate([image.ravel() for image in images])[indices].astype(np.int64)
        columns = torch.from_numpy(nodes - 1).to(self.atoms.device)
        previous = self.atoms if self._live is None else self._live
        weights = torch.ones(len(columns), device=self.atoms.device)
        sample, any_contrast = self._sample[:_LIVE_SAMPLES], self._method.any_contrast
        self._live, _ = update_atoms(sample, previous, columns, weights, any_contrast)
        empty = torch.bincount(columns, minlength=len(self.atoms)).cpu().numpy() == 0
        atoms = flatten(self._live)
        atoms[empty] = np.nan
        return atoms
