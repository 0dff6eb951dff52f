"""The table of objects, and a plot of measures in which a gate filters the rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from napari.utils.colormaps import ensure_colormap
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QItemSelection, QItemSelectionModel, Signal
from qtpy.QtWidgets import QAbstractItemView, QCheckBox, QLabel, QSizePolicy, QVBoxLayout, QWidget
from skimage.measure import points_in_poly
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import PLOT_COLOR, MeasuredModel, Table, TableView, column_title
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.layout import create_row, fill_layout
from napari_saf.errors import counted, format_count

_N_BARS, _PLOT_HEIGHT = 64, 130
_COUNT = ("objects", None)
_LEAST_HEIGHT, _CELL_WIDTH = 110, 72
_ROOM, _LEAST_SPAN = 18, 0.01
"""Margin of a heading in pixels; least share of the axis that is a gate, not a click."""
_WIDTHS = {"name": 66, "object": 52, "class": 62, "pixels": 56, "share": 52}
_HIDDEN = ("kind", "label", "prediction")
"""Columns for other programs; here the names show kind and class."""
_FIRST = ("frame", "slice", "object", "name", "track", "class", "class_uncertainty")
_NO_FILTER = (*_HIDDEN, "name", "object", "track", "frame", "slice")


def _count_kinds(table: Table, n_pixels: int) -> str:
    """Return the number of objects of each kind and their share of `n_pixels`, as text."""
    kinds, sizes = table.get("kind", np.zeros(0, int)), table.get("pixels", np.zeros(0))
    texts = []
    for label in np.unique(kinds).tolist():
        is_label = kinds == label
        share = 100 * sizes[is_label].sum() / n_pixels
        count = counted(int(is_label.sum()), "object")
        texts.append(f"{table['name'][is_label.argmax()]}: {count}, {share:.1f} % of the image")
    return "\n".join(texts) or "no objects"


class ObjectModel(MeasuredModel):
    """Measures of objects, with an optional filter of rows."""

    def values(self, name: str) -> NDArray[Any]:
        """Return a column of all objects, unfiltered and unsorted."""
        return self._table.get(name, np.zeros(0, int))

    @property
    def numbers(self) -> NDArray[Any]:
        """Object number of each visible row."""
        return np.asarray(self.values("object")[np.array(self.rows, int)])


class MeasurePlot(QWidget):
    """Histogram of a measure, or scatter plot of two; a drawn gate filters the objects.

    The gate is a range of the measure or, for two, the corners (n, 2) of a polygon; None: all.
    """

    changed = Signal()
    """Emitted when the gate or the measures change."""
    colored = Signal()
    """Emitted when colouring is switched or its measure changes."""

    def __init__(self) -> None:
        super().__init__()
        self.measure, self.against = Choice([("all", None)]), Choice([_COUNT])
        self.color = QCheckBox("Colour", toolTip="Colour each object by the measure.")
        self.measure.setToolTip("The measure to plot as a histogram.")
        self.against.setToolTip("A second measure, for a scatter plot.")
        self.gate: NDArray[np.floating] | None = None
        self.table: Table = {}
        self._canvas: Any = None
        self._selector: Any = None
        head = create_row(QLabel("Show"), self.measure)
        self._below = create_row(QLabel("By"), self.against, self.color)
        for row in (head, self._below):
            row.layout().setStretch(1, 5)
        fill_layout(QVBoxLayout(self), head, self._below)
        for choice in (self.measure, self.against):
            choice.currentIndexChanged.connect(self._on_measure_chosen)
        self.color.toggled.connect(self.colored)
        self.color.toggled.connect(self.draw)
        self.draw()

    def show_table(self, table: Table) -> None:
        """Show the measures of a table, keeping the chosen measures and the gate."""
        self.table = table
        numeric = [name for name, column in table.items() if column.dtype.kind in "iuf"]
        names = [name for name in numeric if name not in _NO_FILTER]
        entries = [(column_title(n), n) for n in names]
        previous = self.measure.value, self.against.value
        with signals_blocked(self.measure), signals_blocked(self.against):
            self.measure.offer([("all", None), *entries])
            self.against.offer([_COUNT, *entries])
        if (self.measure.value, self.against.value) != previous:
            self.gate = None
        self.draw()

    def set_gate(self, gate: Any) -> None:
        self.gate = None if gate is None or len(gate) < 2 else np.asarray(gate, float)
        self.changed.emit()

    def values(self, choice: Choice) -> NDArray[np.floating]:
        return np.asarray(self.table.get(choice.value, np.zeros(0)), float)

    @property
    def colors(self) -> NDArray[np.floating]:
        """RGBA (n, 4) of objects by the measure, low to high."""
        return self._color_of(self.values(self.measure))

    def _color_of(self, levels: NDArray[np.floating]) -> NDArray[np.floating]:
        values = self.values(self.measure)
        low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf)
        shares = np.nan_to_num((levels - low) / max(high - low, 1e-30)).clip(0, 1)
        return np.asarray(ensure_colormap("viridis").map(shares))

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each object is in the gate."""
        first, second = self.values(self.measure), self.values(self.against)
        if self.gate is None:
            return np.ones(len(self.table.get("object", ())), bool)
        if self.gate.ndim == 1:
            return np.asarray((first >= self.gate[0]) & (first <= self.gate[1]))
        return np.asarray(points_in_poly(np.column_stack([first, second]), self.gate))

    def draw(self, *changed: object) -> None:
        is_on = self.measure.value is not None
        for widget in filter(None, (self._below, self._canvas)):
            widget.setVisible(is_on)
        if not is_on:
            return
        # matplotlib is slow to import, and must be imported after the Qt binding.
        from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
        from matplotlib.figure import Figure
        from matplotlib.widgets import LassoSelector, SpanSelector

        if self._canvas is None:
            figure = Figure(layout="constrained")
            figure.patch.set_alpha(0)
            self._canvas = FigureCanvasQTAgg(figure)  # type: ignore[no-untyped-call]
            self._canvas.setStyleSheet("background-color: transparent;")
            self._canvas.setFixedHeight(_PLOT_HEIGHT)
            self._canvas.setToolTip("Drag to select the objects to show; click to show all.")
            self.layout().addWidget(self._canvas)
            figure.subplots()
        (axes,) = self._canvas.figure.axes
        if self._selector is not None:
            self._selector.disconnect_events()
        axes.clear()
        axes.set_facecolor("none")
        first, second = self.values(self.measure), self.values(self.against)
        color, ink = PLOT_COLOR, self.palette().color(self.foregroundRole()).name()
        if self.against.value is None:
            *_, bars = axes.hist(first[np.isfinite(first)], _N_BARS, color=color)
            for bar in bars if self.color.isChecked() else ():
                bar.set_facecolor(self._color_of(np.array([bar.get_x() + bar.get_width() / 2]))[0])
            look: Any = {"props": {"alpha": 0.3, "facecolor": ink}, "interactive": True}
            self._selector = SpanSelector(axes, self._on_span, "horizontal", **look)
            if self.gate is not None:
                self._selector.extents = tuple(self.gate)
        else:
            colors = self.colors if self.color.isChecked() else color
            axes.scatter(first, second, 3, colors)
            if self.gate is not None:
                axes.fill(*self.gate.T, facecolor="none", edgecolor=ink)
            self._selector = LassoSelector(axes, self._on_lasso, props={"color": ink})
        axes.set_xlabel(column_title(self.measure.value), fontsize=8, color=ink)
        axes.set_ylabel(self.against.currentText(), fontsize=8, color=ink)
        axes.tick_params(labelsize=7, colors=ink)
        axes.spines[:].set_color(ink)
        self._canvas.draw_idle()

    def _on_span(self, low: float, high: float) -> None:
        left, right = self._canvas.figure.axes[0].get_xlim()
        self.set_gate((low, high) if high - low > _LEAST_SPAN * (right - left) else None)

    def _on_lasso(self, corners: list[tuple[float, float]]) -> None:
        self.set_gate(corners if len(corners) > 2 else None)
        self.draw()

    def _on_measure_chosen(self) -> None:
        self.set_gate(None)
        self.draw()
        self.colored.emit()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.draw()


