"""How a clustering is run: alternating updates of assignment and prototypes."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.geometry import entropy, normalize_, one_hot_, row_blocks, row_maxima, softmax
from napari_saf.methods._local_order import in_local_order
from napari_saf.methods._method import AbstractMethod, Call, Cancelled, Iteration
from napari_saf.methods._reporting import Reporter, update_labels
from napari_saf.methods._start import (
    check_seeds_fit,
    class_means,
    count_classes,
    from_assignment,
)
from napari_saf.parameters import parameter
from napari_saf.points import MAX_EXACT_FEATURES, k_means_start, squared_distances, weighted_means
from napari_saf.problem import Problem
from napari_saf.result import Record, Snapshot, Status

_BLOCK = 256

__all__ = [
    "AbstractAlternatingMethod",
    "AbstractClustering",
    "AbstractClusteringMethod",
    "Nodes",
    "column_totals",
    "total",
]


class Nodes(Protocol):
    """What a clustering is given: a call, or the nodes of several tasks one after the other."""

    @property
    def features(self) -> torch.Tensor:
        """Features of shape (n_nodes, n_features)."""

    @property
    def seeds(self) -> torch.Tensor | None:
        """Labels 1, 2, ... of shape (n_nodes,) that a person gave; 0 for none."""

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the run was told to end."""


