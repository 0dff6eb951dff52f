"""The Prototypes dock: a table of labels, edits, application of prototypes to other images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels

from napari_saf._gui.docks.apply import (
    BUSY,
    ApplyDialog,
    ApplyRequest,
    save_classifier,
    start_applying,
)
from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.docks.label_table import LabelTable
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.controls import PROTOTYPE_FILTER, ask_for_path
from napari_saf._gui.forms.layout import FormSection, create_button, create_row, enable
from napari_saf._gui.layers.metadata import ARE_STROKES, is_given, is_strokes, labels_to_choose
from napari_saf._gui.layers.placement import image_folder, image_region, labelled_image
from napari_saf._gui.layers.view import LabelFinder, LayerWatch, visibility_of
from napari_saf._gui.prototypes import edits
from napari_saf._gui.prototypes.editor import EDITS, LabelEditor, UndoStep
from napari_saf._gui.prototypes.edits import EditTarget
from napari_saf._gui.prototypes.labels import (
    FileSource,
    LayerSource,
    Source,
    prototype_set,
    rows_of,
)
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf.io import load_prototypes
from napari_saf.pipeline import Pipeline
from napari_saf.result import STATUS_TEXTS, Segmentation

_COLUMNS = {
    "swatch": ("", "Prototype of the label, framed in its colour (f*)"),
    "name": ("Label", "Double-click to rename"),
    "share": ("Share", "Share of the labelled pixels"),
    "size": ("Pixels", "Pixels of the label"),
    "lock": ("Lock", "Keep pixels and prototype of this label unchanged"),
}
_HELP = {
    "merge": "Merge the selected labels into one, which keeps all their prototypes (f*).",
    "split": "Split the selected label in two, by its features, then by the flow.",
    "delete": "Delete the selected labels; the flow assigns their pixels to the others.",
    "refine": "Continue the flow from the current labels; locked ones are kept (W).",
    "load": "Open prototypes from a file, to use them on an image.",
}
_APPLY_HELP = "Label other images with these prototypes, in the same features (f*)."
_DELETE_TO_0 = "Delete the selected labels; their pixels become 0."


class PrototypesWidget(DockBase):
    """A table of the labels with their prototypes, which it edits, applies and saves."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs, outcome_text=self._outcome_text)
        self.status, self.controller = self.panel.status, self.panel.controller
        self.table = LabelTable(_COLUMNS, (44, 20), (6, 16), selects_several=True)
        self.editor = LabelEditor(self.panel, viewer)
        self._files: list[FileSource] = []
        self._sizes: dict[int, int] = {}
        self._applied: tuple[str, Source] | None = None  # for another image
        self._watch, self._finder = LayerWatch(self), LabelFinder(viewer, self)
        self.labels = LayerChoice(viewer, Labels, lambda layer: not layer.multiscale)
        self.image = LayerChoice(viewer, Image, self._fits_labels, none="none")
        self._add_controls()
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(self.panel.shut_down, self._release)
        self.connect_all(
            (self.panel.busy_changed, self._refresh),
            (self.controller.returned, self._on_returned),
            (self.editor.changed, self._show_rows),
            (self.editor.pixels_changed, self._on_pixels_changed),
            (self.editor.restored, self._on_restored),
            (self.editor.ended, self._count_pixels),
            (self.applying.apply_asked, self._apply),
            (self.applying.save_asked, self._save_classifier),
            (self.labels.layer_changed, self._on_labels_changed),
            (self.labels.currentIndexChanged, self._on_labels_changed),
            (self.image.layer_changed, self._refresh),
            (self.applying.changed, self._refresh),
            (self._watch.changed, self._count_pixels),
            (self._finder.returned, self.table.clearSelection),
            (self.table.selection_changed, self._on_selection_changed),
            (self.table.renamed, self.rename),
            (self.table.lock_toggled, self.lock),
            (viewer.layers.events.inserted, self._on_layer_inserted),
        )
        # Last, after the choices have dropped the layer.
        viewer.layers.events.removed.connect(self._on_layer_removed, position="last")
        self.choose(labels_to_choose(viewer))
        self._on_labels_changed()

    def _add_controls(self) -> None:
        choices = FormSection()
        choices.add_row("Labels", self.labels, "The Labels layer whose labels are the rows.")
        choices.add_row("Image", self.image, "The image that was labelled: the flow needs it.")
        slots: dict[str, Callable[..., None]] = {name: partial(self.edit, name) for name in EDITS}
        slots |= {"load": self._on_load_clicked}
        slots |= {"undo": self.editor.undo, "redo": self.editor.redo}
        texts = {"load": "Load classifier …"}
        self.buttons = {
            name: create_button(texts.get(name, name.capitalize()), _HELP.get(name, ""), slot)
            for name, slot in slots.items()
        }
        *edit_buttons, load, undo, redo = self.buttons.values()
        self.applying = ApplyDialog(
            self, self._viewer, self.panel, _APPLY_HELP, has_classifier=True, extra=[load]
        )
        widgets = [choices, self.table, create_row(*edit_buttons), self.applying.row]
        self.lay_out(widgets, [undo, redo, self.panel.stop_button], [self.status])

    def _release(self) -> None:
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        self._watch.follow(None)
        self.editor.release()
        self._applied = None

    @property
    def source(self) -> Source | None:
        layer = self.labels.layer
        source: Source | None = self.labels.value if layer is None else LayerSource(layer)
        return source

    def choose(self, value: object) -> None:
        self.labels.choose(value)

    def _fits_labels(self, layer: Image) -> bool:
        labels = self.labels.layer
        return labels is not None and is_given(layer) and image_region(labels, layer) is not None

    def _on_layer_inserted(self, event: Any) -> None:
        """Select a new result, unless one is selected; strokes do not count.

        Also select an image that fits labels opened before it, such as a mask.
        """
        labels = self.labels.layer
        if isinstance(event.value, Image) and self.image.layer is None and labels is not None:
            self.image.refresh()
            self.image.choose(labelled_image(self._viewer, labels, self._fits_labels))
        has_none = self.source is None or is_strokes(self.labels.layer)
        if isinstance(event.value, Labels) and not is_strokes(event.value) and has_none:
            self.choose(event.value)

    def _on_layer_removed(self, event: Any) -> None:
        self.editor.forget_layer(event.value)
        self._refresh()

    def _on_labels_changed(self, *changed: object) -> None:
        layer, source = self.labels.layer, self.source
        if layer is None or layer != self._watch.layer:
            self._watch.follow(layer)
            self._sizes = {}
            self.table.clearSelection()
            self.image.refresh()
            if layer is not None:
                self.image.choose(labelled_image(self._viewer, layer, self._fits_labels))
            self.applying.take_brightness(None if source is None else source.options)
            self._show_rows()
            self.panel.forget()
            if is_strokes(layer) and not self.panel.is_busy:
                self.panel.note(ARE_STROKES)
        self._count_pixels()
        self._refresh()

    def _show_rows(self) -> None:
        source = self.source
        self.table.show_rows([] if source is None else rows_of(source, self._sizes))
        self._refresh()

    def _count_pixels(self) -> None:
        layer = self.labels.layer
        if layer is None or self.panel.is_busy:
            return
        target = EditTarget.of(layer)

        def show(sizes: dict[int, int]) -> None:
            if self.labels.layer == layer and not self.panel.is_busy:
                self._sizes = sizes
                self._show_rows()

        self.panel.background.run("sizes", lambda stop: edits.count_pixels(target.read(stop)), show)

    def _on_selection_changed(self) -> None:
        """Show a single selected label alone, and bring it into view."""
        selected, layer = self.table.selected(), self.labels.layer
        self._refresh()
        if layer is None or len(selected) != 1:
            self._watch.show_all()
            return
        visibility_of(self._viewer).restore(layer)
        self._watch.highlight(selected[0])
        search = self._finder.searcher(layer, selected[0])
        self.panel.background.run("centre", search, partial(self._finder.go, layer))

    def rename(self, number: int, name: str) -> None:
        if self.source is not None:
            self.editor.rename(self.source, number, name)

    def lock(self, number: int, locked: bool = True) -> None:
        if self.source is not None:
            self.editor.lock(self.source, number, locked)

    def edit(self, how: str, checked: bool = False) -> None:
        """Merge, split or delete the selected labels, or refine all."""
        if self.source is not None and not self.panel.is_busy:
            self.editor.edit(how, self.source, self.image.layer, self.table.selected())

    def _on_pixels_changed(self, layer: Labels, sizes: dict[int, int], selected: Any) -> None:
        if self.labels.layer == layer:
            self._sizes = sizes
            self._show_rows()
            if selected:
                self.table.select(selected)

    def _on_restored(self, step: UndoStep, is_undo: bool) -> None:
        if isinstance(step.added, FileSource):
            files = [file for file in self._files if file is not step.added]
            self._offer_files(files if is_undo else [*files, step.added])
        if step.added is None or step.added is step.source:
            self.choose(step.source.layer or step.source)
        self._show_rows()

    def _apply(self, request: ApplyRequest) -> None:
        source = self.source
        if source is not None and not self.panel.is_busy:
            with self.panel.showing_errors():
                pipeline = Pipeline.from_prototypes(prototype_set(source))
                name = "" if request.image is None else f"apply to {request.image.name}"
                self._applied = name, source
                start_applying(self.panel, self._viewer, request, pipeline, source.layer)

    def load_from(self, path: str) -> None:
        with self.panel.showing_errors():
            loaded = FileSource(f"{Path(path).name} (file)", load_prototypes(path))
            self._offer_files([*self._files, loaded])
            self.choose(loaded)
            self.editor.history.push(UndoStep("load", loaded, added=loaded))
            self._refresh()

    def _save_classifier(self, path: str, rescale: bool) -> None:
        assert self.source is not None
        with self.panel.showing_errors():
            self.panel.note(save_classifier(path, prototype_set(self.source, rescale)))

    def _on_load_clicked(self) -> None:
        home = str(image_folder(self._viewer))
        ask_for_path(self, "Load classifier", home, PROTOTYPE_FILTER, self.load_from, opens=True)

    def _offer_files(self, files: list[FileSource]) -> None:
        self._files = files
        self.labels.set_others([(file.title, file) for file in files])
        self._on_labels_changed()

    def _outcome_text(self, result: Segmentation, seconds: float) -> str:
        job = self.controller.job
        request = self._applied if job is not None and job.is_applied else self.editor.refining
        name = "" if request is None else f"{request[0]}: "
        return f"{name}{STATUS_TEXTS[result.status]} in {seconds:.1f} s"

    def _on_returned(self, result: Segmentation) -> None:
        live, job = self.controller.live, self.controller.job
        if live is None or job is None or live.layer not in self._viewer.layers:
            return
        if job.is_applied and self._applied is not None:
            self.editor.take_applied(*self._applied, live.layer)
        else:
            self.editor.take_refined(job, result)

    def _refresh(self, *changed: object) -> None:
        source, layer = self.source, self.labels.layer
        busy = BUSY if self.panel.is_busy else ""
        target = None if layer is None else EditTarget.of(layer, self.image.layer)
        reasons = edits.why_not(source, target, self.table.selected())
        why_not_applied, why_not_saved = reasons.pop("apply"), reasons.pop("save")
        self.applying.update_enabled(busy or why_not_applied, why_not_saved)
        for name, reason in reasons.items():
            to_0 = name == "delete" and target is not None and target.reason
            enable(self.buttons[name], busy or reason, _DELETE_TO_0 if to_0 else _HELP[name])
        history = self.editor.history
        for name, steps in (("undo", history.past), ("redo", history.future)):
            text = f"{name.capitalize()}: {steps[-1].title}." if steps else ""
            enable(self.buttons[name], busy or ("" if steps else "nothing was edited here"), text)
