"""The Scribbles dock: paint a few strokes, and the whole image follows."""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtWidgets import QCheckBox

from napari_saf._gui.docks.apply import (
    BUSY,
    AppliedRegions,
    ApplyDialog,
    ApplyRequest,
    save_classifier,
    start_applying,
)
from napari_saf._gui.docks.base import DockBase, NextRow
from napari_saf._gui.docks.large import LargeSection
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, create_row
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.large import narrowed
from napari_saf._gui.layers.metadata import STROKES_KEY, is_given, is_strokes
from napari_saf._gui.layers.placement import note_on_slices
from napari_saf._gui.layers.view import EventWatch
from napari_saf._gui.layers.visibility import visibility_of
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf._gui.runs.controller import Frame
from napari_saf._gui.runs.job import RunJob
from napari_saf._gui.runs.panel import RUN_KEY, RUN_KEY_TEXT, RunPanel, Subject
from napari_saf._gui.scribbles.automatic import AutomaticSettings
from napari_saf._gui.scribbles.box import BoxDrawing, paint_box
from napari_saf._gui.scribbles.results import TITLE, StrokeResult, StrokeResults, shares_of
from napari_saf._gui.scribbles.strokes import ClassTable, Strokes, above_0, add_strokes
from napari_saf.errors import SafError
from napari_saf.methods import METHODS, AbstractMethod, SweepMethod, stroke_choices
from napari_saf.problem import ImageOptions
from napari_saf.result import FULL, STATUS_TEXTS, Segmentation, Status

DEFAULT_OPTIONS = stroke_choices()["object"].options
"""What the dock begins with; see ``benchmarks/scribbles.py choices``."""
_BUTTONS = {
    "new_strokes": ("New", "Add an empty layer to paint strokes on; hide earlier labels."),
    "restore_strokes": ("Restore", "Bring back the strokes that were removed."),
    "add_class": ("Add class", "Add a class and paint it."),
    "erase_class": ("Erase", "Erase all strokes of the chosen class (Ctrl+Z brings them back)."),
    "draw_box": (
        "Box",
        "Draw a box round one thing: strokes are painted on it and around it, and all that looks "
        "like it follows.",
    ),
    "suggest": ("Suggest spot", "Mark the place where the next stroke would help most ({spot})."),
}
"""Text and help of a button by the method that it calls; a key stands for what is in braces."""
_RUN_HELP = f"Label the image by the strokes that there are now ({RUN_KEY_TEXT})."
_SCALE_HELP = (
    "Side of the window over which labels are averaged, in pixels of the size at which the dock "
    "works (N)."
)
_MORE_ROWS = {
    "base": (
        "Start from",
        "Labels of an earlier run become classes. A stroke on a label turns it into the class "
        "painted: two labels painted alike are merged; one painted with two classes is split.",
    ),
    "warm_start": (
        "",
        "Labels stay but for those around strokes that contradict them, and those that look alike: "
        "what was painted first counts for more. Without it the same strokes give the same labels "
        "in whatever order, unless they are dots on one object.",
    ),
}
_PROVISIONAL = "first labels; looking for what the strokes stand for …"
_UNCERTAINTY_HELP = "Show how uncertain each pixel is: bright where a stroke helps most."
_APPLY_HELP = (
    "Label that image by what the classes look like in this one: an open image, or all of a folder."
)


