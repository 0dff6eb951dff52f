"""Clusterings: alternating updates of assignment and prototypes, of one problem or many tasks."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.flow import (
    Cancelled,
    class_means,
    count_classes,
    entropy,
    from_assignment,
    row_blocks,
    row_maxima,
    update_labels,
)
from napari_saf.graph import AffinityGraph
from napari_saf.methods._method import AbstractMethod, Call, Iteration
from napari_saf.methods._reporting import Reporter
from napari_saf.methods._state import AbstractState
from napari_saf.parameters import parameter
from napari_saf.points import MAX_EXACT_FEATURES, k_means_start, squared_distances, weighted_means
from napari_saf.problem import Problem
from napari_saf.result import Record, Snapshot, Status

_MIN_REORDERED_NODES = 2**16
"""With fewer nodes, the fields stay in the caches of the processor in any order."""


def tolerance_parameter(
    default: float, what: str = "improves the objective by a smaller share than", step: float = 1e-5
) -> Any:
    """Return the field of the tolerance at which a run has converged."""
    help = f"Stop once an iteration {what} this."
    return parameter(
        default, label="Tolerance", help=help, minimum=0, maximum=0.1, step=step, advanced=True
    )


def limit_parameter(default: int, what: str = "iterations", step: float | None = 10) -> Any:
    """Return the field of the number of iterations after which a run ends."""
    help = f"Stop after so many {what} in any case."
    return parameter(
        default, label="Most steps", help=help, minimum=1, maximum=100_000, step=step, advanced=True
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractClustering(AbstractMethod):
    """A method that finds clusters, whose number is given.

    The label of a node is that of its largest share; of several, that of the nearest prototype.

    Parameters
    ----------
    tolerance : float
        CONVERGED once an iteration lowers the objective by less than this share.
    max_iterations : int
        MAX_ITERATIONS after so many outer iterations.
    n_clusters : int
        Number of labels; fewer may be left where some lose all their nodes, and there are as
        many as the seeds have classes where those are more.
    seed : int
        Draws the start.
    device, dtype
        As for every method: `AbstractMethod`.
    """

    tolerance: float = tolerance_parameter(1e-4)
    max_iterations: int = limit_parameter(100)
    n_clusters: int = parameter(
        8,
        label="Labels",
        help="Number of labels (K); some may end empty.",
        minimum=2,
        maximum=255,
        at_start=True,
    )
    seed: int = parameter(
        0,
        label="Random seed",
        help="The same seed gives the same labels.",
        minimum=0,
        maximum=2**31 - 1,
        advanced=True,
    )

    @property
    def goes_on_from_any_labels(self) -> bool:
        """Whether `initial` alone says how many labels there are: the prototypes follow it."""
        return True

    @abstractmethod
    def _start(self, call: Call) -> AbstractState:
        """Return the state in which a run starts."""

    def _iterate(self, call: Call) -> Iteration:
        return run_clustering(self, call, self._start, self.tolerance, self.max_iterations)

    def _n_columns(self, problem: Problem) -> int:
        n_seeded = 0 if problem.seeds is None else count_classes(problem.seeds)
        return max(self.n_clusters, n_seeded)

    def _n_fields(self) -> int:
        return 8

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        # Distances that are products lose digits far from 0.
        is_product = features.shape[1] > MAX_EXACT_FEATURES
        return is_product or AbstractMethod._takes_mean(self, features, dtype)


def start_points(call: Call, n_clusters: int, draw: int | np.random.RandomState) -> torch.Tensor:
    """Return the first prototypes: the means of the seeds' classes, then k-means++.

    Fewer than wanted where there are fewer distinct features; those of `initial` if it is given.
    """
    if call.initial is not None:
        weights = torch.softmax(from_assignment(call.initial, call.features), dim=1)
        return weighted_means(weights, call.features)
    points = call.features[:0]
    if call.seeds is not None:
        points = class_means(call.features, call.seeds)
    if len(points) >= n_clusters:
        return points
    # Some may be drawn where one is given: draw as many as if none were.
    count = min(n_clusters, len(call.features))
    for drawn in torch.from_numpy(k_means_start(call.features.cpu().numpy(), count, draw)):
        point = drawn.to(points)
        if not (points == point).all(dim=1).any():
            points = torch.cat([points, point[None]])
    return points[:n_clusters]


def run_clustering(
    method: AbstractMethod,
    call: Call,
    start: Callable[[Call], AbstractState],
    tolerance: float,
    max_iterations: int,
) -> Iteration:
    """Alternate to the end from a start; see `AbstractMethod.iterate`."""
    ordered, order = in_local_order(call)
    state = start(ordered)
    place = slice(None) if order is None else torch.from_numpy(np.argsort(order))
    n_columns = state.v.shape[1]
    if call.initial is None and n_columns < method._n_columns(call.problem):
        state.notes.append(f"labels reduced to {n_columns}: no more distinct features")
    labels = state.v.argmax(dim=1)
    reporter = Reporter(
        method,
        call.problem,
        n_columns,
        call.began,
        lambda: labels[place],
        lambda: state.v[place],
        keeps_numbers=call.seeds is not None,
    )
    limit = max_iterations if call.max_iterations is None else call.max_iterations
    yield reporter.snapshot(0.0)
    try:
        status = yield from _alternate(state, labels, reporter, limit, tolerance)
    except Cancelled:
        status = Status.CANCELLED
        update_labels(labels, state.v)
        _conclude(state, labels, reporter.records, is_current=False)
    n_empty = int((torch.bincount(labels, minlength=n_columns) == 0).sum())
    if n_empty:
        state.notes.append(
            f"{n_columns - n_empty} of {n_columns} labels are left: the others lost all pixels"
        )
    exemplars = state.exemplars()
    return reporter.finish(
        status,
        state.assignment.float().cpu()[place].numpy(),
        (state.prototypes().cpu() + call.offset).float().numpy(),
        n_evaluations=state.n_evaluations,
        notes=(*state.notes, *state.final_notes(labels)),
        exemplars=exemplars if exemplars is None or order is None else order[exemplars],
    )


def _alternate(
    state: AbstractState, labels: torch.Tensor, reporter: Reporter, limit: int, tolerance: float
) -> Generator[Snapshot, None, Status]:
    """Iterate to the end, whose status is returned; `labels` are updated in place."""
    records, gains = reporter.records, list[float]()
    for _ in state.warm_up():
        update_labels(labels, state.v)
        yield reporter.snapshot(0.0)
    state.begin()
    records.append(_record(state, labels, 0, 0.0))
    status = None
    while status is None:
        yield reporter.snapshot(_fraction(gains, tolerance))
        if len(records) > limit:
            status = Status.MAX_ITERATIONS
            break
        before = state.objectives
        state.advance()
        changed = update_labels(labels, state.v)
        records.append(_record(state, labels, len(records), changed))
        gains.append(float(state.gains(before)[0]))
        if gains[-1] <= tolerance:
            status = Status.CONVERGED
    _conclude(state, labels, records, is_current=True)
    yield reporter.snapshot(1.0)
    return status


def _conclude(
    state: AbstractState, labels: torch.Tensor, records: list[Record], *, is_current: bool
) -> None:
    """Update prototypes, break ties, and let the last record be of what the run ends with."""
    if records:
        is_current = not state.conclude() and is_current
    n_ties = _break_ties(labels, state)
    if records and (n_ties or not is_current):
        records[-1] = _record(state, labels, int(records[-1].time), records[-1].changed)


def _break_ties(labels: torch.Tensor, state: AbstractState) -> int:
    """Give nodes of several largest shares that of the nearest prototype; return how many."""
    prototypes, count = state.prototypes(), 0
    for block in row_blocks(state.assignment):
        shares = state.assignment[block]
        is_largest = shares == row_maxima(shares)
        rows = (is_largest.sum(dim=1) > 1).nonzero()[:, 0]
        squares = squared_distances(state.features[block][rows], prototypes)
        squares.masked_fill_(~is_largest[rows], torch.inf)
        labels[block][rows] = squares.argmin(dim=1)
        count += len(rows)
    return count


def _record(state: AbstractState, labels: torch.Tensor, iteration: int, changed: float) -> Record:
    w = state.assignment
    overlap = (w.T @ w).cpu().double()
    masses = overlap.sum(dim=0).clamp(min=1e-300)
    sizes = torch.bincount(labels, minlength=w.shape[1]).cpu().double()
    return Record(
        time=float(iteration),
        n_evaluations=state.n_evaluations,
        entropy=entropy(w, state.v, w.gather(1, labels[:, None])[:, 0]),
        objective=float(state.objectives[0]),
        label_shares=(sizes / len(labels)).numpy(),
        rank_bound=float((overlap.diagonal() / masses).sum()),  # tr(C^-1 W'W)
        changed=changed,
        measures=state.measures(labels),
    )


def _fraction(gains: list[float], tolerance: float) -> float:
    """Return how far the gain per iteration is on its way to the tolerance."""
    first = next((gain for gain in gains if gain > 0), 0.0)
    least = max(tolerance, 1e-12)
    if first <= least:
        return 0.9 if gains else 0.0
    smallest = min(max(gain, least) for gain in gains)
    return min(max(math.log(first / smallest) / math.log(first / least), 0.05), 0.99)


def in_local_order(call: Call) -> tuple[Call, NDArray[np.int64] | None]:
    """Return the call with neighbours of large graphs close together in memory, and that order."""
    whole, graph = call.problem, call.problem.graph
    if graph.n_nodes < _MIN_REORDERED_NODES or not isinstance(graph, AffinityGraph):
        return call, None

    nodes = whole.remember("local order", graph.local_order)
    ordered = whole.remember("graph in local order", lambda: graph.in_order(nodes))
    seeds, groups = (None if x is None else x[nodes] for x in (whole.seeds, whole.groups))
    initial = None if call.initial is None else np.asarray(call.initial)
    if initial is not None and initial.shape[:1] == nodes.shape:
        initial = initial[nodes]
    moved = dataclasses.replace(
        call,
        problem=Problem(whole.features[nodes], ordered, seeds=seeds, groups=groups),
        features=call.features[torch.from_numpy(nodes).to(call.features.device)],
        initial=initial,
    )
    return moved, nodes
