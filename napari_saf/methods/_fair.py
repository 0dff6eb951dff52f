"""Variational fair clustering, and its trade-off curve over the fairness weight."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import Float64s, Int64s
from napari_saf.device import torch
from napari_saf.errors import InvalidInput
from napari_saf.flow import from_assignment, not_cancelled
from napari_saf.methods._clustering import AbstractClustering, AbstractState, Tasks, start_points
from napari_saf.methods._fair_cut import FairCut
from napari_saf.methods._fair_points import FairPoints
from napari_saf.methods._fairness import MIN_START, FairnessTerm, FairSetup
from napari_saf.methods._laplacian import neighbour_operator
from napari_saf.methods._method import Call, map_steps, run_to_end, tolerance_parameter
from napari_saf.parameters import documented, parameter
from napari_saf.points import k_means
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Snapshot, Status

Objective = Literal["kmeans", "kmedian", "ncut"]

SWEPT = "fairness_weight"
"""Name of the swept parameter."""

_SHARES = tuple(np.geomspace(1e-3, 10, 9))
"""Weights of a sweep, in units of the plain clustering objective."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TradeOffPoint:
    """Solution at one fairness weight lambda: measures of the hard labels, and the segmentation.

    The `objective` excludes the fairness term, `fairness_error` is sum_k KL(mu || P_k) in nats,
    infinite if a label lacks a group, `balance` the least ratio of two groups within a label.
    All points have the same columns, so that labels can be matched by `Segmentation.columns`.
    """

    weight: float
    objective: float
    fairness_error: float
    balance: float
    segmentation: Segmentation

    @classmethod
    def of(cls, weight: float, result: Segmentation) -> TradeOffPoint:
        names = ("discrete_objective", "fairness_error", "balance")
        cost, error, ratio = (float(result.history.measures[name][-1]) for name in names)
        return cls(weight, cost, error, ratio, result)

    def energy(self, weight: float) -> float:
        return self.objective + weight * self.fairness_error if weight else self.objective


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TradeOff:
    """Result of a sweep over the fairness weight: solutions in ascending order of the weight.

    It is complete unless the sweep was stopped before the last weight.

    Examples
    --------
    >>> slices = list(np.random.default_rng(0).random((2, 16, 16)) + [[[0]], [[0.5]]])
    >>> problem = saf.Problem.from_images(slices, groups="image")  # one is brighter
    >>> plain, fair = saf.FairClustering(n_clusters=2).sweep(problem, [0, 1000]).points
    >>> plain.fairness_error > fair.fairness_error, plain.objective < fair.objective
    (True, True)
    """

    points: tuple[TradeOffPoint, ...]
    is_complete: bool


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FairClustering(AbstractClustering):
    """Fair clustering: labels that contain the groups in prescribed proportions.

    Notes
    -----
    Ziko, Yuan, Granger and Ben Ayed, "Variational fair clustering", AAAI 2021,
    https://arxiv.org/abs/1906.08207. With lambda = `fairness_weight`, in units of the objective
    F per unit of divergence, mu the target proportions and V_j the indicator of group j, the energy

        E(S) = F(S) + lambda sum_k KL(mu || P_k),  P_k(j) = V_j'S_k / sum_j V_j'S_k    (1)

    decreases at every step. A step minimises F, linearised with derivative a, plus lambda times the
    divergence plus the distance L KL(S || S^i) to the last iterate:

        S <- S^i exp(-(a + q) / L), rows normalised.    (2)

    The divergence depends only on the masses of the groups in the clusters, and q, its derivative
    at the end of the step, is a multiplier per group and cluster, found by Newton's method. So L
    need not grow with lambda or with the rarity of a group, as it must for q at the beginning of
    the step. L starts at `lipschitz` times the mean range of a node's gradient (around prototypes:
    twice the mean gap between the two nearest), is raised if the energy would increase and lowered
    if it decreases. For means and medoids, where F is linear in S, the influence of earlier steps
    on S^i is damped, so that every node can still change. Nodes without a group (0) do not count
    in the divergence.

    An iteration of a cut makes up to ten steps, and `tolerance` refers to a tenth of its gain. Once
    the gain is small, nine of them are restricted to the nodes nearest to a change; the total
    energy still decreases. Without `initial` and with lambda above 3, a cut starts from the
    solution for lambda = 3, in iterations that are not counted: a large weight from the beginning
    separates connected nodes before clusters form. Medoids start from the solution of fair means.
    If the initial labels separate the groups (0.3 nats per label or more), k-means of features
    with group means removed is a second start, used if its energy is lower. Medoids of bimodal
    clusters are finally exchanged for nodes of the other mode, if that lowers the energy.

    F: sum s_pk |x_p - c_k|^2 with means c; sum s_pk |x_p - c_k| with c a node, exactly that of
    the least sum over nodes of s_pk > 1e-6; sum_k 1 - S_k'W S_k / d'S_k with the graph's weights
    W and degrees d, on a grid the contrast weights of `SLK`.

    Examples
    --------
    >>> slices = list(np.random.default_rng(0).random((2, 16, 16)) + [[[0]], [[0.5]]])
    >>> problem = saf.Problem.from_images(slices, groups="image")  # one is brighter
    >>> plain = saf.FairClustering(n_clusters=2, fairness_weight=0).run(problem)
    >>> fair = saf.FairClustering(n_clusters=2).run(problem)
    >>> bool(fair.history.measures["balance"][-1] > plain.history.measures["balance"][-1])
    True
    """

    name: ClassVar[str] = "fair"
    title: ClassVar[str] = "Fair clustering"
    summary: ClassVar[str] = (
        "Finds labels that contain all groups, such as slices or patients, in equal proportions."
    )

    # fmt: off
    tolerance: float = tolerance_parameter(1e-6, step=1e-6)
    objective: Objective = parameter(
        "kmeans", label="Objective",
        choice_labels={"kmeans": "close to a mean", "kmedian": "close to a pixel",
                       "ncut": "linked neighbours"},
        help="Clustering criterion: distance to the mean (kmeans), distance to a typical pixel "
        "(kmedian), or links between neighbours (ncut).")
    fairness_weight: float | None = parameter(
        None, label="Fairness", bounds=(0, 1e30), step=10,
        help="Weight of the group proportions: 0 ignores them, none weights them ten times as much "
        "as the clustering (lambda).")
    proportions: NDArray[np.floating] | None = parameter(
        None, label="Proportions", is_list=True, none="as in the data",
        help="Target share of each group in every label, such as 0.5, 0.5; none: its share in the "
        "data (mu).")
    lipschitz: float = parameter(
        1.0, label="Step bound", bounds=(1e-3, 1e3), step=0.5, advanced=True,
        help="Damping of the first step: larger values give smaller steps; later steps adapt (L).")
    n_starts: int = parameter(
        4, label="Starts", bounds=(1, 100), advanced=True,
        help="Number of k-means runs, the best of which is the initial clustering.")
    # fmt: on

    labels_look_alike = False  # labels also depend on the shares of the groups

    @property
    def uses_window(self) -> bool:
        return self.objective == "ncut"

    def sweep(self, problem: Problem, weights: Sequence[float] | None = None) -> TradeOff:
        """Return the solutions over the fairness weight; see `iterate_sweep`."""
        return run_to_end(self.iterate_sweep(problem, weights))

    def iterate_sweep(
        self,
        problem: Problem,
        weights: Sequence[float] | None = None,
        *,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> Generator[Snapshot, None, TradeOff]:
        """Cluster at ascending fairness weights, each run starting from the previous solution.

        A solution is replaced by that of another weight if this has a lower energy, so that no
        point is worse than another in both objective and fairness.

        Parameters
        ----------
        problem : Problem
            Problem with groups.
        weights : sequence of float, optional
            Fairness weights, >= 0; duplicates are dropped. None: 0, and nine weights from a
            thousandth to ten times the objective without fairness.
        cancelled : callable
            As in `iterate`; a cancelled sweep returns the finished solutions.

        Raises
        ------
        InvalidInput
            As `iterate`, and if there is no weight, or one is negative or not finite.
        """
        sweep_weights = [0.0] if weights is None else _check_weights(weights)
        count, points = count_points(weights), list[TradeOffPoint]()

        def overall(snapshot: Snapshot) -> Snapshot:
            fraction = (len(points) + snapshot.fraction) / count
            return dataclasses.replace(snapshot, fraction=fraction)

        while len(points) < len(sweep_weights):
            weight, last = sweep_weights[len(points)], points[-1] if points else None
            method = dataclasses.replace(self, fairness_weight=weight)
            start = None if last is None else last.segmentation.assignment
            steps = method.iterate(problem, start, cancelled=cancelled)
            result = yield from map_steps(steps, overall)
            if result.status is Status.CANCELLED:
                return TradeOff(tuple(points), is_complete=False)
            point = TradeOffPoint.of(weight, result)
            if last is not None and last.energy(weight) < point.energy(weight):
                point = dataclasses.replace(last, weight=weight)
            points.append(point)
            if weights is None and len(points) == 1:
                sweep_weights += [point.objective * share for share in _SHARES]
        for k in reversed(range(len(points) - 1)):
            if points[k + 1].energy(points[k].weight) < points[k].energy(points[k].weight):
                points[k] = dataclasses.replace(points[k + 1], weight=points[k].weight)
        return TradeOff(tuple(points), is_complete=len(points) == count)

    def _start(self, call: Call) -> AbstractState:
        groups, proportions = self._groups(call.problem)
        if call.initial is None:
            v, draw = None, np.random.RandomState(self.seed)
            points = start_points(call, self.n_clusters, draw)
            is_given = call.seeds is not None or len(points) < self.n_clusters
            centres = k_means(
                call.features.cpu().numpy(),
                points.cpu().numpy(),
                seed=draw,
                n_starts=1 if is_given else self.n_starts,
                cancelled=call.cancelled,
            )
            points = torch.from_numpy(centres).to(points)
        else:
            v = from_assignment(call.initial, call.features)
            if call.previous is None or self.objective == "ncut":
                v.clamp_(min=MIN_START)  # convergence from vertices of the simplex is slow
            points = start_points(call, self.n_clusters, 0)

        setup = FairSetup(
            FairnessTerm(groups, proportions, call.features),
            points,
            v,
            self._weight(call),
            self.lipschitz,
            self.tolerance,
            has_medoids=self.objective == "kmedian",
            product=lambda: neighbour_operator(call.problem, call.features),
            n_before=0 if call.previous is None else len(call.previous.history) - 1,
        )
        state = FairCut if self.objective == "ncut" else FairPoints
        return state(Tasks.of(call), setup)

    def _weight(self, call: Call) -> float | None:
        """Return the weight; None if it depends on the initial objective."""
        if self.fairness_weight is not None or call.previous is None:
            return self.fairness_weight
        fresh = self._start(dataclasses.replace(call, initial=None, previous=None))
        assert isinstance(fresh, FairCut | FairPoints)
        next(iter(fresh.warm_up()), None)
        fresh.begin()
        return fresh.weight

    def _groups(self, problem: Problem) -> tuple[Int64s, Float64s]:
        """Return groups numbered from 0 (-1: no group), and the target proportions."""
        if problem.groups is None:
            raise InvalidInput(
                "groups: expected groups, got none; for several images, 'image' makes each image a "
                "group"
            )
        present, numbered = np.unique(problem.groups, return_inverse=True)
        groups = numbered - 1 if present[0] == 0 else numbered
        n_groups = len(present) - int(present[0] == 0)
        if n_groups < 2:
            raise InvalidInput("groups: expected two or more groups, got one")
        if self.proportions is None:
            counts = np.bincount(groups[groups >= 0], minlength=n_groups)
            return groups, counts / counts.sum()
        mu = np.asarray(self.proportions, dtype=np.float64)
        if mu.shape != (n_groups,):
            raise InvalidInput(
                f"proportions: expected shape ({n_groups},), one per group, got {mu.shape}"
            )
        if not np.isfinite(mu).all() or (mu < 0).any() or abs(mu.sum() - 1) > 1e-6:
            raise InvalidInput("proportions: expected numbers >= 0 that sum to 1")
        return groups, mu


SweepMethod = FairClustering
"""Methods with a trade-off over the weight of group fairness."""


def count_points(weights: Sequence[float] | None) -> int:
    """Return the number of solutions in a sweep; InvalidInput for invalid weights."""
    return 1 + len(_SHARES) if weights is None else len(_check_weights(weights))


def _check_weights(weights: Sequence[float]) -> list[float]:
    distinct = sorted({float(weight) for weight in weights})
    if not distinct or not np.isfinite(distinct).all() or distinct[0] < 0:
        raise InvalidInput(f"weights: expected numbers >= 0, got {weights}")
    return distinct
