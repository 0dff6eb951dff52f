"""The labelled region of an image layer, and the aligned regions of other layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from napari.layers import Image, Labels, Layer

from napari_saf._gui.forms.scale import fit, fit_note
from napari_saf._gui.layers.placement import Placement, pixels_of, place
from napari_saf._gui.layers.reading import Index, feature_axis, feature_index, labels_index
from napari_saf.problem import ImageOptions


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageSelection:
    """The axes of an image and the slices of it that are labelled.

    Attributes
    ----------
    channel_axis : int or None
        The axis that holds channels.
    fixed : mapping of int to int
        The axes of which one slice is labelled, and which slice.
    together : tuple of int
        The axes along which neighbours are averaged.
    """

    image: Image
    channel_axis: int | None
    fixed: Mapping[int, int]
    together: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """The spatial axes."""
        return tuple(axis for axis in range(self.image.ndim) if axis != self.channel_axis)

    @property
    def index(self) -> Index:
        """What to read of the image."""
        return tuple(self.fixed.get(axis, slice(None)) for axis in range(self.image.ndim))

    @property
    def placement(self) -> Placement:
        """Where the labels lie."""
        return place(self.image, self.axes, dict(self.fixed), self.channel_axis)

    def whole(self) -> tuple[Placement, tuple[int, ...]]:
        """Return where labels of all slices would lie, and their shape."""
        shape = pixels_of(self.image).shape
        found = place(self.image, self.axes, {}, self.channel_axis)
        return found, found.shape(tuple(shape[axis] for axis in self.axes))

    def over(self, layer: Labels | None) -> tuple[Any, Index]:
        """Return the pixels of labels and the index of those over the region of the image."""
        if layer is None:
            return None, ()
        pixels, n_axes = pixels_of(layer), self.image.ndim
        index = labels_index(pixels.shape, n_axes, self.axes, self.fixed, self.channel_axis)
        return pixels, index

    def features(self, layer: Layer | None) -> tuple[Any, Index, int]:
        """Return the pixels of a layer of features, what to read of them, and their axis then."""
        axis = None if layer is None else self.feature_axis(layer)
        if axis is None:
            return None, (), -1
        return pixels_of(layer), *feature_index(axis, self.axes, self.fixed)

    def feature_axis(self, layer: Layer) -> int | None:
        """Return the one axis that a layer has more than the image; None if it does not fit."""
        sides = [pixels_of(self.image).shape[axis] for axis in self.axes]
        return feature_axis(pixels_of(layer).shape, sides)

    def options(self, side: int, **others: Any) -> ImageOptions:
        """Return options whose window has a side, along each axis no larger than the image."""
        shape = pixels_of(self.image).shape
        window = tuple(fit(width, shape[axis]) for axis, width in self._widths(side).items())
        axis = self.channel_axis
        return ImageOptions(
            window=side if set(window) == {side} else window,
            channel_axis=None if axis is None else sum(a < axis for a in self._widths(side)),
            **others,
        )

    def scale_note(self, side: int, window: int | tuple[int, ...]) -> str:
        """Return along which axes a window is smaller than a side, and how wide."""
        if isinstance(window, int):
            return ""
        widths = self._widths(side)
        axes = [self.image.axis_labels[axis] for axis in widths]
        return fit_note(tuple(widths.values()), window, axes)

    def _widths(self, side: int) -> dict[int, int]:
        """Return the scale along each axis that is labelled; 1 across slices by themselves."""
        labelled = (axis for axis in self.axes if axis not in self.fixed)
        return {axis: side if axis in self.together else 1 for axis in labelled}
