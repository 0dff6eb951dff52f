"""Small tables of labels: not edited, each label with a square in its colour."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtGui import QColor, QIcon, QPixmap
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem

ROW_HEIGHT = 22
_SQUARE_SIDE = 12


def create_table(tooltip: str) -> QTableWidget:
    """Return an empty table that cannot be edited."""
    table = QTableWidget()
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
    table.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    table.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
    table.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    table.setToolTip(tooltip)
    return table


def create_cell(text: str, color: NDArray[np.floating] | None = None) -> QTableWidgetItem:
    """Return a centred cell, with a square in a colour where one is given."""
    cell = QTableWidgetItem(text)
    cell.setTextAlignment(int(Qt.AlignmentFlag.AlignCenter))
    if color is not None:
        cell.setIcon(square_icon(color))
    return cell


def square_icon(color: NDArray[np.floating], side: int = _SQUARE_SIDE) -> QIcon:
    """Return a square in a colour (red, green, blue, ...), each in [0, 1]."""
    square = QPixmap(side, side)
    square.fill(to_qcolor(color))
    return QIcon(square)


def to_qcolor(color: NDArray[np.floating]) -> QColor:
    """Return a colour (red, green, blue, ...), each in [0, 1], as Qt's."""
    return QColor.fromRgbF(*(float(x) for x in np.clip(color[:3], 0, 1)))


def table_texts(table: QTableWidget) -> list[list[str]]:
    """Return what a table shows, row by row."""
    rows, columns = range(table.rowCount()), range(table.columnCount())
    cells = [[table.item(row, column) for column in columns] for row in rows]
    return [["" if cell is None else str(cell.text()) for cell in row] for row in cells]
