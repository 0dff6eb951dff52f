"""Tasks: function calls in worker threads, whose results arrive as signals of the main thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from qtpy.QtCore import QObject, Signal
from threadpoolctl import threadpool_limits

from napari_saf._gui.napari_workarounds import prepare_labels_layers
from napari_saf._gui.settings import current_settings
from napari_saf.device import (
    interruptible,
    memory_errors_translated,
    memory_limit,
    size_text,
    torch,
)
from napari_saf.errors import SafError
from napari_saf.flow import kernels
from napari_saf.methods import Cancelled
from napari_saf.points import k_means

_logger = logging.getLogger(__name__)
LARGE_SHARE = 0.25
"""Share of the free memory from which the memory use of a task is reported."""
_CLOSING_SECONDS = 5.0


class Task(QObject):
    """A function call in a worker thread, with the settings at the time of creation.

    It is called as ``function(report, cancelled)``: reported values are emitted as `advanced`; it
    polls `cancelled` and returns early or raises `Cancelled` once that is True. Signals are emitted
    in the creating thread: exactly one of `returned`, `failed` and `abandoned`, then `finished`
    once the worker has ended.
    """

    _sending = Signal(object)
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
        self._needs: list[tuple[float, float]] = []  # bytes needed, bytes free
        self._began = time.perf_counter()
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._work, name="napari-saf run")
        self._sending.connect(self._send_here)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def memory_note(self) -> str:
        """Note on the memory use if it is high, else empty."""
        need = sum(n_bytes for n_bytes, _ in self._needs)
        free = next((room for _, room in self._needs if room), 0.0)
        if need <= LARGE_SHARE * free:
            return ""
        return f"memory: about {size_text(need)} of {size_text(free)} that were free"

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        self._cancelled.set()

    def silence(self) -> None:
        """Cancel the task and emit no further signals."""
        self.cancel()
        self.blockSignals(True)

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _send(self, signal: Any, *values: object) -> None:
        """Emit a signal in the thread that created the task."""
        self._sending.emit(partial(signal.emit, *values))

    def _send_here(self, send: Callable[[], None]) -> None:
        send()

    def _end(self) -> None:
        self._thread.join()
        self.finished.emit()

    def _clean_up(self) -> None:
        """Do work that can follow the outcome, before `finished`."""

    def _work(self) -> None:
        settings, function = self._settings, self._function
        self._function = None  # it may reference this task
        torch.get_num_threads()  # torch sets the number once per thread, on the first call
        try:
            with (
                # OpenMP limits are per thread: other threads keep theirs.
                threadpool_limits(settings.threads, "openmp")
                if settings.threads
                else nullcontext(),
                memory_limit(settings.memory_limit, lambda *need: self._needs.append(need)),
                memory_errors_translated(),
                interruptible(self._cancelled.is_set),
            ):
                report = partial(self._send, self.advanced)
                self._send(self.returned, function(report, self._cancelled.is_set))
                self._clean_up()
        except Cancelled:
            self._send(self.abandoned)
        except Exception as error:
            if not isinstance(error, SafError):
                _logger.exception("the run failed")
            self._send(self.failed, error)
        finally:
            self._sending.emit(self._end)


class BackgroundTasks(QObject):
    """Short background calculations by key; a new one replaces an earlier one of the same key.

    `failed` emits the key and the error.
    """

    failed = Signal(str, object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._tasks: dict[str, Task] = {}
        self._ending: set[Task] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def is_running(self, key: str) -> bool:
        return key in self._tasks

    def run(
        self, key: str, function: Callable[[Callable[[], bool]], Any], then: Callable[[Any], object]
    ) -> None:
        """Call a function with `cancelled` in a thread, then `then` with its result."""
        self.drop(key)
        # A bound slot, since Qt may delete this object before the task ends.
        task = self._tasks[key] = Task(lambda report, cancelled: (then, function(cancelled)))
        task.returned.connect(self._on_returned)
        task.failed.connect(self._on_failed)
        task.finished.connect(self._on_finished)
        task.start()

    def drop(self, key: str) -> None:
        """Cancel the calculation of a key, if any; its result is ignored."""
        task = self._tasks.pop(key, None)
        if task is not None:
            self.drop_task(task)

    def drop_task(self, task: Task) -> None:
        """Silence a task and keep a reference to it until its thread has ended."""
        task.silence()
        self._ending = {ending for ending in self._ending if not ending.wait(0)} | {task}

    def shut_down(self) -> None:
        """Cancel all calculations, and wait for their threads."""
        for key in [*self._tasks]:
            self.drop(key)
        for task in self._ending:
            task.wait(_CLOSING_SECONDS)
        self._ending.clear()

    def _on_returned(self, outcome: tuple[Callable[[Any], object], Any]) -> None:
        then, result = outcome
        then(result)

    def _on_failed(self, error: Exception) -> None:
        sender = self.sender()
        key = next((key for key, task in self._tasks.items() if task is sender), "")
        self.failed.emit(key, error)

    def _on_finished(self) -> None:
        ended = self.sender()
        self._tasks = {key: task for key, task in self._tasks.items() if task is not ended}
        self._ending = {task for task in self._ending if not task.wait(0)}


def load_libraries(cancelled: Callable[[], bool]) -> None:
    """Load the libraries of runs that docks do not need; `Task` has imported torch."""
    k_means(np.array([[0.0], [1.0]]), 2)  # the first call of scikit-learn searches for thread pools
    kernels()
    prepare_labels_layers()
    import sklearn.decomposition  # noqa: F401 - for few runs
