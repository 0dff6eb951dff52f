"""A combobox of layers that follows the viewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import napari
from napari.layers import Layer
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QSizePolicy, QWidget

__all__ = ["LayerChoice"]


class LayerChoice(QComboBox):
    """The layers of a viewer that are wanted, by object and not by name.

    Parameters
    ----------
    viewer : napari.Viewer
    wanted : callable
        Tells whether a layer is offered.
    none : str, optional
        Words for no layer; None: no such entry.
    """

    layer_changed = Signal(object)

    def __init__(
        self,
        viewer: napari.Viewer,
        wanted: Callable[[Layer], bool],
        *,
        none: str | None = None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._viewer = viewer
        self._wanted = wanted
        self._none = none
        self._layers: list[Layer | None] = []
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._events = (
            viewer.layers.events.inserted,
            viewer.layers.events.removed,
            viewer.layers.events.renamed,
        )
        for event in self._events:
            event.connect(self.refresh)
        self.refresh()
        self.currentIndexChanged.connect(self._on_index_changed)

    @property
    def layer(self) -> Any:
        """The chosen layer, or None."""
        index = self.currentIndex()
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def choose(self, layer: Layer | None) -> None:
        """Choose a layer that is offered."""
        if layer in self._layers:
            self.setCurrentIndex(self._layers.index(layer))

    def refresh(self, event: object = None) -> None:
        """Offer the layers that the viewer has now; keep the choice if it is still there."""
        before = self.layer
        layers = [layer for layer in self._viewer.layers if self._wanted(layer)]
        self._layers = ([None] if self._none is not None else []) + layers
        blocked = self.blockSignals(True)
        self.clear()
        self.addItems([self._none if layer is None else layer.name for layer in self._layers])
        if before in self._layers:
            self.setCurrentIndex(self._layers.index(before))
        self.blockSignals(blocked)
        if self.layer != before:
            self.layer_changed.emit(self.layer)

    def disconnect_viewer(self) -> None:
        """Stop following the viewer."""
        for event in self._events:
            event.disconnect(self.refresh)

    def _on_index_changed(self, index: int) -> None:
        self.layer_changed.emit(self.layer)
