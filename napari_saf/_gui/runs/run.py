"""Work in threads of their own: tasks, and the run of a method that fills a mailbox."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.layers.reading import ImageJob, ProblemReader
from napari_saf._gui.runs.start import RunStart
from napari_saf._gui.settings import current_settings
from napari_saf.device import memory_errors_translated, memory_limit
from napari_saf.errors import SafError
from napari_saf.label_map import LabelMap
from napari_saf.methods import AbstractMethod, Cancelled, SweepMethod, run_to_end
from napari_saf.problem import Problem
from napari_saf.recording import Recording
from napari_saf.result import LabelImage, Segmentation, Snapshot

_logger = logging.getLogger(__name__)


class Task(QObject):
    """A call of a function in a thread of its own, under the settings of the time of its making.

    The function is called as ``function(report, cancelled)``: what it reports is sent as
    `advanced`; it asks `cancelled` now and then, and ends or raises `Cancelled` once that returns
    True. Signals arrive in the thread of the receiver: exactly one of `returned`, `failed` and
    `abandoned`, then `finished`.
    """

    advanced = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal()

    def __init__(
        self, function: Callable[[Callable[[object], None], Callable[[], bool]], object]
    ) -> None:
        super().__init__()
        self._function: Any = function
        self._settings = current_settings()
        self._began = time.perf_counter()
        self._cancelled = threading.Event()
        self._n_threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._work, name="napari-saf run")
        self.is_over = False  # all signals but the last were sent

    @property
    def seconds(self) -> float:
        """Time since the task was made."""
        return time.perf_counter() - self._began

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def cancel(self) -> None:
        """Ask the work to end with what it has."""
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the thread; return whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _clean_up(self) -> None:
        """Do what nobody waits for, once the outcome was sent."""

    def _work(self) -> None:
        settings, function = self._settings, self._function
        self._function = None  # which may hold this task
        # OpenMP has a number of threads for each thread: the main thread and other tasks keep
        # theirs. One that first asks for it gets the number set last, so it asks before it sets.
        torch.get_num_threads()
        torch.set_num_threads(settings.threads or self._n_threads)
        try:
            with memory_limit(settings.memory_limit), memory_errors_translated():
                self.returned.emit(function(self.advanced.emit, self._cancelled.is_set))
                self._clean_up()
        except Cancelled:
            self.abandoned.emit()
        except SafError as error:
            self.failed.emit(error)
        except Exception as error:
            _logger.exception("the run failed")
            self.failed.emit(error)
        finally:
            torch.set_num_threads(self._n_threads)  # for threads to come
            self.is_over = True
            self.finished.emit()


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


class Run(Task):
    """One run of one method on one image, from the `start`.

    A reader that read the image before saves the time. A sweep through the fairness weights, with
    a method that can, sends `swept` before it returns its last solution. `first_labels` is sent
    when the mailbox has its first frame.

    Attributes
    ----------
    mailbox : deque of Frame
        At most one. The run puts a frame when it is empty, and makes none otherwise; whoever takes
        it asks so for another. Neither waits for the other.
    recording : Recording or None
        Records each step; it can be set while a run that is recordable goes on: a sweep is not,
        nor are edited labels that are refined.
    problem : Problem or None
        What was read, once it was; strokes numbered without gaps.
    classes : LabelMap
        The number with which each class of the seeds was painted.
    """

    first_labels = Signal()
    swept = Signal(object)

    def __init__(
        self,
        job: ImageJob,
        method: AbstractMethod,
        is_sweep: bool = False,
        reader: ProblemReader | None = None,
        start: RunStart | None = None,
    ) -> None:
        super().__init__(self._label)
        self._job, self._method, self._is_sweep = job, method, is_sweep
        self._start = start or RunStart()
        self._reader = reader or ProblemReader()
        self._unrecorded: Segmentation | None = None
        self._has_labels = False
        self.mailbox: deque[Frame] = deque(maxlen=1)
        self.recording: Recording | None = None
        self.problem: Problem | None = None
        self.classes = LabelMap.identity(0)

    @property
    def is_recordable(self) -> bool:
        """Whether it can be recorded."""
        return self._start.is_recorded and not self._is_sweep

    def by_label(self, result: Segmentation) -> Segmentation:
        """Return the result with its prototypes in rows by the labels on screen."""
        if self._is_sweep:
            return result
        rows = self._start.prototypes_by_label(result.prototypes, self.classes)
        return dataclasses.replace(result, prototypes=rows)

    def _label(self, report: object, cancelled: Callable[[], bool]) -> Segmentation:
        read = self._reader.read(self._job, cancelled)
        problem, self.classes = self._start.begin(read, self._method)
        self.problem = problem
        if cancelled():
            raise Cancelled
        if self._is_sweep:
            assert isinstance(self._method, SweepMethod)
            weights = self._method.iterate_sweep(problem, cancelled=cancelled)
            found = run_to_end(weights, self._put)
            if not found.points:
                raise Cancelled
            self.swept.emit(found)
            return found.points[-1].segmentation
        initial = self._start.initial(problem, self.classes, self._method)
        steps = self._method.iterate(problem, initial, cancelled=cancelled)
        result = run_to_end(steps, self._put)
        if self._start.continues and self.recording:
            # The history begins before the recorded state that the run started from.
            result = dataclasses.replace(result, history=self.recording.history())
        self._unrecorded = result
        return self._start.finish(result, self.classes)

    def _put(self, snapshot: Snapshot) -> None:
        """Put a frame into the mailbox if it is empty; record the step."""
        if not self.mailbox and not self.is_cancelled:
            self.mailbox.append(self._frame_of(snapshot))
            if not self._has_labels:
                self._has_labels = True
                self.first_labels.emit()
        if self.recording is not None:
            self.recording.watch(snapshot)

    def _frame_of(self, snapshot: Snapshot) -> Frame:
        shares, labels = snapshot.record.label_shares, snapshot.labels
        own = labels[-1] if isinstance(labels, list) else labels
        return Frame(
            self._start.paint(own, self.classes),
            self.classes.extended(len(shares)).numbers[: len(shares)],
            shares,
            snapshot.prototypes,
            snapshot.n_labels,
            snapshot.record.time,
            snapshot.fraction,
        )

    def _clean_up(self) -> None:
        result, self._unrecorded = self._unrecorded, None
        if result is not None and self.recording is not None:
            self.recording.finish(result)
