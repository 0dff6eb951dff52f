"""Local label shares and Gaussian image models on a grid of cells. Read next: `_sweeps`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, minimum_filter

from napari_saf.arrays import Array, Bools, Float32s, Float64s, Int64s, Integers
from napari_saf.device import in_threads

Labels = Integers

NOWHERE = -1
"""Label of pixels outside the mask."""
LEVELS = 16 * 255
"""Integer levels of a channel's range, as sums of integers are exact in any order."""
_NOISE = (6.0 / 255) ** 2
"""Minimum variance of a label, in squares of the channel's range."""
_N_SLOTS, _N_CANDIDATES = 3, 4
"""Labels counted per cell, and candidate labels per pixel."""
_AROUND = 2
"""Radius, in cells, of the window for label shares."""
_MODEL = {2: 5, 3: 2}
"""Radius, in cells, of the window for label models, by number of axes."""
N_CELLS = {axes: cells + _AROUND + 1 for axes, cells in _MODEL.items()}
"""Radius, in cells, of the neighbourhood on which borders depend, by number of axes."""
_NOT_CORE = 1 / 128
"""Weight in the models of cells next to another label, which may be mislabelled."""
_BESIDE, _ON = (4.0, 1.0), (24.0, 16.0)
"""(share weight, margin) for borders that are off image edges, and for borders on them."""
_RATIOS = 0.35, 0.55
"""Range of the ratio of model agreement at borders to that in the interior."""
_CHUNK, _SAMPLE = 2**16, 8192
"""Pixels per chunk, and cells sampled to measure the agreement of borders with edges."""


