"""The table of objects: sorted, filtered by a measure under its histogram, chosen row by row."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QItemSelection, QItemSelectionModel, Qt, Signal
from qtpy.QtGui import QPainter, QPaintEvent
from qtpy.QtWidgets import QAbstractItemView, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget
from superqt import QDoubleRangeSlider
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import MeasuredModel, Table, TableView, column_title
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.layout import fill_layout

_N_BARS, _BARS_HEIGHT = 64, 34
_LEAST_HEIGHT, _CELL_WIDTH = 110, 72
_ROOM = 18
_WIDTHS = {"name": 78, "object": 52, "pixels": 56, "share": 52}
_NO_FILTER = ("kind", "name", "object", "frame", "slice")


class ObjectModel(MeasuredModel):
    """Measures of objects, of which some may be left out."""

    def values(self, name: str) -> NDArray[Any]:
        """Return a column of all objects, those that are left out, too, in their first order."""
        return self._table.get(name, np.zeros(0))

    @property
    def numbers(self) -> NDArray[Any]:
        """The numbers of the objects that are shown, row by row."""
        return np.asarray(self.values("object")[np.array(self.rows, int)])


class _Bars(QWidget):
    """A histogram; what lies outside the range is pale."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(_BARS_HEIGHT)
        self.heights: NDArray[np.floating] = np.zeros(_N_BARS)
        self.shares = 0.0, 1.0

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        color, width = self.palette().highlight().color(), self.width() / _N_BARS
        for k, height in enumerate(self.heights):
            is_in = self.shares[0] <= (k + 0.5) / _N_BARS <= self.shares[1]
            color.setAlphaF(1.0 if is_in else 0.3)
            top = round(self.height() * (1 - float(height)))
            painter.fillRect(
                round(k * width), top, max(1, round(width) - 1), self.height() - top, color
            )
        painter.end()


class MeasureFilter(QWidget):
    """A measure, its histogram, and the range in which objects are shown."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.measure, self.bars, self._range = Choice([("all", None)]), _Bars(), QLabel()
        self.slider = QDoubleRangeSlider(Qt.Orientation.Horizontal)
        self.measure.setToolTip("Show only objects with this measure in the range below.")
        self.slider.setToolTip("The range in which objects are shown.")
        self._values: NDArray[np.floating] = np.zeros(0)
        head = QWidget()
        fill_layout(QHBoxLayout(head), QLabel("Show"))
        head.layout().addWidget(self.measure, stretch=1)
        head.layout().addWidget(self._range)
        fill_layout(QVBoxLayout(self), head, self.bars, self.slider)
        self.slider.valueChanged.connect(self._on_moved)
        self._show_range()

    def offer(self, table: Table) -> None:
        names = [n for n, column in table.items() if column.dtype.kind in "iuf"]
        entries = [(column_title(n), n) for n in names if n not in _NO_FILTER]
        self.measure.offer([("all", None), *entries])

    def show_values(self, values: NDArray[Any]) -> None:
        """Show a measure; the whole range is shown unless part of the same one was."""
        self._values = np.asarray(values, float)
        finite = self._values[np.isfinite(self._values)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
        counts, _ = np.histogram(finite, _N_BARS, (low, high if high > low else low + 1))
        self.bars.heights = np.sqrt(counts / max(1, counts.max()))
        with signals_blocked(self.slider):
            self.slider.setRange(low, high if high > low else low + 1)
            self.slider.setValue((low, high if high > low else low + 1))
        self._show_range()

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each object is in the range."""
        low, high = self.slider.value()
        slack = 1e-9 * (self.slider.maximum() - self.slider.minimum())
        return np.asarray((self._values >= low - slack) & (self._values <= high + slack))

    def _on_moved(self, *value: object) -> None:
        self._show_range()
        self.changed.emit()

    def _show_range(self) -> None:
        is_on = self.measure.value is not None
        self.bars.setVisible(is_on)
        self.slider.setVisible(is_on)
        low, high = self.slider.value()
        first, last = self.slider.minimum(), self.slider.maximum()
        self.bars.shares = (low - first) / (last - first), (high - first) / (last - first)
        self._range.setText(f"{_short(low)} to {_short(high)}" if is_on else "")
        self.bars.update()


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


