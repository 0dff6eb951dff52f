"""The Segment dock: choose, run, watch, stop."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import napari
import numpy as np
from napari.utils.notifications import show_error
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QObject, Qt, QTimer
from qtpy.QtWidgets import (
    QApplication,
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui._fairness import FairnessSection
from napari_saf._gui._form import MethodForm
from napari_saf._gui._form_layout import FormSection, create_fold
from napari_saf._gui._input import ImageInput
from napari_saf._gui._live_layer import LiveLayer
from napari_saf._gui._reading import ImageJob, NotFinite
from napari_saf._gui._session import Request, Session
from napari_saf._gui._status import StatusArea
from napari_saf._gui._swatches import Swatch, Swatches, fill_color
from napari_saf._gui._worker import Frame
from napari_saf.device import resolve_device
from napari_saf.errors import SafError
from napari_saf.features import Scaling
from napari_saf.graph import GridGraph
from napari_saf.methods import METHODS, SweepMethod, TradeOff, TradeOffPoint
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Status

__all__ = ["SegmentWidget"]

_LEAST_WIDTH = 320
"""In pixels; below it words beside sliders are cut."""

_MASK_AND_RUN = "Mask them and run"
_SCALE_HELP = (
    "Side of the window over which labels are averaged: small keeps detail, large smooths (N)."
)
_STATUS_WORDS = {
    Status.CONVERGED: "converged",
    Status.STALLED: "settled",
    Status.MAX_ITERATIONS: "step limit reached",
    Status.CANCELLED: "stopped",
}


class SegmentWidget(QWidget):
    """Choose an image, a method and a scale; run; watch the labels form.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    input : ImageInput
    form : MethodForm
        Of the chosen method.
    session : Session
    status : StatusArea
    swatches : Swatches
    fairness : FairnessSection
        In sight for methods that spread labels over groups.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._frame: Frame | None = None
        self._main_window: QWidget | None = None
        self._is_shut = False
        self._last_request: Request | None = None
        self.session = Session(viewer)
        self.input = ImageInput(viewer)
        self.form = MethodForm(next(iter(METHODS.values())), viewer)
        self.status, self.swatches = StatusArea(), Swatches()
        self.fairness = FairnessSection(viewer)
        self._shown: tuple[LiveLayer, Problem, Request] | None = None
        viewer.layers.events.removed.connect(self._on_layer_removed)
        self._create_controls()
        self._create_layout()
        self.setMinimumWidth(_LEAST_WIDTH)
        self._clock = QTimer(self)
        self._clock.setInterval(500)
        self._connect()
        self._on_method_changed()

    def choose_method(self, name: str) -> None:
        """Choose a method by its name in METHODS."""
        self._method.setCurrentIndex(self._method.findData(name))

    def start(self) -> None:
        """Start a run with what the form says."""
        self._start(finite_only=False)

    def start_sweep(self) -> None:
        """Start a sweep over the fairness weight."""
        self._start(finite_only=False, is_sweep=True)

    def shut_down(self) -> None:
        """End the run and let go of the viewer; the widget is of no use after."""
        if self._is_shut:
            return
        self._is_shut = True
        self._clock.stop()
        self.session.shut_down()
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        self.input.release()
        self.form.release()

    def event(self, event: QEvent) -> bool:
        """Follow the widget into its window and out of it."""
        kind = event.type()
        if kind == QEvent.Type.ParentChange and self.parent() is None:
            self.shut_down()
        elif kind == QEvent.Type.Show and self._main_window is not self.window():
            self._main_window = self.window()
            self._main_window.installEventFilter(self)
        return bool(super().event(event))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """End the run when the window has closed."""
        if event.type() == QEvent.Type.Close:
            QTimer.singleShot(0, self._on_window_close_asked)
        return False

    def _create_controls(self) -> None:
        self._method = QComboBox()
        self._method.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        for name, method in METHODS.items():
            self._method.addItem(method.title, name)
        self._run_button, self._stop_button = QPushButton("Run"), QPushButton("Stop")
        self._device = QLabel()
        self._device.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)

    def _create_layout(self) -> None:
        choice = self._choice = FormSection()
        choice.add_row("Method", self._method, "How to label.")
        choice.add_row("Scale", self.input.scale, _SCALE_HELP)
        self._basic, self._advanced = QVBoxLayout(), QVBoxLayout()
        self._advanced.setContentsMargins(0, 0, 0, 0)
        advanced = QWidget()
        advanced.setLayout(self._advanced)
        content = QWidget()
        inner = QVBoxLayout(content)
        inner.setContentsMargins(8, 6, 8, 6)
        inner.addWidget(self.input.section)
        inner.addWidget(self._choice)
        inner.addLayout(self._basic)
        inner.addWidget(self.fairness)
        inner.addWidget(create_fold("Features", self.input.features))
        inner.addWidget(create_fold("Advanced", advanced))
        inner.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(_create_scroll_area(content), stretch=1)
        layout.addLayout(self._create_run_area())

    def _create_run_area(self) -> QVBoxLayout:
        area, buttons = QVBoxLayout(), QHBoxLayout()
        area.setContentsMargins(8, 0, 8, 6)
        for widget in (self._run_button, self._stop_button, self._device):
            buttons.addWidget(widget, stretch=1)
        area.addLayout(buttons)
        area.addWidget(self.status)
        area.addWidget(self.swatches)
        return area

    def _connect(self) -> None:
        self._method.currentIndexChanged.connect(self._on_method_changed)
        self._run_button.clicked.connect(self.start)
        self._stop_button.clicked.connect(self._on_stop_clicked)
        self.status.way_on_clicked.connect(self._on_mask_and_run_clicked)
        self._clock.timeout.connect(self._on_clock)
        self.fairness.sweep_clicked.connect(self.start_sweep)
        self.fairness.chosen.connect(self._on_solution_chosen)
        self.session.swept.connect(self._on_swept)
        self.session.began.connect(self._on_began)
        self.session.advanced.connect(self._on_advanced)
        self.session.returned.connect(self._on_returned)
        self.session.failed.connect(self._on_failed)
        self.session.abandoned.connect(self._on_abandoned)
        self.session.finished.connect(self._on_finished)
        QApplication.instance().aboutToQuit.connect(self.shut_down)

    def _start(self, *, finite_only: bool, is_sweep: bool = False) -> None:
        if self.input.image is None:
            self._show_error("no image: open or choose an image layer first")
            return
        try:
            method, job = self.form.read(), self._job(finite_only=finite_only)
            place = self.input.placement()
            strokes = self.input.strokes
            request = Request(self.input.image, job, method, place, is_sweep, strokes)
        except SafError as error:
            self._show_error(str(error))
            return
        self._last_request = request
        self.session.start(request)

    def _job(self, *, finite_only: bool) -> ImageJob:
        """Return the job; prototypes of an earlier result are meant for its scaling."""
        job, field = self.input.job(finite_only=finite_only), self.form.prototypes_field
        scaling = None if field is None else field.input_entry("scaling")
        if not isinstance(scaling, dict):
            return job
        options = dataclasses.replace(job.options, scaling=Scaling(**scaling))
        return dataclasses.replace(job, options=options)

    def _on_method_changed(self) -> None:
        before, self.form = self.form, MethodForm(METHODS[self._method.currentData()], self._viewer)
        before.release()
        for layout, old, new in (
            (self._basic, before.basic, self.form.basic),
            (self._advanced, before.advanced, self.form.advanced),
        ):
            layout.removeWidget(old)
            old.hide()
            old.deleteLater()
            layout.addWidget(new)
        self._method.setToolTip(self.form.method.title)
        spreads = issubclass(self.form.method, SweepMethod)
        self.input.show_groups(spreads)
        self.fairness.setVisible(spreads)
        self.form.changed.connect(self._on_form_changed)
        self._on_form_changed()
        self._show_what_is_possible()

    def _on_form_changed(self) -> None:
        with contextlib.suppress(SafError):
            uses_window = self.form.read().uses_window
            self._choice.show_row(self.input.scale, uses_window)
            self.input.show_weights(uses_window)
        values, field = self.form.values(), self.form.prototypes_field
        features = None if field is None else field.input_entry("features")
        if isinstance(features, str):
            self.input.choose_features(features)
        try:
            device = resolve_device(str(values.get("device", "cpu"))).type.upper()
        except SafError:
            device = f"{values['device']}: not there"
        self._device.setText(", ".join([device, str(values.get("dtype", ""))]).strip(", "))

    def _on_stop_clicked(self) -> None:
        self.session.stop()
        self.status.set_text("stopping …")

    def _on_mask_and_run_clicked(self) -> None:
        request = self._last_request
        self._start(finite_only=True, is_sweep=request is not None and request.is_sweep)

    def _on_began(self) -> None:
        self._frame = self._shown = None
        self.fairness.reset()
        self._clock.start()
        self.swatches.show_swatches([])
        self.status.show_busy("reading the image …")
        self._show_what_is_possible()

    def _on_clock(self) -> None:
        """Give a sign of life where frames are slow to come."""
        if self.session.is_stopping:
            self.status.set_text(f"stopping …  {self.session.seconds:.1f} s")
        elif self._frame is None:
            self.status.set_text(f"preparing …  {self.session.seconds:.1f} s")
        else:
            self._show_frame(self._frame)

    def _on_advanced(self, frame: Frame) -> None:
        problem = self.session.problem
        if self._frame is None and problem is not None and self._is_spread(problem):
            self.fairness.begin(problem, frame.labels, len(frame.shares))
        self._frame = frame
        if not self.session.is_stopping:
            self._show_frame(frame)
        self._show_prototypes(frame.prototypes, frame.shares, np.arange(len(frame.shares)))

    def _show_frame(self, frame: Frame) -> None:
        self.status.show_progress(
            frame.fraction,
            f"{100 * frame.fraction:.0f} %   {_count(frame.n_labels)}   t = {frame.time:.3g}   "
            f"{self.session.seconds:.1f} s",
        )

    def _on_returned(self, result: Segmentation) -> None:
        is_whole = result.status is not Status.CANCELLED or self._frame is None
        words = f"{_STATUS_WORDS[result.status]}: {_count(result.n_labels)}"
        self.status.show_progress(
            1.0 if is_whole or self._frame is None else self._frame.fraction,
            "\n".join([f"{words} in {self.session.seconds:.1f} s", *result.notes]),
        )
        if len(result.history):
            self._show_prototypes(
                result.prototypes, result.history.label_shares[-1], result.columns
            )

        problem, live, request = self.session.problem, self.session.live, self.session.request
        if problem is not None and live is not None and request is not None:
            self._shown = (live, problem, request)
            self._show_spread(result)

    def _on_swept(self, found: TradeOff) -> None:
        if self.session.problem is not None:
            self.fairness.show_trade_off(found, self.session.problem)

    def _on_solution_chosen(self, point: TradeOffPoint) -> None:
        """Show another solution of the sweep on the layer that it made."""
        if self._shown is None or self.session.is_running:
            return
        live, problem, _ = self._shown
        result = point.segmentation
        live.finish(result, problem.graph)
        self._show_spread(result)
        self._show_prototypes(result.prototypes, result.history.label_shares[-1], result.columns)

    def _on_layer_removed(self, event: Any) -> None:
        """Let go of the solutions of a layer that is gone."""
        if self._shown is not None and event.value == self._shown[0].layer:
            self._shown = None
            self.fairness.reset()

    def _is_spread(self, problem: Problem) -> bool:
        return problem.groups is not None and isinstance(problem.graph, GridGraph)

    def _show_spread(self, result: Segmentation) -> None:
        """Show how the labels are spread over the groups, where there are groups."""
        measures = result.history.measures
        if self._shown is None or not self._is_spread(self._shown[1]) or not measures:
            return
        live, problem, _ = self._shown
        assert not isinstance(result.labels, list)
        error, balance = (float(measures[name][-1]) for name in ("fairness_error", "balance"))
        words = f"fairness error {error:.3g}, balance {balance:.2g}"
        self.fairness.show_result(problem, result.labels, result.columns, words, live.color)

    def _show_prototypes(
        self,
        prototypes: NDArray[np.floating],
        shares: NDArray[np.floating],
        columns: NDArray[np.int64],
    ) -> None:
        """Show the labels that own pixels, largest first; row k stands for label k + 1."""
        live, request = self.session.live, self.session.request
        if (live is None or request is None) and self._shown is not None:
            live, _, request = self._shown
        if live is None or request is None:
            return
        features, color = request.job.options.features, live.color
        order = sorted(range(len(columns)), key=lambda k: -shares[columns[k]])
        self.swatches.show_swatches(
            [
                Swatch(
                    fill_color(prototypes[k], features, color(columns[k])),
                    color(columns[k]),
                    f"label {k + 1}: {100 * shares[columns[k]]:.1f} % of the pixels",
                )
                for k in order
                if shares[columns[k]] > 0
            ]
        )

    def _on_failed(self, error: Exception) -> None:
        text = str(error) if isinstance(error, SafError) else f"{type(error).__name__}: {error}"
        self._show_error(text, _MASK_AND_RUN if isinstance(error, NotFinite) else "")

    def _on_abandoned(self) -> None:
        self.status.reset("stopped before the first labels")

    def _on_finished(self) -> None:
        self._clock.stop()
        if self.form.prototypes_field is not None:
            self.form.prototypes_field.refresh()
        self._show_what_is_possible()

    def _on_window_close_asked(self) -> None:
        if self._main_window is None or not self._main_window.isVisible():
            self.shut_down()

    def _show_what_is_possible(self) -> None:
        self._stop_button.setEnabled(self.session.is_running)

    def _show_error(self, text: str, way_on: str = "") -> None:
        self.status.show_error(text, way_on)
        show_error(text)


def _create_scroll_area(content: QWidget) -> QScrollArea:
    scroll = QScrollArea()
    scroll.setFrameShape(QFrame.Shape.NoFrame)
    scroll.setWidgetResizable(True)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(content)
    return scroll


def _count(n_labels: int) -> str:
    return f"{n_labels} label" if n_labels == 1 else f"{n_labels} labels"
