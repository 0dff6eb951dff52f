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

from napari_saf._gui.docks.tables import to_qcolor
from napari_saf._gui.forms.swatches import fill_color
from napari_saf._gui.prototypes.labels import Source

_SWATCH, _NAME, _SHARE, _SIZE, _LOCK = range(5)
_HEADERS = ("", "Label", "Share", "Pixels", "Lock")
_HELP = (
    "What the label stands for, in the frame of its colour (f*)",
    "Double-click to rename",
    "Share of the labelled pixels",
    "Pixels of the label",
    "Keep pixels and prototype of this label as they are",
)
_COLUMN_WIDTHS = {_SWATCH: 54, _SHARE: 58, _SIZE: 66, _LOCK: 40}
_SWATCH_WIDTH, _SWATCH_HEIGHT, _FRAME = 44, 20, 3
_PROFILE_BACK, _PROFILE_LINE = QColor(30, 32, 36), QColor(235, 235, 235)
_LEAST_ROWS, _MOST_ROWS = 5, 16


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelRow:
    """A label on screen.

    Size and share are None where there are no pixels. The fills are its prototypes where they are
    colours, else the profile is its prototype, 0 to 1.
    """

    number: int
    name: str
    size: int | None
    share: float | None
    color: NDArray[np.floating]
    fills: Sequence[NDArray[np.floating]] = ()
    profile: NDArray[np.floating] | None = None
    locked: bool = False


def rows_of(source: Source, sizes: Mapping[int, int]) -> list[LabelRow]:
    """Return the rows of a layer whose labels have so many pixels, or of a file."""
    state, options = source.state, source.options
    numbers = np.array(sorted(state.prototypes if source.layer is None else sizes), dtype=np.int64)
    if not len(numbers):
        return []
    features = "" if options is None else options.features
    total = max(1, sum(sizes.values()))
    every = np.concatenate([*state.prototypes.values()]) if state.prototypes else np.zeros((1, 1))
    low, high = float(every.min()), float(every.max())
    rows = []
    for number, color in zip(numbers.tolist(), source.colors(numbers), strict=True):
        own = list(state.prototypes.get(number, []))
        fills = [fill_color(prototype, features, color) for prototype in own]
        has_colors = bool(fills) and fills[0] is not color
        size = None if source.layer is None else sizes[number]
        row = LabelRow(
            number,
            state.name(number),
            size,
            None if size is None else size / total,
            color,
            fills if has_colors else (),
            None if has_colors or not fills else (own[0] - low) / max(high - low, 1e-12),
            number in state.locked,
        )
        rows.append(row)
    return rows


