"""Repeat the recipe of a result on another image, or keep it for a folder."""

from __future__ import annotations

from pathlib import Path

import napari
from napari.layers import Image
from qtpy.QtWidgets import QFileDialog, QFrame, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from napari_saf._gui.forms.choices import BRIGHTNESS, BRIGHTNESS_HELP, Choice, LayerChoice
from napari_saf._gui.forms.controls import StatusArea, json_path
from napari_saf._gui.forms.image_input import FEATURE_LABELS
from napari_saf._gui.forms.layout import FormSection, create_button, fill_layout
from napari_saf.errors import SafError
from napari_saf.io import Recipe, save_recipe
from napari_saf.methods import METHODS

_HELP = "Label this image with the same method, parameters, features and scale."
_FOLDER_TEXT = "For a folder of images, save the recipe and type in a terminal:"
_FOLDER_HELP = "What to type in a terminal to label a folder of images with the saved recipe."
_COMMAND_HEIGHT = 66
"""Four lines."""


class RepeatSection(QWidget):
    """What repeats a recipe: an image, its brightness and the button; or a file and a command."""

    def __init__(self, viewer: napari.Viewer, status: StatusArea) -> None:
        super().__init__()
        self.recipe: Recipe | None = None
        self._status, self._stem = status, ""
        self.image = LayerChoice(viewer, Image)
        self.brightness = Choice(BRIGHTNESS)
        self.button = create_button("Repeat")
        self._save = create_button(
            "Save recipe …",
            "Save the recipe as a file, for Python and the command line.",
            self._on_save_clicked,
        )
        self.summary, folder = QLabel(), QLabel(_FOLDER_TEXT)
        self.summary.setToolTip("The recipe that the chosen labels carry.")
        for text in (self.summary, folder):
            text.setWordWrap(True)
        # A label cannot break a long name and still be copied as it is.
        self._command = QPlainTextEdit()
        self._command.setReadOnly(True)
        self._command.setFrameShape(QFrame.Shape.NoFrame)
        self._command.setFixedHeight(_COMMAND_HEIGHT)
        self._command.setStyleSheet("font-family: monospace; font-size: 8pt;")
        self._command.setToolTip(_FOLDER_HELP)
        rows = FormSection()
        rows.add_row("On image", self.image, "The image to label in the same way.")
        rows.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        widgets = (self.summary, rows, self.button, folder, self._save, self._command)
        fill_layout(QVBoxLayout(self), *widgets)

    def show_recipe(self, recipe: Recipe | None, why_not: str, stem: str) -> None:
        """Offer to repeat a recipe, or say why nothing can be; files are called after `stem`."""
        self._stem = stem
        if recipe is None or recipe.options is None:
            self.recipe = None
            reason = why_not or "the run was on a graph, not on an image"
            self.summary.setText(f"Nothing to repeat: {reason}.")
        else:
            self.recipe, options = recipe, recipe.options
            window = options.window
            sides = " x ".join(map(str, window)) if isinstance(window, tuple) else str(window)
            scale = f", scale {sides}" if recipe.method.uses_window else ""
            features = FEATURE_LABELS.get(options.features, options.features)
            level = "" if recipe.level is None else f", regions at level {recipe.level:g}"
            self.summary.setText(f"{METHODS[recipe.method.name].title}, {features}{scale}{level}.")
            self.brightness.choose(options.rescale or options.scaling is None)
        self._command.setPlainText(
            f"napari-saf segment FOLDER --recipe {stem}.recipe.json -o OUT --jobs 4"
        )

    def update_enabled(self, is_free: bool) -> None:
        """Enable what can be done; a run may be repeated while no other work is under way."""
        has_recipe, has_image = self.recipe is not None, self.image.layer is not None
        self.button.setEnabled(has_recipe and has_image and is_free)
        text = _HELP if has_image else "Open an image first."
        self.button.setToolTip(text if has_recipe else self.summary.text())
        self._save.setEnabled(has_recipe)
        self._command.setEnabled(has_recipe)

    def save_to(self, path: str) -> None:
        """Save the recipe; the suffix is added where it is missing."""
        if self.recipe is None:
            return
        target = json_path(path, ".recipe.json")
        try:
            save_recipe(target, self.recipe.with_rescale(self.brightness.value).raw)
        except SafError as error:
            self._status.show_error(str(error))
        else:
            self._status.reset(f"saved {target.name}")

    def _on_save_clicked(self) -> None:
        name = str(Path.cwd() / f"{self._stem}.recipe.json")
        path, _ = QFileDialog.getSaveFileName(self, "Save recipe", name, "Recipe (*.json)")
        if path:
            self.save_to(path)
