"""Where a run begins, and which label each of its columns has on screen."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from napari_saf.label_map import LabelMap
from napari_saf.methods import AbstractMethod
from napari_saf.problem import Problem
from napari_saf.recording import RecordedState
from napari_saf.result import LabelImage, Segmentation

_LEAST = 1e-10
_SOFTENING = 0.1


class RunStart:
    """From nothing, with labels numbered as the strokes are; subclasses begin at other states.

    A run that starts so can be recorded if `is_recorded`; its recording begins with what was
    before if it `continues`.
    """

    is_recorded: ClassVar[bool] = True
    continues: ClassVar[bool] = False

    def begin(self, problem: Problem, method: AbstractMethod) -> tuple[Problem, LabelMap]:
        """Return the problem to solve, and the labels on screen of its first columns."""
        if method.labels_are_given:
            return problem, LabelMap.identity(0)
        return without_gaps(problem)

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32] | None:
        """Return the assignment to start from; None for the own start of the method."""
        return None

    def paint(self, columns: LabelImage, classes: LabelMap) -> LabelImage:
        """Return labels on screen for columns counted from 1, 0 for outside."""
        return classes.extended(int(columns.max(initial=0))).paint(columns)

    def finish(self, result: Segmentation, classes: LabelMap) -> Segmentation:
        """Return the result with labels as on screen, of the image that is asked for."""
        own = result.labels[-1] if isinstance(result.labels, list) else result.labels
        return dataclasses.replace(result, labels=self.paint(own, classes))

    def prototypes_by_label(
        self, prototypes: NDArray[np.float32], classes: LabelMap
    ) -> NDArray[np.float32]:
        """Return prototypes of a result in rows by the labels on screen, see `LabelMap.rows`."""
        return classes.extended(len(prototypes)).rows(prototypes)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WarmStart(RunStart):
    """The final state of an earlier run of the classes painted with `numbers`, to continue from.

    This saves evaluations, and some pixels get another label than from a fresh start: what was
    painted first counts for more.
    """

    assignment: NDArray[np.float32]
    numbers: NDArray[np.int64]

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32] | None:
        """Return the assignment, softened, as far as the classes are the same; None if none fits.

        The end of a run is sure of itself: softened, it can be changed.
        """
        if not method.follows_seeds or len(self.assignment) != problem.n_nodes:
            return None  # new labels would have no column in it
        start = np.full((problem.n_nodes, classes.n_columns), _LEAST, dtype=np.float32)
        _, new, old = np.intersect1d(classes.numbers, self.numbers, return_indices=True)
        start[:, new] = self.assignment[:, old].clip(_LEAST)
        start **= _SOFTENING
        return np.asarray(start / start.sum(axis=1, keepdims=True))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordedStart(RunStart):
    """A recorded state, from which a run continues unchanged."""

    continues: ClassVar[bool] = True
    state: RecordedState

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32]:
        """Return the recorded assignment."""
        return self.state.assignment()


def without_gaps(problem: Problem) -> tuple[Problem, LabelMap]:
    """Return the problem with seeds 1, 2, ... and the labels that they had."""
    if problem.seeds is None:
        return problem, LabelMap.identity(0)
    classes = LabelMap.from_seeds(problem.seeds)
    return problem.with_seeds(classes.unpaint(problem.seeds)), classes
