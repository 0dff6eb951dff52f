"""The Export dock: choose labels, what to save of them and where; repeat their recipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QGridLayout,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QWidget,
)

from napari_saf._gui.docks.apply import APPLY_TITLE, ApplySection
from napari_saf._gui.docks.run_dock import RunDock
from napari_saf._gui.export.repeat import RepeatSection
from napari_saf._gui.export.source import labelling_reader, write_files
from napari_saf._gui.forms.choices import Choice, LayerChoice
from napari_saf._gui.forms.controls import FolderField
from napari_saf._gui.forms.layout import FormSection, create_fold, create_row
from napari_saf._gui.layers.live import RegionsLayer
from napari_saf._gui.layers.metadata import (
    METADATA_KEY,
    is_regions,
    labels_to_choose,
    prototypes_of,
    recipe_of,
    stored_recipe,
)
from napari_saf._gui.layers.placement import image_region, labelled_image
from napari_saf._gui.runs.controller import run_registry
from napari_saf.errors import InvalidInput
from napari_saf.io import (
    FIGURE_SUFFIXES,
    MASK_SUFFIXES,
    PROTOTYPE_SUFFIXES,
    TABLE_SUFFIXES,
    Recipe,
    Wanted,
    file_stem,
)
from napari_saf.regions import RegionHierarchy, merge_regions
from napari_saf.result import Segmentation

_FORMAT_WIDTH = 124
_INDENT = 23
_LARGEST_LEAST = 10_000_000
_MOST_NAMED = 3
_KINDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "masks": (
        "Label image", tuple(suffix for suffix in MASK_SUFFIXES if suffix != ".tiff"),
        "All labels in one image. TIFF: for ImageJ and OME, with pixel sizes; PNG: in the "
        "colours of the labels; NPY: for Python; OME-Zarr: with names and colours."),
    "binary": (
        "A mask for each label", (".tif", ".png", ".npy"),
        "An image for each label: 255 inside, 0 outside."),
    "regions": (
        "Table of regions", TABLE_SUFFIXES,
        "Size, place, shape and brightness, in the units of the layer. Parquet needs pyarrow."),
    "numbered": (
        "Numbered regions", (".tif", ".png", ".npy", ".ome.zarr"),
        "An image in which each connected region has a number of its own, that of its row in "
        "the table: to count things, and to find them again."),
    "figure": (
        "Figure", FIGURE_SUFFIXES,
        "Image, labels and legend side by side; of a stack the slice on screen."),
    "prototypes": (
        "Prototypes", PROTOTYPE_SUFFIXES,
        "The mean features of each label, to label other images with (f*)."),
    "recipe": ("Recipe", (), "A file that repeats the run from Python or a terminal (.json)."),
}  # fmt: skip
"""The kinds of files by their name in `Wanted`: label, formats, help."""
_TICKED = ("masks", "regions")
_ROWS = (("a row for each label", False), ("a row for each region", True))
_ROWS_HELP = "Whether a label is measured as a whole, or each of its connected regions by itself."
_LEAST_HELP = "Smaller connected regions are neither numbered nor given a row."
_APPLY_HELP = "Label that image with the same method, parameters, features and scale."
_HELP = "Write the ticked files. Before one is replaced, you are asked."
_STOP_HELP = (
    "Finish the file that is being written, and leave out the others; end a run with the labels "
    "that there are."
)
_NO_LABELS = "no labels: run Segment, or open a Labels layer"
_NOTHING = "nothing is ticked"
_NO_NAME = "the files need a name, without slashes"
_NO_FOLDER = "there is no such folder"
_REASONS = (_NO_LABELS, _NOTHING, _NO_NAME, _NO_FOLDER)
_NOT_OURS = "These labels come without prototypes: they were not computed here."


class ExportChoice(QWidget):
    """A tick and a format for each kind of file."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._ticks: dict[str, QCheckBox] = {}
        self._formats: dict[str, Choice] = {}
        self._rows, self._least = Choice(_ROWS), QSpinBox()
        self._rows.setToolTip(_ROWS_HELP)
        self._rows.currentIndexChanged.connect(self._on_changed)
        self._least.setRange(1, _LARGEST_LEAST)
        self._least.setSpecialValueText("regions of any size")
        self._least.setPrefix("regions of ")
        self._least.setSuffix(" pixels or more")
        self._least.setToolTip(_LEAST_HELP)
        self._least.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        below: dict[str, QWidget] = {"regions": self._rows, "numbered": self._least}
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(4)
        layout.setColumnStretch(0, 1)
        for name, (label, suffixes, tooltip) in _KINDS.items():
            row = layout.rowCount()
            tick = self._ticks[name] = QCheckBox(label)
            tick.setChecked(name in _TICKED)
            tick.setToolTip(tooltip)
            tick.toggled.connect(self._on_changed)
            layout.addWidget(tick, row, 0)
            if suffixes:
                box = self._formats[name] = Choice([(suffix, suffix) for suffix in suffixes])
                box.setToolTip(tooltip)
                box.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
                box.setFixedWidth(_FORMAT_WIDTH)
                layout.addWidget(box, row, 1)
            if name in below:
                indented = create_row(below[name])
                indented.layout().setContentsMargins(_INDENT, 0, 0, 0)
                layout.addWidget(indented, row + 1, 0, 1, 2)
        self._on_changed()

    @property
    def wanted(self) -> Wanted:
        """What is ticked and may be."""
        found: dict[str, Any] = {
            name: self._formats[name].value if name in self._formats else True
            for name, tick in self._ticks.items()
            if tick.isEnabled() and tick.isChecked()
        }
        least = self._least.value() if self._least.isEnabled() else 1
        return Wanted(**found, connected=self._rows.value, min_pixels=least)

    def offer(self, name: str, reason: str) -> None:
        """Enable a kind of file, or disable it with a reason as tooltip."""
        self._ticks[name].setEnabled(not reason)
        self._ticks[name].setToolTip(reason or _KINDS[name][2])
        self._on_changed()

    def choose(self, name: str, suffix: str | bool) -> None:
        """Tick a kind of file, in a format; an empty one takes the tick away."""
        self._ticks[name].setChecked(bool(suffix))
        if name in self._formats:
            self._formats[name].choose(suffix)

    def _on_changed(self, *changed: object) -> None:
        for name, box in self._formats.items():
            box.setEnabled(self._ticks[name].isEnabled() and self._ticks[name].isChecked())
        self._rows.setEnabled(self._formats["regions"].isEnabled())
        has_rows = self._rows.isEnabled() and self._rows.value
        self._least.setEnabled(has_rows or self._formats["numbered"].isEnabled())
        self.changed.emit()


