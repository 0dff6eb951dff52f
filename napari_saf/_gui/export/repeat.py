"""Repeat the recipe of a result on another image, or keep it for a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtCore import QTimer, Signal
from qtpy.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.docks.run_dock import (
    RESCALE,
    STATUS_WORDS,
    count_labels,
    describe_error,
    rescale_action,
    suggested_action_for,
)
from napari_saf._gui.forms.controls import BRIGHTNESS_HELP, BrightnessChoice
from napari_saf._gui.forms.image_input import FEATURE_WORDS
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.status import StatusArea
from napari_saf._gui.layers.alignment import labelled_axes
from napari_saf._gui.layers.metadata import raw_recipe, recipe_of
from napari_saf._gui.runs.controller import RunController, connect_run
from napari_saf._gui.runs.jobs import repeat_job
from napari_saf._gui.runs.run import Frame
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import Recipe, file_stem, save_recipe
from napari_saf.methods import METHODS
from napari_saf.result import Segmentation

__all__ = ["RepeatSection"]

_HELP = "Label this image with the same method, parameters, features and scale."
_FOLDER_WORDS = "For a folder of images, save the recipe and type in a terminal:"
_COMMAND_HEIGHT = 66
"""Four lines."""
_FOLDER_HELP = "What to type in a terminal to label a folder of images with the saved recipe."


class RepeatSection(QWidget):
    """Rows that repeat the recipe of a Labels layer.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    controller : RunController
        Of the runs that are started here.
    status : StatusArea
    brightness : BrightnessChoice
    """

    changed = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._layer: Any = None
        self._shown: tuple[Any, int] | None = None
        self._recipe: Recipe | None = None
        self.controller, self.status = RunController(viewer), StatusArea(is_quiet=True)
        self._frame: Frame | None = None
        self._image = LayerChoice(viewer, lambda layer: isinstance(layer, Image))
        self.brightness, self._finite_only = BrightnessChoice(), False
        self._run, self._stop = QPushButton("Repeat"), QPushButton("Stop")
        self._save = QPushButton("Save recipe …")
        self._what, self._command = QLabel(), QPlainTextEdit()
        self._clock = QTimer(self)
        self._clock.setInterval(500)
        self._create_layout()
        self._connect()

    @property
    def words(self) -> str:
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
            self._what.setText(_in_words(recipe))
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

    def start(self) -> None:
        """Label the chosen image by the recipe."""
        self._finite_only = False
        self._start()

    def _start(self) -> None:
        image, labels = self._image.layer, self._layer
        if self._recipe is None or labels is None:
            return
        try:
            n_axes = len(labelled_axes(labels))
            rescale = self.brightness.rescale
            request = repeat_job(self._viewer, self._recipe, image, n_axes, labels, rescale)
        except SafError as error:
            self.status.show_error(str(error))
            return
        self.controller.start(request.masked() if self._finite_only else request)

    def save_to(self, path: str) -> None:
        """Save the recipe; the suffix is added where it is missing."""
        if self._recipe is None:
            return
        target = Path(path)
        if target.suffix.lower() != ".json":
            target = target.with_name(f"{target.name}.recipe.json")
        try:
            save_recipe(target, self._recipe.with_rescale(self.brightness.rescale).raw)
        except SafError as error:
            self.status.show_error(str(error))
        else:
            self.status.reset(f"saved {target.name}")

    def release(self) -> None:
        """End the run and let go of the viewer."""
        self._clock.stop()
        self.controller.shut_down()
        self._image.disconnect_viewer()
        self._layer = self._shown = self._recipe = None

    def _create_layout(self) -> None:
        self._what.setWordWrap(True)
        # A label cannot break a long name and still be copied as it is.
        self._command.setReadOnly(True)
        self._command.setFrameShape(QFrame.Shape.NoFrame)
        self._command.setFixedHeight(_COMMAND_HEIGHT)
        self._command.setStyleSheet("font-family: monospace; font-size: 8pt;")
        self._command.setToolTip(_FOLDER_HELP)
        self._what.setToolTip("The recipe that the chosen labels carry.")
        self._stop.setToolTip("End the run with the labels that there are.")
        self._save.setToolTip("Save the recipe as a file, for Python and the command line.")
        rows, buttons, folder = FormSection(), QHBoxLayout(), QLabel(_FOLDER_WORDS)
        folder.setWordWrap(True)
        rows.add_row("On image", self._image, "The image to label in the same way.")
        rows.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        for button in (self._run, self._stop):
            buttons.addWidget(button, stretch=1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._what)
        layout.addWidget(rows)
        layout.addLayout(buttons)
        for widget in (self.status, folder, self._save, self._command):
            layout.addWidget(widget)

    def _connect(self) -> None:
        self._run.clicked.connect(self.start)
        self._stop.clicked.connect(self._on_stop_clicked)
        self._save.clicked.connect(self._on_save_clicked)
        self._image.layer_changed.connect(self._update_enabled)
        self.status.suggested_action_clicked.connect(self._on_suggested_action_clicked)
        connect_run(self.controller, self._clock, self)

    def _on_save_clicked(self) -> None:
        name = f"{file_stem(self._layer.name)}.recipe.json"
        path, _ = QFileDialog.getSaveFileName(
            self, "Save recipe", str(Path.cwd() / name), "Recipe (*.json)"
        )
        if path:
            self.save_to(path)

    def _on_suggested_action_clicked(self) -> None:
        """Repeat again, without the pixels or the scaling that were in the way."""
        if self.status.suggested_action == RESCALE:
            self.brightness.choose(True)
        else:
            self._finite_only = True
        self._start()

    def _on_stop_clicked(self) -> None:
        self.controller.stop()
        self.status.set_text("stopping …")

    def _on_began(self) -> None:
        self._frame = None
        self._clock.start()
        self.status.reset("reading the image …")
        self._update_enabled()

    def _on_advanced(self, frame: Frame) -> None:
        self._frame = frame
        if not self.controller.is_stopping:
            self._on_clock()

    def _on_clock(self) -> None:
        seconds = f"{self.controller.seconds:.1f} s"
        if self.controller.is_stopping:
            self.status.set_text(f"stopping …  {seconds}")
        elif self._frame is None:
            self.status.set_text(f"preparing …  {seconds}")
        else:
            percent = f"{100 * self._frame.fraction:.0f} %"
            self.status.show_progress(self._frame.fraction, f"{percent}   {seconds}")

    def _on_returned(self, result: Segmentation) -> None:
        words = f"{STATUS_WORDS[result.status]}: {count_labels(result.n_labels)}"
        words = f"{words} in {self.controller.seconds:.1f} s"
        self.status.show_progress(
            1.0, self.controller.outcome_text(words, result), rescale_action(self.controller)
        )

    def _on_failed(self, error: Exception) -> None:
        self.status.show_error(describe_error(error), suggested_action_for(error))

    def _on_abandoned(self) -> None:
        self.status.reset("stopped before the first labels")

    def _on_finished(self) -> None:
        self._clock.stop()
        self._update_enabled()
        self.changed.emit()

    def _update_enabled(self, layer: object = None) -> None:
        has_recipe, has_image = self._recipe is not None, self._image.layer is not None
        self._run.setEnabled(has_recipe and has_image)
        self._run.setToolTip(_HELP if has_image else "Open an image first.")
        if not has_recipe:
            self._run.setToolTip(self.words)
        self._save.setEnabled(has_recipe)
        self._command.setEnabled(has_recipe)
        self._stop.setEnabled(self.controller.is_running)


def _in_words(recipe: Recipe) -> str:
    assert recipe.options is not None
    window = recipe.options.window
    sides = " x ".join(map(str, window)) if isinstance(window, tuple) else str(window)
    scale = f", scale {sides}" if recipe.method.uses_window else ""
    features = FEATURE_WORDS.get(recipe.options.features, recipe.options.features)
    return f"{METHODS[recipe.method.name].title}, {features}{scale}."
