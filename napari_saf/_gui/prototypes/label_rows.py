"""A table with a row for each label: swatch, name, share, size, lock."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import (
    QAbstractTableModel,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QPointF,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from qtpy.QtGui import QColor, QIcon, QKeyEvent, QPainter, QPen, QPixmap, QPolygonF
from qtpy.QtWidgets import QAbstractItemView, QApplication, QHeaderView, QTableView, QWidget

from napari_saf._gui.forms.swatches import fill_color
from napari_saf._gui.prototypes.sheet import FileBook, LayerBook

__all__ = ["LabelRow", "LabelTable", "rows_of"]

_SWATCH, _NAME, _SHARE, _SIZE, _LOCK = range(5)
_HEADERS = ("", "Label", "Share", "Pixels", "Lock")
_HELP = (
    "What the label stands for, in the frame of its colour (f*)",
    "Double-click to rename",
    "Share of the labelled pixels",
    "Pixels of the label",
    "Keep pixels and prototype of this label as they are",
)
_WIDTHS = {_SWATCH: 54, _SHARE: 58, _SIZE: 66, _LOCK: 40}
_WIDTH, _HEIGHT, _FRAME = 44, 20, 3
_BACK, _LINE = QColor(30, 32, 36), QColor(235, 235, 235)
_LEAST_ROWS, _MOST_ROWS = 5, 16


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelRow:
    """A label on screen.

    Attributes
    ----------
    number : int
    name : str
    size : int or None
        Pixels; None where there are none to count.
    share : float or None
        Of all labelled pixels.
    color : array of shape (4,)
        Of the label.
    fills : sequence of array of shape (3,)
        Colours of its prototypes, where they are colours.
    profile : array of shape (n_features,) or None
        Its prototype, 0 to 1, where it is no colour.
    locked : bool
    """

    number: int
    name: str
    size: int | None
    share: float | None
    color: NDArray[np.floating]
    fills: Sequence[NDArray[np.floating]] = ()
    profile: NDArray[np.floating] | None = None
    locked: bool = False


def rows_of(book: LayerBook | FileBook, sizes: Mapping[int, int]) -> list[LabelRow]:
    """Return the rows of a layer, or of a file.

    Parameters
    ----------
    book : LayerBook or FileBook
        What is known of the labels.
    sizes : mapping of int to int
        Pixels of each label of the layer.
    """
    sheet, options = book.sheet, book.options
    numbers = np.array(sorted(sheet.points if book.layer is None else sizes), dtype=np.int64)
    if not len(numbers):
        return []
    features = "" if options is None else options.features
    total = max(1, sum(sizes.values()))
    every = np.concatenate([*sheet.points.values()]) if sheet.points else np.zeros((1, 1))
    low, high = float(every.min()), float(every.max())
    rows = []
    for number, color in zip(numbers.tolist(), book.colors(numbers), strict=True):
        own = list(sheet.points.get(number, []))
        fills = [fill_color(point, features, color) for point in own]
        has_colors = bool(fills) and fills[0] is not color
        size = None if book.layer is None else sizes[number]
        row = LabelRow(
            number,
            sheet.name(number),
            size,
            None if size is None else size / total,
            color,
            fills if has_colors else (),
            None if has_colors or not fills else (own[0] - low) / max(high - low, 1e-12),
            number in sheet.locked,
        )
        rows.append(row)
    return rows


class _RowsModel(QAbstractTableModel):
    """Rows in an order that a click on a header changes."""

    renamed = Signal(int, str)
    lock_asked = Signal(int, bool)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.rows: list[LabelRow] = []
        self._pictures: dict[int, QIcon] = {}
        self._order = (-1, Qt.SortOrder.AscendingOrder)

    def show_rows(self, rows: Sequence[LabelRow]) -> None:
        """Show rows; those that stay keep their places in a selection."""
        new = self._sorted(rows)
        self._pictures.clear()
        if [row.number for row in new] != [row.number for row in self.rows]:
            self.beginResetModel()
            self.rows = new
            self.endResetModel()
        elif new:
            self.rows = new
            self.dataChanged.emit(self.index(0, 0), self.index(len(new) - 1, len(_HEADERS) - 1))

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column; by number until then."""
        self._order = (column, order)
        self.beginResetModel()
        self.rows = self._sorted(self.rows)
        self.endResetModel()

    def rowCount(self, parent: QModelIndex | None = None) -> int:
        """Return the number of rows."""
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: QModelIndex | None = None) -> int:
        """Return the number of columns."""
        return 0 if parent is not None and parent.isValid() else len(_HEADERS)

    def flags(self, index: QModelIndex) -> Qt.ItemFlag:
        """Return that names can be edited and locks ticked."""
        found = super().flags(index)
        if index.column() == _NAME:
            found |= Qt.ItemFlag.ItemIsEditable
        if index.column() == _LOCK:
            found |= Qt.ItemFlag.ItemIsUserCheckable
        return found

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        """Return the words above a column."""
        if orientation == Qt.Orientation.Horizontal:
            if role == Qt.ItemDataRole.DisplayRole:
                return _HEADERS[section]
            if role == Qt.ItemDataRole.ToolTipRole:
                return f"{_HELP[section]}. Click to sort."
        return None

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return what a cell shows."""
        row, column = self.rows[index.row()], index.column()
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole):
            return _text(row, column)
        if role == Qt.ItemDataRole.DecorationRole and column == _SWATCH:
            if row.number not in self._pictures:
                picture, icon = _draw(row), QIcon()
                for mode in (QIcon.Mode.Normal, QIcon.Mode.Selected):
                    icon.addPixmap(picture, mode)
                self._pictures[row.number] = icon
            return self._pictures[row.number]
        if role == Qt.ItemDataRole.CheckStateRole and column == _LOCK:
            return Qt.CheckState.Checked if row.locked else Qt.CheckState.Unchecked
        if role == Qt.ItemDataRole.TextAlignmentRole and column in (_SHARE, _SIZE):
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{_HELP[column]}: label {row.number}"
        return None

    def setData(self, index: QModelIndex, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Ask for another name or another lock."""
        number = self.rows[index.row()].number
        if role == Qt.ItemDataRole.EditRole and index.column() == _NAME:
            self.renamed.emit(number, str(value))
            return True
        if role == Qt.ItemDataRole.CheckStateRole and index.column() == _LOCK:
            self.lock_asked.emit(number, Qt.CheckState(value) == Qt.CheckState.Checked)
            return True
        return False

    def _sorted(self, rows: Sequence[LabelRow]) -> list[LabelRow]:
        column, order = self._order
        keys: dict[int, Any] = {
            _NAME: lambda row: row.name.lower(),
            _SHARE: lambda row: row.size or 0,
            _SIZE: lambda row: row.size or 0,
            _LOCK: lambda row: not row.locked,
        }
        key = keys.get(column, lambda row: row.number)
        return sorted(rows, key=key, reverse=order == Qt.SortOrder.DescendingOrder)


