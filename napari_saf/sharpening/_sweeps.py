"""Weighted majority filter near borders, and preservation of thin parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import Bools, Float64s, Int64s
from napari_saf.device import in_threads
from napari_saf.sharpening._cells import LEVELS, NOWHERE, Labels, chunks_of, most_frequent

_SWEEP, _N_SWEEPS = 2, 2
"""Radius of the majority window, and number of sweeps."""
_LIKE, _SHIFT = LEVELS * 20 / 255, 10
"""Channel difference of similarity exp(-3/2), and bits dropped from squared differences."""


def swept(labels: Labels, image: NDArray[np.int16], noise: float) -> Labels:
    """Apply sweeps of a majority filter near borders, weighted by pixel similarity."""
    rim = [(_SWEEP, _SWEEP)] * labels.ndim
    padded = np.pad(labels, rim, constant_values=NOWHERE)
    values = np.pad(image, [(0, 0), *rim]).reshape(len(image), -1)
    flat, offsets = padded.ravel(), _window(padded.shape, _SWEEP)
    likeness = _likeness(len(image), noise).astype(flat.dtype)

    def majority(at: Int64s) -> Labels:
        around: Labels = np.empty((len(offsets), len(at)), flat.dtype)
        weights: Labels = np.empty_like(around)
        centres = [value[at] for value in values]
        for k, offset in enumerate(offsets.tolist()):
            there = at + offset
            flat.take(there, out=around[k])
            apart = np.zeros(len(at), np.int32)
            for value, middle in zip(values, centres, strict=True):
                apart += np.square(np.subtract(value.take(there), middle, dtype=np.int32))
            likeness.take(apart >> _SHIFT, out=weights[k], mode="clip")
        weights[len(offsets) // 2] += 1  # ties go to the current label of the pixel
        weights[around == NOWHERE] = 0
        high = around.max(axis=0)
        low = np.where(around == NOWHERE, high, around).min(axis=0)
        sums = [np.where(around == label, weights, 0).sum(axis=0) for label in (low, high)]
        winners: Labels = np.where(sums[0] > sums[1], low, high)
        many = np.flatnonzero(sums[0] * (low != high) + sums[1] != weights.sum(axis=0))
        winners[many] = most_frequent(around[:, many], weights[:, many].astype(float), 1)[0][0]
        return winners

    at = _near_borders(padded, offsets)
    for _ in range(_N_SWEEPS):
        majorities = np.concatenate([flat[:0], *in_threads(majority, chunks_of(at))])
        changed = at[majorities != flat[at]]
        flat[at] = majorities
        near = np.zeros(flat.size, bool)  # the majority is unchanged elsewhere
        for offset in offsets.tolist():
            near[changed + offset] = True
        at = np.flatnonzero(near & (flat != NOWHERE))
    return flat.reshape(padded.shape)[tuple(slice(_SWEEP, -_SWEEP) for _ in rim)]


def noise_of(images: Sequence[NDArray[np.int16]]) -> float:
    """Return the noise variance of differences between neighbours."""
    rows = [image[:, :: max(1, image.shape[1] // 128)] for image in images]
    samples = [np.diff(row, axis=-1).reshape(len(row), -1).astype(float) for row in rows]
    sample = np.concatenate(samples, axis=1)
    return float(np.median(sample**2, axis=1).mean() / 0.91) if sample.size else 0.0


def _likeness(n_channels: int, noise: float) -> Float64s:
    """Return similarities by summed squared difference, in steps of 2^`_SHIFT`."""
    width = n_channels * (_LIKE**2 / 3 + noise)
    squares = np.arange(int(16 * width) >> _SHIFT) * 2.0**_SHIFT
    return np.asarray(np.rint(1024 * np.exp(-squares / (2 * width))))


def _window(shape: Sequence[int], radius: int) -> Int64s:
    strides = np.cumprod([1, *shape[:0:-1]])[::-1]
    steps = itertools.product(range(-radius, radius + 1), repeat=len(shape))
    return np.array(list(steps)) @ strides


def _near_borders(labels: Labels, offsets: Int64s) -> Int64s:
    """Return flat indices of pixels within a window of a border; the image is padded."""
    flat, near = labels.ravel(), np.zeros(labels.size, bool)
    for axis in range(labels.ndim):
        stride = int(np.prod(labels.shape[axis + 1 :]))
        first, second = flat[:-stride], flat[stride:]
        edge = np.flatnonzero((first != second) & (first != NOWHERE) & (second != NOWHERE))
        for offset in (*offsets.tolist(), *(offsets + stride).tolist()):
            near[edge + offset] = True
    return np.flatnonzero(near & (flat != NOWHERE))


def with_thin_parts(labels: Labels, original: Labels, width: int) -> Labels:
    """Restore lost objects and the centre lines of thin parts from `original`."""
    radius = width + 1
    padded = np.pad(original, radius, constant_values=NOWHERE)
    is_changed = np.pad(labels != original, radius).ravel()
    at, flat = np.flatnonzero(is_changed), padded.ravel()
    around = at + _window(padded.shape, 1)[:, None]
    alike = flat[around] == flat[at]
    is_lost = is_changed.copy()
    pending = np.arange(len(at))
    while True:  # components that touch preserved pixels belong to preserved objects
        touches = (alike[:, pending] & ~is_lost[around[:, pending]]).any(axis=0)
        if not touches.any():
            break
        is_lost[at[pending[touches]]] = False
        pending = pending[~touches]
    is_restored = is_lost[at]
    depth = np.pad(_depths(original, radius), radius).ravel()
    own_depth = depth[at]
    is_middle = (own_depth < radius) & (np.where(alike, depth[around], 0) <= own_depth).all(axis=0)
    thin = np.flatnonzero(is_middle & ~is_restored)
    window = _window(padded.shape, width)
    for part in chunks_of(thin, len(window)):
        wide = at[part] + window[:, None]
        deepest = np.where(flat[wide] == flat[at[part]], depth[wide], 0).max(axis=0)
        is_restored[part] = deepest <= own_depth[part] + 1
    restored = np.pad(labels, radius).ravel()
    restored[at[is_restored]] = flat[at[is_restored]]
    return restored.reshape(padded.shape)[tuple(slice(radius, -radius) for _ in labels.shape)]


def _depths(labels: Labels, most: int) -> NDArray[np.uint8]:
    """Return the chessboard distance to the nearest other label, clipped at `most`."""
    alike = np.ones(labels.shape, bool)
    for axis in range(labels.ndim):
        lines, eroded = np.moveaxis(labels, axis, 0), _eroded(alike, axis)
        first, second, along = lines[1:], lines[:-1], np.moveaxis(eroded, axis, 0)
        edge = (first != second) & (first != NOWHERE) & (second != NOWHERE)
        along[1:] &= ~edge
        along[:-1] &= ~edge
        alike = eroded
    depth = np.ones(labels.shape, np.uint8)
    for _ in range(most - 1):
        depth += alike
        for axis in range(labels.ndim):
            alike = _eroded(alike, axis)
    return depth


def _eroded(mask: Bools, axis: int) -> Bools:
    """Erode a mask by three pixels along one axis; outside the image counts as inside."""
    eroded = mask.copy()
    there, here = np.moveaxis(eroded, axis, 0), np.moveaxis(mask, axis, 0)
    there[1:] &= here[:-1]
    there[:-1] &= here[1:]
    return eroded