class AbstractClustering(ABC):
    """A clustering under way.

    Parameters
    ----------
    call : Nodes
    n_columns : int

    Attributes
    ----------
    v, assignment : Tensor of shape (n_nodes, n_columns)
        Log coordinates, whose rows have a maximum of 0, and their softmax.
    objective : float
        Where it decides on the end, it never rises from one iteration to the next.
    n_evaluations : int
        Inner updates so far.
    notes : list of str
        What a person should know of the run.
    """

    def __init__(self, call: Nodes, n_columns: int) -> None:
        self.features = call.features
        self.raise_if_cancelled = call.raise_if_cancelled
        self.objective = math.nan
        self.n_evaluations = 0
        self.notes: list[str] = []
        self.v = torch.zeros(len(self.features), n_columns).to(self.features)
        self.assignment = torch.full_like(self.v, 1 / n_columns)
        self._seeds = call.seeds
        check_seeds_fit(self._seeds, n_columns)

    def approach(self) -> Iterator[None]:
        """Go to where the run starts; pauses where there is something to show."""
        yield from ()

    @abstractmethod
    def begin(self) -> None:
        """Compute the objective of the start."""

    @abstractmethod
    def advance(self) -> None:
        """Make one outer iteration: the assignment, then the prototypes."""

    def conclude(self) -> bool:
        """Take the prototypes that belong to the assignment; return whether they are others."""
        return False

    @abstractmethod
    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        """Return what else is recorded, such as the objective of the hard labels."""

    @abstractmethod
    def prototypes(self) -> torch.Tensor:
        """Return the representative (n_columns, n_features) of every column."""

    def gain(self, before: float) -> float:
        """Return by which share the last iteration lowered the objective, or what ends a run."""
        return (before - self.objective) / max(abs(self.objective), 1e-300)

    def exemplars(self) -> NDArray[np.int64] | None:
        """Return the node (n_columns,) that stands for each column, if nodes do."""
        return None

    def remarks(self, labels: torch.Tensor) -> tuple[str, ...]:
        """Return what a person should know of the hard labels at the end."""
        return ()

    def move(self, v: torch.Tensor) -> None:
        """Go to log coordinates, which are overwritten; seeds stay where they are."""
        self.v = self.constrain(v)
        softmax(self.v, out=self.assignment)

    def constrain(self, v: torch.Tensor) -> torch.Tensor:
        """Normalise log coordinates in place and make the rows of seeds vertices."""
        normalize_(v)
        if self._seeds is not None:
            rows = self._seeds.nonzero()[:, 0]
            one_hot_(v, rows, self._seeds[rows] - 1)
        return v


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractAlternatingMethod(AbstractMethod):
    """A method that alternates between assignment and prototypes.

    The label of a node is that of its largest share; of several, that of the nearest prototype.

    Parameters
    ----------
    tolerance : float
        CONVERGED once an iteration lowers the objective by less than this share.
    max_iterations : int
        MAX_ITERATIONS after so many outer iterations.
    device, dtype
        As for every method: `AbstractMethod`.
    """

    tolerance: float = parameter(
        1e-4,
        label="Tolerance",
        help="Stop once an iteration improves the objective by a smaller share than this.",
        minimum=0,
        maximum=0.1,
        step=1e-5,
        advanced=True,
    )
    max_iterations: int = parameter(
        100,
        label="Most steps",
        help="Stop after so many iterations in any case.",
        minimum=1,
        maximum=100_000,
        step=10,
        advanced=True,
    )

    @abstractmethod
    def _prepare(self, call: Call) -> AbstractClustering:
        """Return the clustering at its start."""

    def _iterate(self, call: Call) -> Iteration:
        ordered, order = in_local_order(call)
        state = self._prepare(ordered)
        place = slice(None) if order is None else torch.from_numpy(np.argsort(order))
        if call.initial is None and state.v.shape[1] < self._n_columns(call.problem):
            state.notes.append(f"labels reduced to {state.v.shape[1]}: no more distinct features")
        labels = state.v.argmax(dim=1)
        reporter = Reporter(
            self,
            call.problem,
            state.v.shape[1],
            call.began,
            lambda: labels[place],
            lambda: state.v[place],
            keeps_numbers=call.seeds is not None,
        )
        limit = self.max_iterations if call.max_iterations is None else call.max_iterations
        yield reporter.snapshot(0.0)
        try:
            status = yield from self._alternate(state, labels, reporter, limit)
        except Cancelled:
            status = Status.CANCELLED
            update_labels(labels, state.v)
            _conclude(state, labels, reporter.records, is_current=False)
        return reporter.finish(
            status,
            state.assignment.float().cpu()[place].numpy(),
            (state.prototypes().cpu() + call.origin).float().numpy(),
            n_evaluations=state.n_evaluations,
            notes=(
                *state.notes,
                *_empty_note(labels, state.v.shape[1]),
                *state.remarks(labels),
            ),
            exemplars=_in_order(state.exemplars(), order),
        )

    def _alternate(
        self, state: AbstractClustering, labels: torch.Tensor, reporter: Reporter, limit: int
    ) -> Generator[Snapshot, None, Status]:
        """Iterate to the end, whose status is returned; `labels` are kept up to date."""
        records, gains = reporter.records, list[float]()
        for _ in state.approach():
            update_labels(labels, state.v)
            yield reporter.snapshot(0.0)
        state.begin()
        records.append(_record(state, labels, 0, 0.0))
        status = None
        while status is None:
            yield reporter.snapshot(_fraction(gains, self.tolerance))
            if len(records) > limit:
                status = Status.MAX_ITERATIONS
                break
            state.advance()
            changed = update_labels(labels, state.v)
            records.append(_record(state, labels, len(records), changed))
            gains.append(state.gain(records[-2].objective))
            if gains[-1] <= self.tolerance:
                status = Status.CONVERGED
        _conclude(state, labels, records, is_current=True)
        yield reporter.snapshot(1.0)
        return status


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AbstractClusteringMethod(AbstractAlternatingMethod):
    """A method that finds clusters, whose number is given.

    Parameters
    ----------
    n_clusters : int
        Number of labels; fewer may be left where some lose all their nodes, and there are as
        many as the seeds have classes where those are more.
    seed : int
        Draws the start.
    tolerance, max_iterations, device, dtype
        As for every method that alternates: `AbstractAlternatingMethod`.
    """

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

    def _n_columns(self, problem: Problem) -> int:
        n_seeded = 0 if problem.seeds is None else count_classes(problem.seeds)
        return max(self.n_clusters, n_seeded)

    def _takes_mean(self, features: torch.Tensor, dtype: torch.dtype) -> bool:
        """Return the same, and True where distances are products: far from 0 they lose digits."""
        loses = features.shape[1] > MAX_EXACT_FEATURES
        return loses or AbstractMethod._takes_mean(self, features, dtype)

    def start_points(self, call: Call, draw: np.random.RandomState | None = None) -> torch.Tensor:
        """Return the first prototypes: the means of the seeds' classes, then k-means++.

        Fewer than wanted where there are fewer distinct features. Drawn by `draw`, by the seed
        where it is None.
        """
        if call.initial is not None:
            weights = torch.softmax(from_assignment(call.initial, call.features), dim=1)
            return weighted_means(weights, call.features)
        features = call.features
        seeds = call.seeds
        given = features[:0] if seeds is None else class_means(features, seeds)
        if len(given) >= self.n_clusters:
            return given
        # Some may be drawn where one is given: draw as many as if none were.
        count = min(self.n_clusters, len(features))
        source = self.seed if draw is None else draw
        drawn = k_means_start(features.cpu().numpy(), count, source)
        return _join_distinct(given, torch.from_numpy(drawn).to(features))[: self.n_clusters]


