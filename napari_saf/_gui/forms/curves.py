"""Curves of a run over flow time, one under the other, with a cursor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QPoint, Qt, QTimer, Signal
from qtpy.QtGui import QMouseEvent
from qtpy.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from napari_saf.result import History

_CANVAS_HEIGHT = 38
_USUAL_ROWS = 5
_TURN_MILLISECONDS = 50
_MARGIN = 0.012
"""Left and right of the curves, as a share of the time: for the cursor, which has a width."""
_RANGE_WIDTH = 50
_LINE, _CURSOR, _FACE = "#4c9be8", "#f5a623", (0.5, 0.5, 0.5, 0.13)
_SMALL = "font-size: 7pt; color: gray;"
Colors = Callable[[int], NDArray[np.floating]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Something that is plotted.

    Attributes
    ----------
    format : callable
        Returns the value of a step as text.
    """

    name: str
    help: str
    values: NDArray[np.floating]
    format: Callable[[Any], str]


def curves_of(history: History) -> list[Curve]:
    """Return what there is to plot of a run; what is not known at any step is left out."""
    curves = [
        Curve(
            "undecided",
            "How undecided the labels are: mean entropy of the soft labels, in nats.",
            history.entropy,
            "{:.3g} nats".format,
        ),
        Curve(
            "label shares",
            "How much of the image each label has, in its colour.",
            history.label_shares,
            _count_labels,
        ),
        Curve(
            "labels in use, at most",
            "How many labels still matter: rank bound, tr(C⁻¹ WᵀW).",
            history.rank_bound,
            "{:.3g}".format,
        ),
        Curve("objective", "What the method raises or lowers.", history.objective, "{:.5g}".format),
        Curve(
            "changed",
            "Share of the pixels that changed label in the step.",
            history.changed,
            lambda share: f"{100 * share:.2g} %",
        ),
    ]
    for name, values in history.measures.items():
        label = name.replace("_", " ")
        curves.append(Curve(label, f"The {label} of the labels.", values, "{:.3g}".format))
    return [curve for curve in curves if np.isfinite(curve.values).any()]


