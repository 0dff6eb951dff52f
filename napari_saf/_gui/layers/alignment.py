"""Which region of which image a Labels layer covers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import napari
from napari.layers import Image, Labels

from napari_saf._gui.layers.metadata import metadata_of
from napari_saf._gui.layers.placement import pixels_of
from napari_saf._gui.layers.reading import Index


def image_axes_of(layer: Labels) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return which axis of the labelled image each axis is, and those that stand for one slice.

    None where that is not known, or the layer's pixels were replaced by others.
    """
    entry, shape = metadata_of(layer), pixels_of(layer).shape
    axes, singletons = entry.get("axes"), entry.get("singletons")
    if not isinstance(axes, tuple) or not isinstance(singletons, tuple):
        return None
    is_as_it_was = len(axes) == len(shape) and all(shape[axis] == 1 for axis in singletons)
    return (axes, singletons) if is_as_it_was else None


def channel_axis_of(layer: Labels) -> int | None:
    """Return the axis of labels that stands for all channels of the image, if they have one."""
    found = metadata_of(layer).get("channels")
    return found if isinstance(found, int) and image_axes_of(layer) is not None else None


def labelled_axes(layer: Labels) -> list[int]:
    """Return the axes along which pixels were labelled; where not known, those to keep."""
    recorded, shape = image_axes_of(layer), pixels_of(layer).shape
    if recorded is not None:
        return [axis for axis in range(len(shape)) if axis not in recorded[1]]
    last = len(shape) - 2
    return [axis for axis, side in enumerate(shape) if side > 1 or axis >= last]


def squeezed_axes(layer: Labels) -> list[int]:
    """Return the axes of labels but those of length 1 before the plane."""
    labelled, shape = labelled_axes(layer), pixels_of(layer).shape
    return [axis for axis in labelled if shape[axis] > 1 or axis in labelled[-2:]]


def labelled_image(
    viewer: napari.Viewer, layer: Labels, fits: Callable[[Any], bool]
) -> Image | None:
    """Return the image that was labelled; else one of the layer's name, else any that fits."""
    fitting = [image for image in viewer.layers if fits(image)]
    own = [image for image in fitting if str(image.unique_id) == metadata_of(layer).get("image")]
    named = [image for image in fitting if layer.name.startswith(image.name)]
    named.sort(key=lambda image: -len(image.name))
    return next(iter([*own, *named, *fitting]), None)


def image_region(
    layer: Labels, image: Image, spatial: list[int] | None = None
) -> tuple[Index, int | None] | None:
    """Return the region of an image under labels and its channel axis; None if not aligned.

    Of the axes of the labels `spatial` stay, by default those that `squeezed_axes` names.
    """
    spatial = squeezed_axes(layer) if spatial is None else spatial
    own_channels = channel_axis_of(layer)
    if image.ndim == layer.ndim and own_channels is not None and not image.rgb:
        return _region_with_channels(layer, image, own_channels, spatial)
    if image.ndim == layer.ndim:
        index = _region(layer, image, list(enumerate(range(image.ndim))), spatial)
        channel = -1 if image.rgb else None
        return None if index is None else (index, channel)
    if image.ndim != layer.ndim + 1 or image.rgb:
        return None
    recorded = image_axes_of(layer)
    own = recorded[0] if recorded is not None else ()
    # Where the image is of the same kind, the axis that is none of the labels' holds channels.
    for channel in sorted(range(image.ndim), key=lambda axis: axis in own):
        axes = [axis for axis in range(image.ndim) if axis != channel]
        index = _region(layer, image, list(enumerate(axes)), spatial)
        if index is not None:
            return _with_channels(index, channel)
    return None


def _region_with_channels(
    layer: Labels, image: Image, channel: int, spatial: list[int]
) -> tuple[Index, int | None] | None:
    """Return the region of an image under labels that have its channel axis, too; or None."""
    pairs = [(axis, axis) for axis in range(image.ndim) if axis != channel]
    index = _region(layer, image, pairs, spatial)
    return None if index is None else _with_channels(index, channel)


def _with_channels(index: Index, channel: int) -> tuple[Index, int | None]:
    n_before = sum(isinstance(one, slice) for one in index[:channel])
    return (*index[:channel], slice(None), *index[channel:]), n_before


def _region(
    layer: Labels, image: Image, pairs: list[tuple[int, int]], spatial: list[int]
) -> Index | None:
    """Return the index of some axes of an image that the labels cover, or None.

    The pairs are an axis of the labels and that of the image.
    """
    found: list[int | slice] = []
    for k, axis in pairs:
        side, whole = pixels_of(layer).shape[k], pixels_of(image).shape[axis]
        start = 0
        if side != whole:
            start = round((layer.translate[k] - image.translate[axis]) / image.scale[axis])
        if start < 0 or start + side > whole:
            return None
        found.append(slice(start, start + side) if k in spatial else start)
    return tuple(found)
