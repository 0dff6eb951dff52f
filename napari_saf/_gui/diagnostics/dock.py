"""The Diagnostics dock: curves of a run, its labels at earlier times, and branches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QCheckBox, QLabel
from superqt.utils import signals_blocked

from napari_saf._gui.diagnostics.recorded_run import (
    ContinueState,
    EarlierLayers,
    RecordedRun,
    RecordedRuns,
    color_of_column,
    history_of,
    why_disabled,
)
from napari_saf._gui.diagnostics.sections import (
    BRANCH_HELP,
    BranchForm,
    CurvePlot,
    SeparabilityTable,
    TimeSlider,
    curves_of,
)
from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, enable
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf.recording import RecordedLabels, RecordedState

REFRESH_MILLISECONDS = 250
_MOST_POINTS = 150
_NOTHING = "Run a method in any dock to see its curves here."
_NOT_RECORDED = (
    "Earlier labels are not recorded: only the two newest runs are, and while this dock is open."
)
_TIME_HELP = (
    "Show the labels at any recorded time in a separate layer; the right end shows the result."
)
_RESUME_HELP = (
    "Resume the run from this time, in the same layer. For the flows, the result is the same "
    "except for few pixels."
)
_ENTROPY_HELP = (
    "A layer with the entropy of each pixel's soft labels at this time: 0 decided, 1 no preference."
)


class DiagnosticsWidget(DockBase):
    """Records the runs of all docks, shows any recorded state and branches from it.

    `earlier` are the layers of earlier times.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs)
        self.status, self.controller = self.panel.status, self.panel.controller
        self.recordings = RecordedRuns(self.workspace.runs)
        self.recorded: RecordedRun | None = None
        self._recorded_labels: tuple[RecordedLabels, ...] = ()
        self.plot = CurvePlot()
        self.earlier = EarlierLayers(viewer, self.panel.background)
        self.separability = SeparabilityTable(self.panel.background)
        self.branch = BranchForm(viewer)
        self._create_controls()
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(self.panel.shut_down, self._release)
        self.connect_all(
            (self.panel.busy_changed, self._refresh_buttons),
            (self.choice.layer_changed, self._show_chosen),
            (self.choice.activated, self.panel.forget),
            (self.slider.valueChanged, self._on_slider_moved),
            (self.plot.moved, self.slider.go_to),
            (self.entropy.toggled, self._show_entropy),
            (self.apart_fold.toggled, self._show_separability),
            (self.branch_fold.toggled, self._show_branch),
            (self.resume_button.clicked, lambda: self._continue(is_branch=False)),
            (self.branch.button.clicked, lambda: self._continue(is_branch=True)),
            (self._timer.timeout, self._on_timer),
            (viewer.layers.events.removed, self._on_layer_removed),
            (self.recordings.began, self._on_run_began),
            (self.recordings.ended, self._on_run_ended),
            (self.recordings.unrecorded, self._on_unrecorded),
            (self.recordings.forgotten, self._on_forgotten),
        )
        self._show_chosen()
        self.recordings.begin()

    def _continue(self, *, is_branch: bool) -> None:
        """Resume from the time of the slider, in the layer of the run or as a branch."""
        run, recorded = self.recorded, self._state()
        if run is None or recorded is None or why_disabled(self._continue_state()):
            return
        with self.panel.showing_errors():
            job, live = run.job, run.live
            if is_branch:
                self.branch.show_job(job)
                job = self.branch.job()
                title = f"{job.method.name.upper()} from t = {recorded.time:.3g}"
                job = dataclasses.replace(job, title=title)
                live = job.create_layer(self._viewer)
            self.earlier.show_result()
            self.controller.start(run.job_from(recorded, job, live))
            if not is_branch:
                live.layer.visible = True

    @property
    def runs(self) -> list[RecordedRun]:
        return self.recordings.runs

    def _on_run_began(self, run: RecordedRun) -> None:
        self.choice.set_others([("current run", run)])
        self.choice.choose(run)
        self._timer.start()

    def _on_unrecorded(self, layer: Any) -> None:
        self.choice.refresh()
        self.choice.choose(layer)

    def _on_run_ended(self, run: RecordedRun) -> None:
        was_shown, index = run is self.recorded and not self.slider.is_at_end, self.slider.value()
        under_way = self.recordings.running
        if not under_way:
            self._timer.stop()
        self.choice.set_others(under_way)
        self.choice.choose(run.live.layer)
        if was_shown and self.recorded is run:
            self.slider.setValue(index)

    def _on_forgotten(self, runs: Sequence[RecordedRun]) -> None:
        if self.recorded in runs:
            self._leave_run()

    def _create_controls(self) -> None:
        self.choice = LayerChoice(self._viewer, Labels, self._may_be_shown)
        self.slider = TimeSlider()
        self.description = QLabel(wordWrap=True)
        self.resume_button = create_button("Resume", _RESUME_HELP)
        text = "Show where it is undecided (entropy)"
        self.entropy = QCheckBox(text, toolTip=_ENTROPY_HELP)
        self._timer = QTimer(self, interval=REFRESH_MILLISECONDS)
        rows = FormSection()
        rows.add_row("Result", self.choice, "The run to show.")
        rows.add_row("Time", self.slider, _TIME_HELP)
        self.apart_fold = create_fold("How far apart are the labels?", self.separability)
        self.branch_fold = create_fold("Branch: continue with other parameters", self.branch)
        self.lay_out(
            [rows, self.description, self.plot, self.entropy, self.apart_fold, self.branch_fold],
            [self.resume_button, self.panel.stop_button],
            [self.status],
        )

    def _release(self) -> None:
        self.recordings.release()
        self._timer.stop()
        self.branch.release()
        self.earlier.forget(keeps_layers=not self.lifetime.has_window)
        self.recorded, self._recorded_labels = None, ()
        self.choice.set_others([])

    def _continue_state(self) -> ContinueState:
        run = self.recorded
        if run is None or self._state() is None:
            return ContinueState(is_recorded=False)
        return ContinueState.of(run, run.job.image in self._viewer.layers)

    def _may_be_shown(self, layer: Labels) -> bool:
        is_recorded = any(run.live.layer == layer and not run.is_running for run in self.runs)
        return is_recorded or history_of(layer) is not None

    def _leave_run(self) -> None:
        self.earlier.forget()
        self.branch.release()
        self.recorded = None

    def _state(self) -> RecordedState | None:
        return None if self.recorded is None else self.recorded.state_near(self.slider.time)

    def _show_chosen(self, layer: object = None) -> None:
        chosen = self.choice.value
        runs = [run for run in self.runs if chosen in (run, run.live.layer)]
        run = runs[-1] if runs and chosen is not None else None
        if run is not self.recorded:
            self._leave_run()
            self.entropy.setChecked(False)
        self.recorded = run
        self._show_branch()
        with signals_blocked(self.slider):
            self.slider.go_to_end()
        self.refresh()
        self._show_separability()

    def _show_branch(self) -> None:
        """Create the form of a branch when it becomes visible, as most runs have none."""
        if self.recorded is not None and self.branch_fold.isExpanded():
            self.branch.show_job(self.recorded.job)

    def refresh(self) -> None:
        """Update curves, slider and buttons."""
        run, layer, times = self.recorded, self.choice.layer, np.zeros(0)
        history = history_of(layer) if run is None else run.recording.history(_MOST_POINTS)
        self._recorded_labels = () if run is None else run.recording.labels
        if history is None or not len(history):
            self.plot.hide()
        else:
            recorded = np.array([labels.time for labels in self._recorded_labels])
            times = history.time if run is None else recorded
            self.plot.show_curves(history.time, curves_of(history), self._color)
        self.slider.set_times(times)
        self._show_time()

    def _color(self, column: int) -> NDArray[np.floating]:
        run = self.recorded
        return color_of_column(self.choice.layer, column) if run is None else run.color(column)

    def _on_timer(self) -> None:
        is_running = self.recorded is not None and self.recorded.is_running
        if is_running and not self.visibleRegion().isEmpty():  # else hidden behind another tab
            self.refresh()

    def _on_slider_moved(self) -> None:
        self._show_time()
        self._show_labels()
        self._show_entropy()
        self._show_separability()

    def _show_time(self) -> None:
        self.plot.move_cursor(self.slider.time)
        self.description.setText(self._describe())
        state = self._state()
        start = "" if state is None else f" from t = {state.time:.3g}"
        self.resume_button.setText(f"Resume{start}")
        self.branch.button.setText(f"Branch{start}")
        self._refresh_buttons()

    def _describe(self) -> str:
        if self.recorded is None:
            return _NOT_RECORDED if len(self.slider.times) else _NOTHING
        if not len(self.slider.times):
            return "preparing …"
        return self.recorded.describe(self._recorded_labels[self.slider.value()])

    def _show_labels(self) -> None:
        run, index = self.recorded, self.slider.value()
        if run is None or self.slider.is_at_end or index >= len(self._recorded_labels):
            self.earlier.show_result()
        else:
            self.earlier.show_labels(run, self._recorded_labels[index])

    def _show_entropy(self) -> None:
        run, state = self.recorded, self._state()
        if not self.entropy.isChecked() or run is None or state is None or run.problem is None:
            self.earlier.hide_entropy()
        else:
            self.earlier.show_entropy(run, state)

    def _show_separability(self) -> None:
        """Compute the separability of the labels, if its section is open."""
        run, state = self.recorded, self._state()
        if not self.apart_fold.isExpanded():
            return
        if run is None or state is None or run.problem is None or run.is_running:
            self.separability.show_message("Shown when a recorded run has finished.")
        else:
            self.separability.show_state(run, state)

    def _on_layer_removed(self, event: Any) -> None:
        if event.value == self.earlier.labels:
            self.slider.go_to_end()
        layer = event.value
        self.recordings.forget([r for r in self.runs if layer in (r.live.layer, r.job.image)])
        self.choice.refresh()
        if self.recorded is None:
            self._show_chosen()

    def _refresh_buttons(self) -> None:
        state = self._continue_state()
        enable(self.resume_button, why_disabled(state), _RESUME_HELP)
        state = dataclasses.replace(state, is_busy=self.controller.is_running)
        enable(self.branch.button, why_disabled(state), BRANCH_HELP)
        self.entropy.setEnabled(state.is_recorded)