class ObjectTable(QWidget):
    """Rows of objects, optionally filtered; `chosen` is emitted with the selected numbers."""

    chosen = Signal(list)
    filtered = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.model, self.filter = ObjectModel(), MeasurePlot()
        self.view = TableView(self.model)
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.view.allow_sorting()
        # An empty selection model: the header would check every row of a selected column.
        self.view.horizontalHeader().setSelectionModel(QItemSelectionModel(self.model, self))
        self.view.setMinimumHeight(_LEAST_HEIGHT)
        self.view.horizontalHeader().setDefaultSectionSize(_CELL_WIDTH)
        self.view.setToolTip("Click a row, or an object in the image; Ctrl chooses several.")
        policy = QSizePolicy.Policy
        self.setSizePolicy(policy.Preferred, policy.Expanding)
        self.view.setSizePolicy(policy.Preferred, policy.Ignored)  # the form has more use of room
        fill_layout(QVBoxLayout(self), self.view, self.filter)
        self.layout().setStretch(0, 1)
        self.filter.changed.connect(self._show_filtered)
        self.model.layoutChanged.connect(self._show_chosen)  # emitted after sorting
        self.view.selectionModel().selectionChanged.connect(self._on_selection_changed)
        self.view.clicked.connect(self._on_selection_changed)  # also if it was selected before

    @property
    def selected(self) -> list[int]:
        selection = self.view.selectionModel().selection()
        ranges = [selection[k] for k in range(len(selection))]
        rows = {row for block in ranges for row in range(block.top(), block.bottom() + 1)}
        numbers: list[int] = self.model.numbers[sorted(rows)].tolist()
        return numbers

    @property
    def shown(self) -> list[int]:
        numbers: list[int] = self.model.numbers.tolist()
        return numbers

    def show_table(self, table: Table) -> None:
        """Show the measures of a table, keeping selection and filter."""
        previous = self.selected
        first = [name for name in _FIRST if name in table]
        names = dict.fromkeys([*first, *table])
        columns = {n: table[n] for n in names if not n.endswith(("_px2", "_px3"))}
        with signals_blocked(self):
            headings = self.model.headings
            self.model.show_table(columns, {})
            room = self.view.fontMetrics().horizontalAdvance
            is_other = self.model.headings != headings
            for column, name in enumerate(columns if is_other else ()):
                width = max(_CELL_WIDTH, room(column_title(name)) + _ROOM)
                self.view.setColumnWidth(column, _WIDTHS.get(name, width))
                self.view.setColumnHidden(column, name in _HIDDEN)
            self.filter.show_table(columns)
            self._show_filtered()
            self.select(previous)

    def describe(self, n_pixels: int) -> str:
        """Return the number of objects of each kind, their share of `n_pixels`, and the filter."""
        n_objects, n_shown = len(self.model.values("object")), len(self.shown)
        is_filtered = n_shown < n_objects
        rows = f"{format_count(n_shown)} of {counted(n_objects, 'object')} in the table: drag or "
        rows += "click in the plot to change them; Save saves all"
        lines = [_count_kinds(self.filter.table, n_pixels), *[rows] * is_filtered]
        return "\n".join(lines)

    def select(self, numbers: Collection[int]) -> None:
        rows = np.flatnonzero(np.isin(self.model.numbers, list(numbers)))
        selection = QItemSelection()
        last = self.model.columnCount() - 1
        # Consecutive rows form one range, as Qt compares ranges pairwise.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        for run in runs if len(rows) else ():
            first, end = int(run[0]), int(run[-1])
            selection.select(self.model.index(first, 0), self.model.index(end, last))
        flags = QItemSelectionModel.SelectionFlag.ClearAndSelect
        self.view.selectionModel().select(selection, flags)
        self._show_chosen()

    def _show_chosen(self, *changed: object) -> None:
        rows = self.view.selectionModel().selectedRows()
        if rows:
            bar = self.view.horizontalScrollBar()
            left = bar.value()
            self.view.scrollTo(min(rows))
            bar.setValue(left)

    def _show_filtered(self) -> None:
        self.model.show_rows(np.flatnonzero(self.filter.inside).tolist())
        self.filtered.emit()

    def _on_selection_changed(self, *changed: object) -> None:
        self.chosen.emit(self.selected)
