"""What every dock is: a widget with a life, a layout, keys, and values that projects keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.utils.events import EventEmitter
from qtpy.QtCore import QEvent, Qt, Signal
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from napari_saf._gui.docks.frame import DockLifetime, bind_keys, unbind_keys
from napari_saf._gui.forms.choices import ImageList, LayerChoice
from napari_saf._gui.forms.layout import FormArea, create_button, fill_layout
from napari_saf._gui.session.workspace import RecoveryLine, Workspace, frame_of

LEAST_WIDTH = 340
"""In pixels; below it words beside sliders are cut."""
OBJECTS, BORDERS = "Objects", "Sharpen borders"
_NEXT = {
    OBJECTS: "Count, correct and measure the single things of these labels.",
    BORDERS: "Move the borders of these labels onto the edges of the image, by a slider.",
}
"""Docks that go on with labels, and their help."""


class DockBase(QWidget):
    """A dock: what it connects to and binds ends with it.

    Subclasses create their controls, then call `lay_out`, `connect_all` and `bind_keys`, and say
    with `at_end` what else is to be let go of. Projects keep what the `kept_parts` say, and the
    `dictionary_file` that is shown, if there is one.
    """

    dictionary_file: Path | None = None

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._events: list[tuple[EventEmitter, Callable[..., Any]]] = []
        self._end_calls: list[Callable[[], object]] = []
        self.kept_parts: Sequence[Any] = ()
        self.shortcuts: dict[str, Callable[[], object]] = {}
        self.visited = time.monotonic()  # by the mouse
        self.setMinimumWidth(LEAST_WIDTH)
        # Else napari adds a stretch, which takes the room of what grows.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.lifetime = DockLifetime(viewer, self, self._on_end)
        self.workspace = self.lifetime.workspace

    def connect_all(self, *pairs: tuple[Any, Callable[..., Any]]) -> None:
        """Connect signals of Qt and events of napari to slots; the latter end with the dock."""
        for signal, slot in pairs:
            signal.connect(slot)
            if isinstance(signal, EventEmitter):
                self._events.append((signal, slot))

    def at_end(self, *calls: Callable[[], object]) -> None:
        """Call these, in order, when the dock has come to its end."""
        self._end_calls += calls

    def bind_keys(self, shortcuts: Mapping[str, Callable[[], object]]) -> None:
        """Let keys of the viewer, as napari writes them, call these while the dock is in sight.

        One that returns False leaves the key to another dock.
        """
        self.shortcuts |= shortcuts
        bind_keys(self._viewer, self)

    def lay_out(
        self, parts: Sequence[QWidget], buttons: Sequence[QWidget], below: Sequence[QWidget]
    ) -> None:
        """Put parts into a form that scrolls; right under it a row of buttons, then the rest."""
        content = QWidget()
        inner = QVBoxLayout(content)
        inner.setContentsMargins(8, 6, 8, 6)
        recovery = [RecoveryLine(self.workspace)] if self.workspace.recoverable else []
        for part in (*recovery, *parts):
            inner.addWidget(part)
        area, row = QVBoxLayout(), QHBoxLayout()
        area.setContentsMargins(8, 0, 8, 6)
        for widget in buttons:
            row.addWidget(widget, stretch=1)
        area.addLayout(row)
        for widget in below:
            grows = bool(widget.sizePolicy().expandingDirections() & Qt.Orientation.Vertical)
            area.addWidget(widget, stretch=int(grows))
        area.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(FormArea(content))
        layout.addLayout(area, stretch=1)

    def values(self) -> dict[str, Any]:
        """Return what the dock says, as values for JSON; layers that are chosen are left out."""
        values: dict[str, Any] = {}
        for part in self.kept_parts:
            values |= part.plain_values()
        return values

    def show_values(self, values: Mapping[str, Any]) -> None:
        """Show what `values` returned, as far as the dock still has it."""
        for part in self.kept_parts:
            part.show_plain_values(values)

    def shut_down(self) -> None:
        """End all work and let go of the viewer; the widget is of no use after."""
        self.lifetime.end()

    def enterEvent(self, event: QEvent) -> None:
        self.visited = time.monotonic()
        super().enterEvent(event)

    def _on_end(self) -> None:
        unbind_keys(self._viewer, self)
        for choice in (*self.findChildren(LayerChoice), *self.findChildren(ImageList)):
            choice.disconnect_viewer()
        for event, slot in self._events:
            event.disconnect(slot)
        self._events.clear()
        for call in self._end_calls:
            call()
        self._end_calls.clear()


class NextRow(QWidget):
    """Buttons that open what goes on with labels; `opened` sends the dock."""

    opened = Signal(object)

    def __init__(self, workspace: Workspace, labels: Callable[[], Any]) -> None:
        super().__init__()
        self._workspace, self._labels = workspace, labels
        self.buttons: dict[str, QPushButton] = {}
        for title, help in _NEXT.items():
            button = create_button(f"{title} …", help, partial(self._open, title))
            self.buttons[title] = button
        fill_layout(QHBoxLayout(self), *self.buttons.values(), stretch=1)

    def refresh(self) -> None:
        """Be in sight where there are labels to go on with."""
        self.setVisible(self._labels() is not None)

    def _open(self, title: str, *clicked: object) -> None:
        dock = self._workspace.dock(title)
        if dock is None:
            return
        dock.labels.choose(self._labels())
        if (frame := frame_of(dock)) is not None:
            frame.raise_()
        self.opened.emit(dock)
