"""A dock that runs a method, and does other work beside it, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import napari
from napari.layers import Layer

from napari_saf._gui.docks.run_dock import RunDock
from napari_saf._gui.runs.fluency import add_in_turns
from napari_saf._gui.runs.task import FunctionTask

__all__ = ["TaskDock"]

_CLOSING_SECONDS = 5.0
_Told = Callable[[Any], None]


def _forget(result: object) -> None:
    """Take no notice."""


class TaskDock(RunDock):
    """A dock that does one piece of work at a time in a thread, with Stop.

    Beside it small calculations may go on that nobody waits for.

    Parameters
    ----------
    viewer : napari.Viewer
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._task: FunctionTask | None = None
        self._task_words = ""
        self._is_adding = False
        self._task_told: tuple[_Told, _Told | None] = (_forget, None)
        self._asides: dict[str, FunctionTask] = {}
        self._ending: set[FunctionTask] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a run or a task is under way, or its layers are being added."""
        return self.session.is_running or self._task is not None or self._is_adding

    def begin_task(
        self,
        words: str,
        function: Callable[[Callable[[object], None], Callable[[], bool]], Any],
        on_returned: _Told,
        on_advanced: _Told | None = None,
    ) -> None:
        """Do some work; nothing happens while other work is under way.

        Parameters
        ----------
        words : str
            What is being done.
        function : callable
            See `FunctionTask`.
        on_returned, on_advanced : callable
            Told what it returned, what it reported.
        """
        if self.is_busy:
            return
        task = self._task = FunctionTask(function)
        self._task_words = words
        self._task_told = (on_returned, on_advanced)
        # Methods of a widget: such connections end with it.
        task.returned.connect(self._on_task_returned)
        task.advanced.connect(self._on_task_advanced)
        task.failed.connect(self._on_task_failed)
        task.abandoned.connect(self._on_task_abandoned)
        task.finished.connect(self._on_task_finished)
        self.status.reset(f"{words} …")
        self._clock.start()
        self._show_what_is_possible()
        task.start()

    def calculate_aside(
        self, key: str, function: Callable[[Callable[[], bool]], Any], then: _Told
    ) -> None:
        """Calculate something small; a new call with the same key takes the place of the old."""
        before = self._asides.get(key)
        if before is not None:
            self._drop(before)
        task = self._asides[key] = FunctionTask(
            lambda report, cancelled: (then, function(cancelled))
        )
        task.returned.connect(self._on_aside_returned)
        task.failed.connect(self._on_failed)
        task.finished.connect(self._on_aside_finished)
        task.start()

    def add_layers(
        self, layers: Sequence[Callable[[], Layer]], then: Callable[[list[Any]], None]
    ) -> None:
        """Make layers and add them to the viewer one by one; tell which they are there."""
        self._is_adding = True

        def finish(added: list[Any]) -> None:
            self._is_adding = False
            if not self._life.has_ended:
                then(added)
                self._show_what_is_possible()

        add_in_turns(self._viewer, self, layers, finish)

    def stop_task(self) -> None:
        """End the work with what it has."""
        if self._task is not None:
            self._task.cancel()
            self.status.set_text("stopping …")

    def _on_gone(self) -> None:
        self._end_tasks()
        super()._on_gone()

    def _end_tasks(self) -> None:
        tasks = [*self._asides.values(), *([] if self._task is None else [self._task])]
        for task in tasks:
            self._drop(task)
        for task in list(self._ending):
            task.wait(_CLOSING_SECONDS)
        self._task = None
        self._asides.clear()
        self._ending.clear()

    def _drop(self, task: FunctionTask) -> None:
        """Take no notice of a task any more; it is kept until its thread has ended."""
        task.cancel()
        for signal in (task.advanced, task.returned, task.failed, task.abandoned, task.finished):
            _disconnect(signal)
        self._ending = {other for other in self._ending if not other.wait(0)} | {task}

    def _on_stop_clicked(self) -> None:
        if self._task is None:
            super()._on_stop_clicked()
        else:
            self.stop_task()

    def _on_clock(self) -> None:
        if self._task is None:
            super()._on_clock()
        elif self._task.is_cancelled:
            self.status.set_text(f"stopping …  {self._task.seconds:.1f} s")
        else:
            self.status.set_text(f"{self._task_words} …  {self._task.seconds:.1f} s")

    def _on_task_returned(self, result: Any) -> None:
        self._clock.stop()
        self._task_told[0](result)

    def _on_task_advanced(self, report: Any) -> None:
        if self._task_told[1] is not None:
            self._task_told[1](report)

    def _on_task_failed(self, error: Exception) -> None:
        self._clock.stop()
        self._on_failed(error)

    def _on_task_abandoned(self) -> None:
        self._clock.stop()
        self.status.reset("stopped")

    def _on_task_finished(self) -> None:
        if self._task is not None:
            self._task.wait(_CLOSING_SECONDS)
        self._task = None
        self._task_told = (_forget, None)
        self._clock.stop()
        self._show_what_is_possible()

    def _on_aside_returned(self, found: tuple[_Told, Any]) -> None:
        then, result = found
        then(result)

    def _on_aside_finished(self) -> None:
        for key in [key for key, task in self._asides.items() if task.is_over]:
            self._asides.pop(key).wait(_CLOSING_SECONDS)
        self._ending = {other for other in self._ending if not other.wait(0)}

    def _show_what_is_possible(self) -> None:
        super()._show_what_is_possible()
        self._stop_button.setEnabled(self.is_busy)


def _disconnect(signal: Any) -> None:
    """Disconnect a signal, whether or not anything is connected."""
    try:
        signal.disconnect()
    except TypeError:
        return
