"""What to label: the image, the part of it, the scale, the features, the mask."""

from __future__ import annotations

from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QObject
from qtpy.QtWidgets import QComboBox, QSizePolicy, QWidget

from napari_saf._gui._form_layout import FormSection
from napari_saf._gui._layer_choice import LayerChoice
from napari_saf._gui._live_layer import METADATA_KEY
from napari_saf._gui._placement import Placement, place
from napari_saf._gui._reading import ImageJob
from napari_saf._gui._scale import OddSlider
from napari_saf.features import FEATURES
from napari_saf.problem import ImageOptions

__all__ = ["ImageInput"]

_DEFAULT_WINDOW = 5
_SLICE, _EACH, _VOLUME = "slice", "each", "volume"
_COLOUR_WORDS = ("red", "green", "blue")
_FEATURE_WORDS = {
    "intensity": "intensity or colour",
    "lab": "perceived colour (L*a*b*)",
    "multiscale": "intensity, edges, texture",
    "position": "colour and position",
}


class ImageInput(QObject):
    """The controls that say what to label, in two sections and a scale.

    Attributes
    ----------
    section, features : FormSection
        Image and its axes; features, neighbours and mask. To be laid out by the owner.
    scale : OddSlider
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self.section, self.features = FormSection(), FormSection()
        self.scale = OddSlider(_DEFAULT_WINDOW)
        self._create_image_rows(viewer)
        self._create_feature_rows(viewer)
        self._image.layer_changed.connect(self._on_image_changed)
        self._channels.currentIndexChanged.connect(self._on_channels_changed)
        self._extent.currentIndexChanged.connect(self._offer_groups)
        self._on_image_changed(self.image)

    @property
    def image(self) -> Any:
        """The chosen Image layer, or None."""
        return self._image.layer

    def job(self, *, finite_only: bool = False) -> ImageJob:
        """Return what to read of the image that is chosen."""
        image, mask = self.image, self._mask.layer
        groups = self._groups.layer if self._has_groups else None
        strokes, fixed, index = self.strokes, self._fixed(), self._index()
        return ImageJob(
            data=_pixels(image),
            index=index,
            options=self._options(),
            mask=None if mask is None else _pixels(mask),
            mask_index=() if mask is None else self._mask_index(_pixels(mask).shape, fixed),
            groups=None if groups is None else _pixels(groups),
            groups_index=() if groups is None else self._mask_index(_pixels(groups).shape, fixed),
            seeds=None if strokes is None else _pixels(strokes),
            seeds_index=() if strokes is None else self._mask_index(_pixels(strokes).shape, fixed),
            finite_only=finite_only,
        )

    def placement(self) -> Placement:
        """Return where the labels of the present choice lie."""
        return place(self.image, self._axes(), self._fixed())

    def choose_features(self, name: str) -> None:
        """Choose features by name, if they are offered."""
        index = self._features.findData(name)
        if index >= 0:
            self._features.setCurrentIndex(index)

    def choose_extent(self, extent: str) -> None:
        """Choose "slice", "each" or "volume"."""
        self._extent.setCurrentIndex(self._extent.findData(extent))

    def choose_channels(self, axis: int | None) -> None:
        """Choose the axis of the channels."""
        self._channels.setCurrentIndex(self._channels.findData(axis))

    def choose_image(self, layer: Layer) -> None:
        """Choose an image."""
        self._image.choose(layer)

    def choose_mask(self, layer: Layer | None) -> None:
        """Choose a mask."""
        self._mask.choose(layer)

    @property
    def strokes(self) -> Any:
        """The Labels layer of strokes that is chosen, or None."""
        return self._strokes.layer

    def choose_strokes(self, layer: Layer | None) -> None:
        """Choose strokes."""
        self._strokes.choose(layer)

    def choose_groups(self, value: object) -> None:
        """Choose a Labels layer as groups, or words such as ``"axis:0"``."""
        self._groups.choose(value)

    def show_groups(self, visible: bool) -> None:
        """Ask for groups, or do not."""
        self._has_groups = visible
        self.section.show_row(self._groups, visible)

    def show_weights(self, visible: bool) -> None:
        """Ask how neighbours count, or do not."""
        self.features.show_row(self._weights, visible)

    def group_words(self) -> str:
        """Return what stands for the groups on screen."""
        return str(self._groups.currentText())

    def feature_names(self) -> list[str]:
        """Return the names of the features that are offered."""
        return [str(self._features.itemData(k)) for k in range(self._features.count())]

    def release(self) -> None:
        """Let go of the viewer."""
        self._image.disconnect_viewer()
        self._mask.disconnect_viewer()
        self._groups.disconnect_viewer()
        self._strokes.disconnect_viewer()

    def _create_image_rows(self, viewer: napari.Viewer) -> None:
        self._image = LayerChoice(viewer, lambda layer: isinstance(layer, Image))
        self._channels = _combobox()
        self._extent = _combobox()
        for words, key in (
            ("this slice", _SLICE),
            ("all slices, each by itself", _EACH),
            ("as a volume", _VOLUME),
        ):
            self._extent.addItem(words, key)
        self._strokes = LayerChoice(viewer, _may_hold_strokes, none="none")
        self._groups = LayerChoice(viewer, lambda layer: isinstance(layer, Labels))
        self._has_groups = False
        add = self.section.add_row
        add("Image", self._image, "The image layer to label.")
        add("Channel axis", self._channels, "The axis that holds channels rather than space.")
        add(
            "Slices",
            self._extent,
            "What to label of a stack: the slice on screen; every slice, with common labels but "
            "without looking across slices; or the volume.",
        )
        add(
            "Strokes",
            self._strokes,
            "A Labels layer in which some pixels were painted 1, 2, ...: their labels are kept, "
            "and all other pixels follow.",
        )
        add(
            "Groups",
            self._groups,
            "What each label should be spread over: slices, bright and dark pixels of a channel, "
            "or the regions of a Labels layer (V).",
        )
        self.section.show_row(self._groups, False)

    def _create_feature_rows(self, viewer: napari.Viewer) -> None:
        self._features, self._weights = _combobox(), _combobox()
        self._weights.addItem("all count alike", "uniform")
        self._weights.addItem("similar places count more", "nonlocal")
        self._weights.addItem("similar pixels count more", "contrast")
        self._mask = LayerChoice(viewer, lambda layer: isinstance(layer, Labels), none="none")
        add = self.features.add_row
        add("Features", self._features, "What describes a pixel.")
        add("Neighbours", self._weights, "How the pixels within the scale count (N).")
        add("Mask", self._mask, "Label only where this layer is not 0.")

    def _on_image_changed(self, layer: Any) -> None:
        blocked = self._channels.blockSignals(True)
        self._channels.clear()
        self._channels.addItem("none", None)
        has_choice = layer is not None and not layer.rgb and layer.ndim >= 3
        for axis in range(layer.ndim if has_choice else 0):
            self._channels.addItem(f"{axis}  ({_pixels(layer).shape[axis]} channels)", axis)
        self._channels.blockSignals(blocked)
        self.section.show_row(self._channels, has_choice)
        self._on_channels_changed()

    def _on_channels_changed(self) -> None:
        self.section.show_row(self._extent, len(self._axes()) > 2)
        chosen = self._features.currentData()
        self._features.clear()
        for name in FEATURES:
            if name != "lab" or self._n_channels() == 3:
                self._features.addItem(_FEATURE_WORDS.get(name, name), name)
        self.choose_features(chosen or ImageOptions().features)
        self._offer_groups()

    def _offer_groups(self) -> None:
        """Offer what the image itself tells: slices that are labelled together, channels."""
        entries: list[tuple[str, object]] = []
        if self.image is not None and len(self._axes()) > 2:
            if self._extent.currentData() != _SLICE:
                for number, axis in enumerate(self._axes()):
                    if axis not in self._in_plane():
                        entries.append((f"slices along axis {axis}", f"axis:{number}"))
        for channel in range(self._n_channels() if self.image is not None else 0):
            words = self._channel_words(channel)
            entries.append((f"{words}: low and high", f"channel:{channel}"))
        self._groups.set_others(entries)

    def _channel_words(self, channel: int) -> str:
        if self._n_channels() == 1:
            return "brightness"
        return _COLOUR_WORDS[channel] if self.image.rgb else f"channel {channel}"

    def _axes(self) -> tuple[int, ...]:
        """Return the spatial axes of the layer."""
        if self.image is None:
            return ()
        return tuple(a for a in range(self.image.ndim) if a != self._channels.currentData())

    def _n_channels(self) -> int:
        axis = self._channels.currentData()
        if self.image is None or axis is None:
            return 3 if self.image is not None and self.image.rgb else 1
        return int(_pixels(self.image).shape[axis])

    def _in_plane(self) -> tuple[int, ...]:
        """Return the two spatial axes that are on screen, or would be in 2-D."""
        missing = self._viewer.dims.ndim - self.image.ndim
        order = [axis - missing for axis in self._viewer.dims.order]
        return tuple([axis for axis in order if axis in self._axes()][-2:])

    def _fixed(self) -> dict[int, int]:
        """Return the axes of which one slice is labelled, and which slice that is."""
        if len(self._axes()) <= 2 or self._extent.currentData() != _SLICE:
            return {}
        image, plane = self.image, self._in_plane()
        point = image.world_to_data(self._viewer.dims.point[-image.ndim :])
        sides = _pixels(image).shape
        return {
            axis: int(np.clip(round(point[axis]), 0, sides[axis] - 1))
            for axis in self._axes()
            if axis not in plane
        }

    def _index(self) -> tuple[int | slice, ...]:
        fixed = self._fixed()
        return tuple(fixed.get(axis, slice(None)) for axis in range(self.image.ndim))

    def _options(self) -> ImageOptions:
        axis, fixed = self._channels.currentData(), self._fixed()
        side, plane = self.scale.value, self._in_plane()
        kept = [a for a in self._axes() if a not in fixed]
        groups = self._groups.value if self._has_groups else None
        each = len(self._axes()) > 2 and self._extent.currentData() == _EACH
        return ImageOptions(
            features=self._features.currentData(),
            window=tuple(side if a in plane else 1 for a in kept) if each else side,
            weights=self._weights.currentData(),
            channel_axis=None if axis is None else sum(a < axis for a in kept),
            groups=groups if isinstance(groups, str) else None,
        )

    def _mask_index(self, shape: tuple[int, ...], fixed: dict[int, int]) -> tuple[int | slice, ...]:
        """Return what to read of a mask: the slice too, where it has the slices."""
        axes = self._axes() if len(shape) == len(self._axes()) else range(self.image.ndim)
        if len(shape) != len(axes):
            return tuple(slice(None) for _ in shape)
        where = [(fixed.get(axis), side) for axis, side in zip(axes, shape, strict=True)]
        return tuple(slice(None) if at is None else min(at, n - 1) for at, n in where)


def _may_hold_strokes(layer: Layer) -> bool:
    """Tell whether a layer holds labels that were not computed here."""
    return isinstance(layer, Labels) and METADATA_KEY not in layer.metadata


def _pixels(layer: Layer) -> Any:
    """Return the data of a layer at full resolution."""
    return layer.data[0] if layer.multiscale else layer.data


def _combobox(parent: QWidget | None = None) -> QComboBox:
    box = QComboBox(parent)
    box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
    return box
