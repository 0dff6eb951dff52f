"""Tables: a sortable model, a table of measurements, a checkable list of labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import QAbstractTableModel, QModelIndex, QSize, Qt, Signal
from qtpy.QtGui import QColor, QIcon, QImage, QPixmap
from qtpy.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QHeaderView,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QTableView,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.forms.choices import BOX_STYLE
from napari_saf._gui.forms.controls import StatusArea, ask_for_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.layers.metadata import class_names, colors_of
from napari_saf.errors import SafError, format_count
from napari_saf.io import TABLE_SUFFIXES, mask_suffix, save_table, table_text
from napari_saf.objects import ground_label

Table = Mapping[str, NDArray[Any]]
ROW_HEIGHT = 22
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_FEWEST_ROWS, _MOST_ROWS = 4, 12
_MOST_TICKS, _TICK_HEIGHT = 3, 20
_ROOM, _WIDEST_NAME, _SWATCH_SIDE, _SQUARE_SIDE = 12, 72, 10, 12
_NARROW = "QTableView, QHeaderView::section {font-size: 8pt;} QHeaderView::section {padding: 2px;}"
"""Makes all columns fit, except the means of further channels."""
_MOST_MEASURED = 50
"""Rows considered for the column widths."""
_FILTER = "Table (*.csv *.parquet)"
_POWERS = str.maketrans("23", "²³")
_HELP = {
    "frame": "Index of the frame in the series, from 0.",
    "region": "Number of the connected region, as in the image of numbered regions.",
    "pixels": "Number of pixels.",
    "share": "Share of all labelled pixels; in a series, of those in the frame.",
    "area": "In the units of the layer.",
    "volume": "In the units of the layer.",
    "mean": "Mean of the image intensity, per channel.",
}


class TableModel(QAbstractTableModel):
    """Rows in their original order or sorted by a column; cells are created on demand.

    `headings` are titles with tooltips. Subclasses implement the `text` of a cell, its other roles
    (`look`), and the sorting `key`.
    """

    def __init__(self, headings: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__()
        self.headings, self.rows = headings, list[Any]()
        self.sorted_by = (-1, Qt.SortOrder.AscendingOrder)
        self._unsorted: Sequence[Any] = ()

    def text(self, row: Any, column: int) -> str | None:
        return None

    def key(self, row: Any, column: int) -> Any:
        return 0

    def look(self, row: Any, column: int, role: int) -> Any:
        return None

    def show_rows(self, rows: Sequence[Any]) -> None:
        self.beginResetModel()
        self.take(rows)
        self.endResetModel()

    def take(self, rows: Sequence[Any]) -> None:
        """Replace the rows, sorted by the current column; the sort is stable."""
        self._unsorted, self.rows = rows, self.in_order(rows)

    def in_order(self, rows: Sequence[Any]) -> list[Any]:
        column, order = self.sorted_by
        is_reversed = order == Qt.SortOrder.DescendingOrder
        return sorted(rows, key=lambda row: self.key(row, column), reverse=is_reversed)

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort the rows by a column; the selection is kept."""
        self.layoutAboutToBeChanged.emit()
        previous, self.sorted_by = self.rows, (column, order)
        self.take(self._unsorted)
        positions = {row: k for k, row in enumerate(self.rows)}
        old = self.persistentIndexList()
        new = [self.index(positions[previous[index.row()]], index.column()) for index in old]
        self.changePersistentIndexList(old, new)
        self.layoutChanged.emit()
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(self.headings) - 1)

    def rowCount(self, parent: QModelIndex | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: QModelIndex | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.headings)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        roles = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)
        if orientation == Qt.Orientation.Horizontal and section < len(self.headings):
            return self.headings[section][roles.index(role)] if role in roles else None
        return None

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row, column = self.rows[index.row()], index.column()
        is_text = role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole)
        return self.text(row, column) if is_text else self.look(row, column, role)


