"""The Scribbles dock: paint a few strokes, and the whole image follows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import napari
import numpy as np
from napari.layers import Image
from qtpy.QtWidgets import QFileDialog

from napari_saf._gui.docks.run_dock import (
    RESCALE,
    RunDock,
    describe_error,
    rescale_action,
    suggested_action_for,
)
from napari_saf._gui.forms.controls import PROTOTYPE_FILTER, json_path
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.placement import labelled_axes
from napari_saf._gui.layers.view import SliceWatch
from napari_saf._gui.runs.controller import RunJob, run_registry
from napari_saf._gui.runs.jobs import prototypes_job
from napari_saf._gui.runs.run import Frame
from napari_saf._gui.scribbles.controls import Controls
from napari_saf._gui.scribbles.results import TITLE, StrokeResult, StrokeResults
from napari_saf._gui.scribbles.strokes import (
    StrokeAutosave,
    Strokes,
    above_0,
    add_strokes,
    last_saved,
)
from napari_saf.errors import SafError
from napari_saf.io import PrototypeSet, load_strokes, save_prototypes
from napari_saf.result import STATUS_TEXTS, Segmentation, Status


class ScribblesWidget(RunDock):
    """Paint strokes of two or more classes; all other pixels follow after each stroke."""

    shortcuts: ClassVar[Mapping[str, str]] = {
        **RunDock.shortcuts,
        "Shift-S": "suggest",
        ".": "choose_next_class",
        ",": "choose_previous_class",
    }

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.strokes = Strokes()
        self.autosave = StrokeAutosave(self.strokes)
        controls = self.controls = Controls(viewer, self.strokes, self._key_of)
        self.input, self.form, self.classes = controls.input, controls.form, controls.classes
        self._results = StrokeResults(viewer, self.input, controls.base, self.strokes)
        self._slices = SliceWatch(viewer, self)
        self._saved_strokes: Path | None = None
        self._index: Any = None
        self._other_failed = self._finite_only_other = False
        self._lay_out(controls.sections(), [controls.update, self._stop_button], [])
        for signal, slot in (
            (controls.new.clicked, self.new_strokes),
            (controls.restore.clicked, self.restore_strokes),
            (controls.add.clicked, self.add_class),
            (controls.erase.clicked, self._on_erase_clicked),
            (controls.update.clicked, self._on_update_clicked),
            (controls.suggest.clicked, self.suggest),
            (controls.uncertainty.toggled, self._show_uncertainty),
            (controls.apply.clicked, self._on_apply_clicked),
            (controls.save.clicked, self._on_save_clicked),
            (controls.base.layer_changed, self._on_base_chosen),
            (controls.other.layer_changed, self._update_enabled),
            (self.form.changed, self._on_form_changed),
            (self.input.strokes_changed, self._on_strokes_chosen),
            (self.input.image_changed, self._on_image_chosen),
            (self.input.axes_changed, self._update_enabled),
            (self.input.axes_changed, self._on_region_changed),
            (self._slices.changed, self._on_region_changed),
            (self.strokes.changed, self._on_strokes_changed),
            (self.classes.recolored, self._on_class_edited),
            (self.classes.renamed, self._on_class_edited),
            (self.classes.lock_toggled, self._on_locks_changed),
            (self.autosave.failed, self.status.set_text),
            (self.status.suggested_action_clicked, self._on_suggested_action_clicked),
        ):
            signal.connect(slot)
        self._on_form_changed()
        self._on_strokes_chosen()

    def _release(self) -> None:
        self.autosave.flush()
        self.strokes.follow(None)
        self._slices.release()
        self.controls.release()

    @property
    def result(self) -> Any:
        """The Labels layer that follows the present strokes, or None."""
        current = self._results.current
        return None if current is None else current.live.layer

    def new_strokes(self) -> None:
        """Add an empty layer of strokes over the image and choose it; hide earlier results."""
        if self.input.image is None:
            self._show_error("no image: open or choose an image layer first")
            return
        self._add_strokes(np.zeros(self.input.region().whole()[1], dtype=np.uint8))
        self.status.reset("paint a few pixels of class 1, then of class 2")

    def restore_strokes(self) -> None:
        """Add the strokes that were last painted on the image, as they were saved."""
        if self.input.image is None or self._saved_strokes is None:
            return
        with self._showing_errors():
            pixels, classes = load_strokes(self._saved_strokes, self.input.region().whole()[1])
            self._add_strokes(pixels)
            self.strokes.restore(classes)
            self.classes.refresh()
            self.start()

    def _add_strokes(self, pixels: Any) -> None:
        image = self.input.image
        run_registry(self._viewer).hide_results(image)
        layer = add_strokes(self._viewer, image, pixels, self.input.region().whole()[0])
        self.input.choose(strokes=layer)

    def add_class(self) -> None:
        """Add a class and paint it; the first two come with new strokes."""
        if self.input.strokes is None:
            self.new_strokes()
        else:
            self.strokes.add_class()
            self.classes.refresh()

    def choose_next_class(self) -> None:
        """Paint the class in the next row, after the last one the first."""
        self.classes.step(1)

    def choose_previous_class(self) -> None:
        self.classes.step(-1)

    def _on_erase_clicked(self) -> None:
        for number in self.classes.selected():
            self.strokes.erase_class(number)
            self.classes.refresh()

    def _on_strokes_chosen(self) -> None:
        self.autosave.flush()
        self.strokes.follow(self.input.strokes)
        self._index = self._results.index
        self._forget_error()
        self.classes.locked.clear()
        self.classes.refresh()
        self._update_enabled()

    def _on_strokes_changed(self) -> None:
        self.autosave.schedule(self.input.image)
        self.classes.refresh()
        self._follow_strokes()

    def _on_image_chosen(self) -> None:
        self.controller.stop()
        self._results.finite_only = False
        if self.input.image is not None:
            strokes = self._results.fitting_strokes()
            if strokes != self.input.strokes:
                self.input.choose(strokes=strokes)
        self._index = self._results.index
        self.controls.other.refresh()
        self._update_enabled()
        self._show_result(self._results.current)

    def _on_base_chosen(self) -> None:
        base = self.controls.base.layer
        if base is None or self.input.image is None:
            return
        if self.input.strokes is None:
            self.new_strokes()
            self.strokes.names.clear()
            self.strokes.layer.colormap = base.colormap
        with self._showing_errors():
            self._results.job()
            for number in np.unique(above_0(self._results.read(base))):
                self.strokes.names.setdefault(int(number), f"label {number}")
            self.classes.refresh()
            self.start()

    def _on_class_edited(self) -> None:
        for result in self._results.of_strokes():
            result.live.recolor()
        self._results.name_labels()
        self.autosave.schedule(self.input.image)

    def _on_locks_changed(self) -> None:
        """Fix the current pixels of locked classes, on all slices."""
        for result in self._results.of_strokes():
            result.lock(self.classes.locked)
        self.autosave.schedule(self.input.image)

    def start(self) -> None:
        """Label the image by the strokes that there are now."""
        reason = self._results.why_no_strokes()
        if reason:
            self.status.reset(reason)
            return
        with self._showing_errors():
            method, job = self.form.read(), self._results.job()
            reason = self._results.why_too_few(job, method)
            if reason:
                self._clear_labels(reason)
                return
            result, waiting = self._results.begin(job.index), self.controller.waiting
            replaced = None if waiting is None else self._results.shown_on(waiting.live)
            if replaced is not None and replaced is not result:
                replaced.checksum = None  # to be labelled when its slice is on screen again
            run_job = RunJob(
                self.input.image,
                job,
                method,
                self.input.region().placement,
                strokes=self.input.strokes,
                live=result.live,
                start=result.warm_start if self.controls.warm_start.isChecked() else None,
                note=self.input.scale_note() if method.uses_window else "",
            )
            self.controller.start(run_job)

    def _clear_labels(self, reason: str) -> None:
        """Show no labels: there is nothing to follow."""
        result = self._results.current
        if result is not None:
            if self._result_of_run() is result or self.controller.waiting is not None:
                self._mark_replaced()
                self.controller.stop()
            result.clear(reason)
            result.checksum = self._results.checksum()
        self.classes.set_shares({})
        self.status.reset(reason)

    def _follow_strokes(self) -> None:
        """Label the image anew, unless that was done with these strokes."""
        result = self._results.current
        if self.controls.follow.isChecked() and (
            result is None or result.checksum != self._results.checksum()
        ):
            self.start()

    def _on_region_changed(self) -> None:
        """Show the result of the region now on screen; changes of its strokes are followed."""
        index, before = self._results.index, self._index
        self._index = index
        if index != before and self.input.strokes is not None:
            result = self._results.current
            self._show_result(result)
            if result is not None:
                self._follow_strokes()

    def _show_result(self, result: StrokeResult | None) -> None:
        shares = {} if result is None else result.shares
        self.classes.set_shares(shares)
        if not self.controller.is_running:
            text = "" if result is None else result.summary
            text = text or self._results.why_no_labels(self.form)
            self.status.show_progress(1.0 if shares else 0.0, text)

    def _show_uncertainty(self) -> None:
        result = self._results.current
        if result is not None:
            result.show_uncertainty(self.controls.uncertainty.isChecked())

    def suggest(self) -> None:
        """Mark the place where a stroke would help most, and go there."""
        result = self._results.current
        if result is None or result.last is None:
            if not (self.status.is_error or self.controller.is_running):
                self.status.set_text(self._results.why_no_labels(self.form))
        elif self._results.suggest(result):
            self.status.set_text("paint in the ring: there a stroke helps most")
        else:
            self.status.set_text("nothing is uncertain")

    def _on_update_clicked(self) -> None:
        self.controller.forget_image()
        self.start()

    def _on_form_changed(self) -> None:
        with contextlib.suppress(SafError):
            self.controls.show_window_controls(self.form.read().uses_window)

    def _result_of_run(self) -> StrokeResult | None:
        """Return the result that the run under way is shown on; None for another image."""
        return self._results.shown_on(self.controller.live)

    def _mark_replaced(self) -> None:
        """Have a run that made room for another done again when its slice is on screen."""
        shown = self._result_of_run()
        if shown is not None and self.controller.waiting is not None:
            shown.checksum = None

    def _on_began(self) -> None:
        super()._on_began()
        self.status.reset("following the strokes …")

    def _on_advanced(self, frame: Frame) -> None:
        super()._on_advanced(frame)
        shown = self._result_of_run()
        if shown is not None and shown is self._results.current:
            shares = zip(frame.numbers, frame.shares, strict=True)
            self.classes.set_shares({int(n): float(share) for n, share in shares})

    def _on_returned(self, result: Segmentation) -> None:
        text = f"{STATUS_TEXTS[result.status]} in {self.controller.seconds:.2g} s"
        text = self.controller.outcome_text(text, result)
        self.status.show_progress(1.0, text, rescale_action(self.controller))
        shown, problem = self._result_of_run(), self.controller.problem
        if shown is None or problem is None:
            return
        shown.update(problem, result, self.controller.numbers, text)
        if result.status is not Status.CANCELLED:
            shown.lock(self.classes.locked)
            shown.show_uncertainty(self.controls.uncertainty.isChecked())
        self._mark_replaced()
        if shown is self._results.current:
            self.classes.set_shares(shown.shares)
        self._results.name_labels()

    def _on_abandoned(self) -> None:
        super()._on_abandoned()
        self._mark_replaced()

    def _on_failed(self, error: Exception) -> None:
        job = self.controller.job
        self._other_failed = job is not None and job.image != self.input.image
        self._show_error(describe_error(error), suggested_action_for(error))

    def _on_suggested_action_clicked(self) -> None:
        """Label the image again, without the pixels or the scaling that were in the way."""
        if self.status.suggested_action == RESCALE:
            self.controls.brightness.choose(True)
            self.apply_to(self.controls.other.layer, self._finite_only_other)
        elif self._other_failed:
            self.apply_to(self.controls.other.layer, finite_only=True)
        else:
            self._results.finite_only = True
            self.start()

    def apply_to(self, layer: Image, finite_only: bool = False) -> None:
        """Label another image by the class prototypes of this one."""
        self._finite_only_other, strokes = finite_only, self.input.strokes
        with self._showing_errors():
            found, labels = self._prototypes(), self.result
            job = prototypes_job(self._viewer, found, layer, len(labelled_axes(labels)), labels)
            live = LiveLayer(self._viewer, layer, TITLE, job.placement, strokes)
            job = dataclasses.replace(job, strokes=strokes, live=live)
            self.controller.start(job.masked() if finite_only else job)

    def save_prototypes(self, path: str) -> None:
        with self._showing_errors():
            name = save_prototypes(json_path(path), self._prototypes()).name
            self.status.reset(f"saved {name}: load it in the Prototypes dock to label others")

    def _prototypes(self) -> PrototypeSet:
        rescale = self.controls.brightness.value
        return self._results.prototypes(rescale, self.controller.is_running)

    def _on_apply_clicked(self) -> None:
        if self.controls.other.layer is not None:
            self.apply_to(self.controls.other.layer)

    def _on_save_clicked(self) -> None:
        start = str(Path.cwd() / "taught.prototypes.json")
        path, _ = QFileDialog.getSaveFileName(self, "Save what was taught", start, PROTOTYPE_FILTER)
        if path:
            self.save_prototypes(path)

    def _update_enabled(self) -> None:
        super()._update_enabled()
        controls, has_strokes = self.controls, self.input.strokes is not None
        for button in (controls.erase, controls.update, controls.suggest, controls.save):
            button.setEnabled(has_strokes)
        controls.apply.setEnabled(has_strokes and controls.other.layer is not None)
        image = None if has_strokes else self.input.image
        saved = None if image is None else last_saved(image, self.input.region().whole()[1])
        self._saved_strokes = saved
        controls.restore.setVisible(saved is not None)
        if saved is not None:
            painted = datetime.fromtimestamp(saved.stat().st_mtime)
            controls.restore.setToolTip(
                f"Bring back the strokes painted on this image; last kept {painted:%Y-%m-%d %H:%M}."
            )
