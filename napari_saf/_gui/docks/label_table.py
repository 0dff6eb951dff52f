"""Table of labels: one row per label with swatch, name, share, size and lock."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import (
    QAbstractItemModel,
    QEvent,
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
from qtpy.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QHeaderView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
)

from napari_saf._gui.docks.tables import RIGHT, TableModel, TableView, to_qcolor
from napari_saf._gui.forms.choices import BOX_STYLE
from napari_saf.errors import format_count

_WIDTHS = {"share": 60, "size": 66, "lock": 42}
_SWATCH_ROW_HEIGHT, _MARGIN, _FRAME = 26, 10, 3
_PROFILE_BACK, _PROFILE_LINE = QColor(30, 32, 36), QColor(235, 235, 235)
_SORT_KEYS: Mapping[str, Any] = {
    "name": lambda row: row.name.lower(),
    "share": lambda row: row.share or 0,
    "size": lambda row: row.size or 0,
    "lock": lambda row: not row.locked,
}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelRow:
    """A label, with its prototypes as `fills` (colours) or as a `profile` with values in [0, 1].

    The note is appended to the tooltips. Size and share are None if unknown.
    """

    number: int
    name: str
    color: NDArray[np.floating]
    note: str = ""
    size: int | None = None
    share: float | None = None
    fills: Sequence[NDArray[np.floating]] = ()
    profile: NDArray[np.floating] | None = None
    locked: bool = False

    def text(self, column: str) -> str | None:
        if column == "name":
            return self.name
        if column == "share" and self.share is not None:
            return f"{100 * self.share:.1f} %"
        if column != "size" or self.size is None:
            return None
        for end, unit in ((1e9, "G"), (1e6, "M")):
            if self.size >= end:
                return f"{self.size / end:.3g} {unit}"
        return format_count(self.size)

    def draw_swatch(self, size: QSize) -> QIcon:
        """Draw the colours or the profile of the prototypes, framed in the colour of the label."""
        picture = QPixmap(size)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(to_qcolor(self.color))
        painter.drawRoundedRect(picture.rect(), 4, 4)
        inner = QRectF(picture.rect()).adjusted(_FRAME, _FRAME, -_FRAME, -_FRAME)
        for k, fill in enumerate(self.fills):
            width = inner.width() / len(self.fills)
            stripe = QRectF(inner.left() + k * width, inner.top(), width, inner.height())
            painter.fillRect(stripe, to_qcolor(fill))
        if self.profile is not None:
            painter.fillRect(inner, _PROFILE_BACK)
            painter.setPen(QPen(_PROFILE_LINE, 1.2))
            values = np.repeat(self.profile, 2) if len(self.profile) == 1 else self.profile
            area = inner.adjusted(1, 1, -1, -1)
            across = np.linspace(area.left(), area.right(), len(values))
            up = area.bottom() - np.clip(values, 0, 1) * area.height()
            points = [QPointF(float(x), float(y)) for x, y in zip(across, up, strict=True)]
            painter.drawPolyline(QPolygonF(points))
        painter.end()
        icon = QIcon(picture)
        icon.addPixmap(picture, QIcon.Mode.Selected)
        return icon


class _LabelModel(TableModel):
    """Rows sorted by number until a header is clicked; swatches are drawn on demand."""

    def __init__(self, table: LabelTable, columns: Mapping[str, tuple[str, str]], end: str) -> None:
        super().__init__([(title, f"{help}{end}") for title, help in columns.values()])
        self._table, self.columns = table, [*columns]
        self._help = [help for _, help in columns.values()]
        self.swatches: dict[int, QIcon] = {}

    def show_rows(self, rows: Sequence[LabelRow]) -> None:
        """Show rows; the model is not reset if the labels are the same."""
        self.swatches.clear()
        if [row.number for row in self.in_order(rows)] != [row.number for row in self.rows]:
            super().show_rows(rows)
        elif rows and self._table.is_editing:
            self.take(rows)
            # dataChanged would discard a name being typed.
            self._table.viewport().update()
        elif rows:
            self.take(rows)
            last = self.index(len(rows) - 1, len(self.columns) - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def key(self, row: LabelRow, column: int) -> Any:
        name = self.columns[column] if column >= 0 else ""
        return _SORT_KEYS.get(name, lambda row: row.number)(row)

    def flags(self, index: QModelIndex) -> Qt.ItemFlag:
        extra = {"name": Qt.ItemFlag.ItemIsEditable, "lock": Qt.ItemFlag.ItemIsUserCheckable}
        name, flags = self.columns[index.column()], super().flags(index)
        return flags | extra[name] if name in extra else flags

    def text(self, row: LabelRow, column: int) -> str | None:
        return row.text(self.columns[column])

    def look(self, row: LabelRow, column: int, role: int) -> Any:
        name = self.columns[column]
        if role == Qt.ItemDataRole.DecorationRole and name == "swatch":
            if row.number not in self.swatches:
                self.swatches[row.number] = row.draw_swatch(self._table.iconSize())
            return self.swatches[row.number]
        if role == Qt.ItemDataRole.CheckStateRole and name == "lock":
            return Qt.CheckState.Checked if row.locked else Qt.CheckState.Unchecked
        if role == Qt.ItemDataRole.TextAlignmentRole and name in ("share", "size"):
            return RIGHT
        return self._help[column] + row.note if role == Qt.ItemDataRole.ToolTipRole else None

    def setData(self, index: QModelIndex, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Emit the new name or lock state; the receiver updates the rows."""
        number, column = self.rows[index.row()].number, self.columns[index.column()]
        if (role, column) == (Qt.ItemDataRole.EditRole, "name"):
            self._table.renamed.emit(number, str(value))
        elif (role, column) == (Qt.ItemDataRole.CheckStateRole, "lock"):
            self._table.lock_toggled.emit(number, Qt.CheckState(value) == Qt.CheckState.Checked)
        else:
            return False
        return True


