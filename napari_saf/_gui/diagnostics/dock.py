"""The Diagnostics dock: how a run went, back in time, and on from there."""

from __future__ import annotations

import dataclasses
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QCheckBox, QLabel, QSlider

from napari_saf._gui.diagnostics.recorded_run import EarlierLayers, RecordedRun
from napari_saf._gui.diagnostics.sections import BranchForm, SeparabilityTable
from napari_saf._gui.docks.run_dock import RunDock, count_labels
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.curves import CurvePlot, curves_of
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.runs.controller import RunController, run_registry
from napari_saf._gui.runs.start import RecordedStart
from napari_saf.metrics import class_separability, pairwise_separability
from napari_saf.recording import RecordedLabels, RecordedState
from napari_saf.result import STATUS_TEXTS, History, LabelImage, Segmentation

_REFRESH_MILLISECONDS = 250
_MOST_POINTS = 150
_MOST_RUNS = 2
"""Number of recordings in memory: the newest run and the one before."""
_NOTHING = "Run a method in any dock: its curves come up here."
_NOT_RECORDED = (
    "Earlier labels were not recorded: to use the time slider, have this dock open during a run."
)
_TIME_HELP = (
    "Go back in time: the labels at any recorded time are shown in a layer of their own; at the "
    "right end the result is back."
)


