"""Sections of the Diagnostics dock: curves, separability of labels, branch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QRect, Qt, Signal
from qtpy.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF
from qtpy.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QSlider,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.diagnostics.recorded_run import RecordedRun
from napari_saf._gui.docks.tables import (
    PLOT_COLOR,
    ROW_HEIGHT,
    create_cell,
    create_table,
    to_qcolor,
)
from napari_saf._gui.forms.fields import OddSlider
from napari_saf._gui.forms.image_input import side_of, with_side
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, fill_layout
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.runs.run import RunJob
from napari_saf._gui.runs.task import BackgroundTasks
from napari_saf.errors import SafError, counted
from napari_saf.parameters import build, values_of
from napari_saf.recording import RecordedState
from napari_saf.result import History

_PLOT_HEIGHT = 38
_MARGIN = 0.012
"""Margin left and right of the curves for the cursor, as a share of the time."""
_RANGE_WIDTH = 50
_LINE, _CURSOR, _FACE = QColor(PLOT_COLOR), QColor("#f5a623"), QColor(128, 128, 128, 33)
_SMALL = "font-size: 7pt; color: gray;"
_MOST_ROWS = 6
BRANCH_HELP = "Continue from this time with these parameters, in a new layer."
_SCALE_HELP = "Side of the window over which labels are averaged (N)."
_SUMMARY_HELP = (
    "Separability of the labels by their features: scatter between labels over scatter within "
    "labels; larger is better (tr S_B / tr S_W)."
)
_APART = "apart"
"""Key of the background task."""
Colors = Callable[[int], NDArray[np.floating]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Values to plot, or shares of columns to stack; `format` formats the value of a step."""

    name: str
    help: str
    values: NDArray[np.floating]
    format: Callable[[Any], str]


_CURVES: tuple[tuple[str, str, Callable[[Any], str], str], ...] = (
    (
        "undecided", "entropy", "{:.3g} nats".format,
        "Mean entropy of the soft labels in nats: 0 if every pixel is certain, the logarithm of "
        "the number of labels if none is preferred."),
    (
        "label shares", "label_shares",
        lambda shares: counted(int(np.count_nonzero(shares)), "label"),
        "Share of the image of each label, in its colour."),
    (
        "labels in use, at most", "rank_bound", "{:.3g}".format,
        "Bound of the number of labels in use: rank bound, tr(C⁻¹ WᵀW)."),
    ("objective", "objective", "{:.5g}".format, "What the method maximizes or minimizes."),
    (
        "changed", "changed", lambda share: f"{100 * share:.2g} %",
        "Share of the pixels that changed label in the step."),
)  # fmt: skip
"""Name, field of the history, format and tooltip of each curve."""


def curves_of(history: History) -> list[Curve]:
    """Return the curves of a run, without those unknown at all steps."""
    curves = [Curve(name, help, getattr(history, f), form) for name, f, form, help in _CURVES]
    for name, values in history.measures.items():
        label = name.replace("_", " ")
        curves.append(Curve(label, f"The {label} of the labels.", values, "{:.3g}".format))
    return [curve for curve in curves if np.isfinite(curve.values).any()]


class CurvePlot(QWidget):
    """Small plots, stacked over a common time axis.

    They are painted with Qt, as matplotlib would take 60 ms per update during a run. `moved` is
    emitted with the time that the user clicked.
    """

    moved = Signal(float)

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[_Row] = []
        self._curves: Sequence[Curve] = ()
        self._times: NDArray[np.float64] = np.zeros(0)
        self._cursor = 0.0
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(3)
        foot, self._end, middle = QHBoxLayout(), QLabel(), QLabel("flow time, or iteration")
        foot.setContentsMargins(_RANGE_WIDTH, 0, 0, 0)
        middle.setAlignment(Qt.AlignmentFlag.AlignCenter)
        for label in (QLabel("0"), middle, self._end):
            label.setStyleSheet(_SMALL)
            foot.addWidget(label, stretch=int(label is middle))
        self._layout.addLayout(foot)
        self.setVisible(False)

    def show_curves(
        self, times: NDArray[np.float64], curves: Sequence[Curve], colors: Colors
    ) -> None:
        """Show curves over times; `colors` maps a column to its colour."""
        self._times, self._curves = times, curves
        while len(self.rows) < len(curves):
            self.rows.append(_Row())
            self._layout.insertWidget(len(self.rows) - 1, self.rows[-1])
        for row in self.rows[len(curves) :]:
            row.hide()
        for row, curve in zip(self.rows, curves, strict=False):
            row.show_curve(times, curve, colors)
        self._end.setText(f"{times[-1]:.3g}")
        self.setVisible(bool(len(curves)))
        self.move_cursor(self._cursor)

    def move_cursor(self, time: float) -> None:
        self._cursor = time
        if len(self._times):
            step = int(np.abs(self._times - time).argmin())
            share = time / max(float(self._times[-1]), 1e-9)
            for row, curve in zip(self.rows, self._curves, strict=False):
                row.mark(share, curve.format(curve.values[step]))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if self.rows and event.buttons() & Qt.MouseButton.LeftButton:
            self.moved.emit(self.time_at(event.pos().x()))

    mouseMoveEvent = mousePressEvent

    def time_at(self, x: int) -> float:
        area = self.rows[0].plot_area
        x_left = self.rows[0].mapTo(self, area.topLeft()).x()
        share = (x - x_left) / max(area.width(), 1) * (1 + 2 * _MARGIN) - _MARGIN
        return float(min(max(share, 0.0), 1.0) * self._times[-1])


