"""Form of the input: image, region, scale, features, mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import napari
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QComboBox
from superqt.utils import signals_blocked

from napari_saf._gui.forms.fields import create_field
from napari_saf._gui.forms.image_selection import ImageSelection
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.scale import OddSlider
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import (
    Placement,
    channel_axes,
    pixels_of,
    plane_on_screen,
    slice_on_screen,
)
from napari_saf._gui.layers.reading import ImageJob, Index
from napari_saf.parameters import describe
from napari_saf.problem import ImageOptions

_DEFAULT_WINDOW = 5
_SLICE, _EACH, _VOLUMES, _VOLUME = "slice", "each", "volumes", "volume"
_MAX_SIDES = (240, 480, 960)
_COLOURS = ("red", "green", "blue")
_OPTIONS = {option.name: option for option in describe(ImageOptions)}
FEATURE_LABELS = dict(_OPTIONS["features"].choice_labels)
_HELP = {
    "image": "The image layer to label.",
    "channel_axis": "The axis that holds channels, not space; named as its slider is.",
    "extent": "What to label of a stack: the slice on screen; every slice by itself, with "
    "the same labels in all; every volume of a series likewise; or all as one volume.",
    "strokes": "A Labels layer in which some pixels were painted 1, 2, ...: their labels are kept, "
    "and all other pixels follow.",
    "groups": "What each label should be spread over: slices, bright and dark pixels of a channel, "
    "or the regions of a Labels layer (V).",
    "features": "What describes a pixel: computed here, or the channels of another image layer of "
    "the same size.",
    "mask": "Label only where this layer is not 0.",
}


class ImageInput(QObject):
    """Controls of the image input, in two sections and a scale.

    Parameters
    ----------
    options : ImageOptions, optional
        What to begin with.
    strokes : str, optional
        Label of no strokes; None: there is no such choice.

    Attributes
    ----------
    section, features : FormSection
        Image and its axes; features, neighbours and mask. To be laid out by the owner.
    channels, extent : QComboBox
        The axis of the channels; what to label of a stack.
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
        assert isinstance(options.window, int)
        self._viewer, self._has_groups = viewer, False
        self.scale = OddSlider(options.window)
        self.channels, self.extent = QComboBox(), QComboBox()
        self._image = LayerChoice(viewer, lambda layer: isinstance(layer, Image))
        self._strokes = LayerChoice(viewer, _may_hold_strokes, none=strokes)
        self._groups = LayerChoice(viewer, _is_labels, none="none")
        self._features = LayerChoice(viewer, self._may_be_features)
        self._mask = LayerChoice(viewer, _is_labels, none="none")
        self._weights = create_field(_OPTIONS["weights"], viewer)
        self._max_side = QComboBox()
        self._max_side.addItem(_OPTIONS["max_side"].none, None)
        for side in _MAX_SIDES:
            self._max_side.addItem(f"at most {side} px a side", side)
        self._create_sections()
        self.channels.currentIndexChanged.connect(self._on_channels_changed)
        self.extent.currentIndexChanged.connect(self._on_extent_changed)
        self._image.layer_changed.connect(self._on_image_changed)
        self._weights.value = options.weights
        self.choose_max_side(options.max_side)
        self._on_image_changed(self.image)
        self.choose_features(options.features)
        self._image.layer_changed.connect(self.image_changed)
        self._strokes.layer_changed.connect(self.strokes_changed)

    @property
    def image(self) -> Any:
        """The chosen Image layer, or None."""
        return self._image.layer

    @property
    def strokes(self) -> Any:
        """The Labels layer of strokes that is chosen, or None."""
        return self._strokes.layer

    def job(self, *, finite_only: bool = False) -> ImageJob:
        """Return what to read of the image that is chosen."""
        chosen = self._selection()
        group_layer = self._groups.layer if self._has_groups else None
        mask, mask_index = chosen.over(self._mask.layer)
        groups, groups_index = chosen.over(group_layer)
        seeds, seeds_index = chosen.over(self.strokes)
        features, features_index, features_axis = chosen.features(self._features.layer)
        source = self._groups.value if self._has_groups else None
        return ImageJob(
            data=pixels_of(self.image),
            index=chosen.index,
            options=chosen.options(
                self.scale.value,
                features="array" if self._features.layer is not None else self._features.value,
                weights=self._weights.value,
                groups=source if isinstance(source, str) else None,
                max_side=self._max_side.currentData(),
            ),
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
        return self._selection().scale_note(self.scale.value, job.options.window)

    def placement(self) -> Placement:
        """Return where the labels of the present choice lie."""
        return self._selection().placement

    def whole(self) -> tuple[Placement, tuple[int, ...]]:
        """Return where labels of all slices would lie, and their shape."""
        return self._selection().whole()

    def index_of(self, layer: Labels) -> Index:
        """Return the index of a layer of labels over the region of the image."""
        return self._selection().over(layer)[1]

    def choose_image(self, layer: Layer) -> None:
        self._image.choose(layer)

    def choose_channels(self, axis: int | None) -> None:
        self.channels.setCurrentIndex(self.channels.findData(axis))

    def choose_extent(self, extent: str) -> None:
        """Choose "slice", "each", "volume" or, with four axes or more, "volumes"."""
        self.extent.setCurrentIndex(self.extent.findData(extent))

    def choose_strokes(self, layer: Layer | None) -> None:
        self._strokes.choose(layer)

    def choose_groups(self, value: object) -> None:
        """Choose a Labels layer as groups, or a name such as ``"axis:0"``."""
        self._groups.choose(value)

    def choose_features(self, name: str) -> None:
        """Choose features by name, if they are offered."""
        self._features.choose(name)

    def choose_feature_layer(self, layer: Layer) -> None:
        """Choose an image layer whose channels are the features, if it fits."""
        self._features.choose(layer)

    def choose_weights(self, name: str) -> None:
        """Choose how neighbours count."""
        self._weights.value = name

    def choose_max_side(self, side: int | None) -> None:
        """Choose the longest side at which to work."""
        self._max_side.setCurrentIndex(self._max_side.findData(side))

    def choose_mask(self, layer: Layer | None) -> None:
        self._mask.choose(layer)

    def show_groups(self, visible: bool) -> None:
        """Ask for groups, or do not."""
        self._has_groups = visible
        self.section.show_row(self._groups, visible)

    def show_weights(self, visible: bool) -> None:
        """Ask how neighbours count, or do not."""
        self.features.show_row(self._weights, visible)

    def group_label(self) -> str:
        """Return what stands for the groups on screen."""
        return str(self._groups.currentText())

    def feature_names(self) -> list[str]:
        """Return the names of the features that are offered."""
        return [name for name in self._features.values() if isinstance(name, str)]

    def release(self) -> None:
        """Let go of the viewer."""
        for choice in (self._image, self._strokes, self._groups, self._features, self._mask):
            choice.disconnect_viewer()

    def _create_sections(self) -> None:
        self.section, self.features = FormSection(), FormSection()
        self.section.add_row("Image", self._image, _HELP["image"])
        label = _OPTIONS["channel_axis"].label
        self.section.add_row(label, self.channels, _HELP["channel_axis"])
        self.section.add_row("Slices", self.extent, _HELP["extent"])
        self.section.add_row("Strokes", self._strokes, _HELP["strokes"])
        self.section.add_row(_OPTIONS["groups"].label, self._groups, _HELP["groups"])
        self.section.show_row(self._groups, False)
        self.features.add_row(_OPTIONS["features"].label, self._features, _HELP["features"])
        for name, field in (("weights", self._weights), ("max_side", self._max_side)):
            self.features.add_row(_OPTIONS[name].label, field, _OPTIONS[name].help)
        self.features.add_row("Mask", self._mask, _HELP["mask"])

    def _on_image_changed(self, layer: Any) -> None:
        axes = channel_axes(layer)
        # An axis of the same name with as many channels holds channels again.
        _offer(self.channels, [("none", None), *axes], self.channels.currentText())
        self.section.show_row(self.channels, bool(axes))
        self._on_channels_changed()

    def _on_channels_changed(self) -> None:
        entries = [("this slice", _SLICE), ("each slice by itself", _EACH)]
        entries += [("each volume by itself", _VOLUMES)] * (len(self._axes()) > 3)
        entries += [("as a volume", _VOLUME)]
        _offer(self.extent, entries, self.extent.currentText())
        self.section.show_row(self.extent, len(self._axes()) > 2)
        offered = [name for name in FEATURE_LABELS if name != "lab" or self._n_channels() == 3]
        self._features.set_others([(FEATURE_LABELS[name], name) for name in offered])
        self._on_extent_changed()

    def _on_extent_changed(self) -> None:
        self._offer_groups()
        self.axes_changed.emit()

    def _offer_groups(self) -> None:
        """Offer what the image itself defines: slices that are labelled together, channels."""
        if self.image is None:
            return
        entries: list[tuple[str, object]] = []
        if len(self._axes()) > 2 and self.extent.currentData() != _SLICE:
            plane = plane_on_screen(self._viewer, self.image, self._axes())
            entries += [
                (f"slices along axis {self.image.axis_labels[axis]}", f"axis:{number}")
                for number, axis in enumerate(self._axes())
                if axis not in plane
            ]
        for channel in range(self._n_channels()):
            text = f"{self._channel_label(channel)}: low and high"
            entries.append((text, f"channel:{channel}"))
        self._groups.set_others(entries)

    def _channel_label(self, channel: int) -> str:
        if self._n_channels() == 1:
            return "brightness"
        return _COLOURS[channel] if self.image.rgb else f"channel {channel}"

    def _n_channels(self) -> int:
        axis = self.channels.currentData()
        if self.image is None or axis is None:
            return 3 if self.image is not None and self.image.rgb else 1
        return int(pixels_of(self.image).shape[axis])

    def _axes(self) -> tuple[int, ...]:
        return () if self.image is None else self._selection().axes

    def _selection(self) -> ImageSelection:
        """Return what of the image is labelled, with the slices that are on screen."""
        image, channels = self.image, self.channels.currentData()
        whole = ImageSelection(image, channels, {}, tuple(range(image.ndim)))
        extent = self.extent.currentData() if len(whole.axes) > 2 else _VOLUME
        if extent == _VOLUME:
            return whole
        if extent == _SLICE:
            fixed = slice_on_screen(self._viewer, image, whole.axes)
            return ImageSelection(image, channels, fixed, whole.together)
        n_shown = 2 if extent == _EACH else 3
        together = plane_on_screen(self._viewer, image, whole.axes, n_shown)
        return ImageSelection(image, channels, {}, together)

    def _may_be_features(self, layer: Layer) -> bool:
        """Return whether a layer has the pixels of the image and an axis more."""
        if not isinstance(layer, Image) or self.image is None or layer == self.image:
            return False
        return self._selection().feature_axis(layer) is not None


def _offer(box: QComboBox, entries: Sequence[tuple[str, object]], before: str) -> None:
    """Offer labels and their values; keep the choice where its label is among them."""
    with signals_blocked(box):
        box.clear()
        for text, value in entries:
            box.addItem(text, value)
        box.setCurrentIndex(max(0, box.findText(before)))


def _is_labels(layer: Layer) -> bool:
    return isinstance(layer, Labels)


def _may_hold_strokes(layer: Layer) -> bool:
    """Return whether a layer holds labels that were not computed here."""
    return isinstance(layer, Labels) and METADATA_KEY not in layer.metadata
