"""A list of images with check boxes that follows the viewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import napari
from napari.layers import Image, Layer
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QListWidget, QListWidgetItem, QWidget

from napari_saf._gui.layers.live import METADATA_KEY
from napari_saf._gui.layers.watch import list_events

__all__ = ["ImageList"]

_MOST_ROWS = 4
_ROW_HEIGHT = 24
_PADDING = 4
_EMPTY = "no image: open one"


class ImageList(QListWidget):
    """The images of a viewer, each to be ticked, by object and not by name.

    Images that were computed here are not offered. At first those that are selected in the viewer
    are ticked, or else the first.

    Parameters
    ----------
    viewer : napari.Viewer
    """

    changed = Signal()

    def __init__(self, viewer: napari.Viewer, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._viewer = viewer
        self._layers: list[Any] = []
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        for event in list_events(viewer):
            event.connect(self.refresh)
        self.refresh()
        self.itemChanged.connect(lambda item: self.changed.emit())

    def chosen(self) -> list[Any]:
        """Return the images that are ticked."""
        return [layer for k, layer in enumerate(self._layers) if _is_ticked(self.item(k))]

    def choose(self, layers: Sequence[Layer]) -> None:
        """Tick these images and no others."""
        self._fill(list(layers))
        self.changed.emit()

    def refresh(self, event: object = None) -> None:
        """Offer the images that the viewer has now; what is ticked stays so."""
        before = self.chosen()
        offered = [layer for layer in self._viewer.layers if _is_offered(layer)]
        self._layers, had = offered, self._layers
        ticked = [layer for layer in before if layer in offered]
        if not had and offered:
            ticked = [layer for layer in offered if layer in self._viewer.layers.selection]
            ticked = ticked or offered[:1]
        self._fill(ticked)
        if ticked != before:
            self.changed.emit()

    def disconnect_viewer(self) -> None:
        """Stop following the viewer."""
        for event in list_events(self._viewer):
            event.disconnect(self.refresh)

    def _fill(self, ticked: list[Any]) -> None:
        blocked = self.blockSignals(True)
        self.clear()
        for layer in self._layers:
            item = QListWidgetItem(layer.name)
            item.setSizeHint(QSize(0, _ROW_HEIGHT))
            item.setToolTip(f"{layer.name}: tick it to learn from it.")
            item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable)
            is_ticked = layer in ticked
            item.setCheckState(Qt.CheckState.Checked if is_ticked else Qt.CheckState.Unchecked)
            self.addItem(item)
        if not self._layers:
            hint = QListWidgetItem(_EMPTY)
            hint.setSizeHint(QSize(0, _ROW_HEIGHT))
            hint.setFlags(Qt.ItemFlag.NoItemFlags)
            self.addItem(hint)
        self.blockSignals(blocked)
        rows = min(max(1, len(self._layers)), _MOST_ROWS)
        self.setFixedHeight(rows * _ROW_HEIGHT + 2 * self.frameWidth() + _PADDING)


def _is_ticked(item: QListWidgetItem | None) -> bool:
    return item is not None and bool(item.checkState() == Qt.CheckState.Checked)


def _is_offered(layer: Layer) -> bool:
    return isinstance(layer, Image) and METADATA_KEY not in layer.metadata
