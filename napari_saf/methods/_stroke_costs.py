"""Class costs of the assignment flow, from strokes and from previous labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.ndimage import distance_transform_edt, gaussian_filter, gaussian_gradient_magnitude
from scipy.ndimage import label as label_regions
from scipy.sparse.csgraph import dijkstra

from napari_saf import graph as graphs
from napari_saf.arrays import Float64s, Floats, Int64s, Integers
from napari_saf.device import raise_if_interrupted, torch
from napari_saf.methods._method import Call
from napari_saf.points import distances, sampled_means
from napari_saf.problem import Problem

_UNIT = 0.05
_APPEARANCE_WEIGHT = 3.0
"""Weight of appearance costs relative to strokes. With `_UNIT` chosen on photographs with strokes,
where 6, or a unit of 0.03 or 0.08, change the mean agreement by less than 0.5 %."""
_BLUR = 0.05
"""Offset of distances, as a share of their mean."""
_N_APPEARANCES = 64
_LOCAL_WEIGHT, _FAR = 0.5, 0.02
"""Weight of local costs, and the local share of a class at which its local mean and its image mean
have equal weight: chosen on half of the images of nuclei."""
_N_LEFT_OUT = 10
"""Number of nearest stroke pixels with which a pixel of a left-out stroke is compared."""
_STRONG, _LENGTH = 0.9, 0.005
"""Quantile of edge strengths scaled to 1, and cost of a step without edges. Chosen, with
`edge_power`, on clicks into a third of the photographs; powers of 2 to 4 agree within noise."""
_REACH = 4.0
"""Radius in which a stroke resets labels, relative to its distance to its class. On clicks into a
third of the photographs 2 to 6 differ by .3 clicks to an IoU of .9; .5 to 1 is worse."""
_MAX_CACHED = 2**24
"""Largest number of cached distances to the strokes of a class."""


def n_cached_numbers(n_nodes: int, n_nearest: int, has_paths: bool) -> int:
    """Return the count of 4-byte numbers per node and class that are cached between strokes."""
    of_paths = 2 if has_paths and n_nodes <= _MAX_CACHED else 0
    return of_paths + (n_nearest if n_nodes * n_nearest <= _MAX_CACHED else 0)


def grids_of(graph: graphs.AbstractGraph) -> list[tuple[graphs.GridGraph, slice]]:
    """Return the grids of a graph with their nodes; empty for other graphs."""
    if isinstance(graph, graphs.GraphUnion):
        return list(zip(graph.grids, graph.slices, strict=True))
    return [(graph, slice(None))] if isinstance(graph, graphs.GridGraph) else []


def left_out_shares(problem: Problem) -> list[list[float]]:
    """Return per class the leave-one-out accuracy of each stroke, if there are others."""
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
        rivals = [features[seeds == rival] for rival in numbers if rival != number]
        stroke_of, values = strokes[seeds == number], features[seeds == number]
        in_class, shares = np.unique(stroke_of), list[float]()
        for stroke in in_class if len(in_class) > 1 and rivals else ():
            left_out, remaining = values[stroke_of == stroke], values[stroke_of != stroke]
            near = graphs.mean_nearest_distance(remaining, left_out, _N_LEFT_OUT)
            far = [graphs.mean_nearest_distance(rival, left_out, _N_LEFT_OUT) for rival in rivals]
            shares.append(float((near < np.min(far, axis=0)).mean()))
        every.append(shares)
    return every


def trust_in_features(problem: Problem) -> float:
    """Return the weight of features in [0, 1] from the leave-one-out accuracy over strokes."""
    shares = np.concatenate(left_out_shares(problem))  # with a prior of two correct strokes
    accuracy = (2 + shares.sum()) / (2 + len(shares))
    return float(max(2 * accuracy - 1, 2 / max(2, len(shares))))


def uncontradicted_labels(problem: Problem, labels: Integers) -> Integers:
    """Return labels, 0 within `_REACH` class distances of contradicting strokes."""
    result, seeds = labels.copy(), problem.seeds
    assert seeds is not None
    for grid, nodes in grids_of(problem.graph):
        previous = np.asarray(grid.spread(labels[nodes]), np.int64)
        painted = np.asarray(grid.spread(seeds[nodes]), np.int64)
        is_wrong = (painted > 0) & (painted != previous)
        if not is_wrong.any():
            continue
        depths = np.zeros(previous.shape)
        for label in np.unique(painted[is_wrong]):
            is_other = previous != label
            depth = distance_transform_edt(is_other) if not is_other.all() else np.inf
            depths = np.where(painted == label, depth, depths)
        far, nearest = distance_transform_edt(~is_wrong, return_indices=True)
        is_free = far <= _REACH * depths[tuple(nearest)]
        result[nodes] = grid.gather(np.where(is_free, 0, previous))
    return result


def stroke_costs(
    call: Call,
    n_classes: int,
    n_nearest: int,
    paths: float,
    edge_power: float,
    trust: float,
    anchors: Integers | None = None,
) -> Float64s:
    """Return costs 1 and 2 of the flow (n_nodes, n_classes); paths also begin at `anchors`."""
    problem, features = call.problem, call.problem.features
    assert problem.seeds is not None
    unknown = np.ones(problem.n_nodes)
    members = [np.flatnonzero(problem.seeds == label) for label in range(1, n_classes + 1)]
    nearest: dict[int, graphs.NearestDistances] = problem.remember(
        f"nearest strokes, {n_nearest}", dict
    )
    lengths: dict[int, tuple[Int64s, Float64s]]
    lengths = problem.remember(f"lengths of paths, {edge_power}", dict)

    def by_features(label: int, class_seeds: Int64s) -> Float64s:
        table = graphs.NearestDistances.of(features, class_seeds, n_nearest, nearest.get(label))
        if table.lengths.size <= _MAX_CACHED:
            nearest[label] = table
        return table.mean()

    def by_paths(label: int, class_seeds: Int64s) -> Float64s:
        edges = problem.remember(f"paths, {edge_power}", lambda: _step_lengths(problem, edge_power))
        if anchors is not None:
            class_seeds = np.union1d(class_seeds, np.flatnonzero(anchors == label + 1))
            return np.asarray(dijkstra(edges, directed=False, min_only=True, indices=class_seeds))
        cached, shortest = lengths.get(label, (class_seeds[:0], np.full(problem.n_nodes, np.inf)))
        if not np.array_equal(cached, class_seeds):
            added = np.setdiff1d(class_seeds, cached)
            if not np.isin(cached, class_seeds).all():
                added, shortest = class_seeds, np.full(problem.n_nodes, np.inf)
            # Geodesic distances: Bai and Sapiro, https://doi.org/10.1007/s11263-008-0191-z.
            from_added = dijkstra(edges, directed=False, min_only=True, indices=added)
            shortest = np.minimum(shortest, np.asarray(from_added, np.float64))
            if shortest.size <= _MAX_CACHED:
                lengths[label] = class_seeds, shortest
        return np.asarray(shortest)

    def relative(measure: Callable[[int, Int64s], Float64s]) -> Float64s:
        columns = [
            unknown if call.cancelled() else measure(label, nodes)
            for label, nodes in enumerate(members)
        ]
        return _relative(np.stack(columns, axis=1))

    costs = trust * relative(by_features)
    return np.asarray(_UNIT * (costs + paths * relative(by_paths) if paths > 0 else costs))


def _step_lengths(problem: Problem, power: float) -> sparse.csr_array:
    """Return step lengths, on a grid by the `power` of edge strengths."""
    grids, steps = grids_of(problem.graph), problem.graph.steps()
    if not grids:
        return graphs.path_costs(steps, problem.features)
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


def _relative(table: Floats) -> Float64s:
    """Return d_k / (d_k + d_l), d_l the least of the other classes; 1/2 if all are infinite."""
    is_finite = np.isfinite(table)
    if not is_finite.any():
        return np.full(table.shape, 0.5)
    blur = _BLUR * table[is_finite].mean() + 1e-30
    table = np.where(is_finite, table, 1e6 * (table[is_finite].max() + blur)) + blur
    first, second = np.partition(table, 1, axis=1)[:, :2].T[..., None]
    is_first = np.arange(table.shape[1]) == table.argmin(axis=1)[:, None]
    return np.asarray(table / (table + np.where(is_first, second, first)))


def refinement_costs(
    problem: Problem, labels: Integers | None, n_classes: int, nearby: float, trust: float
) -> Float64s:
    """Return cost 3 or 4 of the flow from labels 1, 2, ..., 0: none; may raise `Cancelled`."""
    if labels is None:
        return np.zeros(())
    if nearby > 0 and grids_of(problem.graph):
        return _local_costs(problem, labels, n_classes, nearby)
    return trust * _appearance_costs(problem, labels, n_classes)


def _local_costs(problem: Problem, labels: Integers, n_classes: int, width: float) -> Float64s:
    """Return costs by distance to the local mean of each class."""
    table = np.full((problem.n_nodes, n_classes), np.inf)
    for grid, nodes in grids_of(problem.graph):
        features = problem.features[nodes]
        widths = [width if side > 1 else 0 for side in grid.window]
        for k in range(n_classes):
            inside = (labels[nodes] == k + 1).astype(np.float32)
            if not inside.any():
                continue
            raise_if_interrupted()
            share = np.asarray(grid.gather(gaussian_filter(grid.spread(inside), widths)))
            squares = np.zeros(len(features))
            for values in features.T:
                raise_if_interrupted()
                # far from a class its image mean is used
                sums = grid.gather(gaussian_filter(grid.spread(inside * values), widths))
                mean = (sums + _FAR * values[inside > 0].mean()) / (share + _FAR)
                squares += (values - mean) ** 2
            table[nodes, k] = np.sqrt(squares)
    return _UNIT * _LOCAL_WEIGHT * _relative(table)


def _appearance_costs(problem: Problem, labels: Integers, n_classes: int) -> Float64s:
    """Return costs by the rarity of each class among nodes of similar appearance."""
    appearance = problem.remember("appearance", lambda: _appearance(problem.features))
    size = (n_classes + 1, int(appearance.max()) + 1)
    cells = np.ravel_multi_index((labels, appearance), size)
    counts = np.bincount(cells, minlength=size[0] * size[1]).reshape(size)[1:].T
    shares = counts / counts.sum(axis=0).clip(min=1) + 1 / len(appearance)
    unlikely = 1 - shares / shares.sum(axis=1, keepdims=True)  # 1 - p_k
    return np.asarray(_UNIT * _APPEARANCE_WEIGHT * unlikely[appearance])


def _appearance(features: Floats) -> Int64s:
    """Return the nearest of `_N_APPEARANCES` feature means for each node."""
    means = sampled_means(features, _N_APPEARANCES, max_iterations=10).astype(features.dtype)
    table = distances(torch.from_numpy(features), torch.from_numpy(means))
    return table.argmin(dim=1).numpy()
