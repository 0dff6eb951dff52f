"""A small "?" in the title of every dock that opens its page of the documentation."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import npe2
from qtpy.QtCore import QObject
from qtpy.QtWidgets import QDockWidget, QToolButton, QWidget

from napari_saf._gui.docks.help_page import HelpPage

__all__ = ["HelpButton", "frame_of", "page_of"]

_PLUGIN = "napari-saf"
_BUTTON_NAME = "napari-saf help"


def page_of(dock: QWidget) -> str:
    """Return the page about a dock, named like the command that opens it; else the first page."""
    kind = type(dock)
    python_name = f"{kind.__module__}:{kind.__qualname__}"
    manager = npe2.PluginManager.instance()
    if _PLUGIN in manager:
        for command in manager.get_manifest(_PLUGIN).contributions.commands or ():
            if str(command.python_name) == python_name:
                return str(command.id.partition(".")[2])
    return "index"


def frame_of(dock: QWidget) -> QDockWidget | None:
    """Return the frame around a dock, or None."""
    frame: QWidget | None = dock.parentWidget()
    while frame is not None and not isinstance(frame, QDockWidget):
        frame = frame.parentWidget()
    return frame


class HelpButton(QObject):
    """Puts the button into the title of the frame around a dock, whenever that is made anew.

    Parameters
    ----------
    dock : QWidget
        Owns this object.
    """

    def __init__(self, dock: QWidget) -> None:
        super().__init__(dock)
        self._dock = dock
        self._frame: Callable[[], QDockWidget | None] = lambda: None

    def follow(self) -> None:
        """Look for the frame, now that the dock is in sight."""
        frame = frame_of(self._dock)
        if frame is not None and frame is not self._frame():
            self._frame = weakref.ref(frame)
            # Floating or moving a dock makes its title anew; that comes first.
            frame.topLevelChanged.connect(self._add)
            frame.dockLocationChanged.connect(self._add)
        self._add()

    def _add(self, change: object = None) -> None:
        frame = self._frame()
        title = None if frame is None else frame.titleBarWidget()
        if title is None or title.layout() is None:
            return
        if title.findChild(QToolButton, _BUTTON_NAME) is not None:
            return
        button = QToolButton(title)
        button.setObjectName(_BUTTON_NAME)
        button.setText("?")
        button.setAutoRaise(True)
        button.setToolTip("What this dock does, with examples.")
        button.clicked.connect(self._open)
        title.layout().addWidget(button)

    def _open(self) -> None:
        HelpPage(page_of(self._dock), self._dock).show()