class _RowsModel(QAbstractTableModel):
    """Rows in an order that a click on a header changes; swatches are drawn when they are seen."""

    renamed = Signal(int, str)
    lock_toggled = Signal(int, bool)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.rows: list[LabelRow] = []
        self.swatches: dict[int, QIcon] = {}
        self._order = (-1, Qt.SortOrder.AscendingOrder)

    def show_rows(self, rows: Sequence[LabelRow]) -> None:
        """Show rows; without a reset where they are the same labels."""
        new = self._sorted(rows)
        self.swatches.clear()
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

    def rowCount(self, parent: QModelIndex | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: QModelIndex | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(_HEADERS)

    def flags(self, index: QModelIndex) -> Qt.ItemFlag:
        """Allow names to be edited and locks to be ticked."""
        own = {_NAME: Qt.ItemFlag.ItemIsEditable, _LOCK: Qt.ItemFlag.ItemIsUserCheckable}
        flags = super().flags(index)
        return flags | own[index.column()] if index.column() in own else flags

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
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
            if row.number not in self.swatches:
                self.swatches[row.number] = _draw_swatch(row)
            return self.swatches[row.number]
        if role == Qt.ItemDataRole.CheckStateRole and column == _LOCK:
            return Qt.CheckState.Checked if row.locked else Qt.CheckState.Unchecked
        if role == Qt.ItemDataRole.TextAlignmentRole and column in (_SHARE, _SIZE):
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{_HELP[column]}: label {row.number}"
        return None

    def setData(self, index: QModelIndex, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Tell of another name or another lock; who listens shows the rows anew."""
        number, column = self.rows[index.row()].number, index.column()
        if (role, column) == (Qt.ItemDataRole.EditRole, _NAME):
            self.renamed.emit(number, str(value))
        elif (role, column) == (Qt.ItemDataRole.CheckStateRole, _LOCK):
            self.lock_toggled.emit(number, Qt.CheckState(value) == Qt.CheckState.Checked)
        else:
            return False
        return True


class LabelTable(QTableView):
    """The labels of a layer.

    A click on a row selects it; with Ctrl or Shift more. A second click on the only selected row,
    or Esc, selects none.
    """

    selection_changed = Signal()
    renamed = Signal(int, str)
    lock_toggled = Signal(int, bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows = _RowsModel(self)
        self._last_click = (0.0, 0)
        self._before_reset: list[int] | None = None
        self.setModel(self._rows)
        self._set_look()
        self._rows.renamed.connect(self.renamed)
        self._rows.lock_toggled.connect(self.lock_toggled)
        self._rows.modelAboutToBeReset.connect(self._on_about_to_reset)
        self._rows.modelReset.connect(self._on_reset)
        self.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.clicked.connect(self._on_clicked)

    def _set_look(self) -> None:
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(_SWATCH_HEIGHT + 6)
        self.setIconSize(QSize(_SWATCH_WIDTH, _SWATCH_HEIGHT))
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        triggers = QAbstractItemView.EditTrigger
        self.setEditTriggers(triggers.DoubleClicked | triggers.EditKeyPressed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setSectionResizeMode(_NAME, QHeaderView.ResizeMode.Stretch)
        header.setHighlightSections(False)
        for column, width in _COLUMN_WIDTHS.items():
            self.setColumnWidth(column, width)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.setSortingEnabled(True)

    @property
    def rows(self) -> list[LabelRow]:
        """The rows, as on screen."""
        return list(self._rows.rows)

    @property
    def n_swatches_drawn(self) -> int:
        """Number of swatches drawn so far; those of visible rows only."""
        return len(self._rows.swatches)

    def show_rows(self, rows: Sequence[LabelRow]) -> None:
        """Show labels; those that were selected stay so."""
        self._rows.show_rows(rows)
        n_shown = min(max(len(rows), _LEAST_ROWS), _MOST_ROWS)
        edges = self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth()
        self.setMinimumHeight(edges + n_shown * self.verticalHeader().defaultSectionSize())

    def selected(self) -> list[int]:
        """Return the labels of the selected rows, in their order."""
        indices = self.selectionModel().selectedRows()
        return [self._rows.rows[row].number for row in sorted(index.row() for index in indices)]

    def select(self, numbers: Collection[int]) -> None:
        selection, model = QItemSelection(), self._rows
        for k, row in enumerate(model.rows):
            if row.number in numbers:
                selection.select(model.index(k, 0), model.index(k, len(_HEADERS) - 1))
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect
        self.selectionModel().select(selection, flags)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Select none at Esc."""
        is_editing = self.state() == QAbstractItemView.State.EditingState
        if event.key() == Qt.Key.Key_Escape and not is_editing:
            self.clearSelection()
        else:
            super().keyPressEvent(event)

    def _on_about_to_reset(self) -> None:
        self._before_reset = self.selected()

    def _on_reset(self) -> None:
        before = self._before_reset or []
        self.select(before)
        self._before_reset = None
        if self.selected() != before:
            self.selection_changed.emit()

    def _on_selection_changed(self, *changed: object) -> None:
        self._last_click = (self._last_click[0], 0)
        if self._before_reset is None:
            self.selection_changed.emit()

    def _on_clicked(self, index: QModelIndex) -> None:
        """Select none where the only selected row is clicked again, not double-clicked."""
        number, now = self._rows.rows[index.row()].number, time.monotonic()
        then, before = self._last_click
        self._last_click = (now, number)
        is_double = now - then <= QApplication.doubleClickInterval() / 1000
        has_keys = QApplication.keyboardModifiers() != Qt.KeyboardModifier.NoModifier
        if index.column() == _LOCK or has_keys or number != before or is_double:
            return
        if self.selected() == [number]:
            self._last_click = (now, 0)
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


def _draw_swatch(row: LabelRow) -> QIcon:
    """Draw the colours or the profile of the prototypes, in the frame of the label's colour."""
    picture = QPixmap(_SWATCH_WIDTH, _SWATCH_HEIGHT)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(to_qcolor(row.color))
    painter.drawRoundedRect(0, 0, _SWATCH_WIDTH, _SWATCH_HEIGHT, 4, 4)
    inner = QRectF(picture.rect()).adjusted(_FRAME, _FRAME, -_FRAME, -_FRAME)
    for k, fill in enumerate(row.fills):
        width = inner.width() / len(row.fills)
        place = QRectF(inner.left() + k * width, inner.top(), width, inner.height())
        painter.fillRect(place, to_qcolor(fill))
    if row.profile is not None:
        painter.fillRect(inner, _PROFILE_BACK)
        painter.setPen(QPen(_PROFILE_LINE, 1.2))
        values = np.repeat(row.profile, 2) if len(row.profile) == 1 else row.profile
        place = inner.adjusted(1, 1, -1, -1)
        across = np.linspace(place.left(), place.right(), len(values))
        up = place.bottom() - np.clip(values, 0, 1) * place.height()
        points = [QPointF(float(x), float(y)) for x, y in zip(across, up, strict=True)]
        painter.drawPolyline(QPolygonF(points))
    painter.end()
    icon = QIcon()
    for mode in (QIcon.Mode.Normal, QIcon.Mode.Selected):
        icon.addPixmap(picture, mode)
    return icon