class TableView(QTableView):
    """A table with row selection, without row numbers."""

    def __init__(self, model: TableModel, row_height: int = ROW_HEIGHT, style: str = "") -> None:
        super().__init__()
        self.setModel(model)
        self.setStyleSheet(style)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(row_height)
        self.horizontalHeader().setHighlightSections(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setTabKeyNavigation(False)
        self.setShowGrid(False)

    def allow_sorting(self) -> None:
        self.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.setSortingEnabled(True)

    @property
    def chosen(self) -> Any:
        """The selected row of the model, or None."""
        rows = self.selectionModel().selectedRows()
        return self.model().rows[rows[0].row()] if rows else None

    def choose(self, row: object) -> None:
        """Select a row of the model."""
        if row in self.model().rows:
            self.selectRow(self.model().rows.index(row))

    def height_of(self, n_rows: int) -> int:
        edges = self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth()
        return int(edges + n_rows * self.verticalHeader().defaultSectionSize())


class MeasuredModel(TableModel):
    """Model of a table of measurements, with the labels in their colours."""

    def __init__(self) -> None:
        super().__init__()
        self._table: dict[str, NDArray[Any]] = {}
        self._colors: Mapping[int, Sequence[float]] = {}

    @property
    def table(self) -> dict[str, NDArray[Any]]:
        """The columns, sorted as displayed."""
        return {name: values[self.rows] for name, values in self._table.items()}

    def show_table(self, table: Table, colors: Mapping[int, Sequence[float]]) -> None:
        self._table, self._colors, self._names = dict(table), colors, list(table)
        titles = map(column_title, table)
        helps = {name: f"{text} Click to sort." for name, text in _HELP.items()}
        self.headings = [(t, helps.get(t.partition(" ")[0], "Click to sort.")) for t in titles]
        self.show_rows(range(max(map(len, table.values()), default=0)))

    def in_order(self, rows: Sequence[Any]) -> list[Any]:
        column, order = self.sorted_by
        if not 0 <= column < len(self.headings):
            return list(rows)
        rank = np.unique(self._table[self._names[column]][rows], return_inverse=True)[1]
        rank = -rank if order == Qt.SortOrder.DescendingOrder else rank
        ordered: list[Any] = np.asarray(rows)[np.argsort(rank, kind="stable")].tolist()
        return ordered

    def text(self, row: int, column: int) -> str:
        name = self._names[column]
        return _cell_text(name, self._table[name][row])

    def look(self, row: int, column: int, role: int) -> Any:
        name = self._names[column]
        value = self._table[name][row]
        if role == Qt.ItemDataRole.DecorationRole and name == "label":
            return square_icon(np.asarray(self._colors.get(int(value), (0, 0, 0))), _SWATCH_SIDE)
        if role == Qt.ItemDataRole.ToolTipRole and name == "name":
            return str(value)
        is_number = name != "label" and isinstance(value, np.number)
        return int(RIGHT) if role == Qt.ItemDataRole.TextAlignmentRole and is_number else None


PLOT_COLOR = "#4c9be8"
"""Legible in dark and light themes."""


def column_title(name: str) -> str:
    """Return the displayed title of a column of a file, such as ``area µm²``."""
    name = re.sub(r"_um(?=[23]?$)", "_µm", name)
    measure = re.fullmatch(r"(area|volume)_(.+)", name)
    if measure:
        return f"{measure[1]} {measure[2][:-1]}{measure[2][-1].translate(_POWERS)}"
    return name.removeprefix("intensity_").replace("_", " ")


def _cell_text(name: str, value: Any) -> str:
    if name in ("share", "class_uncertainty"):
        return f"{100 * value:.1f} %"
    if isinstance(value, np.floating):
        return f"{value:.4g}" if abs(value) < 1e4 else format_count(round(value))
    return format_count(value) if name == "pixels" else str(value)


class TableSection(QWidget):
    """A table of measurements with buttons to copy and save it, or the reason for its absence."""

    label_chosen = Signal(int)

    def __init__(self, status: StatusArea) -> None:
        super().__init__()
        self.path = Path("table")  # default file to save to, without suffix
        self._status, self.model = status, MeasuredModel()
        self.view, self.why_not = TableView(self.model, style=_NARROW), QLabel(wordWrap=True)
        self.view.setToolTip("Click a row to select its label in the layer.")
        self.view.setIconSize(QSize(_SWATCH_SIDE, _SWATCH_SIDE))
        self.view.horizontalHeader().setMinimumSectionSize(_ROOM)
        self.view.allow_sorting()
        self.view.selectionModel().selectionChanged.connect(self._on_selection_changed)
        copy = create_button("Copy", "Copy the table, to paste into a spreadsheet.", self.copy)
        save = create_button("Save table …", "Save the table as it is sorted.", self._ask_to_save)
        self.buttons = copy, save
        fill_layout(QVBoxLayout(self), self.why_not, self.view, create_row(*self.buttons))
        self.show_reason("measuring …")

    def show_table(self, table: Table | str, colors: Mapping[int, Sequence[float]]) -> None:
        """Show measurements, or the reason why there are none.

        Areas in pixels, which equal the number of pixels, are left out.
        """
        if isinstance(table, str):
            self.show_reason(table)
            return
        shown = {n: column for n, column in table.items() if not n.endswith(("_px2", "_px3"))}
        self.model.show_table(shown, colors)
        self._fit_columns()
        n_rows = min(max(self.model.rowCount(), _FEWEST_ROWS), _MOST_ROWS)
        scrolls = self.view.horizontalScrollBar().sizeHint().height()
        self.view.setFixedHeight(self.view.height_of(n_rows) + scrolls)
        self._show_reason("")

    def show_reason(self, text: str) -> None:
        self.model.show_table({}, {})
        self._show_reason(text)

    def copy(self) -> None:
        QApplication.clipboard().setText(table_text(self.model.table))
        self._status.reset(f"copied {self.model.rowCount()} rows")

    def save_to(self, path: str) -> None:
        """Save the table; the suffix defaults to .csv."""
        target = Path(path if mask_suffix(Path(path), TABLE_SUFFIXES) else f"{path}.csv")
        try:
            save_table(target, self.model.table)
        except SafError as error:
            self._status.show_error(str(error))
        else:
            self._status.reset(f"saved {named(target)}")

    def _fit_columns(self) -> None:
        """Fit the columns to their first cells; Qt reserves space for a sort arrow in each."""
        width = self.view.fontMetrics().horizontalAdvance
        for k, name in enumerate(self.model.table):
            texts = [self.model.text(row, k) for row in self.model.rows[:_MOST_MEASURED]]
            widest = max(map(width, [column_title(name), *texts]))
            widest = min(widest, _WIDEST_NAME) if name == "name" else widest
            self.view.setColumnWidth(k, widest + _ROOM + (_SWATCH_SIDE + 4) * (name == "label"))

    def _show_reason(self, text: str) -> None:
        self.why_not.setText(text)
        self.why_not.setVisible(bool(text))
        self.view.setVisible(not text)
        for button in self.buttons:
            button.setEnabled(not text)

    def _on_selection_changed(self, *changed: object) -> None:
        for index in self.view.selectionModel().selectedRows():
            self.label_chosen.emit(int(self.model.table["label"][index.row()]))

    def _ask_to_save(self) -> None:
        ask_for_path(self, "Save table", f"{self.path}_table.csv", _FILTER, self.save_to)


def create_table(tooltip: str) -> QTableWidget:
    table = QTableWidget(toolTip=tooltip)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
    table.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    table.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
    table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    return table


def create_cell(text: str, color: NDArray[np.floating] | None = None) -> QTableWidgetItem:
    cell = QTableWidgetItem(text)
    cell.setTextAlignment(Qt.AlignmentFlag.AlignCenter)
    if color is not None:
        cell.setIcon(square_icon(color))
    return cell


def square_icon(color: NDArray[np.floating], side: int = _SQUARE_SIDE) -> QIcon:
    """Return a square icon in a colour (red, green, blue, ...), each in [0, 1]."""
    square = QPixmap(side, side)
    square.fill(to_qcolor(color))
    return QIcon(square)


def to_qcolor(color: NDArray[np.floating]) -> QColor:
    """Return a colour (red, green, blue, ...), each in [0, 1], as a QColor."""
    return QColor.fromRgbF(*(float(x) for x in np.clip(color[:3], 0, 1)))


def to_qimage(pixels: NDArray[np.uint8]) -> QImage:
    """Return pixels (rows, columns, 3 or 4) as a QImage that owns a copy of them."""
    height, width, n_channels = pixels.shape
    pixel_format = QImage.Format.Format_RGBA8888 if n_channels == 4 else QImage.Format.Format_RGB888
    return QImage(pixels.tobytes(), width, height, n_channels * width, pixel_format).copy()


class LabelList(QListWidget):
    """Checkable list of the labels of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.setStyleSheet(BOX_STYLE)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._show_rows(1)

    def show_labels(
        self, layer: Labels, numbers: NDArray[np.integer], sizes: NDArray[np.integer] | None = None
    ) -> None:
        """List labels, all checked except that of the ground, if `sizes` are given."""
        names, colors, state = class_names(layer), colors_of(layer, numbers), Qt.CheckState
        ground = None if sizes is None else ground_label(numbers, sizes, layer.data.size)
        with signals_blocked(self):
            self.clear()
            for row, number in enumerate(numbers.tolist()):
                item = QListWidgetItem(names.get(number, f"label {number}"), self)
                item.setData(Qt.ItemDataRole.UserRole, number)
                item.setIcon(square_icon(colors[row]))
                item.setCheckState(state.Unchecked if number == ground else state.Checked)
                item.setSizeHint(QSize(0, _TICK_HEIGHT))
        self._show_rows(min(max(len(numbers), 1), _MOST_TICKS))

    def _show_rows(self, count: int) -> None:
        self.setFixedHeight(count * _TICK_HEIGHT + 2 * self.frameWidth() + 2)

    @property
    def ticked(self) -> list[int]:
        items = [self.item(row) for row in range(self.count())]
        ticked = [item for item in items if item.checkState() == Qt.CheckState.Checked]
        return [int(item.data(Qt.ItemDataRole.UserRole)) for item in ticked]
