"""A patch dictionary, and the method that learns one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_list
from napari_saf.device import memory_errors_translated
from napari_saf.dictionary._apply import PatchSegmentation, Reconstruction, apply_dictionary
from napari_saf.dictionary._atoms import PatchAtoms
from napari_saf.dictionary._distance import check_odd, check_patch_fits
from napari_saf.dictionary._file import read_fields, write_dictionary
from napari_saf.dictionary._training import Training, flat
from napari_saf.errors import InvalidInput
from napari_saf.features import Scaling, is_rgb
from napari_saf.flow import Flow
from napari_saf.graph import AbstractGraph, GraphUnion, GridGraph
from napari_saf.methods import AbstractFlow, Call, Iteration, not_cancelled, run_to_end
from napari_saf.parameters import parameter
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Snapshot
from napari_saf.storage import format_errors


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PatchDictionary(PatchAtoms):
    """Texture atoms that stay the same under the symmetries of the square and small shifts.

    `PatchAtoms` has the parameters; this is what is done with them.
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
            2-D, any sizes, one number of channels; or one such image.
        n_atoms, patch_size, s
            See `PatchDictionaryLearning`.
        window : int
            Odd side of the averaging window.
        channel_axis : int, optional
            Axis of the channels. None: a last axis of 3 or 4 is RGB(A).
        names : sequence of str
            Names of the images, kept in the dictionary.
        options
            Other parameters of `PatchDictionaryLearning`.

        Raises
        ------
        InvalidInput
            If images or parameters do not suit.
        """
        steps = cls.iterate(
            images,
            n_atoms=n_atoms,
            patch_size=patch_size,
            s=s,
            window=window,
            channel_axis=channel_axis,
            names=names,
            **options,
        )
        found = run_to_end(steps).dictionary
        assert found is not None
        return found

    @staticmethod
    def iterate(
        images: Sequence[ArrayLike] | NDArray[Any],
        *,
        window: int = 3,
        channel_axis: int | None = None,
        names: Sequence[str] = (),
        cancelled: Callable[[], bool] = not_cancelled,
        **options: Any,
    ) -> Generator[Snapshot, None, LearnedDictionary]:
        """Learn as `learn` does, with live labels and atoms, and return all that comes of it."""
        method = PatchDictionaryLearning(**options)
        several = _several(images, channel_axis)
        problem = Problem.from_images(several, window=window, channel_axis=channel_axis)
        result = yield from method.iterate(problem, cancelled=cancelled)
        assert isinstance(result, LearnedDictionary)
        return dataclasses.replace(result, dictionary=result.with_names(names))

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
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> PatchSegmentation:
        """Label an image with the atoms and make it anew from them; see `apply_dictionary`."""
        return apply_dictionary(
            self,
            image,
            window=window,
            channel_axis=channel_axis,
            reconstruction=reconstruction,
            rho=rho,
            device=device,
            cancelled=cancelled,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save as ``.safetensors``.

        Raises
        ------
        InvalidInput
            If the name ends otherwise.
        SafError
            If the file cannot be written.
        """
        write_dictionary(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PatchDictionary:
        """Load what `save` wrote; nothing in the file is executed.

        Raises
        ------
        FormatError
            Naming the file and what is wrong with it: no such file, not a safetensors file,
            truncated, of an unknown version, without atoms, or with impossible values.
        """
        with format_errors(Path(path), "a dictionary"):
            return cls(**read_fields(path))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LearnedDictionary(Segmentation):
    """The labels of the images that a dictionary was learned from, and the dictionary.

    Label l is atom l - 1; `prototypes` are the atoms, flattened.

    Attributes
    ----------
    dictionary : PatchDictionary
    alignment : tuple of float
        Mean squared distance of a patch to its atom in every round of the alignment; it never
        rises.
    """

    dictionary: PatchDictionary | None = None
    alignment: tuple[float, ...] = ()

    def with_names(self, names: Sequence[str]) -> PatchDictionary:
        """Return the dictionary with the names of the images that it was learned from."""
        assert self.dictionary is not None
        return dataclasses.replace(self.dictionary, images=tuple(as_list(names, "names")))


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PatchDictionaryLearning(AbstractFlow):
    """Learn texture atoms that stay the same under shifts, turns and reflections.

    Parameters
    ----------
    n_atoms, patch_size, shift_window
        Atoms to start with, those that no pixel prefers in the end are dropped; odd side of the
        atoms, 3 to 31; odd side of the window within which a patch may shift to fit, 1 to 15.
    s, epsilon, rho, stepper, stop, device, dtype
        As for `SelfAssignmentFlow`; epsilon per unit of distance over sigma.
    refinements : int
        Rounds in which patches go to their nearest atom, after the atoms of the flow's labels
        stand still.
    landmarks : int
        Patches whose distances to all others are computed; twice `n_atoms` if that is more.
    width : float
        Width of the kernel: its sigma^2 as a share of the median distance of two landmarks.
    n_samples : int
        Patches that shape the atoms.
    seed : int
        Draws the landmarks and the samples.

    Notes
    -----
    Zisler, Zern, Petra and Schnörr, "Self-assignment flows for unsupervised data labeling on
    graphs", SIAM J. Imaging Sci. 13 (2020), https://doi.org/10.1137/19M1298639; section 6.4.
    Nodes are the interior pixels; those at the rim have the label of the nearest interior one.
    The affinity exp(-d / sigma^2) of the symmetric patch distance d is not positive
    semi-definite; its positive part is used.
    """

    name: ClassVar[str] = "dictionary"
    title: ClassVar[str] = "Patch dictionary"

    n_atoms: int = parameter(
        20,
        label="Atoms up to",
        help="Most atoms that may come out; those that no patch resembles are dropped (c).",
        minimum=2,
        maximum=255,
    )
    patch_size: int = parameter(
        7,
        label="Patch size",
        help="Side of an atom in pixels, an odd number.",
        minimum=3,
        maximum=31,
        step=2,
    )
    s: float = parameter(
        0.0,
        label="Detail",
        help="From smooth regions of similar size to fine features (s).",
        minimum=0,
        maximum=1,
        step=0.05,
        ends=("smooth regions", "fine features"),
    )
    shift_window: int = parameter(
        3,
        label="Shifts",
        help="Side of the window within which a patch may shift to fit its atom, an odd number.",
        minimum=1,
        maximum=15,
        step=2,
        advanced=True,
    )
    refinements: int = parameter(
        5,
        label="Refinements",
        help="Rounds in which every sampled patch goes to its nearest atom and the atoms follow.",
        minimum=0,
        maximum=100,
        advanced=True,
    )
    landmarks: int = parameter(
        40,
        label="Landmarks",
        help="How many sample patches stand for all others; more is more exact and slower (ell).",
        minimum=2,
        maximum=1000,
        step=10,
        advanced=True,
    )
    width: float = parameter(
        0.3,
        label="Texture tolerance",
        help="How different patches may be and still be alike: larger joins more.",
        minimum=1e-3,
        maximum=100,
        step=0.1,
        advanced=True,
    )
    n_samples: int = parameter(
        20_000,
        label="Samples",
        help="How many patches shape the atoms.",
        minimum=10,
        maximum=10_000_000,
        step=10_000,
        advanced=True,
    )
    epsilon: float = parameter(
        1.0,
        label="Head start",
        help="How decided the start is: near 0 all labels begin equal (epsilon).",
        minimum=1e-4,
        maximum=100,
        step=0.1,
        advanced=True,
    )
    seed: int = parameter(
        0,
        label="Random seed",
        help="The same seed gives the same atoms.",
        minimum=0,
        maximum=2**31 - 1,
        advanced=True,
    )

    def __post_init__(self) -> None:
        # A call to super() without arguments finds no class in a slotted dataclass.
        AbstractFlow.__post_init__(self)
        check_odd("patch_size", self.patch_size, 3, 31)
        check_odd("shift_window", self.shift_window, 1, 15)

    def _iterate(self, call: Call) -> Iteration:
        grids, scaling = self._check(call.problem)
        if call.initial is not None:
            raise InvalidInput("initial: expected none, a dictionary starts from its landmarks")
        training = Training(self, call, grids)
        result = yield from training.flow_steps()
        objective = yield from training.alignment_steps(result.assignment)
        counts = np.bincount(result.assignment.argmax(axis=1), minlength=len(training.atoms))
        order = result.columns
        dictionary = PatchDictionary(
            atoms=training.atoms.movedim(1, -1).float().cpu().numpy()[order],
            usage=counts[order].astype(np.int64),
            scaling=scaling,
            s=float(self.s),
            window=int(grids[0].window[0]),
            shift_window=int(self.shift_window),
            distance=objective[-1],
        )
        values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        values |= {
            "labels": training.to_images(result.labels),
            "prototypes": flat(training.atoms)[order],
            "recipe": self.recipe(call.problem),
        }
        return LearnedDictionary(**values, dictionary=dictionary, alignment=tuple(objective))

    def _check(self, problem: Problem) -> tuple[tuple[GridGraph, ...], Scaling]:
        grids = _grids(problem.graph)
        for grid in grids:
            if len(grid.shape) != 2:
                raise InvalidInput(f"image: expected 2 axes beside channels, got {len(grid.shape)}")
            if grid.mask is not None or grid.weights is not None:
                raise InvalidInput(
                    "problem: a dictionary is learned from whole images with uniform weights, "
                    "got a mask or weights"
                )
            check_patch_fits(self.patch_size, grid.shape, self.shift_window)
        options = problem.options
        if options is None or options.features != "intensity" or options.scaling is None:
            got = "none" if options is None else repr(options.features)
            raise InvalidInput(f"features: expected 'intensity', got {got}")
        return grids, options.scaling

    def _n_columns(self, problem: Problem) -> int:
        return self.n_atoms

    def _n_extra_columns(self, problem: Problem, device: torch.device) -> tuple[float, float]:
        count = 2 * max(self.landmarks, 2 * self.n_atoms)
        return count, count

    def _prepare(self, call: Call) -> Flow:
        grids, _ = self._check(call.problem)
        return Training(self, call, grids).flow()


def _several(
    images: Sequence[ArrayLike] | NDArray[Any], channel_axis: int | None
) -> Sequence[ArrayLike]:
    """Return the images; an array whose parts along the first axis are no images is one."""
    if not isinstance(images, np.ndarray):
        return images
    has_channels = channel_axis is not None or is_rgb(images.shape)
    return [images] if images.ndim == 2 + has_channels else list(images)


def _grids(graph: AbstractGraph) -> tuple[GridGraph, ...]:
    if isinstance(graph, GraphUnion):
        return graph.grids
    if not isinstance(graph, GridGraph):
        raise InvalidInput("problem: expected images, got another graph")
    return (graph,)
