"""What strokes, and what was labelled before, say of each class: costs of the assignment flow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.ndimage import distance_transform_edt, gaussian_filter, gaussian_gradient_magnitude
from scipy.ndimage import label as label_regions
from scipy.sparse.csgraph import dijkstra

from napari_saf.device import raise_if_interrupted, torch
from napari_saf.graph import (
    AbstractGraph,
    GraphUnion,
    GridGraph,
    NearestDistances,
    mean_nearest_distance,
    path_costs,
)
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
_N_LEFT_OUT = 10
"""Pixels of other strokes that a pixel of a left-out stroke is compared with."""
_STRONG, _LENGTH = 0.9, 0.005
"""The quantile of the strengths of edges that is 1, and the cost of a step beside an edge of that
strength. Chosen, with `edge_power`, on clicks into a third of the photographs, where powers of 2 to
4 are within their noise."""
_REACH = 4.0
"""How far a stroke frees labels that it contradicts: so many times its distance to its class. On
clicks into a third of the photographs 2 to 6 need .3 clicks more or less until an IoU of .9, with
.5 to 1 falls."""
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


def left_out_shares(problem: Problem) -> list[list[float]]:
    """Return for each class the share of each stroke that other strokes label right, left out.

    By features alone. Empty for a class of one stroke, and where there is no other class.
    """
    features, seeds, n_strokes = problem.features, problem.seeds, 0
    assert seeds is not None
    strokes = np.zeros(len(seeds), np.int64)
    numbers = np.setdiff1d(seeds, 0)
    for grid, nodes in grids_of(problem.graph):
        painted = grid.spread(seeds[nodes])
        for number in numbers:
            pieces, count = label_regions(painted == number, np.ones((3,) * painted.ndim))
            pieces = np.where(pieces > 0, pieces + n_strokes, 0)
            strokes[nodes] += np.asarray(grid.gather(pieces), np.int64)
            n_strokes += count
    every = []
    for number in numbers:
        others = [features[seeds == other] for other in numbers if other != number]
        stroke_of, values = strokes[seeds == number], features[seeds == number]
        in_class, shares = np.unique(stroke_of), list[float]()
        for stroke in in_class if len(in_class) > 1 and others else ():
            left_out, rest = values[stroke_of == stroke], values[stroke_of != stroke]
            near = mean_nearest_distance(rest, left_out, _N_LEFT_OUT)
            far = [mean_nearest_distance(other, left_out, _N_LEFT_OUT) for other in others]
            shares.append(float((near < np.min(far, axis=0)).mean()))
        every.append(shares)
    return every


def trust_in_features(problem: Problem) -> float:
    """Return how far features count, 0 to 1, by how many left-out strokes they tell.

    Two more strokes are taken to be told right: what is not known yet is trusted. Of n strokes it
    is 2 / n at least, as each may be of another part of its class.
    """
    shares = np.concatenate(left_out_shares(problem))
    accuracy = (2 + shares.sum()) / (2 + len(shares))
    return float(max(2 * accuracy - 1, 2 / max(2, len(shares))))


def labels_out_of_reach(problem: Problem, labels: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return labels 1, 2, ... before a correction, 0 around the strokes that contradict them.

    That is up to `_REACH` times as far as a pixel of a stroke was from the labels of its class.
    """
    kept, seeds = labels.copy(), problem.seeds
    assert seeds is not None
    for grid, nodes in grids_of(problem.graph):
        before = np.asarray(grid.spread(labels[nodes]), np.int64)
        painted = np.asarray(grid.spread(seeds[nodes]), np.int64)
        is_wrong = (painted > 0) & (painted != before)
        if not is_wrong.any():
            continue
        depths = np.zeros(before.shape)
        for label in np.unique(painted[is_wrong]):
            is_other = before != label
            depth = distance_transform_edt(is_other) if not is_other.all() else np.inf
            depths = np.where(painted == label, depth, depths)
        far, nearest = distance_transform_edt(~is_wrong, return_indices=True)
        is_free = far <= _REACH * depths[tuple(nearest)]
        kept[nodes] = grid.gather(np.where(is_free, 0, before))
    return kept


