"""Scalable Laplacian K-prototypes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.geometry import softmax
from napari_saf.methods._clustering import (
    AbstractClustering,
    AbstractClusteringMethod,
    squared_distances,
    total,
    weighted_means,
)
from napari_saf.methods._field_method import Call
from napari_saf.methods._neighbourhood import Laplacian, Neighbourhood
from napari_saf.methods._start import from_assignment
from napari_saf.parameters import parameter

__all__ = ["SLK"]

PrototypeUpdate = Literal["bo", "ms", "means"]

_MOST_INNER = 10
_STILL = 1e-3
_LEAST_STEP = 2**-10
_LEAST_EXPONENT = -60.0
_MEAN_SHIFT_STEPS = 10


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SLK(AbstractClusteringMethod):
    """Cluster around modes or means, neighbours alike: scalable Laplacian K-prototypes.

    Parameters
    ----------
    prototypes : {"bo", "ms", "means"}
        What stands for a label: the node where its density peaks, taken from the bound
        optimiser ("bo") or found by mean shift ("ms"), or the mean.
    laplacian_weight : float
        >= 0; lambda, how much the labels of neighbours count.
    laplacian : {"contrast", "graph", "features"}
        Who is a neighbour, W: within the window of a grid, exp(-|x_p - x_q|^2 / sigma2); as
        the problem's graph says, which on a grid is 1 within the window; or 1 for the
        `n_neighbors` nearest in feature space. A graph that is no grid has its own weights
        for "contrast" too.
    n_neighbors : int
        For "features", and for the estimate of sigma2.
    sigma2 : float, optional
        > 0; squared width of the kernel in feature space. None: the mean squared distance to
        the `n_neighbors` nearest.
    n_clusters, tolerance, max_iterations, seed, device, dtype
        As for every clustering: `AbstractClusteringMethod`.

    Notes
    -----
    Ziko, Granger and Ben Ayed, "Scalable Laplacian K-modes", NeurIPS 2018,
    https://arxiv.org/abs/1810.13044. Assignments S descend

        E(S, m) = -sum_pk s_pk a_pk - lambda/2 sum_k s_k'W s_k + sum_pk s_pk log s_pk

    with a_pk = exp(-|x_p - m_k|^2 / (2 sigma2)), or -|x_p - m_k|^2 / (2 sigma2) for the means,
    by S <- softmax(a + lambda W S). The Laplacian term has the factor 1/2: the tangent of
    s'W s is 2 W s. The update is a descent where W is positive semi-definite. W, the symmetric
    part of the weights, seldom is: an update under which E would rise is made shorter,
    S <- S^(1 - t) softmax(a + lambda W S)^t normalised, t halved until E falls; for t small
    enough it always does, and the fixed points are the same.

    A mode moves only to a node that serves its cluster better, and no two clusters share one.
    """

    name: ClassVar[str] = "slk"
    title: ClassVar[str] = "Laplacian K-modes"

    prototypes: PrototypeUpdate = parameter(
        "bo",
        label="Prototypes",
        help="What stands for a label: its most typical pixel (bo), the peak of its density "
        "(ms, mean shift), or its mean.",
        words={"bo": "typical pixel", "ms": "density peak", "means": "mean"},
    )
    laplacian_weight: float = parameter(
        1.0,
        label="Smoothness",
        help="How much the labels of neighbours count (lambda).",
        minimum=0,
        maximum=1000,
        step=0.1,
    )
    laplacian: Laplacian = parameter(
        "contrast",
        label="Neighbours",
        help="Whose labels count: pixels within the scale, but not across edges (contrast), all "
        "of them (graph), or those with the most similar features, wherever they are (features).",
        words={
            "contrast": "near, not across edges",
            "graph": "near",
            "features": "similar, anywhere",
        },
        advanced=True,
    )
    n_neighbors: int = parameter(
        5,
        label="Nearest",
        help="Number of nearest neighbours in feature space (k).",
        minimum=1,
        maximum=100,
        advanced=True,
    )
    sigma2: float | None = parameter(
        None,
        label="Kernel width",
        help="Squared distance at which features no longer count as alike; none estimates it "
        "(sigma squared).",
        minimum=1e-12,
        maximum=1e12,
        advanced=True,
    )

    @property
    def uses_window(self) -> bool:
        """Whether it matters who is a neighbour of whom in the image."""
        return self.laplacian != "features"

    def _n_fields(self) -> int:
        return 9

    def _prepare(self, call: Call) -> AbstractClustering:
        return _Run(self, call)


class _Run(AbstractClustering):
    """Laplacian K-prototypes under way."""

    def __init__(self, method: SLK, call: Call) -> None:
        points = method.start_points(call)
        super().__init__(call, len(points))
        self._method = method
        self._problem = call.problem
        self._norms = self.features.square().sum(dim=1)
        given = call.initial
        self._initial = None if given is None else from_assignment(given, self.features)
        self._takes_nodes = method.prototypes == "bo"
        self._points = points
        if self._takes_nodes:
            self._nodes = self._distinct_nodes(-self._squares(points))
            self._points = self.features[self._nodes]
        self._step = 1.0
        self.move(-self._squares(self._points))

    def begin(self) -> None:
        method = self._method
        around = Neighbourhood(
            self._problem, method.laplacian, method.n_neighbors, method.sigma2, method.seed
        )
        self._sigma2 = around.sigma2
        self._neighbour_sum = around.operator(self.features)
        self.tick()
        # Fresh memory would cost more than what is done in it.
        self._sums, self._next_sums, self._scratch, self._next, self._next_v = (
            torch.empty_like(self.v) for _ in range(5)
        )
        self._unary = self._unaries(self._points)
        start = self._unary.clone() if self._initial is None else self._initial
        self.move(start)
        self._add_neighbours(self.assignment, self._sums)
        self.objective = self._energy(self.v, self.assignment, self._sums)

    def advance(self) -> None:
        self._relax()
        self.tick()
        self._update_prototypes()
        self.objective = self._energy(self.v, self.assignment, self._sums)

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        hard = torch.zeros_like(self.v).scatter_(1, labels[:, None], 1)
        self._add_neighbours(hard, self._next_sums)
        weight = self._method.laplacian_weight / 2
        torch.add(self._unary, self._next_sums, alpha=weight, out=self._scratch)
        return {"discrete_objective": -total(self._scratch.mul_(hard))}

    def prototypes(self) -> torch.Tensor:
        return self._points

    def exemplars(self) -> NDArray[np.int64] | None:
        if self._method.prototypes == "means":
            return None
        nodes = self._nodes if self._takes_nodes else self._nearest_nodes(self._points)
        return nodes.cpu().numpy()

    def _relax(self) -> None:
        """Descend the bound until the assignment stands still."""
        slack = 4 * torch.finfo(self.v.dtype).eps
        for _ in range(_MOST_INNER):
            self.tick()
            step = self._step
            while True:
                v = self._toward(step)
                softmax(v, out=self._next)
                self._add_neighbours(self._next, self._next_sums)
                self.n_evaluations += 1
                energy = self._energy(v, self._next, self._next_sums)
                if energy <= self.objective + slack * abs(self.objective):
                    break
                step /= 2
                if step < _LEAST_STEP:
                    return
            self._step = step
            moved = torch.sub(self._next, self.assignment, out=self._scratch).abs_()
            change = total(moved) / len(v)
            self.v, self._next_v = v, self.v
            self.assignment, self._next = self._next, self.assignment
            self._sums, self._next_sums = self._next_sums, self._sums
            gain, self.objective = self.objective - energy, min(self.objective, energy)
            if change < _STILL or gain <= self._method.tolerance * abs(energy):
                return

    def _toward(self, step: float) -> torch.Tensor:
        """Return log coordinates a share of the way to the minimum of the bound."""
        weight = self._method.laplacian_weight
        v = torch.add(self._unary, self._sums, alpha=weight, out=self._next_v)
        if step < 1:
            v.sub_(v.amax(dim=1, keepdim=True)).lerp_(self.v, 1 - step)
        return self.constrain(v)

    def _update_prototypes(self) -> None:
        kind = self._method.prototypes
        if kind == "means":
            self._points = weighted_means(self.assignment, self.features, self._points)
            self._unary = self._unaries(self._points)
        elif kind == "ms":
            self._shift_means()
        else:
            self._move_modes()

    def _move_modes(self) -> None:
        """Give each cluster the node of its highest assignment, where that serves it better."""
        nodes = self._distinct_nodes(self.assignment)
        unary = self._unaries(self.features[nodes])
        now = (self.assignment * self._unary).sum(dim=0)
        better = (self.assignment * unary).sum(dim=0) > now
        moved = torch.where(better, nodes, self._nodes)
        points = self.features[moved]
        if len(torch.unique(points, dim=0)) < len(torch.unique(self._points, dim=0)):
            return
        self._nodes, self._points = moved, points
        self._unary = torch.where(better, unary, self._unary)

    def _distinct_nodes(self, scores: torch.Tensor) -> torch.Tensor:
        """Return for each column the node of highest score whose features are not taken yet."""
        count = min(4 * scores.shape[1], len(scores))
        best = scores.topk(count, dim=0).indices.T
        nodes: list[torch.Tensor] = []
        for column, candidates in enumerate(best):
            free = self._differ(candidates, nodes)
            if free.any():
                nodes.append(candidates[free.int().argmax()])
                continue
            free = self._differ(torch.arange(len(scores), device=scores.device), nodes)
            open_scores = torch.where(free | ~free.any(), scores[:, column], -torch.inf)
            nodes.append(open_scores.argmax())
        return torch.stack(nodes)

    def _differ(self, candidates: torch.Tensor, nodes: list[torch.Tensor]) -> torch.Tensor:
        """Return which candidates have features that none of the nodes has."""
        own = self.features[candidates]
        free = torch.ones(len(own), dtype=torch.bool, device=own.device)
        for node in nodes:
            free &= (own != self.features[node]).any(dim=1)
        return free

    def _shift_means(self) -> None:
        """Climb the density of each cluster; every step of the mean shift is an ascent."""
        for _ in range(_MEAN_SHIFT_STEPS):
            before = self._points
            self._points = weighted_means(self.assignment * self._unary, self.features, before)
            self._unary = self._unaries(self._points)
            if float((self._points - before).square().sum(dim=1).max()) < 1e-6 * self._sigma2:
                return
            self.tick()

    def _unaries(self, points: torch.Tensor) -> torch.Tensor:
        scaled = self._squares(points).mul_(-0.5 / self._sigma2)
        if self._method.prototypes == "means":
            return scaled
        # Below this exponentials in float32 become denormal, and a processor ten times slower.
        return scaled.clamp_(min=_LEAST_EXPONENT).exp_()

    def _squares(self, points: torch.Tensor) -> torch.Tensor:
        return squared_distances(self.features, points, self._norms)

    def _nearest_nodes(self, points: torch.Tensor) -> torch.Tensor:
        return self._squares(points).argmin(dim=0)

    def _add_neighbours(self, assignment: torch.Tensor, out: torch.Tensor) -> None:
        if self._method.laplacian_weight:
            self._neighbour_sum(assignment, out, self._scratch)
        else:
            out.zero_()

    def _energy(self, v: torch.Tensor, assignment: torch.Tensor, sums: torch.Tensor) -> float:
        terms = torch.sub(v, self._unary, out=self._scratch)
        terms.sub_(sums, alpha=self._method.laplacian_weight / 2)
        return total(terms.mul_(assignment)) + total(assignment.amax(dim=1, keepdim=True).log_())
