"""The classes of strokes: a row each, with colour, name, share and lock."""

from __future__ import annotations

from collections.abc import Mapping

from qtpy.QtCore import Qt, Signal
from qtpy.QtGui import QColor, QKeyEvent
from qtpy.QtWidgets import (
    QAbstractItemView,
    QColorDialog,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import square_icon, to_qcolor
from napari_saf._gui.scribbles.strokes import Strokes

_COLOR, _NAME, _SHARE, _LOCK = range(4)
_HEADERS = ("", "Class", "Share", "Lock")
_HELP = (
    "Click to choose another colour",
    "Click to paint this class, double-click to rename it; the keys . and , go on to the next "
    "class and back",
    "Share of the labelled pixels",
    "Keep the pixels of this class as they are now",
)
_COLUMN_WIDTHS = {_COLOR: 30, _SHARE: 62, _LOCK: 44}
_SWATCH = 16
_MOST_ROWS_IN_SIGHT = 6


class ClassTable(QTableWidget):
    """The classes of strokes.

    A click chooses the class to paint; a double click renames it; a click on the square changes
    its colour; a locked class keeps its pixels.
    """

    recolored = Signal()
    renamed = Signal()
    locks_changed = Signal()

    def __init__(self, strokes: Strokes, parent: QWidget | None = None) -> None:
        super().__init__(0, len(_HEADERS), parent)
        self._strokes = strokes
        self._shares: dict[int, float] = {}
        self._locked: set[int] = set()
        self.setHorizontalHeaderLabels(list(_HEADERS))
        self.verticalHeader().hide()
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setSectionResizeMode(_NAME, QHeaderView.ResizeMode.Stretch)
        for column, width in _COLUMN_WIDTHS.items():
            self.setColumnWidth(column, width)
        self.cellClicked.connect(self._on_clicked)
        self.itemChanged.connect(self._on_item_changed)
        strokes.selected.connect(self._select)

    @property
    def locked(self) -> tuple[int, ...]:
        """The classes that keep their pixels."""
        return tuple(sorted(self._locked))

    def numbers(self) -> list[int]:
        """Return the classes in the order of the rows."""
        return [self._number(row) for row in range(self.rowCount())]

    def current_number(self) -> int | None:
        """Return the class of the selected row, or None."""
        row = self.currentRow()
        return self._number(row) if row >= 0 else None

    def step(self, n_rows: int) -> None:
        """Paint the class so many rows below, around the ends."""
        numbers, now = self.numbers(), self.current_number()
        if numbers:
            row = -1 if now is None else numbers.index(now)
            self._strokes.paint_with(numbers[(row + n_rows) % len(numbers)])

    def share_text(self, number: int) -> str:
        return str(self.item(self.numbers().index(number), _SHARE).text())

    def set_shares(self, shares: Mapping[int, float]) -> None:
        """Show the share of each class, 0 to 1."""
        self._shares = dict(shares)
        with signals_blocked(self):
            for row, number in enumerate(self.numbers()):
                self.item(row, _SHARE).setText(self._share_text(number))

    def lock(self, number: int, locked: bool = True) -> None:
        """Lock a class, or unlock it."""
        self.item(self.numbers().index(number), _LOCK).setCheckState(_check_state(locked))

    def unlock(self) -> None:
        """Lock no class."""
        self._locked.clear()

    def refresh(self) -> None:
        """Show the classes that there are now."""
        numbers, counts = self._strokes.classes(), self._strokes.counts()
        self._locked &= set(numbers)
        with signals_blocked(self):
            self.setRowCount(len(numbers))
            for row, number in enumerate(numbers):
                self._fill_row(row, number, counts.get(number, 0))
            n_shown = min(max(len(numbers), 2), _MOST_ROWS_IN_SIGHT)
            edges = self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth()
            self.setFixedHeight(edges + n_shown * self.verticalHeader().defaultSectionSize())
        self._mark_painted()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Paint the class of a row that was gone to by the arrow keys."""
        before = self.currentRow()
        super().keyPressEvent(event)
        number = self.current_number()
        if number is not None and self.currentRow() != before:
            self._strokes.paint_with(number)

    def _fill_row(self, row: int, number: int, n_painted: int) -> None:
        fixed = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        items = [QTableWidgetItem() for _ in _HEADERS]
        for column, item in enumerate(items):
            item.setToolTip(_HELP[column])
            item.setFlags(fixed)
            self.setItem(row, column, item)
        color, name, share, lock = items
        color.setData(Qt.ItemDataRole.UserRole, number)
        color.setIcon(square_icon(self._strokes.color(number), _SWATCH))
        name.setText(self._strokes.name(number))
        name.setFlags(fixed | Qt.ItemFlag.ItemIsEditable)
        name.setToolTip(f"{_HELP[_NAME]}. {n_painted} pixels are painted {number}")
        share.setText(self._share_text(number))
        share.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        lock.setFlags(fixed | Qt.ItemFlag.ItemIsUserCheckable)
        lock.setCheckState(_check_state(number in self._locked))

    def _share_text(self, number: int) -> str:
        return f"{100 * self._shares[number]:.1f} %" if number in self._shares else ""

    def _number(self, row: int) -> int:
        return int(self.item(row, _COLOR).data(Qt.ItemDataRole.UserRole))

    def _select(self, number: int) -> None:
        numbers = self.numbers()
        if number in numbers:
            with signals_blocked(self):
                self.selectRow(numbers.index(number))

    def _mark_painted(self) -> None:
        """Select the row of the class that is painted, wherever a click was."""
        if self._strokes.layer is not None:
            self._select(int(self._strokes.layer.selected_label))

    def _on_clicked(self, row: int, column: int) -> None:
        number = self._number(row)
        if column == _COLOR:
            self._ask_color(number)
        elif column != _LOCK:
            self._strokes.paint_with(number)
        self._mark_painted()

    def _ask_color(self, number: int) -> None:
        title = f"Colour of {self._strokes.name(number)}"
        chosen: QColor = QColorDialog.getColor(to_qcolor(self._strokes.color(number)), self, title)
        if chosen.isValid():
            self._strokes.set_color(number, (chosen.redF(), chosen.greenF(), chosen.blueF()))
            self.refresh()
            self.recolored.emit()

    def _on_item_changed(self, item: QTableWidgetItem) -> None:
        number = self._number(item.row())
        if item.column() == _NAME:
            self._strokes.rename(number, item.text())
            self.refresh()
            self.renamed.emit()
        elif item.column() == _LOCK:
            is_locked = item.checkState() == Qt.CheckState.Checked
            (self._locked.add if is_locked else self._locked.discard)(number)
            self.locks_changed.emit()


def _check_state(checked: bool) -> Qt.CheckState:
    return Qt.CheckState.Checked if checked else Qt.CheckState.Unchecked