def stroke_costs(
    call: Call,
    n_classes: int,
    n_nearest: int,
    paths: float,
    edge_power: float,
    trust: float,
    kept: NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Return what the seeds say of each class (n_nodes, n_classes): costs 1 and 2 of the flow.

    Paths begin at the labels that are `kept`, too.
    """
    problem, features = call.problem, call.problem.features
    assert problem.seeds is not None
    unknown = np.ones(problem.n_nodes)
    members = [np.flatnonzero(problem.seeds == label) for label in range(1, n_classes + 1)]
    nearest: dict[int, NearestDistances] = problem.remember(f"nearest strokes, {n_nearest}", dict)
    lengths: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]
    lengths = problem.remember(f"lengths of paths, {edge_power}", dict)

    def by_features(label: int, own: NDArray[np.int64]) -> NDArray[np.float64]:
        found = NearestDistances.of(features, own, n_nearest, nearest.get(label))
        if found.lengths.size <= _MOST_KEPT:
            nearest[label] = found
        return found.mean()

    def by_paths(label: int, own: NDArray[np.int64]) -> NDArray[np.float64]:
        edges = problem.remember(f"paths, {edge_power}", lambda: _step_lengths(problem, edge_power))
        if kept is not None:
            own = np.union1d(own, np.flatnonzero(kept == label + 1))
            return np.asarray(dijkstra(edges, directed=False, min_only=True, indices=own))
        before, found = lengths.get(label, (own[:0], np.full(problem.n_nodes, np.inf)))
        if not np.array_equal(before, own):
            more = np.setdiff1d(own, before)
            if not np.isin(before, own).all():
                more, found = own, np.full(problem.n_nodes, np.inf)
            # Geodesic distances: Bai and Sapiro, https://doi.org/10.1007/s11263-008-0191-z.
            of_more = dijkstra(edges, directed=False, min_only=True, indices=more)
            found = np.minimum(found, np.asarray(of_more, np.float64))
            if found.size <= _MOST_KEPT:
                lengths[label] = own, found
        return np.asarray(found)

    def relative(
        measure: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        columns = [unknown if call.cancelled() else measure(*own) for own in enumerate(members)]
        return _relative(np.stack(columns, axis=1))

    costs = trust * relative(by_features)
    return np.asarray(_UNIT * (costs + paths * relative(by_paths) if paths > 0 else costs))


def _step_lengths(problem: Problem, power: float) -> sparse.csr_array:
    """Return the lengths of the steps of a graph; on a grid a step across an edge is a long one.

    There edges are where blurred features change, and count by a power: of 3, many weak ones, as
    of texture, are less than one that is strong.
    """
    grids, steps = grids_of(problem.graph), problem.graph.steps()
    if not grids:
        return path_costs(steps, problem.features)
    edges = np.empty(problem.n_nodes)
    for grid, nodes in grids:
        image, squares = grid.spread(problem.features[nodes]), np.zeros(grid.shape)
        if grid.mask is not None:  # no edge at its border
            nearest = distance_transform_edt(
                ~grid.mask, return_distances=False, return_indices=True
            )
            image = image[tuple(nearest)]
        widths = [(1 + power) / 2 if side > 1 else 0 for side in grid.shape]
        for values in np.moveaxis(image, -1, 0):
            squares += gaussian_gradient_magnitude(values, widths) ** 2
        edges[nodes] = np.sqrt(grid.gather(squares))
    edges /= max(float(np.quantile(edges, _STRONG)), 1e-30)
    ends = sparse.coo_array(steps)
    lengths = (((edges[ends.row] + edges[ends.col]) / 2) ** power + _LENGTH) * ends.data + 1e-12
    return sparse.csr_array((lengths, (ends.row, ends.col)), shape=ends.shape)


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
    problem: Problem,
    labels: NDArray[np.integer] | None,
    n_classes: int,
    nearby: float,
    trust: float,
) -> NDArray[np.float64]:
    """Return what labels 1, 2, ..., 0 for none, say of each class: cost 3 of the flow, or 4.

    None cost nothing. Raises `Cancelled` within `interruptible`.
    """
    if labels is None:
        return np.zeros(())
    if nearby > 0 and grids_of(problem.graph):
        return _local_costs(problem, labels, n_classes, nearby)
    return trust * _appearance_costs(problem, labels, n_classes)


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
