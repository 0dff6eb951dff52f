"""The Objects dock: objects of a Labels layer, split, corrected and measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QLabel, QPushButton

from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.layout import create_button, create_row
from napari_saf._gui.layers.metadata import OBJECTS_KEY
from napari_saf._gui.layers.placement import image_folder
from napari_saf._gui.objects.class_layers import ClassLayers
from napari_saf._gui.objects.classes import ClassSection
from napari_saf._gui.objects.corrections import PATIENCE, CorrectionTools, OpenObjects
from napari_saf._gui.objects.form import ObjectForm, is_kinds
from napari_saf._gui.objects.layers import (
    SAVE_FILTER,
    Measures,
    ObjectCanvas,
    Source,
    compile_lines,
    key_of,
    show_tracks,
)
from napari_saf._gui.objects.learning import Clicks, carried_clicks
from napari_saf._gui.objects.table import ObjectTable
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf.objects import ObjectEditor, Objects, Parts, Tracks, track_objects

_SPLIT = "Split", "Split the ticked kinds into individual objects."
_SAVE = (
    "Save as table (.csv, .parquet), for QuPath (.geojson), ImageJ (.zip), COCO (.json) or as a "
    "mask (.tif, .png, .npy, .ome.zarr): the suffix sets the format."
)


class ObjectsWidget(DockBase):
    """Objects of a Labels layer, in a new layer and as rows of a table."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs, _SPLIT)
        self.status, self.controller = self.panel.status, self.panel.controller
        track = create_button("Track", "", self.track)
        save = create_button("Save …", _SAVE, self._ask_to_save)
        self.choices = ObjectForm(viewer, self.panel.background, track)
        self.labels = self.choices.labels
        self.canvas, self.table = ObjectCanvas(viewer, self), ObjectTable()
        self.counts = QLabel(wordWrap=True)
        self.tools = CorrectionTools(self.panel, self.canvas, self.table, self.choices.kinds)
        folder = partial(image_folder, viewer)
        self.classes = ClassSection(self.panel.background, self.panel.note, folder)
        self.class_layers = ClassLayers(viewer, self.classes, self.canvas, self.table, self.tools)
        self.buttons: dict[str, QPushButton] = self.tools.buttons | {
            "split": self.panel.run_button,
            "track": track,
            "save": save,
        }
        self._opened: dict[str, OpenObjects] = {}  # by objects layer
        self._preview = QTimer(self, singleShot=True, interval=PATIENCE)
        edits = [*self.tools.buttons.values(), save]
        below = [self.counts, create_row(*edits[:4]), self.table, create_row(*edits[4:])]
        run = [self.panel.run_button, self.panel.stop_button]
        self.lay_out([*self.choices.sections, self.class_layers.fold], run, [self.status, *below])
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(self.panel.shut_down, self._release)
        self._connect()
        self.choices.take_labels()

    def _connect(self) -> None:
        layers, choices = self._viewer.layers, self.choices
        self.connect_all(
            (self.panel.run_clicked, self.start),
            (self.panel.busy_changed, self._refresh),
            (choices.labels_changed, self._take_up),
            (choices.image_changed, self._on_image_changed),
            (choices.kinds_changed, self._on_kinds_changed),
            (choices.split_form.changed, self._preview.start),
            (self._preview.timeout, self._show_preview),
            (self.table.chosen, self._on_chosen),
            (self.table.filtered, self._show_counts),
            (layers.events.inserted, self._on_inserted),
            (layers.events.removed, self._on_removed),
            (layers.selection.events.active, self._on_active),
            (self.tools.corrected, self._measure),
            (self.tools.corrected, self.workspace.autosave_soon),
            (self.tools.fitted, self._show_numbers),
            (self.classes.clicked, self.workspace.autosave_soon),
        )

    @property
    def layer(self) -> Any:
        """The objects layer, or None."""
        return self.canvas.layer

    def start(self) -> None:
        """Split the ticked kinds; corrections are lost."""
        if self.panel.is_busy or self.choices.why_not:
            return
        self.panel.background.drop("join")
        source, kinds = self.choices.source(), self.choices.kinds.ticked
        numbers = self.choices.numbers
        self.panel.begin_task(
            "splitting",
            lambda _, cancelled: source.split(kinds, *numbers, cancelled),
            lambda result: self._show(source, *result),
        )

    def track(self) -> None:
        shown = self.tools.open
        if shown is not None:
            by, spacing = self.choices.track_by.value, shown.source.sizes[1:]
            follow = partial(track_objects, self.tools.objects(), by=by, spacing=spacing)
            show = partial(self._show_tracks, shown.source)
            self.panel.begin_task("following", lambda *_: follow(), show)

    def save_to(self, path: str) -> None:
        """Save the objects in the format of the suffix, by default .csv."""
        shown = self.tools.open
        if shown is not None:
            source, show = shown.source, self.panel.show_outcome
            save = partial(source.save, Path(path), self.tools.objects(), self.classes.image)
            self.panel.begin_task(
                "saving",
                lambda _, cancelled: save(cancelled),
                lambda path: show(f"saved {named(path)}{source.left_out(path)}"),
            )

    @property
    def _shown_here(self) -> OpenObjects | None:
        """The objects on screen, if they belong to the chosen labels."""
        shown = self.tools.open
        return shown if shown is not None and shown.source.layer is self.labels.layer else None

    def _show_preview(self) -> None:
        """Show the split with the current parameters, unless there are corrections."""
        shown = self._shown_here
        if shown is None or self.panel.is_busy:
            return
        if shown.parts is None or shown.editor.is_corrected:
            self.panel.note("press Split to split again; corrections will be lost")
            return
        join = partial(shown.source.join, shown.parts, *self.choices.numbers)
        show = partial(self._show, shown.source, shown.parts)
        self.panel.background.run("join", join, show)

    def _show(self, source: Source, parts: Parts, joined: tuple[Objects, Measures]) -> None:
        if source.layer not in self._viewer.layers:
            return  # removed meanwhile
        (objects, table), previous = joined, self.tools.open
        editor = ObjectEditor(objects, *self.choices.numbers)
        numbers = source.in_layer(editor.labels)
        is_other = previous is None or previous.source.layer is not source.layer
        clicks = Clicks()
        if previous is not None and not is_other:
            clicks = carried_clicks(self.classes.clicks, previous.editor.labels, editor.labels)
        self.table.select([])
        self.canvas.show(source.layer, numbers, self.choices.fits, anew=is_other)
        self._open(OpenObjects(source, editor, parts))
        self.layer.metadata[OBJECTS_KEY] = editor.kinds
        self.class_layers.measure(clicks)
        self._show_table(table)
        self.choices.carry_step(source)
        self.panel.background.run("lines", compile_lines, lambda _: None)
        self.workspace.autosave_soon()
        self.panel.show_outcome(self.choices.outcome(len(objects.numbers)))

    def _open(self, objects: OpenObjects) -> None:
        self.tools.open = self._opened[key_of(self.layer)] = objects

    def _take_up(self) -> None:
        """Edit the objects of these labels that were shown before or loaded from a project."""
        labels = self.labels.layer
        layer = None if labels is None else self.canvas.find(labels)
        if layer is not None and layer != self.layer:
            self.table.select([])
            self.canvas.follow(layer)
            opened = self._opened.get(key_of(layer))
            self._open(opened or OpenObjects.stored(layer, self.choices.source()))
            self._measure()
        elif labels is not None and layer is None and self._shown_here is None:
            self._leave()  # the objects of other labels
        self._refresh()

    def _leave(self) -> None:
        """Show no objects; their layer stays."""
        for key in ("join", "measures"):
            self.panel.background.drop(key)
        self.canvas.leave()
        self.buttons["cut"].setChecked(False)
        self.tools.leave()
        self.table.show_table({})
        self._show_counts()

    def _measure(self) -> None:
        """Measure the current objects in the background."""
        shown = self.tools.open
        if shown is not None:
            self.layer.metadata[OBJECTS_KEY] = shown.editor.kinds
            if self._shown_here is not None:
                shown.source = self.choices.source()
            measure = partial(shown.source.measure, self.tools.objects())
            self.panel.background.run("measures", measure, self._show_table)
            self.class_layers.measure()
        self._refresh()

    def _show_table(self, table: Measures) -> None:
        self.class_layers.show_table(table)
        self._show_counts()

    def _show_counts(self) -> None:
        layer = self.layer
        self.counts.setText("" if layer is None else self.table.describe(layer.data.size))
        self._refresh()

    def _show_numbers(self, smallest: int, neck: float) -> None:
        """Show the parameters of existing objects without splitting again."""
        self.choices.split_form.set_values({"smallest": smallest, "neck": neck})
        self._preview.stop()
        if self.tools.open is not None:
            self.choices.carry_step(self.tools.open.source)

    def _show_tracks(self, source: Source, tracks: Tracks) -> None:
        show_tracks(self._viewer, source, tracks)
        self.classes.set_tracks(tracks)
        self.panel.show_outcome(f"{len(np.unique(tracks.table['track']))} tracks")

    def _on_chosen(self, numbers: list[int]) -> None:
        if self.layer is not None and numbers:
            self.canvas.go_to(numbers[-1])
        self._refresh()

    def _ask_to_save(self) -> None:
        assert self.tools.open is not None
        path = None if self.choices.image.layer is None else self.choices.image.layer.source.path
        folder = Path(path).absolute().parent if path else image_folder(self._viewer)
        start = folder / f"{self.tools.open.source.layer.name.partition(' [')[0]}.objects.csv"
        ask_for_path(self, "Save objects", str(start), SAVE_FILTER, self.save_to)

    def _on_kinds_changed(self) -> None:
        """Split again, if there was a split and no correction would be lost."""
        shown = self._shown_here
        if shown is not None:
            was_split, shown.parts = shown.parts is not None, None
            if was_split and not shown.editor.is_corrected:
                self.start()
        self._refresh()

    def _on_image_changed(self) -> None:
        self._on_kinds_changed()
        if not self.panel.is_busy and self._shown_here is not None:
            self._measure()

    def _on_inserted(self, event: Any) -> None:
        if self.tools.open is None:
            self._take_up()
        elif event.value in self.canvas.others():
            self.class_layers.add_layer(event.value)

    def _on_active(self, event: Any) -> None:
        """Switch to the objects of another image when their layer is selected."""
        if event.value in self.canvas.others():
            labels = [layer for layer in self._viewer.layers if isinstance(layer, Labels)]
            kinds = (x for x in labels if is_kinds(x) and self.canvas.find(x) == event.value)
            self.labels.choose(next(kinds, self.labels.layer))

    def _on_removed(self, event: Any) -> None:
        if not isinstance(event.value, Labels):
            return
        self._opened.pop(key_of(event.value), None)
        if event.value == self.layer:  # may be a proxy
            self._leave()
        self.classes.forget(key_of(event.value))

    def _refresh(self, *changed: object) -> None:
        is_free, shown = not self.panel.is_busy, self.tools.open
        self.panel.set_reason(self.choices.why_not, is_free=is_free)
        self.tools.refresh()
        self.buttons["save"].setEnabled(shown is not None and is_free)
        self.choices.enable_track(None if shown is None else shown.source, is_free=is_free)

    def _release(self) -> None:
        self._preview.stop()
        self.classes.shut_down()
        self.canvas.leave()
        self.tools.leave()
        self._opened.clear()
