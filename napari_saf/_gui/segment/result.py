"""The result displayed by the Segment dock, its swatches, and the Resume button."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.forms.controls import Swatch, Swatches, fill_colors
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import create_button
from napari_saf._gui.layers.live import EditedLayer, LiveLayer
from napari_saf._gui.layers.metadata import (
    RESTORED_KEY,
    is_regions,
    metadata_of,
    prototypes_of,
    recipe_of,
    restored_layers,
)
from napari_saf._gui.layers.reading import ImageJob, fingerprint
from napari_saf._gui.layers.view import EventWatch
from napari_saf._gui.runs.controller import RunController
from napari_saf._gui.runs.panel import Suggestion
from napari_saf._gui.runs.run import Frame, Run, RunJob, StoppedStart
from napari_saf._gui.runs.task import BackgroundTasks
from napari_saf.errors import SafError
from napari_saf.features import Foreground
from napari_saf.io import count_labels
from napari_saf.methods import TradeOffPoint
from napari_saf.parameters import to_plain
from napari_saf.pipeline import Pipeline
from napari_saf.problem import Problem
from napari_saf.result import LabelMap, Segmentation, Status

_RESUME_HELP = "Resume the stopped run, with its settings, in the same layer."


class ShownResult(QObject):
    """The layer and job of the last run on the chosen image, or of an opened project, or None.

    Runs that apply a recipe are ignored. `started` emits the first frame of a run, `advanced`
    every frame; `shown` the segmentation, ordered by displayed label; `taken_up` the layer of
    regions of a project, or None.
    """

    cleared = Signal()
    started = Signal(object)
    advanced = Signal(object)
    shown = Signal(object)
    taken_up = Signal(object)

    def __init__(
        self,
        parent: QObject,
        viewer: napari.viewer.Viewer,
        controller: RunController,
        chosen: ImageInput,
    ) -> None:
        super().__init__(parent)
        self._viewer, self.controller, self._chosen = viewer, controller, chosen
        self.live: LiveLayer | None = None
        self.job: RunJob | None = None
        self.problem: Problem | None = None  # None for a project
        self._run: Run | None = None
        self._pipeline: Pipeline | None = None  # for a project
        self._checksum: int | None = None  # of the labels at the end of the run
        self._has_started = False
        controller.began.connect(self._on_began)
        controller.advanced.connect(self._on_advanced)
        controller.returned.connect(self._on_returned)
        chosen.image_changed.connect(self._on_image_changed)

    @property
    def layer(self) -> Any:
        return None if self.live is None else self.live.layer

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline that made the labels."""
        return self._pipeline if self._run is None else self._run.pipeline

    def layer_for(self, job: RunJob) -> LiveLayer | None:
        """Return the layer to reuse: that of an equal job, not edited since; else None."""
        live, previous = self.live, self.job
        if live is None or previous is None or live.is_lost or self._checksum is None:
            return None
        is_plain = not any(run.is_sweep or run.strokes is not None for run in (job, previous))
        if not (is_plain and previous.image == job.image and _is_same(previous, job)):
            return None
        is_whole = metadata_of(live.layer).get("status") != Status.CANCELLED.value
        is_kept = fingerprint(live.layer.data, None) == self._checksum
        return live if is_whole and is_kept else None

    def show_solution(self, point: TradeOffPoint) -> None:
        """Show a solution of a sweep in the layer."""
        if self.live is None or self.problem is None or self.controller.run is not None:
            return
        self.live.finish(point.segmentation, self.problem.graph)
        self.shown.emit(point.segmentation)

    def clear(self) -> None:
        """Forget the result, without changing its layer."""
        self.live = self.job = self.problem = self._run = self._pipeline = self._checksum = None
        self.cleared.emit()

    def take_up(self, event: Any = None) -> bool:
        """Adopt the topmost labels of an opened project that are not from strokes."""
        image = self._chosen.image
        is_other = event is not None and RESTORED_KEY not in event.value.metadata
        is_busy = self.problem is not None or self.controller.run is not None
        if is_other or image is None or is_busy:
            return False
        layers = restored_layers(self._viewer, image)
        for layer in reversed([x for x in layers if not is_regions(x)]):
            with suppress(SafError):  # no recipe, such as labels from strokes
                pipeline = recipe_of(layer)
                job = RunJob.of(layer, image, pipeline)
                if pipeline.prototypes is None:
                    self.live, self.job = EditedLayer(self._viewer, image, layer), job
                    self._run, self._pipeline = None, pipeline
                    title = f"[{self.live.title}, regions]"
                    regions = [x for x in layers if is_regions(x) and title in x.name]
                    self.taken_up.emit(regions[-1] if regions else None)
                    return True
        return False

    def _on_began(self, job: RunJob) -> None:
        self._has_started = False
        if not job.is_applied:
            self.clear()

    def _on_advanced(self, frame: Frame) -> None:
        if self._is_applied:
            return
        if not self._has_started:
            self._has_started = True
            self.started.emit(frame)
        self.advanced.emit(frame)

    def _on_returned(self, result: Segmentation) -> None:
        run = self.controller.run
        if self._is_applied or run is None:
            return
        if run.live.is_lost or run.job.image != self._chosen.image:
            self.clear()
        elif run.problem is not None:
            self.live, self.job, self.problem, self._run = run.live, run.job, run.problem, run
            self._checksum = fingerprint(run.live.layer.data, None)
            self.shown.emit(run.by_label(result))

    def _on_image_changed(self) -> None:
        if self.controller.run is None:
            self.clear()

    @property
    def _is_applied(self) -> bool:
        run = self.controller.run
        return run is None or run.job.is_applied