class ScribblesWidget(DockBase):
    """Paint strokes of two or more classes; all other pixels follow after each stroke."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.strokes = Strokes()
        self.classes = ClassTable(self.strokes)
        self.input = ImageInput(viewer, DEFAULT_OPTIONS, strokes="none yet: press New")
        self.panel = RunPanel(
            self,
            viewer,
            self.workspace.runs,
            ("Update", _RUN_HELP),
            begin_text="following the strokes …",
            repeats=True,
            chosen=self.input,
            outcome_text=_outcome_text,
        )
        self.status, self.controller = self.panel.status, self.panel.controller
        offered = [method for method in METHODS.values() if not issubclass(method, SweepMethod)]
        offered.sort(key=lambda method: not method().follows_seeds)
        self.form = MethodForm(viewer, offered, asks_prototypes=False, for_strokes=True)
        self.automatic = AutomaticSettings(self.input, self.form)
        self.kept_parts = self.input, self.form, self.automatic
        self.base = LayerChoice(viewer, Labels, none="nothing")  # labels that become classes
        self.warm_start = QCheckBox("Continue from last labels")
        self.follow, self.uncertainty = QCheckBox("Follow"), QCheckBox("Uncertainty")
        self.box = BoxDrawing(viewer)
        self._results = StrokeResults(viewer, self.controller, self.input, self.base, self.strokes)
        dims = dims_of(viewer).events
        self._slices = EventWatch(self, 100, (dims.current_step, dims.order))
        self._removed: Any = None  # the strokes that went last
        self._chosen_in: RunJob | None = None  # the run whose strokes chose settings
        self._index: Any = None
        self._add_controls()
        self.bind_keys(
            {
                RUN_KEY: self.panel.run_or_stop,
                "Shift-S": self.suggest,
                ".": self.choose_next_class,
                ",": self.choose_previous_class,
            }
        )
        self.at_end(self.panel.shut_down, self._release)
        self.connect_all(
            (self.panel.run_clicked, self.update_labels),
            (self.panel.busy_changed, self._refresh),
            (self.panel.background.failed, self._on_calculation_failed),
            (self.controller.began, self._on_began),
            (self.controller.advanced, self._on_advanced),
            (self.controller.returned, self._on_returned),
            (self.controller.finished, self._on_finished),
            (self.applying.asked, self._apply),
            (self.applying.save_asked, self._save_classifier),
            (self.uncertainty.toggled, self._show_uncertainty),
            (self.base.layer_changed, self._on_base_chosen),
            (self.applying.changed, self._refresh),
            (self.box.drawn, self._paint_box),
            (self.form.changed, self._on_form_changed),
            (self.automatic.switched, self.start),
            (self.input.strokes_changed, self._on_strokes_chosen),
            (self.input.image_changed, self._on_image_chosen),
            (self.input.axes_changed, self._refresh),
            (self.input.axes_changed, self._on_region_changed),
            (self._slices.changed, self._on_region_changed),
            (self.strokes.changed, self._on_strokes_changed),
            (self.workspace.session.shown, self._turn_to),
            (viewer.layers.events.removed, self._on_layer_removed),
            (viewer.layers.events.inserted, self._show_shares),
            (self.classes.recolored, self._on_class_edited),
            (self.classes.renamed, self._on_class_edited),
            (self.classes.lock_toggled, self._on_lock_toggled),
        )
        self._on_form_changed()
        self._on_strokes_chosen()

    def _add_controls(self) -> None:
        buttons = self.buttons = {
            name: create_button(text, tooltip.format(spot="Shift+S"), getattr(self, name))
            for name, (text, tooltip) in _BUTTONS.items()
        }
        self.follow.setChecked(True)
        self.follow.setToolTip("Label the image anew after every stroke, undo and redo.")
        self.uncertainty.setToolTip(_UNCERTAINTY_HELP)
        self._method, more = FormSection(), FormSection()
        self._method.add_row("Method", self.form.box, "How the strokes teach.")
        self._method.add_row("Automatic", self.automatic, self.automatic.toolTip())
        self._method.add_row("Scale", self.input.scale, _SCALE_HELP)
        for name, (text, tooltip) in _MORE_ROWS.items():
            more.add_row(text, getattr(self, name), tooltip)
        new, restore, add, erase, box, suggest = buttons.values()
        buttons["update_labels"] = self.panel.run_button
        self.applying = ApplyDialog(
            self,
            self._viewer,
            self.panel,
            _APPLY_HELP,
            self._is_other,
            has_classifier=True,
            none="choose an image",
        )
        self._applied_regions = AppliedRegions(self._viewer, self.panel)
        self.next_row = NextRow(self.workspace, lambda: self.result)
        self.large = LargeSection(self._viewer, self.input, self.form, self._results.learner)
        sections = [
            self.input.section,
            create_row(new, restore, add, erase, box),
            self.classes,
            create_row(self.follow, self.uncertainty, suggest),
            self._method,
            self.form.basic,
            create_fold("Start from labels", more),
            self.next_row,
            self.applying.row,
            create_fold("Features", self.input.features),
            create_fold("Advanced", self.form.advanced),
        ]
        buttons_of_run = [self.panel.run_button, self.panel.stop_button]
        self.lay_out(sections, buttons_of_run, [self.status, self.large])

    def _release(self) -> None:
        self._removed = None
        self.large.release()
        self.box.stop()
        self.strokes.follow(None)
        self._slices.watch()

    def _is_other(self, layer: Image) -> bool:
        return is_given(layer) and layer != self.input.image

    def settings(self) -> tuple[AbstractMethod, ImageOptions]:
        """Return how strokes label here, for the Project dock; SafError: a value is wrong."""
        selection = self.input.read()
        max_side = selection.options.max_side
        return self.form.read(), dataclasses.replace(selection.whole_options(), max_side=max_side)

    @property
    def result(self) -> Any:
        """The Labels layer that is shown as the result; None without one."""
        current = self._results.current
        return None if current is None else current.live.layer

    def new_strokes(self) -> None:
        """Add an empty layer of strokes over the image and choose it; hide earlier results."""
        with self.panel.showing_errors():
            image, results = self.input.image, visibility_of(self._viewer)
            # Over all slices, or of a large image what is on screen.
            place, shape = narrowed(self._viewer, self.input.pixels().slices()).whole()
            results.hide_results(image)
            layer = add_strokes(self._viewer, image, np.zeros(shape, np.uint8), place)
            self.input.choose(strokes=layer)
            notes = [results.reveal(image, layer), note_on_slices(self._viewer, layer)]
            self.panel.explain_reason("paint a few pixels of class 1, then of class 2", *notes)

    def _turn_to(self, image: Image, strokes: Labels | None) -> None:
        self.input.choose(image=image, strokes=strokes)

    def draw_box(self) -> None:
        self.panel.hint("draw a box round one thing")
        self.box.start()

    def _paint_box(self, corners: NDArray[Any]) -> None:
        if self.input.strokes is None:
            self.new_strokes()
        with self.panel.showing_errors():
            strokes = self.input.strokes
            paint_box(self._results.job(), self.input.image, corners, strokes)
            self._viewer.layers.selection.active = strokes

    def restore_strokes(self) -> None:
        """Bring back the strokes on the image that were removed last."""
        layer, self._removed = self._removed, None
        if layer is not None:
            self._viewer.add_layer(layer)
            self.input.choose(strokes=layer)
            self.start()

    def _on_layer_removed(self, event: Any) -> None:
        if is_strokes(event.value) and event.value.data.any():
            self._removed = event.value
            self._refresh()

    def add_class(self) -> None:
        if self.input.strokes is None:
            self.new_strokes()
        else:
            self.strokes.add_class()
            self.classes.refresh()

    def erase_class(self) -> None:
        for number in self.classes.selected():
            self.strokes.erase_class(number)
            self.classes.refresh()

    def choose_next_class(self) -> None:
        self.classes.step(1)

    def choose_previous_class(self) -> None:
        self.classes.step(-1)

    def _on_strokes_chosen(self) -> None:
        self.strokes.follow(self.input.strokes)
        self._index = self._results.index
        self.panel.forget_error()
        self.classes.locked.clear()
        self.classes.refresh()
        self._show_shares()
        self._refresh()

    def _show_shares(self, event: object = None) -> None:
        """Show the share of each class; of labels of a project once they are counted."""
        result = self._results.current
        if result is not None and result.has_labels and not result.shares:
            labels, take = result.live.labels(), partial(self._take_shares, result)
            self.panel.background.run("shares", lambda cancelled: shares_of(labels), take)
        self.classes.set_shares({} if result is None else result.shares)

    def _take_shares(self, result: StrokeResult, shares: dict[int, float]) -> None:
        result.shares = result.shares or shares
        if result.shares and result is self._results.current:
            self._show_result(result)

    def _on_strokes_changed(self) -> None:
        self.workspace.autosave_soon()
        self.classes.refresh()
        self._follow_strokes()
        self._refresh()

    def _on_image_chosen(self) -> None:
        self.controller.stop()
        self._results.finite_only = False
        self._drop_choice()
        self.automatic.start_anew()
        if self.input.image is not None:
            strokes = self._results.fitting_strokes()
            if strokes != self.input.strokes:
                self.input.choose(strokes=strokes)
        self._index = self._results.index
        self.applying.image.refresh()
        self._refresh()
        self._show_result(self._results.current)

    def _on_base_chosen(self) -> None:
        base = self.base.layer
        if base is None or self.input.image is None:
            return
        if self.input.strokes is None:
            self.new_strokes()
            self.strokes.names.clear()
            self.strokes.layer.colormap = base.colormap
        with self.panel.showing_errors():
            self._results.job()
            for number in np.unique(above_0(self._results.read(base))):
                self.strokes.names.setdefault(int(number), f"label {number}")
            self.classes.refresh()
            self.start()

    def _on_class_edited(self) -> None:
        for result in self._results.of_strokes():
            result.live.recolor()
        self._results.name_labels()
        self.workspace.autosave_soon()

    def _on_lock_toggled(self, number: int, locked: bool) -> None:
        """Fix the current pixels of locked classes, on all slices; label those anew that are free.

        They follow what was painted meanwhile.
        """
        for result in self._results.of_strokes():
            result.lock(self.classes.locked)
            result.checksum = result.checksum if locked else None
        if not locked:
            self._follow_strokes()

    def start(self) -> None:
        self._drop_choice()
        with self.panel.showing_errors():
            reason = self._results.why_too_few(self.form)
            if reason:
                self._clear_labels(reason)
                return
            method, job = self.form.read(), self._results.job()
            result = self._results.begin(job.pixels.index)
            goes_on = self.warm_start.isChecked() or self.automatic.corrects
            start = result.warm_start if goes_on else None
            note = self.input.read().note(uses_window=method.uses_window)
            note = "\n".join(filter(None, [note, self.automatic.note]))
            run = RunJob(result.image, job, method, result.live.placement, live=result.live)
            self.controller.start(
                dataclasses.replace(run, strokes=result.strokes, start=start, note=note)
            )

    def _choose_settings(self) -> None:
        """Let the strokes choose settings, once a run; labels by others are provisional."""
        if self._chosen_in is self.controller.job:
            return
        self._chosen_in = self.controller.job

        def take(name: str) -> None:
            self._drop_choice()
            current = self._results.current
            if self.automatic.take(name):
                self.start()
            elif current is not None and self.panel.subject is Subject.PROVISIONAL:
                self.panel.show_outcome(current.summary)

        if self.automatic.isChecked() and self.base.layer is None:
            self.panel.headline = _PROVISIONAL
            self.panel.background.run("choice", self.automatic.chooser(self._results.job()), take)

    def _drop_choice(self) -> None:
        self.panel.headline = ""
        self.panel.background.drop("choice")

    def _on_calculation_failed(self, key: str, error: Exception) -> None:
        if key == "choice":
            self.panel.headline = ""

    @property
    def _is_choosing(self) -> bool:
        return self.panel.background.is_running("choice")

    def _clear_labels(self, reason: str) -> None:
        """Show no labels, but for those beside locked ones: there is nothing to follow."""
        result = self._results.current
        if result is not None and result.locked is not None:
            result.checksum = self._results.checksum()
        elif result is not None:
            if self._results.of_run is result or self.controller.waiting is not None:
                self._results.give_way(result)
                self.controller.stop()
            result.clear(reason)
            result.checksum = self._results.checksum()
        self.classes.set_shares({})
        self.panel.explain_reason(reason)

    def _follow_strokes(self) -> None:
        """Label the image anew, unless that was done with these strokes."""
        result = self._results.current
        if self.follow.isChecked() and (
            result is None or result.checksum != self._results.checksum()
        ):
            self.start()

    def _on_region_changed(self) -> None:
        index, before = self._results.index, self._index
        self._index = index
        if index != before and self.input.strokes is not None:
            result = self._results.current
            self._show_result(result)
            if result is not None:
                self._follow_strokes()
            self._refresh()

    def _why_not(self) -> str:
        """Return why the strokes could label nothing as they are; empty if they may."""
        try:
            return self._results.why_too_few(self.form)
        except SafError as error:
            return describe_error(error)

    def _show_result(self, result: StrokeResult | None) -> None:
        self._show_shares()
        if not self.controller.is_running:
            text, shares = ("", {}) if result is None else (result.summary, result.shares)
            text = text or self._results.why_no_labels(self.form)
            if shares and self._is_choosing:
                self.panel.show_provisional(_PROVISIONAL)
            else:
                self.panel.show_outcome(text, 1.0 if shares else 0.0)

    def _show_uncertainty(self) -> None:
        result = self._results.current
        if result is not None:
            result.show_uncertainty(self.uncertainty.isChecked())

    def suggest(self) -> None:
        result = self._results.current
        if result is None or result.last is None:
            if self.panel.subject is not Subject.ERROR and not self.controller.is_running:
                self.panel.hint(self._results.why_no_labels(self.form))
        elif self._results.suggest(result):
            self.panel.hint("paint in the ring: there a stroke helps most")
        else:
            self.panel.hint("nothing is uncertain")

    def update_labels(self) -> None:
        self.controller.reader.forget()
        self.automatic.reader.forget()
        self.start()

    def _on_form_changed(self, *changed: object) -> None:
        with contextlib.suppress(SafError):
            uses_window = self.form.read().uses_window
            self._method.show_row(self.input.scale, uses_window)
            self.input.show_row("weights", uses_window)
        self._refresh()

    def _on_began(self) -> None:
        """Go on without pixels that are not finite, once that was suggested and accepted."""
        job = self.controller.job
        if job is not None and not job.is_applied:
            self._results.finite_only |= job.image_job.finite_only

    def _on_advanced(self, frame: Frame) -> None:
        shown = self._results.of_run
        if shown is not None and shown is self._results.current:
            self.classes.set_shares(shares_of(frame.labels))
            is_time = frame.stage == FULL or not shown.has_labels
            if is_time and not self.controller.is_stopping:
                self._choose_settings()

    def _on_returned(self, result: Segmentation) -> None:
        shown, run = self._results.of_run, self.controller.run
        if shown is None or run is None or run.problem is None:
            return
        shown.update(run.problem, result, run.classes.numbers, self.panel.outcome)
        if result.status is not Status.CANCELLED:
            shown.lock(self.classes.locked)
            shown.show_uncertainty(self.uncertainty.isChecked())
        else:
            self._drop_choice()
        if shown is self._results.current:
            self.classes.set_shares(shown.shares)
            if result.status is not Status.CANCELLED:
                self._choose_settings()
                if self._is_choosing:
                    self.panel.show_provisional(_PROVISIONAL)
        self._results.name_labels()

    def _on_finished(self, job: RunJob) -> None:
        if job.strokes is not None and job.strokes not in self._viewer.layers:
            self._show_result(self._results.current)  # none: what to do now

    def _apply(self, request: ApplyRequest) -> None:
        look = {"title": TITLE, "strokes": self.input.strokes}
        with self.panel.showing_errors():
            pipeline = self._results.classifier()
            layer = self.result
            start_applying(self.panel, self._viewer, request, pipeline, layer, **look)

    def _save_classifier(self, path: str, rescale: bool) -> None:
        with self.panel.showing_errors():
            prototypes = self._results.classifier().with_rescale(rescale).prototypes
            assert prototypes is not None
            save_classifier(self.panel, path, prototypes)

    def _refresh(self, *changed: object) -> None:
        self.next_row.refresh()
        buttons, has_strokes = self.buttons, self.input.strokes is not None
        for name in ("erase_class", "suggest"):
            buttons[name].setEnabled(has_strokes)
        buttons["draw_box"].setEnabled(self.input.image is not None)
        reason, busy = self._why_not(), BUSY if self.panel.is_busy else ""
        self.panel.set_reason(reason)
        has_labels = self.result is not None
        why_not = "paint strokes of two classes first" if reason and not has_labels else busy
        self.applying.update_enabled(why_not, why_not)
        image, removed = self.input.image, self._removed
        is_own = removed is not None and image is not None and not has_strokes
        is_own = is_own and removed.metadata[STROKES_KEY] == str(image.unique_id)
        buttons["restore_strokes"].setVisible(is_own)


def _outcome_text(result: Segmentation, seconds: float) -> str:
    return f"{STATUS_TEXTS[result.status]} in {seconds:.2g} s"
