"""The Segment dock: choose, run, watch, stop."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel

from napari_saf._gui.docks.apply import BUSY, ApplyDialog, why_not_repeated
from napari_saf._gui.docks.large import LargeSection, Learner
from napari_saf._gui.docks.run_dock import OBJECTS, RunDock
from napari_saf._gui.forms.controls import Swatch, Swatches, fill_color
from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.live import EditedLayer, LiveLayer
from napari_saf._gui.layers.metadata import (
    RESTORED_KEY,
    is_given,
    is_regions,
    metadata_of,
    prototypes_of,
    recipe_of,
    restored_layers,
)
from napari_saf._gui.layers.placement import NO_IMAGE
from napari_saf._gui.layers.reading import fingerprint
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf._gui.runs.controller import StoppedRun
from napari_saf._gui.runs.run import Frame, RunJob, StoppedStart
from napari_saf._gui.segment.fairness import FairnessSection
from napari_saf._gui.segment.regions import RegionSection
from napari_saf.device import resolve_device
from napari_saf.errors import SafError
from napari_saf.features import Scaling
from napari_saf.io import count_labels
from napari_saf.methods import METHODS, SweepMethod, TradeOff, TradeOffPoint
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import LabelMap, Segmentation, Status

_APPLY_HELP = "Label that image with the method, parameters, features and scale of these labels."
_SCALE_HELP = (
    "Side of the window over which labels are averaged: small keeps detail, large smooths (N)."
)
_DEVICE_HELP = "Where the run is computed, and how precisely (Advanced: Device, Precision)."
_AUTOMATIC_HELP = (
    "Chosen for this image: a plane is labelled by colour and texture, at half its size where that "
    "leaves enough pixels; a volume by its values, in full. There are as many labels as leave "
    "three tenths of the variance of the features. Everything can be set by hand, here and below."
)


class SegmentWidget(RunDock):
    """Choose an image, a method and a scale; run; watch the labels form.

    The `fairness` section is in sight for methods that spread labels over groups.
    """

    can_run_again = True
    form: MethodForm
    input: ImageInput

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._was_sweep = False
        self._shown: tuple[LiveLayer, RunJob] | None = None
        self._values: dict[str, Any] = {}  # of the dock, for the last run
        self._checksum = 0  # of the labels that are shown, as the run left them
        self._problem: Problem | None = None  # what was labelled so, by a run of this dock
        self.input = ImageInput(viewer)
        has_seeds = self.input.strokes is not None
        self.form = MethodForm(viewer, METHODS.values(), has_seeds=has_seeds)
        self.swatches, self.fairness = Swatches(), FairnessSection(viewer)
        self.regions, self.stopped = RegionSection(self, viewer), StoppedRun(viewer)
        self.large = LargeSection(viewer, self.input, self.form, self._learner)
        self.applying = ApplyDialog(self, viewer, _APPLY_HELP, fits=is_given)
        key = self._key_of("run_or_stop")
        self._run_help = f"Label the image; the labels form on screen ({key})."
        self.run_button = create_button("Run", self._run_help, self.start)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        self.device_note = QLabel(alignment=right, toolTip=_DEVICE_HELP)
        self.choice = FormSection()
        self.choice.add_row("Method", self.form.box, "How to label.")
        self.choice.add_row("Scale", self.input.scale, _SCALE_HELP)
        self.automatic = QLabel(wordWrap=True, styleSheet="font-size: 8pt")
        self.choice.add_row("", self.automatic, _AUTOMATIC_HELP)
        self._lay_out(
            [
                self.input.section,
                self.choice,
                self.form.basic,
                self.fairness,
                create_fold("Features", self.input.features),
                create_fold("Advanced", self.form.advanced),
            ],
            [self.run_button, self.stop_button, self.stopped.button, self.device_note],
            [self.swatches, self.regions, self.create_next_row(), self.applying.row, self.large],
        )
        self._connect_controls()
        self._on_method_changed()
        self._on_form_changed()
        self._take_up()

    def _connect_controls(self) -> None:
        self._connect(
            (self._viewer.layers.events.removed, self._on_layer_removed),
            (self._viewer.layers.events.inserted, self._take_up),
            (self.input.image_changed, self._take_up),
            (dims_of(self._viewer).events.order, self.input.read_axes),
            (self._viewer.events.theme, self.fairness.follow_theme),
            (self.applying.changed, self._update_enabled),
            (self._viewer.layers.selection.events.active, self.regions.follow_selection),
            (self.form.method_changed, self._on_method_changed),
            (self.form.changed, self._on_form_changed),
            (self.input.options_changed, self._show_automatic),
            (self.input.image_changed, self._update_enabled),
            (self.input.strokes_changed, self.stopped.forget),
            (self.stopped.button.clicked, self._resume),
            (self.input.strokes_changed, self._on_strokes_chosen),
            (self.fairness.sweep_clicked, partial(self.start, is_sweep=True)),
            (self.fairness.chosen, self._on_solution_chosen),
            (self.regions.view_changed, self.swatches.setHidden),  # they are of labels
            (self.regions.view_changed, self._update_enabled),
            (self.regions.things_counted, self._show_count),
            (self.controller.swept, self._on_swept),
        )

    @property
    def result(self) -> Any:
        return None if self._shown is None else self._shown[0].layer

    def start(
        self,
        *,
        is_sweep: bool = False,
        rescale: bool = False,
        finite_only: bool = False,
    ) -> None:
        """Start a run, or a sweep over the fairness weight, with what is chosen here."""
        self._was_sweep, self.finite_only = is_sweep, finite_only
        image, strokes = self.input.image, self.input.strokes
        with self.showing_errors():
            job, method = self.input.job(finite_only=finite_only), self.form.read()
            job = dataclasses.replace(job, options=self._scaled(job.options, rescale))
            notes = [self.input.slice_note()] + [self.input.scale_note()] * method.uses_window
            note = "\n".join(filter(None, notes))
            place = self.input.region().placement
            run = RunJob(image, job, method, place, is_sweep, strokes, note=note)
            own: dict[str, Any] = {"options": self.input.options_by_hand(), "live": self._same(run)}
            self._values = self.values()
            self.controller.start(dataclasses.replace(run, **own))

    def _same(self, job: RunJob) -> LiveLayer | None:
        """Return the layer of the last run, if that asked for the same and nobody changed it."""
        if self._shown is None or self._shown[0].is_lost or job.strokes is not None:
            return None
        live, before = self._shown
        was, now = before.image_job, job.image_job
        sources = (was.mask, was.groups, was.features, now.mask, now.groups, now.features)
        is_same = (
            before.image == job.image
            and was.pixels.data is now.pixels.data
            and (was.pixels.index, was.finite_only) == (now.pixels.index, now.finite_only)
            and self._values == self.values()
            and not (job.is_sweep or before.is_sweep or self.form.prototypes_field)
            and all(source is None for source in sources)
        )
        is_whole = metadata_of(live.layer).get("status") != Status.CANCELLED.value
        is_kept = fingerprint(live.layer.data, None) == self._checksum
        return live if is_same and is_whole and is_kept else None

    def _scaled(self, options: ImageOptions, rescale: bool = False) -> ImageOptions:
        """Return options with the scaling that chosen prototypes of an earlier result are for."""
        field = self.form.prototypes_field
        meant = {} if field is None else field.image_options
        scaling = meant.get("scaling")
        if isinstance(scaling, dict) and not (rescale or meant.get("rescale")):
            return dataclasses.replace(options, scaling=Scaling(**scaling))
        return options

    def _learner(self, form: MethodForm) -> Learner:
        recipe = Pipeline(form.read(), self._scaled(self.input.whole_options()))
        return lambda cancelled: recipe

    def _resume(self) -> None:
        job = self.stopped.check()
        if job is not None:
            self._was_sweep = False
            self.finite_only = job.image_job.finite_only
            self.controller.start(job)

    def _on_method_changed(self) -> None:
        spreads = issubclass(self.form.method, SweepMethod)
        self.input.show_row("groups", spreads)
        self.fairness.setVisible(spreads)
        self._update_enabled()

    def _on_strokes_chosen(self) -> None:
        self.form.set_has_seeds(self.input.strokes is not None)
        self._update_enabled()

    def _update_enabled(self, *changed: object) -> None:
        super()._update_enabled()
        self._offer(self.run_button, self._why_not(), self._run_help)
        shown = self.regions.shown
        self.applying.row.setVisible(shown is not None)
        if shown is not None:
            self.applying.update_enabled(BUSY if self.is_busy else self._why_not_applied(shown))

    def _show_count(self, n_things: int) -> None:
        things = f"{n_things:,} things: " if n_things else ""
        self.next_buttons[OBJECTS].setText(f"{things}{OBJECTS} …")

    def _why_not_applied(self, shown: LiveLayer) -> str:
        try:
            return why_not_repeated(recipe_of(shown.layer))
        except SafError as error:
            return describe_error(error)

    def _apply(self) -> None:
        """Label other images as the labels, or the regions, in view were made."""
        shown = self.regions.shown
        if shown is not None:
            self.applying.start(recipe_of(shown.layer), shown.layer)

    def _why_not(self) -> str:
        """Return why a run could only fail; empty if it may not."""
        if self.input.image is None:
            return NO_IMAGE
        try:
            method = self.form.read()
        except SafError as error:
            return describe_error(error)
        if not method.follows_seeds or self.input.strokes is not None:
            return ""
        paint = "paint strokes of two classes first (Scribbles dock)"
        return paint if self.form.prototypes_field is None else f"choose prototypes, or {paint}"

    def _on_form_changed(self, *changed: object) -> None:
        self._update_enabled()
        try:
            values, uses_window = self.form.values(), self.form.read().uses_window
        except SafError:
            return  # what is wrong is said when it is run
        self.choice.show_row(self.input.scale, uses_window)
        self.input.show_row("weights", uses_window)
        field = self.form.prototypes_field
        if field is not None:
            self.input.choose(features=field.image_options.get("features"))
        if "torch" in sys.modules:
            self._show_device(values)
        self._show_automatic()

    def _show_device(self, values: Mapping[str, Any]) -> None:
        try:
            device = resolve_device(str(values.get("device", "cpu"))).type.upper()
        except SafError:
            device = f"{values['device']}: not there"
        self.device_note.setText(", ".join([device, str(values.get("dtype", ""))]).strip(", "))

    def _show_automatic(self, n_labels: int = 0) -> None:
        """Say what is chosen for the image, and so many labels in the run that has begun."""
        words = [self.input.choice_note(), f"{n_labels} labels at first" if n_labels else ""]
        text = ", ".join(filter(None, words))
        self.automatic.setText(f"Automatic: {text}")
        self.choice.show_row(self.automatic, bool(text))

    def _run_again(self, *, rescale: bool) -> None:
        self.start(is_sweep=self._was_sweep, rescale=rescale, finite_only=self.finite_only)

    def _on_began(self) -> None:
        super()._on_began()
        if self._begun is not None and not self._is_applied:
            self._forget_result()
            self.stopped.begin(self._begun)

    def _forget_outcome(self) -> None:
        super()._forget_outcome()
        self._forget_result()

    def _forget_result(self) -> None:
        self._shown = self._problem = None
        self.stopped.forget()
        self.fairness.reset()
        self.regions.reset()
        self.swatches.show_swatches([])

    def _on_advanced(self, frame: Frame) -> None:
        run, is_first = self.controller.run, self._frame is None
        super()._on_advanced(frame)
        if self._is_applied or run is None or run.problem is None:
            return
        named = LabelMap(frame.numbers)
        if is_first:
            self.fairness.begin(run.problem, frame.labels, named)
            if self.form.values().get("max_labels", 0) is None:
                self._show_automatic(len(frame.shares))
        shown, rows = (run.live, run.job), named.rows(frame.prototypes)
        self._show_prototypes(shown, rows, frame.shares, named.columns)

    def _on_returned(self, result: Segmentation) -> None:
        super()._on_returned(result)
        run = self.controller.run
        assert run is not None
        if self._is_applied:
            self.applying.merge()
            return
        if run.live.is_lost:
            self._forget_outcome()
        elif run.job.image != self.input.image:
            self._forget_result()
        elif run.problem is not None:
            self._shown, self._problem = (run.live, run.job), run.problem
            self._checksum = fingerprint(run.live.layer.data, None)
            self._show_result(run.by_label(result))
            if result.status is Status.CANCELLED and not run.job.is_sweep:
                self.stopped.keep(run, result)

    def _on_abandoned(self) -> None:
        super()._on_abandoned()
        run = self.controller.run
        if run is not None and isinstance(run.job.start, StoppedStart):
            self.stopped.keep(run, run.job.start.outcome)

    def _on_swept(self, found: TradeOff) -> None:
        if self.controller.run is not None and self.controller.run.problem is not None:
            self.fairness.show_trade_off(found, self.controller.run.problem)

    def _on_solution_chosen(self, point: TradeOffPoint) -> None:
        if self._shown is not None and self._problem is not None and not self.is_busy:
            self._shown[0].finish(point.segmentation, self._problem.graph)
            self._show_result(point.segmentation)

    def _show_result(self, result: Segmentation) -> None:
        assert self._shown is not None and self._problem is not None
        live, request = self._shown
        self.fairness.show_result(self._problem, result, live)
        with suppress(SafError):
            self.applying.take_brightness(recipe_of(live.layer).options)
        if live.layer is not None and not live.is_lost:
            self.regions.offer(live, request)
        if len(result.history):
            shares = result.history.label_shares[-1]
            self._show_prototypes(self._shown, result.prototypes, shares, result.columns)

    def _take_up(self, event: Any = None) -> None:
        """Go on with the topmost labels of a project that was opened, but for those of strokes."""
        image = self.input.image
        is_other = event is not None and RESTORED_KEY not in event.value.metadata
        if is_other or image is None or self._problem is not None or self.is_busy:
            return
        kept = restored_layers(self._viewer, image)
        for layer in reversed([one for one in kept if not is_regions(one)]):
            with suppress(SafError):  # such as of strokes, without a recipe
                recipe, job = recipe_of(layer), RunJob.of(layer, image)
                if recipe.prototypes is None:
                    self._show_kept(EditedLayer(self._viewer, image, layer), job, kept)
                    self.applying.take_brightness(recipe.options)
                    return

    def _show_kept(self, live: LiveLayer, job: RunJob, kept: list[Any]) -> None:
        self._shown = shown = (live, job)
        title = f"[{live.title}, regions]"
        regions = [one for one in kept if is_regions(one) and title in one.name]
        self.regions.take_up(live, job, regions[-1] if regions else None)
        labels, known = live.labels(), prototypes_of(live.layer)
        rows = np.zeros((0, 1)) if known is None else known

        def show(counted: tuple[NDArray[Any], NDArray[Any]]) -> None:
            numbers, sizes = counted
            if self._shown is shown:
                self._show_prototypes(shown, rows, sizes / sizes.sum(), LabelMap(numbers).columns)

        self.run_in_background("shares", lambda cancelled: count_labels(labels), show)
        self._update_enabled()

    def _on_failed(self, error: Exception) -> None:
        super()._on_failed(error)
        if self.regions.is_merging:
            self.regions.forget()

    def _release(self) -> None:
        self.regions.reset()
        self.stopped.forget()
        self.large.release()

    def _on_layer_removed(self, event: Any) -> None:
        self.stopped.check()
        if self._shown is not None and event.value == self._shown[0].layer:
            self._forget_outcome()
        self.regions.take_removal(event.value)

    def _show_prototypes(
        self,
        shown: tuple[LiveLayer, RunJob],
        prototypes: NDArray[np.floating],
        shares: NDArray[np.floating],
        columns: NDArray[np.int64],
    ) -> None:
        """Show the labels that own pixels, largest first; row k stands for label k + 1."""
        live, job = shown
        features = job.image_job.options.features
        order = sorted(np.flatnonzero(columns >= 0), key=lambda k: -shares[columns[k]])
        swatches = []
        for k in order:
            share, border = shares[columns[k]], live.color_of(int(k) + 1)
            if share > 0:
                known = k < len(prototypes)
                fill = fill_color(prototypes[k], features, border) if known else border
                text = f"label {k + 1}: {100 * share:.1f} % of the pixels"
                swatches.append(Swatch(fill, border, text))
        self.swatches.show_swatches(swatches)

    def _on_finished(self) -> None:
        super()._on_finished()
        if self.form.prototypes_field is not None:
            self.form.prototypes_field.refresh()
