"""The results of a comparison: a layer for each, and a row in a table."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import napari
from napari.layers import Image
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtGui import QResizeEvent
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.compare.choice import panel_names
from napari_saf._gui.docks.label_table import ROW_HEIGHT
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Placement, lay_over
from napari_saf._gui.runs.controller import run_registry
from napari_saf.comparison import COLUMNS, Compared, Comparison, Row, Variant

_STEP_MILLISECONDS = 15
_RESULT_ROLE = Qt.ItemDataRole.UserRole
_WIDEST = 150
"""Of a column, so that a name leaves room for numbers."""


class ComparisonLayers:
    """A layer for each result, with common label numbers and colours in the end.

    Layers are added and changed one at a time, each in a turn of the event loop of its own; the
    widget is in the window of the viewer.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        widget: QWidget,
        image: Image,
        placement: Placement,
        variants: Sequence[Variant],
    ) -> None:
        self.image = image
        self.names = dict(zip(variants, panel_names(variants), strict=True))
        """What distinguishes each variant from the others."""
        self.note = ""  # on what lay over the image, or does
        self._viewer = viewer
        self._placement = placement
        self._lives: dict[Variant, LiveLayer] = {}
        self._work: deque[Iterator[None]] = deque()
        self._timer = QTimer(widget)
        self._timer.setInterval(_STEP_MILLISECONDS)
        self._timer.timeout.connect(self._on_timer)

    def add(self, result: Compared) -> None:
        """Show a result on a layer of its own, above the others."""
        self._start(self._adding(result))

    def finish(self, comparison: Comparison, then: Callable[[], None]) -> None:
        """Give the labels of all layers common numbers, and sort the layers; then call back."""
        self._start(self._finishing(comparison, then))

    def layer(self, variant: Variant) -> Any:
        """Return the layer of a variant, or None if it is gone."""
        live = self._lives.get(variant)
        layer = None if live is None else live.layer
        return layer if layer is not None and layer in self._viewer.layers else None

    def layers(self) -> list[Any]:
        return [layer for layer in map(self.layer, self.names) if layer is not None]

    def color(self, number: int) -> tuple[float, ...]:
        """Return the colour of a label in all layers."""
        live = next(iter(self._lives.values()))
        return tuple(float(x) for x in live.color(number - 1)[:3])

    def release(self) -> None:
        self._timer.stop()
        self._work.clear()
        self._lives.clear()

    def _start(self, work: Iterator[None]) -> None:
        self._work.append(work)
        if not self._timer.isActive():
            self._timer.start()

    def _on_timer(self) -> None:
        if not self._work:
            self._timer.stop()
            return
        work = self._work.popleft()
        with contextlib.suppress(StopIteration):
            next(work)
            self._work.appendleft(work)

    def _adding(self, result: Compared) -> Iterator[None]:
        name = self.names[result.variant]
        live = LiveLayer(self._viewer, self.image, name, self._placement)
        self._lives[result.variant] = live
        if self.image in self._viewer.layers:
            for layer in self.layers():
                layer.visible = False
            # In the end there may be as many numbers as labels of all results.
            live.show(result.labels, int(result.labels.max()) * len(self.names))
            live.layer.name = name
            self.note = run_registry(self._viewer).reveal(self.image, live.layer) or self.note
        yield

    def _finishing(self, comparison: Comparison, then: Callable[[], None]) -> Iterator[None]:
        for result in comparison.results:
            if result.variant not in self._lives:
                yield from self._adding(result)
        for result in comparison.results:
            live = self._lives[result.variant]
            if live.layer is not None and not live.is_lost:
                live.show(result.labels, comparison.n_numbers)
                live.layer.metadata[METADATA_KEY] = live.source | {
                    "recipe": result.recipe,
                    "prototypes": result.prototypes,
                    "columns": result.columns,
                    "status": result.status.value,
                }
                yield
        every, wanted = self._viewer.layers, self.layers()
        if wanted != [layer for layer in every if layer in wanted]:
            for layer in wanted:
                if layer in every:
                    lay_over(self._viewer, layer, self.image)
                    yield
        then()


