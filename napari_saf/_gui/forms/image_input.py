"""What to label: the image, the part of it, the scale, the features, the mask."""

from __future__ import annotations

from typing import Any

import napari
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QComboBox, QSizePolicy, QWidget

from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.scale import OddSlider, fit, fit_note
from napari_saf._gui.layers.beside import axis_of_features, part_of_features, part_of_labels
from napari_saf._gui.layers.live import METADATA_KEY
from napari_saf._gui.layers.placement import Placement, place
from napari_saf._gui.layers.plane import (
    channel_axes,
    pixels_of,
    plane_on_screen,
    slice_on_screen,
)
from napari_saf._gui.layers.reading import ImageJob, Index
from napari_saf.features import FEATURES
from napari_saf.problem import ImageOptions

__all__ = ["FEATURE_WORDS", "ImageInput"]

_DEFAULT_WINDOW = 5
_SLICE, _EACH, _VOLUMES, _VOLUME = "slice", "each", "volumes", "volume"
_MAX_SIDES = (240, 480, 960)
_COLOUR_WORDS = ("red", "green", "blue")
FEATURE_WORDS = {
    "intensity": "intensity or colour",
    "lab": "perceived colour (L*a*b*)",
    "multiscale": "edges and texture",
    "position": "colour and position",
}


