"""Fairness section of the Segment dock: trade-off button, plot and slider, table of shares."""

from __future__ import annotations

from typing import Any

import napari
import numpy as np
from napari.utils.theme import get_theme
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QHeaderView, QLabel, QSlider, QTableWidgetItem, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.docks.tables import PLOT_COLOR, create_cell, create_table, square_icon
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.runs.run import Frame
from napari_saf._gui.segment.result import ShownResult
from napari_saf.graph import GridGraph
from napari_saf.io import count_labels
from napari_saf.methods import TradeOff
from napari_saf.metrics import group_shares
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, LabelMap, Segmentation

_PLOT_HEIGHT = 130
_MOST_ROWS = 12
_ROW_HEIGHT, _SMALL = 18, "QTableView, QHeaderView::section {font-size: 8pt; padding: 0px 3px;}"
"""Makes the form and a table of eight labels fit into a small window."""


class FairnessSection(QWidget):
    """Results of methods that balance labels over groups.

    `sweep_clicked` requests a sweep of the fairness weight, whose solutions are shown by the plot
    and the slider.
    """

    sweep_clicked = Signal()

    def __init__(self, viewer: napari.Viewer, result: ShownResult) -> None:
        super().__init__()
        self._viewer, self._result = viewer, result
        self.trade_off: TradeOff | None = None
        self._plain_shares: NDArray[np.float64] | None = None
        self.canvas: Any = None
        self.places = np.zeros((0, 2))
        self.button = create_button(
            "Trade-off: what does fairness cost?",
            "Cluster at several fairness weights; plot the objective against the fairness error.",
            self.sweep_clicked,
        )
        help = "Choose a solution of the trade-off."
        self.slider = QSlider(Qt.Orientation.Horizontal, pageStep=1, toolTip=help)
        self.slider_row = create_row(QLabel("plain"), self.slider, QLabel("fair"), stretch=0)
        self._summary = QLabel(wordWrap=True)
        help = "Share of each group per label, before → after balancing; last row: in all labels."
        self.table = create_table(help)
        self.table.setStyleSheet(_SMALL)
        for header in (self.table.verticalHeader(), self.table.horizontalHeader()):
            header.setMinimumSectionSize(1)
        self.table.verticalHeader().setDefaultSectionSize(_ROW_HEIGHT)
        self._layout = QVBoxLayout(self)
        fill_layout(self._layout, self.button, self.slider_row, self._summary, self.table)
        self.slider.valueChanged.connect(self._on_slider_moved)
        result.cleared.connect(self.reset)
        result.started.connect(self._on_started)
        result.shown.connect(self._on_result_shown)
        result.controller.swept.connect(self.show_trade_off)
        self.reset()

    def reset(self) -> None:
        self.trade_off = self._plain_shares = None
        for widget in (self.canvas, self.slider_row, self._summary, self.table):
            if widget is not None:
                widget.hide()

    def _on_started(self, frame: Frame) -> None:
        """Store the shares of the first labels, those of the unconstrained clustering."""
        run, label_map = self._result.controller.run, LabelMap(frame.numbers)
        problem = None if run is None else run.problem
        if problem is not None and _has_groups(problem):
            columns, n_columns = label_map.columns, label_map.n_columns
            self._plain_shares = _shares_by_column(problem, frame.labels, columns, n_columns)

    def show_trade_off(self, trade_off: TradeOff) -> None:
        """Show a sweep and select its fairest solution."""
        run, self.trade_off = self._result.controller.run, trade_off
        assert run is not None and run.problem is not None
        plain = trade_off.points[0].segmentation
        assert not isinstance(plain.labels, list)
        n_columns = plain.assignment.shape[1]
        self._plain_shares = _shares_by_column(run.problem, plain.labels, plain.columns, n_columns)
        last = len(trade_off.points) - 1
        with signals_blocked(self.slider):
            self.slider.setRange(0, last)
            self.slider.setValue(last)
        self.slider_row.show()
        self._plot(trade_off)

    def follow_theme(self, event: object) -> None:
        if self.trade_off is not None:
            self._plot(self.trade_off)

    def choose(self, number: int) -> None:
        if self.trade_off is not None and 0 <= number < len(self.trade_off.points):
            self.slider.setValue(number)

    def _on_result_shown(self, result: Segmentation) -> None:
        """Show the shares of the groups, if any, in each label, before and after."""
        problem, live = self._result.problem, self._result.live
        assert problem is not None and live is not None
        measures, columns, previous = result.history.measures, result.columns, self._plain_shares
        if not _has_groups(problem) or not measures:
            return
        assert problem.groups is not None and not isinstance(result.labels, list)
        n_columns = int(columns.max()) + 1 if previous is None else len(previous)
        shares = _shares_by_column(problem, result.labels, columns, n_columns)
        numbers, sizes = count_labels(problem.groups)
        error, balance = (float(measures[name][-1]) for name in ("fairness_error", "balance"))
        self._summary.setText(f"fairness error {error:.3g}, balance {balance:.2g}")
        self._summary.show()
        labels = np.flatnonzero(columns >= 0) + 1
        table, n_rows = self.table, len(labels) + 1
        table.clear()
        table.setRowCount(n_rows)
        table.setColumnCount(len(numbers))
        table.setHorizontalHeaderLabels([f"group {number}" for number in numbers])
        for row, (label, column) in enumerate(zip(labels, columns[labels - 1], strict=True)):
            header = QTableWidgetItem(f"{label}")
            header.setIcon(square_icon(live.color_of(int(label))))
            table.setVerticalHeaderItem(row, header)
            for group, share in enumerate(shares[column]):
                old = "" if previous is None else f"{_percent(previous[column, group])} → "
                table.setItem(row, group, create_cell(f"{old}{_percent(share)} %"))
        table.setVerticalHeaderItem(n_rows - 1, QTableWidgetItem("all"))
        for group, share in enumerate(sizes / sizes.sum()):
            table.setItem(n_rows - 1, group, create_cell(f"{_percent(share)} %"))
        table.resizeColumnsToContents()
        mode = QHeaderView.ResizeMode
        heading = table.horizontalHeader()
        heading.setSectionResizeMode(mode.Stretch if len(numbers) <= 3 else mode.Interactive)
        height = heading.sizeHint().height() + min(n_rows, _MOST_ROWS) * _ROW_HEIGHT
        scrolls = table.horizontalScrollBar().sizeHint().height() * (len(numbers) > 3)
        table.setFixedHeight(height + scrolls + 2 * table.frameWidth())
        table.show()

    def _on_slider_moved(self, number: int) -> None:
        if self.trade_off is not None:
            self._mark_point(number)
            self._result.show_solution(self.trade_off.points[number])

    def _plot(self, trade_off: TradeOff) -> None:
        """Plot objective over fairness error, the unconstrained solution on the left.

        An infinite error is drawn at the margin.
        """
        if self.canvas is None:
            # matplotlib loads slowly, and must find the Qt binding in use.
            from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
            from matplotlib.figure import Figure

            figure = Figure(layout="constrained")
            self.canvas = FigureCanvasQTAgg(figure)  # type: ignore[no-untyped-call]
            self.canvas.setStyleSheet("background-color: transparent;")
            self.canvas.setFixedHeight(_PLOT_HEIGHT)
            self.canvas.setToolTip("Click a point to see its labels.")
            self.canvas.mpl_connect("button_press_event", self._on_plot_clicked)
            self.axes = figure.subplots()
            figure.patch.set_alpha(0)
            self._layout.insertWidget(1, self.canvas)
        errors = np.array([point.fairness_error for point in trade_off.points])
        rim = 1.15 * max(errors[np.isfinite(errors)], default=1.0)
        objectives = [point.objective for point in trade_off.points]
        self.places = np.column_stack([np.where(np.isfinite(errors), errors, rim), objectives])
        ink = get_theme(self._viewer.theme).text.as_hex()
        self.axes.clear()
        self.axes.set_facecolor("none")
        self.axes.invert_xaxis()
        self.axes.plot(*self.places.T, "o-", color=PLOT_COLOR, markersize=5)
        (self._mark,) = self.axes.plot([], [], "o", color="#f5a623", markersize=9)
        self.axes.set_xlabel("fairness error", fontsize=8, color=ink)
        self.axes.set_ylabel("objective", fontsize=8, color=ink)
        self.axes.tick_params(labelsize=7, colors=ink)
        self.axes.spines[:].set_color(ink)
        self._mark_point(self.slider.value())
        self.canvas.show()

    def _mark_point(self, number: int) -> None:
        self._mark.set_data(*self.places[number : number + 1].T)
        self.canvas.draw_idle()

    def _on_plot_clicked(self, event: Any) -> None:
        if len(self.places):
            positions = self.axes.transData.transform(self.places)
            self.choose(int(np.linalg.norm(positions - (event.x, event.y), axis=1).argmin()))


def _has_groups(problem: Problem) -> bool:
    return problem.groups is not None and isinstance(problem.graph, GridGraph)


def _shares_by_column(
    problem: Problem, labels: LabelImage, columns: NDArray[np.int64], n_columns: int
) -> NDArray[np.float64]:
    """Return the share of each group in each column (n_columns, n_groups); NaN if empty."""
    assert isinstance(problem.graph, GridGraph) and problem.groups is not None
    nodes = np.asarray(problem.graph.from_image(labels)).astype(np.int64)
    numbers, _ = count_labels(problem.groups)
    ranks = np.where(problem.groups > 0, np.searchsorted(numbers, problem.groups) + 1, 0)
    shares = group_shares(nodes, ranks)
    result = np.full((n_columns, shares.shape[1]), np.nan)
    is_used = columns[: len(shares)] >= 0
    result[columns[: len(shares)][is_used]] = shares[is_used]
    return result


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.0f}"
