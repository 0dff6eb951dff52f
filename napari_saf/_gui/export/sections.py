"""Sections of the Export dock: files, probability maps, application of the recipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from napari.utils.colormaps import Colormap
from numpy.typing import NDArray
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QFrame,
    QGridLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QSizePolicy,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.docks.apply import BUSY, ApplyDialog, why_not_repeated
from napari_saf._gui.docks.tables import LabelList
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.controls import ask_for_path, json_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.fields import FolderField
from napari_saf._gui.forms.image_input import FEATURE_LABELS
from napari_saf._gui.forms.layout import FormSection, create_button, create_row, enable, fill_layout
from napari_saf._gui.layers import metadata, placement
from napari_saf._gui.runs.panel import RunPanel
from napari_saf.io import ExportSelection, file_stem, save_recipe
from napari_saf.methods import METHODS
from napari_saf.parameters import describe
from napari_saf.pipeline import Pipeline

_OPEN_FILTER = "Masks (*.tif *.tiff *.png *.npy *.nii *.nii.gz zarr.json)"
_FORMAT_WIDTH = 124
_INDENT = 23
_LARGEST_LEAST = 10_000_000
_SETTINGS = ("connected", "min_pixels", "in_bytes")
_PARAMETERS = {item.name: item for item in describe(ExportSelection)}
_KINDS = {name: item for name, item in _PARAMETERS.items() if name not in _SETTINGS}
"""The kinds of files by their field of `ExportSelection`."""
_TICKED = ("masks", "regions")
_ROWS = (("a row for each label", False), ("a row for each region", True))
_NO_MAPS = "no probabilities: only labels computed in this session, and not edited since, have them"
_SHOW_HELP = "Show the probability of each ticked label as an image, black to the label's colour."
_FOLDER_TEXT = "The same in a terminal, with the saved recipe:"
_FOLDER_HELP = "Command that labels a folder of images with the saved recipe."
_SAVE_HELP = "Save the recipe as a file, for Python and the command line."
_TAUGHT = (
    "Images without strokes, including the one they were painted on, are labelled by the "
    "prototypes learned from the strokes."
)
_COMMAND_HEIGHT = 66
"""Height in pixels, for four lines."""
_COMMAND_STYLE = "font-family: monospace; font-size: 8pt;"


class ExportTarget(FormSection):
    """The folder of the files, and the prefix of their names."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.file_name, self.folder = QLineEdit(), FolderField("Choose a folder.")
        self.folder.set_path(Path.home())
        self.add_row("Name", self.file_name, "Prefix of the file names.")
        self.add_row("Folder", self.folder, "Folder to write to.")
        self.file_name.textChanged.connect(self.changed)
        self.folder.changed.connect(self.changed)

    @property
    def path(self) -> Path:
        """The folder and the prefix of the names."""
        return Path(self.folder.path or Path.home(), self.file_name.text().strip())

    @property
    def why_not(self) -> str:
        """The reason why no file can have this name; empty if one can."""
        name, folder = self.file_name.text(), self.folder.path
        if not name.strip() or name != Path(name).name:
            return "the files need a name, without slashes"
        has_folder = folder is not None and os.path.isdir(folder.parent)
        return "" if has_folder else "the folder does not exist"

    def ask_for_mask(self, then: Callable[[str], object], *clicked: object) -> None:
        """Ask for a mask to open, first in the folder; call `then` with its path."""
        folder = self.folder.path or Path.home()
        start = str(folder if os.path.isdir(folder) else folder.parent)
        ask_for_path(self, "Open mask", start, _OPEN_FILTER, then, opens=True)

    def suggest(self, labels: Labels, image: Image | None) -> None:
        """Name the files after the labels, in the folder of the image unless one was chosen."""
        self.file_name.setText(file_stem(labels.name))
        path = None if image is None else image.source.path
        if path is not None and self.folder.path == Path.home():
            self.folder.set_path(Path(path).absolute().parent)


