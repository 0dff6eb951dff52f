"""What images say of their pixels: scaled values, features and their distances, groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter
from skimage import color, feature, filters

from napari_saf.arrays import as_array, as_whole
from napari_saf.device import Tensor, raise_if_interrupted, torch
from napari_saf.errors import InvalidInput


@dataclasses.dataclass(frozen=True, slots=True)
class Scaling:
    """The affine map of image values `low` and `high` to 0 and 1; what lies outside is clipped."""

    low: float
    high: float

    @classmethod
    def given(cls, low: float, high: float) -> Scaling:
        """Return the scaling of bounds that a user gave, if that is a range that float32 holds."""
        least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        if not (max(abs(low), abs(high)) <= most and least <= high - low <= most):
            raise InvalidInput(
                f"scaling: expected low below high, {least:.1e} to {most:.1e} apart, "
                f"got {low:g} and {high:g}"
            )
        return cls(low, high)

    @classmethod
    def of(cls, images: Sequence[NDArray[np.generic]]) -> Scaling:
        """Return the scaling for finite image values (any shape), all images together.

        0.1 % at either end are left out where that leaves a range, so that a few hot pixels
        do not flatten all the rest. Raises InvalidInput if all values are equal.
        """
        low = min(float(np.min(image)) for image in images)
        high = max(float(np.max(image)) for image in images)
        if low == high:
            raise InvalidInput(f"image: expected differing values, all of them are {low:g}")
        sample = np.concatenate([_thinned(image) for image in images])
        inner = np.percentile(sample, [0.1, 99.9])
        return cls(*(float(x) for x in inner)) if inner[0] < inner[1] else cls(low, high)

    def apply(self, image: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the image as float32 in [0, 1]."""
        short = image.dtype.itemsize <= 2 or image.dtype == np.float32
        values: NDArray[Any] = image.astype(np.float32 if short else np.float64)
        # Halved, so that the range of any two floats is a float.
        values *= 0.5
        values -= values.dtype.type(0.5 * self.low)
        values /= values.dtype.type(0.5 * self.high - 0.5 * self.low)
        return np.asarray(np.clip(values, 0, 1), dtype=np.float32)

    def share_outside(self, images: Sequence[NDArray[np.generic]]) -> float:
        """Return the share of the values, estimated from a sample, that would be clipped."""
        values = np.concatenate([_thinned(image) for image in images])
        return float(np.mean((values < self.low) | (values > self.high)))


