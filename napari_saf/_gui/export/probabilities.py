"""Probability maps in the Export dock: of which labels, and as layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtWidgets import QCheckBox

from napari_saf._gui.docks.run_dock import RunDock
from napari_saf._gui.docks.tables import LabelList
from napari_saf._gui.forms.layout import FormSection, create_button, enable
from napari_saf._gui.layers.metadata import (
    class_names,
    colors_of,
    show_probabilities,
    soft_labels_of,
)

NO_PROBABILITIES = (
    "these labels come without: they were not computed here since napari was opened, or were edited"
)
_SHOW_HELP = "Show how much each pixel is of each ticked label, black to its colour, as an image."
_BYTES_HELP = "In files: 0 to 255 in place of numbers from 0 to 1; a quarter of the size."


class ProbabilitySection(FormSection):
    """The labels whose maps are wanted, and a button that shows them as layers."""

    def __init__(self, dock: RunDock, viewer: napari.Viewer) -> None:
        super().__init__()
        self._dock, self._viewer, self._layer = dock, viewer, None
        self.labels, self.in_bytes = LabelList(), QCheckBox("bytes")
        self.button = create_button("Show as image layer", _SHOW_HELP, self.show_layers)
        self.add_row("Labels", self.labels, "Of which labels maps are shown and saved.")
        self.add_row("In files", self.in_bytes, _BYTES_HELP)
        self.layout().addWidget(self.button)

    @property
    def in_the_way(self) -> str:
        """Why there are no maps; empty if there are."""
        return "" if soft_labels_of(self._layer) is not None else NO_PROBABILITIES

    def choose(self, layer: Labels | None) -> None:
        """Offer the labels of a layer, if it carries how much each pixel is of them."""
        soft, self._layer = soft_labels_of(layer), layer
        if layer is not None:
            numbers = np.array([] if soft is None else soft.labels, dtype=np.int64)
            self.labels.show_labels(layer, numbers)
        enable(self.button, self.in_the_way, _SHOW_HELP)

    def reader(self) -> Callable[[], Mapping[int, NDArray[np.floating]]]:
        """Return what makes the maps of the ticked labels, for another thread."""
        soft, ticked = soft_labels_of(self._layer), self.labels.ticked
        if soft is None or not ticked:
            return dict
        return lambda: dict(zip(ticked, soft.images(ticked), strict=True))

    def show_layers(self) -> None:
        layer, read, names = self._layer, self.reader(), class_names(self._layer)

        def show(maps: Mapping[int, Any]) -> None:
            colors = colors_of(layer, np.array([*maps], dtype=np.int64))
            for (label, values), color in zip(maps.items(), colors, strict=True):
                name, is_first = names.get(label, f"label {label}"), label == next(iter(maps))
                show_probabilities(self._viewer, layer, name, color, values, is_first)

        if layer in self._viewer.layers:
            self._dock.run_in_background("maps", lambda cancelled: read(), show)
