"""The Scribbles dock: paint a few strokes, and the whole image follows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtWidgets import QCheckBox

from napari_saf._gui.docks.apply import BUSY, ApplyDialog
from napari_saf._gui.docks.large import LargeSection
from napari_saf._gui.docks.run_dock import RunDock
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, create_row
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.metadata import STROKES_KEY, is_given, is_strokes
from napari_saf._gui.layers.placement import note_on_slices
from napari_saf._gui.layers.view import EventWatch
from napari_saf._gui.layers.visibility import visibility_of
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf._gui.runs.run import Frame, RunJob
from napari_saf._gui.scribbles.automatic import AutomaticSettings
from napari_saf._gui.scribbles.box import BoxDrawing, paint_box
from napari_saf._gui.scribbles.results import TITLE, StrokeResult, StrokeResults, shares_of
from napari_saf._gui.scribbles.strokes import ClassTable, Strokes, above_0, add_strokes
from napari_saf.errors import SafError
from napari_saf.io import PrototypeSet
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
    "update_labels": ("Update", "Label the image by the strokes that there are now ({run})."),
}
"""Text and help of a button by the method that it calls; keys stand for what is in braces."""
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


class ScribblesWidget(RunDock):
    """Paint strokes of two or more classes; all other pixels follow after each stroke."""

    shortcuts: ClassVar[Mapping[str, str]] = {
        **RunDock.shortcuts,
        "Shift-S": "suggest",
        ".": "choose_next_class",
        ",": "choose_previous_class",
    }
    first_text = "following the strokes …"
    can_run_again = True
    form: MethodForm
    input: ImageInput

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.strokes = Strokes()
        self.classes = ClassTable(self.strokes)
        self.input = ImageInput(viewer, DEFAULT_OPTIONS, strokes="none yet: press New")
        offered = [method for method in METHODS.values() if not issubclass(method, SweepMethod)]
        offered.sort(key=lambda method: not method().follows_seeds)
        self.form = MethodForm(viewer, offered, asks_prototypes=False, for_strokes=True)
        self.automatic = AutomaticSettings(self.input, self.form)
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
        self._connect(
            (self.uncertainty.toggled, self._show_uncertainty),
            (self.base.layer_changed, self._on_base_chosen),
            (self.applying.changed, self._update_enabled),
            (self.box.drawn, self._paint_box),
            (self.form.changed, self._on_form_changed),
            (self.automatic.switched, self.start),
            (self.input.strokes_changed, self._on_strokes_chosen),
            (self.input.image_changed, self._on_image_chosen),
            (self.input.axes_changed, self._update_enabled),
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
        keys = {"spot": self._key_of("suggest"), "run": self._key_of("run_or_stop")}
        buttons = self.buttons = {
            name: create_button(text, tooltip.format(**keys), getattr(self, name))
            for name, (text, tooltip) in _BUTTONS.items()
        }
        self._update_help = buttons["update_labels"].toolTip()
        self.follow.setChecked(True)
        self.follow.setToolTip("Label the image anew after every stroke, undo and redo.")
        self.uncertainty.setToolTip(_UNCERTAINTY_HELP)
        self._method, more = FormSection(), FormSection()
        self._method.add_row("Method", self.form.box, "How the strokes teach.")
        self._method.add_row("Automatic", self.automatic, self.automatic.toolTip())
        self._method.add_row("Scale", self.input.scale, _SCALE_HELP)
        for name, (text, tooltip) in _MORE_ROWS.items():
            more.add_row(text, getattr(self, name), tooltip)
        new, restore, add, erase, box, suggest, update = buttons.values()
        own, none = (_APPLY_HELP, self._classifier, self._is_other), "choose an image"
        self.applying = ApplyDialog(self, self._viewer, *own, none=none)
        self.large = LargeSection(self._viewer, self.input, self.form, self._results.learner)
        sections = [
            self.input.section,
            create_row(new, restore, add, erase, box),
            self.classes,
            create_row(self.follow, self.uncertainty, suggest),
            self._method,
            self.form.basic,
            create_fold("Start from labels", more),
            self.create_next_row(),
            self.applying.row,
            create_fold("Features", self.input.features),
            create_fold("Advanced", self.form.advanced),
        ]
        self._lay_out(sections, [update, self.stop_button], [self.large])

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
        max_side = self.input.choices["max_side"].value
        return self.form.read(), dataclasses.replace(self.input.whole_options(), max_side=max_side)

    def values(self) -> dict[str, Any]:
        return super().values() | self.automatic.plain_values

    def show_values(self, values: Mapping[str, Any]) -> None:
        super().show_values(values)
        self.automatic.show_plain_values(values)

    @property
    def result(self) -> Any:
        current = self._results.current
        return None if current is None else current.live.layer

    def new_strokes(self) -> None:
        """Add an empty layer of strokes over the image and choose it; hide earlier results."""
        with self.showing_errors():
            image, results = self.input.image, visibility_of(self._viewer)
            place, shape = self.input.place_for_strokes()
            results.hide_results(image)
            layer = add_strokes(self._viewer, image, np.zeros(shape, np.uint8), place)
            self.input.choose(strokes=layer)
            notes = [results.reveal(image, layer), note_on_slices(self._viewer, layer)]
            lines = ["paint a few pixels of class 1, then of class 2", *filter(None, notes)]
            self.status.reset("\n".join(lines))

    def _turn_to(self, image: Image, strokes: Labels | None) -> None:
        self.input.choose(image=image, strokes=strokes)

    def draw_box(self) -> None:
        self.status.set_text("draw a box round one thing")
        self.box.start()

    def _paint_box(self, corners: NDArray[Any]) -> None:
        if self.input.strokes is None:
            self.new_strokes()
        with self.showing_errors():
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
            self._update_enabled()

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
        self._forget_error()
        self.classes.locked.clear()
        self.classes.refresh()
        self._show_shares()
        self._update_enabled()

    def _show_shares(self, event: object = None) -> None:
        """Show the share of each class; of labels of a project once they are counted."""
        result = self._results.current
        if result is not None and result.has_labels and not result.shares:
            labels, take = result.live.labels(), partial(self._take_shares, result)
            self.run_in_background("shares", lambda cancelled: shares_of(labels), take)
        self.classes.set_shares({} if result is None else result.shares)

    def _take_shares(self, result: StrokeResult, shares: dict[int, float]) -> None:
        result.shares = result.shares or shares
        if result.shares and result is self._results.current:
            self._show_result(result)

    def _on_strokes_changed(self) -> None:
        self.workspace.autosave_soon()
        self.classes.refresh()
        self._follow_strokes()
        self._update_enabled()

    def _on_image_chosen(self) -> None:
        self.controller.stop()
        self._results.finite_only = False
        self.drop_background("choice")
        self.automatic.start_anew()
        if self.input.image is not None:
            strokes = self._results.fitting_strokes()
            if strokes != self.input.strokes:
                self.input.choose(strokes=strokes)
        self._index = self._results.index
        self.applying.image.refresh()
        self._update_enabled()
        self._show_result(self._results.current)

    def _on_base_chosen(self) -> None:
        base = self.base.layer
        if base is None or self.input.image is None:
            return
        if self.input.strokes is None:
            self.new_strokes()
            self.strokes.names.clear()
            self.strokes.layer.colormap = base.colormap
        with self.showing_errors():
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
        self.drop_background("choice")
        with self.showing_errors():
            reason = self._results.why_too_few(self.form)
            if reason:
                self._clear_labels(reason)
                return
            method, job = self.form.read(), self._results.job()
            result = self._results.begin(job.pixels.index)
            goes_on = self.warm_start.isChecked() or self.automatic.corrects
            start = result.warm_start if goes_on else None
            notes = [self.input.slice_note()] + [self.input.scale_note()] * method.uses_window
            note = "\n".join(filter(None, [*notes, self.automatic.note]))
            run = RunJob(result.image, job, method, result.live.placement, live=result.live)
            self.controller.start(
                dataclasses.replace(run, strokes=result.strokes, start=start, note=note)
            )

    def _choose_settings(self) -> None:
        """Let the strokes choose settings, once a run; labels by others are provisional."""
        if self._chosen_in is self._begun:
            return
        self._chosen_in = self._begun

        def take(name: str) -> None:
            self.drop_background("choice")
            current = self._results.current
            if self.automatic.take(name):
                self.start()
            elif current is not None and self.status.text == _PROVISIONAL:
                self.status.set_text(current.summary)

        if self.automatic.isChecked() and self.base.layer is None:
            self.run_in_background("choice", self.automatic.chooser(self._results.job()), take)

    @property
    def _is_choosing(self) -> bool:
        return "choice" in self._background

    def _show_progress(self, fraction: float, text: str) -> None:
        words = f"{_PROVISIONAL}  {self.controller.seconds:.1f} s" if self._is_choosing else text
        super()._show_progress(fraction, words)

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
        self.status.reset(reason)

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
            self._update_enabled()

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
            text = _PROVISIONAL if shares and self._is_choosing else text
            self.status.show_progress(1.0 if shares else 0.0, text)

    def _show_uncertainty(self) -> None:
        result = self._results.current
        if result is not None:
            result.show_uncertainty(self.uncertainty.isChecked())

    def suggest(self) -> None:
        result = self._results.current
        if result is None or result.last is None:
            if not (self.status.is_error or self.controller.is_running):
                self.status.set_text(self._results.why_no_labels(self.form))
        elif self._results.suggest(result):
            self.status.set_text("paint in the ring: there a stroke helps most")
        else:
            self.status.set_text("nothing is uncertain")

    def update_labels(self) -> None:
        self.controller.reader.forget()
        self.automatic.reader.forget()
        self.start()

    def _on_form_changed(self, *changed: object) -> None:
        with contextlib.suppress(SafError):
            uses_window = self.form.read().uses_window
            self._method.show_row(self.input.scale, uses_window)
            self.input.show_row("weights", uses_window)
        self._update_enabled()

    def _on_advanced(self, frame: Frame) -> None:
        super()._on_advanced(frame)
        shown = self._results.of_run
        if shown is not None and shown is self._results.current:
            self.classes.set_shares(shares_of(frame.labels))
            is_time = frame.stage == FULL or not shown.has_labels
            if is_time and not self.controller.is_stopping:
                self._choose_settings()

    def _on_returned(self, result: Segmentation) -> None:
        text = f"{STATUS_TEXTS[result.status]} in {self.controller.seconds:.2g} s"
        text = self._show_outcome(result, text)
        shown, run = self._results.of_run, self.controller.run
        if shown is None or run is None or run.problem is None:
            return
        shown.update(run.problem, result, run.classes.numbers, text)
        if result.status is not Status.CANCELLED:
            shown.lock(self.classes.locked)
            shown.show_uncertainty(self.uncertainty.isChecked())
        else:
            self.drop_background("choice")
        if shown is self._results.current:
            self.classes.set_shares(shown.shares)
            if result.status is not Status.CANCELLED:
                self._choose_settings()
                if self._is_choosing:
                    self.status.set_text(_PROVISIONAL)
        self._results.name_labels()

    def _on_finished(self) -> None:
        job = self._begun
        super()._on_finished()
        if job is not None and job.strokes is not None and job.strokes not in self._viewer.layers:
            self._show_result(self._results.current)  # none: what to do now

    def _run_again(self, *, rescale: bool) -> None:
        self._results.finite_only = True
        self.start()

    def _apply(self) -> None:
        look = {"title": TITLE, "strokes": self.input.strokes}
        self.applying.start(self._results.classifier(), self.result, **look)

    def _classifier(self, rescale: bool) -> PrototypeSet:
        found = self._results.classifier().with_rescale(rescale).prototypes
        assert found is not None
        return found

    def _update_enabled(self) -> None:
        super()._update_enabled()
        buttons, has_strokes = self.buttons, self.input.strokes is not None
        for name in ("erase_class", "suggest"):
            buttons[name].setEnabled(has_strokes)
        buttons["draw_box"].setEnabled(self.input.image is not None)
        reason, busy = self._why_not(), BUSY if self.is_busy else ""
        self._offer(buttons["update_labels"], reason, self._update_help)
        has_labels = self.result is not None
        why_not = "paint strokes of two classes first" if reason and not has_labels else busy
        self.applying.update_enabled(why_not, why_not)
        image, removed = self.input.image, self._removed
        is_own = removed is not None and image is not None and not has_strokes
        is_own = is_own and removed.metadata[STROKES_KEY] == str(image.unique_id)
        buttons["restore_strokes"].setVisible(is_own)
