"""Laplacian term: neighbourhood operators, and descent of assignments under it."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np

from napari_saf import graph as graphs
from napari_saf.arrays import Floats
from napari_saf.device import torch
from napari_saf.errors import InvalidInput
from napari_saf.flow import normalize_, row_maxima, softmax
from napari_saf.methods._clustering import AbstractState, Tasks
from napari_saf.parameters import parameter
from napari_saf.problem import Problem

Laplacian = Literal["contrast", "graph", "features"]

KERNEL_WIDTH = 0.015
"""Squared kernel width as a share of the variance; chosen on photographs and nuclei with strokes
and on few-shot tasks."""
_MAX_DENSE_NODES = 4096
_MIN_CHANGE = 1e-3
_MIN_STEP = 2**-10
_MAX_SPREAD = 20.0
"""Spread of log coordinates within a row below which exponentials need no shift."""

# fmt: off
neighbours_parameter = functools.partial(
    parameter, label="Nearest", bounds=(1, 100), advanced=True,
    help="Number of nearest neighbours in feature space (k).")
# fmt: on


def neighbour_operator(
    problem: Problem,
    like: torch.Tensor,
    laplacian: Laplacian = "contrast",
    sigma2: float | None = None,
) -> graphs.Averager:
    """Return the product with the weights W of a Laplacian term; parameters as in `SLK`."""
    graph = problem.graph
    if laplacian == "graph" or not isinstance(graph, graphs.GridGraph | graphs.GraphUnion):
        return graph.neighbour_sum(like.device, like.dtype)
    if sigma2 is None:
        sigma2 = float(kernel_widths(torch.from_numpy(problem.features)[None])[0])
    weights = graph.contrast_weights(problem.features, sigma2)
    return graphs.SparseProduct(weights, like.device, like.dtype)


def kernel_widths(blocks: torch.Tensor, share: float = KERNEL_WIDTH) -> torch.Tensor:
    """Return `share` of the variance of features (n_tasks, n_nodes, n_features), > 0."""
    return (share * blocks.var(dim=1, correction=0).sum(dim=1)).cpu().double().clamp(min=1e-12)


def mean_squared_step(graph: graphs.AbstractGraph, features: Floats) -> float:
    """Return the weighted mean squared distance between graph neighbours; 0 on a grid."""
    if not isinstance(graph, graphs.AffinityGraph):
        return 0.0
    edges = graph.weights.tocoo()
    total = edges.data @ graphs.squared_steps(features, edges.row, edges.col)
    return float(total) / max(float(edges.data.sum()), 1e-300)


def nearest_operator(
    blocks: torch.Tensor, n_neighbors: int, like: torch.Tensor, apart: torch.Tensor | None = None
) -> tuple[graphs.Averager, torch.Tensor]:
    """Return the product with the symmetric k-nearest indicator W, and mean squared distances.

    `blocks` are (n_tasks, n_nodes, n_features); nodes `apart` (n_tasks, n_nodes) have no
    neighbours.
    """
    n_tasks, n_nodes = blocks.shape[:2]
    if n_nodes < 2:
        raise InvalidInput(f"features: expected two nodes or more, got {n_nodes}")
    k = min(n_neighbors, n_nodes - 1)
    alone = np.zeros((n_tasks, n_nodes), dtype=bool) if apart is None else apart.cpu().numpy()
    if n_nodes > _MAX_DENSE_NODES:
        indices = np.zeros((n_tasks, n_nodes, k), dtype=np.int64)
        squares = np.full(indices.shape, np.inf)
        for task, block in enumerate(blocks):
            rows = np.flatnonzero(~alone[task])
            n_nearest = min(k, len(rows) - 1)
            if n_nearest > 0:
                part = graphs.nearest_neighbours(block.cpu().numpy()[rows], n_nearest)
                indices[task, rows, :n_nearest] = rows[part.indices]
                squares[task, rows, :n_nearest] = part.squared_distances
    else:
        points = blocks.cpu().double()
        lengths = points.square().sum(dim=2)
        table = torch.baddbmm(lengths[:, :, None] + lengths[:, None], points, points.mT, alpha=-2)
        table.diagonal(dim1=1, dim2=2).fill_(torch.inf)
        is_apart = torch.from_numpy(alone)
        table.masked_fill_(is_apart[:, :, None] | is_apart[:, None], torch.inf)
        nearest = table.topk(k, dim=2, largest=False)
        indices, squares = nearest.indices.numpy(), nearest.values.clamp_(min=0).numpy()
    offsets = np.arange(n_tasks)[:, None, None] * n_nodes
    neighbours = graphs.Neighbours((indices + offsets).reshape(-1, k), squares.reshape(-1, k))
    matrix, are_joined = neighbours.indicator(), np.isfinite(squares)
    matrix.data[~are_joined.ravel()] = 0
    means = np.where(are_joined, squares, 0).sum(axis=(1, 2)) / are_joined.sum(axis=(1, 2)).clip(1)
    product = graphs.SparseProduct(graphs.symmetric_part(matrix), like.device, like.dtype)
    return product, torch.from_numpy(means)


class AbstractLaplacianState(AbstractState):
    """State of assignments S that descend the energy (1) of `SLK` by updates (2) and (3).

    With `keeps_digits` entries of S are stored relative to 1/K, so that float32 iterates can leave
    the uniform assignment, a saddle point of E.
    """

    def __init__(
        self,
        tasks: Tasks,
        n_columns: int,
        laplacian_weight: float,
        tolerance: float,
        *,
        is_exact: bool = False,
        keeps_digits: bool = False,
    ) -> None:
        super().__init__(tasks, n_columns)
        self._laplacian_weight = laplacian_weight
        self._tolerance, self._is_exact, self._keeps_digits = tolerance, is_exact, keeps_digits
        self._steps = torch.ones(self.n_tasks, dtype=torch.float64)

    def begin_at(self, unary: torch.Tensor, neighbour_sum: graphs.Averager) -> None:
        """Move to the start of the tasks, by default `start_coordinates`."""
        self._unary, self._neighbour_sum = unary, neighbour_sum
        self._sums, self._next_sums, self._scratch, self._next, self._next_v = (
            torch.empty_like(self.v) for _ in range(5)
        )
        unit = self._scratch[:, :1].contiguous().fill_(1)
        degrees = torch.zeros_like(unit)
        if self._laplacian_weight:
            self._neighbour_sum(unit, degrees, torch.empty_like(unit))
        self._pull = self._laplacian_weight * float(degrees.max())
        # Contribution of equal shares to s'W s, absent in W (S - 1/K).
        share = self._keeps_digits * self._laplacian_weight / 2 / self.v.shape[1]
        self._energy_of_equal = -share * self.totals(degrees)
        self._scale, self._next_scale = (torch.empty_like(self.v[:, 0]) for _ in range(2))
        start = self.tasks.start()
        self.start_at(self.start_coordinates() if start is None else start)

    def start_coordinates(self) -> torch.Tensor:
        return self._unary.clone()

    def start_at(self, v: torch.Tensor) -> None:
        """Move to log coordinates, which are overwritten, and compute the energy."""
        self.move(v)
        torch.amax(self.assignment, dim=1, out=self._scale)
        self._add_neighbours(self.v, self.assignment, self._sums)
        self._steps.fill_(1)
        self.update_objectives()

    def update_objectives(self) -> None:
        """Recompute the energy after a change of the unaries."""
        energies = self._energies(self.v, self.assignment, self._sums, self._scale)
        self.objectives = self.choose(self.active, energies, self.objectives)

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        hard = self.hard_assignment(labels)
        if self._laplacian_weight:
            self._neighbour_sum(hard, self._next_sums, self._scratch)
        weight = self._laplacian_weight / 2
        torch.add(self._unary, self._next_sums, alpha=weight, out=self._scratch)
        return {"discrete_objective": -float(self.totals(self._scratch.mul_(hard))[0])}

    def relax(self, n_updates: int) -> None:
        """Make up to `n_updates` updates of each task."""
        low, high = self._unary.aminmax()
        self._is_shifted = self._seeds is not None or self._pull + float(high - low) > _MAX_SPREAD
        try:
            self._descend(n_updates)
        finally:
            if not self._is_shifted:
                self.v = normalize_(self.v)
                torch.amax(self.assignment, dim=1, out=self._scale)

    def _descend(self, n_updates: int) -> None:
        moving = self.active.clone()
        for _ in range(n_updates):
            self.raise_if_cancelled()
            previous = self.objectives
            v, energies, moving = self._find_descent(moving)
            if not moving.any():
                return
            gains = previous - energies
            goes_on = gains > self._tolerance * energies.abs()
            if not self._is_exact:
                torch.sub(self._next, self.assignment, out=self._scratch).abs_()
                changes = self._scratch.view(self.n_tasks, -1).sum(dim=1).cpu()
                goes_on &= changes * self.n_tasks / len(v) >= _MIN_CHANGE
            self._accept(moving, v)
            self.objectives = self.choose(moving, torch.minimum(energies, previous), previous)
            moving &= goes_on
            if not moving.any():
                return

    def _find_descent(
        self, moving: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the next log coordinates, their energies, and the tasks that descend."""
        bound = self.objectives + 4 * torch.finfo(self.v.dtype).eps * self.objectives.abs()
        steps = self._steps.clone()
        while True:
            # (1 - t) v + t (a + lambda W S): eq. (3) in log coordinates
            v = torch.add(self._unary, self._sums, alpha=self._laplacian_weight, out=self._next_v)
            if (steps < 1).any():
                shares = (1 - steps).to(v).repeat_interleave(len(v) // self.n_tasks)
                v.sub_(row_maxima(v)).lerp_(self.v, shares[:, None])
            if self._is_shifted:
                self.constrain(v)
            softmax(v, out=self._next, scale=self._next_scale)
            self._add_neighbours(v, self._next, self._next_sums)
            self.n_evaluations += 1
            energies = self._energies(v, self._next, self._next_sums, self._next_scale)
            rising = moving & ~(energies <= bound)
            if not rising.any():
                break
            steps[rising] /= 2
            moving = moving & ~(rising & (steps < _MIN_STEP))
            if not moving.any():
                break
        self._steps = torch.where(moving, steps, self._steps)
        return v, energies, moving

    def _accept(self, moving: torch.Tensor, v: torch.Tensor) -> None:
        if moving.all():
            self.v, self._next_v = v, self.v
            self.assignment, self._next = self._next, self.assignment
            self._sums, self._next_sums = self._next_sums, self._sums
            self._scale, self._next_scale = self._next_scale, self._scale
            return
        self.v = self.choose(moving, v, self.v)
        self.assignment = self.choose(moving, self._next, self.assignment)
        self._sums = self.choose(moving, self._next_sums, self._sums)
        self._scale = self.choose(moving, self._next_scale, self._scale)

    def _add_neighbours(self, v: torch.Tensor, assignment: torch.Tensor, out: torch.Tensor) -> None:
        """Write W S into `out`, or W (S - 1/K) at full precision, up to a constant per row."""
        if not self._laplacian_weight:
            out.zero_()
            return
        if self._keeps_digits:
            n_columns = v.shape[1]
            assignment = torch.expm1(v, out=self._scratch)
            sums = torch.mv(assignment, assignment.new_ones(n_columns))[:, None]
            assignment.sub_(sums / n_columns).mul_((sums + n_columns).reciprocal_())
        self._neighbour_sum(assignment, out, torch.empty_like(out))

    def _energies(
        self, v: torch.Tensor, assignment: torch.Tensor, sums: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """Return E = sum s (v - a - lambda/2 W s) + sum log scale: eq. (1), s = exp(v) * scale."""
        terms = torch.sub(v, self._unary, out=self._scratch)
        terms.sub_(sums, alpha=self._laplacian_weight / 2)
        rows = torch.mv(terms.mul_(assignment), terms.new_ones(terms.shape[1]))
        return self.totals(rows.add_(scale.log())) + self._energy_of_equal
