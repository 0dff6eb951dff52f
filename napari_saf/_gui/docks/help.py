"""A small "?" in the title of every dock that opens its page of the documentation."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import npe2
from qtpy.QtCore import QObject, QSize, Qt, QUrl
from qtpy.QtGui import QImage
from qtpy.QtWidgets import QDockWidget, QTextBrowser, QToolButton, QWidget

import napari_saf
from napari_saf.errors import FormatError

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
    """Adds the help button to the title bar of a dock widget, again when napari recreates it."""

    def __init__(self, dock: QWidget) -> None:
        super().__init__(dock)
        self._dock = dock
        self._frame: Callable[[], QDockWidget | None] = lambda: None

    def follow(self) -> None:
        """Install the button in the frame of the dock once it is visible."""
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


_FOLDERS = ("_docs", "../docs")
"""In a wheel the pages lie inside the package, in a checkout next to it."""
_DIRECTIVES = re.compile(r"^```\{.*?^```$", re.MULTILINE | re.DOTALL)
_SIZE = QSize(820, 720)
_MARGIN = 90


def page_path(name: str) -> Path:
    """Return the file of a page.

    Raises
    ------
    FormatError
        If it is not there.
    """
    package = Path(napari_saf.__file__).parent
    for folder in _FOLDERS:
        path = (package / folder / f"{name}.md").resolve()
        if path.is_file():
            return path
    raise FormatError(f"{name}.md: this page of the documentation is missing")


class HelpPage(QTextBrowser):
    """A window with a page; links lead to the others, and addresses to the web browser.

    Parameters
    ----------
    name : str
        Of the page.
    parent : QWidget, optional
        With whose window it closes.

    Raises
    ------
    FormatError
        If the page is not there.
    """

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowFlag(Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setOpenExternalLinks(True)
        self.sourceChanged.connect(self._on_source_changed)
        self.resize(_SIZE)
        self.setSource(QUrl.fromLocalFile(str(page_path(name))))

    def loadResource(self, kind: int, address: QUrl) -> Any:
        """Return a page without what is for the site alone, or a picture that fits."""
        path = Path(address.toLocalFile() or self.source().resolved(address).toLocalFile())
        if path.suffix == ".md" and path.is_file():
            return _DIRECTIVES.sub("", path.read_text(encoding="utf-8"))
        if path.suffix == ".png":
            picture, widest = QImage(str(path)), self.width() - _MARGIN
            if picture.width() > widest:
                return picture.scaledToWidth(widest, Qt.TransformationMode.SmoothTransformation)
            return picture
        return super().loadResource(kind, address)

    def _on_source_changed(self, address: QUrl) -> None:
        title = self.documentTitle() or Path(address.toLocalFile()).stem
        self.setWindowTitle(f"{title}: napari-saf")
