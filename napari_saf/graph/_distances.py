"""Distances: nearest neighbours in feature space, and step lengths of paths in a graph.

The library of the neighbour search depends on the data. Times on two cores with k = 5, in seconds
(recall):

====================  ===============  ==============  ================
library               154,401 x 3      58,000 x 9      60,000 x 784
====================  ===============  ==============  ================
scipy cKDTree         0.65 (exact)     0.43 (exact)    -
  principal axes      0.48 (exact)     0.22 (exact)    -
scikit-learn          1.6 kd-tree      1.7 kd-tree     54 brute force
usearch               4.1 (0.91)       1.6 (1.00)      26 (0.999)
====================  ===============  ==============  ================

With few features scipy's tree is by far the fastest; with many, brute force is exact and fast
enough for some thousand nodes. Beyond, usearch: faiss (4.7 s, 0.986) adds an OpenMP runtime beside
torch's (https://github.com/faiss-wheels/faiss-wheels/issues/73), pynndescent compiles for 20 s in
each new environment, hnswlib has no wheels. A single thread makes the graph reproducible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial import KDTree

from napari_saf.arrays import (
    Array,
    Float32s,
    Float64s,
    Floats,
    Int64s,
    Integers,
    as_array,
    as_whole,
)
from napari_saf.errors import InvalidInput

_MOST_TREE_FEATURES = 16
_MOST_EXACT_NODES = 20_000
_LEAF_SIZE = 32
_PAIRS_AT_ONCE = 2**14
_N_BOUNDS = 16
_ROUNDED_UP = np.float32(1 + 1e-6)
_WHOLE_IMAGE = 10.0
"""Path length across a uniform image; on photographs, results with 2 to 30 agree within 1 %."""
_LEAST = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The k nearest neighbours of every node, nearest first, without the node itself."""

    indices: Int64s
    squared_distances: Float64s

    def indicator(self) -> sparse.csr_array:
        """Return the matrix with w_pq = 1 if q is among the nearest of p."""
        n_nodes, k = self.indices.shape
        ends = np.arange(n_nodes + 1) * k
        weights = np.ones(n_nodes * k, dtype=np.float64)
        return sparse.csr_array((weights, self.indices.ravel(), ends), shape=(n_nodes, n_nodes))


def nearest_neighbours(features: ArrayLike, k: int) -> Neighbours:
    """Return the k nearest nodes; recall 0.99 above 16 features and 20,000 nodes, else exact."""
    points, count = as_array(features, "features"), as_whole(k)
    if points.dtype.kind not in "biuf":
        raise InvalidInput(f"features: expected real numbers, got dtype {points.dtype}")
    if points.dtype not in (np.float32, np.float64):
        points = points.astype(np.float64)  # differences of unsigned numbers wrap around
    if points.ndim != 2 or not np.isfinite(points).all():
        raise InvalidInput("features: expected finite numbers of shape (n_nodes, n_features)")
    if len(points) < 2:
        raise InvalidInput(f"features: expected two nodes or more, got {len(points)}")
    if count is None or not 1 <= count < len(points):
        raise InvalidInput(f"k: expected 1 to {len(points) - 1}, got {k!r}")
    k = count
    if points.shape[1] <= _MOST_TREE_FEATURES:
        candidates = _by_tree(points, k + 1)
    elif len(points) <= _MOST_EXACT_NODES:
        candidates = _by_brute_force(points, points, k + 1)[1]
    else:
        candidates = _by_index(points - points[0], k + 1)
    # Drop the node itself, or the farthest if it is not included.
    is_neighbour = candidates != np.arange(len(points))[:, None]
    is_neighbour[is_neighbour.all(axis=1), k] = False
    indices = np.asarray(candidates[is_neighbour], dtype=np.int64)
    squares = squared_steps(points, np.repeat(np.arange(len(points)), k), indices)
    return Neighbours(indices.reshape(-1, k), squares.reshape(-1, k))


def squared_steps(features: Floats, starts: Integers, ends: Integers) -> Float64s:
    squares = np.empty(len(starts))
    for first in range(0, len(starts), _PAIRS_AT_ONCE):
        pairs = slice(first, first + _PAIRS_AT_ONCE)
        difference = features[starts[pairs]] - features[ends[pairs]]
        squares[pairs] = np.einsum("ij,ij->i", difference, difference)
    return squares