def _thinned(image: NDArray[np.generic], size: int = 1_000_000) -> NDArray[np.float64]:
    flat = image.reshape(-1)
    return flat[:: max(1, len(flat) // size)].astype(np.float64)


def is_rgb(shape: Sequence[int]) -> bool:
    """Return whether an image of this shape may be RGB(A): a last axis of 3 or 4."""
    return len(shape) >= 3 and shape[-1] in (3, 4)


def channels_last(
    image: ArrayLike, channel_axis: int | None
) -> tuple[NDArray[np.generic], int | None]:
    """Return the image with its channels as last axis, and the number of that axis as given.

    Without a channel axis, a last axis of length 3 or 4 is taken for RGB(A) and any other
    image gets one channel. The alpha of RGBA is dropped.
    """
    array = as_array(image, "image")
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"image: expected real numbers, got dtype {array.dtype}")
    if array.ndim < 1 + (channel_axis is not None) or array.size == 0:
        raise InvalidInput(f"image: expected pixels, got an array of shape {array.shape}")
    if channel_axis is None:
        if not is_rgb(array.shape):
            return array[..., None], None
        return array[..., :3], array.ndim - 1
    axis = as_whole(channel_axis)
    if axis is None or not -array.ndim <= axis < array.ndim:
        raise InvalidInput(f"channel_axis: the image has {array.ndim} axes, got {channel_axis!r}")
    return np.moveaxis(array, axis, -1), axis % array.ndim


def _lab(image: NDArray[np.float32], *_: object) -> NDArray[np.float32]:
    if image.shape[-1] != 3:
        raise InvalidInput(f"features 'lab': expected 3 channels, got {image.shape[-1]}")
    flat, found = image.reshape(-1, 3), np.empty((image.size // 3, 3), np.float32)
    for start in range(0, len(flat), _INTERRUPTED_EVERY):
        rows = slice(start, start + _INTERRUPTED_EVERY)
        found[rows] = color.rgb2lab(flat[rows]) / 100
        raise_if_interrupted()
    return found.reshape(image.shape)


def _multiscale(image: NDArray[np.float32], *_: object) -> NDArray[np.float32]:
    thin = [axis for axis, side in enumerate(image.shape[:-1]) if side == 1]
    for axis in thin:
        # Differences want two pixels; along a copy there are none.
        image = image.repeat(2, axis)
    longest = max(image.shape[:-1])
    widest = min(8, max(1, longest // 8))
    widths = np.logspace(0, np.log2(widest), num=int(np.log2(widest)) + 1, base=2)
    jobs = [(channel, width) for channel in np.moveaxis(image, -1, 0) for width in widths]
    n_each = image.ndim + 1
    features = np.empty((*image.shape[:-1], len(jobs) * n_each), np.float32)
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        # Each with what interrupts this thread.
        found = [pool.submit(copy_context().run, _at_width, *job) for job in jobs]
        for k, each in enumerate(found):
            for at, own in enumerate(each.result(), start=k * n_each):
                features[..., at] = own
                raise_if_interrupted()
    first = tuple(slice(1 if axis in thin else None) for axis in range(image.ndim - 1))
    raise_if_interrupted()
    return standardized(features[first])


def _at_width(channel: NDArray[np.float32], width: float) -> list[NDArray[np.float32]]:
    """Return brightness, edges and curvatures of a plane or volume blurred by a width.

    As `skimage.feature.multiscale_basic_features`, which cannot be interrupted.
    """
    blurred = filters.gaussian(np.ascontiguousarray(channel), sigma=width)
    raise_if_interrupted()
    found = [blurred, filters.sobel(blurred)]
    raise_if_interrupted()
    slopes = np.gradient(blurred)
    slopes = slopes if blurred.ndim > 1 else [slopes]
    bends = []
    for first, second in combinations_with_replacement(range(blurred.ndim), 2):
        bends.append(np.gradient(slopes[first], axis=second))
        raise_if_interrupted()
    curvatures = np.empty((blurred.ndim, *blurred.shape), blurred.dtype)
    n_rows = max(1, _INTERRUPTED_EVERY * len(blurred) // blurred.size)
    for start in range(0, len(blurred), n_rows):
        rows = slice(start, start + n_rows)
        curvatures[:, rows] = feature.hessian_matrix_eigvals([bend[rows] for bend in bends])
        raise_if_interrupted()
    return [*found, *curvatures]


_INTERRUPTED_EVERY = 2**20
"""So many pixels of a volume take a second where most is done."""


def standardized(features: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return features, channels last, of which each weighs the same.

    Their mean is 0, and the variances sum to that of a uniform variable in [0, 1]: distances
    stay in the range of an image.
    """
    values = np.asarray(features, dtype=np.float32)
    flat = values.reshape(-1, values.shape[-1])
    spread = flat.std(axis=0)
    raise_if_interrupted()
    scale = np.where(spread > 1e-6, spread, 1) * np.sqrt(12 * flat.shape[1])
    mean, found = flat.mean(axis=0), np.empty(flat.shape, np.float32)
    raise_if_interrupted()
    for start in range(0, len(flat), _INTERRUPTED_EVERY):
        rows = slice(start, start + _INTERRUPTED_EVERY)
        found[rows] = (flat[rows] - mean) / scale
        raise_if_interrupted()
    return found.reshape(values.shape)


def _texture(
    image: NDArray[np.float32],
    axes: Sequence[int] | None = None,
    inside: NDArray[np.bool_] | None = None,
) -> NDArray[np.float32]:
    """Return perceived colour, or intensities, and how much lightness varies around a pixel."""
    colour = _lab(image) if image.shape[-1] == 3 else image
    raise_if_interrupted()
    light = colour[..., 0] if image.shape[-1] == 3 else image.mean(axis=-1)
    weight = np.ones_like(light) if inside is None else inside.astype(np.float32)
    along = tuple(range(light.ndim) if axes is None else axes)
    blurred = []
    for x in (1.0, light, light**2):
        blurred.append(gaussian_filter(weight * x, _AROUND, axes=along))
        raise_if_interrupted()
    mean, square = (x / np.maximum(blurred[0], 1e-6) for x in blurred[1:])
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    return np.concatenate([colour, _TEXTURE_WEIGHT * deviation[..., None]], axis=-1)


_AROUND, _TEXTURE_WEIGHT = 2.0, 2.0
"""Width in pixels of what is around, and weight beside colour: the best of those that were tried on
photographs that people segmented."""


def _position(image: NDArray[np.float32], *_: object) -> NDArray[np.float32]:
    """Return perceived colour, or intensities, and the place in the image."""
    shape = image.shape[:-1]
    colour = _lab(image) if image.shape[-1] == 3 else image
    place = np.moveaxis(np.indices(shape, dtype=np.float32), 0, -1)
    place *= _POSITION_WEIGHT / max(shape)
    return np.concatenate([colour, place], axis=-1)


def colours_of(points: NDArray[np.floating], features: str) -> NDArray[np.floating] | None:
    """Return the colours (n_points, 3), 0 to 1, of named features; None if there are none."""
    if features == "texture":
        points, features = points[:, :-1], "lab" if points.shape[1] == 4 else "intensity"
    if features == "lab" and points.shape[1] == 3:
        return np.asarray(color.lab2rgb(100 * points.astype(float)))
    if features == "intensity" and points.shape[1] in (1, 3):
        return np.broadcast_to(np.clip(points, 0, 1), (len(points), 3))
    return None


_POSITION_WEIGHT = 0.3
"""Distance in feature space of the two ends of the longest side; black and white are 1 apart."""

FEATURES: dict[str, Callable[..., NDArray[np.float32]]] = {
    "intensity": lambda image, *_: image,
    "lab": _lab,
    "texture": _texture,
    "multiscale": _multiscale,
    "position": _position,
}
"""Feature names and what computes them: (..., channels) in [0, 1] to (..., n_features).

Beside the image they get the axes along which pixels are neighbours, and the mask if there is one.
"""

REACH = {"intensity": 0, "lab": 0, "texture": 8}  # 4 standard deviations, as scipy has it
"""How many pixels away a feature looks, of those that are the same in any part of an image."""

MAX_EXACT_FEATURES = 25
"""With more features, squared distances are computed by a product of matrices."""


def distances(features: Tensor, points: Tensor) -> Tensor:
    """Return |f_i - p_j| (n_nodes, n_points) from differences: products cancel far from 0."""
    return torch.cdist(features, points, compute_mode="donot_use_mm_for_euclid_dist")


def squared_distances(features: Tensor, points: Tensor, norms: Tensor | None = None) -> Tensor:
    """Return |f_i - p_j|^2 (..., n_nodes, n_points), by a product of matrices with many features.

    `norms`, the squared lengths of the features, spare a pass over them.
    """
    if features.shape[-1] <= MAX_EXACT_FEATURES:
        return distances(features, points).square_()
    own = features.square().sum(dim=-1) if norms is None else norms
    products = torch.matmul(features, points.transpose(-1, -2))
    products.mul_(-2).add_(own[..., None]).add_(points.square().sum(dim=-1)[..., None, :])
    return products.clamp_(min=0)


_GROUP_SOURCES = "'image', 'axis:N', 'channel:N' or 'channel:N:THRESHOLD'"


def check_group_source(source: str) -> str:
    """Return the text if it names a source of groups, or raise InvalidInput.

    ``"image"``: every image is a group; ``"axis:N"``: every position along axis N of the image
    without its channels, a slice or a time; ``"channel:N"``: two groups, channel N above or not
    above a threshold, found by Otsu's method, or given after another colon in units of the image.
    """
    _parse_groups(source)
    return source


def image_groups(
    source: str, arrays: Sequence[NDArray[Any]], masks: Sequence[NDArray[np.bool_] | None]
) -> list[NDArray[np.int64]]:
    """Return the groups 1, 2, ... of the pixels of images, whose channels come last.

    See `check_group_source`; pixels outside the masks do not count in a threshold.
    """
    kind, number, threshold = _parse_groups(source)
    if kind == "image":
        shapes = [array.shape[:-1] for array in arrays]
        return [np.full(shape, k, dtype=np.int64) for k, shape in enumerate(shapes, start=1)]
    if kind == "axis":
        n_axes = min(array.ndim for array in arrays) - 1
        if not 0 <= number < n_axes:
            raise InvalidInput(f"groups: expected an axis from 0 to {n_axes - 1}, got {number}")
        return [np.indices(array.shape[:-1])[number] + 1 for array in arrays]
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
        threshold = float(filters.threshold_otsu(seen + np.uint8(0)))  # bools have no histogram
    return [np.where(channel > threshold, 2, 1) for channel in channels]


def _parse_groups(source: str) -> tuple[str, int, float | None]:
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
    raise InvalidInput(f"groups: expected {_GROUP_SOURCES}, or arrays, got {source!r}")