def chunks_of(at: Int64s, n_pixels: int = 16) -> list[Int64s]:
    """Split indices into chunks; each index stands for `n_pixels` pixels or values."""
    size = max(1, _CHUNK // n_pixels)
    return [at[start : start + size] for start in range(0, len(at), size)]


class Cells:
    """Grid of pixel cells padded by `NOWHERE`; the last axis of arrays is the cell."""

    def __init__(self, labels: Labels, image: NDArray[np.int16], sides: Sequence[int]) -> None:
        self.sides = tuple(sides)
        ends = [(0, -n % k) for n, k in zip(labels.shape, self.sides, strict=True)]
        self.pixels = self._blocks(np.pad(labels, ends, mode="edge"))
        self.values = self._blocks(np.pad(image, [(0, 0), *ends], mode="edge"))
        self.grid = self.pixels.shape[1:]
        self.rim = max(_MODEL[labels.ndim], _AROUND)
        self.labels, self.counts = self._counted()
        first = self.labels[0].reshape([n + 2 * self.rim for n in self.grid])
        is_border = minimum_filter(first, 3) != maximum_filter(first, 3)
        mixed = (self.counts[1] > 0).reshape(first.shape)
        near = maximum_filter((is_border | mixed).astype(np.uint8), 3) > 0
        self.is_core = ~(is_border | (maximum_filter(mixed.astype(np.uint8), 3) > 0)).ravel()
        inside = tuple(slice(self.rim, -self.rim) for _ in self.grid)
        self.at = np.flatnonzero(near[inside])
        self.band = self.numbers(self.at)
        self.sums = self._summed()

    def _blocks(self, array: Array) -> Array:
        steps: list[tuple[Any, ...]] = [
            (..., *(slice(a, None, k) for a, k in zip(corner, self.sides, strict=True)))
            for corner in itertools.product(*map(range, self.sides))
        ]
        return np.stack([array[step] for step in steps], axis=-len(self.sides) - 1)

    def numbers(self, at: Int64s) -> Int64s:
        indices = [index + self.rim for index in np.unravel_index(at, self.grid)]
        return np.ravel_multi_index(indices, [n + 2 * self.rim for n in self.grid])

    def offsets(self, radius: int) -> tuple[Int64s, Int64s]:
        """Return the positions in a window of cells and their flat offsets in the padded grid."""
        steps = range(-radius, radius + 1)
        positions = np.array(list(itertools.product(steps, repeat=len(self.grid))))
        strides = np.cumprod([1, *[n + 2 * self.rim for n in self.grid[:0:-1]]])[::-1]
        return positions, positions @ strides

    def _counted(self) -> tuple[Labels, Float32s]:
        """Return the most frequent labels of each cell and their pixel counts."""
        flat = self.pixels.reshape(len(self.pixels), -1)
        labels = np.full((_N_SLOTS, flat.shape[1]), NOWHERE, flat.dtype)
        counts = np.zeros(labels.shape, np.float32)
        labels[0], counts[0] = flat[0], len(flat)
        mixed = np.flatnonzero((flat != flat[0]).any(axis=0))
        labels[:, mixed], counts[:, mixed] = most_frequent(
            flat[:, mixed], np.ones((len(flat), 1)), _N_SLOTS
        )
        rim = [(0, 0), *[(self.rim, self.rim)] * len(self.grid)]
        padded = np.pad(labels.reshape(-1, *self.grid), rim, constant_values=NOWHERE)
        numbers = np.pad(counts.reshape(-1, *self.grid), rim)
        return padded.reshape(_N_SLOTS, -1), numbers.reshape(_N_SLOTS, -1)

    def _summed(self) -> Float64s:
        """Return the weight of each cell, and the weighted sums of I and I^2 of its first label."""
        flat, values = self.pixels.reshape(len(self.pixels), -1), self.values
        n_channels = len(values)
        values = values.reshape(n_channels, len(flat), -1)
        at = self.numbers(np.arange(flat.shape[1]))
        sums = np.zeros((flat.shape[1], 1 + 2 * n_channels))
        sums[:, 0] = self.counts[0, at]
        mixed = np.flatnonzero(self.counts[0, at] < len(flat))
        is_other = flat[:, mixed] != self.labels[0, at[mixed]]
        for c in range(n_channels):
            for power in (1, 2):
                total = np.zeros(flat.shape[1])
                for pixel in values[c]:
                    total += np.square(pixel, dtype=np.float64) if power == 2 else pixel
                few = values[c][:, mixed].astype(float) ** power
                total[mixed] = np.where(is_other, 0, few).sum(axis=0)
                sums[:, 1 + c + (power - 1) * n_channels] = total
        sums *= np.where(self.is_core[at], 1, _NOT_CORE)[:, None]
        padded = np.zeros((self.labels.shape[1], sums.shape[1]))
        padded[at] = sums
        return padded


def most_frequent(labels: Labels, weights: Float64s, count: int) -> tuple[Labels, Float64s]:
    """Return the `count` labels of largest weight per column, ties by number, and their weights."""
    n = labels.shape[1]
    order = np.argsort(labels, axis=0, kind="stable").T
    ranked = np.take_along_axis(labels.T, order, axis=1)
    starts = np.ones(ranked.shape, bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    at = np.flatnonzero(starts)
    weights = np.take_along_axis(np.broadcast_to(weights, labels.shape).T, order, axis=1)
    sums = np.add.reduceat(weights.ravel(), at) if len(at) else np.zeros(0)
    is_valid = (sums > 0) & (ranked.ravel()[at] != NOWHERE)
    at, sums = at[is_valid], sums[is_valid]
    column, label = at // ranked.shape[1], ranked.ravel()[at]
    order = np.lexsort((label, -sums, column))
    column, label, sums = column[order], label[order], sums[order]
    rank = np.arange(len(column)) - np.searchsorted(column, np.arange(n))[column]
    is_top = rank < count
    top, totals = np.full((count, n), NOWHERE, labels.dtype), np.zeros((count, n))
    top[rank[is_top], column[is_top]] = label[is_top]
    totals[rank[is_top], column[is_top]] = sums[is_top]
    return top, totals


def _shares(sides: Sequence[int], offsets: Int64s, width: int) -> Float32s:
    """Return integer tent weights (m, n_offsets) of neighbouring cells, 0 beyond `width` cells."""
    weights = np.ones((1, len(offsets)), np.float32)
    for side, steps in zip(sides, offsets.T, strict=True):
        middles = 2 * np.arange(side) + 1 - side  # in units of half a pixel
        apart = np.abs(2 * side * steps - middles[:, None])
        axis_weights = np.maximum(0, 2 * side * width - apart).astype(np.float32)
        weights = (weights[:, None] * axis_weights).reshape(-1, len(offsets))
    return weights


class Chunk:
    """Label shares and model distances of band cells with equal numbers of candidate labels."""

    def __init__(self, cells: Cells, at: Int64s, candidates: Labels) -> None:
        self.at, self.candidates = at, candidates
        band = cells.numbers(at)
        self.current = cells.pixels.reshape(len(cells.pixels), -1)[:, at]
        steps, offsets = cells.offsets(_AROUND)
        weights = [_shares(cells.sides, steps, width) for width in (_AROUND, 1)]
        near = band + offsets[:, None]
        labels, counts = cells.labels[:, near], cells.counts[:, near]
        label_counts = np.stack([((labels == label) * counts).sum(axis=0) for label in candidates])
        shares, votes = np.einsum("wmo,kon->wkmn", weights, label_counts)
        self.shares = shares / np.maximum(shares.sum(axis=0), np.float32(1))
        self.distances, self.is_known = self._distances(cells, band)
        # Ties go to the current label, then to the label of the nearer model.
        votes = (
            votes.astype(float)
            + 0.5 * (self.current == candidates[:, None])
            - 1e-6 * np.minimum(self.distances, 1e5)
        )
        self.vote = votes.argmax(axis=0)

    def _distances(self, cells: Cells, band: Int64s) -> tuple[Float32s, Bools]:
        """Return the mean negative log density per channel, above the minimum over labels."""
        n_labels, n_channels = len(self.candidates), len(cells.values)
        sums = np.zeros((n_labels, len(band), 1 + 2 * n_channels))
        steps, offsets = cells.offsets(_MODEL[len(cells.grid)])
        for offset in offsets[steps.sum(axis=1) % 2 == 0].tolist():  # a checkerboard suffices
            around = band + offset
            rows, first = cells.sums.take(around, axis=0), cells.labels[0].take(around)
            for label, total in zip(self.candidates, sums, strict=True):
                total += rows * (first == label)[:, None]
        weights, first, second = np.split(sums.transpose(2, 0, 1), [1, 1 + n_channels])
        weights = np.maximum(weights, 1e-9)
        means = first / weights
        variances = np.maximum(second / weights - means**2, 0) + _NOISE * LEVELS**2
        # Variances are shrunk half way to a common one: blurred pixels lie between the means and
        # would otherwise get the label of the wider model.
        variances = np.sqrt(variances * np.exp(np.log(variances).mean(axis=1, keepdims=True)))
        values = cells.values.reshape(n_channels, len(self.current), -1)[..., self.at]
        distances = np.zeros((n_labels, *self.current.shape), np.float32)
        for value, mean, variance in zip(values, means, variances, strict=True):
            half, middle = (0.5 / variance).astype(np.float32), mean.astype(np.float32)
            constant = (0.5 * np.log(variance)).astype(np.float32)
            for k in range(n_labels):
                distances[k] += (value - middle[k]) ** 2 * half[k] + constant[k]
        is_known = sums[..., 0] > 0
        distances /= np.float32(n_channels)
        unknown = ~is_known[:, None]
        worst = np.where(unknown, -np.inf, distances).max(axis=0)
        distances = np.where(unknown, worst, distances)
        distances = np.where(np.isfinite(distances), distances, 0).astype(np.float32)
        return distances - distances.min(axis=0), is_known

    def decided(self, weight: float, margin: float) -> Labels:
        """Return the voted labels, or labels with a score better by `margin`."""
        logs = np.log(np.maximum(self.shares, np.float32(1e-4)))
        scores = np.float32(weight) * logs - 3 * self.distances
        best = scores.max(axis=0)
        voted = np.take_along_axis(scores, self.vote[None], axis=0)[0]
        chosen = np.where(best > voted + np.float32(margin), scores.argmax(axis=0), self.vote)
        decided = np.take_along_axis(self.candidates, chosen.reshape(-1, len(self.at)), axis=0)
        is_candidate = (self.current == self.candidates[:, None]).any(axis=0)
        return np.where(is_candidate, decided, self.current)

    def agreements(self) -> tuple[Float32s, Float32s]:
        """Return label shares and the model probability of the label of largest share."""
        top = self.shares.argmax(axis=0)[None]
        top_distances = np.take_along_axis(self.distances, top, axis=0)[0]
        distances = self.distances.copy()
        np.put_along_axis(distances, top, np.inf, axis=0)
        apart = np.clip(distances.min(axis=0) - top_distances, -4, 4)
        is_known = self.is_known[:2].all(axis=0)
        return self.shares.max(axis=0)[:, is_known], (1 / (1 + np.exp(-apart)))[:, is_known]


def moved(
    labels: Labels, image: NDArray[np.int16], sides: Sequence[int], strength: float
) -> Labels:
    """Relabel pixels near borders from label shares and image models."""
    cells, chunks = _border_chunks(labels, image, sides)
    if not chunks:
        return labels
    off_edges, on_edges = np.array(_BESIDE), np.array(_ON)
    weight, margin = off_edges**strength * on_edges ** (1 - strength)
    flat = cells.pixels.reshape(len(cells.pixels), -1).copy()

    def decide(chunk: _Numbers) -> None:
        at, candidates = chunk
        flat[:, at] = Chunk(cells, at, candidates).decided(weight, margin)

    in_threads(decide, chunks)
    moved = np.empty([n * k for n, k in zip(cells.grid, cells.sides, strict=True)], labels.dtype)
    corners = itertools.product(*map(range, cells.sides))
    for corner, pixels in zip(corners, flat, strict=True):
        step = tuple(slice(a, None, k) for a, k in zip(corner, cells.sides, strict=True))
        moved[step] = pixels.reshape(cells.grid)
    return moved[tuple(map(slice, labels.shape))]


def strength_of(parts: Sequence[tuple[Labels, NDArray[np.int16]]], sides: Sequence[int]) -> float:
    """Return the weight of the image, 0 to 1, large if borders are off its edges."""
    bands = [_border_chunks(*part, sides) for part in parts]
    step = max(1, sum(len(at) for _, chunks in bands for at, _ in chunks) // _SAMPLE)
    samples = [
        (cells, at[::step], candidates[:, ::step])
        for cells, chunks in bands
        for at, candidates in chunks
    ]
    return 1 - _on_edges(in_threads(lambda chunk: Chunk(*chunk), samples)) if samples else 0.0


_Numbers = tuple[Int64s, Labels]
"""Indices of cells and their candidate labels (n_candidates, n)."""


def _border_chunks(
    labels: Labels, image: NDArray[np.int16], sides: Sequence[int]
) -> tuple[Cells, list[_Numbers]]:
    """Return the cells, and chunks of cells near borders with equal numbers of candidates."""
    cells = Cells(labels, image, sides)
    if not len(cells.at):
        return cells, []
    around = in_threads(partial(_candidates, cells), chunks_of(cells.at))
    candidates = np.concatenate(around, axis=1)
    n_labels = (candidates != NOWHERE).sum(axis=0)
    chunks = []
    for n in range(2, _N_CANDIDATES + 1):
        for indices in chunks_of(np.flatnonzero(n_labels == n), len(cells.pixels)):
            chunks.append((cells.at[indices], candidates[:n, indices]))
    return cells, chunks


def _candidates(cells: Cells, at: Int64s) -> Labels:
    """Return the labels (n_candidates, n) of largest weight around each band cell."""
    band = cells.numbers(at)
    steps, offsets = cells.offsets(_AROUND)
    weights = (_AROUND + 1 - np.abs(steps)).prod(axis=1)[:, None] * np.ones(len(band))
    labels = np.concatenate([cells.labels[0, band + offsets[:, None]], cells.labels[1:, band]])
    return most_frequent(
        labels, np.concatenate([weights, cells.counts[1:, band] > 0]), _N_CANDIDATES
    )[0]


def _on_edges(chunks: Sequence[Chunk]) -> float:
    pairs = [chunk.agreements() for chunk in chunks]
    shares, agreements = (
        np.concatenate([values.ravel() for values in arrays]) for arrays in zip(*pairs, strict=True)
    )
    at_border = agreements[(shares >= 0.6) & (shares < 0.7)].astype(float)
    in_core = agreements[(shares >= 0.97) & (shares < 0.9999)].astype(float)
    if not len(at_border) or not len(in_core):
        return 1.0
    low, high = _RATIOS
    ratio = (at_border.mean() - 0.5) / max(in_core.mean() - 0.5, 1e-3)
    return float(np.clip(np.round((ratio - low) / (high - low), 3), 0, 1))
