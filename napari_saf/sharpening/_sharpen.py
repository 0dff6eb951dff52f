"""Movement of label borders onto image edges within a narrow band. Read next: `_cells`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import (
    Array,
    Floats,
    Integers,
    Mask,
    all_finite,
    as_labels,
    as_whole,
    check_mask,
)
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.sharpening._cells import LEVELS, N_CELLS, NOWHERE, Labels, moved, strength_of
from napari_saf.sharpening._sweeps import noise_of, swept, with_thin_parts

_REACHES = (4, 16)
"""Range of the automatic reach, in pixels."""
_THIN = 8
"""Maximal half width of the thin parts that are preserved."""


def sharpen_labels(
    labels: ArrayLike,
    image: ArrayLike,
    *,
    channel_axis: int | None = None,
    mask: ArrayLike | None = None,
    reach: int | None = None,
    strength: float | None = None,
) -> Integers:
    r"""Move the borders of labels onto the edges of the image.

    Only pixels near a border change. No label is lost: the centre lines of thin parts and small
    objects, down to single pixels, are preserved.

    Parameters
    ----------
    labels : array of int
        Label image in 2-D or 3-D. The background, 0, is treated like any other label.
    image : array
        Image of that shape, with or without channels, of any type and range.
    channel_axis : int, optional
        Axis of the channels. None: a last axis of 3 or 4 is RGB(A).
    mask : array of bool, optional
        Where labels may change; pixels outside are ignored and may be NaN. ``labels > 0`` keeps
        the outlines and moves borders between labels only.
    reach : int, optional
        Approximate maximal displacement of borders, in pixels. None: twice the step length of the
        borders, from 4 to 16, which fits labels of a downsampled image.
    strength : float, optional
        Weight of the image, from 0 (borders are only smoothed along edges) to 1. None: chosen, low
        if borders already coincide with edges.

    Returns
    -------
    array of the dtype and shape of the labels

    Raises
    ------
    InvalidInput
        If the labels are not integers >= 0, shapes disagree, or pixels are not finite.

    Notes
    -----
    Pixels are averaged over cells with sides of half the reach. Around each cell, a label has a
    Gaussian model of the n channels, fitted to cells that touch no other label. A pixel gets the
    label of largest

    .. math:: \lambda \log p_l - \frac 3 n \sum_c
        \frac{(I_c - m_{lc})^2}{2 v_{lc}} + \frac 1 2 \log v_{lc}

    with the local share :math:`p_l` of the label, if this exceeds by a margin the score of the
    label of largest share; two sweeps of a majority filter of 5 x 5 pixels, weighted by similarity,
    follow. :math:`\lambda` and the margin depend on how well the models fit just inside the
    borders relative to the interior, which measures the agreement of borders with edges.

    Labels do not depend on the number of threads.

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
            f"image: expected finite numbers, {np.count_nonzero(~finite)} pixels are NaN or "
            "infinite; exclude them with a mask"
        )
    if strength is not None and not 0 <= strength <= 1:
        raise InvalidInput(f"strength: expected a number from 0 to 1, got {strength!r}")
    if reach is None:
        reach = int(np.clip(2 * _step_length(array), *_REACHES))
    n_pixels = as_whole(reach)
    if n_pixels is None or n_pixels < 1:
        raise InvalidInput(f"reach: expected 1 pixel or more, got {reach!r}")
    part = array, channels, inside
    return Sharpener.of([part], array.shape, n_pixels, strength)(*part)