class CurvePlot(QWidget):
    """Small plots, one under the other, over a common axis of time.

    Text is labels of Qt, and each plot paints itself in a turn of its own: matplotlib takes
    60 ms for all of it.

    `moved` sends the time that a person pointed to.
    """

    moved = Signal(float)

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[_Row] = []
        self._curves: Sequence[Curve] = ()
        self._times: NDArray[np.float64] = np.zeros(0)
        self._cursor = 0.0
        self._end = QLabel()
        self._turns = QTimer(self)
        self._turns.setInterval(_TURN_MILLISECONDS)
        self._turns.timeout.connect(self._prepare_row)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(3)
        self._layout.addWidget(self._create_foot())
        self.setVisible(False)

    @property
    def values_at_cursor(self) -> dict[str, str]:
        """The value at the cursor, by the name of its curve."""
        shown = [row for row in self._rows if not row.isHidden()]
        return {str(row.name.text()): str(row.value.text()) for row in shown}

    def prepare(self) -> None:
        """Make the plots that most runs need, each in a turn of the event loop of its own."""
        self._turns.start()

    def release(self) -> None:
        """Make no more plots."""
        self._turns.stop()

    def show_curves(
        self, times: NDArray[np.float64], curves: Sequence[Curve], colors: Colors
    ) -> None:
        """Show curves over times; `colors` returns the colour of a column."""
        while len(self._rows) < len(curves):
            self._add_row()
        self._times, self._curves = times, curves
        for number, row in enumerate(self._rows):
            row.setVisible(number < len(curves))
        for row, curve in zip(self._rows, curves, strict=False):
            row.show_curve(times, curve, colors)
        self._end.setText(f"{times[-1]:.3g}" if len(times) else "")
        self.setVisible(bool(len(curves)))
        self.move_cursor(self._cursor)

    def move_cursor(self, time: float) -> None:
        """Put the cursor at a time."""
        self._cursor = time
        if not len(self._times):
            return
        step = int(np.abs(self._times - time).argmin())
        for row, curve in zip(self._rows, self._curves, strict=False):
            row.mark(time, curve.format(curve.values[step]))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Go where the mouse points, or is dragged."""
        if len(self._times) and self._rows and event.buttons() & Qt.MouseButton.LeftButton:
            self.moved.emit(self.time_at(event.pos().x()))

    mouseMoveEvent = mousePressEvent

    def time_at(self, x: int) -> float:
        """Return the time at a horizontal place, in pixels."""
        canvas = self._rows[0].canvas
        left = int(canvas.mapTo(self, QPoint(0, 0)).x())
        share = (x - left) / max(int(canvas.width()), 1) * (1 + 2 * _MARGIN) - _MARGIN
        return min(max(share, 0.0), 1.0) * float(self._times[-1])

    def _prepare_row(self) -> None:
        if len(self._rows) < _USUAL_ROWS:
            self._add_row()
        else:
            self._turns.stop()

    def _add_row(self) -> None:
        row = _Row()
        row.setVisible(False)
        self._rows.append(row)
        self._layout.insertWidget(len(self._rows) - 1, row)

    def _create_foot(self) -> QWidget:
        foot, begin, middle = QWidget(), QLabel("0"), QLabel("flow time, or iteration")
        middle.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout = QHBoxLayout(foot)
        layout.setContentsMargins(_RANGE_WIDTH, 0, 0, 0)
        for label in (begin, middle, self._end):
            label.setStyleSheet(_SMALL)
            layout.addWidget(label, stretch=int(label is middle))
        return foot


class _Row(QWidget):
    """One plot: its name, its value at the cursor, its range, its line or stacked areas."""

    def __init__(self) -> None:
        super().__init__()
        # matplotlib takes a while to load, and must find the binding that is in use.
        from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
        from matplotlib.figure import Figure

        figure = Figure()
        figure.patch.set_alpha(0)
        self.canvas: Any = FigureCanvasQTAgg(figure)  # type: ignore[no-untyped-call]
        self.canvas.setStyleSheet("background-color: transparent;")
        self.canvas.setFixedHeight(_CANVAS_HEIGHT)
        # The mouse is for the whole plot, and the wheel for the scroll area around it.
        self.canvas.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.canvas.mpl_connect("draw_event", self._on_drawn)
        self._axes = figure.add_axes((0, 0, 1, 1))
        self._axes.patch.set_facecolor(_FACE)
        self._axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
        self._axes.set_frame_on(True)
        for spine in self._axes.spines.values():
            spine.set_visible(False)
        (self._line,) = self._axes.plot([], [], "-", color=_LINE, linewidth=1.3)
        self._cursor = self._axes.axvline(0, color=_CURSOR, linewidth=1.2, animated=True)
        self._areas: list[Any] = []
        self._background: Any = None
        self.name, self.value, self._low, self._high = (QLabel() for _ in range(4))
        self._create_layout()

    def mark(self, time: float, text: str) -> None:
        """Put the cursor at a time, where the value is this text."""
        self.value.setText(text)
        self._cursor.set_xdata([time, time])
        if self._background is None:
            self.canvas.draw_idle()
            return
        self.canvas.restore_region(self._background)
        self._axes.draw_artist(self._cursor)
        self.canvas.update()

    def show_curve(self, times: NDArray[np.float64], curve: Curve, colors: Colors) -> None:
        """Show a curve over times."""
        self.name.setText(curve.name)
        self.setToolTip(f"{curve.help}\nClick or drag to go to a time.")
        for area in self._areas:
            area.remove()
        self._areas = []
        end = max(float(times[-1]), 1e-9)
        self._axes.set_xlim(-_MARGIN * end, (1 + _MARGIN) * end)
        if curve.values.ndim == 2:
            self._line.set_data([], [])
            used = np.flatnonzero(curve.values.max(axis=0) > 0)
            fills: Any = [colors(int(column)) for column in used]
            shares = curve.values[:, used].T
            self._areas = self._axes.stackplot(times, shares, colors=fills, linewidth=0)
            self._set_range(0, 1)
        else:
            self._line.set_data(times, curve.values)
            finite = curve.values[np.isfinite(curve.values)]
            self._set_range(float(finite.min()), float(finite.max()))
        self._background = None
        self.canvas.draw_idle()

    def resizeEvent(self, event: Any) -> None:
        """Draw anew."""
        super().resizeEvent(event)
        self._background = None

    def _create_layout(self) -> None:
        layout, ends = QGridLayout(self), QVBoxLayout()
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(1)
        ends.setSpacing(0)
        for label, where in (
            (self._high, Qt.AlignmentFlag.AlignTop),
            (self._low, Qt.AlignmentFlag.AlignBottom),
        ):
            label.setStyleSheet(_SMALL)
            label.setFixedWidth(_RANGE_WIDTH - 4)
            label.setAlignment(Qt.AlignmentFlag.AlignRight | where)
            ends.addWidget(label)
        self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
        layout.addWidget(self.name, 0, 0, 1, 2)
        layout.addWidget(self.value, 0, 2)
        layout.addLayout(ends, 1, 0)
        layout.addWidget(self.canvas, 1, 1, 1, 2)
        layout.setColumnStretch(2, 1)

    def _set_range(self, low: float, high: float) -> None:
        self._low.setText(_short_number(low))
        self._high.setText(_short_number(high))
        margin = 0.04 * (high - low) or 0.5 * abs(high) + 1e-9
        self._axes.set_ylim(low - margin, high + margin)

    def _on_drawn(self, event: Any) -> None:
        self._background = self.canvas.copy_from_bbox(self.canvas.figure.bbox)
        self._axes.draw_artist(self._cursor)


def _count_labels(shares: NDArray[np.floating]) -> str:
    count = int(np.count_nonzero(shares))
    return f"{count} label{'s' * (count != 1)}"


def _short_number(value: float) -> str:
    """Return a number in a few letters: 2e5 in place of 200000 and of 2e+05."""
    if 1e3 <= abs(value) < 1e4:
        return f"{value:.0f}"
    if value == 0 or 1e-2 <= abs(value) < 1e3:
        return f"{value:.3g}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"
