"""Shapes of grids, and the windows and masks that fit them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_whole
from napari_saf.errors import InvalidInput


def check_window(
    window: int | Sequence[int], shape: Sequence[int], name: str = "window"
) -> tuple[int, ...]:
    """Return the window as one odd side length per axis, or raise InvalidInput."""
    given = np.asarray(window)
    sides = given.tolist() if given.ndim else [given.item()] * len(shape)
    if len(sides) != len(shape):
        raise InvalidInput(
            f"{name}: expected one side length or {len(shape)} of them, got {len(sides)}"
        )
    found = [as_whole(side) or 0 for side in sides]
    for side, whole, length in zip(sides, found, shape, strict=True):
        if whole < 1 or whole % 2 == 0:
            raise InvalidInput(f"{name}: expected odd side lengths of 1 or more, got {side}")
        if length > 1 and whole > length:
            raise InvalidInput(
                f"{name}: {side} is larger than the image, whose shape is {tuple(shape)}"
            )
    return tuple(found)


def inside_of(mask: ArrayLike) -> NDArray[np.bool_]:
    """Return where a mask is not 0; raise InvalidInput if it is NaN anywhere."""
    array = np.asarray(mask)
    if array.dtype.kind == "f":
        n_unknown = int(np.isnan(array).sum())
        if n_unknown:
            raise InvalidInput(
                f"mask: expected numbers, 0 outside, {n_unknown} of {array.size} pixels are NaN"
            )
    return np.asarray(array != 0, dtype=bool)


def check_mask(mask: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """Return the mask as bools (None where it is everywhere), or raise InvalidInput."""
    if mask is None:
        return None
    array = inside_of(mask)
    if array.shape != shape:
        raise InvalidInput(f"mask: expected the image's shape {shape}, got {array.shape}")
    if not array.any():
        raise InvalidInput("mask: expected at least one pixel inside, got an empty mask")
    return None if array.all() else array


def coarse_shape(shape: Sequence[int], max_side: int, window: Sequence[int]) -> tuple[int, ...]:
    """Return the shape reduced so that no side is longer than `max_side`.

    All axes shrink alike, but those of window 1 next to wider ones, along which nothing is
    averaged, and sides that would become shorter than their window.
    """
    shrinks = [width > 1 or max(window) == 1 for width in window]
    longest = max(side for side, one in zip(shape, shrinks, strict=True) if one)
    ratio = min(max_side, longest) / longest
    return tuple(
        max(min(side, width), round(side * ratio)) if one else side
        for side, width, one in zip(shape, window, shrinks, strict=True)
    )
