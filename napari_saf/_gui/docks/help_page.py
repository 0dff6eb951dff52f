"""The pages of the documentation in a window, without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from qtpy.QtCore import QSize, Qt, QUrl
from qtpy.QtGui import QImage
from qtpy.QtWidgets import QTextBrowser, QWidget

import napari_saf
from napari_saf.errors import FormatError

__all__ = ["HelpPage", "page_path"]

_FOLDERS = ("_docs", "../docs")
"""In a wheel the pages lie inside the package, in a checkout beside it."""
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