class DiagnosticsWidget(RunDock):
    """Record the runs of all docks, show any recorded state and branch from it.

    Attributes
    ----------
    earlier : EarlierLayers
        What shows labels and entropy at the time of the slider.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._runs: list[RecordedRun] = []
        self._run: RecordedRun | None = None
        self._history: History | None = None
        self._times: NDArray[np.float64] = np.zeros(0)
        self._recorded_labels: tuple[RecordedLabels, ...] = ()
        self.plot = CurvePlot()
        self.earlier = EarlierLayers(viewer)
        self.separability = SeparabilityTable()
        self.branch = BranchForm(viewer)
        self._create_controls()
        self._connect()
        self._show_chosen()
        self.run_in_background("load", _load_plots, lambda _: self.plot.prepare())
        run_registry(viewer).watch(self)

    @property
    def time(self) -> float:
        """The time of the slider."""
        place = self._slider.value()
        return float(self._times[place]) if 0 <= place < len(self._times) else 0.0

    @property
    def times(self) -> NDArray[np.float64]:
        """The times that the slider goes through."""
        return self._times

    def go_to(self, time: float) -> None:
        """Put the slider at the recorded time that is nearest."""
        if len(self._times):
            self._slider.setValue(int(np.abs(self._times - time).argmin()))

    def choose(self, layer: Any) -> None:
        """Show the run that made a layer."""
        self._choice.choose(layer)

    def resume(self) -> None:
        """Go on from the time of the slider as the run did, in its layer."""
        run, recorded = self._run, self._state()
        if run is None or recorded is None or not self._may_start(run):
            return
        self._start_from(run, recorded, dataclasses.replace(run.job, live=run.live))
        run.live.layer.visible = True

    def start_branch(self) -> None:
        """Go on from the time of the slider with other parameters, in a layer of its own."""
        run, recorded = self._run, self._state()
        if run is None or recorded is None or not self._may_start(run):
            return
        self.branch.show_job(run.job)
        with self._showing_errors():
            job = self.branch.job()
            title = f"{job.method.name.upper()} from t = {recorded.time:.3g}"
            live = LiveLayer(self._viewer, job.image, title, job.placement, job.strokes)
            self._start_from(run, recorded, dataclasses.replace(job, live=live))

    def run_began(self, controller: RunController) -> None:
        """Follow a run."""
        recording, job, live = controller.record(), controller.job, controller.live
        if recording is None or job is None or live is None:
            return
        own_layer = [run for run in self._runs if run.live is live]
        self._forget_runs(own_layer)
        self._forget_runs(self._runs[: len(self._runs) - _MOST_RUNS + 1])
        run = RecordedRun(controller, job, live, recording)
        run.before = own_layer[-1] if own_layer else None
        self._runs.append(run)
        self._choice.set_others([("the run under way", run)])
        self._choice.choose(run)
        self._timer.start()

    def run_returned(self, controller: RunController, result: Any) -> None:
        """Take note of how labels are numbered at the end."""
        run = self._run_of(controller)
        if run is not None:
            run.note()
            run.columns, run.before = result.columns, None
        elif controller.live is not None:
            self._choice.refresh()
            self._choice.choose(controller.live.layer)

    def run_ended(self, controller: RunController) -> None:
        """Show what is left of a run."""
        run = self._run_of(controller)
        if run is None or self._lifetime.has_ended:
            return
        was_shown, place = run is self._run and not self._is_at_end, self._slider.value()
        run.controller = None
        if run.live.layer is None or run.live.is_lost:
            self._forget_runs([run])
        elif run.before is not None:
            self._runs = [run.before if other is run else other for other in self._runs]
        under_way = [(f"run {k + 1}", run) for k, run in enumerate(self._runs) if run.is_running]
        if not under_way:
            self._timer.stop()
        self._choice.set_others(under_way)
        self._choice.choose(run.live.layer)
        if was_shown and self._run is run:
            self._slider.setValue(place)

    def _create_controls(self) -> None:
        self._choice = LayerChoice(self._viewer, self._may_be_shown)
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setPageStep(1)
        self._description = QLabel()
        self._description.setWordWrap(True)
        self._resume = create_button(
            "Resume",
            "Go on from here as the run did, in the same layer. For the flows the end is the same "
            "but for few pixels.",
            self.resume,
        )
        self._entropy = QCheckBox("Show where it is undecided (entropy)")
        self._entropy.setToolTip(
            "A layer with the entropy of each pixel's soft labels at this time: 0 decided, 1 no "
            "preference."
        )
        self._timer = QTimer(self)
        self._timer.setInterval(_REFRESH_MILLISECONDS)
        rows = FormSection()
        rows.add_row("Result", self._choice, "The run to look at.")
        rows.add_row("Time", self._slider, _TIME_HELP)
        self._apart = create_fold("How far apart are the labels?", self.separability)
        self._branch_fold = create_fold("Branch: go on with other parameters", self.branch)
        self._lay_out(
            [rows, self._description, self.plot, self._entropy, self._apart, self._branch_fold],
            [self._resume, self._stop_button],
            [],
        )

    def _connect(self) -> None:
        for signal, slot in (
            (self._choice.layer_changed, self._show_chosen),
            (self._slider.valueChanged, self._on_slider_moved),
            (self.plot.moved, self.go_to),
            (self._entropy.toggled, self._show_entropy),
            (self._apart.toggled, self._show_separability),
            (self._branch_fold.toggled, self._show_branch),
            (self.branch.button.clicked, self.start_branch),
            (self._timer.timeout, self._on_timer),
        ):
            signal.connect(slot)
        self._viewer.layers.events.removed.connect(self._on_layer_removed)

    def _release(self) -> None:
        run_registry(self._viewer).unwatch(self)
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        self._timer.stop()
        self.plot.release()
        self._choice.disconnect_viewer()
        self.branch.release()
        if self._lifetime.has_window:
            self.earlier.forget()
        self.earlier.let_go()
        self._runs, self._run, self._history, self._recorded_labels = [], None, None, ()

    def _start_from(self, run: RecordedRun, recorded: RecordedState, job: Any) -> None:
        self.earlier.show_result()
        job = dataclasses.replace(
            job,
            is_sweep=False,
            start=RecordedStart(recorded),
            recording=run.recording.until(recorded),
        )
        self.controller.start(job)

    def _may_start(self, run: RecordedRun) -> bool:
        return not (run.is_running or run.live.is_lost) and run.job.image in self._viewer.layers

    def _may_be_shown(self, layer: object) -> bool:
        if not isinstance(layer, Labels):
            return False
        own = any(run.live.layer == layer and not run.is_running for run in self._runs)
        return own or _history_of(layer) is not None

    def _run_of(self, controller: RunController) -> RecordedRun | None:
        return next((run for run in self._runs if run.controller is controller), None)

    def _forget_runs(self, runs: list[RecordedRun]) -> None:
        gone = [run for run in runs if not run.is_running]
        self._runs = [run for run in self._runs if run not in gone]
        if self._run in gone:
            self.earlier.forget()
            self._run = None

    def _state(self) -> RecordedState | None:
        """Return the recorded soft labels nearest to the time of the slider."""
        return None if self._run is None else self._run.state_near(self.time)

    @property
    def _is_at_end(self) -> bool:
        return bool(self._slider.value() >= self._slider.maximum())

    def _show_chosen(self, layer: object = None) -> None:
        """Show the run that is chosen, from its end."""
        chosen = self._choice.value
        if isinstance(chosen, RecordedRun):
            run: RecordedRun | None = chosen
        else:
            own = [r for r in self._runs if chosen is not None and r.live.layer == chosen]
            run = own[-1] if own else None
        if run is not self._run:
            self.earlier.forget()
            self._entropy.setChecked(False)
        if run is None or run is not self._run:
            self.branch.release()
        self._run = run
        self._history = None if chosen is None or run is not None else _history_of(chosen)
        self._show_branch()
        self._refresh(is_at_end=True)
        self._show_separability()

    def _show_branch(self) -> None:
        """Build the form of a branch once it is visible: most runs are not branched."""
        if self._run is not None and self._branch_fold.isExpanded():
            self.branch.show_job(self._run.job)

    def _refresh(self, *, is_at_end: bool) -> None:
        """Show curves, the range of the slider, and what is possible, as they are now."""
        at = self.time
        run, history = self._run, self._history
        self._recorded_labels = () if run is None else run.recording.labels
        if run is not None:
            history = run.recording.history(_MOST_POINTS)
        if history is None or not len(history):
            self._times = np.zeros(0)
            self.plot.hide()
        else:
            times = np.array([recorded.time for recorded in self._recorded_labels])
            self._times = times if run is not None else history.time
            self.plot.show_curves(history.time, curves_of(history), self._color)
        blocked = self._slider.blockSignals(True)
        self._slider.setRange(0, max(0, len(self._times) - 1))
        end = self._slider.maximum()
        place = end if is_at_end or not len(self._times) else np.abs(self._times - at).argmin()
        self._slider.setValue(int(place))
        self._slider.blockSignals(blocked)
        self._show_time()

    def _color(self, column: int) -> NDArray[np.floating]:
        if self._run is not None:
            return self._run.color(column)
        layer = self._choice.layer
        columns = [] if layer is None else layer.metadata[METADATA_KEY]["columns"].tolist()
        if column not in columns:
            return np.array([0.5, 0.5, 0.5, 1.0])
        return np.asarray(layer.get_color(columns.index(column) + 1), dtype=float)

    def _on_timer(self) -> None:
        if self._run is not None and self._run.is_running:
            self._run.note()
            # Behind another tab a dock counts as visible, too.
            if not self.visibleRegion().isEmpty():
                self._refresh(is_at_end=self._is_at_end)

    def _on_slider_moved(self) -> None:
        self._show_time()
        self._show_labels()
        self._show_entropy()
        self._show_separability()

    def _show_time(self) -> None:
        """Move the cursor to the time of the slider and update its label."""
        self.plot.move_cursor(self.time)
        self._description.setText(self._describe())
        state = self._state()
        self._resume.setText("Resume" if state is None else f"Resume from t = {state.time:.3g}")
        self.branch.button.setText(
            "Branch" if state is None else f"Branch from t = {state.time:.3g}"
        )
        self._update_enabled()

    def _describe(self) -> str:
        if self._run is None:
            return _NOTHING if self._history is None else _NOT_RECORDED
        if not len(self._times):
            return "preparing …"
        recorded = self._recorded_labels[self._slider.value()]
        shares = self._run.recording.record(recorded.step).label_shares
        labels = count_labels(int(np.count_nonzero(shares)))
        last = self._run.recording.record(-1).time
        return f"t = {recorded.time:.3g} of {last:.3g}: step {recorded.step}, {labels}"

    def _show_labels(self) -> None:
        """Show the labels at the time of the slider; at the end the result itself."""
        run, place = self._run, self._slider.value()
        if run is None or self._is_at_end or place >= len(self._recorded_labels):
            self.earlier.show_result()
            return
        recorded = self._recorded_labels[place]
        self.run_in_background(
            "labels",
            lambda cancelled: (run, recorded, run.labels_at(recorded)),
            self._on_labels_read,
        )

    def _on_labels_read(self, read: tuple[RecordedRun, RecordedLabels, LabelImage]) -> None:
        run, recorded, labels = read
        if run is not self._run or self._is_at_end or self._lifetime.has_ended:
            return
        self.earlier.show_labels(run, labels, recorded.time)

    def _show_entropy(self) -> None:
        run, state = self._run, self._state()
        if not self._entropy.isChecked() or run is None or state is None or run.problem is None:
            self.earlier.hide_entropy()
            return
        graph = run.problem.graph

        def compute(cancelled: object) -> Any:
            image = graph.to_image(state.entropies())
            return run, state.time, image[-1] if isinstance(image, list) else image

        self.run_in_background("entropy", compute, self._on_entropy_computed)

    def _on_entropy_computed(self, found: tuple[RecordedRun, float, NDArray[np.floating]]) -> None:
        run, time, image = found
        if run is self._run and self._entropy.isChecked() and not self._lifetime.has_ended:
            self.earlier.show_entropy(run, image, time)

    def _show_separability(self) -> None:
        """Compute how far apart labels are, if anybody wants to see it."""
        run, state = self._run, self._state()
        if not self._apart.isExpanded():
            return
        if run is None or state is None or run.problem is None or run.is_running:
            self.separability.show_message("Shown when a recorded run is over.")
            return
        features = run.problem.features

        def compute(cancelled: object) -> Any:
            labels = state.columns() + 1
            whole = class_separability(features, labels)
            return run, whole, pairwise_separability(features, labels)

        self.run_in_background("apart", compute, self._on_separability_computed)

    def _on_separability_computed(
        self, found: tuple[RecordedRun, float, NDArray[np.float64]]
    ) -> None:
        run, whole, pairs = found
        if run is self._run and not self._lifetime.has_ended:
            numbers = run.shown_numbers(len(pairs))
            self.separability.show_separability(whole, pairs, numbers, run.color)

    def _on_layer_removed(self, event: Any) -> None:
        """Forget the runs of a layer that is gone."""
        if event.value == self.earlier.labels:
            self._slider.setValue(self._slider.maximum())
        gone = (event.value,)
        self._forget_runs(
            [run for run in self._runs if run.live.layer in gone or run.job.image in gone]
        )
        self._choice.refresh()
        if self._run is None:
            self._show_chosen()

    def _on_returned(self, result: Segmentation) -> None:
        outcome = f"{STATUS_TEXTS[result.status]}: {count_labels(result.n_labels)}"
        text = f"{outcome} in {self.controller.seconds:.1f} s"
        self.status.show_progress(1.0, "\n".join([text, *result.notes]))

    def _update_enabled(self) -> None:
        super()._update_enabled()
        run, state = self._run, self._state()
        can_go_on = run is not None and state is not None and self._may_start(run)
        self._resume.setEnabled(can_go_on)
        self.branch.button.setEnabled(can_go_on and not self.controller.is_running)
        self._entropy.setEnabled(state is not None)
        self._slider.setEnabled(len(self._times) > 1)


def _history_of(layer: Any) -> History | None:
    entry = layer.metadata.get(METADATA_KEY)
    history = entry.get("history") if isinstance(entry, dict) else None
    return history if isinstance(history, History) and len(history) else None


def _load_plots(cancelled: object) -> None:
    """Load what draws the curves: 0.4 s for which the screen should not have to wait."""
    import matplotlib.backends.backend_qtagg
    import matplotlib.figure  # noqa: F401
