"""Choices of layers that follow the viewer: one of several, or some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import napari
from napari.layers import Image, Layer
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QListWidget,
    QListWidgetItem,
    QSizePolicy,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.view import list_events

_MOST_ROWS = 4
_ROW_HEIGHT = 24
_PADDING = 4
_EMPTY = "no image: open one"


class LayerChoice(QComboBox):
    """The layers of a viewer that are wanted, by object and not by name.

    Parameters
    ----------
    wanted : callable
        Whether a layer is offered.
    none : str, optional
        Label of no layer; None: no such entry.

    Entries that are no layers can be put before the layers: `set_others`. The first of them is
    chosen until a person chooses; where there is none, the layer that is active in the viewer.
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
        self._others: list[tuple[str, object]] = [] if none is None else [(none, None)]
        self._values: list[object] = []
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        for event in list_events(viewer):
            event.connect(self.refresh)
        self.refresh()
        self.currentIndexChanged.connect(self._on_index_changed)

    @property
    def layer(self) -> Any:
        """The chosen layer, or None."""
        return self.value if isinstance(self.value, Layer) else None

    @property
    def value(self) -> Any:
        """The chosen layer, or what another entry stands for; None if there is no entry."""
        index = self.currentIndex()
        return self._values[index] if 0 <= index < len(self._values) else None

    def values(self) -> list[object]:
        """Return the layers, and what the other entries stand for, in the order on screen."""
        return list(self._values)

    def choose(self, value: object) -> None:
        """Choose a layer, or what another entry stands for, if it is offered."""
        if value in self._values:
            self.setCurrentIndex(self._values.index(value))

    def set_others(self, entries: Sequence[tuple[str, object]]) -> None:
        """Offer labels with values of their own before the layers."""
        self._others = list(entries)
        self.refresh()

    def refresh(self, event: object = None) -> None:
        """Offer the layers that the viewer has now; keep the choice if it is still there."""
        before, active = self.value, self._viewer.layers.selection.active
        layers = [layer for layer in self._viewer.layers if self._wanted(layer)]
        self._values = [value for _, value in self._others] + layers
        wanted = before if before in self._values or self._others else active
        with signals_blocked(self):
            self.clear()
            self.addItems([text for text, _ in self._others] + [layer.name for layer in layers])
            if wanted in self._values:
                self.setCurrentIndex(self._values.index(wanted))
        if self.value != before:
            self.layer_changed.emit(self.layer)

    def disconnect_viewer(self) -> None:
        """Stop following the viewer and let go of its layers."""
        for event in list_events(self._viewer):
            event.disconnect(self.refresh)
        self._values, self._others = [], []

    def _on_index_changed(self, index: int) -> None:
        self.layer_changed.emit(self.layer)


class ImageList(QListWidget):
    """The images of a viewer, each to be ticked, by object and not by name.

    Images that were computed here are not offered. At first those that are selected in the viewer
    are ticked, or else the first.
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
        rows = min(max(1, len(self._layers)), _MOST_ROWS)
        self.setFixedHeight(rows * _ROW_HEIGHT + 2 * self.frameWidth() + _PADDING)
        with signals_blocked(self):
            self.clear()
            for layer in self._layers:
                item = self._add(
                    layer.name, Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable
                )
                item.setToolTip(f"{layer.name}: tick it to learn from it.")
                is_ticked = layer in ticked
                item.setCheckState(Qt.CheckState.Checked if is_ticked else Qt.CheckState.Unchecked)
            if not self._layers:
                self._add(_EMPTY, Qt.ItemFlag.NoItemFlags)

    def _add(self, text: str, flags: Qt.ItemFlag) -> QListWidgetItem:
        item = QListWidgetItem(text)
        item.setSizeHint(QSize(0, _ROW_HEIGHT))
        item.setFlags(flags)
        self.addItem(item)
        return item


def _is_ticked(item: QListWidgetItem | None) -> bool:
    return item is not None and bool(item.checkState() == Qt.CheckState.Checked)


def _is_offered(layer: Layer) -> bool:
    return isinstance(layer, Image) and METADATA_KEY not in layer.metadata
