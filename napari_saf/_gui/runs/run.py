"""A run in a thread of its own: reads the image, runs the method, puts frames in a mailbox."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Signal

from napari_saf._gui.layers.reading import ImageJob, ProblemReader
from napari_saf._gui.runs.background import AbstractTask
from napari_saf._gui.runs.start import RunStart
from napari_saf.label_map import LabelMap
from napari_saf.methods import AbstractMethod, Cancelled, SweepMethod, run_to_end
from napari_saf.problem import Problem
from napari_saf.recording import Recording
from napari_saf.result import LabelImage, Segmentation, Snapshot


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What the screen shows of a snapshot; owns its arrays.

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


class Mailbox:
    """Passes frames from a run to the screen; neither waits for the other.

    The run puts a frame when one is wanted, and makes none otherwise. The screen takes it and so
    asks for another: what it takes is as old as the time between two of its looks at most.
    """

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._wanted = threading.Event()
        self._wanted.set()

    @property
    def wants_frame(self) -> bool:
        """Whether the last frame was taken."""
        return self._wanted.is_set()

    def put(self, frame: Frame) -> None:
        """Hold a frame for the screen."""
        self._wanted.clear()
        self._frame = frame

    def take(self) -> Frame | None:
        """Return the frame and ask for another; None if there is none."""
        frame = self._frame
        if frame is not None:
            # Cleared only here: a frame put while there was none to take is not lost.
            self._frame = None
            self._wanted.set()
        return frame


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
    start : RunStart, optional
        Where to begin; by default from nothing.

    Attributes
    ----------
    mailbox : Mailbox
        What the screen shows of the run under way.
    recording : Recording or None
        Records each step; it can be set while a run that is recordable goes on: a sweep is not,
        nor are edited labels that are refined.
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
        start: RunStart | None = None,
    ) -> None:
        super().__init__()
        self.job = job
        self.method = method
        self.is_sweep = is_sweep
        self.mailbox = Mailbox()
        self.recording: Recording | None = None
        self.problem: Problem | None = None
        self.numbers = np.arange(0)
        self._start = start or RunStart()
        self._reader = reader or ProblemReader()
        self._unrecorded: Segmentation | None = None

    @property
    def is_recordable(self) -> bool:
        """Whether it can be recorded."""
        return self._start.is_recorded and not self.is_sweep

    def by_label(self, result: Segmentation) -> Segmentation:
        """Return the result with its prototypes in rows by the labels on screen."""
        if self.is_sweep:
            return result
        rows = self._start.prototypes_by_label(result.prototypes, self.numbers)
        return dataclasses.replace(result, prototypes=rows)

    def _compute(self) -> Segmentation:
        cancelled = self._cancelled.is_set
        read = self._reader.read(self.job, cancelled)
        problem, self.numbers = self._start.begin(read, self.method)
        self.problem = problem
        if cancelled():
            raise Cancelled
        if self.is_sweep:
            return self._sweep(problem)
        initial = self._start.initial(problem, self.numbers, self.method)
        steps = self.method.iterate(problem, initial, cancelled=cancelled)
        result = self._unrecorded = self._with_earlier_history(run_to_end(steps, self._on_step))
        return self._start.finish(result, self.numbers)

    def _sweep(self, problem: Problem) -> Segmentation:
        assert isinstance(self.method, SweepMethod)
        weights = self.method.iterate_sweep(problem, cancelled=self._cancelled.is_set)
        found = run_to_end(weights, self._on_step)
        if not found.points:
            raise Cancelled
        self.swept.emit(found)
        return found.points[-1].segmentation

    def _on_step(self, snapshot: Snapshot) -> None:
        if self.mailbox.wants_frame and not self.is_cancelled:
            self.mailbox.put(self._frame_of(snapshot))
        if self.recording is not None:
            self.recording.watch(snapshot)

    def _frame_of(self, snapshot: Snapshot) -> Frame:
        shares, labels = snapshot.record.label_shares, snapshot.labels
        own = labels[-1] if isinstance(labels, list) else labels
        return Frame(
            self._start.paint(own, self.numbers),
            LabelMap(self.numbers).extended(len(shares)).numbers[: len(shares)],
            shares,
            snapshot.prototypes,
            snapshot.n_labels,
            snapshot.record.time,
            snapshot.fraction,
        )

    def _with_earlier_history(self, result: Segmentation) -> Segmentation:
        """Return the result with the history from before the recorded state it started from."""
        recording = self.recording
        if recording is None or not self._start.continues or not recording:
            return result
        return dataclasses.replace(result, history=recording.history())

    def _clean_up(self) -> None:
        result, self._unrecorded = self._unrecorded, None
        if result is not None and self.recording is not None:
            self.recording.finish(result)
