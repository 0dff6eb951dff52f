"""Label everything: label a large image in tiles into an OME-Zarr store, shown as tiles finish."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QLabel

from napari_saf._gui.forms.controls import StatusArea
from napari_saf._gui.forms.display_text import describe_error, duration_text
from napari_saf._gui.forms.fields import FolderField
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_button, create_row, enable
from napari_saf._gui.layers.large import GrowingLevels, SpreadArray, is_large, source_of
from napari_saf._gui.layers.live import colormap_of, label_colors
from napari_saf._gui.layers.metadata import METADATA_KEY, NAMES_KEY, STORE_KEY, metadata_of
from napari_saf._gui.layers.placement import Placement, pixels_of
from napari_saf._gui.layers.view import insert_above, visibility_of
from napari_saf._gui.runs.task import Task
from napari_saf.errors import InvalidInput, SafError, counted, format_count
from napari_saf.io import PrototypeSet, file_stem, mask_stem
from napari_saf.methods import Cancelled, run_to_end
from napari_saf.pipeline import Pipeline
from napari_saf.tiles import LabelStore, LargeJob, LargeLabels, LargeStep, TileCount, iterate_large

Learner = Callable[[Callable[[], bool]], Pipeline]
_CLOSING_SECONDS = 10.0
_SHOWN_SECONDS = 0.3
"""Interval between updates of the displayed tiles."""
CLOCK_MILLISECONDS = 500
_LEARNING = "learning from parts of the image"
_SUFFIX = ".labels.ome.zarr"
_START_HELP = "Label the whole image in tiles, into the folder above; finished tiles are kept."
_PAUSE_HELP = "Stop after the current tile; Label everything resumes from there."
_ANEW_HELP = "Discard the labels so far, and label the whole image with the settings of the dock."
_AS_BEGUN = "with the original settings; to use those of the dock, press Pause, then Start anew"
_STORE_HELP = "The folder for the labels, NAME.ome.zarr; choose the same again to resume."


class LargeSection(FormSection):
    """Labels a whole large image in the background; visible only for large images.

    The `learner` reads the form and returns a function that makes the recipe, or raises SafError.
    The dock stays usable meanwhile.
    """

    def __init__(
        self, viewer: napari.Viewer, chosen: ImageInput, learner: Callable[[], Learner]
    ) -> None:
        super().__init__()
        self._viewer, self._input, self._learner = viewer, chosen, learner
        self._task: Task | None = None
        self._target: tuple[Image, Placement, Path]  # of the current labels
        self.layer: Any = None
        self._suggested: Path | None = None
        self._note, self.status = QLabel(wordWrap=True), StatusArea()
        self.store = FolderField(_STORE_HELP)
        self.start_button = create_button("Label everything", _START_HELP, self.start)
        self.pause_button = create_button("Pause", _PAUSE_HELP, self.pause)
        anew = partial(self.start, is_anew=True)
        self.anew_button = create_button("Start anew", _ANEW_HELP, anew)
        self.anew_button.hide()
        self.add_row("Large image", self._note)
        self.add_row("Labels in", self.store, _STORE_HELP)
        self.layout().addWidget(create_row(self.start_button, self.pause_button, self.anew_button))
        self.layout().addWidget(self.status)
        self._clock = QTimer(self, interval=CLOCK_MILLISECONDS)
        self._clock.timeout.connect(self._on_clock)
        chosen.image_changed.connect(self._on_image_changed)
        self.store.changed.connect(self._update_enabled)
        self._on_image_changed()

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def start(self, *, is_anew: bool = False) -> None:
        """Start, or resume the labels in the store; with `is_anew`, replace them."""
        image, out = self._input.image, self.store.path
        if self.is_busy or out is None or not is_large(image):
            return
        if not out.name.lower().endswith(".ome.zarr") and out.parent.name != "labels":
            out = out / f"{file_stem(image.name)}{_SUFFIX}"
            self.store.set_path(out)
        try:
            learner, region = self._learner(), self._input.pixels().slices(every=True)
            mask = self._input.choices["mask"].layer
            values = None if mask is None else pixels_of(mask)
            target = image, region.whole()[0], out
        except SafError as error:
            self.status.show_error(describe_error(error))
            return
        for layer in self._layers_of(out) if is_anew else ():
            self._viewer.layers.remove(layer)
        self.layer, self._target = None, target
        arguments = region.channel_axis, values, out, is_anew
        task = self._task = Task(partial(_label, image, learner, *arguments))
        task.advanced.connect(self._on_advanced)
        task.returned.connect(self._on_returned)
        task.failed.connect(self._on_failed)
        task.abandoned.connect(self._on_paused)
        task.finished.connect(self._on_finished)
        self.anew_button.hide()
        self.status.reset(f"{_LEARNING} …")
        self._update_enabled()
        self._clock.start()
        task.start()

    def pause(self) -> None:
        """Stop after the current tile; finished tiles are kept."""
        if self._task is not None:
            self._task.cancel()
            self.status.set_text("stopping after the present tile …")

    def _on_clock(self) -> None:
        """Show the elapsed time until the first tile reports progress."""
        if self._task is not None and self.layer is None:
            text = "stopping" if self._task.is_cancelled else _LEARNING
            self.status.set_text(f"{text} …  {self._task.seconds:.0f} s")

    def release(self) -> None:
        """Stop the work and wait for its thread."""
        task, self._task = self._task, None
        if task is not None:
            task.silence()
            task.wait(_CLOSING_SECONDS)

    def _on_image_changed(self) -> None:
        image = self._input.image
        is_shown = is_large(image) or self.is_busy
        self.setVisible(is_shown)
        if is_large(image):
            sides = " × ".join(format_count(n) for n in pixels_of(image).shape[: image.ndim])
            part = "one part, the view on screen, is labelled at a time, with separate strokes"
            self._note.setText(f"{sides} pixels: {part}")
            if self.store.path in (None, self._suggested):
                self._suggested = _suggested_store(image)
                self.store.set_path(self._suggested)
        self._update_enabled()

    def _update_enabled(self) -> None:
        why_not = "wait for the end, or pause" if self.is_busy else ""
        if self.store.path is None:
            why_not = "choose a folder for the labels first"
        enable(self.start_button, why_not, _START_HELP)
        enable(self.anew_button, "pause first" if self.is_busy else why_not, _ANEW_HELP)
        enable(self.pause_button, "" if self.is_busy else "nothing to pause", _PAUSE_HELP)

    def _on_advanced(self, step: _Shown) -> None:
        if self._task is not None:
            if self.layer is None:
                self._add_layer(step)
            else:
                self._refresh_layer()
            self.anew_button.setVisible(step.is_as_begun)
            is_stopping = self._task.is_cancelled
            text = "stopping after the present tile …" if is_stopping else step.text
            self.status.show_progress(step.fraction, text)

    def _on_returned(self, result: LargeLabels) -> None:
        self._refresh_layer()
        if {self.layer, self._target[0]} <= {*self._viewer.layers}:
            # Hide earlier labels: both layers are transparent.
            visibility_of(self._viewer).show_result(self._target[0], self.layer)
        tiles = counted(result.n_tiles, "tile")
        text = f"done: {tiles} in {result.path.name}, {result.seconds:.0f} s"
        self.status.show_progress(1.0, "\n".join([text, *result.notes]))

    def _on_paused(self) -> None:
        self._clock.stop()  # it would overwrite the status
        self._refresh_layer()
        self.status.set_text("paused: Label everything resumes")

    def _on_failed(self, error: Exception) -> None:
        self._clock.stop()
        text = describe_error(error)
        for option in ("--overwrite begins anew", "--overwrite replaces it"):
            text = text.replace(option, "choose another folder, or remove it")
        self.status.show_error(text)

    def _on_finished(self) -> None:
        self._task = None
        self._clock.stop()
        self._on_image_changed()

    def _refresh_layer(self) -> None:
        if self.layer in self._viewer.layers:
            self.layer.refresh(extent=False, highlight=False)

    def _layers_of(self, out: Path) -> list[Any]:
        """Return the layers that show the labels in a store."""
        store = str(out.absolute())
        return [x for x in self._viewer.layers if metadata_of(x).get(STORE_KEY) == store]

    def _add_layer(self, step: _Shown) -> None:
        (image, placement, out), prototypes, levels = self._target, step.prototypes, step.levels
        if image not in self._viewer.layers:
            return
        if placement.singletons:
            levels = [SpreadArray(array, placement.singletons) for array in levels]
        pixels = levels if len(levels) > 1 else levels[0]
        entry = placement.entry(image) | {"recipe": step.recipe, STORE_KEY: str(out.absolute())}
        for layer in self._layers_of(out):  # of a run that goes on
            if layer.multiscale == (len(levels) > 1):
                layer.data, self.layer = pixels, layer
                layer.metadata[METADATA_KEY] = entry
                return
            self._viewer.layers.remove(layer)
        active = self._viewer.layers.selection.active
        self.layer = self._viewer.add_labels(
            pixels,
            multiscale=len(levels) > 1,
            name=out.name.removesuffix(".ome.zarr"),
            colormap=colormap_of(label_colors({} if prototypes is None else prototypes.colors)),
            metadata={
                METADATA_KEY: entry,
                NAMES_KEY: {} if prototypes is None else dict(prototypes.names),
            },
            **placement.transform,
        )
        insert_above(self._viewer, self.layer, image)
        if active is not None and active in self._viewer.layers:
            self._viewer.layers.selection.active = active


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """Progress of the run and its resolution levels, which the worker thread extends.

    `is_as_begun`: the settings are those of the resumed run, not those of the dock.
    """

    levels: list[Any]
    prototypes: PrototypeSet | None
    recipe: Mapping[str, Any] | None
    fraction: float
    text: str = ""
    is_as_begun: bool = False


def _label(
    image: Image,
    learner: Learner,
    channel_axis: int | None,
    mask: Any,
    out: Path,
    is_anew: bool,
    report: Callable[[object], None],
    cancelled: Callable[[], bool],
) -> LargeLabels:
    """Label a large image in a worker thread; report `_Shown`."""
    recipe = learner(cancelled)
    job = LargeJob.of(source_of(image), recipe, mask=mask, channel_axis=channel_axis)
    if job.image.shape != tuple(
        n for axis, n in enumerate(pixels_of(image).shape[: image.ndim]) if axis != channel_axis
    ):
        raise InvalidInput(
            f"{image.name}: the axes of its file differ from those of the layer; save it again"
        )
    levels: GrowingLevels | None = None
    n_before, began, shown = 0, time.perf_counter(), 0.0

    def follow(step: LargeStep) -> None:
        nonlocal levels, n_before, began, shown
        if levels is None:
            levels = GrowingLevels(LabelStore(out), step.plan, step.done)
            n_before, began = len(step.done), time.perf_counter()
        elif step.tile is not None and step.tile[0] == 0:
            levels.take(step.tile)
        now = time.perf_counter()
        if step.tile is None or now - shown > _SHOWN_SECONDS:
            shown = now
            n_done, n_tiles = len(step.done), step.n_tiles
            n_finest = sum(tile[0] == 0 for tile in step.done)
            text = TileCount(n_finest, len(step.plan.tiles())).state
            if n_done > n_before:
                remaining = (now - began) / (n_done - n_before) * (n_tiles - n_done)
                text += f", {duration_text(remaining)} left"
            is_as_begun = step.plan.request != job.request
            if is_as_begun:
                text = f"{text}; {_AS_BEGUN}"
            learned = step.plan.prototypes(), step.plan.recipe
            report(_Shown(levels.arrays, *learned, n_done / n_tiles, text, is_as_begun))
        if cancelled():
            raise Cancelled

    steps = iterate_large(job, out, overwrite=is_anew, goes_on=True, cancelled=cancelled)
    with closing(steps):
        result = run_to_end(steps, follow)
    if levels is None:  # all tiles were already labelled
        report(_Shown(LabelStore(out).levels(), job.recipe.prototypes, None, 1.0))
    return result


def _suggested_store(image: Image) -> Path:
    path = image.source.path
    if path and Path(path).exists():
        return Path(path).parent / f"{mask_stem(path)}{_SUFFIX}"
    return Path.cwd() / f"{file_stem(image.name)}{_SUFFIX}"  # image in memory, or from a URL
