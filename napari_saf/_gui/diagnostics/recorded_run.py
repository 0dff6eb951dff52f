"""Recorded runs, and the layers that show their labels and entropy at an earlier time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.layers.live import LiveLayer, UncertaintyLayer
from napari_saf._gui.layers.metadata import colors_of, metadata_of
from napari_saf._gui.layers.view import visibility_of
from napari_saf._gui.runs.controller import RunController, RunsOfViewer
from napari_saf._gui.runs.run import RecordedStart, Run, RunJob
from napari_saf._gui.runs.task import BackgroundTasks
from napari_saf.errors import counted
from napari_saf.metrics import class_separability, pairwise_separability
from napari_saf.problem import Problem
from napari_saf.recording import RecordedLabels, RecordedState, Recording
from napari_saf.result import History, LabelImage, LabelMap, Segmentation

_LABELS, _ENTROPY = "labels", "entropy"
"""Keys of the background tasks."""
_MOST_RUNS = 2
"""Number of recordings in memory: the newest run and the one before."""


@dataclasses.dataclass(slots=True, eq=False)
class RecordedRun:
    """A recorded run of any dock; it is running as long as it has a controller.

    Painted classes keep their numbers; other labels are numbered by `label_map` once the run has
    finished. `previous` is the run that the layer shows until this one has a result.
    """

    controller: RunController | None
    run: Run
    recording: Recording
    previous: RecordedRun | None = None
    label_map: LabelMap | None = None

    @property
    def job(self) -> RunJob:
        return self.run.job

    @property
    def live(self) -> LiveLayer:
        return self.run.live

    @property
    def problem(self) -> Problem | None:
        return self.run.problem

    @property
    def is_running(self) -> bool:
        return self.controller is not None

    def shown_numbers(self, n_columns: int) -> NDArray[np.int64]:
        """Return the displayed number of each column: painted, by size, or in column order."""
        painted = self.run.classes
        shown = painted if painted.n_columns else self.label_map or self.recording.label_map
        return shown.extended(n_columns).numbers[:n_columns]

    def labels_at(self, recorded: RecordedLabels) -> LabelImage:
        labels = recorded.labels()[-1]
        painted = LabelMap(self.shown_numbers(int(labels.max(initial=0)))).paint(labels)
        return self.job.image_job.with_locked(painted)

    def job_from(self, recorded: RecordedState, job: RunJob, live: LiveLayer) -> RunJob:
        """Return a job that continues from a state of this run, in a layer."""
        start, recording = RecordedStart(recorded), self.recording.until(recorded)
        return dataclasses.replace(job, live=live, start=start, recording=recording, is_sweep=False)

    def state_near(self, time: float) -> RecordedState | None:
        states = self.recording.states
        return min(states, key=lambda state: abs(state.time - time), default=None)

    def describe(self, recorded: RecordedLabels) -> str:
        shares = self.recording.record(recorded.step).label_shares
        labels = counted(int(np.count_nonzero(shares)), "label")
        last = self.recording.record(-1).time
        return f"t = {recorded.time:.3g} of {last:.3g}: step {recorded.step}, {labels}"

    def entropies(self, state: RecordedState) -> NDArray[np.floating]:
        """Return the entropy of each pixel of the labelled image."""
        assert self.problem is not None
        image = self.problem.graph.to_image(state.entropies())
        return np.asarray(image[-1] if isinstance(image, list) else image)

    def separability(self, state: RecordedState) -> tuple[float, NDArray[np.float64]]:
        """Return the separability of all labels, and of each pair."""
        assert self.problem is not None
        features, labels = self.problem.features, state.columns() + 1
        return class_separability(features, labels), pairwise_separability(features, labels)

    def color(self, column: int) -> NDArray[np.float32]:
        if self.run.classes.n_columns or self.job.method.labels_are_given:
            column = int(self.shown_numbers(column + 1)[column]) - 1
        return self.live.color(column)


@dataclasses.dataclass(frozen=True)
class ContinueState:
    """Conditions under which a run can be resumed from the time of the slider."""

    is_recorded: bool = True  # at this time
    is_running: bool = False
    has_layers: bool = True  # the unchanged labels of the run, and its image
    is_busy: bool = False  # with a run of this dock

    @classmethod
    def of(cls, run: RecordedRun, has_image: bool) -> ContinueState:
        return cls(is_running=run.is_running, has_layers=has_image and not run.live.is_lost)


def why_disabled(state: ContinueState) -> str:
    """Return the reason why a run cannot be resumed from this time; empty if it can."""
    if not state.is_recorded:
        return "no state was recorded at this time"
    if state.is_running or state.is_busy:
        return "wait for the end of the run, or stop it"
    return "" if state.has_layers else "the image or the labels of the run were removed or changed"


class RecordedRuns(QObject):
    """Recordings of the runs of all docks: running ones and the newest finished ones.

    `runs` lists them, the newest last.
    """

    began = Signal(object)
    """Emitted with a run that is recorded."""
    ended = Signal(object)
    """Emitted with a recorded run that has ended."""
    unrecorded = Signal(object)
    """Emitted with the labels of a run that cannot be recorded."""
    forgotten = Signal(list)
    """Emitted with the runs that are no longer recorded."""

    def __init__(self, all_runs: RunsOfViewer) -> None:
        super().__init__()
        self._all_runs = all_runs
        self.runs: list[RecordedRun] = []
        all_runs.began.connect(self._on_began)
        all_runs.returned.connect(self._on_returned)
        all_runs.ended.connect(self._on_ended)

    def begin(self) -> None:
        """Record the runs that have begun already."""
        for controller in self._all_runs.running:
            self._on_began(controller)

    def release(self) -> None:
        self._all_runs.began.disconnect(self._on_began)
        self._all_runs.returned.disconnect(self._on_returned)
        self._all_runs.ended.disconnect(self._on_ended)
        for run in self.runs:
            run.run.recording = None  # no longer shown
        self.runs = []

    @property
    def running(self) -> list[tuple[str, RecordedRun]]:
        """The runs under way, with their titles."""
        return [(f"run {k + 1}", run) for k, run in enumerate(self.runs) if run.is_running]

    def _of(self, controller: RunController) -> RecordedRun | None:
        return next((run for run in self.runs if run.controller is controller), None)

    def _on_began(self, controller: RunController) -> None:
        began = controller.run
        recording = None if began is None else began.record()
        if began is None or recording is None:
            return
        runs = [run for run in self.runs if run.live is began.live]
        self.forget(runs)
        self.forget(self.runs[: len(self.runs) - _MOST_RUNS + 1])
        run = RecordedRun(controller, began, recording, runs[-1] if runs else None)
        self.runs.append(run)
        self.began.emit(run)

    def _on_returned(self, controller: RunController, result: Segmentation) -> None:
        run = self._of(controller)
        if run is not None:
            run.label_map, run.previous = result.label_map, None
        elif controller.live is not None:
            self.unrecorded.emit(controller.live.layer)

    def _on_ended(self, controller: RunController) -> None:
        """Keep a finished run, or the previous one if it has no result."""
        run = self._of(controller)
        if run is None:
            return
        run.controller = None
        if run.live.layer is None or run.live.is_lost:
            self.forget([run])
        elif run.previous is not None:
            self.runs = [run.previous if entry is run else entry for entry in self.runs]
        self.ended.emit(run)

    def forget(self, runs: Sequence[RecordedRun]) -> None:
        """Forget runs except running ones."""
        finished = [run for run in runs if not run.is_running]
        self.runs = [run for run in self.runs if run not in finished]
        self.forgotten.emit(finished)


def history_of(layer: Any) -> History | None:
    history = None if layer is None else metadata_of(layer).get("history")
    return history if isinstance(history, History) and len(history) else None


def color_of_column(layer: Any, column: int) -> NDArray[np.floating]:
    """Return the RGBA (4,) on a layer of a column of its run."""
    numbers = np.zeros(0, int) if layer is None else metadata_of(layer)["numbers"]
    if column >= len(numbers) or not numbers[column]:
        return np.array([0.5, 0.5, 0.5, 1.0])
    return np.asarray(colors_of(layer, numbers[column : column + 1])[0])


class EarlierLayers:
    """Layers with the labels and the entropy of a run at an earlier time.

    The result is unchanged, and hidden while earlier labels are shown. They are computed in the
    background.
    """

    def __init__(self, viewer: napari.Viewer, background: BackgroundTasks) -> None:
        self._viewer, self._background = viewer, background
        self._labels: LiveLayer | None = None
        self._entropy: UncertaintyLayer | None = None
        self._result: Any = None

    @property
    def labels(self) -> Any:
        """The displayed layer of earlier labels, or None."""
        return None if self._result is None or self._labels is None else self._labels.layer

    def show_labels(self, run: RecordedRun, recorded: RecordedLabels) -> None:
        show = partial(self._show_labels, run, recorded.time)
        self._background.run(_LABELS, lambda cancelled: run.labels_at(recorded), show)

    def _show_labels(self, run: RecordedRun, time: float, labels: LabelImage) -> None:
        result = run.live.layer
        if result is None or run.live.is_lost:
            return
        if self._labels is None or self._labels.is_lost:
            # Has the colours of the result and is placed below it.
            image, placement = run.job.image, run.live.placement
            self._labels = LiveLayer(self._viewer, image, "earlier", placement, result)
        self._labels.show(labels, int(labels.max(initial=0)))
        self._labels.layer.name = f"{result.name} at t = {time:.3g}"
        self._labels.layer.visible = True
        # Regions, or a later result, would cover this layer.
        index = run.job.image_job.pixels.index
        visibility_of(self._viewer).show_result(run.job.image, result, index)
        if self._result is None:
            self._labels.recolor()
            self._result = result
        result.visible = False
        self._select(self._labels.layer, result)

    def show_result(self) -> None:
        self._background.drop(_LABELS)
        result, self._result = self._result, None
        if result is None or self._labels is None:
            return
        for layer, is_visible in ((self._labels.layer, False), (result, True)):
            if layer in self._viewer.layers:
                layer.visible = is_visible
        self._select(result, self._labels.layer)

    def _select(self, shown: Any, hidden: Any) -> None:
        """Select the layer in view if the hidden one is selected."""
        selection = self._viewer.layers.selection
        if selection.active is not None and selection.active == hidden:
            selection.active = shown if shown in self._viewer.layers else None

    def show_entropy(self, run: RecordedRun, state: RecordedState) -> None:
        show = partial(self._show_entropy, run, state.time)
        self._background.run(_ENTROPY, lambda cancelled: run.entropies(state), show)

    def _show_entropy(self, run: RecordedRun, time: float, values: NDArray[np.floating]) -> None:
        if self._entropy is None:
            placement = run.live.placement
            self._entropy = UncertaintyLayer(
                self._viewer, run.job.image, "entropy", placement, full=1.0, covers=True
            )
        is_new = self._entropy.layer not in self._viewer.layers
        self._entropy.show(values)
        self._entropy.layer.name = f"{run.job.image.name} entropy at t = {time:.3g}"
        if is_new and run.live.layer in self._viewer.layers:
            self._viewer.layers.selection.active = run.live.layer

    def hide_entropy(self) -> None:
        self._background.drop(_ENTROPY)
        if self._entropy is not None:
            self._entropy.hide()

    def forget(self, *, keeps_layers: bool = False) -> None:
        """Show the result again, and remove the layers unless `keeps_layers`."""
        for task in (_LABELS, _ENTROPY):
            self._background.drop(task)
        if not keeps_layers:
            self.show_result()
            for live in (self._labels, self._entropy):
                if live is not None and live.layer in self._viewer.layers:
                    self._viewer.layers.remove(live.layer)
        self._labels = self._entropy = self._result = None