class ObjectTable(QWidget):
    """Rows of objects, all or those in a range; `chosen` sends the numbers of those selected."""

    chosen = Signal(list)
    filtered = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.model, self.filter = ObjectModel(), MeasureFilter()
        self.view = TableView(self.model)
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.view.allow_sorting()
        # Its own, of nothing: headings ask row by row whether all of a column is selected.
        self.view.horizontalHeader().setSelectionModel(QItemSelectionModel(self.model, self))
        self.view.setMinimumHeight(_LEAST_HEIGHT)
        self.view.horizontalHeader().setDefaultSectionSize(_CELL_WIDTH)
        self.view.setToolTip("Click a row, or an object in the image; Ctrl chooses several.")
        policy = QSizePolicy.Policy
        self.setSizePolicy(policy.Preferred, policy.Expanding)
        fill_layout(QVBoxLayout(self), self.view, self.filter)
        self.filter.measure.currentIndexChanged.connect(self._on_measure_chosen)
        self.filter.changed.connect(self._show_filtered)
        self.view.selectionModel().selectionChanged.connect(self._on_selection_changed)

    @property
    def selected(self) -> list[int]:
        selection = self.view.selectionModel().selection()
        ranges = [selection[k] for k in range(len(selection))]
        rows = {row for one in ranges for row in range(one.top(), one.bottom() + 1)}
        found: list[int] = self.model.numbers[sorted(rows)].tolist()
        return found

    @property
    def shown(self) -> list[int]:
        found: list[int] = self.model.numbers.tolist()
        return found

    def show_table(self, table: Table) -> None:
        """Show other measures; what is selected and filtered stays so."""
        before, measure = self.selected, self.filter.measure.value
        kept = {name: own for name, own in table.items() if not name.endswith(("_px2", "_px3"))}
        with signals_blocked(self):
            self.model.show_table(kept, {})
            room = self.view.fontMetrics().horizontalAdvance
            for column, name in enumerate(kept):
                width = max(_CELL_WIDTH, room(column_title(name)) + _ROOM)
                self.view.setColumnWidth(column, _WIDTHS.get(name, width))
                self.view.setColumnHidden(column, name == "kind")  # the name says it
            self.filter.offer(kept)
            if self.filter.measure.value != measure or measure is not None:
                self._on_measure_chosen()
            self.select(before)

    def select(self, numbers: Collection[int]) -> None:
        rows = np.flatnonzero(np.isin(self.model.numbers, list(numbers)))
        selection = QItemSelection()
        last = self.model.columnCount() - 1
        # Rows that follow each other are one range: Qt compares ranges pair by pair.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        for run in runs if len(rows) else ():
            first, end = int(run[0]), int(run[-1])
            selection.select(self.model.index(first, 0), self.model.index(end, last))
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect
        self.view.selectionModel().select(selection, flags)
        if len(rows):
            self.view.scrollTo(self.model.index(int(rows[0]), 0))

    def _on_measure_chosen(self, *index: object) -> None:
        name = self.filter.measure.value
        self.filter.show_values(np.zeros(0) if name is None else self.model.values(name))
        self._show_filtered()

    def _show_filtered(self) -> None:
        n_objects = len(self.model.values("object"))
        is_all = self.filter.measure.value is None
        shown = range(n_objects) if is_all else np.flatnonzero(self.filter.inside).tolist()
        self.model.show_rows(shown)
        self.filtered.emit()

    def _on_selection_changed(self, *changed: object) -> None:
        self.chosen.emit(self.selected)
