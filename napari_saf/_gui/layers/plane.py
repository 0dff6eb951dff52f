"""The 2-D picture of a layer that is on screen."""

from __future__ import annotations

import dataclasses
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Layer

from napari_saf._gui.layers.placement import Placement, place

__all__ = [
    "Plane",
    "channel_axes",
    "pixels_of",
    "plane_of",
    "plane_on_screen",
    "slice_on_screen",
]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """What to read of an image layer for a picture, and where labels of it lie.

    Attributes
    ----------
    layer : Image
    index : tuple of int or slice
        What to read, one entry per axis.
    channel_axis : int or None
        The axis of the channels after reading; None where the layer is grey or RGB.
    placement : Placement
        Where labels lie.
    placement_with_channels : Placement
        Where a picture with these channels lies.
    """

    layer: Image
    index: tuple[int | slice, ...]
    channel_axis: int | None
    placement: Placement
    placement_with_channels: Placement


def plane_of(viewer: napari.Viewer, layer: Image, channel_axis: int | None = None) -> Plane:
    """Return the picture of a layer: the slice on screen, with the channels of an axis, if any.

    That axis is counted from the end, as layers of different numbers of axes lie over each other:
    -1 is the last.
    """
    every = tuple(range(layer.ndim))
    may_have_channels = channel_axis is not None and layer.ndim > 2 and not layer.rgb
    channels = layer.ndim + channel_axis if may_have_channels else -1
    axes = tuple(axis for axis in every if axis != channels)
    fixed = slice_on_screen(viewer, layer, axes)
    return Plane(
        layer,
        tuple(fixed.get(axis, slice(None)) for axis in every),
        sum(axis not in fixed for axis in range(channels)) if channels >= 0 else None,
        place(layer, axes, fixed, channels if channels >= 0 else None),
        place(layer, every, fixed),
    )


def plane_on_screen(
    viewer: napari.Viewer, layer: Layer, axes: tuple[int, ...], n_shown: int = 2
) -> tuple[int, ...]:
    """Return those of some axes of a layer that are on screen, or would be in 2-D (or 3-D)."""
    missing = viewer.dims.ndim - layer.ndim
    order = [axis - missing for axis in viewer.dims.order]
    return tuple([axis for axis in order if axis in axes][-n_shown:])


def slice_on_screen(viewer: napari.Viewer, layer: Layer, axes: tuple[int, ...]) -> dict[int, int]:
    """Return the axes across the plane on screen, and which slice is there."""
    plane = plane_on_screen(viewer, layer, axes)
    point = layer.world_to_data(viewer.dims.point[-layer.ndim :])
    sides = pixels_of(layer).shape
    return {
        axis: int(np.clip(round(point[axis]), 0, sides[axis] - 1))
        for axis in axes
        if axis not in plane
    }


def channel_axes(layer: Layer | None) -> list[tuple[str, int]]:
    """Return the axes of a layer that may hold channels, each in words and as a number."""
    if layer is None or layer.rgb or layer.ndim < 3:
        return []
    named = zip(layer.axis_labels, pixels_of(layer).shape, strict=True)
    return [
        (f"{name}  ({side} channel{'s' * (side != 1)})", axis)
        for axis, (name, side) in enumerate(named)
    ]


def pixels_of(layer: Layer) -> Any:
    """Return the data of a layer at full resolution."""
    return layer.data[0] if layer.multiscale else layer.data
