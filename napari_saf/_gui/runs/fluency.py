"""Keeps the window fluent where napari does much at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import napari
from napari.layers import Layer
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QWidget

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
def painted_later(widget: QWidget | None) -> Iterator[None]:
    """Do something to the window of a widget that is painted in a later turn of the event loop.

    A new layer takes napari some 80 ms and its painting 30 ms: other events come in between.
    """
    window = None if widget is None else widget.window()
    if window is None or not window.updatesEnabled():
        yield
        return
    window.setUpdatesEnabled(False)
    try:
        yield
    finally:
        _Painting(window).start(0)


class _Painting(QTimer):
    """Has a window painted; with the window it goes, which it does not hold."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setSingleShot(True)
        self.timeout.connect(self._paint)

    def _paint(self) -> None:
        self.parent().setUpdatesEnabled(True)
        self.deleteLater()


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
