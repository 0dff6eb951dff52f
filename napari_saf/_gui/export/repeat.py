"""The recipe of a result: applied to other images, or kept for Python and the command line."""

from __future__ import annotations

from pathlib import Path

from qtpy.QtWidgets import QFileDialog, QFrame, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from napari_saf._gui.docks.apply import BUSY, ApplySection
from napari_saf._gui.forms.controls import StatusArea, json_path
from napari_saf._gui.forms.image_input import FEATURE_LABELS
from napari_saf._gui.forms.layout import create_button, fill_layout
from napari_saf.errors import SafError
from napari_saf.io import Recipe, save_recipe
from napari_saf.methods import METHODS

_FOLDER_TEXT = "The same in a terminal, with the saved recipe:"
_FOLDER_HELP = "What to type in a terminal to label a folder of images with the saved recipe."
_TAUGHT = (
    "Images without strokes are labelled by what the strokes taught, also the one that they were "
    "painted on."
)
_NEEDS_STROKES = "the strokes taught nothing that holds for other images"
_COMMAND_HEIGHT = 66
"""Four lines."""


class RepeatSection(QWidget):
    """What repeats a recipe: where it is applied; or a file and a command."""

    def __init__(self, applying: ApplySection, status: StatusArea) -> None:
        super().__init__()
        self.recipe: Recipe | None = None
        self._status, self._stem, self._why_not = status, "", ""
        self._applying = applying
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
        widgets = (self.summary, applying, folder, self._save, self._command)
        fill_layout(QVBoxLayout(self), *widgets)

    def show_recipe(self, recipe: Recipe | None, why_not: str, stem: str) -> None:
        """Offer to repeat a recipe, or say why nothing can be; files are called after `stem`."""
        self._stem, self._why_not = stem, ""
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
            text = f"{METHODS[recipe.method.name].title}, {features}{scale}{level}."
            if recipe.taught is not None:
                text = f"{text} {_TAUGHT}"
            elif recipe.method.follows_seeds:
                self._why_not = _NEEDS_STROKES
                text = f"{text} Here {_NEEDS_STROKES}."
            self.summary.setText(text)
            self._applying.brightness.choose(options.rescale or options.scaling is None)
        self._command.setPlainText(
            f"napari-saf segment FOLDER --recipe {stem}.recipe.json -o OUT --jobs 4"
        )

    def update_enabled(self, is_free: bool) -> None:
        """Enable what can be done; a recipe is applied while no other work is under way."""
        has_recipe = self.recipe is not None
        why_not = self._why_not if has_recipe else self.summary.text().removesuffix(".")
        self._applying.update_enabled(why_not or ("" if is_free else BUSY))
        self._save.setEnabled(has_recipe)
        self._command.setEnabled(has_recipe)

    def save_to(self, path: str) -> None:
        """Save the recipe; the suffix is added where it is missing."""
        if self.recipe is None:
            return
        target = json_path(path, ".recipe.json")
        try:
            save_recipe(target, self.recipe.with_rescale(self._applying.brightness.value).raw)
        except SafError as error:
            self._status.show_error(str(error))
        else:
            self._status.reset(f"saved {target.name}")

    def _on_save_clicked(self) -> None:
        name = str(Path.cwd() / f"{self._stem}.recipe.json")
        path, _ = QFileDialog.getSaveFileName(self, "Save recipe", name, "Recipe (*.json)")
        if path:
            self.save_to(path)
