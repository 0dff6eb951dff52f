"""Groups of pixels that an image itself tells: by image, by slice, by a channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.filters import threshold_otsu

from napari_saf.errors import InvalidInput

__all__ = ["check_group_source", "image_groups"]

_EXPECTED = "'image', 'axis:N', 'channel:N' or 'channel:N:THRESHOLD'"


def check_group_source(source: str) -> str:
    """Return the words if they name a source of groups.

    Parameters
    ----------
    source : str
        ``"image"`` (every image is a group), ``"axis:N"`` (every position along axis N of the
        image without its channels: a slice, a time), ``"channel:N"`` (two groups: channel N
        above or not above a threshold, found by Otsu's method, or given after another colon
        in units of the image).

    Raises
    ------
    InvalidInput
        If they do not.
    """
    _parse(source)
    return source


def image_groups(
    source: str, arrays: Sequence[NDArray[Any]], masks: Sequence[NDArray[np.bool_] | None]
) -> list[NDArray[np.int64]]:
    """Return the groups 1, 2, ... of the pixels of images.

    Parameters
    ----------
    source : str
        See `check_group_source`.
    arrays : sequence of array
        Images with the channels last.
    masks : sequence of array of bool or None
        Which pixels are labelled; others do not count in a threshold.

    Returns
    -------
    list of array of int
        One per image, in its shape without channels.

    Raises
    ------
    InvalidInput
        If an image has no such axis or channel, or the channel is constant.
    """
    kind, number, threshold = _parse(source)
    if kind == "image":
        shapes = [array.shape[:-1] for array in arrays]
        return [np.full(shape, k, dtype=np.int64) for k, shape in enumerate(shapes, start=1)]
    if kind == "axis":
        return [_along(array.shape[:-1], number) for array in arrays]
    for array in arrays:
        if not 0 <= number < array.shape[-1]:
            raise InvalidInput(
                f"groups: expected a channel from 0 to {array.shape[-1] - 1}, got {number}"
            )
    channels = [np.asarray(array[..., number]) for array in arrays]
    if threshold is None:
        pairs = zip(channels, masks, strict=True)
        seen = np.concatenate([c.ravel() if m is None else c[m] for c, m in pairs])
        if seen.min() == seen.max():
            raise InvalidInput(f"groups: channel {number} is constant, it makes one group only")
        threshold = float(threshold_otsu(seen + np.uint8(0)))  # bools have no histogram
    return [np.where(channel > threshold, 2, 1) for channel in channels]


def _along(shape: tuple[int, ...], axis: int) -> NDArray[np.int64]:
    if not 0 <= axis < len(shape):
        raise InvalidInput(f"groups: expected an axis from 0 to {len(shape) - 1}, got {axis}")
    positions = np.arange(1, shape[axis] + 1)
    sides = [1] * len(shape)
    sides[axis] = shape[axis]
    return np.broadcast_to(positions.reshape(sides), shape).copy()


def _parse(source: str) -> tuple[str, int, float | None]:
    kind, *rest = source.split(":")
    try:
        if kind == "image" and not rest:
            return kind, 0, None
        if kind == "axis" and len(rest) == 1:
            return kind, int(rest[0]), None
        if kind == "channel" and len(rest) in (1, 2):
            threshold = float(rest[1]) if len(rest) == 2 else None
            if threshold is None or np.isfinite(threshold):
                return kind, int(rest[0]), threshold
    except ValueError:
        pass
    raise InvalidInput(f"groups: expected {_EXPECTED}, or arrays, got {source!r}")
