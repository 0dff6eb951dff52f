"""Images as arrays: channels, intensity scaling, local means, groups of pixels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter, uniform_filter1d
from skimage import filters

from napari_saf.arrays import (
    Array,
    Bools,
    Float32s,
    Float64s,
    Floats,
    Int64s,
    Mask,
    Region,
    all_finite,
    as_array,
    as_whole,
    boxes,
    check_mask,
)
from napari_saf.device import in_threads, raise_if_interrupted
from napari_saf.errors import InvalidInput, NotFinite
from napari_saf.graph import CoarseMeans

Values = Float32s

_MOST_SAMPLED, _LEAST_SAMPLED = 2**20, 1000
"""Most values sampled for the scaling, and least number of them for percentiles."""
_FAR = 8
"""Most pixels per block for smoothing at full size; larger blocks are averaged first."""
_READ = 2**22
"""Pixels per read of an image on disk, more for large chunks."""

_ROWS = 2**20
"""Pixels per block of standardization."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scaling:
    """Affine map of image values from [`low`, `high`] to [0, 1], clipped outside."""

    low: float
    high: float

    @classmethod
    def given(cls, low: float, high: float) -> Scaling:
        """Return the scaling for user-defined bounds; InvalidInput if out of range for float32."""
        least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        if not (max(abs(low), abs(high)) <= most and least <= high - low <= most):
            raise InvalidInput(
                f"scaling: expected low below high, {least:.1e} to {most:.1e} apart, "
                f"got {low:g} and {high:g}"
            )
        return cls(low, high)

    @classmethod
    def of(cls, images: Sequence[Array], masks: Sequence[Mask] | None = None) -> Scaling:
        """Return the joint scaling of finite values, clipping 0.1 % at each end."""
        inside = [None] * len(images) if masks is None else masks
        seen = [image if m is None else image[m] for image, m in zip(images, inside, strict=True)]
        low = min(float(np.min(image)) for image in seen)
        high = max(float(np.max(image)) for image in seen)
        n_values = sum(image.size for image in seen)
        return cls.between(low, high, n_values, _sample_of(images, inside))

    @classmethod
    def between(cls, low: float, high: float, n_values: int, sample: Float64s) -> Scaling:
        """Return the scaling for `n_values` in a range, from a sample of them."""
        if low == high:
            raise InvalidInput(f"image: expected differing values, all of them are {low:g}")
        if len(sample) < min(n_values, _LEAST_SAMPLED):
            return cls(low, high)
        inner = np.percentile(sample, [0.1, 99.9])
        return cls(*(float(x) for x in inner)) if inner[0] < inner[1] else cls(low, high)

    def apply(self, image: Array) -> Float32s:
        """Return the image as float32 in [0, 1]."""
        short = image.dtype.itemsize <= 2 or image.dtype == np.float32
        values: Array = image.astype(np.float32 if short else np.float64)
        # halved, as the range of two floats may overflow
        values *= 0.5
        values -= values.dtype.type(0.5 * self.low)
        values /= values.dtype.type(0.5 * self.high - 0.5 * self.low)
        return np.asarray(np.clip(values, 0, 1), dtype=np.float32)

    def apply_to(
        self, pixels: Pixels, shape: tuple[int, ...], is_smoothed: bool = False
    ) -> tuple[Values, Mask]:
        """Return an image scaled to [0, 1] and resized to `shape`, channels last, and its mask."""
        n_each = 1
        if is_smoothed:
            far = _FAR if math.prod(shape) <= _MOST_SAMPLED else _FAR // 2
            is_far = max(np.divide(pixels.shape, shape)) > far
            n_each = far // 2 if is_far else far
        between = [min(n, n_each * m) for n, m in zip(pixels.shape, shape, strict=True)]
        means = CoarseMeans(pixels.shape, between)
        is_reduced = tuple(between) != pixels.shape
        if pixels.piece is None and shape == pixels.shape:
            image, small = pixels.read(tuple(slice(0, n) for n in shape))
            image = image if small is None else np.where(small[..., None], image, self.low)
            raise_if_interrupted()
            return self.apply(image), small
        result = np.empty((*between, pixels.n_channels), np.float32)
        small = np.zeros(between, bool) if pixels.has_mask else None
        for blocks in pixels.regions(between):
            values, inside = pixels.read(means.pixels_of(blocks))
            values = values if inside is None else np.where(inside[..., None], values, self.low)
            raise_if_interrupted()
            scaled = self.apply(values)
            result[blocks] = means(scaled, inside, blocks) if is_reduced else scaled
            if small is None:
                continue
            if is_reduced and inside is not None:
                inside = means(inside[..., None], None, blocks)[..., 0] > 1e-6
            small[blocks] = True if inside is None else inside
        if tuple(between) != shape:
            # four times the variance of a block: sigma 1 for 2 pixels
            ratios = np.divide(pixels.shape, between)
            variances = (np.divide(pixels.shape, shape) ** 2 - 1) / 3 - (ratios**2 - 1) / 12
            widths = np.sqrt(np.maximum(variances, 0)) / ratios
            result = smoothed(result, widths.tolist(), small)
            means = CoarseMeans(between, shape)
            result = means(result, small)
            small = None if small is None else means(small[..., None])[..., 0] > 1e-6
        raise_if_interrupted()
        return result, small

    def share_outside(self, images: Sequence[Array], masks: Sequence[Mask]) -> float:
        """Return the share of clipped values, estimated from a sample."""
        values = _sample_of(images, masks)
        return float(np.mean((values < self.low) | (values > self.high)))