def _is_same(first: RunJob, second: RunJob) -> bool:
    """Return whether two jobs label the same pixels with the same settings."""
    previous, job = first.image_job, second.image_job

    def of_layers(job: ImageJob) -> bool:
        return any(source is not None for source in (job.mask, job.groups, job.features))

    return (
        job.pixels.data is previous.pixels.data
        and (job.pixels.index, job.finite_only) == (previous.pixels.index, previous.finite_only)
        and job.options == previous.options
        and not (of_layers(job) or of_layers(previous))
        and to_plain(first.method) == to_plain(second.method)
    )


class LabelSwatches(Swatches):
    """Swatches of the prototypes of non-empty labels, largest first."""

    def __init__(self, result: ShownResult, background: BackgroundTasks) -> None:
        super().__init__()
        self._result, self._background = result, background
        result.cleared.connect(self._on_cleared)
        result.advanced.connect(self._on_advanced)
        result.shown.connect(self._on_shown)
        result.taken_up.connect(self._on_taken_up)

    def show_labels(
        self,
        live: LiveLayer,
        job: RunJob,
        prototypes: NDArray[np.floating],
        shares: NDArray[np.floating],
        columns: NDArray[np.int64],
    ) -> None:
        """Show labels; row k of `prototypes` and entry k of `columns` are those of label k + 1."""
        features = job.image_job.options.features
        order = sorted(np.flatnonzero(columns >= 0), key=lambda k: -shares[columns[k]])
        swatches, borders = [], [live.color_of(k + 1) for k in range(len(prototypes))]
        fills = fill_colors(prototypes, features, np.array(borders))
        for k in order:
            share, border = shares[columns[k]], live.color_of(int(k) + 1)
            if share > 0:
                fill = fills[k] if k < len(fills) else border
                text = f"label {k + 1}: {100 * share:.1f} % of the pixels"
                swatches.append(Swatch(fill, border, text))
        self.show_swatches(swatches)

    def _on_cleared(self) -> None:
        self.show_swatches([])

    def _on_advanced(self, frame: Frame) -> None:
        run, label_map = self._result.controller.run, LabelMap(frame.numbers)
        assert run is not None
        rows = label_map.rows(frame.prototypes)
        self.show_labels(run.live, run.job, rows, frame.shares, label_map.columns)

    def _on_shown(self, result: Segmentation) -> None:
        live, job = self._result.live, self._result.job
        if live is not None and job is not None and len(result.history):
            shares = result.history.label_shares[-1]
            self.show_labels(live, job, result.prototypes, shares, result.columns)

    def _on_taken_up(self, regions: Any) -> None:
        live, job = self._result.live, self._result.job
        assert live is not None and job is not None
        labels, prototypes = live.labels(), prototypes_of(live.layer)
        rows = np.zeros((0, 1)) if prototypes is None else prototypes

        def show(counts: tuple[NDArray[Any], NDArray[Any]]) -> None:
            numbers, sizes = counts
            if self._result.live is live:
                self.show_labels(live, job, rows, sizes / sizes.sum(), LabelMap(numbers).columns)

        self._background.run("shares", lambda cancelled: count_labels(labels), show)


