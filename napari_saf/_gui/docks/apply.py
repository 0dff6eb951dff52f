"""Apply to image or folder: label open images or files with the model of a labelled image."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtCore import QEvent, Signal
from qtpy.QtWidgets import QCheckBox, QDialog, QPushButton, QVBoxLayout, QWidget

from napari_saf import io
from napari_saf._gui.forms.choices import BRIGHTNESS, BRIGHTNESS_HELP, Choice, LayerChoice
from napari_saf._gui.forms.controls import (
    PROTOTYPE_FILTER,
    StatusArea,
    ask_for_path,
    json_path,
)
from napari_saf._gui.forms.display_text import describe_error, list_names, named
from napari_saf._gui.forms.fields import FolderField
from napari_saf._gui.forms.layout import (
    FormSection,
    create_button,
    create_row,
    enable,
    fill_layout,
    keep_apart,
)
from napari_saf._gui.layers import placement
from napari_saf._gui.layers.large import ground_in, narrowed
from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf._gui.runs.panel import RunPanel
from napari_saf._gui.runs.run import RunJob
from napari_saf.batch import ApplyOptions, least_certain, run_batch
from napari_saf.errors import InvalidInput, counted, format_count
from napari_saf.input import AUTO
from napari_saf.io import PrototypeSet
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions
from napari_saf.project import Model

BUSY = "wait for the end, or stop"
_FILES = object()
_FILES_TEXT = "a file or folder …"
_SAVE_HELP = "Save the prototypes of the labels in a small file, to label other images with."
_REDO = "replace existing results"
_NEEDS_STROKES = "no prototypes for other images were learned from the strokes"
_WIDTH, _MARGIN = 420, 10
_ROWS = {
    "image": ("Apply to", "An open image, or files."),
    "source": ("Images in", "A folder of images, or one image file."),
    "results": ("Results in", "The folder for the labels; it is created if it does not exist."),
    "brightness": ("Brightness", BRIGHTNESS_HELP),
    "maps": ("Probabilities", "File type for maps of label probabilities per pixel (W)."),
    "overwrite": ("", "Otherwise images with results in the folder are skipped."),
}
_FILE_ROWS = ("source", "results", "maps", "overwrite")


@dataclasses.dataclass(frozen=True)
class ApplyRequest:
    """Target of a model: an open image, or a file or folder with an output folder.

    `rescale` as for `Pipeline.problem`; `maps` is the file suffix of probability maps, if any.
    """

    image: Image | None = None
    source: Path | None = None
    results: Path | None = None
    rescale: bool | None = None
    maps: str = ""
    overwrite: bool = False

    @property
    def is_of_files(self) -> bool:
        return self.source is not None and self.results is not None


class ApplyDialog(QDialog):
    """Dialog for the target of a model, an open image or files, emitted as an `ApplyRequest`.

    It mirrors the status of the panel and can stop its work. `row` holds the buttons that open the
    dialog for an image or for files. If `has_classifier`, a save button emits the path and
    whether images are rescaled. Only layers for which `fits` returns True are offered.
    """

    apply_asked = Signal(object)
    save_asked = Signal(str, bool)
    changed = Signal()

    def __init__(
        self,
        parent: QWidget,
        viewer: napari.viewer.Viewer,
        panel: RunPanel,
        help: str,
        fits: Callable[[Any], bool] = lambda layer: True,
        none: str | None = None,
        *,
        has_classifier: bool = False,
        has_brightness: bool = True,
        extra: Sequence[QWidget] = (),
    ) -> None:
        super().__init__()
        self._parent = parent  # set by the first `ask`
        keep_apart(self, parent)
        self.setWindowTitle("Apply to other images")
        self.setMinimumWidth(_WIDTH)
        self._viewer, self._panel, self._help = viewer, panel, help
        self._suggested: Path | None = None
        self.has_brightness = has_brightness
        self.image = LayerChoice(viewer, Image, fits, none=none, last=[(_FILES_TEXT, _FILES)])
        self.brightness = Choice(BRIGHTNESS)
        self.source, self.results = FolderField(_ROWS["source"][1]), FolderField("Results")
        self.maps = Choice([("none", ""), *((x, x) for x in io.PROBABILITY_SUFFIXES)])
        self.overwrite, self.status = QCheckBox(_REDO), StatusArea()
        self.button = create_button("Apply", help, self.apply)
        self.stop = create_button("Stop", "Stop; finished results are kept.", panel.stop)
        self.stop.setEnabled(False)
        self.save = create_button("Save classifier …", _SAVE_HELP, self._ask_to_save)
        self._rows, self.row = FormSection(), QWidget()
        for name, (text, tooltip) in _ROWS.items():
            self._rows.add_row(text, getattr(self, name), tooltip)
        close = create_button("Close", "Close the window; the work continues.", self.close)
        buttons = create_row(self.button, self.stop, close)
        fill_layout(QVBoxLayout(self), self._rows, buttons, self.status)
        self.layout().setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
        self.layout().addStretch()
        for button in self.findChildren(QPushButton):
            button.setAutoDefault(False)  # Enter in a field would press one
        self.to_image = create_button("Apply to image …", help, partial(self.ask, to_files=False))
        self.to_folder = create_button("Apply to folder …", help, partial(self.ask, to_files=True))
        rows = [create_row(self.to_image, self.to_folder)]
        widgets = [*[self.save] * has_classifier, *extra]
        rows += [create_row(*widgets)] if widgets else []
        fill_layout(QVBoxLayout(self.row), *rows)
        self.status.mirror(panel.status)
        panel.busy_changed.connect(self.stop.setEnabled)
        panel.controller.began.connect(self._on_began)
        self.image.currentIndexChanged.connect(self._on_chosen)
        self.image.layer_changed.connect(self._on_chosen)
        self.source.changed.connect(self._suggest_results)
        self.results.changed.connect(self.changed)
        self._on_chosen()

    @property
    def layer(self) -> Any:
        return self.image.layer

    @property
    def takes_files(self) -> bool:
        """Whether a file or folder is the target, not a layer."""
        return self.image.value is _FILES

    @property
    def request(self) -> ApplyRequest:
        rescale = self.brightness.value if self.has_brightness else None
        if not self.takes_files:
            return ApplyRequest(self.layer, rescale=rescale)
        return ApplyRequest(
            source=self.source.path,
            results=self.results.path,
            rescale=rescale,
            maps=self.maps.value,
            overwrite=self.overwrite.isChecked(),
        )

    def apply(self, *clicked: object) -> None:
        self.apply_asked.emit(self.request)

    def save_to(self, path: str) -> None:
        self.save_asked.emit(path, self.brightness.value)

    def ask(self, *clicked: object, to_files: bool) -> None:
        """Show the dialog, non-modal, for files or for an open image."""
        if self.parent() is None:
            self.setParent(self._parent, self.windowFlags())
        if to_files or self.takes_files:
            self.image.setCurrentIndex(self.image.count() - 1 if to_files else 0)
        current = self._panel.current_image
        images = [image for image in self.image.values() if isinstance(image, Image)]
        images = [image for image in images if image != current]
        if len(images) == 1 and not to_files and self.layer in (None, current):
            self.image.choose(images[0])
        if not self._panel.is_busy:
            self.status.reset()  # clear messages of earlier work
        self.show()
        self.layout().activate()  # also of a status that was just cleared
        self.adjustSize()
        self.raise_()
        (self.source if to_files else self.image).setFocus()

    def event(self, event: QEvent) -> bool:
        """Make room for a longer status; otherwise the rows above would shrink."""
        is_handled = bool(super().event(event))
        if event.type() == QEvent.Type.LayoutRequest:
            height = self.layout().totalHeightForWidth(self.width())
            self.resize(self.width(), max(height, self.height()))
        return is_handled

    def take_brightness(self, options: ImageOptions | None) -> None:
        if options is not None:
            self.brightness.choose(options.rescale or options.scaling is None)

    def update_enabled(self, why_not: str, why_not_saved: str = "") -> None:
        enable(self.save, why_not_saved, _SAVE_HELP)
        missing = "" if self.layer is not None or self.takes_files else "choose an image first"
        if self.takes_files and None in (self.source.path, self.results.path):
            missing = "choose a folder first"
        enable(self.button, why_not or missing, self._help)
        for button in (self.to_image, self.to_folder):
            enable(button, "" if why_not == BUSY else why_not, self._help)

    def _on_began(self, job: RunJob) -> None:
        """Show the brightness option of the applied job, which a suggestion may have changed."""
        if job.is_applied:
            self.take_brightness(job.image_job.options)

    def _ask_to_save(self) -> None:
        start = str(placement.image_folder(self._viewer) / "learned.prototypes.json")
        ask_for_path(self, "Save classifier", start, PROTOTYPE_FILTER, self.save_to)

    def _on_chosen(self, *changed: object) -> None:
        for name in _FILE_ROWS:
            is_shown = self.takes_files and (name != "maps" or self.has_brightness)
            self._rows.show_row(getattr(self, name), is_shown)
        self._rows.show_row(self.brightness, self.has_brightness)
        self.changed.emit()

    def _suggest_results(self) -> None:
        """Suggest an output folder next to the source, unless the user chose another."""
        source = self.source.path
        if source is not None and self.results.path in (None, self._suggested):
            results = source.with_name(f"{source.name}_labels") if source.name else source
            self._suggested = source.parent if os.path.isfile(source) else results
            self.results.set_path(self._suggested)
        self.changed.emit()


def start_applying(
    panel: RunPanel,
    viewer: napari.viewer.Viewer,
    request: ApplyRequest,
    learned: Model,
    labels: Any = None,
    dictionary: Mapping[str, Any] | None = None,
    *,
    title: str = "",
    strokes: Labels | None = None,
) -> None:
    """Apply a model: a run on an open image (`repeat_job`) or a task on files (`ApplyOptions`).

    Dictionary models, with the arguments `dictionary`, apply to files only.
    """
    if request.source is not None and request.results is not None:
        if isinstance(learned, Pipeline):  # the request decides on probability maps
            learned = dataclasses.replace(learned, probabilities=None)
        options = ApplyOptions(
            scaling=request.rescale,
            mask=None,
            probabilities=io.ProbabilityStep(request.maps) if request.maps else None,
            overwrite=request.overwrite,
            dictionary=dict(dictionary or {}),
        )
        work = partial(_apply_to_files, learned, options, request.source, request.results)

        def show(summary: tuple[str, str]) -> None:
            text, fault = summary
            panel.show_outcome(text, fault=fault)

        panel.begin_task("looking for images", work, show)
    elif isinstance(learned, Pipeline) and request.image is not None:
        image, rescale = request.image, request.rescale
        job = repeat_job(
            viewer, learned, image, labels, rescale=rescale, title=title, strokes=strokes
        )
        panel.controller.start(job)


def save_classifier(path: str, prototypes: PrototypeSet) -> str:
    """Save prototypes; return the text for the status."""
    return f"saved {named(io.save_prototypes(json_path(path), prototypes))}"


def why_not_repeated(recipe: Pipeline) -> str:
    """Return why a recipe cannot be applied to other images; empty if it can."""
    if recipe.options is None:
        return "the run was on a graph, not on an image"
    try:
        io.check_repeatable(recipe.options)
    except InvalidInput as error:
        return describe_error(error)
    needs_strokes = recipe.method.follows_seeds and recipe.prototypes is None
    return _NEEDS_STROKES if needs_strokes else ""


def _apply_to_files(
    learned: Model,
    options: ApplyOptions,
    source: Path,
    results: Path,
    report: Callable[[object], None],
    cancelled: Callable[[], bool],
) -> tuple[str, str]:
    """Label one file or the images of a folder; report the progress (fraction, text).

    Return a summary, and the names of the images that failed.
    """
    paths, outcomes = io.find_images([source]), defaultdict(list)
    n_images = len(paths)
    report((0.0, f"0 of {format_count(n_images)}"))
    try:
        task, jobs = options.plan(learned, paths, results)
        for k, outcome in enumerate(run_batch(task, jobs, cancelled=cancelled), start=1):
            outcomes[outcome.state].append(outcome)
            count = f"{format_count(k)} of {format_count(n_images)}"
            report((k / n_images, f"{count}: {outcome.job.title} {outcome.state}"))
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("--overwrite", f"*{_REDO}*")) from error
    done, skipped, failed = (outcomes[state] for state in ("done", "skipped", "failed"))
    ratios = [outcome.result for outcome in done if isinstance(outcome.result, float)]
    mean = f", {sum(ratios) / len(ratios):.1f} dB on average" if ratios else ""
    lines = [
        f"{format_count(len(done))} of {counted(n_images, 'image')} done, in {results.name}{mean}"
    ]
    if skipped:
        lines.append(f"{format_count(len(skipped))} skipped: results exist")
    n_left = n_images - len(done) - len(skipped) - len(failed)
    if n_left:
        lines.append(f"stopped, {format_count(n_left)} left")
    lines += filter(None, [least_certain(jobs)])
    names = list_names([outcome.job.title for outcome in failed])
    fault = f"{format_count(len(failed))} failed: {names} ({failed[0].error})" if failed else ""
    return "\n".join(lines), fault


def repeat_job(
    viewer: napari.viewer.Viewer,
    recipe: Pipeline,
    image: Image,
    labels: Any = None,
    *,
    rescale: bool | None = None,
    title: str = "",
    strokes: Labels | None = None,
) -> RunJob:
    """Return a job that applies a recipe to an image layer, in the colours of its prototypes.

    An image with the axes of the original is sliced like `labels`, the layer of the recipe; if it
    has more axes than were labelled, the displayed slice is labelled. `rescale` as for
    `Pipeline.problem`; the new layer gets the title and is placed below the strokes. Raises
    InvalidInput if the axes or channels of the image do not match.
    """
    recipe = recipe.for_others()
    assert recipe.options is not None  # without options, the buttons are disabled
    across, channel = _cut(viewer, recipe.options, image, labels)
    region = placement.ImageRegion(
        image, channel, placement.positions_on_screen(viewer, image, across)
    )
    region = narrowed(viewer, region)
    n_channels = (
        3 if image.rgb else 1 if channel is None else placement.pixels_of(image).shape[channel]
    )
    read = dataclasses.replace(recipe.options, channel_axis=region.channel_axis_read)
    ground = ground_in(region, read) if read.features == AUTO else None
    resolved = recipe.options.resolve([region.shape], n_channels, ground=ground)
    assert not isinstance(resolved.window, str)
    window, note = region.fit(resolved.window)
    options = dataclasses.replace(
        resolved.for_others(rescale), channel_axis=region.channel_axis_read, window=window
    )
    prototypes = recipe.prototypes
    if prototypes is not None:
        width = prototypes.vectors.shape[1]
        extractor = options.extractor
        expected = None if extractor is None else extractor.channels_of(width)
        if expected not in (None, n_channels):
            raise InvalidInput(
                f"{image.name}: expected as many channels as the prototypes have ({expected}), "
                f"got {n_channels}"
            )
    return RunJob(
        image,
        ImageJob(region.pixels, options),
        recipe.method,
        region.placement,
        strokes=strokes,
        note=note if recipe.method.uses_window else "",
        title="" if prototypes is None else title or recipe.method.name.upper(),
        names=None if prototypes is None else prototypes.names,
        colors=None if prototypes is None else prototypes.colors,
        is_applied=True,
        level=recipe.level,
    )


def _cut(
    viewer: napari.viewer.Viewer, options: ImageOptions, image: Image, labels: Any
) -> tuple[tuple[int, ...], int | None]:
    """Return the axes of an image that are fixed at one position, and its channel axis.

    An image with the axes of the original is sliced like it. Otherwise the last axes are
    labelled: as many as in the original, or as many as are displayed if that is unknown.
    """
    has_channels = options.channel_axis is not None and not image.rgb
    recorded = None if labels is None else placement.image_axes_of(labels)
    if recorded is not None:
        axes, singletons = recorded
        channel = placement.channel_axis_of(labels)
        if channel is not None:
            if has_channels and image.ndim == len(axes):
                return tuple(axis for axis in singletons if axis != channel), channel
        elif image.ndim == len(axes) + has_channels:
            if not has_channels:
                return singletons, None
            channel = next(axis for axis in range(image.ndim) if axis not in axes)
            return tuple(axes[axis] for axis in singletons), channel
    n_axes = min(int(dims_of(viewer).ndisplay), int(image.ndim) - has_channels)
    if labels is not None:
        n_axes = len(placement.labelled_axes(labels))
    elif isinstance(options.window, tuple):
        n_axes = len(options.window)
    n_fixed = image.ndim - n_axes - has_channels
    if n_fixed < 0:
        n_read = n_axes + has_channels
        raise InvalidInput(f"{image.name}: expected an image of {n_read} axes, got {image.ndim}")
    if image.rgb or options.channel_axis is None:
        return tuple(range(n_fixed)), None
    return tuple(range(n_fixed)), n_fixed + options.channel_axis % (n_axes + 1)
