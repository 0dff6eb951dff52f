"""What a dock has from its window: tabs, help, keys of the viewer, and its end."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import napari
import npe2
from napari.utils.key_bindings import coerce_keybinding
from qtpy.QtCore import QEvent, QObject, QSize, Qt, QTimer, QUrl
from qtpy.QtGui import QImage, QKeySequence, QPalette
from qtpy.QtWidgets import QApplication, QDockWidget, QTabBar, QTextBrowser, QToolButton, QWidget

import napari_saf
from napari_saf._gui.napari_workarounds import free_graphics_in_canvas
from napari_saf._gui.session.workspace import frame_of, workspace_of
from napari_saf.errors import FormatError

_PLUGIN = "napari-saf"
_BUTTON_NAME = "napari-saf help"
_KEYS = (QEvent.Type.ShortcutOverride, QEvent.Type.KeyPress)
_SAVE = QKeySequence.StandardKey.Save
_FOLDERS = ("_docs", "../docs")
"""In a wheel the pages lie inside the package, in a checkout next to it."""
_DIRECTIVES = re.compile(r"^```\{.*?^```$", re.MULTILINE | re.DOTALL)
_SIZE = QSize(820, 720)
_MARGIN = 90
_TABS = "QTabBar::tab { padding: 3px; }"
"""So that the tabs of six docks fit into the width of one, without arrows to scroll them."""
_LINKS = {False: "#1a5fb4", True: "#7ab4ff"}
"""Colour of links by whether text is light, as on a dark ground."""


def page_of(dock: QWidget) -> str:
    """Return the page about a dock, named like the command that opens it; else the first page."""
    python_name = f"napari_saf._gui:{type(dock).__qualname__}"
    manager = npe2.PluginManager.instance()
    if _PLUGIN in manager:
        for command in manager.get_manifest(_PLUGIN).contributions.commands or ():
            if str(command.python_name) == python_name:
                return str(command.id.partition(".")[2])
    return "index"


def page_path(name: str) -> Path:
    package = Path(napari_saf.__file__).parent
    for folder in _FOLDERS:
        path = (package / folder / f"{name}.md").resolve()
        if path.is_file():
            return path
    raise FormatError(f"{name}.md: this page of the documentation is missing")


class HelpPage(QTextBrowser):
    """A window with a page; links lead to the others, and addresses to the web browser."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowFlag(Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setOpenExternalLinks(True)
        self.sourceChanged.connect(self._on_source_changed)
        self.resize(_SIZE)
        self.setSource(QUrl.fromLocalFile(str(page_path(name))))

    def loadResource(self, resource_type: int, address: QUrl) -> Any:
        """Return a page without the directives of the site, or a picture scaled to the width."""
        path = Path(address.toLocalFile() or self.source().resolved(address).toLocalFile())
        if path.suffix == ".md" and path.is_file():
            return _DIRECTIVES.sub("", path.read_text(encoding="utf-8"))
        if path.suffix == ".png":
            picture, widest = QImage(str(path)), self.width() - _MARGIN
            if picture.width() > widest:
                return picture.scaledToWidth(widest, Qt.TransformationMode.SmoothTransformation)
            return picture
        return super().loadResource(resource_type, address)

    def _on_source_changed(self, address: QUrl) -> None:
        title = self.documentTitle() or Path(address.toLocalFile()).stem
        self.setWindowTitle(f"{title}: napari-saf")
        self.ensurePolished()  # by the theme, which links do not follow
        is_light = self.palette().color(QPalette.ColorRole.WindowText).lightnessF() > 0.5
        link = QApplication.palette().color(QPalette.ColorRole.Link).name()
        self.setHtml(self.toHtml().replace(f"color:{link}", f"color:{_LINKS[is_light]}"))


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


def bind_keys(viewer: napari.Viewer, dock: Any) -> None:
    """Let the `shortcuts` of a dock, functions by keys as napari writes them, be called.

    A key acts on the dock in sight that has it, of several on the one that the mouse visited last;
    a function that returns False leaves it to another. A key for which the person has another use
    is left alone.
    """
    for key in dock.shortcuts:
        if coerce_keybinding(key) not in viewer.keymap:
            viewer.bind_key(key, _create_action(key))


def unbind_keys(viewer: napari.Viewer, dock: Any) -> None:
    """Unbind the keys of a dock that no other dock has."""
    remaining = [joined for joined in dock.workspace.joined if joined is not dock]
    for key in set(dock.shortcuts).difference(*(joined.shortcuts for joined in remaining)):
        action = viewer.keymap.get(coerce_keybinding(key))
        if getattr(action, "is_of_docks", False):
            viewer.bind_key(key, None)


def _create_action(key: str) -> Callable[[Any], None]:
    def act(viewer: Any) -> None:
        bound = [dock for dock in workspace_of(viewer).joined if key in dock.shortcuts]
        docks = [dock for dock in bound if dock.isVisible()]
        docks.sort(key=lambda dock: -dock.visited)
        any(dock.shortcuts[key]() is not False for dock in docks)

    act.is_of_docks = True  # type: ignore[attr-defined]
    return act
