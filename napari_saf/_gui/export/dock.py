"""The Export dock: choice of labels, files and folder; application of the recipe."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels
from napari.types import FullLayerData
from qtpy.QtCore import QTimer

from napari_saf._gui.docks.apply import ApplyDialog, ApplyRequest, start_applying
from napari_saf._gui.docks.base import DockBase, NextRow
from napari_saf._gui.docks.tables import TableSection
from napari_saf._gui.export.files import (
    ExportRequest,
    labelling_reader,
    measure,
    opened_text,
    replacing_texts,
    why_not_written,
    write_files,
)
from napari_saf._gui.export.sections import (
    ExportChoice,
    ExportTarget,
    ProbabilitySection,
    RepeatSection,
)
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.display_text import list_names
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold
from napari_saf._gui.layers import metadata
from napari_saf._gui.layers.placement import image_folder, image_region, labelled_image
from napari_saf._gui.layers.reader import ZARR_FILE, read_layer
from napari_saf._gui.layers.view import EventWatch, visibility_of
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel, Suggestion
from napari_saf.errors import InvalidInput
from napari_saf.io import file_stem
from napari_saf.project import FileReference

_APPLY_HELP = "Label other images with the same method, parameters, features and scale."
_HELP = "Write the ticked files; asks before replacing any."
_OPEN_HELP = (
    "Open a mask as labels, with the names, colours, recipe and prototypes that it was saved with; "
    "of an OME-Zarr choose the file zarr.json."
)
_PATIENCE = 400
"""Milliseconds without a change after which labels are measured."""
_STOP_HELP = (
    "Finish the current file, except tables and outlines of large labels, and skip the others; "
    "end a run with its current labels."
)
_NO_LABELS = "no labels: run Segment, or open a Labels layer"
_NOTHING = "nothing is ticked"


class ExportWidget(DockBase):
    """Saves labels for other programs, and applies their recipe to other images."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs, ("Export", _HELP))
        self.status, self.controller = self.panel.status, self.panel.controller
        self.button = self.panel.run_button
        self._raw: object = None
        self.measuring = QTimer(self, singleShot=True, interval=_PATIENCE)
        self._watched: Any = None
        # Delayed: regions are active for a moment when added.
        self._active = EventWatch(self, 0, (viewer.layers.selection.events.active,))
        self.labels = LayerChoice(viewer, Labels)
        self.labels.choose(metadata.labels_to_choose(viewer))
        self.image = LayerChoice(viewer, Image, self._fits, none="none")
        self._add_controls()
        self.bind_keys({RUN_KEY: self._stop_by_key})
        self.at_end(self.panel.shut_down, self._release)
        self.connect_all(
            (self.panel.run_clicked, self.start),
            (self.panel.repeat_asked, self._export),
            (self.panel.busy_changed, self._refresh),
            (self.next_row.opened, lambda dock: dock.image.choose(self.image.layer)),
            (self.applying.apply_asked, self._apply),
            (self.labels.layer_changed, self._on_labels_changed),
            (self.applying.changed, self._refresh),
            (self.target.changed, self._refresh),
            (self.choice.changed, self._refresh),
            (self.choice.changed, self.measuring.start),
            (self.image.layer_changed, self.measuring.start),
            (self.table_fold.toggled, self.measuring.start),
            (self.measuring.timeout, self._measure),
            (self._active.changed, self._on_active_changed),
            (self.table.label_chosen, self._choose_label),
            (viewer.layers.events.inserted, self._on_layer_inserted),
        )
        self._on_labels_changed()

    def _add_controls(self) -> None:
        viewer, panel = self._viewer, self.panel
        self.table, self.maps = TableSection(self.status), ProbabilitySection(panel, viewer)
        self.choice, self.target = ExportChoice(), ExportTarget()
        self.applying = ApplyDialog(self, viewer, panel, _APPLY_HELP)
        start = partial(image_folder, viewer)
        self.repeat = RepeatSection(self.applying, panel, start)
        self.file_name, self.folder = self.target.file_name, self.target.folder
        ask = partial(self.target.ask_for_mask, self.open_mask)
        self.open_button = create_button("Open mask …", _OPEN_HELP, ask)
        panel.stop_button.setToolTip(_STOP_HELP)
        self.next_row = NextRow(self.workspace, lambda: self.labels.layer)
        rows = FormSection()
        rows.add_row("Labels", self.labels, "The Labels layer to save.")
        rows.add_row("Image", self.image, "The labelled image, for brightness and the figure.")
        rows.layout().addWidget(self.next_row)
        self.table_fold = create_fold("Table", self.table)
        maps = create_fold("Probability maps", self.maps)
        repeat = create_fold("Apply the recipe", self.repeat)
        self.lay_out(
            [rows, self.choice, self.target, self.table_fold, maps, repeat],
            [self.button, self.open_button, panel.stop_button],
            [self.status],
        )

    def start(self) -> None:
        in_bytes = self.maps.in_bytes.isChecked()
        selection = dataclasses.replace(self.choice.selection, in_bytes=in_bytes)
        if self.panel.is_busy or self._reason():
            return
        with self.panel.showing_errors():
            image = self.image.layer
            maps = (self.maps.reader(),) if selection.probabilities else ()
            read = labelling_reader(self._viewer, self.labels.layer, image, *maps)
            self._export(ExportRequest(image, read, self.target.path, selection))

    def _export(self, request: ExportRequest) -> None:
        self.panel.begin_task(
            "writing",
            partial(write_files, request),
            partial(self._on_written, request),
            stopped_text="stopped: nothing was saved",
        )

    def open_mask(self, chosen: str | Path) -> None:
        """Open a label image as a Labels layer; an OME-Zarr folder by its file zarr.json."""
        path = Path(chosen)
        path = path.parent if path.name == ZARR_FILE else path
        self.panel.begin_task(
            "opening the mask", lambda report, cancelled: read_layer(path), self._on_mask_read
        )

    def _on_mask_read(self, mask: FullLayerData) -> None:
        pixels, arguments, _ = mask
        layer = self._viewer.add_labels(pixels, **arguments)
        self.labels.choose(layer)
        if self.image.layer is not None:
            visibility_of(self._viewer).show_result(self.image.layer, layer)
        self.panel.show_outcome(opened_text(layer))

    def _stop_by_key(self) -> bool:
        """Stop the current task; the key never starts an export."""
        return self.panel.is_busy and self.panel.run_or_stop()

    def _apply(self, request: ApplyRequest) -> None:
        recipe = self.repeat.recipe
        if recipe is not None and self.panel.task is None:
            with self.panel.showing_errors():
                start_applying(self.panel, self._viewer, request, recipe, self.labels.layer)

    def _release(self) -> None:
        self._watch(None)
        self._active.watch()
        self.measuring.stop()
        self.maps.choose(None)
        self._raw = self.repeat.recipe = None

    def _fits(self, image: Image) -> bool:
        labels = self.labels.layer
        return labels is not None and image_region(labels, image) is not None

    def _on_active_changed(self) -> None:
        active = self._viewer.layers.selection.active
        is_chosen = isinstance(active, Labels) and not active.metadata.get(metadata.UNCHOSEN_KEY)
        if is_chosen and not metadata.is_strokes(active):
            self.labels.choose(active)

    def _on_layer_inserted(self, event: Any) -> None:
        """Select a new result, and the image of a mask; regions only if the user selects them."""
        layer = event.value
        if isinstance(layer, Image) and self.image.layer is None and self.labels.layer is not None:
            self.image.refresh()
            self.image.choose(labelled_image(self._viewer, self.labels.layer, self._fits))
        is_computed = isinstance(layer, Labels) and metadata.METADATA_KEY in layer.metadata
        if is_computed and not metadata.is_regions(layer):
            self.labels.choose(layer)

    def _on_labels_changed(self, layer: object = None) -> None:
        labels = self.labels.layer
        self._watch(labels)
        self.image.refresh()
        if labels is not None:
            self.image.choose(labelled_image(self._viewer, labels, self._fits))
            self.target.suggest(labels, self.image.layer)
        self.panel.forget()
        if metadata.is_strokes(labels) and not self.panel.is_busy:
            self.panel.note(metadata.ARE_STROKES)
        self._show_recipe()

    def _watch(self, layer: Any) -> None:
        """Watch the data of a layer, as its metadata change with them without an event."""
        if self._watched is not None:
            self._watched.events.set_data.disconnect(self._on_data_changed)
        self._watched = layer
        if layer is not None:
            layer.events.set_data.connect(self._on_data_changed)

    def _on_data_changed(self, event: object = None) -> None:
        self.measuring.start()
        if metadata.stored_recipe(self.labels.layer) is not self._raw:
            self._show_recipe()

    def _show_recipe(self) -> None:
        labels, recipe, why_not = self.labels.layer, None, "no labels are chosen"
        has_labels = labels is not None
        self._raw = metadata.stored_recipe(labels) if has_labels else None
        try:
            recipe, why_not = (metadata.recipe_of(labels), "") if has_labels else (None, why_not)
        except InvalidInput as error:
            why_not = str(error)
        self.repeat.show_recipe(recipe, why_not, file_stem(labels.name) if has_labels else "labels")
        self.maps.choose(labels)
        for name, reason in why_not_written(labels, why_not, self.maps.why_not).items():
            self.choice.offer(name, reason)
        self._refresh()

    def _measure(self) -> None:
        labels = self.labels.layer
        if not self.table_fold.isExpanded():
            return
        if labels is None:
            self.table.show_reason(f"{_NO_LABELS}.")
            return
        read = labelling_reader(self._viewer, labels, self.image.layer)
        self.table.path = self.target.path
        work = partial(measure, read, self.choice.selection)
        self.panel.background.run("table", work, lambda measured: self.table.show_table(*measured))

    def _choose_label(self, label: int) -> None:
        if self.labels.layer is not None:
            self.labels.layer.selected_label = label

    def _refresh(self, *changed: object) -> None:
        is_free = not self.panel.is_busy
        self.panel.set_reason(self._reason(), is_free=is_free)
        self.next_row.refresh()
        self.open_button.setEnabled(is_free)
        self.repeat.update_enabled(self.panel.task is None)

    def _reason(self) -> str:
        if self.labels.layer is None:
            return _NO_LABELS
        return _NOTHING if self.choice.selection.is_empty else self.target.why_not

    def _on_written(
        self, request: ExportRequest, files: tuple[list[FileReference], list[Path], str]
    ) -> None:
        written, in_the_way, note = files
        paths = in_the_way or [file.path for file in written]
        names = list_names([path.name for path in paths])
        if in_the_way:
            again = dataclasses.replace(request, may_replace=True)
            are, text = replacing_texts(len(in_the_way))
            self.panel.show_fault(f"{names} {are} there already", Suggestion(text, again))
            return
        assert self.panel.task is not None
        entry = self.workspace.session.entry_of(request.image)
        if entry is not None:
            self.workspace.session.add_results(entry, written)
        folder = paths[0].absolute().parent.name if paths else ""
        text = f"saved {names} in {folder}" if written else "nothing was saved"
        if self.panel.task.is_cancelled:
            self.panel.note(f"stopped: {text}")
        else:
            note = f"; {note}" if note else ""
            self.panel.show_outcome(f"{text}, {self.panel.task.seconds:.1f} s{note}")
