"""Prototypes used on other images, saved and loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QFileDialog, QHBoxLayout, QPushButton, QWidget

from napari_saf._gui.forms.controls import (
    BRIGHTNESS_HELP,
    PROTOTYPE_FILTER,
    BrightnessChoice,
    json_path,
)
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.layers.alignment import labelled_axes
from napari_saf._gui.layers.live import N_COLORS, LiveLayer, label_colors
from napari_saf._gui.prototypes.sheet import FileBook, LayerBook
from napari_saf._gui.runs.controller import RunJob
from napari_saf._gui.runs.jobs import prototypes_job
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES
from napari_saf.io import PrototypeSet, file_stem, load_prototypes, save_prototypes

__all__ = ["ElsewhereSection", "load_book", "prototype_set", "use_request"]

_USE_HELP = "Label that image with these prototypes, in the same features (f*)."


class ElsewhereSection(FormSection):
    """An image to use prototypes on, and buttons to save and load them.

    Parameters
    ----------
    viewer : napari.Viewer

    Attributes
    ----------
    brightness : BrightnessChoice
    """

    use_clicked = Signal()
    save_asked = Signal(str)
    load_asked = Signal(str)

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._image = LayerChoice(viewer, lambda layer: isinstance(layer, Image))
        self._use, self._save = QPushButton("Label it"), QPushButton("Save …")
        self._load = QPushButton("Load …")
        self._load.setToolTip("Open prototypes from a file, to use them on an image.")
        self._stem = "labels"
        self.brightness = BrightnessChoice()
        self.add_row("Use on", self._image, "The image to label with these prototypes.")
        self.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        for button in (self._use, self._save, self._load):
            layout.addWidget(button, stretch=1)
        self.layout().addWidget(row)
        self._use.clicked.connect(self.use_clicked)
        self._save.clicked.connect(self._on_save_clicked)
        self._load.clicked.connect(self._on_load_clicked)

    @property
    def image(self) -> Any:
        """The image to use prototypes on, or None."""
        return self._image.layer

    def choose_image(self, layer: Image) -> None:
        """Choose the image to use prototypes on."""
        self._image.choose(layer)

    def update_enabled(self, why_not_use: str, why_not_save: str, stem: str) -> None:
        """Say what can be done; reasons are empty where it can."""
        self._stem = stem
        if not why_not_use and self.image is None:
            why_not_use = "open an image first"
        self._use.setEnabled(not why_not_use)
        self._use.setToolTip(_sentence(why_not_use) or _USE_HELP)
        self._save.setEnabled(not why_not_save)
        self._save.setToolTip(
            _sentence(why_not_save)
            or "Keep prototypes, names, colours, features and scaling in a small file."
        )

    def release(self) -> None:
        """Let go of the viewer."""
        self._image.disconnect_viewer()

    def _on_save_clicked(self) -> None:
        name = f"{file_stem(self._stem)}.prototypes.json"
        path, _ = QFileDialog.getSaveFileName(
            self, "Save prototypes", str(Path.cwd() / name), PROTOTYPE_FILTER
        )
        if path:
            self.save_asked.emit(path)

    def _on_load_clicked(self) -> None:
        path, _ = QFileDialog.getOpenFileName(
            self, "Load prototypes", str(Path.cwd()), PROTOTYPE_FILTER
        )
        if path:
            self.load_asked.emit(path)


def prototype_set(book: LayerBook | FileBook, rescale: bool | None = None) -> PrototypeSet:
    """Return the prototypes of a layer or a file, as a file keeps them.

    Other images are scaled as `rescale` says; None: as was said before.

    Raises
    ------
    InvalidInput
        If there are none.
    """
    sheet, options = book.sheet, book.options
    numbers = np.array(sorted(sheet.points), dtype=np.int64)
    if not len(numbers):
        raise InvalidInput("these labels come without prototypes")
    colors = dict(zip(numbers.tolist(), book.colors(numbers)[:, :3].tolist(), strict=True))
    is_computed = options is not None and options.features in FEATURES
    known = options if is_computed else None
    if known is not None and rescale is not None:
        known = dataclasses.replace(known, rescale=rescale)
    return PrototypeSet.from_points(sheet.points, names=sheet.names, colors=colors, options=known)


def save_book(path: str, book: LayerBook | FileBook, rescale: bool) -> Path:
    """Save prototypes; see `save_prototypes` for errors."""
    return save_prototypes(json_path(path), prototype_set(book, rescale))


def load_book(path: str | Path) -> FileBook:
    """Load prototypes.

    Raises
    ------
    FormatError
        As `load_prototypes`.
    """
    return FileBook(f"{Path(path).name} (file)", load_prototypes(path), label_colors())


def use_request(
    viewer: napari.viewer.Viewer, book: LayerBook | FileBook, image: Image, rescale: bool
) -> RunJob:
    """Return the run that labels an image with prototypes.

    Raises
    ------
    InvalidInput
        If there are no prototypes, their features are not known, or the image has too few axes.
    """
    found = prototype_set(book)
    n_axes = _n_axes(viewer, book, found, image)
    request = prototypes_job(viewer, found, image, n_axes, book.layer, rescale)
    colors = np.zeros((N_COLORS + 1, 4))
    colors[1:] = book.colors(np.arange(1, N_COLORS + 1))
    name, place = request.method.name.upper(), request.placement
    live = LiveLayer(viewer, image, name, place, colors=colors.astype(np.float32))
    return dataclasses.replace(request, live=live)


def _n_axes(
    viewer: napari.viewer.Viewer, book: LayerBook | FileBook, found: PrototypeSet, image: Image
) -> int:
    """Return how many axes of an image are labelled; for a file that does not say, as on screen."""
    if book.layer is not None:
        return len(labelled_axes(book.layer))
    options = found.options
    assert options is not None
    if isinstance(options.window, tuple):
        return len(options.window)
    n_channel_axes = int(options.channel_axis is not None and not image.rgb)
    return min(int(viewer.dims.ndisplay), int(image.ndim) - n_channel_axes)


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}." if reason else ""