def _lattice(shape: Sequence[int]) -> Region:
    """Return evenly spaced positions along each axis; all positions of a small image."""
    counts, steps = list(shape), [1] * len(shape)
    while math.prod(counts) > _MOST_SAMPLED:
        longest = counts.index(max(counts))
        steps[longest] *= 2
        counts[longest] = -(-shape[longest] // steps[longest])
    return tuple(slice(0, None, step) for step in steps)


def _sampled_rows(image: Array, mask: Mask) -> Float64s:
    """Return a sample of an image within a mask, float64; with a mask, channels last."""
    every = _lattice(image.shape)
    rows = image[every] if mask is None else image[every][mask[every[:-1]]]
    return rows.reshape(-1, rows.shape[-1]).astype(np.float64)


def _sample_of(images: Sequence[Array], masks: Sequence[Mask]) -> Float64s:
    pairs = zip(images, masks, strict=True)
    return np.concatenate([_sampled_rows(*pair).ravel() for pair in pairs])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """Image that is read by region, for example from disk.

    `shape` excludes channels; `read` returns the pixels of a region, channels last, and its mask,
    if any. `piece` is the chunk shape, None to read the whole image.
    """

    shape: tuple[int, ...]
    n_channels: int
    read: Callable[[Region], tuple[Array, Mask]]
    has_mask: bool
    piece: tuple[int, ...] | None = None

    @classmethod
    def of(cls, image: Array, mask: Mask) -> Pixels:
        """Wrap an array, channels last, and its mask."""

        def read(region: Region) -> tuple[Array, Mask]:
            return image[region], None if mask is None else mask[region]

        return cls(image.shape[:-1], image.shape[-1], read, mask is not None)

    def regions(self, shape: Sequence[int] | None = None) -> Iterator[Region]:
        """Yield regions that cover the image, or a grid of `shape`."""
        counts = self.shape if shape is None else shape
        sides = list(counts)
        if self.piece is not None:
            ratios = [n / count for n, count in zip(self.shape, counts, strict=True)]
            pairs = zip(self.piece, ratios, counts, strict=True)
            least = [min(count, math.ceil(side / ratio)) for side, ratio, count in pairs]
            sides, most = list(least), _READ / math.prod(ratios)
            while free := [k for k, side in enumerate(sides) if side < counts[k]]:
                next_one = min(free, key=lambda k: sides[k] / least[k])
                sides[next_one] = min(2 * sides[next_one], counts[next_one])
                if math.prod(sides) > most:
                    break
        for box in boxes(counts, sides):
            raise_if_interrupted()
            yield box

    def survey(self, look: Region) -> Survey:
        """Return the statistics of all pixels, and the pixels at the positions `look`."""
        every = _lattice((*self.shape, self.n_channels))
        samples = [_Gathered(self, lattice) for lattice in (every[:-1], look)]
        low, high, n_values = np.inf, -np.inf, 0
        for region in self.regions():
            values, inside = self.read(region)
            seen = values if inside is None else values[inside]
            n_values += seen.size
            if seen.size:
                low, high = min(low, float(seen.min())), max(high, float(seen.max()))
            for sample in samples:
                sample.add(region, values, inside)
        (values, inside), looked = ((sample.values, sample.inside) for sample in samples)
        rows = values[inside][..., every[-1]].astype(np.float64)
        return Survey(low, high, n_values, rows, looked)


class Survey(NamedTuple):
    """Value range of an image, a sample (n, channels), and selected pixels with a mask."""

    low: float
    high: float
    n_values: int
    rows: Float64s
    look: tuple[Array, Bools]


class _Gathered:
    """Pixels at positions along each axis, collected from regions."""

    def __init__(self, pixels: Pixels, lattice: Region) -> None:
        self.lattice = [(side.start, side.step) for side in lattice]
        pairs = zip(pixels.shape, self.lattice, strict=True)
        self.shape = [len(range(start, n, step)) for n, (start, step) in pairs]
        self.inside = np.zeros(self.shape, bool)
        self.values: Array = np.empty(0)

    def add(self, region: Region, values: Array, inside: Mask) -> None:
        if not self.values.size:
            self.values = np.zeros((*self.shape, values.shape[-1]), values.dtype)
        here, there = [], []
        for side, (start, step) in zip(region, self.lattice, strict=True):
            first = max(0, -(-(side.start - start) // step))
            last = max(first, -(-(side.stop - start) // step))
            there.append(slice(first, last))
            begin = start + first * step - side.start
            here.append(slice(begin, side.stop - side.start, step))
        source = tuple(here)
        self.values[tuple(there)] = values[source]
        self.inside[tuple(there)] = True if inside is None else inside[source]


def smoothed(image: Float32s, widths: Sequence[float], mask: Mask) -> Float32s:
    """Return an image, channels last, with Gaussian smoothing (width per axis) in the mask."""
    blur = partial(gaussian_filter, sigma=(*widths, 0), truncate=2)
    if mask is None:
        return np.asarray(blur(image))
    inside = mask[..., None].astype(np.float32)
    sums = blur(inside * image)
    raise_if_interrupted()
    return np.asarray(sums / np.maximum(blur(inside), 1e-6))


_LINES = 2**17
"""Pixels per block of averaged lines."""
_LEAST_BOXES = 4.0
"""Least width for three box means instead of a Gaussian; error up to 6 % of its peak."""


def average_around(
    like: Values, width: float | Sequence[float] | Array, axes: Sequence[int] | None, mask: Mask
) -> Callable[[Values], Values]:
    """Return a function that computes Gaussian means along axes, within the mask."""
    along = tuple(range(like.ndim) if axes is None else axes)
    widths = np.broadcast_to(width, len(along)).tolist()
    means = _boxes if min(widths, default=0) >= _LEAST_BOXES else gaussian_filter
    blur = partial(means, sigma=widths, axes=along)
    if mask is None:
        total = inside = np.ones((), np.float32)
    else:
        inside = mask.astype(np.float32)
        total = np.maximum(blur(inside), 1e-6)

    def average(values: Values) -> Values:
        raise_if_interrupted()
        return np.asarray(blur(inside * values) / total)

    return average


def _boxes(image: Values, sigma: Sequence[float], axes: Sequence[int]) -> Values:
    """Approximate a Gaussian by three box means: Kovesi, https://doi.org/10.1109/DICTA.2010.74."""
    for axis, width in zip(axes, sigma, strict=True):
        low = int(np.sqrt(4 * width**2 + 1))
        low -= 1 - low % 2
        n_low = round((12 * width**2 - 3 * low**2 - 12 * low - 9) / (-4 * low - 4))
        sides = (low,) * n_low + (low + 2,) * (3 - n_low)
        moved = np.moveaxis(image, axis, -1)
        lines, averaged = np.atleast_2d(moved), np.empty(moved.shape, np.float32)
        starts = range(0, len(lines), max(1, _LINES * len(lines) // max(1, lines.size)))
        means = partial(_box_means, lines, np.atleast_2d(averaged), sides, starts.step)
        in_threads(means, starts)
        image = np.moveaxis(averaged, -1, axis)
        raise_if_interrupted()
    return np.ascontiguousarray(image)


def _box_means(lines: Values, means: Values, sides: Sequence[int], count: int, start: int) -> None:
    """Write repeated box means of lines along the last axis."""
    block = np.ascontiguousarray(lines[start : start + count])
    for side in sides:
        block = uniform_filter1d(block, side, axis=-1)
    means[start : start + count] = block


def standardized(features: Array, moments: Sequence[float] | None = None) -> Float32s:
    """Return features of mean 0 and equal variances that sum to 1 / 12, or scaled by `moments`."""
    values = np.asarray(features, dtype=np.float32)
    flat, result = values.reshape(-1, values.shape[-1]), np.empty(values.shape, np.float32)
    if moments is None:
        spread = flat.std(axis=0)
        raise_if_interrupted()
        mean, scale = flat.mean(axis=0), scales_of(spread)
    else:
        mean, scale = np.array(moments).reshape(2, -1)
    for start in range(0, len(flat), _ROWS):
        rows = slice(start, start + _ROWS)
        result.reshape(flat.shape)[rows] = (flat[rows] - mean) / scale
        raise_if_interrupted()
    return result


def scales_of(spread: Floats) -> Floats:
    """Return the divisors that standardize features with standard deviations `spread`."""
    return np.asarray(np.where(spread > 1e-6, spread, 1) * np.sqrt(12 * len(spread)))


def is_rgb(shape: Sequence[int]) -> bool:
    """Return whether the shape fits an RGB(A) image: a last axis of 3 or 4."""
    return len(shape) >= 3 and shape[-1] in (3, 4)


def channels_last(
    image: ArrayLike, channel_axis: int | None
) -> tuple[NDArray[np.generic], int | None]:
    """Return the image with channels last, and the original index of the channel axis.

    Without `channel_axis`, a last axis of length 3 or 4 is RGB(A), and other images have one
    channel. The alpha channel of RGBA is dropped.
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
        raise InvalidInput(
            f"channel_axis: expected an axis of the {array.ndim} axes of the image, "
            f"got {channel_axis!r}"
        )
    return np.moveaxis(array, axis, -1), axis % array.ndim


_GROUP_SOURCES = "'image', 'axis:N', 'channel:N' or 'channel:N:THRESHOLD'"


def check_group_source(source: str) -> str:
    """Return the source of groups, or raise InvalidInput.

    ``"image"``: each image is a group; ``"axis:N"``: each position along axis N, not counting
    channels, such as a slice or a time point; ``"channel:N"``: two groups by a threshold of channel
    N, Otsu's or ``"channel:N:THRESHOLD"`` in units of the image.
    """
    _parse_groups(source)
    return source


def image_groups(source: str, arrays: Sequence[Array], masks: Sequence[Mask]) -> list[Int64s]:
    """Return groups 1, 2, ... of pixels, see `check_group_source`; thresholds use masked pixels."""
    source_type, number, threshold = _parse_groups(source)
    if source_type == "image":
        shapes = [array.shape[:-1] for array in arrays]
        return [np.full(shape, k, dtype=np.int64) for k, shape in enumerate(shapes, start=1)]
    if source_type == "axis":
        n_axes = min(array.ndim for array in arrays) - 1
        if not 0 <= number < n_axes:
            raise InvalidInput(f"groups: expected an axis from 0 to {n_axes - 1}, got {number}")
        return [np.indices(array.shape[:-1])[number] + 1 for array in arrays]
    for array in arrays:
        if not 0 <= number < array.shape[-1]:
            raise InvalidInput(
                f"groups: expected a channel from 0 to {array.shape[-1] - 1}, got {number}"
            )
    if threshold is None:
        rows = [_sampled_rows(*pair) for pair in zip(arrays, masks, strict=True)]
        threshold = channel_threshold(np.concatenate(rows), number)
    return [np.where(array[..., number] > threshold, 2, 1) for array in arrays]


def channel_threshold(rows: Float64s, number: int) -> float:
    """Return Otsu's threshold of a channel of pixels (n, channels)."""
    seen = rows[:, number]
    if seen.min() == seen.max():
        raise InvalidInput(f"groups: channel {number} is constant, which gives a single group")
    return float(filters.threshold_otsu(seen))


def channel_of_groups(source: str, n_channels: int) -> tuple[int, float | None]:
    """Return the channel that defines groups, and its threshold, if specified."""
    source_type, number, threshold = _parse_groups(source)
    if source_type != "channel" or not 0 <= number < n_channels:
        raise InvalidInput(f"groups: expected a channel from 0 to {n_channels - 1}, got {source}")
    return number, threshold


def _parse_groups(source: str) -> tuple[str, int, float | None]:
    source_type, *fields = source.split(":")
    try:
        if source_type == "image" and not fields:
            return source_type, 0, None
        if source_type == "axis" and len(fields) == 1:
            return source_type, int(fields[0]), None
        if source_type == "channel" and len(fields) in (1, 2):
            threshold = float(fields[1]) if len(fields) == 2 else None
            if threshold is None or np.isfinite(threshold):
                return source_type, int(fields[0]), threshold
    except ValueError:
        pass
    raise InvalidInput(f"groups: expected {_GROUP_SOURCES}, or arrays, got {source!r}")


def finite_mask(image: ArrayLike, array: Array, mask: Any, channel_axis: int | None) -> Mask:
    """Return the mask, if any, without masked-array pixels; NotFinite for NaN or infinity in it."""
    finite = all_finite(array)
    if not finite.any():
        raise InvalidInput("image: expected finite pixels, all of them are NaN or infinite")
    if isinstance(mask, str) and mask != "finite":
        raise InvalidInput(f"mask: expected an array or 'finite', got {mask!r}")
    inside = check_mask(finite if isinstance(mask, str) else mask, finite.shape)
    if isinstance(image, np.ma.MaskedArray) and np.ma.is_masked(image):
        hidden = channels_last(np.ma.getmaskarray(image), channel_axis)[0].any(axis=-1)
        inside = check_mask(~hidden if inside is None else ~hidden & inside, finite.shape)
    n_bad = int(np.count_nonzero(~finite if inside is None else ~finite & inside))
    if n_bad:
        raise NotFinite(
            f"image: {n_bad} of {finite.size} pixels are NaN or infinite; "
            "exclude them with mask='finite' or a mask"
        )
    return inside