def total(values: torch.Tensor) -> float:
    """Return the sum of all entries: rows in their own precision, their sums in float64."""
    return float(values.sum(dim=1).cpu().double().sum())


def column_totals(values: torch.Tensor, weights: torch.Tensor | None = None) -> NDArray[np.float64]:
    """Return the sums of the columns in blocks of rows, and their sums in float64.

    `weights`, of shape (n_nodes, 1), say how often each row counts.
    """
    weights = torch.ones_like(values[:, :1]) if weights is None else weights
    whole = len(values) // _BLOCK * _BLOCK
    rows, counts = values[:whole].view(-1, _BLOCK, values.shape[1]), weights[:whole]
    blocks = torch.bmm(counts.view(-1, 1, _BLOCK), rows)[:, 0]
    sums = torch.cat([blocks, weights[whole:].T @ values[whole:]])
    return np.asarray(sums.cpu().double().sum(dim=0).numpy())


def _join_distinct(given: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Return the given points and those drawn ones that are not there yet."""
    points = given
    for point in drawn:
        if not (points == point).all(dim=1).any():
            points = torch.cat([points, point[None]])
    return points


def _conclude(
    state: AbstractClustering, labels: torch.Tensor, records: list[Record], *, is_current: bool
) -> None:
    """Settle prototypes and ties, and let the last record be of what the run ends with."""
    if records:
        is_current = not state.conclude() and is_current
    n_settled = _settle_ties(labels, state)
    if records and (n_settled or not is_current):
        last = records[-1]
        records[-1] = _record(state, labels, int(last.time), last.changed)


def _settle_ties(labels: torch.Tensor, state: AbstractClustering) -> int:
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


def _record(
    state: AbstractClustering, labels: torch.Tensor, iteration: int, changed: float
) -> Record:
    w = state.assignment
    overlap = (w.T @ w).cpu().double()
    masses = overlap.sum(dim=0).clamp(min=1e-300)
    sizes = torch.bincount(labels, minlength=w.shape[1]).cpu().double()
    return Record(
        time=float(iteration),
        n_evaluations=state.n_evaluations,
        entropy=entropy(w, state.v, w.gather(1, labels[:, None])[:, 0]),
        objective=state.objective,
        label_shares=(sizes / len(labels)).numpy(),
        rank_bound=float((overlap.diagonal() / masses).sum()),
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


def _in_order(
    nodes: NDArray[np.int64] | None, order: NDArray[np.int64] | None
) -> NDArray[np.int64] | None:
    """Return nodes of the local order as those of the problem."""
    return nodes if nodes is None or order is None else order[nodes]


def _empty_note(labels: torch.Tensor, n_columns: int) -> tuple[str, ...]:
    sizes = torch.bincount(labels, minlength=n_columns)
    n_empty = int((sizes == 0).sum())
    if not n_empty:
        return ()
    return (f"{n_columns - n_empty} of {n_columns} labels are left: the others lost all pixels",)
