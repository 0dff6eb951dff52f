"""Variational fair clustering."""

from __future__ import annotations

import dataclasses
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import rel_entr
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from napari_saf.errors import InvalidInput
from napari_saf.geometry import softmax, weighted_medoid
from napari_saf.methods._clustering import (
    AbstractClustering,
    AbstractClusteringMethod,
    column_totals,
    squared_distances,
    total,
    weighted_means,
)
from napari_saf.methods._fairness_term import FairnessTerm
from napari_saf.methods._field_method import Call
from napari_saf.methods._method import drain, never
from napari_saf.methods._neighbourhood import Neighbourhood
from napari_saf.methods._start import distances, from_assignment
from napari_saf.methods._sweep import SweepIteration, TradeOff, sweep
from napari_saf.parameters import parameter
from napari_saf.problem import Problem

__all__ = ["FairClustering"]

Objective = Literal["kmeans", "kmedian", "ncut"]

_MOST_INNER = 20
_START_GAP = 5.0
_LEAST_WEIGHT = 1e-6
_LEAST_DEGREE = 1e-30


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FairClustering(AbstractClusteringMethod):
    """Cluster so that every label is spread over the groups in given proportions.

    Parameters
    ----------
    objective : {"kmeans", "kmedian", "ncut"}
        What a good clustering is without regard to groups: small squared distances to means,
        small distances to a node that stands for the label, or few links cut between labels
        of the problem's graph.
    fairness_weight : float, optional
        >= 0; lambda, what fairness may cost: so many units of the objective for one unit of
        divergence. 0 is the plain clustering, None ten times the objective of the start,
        which keeps proportions closely.
    proportions : array of shape (n_groups,), optional
        mu, the share of each group wanted in every label; >= 0, summing to 1. None: the
        shares of the groups in the data.
    lipschitz : float
        > 0; L at the start, in units of the mean range of a node's gradient. It is doubled
        where the energy would rise and lowered where it falls.
    n_starts : int
        Runs of k-means from which the best is taken as the start.
    n_clusters, tolerance, max_iterations, seed, device, dtype
        As for every clustering: `AbstractClusteringMethod`.

    Notes
    -----
    Ziko, Yuan, Granger and Ben Ayed, "Variational fair clustering", AAAI 2021,
    https://arxiv.org/abs/1906.08207. The energy

        E(S) = F(S) + lambda sum_k KL(mu || P_k),  P_k(j) = V_j'S_k / sum_j V_j'S_k

    falls at every step S <- S exp(-(a + lambda b) / L), rows normalised, once L is at least
    the curvature; a and b are the derivatives of F and of the divergence, L (log S - log S^i)
    the distance kept to the last iterate. L is found by trying: the curvature grows with
    lambda and with the rarity of a group, and a fixed L would be too long or too short.
    Nodes of no group (0) do not count in the divergence.

    F: sum s_pk |x_p - c_k|^2 with means c; sum s_pk |x_p - c_k| with c a node, exactly the one
    with the least sum over nodes of s_pk > 1e-6; sum_k 1 - S_k'W S_k / d'S_k with the graph's
    weights W and degrees d, on a grid those by contrast, see `SLK`.
    """

    name: ClassVar[str] = "fair"
    title: ClassVar[str] = "Fair clustering"

    tolerance: float = parameter(
        1e-6,
        label="Tolerance",
        help="Stop once an iteration improves the objective by a smaller share than this.",
        minimum=0,
        maximum=0.1,
        step=1e-6,
        advanced=True,
    )
    objective: Objective = parameter(
        "kmeans",
        label="Objective",
        help="What keeps a label together: closeness to a mean (kmeans), to a typical pixel "
        "(kmedian), or links between neighbours (ncut).",
        words={
            "kmeans": "close to a mean",
            "kmedian": "close to a pixel",
            "ncut": "linked neighbours",
        },
    )
    fairness_weight: float | None = parameter(
        None,
        label="Fairness",
        help="What equal proportions may cost: 0 nothing, none ten times as much as the "
        "clustering itself (lambda).",
        minimum=0,
        maximum=1e30,
        step=10,
    )
    proportions: NDArray[np.floating] | None = parameter(
        None,
        label="Proportions",
        help="Share of each group wanted in every label, such as 0.5, 0.5; none: that in the "
        "data (mu).",
        is_list=True,
        none="as in the data",
    )
    lipschitz: float = parameter(
        1.0,
        label="Step bound",
        help="How careful the first step is (L); it adapts.",
        minimum=1e-3,
        maximum=1e3,
        step=0.5,
        advanced=True,
    )
    n_starts: int = parameter(
        4,
        label="Starts",
        help="Runs of k-means from which the best is the start.",
        minimum=1,
        maximum=100,
        advanced=True,
    )

    @property
    def uses_window(self) -> bool:
        """Whether it matters who is a neighbour of whom: for the cut only."""
        return self.objective == "ncut"

    def sweep(self, problem: Problem, weights: Sequence[float] | None = None) -> TradeOff:
        """Return the solutions over the fairness weight; see `iterate_sweep`."""
        return drain(self.iterate_sweep(problem, weights))

    def iterate_sweep(
        self,
        problem: Problem,
        weights: Sequence[float] | None = None,
        *,
        cancelled: Callable[[], bool] = never,
    ) -> SweepIteration:
        """Cluster at one fairness weight after another, each starting from the one before.

        Parameters
        ----------
        problem : Problem
            With groups.
        weights : sequence of float, optional
            Fairness weights, >= 0; taken in rising order. None: 0, and nine from a
            thousandth of the plain clustering's objective up to ten times as much.
        cancelled : callable
            As in `iterate`; the sweep then ends with the solutions that are finished.

        Yields
        ------
        Snapshot

        Returns
        -------
        TradeOff

        Raises
        ------
        InvalidInput
            As `iterate`, and if there is no weight, or one is negative or not finite.
        """
        return sweep(
            lambda weight: dataclasses.replace(self, fairness_weight=weight),
            problem,
            weights,
            cancelled,
        )

    def _n_fields(self) -> int:
        return 8

    def _prepare(self, call: Call) -> AbstractClustering:
        groups, proportions = self._groups(call.problem)
        if self.objective == "ncut":
            return _FairCut(self, call, groups, proportions)
        return _FairPrototypes(self, call, groups, proportions)

    def _groups(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return groups numbered from 0 (none: -1), and the proportions wanted."""
        if problem.groups is None:
            raise InvalidInput(
                "groups: expected a group for the nodes; give groups= to the problem, or "
                "groups='image' for several images"
            )
        present, numbered = np.unique(problem.groups, return_inverse=True)
        groups = numbered - 1 if present[0] == 0 else numbered
        n_groups = len(present) - int(present[0] == 0)
        if n_groups < 2:
            raise InvalidInput("groups: expected two or more groups, got one")
        if self.proportions is None:
            counts = np.bincount(groups[groups >= 0], minlength=n_groups)
            return groups, counts / counts.sum()
        wanted = np.asarray(self.proportions, dtype=np.float64)
        if wanted.shape != (n_groups,):
            raise InvalidInput(
                f"proportions: expected one for each of {n_groups} groups, got shape {wanted.shape}"
            )
        if not np.isfinite(wanted).all() or (wanted < 0).any() or abs(wanted.sum() - 1) > 1e-6:
            raise InvalidInput("proportions: expected numbers >= 0 that sum to 1")
        return groups, wanted


class _AbstractFairRun(AbstractClustering):
    """A fair clustering under way."""

    def __init__(
        self,
        method: FairClustering,
        call: Call,
        groups: NDArray[np.int64],
        proportions: NDArray[np.float64],
    ) -> None:
        given = call.initial
        initial = None if given is None else from_assignment(given, call.features)
        points = _k_means(method, call) if initial is None else initial.new_empty(0)
        super().__init__(call, len(points) if initial is None else initial.shape[1])
        self._method = method
        self._term = FairnessTerm(groups, proportions, self.v)
        self._points = self._start(points) if initial is None else self._resume(initial)
        self._next, self._step = torch.empty_like(self.v), torch.empty_like(self.v)
        self._groups = groups
        self._problem = call.problem
        self._bound: float | None = None

    def begin(self) -> None:
        self._weight = self._method.fairness_weight
        plain = self._plain(self.assignment)
        self._keep_next()
        self._weight = max(10 * plain, 1e-12) if self._weight is None else self._weight
        self._masses = self._term.masses(self.assignment)
        self.objective = self._energy(plain, self._masses)

    def advance(self) -> None:
        for _ in range(_MOST_INNER):
            self.tick()
            before = self.objective
            if not self._descend():
                break
            if before - self.objective <= self._method.tolerance * abs(self.objective):
                break
        self.tick()
        self._update_prototypes()
        plain = self._plain(self.assignment)
        self._keep_next()
        self.objective = min(self.objective, self._energy(plain, self._masses))

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        nodes, n_columns = labels.cpu().numpy(), self.v.shape[1]
        grouped = self._groups >= 0
        table = np.zeros((len(self._term.proportions), n_columns))
        np.add.at(table, (self._groups[grouped], nodes[grouped]), 1)
        used = table[:, table.sum(axis=0) > 0]
        errors = rel_entr(self._term.proportions[:, None], used / used.sum(axis=0))
        hard = torch.zeros_like(self.v).scatter_(1, labels[:, None], 1)
        return {
            "discrete_objective": self._plain(hard),
            "fairness_error": float(errors.sum()),
            "balance": float((used.min(axis=0) / used.max(axis=0)).min()) if used.size else 0.0,
        }

    def _descend(self) -> bool:
        """Make one step under which the energy falls; return whether there was one."""
        slope = self._term.slope(self._masses)
        gradient = self._gradient(self._step)
        if self._weight:
            self._term.add_slope(slope, self._weight, gradient)
        if self._bound is None:
            spread = gradient.amax(dim=1) - gradient.amin(dim=1)
            self._bound = self._method.lipschitz * max(float(spread.mean()), 1e-30)
        slack = 4 * torch.finfo(self.v.dtype).eps * abs(self.objective)
        least = self._bound * 2**-20
        while True:
            v = self.constrain(torch.add(self.v, gradient, alpha=-1 / self._bound))
            softmax(v, out=self._next)
            self.n_evaluations += 1
            masses = self._term.masses(self._next)
            energy = self._energy(self._plain(self._next), masses)
            if energy <= self.objective + slack:
                break
            self._bound *= 2
            if self._bound > least * 2**60:
                self._bound = None
                return False
            self.tick()
        self.v, self._masses = v, masses
        self.assignment, self._next = self._next, self.assignment
        self._keep_next()
        self.objective = min(self.objective, energy)
        self._bound /= 1.5
        return True

    def _energy(self, plain: float, masses: NDArray[np.float64]) -> float:
        return plain + self._weight * self._term.value(masses) if self._weight else plain

    def _start(self, points: torch.Tensor) -> torch.Tensor:
        """Go near to the nearest of some prototypes and return them."""
        squares = squared_distances(self.features, points)
        nearest = squares.topk(min(2, len(points)), dim=1, largest=False).values
        gap = float((nearest[:, -1] - nearest[:, 0]).mean())
        self.move(squares.mul_(-_START_GAP / max(gap, 1e-30)))
        return points

    def _resume(self, initial: torch.Tensor) -> torch.Tensor:
        """Go to given log coordinates and return the means.

        From a vertex of the simplex the way back is long: start a little inside.
        """
        self.move(initial.clamp_(min=-_START_GAP))
        return weighted_means(self.assignment, self.features)

    def prototypes(self) -> torch.Tensor:
        return self._points

    @abstractmethod
    def _plain(self, assignment: torch.Tensor) -> float:
        """Return F."""

    @abstractmethod
    def _gradient(self, out: torch.Tensor) -> torch.Tensor:
        """Write the derivative of F at the present assignment into `out`."""

    @abstractmethod
    def _update_prototypes(self) -> None:
        """Find the best prototypes for the present assignment."""

    def _keep_next(self) -> None:
        """Take note that the assignment last seen by `_plain` is the present one."""


class _FairPrototypes(_AbstractFairRun):
    """Fair clustering around means or medoids."""

    def begin(self) -> None:
        self._is_median = self._method.objective == "kmedian"
        self._nodes: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        if self._is_median:
            self._move_medoids()
        else:
            self._unary = squared_distances(self.features, self._points)
        super().begin()
        if not self._weight:
            # The bound holds for every L: at none at all, nodes go to the nearest prototype.
            self._bound = 1e-9 * max(float(self._unary.mean()), 1e-30)

    def exemplars(self) -> NDArray[np.int64] | None:
        return None if self._nodes is None else self._nodes.cpu().numpy()

    def _plain(self, assignment: torch.Tensor) -> float:
        return total(assignment * self._unary)

    def _gradient(self, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(self._unary)

    def _update_prototypes(self) -> None:
        if self._is_median:
            self._move_medoids()
            return
        self._points = weighted_means(self.assignment, self.features, self._points)
        self._unary = squared_distances(self.features, self._points)

    def _move_medoids(self) -> None:
        """Give each cluster its medoid, where that serves it better."""
        nodes = []
        for column, weights in enumerate(self.assignment.T):
            if self._is_settled(column):
                assert self._nodes is not None
                nodes.append(self._nodes[column])
                continue
            kept = (weights > _LEAST_WEIGHT).nonzero()[:, 0]
            if not len(kept):
                kept = weights.argmax()[None]
            points = self.features[kept].cpu().numpy()
            nodes.append(kept[weighted_medoid(points, weights[kept].cpu().numpy())[0]])
            self.tick()
        self._seen = self.assignment.clone()
        moved = torch.stack(nodes)
        unary = distances(self.features, self.features[moved])
        if self._nodes is not None:
            now = (self.assignment * self._unary).sum(dim=0)
            better = (self.assignment * unary).sum(dim=0) < now
            moved = torch.where(better, moved, self._nodes)
            unary = torch.where(better, unary, self._unary)
        self._nodes, self._points, self._unary = moved, self.features[moved], unary

    def _is_settled(self, column: int) -> bool:
        """Return whether a cluster is as it was when its medoid was sought last."""
        if self._seen is None:
            return False
        return float((self._seen[:, column] - self.assignment[:, column]).abs().max()) < 1e-6


class _FairCut(_AbstractFairRun):
    """Fair normalised cut on the problem's graph."""

    def begin(self) -> None:
        around = Neighbourhood(self._problem, seed=self._method.seed)
        self._neighbour_sum = around.operator(self.v)
        ones = torch.ones_like(self.v[:, :1])
        self._degrees = torch.empty_like(ones)
        self._neighbour_sum(ones, self._degrees, torch.empty_like(ones))
        self._sums, self._next_sums = torch.empty_like(self.v), torch.empty_like(self.v)
        super().begin()

    def _plain(self, assignment: torch.Tensor) -> float:
        self._neighbour_sum(assignment, self._next_sums, torch.empty_like(self._next_sums))
        links, degrees = self._tables(assignment, self._next_sums)
        return float((1 - links / degrees)[degrees > _LEAST_DEGREE].sum())

    def _gradient(self, out: torch.Tensor) -> torch.Tensor:
        links, degrees = self._tables(self.assignment, self._sums)
        z, scale = (torch.from_numpy(x).to(out) for x in (links / degrees / degrees, -2 / degrees))
        return torch.mul(self._sums, scale, out=out).addmm_(self._degrees, z[None])

    def _update_prototypes(self) -> None:
        self._points = weighted_means(self.assignment, self.features, self._points)

    def _keep_next(self) -> None:
        self._sums, self._next_sums = self._next_sums, self._sums

    def _tables(
        self, assignment: torch.Tensor, sums: torch.Tensor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return S_k'W S_k and d'S_k of every column; a column without links cuts none."""
        links = column_totals(assignment * sums)
        return links, np.maximum(column_totals(assignment * self._degrees), _LEAST_DEGREE)


def _k_means(method: FairClustering, call: Call) -> torch.Tensor:
    """Return the centres of the best of some runs of k-means, or of one that begins at seeds."""
    features = call.features.cpu().numpy()
    drawn = method.start_points(call)
    search = KMeans(len(drawn), n_init=method.n_starts, random_state=method.seed)
    if call.seeds is not None or len(drawn) < method.n_clusters:
        search.set_params(init=drawn.cpu().numpy(), n_init=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # features that differ by rounding
        centres = search.fit(features).cluster_centers_
    return torch.from_numpy(centres).to(call.features)
