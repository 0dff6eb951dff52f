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
from napari_saf._gui.objects.layers import HELP, SAVE_FILTER, Measures, ObjectCanvas, Source
from napari_saf._gui.objects.table import ObjectTable
from napari_saf._gui.runs.panel import RUN_KEY, RunPanel
from napari_saf.errors import counted, format_count
from napari_saf.io import count_labels
from napari_saf.objects import (
    TRACK_BY,
    Corrections,
    ObjectEditor,
    Objects,
    ObjectStep,
    Parts,
    Tracks,
    learn,
    lower_numbers,
    track_objects,
)
from napari_saf.parameters import describe, to_plain

_PATIENCE = 60
"""Milliseconds without a change after which objects are shown anew."""
_NUMBERS = ("neck", "smallest")
"""Parameters of a split that are numbers, in the order of messages."""
_NO_LABELS = "no labels: run Segment, or open a Labels layer"
_OF_RUN = "that of the run, if known"
_MOST_TRACKED = 4
"""Axes of a Tracks layer."""
_LOST = "press Split to start again: corrections would be lost"
_LESSON = 10
"""So many corrections more, and numbers are fitted to all of them."""


class ObjectsWidget(DockBase):
    """Objects of a Labels layer in a layer of their own, with a row for each."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.panel = RunPanel(self, viewer, self.workspace.runs, ("Split", HELP["split"]))
        self.status, self.controller = self.panel.status, self.panel.controller
        self.editor: ObjectEditor | None = None
        self.canvas = ObjectCanvas(viewer, self)
        self._source: Source | None = None
        self._parts: Parts | None = None
        self._n_taught = 0
        self._preview = QTimer(self, singleShot=True, interval=_PATIENCE)
        self._painted = QTimer(self, singleShot=True, interval=_PATIENCE)
        self.labels = LayerChoice(viewer, Labels, _is_kinds)
        self.labels.choose(labels_to_choose(viewer))
        self.image = LayerChoice(viewer, Image, self._fits, none="none")
        self.uncertainty = LayerChoice(viewer, Image, self._fits, none=_OF_RUN)
        self.uncertainty.set_others([(_OF_RUN, None), ("none", "none")])
        self.kinds, self.slices = LabelList(), QCheckBox("each by itself")
        self.split_form = OptionsForm(viewer, FormSection(), FormSection())
        self.track_by = Choice([(measure, measure) for measure in TRACK_BY])
        self.table, self.counts = ObjectTable(), QLabel(wordWrap=True)
        self._measured: Measures = {}
        self.classes = ClassSection(self.panel.background, self.panel.note)
        self._add_controls()
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
            (self._painted.timeout, self._adopt),
            (self.table.chosen, self._on_chosen),
            (self.table.filtered, self._refresh),
            (self.table.filter.colored, self._color),
            (viewer.layers.events.inserted, self._take_up),
            (viewer.layers.events.removed, self._on_removed),
            (self.canvas.picked, self._on_picked),
            (self.canvas.drawn, self._on_drawn),
            (self.canvas.painted, self._painted.start),
            (self.canvas.numbered, self.classes.choose_label),
            (self.classes.clicked, self._keep_clicks),
            (self.classes.changed, self._on_classes_changed),
            (self.classes.suggested, lambda number: self.table.select([number])),
            (self.classes.lasso_toggled, self._on_lasso_toggled),
            (self._classes_fold.toggled, self._on_classes_folded),
            (self.canvas.undo_asked, self.undo),
            (self.canvas.redo_asked, self.redo),
        )
        self._on_labels_changed()

    def _add_controls(self) -> None:
        rows, advanced = self.split_form.basic, self.split_form.advanced
        rows.add_row("Labels", self.labels, "The Labels layer whose labels are the kinds.")
        rows.add_row("Image", self.image, HELP["image"])
        rows.add_row("Kinds", self.kinds, "The labels that consist of single objects.")
        rows.add_row("Slices", self.slices, "Split and measure each slice alone, not the volume.")
        numbers = [item for item in describe(ObjectStep) if item.name in _NUMBERS]
        self.split_form.ask_for(ObjectStep, numbers)
        advanced.add_row("Uncertainty", self.uncertainty, HELP["uncertainty"])
        self._rows = rows
        slots: dict[str, Callable[[], object]] = {
            "merge": lambda: self._edit("merged", lambda e: e.merge(self.table.selected)),
            "cut": self._on_cut_toggled,
            "delete": lambda: self._edit("deleted", lambda e: e.delete(self.table.selected)),
            "new": self._paint,
            "keep": self._keep,
            "undo": self.undo,
            "redo": self.redo,
            "save": self._ask_to_save,
            "track": self.track,
        }
        self.buttons: dict[str, QPushButton] = {
            name: create_button(name.capitalize(), HELP[name], lambda *_, slot=slot: slot())
            for name, slot in slots.items()
        }
        self.buttons["split"] = self.panel.run_button
        self.buttons["cut"].setCheckable(True)
        self.buttons["keep"].setText("Keep these")
        self.buttons["save"].setText("Save …")
        edits = [self.buttons[name] for name in slots]
        self._frames = create_row(self.buttons["track"], self.track_by)
        self._frames.layout().setStretch(1, 2)  # else "distance" is cut
        rows.add_row("Frames", self._frames, HELP["track"])
        fold = create_fold("Advanced", advanced)
        below = [self.counts, create_row(*edits[:4]), self.table, create_row(*edits[4:8])]
        run = [self.panel.run_button, self.panel.stop_button]
        self._classes_fold = create_fold("Classes", self.classes)
        self.lay_out([rows, fold, self._classes_fold], run, [self.status, *below])

    @property
    def layer(self) -> Any:
        """The layer of objects, None without one."""
        return self.canvas.layer

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

        self.panel.begin_task("splitting", split, partial(self._on_split, source))

    def _read_form(self, labels: Labels) -> Source:
        image, uncertainty = self.image.layer, self.uncertainty.value
        return Source.of(labels, image, uncertainty, by_slice=self.slices.isChecked())

    def _numbers(self) -> tuple[int, float]:
        step: ObjectStep = self.split_form.read()
        return step.smallest, step.neck

    def _on_split(self, source: Source, split: tuple[Parts, tuple[Objects, Measures]]) -> None:
        self._parts, joined = split
        self._show(source, joined)

    def _show_preview(self) -> None:
        """Show what other numbers would give, unless there are corrections."""
        if self._parts is None or self.panel.is_busy:
            return
        if self.editor is not None and self.editor.is_corrected:
            self.panel.note(_LOST)
            return
        source, parts, numbers = self._source, self._parts, self._numbers()
        assert source is not None
        self.panel.background.run(
            "join", partial(source.join, parts, *numbers), partial(self._show, source)
        )

    def _show(self, source: Source, joined: tuple[Objects, Measures]) -> None:
        objects, table = joined
        is_other = self._source is None or self._source.layer is not source.layer
        self._source, self.editor = source, ObjectEditor(objects, *self._numbers())
        self._n_taught = 0
        shown = source.in_layer(self.editor.labels)
        self.canvas.show(source.layer, shown, self._fits, anew=is_other)
        self.layer.metadata[OBJECTS_KEY] = self.editor.kinds
        self._show_table(table)
        self._measure_classes({})
        self._carry_step(source)
        self.panel.show_outcome(counted(len(objects.numbers), "object"))

    def _carry_step(self, source: Source) -> None:
        step = dataclasses.replace(
            self.split_form.read(),
            kinds=tuple(self.kinds.ticked) or None,
            by_slice=source.placed["axis"] == 0,
            by_uncertainty=self.uncertainty.value != "none",
        )
        carry_objects(source.layer, to_plain(step))

    def _take_up(self, event: object = None) -> None:
        """Edit the objects of these labels that an opened project holds."""
        labels = self.labels.layer
        layer = None if labels is None or self.editor is not None else self.canvas.find(labels)
        if layer is not None:
            self._source = source = self._read_form(labels)
            numbers, kinds = layer.data[source.labels.index], layer.metadata[OBJECTS_KEY]
            numbers = numbers.astype(np.uint32)
            lower_numbers(numbers, len(kinds))
            n_more = max(0, int(numbers.max(initial=0)) + 1 - len(kinds))
            padded = np.pad(kinds, (0, n_more))
            self.editor = ObjectEditor(Objects(numbers, padded, source.names))
            self.editor.adopt(int(kinds.max(initial=1)))  # what was painted without this dock
            layer.data = source.in_layer(self.editor.labels)
            self.canvas.follow(layer)
            self._measure_classes(layer.metadata.get(CLASSES_KEY, {}))
            self._measure()

    def _show_table(self, table: dict[str, Any]) -> None:
        assert self.editor is not None
        self._measured = table
        self.layer.features = {"index": table.get("object", np.zeros(0, int)), **table}
        self._on_classes_changed()
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
            colors = plot.colors if is_on else self.classes.colors(numbers)
            self.canvas.color(numbers, colors)

    def _measure(self, *changed: object) -> None:
        if self.editor is None or self._source is None:
            return
        self.layer.metadata[OBJECTS_KEY] = self.editor.kinds
        if self._source.layer is self.labels.layer:
            self._source = self._read_form(self._source.layer)
        measure = partial(self._source.measure, self._copy())
        self.panel.background.run("measures", measure, self._show_table)
        self._measure_classes()

    def _measure_classes(self, clicks: Mapping[str, Any] | None = None) -> None:
        """Let classes be of the objects as they are now; with `clicks`, those on other objects."""
        if self._source is not None and self.editor is not None and len(self.editor.numbers):
            self.classes.show_objects(partial(self._source.measure_vectors, self._copy()), clicks)

    def _on_classes_folded(self, is_open: bool) -> None:
        self.canvas.bind_numbers(is_open)
        if is_open:
            QTimer.singleShot(0, self._scroll_to_classes)  # once there is room for it
        else:
            self.classes.choose_label(0)

    def _scroll_to_classes(self) -> None:
        self.findChild(FormArea).ensureWidgetVisible(self.classes)

    def _keep_clicks(self) -> None:
        if self.layer is not None:
            self.layer.metadata[CLASSES_KEY] = self.classes.state.to_plain()

    def _on_classes_changed(self) -> None:
        """Show the classes in table, layer and image."""
        if self.layer is None:
            return
        table, classified = self._measured, self.classes.classified
        if table and classified is not None:
            columns = classified.columns(table["object"])
            table = table | columns
            # To set all features anew takes napari ten times as long.
            self.layer.features[[*columns]] = np.array([*columns.values()], object).T
        self.table.show_table(table)
        self._color()

    def _copy(self) -> Objects:
        assert self.editor is not None
        if self._painted.isActive():
            self._adopt()
        return self.editor.objects

    def _edit(self, words: str, call: Callable[[ObjectEditor], object]) -> None:
        if self.editor is None or self.panel.is_busy:
            return
        if self._painted.isActive():
            self._adopt()
        numbers = self.editor.split_by
        with self.panel.showing_errors():
            call(self.editor)
            self.layer.refresh()
            self.panel.note(words)
        if self.editor.split_by != numbers:
            self._show_numbers(*self.editor.split_by)
        self._measure()
        self._learn()
        self._refresh()

    def _show_numbers(self, smallest: int, neck: float) -> None:
        """Show what objects were split by, which are there already."""
        self.split_form.set_values({"smallest": smallest, "neck": neck})
        self._preview.stop()
        if self._source is not None:
            self._carry_step(self._source)

    def _learn(self) -> None:
        """Fit the numbers to corrections, in the background, whenever there are ten more."""
        editor, parts = self.editor, self._parts
        if editor is None or parts is None or editor.n_corrections < self._n_taught + _LESSON:
            return
        corrections = editor.corrections
        self.panel.background.run(
            "lesson",
            lambda cancelled: learn(parts, corrections),
            partial(self._on_learned, editor, editor.n_corrections, corrections),
        )

    def _on_learned(
        self, editor: ObjectEditor, count: int, old: Corrections, new: Corrections | None
    ) -> None:
        is_old = editor is not self.editor or not np.array_equal(editor.labels, old.labels)
        if is_old or self.panel.is_busy:
            return  # the next correction starts it again
        self._n_taught = count
        if new is not None:
            numbers = [(name, getattr(old, name), getattr(new, name)) for name in _NUMBERS]
            changes = [f"{name} {a:g} → {b:g}" for name, a, b in numbers if a != b]
            n_old, n_new = (int((corrections.kinds > 0).sum()) for corrections in (old, new))
            words = f"{', '.join(changes)} after {counted(count, 'correction')}: "
            words += f"{format_count(n_old)} → {counted(n_new, 'object')} (Undo brings them back)"
            self._edit(words, lambda editor: editor.replace(new))

    def _keep(self) -> None:
        assert self.editor is not None
        hidden = np.setdiff1d(self.editor.numbers, self.table.shown)
        words = f"{counted(len(hidden), 'object')} deleted"
        self._edit(words, lambda editor: editor.delete(hidden.tolist()))

    def undo(self) -> None:
        """Take the last correction back, or the last stroke of the brush if that was later."""
        self._step_back("taken back", ObjectEditor.undo, "undo")

    def redo(self) -> None:
        """Do again what was taken back last."""
        self._step_back("done again", ObjectEditor.redo, "redo")

    def _step_back(self, words: str, call: Callable[[ObjectEditor], object], name: str) -> None:
        if self._painted.isActive():
            self._adopt()
        if self.editor is None or self.panel.is_busy:
            return
        if getattr(self.editor, f"can_{name}"):
            self._edit(words, call)
        elif self.editor.is_painted:
            getattr(self.layer, name)()  # napari's own, of strokes
            self._painted.start()

    def _paint(self) -> None:
        assert self.editor is not None
        self.canvas.paint(self.editor.next_number)

    def _adopt(self) -> None:
        """Take what was painted as objects of the first kind that is ticked."""
        self._painted.stop()
        if self.editor is not None:
            self.editor.adopt((self.kinds.ticked or [1])[0])
            self._measure()
            self._learn()
            self._refresh()

    def _on_cut_toggled(self) -> None:
        is_on = self.buttons["cut"].isChecked()
        self.classes.stop_lasso()
        self.canvas.draw_lines(is_on)
        self.panel.note("draw a line across an object" if is_on else "")

    def _on_lasso_toggled(self, is_on: bool) -> None:
        self.buttons["cut"].setChecked(False)
        self.canvas.draw_lines(is_on)
        self.panel.note("draw a line around objects" if is_on else "")

    def _on_drawn(self, line: Any) -> None:
        """Cut what a line (n, ndim) crosses, or give what it surrounds the chosen class."""
        if not self.classes.is_lasso:
            self.cut(line)
        elif len(line) > 2:
            self.classes.click(self.canvas.objects_inside(line))

    def cut(self, line: Any) -> None:
        """Cut the object that most of a line (n, ndim) lies in."""
        number = self.canvas.object_under(line)
        if not number:
            self.panel.note("the line crosses no object")
            return
        self._edit(f"object {number} cut", lambda editor: editor.cut(number, line[:, -2:]))

    def _on_picked(self, number: int, joins: bool) -> None:
        if number and self.classes.click([number]):
            return
        chosen = self.table.selected
        self.table.select({*chosen} ^ {number} if joins else {number} - {0})

    def _on_chosen(self, numbers: list[int]) -> None:
        if self.layer is not None and numbers:
            self._go_to(numbers[-1])
            self.canvas.flash(numbers[-1])
        self._refresh()

    def _go_to(self, number: int) -> None:
        """Bring an object into sight, if it is not."""
        inside = np.argwhere(self.layer.data == number)
        if len(inside):
            middle = tuple(inside[len(inside) // 2].tolist())
            center_on(self._viewer, self.layer, middle, only_if_hidden=True)

    def track(self) -> None:
        source = self._source
        if self.editor is None or source is None:
            return
        by, spacing = self.track_by.value, source.sizes[1:]
        follow = partial(track_objects, self._copy(), by=by, spacing=spacing)
        show = partial(self._show_tracks, source)
        self.panel.begin_task("following", lambda *_: follow(), show)

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
        self.panel.show_outcome(f"{len(np.unique(rows[:, 0]))} tracks")

    def save_to(self, path: str) -> None:
        """Save the objects as the ending says; .csv where there is none."""
        source = self._source
        if self.editor is None or source is None:
            return
        save = partial(source.save, Path(path), self._copy(), self.classes.classified)
        show = self.panel.show_outcome
        self.panel.begin_task(
            "saving",
            lambda _, cancelled: save(cancelled),
            lambda path: show(f"saved {named(path)}{source.left_out(path)}"),
        )

    def _ask_to_save(self) -> None:
        assert self._source is not None
        path = None if self.image.layer is None else self.image.layer.source.path
        folder = Path.home() if path is None else Path(path).absolute().parent
        start = folder / f"{self._source.layer.name.partition(' [')[0]}.objects.csv"
        ask_for_path(self, "Save objects", str(start), SAVE_FILTER, self.save_to)

    def _on_labels_changed(self, layer: object = None) -> None:
        labels = self.labels.layer
        self._parts = None
        self.image.refresh()
        self.uncertainty.refresh()
        self.panel.background.drop("kinds")
        self.kinds.clear()
        if labels is not None:
            axes = squeezed_axes(labels)
            for field in (self.slices, self._frames):
                self._rows.show_row(field, len(axes) > 2)
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

    def _on_kinds_changed(self, *changed: object) -> None:
        """Split anew, if that was done before and nothing is lost."""
        was_split, self._parts = self._parts is not None, None
        if was_split and self.editor is not None and not self.editor.is_corrected:
            self.start()
        self._refresh()

    def _on_image_changed(self, *changed: object) -> None:
        self._on_kinds_changed()
        if not self.panel.is_busy:
            self._measure()

    def _on_removed(self, event: Any) -> None:
        if event.value == self.layer:  # which may be a proxy
            for key in ("join", "measures", "lesson"):
                self.panel.background.drop(key)
            self.canvas.leave()
            self.buttons["cut"].setChecked(False)
            self.editor = self._parts = None
            self.classes.show_objects(None)
            self.table.show_table({})
            self.counts.setText("")
            self._refresh()

    def _fits(self, image: Image) -> bool:
        labels = self.labels.layer
        return labels is not None and image_region(labels, image) is not None

    def _refresh(self, *changed: object) -> None:
        is_free, editor = not self.panel.is_busy, self.editor
        reason = _NO_LABELS if self.labels.layer is None else ""
        if not reason and not self.kinds.ticked:
            reason = "no kind is ticked"
        self.panel.set_reason(reason, is_free=is_free)
        n_chosen, has_some = len(self.table.selected), editor is not None and is_free
        is_filtered = self.table.filter.gate is not None
        able = {
            "merge": n_chosen > 1,
            "delete": n_chosen > 0,
            "keep": is_filtered,
            "undo": editor is not None and (editor.can_undo or editor.is_painted),
            "redo": editor is not None and (editor.can_redo or editor.is_painted),
            "track": self._source is not None and self._source.placed["axis"] == 0,
        }
        for name in ("merge", "cut", "delete", "new", "keep", "undo", "redo", "track", "save"):
            self.buttons[name].setEnabled(has_some and able.get(name, True))

    def _release(self) -> None:
        self._preview.stop()
        self._painted.stop()
        self.classes.shut_down()
        self.canvas.leave()
        self.editor = self._parts = self._source = None


def _is_kinds(layer: Any) -> bool:
    return not layer.multiscale and OBJECTS_KEY not in layer.metadata
