"""Keeps the window fluent where napari does much at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import napari
from napari.layers import Layer
from qtpy.QtCore import QCoreApplication, QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import QDockWidget, QMainWindow, QWidget

__all__ = ["add_in_turns", "full_collections", "main_window", "painted_later", "prepare_lines"]

_TURN_MILLISECONDS = 15
_REST_MILLISECONDS = 3000
_MINUTE_MILLISECONDS = 60_000
_NEVER = 1_000_000


class FullCollections(QObject):
    """Garbage collections that go through all objects: they wait for a rest after the tasks.

    Among all the objects of napari one halts every thread for 0.3 s, and they come often where
    much is computed. While tasks go on for long, there is one a minute.
    """

    _released = Signal()
    _before = gc.get_threshold()

    def __init__(self, parent: QObject | None) -> None:
        super().__init__(parent)
        self._n_tasks = 0
        self._rest, self._minute = QTimer(self), QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.timeout.connect(self._restore)
        self._minute.timeout.connect(_collect)
        self._released.connect(self._count_down)

    def hold(self) -> None:
        """Have no more of them by themselves; calls count."""
        if not self._n_tasks and gc.get_threshold()[2] != _NEVER:
            type(self)._before = gc.get_threshold()
            gc.set_threshold(*self._before[:2], _NEVER)
            self._minute.start(_MINUTE_MILLISECONDS)
        self._n_tasks += 1

    def release(self) -> None:
        """Take one call of `hold` back; in any thread."""
        with suppress(RuntimeError):  # the application may be gone
            self._released.emit()

    def _count_down(self) -> None:
        self._n_tasks -= 1
        self._rest.start(_REST_MILLISECONDS)

    def _restore(self) -> None:
        if not self._n_tasks:
            self._minute.stop()
            gc.set_threshold(*self._before)


def _collect() -> None:
    if gc.isenabled():
        gc.collect()


def full_collections() -> FullCollections:
    """Return the only ones of the application; to be called in the main thread."""
    application = QCoreApplication.instance()
    found = None if application is None else application.findChild(FullCollections)
    return found or FullCollections(application)


@contextmanager
def painted_later(
    widget: QWidget | None, then: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Do something to the window of a widget that is painted in later turns of the event loop.

    First its canvas, then its docks, one by one: a new layer takes napari some 80 ms and painting
    all of it as long, and other events come in between. When all is painted, `then` is called.
    Full garbage collections wait.
    """
    collections = full_collections()
    window = main_window(widget)
    parts = [] if window is None else _parts(window)
    parts = [part for part in parts if part.updatesEnabled()]  # the others wait already
    for part in parts:
        part.setUpdatesEnabled(False)
    collections.hold()
    try:
        yield
    finally:
        collections.release()
        if window is not None and parts:
            _Painting(window, parts, then).start(0)
        else:
            then()


def main_window(widget: QWidget | None) -> QMainWindow | None:
    """Return the window of a widget, or of the dock that floats with it; None without one."""
    while widget is not None and not isinstance(widget, QMainWindow):
        widget = widget.parentWidget()
    return widget


def _parts(window: QMainWindow) -> list[QWidget]:
    """Return the parts of a window that are in sight."""
    docks = window.findChildren(QDockWidget, options=Qt.FindChildOption.FindDirectChildrenOnly)
    parts = [window.centralWidget(), *docks]
    return [part for part in parts if part is not None and not part.visibleRegion().isEmpty()]


class _Painting(QTimer):
    """Has parts of a window painted, one in a turn; goes with the window."""

    def __init__(self, window: QWidget, parts: list[QWidget], then: Callable[[], object]) -> None:
        super().__init__(window)
        self._parts, self._then = parts, then
        self.setSingleShot(True)
        self.timeout.connect(self._go_on)

    def _go_on(self) -> None:
        if self._parts:
            # A dock may have been closed meanwhile.
            with suppress(RuntimeError):
                self._parts.pop(0).setUpdatesEnabled(True)
            self.start(_TURN_MILLISECONDS)
            return
        self.deleteLater()
        self._then()


def add_in_turns(
    viewer: napari.Viewer,
    widget: QWidget,
    layers: Sequence[Callable[[], Layer]],
    then: Callable[[list[Any]], None],
) -> None:
    """Make layers and add them, then tell which they are there.

    Each step has a turn of the event loop of its own. The timer goes with the widget.
    """
    made: list[Layer] = []
    added: list[Any] = []
    timer = QTimer(widget)
    timer.setInterval(_TURN_MILLISECONDS)

    def step() -> None:
        if len(added) == len(layers):
            timer.stop()
            timer.deleteLater()
            then(added)
        elif len(made) == len(added):
            made.append(layers[len(made)]())
        else:
            with painted_later(widget):
                added.append(viewer.add_layer(made[-1]))

    timer.timeout.connect(step)
    timer.start()


def prepare_lines() -> None:
    """Have vispy make its patterns of lines, which it keeps.

    Else it makes them with the first layer of labels: 90 ms in which nothing else happens.
    """
    with suppress(ImportError):
        from vispy.visuals.line.dash_atlas import DashAtlas

        DashAtlas()
