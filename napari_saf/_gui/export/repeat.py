"""Repeat the recipe of a result on another image, or keep it for a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtWidgets import (
    QFileDialog,
    QFrame,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.forms.choices import BRIGHTNESS, BRIGHTNESS_HELP, Choice, LayerChoice
from napari_saf._gui.forms.controls import StatusArea
from napari_saf._gui.forms.image_input import FEATURE_LABELS
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.layers.metadata import raw_recipe, recipe_of
from napari_saf._gui.layers.placement import labelled_axes
from napari_saf._gui.runs.controller import RunJob
from napari_saf._gui.runs.jobs import repeat_job
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import Recipe, file_stem, save_recipe
from napari_saf.methods import METHODS

_HELP = "Label this image with the same method, parameters, features and scale."
_FOLDER_TEXT = "For a folder of images, save the recipe and type in a terminal:"
_FOLDER_HELP = "What to type in a terminal to label a folder of images with the saved recipe."
_COMMAND_HEIGHT = 66
"""Four lines."""


class RepeatSection(QWidget):
    """Rows that offer to repeat the recipe of a Labels layer.

    Parameters
    ----------
    status : StatusArea
        Says how saving went.

    Attributes
    ----------
    button : QPushButton
        To repeat; the dock does it.
    """

    def __init__(self, viewer: napari.Viewer, status: StatusArea) -> None:
        super().__init__()
        self._viewer, self._status = viewer, status
        self._layer: Any = None
        self._shown: tuple[Any, int] | None = None
        self._recipe: Recipe | None = None
        self._is_enabled = True
        self._image = LayerChoice(viewer, lambda layer: isinstance(layer, Image))
        self.brightness = Choice(BRIGHTNESS)
        self.button, self._save = QPushButton("Repeat"), QPushButton("Save recipe …")
        self._what, self._command = QLabel(), QPlainTextEdit()
        self._create_layout()
        self._save.clicked.connect(self._on_save_clicked)
        self._image.layer_changed.connect(self._update_enabled)

    @property
    def summary(self) -> str:
        """What would be repeated, or why nothing can be."""
        return str(self._what.text())

    def show_layer(self, layer: Labels | None) -> bool:
        """Offer to repeat what made a layer; return whether that is news."""
        raw = None if layer is None else raw_recipe(layer)
        if self._shown is not None and self._shown == (layer, id(raw)):
            return False
        self._shown = (layer, id(raw))
        self._layer, self._recipe = layer, None
        try:
            if layer is None:
                raise InvalidInput("no labels are chosen")
            recipe = recipe_of(layer)
            if recipe.options is None:
                raise InvalidInput("the run was on a graph, not on an image")
            self._recipe = recipe
            options = recipe.options
            self.brightness.choose(options.rescale or options.scaling is None)
            self._what.setText(_summary(recipe))
        except InvalidInput as error:
            self._what.setText(f"Nothing to repeat: {error}.")
        name = "labels" if layer is None else file_stem(layer.name)
        self._command.setPlainText(
            f"napari-saf segment FOLDER --recipe {name}.recipe.json -o OUT --jobs 4"
        )
        self._update_enabled()
        return True

    def choose_image(self, layer: Image) -> None:
        """Choose the image to label."""
        self._image.choose(layer)

    def job(self) -> RunJob:
        """Return the run that labels the chosen image by the recipe.

        Raises
        ------
        InvalidInput
            If there is no recipe or image, or the image has too few axes.
        """
        if self._recipe is None:
            raise InvalidInput(self.summary)
        n_axes, rescale = len(labelled_axes(self._layer)), self.brightness.value
        return repeat_job(
            self._viewer, self._recipe, self._image.layer, n_axes, self._layer, rescale
        )

    def save_to(self, path: str) -> None:
        """Save the recipe; the suffix is added where it is missing."""
        if self._recipe is None:
            return
        target = Path(path)
        if target.suffix.lower() != ".json":
            target = target.with_name(f"{target.name}.recipe.json")
        try:
            save_recipe(target, self._recipe.with_rescale(self.brightness.value).raw)
        except SafError as error:
            self._status.show_error(str(error))
        else:
            self._status.reset(f"saved {target.name}")

    def set_enabled(self, enabled: bool) -> None:
        """Allow to repeat, or do not."""
        self._is_enabled = enabled
        self._update_enabled()

    def release(self) -> None:
        """Let go of the viewer."""
        self._image.disconnect_viewer()
        self._layer = self._shown = self._recipe = None

    def _create_layout(self) -> None:
        self._what.setWordWrap(True)
        self._what.setToolTip("The recipe that the chosen labels carry.")
        # A label cannot break a long name and still be copied as it is.
        self._command.setReadOnly(True)
        self._command.setFrameShape(QFrame.Shape.NoFrame)
        self._command.setFixedHeight(_COMMAND_HEIGHT)
        self._command.setStyleSheet("font-family: monospace; font-size: 8pt;")
        self._command.setToolTip(_FOLDER_HELP)
        self._save.setToolTip("Save the recipe as a file, for Python and the command line.")
        rows, folder = FormSection(), QLabel(_FOLDER_TEXT)
        folder.setWordWrap(True)
        rows.add_row("On image", self._image, "The image to label in the same way.")
        rows.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        for widget in (self._what, rows, self.button, folder, self._save, self._command):
            layout.addWidget(widget)

    def _on_save_clicked(self) -> None:
        name = f"{file_stem(self._layer.name)}.recipe.json"
        path, _ = QFileDialog.getSaveFileName(
            self, "Save recipe", str(Path.cwd() / name), "Recipe (*.json)"
        )
        if path:
            self.save_to(path)

    def _update_enabled(self, layer: object = None) -> None:
        has_recipe, has_image = self._recipe is not None, self._image.layer is not None
        self.button.setEnabled(has_recipe and has_image and self._is_enabled)
        text = _HELP if has_image else "Open an image first."
        self.button.setToolTip(text if has_recipe else self.summary)
        self._save.setEnabled(has_recipe)
        self._command.setEnabled(has_recipe)


def _summary(recipe: Recipe) -> str:
    assert recipe.options is not None
    window = recipe.options.window
    sides = " x ".join(map(str, window)) if isinstance(window, tuple) else str(window)
    scale = f", scale {sides}" if recipe.method.uses_window else ""
    features = FEATURE_LABELS.get(recipe.options.features, recipe.options.features)
    return f"{METHODS[recipe.method.name].title}, {features}{scale}."
