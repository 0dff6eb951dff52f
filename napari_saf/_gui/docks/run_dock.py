"""What docks that run a method have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import napari
from napari.utils.notifications import show_error
from qtpy.QtCore import QEvent, QTimer
from qtpy.QtWidgets import (
    QHBoxLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.docks.life import DockLife
from napari_saf._gui.docks.shortcuts import Shortcuts, in_words
from napari_saf._gui.forms.layout import create_scroll_area
from napari_saf._gui.forms.status import StatusArea
from napari_saf._gui.runs.session import Session, connect_run
from napari_saf._gui.runs.worker import Frame
from napari_saf.errors import NotFinite, SafError
from napari_saf.result import STATUS_WORDS

__all__ = [
    "LEAST_WIDTH",
    "RESCALE",
    "STATUS_WORDS",
    "RunDock",
    "count_labels",
    "describe_error",
    "rescale_of",
    "way_on_of",
]

RESCALE = "Scale this image by itself"
"""What a button offers where many values lie outside a scaling that was kept."""
LEAST_WIDTH = 340
"""In pixels; below it words beside sliders are cut."""


class RunDock(QWidget):
    """A dock with a session: says how its run goes, stops it, ends it when the dock goes.

    Subclasses lay themselves out with `_lay_out` and release what they hold in `_release`. Their
    `shortcuts` are keys of the viewer and the methods that those call.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    session : Session
    status : StatusArea
    """

    shortcuts: ClassVar[Mapping[str, str]] = {"Shift-R": "run_or_stop"}

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._frame: Frame | None = None
        self.session = Session(viewer, self)
        self.status = StatusArea()
        self._stop_button = QPushButton("Stop")
        self._stop_button.setToolTip(
            f"End the work and keep what there is ({self._key_of('run_or_stop')})."
        )
        self._clock = QTimer(self)
        self._clock.setInterval(500)
        self.setMinimumWidth(LEAST_WIDTH)
        self._keys = Shortcuts(viewer, self, self.shortcuts)
        self._life = DockLife(viewer, self, self._on_gone)
        self._connect_session()

    def start(self) -> None:
        """Start a run with what the dock says; nothing in a dock that only follows runs."""

    def run_or_stop(self) -> bool:
        """Stop what goes on, else start a run; return whether the dock can."""
        if self._stop_button.isEnabled():
            self._on_stop_clicked()
        elif type(self).start is RunDock.start:
            return False
        else:
            self.start()
        return True

    def enterEvent(self, event: QEvent) -> None:
        """Take the shortcuts that other docks have too."""
        self._keys.visit()
        super().enterEvent(event)

    def shut_down(self) -> None:
        """End the run and let go of the viewer; the widget is of no use after."""
        self._life.end()

    def _on_gone(self) -> None:
        self._clock.stop()
        self._keys.release()
        self.session.shut_down()
        self._release()

    @abstractmethod
    def _release(self) -> None:
        """Let go of the viewer."""

    def _lay_out(self, parts: list[QWidget], buttons: list[QWidget], below: list[QWidget]) -> None:
        """Put parts into a scroll area, and under it a row of buttons, the status, the rest."""
        content = QWidget()
        inner = QVBoxLayout(content)
        inner.setContentsMargins(8, 6, 8, 6)
        for part in parts:
            inner.addWidget(part)
        inner.addStretch(1)
        area, row = QVBoxLayout(), QHBoxLayout()
        area.setContentsMargins(8, 0, 8, 6)
        for widget in buttons:
            row.addWidget(widget, stretch=1)
        area.addLayout(row)
        for widget in (self.status, *below):
            area.addWidget(widget)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(create_scroll_area(content), stretch=1)
        layout.addLayout(area)

    def _key_of(self, method: str) -> str:
        """Return the key that calls a method, as a tooltip names it."""
        return next(in_words(key) for key, name in self.shortcuts.items() if name == method)

    def _connect_session(self) -> None:
        self._stop_button.clicked.connect(self._on_stop_clicked)
        connect_run(self.session, self._clock, self)

    def _on_began(self) -> None:
        self._frame = None
        self._clock.start()
        self._show_what_is_possible()

    def _on_stop_clicked(self) -> None:
        self.session.stop()
        self.status.set_text("stopping …")

    def _on_clock(self) -> None:
        """Give a sign of life where frames are slow to come."""
        if self.session.is_stopping:
            self.status.set_text(f"stopping …  {self.session.seconds:.1f} s")
        elif self._frame is None:
            self.status.set_text(f"preparing …  {self.session.seconds:.1f} s")
        else:
            self._show_frame(self._frame)

    def _on_advanced(self, frame: Frame) -> None:
        self._frame = frame
        if not self.session.is_stopping:
            self._show_frame(frame)

    def _show_frame(self, frame: Frame) -> None:
        self.status.show_progress(
            frame.fraction,
            f"{100 * frame.fraction:.0f} %   {count_labels(frame.n_labels)}   "
            f"t = {frame.time:.3g}   {self.session.seconds:.1f} s",
        )

    @abstractmethod
    def _on_returned(self, result: Any) -> None:
        """Say how a run ended."""

    def _on_failed(self, error: Exception) -> None:
        self._show_error(describe_error(error))

    def _on_abandoned(self) -> None:
        self.status.reset("stopped before the first labels")

    def _on_finished(self) -> None:
        self._clock.stop()
        self._show_what_is_possible()

    def _show_what_is_possible(self) -> None:
        self._stop_button.setEnabled(self.session.is_running)

    def _forget_error(self) -> None:
        """Say no more of an error, once what was wrong may be right."""
        if self.status.is_error:
            self.status.reset()

    def _show_error(self, text: str, way_on: str = "") -> None:
        self.status.show_error(text, way_on)
        show_error(text)


def describe_error(error: Exception) -> str:
    """Return what to tell a person of an error."""
    if isinstance(error, NotFinite):
        return str(error).split(";")[0]  # a button offers the rest
    return str(error) if isinstance(error, SafError) else f"{type(error).__name__}: {error}"


def way_on_of(error: Exception) -> str:
    """Return what a button offers after an error, where a run can leave out pixels; or nothing."""
    return "Mask them and run" if isinstance(error, NotFinite) else ""


def rescale_of(session: Session) -> str:
    """Return what a button offers after a run on an image of other brightness; or nothing."""
    problem = session.problem
    return RESCALE if problem is not None and problem.notes else ""


def count_labels(n_labels: int) -> str:
    """Return a number of labels in words."""
    return f"{n_labels} label" if n_labels == 1 else f"{n_labels} labels"
