"""What strokes, and what was labelled before, say of each class: costs of the assignment flow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.sparse.csgraph import dijkstra

from napari_saf.device import raise_if_interrupted, torch
from napari_saf.graph import AbstractGraph, GraphUnion, GridGraph, NearestDistances, path_costs
from napari_saf.methods._method import Call
from napari_saf.points import distances, sampled_means
from napari_saf.problem import Problem

_UNIT = 0.05
_APPEARANCE_WEIGHT = 3.0
"""Weight of what was labelled next to the strokes themselves. With `_UNIT` chosen on photographs
with strokes, where 6, or a unit of 0.03 or 0.08, change the mean agreement by less than 0.5 %."""
_BLUR = 0.05
"""Share of the mean distance below which distances count as alike."""
_N_APPEARANCES = 64
_LOCAL_WEIGHT, _FAR = 0.5, 0.02
"""Weight of what was labelled nearby, and the share of a class in the window at which its mean over
the image counts as much: chosen on half of the images of nuclei."""
_MOST_KEPT = 2**24
"""Entries of a table of distances to the strokes of a class that is kept for the next stroke."""


def kept_numbers(n_nodes: int, n_nearest: int, has_paths: bool) -> int:
    """Return how many numbers of 4 bytes are kept of a node and a class for the next stroke."""
    of_paths = 2 if has_paths and n_nodes <= _MOST_KEPT else 0
    return of_paths + (n_nearest if n_nodes * n_nearest <= _MOST_KEPT else 0)


def grids_of(graph: AbstractGraph) -> list[tuple[GridGraph, slice]]:
    """Return the grids of a graph with their nodes; none of another graph."""
    if isinstance(graph, GraphUnion):
        return list(zip(graph.grids, graph.slices, strict=True))
    return [(graph, slice(None))] if isinstance(graph, GridGraph) else []


def stroke_costs(call: Call, n_classes: int, n_nearest: int, paths: float) -> NDArray[np.float64]:
    """Return what the seeds say of each class (n_nodes, n_classes): costs 1 and 2 of the flow."""
    problem, features = call.problem, call.problem.features
    assert problem.seeds is not None
    unknown = np.ones(problem.n_nodes)
    members = [np.flatnonzero(problem.seeds == label) for label in range(1, n_classes + 1)]
    nearest: dict[int, NearestDistances] = problem.remember(f"nearest strokes, {n_nearest}", dict)
    lengths: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]
    lengths = problem.remember("lengths of paths", dict)

    def by_features(label: int, own: NDArray[np.int64]) -> NDArray[np.float64]:
        found = NearestDistances.of(features, own, n_nearest, nearest.get(label))
        if found.lengths.size <= _MOST_KEPT:
            nearest[label] = found
        return found.mean()

    def by_paths(label: int, own: NDArray[np.int64]) -> NDArray[np.float64]:
        before, found = lengths.get(label, (own[:0], unknown))
        if not np.array_equal(before, own):
            edges = problem.remember("paths", lambda: path_costs(problem.graph.steps(), features))
            # Geodesic distances: Bai and Sapiro, https://doi.org/10.1007/s11263-008-0191-z.
            found = np.asarray(dijkstra(edges, directed=False, min_only=True, indices=own))
            if found.size <= _MOST_KEPT:
                lengths[label] = own, found
        return found

    def relative(
        measure: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        columns = [unknown if call.cancelled() else measure(*own) for own in enumerate(members)]
        return _relative(np.stack(columns, axis=1))

    costs = relative(by_features)
    return _UNIT * (costs + paths * relative(by_paths) if paths > 0 else costs)


def _relative(table: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return d_k / (d_k + d_l), d_l the least of the others; a half where nothing is known."""
    known = np.isfinite(table)
    if not known.any():
        return np.full(table.shape, 0.5)
    blur = _BLUR * table[known].mean() + 1e-30
    table = np.where(known, table, 1e6 * (table[known].max() + blur)) + blur
    first, second = np.partition(table, 1, axis=1)[:, :2].T[..., None]
    is_first = np.arange(table.shape[1]) == table.argmin(axis=1)[:, None]
    return np.asarray(table / (table + np.where(is_first, second, first)))


def learned_costs(
    problem: Problem, labels: NDArray[np.integer] | None, n_classes: int, nearby: float
) -> NDArray[np.float64]:
    """Return what labels 1, 2, ..., 0 for none, say of each class: cost 3 of the flow, or 4.

    None cost nothing. Raises `Cancelled` within `interruptible`.
    """
    if labels is None:
        return np.zeros(())
    if nearby > 0 and grids_of(problem.graph):
        return _local_costs(problem, labels, n_classes, nearby)
    return _appearance_costs(problem, labels, n_classes)


def _local_costs(
    problem: Problem, labels: NDArray[np.integer], n_classes: int, width: float
) -> NDArray[np.float64]:
    """Return how far nodes are from the means of the classes around them."""
    table = np.full((problem.n_nodes, n_classes), np.inf)
    for grid, nodes in grids_of(problem.graph):
        own = problem.features[nodes]
        widths = [width if side > 1 else 0 for side in grid.window]
        for k in range(n_classes):
            inside = (labels[nodes] == k + 1).astype(np.float32)
            if not inside.any():
                continue
            raise_if_interrupted()
            share = np.asarray(grid.gather(gaussian_filter(grid.spread(inside), widths)))
            squares = np.zeros(len(own))
            for values in own.T:
                raise_if_interrupted()
                # Where a class is far its mean over the image counts.
                sums = grid.gather(gaussian_filter(grid.spread(inside * values), widths))
                mean = (sums + _FAR * values[inside > 0].mean()) / (share + _FAR)
                squares += (values - mean) ** 2
            table[nodes, k] = np.sqrt(squares)
    return _UNIT * _LOCAL_WEIGHT * _relative(table)


def _appearance_costs(
    problem: Problem, labels: NDArray[np.integer], n_classes: int
) -> NDArray[np.float64]:
    """Return how rare each class is among the nodes that look alike."""
    appearance = problem.remember("appearance", lambda: _appearance(problem.features))
    size = (n_classes + 1, int(appearance.max()) + 1)
    cells = np.ravel_multi_index((labels, appearance), size)
    counts = np.bincount(cells, minlength=size[0] * size[1]).reshape(size)[1:].T
    shares = counts / counts.sum(axis=0).clip(min=1) + 1 / len(appearance)
    unlikely = 1 - shares / shares.sum(axis=1, keepdims=True)  # 1 - p_k
    return np.asarray(_UNIT * _APPEARANCE_WEIGHT * unlikely[appearance])


def _appearance(features: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return which of a few means of the features, found by k-means, is nearest to each node."""
    means = sampled_means(features, _N_APPEARANCES, max_iterations=10).astype(features.dtype)
    table = distances(torch.from_numpy(features), torch.from_numpy(means))
    return table.argmin(dim=1).numpy()
