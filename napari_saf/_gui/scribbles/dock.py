"""The Scribbles dock: paint a few strokes, and the whole image follows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import napari
import numpy as np
from napari.layers import Image

from napari_saf._gui.docks.run_dock import (
    RESCALE,
    STATUS_WORDS,
    RunDock,
    describe_error,
    rescale_action,
    suggested_action_for,
)
from napari_saf._gui.forms.controls import json_path
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_fold, create_row
from napari_saf._gui.forms.method_form import MethodChoice, MethodForm
from napari_saf._gui.layers.alignment import labelled_axes
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.layers.view import SliceWatch
from napari_saf._gui.runs.controller import RunJob, run_registry
from napari_saf._gui.runs.jobs import prototypes_job
from napari_saf._gui.runs.run import Frame
from napari_saf._gui.scribbles.classes import ClassTable
from napari_saf._gui.scribbles.controls import MoreSection, StrokeButtons
from napari_saf._gui.scribbles.kept import KeptStrokes
from napari_saf._gui.scribbles.part import PaintedPart
from napari_saf._gui.scribbles.results import TITLE, SpotMarker, StrokeResult, StrokeResults
from napari_saf._gui.scribbles.strokes import Strokes, add_strokes, suggest_spot
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import PrototypeSet, load_strokes, save_prototypes
from napari_saf.methods import METHODS, AbstractMethod, SweepMethod
from napari_saf.problem import ImageOptions
from napari_saf.result import Segmentation, Status

__all__ = ["DEFAULT_OPTIONS", "ScribblesWidget"]

DEFAULT_OPTIONS = ImageOptions(features="lab", window=13, weights="contrast", max_side=240)
"""What objects in photographs are found with best; see ``benchmarks/scribbles.py``."""
_SCALE_HELP = (
    "Side of the window over which labels are averaged, in pixels of the size at which the dock "
    "works (N)."
)


class ScribblesWidget(RunDock):
    """Paint strokes of two or more classes; all other pixels follow after each stroke.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    input : ImageInput
    methods : MethodChoice
    strokes : Strokes
    classes : ClassTable
    """

    shortcuts: ClassVar[Mapping[str, str]] = {
        **RunDock.shortcuts,
        "Shift-S": "suggest",
        ".": "choose_next_class",
        ",": "choose_previous_class",
    }

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._results = StrokeResults()
        self._index: Any = None
        self._failed_elsewhere = self._finite_only_other = False
        self._marker = SpotMarker(viewer)
        self._slices = SliceWatch(viewer, self)
        self.strokes = Strokes()
        self._kept = KeptStrokes(self.strokes)
        self.classes = ClassTable(self.strokes)
        self.input = ImageInput(viewer, DEFAULT_OPTIONS, strokes="none yet: press New")
        offered = [method for method in METHODS.values() if not issubclass(method, SweepMethod)]
        offered.sort(key=lambda method: not method().follows_seeds)
        self.methods = MethodChoice(viewer, offered, asks_prototypes=False)
        self._create_controls()
        self._part = PaintedPart(self.input, self._base, self.strokes, self._results)
        self._create_layout()
        self._connect()
        self._on_form_changed()
        self._on_strokes_chosen()

    @property
    def result(self) -> Any:
        """The Labels layer that follows the present strokes, or None."""
        result = self._part.result
        return None if result is None else result.live.layer

    def choose_method(self, name: str) -> None:
        """Choose a method by its name in METHODS."""
        self.methods.choose(name)

    @property
    def form(self) -> MethodForm:
        """The form of the chosen method."""
        return self.methods.form

    def start(self) -> None:
        """Label the image by the strokes that there are now."""
        self._start()

    def follow(self, follows: bool) -> None:
        """Label the image after every stroke, or only when asked to."""
        self._follow.setChecked(follows)

    def new_strokes(self) -> None:
        """Add an empty layer of strokes over the image and choose it; hide earlier results."""
        image = self.input.image
        if image is None:
            self._show_error("no image: open or choose an image layer first")
            return
        run_registry(self._viewer).hide_results(image)
        place, shape = self.input.whole()
        layer = add_strokes(self._viewer, image, np.zeros(shape, dtype=np.uint8), place)
        self.input.choose_strokes(layer)
        self.status.reset("paint a few pixels of class 1, then of class 2")

    def restore_strokes(self) -> None:
        """Add the strokes that were last painted on the image, as they were kept on disk."""
        image, path = self.input.image, self._restore.path
        if image is None or path is None:
            return
        place, shape = self.input.whole()
        try:
            pixels, classes = load_strokes(path, shape)
        except SafError as error:
            self._show_error(str(error))
            return
        run_registry(self._viewer).hide_results(image)
        self.input.choose_strokes(add_strokes(self._viewer, image, pixels, place))
        self.strokes.restore(classes)
        self.classes.refresh()
        self._start()

    def apply_to(self, layer: Image) -> None:
        """Label another image by what the classes look like in this one."""
        self._finite_only_other = False
        self._apply_to(layer)

    def _apply_to(self, layer: Image) -> None:
        strokes = self.input.strokes
        try:
            result, found = self._taught()
            labels = result.live.layer
            n_axes = len(labelled_axes(labels))
            request = prototypes_job(self._viewer, found, layer, n_axes, labels)
        except SafError as error:
            self._show_error(str(error))
            return
        live = LiveLayer(self._viewer, layer, TITLE, request.placement, strokes)
        request = dataclasses.replace(request, strokes=strokes, live=live)
        self.controller.start(request.masked() if self._finite_only_other else request)

    def save_taught(self, path: str) -> None:
        """Save what the classes look like as prototypes, to label other images with."""
        try:
            saved = save_prototypes(json_path(path), self._taught()[1])
        except SafError as error:
            self._show_error(str(error))
            return
        self.status.reset(f"saved {saved.name}: load it in the Prototypes dock to label others")

    def _taught(self) -> tuple[StrokeResult, PrototypeSet]:
        """Return the present result, and what the classes look like in it.

        Raises
        ------
        InvalidInput
            If the labels are not those of the strokes, or the features are of this image alone.
        """
        result, numbers = self._part.result, self.strokes.classes()
        if result is None or not result.is_known:
            raise InvalidInput("there are no labels to learn from yet: press Update")
        if result.followed != self._part.checksum() or self.controller.is_running:
            raise InvalidInput("strokes were painted since the last labels: press Update first")
        colors = {number: self.strokes.color(number)[:3].tolist() for number in numbers}
        rescale = self._more.brightness.rescale
        return result, result.taught(self.strokes.names, colors, rescale)

    def suggest(self) -> None:
        """Mark the place where a stroke would help most, and go there."""
        result = self._part.result
        if result is None or not result.is_known:
            if not (self.status.is_error or self.controller.is_running):
                self.status.set_text(self._part.why_no_labels(self.form))
            return
        spot = suggest_spot(result.uncertainty_image(), self._part.read(result.strokes))
        if spot is None:
            self.status.set_text("nothing is uncertain")
            return
        self._marker.mark(result, spot)
        self.status.set_text("paint in the ring: there a stroke helps most")

    def choose_next_class(self) -> None:
        """Paint the class in the next row, after the last one the first."""
        self.classes.step(1)

    def choose_previous_class(self) -> None:
        """Paint the class in the row before."""
        self.classes.step(-1)

    def _create_controls(self) -> None:
        buttons = StrokeButtons(self._key_of)
        self._new, self._restore = buttons.new, buttons.restore
        self._add, self._erase = buttons.add, buttons.erase
        self._follow, self._show_doubt = buttons.follow, buttons.doubt
        self._suggest, self._update = buttons.suggest, buttons.update
        self._more = MoreSection(self._viewer, self._is_other_image)
        self._base, self._other = self._more.base, self._more.other
        self._apply, self._go_on = self._more.apply, self._more.go_on

    def _create_layout(self) -> None:
        choice = self._choice = FormSection()
        choice.add_row("Method", self.methods.box, "How the strokes teach.")
        choice.add_row("Scale", self.input.scale, _SCALE_HELP)
        self._lay_out(
            [
                self.input.section,
                create_row(self._new, self._restore, self._add, self._erase),
                self.classes,
                create_row(self._follow, self._show_doubt, self._suggest),
                choice,
                self.methods.basic,
                create_fold("Start from labels, apply elsewhere", self._more),
                create_fold("Features", self.input.features),
                create_fold("Advanced", self.methods.advanced),
            ],
            [self._update, self._stop_button],
            [],
        )

    def _connect(self) -> None:
        self._new.clicked.connect(self.new_strokes)
        self._restore.clicked.connect(self.restore_strokes)
        self._add.clicked.connect(self._on_add_clicked)
        self._erase.clicked.connect(self._on_erase_clicked)
        self._update.clicked.connect(self._on_update_clicked)
        self._suggest.clicked.connect(self.suggest)
        self.status.suggested_action_clicked.connect(self._on_suggested_action_clicked)
        self._show_doubt.toggled.connect(self._on_doubt_toggled)
        self._apply.clicked.connect(self._on_apply_clicked)
        self._more.save_asked.connect(self.save_taught)
        self.methods.form_changed.connect(self._on_form_changed)
        self._base.layer_changed.connect(self._on_base_chosen)
        self._other.layer_changed.connect(self._update_enabled)
        self.input.strokes_changed.connect(self._on_strokes_chosen)
        self.input.image_changed.connect(self._on_image_chosen)
        self.input.axes_changed.connect(self._update_enabled)
        self.input.axes_changed.connect(self._on_part_changed)
        self.strokes.changed.connect(self._on_strokes_changed)
        self._slices.changed.connect(self._on_part_changed)
        self.classes.recolored.connect(self._on_recolored)
        self.classes.renamed.connect(self._name_results)
        self.classes.renamed.connect(self._keep)
        self._kept.failed.connect(self.status.set_text)
        self.classes.locks_changed.connect(self._on_locks_changed)

    def _release(self) -> None:
        self._kept.flush()
        self.strokes.follow(None)
        self._slices.release()
        self.input.release()
        self.methods.release()
        self._more.release()

    def _start(self) -> None:
        lacking = self._part.lacks()
        if lacking:
            self.status.reset(lacking)
            return
        try:
            method = self.form.read()
            job = self._part.job()
            missing = self._part.missing(job, method)
            if missing:
                self._rest(missing)
                return
            request = self._request(job, method)
        except SafError as error:
            self._show_error(str(error))
            return
        self._drop_waiting(request)
        self.controller.start(request)

    def _request(self, job: ImageJob, method: AbstractMethod) -> RunJob:
        image, strokes = self.input.image, self.input.strokes
        place, result = self.input.placement(), self._part.result
        if result is None:
            result = StrokeResult.create(self._viewer, image, strokes, job, place)
            self._results.add(result)
        result.followed = self._part.checksum()
        warm = result.warm if self._go_on.isChecked() else None
        note = self.input.scale_note(job) if method.uses_window else ""
        return RunJob(image, job, method, place, False, strokes, result.live, warm, note=note)

    def _rest(self, words: str) -> None:
        """Show no labels: there is nothing to follow."""
        result = self._part.result
        if result is not None:
            if self._result_of_controller() is result or self.controller.waiting is not None:
                self._note_overtaken()
                self.controller.stop()
            result.clear(words)
            result.followed = self._part.checksum()
        self.classes.set_shares({})
        self.status.reset(words)

    def _result_of_controller(self) -> StrokeResult | None:
        """Return what the run under way is shown on, if it labels the strokes' own image."""
        return self._results.shown_on(self.controller.live)

    def _follow_strokes(self) -> None:
        """Label the image anew, unless that was done with these strokes."""
        result = self._part.result
        if self._follow.isChecked() and (
            result is None or result.followed != self._part.checksum()
        ):
            self._start()

    def _show_result(self, result: StrokeResult | None) -> None:
        """Tell of the result of the present part, if there is one."""
        shares = {} if result is None else result.shares
        self._show_shares(shares)
        if not self.controller.is_running:
            words = "" if result is None else result.words
            self.status.show_progress(
                1.0 if shares else 0.0, words or self._part.why_no_labels(self.form)
            )

    def _show_shares(self, shares: Mapping[int, float]) -> None:
        absent = dict.fromkeys(self.classes.numbers() if shares else (), 0.0)
        self.classes.set_shares(absent | dict(shares))

    def _keep(self) -> None:
        self._kept.touch(self.input.image)

    def _on_strokes_changed(self) -> None:
        self._keep()
        self.classes.refresh()
        self._follow_strokes()

    def _on_part_changed(self) -> None:
        """Tell of the part now to be labelled; what was done to its strokes is followed."""
        index, before = self._part.index, self._index
        self._index = index
        if index == before or self.input.strokes is None:
            return
        result = self._part.result
        self._show_result(result)
        if result is not None:
            self._follow_strokes()

    def _on_strokes_chosen(self) -> None:
        self._kept.flush()
        self.strokes.follow(self.input.strokes)
        self._index = self._part.index
        self._forget_error()
        self.classes.unlock()
        self.classes.refresh()
        self._update_enabled()

    def _on_image_chosen(self) -> None:
        self.controller.stop()
        self._part.finite_only = False
        self._part.choose_strokes()
        self._index = self._part.index
        self._other.refresh()
        self._update_enabled()
        self._show_result(self._part.result)

    def _on_base_chosen(self) -> None:
        base = self._base.layer
        if base is None or self.input.image is None:
            return
        if self.input.strokes is None:
            self.new_strokes()
            self.strokes.names.clear()
            self.strokes.layer.colormap = base.colormap
        try:
            self._part.given()
        except SafError as error:
            self._show_error(str(error))
            return
        for number in np.unique(self._part.read(base)):
            if number > 0:
                self.strokes.names.setdefault(int(number), f"label {number}")
        self.classes.refresh()
        self._start()

    def _on_locks_changed(self) -> None:
        """Keep the pixels of locked classes as they are at this moment, on all slices."""
        for result in self._results.of(self.strokes.layer):
            result.lock(self.classes.locked)

    def _on_add_clicked(self) -> None:
        if self.input.strokes is None:
            self.new_strokes()
            return
        self.strokes.add_class()
        self.classes.refresh()

    def _on_erase_clicked(self) -> None:
        number = self.classes.current_number()
        if number is not None:
            self.strokes.erase_class(number)
            self.classes.refresh()

    def _on_update_clicked(self) -> None:
        self.controller.forget_image()
        self._start()

    def _on_apply_clicked(self) -> None:
        if self._other.layer is not None:
            self.apply_to(self._other.layer)

    def _on_doubt_toggled(self) -> None:
        result = self._part.result
        if result is not None:
            result.show_uncertainty(self._show_doubt.isChecked())

    def _on_recolored(self) -> None:
        self._results.recolor(self.strokes.layer)

    def _on_form_changed(self) -> None:
        with contextlib.suppress(SafError):
            uses_window = self.form.read().uses_window
            self._choice.show_row(self.input.scale, uses_window)
            self.input.show_weights(uses_window)

    def _on_began(self) -> None:
        super()._on_began()
        self.status.reset("following the strokes …")

    def _on_advanced(self, frame: Frame) -> None:
        super()._on_advanced(frame)
        shown = self._result_of_controller()
        if shown is not None and shown is self._part.result:
            shares = zip(frame.numbers, frame.shares, strict=True)
            self.classes.set_shares({int(n): float(share) for n, share in shares})

    def _on_returned(self, result: Segmentation) -> None:
        first = f"{STATUS_WORDS[result.status]} in {self.controller.seconds:.2g} s"
        words = self.controller.outcome_text(first, result)
        self.status.show_progress(1.0, words, rescale_action(self.controller))
        shown, problem = self._result_of_controller(), self.controller.problem
        if shown is None or problem is None:
            return
        if result.status is not Status.CANCELLED:
            shown.keep(problem, result, self.controller.numbers)
            shown.lock(self.classes.locked)
            shown.show_uncertainty(self._show_doubt.isChecked())
        shown.measure(result, words)
        self._note_overtaken()
        if shown is self._part.result:
            self._show_shares(shown.shares)
        self._name_results()

    def _on_failed(self, error: Exception) -> None:
        request = self.controller.job
        self._failed_elsewhere = request is not None and request.image != self.input.image
        self._show_error(describe_error(error), suggested_action_for(error))

    def _on_suggested_action_clicked(self) -> None:
        """Label the image again, without the pixels or the scaling that were in the way."""
        if self.status.suggested_action == RESCALE:
            self._more.brightness.choose(True)
            self._apply_to(self._other.layer)
        elif self._failed_elsewhere:
            self._finite_only_other = True
            self._apply_to(self._other.layer)
        else:
            self._part.finite_only = True
            self._start()

    def _on_abandoned(self) -> None:
        super()._on_abandoned()
        self._note_overtaken()

    def _drop_waiting(self, request: RunJob) -> None:
        """Have a run that another takes the place of before it began done later, too."""
        waiting = self.controller.waiting
        dropped = None if waiting is None else self._results.shown_on(waiting.live)
        if dropped is not None and dropped.live is not request.live:
            dropped.followed = None

    def _note_overtaken(self) -> None:
        """Have a run that made room for another done again when its slice is on screen."""
        shown = self._result_of_controller()
        if shown is not None and self.controller.waiting is not None:
            shown.followed = None

    def _name_results(self) -> None:
        """Write the names of the classes where tables and figures look for them."""
        names = {n: self.strokes.name(n) for n in self.strokes.classes()}
        self._results.name(self.strokes.layer, names)

    def _is_other_image(self, layer: object) -> bool:
        return isinstance(layer, Image) and layer != self.input.image and not _is_doubt(layer)

    def _update_enabled(self) -> None:
        super()._update_enabled()
        has_strokes = self.input.strokes is not None
        for button in (self._erase, self._update, self._suggest):
            button.setEnabled(has_strokes)
        self._apply.setEnabled(has_strokes and self._other.layer is not None)
        self._more.save.setEnabled(has_strokes)
        image = None if has_strokes else self.input.image
        self._restore.offer(image, () if image is None else self.input.whole()[1])


def _is_doubt(layer: Image) -> bool:
    return METADATA_KEY in layer.metadata