class ExportWidget(RunDock):
    """Save labels for other programs, and repeat what made them."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._watched: Any = None
        self._raw: object = None
        self._repeated: Recipe | None = None
        self.choice, self.applying = ExportChoice(), ApplySection(viewer, _APPLY_HELP, self.apply)
        self.repeat = RepeatSection(self.applying, self.status)
        self.labels = LayerChoice(viewer, Labels)
        self.labels.choose(labels_to_choose(viewer))
        self.image = LayerChoice(viewer, Image, self._fits, none="none")
        self.file_name, self.folder = QLineEdit(), FolderField("Choose a folder.")
        self.folder.set_path(Path.home())
        self.button = QPushButton("Export")
        self._stop_button.setToolTip(_STOP_HELP)
        rows, where = FormSection(), FormSection()
        rows.add_row("Labels", self.labels, "The Labels layer to save.")
        rows.add_row("Image", self.image, "What was labelled: for brightness and the figure.")
        where.add_row("Name", self.file_name, "What the names of the files begin with.")
        where.add_row("Folder", self.folder, "Where the files go.")
        fold = create_fold(APPLY_TITLE, self.repeat)
        self._lay_out([rows, self.choice, where, fold], [self.button, self._stop_button], [])
        self._connect(
            (self.labels.layer_changed, self._on_labels_changed),
            (self.button.clicked, self.start),
            (self.applying.changed, self._update_enabled),
            (self.file_name.textChanged, self._update_enabled),
            (self.folder.changed, self._update_enabled),
            (self.choice.changed, self._update_enabled),
            (viewer.layers.events.inserted, self._on_layer_inserted),
        )
        self._on_labels_changed()

    def start(self) -> None:
        """Write what is ticked."""
        self._write(may_replace=False)

    def run_or_stop(self) -> bool:
        """Stop the task that is running; the shortcut writes no files."""
        return self.is_busy and super().run_or_stop()

    def apply(self, finite_only: bool = False) -> None:
        """Label another image, or files, by the recipe."""
        self._finite_only = finite_only
        recipe, self._repeated = self.repeat.recipe, self.repeat.recipe
        if recipe is not None and self._task is None:
            with self._showing_errors():
                self.applying.start(self, recipe, self.labels.layer, finite_only=finite_only)

    def _on_began(self) -> None:
        super()._on_began()
        self.drop_background("regions")

    def _on_returned(self, result: Segmentation) -> None:
        """Where the recipe has a level, merge the labels into regions and show these."""
        super()._on_returned(result)
        live, request, recipe = self.controller.live, self.controller.job, self._repeated
        if recipe is None or recipe.level is None or live is None or request is None:
            return
        level, labels, job = recipe.level, live.labels().copy(), request.image_job

        def merge(cancelled: Callable[[], bool]) -> RegionHierarchy:
            pixels, axis = job.read_image(cancelled)
            return merge_regions(labels, pixels, channel_axis=axis, cancelled=cancelled)

        def show(tree: RegionHierarchy) -> None:
            if not live.is_lost:
                regions = RegionsLayer(self._viewer, live)
                regions.show_level(tree, level)
                run_registry(self._viewer).show_result(live.image, regions.layer, job.pixels.index)
                self.labels.choose(regions.layer)  # to repeat it once more

        self.run_in_background("regions", merge, show)

    def _release(self) -> None:
        self._watch(None)
        self._raw = self.repeat.recipe = self._repeated = None

    def _fits(self, image: Image) -> bool:
        """Tell whether an image lies under the labels."""
        labels = self.labels.layer
        return labels is not None and image_region(labels, image) is not None

    def _on_layer_inserted(self, event: Any) -> None:
        """Turn to a new result; to regions a person turns."""
        layer = event.value
        is_computed = isinstance(layer, Labels) and METADATA_KEY in layer.metadata
        if is_computed and not is_regions(layer):
            self.labels.choose(layer)

    def _on_labels_changed(self, layer: object = None) -> None:
        labels = self.labels.layer
        self._watch(labels)
        self.image.refresh()
        if labels is not None:
            self.file_name.setText(file_stem(labels.name))
            self.image.choose(labelled_image(self._viewer, labels, self._fits))
            path = None if self.image.layer is None else self.image.layer.source.path
            if path is not None and self.folder.path == Path.home():
                self.folder.set_path(Path(path).absolute().parent)
        self._on_image_changed()
        self._show_recipe()

    def _watch(self, layer: Any) -> None:
        """Follow a layer: its metadata, which send no event, change with its data."""
        if self._watched is not None:
            self._watched.events.set_data.disconnect(self._on_data_changed)
        self._watched = layer
        if layer is not None:
            layer.events.set_data.connect(self._on_data_changed)

    def _on_data_changed(self, event: object = None) -> None:
        if stored_recipe(self.labels.layer) is not self._raw:
            self._show_recipe()

    def _show_recipe(self) -> None:
        """Offer what the labels carry: prototypes and a recipe, to save and to repeat."""
        labels, recipe, why_not = self.labels.layer, None, "no labels are chosen"
        self._raw = None if labels is None else stored_recipe(labels)
        if labels is not None:
            try:
                recipe, why_not = recipe_of(labels), ""
            except InvalidInput as error:
                why_not = str(error)
        stem = "labels" if labels is None else file_stem(labels.name)
        self.repeat.show_recipe(recipe, why_not, stem)
        self.choice.offer("recipe", f"No recipe: {why_not}." if why_not else "")
        has_prototypes = labels is not None and prototypes_of(labels) is not None
        self.choice.offer("prototypes", "" if has_prototypes else _NOT_OURS)
        self._update_enabled()

    def _update_enabled(self, *changed: object) -> None:
        super()._update_enabled()
        reason = self._reason()
        self.button.setEnabled(not reason and not self.is_busy)
        self.button.setToolTip(reason or _HELP)
        self.repeat.update_enabled(self._task is None)
        if reason and not self.is_busy:
            self.status.reset(reason)
        elif self.status.text in _REASONS:
            self.status.reset()

    def _reason(self) -> str:
        """Return why nothing can be exported; empty if something can."""
        name, folder = self.file_name.text(), self.folder.path
        if self.labels.layer is None:
            return _NO_LABELS
        if self.choice.wanted.is_empty:
            return _NOTHING
        if not name.strip() or name != Path(name).name:
            return _NO_NAME
        return _NO_FOLDER if folder is None or not folder.parent.is_dir() else ""

    def _write(self, *, may_replace: bool) -> None:
        folder = self.folder.path
        if self.is_busy or self._reason() or folder is None:
            return
        with self._showing_errors():
            read = labelling_reader(self._viewer, self.labels.layer, self.image.layer)
            path, wanted = folder / self.file_name.text().strip(), self.choice.wanted
            self.begin_task(
                "writing",
                lambda report, cancelled: write_files(read, path, wanted, may_replace, cancelled),
                self._on_written,
            )

    def _on_written(self, files: tuple[list[Path], list[Path]]) -> None:
        written, in_the_way = files
        if in_the_way:
            count = len(in_the_way)
            are, text = ("are", f"Replace these {count}") if count > 1 else ("is", "Replace it")
            self.status.show_error(f"{_named(in_the_way)} {are} there already", text)
            return
        assert self._task is not None
        text = f"saved {_named(written)}" if written else "nothing was saved"
        if self._task.is_cancelled:
            self.status.reset(f"stopped: {text}")
        else:
            self.status.show_progress(1.0, f"{text} in {self._task.seconds:.1f} s")

    def _on_task_abandoned(self) -> None:
        self.status.reset("stopped: nothing was saved")

    def _on_suggested_action_clicked(self) -> None:
        if self.status.suggested_action.startswith("Replace"):
            self._write(may_replace=True)
        else:
            super()._on_suggested_action_clicked()

    def _run_again(self, *, rescale: bool) -> None:
        if rescale:
            self.applying.brightness.choose(True)
        self.apply(self._finite_only)


def _named(paths: list[Path]) -> str:
    names = ", ".join(path.name for path in paths[:_MOST_NAMED])
    left_out = len(paths) - _MOST_NAMED
    return f"{names} and {left_out} more" if left_out > 0 else names
