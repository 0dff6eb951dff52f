"""What every dock is: a widget with a life, a layout, keys, and values that projects keep."""

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
from napari_saf._gui.forms.choices import ImageList, LayerChoice, PlainValues
from napari_saf._gui.forms.layout import FormArea, create_button, fill_layout
from napari_saf._gui.napari_workarounds import free_graphics_in_canvas
from napari_saf._gui.session.workspace import RecoveryLine, Workspace, frame_of, workspace_of
from napari_saf.errors import counted

LEAST_WIDTH = 340
"""In pixels; below it words beside sliders are cut."""
_PLUGIN = "napari-saf"
_BUTTON_NAME = "napari-saf help"
_KEYS = (QEvent.Type.ShortcutOverride, QEvent.Type.KeyPress)
_SAVE = QKeySequence.StandardKey.Save
_TABS = "QTabBar::tab { padding: 3px; }"
"""So that the tabs of six docks fit into the width of one, without arrows to scroll them."""
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

        A key acts on the dock in sight that has it, of several on the one that the mouse visited
        last; a function that returns False leaves it to another. A key for which the person has
        another use is left alone.
        """
        self.shortcuts |= shortcuts
        for key in shortcuts:
            if coerce_keybinding(key) not in self._viewer.keymap:
                self._viewer.bind_key(key, _create_action(key))

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

    def values(self) -> PlainValues:
        """Return what the dock says, as values for JSON; layers that are chosen are left out."""
        values: PlainValues = {}
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
        remaining = [joined for joined in self.workspace.joined if joined is not self]
        for key in set(self.shortcuts).difference(*(joined.shortcuts for joined in remaining)):
            action = self._viewer.keymap.get(coerce_keybinding(key))
            if getattr(action, "is_of_docks", False):
                self._viewer.bind_key(key, None)
        for choice in (*self.findChildren(LayerChoice), *self.findChildren(ImageList)):
            choice.disconnect_viewer()
        for event, slot in self._events:
            event.disconnect(slot)
        self._events.clear()
        for call in self._end_calls:
            call()
        self._end_calls.clear()


class DockLifetime(QObject):
    """Follows a dock and calls back once, when it is of no use any more.

    As long as it is of use, the title of its frame has a button for help. When it comes into sight
    it joins the other docks of the plugin in tabs: one above another, none would have room.
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
        # The frame and the window may be gone before the dock.
        self._frame: Callable[[], QDockWidget | None] = lambda: None
        self._window: Callable[[], QWidget | None] = lambda: None
        dock.installEventFilter(self)
        self._disconnect_workaround = free_graphics_in_canvas(viewer, dock)
        QApplication.instance().aboutToQuit.connect(self.end)

    @property
    def has_window(self) -> bool:
        """Whether the window of the dock is still there, as far as is known."""
        if not self._has_been_shown:
            return True
        window = self._window()
        return window is not None and bool(window.isVisible())

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            # Events may come until Qt deletes this, when Python has cleared it already.
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
            event.accept()  # else the key of napari's menu would save layers
            project = self.workspace.dock() if event_type == QEvent.Type.KeyPress else None
            if project is not None:
                project.save_project()
            return True
        elif watched is self._window() and event_type == QEvent.Type.ChildPolished:
            if isinstance(tabs := event.child(), QTabBar):
                tabs.setStyleSheet(_TABS)
                tabs.setElideMode(Qt.TextElideMode.ElideNone)  # arrows scroll what has no room
        elif watched is self._window() and event_type == QEvent.Type.Close:
            self._is_closing = True
            QTimer.singleShot(0, self._on_close_asked)
        elif watched is self._window() and event_type == QEvent.Type.Hide and self._is_closing:
            # Not later: a viewer that closes itself deletes its window at once.
            self.end()
        return False

    def _on_shown(self) -> None:
        self.workspace.watch(self._dock.window())
        frame, window = frame_of(self._dock), self._dock.window()
        if frame is not None and frame is not self._frame():
            self._frame = weakref.ref(frame)
            # Several docks leave no room for the name of the plugin, which napari adds, on a tab.
            frame.setWindowTitle(frame.windowTitle().removesuffix(f" ({_PLUGIN})"))
            # Floating or moving a dock makes its title anew; that comes first.
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
        help = "What this dock does, with examples."
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
            # A dock that has not joined yet would replace this one without its tabs.
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
