"""A run in a thread of its own: reads the image, runs the method, sends frames."""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Signal

from napari_saf._gui._reading import ImageJob, ProblemReader
from napari_saf._gui._restart import ColumnNumbers
from napari_saf._gui._task import AbstractTask
from napari_saf.methods import AbstractMethod, SweepMethod
from napari_saf.methods._method import Cancelled, drain
from napari_saf.problem import Problem
from napari_saf.recording import Recording, StateMoment
from napari_saf.result import LabelImage, Segmentation, Snapshot

__all__ = ["Frame", "Run", "WarmStart", "without_gaps"]

_FIRST_FRAME_SECONDS = 1.0
_LEAST = 1e-10
_SOFTENING = 0.1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What the screen shows of a snapshot; stays valid when the run goes on.

    Entry k of `numbers` is the label of column k on screen: the number it was painted with.
    """

    labels: LabelImage
    numbers: NDArray[np.int64]
    shares: NDArray[np.float64]
    prototypes: NDArray[np.float32]
    n_labels: int
    time: float
    fraction: float

    @property
    def n_shown(self) -> int:
        """The largest number that a label may have."""
        return int(self.numbers.max(initial=0))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """The end of an earlier run, from which another may go on.

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

    def initial(self, n_nodes: int, numbers: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Return an assignment to start from, for classes of these numbers; None if none fits."""
        if len(self.assignment) != n_nodes:
            return None
        start = np.full((n_nodes, len(numbers)), _LEAST, dtype=np.float32)
        _, new, old = np.intersect1d(numbers, self.numbers, return_indices=True)
        start[:, new] = self.assignment[:, old].clip(_LEAST)
        # The end of a run is sure of itself: softened, it can be changed.
        start **= _SOFTENING
        return np.asarray(start / start.sum(axis=1, keepdims=True))


class Run(AbstractTask):
    """One run of one method on one image.

    A sweep sends `swept` before it returns its last solution.

    Parameters
    ----------
    job : ImageJob
    method : AbstractMethod
    is_sweep : bool
        Whether to go through the fairness weights, with a method that can.
    reader : ProblemReader, optional
        What reads the image; one that read it before saves the time.
    warm : WarmStart, optional
        What to go on from, where it fits.
    columns : ColumnNumbers, optional
        The labels that columns have on screen, and perhaps edited labels to go on from.
    start : StateMoment, optional
        What to start from, as it is.

    Attributes
    ----------
    recording : Recording or None
        What takes note of each step; it can be set while the run goes on. A sweep is not recorded,
        nor are edited labels that go on.
    problem : Problem or None
        What was read, once it was; strokes numbered without gaps.
    numbers : array of int
        The number with which each class of the seeds was painted.
    """

    swept = Signal(object)

    def __init__(
        self,
        job: ImageJob,
        method: AbstractMethod,
        is_sweep: bool = False,
        reader: ProblemReader | None = None,
        warm: WarmStart | None = None,
        columns: ColumnNumbers | None = None,
        start: StateMoment | None = None,
    ) -> None:
        super().__init__()
        self._warm = warm
        self._columns = columns
        self._start = start
        self.recording: Recording | None = None
        self._reader = reader or ProblemReader()
        self.job = job
        self.method = method
        self.is_sweep = is_sweep
        self.problem: Problem | None = None
        self.numbers = np.arange(0)
        self._consumed = threading.Event()
        self._consumed.set()
        self._last_frame = -np.inf
        self._lag = 0.0

    def cancel(self) -> None:
        """Ask the run to end with what it has; it does so within one evaluation."""
        super().cancel()
        self._consumed.set()

    def consume(self) -> None:
        """Tell that the last frame is on screen, so that the next may be sent."""
        self._lag = time.perf_counter() - self._last_frame
        self._consumed.set()

    def _compute(self) -> Segmentation:
        read = self._reader.read(self.job, self._cancelled.is_set)
        if self._columns is None:
            problem, self.numbers = without_gaps(read)
        else:
            problem, self.numbers = self._columns.begin(read), self._columns.numbers
        self.problem = problem
        if self.is_cancelled:
            raise Cancelled
        if not self.is_sweep:
            initial = self._initial(problem)
            steps = self.method.iterate(problem, initial, cancelled=self._cancelled.is_set)
            result = drain(steps, self._look)
            if self._columns is not None:
                return self._columns.finish(result)
            result = self._recorded(result)
            return dataclasses.replace(result, labels=self._as_painted(result.labels))
        assert isinstance(self.method, SweepMethod)
        weights = self.method.iterate_sweep(problem, cancelled=self._cancelled.is_set)
        found = drain(weights, self._look)
        if not found.points:
            raise Cancelled
        self.swept.emit(found)
        return found.points[-1].segmentation

    def _look(self, snapshot: Snapshot) -> None:
        recording = self.recording
        if recording is not None and not self.is_sweep and self._columns is None:
            recording.watch(snapshot)
        if self._frame_is_due():
            self._send(snapshot)

    def _recorded(self, result: Segmentation) -> Segmentation:
        """Return a result whose history goes back to before the moment from which it started."""
        recording = self.recording
        if recording is None:
            return result
        recording.finish(result)
        if self._start is None or not len(recording):
            return result
        return dataclasses.replace(result, history=recording.history())

    def _frame_is_due(self) -> bool:
        """Tell whether the screen wants another frame: it gets half of the time at most."""
        since = time.perf_counter() - self._last_frame
        rested = since >= max(1 / self._settings.frames, 2 * self._lag)
        return rested and self._consumed.is_set() and not self.is_cancelled

    def _send(self, snapshot: Snapshot) -> None:
        shares = snapshot.record.label_shares
        frame = Frame(
            self._as_painted(snapshot.labels),
            self._numbers(len(shares)),
            shares,
            snapshot.prototypes,
            snapshot.n_labels,
            snapshot.record.time,
            snapshot.fraction,
        )
        is_first = self._last_frame == -np.inf
        self._consumed.clear()
        self._last_frame = time.perf_counter()
        self.advanced.emit(frame)
        if is_first:
            # The screen makes a layer of it: leave it the processor meanwhile.
            self._consumed.wait(_FIRST_FRAME_SECONDS)

    def _initial(self, problem: Problem) -> NDArray[np.float32] | None:
        """Return the assignment to go on from; new labels would have no column in a warm one."""
        if self._columns is not None:
            return self._columns.initial(problem)
        if self._start is not None:
            return self._start.assignment()
        if self._warm is None or not self.method.follows_seeds:
            return None
        return self._warm.initial(problem.n_nodes, self.numbers)

    def _as_painted(self, labels: LabelImage | list[LabelImage]) -> LabelImage:
        """Return the labels of the image that is asked for, numbered as the strokes are."""
        own = labels[-1] if isinstance(labels, list) else labels
        if self._columns is not None:
            return self._columns.paint(own)
        n_columns = int(own.max(initial=0))
        numbers = self._numbers(n_columns)
        if (numbers == np.arange(1, n_columns + 1)).all():
            return own
        table = np.concatenate([[0], numbers])
        return table.astype(np.min_scalar_type(int(table.max())))[own]

    def _numbers(self, n_columns: int) -> NDArray[np.int64]:
        """Return the numbers of columns; those that no stroke has come after all others."""
        last = int(self.numbers.max(initial=0))
        more = np.arange(last + 1, last + 1 + max(0, n_columns - len(self.numbers)))
        return np.concatenate([self.numbers, more])[:n_columns]


def without_gaps(problem: Problem) -> tuple[Problem, NDArray[np.int64]]:
    """Return the problem with seeds 1, 2, ... and the numbers that they had."""
    if problem.seeds is None:
        return problem, np.arange(0)
    numbers = np.unique(problem.seeds[problem.seeds > 0])
    table = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
    table[numbers] = np.arange(1, len(numbers) + 1)
    return problem.with_seeds(table[problem.seeds]), numbers
