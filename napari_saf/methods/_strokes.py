"""Learning from strokes: what each class costs a node, and flows that learn from their labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.graph import mean_nearest_distance, path_costs, path_lengths
from napari_saf.methods._flow import Flow, run_flow
from napari_saf.methods._method import Call, Iteration, map_steps
from napari_saf.methods._reporting import to_label_image
from napari_saf.points import distances, k_means
from napari_saf.result import Segmentation, Snapshot, Status

__all__ = ["StrokeCosts", "run_repeatedly"]

_UNIT = 0.05
_APPEARANCE_WEIGHT = 3.0
"""Weight of what was labelled beside the strokes themselves. With `_UNIT` chosen on photographs
with strokes, where 6, or a unit of 0.03 or 0.08, change the mean agreement by less than 0.5 %."""
_BLUR = 0.05
"""Share of the mean distance below which distances count as alike."""
_N_APPEARANCES = 64
_MAX_SAMPLES = 4000
_MIN_CHANGED = 0.002
"""Share of the nodes; if fewer change label from one flow to the next, that was the last."""

Labels = NDArray[np.int64]


class StrokeCosts:
    """What it costs each node to take each class, from strokes and from what was labelled.

    Parameters
    ----------
    call : Call
        With seeds.
    n_classes : int
    n_nearest : int
        So many seeds of a class that are nearest in feature space tell the distance to it.
    paths : float
        Weight of the paths to the strokes beside the distances in feature space.

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
        """Return the costs (n_nodes, n_classes) that the strokes alone tell."""
        return self._tensor(_UNIT * self._of_strokes)

    def with_labels(self, labels: NDArray[np.integer]) -> torch.Tensor:
        """Return the costs with what labels 1, 2, ... (n_nodes,) tell, 0 for none."""
        problem = self._call.problem
        looks = problem.remember("appearances", lambda: _appearances(problem.features))
        size = (self._n_classes + 1, int(looks.max()) + 1)
        cells = np.ravel_multi_index((labels, looks), size)
        counts = np.bincount(cells, minlength=size[0] * size[1]).reshape(size)[1:].T
        shares = counts / counts.sum(axis=0).clip(min=1) + 1 / len(looks)
        unlikely = 1 - shares / shares.sum(axis=1, keepdims=True)  # 1 - p_k
        return self._tensor(_UNIT * (self._of_strokes + _APPEARANCE_WEIGHT * unlikely[looks]))

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


def _appearances(features: NDArray[np.floating]) -> Labels:
    """Return which of a few means of the features, found by k-means, is nearest to each node."""
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(features), min(_MAX_SAMPLES, len(features)), replace=False)
    sample = features[chosen].astype(np.float64)
    count = min(_N_APPEARANCES, len(np.unique(sample, axis=0)))
    means = k_means(sample, count, max_iterations=10).astype(features.dtype)
    table = distances(torch.from_numpy(features), torch.from_numpy(means))
    return table.argmin(dim=1).numpy()


def run_repeatedly(
    call: Call,
    n_runs: int,
    labels: Labels | None,
    make_flow: Callable[[Call, Labels | None], Flow],
    tidy: Callable[[Labels], Labels] | None,
) -> Iteration:
    """Integrate flows one after the other, each from what the last one found.

    Parameters
    ----------
    call : Call
        Of the whole run.
    n_runs : int
        At most; fewer where labels stay as they are.
    labels : array of shape (n_nodes,) or None
        What the first flow knows.
    make_flow : callable
        Makes a flow for a call, given labels 1, 2, ... of the nodes.
    tidy : callable or None
        Makes of the labels of a flow what the next one knows.
    """
    result: Segmentation | None = None
    for k in range(n_runs):
        own = call
        if result is not None and call.max_iterations is not None:
            left = call.max_iterations - (len(result.history) - k)
            if left <= 0:
                break
            own = dataclasses.replace(call, max_iterations=left)
        steps = run_flow(make_flow(own, labels), own)
        later = yield from map_steps(steps, _continuation(result, k, n_runs))
        if result is not None and later.status is Status.CANCELLED:
            return dataclasses.replace(result, status=Status.CANCELLED)
        before, labels = labels, later.assignment.argmax(axis=1) + 1
        if tidy is not None:
            labels = tidy(labels)
            later = dataclasses.replace(later, labels=to_label_image(call.problem, labels))
        if result is not None:
            later = dataclasses.replace(
                later,
                history=result.history.then(later.history),
                n_evaluations=result.n_evaluations + later.n_evaluations,
            )
        result = later
        if result.status is Status.CANCELLED:
            break
        if before is not None and np.count_nonzero(before != labels) < _MIN_CHANGED * len(labels):
            break
    assert result is not None
    return result


def _continuation(
    before: Segmentation | None, k: int, n_runs: int
) -> Callable[[Snapshot], Snapshot]:
    """Return what makes snapshots of flow k those of the whole run.

    They show the labels of the flow before it: its own begin undecided.
    """

    def change(snapshot: Snapshot) -> Snapshot:
        fraction = (k + snapshot.fraction) / n_runs
        if before is None:
            return dataclasses.replace(snapshot, fraction=fraction)
        record = dataclasses.replace(
            snapshot.record,
            time=snapshot.record.time + before.history.time[-1],
            n_evaluations=snapshot.record.n_evaluations + before.n_evaluations,
        )
        return dataclasses.replace(
            snapshot,
            fraction=fraction,
            record=record,
            _read_labels=lambda: before.labels,
            _read_prototypes=lambda: before.prototypes,
            _read_logarithm=lambda: np.log(before.assignment.clip(1e-10)),
        )

    return change
