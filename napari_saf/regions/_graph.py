"""Region adjacency graph and greedy merging. Read next: `_hierarchy`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from napari_saf.arrays import Array, Float32s, Float64s, Floats, Int64s, Integers
from napari_saf.regions._pieces import (
    ABSORBED,
    Report,
    connected_components,
    cut_by_colour,
    describe,
    ignore,
)

_N_BINS = 16
_RANGES = ((0.0, 1.0), (-0.6, 0.6), (-0.6, 0.6), (np.log(0.01), np.log(0.3)))
"""Histogram ranges of lightness, two colour axes and texture."""
_FIRST = 1e6
"""Bonus in the log odds of regions that are too small."""
_DESCRIBED, _CUT, JOINED = 0.65, 0.85, 0.9
"""Shares of the running time at which each step of `merge_regions` ends."""
WEIGHTS = np.array(
    [-0.13, -4.06, -3.27, -3.41, -15.84, 9.87, -11.80, -0.96, -0.21, -0.30, 0.82, 0.49]
)
"""Weights of the cues and the bias, fitted by `benchmarks/defaults.py weights`."""


class RegionGraph:
    """Adjacency graph of regions; `boundaries` are the lengths and gradients of `pairs`."""

    @classmethod
    def of(
        cls, labels: Integers, channels: Array, least: float, report: Report = ignore
    ) -> RegionGraph:
        """Build the graph of labels cut by colour; `least` is the least region size, in pixels."""
        values, gradients = describe(channels, lambda share: report(_DESCRIBED * share))
        cut = cut_by_colour(
            labels, values[:3], lambda share: report(_DESCRIBED + (_CUT - _DESCRIBED) * share)
        )
        finest = connected_components(cut, ABSORBED * least)
        report(_CUT)
        return cls(finest, values, gradients)

    def __init__(
        self, finest: NDArray[np.int32], values: Sequence[Floats], gradients: Float32s
    ) -> None:
        self.finest = finest
        owner = finest.ravel()
        self.n = int(owner.max()) + 1
        self.sizes = np.bincount(owner, minlength=self.n).astype(float)
        self.total = self.sizes[1:].sum()
        histograms = []
        for value, (low, high) in zip(values, _RANGES, strict=True):
            bins = np.clip((value.ravel() - low) / (high - low) * _N_BINS, 0, _N_BINS - 1)
            counts = np.bincount(owner * _N_BINS + bins.astype(int), minlength=self.n * _N_BINS)
            histograms.append(counts.reshape(self.n, _N_BINS).cumsum(axis=1))
        self.histograms = np.stack(histograms, axis=1).astype(float)  # cumulative
        self.pairs, self.boundaries = self._boundaries(gradients)
        lengths = np.repeat(self.boundaries[:, 0], 2)
        self.perimeters = np.bincount(self.pairs.ravel(), lengths, self.n)

    def _boundaries(self, gradients: Float32s) -> tuple[Int64s, Float64s]:
        keys, sums = [], []
        for axis in range(self.finest.ndim):
            here, there = (
                np.moveaxis(self.finest, axis, 0)[rows] for rows in (slice(-1), slice(1, None))
            )
            along = np.moveaxis(gradients, axis + 1, 1)
            is_edge = (here != there) & (here > 0) & (there > 0)
            ends = here[is_edge].astype(np.int64), there[is_edge].astype(np.int64)
            keys.append(np.minimum(*ends) * self.n + np.maximum(*ends))
            sums.append((along[:, :-1][:, is_edge] + along[:, 1:][:, is_edge]) / 2)
        edges, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        columns = [None, *np.concatenate(sums, axis=1)]
        table = np.stack([np.bincount(inverse, w, minlength=len(edges)) for w in columns], axis=1)
        return np.stack(np.divmod(edges, self.n), axis=1), table.astype(float)

    def rows_of(self, region: int) -> Int64s:
        return np.flatnonzero((self.pairs == region).any(axis=1))

    def cues(self, rows: Integers) -> Float64s:
        """Return (n, 12): the cues of each pair, and 1 for the bias."""
        pairs, edges = self.pairs[rows], self.boundaries[rows]
        sizes = self.sizes[pairs]
        shares = self.histograms[pairs[:, 0]] / sizes[:, :1, None]
        shares -= self.histograms[pairs[:, 1]] / sizes[:, 1:, None]
        return np.concatenate(
            [
                np.abs(shares, out=shares).mean(axis=2),
                edges[:, 1:] / edges[:, :1],
                np.log(np.sort(sizes, axis=1) / self.total),
                edges[:, :1] / self.perimeters[pairs].min(axis=1, keepdims=True),
                np.ones((len(pairs), 1)),
            ],
            axis=1,
        )

    def _merge(self, row: int) -> Int64s:
        """Merge the two regions of a row; return the remaining rows of the result."""
        a, b = self.pairs[row].tolist()
        self.sizes[a] += self.sizes[b]
        self.histograms[a] += self.histograms[b]
        self.perimeters[a] += self.perimeters[b] - 2 * self.boundaries[row, 0]
        self.pairs[row] = 0
        of_a, of_b = self.rows_of(a), self.rows_of(b)
        rows = np.concatenate([of_a, of_b])
        neighbours = self.pairs[rows].sum(axis=1) - np.repeat([a, b], [len(of_a), len(of_b)])
        order = np.argsort(neighbours, kind="stable")
        rows, neighbours = rows[order], neighbours[order]
        duplicates = 1 + np.flatnonzero(neighbours[1:] == neighbours[:-1])  # neighbours of both
        self.boundaries[rows[duplicates - 1]] += self.boundaries[rows[duplicates]]
        self.pairs[rows[duplicates]] = 0
        rows, neighbours = np.delete(rows, duplicates), np.delete(neighbours, duplicates)
        self.pairs[rows] = np.stack([np.minimum(a, neighbours), np.maximum(a, neighbours)], axis=1)
        return rows

    def merges(self, weights: Float64s, least: float) -> Iterator[tuple[int, int, float]]:
        """Yield the most likely pair and the probability of two regions, then merge it; repeat."""
        odds, rows = np.empty(len(self.pairs)), np.arange(len(self.pairs))
        while len(self.pairs):
            is_small = self.sizes[self.pairs[rows]].min(axis=1) < least
            odds[rows] = (self.cues(rows) * weights).sum(axis=1) + _FIRST * is_small
            best = np.flatnonzero(odds == odds.max())
            row = int(best[np.lexsort(self.pairs[best].T[::-1])[0]])
            if odds[row] == -np.inf:
                return
            a, b = self.pairs[row].tolist()
            yield a, b, float(expit(-odds[row]))
            rows = self._merge(row)
            odds[self.pairs[:, 0] == 0] = -np.inf
