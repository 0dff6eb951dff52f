"""The Prototypes dock: the labels of a layer as rows, edited there, used on other images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.docks.label_table import LabelTable
from napari_saf._gui.docks.run_dock import (
    RESCALE,
    RunDock,
    describe_error,
    rescale_action,
    suggested_action_for,
)
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.controls import json_path
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, create_row, enable
from napari_saf._gui.layers.live import EditedLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import image_region, labelled_image
from napari_saf._gui.layers.view import LayerWatch, center_on, deepest_pixel
from napari_saf._gui.prototypes import edits
from napari_saf._gui.prototypes.edits import Edited, EditTarget
from napari_saf._gui.prototypes.labels import (
    FileSource,
    LabelState,
    SourceList,
    UndoStep,
    prototype_set,
    rows_of,
)
from napari_saf._gui.prototypes.other_images import OtherImagesSection, create_job
from napari_saf._gui.runs.controller import RunJob
from napari_saf.errors import InvalidInput
from napari_saf.io import load_prototypes, save_prototypes
from napari_saf.recording import PackedArray
from napari_saf.result import STATUS_TEXTS, Segmentation

_COLUMNS = {
    "swatch": ("", "What the label stands for, in the frame of its colour (f*)"),
    "name": ("Label", "Double-click to rename"),
    "share": ("Share", "Share of the labelled pixels"),
    "size": ("Pixels", "Pixels of the label"),
    "lock": ("Lock", "Keep pixels and prototype of this label as they are"),
}
_HELP = {
    "merge": "Make one label of the chosen ones; it keeps the prototypes of all (f*).",
    "split": "Divide the chosen label in two: by its features, then by the flow.",
    "delete": "Take the chosen labels away; the flow gives their pixels to the others.",
    "refine": "Let the flow go on from the labels as they are now; locked ones stay (W).",
}
_EDITS = {
    "merge": (edits.merge, "merging", "merge"),
    "split": (edits.split, "splitting", "split of {}"),
    "delete": (edits.delete, "deleting", "delete"),
    "refine": (edits.refine, "preparing", "refinement"),
}
"""What a button calls in a thread, and the words for it while it lasts and after."""
_DELETE_TO_0 = "Take the chosen labels away; their pixels become 0."


class PrototypesWidget(RunDock):
    """A table of the labels with their prototypes; edits, applies and saves them."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.table = LabelTable(_COLUMNS, (44, 20), (6, 16), selects_several=True)
        self.other_images, self.sources = OtherImagesSection(viewer), SourceList(viewer)
        self._sizes: dict[int, int] = {}
        self._select_next: tuple[int, ...] = ()
        self._next_job: RunJob | None = None
        self._pending: tuple[str, Callable[[Segmentation, Labels], None]] | None = None
        self._finite_only = False
        self._watch = LayerWatch(self)
        self._labels = LayerChoice(viewer, lambda layer: isinstance(layer, Labels))
        self._image = LayerChoice(viewer, self._fits_labels, none="none")
        choices = FormSection()
        choices.add_row("Labels", self._labels, "The Labels layer whose labels are the rows.")
        choices.add_row("Image", self._image, "The image that was labelled: the flow needs it.")
        self.buttons = {
            name: create_button(name.capitalize(), on_clicked=partial(self.edit, name))
            for name in _EDITS
        }
        for name, step in (("undo", self.undo), ("redo", self.redo)):
            self.buttons[name] = create_button(name.capitalize(), on_clicked=step)
        *edit_buttons, undo, redo = self.buttons.values()
        fold = create_fold("Use elsewhere, save, load", self.other_images)
        widgets = [choices, self.table, create_row(*edit_buttons), fold]
        self._lay_out(widgets, [undo, redo, self._stop_button], [])
        for signal, slot in (
            (self._labels.layer_changed, self._on_labels_changed),
            (self._labels.currentIndexChanged, self._on_labels_changed),
            (self._image.layer_changed, self._update_enabled),
            (self._watch.changed, self._count_pixels),
            (self.table.selection_changed, self._on_selection_changed),
            (self.table.renamed, self.rename),
            (self.table.lock_toggled, self.lock),
            (self.other_images.use.clicked, self.use),
            (self.other_images.save_requested, self.save_to),
            (self.other_images.load_requested, self.load_from),
            (self.status.suggested_action_clicked, self._on_suggested_action_clicked),
            (viewer.layers.events.inserted, self._on_layer_inserted),
        ):
            signal.connect(slot)
        # Last: the sources forget the layer before.
        viewer.layers.events.removed.connect(self._update_enabled, position="last")
        active = viewer.layers.selection.active
        labels = [layer for layer in viewer.layers if isinstance(layer, Labels)]
        self.choose(active if active in labels else next(reversed(labels), None))
        self._on_labels_changed()

    def _release(self) -> None:
        self._viewer.layers.events.inserted.disconnect(self._on_layer_inserted)
        self._viewer.layers.events.removed.disconnect(self._update_enabled)
        self._watch.follow(None)
        for choice in (self._labels, self._image, self.other_images.image):
            choice.disconnect_viewer()
        self.sources.release()
        self._pending = self._next_job = None

    @property
    def source(self) -> Any:
        """The layer or file that is chosen, or None."""
        return self.sources.of(self._labels.value)

    def choose(self, value: object) -> None:
        self._labels.choose(value)

    def _fits_labels(self, layer: object) -> bool:
        labels = self._labels.layer
        return (
            isinstance(layer, Image)
            and METADATA_KEY not in layer.metadata
            and labels is not None
            and image_region(labels, layer) is not None
        )

    def _on_layer_inserted(self, event: Any) -> None:
        """Turn to a new result, unless there is one to work on."""
        if isinstance(event.value, Labels) and self.source is None:
            self.choose(event.value)

    def _on_labels_changed(self, *changed: object) -> None:
        layer = self._labels.layer
        if layer is None or layer != self._watch.layer:
            self._watch.follow(layer)
            self._sizes = {}
            self.table.clearSelection()
            self._image.refresh()
            if layer is not None:
                self._image.choose(labelled_image(self._viewer, layer, self._fits_labels))
            self._show_rows()
        self._count_pixels()
        self._update_enabled()

    def _show_rows(self) -> None:
        source = self.source
        self.table.show_rows([] if source is None else rows_of(source, self._sizes))

    def _count_pixels(self) -> None:
        """Count the pixels of each label in the background, and show the rows."""
        layer = self._labels.layer
        if layer is None or self.controller.is_running:
            return
        target = EditTarget.of(layer)

        def show(sizes: dict[int, int]) -> None:
            if self._labels.layer == layer:
                self._sizes = sizes
                self._show_rows()
                if self._select_next and sizes.keys() >= {*self._select_next}:
                    self.table.select(self._select_next)
                    self._select_next = ()
                self._update_enabled()

        self.run_in_background("sizes", lambda stop: edits.count_pixels(target.read(stop)), show)

    def _on_selection_changed(self) -> None:
        """Show where the label is, if it is one: alone, its largest region in the middle."""
        selected, layer = self.table.selected(), self._labels.layer
        self._update_enabled()
        if layer is None or len(selected) != 1:
            self._watch.show_all()
            return
        self._watch.highlight(selected[0])
        target = EditTarget.of(layer)

        def center(pixel: tuple[int, ...] | None) -> None:
            if pixel is not None and layer in self._viewer.layers:
                rest = iter(pixel)
                where = (0 if isinstance(at, int) else next(rest) for at in target.index)
                center_on(self._viewer, layer, tuple(where))

        self.run_in_background(
            "centre", lambda stop: deepest_pixel(target.read(stop), selected[0], stop), center
        )

    def rename(self, number: int, name: str) -> None:
        state = self.source.state
        if state.name(number) != name.strip():
            self._edit_state(f"name of label {number}", state.renamed(number, name))

    def lock(self, number: int, locked: bool = True) -> None:
        self._edit_state(f"lock of label {number}", self.source.state.with_lock(number, locked))

    def _edit_state(self, name: str, state: LabelState) -> None:
        """Change the metadata of the labels, not their pixels."""
        self.sources.edit(self.source, name, state)
        self._show_rows()
        self._update_enabled()

    def edit(self, how: str, checked: bool = False) -> None:
        """Merge, split or delete the selected labels, or refine all; of a file only its state.

        A layer is edited in a thread, then the flow continues.
        """
        source, image, selected = self.source, self._image.layer, self.table.selected()
        if source is None or self.is_busy:
            return
        edit, text, name = _EDITS[how]
        name = name.format(*selected)
        if source.layer is None:
            state = source.state
            is_merge = how == "merge"
            new = state.merged(selected, selected[0]) if is_merge else state.deleted(selected)
            self._edit_state(name, new)
            return
        target = EditTarget.of(
            source.layer,
            image,
            state=source.state,
            selected=selected,
            reader=self.controller.reader,
        )

        def compute(report: object, stop: Callable[[], bool]) -> tuple[Any, ...]:
            labels = target.read(stop)
            edited = edit(target, labels, stop)
            return PackedArray.of(labels), edited, edited.labels != labels

        def show(computed: tuple[PackedArray, Edited, NDArray[np.bool_]]) -> None:
            layer = source.layer
            if layer in self._viewer.layers and layer.data is target.data:
                self.sources.edit(source, name, computed[1].state, computed[0])
                self._show_edited(name, EditedLayer(self._viewer, image, layer), *computed[1:])
            else:
                self.status.reset("the layer has changed meanwhile: nothing was done")

        self.begin_task(text, compute, show)

    def _show_edited(
        self, name: str, live: EditedLayer, edited: Edited, changed: NDArray[np.bool_]
    ) -> None:
        if changed.any():
            live.write(edited.labels, changed)
        self._select_next = edited.selection
        self._show_rows()
        self.status.reset(f"done: {name}")
        if edited.run is None:
            return
        job, method, start = edited.run
        self._next_job = RunJob(live.image, job, method, live.placement, live=live, start=start)

        def finish(result: Segmentation, layer: Labels) -> None:
            # Without the other labels as seeds, a run has its prototypes from the state.
            if start.others_are_seeds:
                source = self.sources.of(layer)
                source.state = source.state.after_run(start.numbers, result.prototypes)

        self._pending = (name, finish)

    def _on_task_finished(self) -> None:
        super()._on_task_finished()
        job, self._next_job = self._next_job, None
        if job is not None and job.image in self._viewer.layers:
            self.controller.start(job)
        else:
            self._count_pixels()

    def use(self, finite_only: bool = False) -> None:
        """Label another image with these prototypes; perhaps without pixels that are not finite."""
        self._finite_only = finite_only
        source, image = self.source, self.other_images.image.layer
        if source is None or image is None or self.is_busy:
            return
        state, name = source.state, f"use on {image.name}"

        def finish(result: Segmentation, layer: Labels) -> None:
            own = LabelState(state.names, prototypes=state.prototypes)
            self.sources.of(layer).state = own
            self.sources.history.push(UndoStep(name, source, added=layer))

        with self._showing_errors():
            job = create_job(self._viewer, source, image, self.other_images.brightness.value)
            self._pending = (name, finish)
            self.controller.start(job.masked() if finite_only else job)

    def save_to(self, path: str) -> None:
        if self.source is not None:
            with self._showing_errors():
                found = prototype_set(self.source, self.other_images.brightness.value)
                self.status.reset(f"saved {save_prototypes(json_path(path), found).name}")

    def load_from(self, path: str) -> None:
        """Show the prototypes of a file as rows."""
        with self._showing_errors():
            loaded = FileSource(f"{Path(path).name} (file)", load_prototypes(path))
            self.sources.files.append(loaded)
            self._offer_files()
            self.choose(loaded)
            self.sources.history.push(UndoStep(f"load of {loaded.title}", loaded, added=loaded))
            self._update_enabled()

    def _offer_files(self) -> None:
        self._labels.set_others([(one.title, one) for one in self.sources.files])
        self._on_labels_changed()

    def _on_returned(self, result: Segmentation) -> None:
        live = self.controller.live
        if self._pending is None or live is None:
            return
        name, finish = self._pending
        text = f"{name}: {STATUS_TEXTS[result.status]} in {self.controller.seconds:.1f} s"
        text = self.controller.outcome_text(text, result)
        self.status.show_progress(1.0, text, rescale_action(self.controller))
        if live.layer in self._viewer.layers:
            finish(result, live.layer)

    def _on_finished(self) -> None:
        super()._on_finished()
        self._pending = None
        self._count_pixels()

    def _on_failed(self, error: Exception) -> None:
        self._show_error(describe_error(error), suggested_action_for(error))

    def _on_suggested_action_clicked(self) -> None:
        """Use the prototypes again, without the pixels or the scaling that were in the way."""
        if self.status.suggested_action == RESCALE:
            self.other_images.brightness.choose(True)
            self.use(self._finite_only)
        else:
            self.use(finite_only=True)

    def undo(self) -> None:
        self._restore(self.sources.history.past, is_undo=True)

    def redo(self) -> None:
        self._restore(self.sources.history.future, is_undo=False)

    def _restore(self, steps: Sequence[UndoStep], *, is_undo: bool) -> None:
        """Bring back what the last step holds; pixels in a thread."""
        if self.is_busy or not steps:
            return
        step = steps[-1]
        layer, pixels = step.source.layer, step.pixels
        if layer is None or pixels is None:
            self._show_restored(step, None, is_undo=is_undo)
            return
        target = EditTarget.of(layer)

        def compute(report: object, stop: Callable[[], bool]) -> tuple[Any, ...]:
            now, then = target.read(stop), pixels.unpack()
            if now.shape != then.shape:
                raise InvalidInput("the layer has another shape now: this cannot be undone")
            return PackedArray.of(now), then, now != then

        def apply(computed: tuple[PackedArray, NDArray[Any], NDArray[np.bool_]]) -> None:
            if layer in self._viewer.layers:
                EditedLayer(self._viewer, None, layer).write(computed[1], computed[2])
                self._show_restored(step, computed[0], is_undo=is_undo)

        self.begin_task("undoing" if is_undo else "redoing", compute, apply)

    def _show_restored(self, step: UndoStep, pixels: PackedArray | None, *, is_undo: bool) -> None:
        self.sources.restore(step, pixels, is_undo=is_undo)
        if isinstance(step.added, FileSource):
            self._offer_files()
        if step.added is None:
            self.choose(step.source.layer or step.source)
        elif isinstance(step.added, FileSource) and not is_undo:
            self.choose(step.added)
        self._show_rows()
        self._update_enabled()
        self.status.reset(f"{'undone' if is_undo else 'done again'}: {step.name}")

    def _update_enabled(self, *changed: object) -> None:
        super()._update_enabled()
        layer, busy = self._labels.layer, "wait for the end, or stop" if self.is_busy else ""
        target = None if layer is None else EditTarget.of(layer, self._image.layer)
        for name, reason in edits.why_not(self.source, target, self.table.selected()).items():
            to_0 = name == "delete" and target is not None and target.reason
            enable(self.buttons[name], busy or reason, _DELETE_TO_0 if to_0 else _HELP[name])
        past, future = self.sources.history.past, self.sources.history.future
        for name, steps, verb in (("undo", past, "Take back"), ("redo", future, "Do again")):
            text = f"{verb}: {steps[-1].name} ({steps[-1].source.title})." if steps else ""
            enable(self.buttons[name], busy or ("" if steps else "nothing was edited here"), text)
        self.other_images.show_source(self.source, busy)