Part = tuple[Labels, Array, Mask]
"""Labels, pixels with channels last, and mask."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sharpener:
    """Sharpener of an image or its parts by statistics of the whole image, see `sharpen_labels`.

    The statistics are the `ranges` of channels, the `noise` and the `strength` of the image.
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
        """Fit a sharpener to `parts` of an image; ranges and noise to `all_over`, if not None."""
        side = (reach + 1) // 2
        sides = tuple(min(side, max(1, n // 8)) for n in shape)
        samples = parts if all_over is None else all_over
        pairs = [(channels, inside) for _, channels, inside in samples]
        sharpener = cls(reach, sides, _ranges_of(pairs), 0.0, 1.0 if strength is None else strength)
        noise = noise_of([sharpener._prepared(*part)[1] for part in samples])
        if strength is None:
            strength = strength_of([sharpener._prepared(*part) for part in parts], sides)
        return dataclasses.replace(sharpener, noise=noise, strength=strength)

    @property
    def halo(self) -> list[int]:
        """Pixels around a part, per axis, on which its borders depend; see `aligned`."""
        return [N_CELLS[len(self.sides)] * side + 2 * self._width + 10 for side in self.sides]

    @property
    def _width(self) -> int:
        return min((self.reach + 1) // 2, _THIN)

    def aligned(self, region: Sequence[slice], shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the smallest region of whole cells that contains `region`."""
        return tuple(
            slice(span.start // side * side, min(-(-span.stop // side) * side, n))
            for span, side, n in zip(region, self.sides, shape, strict=True)
        )

    def __call__(self, labels: Labels, channels: Array, inside: Mask = None) -> Labels:
        """Return the sharpened labels of a part that consists of whole cells."""
        masked, scaled = self._prepared(labels, channels, inside)
        sharpened = moved(masked, scaled, self.sides, self.strength)
        sharpened = swept(sharpened, scaled, self.noise)
        sharpened = with_thin_parts(sharpened, masked, self._width)
        if inside is not None:
            sharpened = np.where(inside, sharpened, labels)
        return np.asarray(sharpened, dtype=labels.dtype)

    def _prepared(
        self, labels: Labels, channels: Array, inside: Mask
    ) -> tuple[Labels, NDArray[np.int16]]:
        """Return labels, `NOWHERE` outside the mask, and the integer image, channels first."""
        dtype = np.int64 if labels.max(initial=0) > np.iinfo(np.int32).max else np.int32
        masked: Labels = labels.astype(dtype)
        if inside is not None:
            masked[~inside] = NOWHERE
        scaled = np.empty((channels.shape[-1], *channels.shape[:-1]), np.int16)
        is_exact = np.can_cast(channels.dtype, np.float32)
        for k, (low, high) in enumerate(self.ranges):
            values = channels[..., k] if inside is None else np.where(inside, channels[..., k], 0)
            factor = LEVELS / (high - low) if low < high else 0.0
            exact: Floats = values.astype(np.float32 if is_exact else np.float64)
            levels = (exact - float(low)) * float(factor)
            scaled[k] = np.clip(np.rint(levels), -LEVELS, 2 * LEVELS)
        return masked, scaled


def _ranges_of(parts: Sequence[tuple[Array, Mask]]) -> tuple[tuple[float, float], ...]:
    """Return the 0.1 to 99.9 % range of each channel."""
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


def _checked(labels: ArrayLike, image: ArrayLike, channel_axis: int | None) -> tuple[Labels, Array]:
    array, channels = as_labels(labels, "labels"), channels_last(image, channel_axis)[0]
    if array.ndim not in (2, 3) or not array.size:
        raise InvalidInput(f"labels: expected 2 or 3 axes, got shape {array.shape}")
    if array.shape != channels.shape[:-1]:
        raise InvalidInput(f"labels: expected shape {channels.shape[:-1]}, got {array.shape}")
    return array, channels


def _step_length(labels: Labels) -> int:
    """Return the 10 % quantile of the lengths of straight border segments."""
    lengths = [np.ones(0, np.int64)]
    for axis, along in itertools.permutations(range(labels.ndim), 2):
        lines = np.moveaxis(labels, (axis, along), (0, -1))
        edge = lines[1:] != lines[:-1]
        ends = np.diff(edge.view(np.int8), axis=-1, prepend=0, append=0).ravel()
        lengths.append(np.flatnonzero(ends < 0) - np.flatnonzero(ends > 0))
    every = np.concatenate(lengths)
    return int(np.quantile(every, 0.1, method="lower")) if len(every) else 1