class ExportChoice(QWidget):
    """A check box and a format for each kind of file."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.ticks: dict[str, QCheckBox] = {}
        self._put_off: set[str] = set()  # ticked, but not available at present
        self._formats: dict[str, Choice] = {}
        self.rows, self._least = Choice(_ROWS), QSpinBox()
        self.rows.setToolTip(_PARAMETERS["connected"].help)
        self.rows.currentIndexChanged.connect(self._on_changed)
        self._least.setRange(1, _LARGEST_LEAST)
        self._least.setSpecialValueText("regions of any size")
        self._least.setPrefix("regions of ")
        self._least.setSuffix(" pixels or more")
        self._least.setToolTip(_PARAMETERS["min_pixels"].help)
        self._least.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        below: dict[str, QWidget] = {"regions": self.rows, "numbered": self._least}
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(4)
        layout.setColumnStretch(0, 1)
        for name, item in _KINDS.items():
            row, tooltip = layout.rowCount(), item.help
            tick = self.ticks[name] = QCheckBox(item.label)
            tick.setChecked(name in _TICKED)
            tick.setToolTip(tooltip)
            tick.toggled.connect(self._on_changed)
            layout.addWidget(tick, row, 0)
            if item.choices:
                box = self._formats[name] = Choice([(s, s) for s in item.choices if s != ".tiff"])
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
    def selection(self) -> ExportSelection:
        chosen: dict[str, Any] = {
            name: self._formats[name].value if name in self._formats else True
            for name, tick in self.ticks.items()
            if tick.isEnabled() and tick.isChecked()
        }
        if "outlines" in chosen:
            chosen["outlines"] = (chosen["outlines"],)
        least = self._least.value() if self._least.isEnabled() else 1
        return ExportSelection(**chosen, connected=self.rows.value, min_pixels=least)

    def offer(self, name: str, reason: str) -> None:
        """Enable a kind of file and restore its tick, or disable it with the reason as tooltip."""
        tick = self.ticks[name]
        if reason and tick.isChecked():
            self._put_off.add(name)
            tick.setChecked(False)
        elif not reason and name in self._put_off:
            self._put_off.remove(name)
            tick.setChecked(True)
        tick.setEnabled(not reason)
        tick.setToolTip(reason or _KINDS[name].help)
        self._on_changed()

    def choose(self, name: str, suffix: str | bool) -> None:
        """Tick a kind of file in a format; an empty suffix unticks it."""
        self.ticks[name].setChecked(bool(suffix))
        if name in self._formats:
            self._formats[name].choose(suffix)

    def _on_changed(self, *changed: object) -> None:
        for name, box in self._formats.items():
            box.setEnabled(self.ticks[name].isEnabled() and self.ticks[name].isChecked())
        is_numbered = self._formats["numbered"].isEnabled()
        if is_numbered:
            with signals_blocked(self.rows):
                self.rows.choose(True)  # one row per number
        self.rows.setEnabled(self._formats["regions"].isEnabled() and not is_numbered)
        has_rows = self.rows.isEnabled() and self.rows.value
        self._least.setEnabled(has_rows or is_numbered or self._formats["outlines"].isEnabled())
        self.changed.emit()


class ProbabilitySection(FormSection):
    """The labels whose probability maps are saved, and a button that shows the maps."""

    def __init__(self, panel: RunPanel, viewer: napari.Viewer) -> None:
        super().__init__()
        self._panel, self._viewer, self._layer = panel, viewer, None
        self.labels, self.in_bytes = LabelList(), QCheckBox("bytes")
        self.button = create_button("Show as image layer", _SHOW_HELP, self.show_layers)
        self.add_row("Labels", self.labels, "Labels whose maps are shown and saved.")
        self.add_row("In files", self.in_bytes, _PARAMETERS["in_bytes"].help)
        self.layout().addWidget(self.button)

    @property
    def why_not(self) -> str:
        """Reason why there are no maps; empty if there are."""
        return _NO_MAPS if metadata.soft_labels_of(self._layer) is None else ""

    def choose(self, layer: Labels | None) -> None:
        """List the labels of a layer, if it has soft labels."""
        soft, self._layer = metadata.soft_labels_of(layer), layer
        if layer is not None:
            self.labels.show_labels(layer, np.array([] if soft is None else soft.labels, int))
        enable(self.button, self.why_not, _SHOW_HELP)

    def reader(self) -> Callable[[], Mapping[int, NDArray[np.floating]]]:
        """Return a function that computes the maps of the ticked labels, for a worker thread."""
        soft, ticked = metadata.soft_labels_of(self._layer), self.labels.ticked
        if soft is None or not ticked:
            return dict
        return lambda: dict(zip(ticked, soft.images(ticked), strict=True))

    def show_layers(self) -> None:
        layer, read = self._layer, self.reader()

        def show(maps: Mapping[int, NDArray[np.floating]]) -> None:
            for k, (label, values) in enumerate(maps.items()):
                self._show_map(layer, label, values, blending="additive" if k else "opaque")

        if layer in self._viewer.layers:
            self._panel.background.run("maps", lambda cancelled: read(), show)

    def _show_map(
        self, labels: Labels, label: int, values: NDArray[np.floating], blending: str
    ) -> None:
        """Show the map of a label, black to its colour, replacing one of the same name.

        The first map is opaque, the others are blended additively, so that colours mix.
        """
        name = metadata.class_names(labels).get(label, f"label {label}")
        title, pixels = f"{labels.name} P({name})", values.reshape(labels.data.shape)
        for layer in self._viewer.layers:
            if layer.name == title and layer.data.shape == pixels.shape:
                layer.data, layer.visible, layer.blending = pixels, True, blending
                return
        color = metadata.colors_of(labels, np.array([label]))[0, :3].tolist()
        entry = {"image": metadata.image_id_of(labels), metadata.MAP_KEY: True}
        self._viewer.add_image(
            pixels,
            name=title,
            colormap=Colormap([(0, 0, 0, 1), (*color, 1)], name=f"black to {name}"),
            contrast_limits=(0, 1),
            blending=blending,
            metadata={metadata.METADATA_KEY: entry},
            **placement.placement_of(labels).transform,
        )


class RepeatSection(QWidget):
    """Ways to apply a recipe: to an image here, from a file, or in the terminal."""

    def __init__(self, applying: ApplyDialog, panel: RunPanel, folder: Callable[[], Path]) -> None:
        super().__init__()
        self._folder = folder
        self.recipe: Pipeline | None = None
        self._panel, self._applying, self._stem, self._why_not = panel, applying, "", ""
        self._save = create_button("Save recipe …", _SAVE_HELP, self._ask_to_save)
        help = "The recipe that the chosen labels carry."
        self.summary, about_folder = QLabel(wordWrap=True, toolTip=help), QLabel(_FOLDER_TEXT)
        about_folder.setWordWrap(True)
        # A QLabel cannot both break long names and be copied unchanged.
        look = {"frameShape": QFrame.Shape.NoFrame, "styleSheet": _COMMAND_STYLE}
        self._command = QPlainTextEdit(readOnly=True, toolTip=_FOLDER_HELP, **look)
        self._command.setFixedHeight(_COMMAND_HEIGHT)
        widgets = (self.summary, applying.row, self._save, about_folder, self._command)
        fill_layout(QVBoxLayout(self), *widgets)

    def show_recipe(self, recipe: Pipeline | None, why_not: str, stem: str) -> None:
        """Offer to apply a recipe, or show the reason why not; `stem` starts the file names."""
        self._stem = stem
        self._why_not = "" if recipe is None else why_not_repeated(recipe)
        self.recipe = None if recipe is None or recipe.options is None else recipe
        if self.recipe is None:
            self._why_not = self._why_not or why_not
            self.summary.setText(f"Nothing to repeat: {self._why_not}.")
        else:
            self.summary.setText(_describe(self.recipe, self._why_not))
            self._applying.take_brightness(self.recipe.options)
        self._command.setPlainText(f"napari-saf run {stem}.recipe.json FOLDER -o OUT --jobs 4")

    def update_enabled(self, is_free: bool) -> None:
        """Enable the buttons; a recipe is applied only while no other task runs."""
        reason = self._why_not if self.recipe else self.summary.text().removesuffix(".")
        self._applying.update_enabled(reason or ("" if is_free else BUSY))
        for widget in (self._save, self._command):
            widget.setEnabled(self.recipe is not None)

    def save_to(self, path: str) -> None:
        if self.recipe is not None:
            target = json_path(path, ".recipe.json")
            with self._panel.showing_errors():
                save_recipe(target, self.recipe.with_rescale(self._applying.brightness.value).plain)
                self._panel.note(f"saved {named(target)}")

    def _ask_to_save(self) -> None:
        name = str(self._folder() / f"{self._stem}.recipe.json")
        ask_for_path(self, "Save recipe", name, "Recipe (*.json)", self.save_to)


def _describe(recipe: Pipeline, why_not: str) -> str:
    """Return a summary of a recipe, and the reason if it cannot be applied here."""
    options = recipe.options
    assert options is not None
    window = options.window
    sides = " x ".join(map(str, window)) if isinstance(window, tuple) else str(window)
    scale = f", scale {sides}" if recipe.method.uses_window else ""
    features = FEATURE_LABELS.get(options.features_name, options.features_name)
    level = "" if recipe.level is None else f", regions at level {recipe.level:g}"
    text = f"{METHODS[recipe.method.name].title}, {features}{scale}{level}."
    if recipe.prototypes is not None:
        return f"{text} {_TAUGHT}"
    return f"{text} Here {why_not}." if why_not else text
