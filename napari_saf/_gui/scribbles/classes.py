"""The classes of strokes: a row each, with colour, name, share and lock."""

from __future__ import annotations

from collections.abc import Mapping

from qtpy.QtCore import Qt, Signal
from qtpy.QtGui import QColor, QIcon, QKeyEvent, QPixmap
from qtpy.QtWidgets import (
    QAbstractItemView,
    QColorDialog,
    QHeaderView,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from napari_saf._gui.scribbles.strokes import Strokes

__all__ = ["ClassTable"]

_COLOR, _NAME, _SHARE, _LOCK = range(4)
_HEADERS = ("", "Class", "Share", "Lock")
_HELP = (
    "Click to choose another colour",
    "Click to paint this class, double-click to rename it; the keys . and , go on to the next "
    "class and back",
    "Share of the labelled pixels",
    "Keep the pixels of this class as they are now",
)
_SWATCH = 16
_MOST_ROWS_IN_SIGHT = 6


class ClassTable(QTableWidget):
    """The classes of strokes.

    A click chooses the class to paint; a double click renames it; a click on the square changes
    its colour; a locked class keeps its pixels.

    Parameters
    ----------
    strokes : Strokes
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
        for column, width in ((_COLOR, 30), (_SHARE, 62), (_LOCK, 44)):
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
        """Return the class of the chosen row, or None."""
        row = self.currentRow()
        return self._number(row) if row >= 0 else None

    def step(self, n_rows: int) -> None:
        """Paint the class so many rows on, around the ends."""
        numbers, now = self.numbers(), self.current_number()
        if numbers:
            at = -1 if now is None else numbers.index(now)
            self._strokes.paint_with(numbers[(at + n_rows) % len(numbers)])

    def share_text(self, number: int) -> str:
        """Return what the table says of the share of a class."""
        return str(self.item(self.numbers().index(number), _SHARE).text())

    def set_shares(self, shares: Mapping[int, float]) -> None:
        """Show the share of each class, 0 to 1."""
        self._shares = dict(shares)
        blocked = self.blockSignals(True)
        for row, number in enumerate(self.numbers()):
            self.item(row, _SHARE).setText(_percent(self._shares.get(number)))
        self.blockSignals(blocked)

    def lock(self, number: int, locked: bool = True) -> None:
        """Lock a class, or let it go."""
        state = Qt.CheckState.Checked if locked else Qt.CheckState.Unchecked
        self.item(self.numbers().index(number), _LOCK).setCheckState(state)

    def unlock(self) -> None:
        """Lock no class."""
        self._locked.clear()

    def refresh(self) -> None:
        """Show the classes that there are now."""
        blocked, numbers = self.blockSignals(True), self._strokes.classes()
        counts = self._strokes.counts()
        self._locked &= set(numbers)
        self.setRowCount(len(numbers))
        for row, number in enumerate(numbers):
            self._fill_row(row, number, counts.get(number, 0))
        rows = min(max(len(numbers), 2), _MOST_ROWS_IN_SIGHT)
        self.setFixedHeight(
            self.horizontalHeader().sizeHint().height()
            + rows * self.verticalHeader().defaultSectionSize()
            + 2 * self.frameWidth()
        )
        self.blockSignals(blocked)
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
        for column in range(len(_HEADERS)):
            item = QTableWidgetItem()
            item.setToolTip(_HELP[column])
            item.setFlags(fixed)
            self.setItem(row, column, item)
        color = self.item(row, _COLOR)
        color.setData(Qt.ItemDataRole.UserRole, number)
        red, green, blue = (round(255 * float(x)) for x in self._strokes.color(number)[:3])
        square = QPixmap(_SWATCH, _SWATCH)
        square.fill(QColor(red, green, blue))
        color.setIcon(QIcon(square))
        name = self.item(row, _NAME)
        name.setText(self._strokes.name(number))
        name.setFlags(fixed | Qt.ItemFlag.ItemIsEditable)
        name.setToolTip(f"{_HELP[_NAME]}. {n_painted} pixels are painted {number}")
        share = self.item(row, _SHARE)
        share.setText(_percent(self._shares.get(number)))
        share.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        lock = self.item(row, _LOCK)
        lock.setFlags(fixed | Qt.ItemFlag.ItemIsUserCheckable)
        is_locked = number in self._locked
        lock.setCheckState(Qt.CheckState.Checked if is_locked else Qt.CheckState.Unchecked)

    def _number(self, row: int) -> int:
        return int(self.item(row, _COLOR).data(Qt.ItemDataRole.UserRole))

    def _mark_painted(self) -> None:
        """Mark the row of the class that is painted, wherever a click was."""
        if self._strokes.layer is not None:
            self._select(int(self._strokes.layer.selected_label))

    def _select(self, number: int) -> None:
        numbers = self.numbers()
        if number in numbers:
            blocked = self.blockSignals(True)
            self.selectRow(numbers.index(number))
            self.blockSignals(blocked)

    def _on_clicked(self, row: int, column: int) -> None:
        number = self._number(row)
        if column == _COLOR:
            self._ask_color(number)
        elif column != _LOCK:
            self._strokes.paint_with(number)
        self._mark_painted()

    def _ask_color(self, number: int) -> None:
        red, green, blue = (float(x) for x in self._strokes.color(number)[:3])
        now = QColor.fromRgbF(red, green, blue)
        chosen = QColorDialog.getColor(now, self, f"Colour of {self._strokes.name(number)}")
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
            change = self._locked.add if _is_checked(item) else self._locked.discard
            change(number)
            self.locks_changed.emit()


def _is_checked(item: QTableWidgetItem) -> bool:
    return bool(item.checkState() == Qt.CheckState.Checked)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