class ComparisonTable(QTableWidget):
    """A row for each result; sorted by a click on a heading, chosen by a click on a row.

    Columns that do not fit beside the others are hidden, the last first; the tooltip of a row has
    all of them.
    """

    row_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__(0, len(COLUMNS))
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
        self.verticalHeader().setDefaultSectionSize(ROW_HEIGHT)
        self.setStyleSheet("QTableView, QHeaderView { font-size: 8pt; }")
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.itemSelectionChanged.connect(self._on_selection_changed)
        self.horizontalHeader().sortIndicatorChanged.connect(self._on_sorted)
        self.show_rows([], [])

    def show_rows(self, rows: Sequence[Row], names: Sequence[tuple[str, str]]) -> None:
        """Show rows under short names, with whole ones; columns without any value are hidden."""
        self._filled = [n for n, column in enumerate(COLUMNS) if any(map(column.text, rows))]
        with signals_blocked(self):
            self.setSortingEnabled(False)
            self.setRowCount(len(rows))
            for place, row in enumerate(rows):
                texts = [column.text(row) for column in COLUMNS]
                texts[0], whole = names[place]
                known = [f"{COLUMNS[n].heading}: {texts[n]}" for n in self._filled[1:]]
                for number, column in enumerate(COLUMNS):
                    value, best = getattr(row, column.field), column.best_of(rows)
                    value = texts[number] if isinstance(value, str) else value
                    item = _Item(texts[number], value, value == best)
                    item.setData(_RESULT_ROLE, place)
                    item.setToolTip("\n".join([whole, *known]))
                    self.setItem(place, number, item)
            self.setSortingEnabled(True)
            self.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        # The style would leave room for an arrow beside every heading.
        self.horizontalHeader().setSortIndicatorShown(False)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show as many columns as fit now."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Be no higher than the rows, and show as many columns as there is room for."""
        # The height of the headings is known once they have been shown.
        heading = self.horizontalHeader().sizeHint().height() + 2 * self.frameWidth()
        self.setMaximumHeight(heading + self.rowCount() * ROW_HEIGHT)
        room = self.viewport().width()
        for number in range(len(COLUMNS)):
            self.setColumnHidden(number, number not in self._filled)
        for number in self._filled:
            room -= self.columnWidth(number)
            self.setColumnHidden(number, room < 0)

    def choose(self, number: int) -> None:
        """Choose the row of a result, wherever it is sorted to."""
        for place in range(self.rowCount()):
            if self.item(place, 0).data(_RESULT_ROLE) == number:
                self.selectRow(place)

    @property
    def chosen(self) -> int | None:
        """The number of the result whose row is chosen."""
        ranges = self.selectionModel().selectedRows()
        return int(self.item(ranges[0].row(), 0).data(_RESULT_ROLE)) if ranges else None

    def _on_sorted(self, sorted_by: int, order: Qt.SortOrder) -> None:
        mark = " ▴" if order == Qt.SortOrder.AscendingOrder else " ▾"
        for number, column in enumerate(COLUMNS):
            text = column.heading + mark * (number == sorted_by)
            self.horizontalHeaderItem(number).setText(text)
        self._fit()

    def _on_selection_changed(self) -> None:
        if self.chosen is not None:
            self.row_chosen.emit(self.chosen)


class _Item(QTableWidgetItem):
    """A table item sorted by its value, not by its text; the best one is bold."""

    def __init__(self, text: str, value: Any, is_best: bool) -> None:
        super().__init__(text)
        self.value = value
        if not isinstance(value, str):
            self.value = value if math.isfinite(value) else -math.inf
            self.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        font = self.font()
        font.setBold(is_best)
        self.setFont(font)

    def __lt__(self, other: QTableWidgetItem) -> bool:
        return bool(self.value < other.value)