class _Row(QWidget):
    """One plot: name, value at the cursor, range, and a line or stacked areas.

    Polygons have coordinates in the unit square, which is scaled to the plot area.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[QPolygonF] = []
        self._areas: list[tuple[QColor, QPolygonF]] = []
        self._cursor = QPolygonF()
        self.name, self.value, self._low, self._high = (QLabel() for _ in range(4))
        self._grid, side = QGridLayout(self), Qt.AlignmentFlag
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(1)
        self._grid.setColumnStretch(2, 1)
        for label, cell, alignment in (
            (self.name, (0, 0, 1, 2), side.AlignLeft),
            (self.value, (0, 2, 1, 1), side.AlignRight),
            (self._high, (1, 0, 1, 1), side.AlignRight | side.AlignTop),
            (self._low, (2, 0, 1, 1), side.AlignRight | side.AlignBottom),
        ):
            label.setAlignment(alignment)
            self._grid.addWidget(label, *cell)
        for label in (self._high, self._low):
            label.setStyleSheet(_SMALL)
            label.setFixedSize(_RANGE_WIDTH - 4, _PLOT_HEIGHT // 2)

    @property
    def plot_area(self) -> QRect:
        return self._grid.cellRect(1, 1).united(self._grid.cellRect(2, 2))

    def show_curve(self, times: NDArray[np.float64], curve: Curve, colors: Colors) -> None:
        values, low, high = curve.values, 0.0, 1.0
        if values.ndim == 1:
            finite = values[np.isfinite(values)]
            low, high = float(finite.min()), float(finite.max())
        margin = 0.04 * (high - low) or 0.5 * abs(high) + 1e-9

        def polygon(steps: NDArray[np.float64], heights: NDArray[np.floating]) -> QPolygonF:
            return _polygon(steps / end, (heights - low + margin) / (high - low + 2 * margin))

        end = max(float(times[-1]), 1e-9)
        self._lines, self._areas = [], []
        if values.ndim == 1:
            masked = np.ma.masked_invalid(values)
            for segment in np.ma.clump_unmasked(masked):  # type: ignore[no-untyped-call]
                self._lines.append(polygon(times[segment], values[segment]))
        else:
            there_and_back = np.concatenate([times, times[::-1]])
            edges = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1)
            for column in np.flatnonzero(values.max(axis=0) > 0):
                rim = np.concatenate([edges[:, column], edges[::-1, column + 1]])
                area = polygon(there_and_back, rim)
                self._areas.append((to_qcolor(colors(int(column))), area))
        self.name.setText(curve.name)
        self.setToolTip(f"{curve.help}\nClick or drag to go to a time.")
        self._low.setText(_short_number(low))
        self._high.setText(_short_number(high))
        self.show()

    def mark(self, share: float, text: str) -> None:
        """Move the cursor to a share of the time, and show the value there as text."""
        self.value.setText(text)
        self._cursor = _polygon(np.array([share, share]), np.array([0.0, 1.0]))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, rect = QPainter(self), self.plot_area
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(rect, _FACE)
        painter.translate(rect.topLeft())
        painter.scale(rect.width(), rect.height())
        painter.setPen(Qt.PenStyle.NoPen)
        for color, area in self._areas:
            painter.setBrush(color)
            painter.drawPolygon(area)
        for color, width, lines in ((_LINE, 1.8, self._lines), (_CURSOR, 1.7, [self._cursor])):
            pen = QPen(color, width)
            pen.setCosmetic(True)
            painter.setPen(pen)
            for line in lines:
                painter.drawPolyline(line)
        painter.end()


def _polygon(shares: NDArray[np.floating], heights: NDArray[np.floating]) -> QPolygonF:
    across = (shares + _MARGIN) / (1 + 2 * _MARGIN)
    pairs = zip(across.tolist(), (1 - heights).tolist(), strict=True)
    return QPolygonF([QPointF(x, y) for x, y in pairs])


def _short_number(value: float) -> str:
    """Return a number as short text: 2e5 for 200000."""
    if 1e3 <= abs(value) < 1e4:
        return f"{value:.0f}"
    if value == 0 or 1e-2 <= abs(value) < 1e3:
        return f"{value:.3g}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"


class TimeSlider(QSlider):
    """A slider over `times`, whose right end is the result."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal, pageStep=1)
        self.times: NDArray[np.float64] = np.zeros(0)

    @property
    def time(self) -> float:
        index = self.value()
        return float(self.times[index]) if index < len(self.times) else 0.0

    @property
    def is_at_end(self) -> bool:
        return bool(self.value() >= self.maximum())

    def go_to(self, time: float) -> None:
        if len(self.times):
            self.setValue(int(np.abs(self.times - time).argmin()))

    def go_to_end(self) -> None:
        self.setValue(self.maximum())

    def set_times(self, times: NDArray[np.float64]) -> None:
        """Take other times; the slider stays at the end if it was there, else at its time."""
        time, was_at_end, self.times = self.time, self.is_at_end, times
        with signals_blocked(self):
            self.setRange(0, max(0, len(times) - 1))
            if was_at_end:
                self.go_to_end()
            else:
                self.go_to(time)
        self.setEnabled(len(times) > 1)


