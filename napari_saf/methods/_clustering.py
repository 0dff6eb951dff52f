"""Clustering by alternating updates of assignment and prototypes, of one problem or many tasks.

`AbstractState` makes the updates, `run_clustering` drives one problem to convergence. Read next:
`_slk`, `_fair`, `_few_shot`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from napari_saf import flow
from napari_saf.arrays import Int64s
from napari_saf.device import torch
from napari_saf.graph import AffinityGraph
from napari_saf.methods._method import (
    AbstractMethod,
    Call,
    Iteration,
    Reporter,
    limit_parameter,
    seed_parameter,
    tolerance_parameter,
)
from napari_saf.parameters import parameter
from napari_saf.points import MAX_EXACT_FEATURES, squared_distances, weighted_means
from napari_saf.problem import Problem
from napari_saf.result import LabelMap, Record, Snapshot, Status

_MIN_REORDERED_NODES = 2**16
"""Number of nodes below which fields fit the processor caches in any order."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractAlternating(AbstractMethod):
    """Base class of methods that alternate assignment and prototype updates."""

    # fmt: off
    tolerance: float = tolerance_parameter(1e-4)
    max_iterations: int = limit_parameter(100)
    # fmt: on

    @abstractmethod
    def _start(self, call: Call) -> AbstractState:
        """Return the initial state of a run."""

    def _iterate(self, call: Call) -> Iteration:
        return run_clustering(self, call)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractClustering(AbstractAlternating):
    """Base class of clusterings with `n_clusters` labels, or the seed classes if these are more."""

    accepts_any_initial: ClassVar[bool] = True
    _n_fields: ClassVar[int] = 8

    # fmt: off
    n_clusters: int = parameter(
        8, label="Labels", bounds=(2, 65_535), at_start=True,
        help="Number of labels (K); some may be empty at the end.")
    seed: int = seed_parameter()
    # fmt: on

    def _n_columns(self, problem: Problem) -> int:
        n_seeded = 0 if problem.seeds is None else flow.count_classes(problem.seeds)
        return max(self.n_clusters, n_seeded)

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        # Distances by products lose precision far from 0.
        is_product = features.shape[1] > MAX_EXACT_FEATURES
        return is_product or AbstractMethod._takes_mean(self, features, dtype)


def start_points(call: Call, n_clusters: int, draw: int | np.random.RandomState) -> torch.Tensor:
    """Return initial prototypes: of `initial`, or seed means and distinct k-means++ points."""
    if call.initial is not None:
        weights = torch.softmax(flow.from_assignment(call.initial, call.features), dim=1)
        points = weighted_means(weights, call.features)
        if call.previous is not None:
            columns, prototypes = call.previous.columns, torch.from_numpy(call.previous.prototypes)
            points[columns[columns >= 0]] = (prototypes[columns >= 0] - call.offset).to(points)
        return points
    points = call.features[:0]
    if call.seeds is not None:
        points = flow.class_means(call.features, call.seeds)
    if len(points) >= n_clusters:
        return points
    # Draws may coincide with seeded means: draw as many as without seeds.
    count = min(n_clusters, len(call.features))
    # Arthur and Vassilvitskii, https://doi.org/10.5555/1283383.1283494.
    from sklearn.cluster import kmeans_plusplus  # takes half a second to load

    rows = call.features if call.order is None else call.features[np.argsort(call.order)]
    drawn_points, _ = kmeans_plusplus(rows.cpu().numpy(), count, random_state=draw)
    for drawn in torch.from_numpy(drawn_points):
        point = drawn.to(points)
        if not (points == point).all(dim=1).any():
            points = torch.cat([points, point[None]])
    return points[:n_clusters]


def run_clustering(method: AbstractAlternating, call: Call) -> Iteration:
    """Iterate to convergence; see `AbstractMethod.iterate`."""
    ordered = in_local_order(call)
    state, order = method._start(ordered), ordered.order
    inverse = slice(None) if order is None else torch.from_numpy(np.argsort(order))
    n_columns = state.v.shape[1]
    if call.initial is None and n_columns < method._n_columns(call.problem):
        state.notes.append(f"labels reduced to {n_columns}: no more distinct features")
    labels = state.v.argmax(dim=1)
    reporter = Reporter(
        method,
        call.problem,
        n_columns,
        call.began,
        lambda: labels[inverse],
        lambda: state.v[inverse],
        label_map=None if call.seeds is None else LabelMap.identity(n_columns),
    )
    if call.previous is not None:
        reporter.records += call.previous.history.records()
        state.n_evaluations = call.previous.n_evaluations
    limit = method.max_iterations if call.max_iterations is None else call.max_iterations
    yield reporter.snapshot(0.0)
    try:
        status = yield from _alternate(state, labels, reporter, limit, method.tolerance)
    except flow.Cancelled:
        status = Status.CANCELLED
        flow.update_labels(labels, state.v)
        _conclude(state, labels, reporter.records, is_current=False)
    n_empty = int((torch.bincount(labels, minlength=n_columns) == 0).sum())
    if n_empty:
        state.notes.append(
            f"{n_columns - n_empty} of {n_columns} labels remain: the others lost all pixels"
        )
    exemplars = state.exemplars()
    return reporter.finish(
        status,
        state.assignment.float().cpu()[inverse].numpy(),
        (state.prototypes().cpu() + call.offset).float().numpy(),
        n_evaluations=state.n_evaluations,
        notes=(*state.notes, *state.final_notes(labels)),
        exemplars=exemplars if exemplars is None or order is None else order[exemplars],
    )


