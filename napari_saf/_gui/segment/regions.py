"""Regions after a run: labels or regions in view, and a slider from many regions to few."""

from __future__ import annotations

from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QButtonGroup, QHBoxLayout, QLabel, QSlider, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.layers.live import LiveLayer, RegionsLayer
from napari_saf._gui.layers.sight import results_in_sight
from napari_saf.errors import counted
from napari_saf.regions import USUAL_LEVEL, RegionHierarchy

MOST_PIXELS = 2**21
"""Of a plane whose regions come without being asked for: some seconds."""
_COLOUR = 0.02
"""Mean difference of red, green and blue, of the range, from which on an image has colours."""
_N_SAMPLES = 100_000
_LABELS_HELP = "Show the labels: kinds of pixels. One label may be in many places."
_REGIONS_HELP = (
    "Show regions: the parts of labels, merged into places, the most alike neighbours first. They "
    "are a layer of their own, each region with its own number."
)
_SLIDER_HELP = "How many regions, without another run."


class RegionSection(QWidget):
    """Two buttons that show the labels or the regions of a result, and the slider of the regions.

    `wanted` asks for the hierarchy of the result: after a run where it is cheap, else once a person
    wants regions; and anew where labels were changed since. The layer in view is the active one
    once a person has chosen between the two, which holds for later runs.
    """

    wanted = Signal()
    view_changed = Signal(bool)
    """Whether regions are in view."""

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._result: LiveLayer | None = None
        self._index: tuple[Any, ...] = ()
        self._layer: RegionsLayer | None = None
        self._tree: RegionHierarchy | None = None
        self._merged: NDArray[Any]
        self._prefers_regions: bool | None = None
        self.is_merging = False
        self.labels_button = create_button("labels", _LABELS_HELP, self._on_labels_clicked)
        self.regions_button = create_button("", _REGIONS_HELP, self._on_regions_wanted)
        self._views = QButtonGroup(self)  # one of them is checked
        for button in (self.labels_button, self.regions_button):
            button.setCheckable(True)
            self._views.addButton(button)
        self.slider = QSlider(Qt.Orientation.Horizontal, maximum=100, pageStep=5)
        self.slider.valueChanged.connect(self._on_regions_wanted)
        many, few = (QLabel(text, styleSheet="font-size: 8pt") for text in ("many", "few"))
        level = QWidget(toolTip=_SLIDER_HELP)
        fill_layout(QHBoxLayout(level), many, self.slider, few)
        buttons = create_row(self.labels_button, self.regions_button)
        fill_layout(QVBoxLayout(self), buttons, level)
        self.reset()

    def reset(self) -> None:
        """Forget the result; its layers stay as they are."""
        for shown in filter(None, (self._result, self._layer)):
            shown.layer.events.visible.disconnect(self._on_visible_changed)
        self._result = self._layer = None
        self.forget()
        self.hide()

    def forget(self) -> None:
        """Forget the regions, and those that are on their way; they can be asked for again."""
        self._tree, self._merged, self.is_merging = None, np.empty(0), False
        self.regions_button.setText("regions")
        self._check(False)

    def offer(self, result: LiveLayer, index: tuple[Any, ...]) -> None:
        """Begin anew with another result, in view, or with other labels of this one.

        The index is what is labelled of the image.
        """
        layer = self._layer if result is self._result else None
        self.reset()
        self._result, self._index, self._layer = result, index, layer
        for shown in filter(None, (result, layer)):
            shown.layer.events.visible.connect(self._on_visible_changed)
        with signals_blocked(self.slider):
            self.slider.setValue(round(100 * USUAL_LEVEL))
        self.show()
        self._view(result)
        labels = result.labels()
        if labels.ndim == 2 and labels.size <= MOST_PIXELS:
            self._ask()

    def take(
        self, tree: RegionHierarchy, labels: NDArray[Any], *, is_photograph: bool, is_given: bool
    ) -> None:
        """Take the regions of these labels, if those are still on screen.

        They come into view if a person asked for them; of labels in view whose meaning was not
        given, also if that is what a person chose before, or of a photograph if nobody has chosen.
        """
        if not self.is_merging or self._result is None:
            return
        is_asked = self.regions_button.isChecked()
        is_first = is_photograph if self._prefers_regions is None else self._prefers_regions
        self.forget()
        self._tree, self._merged = tree, labels
        if not self._is_merged:
            self.forget()
        elif is_asked or (is_first and not is_given and self._result.layer.visible):
            self._view_regions()
        else:
            self._count(int(tree.numbers_at_level(self._level).max()))

    def take_removal(self, layer: Any) -> None:
        """Turn to the labels, if it is the layer of the regions that was removed, in view."""
        if self._layer is not None and layer == self._layer.layer:
            self._layer.layer.events.visible.disconnect(self._on_visible_changed)
            self._layer = None
            self._check(False)
            if layer.visible and self._result is not None and not self._result.is_lost:
                self._view(self._result)

    @property
    def shown(self) -> LiveLayer | None:
        """What is in view: the labels of the result, or its regions; None without a result."""
        is_regions = self._layer is not None and self._layer.layer.visible
        return self._layer if is_regions else self._result

    @property
    def _level(self) -> float:
        return float(self.slider.value()) / 100

    @property
    def _is_merged(self) -> bool:
        """Whether there are regions, of the labels as they are now."""
        result = self._result
        is_there = self._tree is not None and result is not None and not result.is_lost
        return is_there and np.array_equal(result.labels(), self._merged)  # type: ignore[union-attr]

    def _on_labels_clicked(self) -> None:
        self._prefers_regions = False
        if self._result is not None:
            self._view(self._result)

    def _on_regions_wanted(self, *moved: object) -> None:
        self._prefers_regions = True
        if self._is_merged:
            self._view_regions()
        else:
            self._ask()
            self.regions_button.setChecked(self.is_merging)

    def _ask(self) -> None:
        if not self.is_merging:
            self.forget()
            self.is_merging = True
            self.regions_button.setText("merging …")
            self.wanted.emit()

    def _view_regions(self) -> None:
        assert self._tree is not None and self._result is not None
        layer = self._layer
        if layer is None or layer.is_lost:
            layer = RegionsLayer(self._viewer, self._result)
        self._count(layer.show_level(self._tree, self._level))
        if layer is not self._layer:
            self._layer = layer
            layer.layer.events.visible.connect(self._on_visible_changed)
        self._view(layer)

    def _view(self, shown: LiveLayer) -> None:
        results_in_sight(self._viewer).show_result(shown.image, shown.layer, self._index)
        self._check(shown is not self._result)
        if self._prefers_regions is not None:
            self._viewer.layers.selection.active = shown.layer

    def _on_visible_changed(self, event: object = None) -> None:
        if self._result is not None and self._layer is not None:
            is_regions = self._layer.layer.visible
            if is_regions != self._result.layer.visible:
                self._check(is_regions)

    def _check(self, is_regions: bool) -> None:
        (self.regions_button if is_regions else self.labels_button).setChecked(True)
        self.view_changed.emit(is_regions)

    def _count(self, n_regions: int) -> None:
        self.regions_button.setText(counted(n_regions, "region"))


def has_colours(pixels: NDArray[Any]) -> bool:
    """Tell whether red, green and blue, the last axis, differ."""
    rows = pixels.reshape(-1, pixels.shape[-1])
    sample = rows[:: max(1, len(rows) // _N_SAMPLES), :3].astype(float)
    return bool(np.ptp(sample, axis=-1).mean() > _COLOUR * np.ptp(sample))
