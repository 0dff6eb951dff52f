"""Which slice of a layer is on screen, and where labels of it lie in the world."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Layer


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """How a result layer is laid over its image.

    Attributes
    ----------
    singletons : tuple of int
        Axes of length 1 that stand for the slice that was labelled, or for all channels.
    axes : tuple of int
        The axis of the image that each axis of the layer is.
    transform : dict
        Arguments of the layer: scale, translate, units, axis_labels, and what turns it.
    channels : int or None
        The axis of the layer that stands for all channels, if it has one.
    """

    singletons: tuple[int, ...]
    axes: tuple[int, ...]
    transform: dict[str, Any]
    channels: int | None = None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the layer for labels of some shape."""
        sides = list(shape)
        for axis in self.singletons:
            sides.insert(axis, 1)
        return tuple(sides)


def place(
    layer: Image, axes: tuple[int, ...], fixed: dict[int, int], channels: int | None = None
) -> Placement:
    """Return the placement of labels over some axes of an image layer.

    Parameters
    ----------
    layer : Image
        The image.
    axes : tuple of int
        The spatial axes, ascending, without that of the channels.
    fixed : dict of int to int
        Those of them of which one slice is labelled, and which.
    channels : int, optional
        The axis of the channels. The layer has it too, unless it is the first: layers lie over each
        other by their last axes. It then has one pixel along it, as wide as all channels.
    """
    where: dict[int, float] = dict(fixed)
    n_channels = 1.0
    if channels:
        n_channels = float(layer.extent.data[1][channels]) + 1
        where[channels] = (n_channels - 1) / 2
        axes = tuple(sorted((*axes, channels)))
    chosen = list(axes)
    transform: dict[str, Any] = {
        "scale": np.asarray(layer.scale)[chosen],
        "translate": (np.asarray(layer.translate) + _offset(layer, where))[chosen],
        "units": tuple(layer.units[axis] for axis in chosen),
        "axis_labels": tuple(layer.axis_labels[axis] for axis in chosen),
    }
    if channels:
        transform["scale"][channels] *= n_channels
    if len(chosen) == layer.ndim:
        transform |= {
            "rotate": layer.rotate,
            "shear": layer.shear,
            "affine": layer.affine.affine_matrix,
        }
    else:
        affine = _remaining_affine(layer, where, transform, chosen)
        if not np.allclose(affine, np.eye(len(affine)), rtol=0, atol=_ROUNDING):
            transform["affine"] = affine
    singletons = tuple(chosen.index(axis) for axis in sorted(where))
    return Placement(singletons, tuple(axes), transform, channels or None)


_ROUNDING = 1e-9


def _remaining_affine(
    layer: Image, fixed: dict[int, float], transform: dict[str, Any], chosen: list[int]
) -> np.ndarray[Any, Any]:
    """Return what takes scaled and moved pixels of some axes to where the image has them."""
    start = _first_pixel(layer, fixed)
    first = np.asarray(layer.data_to_world(start))
    steps = [np.asarray(layer.data_to_world(start + unit)) - first for unit in np.eye(layer.ndim)]
    linear = np.array(steps).T[np.ix_(chosen, chosen)] / transform["scale"]
    affine = np.eye(len(chosen) + 1)
    affine[:-1, :-1] = linear
    affine[:-1, -1] = first[chosen] - linear @ transform["translate"]
    return affine


def _offset(layer: Image, fixed: dict[int, float]) -> np.ndarray[Any, Any]:
    """Return how far the first pixel of a slice is from the first pixel of the image."""
    first = np.asarray(layer.data_to_world(_first_pixel(layer, fixed)))
    moved = first - layer.data_to_world(np.zeros(layer.ndim))
    linear = np.asarray(layer.affine.linear_matrix)
    return np.asarray(np.linalg.solve(linear, moved))


def _first_pixel(layer: Image, fixed: dict[int, float]) -> np.ndarray[Any, Any]:
    start = np.zeros(layer.ndim)
    for axis, position in fixed.items():
        start[axis] = position
    return start


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """What to read of an image layer for a picture, and where labels of it lie.

    Attributes
    ----------
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
    return positions_on_screen(viewer, layer, [axis for axis in axes if axis not in plane])


def positions_on_screen(viewer: napari.Viewer, layer: Layer, axes: Iterable[int]) -> dict[int, int]:
    """Return the pixel of a layer, along each of some axes, at which the sliders stand."""
    point = layer.world_to_data(viewer.dims.point[-layer.ndim :])
    sides = pixels_of(layer).shape
    return {axis: int(np.clip(round(point[axis]), 0, sides[axis] - 1)) for axis in axes}


def channel_axes(layer: Layer | None) -> list[tuple[str, int]]:
    """Return the axes of a layer that may hold channels, each as a text and its number."""
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
