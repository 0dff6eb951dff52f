"""Borders between labels, moved onto the edges of the image in a narrow band of pixels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import maximum_filter, minimum_filter

from napari_saf.arrays import all_finite, as_labels, as_whole, check_mask, joined_by
from napari_saf.device import torch
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last

T, R = TypeVar("T"), TypeVar("R")

__all__ = ["sharpen_labels"]

_REACHES = (4, 16)
"""The shortest and the longest reach that is taken from the steps of the borders."""
_LEVELS = 16 * 255
"""Of the range of a channel: whole numbers, whose sums are exact in any order."""
_NOISE = (6.0 / 255) ** 2
"""A variance, in squares of that range, that every label has at least."""
_SHIFT = 10
_LIKENESS = np.rint(
    1024 * np.exp(-np.arange(1500) * 2.0**_SHIFT / (2 * (_LEVELS * 20 / 255) ** 2 / 3))
)
"""How alike pixels are by the mean square of their differences, in steps of `_SHIFT` bits."""
_N_SLOTS, _N_CANDIDATES = 3, 4
"""Labels of a cell that are counted, and labels that a pixel can become."""
_AROUND, _SWEEP, _N_SWEEPS = 2, 2, 2
"""Cells around one, pixels around one, that count in its share and in its majority."""
_MODEL = {2: 5, 3: 2}
"""Cells around one, by the number of axes, over which labels are modelled."""
_NOT_CORE = 1 / 128
"""Weight in the models of cells beside others, which may be labelled wrongly."""
_LEAST, _MOST = (4.0, 1.0), (24.0, 16.0)
"""Weight and margin of the labels around where borders lie beside edges, and where on edges."""
_BESIDE, _ON = 0.35, 0.55
_TEMPER = 1 / 3
_CHUNK, _SAMPLE = 4096, 8192
_NOWHERE = -1


def sharpen_labels(
    labels: ArrayLike,
    image: ArrayLike,
    *,
    channel_axis: int | None = None,
    mask: ArrayLike | None = None,
    reach: int | None = None,
    strength: float | None = None,
) -> NDArray[np.generic]:
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
    (138, 0)
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
    steps = as_whole(reach) if reach is not None else min(max(2 * _step_length(array), 4), 16)
    if steps is None or steps < 1:
        raise InvalidInput(f"reach: expected 1 pixel or more, got {reach!r}")
    kind = np.int64 if array.max(initial=0) > np.iinfo(np.int32).max else np.int32
    known = array.astype(kind)
    if inside is not None:
        known[~inside] = _NOWHERE
    scaled = _scaled(channels, inside)
    found = _moved(known, scaled, (steps + 1) // 2, strength)
    for _ in range(0 if found is known else _N_SWEEPS):
        found = _swept(found, scaled)
    found = _with_thin_parts(found, known, (steps + 1) // 2)
    if inside is not None:
        found = np.where(inside, found, array)
    return np.asarray(found, dtype=array.dtype)


def _checked(
    labels: ArrayLike, image: ArrayLike, channel_axis: int | None
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    array, channels = as_labels(labels, "labels"), channels_last(image, channel_axis)[0]
    if array.ndim not in _MODEL or not array.size:
        raise InvalidInput(f"labels: expected 2 or 3 axes, got shape {array.shape}")
    if array.shape != channels.shape[:-1]:
        raise InvalidInput(f"labels: expected shape {channels.shape[:-1]}, got {array.shape}")
    return array, channels


def _step_length(labels: NDArray[np.generic]) -> int:
    """Return a length that only one in ten of the straight pieces of the borders is below."""
    lengths = [np.ones(0, np.int64)]
    for axis, along in itertools.permutations(range(labels.ndim), 2):
        lines = np.moveaxis(labels, (axis, along), (0, -1))
        edge = lines[1:] != lines[:-1]
        ends = np.diff(edge.view(np.int8), axis=-1, prepend=0, append=0).ravel()
        lengths.append(np.flatnonzero(ends < 0) - np.flatnonzero(ends > 0))
    every = np.concatenate(lengths)
    return int(np.quantile(every, 0.1, method="lower")) if len(every) else 1


def _scaled(channels: NDArray[np.generic], inside: NDArray[np.bool_] | None) -> NDArray[np.int16]:
    """Return the channels, first, in whole numbers: 0 to `_LEVELS` is what most pixels have."""
    found = np.empty((channels.shape[-1], *channels.shape[:-1]), np.int16)
    for k in range(len(found)):
        values = channels[..., k] if inside is None else np.where(inside, channels[..., k], 0)
        flat = values.ravel() if inside is None else values[inside]
        sample = flat[:: max(1, flat.size // 2**20)].astype(np.float64)
        low, high = np.quantile(sample, (0.001, 0.999))
        if not low < high:
            low, high = sample.min(), sample.max()
        factor = _LEVELS / (high - low) if low < high else 0.0
        scaled = (values.astype(np.float32) - np.float32(low)) * np.float32(factor)
        found[k] = np.clip(np.rint(scaled), -_LEVELS, 2 * _LEVELS)
    return found


class _Cells:
    """Cells of pixels in a grid with a rim of cells that are nowhere; cells are numbered along it.

    Arrays have the pixels of a cell, or its labels, first, the cells last.
    """

    def __init__(self, labels: NDArray[np.integer], image: NDArray[np.int16], side: int) -> None:
        self.sides = tuple(min(side, max(1, n // 8)) for n in labels.shape)
        ends = [(0, -n % k) for n, k in zip(labels.shape, self.sides, strict=True)]
        self.pixels = self._blocks(np.pad(labels, ends, mode="edge"))
        self.values = self._blocks(np.pad(image, [(0, 0), *ends], mode="edge"))
        self.grid = self.pixels.shape[1:]
        self.rim = max(_MODEL[labels.ndim], _AROUND)
        self.labels, self.counts = self._counted()
        first = self.labels[0].reshape([n + 2 * self.rim for n in self.grid])
        beside = minimum_filter(first, 3) != maximum_filter(first, 3)
        mixed = (self.counts[1] > 0).reshape(first.shape)
        near = maximum_filter((beside | mixed).astype(np.uint8), 3) > 0
        self.is_core = ~(beside | (maximum_filter(mixed.astype(np.uint8), 3) > 0)).ravel()
        inside = tuple(slice(self.rim, -self.rim) for _ in self.grid)
        self.at = np.flatnonzero(near[inside])
        self.band = self.numbers(self.at)
        self.sums = self._summed()

    def _blocks(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        places = itertools.product(*map(range, self.sides))
        steps = [
            tuple(slice(a, None, k) for a, k in zip(p, self.sides, strict=True)) for p in places
        ]
        return np.stack([array[(..., *step)] for step in steps], axis=-len(self.sides) - 1)

    def numbers(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers in the grid with its rim of cells of the grid without."""
        places = [place + self.rim for place in np.unravel_index(at, self.grid)]
        return np.ravel_multi_index(places, [n + 2 * self.rim for n in self.grid])

    def offsets(self, radius: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions in a window of cells, and what they add to the number of a cell."""
        steps = range(-radius, radius + 1)
        found = np.array(list(itertools.product(steps, repeat=len(self.grid))))
        strides = np.cumprod([1, *[n + 2 * self.rim for n in self.grid[:0:-1]]])[::-1]
        return found, found @ strides

    def _counted(self) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
        """Return the most frequent labels of each cell and their pixels, -1 and 0 if fewer."""
        flat = self.pixels.reshape(len(self.pixels), -1)
        labels = np.full((_N_SLOTS, flat.shape[1]), _NOWHERE, flat.dtype)
        counts = np.zeros(labels.shape)
        labels[0], counts[0] = flat[0], len(flat)
        mixed = np.flatnonzero((flat != flat[0]).any(axis=0))
        labels[:, mixed], counts[:, mixed] = _most(
            flat[:, mixed], np.ones((len(flat), 1)), _N_SLOTS
        )
        rim = [(0, 0), *[(self.rim, self.rim)] * len(self.grid)]
        whole = np.pad(labels.reshape(-1, *self.grid), rim, constant_values=_NOWHERE)
        numbers = np.pad(counts.reshape(-1, *self.grid), rim)
        return whole.reshape(_N_SLOTS, -1), numbers.reshape(_N_SLOTS, -1)

    def _summed(self) -> NDArray[np.float64]:
        """Return the weight of each cell, and of its first label the weighted sums of I and I^2."""
        flat, values = self.pixels.reshape(len(self.pixels), -1), self.values
        n_channels = len(values)
        values = values.reshape(n_channels, len(flat), -1)
        at = self.numbers(np.arange(flat.shape[1]))
        sums = np.zeros((flat.shape[1], 1 + 2 * n_channels))
        sums[:, 0] = self.counts[0, at]
        mixed = np.flatnonzero(self.counts[1, at] > 0)
        others = flat[:, mixed] != self.labels[0, at[mixed]]
        for c in range(n_channels):
            for power in (1, 2):
                total = np.zeros(flat.shape[1])
                for pixel in values[c]:
                    total += np.square(pixel, dtype=np.float64) if power == 2 else pixel
                few = values[c][:, mixed].astype(float) ** power
                total[mixed] = np.where(others, 0, few).sum(axis=0)
                sums[:, 1 + c + (power - 1) * n_channels] = total
        sums *= np.where(self.is_core[at], 1, _NOT_CORE)[:, None]
        found = np.zeros((self.labels.shape[1], sums.shape[1]))
        found[at] = sums
        return found


def _most(
    labels: NDArray[np.integer], weights: NDArray[np.float64], count: int
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return the labels (count, n) with the largest sums of weights among (m, n), and the sums.

    Of equal sums the lower label comes first; -1 and 0 where there are no more, or are nowhere.
    """
    n = labels.shape[1]
    order = np.argsort(labels, axis=0, kind="stable").T
    ranked = np.take_along_axis(labels.T, order, axis=1)
    starts = np.ones(ranked.shape, bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    at = np.flatnonzero(starts)
    weights = np.take_along_axis(np.broadcast_to(weights, labels.shape).T, order, axis=1)
    sums = np.add.reduceat(weights.ravel(), at) if len(at) else np.zeros(0)
    known = (sums > 0) & (ranked.ravel()[at] != _NOWHERE)
    at, sums = at[known], sums[known]
    column, label = at // ranked.shape[1], ranked.ravel()[at]
    order = np.lexsort((label, -sums, column))
    column, label, sums = column[order], label[order], sums[order]
    rank = np.arange(len(column)) - np.searchsorted(column, np.arange(n))[column]
    kept = rank < count
    found, totals = np.full((count, n), _NOWHERE, labels.dtype), np.zeros((count, n))
    found[rank[kept], column[kept]] = label[kept]
    totals[rank[kept], column[kept]] = sums[kept]
    return found, totals


def _shares(sides: Sequence[int], offsets: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Return the weights, whole numbers (m, n_offsets), of cells around for the pixels of a cell.

    They fall linearly to 0 at a distance of `width` cells along each axis.
    """
    weights = np.ones((1, len(offsets)))
    for side, steps in zip(sides, offsets.T, strict=True):
        middles = 2 * np.arange(side) + 1 - side  # in units of half a pixel
        apart = np.abs(2 * side * steps - middles[:, None])
        own = np.maximum(0, 2 * side * width - apart)
        weights = (weights[:, None] * own).reshape(-1, len(offsets))
    return weights


class _Chunk:
    """Cells of the band that have the same number of labels around: shares and distances."""

    def __init__(
        self, cells: _Cells, at: NDArray[np.int64], candidates: NDArray[np.integer]
    ) -> None:
        """`at` are numbers of cells of the grid, `candidates` (n_candidates, n) their labels."""
        self.at, self.candidates = at, candidates
        band = cells.numbers(at)
        self.current = cells.pixels.reshape(len(cells.pixels), -1)[:, at]
        steps, offsets = cells.offsets(_AROUND)
        wide, narrow = (_shares(cells.sides, steps, width) for width in (_AROUND, 1))
        near = band + offsets[:, None]
        labels, counts = cells.labels[:, near], cells.counts[:, near]
        own = [((labels == label) * counts).sum(axis=0) for label in candidates]
        shares, votes = (
            np.stack([wide @ one for one in own]),
            np.stack([narrow @ one for one in own]),
        )
        self.shares = (shares / np.maximum(shares.sum(axis=0), 1)).astype(np.float32)
        self.distances, self.is_known = self._distances(cells, band)
        # Of equal votes the current label counts more, then the one whose model is nearer.
        votes += 0.5 * (self.current == candidates[:, None]) - 1e-6 * np.minimum(
            self.distances, 1e5
        )
        self.vote = votes.argmax(axis=0)

    def _distances(
        self, cells: _Cells, band: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return, above the least, the mean over channels of -log of the density of the models."""
        n_labels, n_channels = len(self.candidates), len(cells.values)
        sums = np.zeros((n_labels, len(band), 1 + 2 * n_channels))
        for offset in cells.offsets(_MODEL[len(cells.grid)])[1].tolist():
            around = band + offset
            rows, first = cells.sums[around], cells.labels[0, around]
            for label, total in zip(self.candidates, sums, strict=True):
                total += rows * (first == label)[:, None]
        weights, first, second = np.split(sums.transpose(2, 0, 1), [1, 1 + n_channels])
        weights = np.maximum(weights, 1e-9)
        means = first / weights
        variances = np.maximum(second / weights - means**2, 0) + _NOISE * _LEVELS**2
        values = cells.values.reshape(n_channels, len(self.current), -1)[..., self.at]
        found = np.zeros((n_labels, *self.current.shape), np.float32)
        for value, mean, variance in zip(values, means, variances, strict=True):
            half, middle = (0.5 / variance).astype(np.float32), mean.astype(np.float32)
            constant = (0.5 * np.log(variance)).astype(np.float32)
            for k in range(n_labels):
                found[k] += (value - middle[k]) ** 2 * half[k] + constant[k]
        is_known = sums[..., 0] > 0
        found /= np.float32(n_channels)
        unknown = ~is_known[:, None]
        worst = np.where(unknown, -np.inf, found).max(axis=0)
        found = np.where(unknown, worst, found)
        found = np.where(np.isfinite(found), found, 0).astype(np.float32)
        return found - found.min(axis=0), is_known

    def decided(self, weight: float, margin: float) -> NDArray[np.integer]:
        """Return the labels: of the vote, or those that are better by a margin."""
        logs = np.log(np.maximum(self.shares, np.float32(1e-4)))
        scores = np.float32(weight) * logs - 3 * self.distances
        best = scores.max(axis=0)
        voted = np.take_along_axis(scores, self.vote[None], axis=0)[0]
        chosen = np.where(best > voted + np.float32(margin), scores.argmax(axis=0), self.vote)
        found = np.take_along_axis(self.candidates, chosen.reshape(-1, len(self.at)), axis=0)
        is_candidate = (self.current == self.candidates[:, None]).any(axis=0)
        return np.where(is_candidate, found, self.current)

    def agreements(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return shares, and how likely the models find the label with the largest share."""
        top = self.shares.argmax(axis=0)[None]
        own = np.take_along_axis(self.distances, top, axis=0)[0]
        others = self.distances.copy()
        np.put_along_axis(others, top, np.inf, axis=0)
        apart = np.clip(others.min(axis=0) - own, -4, 4)
        known = self.is_known[:2].all(axis=0)
        return self.shares.max(axis=0)[:, known], (1 / (1 + np.exp(-apart)))[:, known]


def _each(function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Return what a function makes of each part, in their order, by as many threads as torch."""
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(function, parts))


def _moved(
    labels: NDArray[np.integer], image: NDArray[np.int16], side: int, strength: float | None
) -> NDArray[np.integer]:
    """Return labels that the shares around and the models decide, those given if all are alike."""
    cells = _Cells(labels, image, side)
    parts = [cells.at[start : start + _CHUNK] for start in range(0, len(cells.at), _CHUNK)]
    around = [_candidates(cells, part) for part in parts]
    candidates = np.concatenate(around or [np.zeros((_N_CANDIDATES, 0), labels.dtype)], axis=1)
    n_labels = (candidates != _NOWHERE).sum(axis=0)
    chunks = []
    for n in range(2, _N_CANDIDATES + 1):
        at = np.flatnonzero(n_labels == n)
        chunks += [at[start : start + _CHUNK] for start in range(0, len(at), _CHUNK)]
    if not chunks:
        return labels

    def made(chunk: NDArray[np.int64]) -> _Chunk:
        n = n_labels[chunk[0]]
        return _Chunk(cells, cells.at[chunk], candidates[:n, chunk])

    if strength is None:
        every = max(1, sum(map(len, chunks)) // _SAMPLE)
        strength = 1 - _on_edges(_each(made, [chunk[::every] for chunk in chunks]))
    low, high = np.array(_LEAST), np.array(_MOST)
    weight, margin = low**strength * high ** (1 - strength)
    flat = cells.pixels.reshape(len(cells.pixels), -1).copy()

    def decide(chunk: NDArray[np.int64]) -> None:
        flat[:, cells.at[chunk]] = made(chunk).decided(weight, margin)

    _each(decide, chunks)
    found = np.empty([n * k for n, k in zip(cells.grid, cells.sides, strict=True)], labels.dtype)
    places = itertools.product(*map(range, cells.sides))
    for place, pixels in zip(places, flat, strict=True):
        step = tuple(slice(a, None, k) for a, k in zip(place, cells.sides, strict=True))
        found[step] = pixels.reshape(cells.grid)
    return found[tuple(map(slice, labels.shape))]


def _candidates(cells: _Cells, at: NDArray[np.int64]) -> NDArray[np.integer]:
    """Return the labels (n_candidates, n) of most weight in the cells around those of the band."""
    band = cells.numbers(at)
    steps, offsets = cells.offsets(_AROUND)
    weights = (_AROUND + 1 - np.abs(steps)).prod(axis=1)[:, None] * np.ones(len(band))
    labels = np.concatenate([cells.labels[0, band + offsets[:, None]], cells.labels[1:, band]])
    return _most(labels, np.concatenate([weights, cells.counts[1:, band] > 0]), _N_CANDIDATES)[0]


def _on_edges(chunks: Sequence[_Chunk]) -> float:
    """Return how well borders lie on edges, 0 to 1: whether models agree with labels there."""
    pairs = [chunk.agreements() for chunk in chunks]
    shares, agreements = (
        np.concatenate([one.ravel() for one in each]) for each in zip(*pairs, strict=True)
    )
    beside = agreements[(shares >= 0.6) & (shares < 0.7)].astype(float)
    within = agreements[(shares >= 0.97) & (shares < 0.9999)].astype(float)
    if not len(beside) or not len(within):
        return 1.0
    ratio = (beside.mean() - 0.5) / max(within.mean() - 0.5, 1e-3)
    return float(np.clip(np.round((ratio - _BESIDE) / (_ON - _BESIDE), 3), 0, 1))


def _swept(labels: NDArray[np.integer], image: NDArray[np.int16]) -> NDArray[np.integer]:
    """Return labels after a sweep of a majority near borders, weighted by likeness."""
    rim = [(_SWEEP, _SWEEP)] * labels.ndim
    padded = np.pad(labels, rim, constant_values=_NOWHERE)
    values = np.pad(image, [(0, 0), *rim]).reshape(len(image), -1)
    flat = padded.ravel()
    offsets = _window(padded.shape, _SWEEP)
    at = _near_borders(padded, offsets)

    def majority(at: NDArray[np.int64]) -> NDArray[np.integer]:
        around, weights = flat[at + offsets[:, None]], np.empty((len(offsets), len(at)), np.int32)
        own = values[:, at].astype(np.int32)
        for weight, offset in zip(weights, offsets.tolist(), strict=True):
            apart = np.square(values[:, at + offset] - own).sum(axis=0) // len(own)
            weight[:] = _LIKENESS[np.minimum(apart >> _SHIFT, len(_LIKENESS) - 1)]
        weights[len(offsets) // 2] += 1  # of equal sums that of the label of the pixel is larger
        weights[around == _NOWHERE] = 0
        high = around.max(axis=0)
        low = np.where(around == _NOWHERE, high, around).min(axis=0)
        sums = [np.where(around == label, weights, 0).sum(axis=0) for label in (low, high)]
        found = np.where(sums[0] > sums[1], low, high)
        many = np.flatnonzero(sums[0] * (low != high) + sums[1] != weights.sum(axis=0))
        found[many] = _most(around[:, many], weights[:, many].astype(float), 1)[0][0]
        return found

    parts = [at[start : start + 2 * _CHUNK] for start in range(0, len(at), 2 * _CHUNK)]
    found = flat.copy()
    for part, own in zip(parts, _each(majority, parts), strict=True):
        found[part] = own
    return found.reshape(padded.shape)[tuple(slice(_SWEEP, -_SWEEP) for _ in rim)]


def _window(shape: Sequence[int], radius: int) -> NDArray[np.int64]:
    """Return what the positions of a window add to the number of a pixel."""
    strides = np.cumprod([1, *shape[:0:-1]])[::-1]
    steps = itertools.product(range(-radius, radius + 1), repeat=len(shape))
    return np.array(list(steps)) @ strides


def _near_borders(labels: NDArray[np.integer], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pixels, in an image with a rim that is nowhere, in windows around borders."""
    flat, near = labels.ravel(), np.zeros(labels.size, bool)
    for axis in range(labels.ndim):
        stride = int(np.prod(labels.shape[axis + 1 :]))
        first, second = flat[:-stride], flat[stride:]
        edge = np.flatnonzero((first != second) & (first != _NOWHERE) & (second != _NOWHERE))
        for offset in (*offsets.tolist(), *(offsets + stride).tolist()):
            near[edge + offset] = True
    return np.flatnonzero(near & (flat != _NOWHERE))


def _with_thin_parts(
    labels: NDArray[np.integer], before: NDArray[np.integer], width: int
) -> NDArray[np.integer]:
    """Return labels with what was lost of others: whole objects, and the middles of thin parts."""
    radius = width + 1
    padded = np.pad(before, radius, constant_values=_NOWHERE)
    is_changed = np.pad(labels != before, radius).ravel()
    at, flat = np.flatnonzero(is_changed), padded.ravel()
    around = at + _window(padded.shape, 1)[:, None]
    alike = flat[around] == flat[at]
    index = np.zeros(flat.size, np.int64)
    index[at] = np.arange(len(at))
    pairs = [
        np.stack([np.flatnonzero(own), index[there[own]]])
        for there, own in zip(around, alike & is_changed[around], strict=True)
    ]
    parts = joined_by(pairs, len(at))
    remains = np.bincount(parts, (alike & ~is_changed[around]).any(axis=0)) > 0
    kept = ~remains[parts]
    depth = np.pad(_depths(before, radius), radius).ravel()
    own = depth[at]
    is_middle = (own < radius) & (np.where(alike, depth[around], 0) <= own).all(axis=0)
    thin = np.flatnonzero(is_middle & ~kept)
    wide = at[thin] + _window(padded.shape, width)[:, None]
    deepest = np.where(flat[wide] == flat[at[thin]], depth[wide], 0).max(axis=0)
    kept[thin] = deepest <= own[thin] + 1
    found = np.pad(labels, radius).ravel()
    found[at[kept]] = flat[at[kept]]
    return found.reshape(padded.shape)[tuple(slice(radius, -radius) for _ in labels.shape)]


def _depths(labels: NDArray[np.integer], most: int) -> NDArray[np.uint8]:
    """Return the number of pixels, up to `most`, to the nearest of another label, diagonals too."""
    alike = np.ones(labels.shape, bool)
    for axis in range(labels.ndim):
        lines, own = np.moveaxis(labels, axis, 0), _eroded(alike, axis)
        edge, along = lines[1:] != lines[:-1], np.moveaxis(own, axis, 0)
        along[1:] &= ~edge
        along[:-1] &= ~edge
        alike = own
    depth = np.ones(labels.shape, np.uint8)
    for _ in range(most - 1):
        depth += alike
        for axis in range(labels.ndim):
            alike = _eroded(alike, axis)
    return depth


def _eroded(mask: NDArray[np.bool_], axis: int) -> NDArray[np.bool_]:
    """Return where three pixels along an axis are in the mask; outside the image all are."""
    found = mask.copy()
    there, here = np.moveaxis(found, axis, 0), np.moveaxis(mask, axis, 0)
    there[1:] &= here[:-1]
    there[:-1] &= here[1:]
    return found
