"""Apply to image: what labels an open image, or the images of a folder, as one was labelled."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox

from napari_saf._gui.docks.run_dock import RunDock
from napari_saf._gui.forms.choices import BRIGHTNESS, BRIGHTNESS_HELP, Choice, LayerChoice
from napari_saf._gui.forms.controls import PROTOTYPE_FILTER, FolderField, ask_for_path, json_path
from napari_saf._gui.forms.layout import FormSection, create_button, enable
from napari_saf._gui.forms.words import list_names
from napari_saf._gui.layers.large import narrowed
from napari_saf._gui.layers.live import LiveLayer, label_colors
from napari_saf._gui.layers.placement import (
    NO_IMAGE,
    ImageRegion,
    channel_axis_of,
    image_axes_of,
    labelled_axes,
    pixels_of,
    positions_on_screen,
)
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.runs.run import RunJob
from napari_saf.batch import Job, LabelTask, plan_jobs, run_batch
from napari_saf.errors import InvalidInput
from napari_saf.io import MASK_SUFFIXES, PrototypeSet, Recipe, find_images, save_prototypes

APPLY_TITLE = "Apply to image …"
BUSY = "wait for the end, or stop"
_FILES = object()
_FILES_TEXT = "a file or folder …"
_SAVE_HELP = (
    "Keep what each label looks like, with names, colours, features and scale, in a small file: to "
    "label other images with, in the Prototypes dock or on the command line."
)
_REDO = "redo what is there"
_FILE_ROWS = {
    "source": ("Images in", "A folder, all images of which are labelled, or one file."),
    "results": ("Results in", "The folder for the labels; it is made if need be."),
    "overwrite": ("", "Without this, images that have labels from here are skipped."),
}


class ApplySection(FormSection):
    """What to apply something to, an open image or a file or folder, and the button for it.

    Images are offered that fit; `none` is the text for no choice, if there is to be none at first.
    The help is that of the button, which calls `apply` of the dock. With brightness, it is asked
    which values count as black and white, which is given to the `classifier`: what is saved.
    """

    changed = Signal()

    def __init__(
        self,
        dock: RunDock,
        viewer: napari.Viewer,
        help: str,
        classifier: Callable[[bool], PrototypeSet] | None = None,
        fits: Callable[[Any], bool] = lambda layer: True,
        *,
        none: str | None = None,
        has_brightness: bool = True,
    ) -> None:
        super().__init__()
        self._dock, self._viewer, self._classifier = dock, viewer, classifier
        self.image = LayerChoice(viewer, Image, fits, none=none, last=[(_FILES_TEXT, _FILES)])
        self.brightness = Choice(BRIGHTNESS)
        self.source, self.results = FolderField(_FILE_ROWS["source"][1]), FolderField("Results")
        self.overwrite = QCheckBox(_REDO)
        self.button, self._help = create_button("Apply", help, lambda: dock.apply()), help
        self.save = create_button("Save classifier …", _SAVE_HELP, self._ask_to_save)
        self._suggested: Path | None = None
        self.has_brightness = has_brightness
        self.add_row("Apply to", self.image, "An open image, or files.")
        for name, (text, tooltip) in _FILE_ROWS.items():
            self.add_row(text, getattr(self, name), tooltip)
        if has_brightness:
            self.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        self.layout().addWidget(self.button)
        if classifier is not None:
            self.layout().addWidget(self.save)
        self.image.currentIndexChanged.connect(self._on_chosen)
        self.image.activated.connect(lambda: self.source.setFocus())
        self.image.layer_changed.connect(self._on_chosen)
        self.source.changed.connect(self._suggest_results)
        self.results.changed.connect(self.changed)
        self._on_chosen()

    @property
    def layer(self) -> Any:
        return self.image.layer

    @property
    def takes_files(self) -> bool:
        """Whether a file or folder is to be labelled, and no layer."""
        return self.image.value is _FILES

    def update_enabled(self, why_not: str, why_not_saved: str = "") -> None:
        enable(self.save, why_not_saved, _SAVE_HELP)
        missing = "" if self.layer is not None or self.takes_files else "choose an image first"
        if self.takes_files and None in (self.source.path, self.results.path):
            missing = "choose a folder first"
        enable(self.button, why_not or missing, self._help)

    def start(self, recipe: Recipe, labels: Any = None, **look: Any) -> None:
        """Label what is chosen by a recipe, in a run or a task of the dock; see `repeat_job`."""
        rescale, results = self.brightness.value, self.results.path
        finite_only = self._dock.finite_only
        if self.takes_files and results is not None:
            own = {"mask": "finite" if finite_only else None, "rescale": rescale}
            task = LabelTask.repeating(recipe, overwrite=self.overwrite.isChecked(), **own)
            plan = partial(plan_jobs, out=results, suffix=MASK_SUFFIXES[0], together=False)
            self.start_files(task, plan)
            return
        job = repeat_job(self._viewer, recipe, self.layer, labels, rescale, **look)
        self._dock.controller.start(job.masked() if finite_only else job)

    def start_files(
        self,
        task: Any,
        plan: Callable[[list[Path]], list[Job]],
        summarize: Callable[[list[Any]], str] = lambda results: "",
    ) -> None:
        """Do a batch task for the files, as a task of the dock; their results end its summary."""
        source, results, dock = self.source.path, self.results.path, self._dock
        if source is None or results is None:
            return

        def show(summary: tuple[str, bool]) -> None:
            text, has_failed = summary
            if has_failed:
                dock.status.show_error(text)
            else:
                dock.status.show_progress(1.0, text)

        work = partial(_apply_to_files, task, plan, source, f"in {results.name}", summarize)
        dock.begin_task("looking for images", work, show, lambda step: dock.show_task(*step))

    def save_to(self, path: str) -> None:
        if self._classifier is not None:
            with self._dock.showing_errors():
                found = self._classifier(self.brightness.value)
                name = save_prototypes(json_path(path), found).name
                self._dock.status.reset(f"saved {name}: load it in the Prototypes dock")

    def _ask_to_save(self) -> None:
        start = str(Path.cwd() / "taught.prototypes.json")
        ask_for_path(self, "Save classifier", start, PROTOTYPE_FILTER, self.save_to)

    def _on_chosen(self, *changed: object) -> None:
        for name in _FILE_ROWS:
            self.show_row(getattr(self, name), self.takes_files)
        self.changed.emit()

    def _suggest_results(self) -> None:
        """Suggest a folder beside that of the images, unless another was chosen."""
        source = self.source.path
        if source is not None and self.results.path in (None, self._suggested):
            beside = source.with_name(f"{source.name}_labels") if source.name else source
            self._suggested = source.parent if source.is_file() else beside
            self.results.set_path(self._suggested)
        self.changed.emit()


def _apply_to_files(
    task: Any,
    plan: Callable[[list[Path]], list[Job]],
    source: Path,
    where: str,
    summarize: Callable[[list[Any]], str],
    report: Callable[[object], None],
    cancelled: Callable[[], bool],
) -> tuple[str, bool]:
    """Do a task for the images of a folder, or one file; report a fraction and a text.

    Return a summary with the names of images that failed, and whether any did.
    """
    paths, outcomes = find_images([source]), defaultdict(list)
    n_images = len(paths)
    report((0.0, f"0 of {n_images}"))
    try:
        for k, outcome in enumerate(run_batch(task, plan(paths), cancelled=cancelled), start=1):
            outcomes[outcome.state].append(outcome)
            report((k / n_images, f"{k} of {n_images}: {outcome.job.title} {outcome.state}"))
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("--overwrite", f"*{_REDO}*")) from error
    done, skipped, failed = (outcomes[state] for state in ("done", "skipped", "failed"))
    results = [outcome.result for outcome in done if outcome.result is not None]
    lines = [f"{len(done)} of {n_images} images done, {where}{summarize(results)}"]
    if skipped:
        lines.append(f"{len(skipped)} skipped: results were there")
    n_left = n_images - len(done) - len(skipped) - len(failed)
    if n_left:
        lines.append(f"stopped, {n_left} left")
    if failed:
        named = list_names([outcome.job.title for outcome in failed])
        lines.append(f"failed: {named} ({failed[0].error})")
    return "\n".join(lines), bool(failed)


def repeat_job(
    viewer: napari.viewer.Viewer,
    recipe: Recipe,
    image: Image | None,
    labels: Any = None,
    rescale: bool | None = None,
    *,
    title: str = "",
    strokes: Labels | None = None,
) -> RunJob:
    """Return the run that repeats a recipe on an image layer, in the colours of what it knows.

    One with the axes of the first image is cut as the `labels` that the recipe made; of another
    with more axes than were labelled, the slice on screen is labelled. `rescale` as for
    `Recipe.problem`; the new labels have the title, and lie below the strokes. InvalidInput if
    there is no image, it is not known how it became features, or its axes or channels do not fit.
    """
    if image is None:
        raise InvalidInput(NO_IMAGE)
    recipe = recipe.for_others()
    if recipe.options is None:
        raise InvalidInput("it is not known what the prototypes are made of")
    has_channels = recipe.options.channel_axis is not None and not image.rgb
    cut = _axes_like(labels, image, has_channels)
    n_axes = _n_axes(viewer, recipe.options.window, image, labels, has_channels)
    across, channel = cut or _last_axes(recipe, image, n_axes)
    region = ImageRegion(image, channel, positions_on_screen(viewer, image, across))
    region = narrowed(viewer, region)
    n_channels = 3 if image.rgb else 1 if channel is None else pixels_of(image).shape[channel]
    own = recipe.options.resolve([region.shape], n_channels)
    assert not isinstance(own.window, str)
    window, note = region.fit(own.window)
    options = dataclasses.replace(
        own.for_others(rescale), channel_axis=region.channel_axis_read, window=window
    )
    title, live = title or recipe.method.name.upper(), None
    if recipe.taught is not None:
        width = recipe.taught.vectors.shape[1]
        extractor = options.extractor
        expected = None if extractor is None else extractor.channels_of(width)
        if expected not in (None, n_channels):
            raise InvalidInput(
                f"{image.name}: expected as many channels as the prototypes have ({expected}), "
                f"got {n_channels}"
            )
        colors = label_colors(recipe.taught.colors)
        names, place = recipe.taught.names, region.placement
        live = LiveLayer(viewer, image, title, place, strokes, colors=colors, names=names)
    job, method = ImageJob(region.pixels, options), recipe.method
    note = note if method.uses_window else ""
    return RunJob(image, job, method, region.placement, strokes=strokes, live=live, note=note)


def _n_axes(
    viewer: napari.viewer.Viewer, window: Any, image: Image, labels: Any, has_channels: bool
) -> int:
    """Return how many axes were labelled; those on screen where nothing tells."""
    if labels is not None:
        return len(labelled_axes(labels))
    if isinstance(window, tuple):
        return len(window)
    return min(int(viewer.dims.ndisplay), int(image.ndim) - has_channels)


_Cut = tuple[tuple[int, ...], int | None]
"""The axes of an image of which one slice is labelled, and that of its channels."""


def _axes_like(labels: Any, image: Image, has_channels: bool) -> _Cut | None:
    """Return how an image is cut that has the axes of the one that was labelled first, or None."""
    recorded = None if labels is None else image_axes_of(labels)
    if recorded is None:
        return None
    axes, singletons = recorded
    own_channels = channel_axis_of(labels)
    if own_channels is not None:
        across = tuple(axis for axis in singletons if axis != own_channels)
        return (across, own_channels) if has_channels and image.ndim == len(axes) else None
    if image.ndim != len(axes) + has_channels:
        return None
    if not has_channels:
        return singletons, None
    channel = next(axis for axis in range(image.ndim) if axis not in axes)
    return tuple(axes[axis] for axis in singletons), channel


def _last_axes(recipe: Recipe, image: Image, n_axes: int) -> _Cut:
    """Return how any other image is cut: the last axes are labelled."""
    assert recipe.options is not None
    channel = None if image.rgb else recipe.options.channel_axis
    n_wanted = n_axes + (channel is not None)
    n_fixed = image.ndim - n_wanted
    if n_fixed < 0:
        raise InvalidInput(f"{image.name}: expected an image of {n_wanted} axes, got {image.ndim}")
    across = tuple(range(n_fixed))
    return across, None if channel is None else n_fixed + channel % n_wanted
