"""A run in a thread of its own: reads the image, runs the method, sends frames."""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Signal

from napari_saf._gui.layers.reading import ImageJob, ProblemReader
from napari_saf._gui.runs.background import AbstractTask
from napari_saf._gui.runs.start import RunStart, numbers_of_columns
from napari_saf.methods import AbstractMethod, Cancelled, SweepMethod, run_to_end
from napari_saf.problem import Problem
from napari_saf.recording import Recording
from napari_saf.result import LabelImage, Segmentation, Snapshot

__all__ = ["Frame", "Run"]

_FRAME_SECONDS = 1.0
_SCREEN_SHARE = 1 / 3
_OUTCOME_SECONDS = 0.5


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
    origin : RunStart, optional
        Where to begin; by default from nothing.

    Attributes
    ----------
    recording : Recording or None
        What takes note of each step; it can be set while a run that is recordable goes on: a sweep
        is not, nor are edited labels that go on.
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
        origin: RunStart | None = None,
    ) -> None:
        super().__init__()
        self._origin = origin or RunStart()
        self._unrecorded: Segmentation | None = None
        self.recording: Recording | None = None
        self._reader = reader or ProblemReader()
        self.job = job
        self.method = method
        self.is_sweep = is_sweep
        self.problem: Problem | None = None
        self.numbers = np.arange(0)
        self._consumed = threading.Event()
        self._consumed.set()
        self._first_frame, self._last_frame = np.inf, -np.inf
        self._lag = 0.0

    @property
    def is_recordable(self) -> bool:
        """Whether it can be recorded."""
        return self._origin.is_recorded and not self.is_sweep

    def by_label(self, result: Segmentation) -> Segmentation:
        """Return the result with its prototypes in rows by the labels on screen."""
        if self.is_sweep:
            return result
        rows = self._origin.prototypes_by_label(result.prototypes, self.numbers)
        return dataclasses.replace(result, prototypes=rows)

    def cancel(self) -> None:
        """Ask the run to end with what it has; it does so within one evaluation."""
        super().cancel()
        self._consumed.set()

    def consume(self) -> None:
        """Tell that the last frame, or the outcome, is on screen, so that work may go on."""
        if self._last_frame > self._first_frame:  # the first takes longer: a layer is made
            self._lag = time.perf_counter() - self._last_frame
        self._consumed.set()

    def _compute(self) -> Segmentation:
        read = self._reader.read(self.job, self._cancelled.is_set)
        problem, self.numbers = self._origin.begin(read, self.method)
        self.problem = problem
        if self.is_cancelled:
            raise Cancelled
        if not self.is_sweep:
            initial = self._origin.initial(problem, self.numbers, self.method)
            steps = self.method.iterate(problem, initial, cancelled=self._cancelled.is_set)
            result = self._whole(run_to_end(steps, self._look))
            self._unrecorded = result
            self._consumed.clear()
            return self._origin.finish(result, self.numbers)
        assert isinstance(self.method, SweepMethod)
        weights = self.method.iterate_sweep(problem, cancelled=self._cancelled.is_set)
        found = run_to_end(weights, self._look)
        if not found.points:
            raise Cancelled
        self.swept.emit(found)
        return found.points[-1].segmentation

    def _look(self, snapshot: Snapshot) -> None:
        if self._frame_is_due():
            self._send(snapshot)
        if self.recording is not None:
            self.recording.watch(snapshot)

    def _whole(self, result: Segmentation) -> Segmentation:
        """Return a result whose history goes back to before the moment from which it started."""
        recording = self.recording
        if recording is None or not self._origin.continues:
            return result
        return dataclasses.replace(result, history=recording.history()) if recording else result

    def _tidy_up(self) -> None:
        # Giving memory back holds up who asks for some, as the screen does for the outcome.
        self._consumed.wait(_OUTCOME_SECONDS)
        result, self._unrecorded = self._unrecorded, None
        if result is not None and self.recording is not None:
            self.recording.finish(result)

    def _frame_is_due(self) -> bool:
        """Tell whether the screen wants another frame: it gets a third of the time at most."""
        since = time.perf_counter() - self._last_frame
        rested = since >= max(1 / self._settings.frames, self._lag / _SCREEN_SHARE)
        return rested and self._consumed.is_set() and not self.is_cancelled

    def _send(self, snapshot: Snapshot) -> None:
        shares = snapshot.record.label_shares
        labels = snapshot.labels
        own = labels[-1] if isinstance(labels, list) else labels
        frame = Frame(
            self._origin.paint(own, self.numbers),
            numbers_of_columns(self.numbers, len(shares)),
            shares,
            snapshot.prototypes,
            snapshot.n_labels,
            snapshot.record.time,
            snapshot.fraction,
        )
        self._consumed.clear()
        if self.is_cancelled:
            return
        self._last_frame = time.perf_counter()
        self._first_frame = min(self._first_frame, self._last_frame)
        self.advanced.emit(frame)
        # The screen has every core meanwhile; then the work has.
        self._consumed.wait(_FRAME_SECONDS)
