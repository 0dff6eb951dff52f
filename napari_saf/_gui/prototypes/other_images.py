"""Prototypes for other images: the controls, and the job that labels one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import napari
import numpy as np
from napari.layers import Image
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QFileDialog

from napari_saf._gui.forms.choices import BRIGHTNESS, BRIGHTNESS_HELP, Choice, LayerChoice
from napari_saf._gui.forms.controls import PROTOTYPE_FILTER
from napari_saf._gui.forms.layout import FormSection, create_button, create_row, enable
from napari_saf._gui.layers.live import N_COLORS, LiveLayer
from napari_saf._gui.layers.placement import labelled_axes
from napari_saf._gui.prototypes.labels import Source, prototype_set
from napari_saf._gui.runs.controller import RunJob
from napari_saf._gui.runs.jobs import prototypes_job
from napari_saf.io import file_stem


class OtherImagesSection(FormSection):
    """An image to label with prototypes, and buttons to label it, to save and to load them."""

    save_requested = Signal(str)
    load_requested = Signal(str)

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self.image = LayerChoice(viewer, lambda layer: isinstance(layer, Image))
        self.brightness = Choice(BRIGHTNESS)
        self.use = create_button("Label it")
        self.save = create_button("Save …", on_clicked=self._on_save_clicked)
        self.load = create_button(
            "Load …", "Open prototypes from a file, to use them on an image.", self._on_load_clicked
        )
        self.add_row("Use on", self.image, "The image to label with these prototypes.")
        self.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        self.layout().addWidget(create_row(self.use, self.save, self.load))
        self._source: Source | None = None

    def show_source(self, source: Source | None, why_not: str) -> None:
        """Enable the buttons for these prototypes, or say why not; take their scaling over."""
        options = None if source is None else source.options
        if source != self._source and options is not None:
            self.brightness.choose(options.rescale or options.scaling is None)
        self._source = source
        has_some = source is not None and bool(source.state.prototypes)
        why_not_save = "" if has_some else "these have no prototypes"
        why_not = why_not or why_not_save or ("" if options else "their features are not known")
        if not why_not and self.image.layer is None:
            why_not = "open an image first"
        enable(
            self.use, why_not, "Label that image with these prototypes, in the same features (f*)."
        )
        enable(
            self.save,
            why_not_save,
            "Keep prototypes, names, colours, features and scaling in a small file.",
        )

    def _on_save_clicked(self) -> None:
        title = "labels" if self._source is None else self._source.title
        start = Path.cwd() / f"{file_stem(title)}.prototypes.json"
        path, _ = QFileDialog.getSaveFileName(self, "Save prototypes", str(start), PROTOTYPE_FILTER)
        if path:
            self.save_requested.emit(path)

    def _on_load_clicked(self) -> None:
        start = str(Path.cwd())
        path, _ = QFileDialog.getOpenFileName(self, "Load prototypes", start, PROTOTYPE_FILTER)
        if path:
            self.load_requested.emit(path)


def create_job(viewer: napari.viewer.Viewer, source: Source, image: Image, rescale: bool) -> RunJob:
    """Return the run that labels an image with prototypes, in their colours.

    InvalidInput if there are none, their features are not known, or the image has too few axes.
    """
    found = prototype_set(source)
    if source.layer is not None:
        n_axes = len(labelled_axes(source.layer))
    elif found.options is not None and isinstance(found.options.window, tuple):
        n_axes = len(found.options.window)
    else:  # as on screen
        has_channel_axis = getattr(found.options, "channel_axis", None) is not None
        n_channel_axes = int(has_channel_axis and not image.rgb)
        n_axes = min(int(viewer.dims.ndisplay), int(image.ndim) - n_channel_axes)
    job = prototypes_job(viewer, found, image, n_axes, source.layer, rescale)
    colors = np.zeros((N_COLORS + 1, 4), dtype=np.float32)
    colors[1:] = source.colors(np.arange(1, N_COLORS + 1))
    live = LiveLayer(viewer, image, job.method.name.upper(), job.placement, colors=colors)
    return dataclasses.replace(job, live=live)
