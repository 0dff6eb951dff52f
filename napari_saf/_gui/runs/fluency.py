"""Keeps the window fluent where napari does much at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import napari
from napari.layers import Layer
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QDockWidget, QMainWindow, QWidget

__all__ = ["FullCollections", "add_in_turns", "painted_later", "prepare_lines"]

_TURN_MILLISECONDS = 15
_REST_MILLISECONDS = 3000
_NEVER = 1_000_000


class FullCollections:
    """Garbage collections that go through all objects: they wait for a rest after the runs.

    Among all the objects of napari one halts every thread for 0.4 s; one is due after each run.
    """

    _n_runs = 0
    _before = gc.get_threshold()

    @classmethod
    def hold(cls) -> None:
        """Have no more of them by themselves; calls count."""
        if not cls._n_runs and gc.get_threshold()[2] != _NEVER:
            cls._before = gc.get_threshold()
            gc.set_threshold(*cls._before[:2], _NEVER)
        cls._n_runs += 1

    @classmethod
    def release(cls) -> None:
        """Take one call of `hold` back."""
        cls._n_runs -= 1
        QTimer.singleShot(_REST_MILLISECONDS, cls._restore)

    @classmethod
    def _restore(cls) -> None:
        if not cls._n_runs:
            gc.set_threshold(*cls._before)


@contextmanager
def painted_later(
    widget: QWidget | None, then: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Do something to the window of a widget that is painted in later turns of the event loop.

    First its canvas, then its docks, one by one: a new layer takes napari some 80 ms and painting
    all of it as long, and other events come in between. When all is painted, `then` is called.
    """
    window = _main_window(widget)
    parts = [] if window is None else _parts(window)
    parts = [part for part in parts if part.updatesEnabled()]  # the others wait already
    for part in parts:
        part.setUpdatesEnabled(False)
    try:
        yield
    finally:
        if window is not None and parts:
            _Painting(window, parts, then).start(0)
        else:
            then()


def _main_window(widget: QWidget | None) -> QMainWindow | None:
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
