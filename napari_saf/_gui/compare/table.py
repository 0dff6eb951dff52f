"""The table of a comparison on screen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem, QWidget

from napari_saf.comparison import COLUMNS, Column, Row

__all__ = ["ComparisonTable"]

_NUMBER = Qt.ItemDataRole.UserRole
_HEIGHT = 172
_WIDEST = 150
"""Of a column, so that a name leaves room for numbers."""


class ComparisonTable(QTableWidget):
    """A row a result; sorted by a click on a heading, chosen by a click on a row."""

    row_chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(0, len(COLUMNS), parent)
        for number, column in enumerate(COLUMNS):
            heading = QTableWidgetItem(column.heading)
            heading.setToolTip(column.help)
            self.setHorizontalHeaderItem(number, heading)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.verticalHeader().hide()
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.horizontalHeader().setMaximumSectionSize(_WIDEST)
        self.setMaximumHeight(_HEIGHT)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.itemSelectionChanged.connect(self._on_selection_changed)
        self.show_rows([], [])

    def show_rows(self, rows: Sequence[Row], names: Sequence[tuple[str, str]]) -> None:
        """Show rows under short names, with whole ones; columns without any value are hidden."""
        blocked = self.blockSignals(True)
        self.setSortingEnabled(False)
        self.setRowCount(len(rows))
        for number, column in enumerate(COLUMNS):
            best = column.best_of(rows)
            for place, row in enumerate(rows):
                text, tooltip = column.text(row), column.help
                if column.field == "name":
                    text, tooltip = names[place]
                item = _item(column, row, text, best, place)
                item.setToolTip(tooltip)
                self.setItem(place, number, item)
            self.setColumnHidden(number, not any(column.text(row) for row in rows))
        self.setVisible(bool(rows))
        self.setSortingEnabled(True)
        self.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.blockSignals(blocked)

    def choose(self, number: int) -> None:
        """Choose the row of a result, wherever it is sorted to."""
        for place in range(self.rowCount()):
            if self.item(place, 0).data(_NUMBER) == number:
                self.selectRow(place)

    @property
    def chosen(self) -> int | None:
        """The number of the result whose row is chosen."""
        ranges = self.selectionModel().selectedRows()
        return int(self.item(ranges[0].row(), 0).data(_NUMBER)) if ranges else None

    def _on_selection_changed(self) -> None:
        if self.chosen is not None:
            self.row_chosen.emit(self.chosen)


class _Item(QTableWidgetItem):
    """An entry that is sorted by its value, not by its words."""

    def __init__(self, text: str, value: object) -> None:
        super().__init__(text)
        self._value = value

    def __lt__(self, other: QTableWidgetItem) -> bool:
        mine, theirs = self._value, getattr(other, "_value", None)
        if isinstance(mine, float) and isinstance(theirs, float):
            return mine < theirs
        return str(mine) < str(theirs)


def _item(column: Column, row: Row, text: str, best: float | None, number: int) -> _Item:
    value = getattr(row, column.field)
    is_number = not isinstance(value, str)
    key: object = text
    if is_number:
        key = float(value) if math.isfinite(value) else -math.inf
    item = _Item(text, key)
    item.setData(_NUMBER, number)
    if is_number:
        item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    if best is not None and value == best:
        font = item.font()
        font.setBold(True)
        item.setFont(font)
    return item
