"""Images of a project as a list: picture, name, state, uncertainty."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import QModelIndex, QSize, Qt, Signal
from qtpy.QtGui import QColor, QFont, QIcon, QPixmap
from qtpy.QtWidgets import QHeaderView

from napari_saf._gui.docks.tables import RIGHT, TableModel, TableView, to_qimage
from napari_saf._gui.session.session import ProjectSession
from napari_saf.project import ImageEntry

_HEADINGS = (
    ("Image", "Double-click, or Next and Previous, shows an image with its layers."),
    ("State", "How far the work is: untouched, taught by strokes, labelled, exported."),
    (
        "Uncertainty",
        "Share of the pixels of a label that are uncertain after Label all, the mean of the "
        "labels: where it is high, a few strokes help most. Click to sort.",
    ),
)
_ROW_HEIGHT, _WIDTHS, _PICTURE = 44, {1: 78, 2: 88}, QSize(40, 40)
_WARNING = QColor(229, 83, 75)


class _ImageModel(TableModel):
    def __init__(self, session: ProjectSession) -> None:
        super().__init__(_HEADINGS)
        self._session = session

    def text(self, row: ImageEntry, column: int) -> str | None:
        if column == 0:
            return row.name
        if column == 2:
            share = self._session.uncertainty(row)
            return None if share is None else f"{100 * share:.1f} %"
        return row.state if row.state != "found" else self._session.stage(row)

    def key(self, row: ImageEntry, column: int) -> Any:
        if column == 2:
            return self._session.uncertainty(row) or 0.0
        return (self.text(row, column) or "").lower() if column >= 0 else 0

    def look(self, row: ImageEntry, column: int, role: int) -> Any:
        is_picture = role == Qt.ItemDataRole.DecorationRole and column == 0
        if is_picture and row.picture is not None and row.picture.size:
            pixels, keep = to_qimage(row.picture), Qt.AspectRatioMode.KeepAspectRatio
            return QIcon(QPixmap.fromImage(pixels).scaled(_PICTURE, keep))
        if role == Qt.ItemDataRole.ForegroundRole and row.state != "found":
            return _WARNING
        if role == Qt.ItemDataRole.FontRole and row is self._session.current:
            bold = QFont()  # in the typeface of the table
            bold.setBold(True)
            return bold
        if role == Qt.ItemDataRole.TextAlignmentRole and column == 2:
            return int(RIGHT)
        return str(row.path or "in memory") if role == Qt.ItemDataRole.ToolTipRole else None


class ImageTable(TableView):
    """The images of a session; the one on screen is bold, the chosen one is selected."""

    double_clicked = Signal(object)

    def __init__(self, session: ProjectSession) -> None:
        self._model, self._session = _ImageModel(session), session
        super().__init__(self._model, _ROW_HEIGHT)
        self.setIconSize(_PICTURE)
        self.allow_sorting()
        header = self.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for column, width in _WIDTHS.items():
            header.resizeSection(column, width)
        self.doubleClicked.connect(self._on_double_clicked)

    @property
    def entries(self) -> list[ImageEntry]:
        return list(self._model.rows)

    def refresh(self) -> None:
        """Show the images as they are now; the chosen one stays chosen."""
        chosen = self.chosen
        self._model.show_rows(self._session.model.entries)
        self.choose(chosen)

    def missing_pictures(self) -> list[ImageEntry]:
        """Return found images without a picture; those on screen take their thumbnail at once."""
        missing = [entry for entry in self._session.model.entries if entry.picture is None]
        for entry in missing:
            if entry.layer is not None:
                entry.picture = entry.layer.thumbnail[..., :3]
        missing = [entry for entry in missing if entry.picture is None]
        return [entry for entry in missing if entry.state != "missing"]

    def _on_double_clicked(self, index: QModelIndex) -> None:
        self.double_clicked.emit(self._model.rows[index.row()])
