"""Descent of assignments whose neighbours attract each other."""

from __future__ import annotations

import torch

from napari_saf.geometry import normalize_, row_maxima, softmax
from napari_saf.graph import Averager
from napari_saf.methods._tasks import AbstractTaskClustering, Tasks

__all__ = ["AbstractRelaxation"]

_STILL = 1e-6
"""In nats: an update that gains no more in the mean over the nodes leaves them where they are."""
_LEAST_STEP = 2**-10
_ACCELERATION = 1 / 3
"""Momentum after n good updates is n / (n + 3)."""
_MOST_SPREAD = 60.0
"""Of log coordinates within a row, for which exponentials need no shift and none is too small."""


class AbstractRelaxation(AbstractTaskClustering):
    """Assignments S that descend E = -sum s a - lambda/2 sum_k s_k'W s_k + sum s log s.

    By S <- softmax(f + beta (f - f')) with f = a + lambda W S and f' that of the update before:
    labels spread over a graph by one neighbour an update, which momentum makes up for. An
    update under which the energy of a task would rise is made without momentum, a descent where
    W is positive semi-definite, and then shorter, S <- S^(1 - t) softmax(f)^t normalised, t
    halved until it falls.

    Parameters
    ----------
    tasks : Tasks
    n_columns : int
    laplacian_weight : float
        lambda.
    tolerance : float
        A descent ends once an update improves the energy by a smaller share.
    """

    def __init__(
        self, tasks: Tasks, n_columns: int, laplacian_weight: float, tolerance: float
    ) -> None:
        super().__init__(tasks, n_columns)
        self._laplacian_weight = laplacian_weight
        self._tolerance = tolerance
        self._steps = torch.ones(self.n_tasks, dtype=torch.float64)
        self._momenta = torch.zeros(self.n_tasks, dtype=torch.float64)

    def begin_at(
        self, unary: torch.Tensor, neighbour_sum: Averager, start: torch.Tensor | None
    ) -> None:
        """Go to a start, the softmax of the unaries where none is given."""
        self._unary, self._neighbour_sum = unary, neighbour_sum
        self._sums, self._next_sums, self._scratch, self._next, self._next_v, self._last = (
            torch.zeros_like(self.v) for _ in range(6)
        )
        ones = self._scratch[:, :1].contiguous().fill_(1)
        degrees = torch.empty_like(ones)
        self._add_neighbours(ones, degrees)
        self._pull = self._laplacian_weight * float(degrees.max())
        self._scale, self._next_scale = (torch.empty_like(self.v[:, 0]) for _ in range(2))
        self.move(unary.clone() if start is None else start)
        torch.amax(self.assignment, dim=1, out=self._scale)
        self._add_neighbours(self.assignment, self._sums)
        self.update_objectives()

    def update_objectives(self) -> None:
        """Compute the energy anew where the unaries have changed."""
        energies = self._energies(self.v, self.assignment, self._sums, self._scale)
        self.objectives = self.choose(self.active, energies, self.objectives)

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        hard = torch.zeros_like(self.v).scatter_(1, labels[:, None], 1)
        self._add_neighbours(hard, self._next_sums)
        weight = self._laplacian_weight / 2
        torch.add(self._unary, self._next_sums, alpha=weight, out=self._scratch)
        return {"discrete_objective": -float(self.totals(self._scratch.mul_(hard))[0])}

    def relax(self, n_updates: int) -> None:
        """Make at most so many updates of each task, fewer where it stands still."""
        low, high = self._unary.aminmax()
        spread = 3 * (self._pull + float(high - low))
        self._is_shifted = self._seeds is not None or spread > _MOST_SPREAD
        try:
            self._descend(n_updates)
        finally:
            if not self._is_shifted:
                self.v = normalize_(self.v)
                torch.amax(self.assignment, dim=1, out=self._scale)

    def _descend(self, n_updates: int) -> None:
        moving, n_nodes = self.active, len(self.v) // self.n_tasks
        self._momenta.zero_()
        for _ in range(n_updates):
            self.tick()
            before = self.objectives
            v, energies, moving = self._find_descent(moving)
            if not moving.any():
                return
            self._accept(moving, v)
            lowest = torch.minimum(energies, before)
            self.objectives = self.choose(moving, lowest, before)
            least = torch.clamp(self._tolerance * energies.abs(), min=_STILL * n_nodes)
            is_slow = ~(before - energies > least)
            moving = moving & ~(is_slow & (self._momenta == 0))
            if not moving.any():
                return
            self._gather_momentum(v, is_slow)

    def _gather_momentum(self, v: torch.Tensor, is_slow: torch.Tensor) -> None:
        """Note the f of an update to `v`; more momentum, but where it gained little none."""
        self._mix(self._last, v, 1 / (1 + self._momenta))
        grown = 1 - 1 / (1 / (1 - self._momenta) + _ACCELERATION)
        self._momenta = torch.where(is_slow | (self._steps < 1), 0, grown)

    def _find_descent(
        self, moving: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the next log coordinates, their energies, and which tasks have a descent."""
        bound = self.objectives + 4 * torch.finfo(self.v.dtype).eps * self.objectives.abs()
        steps = self._steps.clone()
        while True:
            v = self._toward(steps)
            softmax(v, out=self._next, scale=self._next_scale)
            self._add_neighbours(self._next, self._next_sums)
            self.n_evaluations += 1
            energies = self._energies(v, self._next, self._next_sums, self._next_scale)
            rising = moving & ~(energies <= bound)
            if not rising.any():
                break
            steps[rising & (self._momenta == 0)] /= 2
            self._momenta[rising] = 0
            moving = moving & ~(rising & (steps < _LEAST_STEP))
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

    def _toward(self, steps: torch.Tensor) -> torch.Tensor:
        """Return log coordinates a share of the way to the minimum of the bound."""
        v = torch.add(self._unary, self._sums, alpha=self._laplacian_weight, out=self._next_v)
        if self._momenta.any():
            self._mix(v, self._last, -self._momenta)
        if (steps < 1).any():
            self._mix(v.sub_(row_maxima(v)), self.v, 1 - steps)
        return self.constrain(v) if self._is_shifted else v

    def _mix(self, v: torch.Tensor, other: torch.Tensor, shares: torch.Tensor) -> None:
        """Move log coordinates toward others in place, by a share of the way for each task."""
        if self.n_tasks == 1:
            v.lerp_(other, float(shares))
        else:
            v.lerp_(other, shares.to(v).repeat_interleave(len(v) // self.n_tasks)[:, None])

    def _add_neighbours(self, assignment: torch.Tensor, out: torch.Tensor) -> None:
        if self._laplacian_weight:
            self._neighbour_sum(assignment, out, torch.empty_like(out))
        else:
            out.zero_()

    def _energies(
        self, v: torch.Tensor, assignment: torch.Tensor, sums: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """Return E of assignments exp(v) * scale."""
        terms = torch.sub(v, self._unary, out=self._scratch)
        terms.sub_(sums, alpha=self._laplacian_weight / 2)
        return self.totals(terms.mul_(assignment)) + self.totals(scale.log())
