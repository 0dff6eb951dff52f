"""How labels are spread over groups, and what it costs: a button, a plot, a slider, a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import napari
import numpy as np
from napari.utils.theme import get_theme
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QHeaderView,
    QLabel,
    QSlider,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.docks.label_table import (
    ROW_HEIGHT,
    create_cell,
    create_table,
    square_icon,
    table_texts,
)
from napari_saf._gui.forms.layout import create_button, create_row
from napari_saf.graph import GridGraph
from napari_saf.io import count_labels
from napari_saf.methods import TradeOff, TradeOffPoint
from napari_saf.metrics import group_shares
from napari_saf.problem import Problem
from napari_saf.result import LabelImage

_PLOT_HEIGHT = 170
_MOST_ROWS = 8


class FairnessSection(QWidget):
    """What a method does that spreads labels over groups.

    `sweep_clicked` asks for a sweep over the fairness weight; `chosen` sends the solution that
    a person chose on the plot or with the slider.
    """

    sweep_clicked = Signal()
    chosen = Signal(object)

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self.trade_off: TradeOff | None = None
        self._before: NDArray[np.float64] | None = None
        self._plot: _TradeOffPlot | None = None
        self._button = create_button(
            "Trade-off: what does fairness cost?",
            "Cluster at one fairness weight after another and plot the price: how much worse "
            "the clustering gets (objective) for labels spread more evenly (fairness error).",
            self.sweep_clicked,
        )
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setPageStep(1)
        self._slider.setToolTip("Go through the solutions of the trade-off.")
        self._slider_row = create_row(QLabel("plain"), self._slider, QLabel("fair"))
        for place in (0, 2):
            self._slider_row.layout().setStretch(place, 0)
        self._summary = QLabel()
        self._summary.setWordWrap(True)
        self._table = create_table(
            "Share of each group in each label: in the plain clustering, and now. The last row is "
            "the share of the group in the data."
        )
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        for widget in (self._button, self._slider_row, self._summary, self._table):
            self._layout.addWidget(widget)
        self._slider.valueChanged.connect(self._on_slider_moved)
        self.reset()

    def reset(self) -> None:
        """Forget what was shown."""
        self.trade_off = self._before = None
        if self._plot is not None:
            self._plot.hide()
        for widget in (self._slider_row, self._summary, self._table):
            widget.hide()

    def begin(self, problem: Problem, labels: LabelImage, n_columns: int) -> None:
        """Take note of the labels (column + 1) of the start: the plain clustering."""
        self._before = _shares_by_column(problem, labels, np.arange(n_columns), n_columns)

    def show_trade_off(self, found: TradeOff, problem: Problem) -> None:
        """Show a sweep, with its fairest solution chosen."""
        self.trade_off = found
        if self._plot is None:
            self._plot = _TradeOffPlot(self.choose)
            self._layout.insertWidget(1, self._plot)
        self._plot.show_points(found.points, ink=get_theme(self._viewer.theme).text.as_hex())
        self._plot.show()
        plain = found.points[0].segmentation
        assert not isinstance(plain.labels, list)
        n_columns = plain.assignment.shape[1]
        self._before = _shares_by_column(problem, plain.labels, plain.columns, n_columns)
        last = len(found.points) - 1
        with signals_blocked(self._slider):
            self._slider.setRange(0, last)
            self._slider.setValue(last)
        self._slider_row.show()
        self._plot.mark(last)

    def choose(self, number: int) -> None:
        """Choose a solution of the sweep."""
        if self.trade_off is not None and 0 <= number < len(self.trade_off.points):
            self._slider.setValue(number)

    def show_result(
        self,
        problem: Problem,
        labels: LabelImage,
        columns: NDArray[np.int64],
        text: str,
        color: Callable[[int], NDArray[np.float32]],
    ) -> None:
        """Show the shares of the groups in each label, before and after."""
        assert problem.groups is not None
        before = self._before
        n_columns = int(columns.max()) + 1 if before is None else len(before)
        after = _shares_by_column(problem, labels, columns, n_columns)
        numbers, sizes = count_labels(problem.groups)
        self._summary.setText(text)
        self._summary.show()
        table, n_rows = self._table, len(columns) + 1
        table.clear()
        table.setRowCount(n_rows)
        table.setColumnCount(len(numbers))
        table.setHorizontalHeaderLabels([f"group {number}" for number in numbers])
        for row, column in enumerate(columns):
            header = QTableWidgetItem(f"{row + 1}")
            header.setIcon(square_icon(color(column)))
            table.setVerticalHeaderItem(row, header)
            for group, share in enumerate(after[column]):
                old = "" if before is None else f"{_percent(before[column, group])} → "
                table.setItem(row, group, create_cell(f"{old}{_percent(share)} %"))
        table.setVerticalHeaderItem(n_rows - 1, QTableWidgetItem("all"))
        for group, share in enumerate(sizes / sizes.sum()):
            table.setItem(n_rows - 1, group, create_cell(f"{_percent(share)} %"))
        table.resizeColumnsToContents()
        mode = QHeaderView.ResizeMode
        heading = table.horizontalHeader()
        heading.setSectionResizeMode(mode.Stretch if len(numbers) <= 3 else mode.Interactive)
        height = heading.sizeHint().height() + min(n_rows, _MOST_ROWS) * ROW_HEIGHT
        table.setFixedHeight(height + 22)
        table.show()

    def table_texts(self) -> list[list[str]]:
        """Return what the table shows, row by row."""
        return table_texts(self._table)

    def _on_slider_moved(self, number: int) -> None:
        if self.trade_off is None or self._plot is None:
            return
        self._plot.mark(number)
        self.chosen.emit(self.trade_off.points[number])


class _TradeOffPlot(QWidget):
    """Objective over fairness error; a click chooses the nearest solution."""

    def __init__(self, choose: Callable[[int], None]) -> None:
        super().__init__()
        # matplotlib takes a while to load, and must find the binding that is in use.
        from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
        from matplotlib.figure import Figure

        self._choose = choose
        self._figure = Figure(layout="constrained")
        self._canvas: Any = FigureCanvasQTAgg(self._figure)  # type: ignore[no-untyped-call]
        self._canvas.setStyleSheet("background-color: transparent;")
        self._axes = self._figure.subplots()
        self._places = np.zeros((0, 2))
        self._mark: Any = None
        self.setFixedHeight(_PLOT_HEIGHT)
        self.setToolTip("Click a point to see its labels.")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._canvas)
        self._canvas.mpl_connect("button_press_event", self._on_click)

    def show_points(self, points: tuple[TradeOffPoint, ...], ink: str) -> None:
        """Show the solutions; those whose error is infinite stand at the right rim."""
        errors = np.array([point.fairness_error for point in points])
        rim = 1.15 * max(errors[np.isfinite(errors)], default=1.0)
        self._places = np.column_stack(
            [np.where(np.isfinite(errors), errors, rim), [point.objective for point in points]]
        )
        self._axes.clear()
        for patch in (self._figure.patch, self._axes.patch):
            patch.set_alpha(0)
        self._axes.plot(*self._places.T, "o-", color="#4c9be8", markersize=5)
        (self._mark,) = self._axes.plot([], [], "o", color="#f5a623", markersize=9)
        self._axes.set_xlabel("fairness error", fontsize=8)
        self._axes.set_ylabel("objective", fontsize=8)
        self._axes.tick_params(labelsize=7, colors=ink)
        for label in (self._axes.xaxis.label, self._axes.yaxis.label):
            label.set_color(ink)
        for spine in self._axes.spines.values():
            spine.set_color(ink)

    def mark(self, number: int) -> None:
        """Mark the chosen solution."""
        self._mark.set_data(*self._places[number : number + 1].T)
        self._canvas.draw_idle()

    def _on_click(self, event: Any) -> None:
        if len(self._places):
            places = self._axes.transData.transform(self._places)
            away = np.linalg.norm(places - (event.x, event.y), axis=1)
            self._choose(int(away.argmin()))


def _shares_by_column(
    problem: Problem, labels: LabelImage, columns: NDArray[np.int64], n_columns: int
) -> NDArray[np.float64]:
    """Return the share of each group among the nodes of each column; NaN for an empty one."""
    assert isinstance(problem.graph, GridGraph) and problem.groups is not None
    nodes = np.asarray(problem.graph.from_image(labels)).astype(np.int64)
    numbers, _ = count_labels(problem.groups)
    ranks = np.where(problem.groups > 0, np.searchsorted(numbers, problem.groups) + 1, 0)
    shares = group_shares(nodes, ranks)
    whole = np.full((n_columns, shares.shape[1]), np.nan)
    whole[columns[: len(shares)]] = shares
    return whole


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.0f}"
