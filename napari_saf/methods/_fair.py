"""Variational fair clustering."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.methods._clustering import (
    AbstractClustering,
    AbstractState,
    Tasks,
    start_points,
    tolerance_parameter,
)
from napari_saf.methods._fair_cut import FairCut, lift
from napari_saf.methods._fair_state import FairOptions, FairPoints
from napari_saf.methods._method import Call, not_cancelled, run_to_end
from napari_saf.methods._start import from_assignment
from napari_saf.methods._sweep import SweepIteration, TradeOff, sweep
from napari_saf.parameters import parameter
from napari_saf.points import k_means, weighted_means
from napari_saf.problem import Problem

__all__ = ["FairClustering"]

Objective = Literal["kmeans", "kmedian", "ncut"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FairClustering(AbstractClustering):
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
        > 0; L at the start, in units of the mean range of a node's gradient, around
        prototypes of twice the mean gap between the two nearest. It adapts.
    n_starts : int
        Runs of k-means from which the best is taken as the start.
    n_clusters, tolerance, max_iterations, seed, device, dtype
        As for every clustering: `AbstractClustering`.

    Notes
    -----
    Ziko, Yuan, Granger and Ben Ayed, "Variational fair clustering", AAAI 2021,
    https://arxiv.org/abs/1906.08207. The energy

        E(S) = F(S) + lambda sum_k KL(mu || P_k),  P_k(j) = V_j'S_k / sum_j V_j'S_k

    falls at every step. A step makes the rest of the objective, linear with derivative a, plus
    lambda times the divergence as it is plus the distance L KL(S || S^i) to the last iterate
    least: S <- S^i exp(-(a + q) / L), rows normalised. The divergence depends on the masses of
    the groups in the clusters only, and q, its derivative where the step ends, is a price for
    each group and cluster, found by Newton's method. So L need not grow with lambda or with the
    rarity of a group, as it must where q is taken where the step begins. It is raised where the
    energy would rise and lowered where it falls. Between medoids or means, where F is linear,
    some of what S^i remembers of earlier steps is let go, so that no node is ever stuck.
    Nodes of no group (0) do not count in the divergence.

    An iteration of a cut makes up to ten steps, and `tolerance` is for a tenth of its gain. Once
    they gain little, nine are of those nodes alone that are nearest to a change; the energy of
    all falls. Where no start is given and lambda is above 3, a cut starts where lambda = 3 leads
    from the means, in iterations that are not counted: a heavy weight at once parts what hangs
    together before it is found.

    F: sum s_pk |x_p - c_k|^2 with means c; sum s_pk |x_p - c_k| with c a node, exactly the one
    with the least sum over nodes of s_pk > 1e-6; sum_k 1 - S_k'W S_k / d'S_k with the graph's
    weights W and degrees d, on a grid those by contrast, see `SLK`.
    """

    name: ClassVar[str] = "fair"
    title: ClassVar[str] = "Fair clustering"

    tolerance: float = tolerance_parameter(1e-6, step=1e-6)
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
        help="How much equal proportions count: 0 not at all, none ten times as much as the "
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
        help="How careful the first step is; later steps adapt (L).",
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
        return run_to_end(self.iterate_sweep(problem, weights))

    def iterate_sweep(
        self,
        problem: Problem,
        weights: Sequence[float] | None = None,
        *,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> SweepIteration:
        """Cluster at one fairness weight after another, each starting from the one before.

        Parameters
        ----------
        problem : Problem
            With groups.
        weights : sequence of float, optional
            Fairness weights, >= 0; taken in rising order, each once. None: 0, and nine from a
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

    def _start(self, call: Call) -> AbstractState:
        groups, proportions = self._groups(call.problem)
        options = FairOptions(
            call.problem,
            groups,
            proportions,
            self.fairness_weight,
            self.lipschitz,
            self.tolerance,
            self.seed,
        )
        v = None
        if call.initial is None:
            points = self._k_means(call)
        else:
            v = from_assignment(call.initial, call.features)
            v = lift(v) if self.objective == "ncut" else v
            points = weighted_means(torch.softmax(v, dim=1), call.features)
        if self.objective == "ncut":
            return FairCut(Tasks.of(call), options, points, v)
        medoids = self.objective == "kmedian"
        return FairPoints(Tasks.of(call), options, points, v, medoids=medoids)

    def _groups(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return groups numbered from 0 (none: -1), and the proportions wanted."""
        if problem.groups is None:
            raise InvalidInput(
                "groups: expected groups to spread the labels over, got none; of several images, "
                "'image' makes each one a group"
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

    def _k_means(self, call: Call) -> torch.Tensor:
        """Return the centres of the best of some runs of k-means, or of one from the seeds."""
        draw = np.random.RandomState(self.seed)
        drawn = start_points(call, self.n_clusters, draw)
        is_given = call.seeds is not None or len(drawn) < self.n_clusters
        centres = k_means(
            call.features.cpu().numpy(),
            len(drawn),
            seed=draw,
            n_starts=1 if is_given else self.n_starts,
            start=drawn.cpu().numpy(),
            cancelled=call.cancelled,
        )
        return torch.from_numpy(centres).to(drawn)
