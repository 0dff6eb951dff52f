"""Pages of the documentation, displayed in windows of the application."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import npe2
from qtpy.QtCore import QSize, Qt, QUrl
from qtpy.QtGui import QImage, QPalette
from qtpy.QtWidgets import QApplication, QTextBrowser, QWidget

import napari_saf
from napari_saf.errors import FormatError

_PLUGIN = "napari-saf"
_FOLDERS = ("_docs", "../docs")
"""Inside the package in a wheel, next to it in a checkout."""
_DIRECTIVES = re.compile(r"^```\{.*?^```$", re.MULTILINE | re.DOTALL)
_SIZE, _MARGIN = QSize(820, 720), 90
_LINKS = {False: "#1a5fb4", True: "#7ab4ff"}
"""Link colour by whether the text is light (dark theme)."""


def page_of(dock: QWidget) -> str:
    """Return the page named like the command that opens a dock, or else the first page."""
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
    """A window with a page; web links open in the browser."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowFlag(Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setOpenExternalLinks(True)
        self.sourceChanged.connect(self._on_source_changed)
        self.resize(_SIZE)
        self.setSource(QUrl.fromLocalFile(str(page_path(name))))

    def loadResource(self, resource_type: int, address: QUrl) -> Any:
        """Return a page without MkDocs directives, or an image scaled to the window width."""
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
        self.ensurePolished()  # apply the theme, which does not set link colours
        is_light = self.palette().color(QPalette.ColorRole.WindowText).lightnessF() > 0.5
        link = QApplication.palette().color(QPalette.ColorRole.Link).name()
        self.setHtml(self.toHtml().replace(f"color:{link}", f"color:{_LINKS[is_light]}"))
