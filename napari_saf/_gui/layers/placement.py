"""Where the labels of a part of an image lie in the world."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from napari.layers import Image

__all__ = ["Placement", "place"]


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