class ImageInput(QObject):
    """The controls that say what to label, in two sections and a scale.

    Parameters
    ----------
    viewer : napari.Viewer
    options : ImageOptions, optional
        What to begin with.
    strokes : str, optional
        Words for no strokes; None: there is no such choice.

    Attributes
    ----------
    section, features : FormSection
        Image and its axes; features, neighbours and mask. To be laid out by the owner.
    scale : OddSlider
    """

    image_changed = Signal()
    axes_changed = Signal()
    strokes_changed = Signal()

    def __init__(
        self,
        viewer: napari.Viewer,
        options: ImageOptions | None = None,
        *,
        strokes: str | None = "none",
    ) -> None:
        super().__init__()
        options = options or ImageOptions(window=_DEFAULT_WINDOW)
        self._viewer = viewer
        self.section, self.features = FormSection(), FormSection()
        assert isinstance(options.window, int)
        self.scale = OddSlider(options.window)
        self._no_strokes = strokes
        self._create_image_rows(viewer)
        self._create_feature_rows(viewer)
        self._image.layer_changed.connect(self._on_image_changed)
        self._channels.currentIndexChanged.connect(self._on_channels_changed)
        self._extent.currentIndexChanged.connect(self._on_extent_changed)
        self._weights.setCurrentIndex(self._weights.findData(options.weights))
        self._max_side.setCurrentIndex(self._max_side.findData(options.max_side))
        self._on_image_changed(self.image)
        self.choose_features(options.features)
        self._image.layer_changed.connect(self.image_changed)
        self._strokes.layer_changed.connect(self.strokes_changed)

    @property
    def image(self) -> Any:
        """The chosen Image layer, or None."""
        return self._image.layer

    def job(self, *, finite_only: bool = False) -> ImageJob:
        """Return what to read of the image that is chosen."""
        mask, mask_index = self._over(self._mask.layer)
        groups, groups_index = self._over(self._groups.layer if self._has_groups else None)
        seeds, seeds_index = self._over(self.strokes)
        features, features_index, features_axis = self._given_features()
        return ImageJob(
            data=pixels_of(self.image),
            index=self._index(),
            options=self._options(),
            mask=mask,
            mask_index=mask_index,
            groups=groups,
            groups_index=groups_index,
            seeds=seeds,
            seeds_index=seeds_index,
            finite_only=finite_only,
            features=features,
            features_index=features_index,
            features_axis=features_axis,
        )

    def scale_note(self, job: ImageJob) -> str:
        """Return where the window of a job is smaller than the scale, and by that much."""
        window, widths = job.options.window, self._widths()
        if isinstance(window, int):
            return ""
        axes = [self.image.axis_labels[axis] for axis in widths]
        return fit_note(tuple(widths.values()), window, axes)

    def placement(self) -> Placement:
        """Return where the labels of the present choice lie."""
        return place(self.image, self._axes(), self._fixed(), self._channels.currentData())

    def whole(self) -> tuple[Placement, tuple[int, ...]]:
        """Return where labels of all slices would lie, and their shape."""
        shape = pixels_of(self.image).shape
        found = place(self.image, self._axes(), {}, self._channels.currentData())
        return found, found.shape(tuple(shape[axis] for axis in self._axes()))

    def index_of(self, layer: Labels) -> Index:
        """Return what to read of a layer of labels, over the part of the image."""
        return self._over(layer)[1]

    def choose_features(self, name: str) -> None:
        """Choose features by name, if they are offered."""
        self._features.choose(name)

    def choose_feature_layer(self, layer: Layer) -> None:
        """Choose an image layer whose channels are the features, if it fits."""
        self._features.choose(layer)

    def choose_max_side(self, side: int | None) -> None:
        """Choose the longest side at which to work."""
        self._max_side.setCurrentIndex(self._max_side.findData(side))

    def choose_extent(self, extent: str) -> None:
        """Choose "slice", "each", "volume" or, with four axes or more, "volumes"."""
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
        return [name for name in self._features.values() if isinstance(name, str)]

    def release(self) -> None:
        """Let go of the viewer."""
        self._image.disconnect_viewer()
        self._mask.disconnect_viewer()
        self._groups.disconnect_viewer()
        self._strokes.disconnect_viewer()
        self._features.disconnect_viewer()

    def _create_image_rows(self, viewer: napari.Viewer) -> None:
        self._image = LayerChoice(viewer, lambda layer: isinstance(layer, Image))
        self._channels = _combobox()
        self._extent = _combobox()
        for words, key in (
            ("this slice", _SLICE),
            ("each slice by itself", _EACH),
            ("as a volume", _VOLUME),
        ):
            self._extent.addItem(words, key)
        self._strokes = LayerChoice(viewer, _may_hold_strokes, none=self._no_strokes)
        self._groups = LayerChoice(viewer, lambda layer: isinstance(layer, Labels), none="none")
        self._has_groups = False
        add = self.section.add_row
        add("Image", self._image, "The image layer to label.")
        add(
            "Channel axis",
            self._channels,
            "The axis that holds channels, not space; named as its slider is.",
        )
        add(
            "Slices",
            self._extent,
            "What to label of a stack: the slice on screen; every slice by itself, with "
            "the same labels in all; every volume of a series likewise; or all as one volume.",
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
        self._features = LayerChoice(viewer, self._may_be_features)
        self._weights, self._max_side = _combobox(), _combobox()
        self._weights.addItem("all count alike", "uniform")
        self._weights.addItem("similar places more", "nonlocal")
        self._weights.addItem("similar pixels more", "contrast")
        self._mask = LayerChoice(viewer, lambda layer: isinstance(layer, Labels), none="none")
        add = self.features.add_row
        self._max_side.addItem("the size of the image", None)
        for side in _MAX_SIDES:
            self._max_side.addItem(f"at most {side} px a side", side)
        add(
            "Features",
            self._features,
            "What describes a pixel: computed here, or the channels of another image layer of "
            "the same size.",
        )
        add("Neighbours", self._weights, "How much each pixel in the window counts (N).")
        add(
            "Work at",
            self._max_side,
            "A reduced size is faster, and its window reaches farther; the labels still come out "
            "at the size of the image.",
        )
        add("Mask", self._mask, "Label only where this layer is not 0.")

    def _on_image_changed(self, layer: Any) -> None:
        blocked = self._channels.blockSignals(True)
        before = self._channels.currentText()
        self._channels.clear()
        self._channels.addItem("none", None)
        axes = channel_axes(layer)
        for words, axis in axes:
            self._channels.addItem(words, axis)
        # An axis of the same name with as many channels holds channels again.
        self._channels.setCurrentIndex(max(0, self._channels.findText(before)))
        self._channels.blockSignals(blocked)
        self.section.show_row(self._channels, bool(axes))
        self._on_channels_changed()

    def _on_channels_changed(self) -> None:
        self.section.show_row(self._extent, len(self._axes()) > 2)
        self._offer_volumes(len(self._axes()) > 3)
        names = [name for name in FEATURES if name != "lab" or self._n_channels() == 3]
        self._features.set_others([(FEATURE_WORDS.get(name, name), name) for name in names])
        self._offer_groups()
        self.axes_changed.emit()

    def _on_extent_changed(self) -> None:
        self._offer_groups()
        self.axes_changed.emit()

    def _offer_volumes(self, are_there: bool) -> None:
        """Offer to label every volume by itself, such as those of a time series, or do not."""
        place = self._extent.findData(_VOLUMES)
        if are_there and place < 0:
            before = self._extent.findData(_VOLUME)
            self._extent.insertItem(before, "each volume by itself", _VOLUMES)
        elif place >= 0 and not are_there:
            self._extent.removeItem(place)

    def _offer_groups(self) -> None:
        """Offer what the image itself tells: slices that are labelled together, channels."""
        if self.image is None:
            return
        entries: list[tuple[str, object]] = []
        if len(self._axes()) > 2:
            if self._extent.currentData() != _SLICE:
                for number, axis in enumerate(self._axes()):
                    if axis not in self._in_plane():
                        name = self.image.axis_labels[axis]
                        entries.append((f"slices along axis {name}", f"axis:{number}"))
        for channel in range(self._n_channels()):
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
        return int(pixels_of(self.image).shape[axis])

    def _in_plane(self) -> tuple[int, ...]:
        """Return the two spatial axes that are on screen, or would be in 2-D."""
        return plane_on_screen(self._viewer, self.image, self._axes())

    def _seen_together(self) -> tuple[int, ...]:
        """Return the axes along which neighbours are averaged."""
        extent = self._extent.currentData() if len(self._axes()) > 2 else _VOLUME
        if extent == _EACH:
            return self._in_plane()
        if extent == _VOLUMES:
            return plane_on_screen(self._viewer, self.image, self._axes(), 3)
        return self._axes()

    def _fixed(self) -> dict[int, int]:
        """Return the axes of which one slice is labelled, and which slice that is."""
        if len(self._axes()) <= 2 or self._extent.currentData() != _SLICE:
            return {}
        return slice_on_screen(self._viewer, self.image, self._axes())

    def _index(self) -> Index:
        fixed = self._fixed()
        return tuple(fixed.get(axis, slice(None)) for axis in range(self.image.ndim))

    def _options(self) -> ImageOptions:
        axis, fixed = self._channels.currentData(), self._fixed()
        kept = [a for a in self._axes() if a not in fixed]
        groups = self._groups.value if self._has_groups else None
        return ImageOptions(
            features="array" if self._features.layer is not None else self._features.value,
            window=self._window(),
            weights=self._weights.currentData(),
            channel_axis=None if axis is None else sum(a < axis for a in kept),
            groups=groups if isinstance(groups, str) else None,
            max_side=self._max_side.currentData(),
        )

    def _widths(self) -> dict[int, int]:
        """Return the scale along each axis that is labelled; 1 across slices by themselves."""
        fixed, together = self._fixed(), self._seen_together()
        kept = (axis for axis in self._axes() if axis not in fixed)
        return {axis: self.scale.value if axis in together else 1 for axis in kept}

    def _window(self) -> int | tuple[int, ...]:
        """Return the scale, along each axis no larger than the image is."""
        shape = pixels_of(self.image).shape
        window = tuple(fit(width, shape[axis]) for axis, width in self._widths().items())
        return self.scale.value if set(window) == {self.scale.value} else window

    def _may_be_features(self, layer: Layer) -> bool:
        """Tell whether a layer has the pixels of the image and an axis more."""
        if not isinstance(layer, Image) or self.image is None or layer == self.image:
            return False
        return self._axis_of_features(layer) is not None

    def _axis_of_features(self, layer: Layer) -> int | None:
        sides = [pixels_of(self.image).shape[axis] for axis in self._axes()]
        return axis_of_features(pixels_of(layer).shape, sides)

    def _given_features(self) -> tuple[Any, Index, int]:
        """Return the pixels of a layer of features, what to read of them, and their axis then."""
        layer = self._features.layer
        axis = None if layer is None else self._axis_of_features(layer)
        if axis is None:
            return None, (), -1
        return pixels_of(layer), *part_of_features(axis, self._axes(), self._fixed())

    def _over(self, layer: Labels | None) -> tuple[Any, Index]:
        """Return the pixels of labels, and what to read of them over the part of the image."""
        if layer is None:
            return None, ()
        pixels, channels = pixels_of(layer), self._channels.currentData()
        n_axes, fixed = self.image.ndim, self._fixed()
        return pixels, part_of_labels(pixels.shape, n_axes, self._axes(), fixed, channels)


def _may_hold_strokes(layer: Layer) -> bool:
    """Tell whether a layer holds labels that were not computed here."""
    return isinstance(layer, Labels) and METADATA_KEY not in layer.metadata


def _combobox(parent: QWidget | None = None) -> QComboBox:
    box = QComboBox(parent)
    box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
    return box
