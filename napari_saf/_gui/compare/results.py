"""The results of a comparison: a layer for each, and a row in a table."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import napari
from napari.layers import Image
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.compare.choice import panel_names
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Placement
from napari_saf.comparison import COLUMNS, Column, Compared, Comparison, Row, Variant

_STEP_MILLISECONDS = 15
_RESULT_ROLE = Qt.ItemDataRole.UserRole
_TABLE_HEIGHT = 172
_WIDEST = 150
"""Of a column, so that a name leaves room for numbers."""


class ComparisonLayers:
    """A layer for each result, with common label numbers and colours in the end.

    Layers are added and changed one at a time, each in a turn of the event loop of its own.

    Parameters
    ----------
    widget : QWidget
        In the window of the viewer.
    image : Image
        What is labelled.
    placement : Placement
        Where the labels lie.
    variants : list of Variant
        What will be shown.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        widget: QWidget,
        image: Image,
        placement: Placement,
        variants: list[Variant],
    ) -> None:
        self.image = image
        self._viewer = viewer
        self._placement = placement
        self._names = dict(zip(variants, panel_names(variants), strict=True))
        self._lives: dict[Variant, LiveLayer] = {}
        self._steps: deque[Callable[[], None]] = deque()
        self._timer = QTimer(widget)
        self._timer.setInterval(_STEP_MILLISECONDS)
        self._timer.timeout.connect(self._take_step)

    def add(self, result: Compared) -> None:
        """Show a result on a layer of its own, above the others."""
        live = self._lives[result.variant] = LiveLayer(
            self._viewer, self.image, self._names[result.variant], self._placement
        )
        count = int(result.labels.max())
        # In the end there may be as many numbers as labels of all results.
        most = count * len(self._names)
        self._do(lambda: self._show(live, result, most))

    def finish(self, comparison: Comparison, then: Callable[[], None]) -> None:
        """Give the labels of all layers common numbers, and sort the layers; then call back."""
        for result in comparison.results:
            if result.variant not in self._lives:
                self.add(result)
        for result in comparison.results:
            self._do(partial(self._finish, self._lives[result.variant], result, comparison))
        self._do(lambda: self._sort(comparison, then))

    def layer(self, variant: Variant) -> Any:
        """Return the layer of a variant, or None if it is gone."""
        live = self._lives.get(variant)
        layer = None if live is None else live.layer
        return layer if layer is not None and layer in self._viewer.layers else None

    def layers(self) -> list[Any]:
        return [layer for layer in map(self.layer, self._names) if layer is not None]

    def name(self, variant: Variant) -> str:
        """Return the name by which a variant is distinguished from the others."""
        return self._names[variant]

    def color(self, number: int) -> tuple[float, ...]:
        """Return the colour of a label in all layers."""
        live = next(iter(self._lives.values()))
        return tuple(float(x) for x in live.color(number - 1)[:3])

    def release(self) -> None:
        """Stop updating and release the layers."""
        self._timer.stop()
        self._steps.clear()
        self._lives.clear()

    def _show(self, live: LiveLayer, result: Compared, most: int) -> None:
        if self.image not in self._viewer.layers:
            return
        for layer in self.layers():
            layer.visible = False
        live.show(result.labels, most)
        live.layer.name = self._names[result.variant]

    def _finish(self, live: LiveLayer, result: Compared, comparison: Comparison) -> None:
        if live.layer is None or live.is_lost:
            return
        live.show(result.labels, comparison.n_numbers)
        live.layer.metadata[METADATA_KEY] = live.source | {
            "recipe": result.recipe,
            "prototypes": result.prototypes,
            "columns": result.columns,
            "status": result.status.value,
        }

    def _sort(self, comparison: Comparison, then: Callable[[], None]) -> None:
        """Put the layers on top in the order of the variants, then call back."""
        found = [self.layer(result.variant) for result in comparison.results]
        wanted = [layer for layer in found if layer is not None]
        if wanted != list(self._viewer.layers)[-len(wanted) :]:
            for layer in wanted:
                self._do(partial(self._put_on_top, layer))
        self._do(then)

    def _put_on_top(self, layer: Any) -> None:
        every = self._viewer.layers
        if layer in every:
            every.move(every.index(layer), len(every))

    def _do(self, step: Callable[[], None]) -> None:
        self._steps.append(step)
        if not self._timer.isActive():
            self._timer.start()

    def _take_step(self) -> None:
        if self._steps:
            self._steps.popleft()()
        if not self._steps:
            self._timer.stop()


class ComparisonTable(QTableWidget):
    """A row for each result; sorted by a click on a heading, chosen by a click on a row."""

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
        self.setMaximumHeight(_TABLE_HEIGHT)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.itemSelectionChanged.connect(self._on_selection_changed)
        self.show_rows([], [])

    def show_rows(self, rows: Sequence[Row], names: Sequence[tuple[str, str]]) -> None:
        """Show rows under short names, with whole ones; columns without any value are hidden."""
        with signals_blocked(self):
            self.setSortingEnabled(False)
            self.setRowCount(len(rows))
            for number, column in enumerate(COLUMNS):
                best = column.best_of(rows)
                for place, row in enumerate(rows):
                    text, tooltip = column.text(row), column.help
                    if column.field == "name":
                        text, tooltip = names[place]
                    item = _Item(column, row, text, best)
                    item.setData(_RESULT_ROLE, place)
                    item.setToolTip(tooltip)
                    self.setItem(place, number, item)
                self.setColumnHidden(number, not any(map(column.text, rows)))
            self.setVisible(bool(rows))
            self.setSortingEnabled(True)
            self.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)

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

    def _on_selection_changed(self) -> None:
        if self.chosen is not None:
            self.row_chosen.emit(self.chosen)


class _Item(QTableWidgetItem):
    """A table item sorted by its value, not by its text; the best one is bold."""

    def __init__(self, column: Column, row: Row, text: str, best: float | None) -> None:
        super().__init__(text)
        value = getattr(row, column.field)
        self._key: object = text
        if not isinstance(value, str):
            self._key = float(value) if math.isfinite(value) else -math.inf
            self.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if best is not None and value == best:
            font = self.font()
            font.setBold(True)
            self.setFont(font)

    def __lt__(self, other: QTableWidgetItem) -> bool:
        mine, theirs = self._key, getattr(other, "_key", None)
        if isinstance(mine, float) and isinstance(theirs, float):
            return mine < theirs
        return str(mine) < str(theirs)
