"""Where a run begins, and which number each of its columns has on screen."""

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

    Attributes
    ----------
    is_recorded : bool
        Whether such a run can be recorded.
    continues : bool
        Whether its recording begins with what was before.
    """

    is_recorded: ClassVar[bool] = True
    continues: ClassVar[bool] = False

    def begin(self, problem: Problem, method: AbstractMethod) -> tuple[Problem, NDArray[np.int64]]:
        """Return the problem to solve, and the numbers on screen of its first columns."""
        return (problem, np.arange(0)) if method.labels_are_given else without_gaps(problem)

    def initial(
        self, problem: Problem, numbers: NDArray[np.int64], method: AbstractMethod
    ) -> NDArray[np.float32] | None:
        """Return the assignment to start from; None for the own start of the method."""
        return None

    def paint(self, columns: LabelImage, numbers: NDArray[np.int64]) -> LabelImage:
        """Return labels on screen for columns counted from 1, 0 for outside."""
        return LabelMap(numbers).extended(int(columns.max(initial=0))).paint(columns)

    def finish(self, result: Segmentation, numbers: NDArray[np.int64]) -> Segmentation:
        """Return the result with labels as on screen, of the image that is asked for."""
        own = result.labels[-1] if isinstance(result.labels, list) else result.labels
        return dataclasses.replace(result, labels=self.paint(own, numbers))

    def prototypes_by_label(
        self, prototypes: NDArray[np.float32], numbers: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return prototypes of a result in rows by the labels on screen, see `LabelMap.rows`."""
        return LabelMap(numbers).extended(len(prototypes)).rows(prototypes)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WarmStart(RunStart):
    """The final state of an earlier run, to continue from.

    This saves evaluations, and some pixels get another label than from a fresh start: what was
    painted first counts for more.

    Attributes
    ----------
    assignment : array of shape (n_nodes, n_columns)
        Where it ended.
    numbers : array of int of shape (n_columns,)
        The number with which each class was painted.
    """

    assignment: NDArray[np.float32]
    numbers: NDArray[np.int64]

    def initial(
        self, problem: Problem, numbers: NDArray[np.int64], method: AbstractMethod
    ) -> NDArray[np.float32] | None:
        """Return the assignment to start from; new labels would have no column in it."""
        return self.softened(problem.n_nodes, numbers) if method.follows_seeds else None

    def softened(self, n_nodes: int, numbers: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Return an assignment to start from, for classes of these numbers; None if none fits."""
        if len(self.assignment) != n_nodes:
            return None
        start = np.full((n_nodes, len(numbers)), _LEAST, dtype=np.float32)
        _, new, old = np.intersect1d(numbers, self.numbers, return_indices=True)
        start[:, new] = self.assignment[:, old].clip(_LEAST)
        # The end of a run is sure of itself: softened, it can be changed.
        start **= _SOFTENING
        return np.asarray(start / start.sum(axis=1, keepdims=True))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordedStart(RunStart):
    """A recorded state, from which a run continues unchanged."""

    continues: ClassVar[bool] = True
    state: RecordedState

    def initial(
        self, problem: Problem, numbers: NDArray[np.int64], method: AbstractMethod
    ) -> NDArray[np.float32]:
        """Return the recorded assignment."""
        return self.state.assignment()


def without_gaps(problem: Problem) -> tuple[Problem, NDArray[np.int64]]:
    """Return the problem with seeds 1, 2, ... and the numbers that they had."""
    if problem.seeds is None:
        return problem, np.arange(0)
    classes = LabelMap.from_seeds(problem.seeds)
    return problem.with_seeds(classes.unpaint(problem.seeds)), classes.numbers
