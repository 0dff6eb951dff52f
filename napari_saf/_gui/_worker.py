"""A run in a thread of its own: reads the image, runs the method, sends frames."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from napari_saf._gui._reading import ImageJob
from napari_saf.errors import ComputeError, SafError
from napari_saf.methods import AbstractMethod, SweepMethod
from napari_saf.methods._method import Cancelled
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, Segmentation, Snapshot

__all__ = ["Frame", "Run"]

_FRAME_SECONDS = 0.1
_FIRST_FRAME_SECONDS = 1.0
T = TypeVar("T")
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What the screen shows of a snapshot; stays valid when the run goes on."""

    labels: LabelImage
    shares: NDArray[np.float64]
    prototypes: NDArray[np.float32]
    n_labels: int
    time: float
    fraction: float


class Run(QObject):
    """One run of one method on one image.

    Signals arrive in the thread of the receiver. Exactly one of `returned`, `failed` and
    `abandoned` is sent, then `finished`. A sweep sends `swept` before it returns its last
    solution.

    Parameters
    ----------
    job : ImageJob
    method : AbstractMethod
    is_sweep : bool
        Whether to go through the fairness weights, with a method that can.

    Attributes
    ----------
    problem : Problem or None
        What was read, once it was.
    """

    advanced = Signal(object)
    swept = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal()

    def __init__(self, job: ImageJob, method: AbstractMethod, is_sweep: bool = False) -> None:
        super().__init__()
        self.job = job
        self.method = method
        self.is_sweep = is_sweep
        self.problem: Problem | None = None
        self._began = time.perf_counter()
        self._cancelled = threading.Event()
        self._consumed = threading.Event()
        self._consumed.set()
        self._last_frame = -np.inf
        self._thread = threading.Thread(target=self._work, name="napari-saf run")

    @property
    def seconds(self) -> float:
        """Time since the run was made."""
        return time.perf_counter() - self._began

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def cancel(self) -> None:
        """Ask the run to end with what it has; it does so within one evaluation."""
        self._cancelled.set()

    def consume(self) -> None:
        """Tell that the last frame is on screen, so that the next may be sent."""
        self._consumed.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the thread; return whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            with _a_core_left_free():
                self.returned.emit(self._compute())
        except Cancelled:
            self.abandoned.emit()
        except SafError as error:
            self.failed.emit(error)
        except (RuntimeError, MemoryError) as error:
            self.failed.emit(ComputeError(str(error) or type(error).__name__))
        except Exception as error:
            _logger.exception("the run failed")
            self.failed.emit(error)
        finally:
            self.finished.emit()

    def _compute(self) -> Segmentation:
        problem = self.problem = self.job.read(self._cancelled.is_set)
        if self.is_cancelled:
            raise Cancelled
        if not self.is_sweep:
            return self._follow(self.method.iterate(problem, cancelled=self._cancelled.is_set))
        assert isinstance(self.method, SweepMethod)
        found = self._follow(self.method.iterate_sweep(problem, cancelled=self._cancelled.is_set))
        if not found.points:
            raise Cancelled
        self.swept.emit(found)
        return found.points[-1].segmentation

    def _follow(self, steps: Generator[Snapshot, None, T]) -> T:
        """Go to the end, with a frame now and then, and return what comes of it."""
        while True:
            try:
                snapshot = next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if self._frame_is_due():
                self._send(snapshot)

    def _frame_is_due(self) -> bool:
        rested = time.perf_counter() - self._last_frame >= _FRAME_SECONDS
        return rested and self._consumed.is_set() and not self.is_cancelled

    def _send(self, snapshot: Snapshot) -> None:
        labels = snapshot.labels
        assert not isinstance(labels, list)
        frame = Frame(
            labels,
            snapshot.record.label_shares,
            snapshot.prototypes,
            snapshot.n_labels,
            snapshot.record.time,
            snapshot.fraction,
        )
        is_first = self._last_frame == -np.inf
        self._consumed.clear()
        self.advanced.emit(frame)
        if is_first:
            # The screen makes a layer of it: leave it the processor meanwhile.
            self._consumed.wait(_FIRST_FRAME_SECONDS)
        self._last_frame = time.perf_counter()


@contextmanager
def _a_core_left_free() -> Iterator[None]:
    """Let torch use one thread less than there are cores, so that the screen stays fluent."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before - 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)