def _alternate(
    state: AbstractState, labels: torch.Tensor, reporter: Reporter, limit: int, tolerance: float
) -> Generator[Snapshot, None, Status]:
    """Iterate to the end and return the status; `labels` are updated in place."""
    records = reporter.records
    falls = [(a.objective - b.objective, abs(b.objective)) for a, b in itertools.pairwise(records)]
    gains = [fall / max(size, 1e-300) for fall, size in falls]
    for _ in state.warm_up():
        flow.update_labels(labels, state.v)
        yield reporter.snapshot(0.0)
    state.begin()
    flow.update_labels(labels, state.v)
    if not records:
        records.append(_record(state, labels, 0, 0.0))
    status = None
    while status is None:
        yield reporter.snapshot(_fraction(gains, tolerance))
        if len(records) > limit:
            status = Status.MAX_ITERATIONS
            break
        previous = state.objectives
        state.advance()
        changed = flow.update_labels(labels, state.v)
        records.append(_record(state, labels, len(records), changed))
        gains.append(float(state.gains(previous)[0]))
        if gains[-1] <= tolerance:
            status = Status.CONVERGED
    _conclude(state, labels, records, is_current=True)
    yield reporter.snapshot(1.0)
    return status


def _conclude(
    state: AbstractState, labels: torch.Tensor, records: list[Record], *, is_current: bool
) -> None:
    """Update prototypes, resolve ties by the nearest prototype, and update the last record."""
    if records:
        is_current = not state.conclude() and is_current
    prototypes = state.prototypes()
    for block in flow.row_blocks(state.assignment):
        shares = state.assignment[block]
        is_largest = shares == flow.row_maxima(shares)
        rows = (is_largest.sum(dim=1) > 1).nonzero()[:, 0]
        squares = squared_distances(state.features[block][rows], prototypes)
        labels[block][rows] = squares.masked_fill_(~is_largest[rows], torch.inf).argmin(dim=1)
        is_current = is_current and not len(rows)
    if records and not is_current:
        records[-1] = _record(state, labels, int(records[-1].time), records[-1].changed)


def _record(state: AbstractState, labels: torch.Tensor, iteration: int, changed: float) -> Record:
    w = state.assignment
    overlap = (w.T @ w).cpu().double()
    masses = overlap.sum(dim=0).clamp(min=1e-300)
    sizes = torch.bincount(labels, minlength=w.shape[1]).cpu().double()
    return Record(
        time=float(iteration),
        n_evaluations=state.n_evaluations,
        entropy=flow.entropy(w, state.v, w.gather(1, labels[:, None])[:, 0]),
        objective=float(state.objectives[0]),
        label_shares=(sizes / len(labels)).numpy(),
        rank_bound=float((overlap.diagonal() / masses).sum()),  # tr(C^-1 W'W)
        changed=changed,
        measures=state.measures(labels),
    )


def _fraction(gains: list[float], tolerance: float) -> float:
    """Return the progress of the gain per iteration towards the tolerance."""
    first = next((gain for gain in gains if gain > 0), 0.0)
    least = max(tolerance, 1e-12)
    if first <= least:
        return 0.9 if gains else 0.0
    smallest = min(max(gain, least) for gain in gains)
    return min(max(math.log(first / smallest) / math.log(first / least), 0.05), 0.99)


