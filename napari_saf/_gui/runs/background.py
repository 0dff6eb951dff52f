"""Cancellable work in a background thread."""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.settings import current_settings
from napari_saf.device import memory_errors_translated, memory_limit
from napari_saf.errors import SafError
from napari_saf.methods import Cancelled

_logger = logging.getLogger(__name__)


class AbstractTask(QObject):
    """Work in a thread of its own.

    Signals arrive in the thread of the receiver. Exactly one of `returned`, `failed` and
    `abandoned` is sent, then `finished`. Subclasses do the work in `_compute`, and raise
    `Cancelled` there to abandon it; what can wait until the outcome was sent, in `_clean_up`. The
    settings at the time at which it is made apply.
    """

    advanced = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._settings = current_settings()
        self._began = time.perf_counter()
        self._cancelled = threading.Event()
        self._over = threading.Event()
        self._n_threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._work, name="napari-saf run")

    @property
    def seconds(self) -> float:
        """Time since the task was made."""
        return time.perf_counter() - self._began

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    @property
    def is_over(self) -> bool:
        """Whether the work has ended, and all signals but the last were sent."""
        return self._over.is_set()

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

    @abstractmethod
    def _compute(self) -> Any:
        """Do the work."""

    def _clean_up(self) -> None:
        """Do what nobody waits for, once the outcome was sent."""

    def _work(self) -> None:
        settings = self._settings
        try:
            with (
                torch_threads(settings.threads, self._n_threads),
                memory_limit(settings.memory_limit),
                memory_errors_translated(),
            ):
                self.returned.emit(self._compute())
                self._clean_up()
        except Cancelled:
            self.abandoned.emit()
        except SafError as error:
            self.failed.emit(error)
        except Exception as error:
            _logger.exception("the run failed")
            self.failed.emit(error)
        finally:
            self._over.set()
            self.finished.emit()


class FunctionTask(AbstractTask):
    """A call of a function.

    Parameters
    ----------
    function : callable
        Called as ``function(report, cancelled)``: what it reports is sent as `advanced`; it asks
        `cancelled` now and then, and ends or raises `Cancelled` once that returns True.
    """

    def __init__(
        self, function: Callable[[Callable[[object], None], Callable[[], bool]], object]
    ) -> None:
        super().__init__()
        self._function = function

    def _compute(self) -> object:
        return self._function(self.advanced.emit, self._cancelled.is_set)


@contextmanager
def torch_threads(n_threads: int, default: int) -> Iterator[None]:
    """Let torch use so many cores for what the calling thread computes.

    OpenMP keeps the number for each thread by itself: the main thread and other tasks keep theirs.
    A thread takes the number that was set last when it first asks torch for it, so it asks before
    it sets its own; for threads to come, `default` is set at the end.

    Parameters
    ----------
    n_threads : int
        0: `default`.
    default : int
        The number of the main thread.
    """
    torch.get_num_threads()
    torch.set_num_threads(n_threads or default)
    try:
        yield
    finally:
        torch.set_num_threads(default)