class _TickDelegate(QStyledItemDelegate):
    """Toggles a checkbox by a click anywhere in its cell."""

    def editorEvent(
        self,
        event: QEvent,
        model: QAbstractItemModel,
        option: QStyleOptionViewItem,
        index: QModelIndex,
    ) -> bool:
        is_click = event.type() == QEvent.Type.MouseButtonRelease
        if not is_click or event.button() != Qt.MouseButton.LeftButton:
            return bool(super().editorEvent(event, model, option, index))
        state, role = Qt.CheckState, Qt.ItemDataRole.CheckStateRole
        is_ticked = state(index.data(role)) == state.Checked
        return bool(model.setData(index, state.Unchecked if is_ticked else state.Checked, role))


class LabelTable(TableView):
    """Table to select, rename and lock labels.

    `columns` maps some of "swatch", "name", "share", "size", "lock", in this order, to title and
    tooltip. The height fits `n_rows`, the minimum and maximum number of rows without scrolling.
    With `selects_several`, a click on a header sorts the rows, Ctrl or Shift extends the
    selection, and a second click on the only selected row, or Esc, clears it.
    """

    selection_changed = Signal()
    renamed = Signal(int, str)
    lock_toggled = Signal(int, bool)

    def __init__(
        self,
        columns: Mapping[str, tuple[str, str]],
        swatch: tuple[int, int],
        n_rows: tuple[int, int],
        selects_several: bool,
    ) -> None:
        end = ". Click to sort." if selects_several else "."
        self._rows, self._n_rows = _LabelModel(self, columns, end), n_rows
        super().__init__(self._rows, _SWATCH_ROW_HEIGHT, BOX_STYLE)
        self._last_click = (0.0, 0)
        self._before_reset: list[int] | None = None
        self.setIconSize(QSize(*swatch))
        triggers = QAbstractItemView.EditTrigger
        self.setEditTriggers(triggers.DoubleClicked | triggers.EditKeyPressed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        for k, name in enumerate(columns):
            if name == "name":
                header.setSectionResizeMode(k, QHeaderView.ResizeMode.Stretch)
            else:
                self.setColumnWidth(k, _WIDTHS.get(name, swatch[0] + _MARGIN))
            if name == "lock":
                self.setItemDelegateForColumn(k, _TickDelegate(self))
        if selects_several:
            self.allow_sorting()
            self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
            self.clicked.connect(self._on_clicked)
        self._rows.modelAboutToBeReset.connect(self._on_about_to_reset)
        self._rows.modelReset.connect(self._on_reset)
        self.selectionModel().selectionChanged.connect(self._on_selection_changed)

    @property
    def rows(self) -> list[LabelRow]:
        return list(self._rows.rows)

    @property
    def is_editing(self) -> bool:
        return bool(self.state() == QAbstractItemView.State.EditingState)

    def show_rows(self, rows: Sequence[LabelRow]) -> None:
        self._rows.show_rows(rows)
        least, most = self._n_rows
        self.setFixedHeight(self.height_of(min(max(len(rows), least), most)))

    def selected(self) -> list[int]:
        """Return the labels of the selected rows, in row order."""
        indices = self.selectionModel().selectedRows()
        return [self._rows.rows[row].number for row in sorted(index.row() for index in indices)]

    def select(self, numbers: Collection[int]) -> None:
        selection, model = QItemSelection(), self._rows
        for k, row in enumerate(model.rows):
            if row.number in numbers:
                selection.select(model.index(k, 0), model.index(k, len(model.columns) - 1))
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect
        self.selectionModel().select(selection, flags)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.isSortingEnabled() and not self.is_editing:
            self.clearSelection()
        else:
            super().keyPressEvent(event)

    def _on_about_to_reset(self) -> None:
        self._before_reset = self.selected()

    def _on_reset(self) -> None:
        previous = self._before_reset or []
        self.select(previous)
        self._before_reset = None
        if self.selected() != previous:
            self.selection_changed.emit()

    def _on_selection_changed(self, *changed: object) -> None:
        self._last_click = (self._last_click[0], 0)
        if self._before_reset is None:
            self.selection_changed.emit()

    def _on_clicked(self, index: QModelIndex) -> None:
        """Clear the selection on a second click, not a double click, on the only selected row."""
        number, now = self._rows.rows[index.row()].number, time.monotonic()
        then, previous = self._last_click
        self._last_click = (now, number)
        is_double = now - then <= QApplication.doubleClickInterval() / 1000
        has_keys = QApplication.keyboardModifiers() != Qt.KeyboardModifier.NoModifier
        is_lock = self._rows.columns[index.column()] == "lock"
        if is_lock or has_keys or number != previous or is_double:
            return
        if self.selected() == [number]:
            self._last_click = (now, 0)
            self.clearSelection()
