"""The Segment dock: choose an image and a method, start, follow and stop runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import napari
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel

from napari_saf._gui.docks.apply import (
    BUSY,
    ApplyDialog,
    ApplyRequest,
    start_applying,
    why_not_repeated,
)
from napari_saf._gui.docks.base import DockBase, NextRow
from napari_saf._gui.docks.large import LargeSection, Learner
from napari_saf._gui.forms.display_text import describe_error, device_text
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.metadata import is_given, recipe_of
from napari_saf._gui.layers.placement import NO_IMAGE
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf._gui.runs.panel import RUN_KEY, RUN_KEY_TEXT, RunPanel
from napari_saf._gui.runs.run import Frame, RunJob
from napari_saf._gui.segment.fairness import FairnessSection
from napari_saf._gui.segment.regions import RegionSection
from napari_saf._gui.segment.result import LabelSwatches, ShownResult, StoppedRun, fewer_labels
from napari_saf.errors import SafError, counted
from napari_saf.features import Scaling
from napari_saf.methods import METHODS, AbstractMethod, SweepMethod
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions

_RUN_HELP = f"Label the image; the labels form on screen ({RUN_KEY_TEXT})."
_APPLY_HELP = "Label other images with the method, parameters, features and scale of these labels."
_SCALE_HELP = "Side of the window that labels are averaged over: small keeps detail (N)."
_DEVICE_HELP = "Device and precision of the computation (Advanced: Device, Precision)."
_AUTOMATIC_HELP = (
    "Chosen for this image by its size and colours; the number of labels by the variance of the "
    "features that they leave unexplained. All can be set by hand, here and below."
)


@dataclasses.dataclass(frozen=True)
class SegmentState:
    """Properties of the form that decide whether Run is enabled; `fault` is its error."""

    has_image: bool = True
    fault: str = ""
    follows_seeds: bool = False
    has_strokes: bool = False
    takes_prototypes: bool = False


def why_disabled(state: SegmentState) -> str:
    """Return why a run would fail; empty if Run can be enabled."""
    if not state.has_image:
        return NO_IMAGE
    if state.fault or not state.follows_seeds or state.has_strokes:
        return state.fault
    paint = "paint strokes of two classes first (Scribbles dock)"
    return f"choose prototypes, or {paint}" if state.takes_prototypes else paint


class SegmentWidget(DockBase):
    """Dock to label an image by a chosen method and scale.

    The `fairness` section is visible for methods that balance labels over groups.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.input = ImageInput(viewer)
        self.form = MethodForm(viewer, METHODS.values(), has_seeds=self.input.strokes is not None)
        self.kept_parts = self.input, self.form
        self._method: AbstractMethod | str = ""  # or the error of the form
        self._is_counted = False  # whether the initial number of labels is shown
        self.panel = RunPanel(
            self,
            viewer,
            self.workspace.runs,
            ("Run", _RUN_HELP),
            repeats=True,
            chosen=self.input,
            suggest=fewer_labels,
        )
        self.status, self.controller = self.panel.status, self.panel.controller
        self.run_button = self.panel.run_button
        background = self.panel.background
        self.shown = ShownResult(self, viewer, self.controller, self.input)
        self.fairness = FairnessSection(viewer, self.shown)
        self.regions = RegionSection(viewer, self.shown, background)
        self.swatches = LabelSwatches(self.shown, background)
        self.stopped = StoppedRun(self, viewer, self.controller, self.shown)
        self.large = LargeSection(viewer, self.input, self._learner)
        self.applying = ApplyDialog(self, viewer, self.panel, _APPLY_HELP, fits=is_given)
        self.next_row = NextRow(self.workspace, lambda: self.result)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        self.device_note = QLabel(alignment=right, toolTip=_DEVICE_HELP)
        self.choice = FormSection()
        self.choice.add_row("Method", self.form.box, "The segmentation method.")
        self.choice.add_row("Scale", self.input.scale, _SCALE_HELP)
        self.automatic = QLabel(wordWrap=True, styleSheet="font-size: 8pt")
        self.choice.add_row("", self.automatic, _AUTOMATIC_HELP)
        parts = [self.input.section, self.choice, self.form.basic, self.fairness]
        parts.append(create_fold("Features", self.input.features))
        parts.append(create_fold("Advanced", self.form.advanced))
        buttons = [self.run_button, self.panel.stop_button, self.stopped.button, self.device_note]
        below = [self.status, self.swatches, self.regions, self.next_row, self.applying.row]
        self.lay_out(parts, buttons, [*below, self.large])
        self._connect_controls()
        self._on_method_changed()
        self._on_form_changed()
        self._take_up()

    def _connect_controls(self) -> None:
        layers = self._viewer.layers
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(
            self.panel.shut_down, self.regions.reset, self.stopped.forget, self.large.release
        )
        self.connect_all(
            (layers.events.removed, self._on_layer_removed),
            (layers.events.inserted, self._take_up),
            (layers.selection.events.active, self.regions.follow_selection),
            (dims_of(self._viewer).events.order, self.input.read_axes),
            (dims_of(self._viewer).events.axis_labels, self.input.read_axis_names),
            (self._viewer.events.theme, self.fairness.follow_theme),
            (self.panel.run_clicked, self.start),
            (self.panel.busy_changed, self._refresh),
            (self.panel.libraries_loaded, self._on_form_changed),
            (self.input.image_changed, self._take_up),
            (self.input.image_changed, self._refresh),
            (self.input.options_changed, self._show_automatic),
            (self.input.strokes_changed, self._on_strokes_chosen),
            (self.form.method_changed, self._on_method_changed),
            (self.form.changed, self._on_form_changed),
            (self.fairness.sweep_clicked, partial(self.start, is_sweep=True)),
            (self.regions.view_changed, self.swatches.setHidden),  # they show labels, not regions
            (self.regions.view_changed, self._refresh),
            (self.regions.things_counted, self.next_row.show_count),
            (self.controller.advanced, self._on_advanced),
            (self.panel.repeat_asked, self._repeat_with),
            (self.shown.cleared, self.panel.forget),
            (self.controller.finished, self._on_finished),
            (self.applying.apply_asked, self._apply),
            (self.applying.changed, self._refresh),
        )

    def start(self, *, is_sweep: bool = False) -> None:
        """Start a run, or a sweep of the fairness weight, with the settings of the form."""
        with self.panel.showing_errors():
            self.controller.start(self._request(is_sweep))

    def _request(self, is_sweep: bool) -> RunJob:
        """Read the form of a run; raise SafError if it is not valid."""
        selection, method = self.input.read(), self.form.read()
        image_job, self._method = selection.job(), method
        job = RunJob(
            selection.image,
            dataclasses.replace(image_job, options=self._scaled(image_job.options)),
            method,
            selection.region().placement,
            is_sweep=is_sweep,
            strokes=selection.strokes,
            note=selection.note(uses_window=method.uses_window),
            options=selection.changes_since(self.input.start, uses_window=method.uses_window),
        )
        return dataclasses.replace(job, live=self.shown.layer_for(job))

    def _scaled(self, options: ImageOptions) -> ImageOptions:
        """Return options with the scaling of the earlier result whose prototypes are chosen."""
        field = self.form.prototypes_field
        image_options = {} if field is None else field.image_options
        scaling = image_options.get("scaling")
        if isinstance(scaling, dict) and not image_options.get("rescale"):
            return dataclasses.replace(options, scaling=Scaling(**scaling))
        return options

    def _learner(self) -> Learner:
        recipe = Pipeline(self.form.read(), self._scaled(self.input.read().whole_options()))
        return lambda cancelled: recipe

    def _apply(self, request: ApplyRequest) -> None:
        """Label other images with the recipe of the labels or regions in view."""
        shown = self.regions.shown
        if shown is not None:
            with self.panel.showing_errors():
                recipe = recipe_of(shown.layer)
                start_applying(self.panel, self._viewer, request, recipe, shown.layer)

    @property
    def result(self) -> Any:
        """The displayed Labels layer; None without a result."""
        return self.shown.layer

    def _state(self) -> SegmentState:
        method = self._method
        return SegmentState(
            has_image=self.input.image is not None,
            fault=method if isinstance(method, str) else "",
            follows_seeds=not isinstance(method, str) and bool(method.follows_seeds),
            has_strokes=self.input.strokes is not None,
            takes_prototypes=self.form.prototypes_field is not None,
        )

    def _refresh(self, *changed: object) -> None:
        self.panel.set_reason(why_disabled(self._state()))
        self.next_row.refresh()
        pipeline = self.shown.pipeline
        self.applying.row.setVisible(pipeline is not None)
        if pipeline is not None:
            self.applying.update_enabled(BUSY if self.panel.is_busy else why_not_repeated(pipeline))

    def _on_method_changed(self) -> None:
        spreads = issubclass(self.form.method, SweepMethod)
        self.input.show_row("groups", spreads)
        self.fairness.setVisible(spreads)

    def _on_strokes_chosen(self) -> None:
        self.stopped.forget()
        self.form.set_has_seeds(self.input.strokes is not None)
        self._on_form_changed()

    def _on_form_changed(self, *changed: object) -> None:
        try:
            method = self._method = self.form.read()
        except SafError as error:
            self._method = describe_error(error)
            self._refresh()
            return
        self._refresh()
        self.choice.show_row(self.input.scale, method.uses_window)
        self.input.show_row("weights", method.uses_window)
        field = self.form.prototypes_field
        if field is not None:
            self.input.choose(features=field.image_options.get("features"))
        if "torch" in sys.modules:
            self.device_note.setText(device_text(method))
        self._show_automatic()

    def _show_automatic(self, n_labels: int = 0) -> None:
        """Show the automatic settings, and the initial number of labels of a run, if any."""
        words = [f"{counted(n_labels, 'label')} at first"] if n_labels else []
        uses_window = not isinstance(self._method, str) and self._method.uses_window
        with suppress(SafError):
            run, again = self.panel.background.run, self._show_automatic
            note = self.input.automatic_note(run, again, uses_window=uses_window)
            words.insert(0, note)
        text = ", ".join(filter(None, words))
        self.automatic.setText(f"Automatic: {text}")
        self.choice.show_row(self.automatic, bool(text))

    def _on_advanced(self, frame: Frame) -> None:
        """Show the initial number of labels if the run chooses that number."""
        run, is_first, self._is_counted = self.controller.run, not self._is_counted, True
        if run is None or run.job.is_applied or not is_first:
            return
        if getattr(run.job.method, "max_labels", 0) is None:
            self._show_automatic(len(frame.shares))

    def _repeat_with(self, values: Mapping[str, Any]) -> None:
        """Run again with some values of the form changed."""
        self.form.set_values(values)
        self.start()

    def _take_up(self, event: Any = None) -> None:
        if self.shown.take_up(event):
            self._take_brightness()

    def _take_brightness(self) -> None:
        pipeline = self.shown.pipeline
        self.applying.take_brightness(None if pipeline is None else pipeline.options)

    def _on_layer_removed(self, event: Any) -> None:
        if event.value == self.shown.layer:
            self.shown.clear()
        self.regions.take_removal(event)
        self.stopped.check()

    def _on_finished(self, job: RunJob) -> None:
        self._is_counted = False
        if self.shown.live is not None and self.shown.live.image not in self._viewer.layers:
            self.shown.clear()
        if not job.is_applied:
            self._take_brightness()
        if self.form.prototypes_field is not None:
            self.form.prototypes_field.refresh()
