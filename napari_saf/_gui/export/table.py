"""The table of what was labelled: a row for each label or region, to look at, copy and save."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QAbstractTableModel, QModelIndex, QSize, Qt, Signal
from qtpy.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QFileDialog,
    QLabel,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.docks.label_table import ROW_HEIGHT, square_icon
from napari_saf._gui.forms.controls import StatusArea
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf.errors import SafError
from napari_saf.io import TABLE_SUFFIXES, mask_suffix, save_table, table_text

Table = Mapping[str, NDArray[Any]]
_FEWEST_ROWS, _MOST_ROWS = 4, 12
_ROOM, _WIDEST_NAME, _SWATCH_SIDE = 12, 72, 10
_NARROW = "QTableView, QHeaderView::section {font-size: 8pt;} QHeaderView::section {padding: 2px;}"
"""So that all but the means of further channels fits side by side."""
_MOST_MEASURED = 50
"""Rows that decide how wide the columns are."""
_FILTER = "Table (*.csv *.parquet)"
_POWERS = str.maketrans("23", "²³")
_HELP = {
    "frame": "Which frame of the series, from 0.",
    "region": "Number of the connected region, as in the image of numbered regions.",
    "pixels": "How many pixels.",
    "share": "Share of all labelled pixels; of a series, of those of the frame.",
    "area": "In the units of the layer.",
    "volume": "In the units of the layer.",
    "mean": "Mean of the image's pixels; of its channels each by itself.",
}


class TableModel(QAbstractTableModel):
    """Columns of one length; cells become texts when they are seen."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[str, NDArray[Any]] = {}
        self._colors: Mapping[int, Sequence[float]] = {}

    def show_table(self, table: Table, colors: Mapping[int, Sequence[float]]) -> None:
        """Show other columns, and labels in these colours."""
        self.beginResetModel()
        self.table, self._colors = dict(table), colors
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort all rows by a column; rows of the same value stay in their order."""
        if not 0 <= column < len(self.table):
            return
        values = list(self.table.values())[column]
        rank = np.unique(values, return_inverse=True)[1]
        rows = np.argsort(-rank if order == Qt.SortOrder.DescendingOrder else rank, kind="stable")
        table = {name: values[rows] for name, values in self.table.items()}
        self.show_table(table, self._colors)

    def rowCount(self, parent: QModelIndex | None = None) -> int:
        is_cell = parent is not None and parent.isValid()
        return 0 if is_cell or not self.table else len(next(iter(self.table.values())))

    def columnCount(self, parent: QModelIndex | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.table)

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation != Qt.Orientation.Horizontal or section >= len(self.table):
            return None
        title = column_title(list(self.table)[section])
        if role == Qt.ItemDataRole.DisplayRole:
            return title
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{_HELP.get(title.partition(' ')[0], '')} Click to sort.".strip()
        return None

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        name = list(self.table)[index.column()]
        value = self.table[name][index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return _cell_text(name, value)
        if role == Qt.ItemDataRole.DecorationRole and name == "label":
            return square_icon(np.asarray(self._colors.get(int(value), (0, 0, 0))), _SWATCH_SIDE)
        if role == Qt.ItemDataRole.ToolTipRole and name == "name":
            return str(value)
        if role == Qt.ItemDataRole.TextAlignmentRole and name not in ("label", "name"):
            return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        return None


def column_title(name: str) -> str:
    """Return the name of a column of a file as the window has it, such as ``area µm²``."""
    measure = re.fullmatch(r"(area|volume)_(.+)", name)
    if measure:
        unit = re.sub(r"^u(?=m)", "µ", measure[2])
        return f"{measure[1]} {unit[:-1]}{unit[-1].translate(_POWERS)}"
    return name.removeprefix("intensity_").replace("_", " ")


def _cell_text(name: str, value: Any) -> str:
    if name == "share":
        return f"{100 * value:.1f} %"
    if isinstance(value, np.floating):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}".replace(",", "\u2009")
    return f"{value:,}".replace(",", "\u2009") if name == "pixels" else str(value)


class TableSection(QWidget):
    """The table, with buttons that copy and save what it shows, or a reason why it is empty."""

    label_chosen = Signal(int)

    def __init__(self, status: StatusArea) -> None:
        super().__init__()
        self.path = Path("table")  # where the table goes at first, without suffix
        self._status = status
        self.model, self.view, self._why_not = TableModel(), QTableView(), QLabel()
        self._why_not.setWordWrap(True)
        self.view.setModel(self.model)
        self.view.setToolTip("A click on a row chooses its label in the layer.")
        self.view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.view.setStyleSheet(_NARROW)
        self.view.setIconSize(QSize(_SWATCH_SIDE, _SWATCH_SIDE))
        self.view.setTabKeyNavigation(False)
        self.view.setShowGrid(False)
        self.view.verticalHeader().hide()
        self.view.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        header = self.view.horizontalHeader()
        header.setMinimumSectionSize(_ROOM)
        header.setHighlightSections(False)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.view.setSortingEnabled(True)
        self.view.selectionModel().selectionChanged.connect(self._on_selection_changed)
        copy = create_button("Copy", "Copy the table, to paste into a spreadsheet.", self.copy)
        help_text = "Save the table as it is here."
        self._buttons = copy, create_button("Save table …", help_text, self._on_save_clicked)
        fill_layout(QVBoxLayout(self), self._why_not, self.view, create_row(*self._buttons))
        self.show_reason("measuring …")

    def show_table(self, table: Table, colors: Mapping[int, Sequence[float]]) -> None:
        """Show what was measured; areas in pixels, which are their number, are left out."""
        header = self.view.horizontalHeader()
        shown = {name: own for name, own in table.items() if not name.endswith(("_px2", "_px3"))}
        self.model.show_table(shown, colors)
        self.model.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())
        self._fit_columns()
        n_rows = min(max(self.model.rowCount(), _FEWEST_ROWS), _MOST_ROWS)
        edges = header.sizeHint().height() + 2 * self.view.frameWidth()
        edges += self.view.horizontalScrollBar().sizeHint().height()
        self.view.setFixedHeight(edges + n_rows * ROW_HEIGHT)
        self._show_reason("")

    def show_reason(self, text: str) -> None:
        """Show why there is no table."""
        self.model.show_table({}, {})
        self._show_reason(text)

    def copy(self) -> None:
        """Copy the table to the clipboard, with tabs."""
        QApplication.clipboard().setText(table_text(self.model.table))
        self._status.reset(f"copied {self.model.rowCount()} rows")

    def save_to(self, path: str) -> None:
        """Save the table; .csv is added where there is no suffix."""
        target = Path(path if mask_suffix(Path(path), TABLE_SUFFIXES) else f"{path}.csv")
        try:
            save_table(target, self.model.table)
        except SafError as error:
            self._status.show_error(str(error))
        else:
            self._status.reset(f"saved {target.name}")

    def _fit_columns(self) -> None:
        """Make columns as wide as their first cells; Qt adds room for an arrow to each."""
        metrics, role = self.view.fontMetrics(), Qt.ItemDataRole.DisplayRole
        for k, name in enumerate(self.model.table):
            rows = range(min(self.model.rowCount(), _MOST_MEASURED))
            texts = [str(self.model.data(self.model.index(row, k), role)) for row in rows]
            widest = max(map(metrics.horizontalAdvance, [column_title(name), *texts]))
            widest = min(widest, _WIDEST_NAME) if name == "name" else widest
            self.view.setColumnWidth(k, widest + _ROOM + (_SWATCH_SIDE + 4) * (name == "label"))

    def _show_reason(self, text: str) -> None:
        self._why_not.setText(text)
        self._why_not.setVisible(bool(text))
        self.view.setVisible(not text)
        for button in self._buttons:
            button.setEnabled(not text)

    def _on_selection_changed(self, *changed: object) -> None:
        for index in self.view.selectionModel().selectedRows():
            self.label_chosen.emit(int(self.model.table["label"][index.row()]))

    def _on_save_clicked(self) -> None:
        name = f"{self.path}_table.csv"
        path, _ = QFileDialog.getSaveFileName(self, "Save table", name, _FILTER)
        if path:
            self.save_to(path)
