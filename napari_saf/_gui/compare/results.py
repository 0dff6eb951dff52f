"""The results of a comparison as layers and as rows of a table."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from qtpy.QtCore import QObject, Qt, QTimer, Signal
from qtpy.QtGui import QFont, QResizeEvent
from qtpy.QtWidgets import QHeaderView

from napari_saf._gui.compare.choice import panel_names
from napari_saf._gui.docks.tables import RIGHT, TableModel, TableView
from napari_saf._gui.forms.controls import Swatch, fill_colors
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.layers.view import insert_above, set_visible, visibility_of
from napari_saf.comparison import COLUMNS, Compared, Comparison, Row, Variant, lay_out

Shape = tuple[int, int]
_WIDEST = 150
"""Maximal width of the column of names, which leaves room for numbers."""


class ComparisonLayers:
    """A layer for each result; label numbers and colours are matched at the end."""

    def __init__(
        self,
        viewer: napari.Viewer,
        image: Image,
        placement: Placement,
        variants: Sequence[Variant],
    ) -> None:
        self.image = image
        self.names = dict(zip(variants, panel_names(variants), strict=True))
        """Distinguishing name of each variant."""
        self.note = ""  # on layers that covered the image
        self._viewer = viewer
        self._placement = placement
        self._lives: dict[Variant, LiveLayer] = {}

    def layer(self, variant: Variant) -> Any:
        live = self._lives.get(variant)
        layer = None if live is None else live.layer
        return layer if layer is not None and layer in self._viewer.layers else None

    def layers(self) -> list[Any]:
        return [layer for layer in map(self.layer, self.names) if layer is not None]

    def grid(self, comparison: Comparison, truth: Labels | None) -> tuple[list[Any], Shape]:
        """Return the layers to show side by side, and the rows and columns, -1 for automatic.

        A complete grid of two parameters is shown as such; otherwise image and truth come first.
        """
        shown = self.layers()
        layout = lay_out([result.variant for result in comparison.results])
        if layout.is_table and len(shown) == len(layout.cells):
            return shown, (layout.n_rows, layout.n_columns)
        shown += [self.image, truth]
        return [layer for layer in self._viewer.layers if layer in shown], (-1, -1)

    def color(self, number: int) -> tuple[float, ...]:
        live = next(iter(self._lives.values()))
        return tuple(float(x) for x in live.color(number - 1)[:3])

    def swatches(self, comparison: Comparison, number: int) -> list[Swatch]:
        """Return a swatch for each label of a result, extinct ones crossed out."""
        result, dead = comparison.results[number], set(comparison.dead(number).tolist())
        swatches, features = [], result.variant.options.features
        borders = np.array([self.color(label + 1) for label in range(comparison.n_numbers)])
        fills = fill_colors(result.prototypes[: len(borders)], features, borders)
        for label in range(1, comparison.n_numbers + 1):
            fill, border = fills[label - 1], borders[label - 1]
            share = result.sizes[label - 1] / result.labels.size
            text = f"label {label}: {100 * share:.1f} % of the pixels"
            text = f"label {label}: extinct here, present elsewhere" if label in dead else text
            swatches.append(Swatch(fill, border, text, label in dead))
        return swatches

    def add(self, result: Compared) -> None:
        """Show a result as a new layer, above the others."""
        name = self.names[result.variant]
        live = LiveLayer(self._viewer, self.image, name, self._placement)
        self._lives[result.variant] = live
        if self.image in self._viewer.layers:
            self.hide()
            # Matched numbers may be as many as the labels of all results.
            live.show(result.labels, int(result.labels.max()) * len(self.names))
            live.layer.name = name
            self.note = visibility_of(self._viewer).reveal(self.image, live.layer) or self.note

    def show_only(self, shown: Any) -> None:
        """Show one of the layers, and no other labels of the image."""
        visibility_of(self._viewer).hide_results(self.image)
        for layer in self.layers():
            set_visible(layer, layer == shown)

    def hide(self) -> None:
        for layer in self.layers():
            set_visible(layer, False)

    def renumber(self, result: Compared, n_numbers: int) -> None:
        """Renumber the labels of a result to the matched numbers, adding its layer if needed."""
        if result.variant not in self._lives:
            self.add(result)
        live = self._lives[result.variant]
        if live.layer is not None and not live.is_lost:
            live.show(result.labels, n_numbers)
            live.layer.metadata[METADATA_KEY] = live.source | {
                "recipe": result.recipe,
                "prototypes": result.prototypes,
                "status": result.status.value,
            }

    def sort(self) -> None:
        """Order the layers above the image as the variants."""
        layers = self.layers()
        if layers != [layer for layer in self._viewer.layers if layer in layers]:
            for layer in layers:
                insert_above(self._viewer, layer, self.image)


class ChangeQueue(QTimer):
    """Calls functions one per turn of the event loop; `on_busy` gets whether some are waiting."""

    def __init__(self, parent: QObject, on_busy: Callable[[bool], None]) -> None:
        super().__init__(parent)
        self._calls: deque[Callable[[], None]] = deque()
        self._on_busy = on_busy
        self.timeout.connect(self._on_turn)

    def add(self, *calls: Callable[[], None]) -> None:
        self._calls.extend(calls)
        self.start(0)
        self._on_busy(True)

    def clear(self) -> None:
        self.stop()
        self._calls.clear()

    def _on_turn(self) -> None:
        call = self._calls.popleft()
        try:
            call()
        finally:
            if not self._calls:
                self.stop()
                self._on_busy(False)


class _ResultModel(TableModel):
    """Results in the order of the comparison; the best value of each column is bold."""

    def __init__(self) -> None:
        super().__init__([(column.heading, column.help) for column in COLUMNS])
        self.filled: list[int] = []

    def show_results(self, results: Sequence[Row], names: Sequence[tuple[str, str]]) -> None:
        self._results, self._names = results, names
        self.filled = [n for n, column in enumerate(COLUMNS) if any(map(column.text, results))]
        self._best = [column.best_of(results) for column in COLUMNS]
        self.show_rows(range(len(results)))

    def text(self, row: int, column: int) -> str:
        return self._names[row][0] if column == 0 else COLUMNS[column].text(self._results[row])

    def key(self, row: int, column: int) -> Any:
        value = self._value(row, column) if column >= 0 else 0
        if isinstance(value, str):
            return self.text(row, column)
        return value if math.isfinite(value) else -math.inf

    def look(self, row: int, column: int, role: int) -> Any:
        value = self._value(row, column)
        if role == Qt.ItemDataRole.FontRole and value == self._best[column]:
            bold = QFont()
            bold.setBold(True)
            return bold
        if role == Qt.ItemDataRole.TextAlignmentRole and not isinstance(value, str):
            return RIGHT
        if role == Qt.ItemDataRole.ToolTipRole:
            lines = [f"{COLUMNS[n].heading}: {self.text(row, n)}" for n in self.filled[1:]]
            return "\n".join([self._names[row][1], *lines])
        return None

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        heading, (column, order) = super().headerData(section, orientation, role), self.sorted_by
        if heading is not None and role == Qt.ItemDataRole.DisplayRole and section == column:
            return f"{heading} {'▴' if order == Qt.SortOrder.AscendingOrder else '▾'}"
        return heading

    def _value(self, row: int, column: int) -> Any:
        return getattr(self._results[row], COLUMNS[column].field)


class ComparisonTable(TableView):
    """A row for each result; a click on a heading sorts, a click on a row selects.

    Columns that do not fit are hidden, the last first; the tooltip of a row lists all of them.
    """

    row_chosen = Signal(int)

    def __init__(self) -> None:
        self._results = _ResultModel()
        super().__init__(self._results, style="QTableView, QHeaderView { font-size: 8pt; }")
        header = self.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setMaximumSectionSize(_WIDEST)
        self.setShowGrid(True)
        self.setWordWrap(False)
        self.allow_sorting()
        # Otherwise the style reserves space for an arrow in every heading.
        header.setSortIndicatorShown(False)
        self.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self._results.headerDataChanged.connect(self._fit)
        self.show_rows([], [])

    def show_rows(self, rows: Sequence[Row], names: Sequence[tuple[str, str]]) -> None:
        """Show rows with pairs of short and full names; columns without values are hidden."""
        self._results.show_results(rows, names)
        self.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self, *changed: object) -> None:
        """Limit the height to the rows, and show as many columns as fit."""
        # The height of the headings is known only after they were shown.
        self.setMaximumHeight(self.height_of(self._results.rowCount()))
        room = self.viewport().width()
        for number in range(len(COLUMNS)):
            self.setColumnHidden(number, number not in self._results.filled)
        for number in self._results.filled:
            room -= self.columnWidth(number)
            self.setColumnHidden(number, room < 0)

    def _on_selection_changed(self, *changed: object) -> None:
        if self.chosen is not None:
            self.row_chosen.emit(self.chosen)