def in_local_order(call: Call) -> Call:
    """Return the call with nodes of large graphs reordered for memory locality."""
    problem, graph = call.problem, call.problem.graph
    if graph.n_nodes < _MIN_REORDERED_NODES or not isinstance(graph, AffinityGraph):
        return call
    nodes = problem.remember("local order", graph.local_order)
    ordered = problem.remember("graph in local order", lambda: graph.in_order(nodes))
    seeds, groups = (None if x is None else x[nodes] for x in (problem.seeds, problem.groups))
    initial = None if call.initial is None else np.asarray(call.initial)
    if initial is not None and initial.shape[:1] == nodes.shape:
        initial = initial[nodes]
    return dataclasses.replace(
        call,
        problem=Problem(problem.features[nodes], ordered, seeds=seeds, groups=groups),
        features=call.features[torch.from_numpy(nodes).to(call.features.device)],
        initial=initial,
        order=nodes,
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """Stacked problems of equal size and classes; `problem` and `order` are set for a single one.

    `blocks` are features (n_tasks, n_nodes, n_features), `seed_blocks` labels (n_tasks, n_nodes),
    0 for none, on the device of the run.
    """

    blocks: torch.Tensor
    seed_blocks: torch.Tensor | None
    initial: ArrayLike | None = None
    raise_if_cancelled: Callable[[], None] = lambda: None
    problem: Problem | None = None
    order: Int64s | None = None

    @classmethod
    def of(cls, call: Call) -> Tasks:
        seeds = None if call.seeds is None else call.seeds[None]
        args = call.initial, call.raise_if_cancelled, call.problem, call.order
        return cls(call.features[None], seeds, *args)

    def among(self, nodes: Int64s | torch.Tensor) -> Tasks:
        """Return the tasks restricted to some nodes."""
        seeds = None if self.seed_blocks is None else self.seed_blocks[:, nodes]
        return dataclasses.replace(self, blocks=self.blocks[:, nodes], seed_blocks=seeds)

    @property
    def is_image(self) -> bool:
        return self.problem is not None and self.problem.options is not None

    @property
    def n_classes(self) -> int:
        return 0 if self.seed_blocks is None else int(self.seed_blocks.max())

    def class_indicators(self) -> torch.Tensor:
        """Return one-hot seeds (n_tasks, n_nodes, n_classes)."""
        assert self.seed_blocks is not None
        classes = torch.arange(1, self.n_classes + 1, device=self.blocks.device)
        return (self.seed_blocks[..., None] == classes).to(self.blocks)

    def class_means(self, features: torch.Tensor) -> torch.Tensor:
        return weighted_means(self.class_indicators(), features)

    def start(self) -> torch.Tensor | None:
        """Return the initial log coordinates, if any."""
        if self.initial is None:
            return None
        return flow.from_assignment(self.initial, self.blocks.flatten(0, 1))


class AbstractState(ABC):
    """State of a clustering of one problem, or of tasks with stacked rows.

    `v` are log coordinates (n_nodes, n_columns) with row maxima of 0, `assignment` is their
    softmax. Tasks that are not `active` stay fixed. `objectives` (n_tasks,), float64 on the CPU,
    never rise if they decide convergence, and are always computed if `is_recorded`.
    """

    def __init__(self, tasks: Tasks, n_columns: int) -> None:
        self.tasks = tasks
        self.features = tasks.blocks.flatten(0, 1)
        self.n_tasks = len(tasks.blocks)
        self.raise_if_cancelled = tasks.raise_if_cancelled
        self.objectives = torch.full((self.n_tasks,), torch.nan, dtype=torch.float64)
        self.active = torch.ones(self.n_tasks, dtype=torch.bool)
        self.n_evaluations = 0
        self.notes: list[str] = []
        self.is_recorded = True
        self.v = torch.zeros(len(self.features), n_columns).to(self.features)
        self.assignment = torch.full_like(self.v, 1 / n_columns)
        self._seeds = None if tasks.seed_blocks is None else tasks.seed_blocks.flatten()
        flow.check_seeds_fit(self._seeds, n_columns)

    def warm_up(self) -> Iterator[None]:
        """Improve the start before the first record; yield at each intermediate state."""
        yield from ()

    @abstractmethod
    def begin(self) -> None:
        """Compute the initial objectives."""

    @abstractmethod
    def advance(self) -> None:
        """Make one outer iteration: the assignment, then the prototypes."""

    def conclude(self) -> bool:
        """Set the prototypes to those of the assignment; return whether they changed."""
        return False

    def gains(self, previous: torch.Tensor) -> torch.Tensor:
        """Return the relative decrease of the objectives, or another convergence measure."""
        return (previous - self.objectives) / self.objectives.abs().clamp(min=1e-300)

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        """Return further recorded measures, such as the objective of hard labels."""
        return {}

    def prototypes(self) -> torch.Tensor:
        """Return the prototype of each column (n_columns, n_features)."""
        return weighted_means(self.assignment, self.features)

    def exemplars(self) -> Int64s | None:
        """Return the node that represents each column (n_columns,), if any."""
        return None

    def final_notes(self, labels: torch.Tensor) -> tuple[str, ...]:
        """Return notes on the final hard labels."""
        return ()

    def move(self, v: torch.Tensor) -> None:
        """Set the state to log coordinates, which are overwritten, with seeds fixed."""
        self.v = self.constrain(v)
        flow.softmax(self.v, out=self.assignment)

    def constrain(self, v: torch.Tensor) -> torch.Tensor:
        """Normalise log coordinates in place, with one-hot rows of seeds."""
        flow.normalize_(v)
        if self._seeds is not None:
            rows = self._seeds.nonzero()[:, 0]
            flow.one_hot_(v, rows, self._seeds[rows] - 1)
        return v

    def hard_assignment(self, labels: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(self.v).scatter_(1, labels[:, None], 1)

    def by_task(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.view(self.n_tasks, -1, rows.shape[1])

    def totals(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sum of the entries of each task, in float64 after row sums."""
        if rows.ndim == 2:
            rows = torch.mv(rows, rows.new_ones(rows.shape[1]))
        return rows.cpu().double().view(self.n_tasks, -1).sum(dim=1)

    def choose(self, mask: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        if mask.all():
            return new
        is_new = mask.to(new.device)
        if len(new) != self.n_tasks:
            is_new = is_new.repeat_interleave(len(new) // self.n_tasks)
        return torch.where(is_new.view(-1, *[1] * (new.ndim - 1)), new, old)
