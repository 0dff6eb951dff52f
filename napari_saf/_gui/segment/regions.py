"""Regions of a result, from many to few: a slider, and a layer that follows it."""

from __future__ import annotations

import napari
import numpy as np
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QHBoxLayout, QLabel, QSlider, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.forms.layout import fill_layout
from napari_saf._gui.layers.live import LiveLayer
from napari_saf.regions import USUAL_LEVEL, RegionHierarchy


class RegionSection(QWidget):
    """The slider; `wanted` asks for the hierarchy of the result when it is first moved."""

    wanted = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._tree: RegionHierarchy | None = None
        self._result: LiveLayer | None = None
        self._layer: LiveLayer | None = None
        self.slider, self.count = QSlider(Qt.Orientation.Horizontal), QLabel()
        self.slider.setRange(0, 100)
        self.slider.setPageStep(5)
        self.count.setMinimumWidth(self.count.fontMetrics().horizontalAdvance("9999 regions"))
        many, few = QLabel("many"), QLabel("few")
        for label in (many, few):
            label.setStyleSheet("font-size: 8pt")
        self.setToolTip(
            "Merge the parts of labels into regions, the most alike neighbours first: without "
            "another run, in a layer of its own, each region with its own number."
        )
        fill_layout(QHBoxLayout(self), self.count, many, self.slider, few)
        self.slider.valueChanged.connect(self._on_moved)
        self.reset()

    def reset(self) -> None:
        """Forget the result; its regions stay as they are."""
        self._tree = self._result = self._layer = None
        self.hide()

    def offer(self) -> None:
        """Begin anew with another result."""
        self.reset()
        with signals_blocked(self.slider):
            self.slider.setValue(round(100 * USUAL_LEVEL))
        self.count.setText("Regions")
        self.show()

    def show_regions(self, tree: RegionHierarchy, result: LiveLayer) -> None:
        """Show the regions at the level of the slider, and follow it from now on."""
        self._tree, self._result = tree, result
        self._on_moved()

    def _on_moved(self, *moved: int) -> None:
        if self._tree is None or self._result is None:
            self.count.setText("merging …")
            self.wanted.emit()
            return
        level = self.slider.value() / 100
        regions = self._tree.at_level(level).astype(np.uint32)
        if self._layer is None or self._layer.is_lost:
            result = self._result
            self._layer = LiveLayer(self._viewer, result.image, "Regions", result.placement)
            result.layer.visible = False  # one layer of labels at a time is easier to see
        self._layer.show(regions, int(self._tree.finest.max()))
        n_regions = int(regions.max())
        self.count.setText(f"{n_regions} region{'s' * (n_regions != 1)}")
