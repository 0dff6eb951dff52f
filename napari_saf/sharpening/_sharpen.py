"""Move the borders of labels onto the edges of an image, in a narrow band of pixels."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import all_finite, as_labels, as_whole, check_mask
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.sharpening._cells import LEVELS, N_CELLS, NOWHERE, Labels, moved, strength_of
from napari_saf.sharpening._sweeps import noise_of, swept, with_thin_parts

_REACHES = (4, 16)
"""The shortest and the longest reach that is taken from the steps of the borders."""
_THIN = 8
"""Middles of parts up to twice as wide are kept."""


def sharpen_labels(
    labels: ArrayLike,
    image: ArrayLike,
    *,
    channel_axis: int | None = None,
    mask: ArrayLike | None = None,
    reach: int | None = None,
    strength: float | None = None,
) -> NDArray[np.integer[Any]]:
    r"""Move the borders of labels, whatever made them, onto the edges of the image.

    Only pixels near a border change. No label is lost: the middles of thin parts and of small
    objects, single pixels among them, stay as they are.

    Parameters
    ----------
    labels : array of int
        Label image in 2-D or 3-D. 0, background or no label, is a label like the others: objects
        grow into it and shrink.
    image : array
        Image of that shape, with or without channels; of any type and range.
    channel_axis : int, optional
        Axis of the channels. None: a last axis of 3 or 4 is taken for RGB(A).
    mask : array of bool, optional
        Where labels may change; what is outside counts nowhere and may be NaN. ``labels > 0``
        leaves the outlines as they are and moves borders between labels only.
    reach : int, optional
        How far borders move at most, about, in pixels. None: twice the length of the steps in the
        borders, from 4 to 16, as of labels that come from a smaller image.
    strength : float, optional
        How much the image counts, from 0, borders are merely smoothed along edges, to 1. None: as
        well as the borders lie on edges, the less.

    Returns
    -------
    array of the type and shape of the labels

    Raises
    ------
    InvalidInput
        If the labels are no whole numbers from 0, shapes disagree, or pixels are not finite.

    Notes
    -----
    Cells of half the reach a side are averaged. Around each cell a label has a Gaussian model of
    the n channels, from cells that touch no other label. A pixel becomes the label of the largest

    .. math:: \lambda \log p_l - \frac 3 n \sum_c
        \frac{(I_c - m_{lc})^2}{2 v_{lc}} + \frac 1 2 \log v_{lc}

    with the share :math:`p_l` of the label around, if that is better by a margin than the label
    that the shares alone give; two sweeps of a majority in 5 x 5 pixels, weighted by their
    likeness, follow. How much better a model is than the others just within the borders, compared
    with further inside, tells how well they lie on edges, and chooses :math:`\lambda` and margin.

    Labels are the same whatever the number of threads.

    Examples
    --------
    >>> rows, columns = np.mgrid[:64, :64]
    >>> disk = (np.hypot(rows - 30, columns - 33) < 20).astype(int)
    >>> coarse = np.kron(disk[::4, ::4], np.ones((4, 4), int))  # steps of four pixels
    >>> sharp = saf.sharpen_labels(coarse, 100.0 * disk)
    >>> int((coarse != disk).sum()), int((sharp != disk).sum())
    (207, 0)
    """
    array, channels = _checked(labels, image, channel_axis)
    inside = check_mask(mask, array.shape)
    finite = all_finite(channels)
    if inside is not None:
        finite |= ~inside
    if not finite.all():
        raise InvalidInput(
            f"image: expected finite numbers, {np.count_nonzero(~finite)} pixels are not; a mask "
            "leaves them out"
        )
    if strength is not None and not 0 <= strength <= 1:
        raise InvalidInput(f"strength: expected a number from 0 to 1, got {strength!r}")
    if reach is None:
        reach = int(np.clip(2 * _step_length(array), *_REACHES))
    whole = as_whole(reach)
    if whole is None or whole < 1:
        raise InvalidInput(f"reach: expected 1 pixel or more, got {reach!r}")
    part = array, channels, inside
    return Sharpener.of([part], array.shape, whole, strength)(*part)


Part = tuple[Labels, NDArray[np.generic], NDArray[np.bool_] | None]
"""Labels, pixels with channels last, and where they count."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sharpener:
    """Moves borders as `sharpen_labels`, of an image or of parts of it, which are then alike.

    What it knows of the image as a whole: the range of each channel, the `noise`, and how much the
    image counts.
    """

    reach: int
    sides: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]
    noise: float
    strength: float

    @classmethod
    def of(
        cls,
        parts: Sequence[Part],
        shape: Sequence[int],
        reach: int,
        strength: float | None = None,
        all_over: Sequence[Part] | None = None,
    ) -> Sharpener:
        """Return what moves borders in an image of a shape, as parts of it tell.

        Ranges and noise are those of the same parts, or of others from `all_over` the image.
        """
        side = (reach + 1) // 2
        sides = tuple(min(side, max(1, n // 8)) for n in shape)
        evenly = parts if all_over is None else all_over
        pairs = [(channels, inside) for _, channels, inside in evenly]
        sharpener = cls(reach, sides, _ranges_of(pairs), 0.0, 1.0 if strength is None else strength)
        noise = noise_of([sharpener._prepared(*part)[1] for part in evenly])
        if strength is None:
            strength = strength_of([sharpener._prepared(*part) for part in parts], sides)
        return dataclasses.replace(sharpener, noise=noise, strength=strength)

    @property
    def halo(self) -> list[int]:
        """How many pixels around a part, per axis, its borders depend on; see `aligned`."""
        return [N_CELLS[len(self.sides)] * side + 2 * self._width + 10 for side in self.sides]

    @property
    def _width(self) -> int:
        return min((self.reach + 1) // 2, _THIN)

    def aligned(self, region: Sequence[slice], shape: Sequence[int]) -> tuple[slice, ...]:
        """Return a region of whole cells of an image that covers another."""
        return tuple(
            slice(one.start // side * side, min(-(-one.stop // side) * side, n))
            for one, side, n in zip(region, self.sides, shape, strict=True)
        )

    def __call__(
        self,
        labels: Labels,
        channels: NDArray[np.generic],
        inside: NDArray[np.bool_] | None = None,
    ) -> Labels:
        """Return labels, of a part that begins and ends with cells, with their borders moved."""
        known, scaled = self._prepared(labels, channels, inside)
        found = moved(known, scaled, self.sides, self.strength)
        found = swept(found, scaled, self.noise)
        found = with_thin_parts(found, known, self._width)
        if inside is not None:
            found = np.where(inside, found, labels)
        return np.asarray(found, dtype=labels.dtype)

    def _prepared(
        self,
        labels: Labels,
        channels: NDArray[np.generic],
        inside: NDArray[np.bool_] | None,
    ) -> tuple[Labels, NDArray[np.int16]]:
        """Return labels that are nowhere outside a mask, and channels, first, in whole numbers."""
        kind = np.int64 if labels.max(initial=0) > np.iinfo(np.int32).max else np.int32
        known: Labels = labels.astype(kind)
        if inside is not None:
            known[~inside] = NOWHERE
        scaled = np.empty((channels.shape[-1], *channels.shape[:-1]), np.int16)
        is_exact = np.can_cast(channels.dtype, np.float32)
        for k, (low, high) in enumerate(self.ranges):
            values = channels[..., k] if inside is None else np.where(inside, channels[..., k], 0)
            factor = LEVELS / (high - low) if low < high else 0.0
            exact: NDArray[np.floating[Any]] = values.astype(np.float32 if is_exact else np.float64)
            levels = (exact - float(low)) * float(factor)
            scaled[k] = np.clip(np.rint(levels), -LEVELS, 2 * LEVELS)
        return known, scaled


def _ranges_of(
    parts: Sequence[tuple[NDArray[np.generic], NDArray[np.bool_] | None]],
) -> tuple[tuple[float, float], ...]:
    """Return, of each channel, the range that most pixels of parts have."""
    ranges = []
    for k in range(parts[0][0].shape[-1]):
        samples = []
        for channels, inside in parts:
            values = channels[..., k]
            flat = values.ravel() if inside is None else values[inside]
            step = max(1, len(parts) * flat.size // 2**20)
            samples.append(flat[::step].astype(np.float64))
        sample = np.concatenate(samples)
        low, high = np.quantile(sample, (0.001, 0.999))
        if not low < high:
            low, high = sample.min(), sample.max()
        ranges.append((float(low), float(high)))
    return tuple(ranges)


def _checked(
    labels: ArrayLike, image: ArrayLike, channel_axis: int | None
) -> tuple[Labels, NDArray[np.generic]]:
    array, channels = as_labels(labels, "labels"), channels_last(image, channel_axis)[0]
    if array.ndim not in (2, 3) or not array.size:
        raise InvalidInput(f"labels: expected 2 or 3 axes, got shape {array.shape}")
    if array.shape != channels.shape[:-1]:
        raise InvalidInput(f"labels: expected shape {channels.shape[:-1]}, got {array.shape}")
    return array, channels


def _step_length(labels: Labels) -> int:
    """Return a length that only one in ten of the straight pieces of the borders is below."""
    lengths = [np.ones(0, np.int64)]
    for axis, along in itertools.permutations(range(labels.ndim), 2):
        lines = np.moveaxis(labels, (axis, along), (0, -1))
        edge = lines[1:] != lines[:-1]
        ends = np.diff(edge.view(np.int8), axis=-1, prepend=0, append=0).ravel()
        lengths.append(np.flatnonzero(ends < 0) - np.flatnonzero(ends > 0))
    every = np.concatenate(lengths)
    return int(np.quantile(every, 0.1, method="lower")) if len(every) else 1
