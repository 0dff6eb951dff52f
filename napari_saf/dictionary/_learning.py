"""Learning a patch dictionary, as a method like every other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch

from napari_saf.arrays import as_list
from napari_saf.dictionary._dictionary import PatchDictionary
from napari_saf.dictionary._distance import check_odd, check_patch_fits
from napari_saf.dictionary._training import Training, flat
from napari_saf.errors import InvalidInput
from napari_saf.features import Scaling
from napari_saf.flow import Basis, Flow, LowRank, SelfAssignmentField, Start
from napari_saf.graph import AbstractGraph, GraphUnion, GridGraph
from napari_saf.methods import (
    AbstractFlow,
    Call,
    Iteration,
    map_steps,
    run_flow,
)
from napari_saf.parameters import parameter
from napari_saf.problem import Problem
from napari_saf.result import Segmentation

__all__ = ["LearnedDictionary", "PatchDictionaryLearning"]

_STILL = 1e-3
_MOST_ROUNDS = 50
_SHARE_OF_FLOW = 0.8
"""Of the progress; the rest is the alignment."""


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
    n_atoms : int
        Number of atoms to start with; those that no pixel prefers in the end are dropped.
    patch_size : int
        Odd side of the atoms in pixels, 3 to 31.
    s : float
        0 to 1, as for `SelfAssignmentFlow`.
    shift_window : int
        Odd side of the window within which a patch may shift to fit.
    refinements : int
        Rounds in which patches go to their nearest atom, after the atoms of the flow's labels
        stand still.
    landmarks : int
        Patches whose distances to all others are computed; twice `n_atoms` if that is more.
    width : float
        Width of the kernel: its sigma^2 as a share of the median distance of two landmarks.
    n_samples : int
        Patches that shape the atoms.
    epsilon : float
        > 0; how far from undecided the start is, per unit of distance over sigma.
    seed : int
        Draws the landmarks and the samples.
    rho, stepper, stop, device, dtype
        As for every flow: `AbstractFlow`.

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
        grids, _ = self._check(call.problem)
        if call.initial is not None:
            raise InvalidInput("initial: expected none, a dictionary starts from its landmarks")
        training = Training(self, call, grids)
        steps = run_flow(self, training_flow(self, training), training.call)
        result = yield from _follow(steps, training)
        training.start_alignment(result.assignment)
        rounds: list[float] = []
        for fraction in self._align(training, rounds, call.cancelled):
            yield training.aligned(fraction)
        return self._finish(result, training, rounds, call.problem)

    def _align(
        self, training: Training, rounds: list[float], cancelled: Callable[[], bool]
    ) -> Iterator[float]:
        """Shape the atoms; yield how much of the run is done."""
        most = _MOST_ROUNDS + self.refinements
        for _ in range(_MOST_ROUNDS):
            rounds.append(training.update())
            if cancelled() or (len(rounds) > 1 and rounds[-2] - rounds[-1] <= _STILL * rounds[0]):
                break
            yield _SHARE_OF_FLOW + (1 - _SHARE_OF_FLOW) * len(rounds) / most
        for done in range(self.refinements):
            if cancelled():
                break
            training.reassign()
            rounds.append(training.update())
            yield 1 - (1 - _SHARE_OF_FLOW) * (self.refinements - 1 - done) / most

    def _finish(
        self,
        result: Segmentation,
        training: Training,
        rounds: list[float],
        problem: Problem,
    ) -> LearnedDictionary:
        grids, scaling = self._check(problem)
        atoms = training.atoms.movedim(1, -1).float().cpu().numpy()[result.columns]
        usage = np.bincount(result.assignment.argmax(axis=1), minlength=result.assignment.shape[1])
        dictionary = PatchDictionary(
            atoms=atoms,
            usage=usage[result.columns].astype(np.int64),
            scaling=scaling,
            s=float(self.s),
            window=int(grids[0].window[0]),
            shift_window=int(self.shift_window),
            distance=rounds[-1],
        )
        values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        values |= {
            "labels": training.to_images(result.labels),
            "prototypes": flat(training.atoms)[result.columns],
            "recipe": self.recipe(problem),
        }
        return LearnedDictionary(**values, dictionary=dictionary, alignment=tuple(rounds))

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
        return training_flow(self, Training(self, call, grids))


def training_flow(method: PatchDictionaryLearning, training: Training) -> Flow:
    """Return the self-assignment flow of patches, ready to start."""
    start = Start.at(training.start())
    notes: tuple[str, ...] = ()
    if start.n_columns < method.n_atoms and not training.call.cancelled():
        notes = (f"atoms reduced to {start.n_columns}: no more distinct patches",)

    def make_field() -> SelfAssignmentField:
        features = training.call.features
        return SelfAssignmentField(
            LowRank(Basis([(training.basis(), None)])),
            training.call.problem.graph.averager(features.device, features.dtype),
            features,
            start.n_columns,
            s=method.s,
            rho=method.rho,
            cancelled=training.call.cancelled,
        )

    return Flow(start, make_field, method.stepper, method.stop, notes)


def _follow(steps: Iteration, training: Training) -> Iteration:
    """Pass the snapshots of the flow on, at the size of the images and with atoms."""
    return map_steps(steps, lambda one: training.wrap(one, _SHARE_OF_FLOW * one.fraction))


def _grids(graph: AbstractGraph) -> tuple[GridGraph, ...]:
    if isinstance(graph, GraphUnion):
        return graph.grids
    if not isinstance(graph, GridGraph):
        raise InvalidInput("problem: expected images, got another graph")
    return (graph,)
