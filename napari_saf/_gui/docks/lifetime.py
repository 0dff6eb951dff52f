"""When a dock is gone: taken out of its window, or the window closed."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import napari
from qtpy.QtCore import QEvent, QObject, QTimer
from qtpy.QtWidgets import QApplication, QDockWidget, QWidget

from napari_saf._gui.docks.help import HelpButton, frame_of
from napari_saf._gui.napari_workarounds import free_graphics_in_canvas


class DockLifetime(QObject):
    """Follows a dock and calls back once, when it is of no use any more.

    As long as it is of use, the title of its frame has a button for help. When it comes into sight
    it joins the other docks of the plugin in tabs: one above another, none would have room.

    Parameters
    ----------
    ended : callable
        Called once.

    Attributes
    ----------
    has_joined : bool
        Whether it was tabbed with the other docks.
    """

    def __init__(
        self, viewer: napari.viewer.Viewer, dock: QWidget, ended: Callable[[], None]
    ) -> None:
        super().__init__(dock)
        self._viewer, self._dock = viewer, dock
        self._ended = ended
        self.has_ended = self.has_joined = False
        self._help = HelpButton(dock)
        self._has_been_shown = self._is_closing = False
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
        """Call back, unless it was done."""
        if not self.has_ended:
            self.has_ended = True
            self._disconnect_workaround()
            self._ended()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Follow the dock into its window and out of it."""
        kind = event.type()
        if watched is self._dock and kind == QEvent.Type.ParentChange:
            if self._dock.parent() is None:
                self.end()
        elif watched is self._dock and kind == QEvent.Type.Show:
            self._help.follow()
            if not self._has_been_shown:
                QTimer.singleShot(0, self._join_others)
            self._has_been_shown = True
            window = self._dock.window()
            if self._window() is not window:
                # The window may be gone before the dock.
                self._window = weakref.ref(window)
                window.installEventFilter(self)
        elif watched is self._window() and kind == QEvent.Type.Close:
            self._is_closing = True
            QTimer.singleShot(0, self._on_close_asked)
        elif watched is self._window() and kind == QEvent.Type.Hide and self._is_closing:
            # Not later: a viewer that closes itself deletes its window at once.
            self.end()
        return False

    def _join_others(self) -> None:
        frame = None if self.has_ended else frame_of(self._dock)
        if frame is None:
            return
        self.has_joined = True
        if frame.isFloating():
            return
        window = frame.parentWidget()
        area, together = window.dockWidgetArea(frame), window.tabifiedDockWidgets(frame)
        for other in window.findChildren(QDockWidget):
            is_docked = other is not frame and other not in together and not other.isHidden()
            is_in_area = not other.isFloating() and window.dockWidgetArea(other) == area
            lifetime = other.findChild(DockLifetime)
            # One that is still to join would take this one's place, and not its tabs with it.
            if is_docked and is_in_area and lifetime is not None and lifetime.has_joined:
                window.tabifyDockWidget(other, frame)
                frame.raise_()
                break

    def _on_close_asked(self) -> None:
        self._is_closing = False
        if not self.has_window:
            self.end()