class StoppedRun(QObject):
    """A button that resumes a stopped run, visible while that is possible.

    It is not once the image or the result was removed, another run wrote to the result, or the
    strokes were edited.
    """

    def __init__(
        self,
        parent: QObject,
        viewer: napari.viewer.Viewer,
        controller: RunController,
        result: ShownResult,
    ) -> None:
        super().__init__(parent)
        self._viewer, self._controller, self._result = viewer, controller, result
        self._job: tuple[RunJob, LiveLayer, Segmentation] | None = None  # with its outcome
        self._checksum = 0
        self.button = create_button("Resume", _RESUME_HELP, self.resume)
        self.button.hide()
        self._strokes = EventWatch(self, 100)
        self._strokes.changed.connect(self.check)
        controller.began.connect(self._on_began)
        controller.returned.connect(self._on_returned)
        controller.abandoned.connect(self._on_abandoned)
        result.cleared.connect(self.forget)

    def resume(self) -> None:
        job = self.check()
        if job is not None:
            self._controller.start(job)

    def forget(self) -> None:
        self._job = None
        self._strokes.watch()
        self.button.hide()

    def check(self, *changed: object) -> RunJob | None:
        """Return the job that can be resumed; None, hiding the button, without one."""
        if self._job is None:
            return None
        (job, live, outcome), layers = self._job, self._viewer.layers
        is_there = job.image in layers and live.layer is not None and not live.is_lost
        if job.strokes is not None:
            is_there &= job.strokes in layers and _checksum(job) == self._checksum
        if is_there and metadata_of(live.layer).get("history") is outcome.history:
            return job
        self.forget()
        return None

    def _on_began(self, job: RunJob) -> None:
        if not job.is_applied:
            self._checksum = _checksum(job)

    def _on_returned(self, outcome: Segmentation) -> None:
        run = self._controller.run
        is_stopped = outcome.status is Status.CANCELLED
        if run is not None and is_stopped and self._result.live is run.live:
            self._keep(run, outcome)

    def _on_abandoned(self) -> None:
        run = self._controller.run
        if run is not None and isinstance(run.job.start, StoppedStart):
            self._keep(run, run.job.start.outcome)

    def _keep(self, run: Run, outcome: Segmentation) -> None:
        """Offer to resume the last run from its outcome, if that is possible."""
        if run.job.is_sweep or run.job.is_applied:
            return
        start, recording = StoppedStart(outcome), run.recording
        job = dataclasses.replace(run.job, live=run.live, start=start, recording=recording)
        self._job = job, run.live, outcome
        if run.job.strokes is not None:
            events = run.job.strokes.events
            self._strokes.watch((events.paint, events.set_data))
        self.button.show()
        self.check()


def fewer_labels(run: Run, result: Segmentation) -> Suggestion | None:
    """Suggest two labels where objects on a background came out in several; else return None."""
    if run.problem is None or run.job.is_applied or result.n_labels < 3:
        return None
    options, is_free = run.problem.options, getattr(run.job.method, "max_labels", 0) is None
    if not is_free or options is None or not isinstance(options.extractor, Foreground):
        return None
    return Suggestion("Only 2 labels", {"max_labels": 2})


def _checksum(job: RunJob) -> int:
    return 0 if job.strokes is None else fingerprint(job.strokes.data, None)
