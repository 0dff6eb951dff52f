"""Base class of the docks: lifetime, layout, shortcuts, and values saved in projects."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.utils.events import EventEmitter
from napari.utils.key_bindings import coerce_keybinding
from qtpy.QtCore import QEvent, QObject, Qt, QTimer, Signal
from qtpy.QtGui import QKeySequence
from qtpy.QtWidgets import (
    QApplication,
    QDockWidget,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QTabBar,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.docks.help import HelpPage, page_of
from napari_saf._gui.forms.choices import PlainValues
from napari_saf._gui.forms.layout import FormArea, create_button, fill_layout
from napari_saf._gui.napari_workarounds import free_graphics_in_canvas
from napari_saf._gui.session.workspace import RecoveryLine, Workspace, frame_of, workspace_of
from napari_saf.errors import counted

LEAST_WIDTH = 340
"""In pixels; narrower docks cut off the labels beside sliders."""
_PLUGIN = "napari-saf"
_BUTTON_NAME = "napari-saf help"
_KEYS = (QEvent.Type.ShortcutOverride, QEvent.Type.KeyPress)
_SAVE = QKeySequence.StandardKey.Save
_TABS = "QTabBar::tab { padding: 3px; }"
"""Makes the tabs of six docks fit into the width of a dock, without scroll arrows."""
OBJECTS, BORDERS = "Objects", "Sharpen borders"
_NEXT = {
    OBJECTS: "Count, correct and measure the objects in these labels.",
    BORDERS: "Move the borders of these labels onto the edges of the image, by a slider.",
}
"""Docks that process the labels further, with their tooltips."""


class DockBase(QWidget):
    """Base of the docks; connections and shortcuts are removed when the dock is closed.

    Subclasses create their controls, then call `lay_out`, `connect_all` and `bind_keys`, and
    register further clean-up with `at_end`. Projects save the values of the `kept_parts` and the
    displayed `dictionary_file`, if any.
    """

    dictionary_file: Path | None = None

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._events: list[tuple[EventEmitter, Callable[..., Any]]] = []
        self._end_calls: list[Callable[[], object]] = []
        self.kept_parts: Sequence[Any] = ()
        self.shortcuts: dict[str, Callable[[], object]] = {}
        self.visited = time.monotonic()  # last time the mouse entered
        self.setMinimumWidth(LEAST_WIDTH)
        # Otherwise napari adds a stretch, which takes the space of expanding widgets.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.lifetime = DockLifetime(viewer, self, self._on_end)
        self.workspace = self.lifetime.workspace

    def connect_all(self, *pairs: tuple[Any, Callable[..., Any]]) -> None:
        """Connect Qt signals and napari events to slots; the events are disconnected on closing."""
        for signal, slot in pairs:
            signal.connect(slot)
            if isinstance(signal, EventEmitter):
                self._events.append((signal, slot))

    def at_end(self, *calls: Callable[[], object]) -> None:
        """Register functions to call, in order, when the dock is closed."""
        self._end_calls += calls

    def bind_keys(self, shortcuts: Mapping[str, Callable[[], object]]) -> None:
        """Bind viewer keys, in napari's notation, to functions while the dock is visible.

        If several visible docks bind a key, the one the mouse entered last handles it; a function
        that returns False passes it on. Keys that the user has bound already are not overridden.
        """
        self.shortcuts |= shortcuts
        for key in shortcuts:
            if coerce_keybinding(key) not in self._viewer.keymap:
                self._viewer.bind_key(key, _create_action(key))

    def lay_out(
        self, parts: Sequence[QWidget], buttons: Sequence[QWidget], below: Sequence[QWidget]
    ) -> None:
        """Arrange a scrollable form of parts, a row of buttons, and the widgets below them."""
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

    def values(self) -> PlainValues:
        """Return the settings of the dock as JSON-serializable values, without chosen layers."""
        values: PlainValues = {}
        for part in self.kept_parts:
            values |= part.plain_values()
        return values

    def show_values(self, values: Mapping[str, Any]) -> None:
        """Restore settings returned by `values`; unknown ones are ignored."""
        for part in self.kept_parts:
            part.show_plain_values(values)

    def shut_down(self) -> None:
        """Stop all work and disconnect from the viewer; the widget cannot be used afterwards."""
        self.lifetime.end()

    def enterEvent(self, event: QEvent) -> None:
        self.visited = time.monotonic()
        super().enterEvent(event)

    def _on_end(self) -> None:
        remaining = [joined for joined in self.workspace.joined if joined is not self]
        for key in set(self.shortcuts).difference(*(joined.shortcuts for joined in remaining)):
            action = self._viewer.keymap.get(coerce_keybinding(key))
            if getattr(action, "is_of_docks", False):
                self._viewer.bind_key(key, None)
        for event, slot in self._events:
            event.disconnect(slot)
        self._events.clear()
        for call in self._end_calls:
            call()
        self._end_calls.clear()


class DockLifetime(QObject):
    """Watches a dock and calls `ended` once, when it is closed or removed.

    It adds a help button to the title bar, and tabs the dock with the other docks of the plugin
    when it is first shown, since stacked docks would be too small.
    """

    def __init__(
        self, viewer: napari.viewer.Viewer, dock: QWidget, ended: Callable[[], None]
    ) -> None:
        super().__init__(dock)
        self._dock, self._ended = dock, ended
        self.workspace = workspace_of(viewer)
        self.workspace.join(dock)
        self.has_ended = self.has_joined = False
        self._has_been_shown = self._is_closing = False
        # The frame and the window may be deleted before the dock.
        self._frame: Callable[[], QDockWidget | None] = lambda: None
        self._window: Callable[[], QWidget | None] = lambda: None
        dock.installEventFilter(self)
        self._disconnect_workaround = free_graphics_in_canvas(viewer, dock)
        QApplication.instance().aboutToQuit.connect(self.end)

    @property
    def has_window(self) -> bool:
        """Whether the window of the dock exists, as far as is known."""
        if not self._has_been_shown:
            return True
        window = self._window()
        return window is not None and bool(window.isVisible())

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            # Until Qt deletes this object, events may arrive after Python has cleared it.
            for watched in (self._dock, self._window()):
                if watched is not None:
                    with suppress(RuntimeError):
                        watched.removeEventFilter(self)
            self._disconnect_workaround()
            self._ended()
            self.workspace.leave(id(self._dock))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        event_type = event.type()
        if watched is self._dock and event_type == QEvent.Type.ParentChange:
            if self._dock.parent() is None:  # napari removed it
                self.end()
                self._dock.deleteLater()
        elif watched is self._dock and event_type == QEvent.Type.Show:
            self._on_shown()
        elif watched is self._dock and event_type in _KEYS and event.matches(_SAVE):
            event.accept()  # otherwise napari's menu shortcut would save layers
            project = self.workspace.dock() if event_type == QEvent.Type.KeyPress else None
            if project is not None:
                project.save_project()
            return True
        elif watched is self._window() and event_type == QEvent.Type.ChildPolished:
            if isinstance(tabs := event.child(), QTabBar):
                tabs.setStyleSheet(_TABS)
                tabs.setElideMode(Qt.TextElideMode.ElideNone)  # scroll arrows in place of cut names
        elif watched is self._window() and event_type == QEvent.Type.Close:
            self._is_closing = True
            QTimer.singleShot(0, self._on_close_asked)
        elif watched is self._window() and event_type == QEvent.Type.Hide and self._is_closing:
            # At once, since a viewer that closes itself deletes its window immediately.
            self.end()
        return False

    def _on_shown(self) -> None:
        self.workspace.watch(self._dock.window())
        frame, window = frame_of(self._dock), self._dock.window()
        if frame is not None and frame is not self._frame():
            self._frame = weakref.ref(frame)
            # The plugin name that napari appends does not fit on the tabs of several docks.
            frame.setWindowTitle(frame.windowTitle().removesuffix(f" ({_PLUGIN})"))
            # Floating or moving a dock recreates its title bar before these signals.
            frame.topLevelChanged.connect(self._add_help_button)
            frame.dockLocationChanged.connect(self._add_help_button)
        self._add_help_button()
        if not self._has_been_shown:
            QTimer.singleShot(0, self._join_others)
        self._has_been_shown = True
        if self._window() is not window:
            self._window = weakref.ref(window)
            window.installEventFilter(self)

    def _add_help_button(self, change: object = None) -> None:
        frame = self._frame()
        title = None if frame is None else frame.titleBarWidget()
        if title is None or title.layout() is None or title.findChild(QToolButton, _BUTTON_NAME):
            return
        help = "Documentation of this dock, with examples."
        button = QToolButton(title, objectName=_BUTTON_NAME, text="?", autoRaise=True, toolTip=help)
        button.clicked.connect(lambda: HelpPage(page_of(self._dock), self._dock).show())
        title.layout().addWidget(button)

    def _join_others(self) -> None:
        frame = None if self.has_ended else frame_of(self._dock)
        if frame is None:
            return
        self.has_joined = True
        if frame.isFloating():
            return
        window = frame.parentWidget()
        area, together = window.dockWidgetArea(frame), window.tabifiedDockWidgets(frame)
        for dock in window.findChildren(QDockWidget):
            is_docked = dock is not frame and dock not in together and not dock.isHidden()
            is_in_area = not dock.isFloating() and window.dockWidgetArea(dock) == area
            lifetime = dock.findChild(DockLifetime)
            # A dock that has not joined yet would replace this one without a tab.
            if is_docked and is_in_area and lifetime is not None and lifetime.has_joined:
                window.tabifyDockWidget(dock, frame)
                frame.raise_()
                break

    def _on_close_asked(self) -> None:
        self._is_closing = False
        if not self.has_window:
            self.end()


def _create_action(key: str) -> Callable[[Any], None]:
    def act(viewer: Any) -> None:
        bound = [dock for dock in workspace_of(viewer).joined if key in dock.shortcuts]
        docks = [dock for dock in bound if dock.isVisible()]
        docks.sort(key=lambda dock: -dock.visited)
        any(dock.shortcuts[key]() is not False for dock in docks)

    act.is_of_docks = True  # type: ignore[attr-defined]
    return act


class NextRow(QWidget):
    """Buttons that open docks to process labels further; `opened` emits the dock."""

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
        """Show the row if there are labels, else hide it."""
        self.setVisible(self._labels() is not None)

    def show_count(self, n_things: int) -> None:
        things = f"{counted(n_things, 'thing')}: " if n_things else ""
        self.buttons[OBJECTS].setText(f"{things}{OBJECTS} …")

    def _open(self, title: str, *clicked: object) -> None:
        dock = self._workspace.dock(title)
        if dock is None:
            return
        dock.labels.choose(self._labels())
        if (frame := frame_of(dock)) is not None:
            frame.raise_()
        self.opened.emit(dock)
