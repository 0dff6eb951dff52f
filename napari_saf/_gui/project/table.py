"""The list of the images of a project: picture, name, how far the work on each is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QModelIndex, QSize, Qt, Signal
from qtpy.QtGui import QColor, QFont, QIcon, QImage, QPixmap
from qtpy.QtWidgets import QHeaderView

from napari_saf._gui.docks.tables import TableModel, TableView
from napari_saf._gui.session.session import Entry, ProjectSession

_HEADINGS = (
    ("Image", "Double-click, or Next and Previous, shows an image with its layers."),
    ("State", "How far the work is: untouched, taught by strokes, labelled, exported."),
)
_ROW_HEIGHT, _STATE_WIDTH, _PICTURE = 44, 84, QSize(40, 40)
_WARNING = QColor(229, 83, 75)


class _ImageModel(TableModel):
    def __init__(self, session: ProjectSession) -> None:
        super().__init__(_HEADINGS)
        self._session = session
        self.pictures: dict[int, QIcon] = {}

    def text(self, row: Entry, column: int) -> str | None:
        if column == 0:
            return row.name
        return row.state if row.state != "found" else self._session.stage(row)

    def key(self, row: Entry, column: int) -> Any:
        return (self.text(row, column) or "").lower() if column >= 0 else 0

    def look(self, row: Entry, column: int, role: int) -> Any:
        if role == Qt.ItemDataRole.DecorationRole and column == 0:
            return self.pictures.get(id(row))
        if role == Qt.ItemDataRole.ForegroundRole and row.state != "found":
            return _WARNING
        if role == Qt.ItemDataRole.FontRole and row is self._session.current:
            return _bold()
        return str(row.path or "in memory") if role == Qt.ItemDataRole.ToolTipRole else None


class ImageTable(TableView):
    """The images of a session; the one on screen is bold, the chosen one is selected."""

    wanted = Signal(object)

    def __init__(self, session: ProjectSession) -> None:
        self._model, self._session = _ImageModel(session), session
        super().__init__(self._model, _ROW_HEIGHT)
        self.setIconSize(_PICTURE)
        self.allow_sorting()
        header = self.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        header.resizeSection(1, _STATE_WIDTH)
        self.doubleClicked.connect(self._on_double_clicked)

    @property
    def entries(self) -> list[Entry]:
        """The images in the order of the list."""
        return list(self._model.rows)

    @property
    def chosen(self) -> Entry | None:
        rows = self.selectionModel().selectedRows()
        return self._model.rows[rows[0].row()] if rows else None

    def choose(self, entry: Entry) -> None:
        if entry in self._model.rows:
            self.selectRow(self._model.rows.index(entry))

    def refresh(self) -> None:
        """Show the images as they are now; the chosen one stays chosen."""
        chosen = self.chosen
        self._model.show_rows(self._session.entries)
        if chosen is not None:
            self.choose(chosen)

    def missing_pictures(self) -> list[Entry]:
        """Return the images without a picture; those on screen get theirs at once."""
        known = {id(entry) for entry in self._session.entries}
        self._model.pictures = {k: one for k, one in self._model.pictures.items() if k in known}
        missing = [one for one in self._session.entries if id(one) not in self._model.pictures]
        for entry in missing:
            if entry.layer is not None:
                self.show_picture(entry, entry.layer.thumbnail[..., :3])
        return [one for one in missing if one.layer is None and one.state != "missing"]

    def show_picture(self, entry: Entry, pixels: NDArray[np.uint8] | None) -> None:
        """Show a picture (rows, columns, 3) of an image; None for none."""
        icon = QIcon()
        if pixels is not None:
            own = np.ascontiguousarray(pixels, np.uint8)
            height, width = own.shape[:2]
            image = QImage(own.tobytes(), width, height, 3 * width, QImage.Format.Format_RGB888)
            keep = Qt.AspectRatioMode.KeepAspectRatio
            icon = QIcon(QPixmap.fromImage(image.copy()).scaled(_PICTURE, keep))
        self._model.pictures[id(entry)] = icon
        self.viewport().update()

    def _on_double_clicked(self, index: QModelIndex) -> None:
        self.wanted.emit(self._model.rows[index.row()])


def _bold() -> Any:
    font = QFont()
    font.setBold(True)
    return font
