"""The Objects dock: single things of the kinds of a Labels layer, split, corrected, measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QCheckBox, QLabel, QPushButton
from superqt.utils import signals_blocked

from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.docks.tables import LabelList
from napari_saf._gui.forms.choices import Choice, LayerChoice
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.image_selection import slice_word
from napari_saf._gui.forms.layout import (
    FormArea,
    FormSection,
    create_button,
    create_fold,
    create_row,
)
from napari_saf._gui.forms.method_form import OptionsForm
from napari_saf._gui.layers.metadata import (
    CLASSES_KEY,
    OBJECTS_KEY,
    carry_objects,
    labels_to_choose,
)
from napari_saf._gui.layers.placement import (
    image_region,
    labelled_image,
    pixels_of,
    place,
    squeezed_axes,
)
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.layers.view import center_on
from napari_saf._gui.objects.classes import ClassSection
from napari_saf._gui.objects.corrections import NUMBERS, PATIENCE, CorrectionTools, OpenObjects
from napari_saf._gui.objects.layers import (
    HELP,
    SAVE_FILTER,
    Measures,
    ObjectCanvas,
    Source,
    stored_objects,
)
from napari_saf._gui.objects.table import ObjectTable
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf.errors import counted
from napari_saf.io import count_labels
from napari_saf.objects import (
    TRACK_BY,
    ObjectEditor,
    ObjectMeasures,
    Objects,
    ObjectStep,
    Parts,
    Tracks,
    track_objects,
)
from napari_saf.parameters import describe, to_plain

_OF_RUN = "that of the run, if known"
_MOST_TRACKED = 4
"""Axes of a Tracks layer."""


class ObjectsWidget(DockBase):
    """Objects of a Labels layer in a layer of their own, with a row for each."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs, ("Split", HELP["split"]))
        self.status, self.controller = self.panel.status, self.panel.controller
        self.canvas, self.table = ObjectCanvas(viewer, self), ObjectTable()
        self.counts, self._measured = QLabel(wordWrap=True), Measures()
        self._opened: dict[str, OpenObjects] = {}  # by layer of objects
        self._preview = QTimer(self, singleShot=True, interval=PATIENCE)
        self.labels = LayerChoice(viewer, Labels, _is_kinds)
        self.labels.choose(labels_to_choose(viewer))
        self.image = LayerChoice(viewer, Image, self._fits, none="none")
        self.uncertainty = LayerChoice(viewer, Image, self._fits, none=_OF_RUN)
        self.uncertainty.set_others([(_OF_RUN, None), ("none", "none")])
        self.kinds, self.slices = LabelList(), QCheckBox("each by itself")
        self.split_form = OptionsForm(viewer, FormSection(), FormSection())
        self.track_by = Choice([(measure, measure) for measure in TRACK_BY])
        self.tools = CorrectionTools(self.panel, self.canvas, self.table, self.kinds)
        self.classes = ClassSection(self.panel.background, self.panel.note)
        self._add_controls()
        self._connect()
        self._on_labels_changed()

    def _add_controls(self) -> None:
        rows, advanced = self.split_form.basic, self.split_form.advanced
        rows.add_row("Labels", self.labels, "The Labels layer whose labels are the kinds.")
        rows.add_row("Image", self.image, HELP["image"])
        rows.add_row("Kinds", self.kinds, "The labels that consist of single objects.")
        rows.add_row("Slices", self.slices, "Split and measure each slice alone, not the volume.")
        numbers = [item for item in describe(ObjectStep) if item.name in NUMBERS]
        self.split_form.ask_for(ObjectStep, numbers)
        advanced.add_row("Uncertainty", self.uncertainty, HELP["uncertainty"])
        track = create_button("Track", HELP["track"], self.track)
        save = create_button("Save …", HELP["save"], self._ask_to_save)
        own = {"split": self.panel.run_button, "track": track, "save": save}
        self.buttons: dict[str, QPushButton] = self.tools.buttons | own
        edits = [*self.tools.buttons.values(), save]
        self._frames = create_row(track, self.track_by)
        self._frames.layout().setStretch(1, 2)  # else "distance" is cut
        rows.add_row("Frames", self._frames, HELP["track"])
        self._classes_fold = create_fold("Classes", self.classes)
        forms = [rows, create_fold("Advanced", advanced), self._classes_fold]
        below = [self.counts, create_row(*edits[:4]), self.table, create_row(*edits[4:])]
        run = [self.panel.run_button, self.panel.stop_button]
        self.lay_out(forms, run, [self.status, *below])

    def _connect(self) -> None:
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(self.panel.shut_down, self._release)
        self.connect_all(
            (self.panel.run_clicked, self.start),
            (self.panel.busy_changed, self._refresh),
            (self.labels.layer_changed, self._on_labels_changed),
            (self.image.layer_changed, self._on_image_changed),
            (self.uncertainty.layer_changed, self._on_kinds_changed),
            (self.kinds.itemChanged, self._on_kinds_changed),
            (self.slices.toggled, self._on_kinds_changed),
            (self.split_form.changed, self._preview.start),
            (self._preview.timeout, self._show_preview),
            (self.table.chosen, self._on_chosen),
            (self.table.filtered, self._refresh),
            (self.table.filter.colored, self._color),
            (self._viewer.layers.events.inserted, self._on_inserted),
            (self._viewer.layers.events.removed, self._on_removed),
            (self._viewer.layers.selection.events.active, self._on_active),
            (self.canvas.picked, self._on_picked),
            (self.canvas.drawn, self._on_drawn),
            (self.canvas.numbered, self.classes.choose_label),
            (self.tools.corrected, self._measure),
            (self.tools.fitted, self._show_numbers),
            (self.tools.buttons["cut"].toggled, self._on_cut_toggled),
            (self.classes.clicked, self._keep_clicks),
            (self.classes.changed, self._on_classes_changed),
            (self.classes.suggested, lambda number: self.table.select([number])),
            (self.classes.lasso_toggled, self._on_lasso_toggled),
            (self._classes_fold.toggled, self._on_classes_folded),
        )

    @property
    def layer(self) -> Any:
        """The layer of objects, None without one."""
        return self.canvas.layer

    @property
    def editor(self) -> ObjectEditor | None:
        return self.tools.editor

    def start(self) -> None:
        """Split what is ticked; corrections are lost."""
        labels, kinds = self.labels.layer, self.kinds.ticked
        if self.panel.is_busy or labels is None or not kinds:
            return
        self.panel.background.drop("join")
        source, numbers = self._read_form(labels), self._numbers()

        def split(
            report: object, cancelled: Callable[[], bool]
        ) -> tuple[Parts, tuple[Objects, Measures]]:
            Labels(np.zeros((1, 1), np.uint32))  # napari loads its colours of a type at first use
            parts = source.find_parts(kinds, cancelled)
            return parts, source.join(parts, *numbers, cancelled)

        show = lambda split: self._show(source, *split)  # noqa: E731
        self.panel.begin_task("splitting", split, show)

    def _read_form(self, labels: Labels) -> Source:
        image, uncertainty = self.image.layer, self.uncertainty.value
        return Source.of(labels, image, uncertainty, by_slice=self.slices.isChecked())

    def _numbers(self) -> tuple[int, float]:
        step: ObjectStep = self.split_form.read()
        return step.smallest, step.neck

    def _show_preview(self) -> None:
        """Show what other numbers would give, unless there are corrections."""
        shown = self._shown_here
        if shown is None or shown.parts is None or self.panel.is_busy:
            return
        if shown.editor.is_corrected:
            self.panel.note("press Split to start again: corrections would be lost")
            return
        join = partial(shown.source.join, shown.parts, *self._numbers())
        show = partial(self._show, shown.source, shown.parts)
        self.panel.background.run("join", join, show)

    def _show(self, source: Source, parts: Parts, joined: tuple[Objects, Measures]) -> None:
        objects, table = joined
        before, editor = self.tools.open, ObjectEditor(objects, *self._numbers())
        shown = source.in_layer(editor.labels)
        is_other = before is None or before.source.layer is not source.layer
        self.canvas.show(source.layer, shown, self._fits, anew=is_other)
        self._open(OpenObjects(source, editor, parts))
        self.layer.metadata[OBJECTS_KEY] = editor.kinds
        self._show_table(table)
        self._measure_classes({})
        self._carry_step(source)
        self.panel.show_outcome(counted(len(objects.numbers), "object"))

    def _open(self, objects: OpenObjects) -> None:
        self.tools.open = self._opened[_key(self.layer)] = objects

    def _carry_step(self, source: Source) -> None:
        step = dataclasses.replace(
            self.split_form.read(),
            kinds=tuple(self.kinds.ticked) or None,
            by_slice=source.placed["axis"] == 0,
            by_uncertainty=self.uncertainty.value != "none",
        )
        carry_objects(source.layer, to_plain(step))

    def _take_up(self) -> None:
        """Edit the objects of these labels that were shown before, or that a project holds."""
        labels = self.labels.layer
        layer = None if labels is None else self.canvas.find(labels)
        if layer is None or layer == self.layer:
            return
        self.canvas.follow(layer)
        known = self._opened.get(_key(layer))
        if known is None:
            source = self._read_form(labels)
            objects = stored_objects(layer, layer.data[source.labels.index], source.names)
            editor = ObjectEditor(objects)
            editor.adopt(int(objects.kinds.max(initial=1)))  # what was painted without this dock
            layer.data = source.in_layer(editor.labels)
            known = OpenObjects(source, editor)
        self._open(known)
        self._measure()

    def _show_table(self, table: Measures) -> None:
        self._measured = table
        self.layer.features = {"index": table.get("object", np.zeros(0, int)), **table}
        self._on_classes_changed([_key(self.layer)])
        kinds, sizes = table.get("kind", np.zeros(0, int)), table.get("pixels", np.zeros(0))
        texts = []
        for label in np.unique(kinds).tolist():
            is_label = kinds == label
            share = 100 * sizes[is_label].sum() / self.layer.data.size
            name = str(table["name"][is_label.argmax()])
            count = counted(int(is_label.sum()), "object")
            texts.append(f"{name}: {count}, {share:.1f} % of the image")
        self.counts.setText("\n".join(texts) or "no objects")
        self._refresh()

    def _color(self) -> None:
        """Colour objects by the measure in the plot, by their class, or as they were."""
        plot = self.table.filter
        if self.layer is not None:
            numbers = self.table.model.values("object")
            is_on = plot.color.isChecked() and plot.measure.value is not None
            colors = plot.colors if is_on else self.classes.colors(_key(self.layer), numbers)
            self.canvas.color(self.layer, numbers, colors)

    def _measure(self) -> None:
        """Measure the objects as they are now, in the background."""
        shown = self.tools.open
        if shown is not None:
            self.layer.metadata[OBJECTS_KEY] = shown.editor.kinds
            if shown.source.layer is self.labels.layer:
                shown.source = self._read_form(shown.source.layer)
            measure = partial(shown.source.measure, self.tools.objects())
            self.panel.background.run("measures", measure, self._show_table)
            self._measure_classes()
        self._refresh()

    def _measure_classes(self, clicks: Mapping[int, int] | None = None) -> None:
        """Let classes be of the objects as they are now; with `clicks`, of others than before."""
        shown = self.tools.open
        if shown is None or not len(shown.editor.numbers):
            return
        key, kept = _key(self.layer), self.layer.metadata.get(CLASSES_KEY, {})
        if clicks is None and key not in self.classes.images:
            clicks = kept.get("clicks", {})
        for layer in self.canvas.others():
            self._take_along(layer)
        measure = partial(shown.source.measure_vectors, self.tools.objects())
        self.classes.show_objects(key, measure, clicks, kept.get("names"))

    def _take_along(self, layer: Labels) -> None:
        """Let the clicks on the objects of another image teach, too."""
        image = labelled_image(self._viewer, layer, partial(_fits, layer))
        source = Source.of(layer, image, "none", by_slice=self.slices.isChecked())

        def measure(cancelled: Callable[[], bool]) -> ObjectMeasures:
            objects = stored_objects(layer, source.labels.read(cancelled), {})
            return source.measure_vectors(objects, cancelled)

        kept = layer.metadata.get(CLASSES_KEY, {})
        clicks, names = kept.get("clicks", {}), kept.get("names", {})
        self.classes.add_objects(_key(layer), measure, clicks, names)

    def _on_classes_folded(self, is_open: bool) -> None:
        self.canvas.bind_numbers(is_open)
        if is_open:
            QTimer.singleShot(0, self._scroll_to_classes)  # once there is room for it
        else:
            self.classes.choose_label(0)

    def _scroll_to_classes(self) -> None:
        self.findChild(FormArea).ensureWidgetVisible(self.classes)

    def _keep_clicks(self) -> None:
        """Keep names and clicks with the layers, from where projects have them."""
        state = self.classes.state
        for layer in self.canvas.layers():
            clicks = state.clicks.get(_key(layer), {})
            layer.metadata[CLASSES_KEY] = {"names": dict(state.names), "clicks": dict(clicks)}

    def _on_classes_changed(self, keys: list[str]) -> None:
        """Show classes of objects in table, features and colours of their layers."""
        for layer in self.canvas.layers():
            key, classified = _key(layer), self.classes.classified_of(_key(layer))
            if key not in keys:
                continue
            if classified is not None and "object" in layer.features:
                columns = classified.columns(layer.features["object"].to_numpy())
                # To set all features anew takes napari ten times as long.
                layer.features[[*columns]] = np.array([*columns.values()], object).T
            if layer != self.layer:
                numbers = np.zeros(0, int) if classified is None else classified.numbers
                self.canvas.color(layer, numbers, self.classes.colors(key, numbers))
                continue
            table = self._measured
            if table and classified is not None:
                table = table | classified.columns(table["object"])
            self.table.show_table(table)
            self._color()

    def _show_numbers(self, smallest: int, neck: float) -> None:
        """Show what objects were split by, which are there already."""
        self.split_form.set_values({"smallest": smallest, "neck": neck})
        self._preview.stop()
        if self.tools.open is not None:
            self._carry_step(self.tools.open.source)

    def _on_cut_toggled(self, is_on: bool) -> None:
        self.classes.stop_lasso()
        self.canvas.draw_lines(is_on)
        self.panel.note("draw a line across an object" if is_on else "")

    def _on_lasso_toggled(self, is_on: bool) -> None:
        with signals_blocked(self.buttons["cut"]):
            self.buttons["cut"].setChecked(False)
        self.canvas.draw_lines(is_on)
        self.panel.note("draw a line around objects" if is_on else "")

    def _on_drawn(self, line: Any) -> None:
        """Cut what a line (n, ndim) crosses, or give what it surrounds the chosen class."""
        if not self.classes.is_lasso:
            self.tools.cut(line)
        elif len(line) > 2:
            self.classes.click(self.canvas.objects_inside(line))

    def _on_picked(self, number: int, joins: bool) -> None:
        if number and self.classes.click([number]):
            return
        chosen = self.table.selected
        self.table.select({*chosen} ^ {number} if joins else {number} - {0})

    def _on_chosen(self, numbers: list[int]) -> None:
        """Bring the last of the chosen objects into sight, if it is not, and show it alone."""
        if self.layer is not None and numbers:
            inside = np.argwhere(self.layer.data == numbers[-1])
            if len(inside):
                middle = tuple(inside[len(inside) // 2].tolist())
                center_on(self._viewer, self.layer, middle, only_if_hidden=True)
            self.canvas.flash(numbers[-1])
        self._refresh()

    def track(self) -> None:
        shown = self.tools.open
        if shown is not None:
            source, objects = shown.source, self.tools.objects()
            by, spacing = self.track_by.value, source.sizes[1:]
            self.panel.begin_task(
                "following",
                lambda *_: track_objects(objects, by=by, spacing=spacing),
                partial(self._show_tracks, source),
            )

    def _show_tracks(self, source: Source, tracks: Tracks) -> None:
        rows, graph = tracks.layer_data
        layer, every = source.layer, tuple(range(source.axes[0], source.layer.ndim))
        name = f"{layer.name.partition(' [')[0]} [Tracks]"
        # Layers lie over each other by their last axes: those of one pixel are among them.
        every = every if len(every) <= _MOST_TRACKED else source.axes
        gaps = [k for k, axis in enumerate(every) if axis not in source.axes]
        columns = [1 + k - n for n, k in enumerate(gaps)]
        transform = place(layer, every, {}).transform
        self._viewer.add_tracks(np.insert(rows, columns, 0, 1), graph=graph, name=name, **transform)
        self.classes.set_tracks(tracks)
        self.panel.show_outcome(f"{len(np.unique(rows[:, 0]))} tracks")

    def save_to(self, path: str) -> None:
        """Save the objects as the ending says; .csv where there is none."""
        shown = self.tools.open
        if shown is not None:
            source = shown.source
            save = partial(source.save, Path(path), self.tools.objects(), self.classes.classified)
            show = self.panel.show_outcome
            self.panel.begin_task(
                "saving",
                lambda _, cancelled: save(cancelled),
                lambda path: show(f"saved {named(path)}{source.left_out(path)}"),
            )

    def _ask_to_save(self) -> None:
        assert self.tools.open is not None
        path = None if self.image.layer is None else self.image.layer.source.path
        folder = Path.home() if path is None else Path(path).absolute().parent
        start = folder / f"{self.tools.open.source.layer.name.partition(' [')[0]}.objects.csv"
        ask_for_path(self, "Save objects", str(start), SAVE_FILTER, self.save_to)

    def _on_labels_changed(self, layer: object = None) -> None:
        labels = self.labels.layer
        self.image.refresh()
        self.uncertainty.refresh()
        self.panel.background.drop("kinds")
        self.kinds.clear()
        if labels is not None:
            axes = squeezed_axes(labels)
            for field in (self.slices, self._frames):
                self.split_form.basic.show_row(field, len(axes) > 2)
            is_series = slice_word(labels, axes[0]) == "frame"
            self.slices.setChecked(len(axes) > 2 and is_series)
            self.image.choose(labelled_image(self._viewer, labels, self._fits))
            pixels = Pixels(pixels_of(labels))
            self.panel.background.run(
                "kinds",
                lambda cancelled: count_labels(np.asarray(pixels.read(cancelled))),
                partial(self._show_kinds, labels),
            )
        self._take_up()
        self._refresh()

    def _show_kinds(self, labels: Labels, counted: tuple[Any, Any]) -> None:
        self.kinds.show_labels(labels, *counted)
        self._refresh()

    @property
    def _shown_here(self) -> OpenObjects | None:
        """The objects that are shown, if they are those of the chosen labels."""
        shown = self.tools.open
        return shown if shown is not None and shown.source.layer is self.labels.layer else None

    def _on_kinds_changed(self, *changed: object) -> None:
        """Split anew, if that was done before and nothing is lost."""
        shown = self._shown_here
        if shown is not None:
            was_split, shown.parts = shown.parts is not None, None
            if was_split and not shown.editor.is_corrected:
                self.start()
        self._refresh()

    def _on_image_changed(self, *changed: object) -> None:
        self._on_kinds_changed()
        if not self.panel.is_busy and self._shown_here is not None:
            self._measure()

    def _on_inserted(self, event: Any) -> None:
        if self.tools.open is None:
            self._take_up()
        elif event.value in self.canvas.others():
            self._take_along(event.value)

    def _on_active(self, event: Any) -> None:
        """Go on with the objects of another image, where their layer is chosen."""
        if event.value in self.canvas.others():
            labels = [layer for layer in self._viewer.layers if isinstance(layer, Labels)]
            kinds = (x for x in labels if _is_kinds(x) and self.canvas.find(x) == event.value)
            self.labels.choose(next(kinds, self.labels.layer))

    def _on_removed(self, event: Any) -> None:
        if not isinstance(event.value, Labels):
            return
        self._opened.pop(_key(event.value), None)
        if event.value == self.layer:  # which may be a proxy
            for key in ("join", "measures"):
                self.panel.background.drop(key)
            self.canvas.leave()
            self.buttons["cut"].setChecked(False)
            self.tools.leave()
            self.table.show_table({})
            self.counts.setText("")
            self._refresh()
        self.classes.forget(_key(event.value))

    def _fits(self, image: Image) -> bool:
        return self.labels.layer is not None and _fits(self.labels.layer, image)

    def _refresh(self, *changed: object) -> None:
        reason, is_free = "", not self.panel.is_busy
        if self.labels.layer is None:
            reason = "no labels: run Segment, or open a Labels layer"
        elif not self.kinds.ticked:
            reason = "no kind is ticked"
        self.panel.set_reason(reason, is_free=is_free)
        self.tools.refresh()
        shown = self.tools.open
        self.buttons["save"].setEnabled(shown is not None and is_free)
        is_series = shown is not None and shown.source.placed["axis"] == 0
        self.buttons["track"].setEnabled(is_series and is_free)

    def _release(self) -> None:
        self._preview.stop()
        self.classes.shut_down()
        self.canvas.leave()
        self.tools.leave()
        self._opened.clear()


def _is_kinds(layer: Any) -> bool:
    return not layer.multiscale and OBJECTS_KEY not in layer.metadata


def _fits(labels: Labels, image: Image) -> bool:
    return image_region(labels, image) is not None


def _key(layer: Labels) -> str:
    return str(layer.unique_id)