class SeparabilityTable(QWidget):
    """A line with the separability of all labels, and a row per label, the least first."""

    def __init__(self, background: BackgroundTasks) -> None:
        super().__init__()
        self._background = background
        self.summary = QLabel(wordWrap=True, toolTip=_SUMMARY_HELP)
        self.table = create_table(
            "Each label, the label least separable from it, and their separability."
        )
        self.table.setColumnCount(3)
        self.table.setHorizontalHeaderLabels(["Label", "Most like", "Apart"])
        self.table.verticalHeader().hide()
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        fill_layout(QVBoxLayout(self), self.summary, self.table)
        self.show_message("")

    def show_message(self, text: str) -> None:
        self._background.drop(_APART)
        self.summary.setText(text)
        self.table.hide()

    def show_state(self, run: RecordedRun, state: RecordedState) -> None:
        """Compute the separability of the labels at a state in the background, and show it."""
        measure = lambda cancelled: run.separability(state)  # noqa: E731
        self._background.run(_APART, measure, partial(self._show, run))

    def _show(self, run: RecordedRun, measured: tuple[float, NDArray[np.float64]]) -> None:
        score, pairs = measured
        numbers, color = run.shown_numbers(len(pairs)), run.color
        present = np.flatnonzero(~np.isnan(pairs).all(axis=1))
        if not len(present):
            self.show_message("Only one label: there is no separability.")
            return
        nearest = np.nanargmin(pairs[present], axis=1)
        order = np.argsort(pairs[present, nearest], kind="stable")
        couples = [(int(present[k]), int(nearest[k])) for k in order]
        self.table.setRowCount(len(couples))
        for row, couple in enumerate(couples):
            for position, column in enumerate(couple):
                self.table.setItem(row, position, create_cell(f"{numbers[column]}", color(column)))
            self.table.setItem(row, 2, create_cell(f"{pairs[couple]:.3g}"))
        first, second = sorted(numbers[list(couples[0])])
        self.summary.setText(
            f"All labels: {score:.3g}. Least apart: {first} and {second} ({pairs[couples[0]]:.2g})."
        )
        header = self.table.horizontalHeader().sizeHint().height()
        self.table.setFixedHeight(header + min(len(order), _MOST_ROWS) * ROW_HEIGHT + 4)
        self.table.show()


class BranchForm(FormSection):
    """The editable parameters of a run, and a button that continues with them."""

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._job: RunJob | None = None
        self.form: MethodForm | None = None
        self.scale = OddSlider(5)
        self.add_row("Scale", self.scale, _SCALE_HELP)
        self.button = create_button("Branch", BRANCH_HELP)
        self.layout().addWidget(self.button)

    def show_job(self, job: RunJob) -> None:
        """Show the parameters of a run, unless already shown."""
        if job is self._job:
            return
        self.release()
        self._job = job
        self.form = form = MethodForm(
            self._viewer, [type(job.method)], asks_prototypes=False, asks_start=False
        )
        self._parameters = QWidget()
        fold = create_fold("Advanced", form.advanced)
        fill_layout(QVBoxLayout(self._parameters), form.basic, fold)
        self.layout().insertWidget(1, self._parameters)
        self.scale.set_value(side_of(job.image_job.options.window) or self.scale.value)
        try:
            form.set_values(values_of(job.method))
        except SafError:
            self.button.setEnabled(False)
        form.changed.connect(self._show_scale)
        self._show_scale()

    def job(self) -> RunJob:
        """Return the run with the current parameters; raise SafError if one is out of bounds."""
        assert self._job is not None and self.form is not None
        method, image_job = self._job.method, self._job.image_job
        method = build(type(method), values_of(method) | self.form.values())
        if self.is_shown(self.scale):
            side, window = self.scale.value, image_job.options.window
            assert side is not None and not isinstance(window, str)
            window = with_side(window, side)
            options = dataclasses.replace(image_job.options, window=window)
            image_job = dataclasses.replace(image_job, options=options)
        return dataclasses.replace(self._job, method=method, image_job=image_job)

    def release(self) -> None:
        if self.form is not None:
            self._parameters.hide()
            self._parameters.deleteLater()
        self._job = self.form = None

    def _show_scale(self) -> None:
        assert self._job is not None
        has_one = side_of(self._job.image_job.options.window) is not None
        with contextlib.suppress(SafError):
            self.show_row(self.scale, has_one and self.job().method.uses_window)