class LabelTable(QTableView):
    """The labels of a layer.

    A click on a row chooses it; with Ctrl or Shift more. A second click on the only chosen row,
    or Esc, chooses none.
    """

    chosen_changed = Signal()
    renamed = Signal(int, str)
    lock_asked = Signal(int, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows = _RowsModel(self)
        self._clicked = (0.0, 0)
        self._is_restoring = False
        self.setModel(self._rows)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(_HEIGHT + 6)
        self.setIconSize(QSize(_WIDTH, _HEIGHT))
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(
            QAbstractItemView.EditTrigger.DoubleClicked
            | QAbstractItemView.EditTrigger.EditKeyPressed
        )
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setSectionResizeMode(_NAME, QHeaderView.ResizeMode.Stretch)
        header.setHighlightSections(False)
        for column, width in _WIDTHS.items():
            self.setColumnWidth(column, width)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.setSortingEnabled(True)
        self._rows.renamed.connect(self.renamed)
        self._rows.lock_asked.connect(self.lock_asked)
        self._rows.modelAboutToBeReset.connect(self._on_about_to_reset)
        self._rows.modelReset.connect(self._on_reset)
        self.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.clicked.connect(self._on_clicked)
        self._kept: list[int] = []

    @property
    def rows(self) -> list[LabelRow]:
        """The rows, as on screen."""
        return list(self._rows.rows)

    def show_rows(self, rows: Sequence[LabelRow]) -> None:
        """Show labels; those that were chosen stay so."""
        self._rows.show_rows(rows)
        n_shown = min(max(len(rows), _LEAST_ROWS), _MOST_ROWS)
        edges = self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth()
        self.setMinimumHeight(edges + n_shown * self.verticalHeader().defaultSectionSize())

    def chosen(self) -> list[int]:
        """Return the labels of the chosen rows, in their order."""
        return [self._rows.rows[index.row()].number for index in self._chosen_indices()]

    def choose(self, numbers: Collection[int]) -> None:
        """Choose labels."""
        selection, model = QItemSelection(), self._rows
        for k, row in enumerate(model.rows):
            if row.number in numbers:
                selection.select(model.index(k, 0), model.index(k, len(_HEADERS) - 1))
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect
        self.selectionModel().select(selection, flags)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Choose none at Esc."""
        is_editing = self.state() == QAbstractItemView.State.EditingState
        if event.key() == Qt.Key.Key_Escape and not is_editing:
            self.clearSelection()
        else:
            super().keyPressEvent(event)

    def _chosen_indices(self) -> list[QModelIndex]:
        return sorted(self.selectionModel().selectedRows(), key=lambda index: index.row())

    def _on_about_to_reset(self) -> None:
        self._kept, self._is_restoring = self.chosen(), True

    def _on_reset(self) -> None:
        self.choose(self._kept)
        self._is_restoring = False
        if self.chosen() != self._kept:
            self.chosen_changed.emit()

    def _on_selection_changed(self, *changed: object) -> None:
        self._clicked = (self._clicked[0], 0)
        if not self._is_restoring:
            self.chosen_changed.emit()

    def _on_clicked(self, index: QModelIndex) -> None:
        """Choose none where the only chosen row is clicked again, not double-clicked."""
        number, now = self._rows.rows[index.row()].number, time.monotonic()
        then, before = self._clicked
        self._clicked = (now, number)
        rests = now - then > QApplication.doubleClickInterval() / 1000
        has_keys = QApplication.keyboardModifiers() != Qt.KeyboardModifier.NoModifier
        if index.column() == _LOCK or has_keys or number != before or not rests:
            return
        if self.chosen() == [number]:
            self._clicked = (now, 0)
            self.clearSelection()


def _text(row: LabelRow, column: int) -> str | None:
    if column == _NAME:
        return row.name
    if column == _SHARE and row.share is not None:
        return f"{100 * row.share:.1f} %"
    if column == _SIZE and row.size is not None:
        return _short(row.size)
    return None


def _short(number: int) -> str:
    """Return a number in at most six letters."""
    for end, unit in ((1e9, "G"), (1e6, "M")):
        if number >= end:
            return f"{number / end:.3g} {unit}"
    return f"{number:,}".replace(",", "\u2009")


def _draw(row: LabelRow) -> QPixmap:
    """Return the picture of a label: the colours or the profile of what it stands for."""
    picture = QPixmap(_WIDTH, _HEIGHT)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    own = _as_color(row.color)
    painter.setBrush(own)
    painter.drawRoundedRect(0, 0, _WIDTH, _HEIGHT, 4, 4)
    inner = QRectF(picture.rect()).adjusted(_FRAME, _FRAME, -_FRAME, -_FRAME)
    if len(row.fills):
        width = inner.width() / len(row.fills)
        for k, fill in enumerate(row.fills):
            part = QRectF(inner.left() + k * width, inner.top(), width, inner.height())
            painter.fillRect(part, _as_color(fill))
    elif row.profile is not None:
        painter.fillRect(inner, _BACK)
        painter.setPen(QPen(_LINE, 1.2))
        painter.drawPolyline(_polyline(row.profile, inner.adjusted(1, 1, -1, -1)))
    painter.end()
    return picture


def _polyline(profile: NDArray[np.floating], place: QRectF) -> QPolygonF:
    values = np.repeat(profile, 2) if len(profile) == 1 else profile
    across = np.linspace(place.left(), place.right(), len(values))
    up = place.bottom() - np.clip(values, 0, 1) * place.height()
    return QPolygonF([QPointF(float(x), float(y)) for x, y in zip(across, up, strict=True)])


def _as_color(color: NDArray[np.floating]) -> QColor:
    return QColor.fromRgbF(*(float(x) for x in np.clip(color[:3], 0, 1)))
