"""What each class costs a node, from strokes and from what was labelled."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.graph import mean_nearest_distance, path_costs, path_lengths
from napari_saf.methods._method import Call
from napari_saf.points import distances, k_means

_UNIT = 0.05
_APPEARANCE_WEIGHT = 3.0
"""Weight of what was labelled next to the strokes themselves. With `_UNIT` chosen on photographs
with strokes, where 6, or a unit of 0.03 or 0.08, change the mean agreement by less than 0.5 %."""
_BLUR = 0.05
"""Share of the mean distance below which distances count as alike."""
_N_APPEARANCES = 64
_MAX_SAMPLES = 4000


class StrokeCosts:
    """What it costs each node to take each class, from strokes and from what was labelled.

    Parameters
    ----------
    call : Call
        With seeds.
    n_classes : int
    n_nearest : int
        The distance to a class is the mean to so many of its nearest seeds in feature space.
    paths : float
        Weight of the paths to the strokes, relative to the distances in feature space.

    Notes
    -----
    The cost of a class is between 0 and `_UNIT` (1 + paths + 3), the sum of

    1. d_k / (d_k + d_l), d_k the mean distance to the nearest seeds of class k in feature space
       and d_l that to the nearest other class;
    2. the same of the lengths of the shortest paths to the strokes, weighted by `paths`;
    3. once nodes are labelled, 1 - p_k, weighted by 3: p_k is the share of class k among the
       nodes that look alike (share the nearest of 64 means of features), every class counted
       as if it had as many nodes as the others.
    """

    def __init__(self, call: Call, n_classes: int, n_nearest: int, paths: float) -> None:
        problem = call.problem
        assert problem.seeds is not None
        self._call = call
        self._n_classes = n_classes
        features, unknown = problem.features, np.ones(problem.n_nodes)
        members = [np.flatnonzero(problem.seeds == label) for label in range(1, n_classes + 1)]
        columns = [
            unknown
            if call.cancelled()
            else mean_nearest_distance(features[own], features, n_nearest)
            for own in members
        ]
        self._of_strokes = _relative(np.stack(columns, axis=1))
        if paths > 0:
            costs = problem.remember("paths", lambda: path_costs(problem.graph, features))
            columns = [unknown if call.cancelled() else path_lengths(costs, own) for own in members]
            self._of_strokes += paths * _relative(np.stack(columns, axis=1))

    def of_strokes(self) -> torch.Tensor:
        """Return the costs (n_nodes, n_classes) by the strokes alone."""
        return self._tensor(_UNIT * self._of_strokes)

    def with_labels(self, labels: NDArray[np.integer]) -> torch.Tensor:
        """Return the costs given labels 1, 2, ... (n_nodes,) as well, 0 for none."""
        problem = self._call.problem
        appearance = problem.remember("appearance", lambda: _appearance(problem.features))
        size = (self._n_classes + 1, int(appearance.max()) + 1)
        cells = np.ravel_multi_index((labels, appearance), size)
        counts = np.bincount(cells, minlength=size[0] * size[1]).reshape(size)[1:].T
        shares = counts / counts.sum(axis=0).clip(min=1) + 1 / len(appearance)
        unlikely = 1 - shares / shares.sum(axis=1, keepdims=True)  # 1 - p_k
        return self._tensor(_UNIT * (self._of_strokes + _APPEARANCE_WEIGHT * unlikely[appearance]))

    def _tensor(self, costs: NDArray[np.floating]) -> torch.Tensor:
        return torch.from_numpy(costs).to(self._call.features)


def _relative(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return d_k / (d_k + d_l), d_l the least of the others; a half where nothing is known."""
    known = np.isfinite(table)
    if not known.any():
        return np.full_like(table, 0.5)
    blur = _BLUR * table[known].mean() + 1e-30
    table = np.where(known, table, 1e6 * (table[known].max() + blur)) + blur
    first, second = np.partition(table, 1, axis=1)[:, :2].T[..., None]
    is_first = np.arange(table.shape[1]) == table.argmin(axis=1)[:, None]
    return np.asarray(table / (table + np.where(is_first, second, first)))


def _appearance(features: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return which of a few means of the features, found by k-means, is nearest to each node."""
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(features), min(_MAX_SAMPLES, len(features)), replace=False)
    sample = features[chosen].astype(np.float64)
    count = min(_N_APPEARANCES, len(np.unique(sample, axis=0)))
    means = k_means(sample, count, max_iterations=10).astype(features.dtype)
    table = distances(torch.from_numpy(features), torch.from_numpy(means))
    return table.argmin(dim=1).numpy()