def mean_nearest_distance(points: ArrayLike, queries: ArrayLike, k: int) -> Float64s:
    """Return the mean distance of queries to the k nearest points, or to all if fewer."""
    points, queries = np.asarray(points), np.asarray(queries)
    return np.asarray(_search(points, k)(queries, np.inf).mean(axis=1, dtype=np.float64))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NearestDistances:
    """Distances (n_nodes, k) to the k nearest of `nodes`, ascending, padded by infinity."""

    nodes: Int64s
    lengths: Float32s

    @classmethod
    def of(
        cls, features: Floats, nodes: Int64s, k: int, previous: NearestDistances | None = None
    ) -> NearestDistances:
        """Compute the distances to sorted `nodes`, updating `previous` by added nodes."""
        if previous is None or not np.isin(previous.nodes, nodes).all():
            previous = cls(nodes[:0], np.full((len(features), k), np.inf, np.float32))
        points = features[np.setdiff1d(nodes, previous.nodes)]
        if not len(points):
            return previous
        lengths, search = previous.lengths.copy(), _search(points, k)
        for rows, bound in _in_parts(features, points, lengths[:, -1] * _ROUNDED_UP):
            distances = search(features[rows], bound)
            is_near = distances[:, 0] < lengths[rows, -1]
            rows, merged = rows[is_near], (lengths[rows[is_near]], distances[is_near])
            lengths[rows] = np.sort(np.concatenate(merged, axis=1), axis=1)[:, :k]
        return cls(nodes, lengths)

    def mean(self) -> Float64s:
        """Return the mean distance to the k nearest nodes, or to all if fewer."""
        lengths = self.lengths[:, : len(self.nodes)]
        return np.asarray(lengths.mean(axis=1, dtype=np.float64))


def _in_parts(
    features: Floats, points: Floats, farthest: Float32s
) -> Iterator[tuple[Int64s, float]]:
    """Yield nodes whose `farthest` distance may include a point, with an upper bound of it."""
    if points.shape[1] > _MOST_TREE_FEATURES:  # bounds are ineffective
        yield np.arange(len(features)), np.inf
        return
    gaps = np.maximum(points.min(axis=0) - features, features - points.max(axis=0)).clip(0)
    nodes = np.flatnonzero(np.einsum("ij,ij->i", gaps, gaps) <= np.square(farthest))
    nodes = nodes[np.argsort(farthest[nodes], kind="stable")]
    for part in np.array_split(nodes, min(_N_BOUNDS, len(nodes)) or 1):
        yield part, farthest[part[-1:]].max(initial=0)


def _search(points: Array, k: int) -> Callable[[Array, float], Floats]:
    """Return a search for distances to the k nearest points; infinite above a bound."""
    k = min(k, len(points))
    if points.shape[1] > _MOST_TREE_FEATURES:
        return lambda queries, bound: _by_brute_force(points, queries, k)[0]
    tree = KDTree(points, leafsize=_LEAF_SIZE, balanced_tree=False)
    return lambda queries, bound: np.reshape(
        tree.query(queries, k, distance_upper_bound=bound, workers=-1)[0], (len(queries), k)
    )


def _by_tree(points: Array, k: int) -> Int64s:
    """Search a k-d tree along the principal axes, twice as fast as scipy's defaults."""
    scaled = points.astype(np.float64)
    scaled /= max(float(np.abs(scaled).max()), np.finfo(np.float64).tiny)
    centred = scaled - scaled.mean(axis=0)
    rotated = centred @ np.linalg.eigh(centred.T @ centred)[1]
    tree = KDTree(rotated, leafsize=_LEAF_SIZE, balanced_tree=False)
    order = np.asarray(tree.indices)
    indices = np.empty((len(points), k), dtype=np.int64)
    indices[order] = tree.query(rotated[order], k, workers=-1)[1]
    return indices


def _by_brute_force(points: Array, queries: Array, k: int) -> tuple[Floats, Int64s]:
    from sklearn.neighbors import NearestNeighbors  # takes half a second to load

    centre = points[0]  # products far from the origin lose precision
    search = NearestNeighbors(n_neighbors=k, algorithm="brute", n_jobs=-1).fit(points - centre)
    lengths, indices = search.kneighbors(queries - centre)
    return lengths, indices


def _by_index(points: Array, k: int) -> Int64s:
    from usearch.index import Index

    index = Index(ndim=points.shape[1], metric="l2sq", dtype="f32", expansion_search=max(64, 4 * k))
    vectors = np.ascontiguousarray(points, dtype=np.float32)
    index.add(np.arange(len(vectors)), vectors, threads=1)
    return np.asarray(index.search(vectors, k, threads=0).keys, dtype=np.int64)


def path_costs(steps: sparse.csr_array, features: Floats) -> sparse.csr_array:
    """Return step lengths: relative feature distance plus 10 times the relative image distance."""
    ends = sparse.coo_array(steps)
    spread = np.sqrt(np.square(features - features.mean(axis=0)).sum(axis=1).mean())
    squares = squared_steps(features, ends.row, ends.col)
    lengths = np.sqrt(squares) / max(spread, 1e-30) + _WHOLE_IMAGE * ends.data + _LEAST
    return sparse.csr_array((lengths, (ends.row, ends.col)), shape=ends.shape)
