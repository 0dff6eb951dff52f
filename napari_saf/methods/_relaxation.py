"""Descent of assignments whose neighbours attract each other."""

from __future__ import annotations

import torch

from napari_saf.geometry import normalize_, row_maxima, softmax
from napari_saf.graph import Averager
from napari_saf.methods._tasks import AbstractTaskClustering, Tasks

__all__ = ["AbstractRelaxation"]

_STILL = 1e-3
_LEAST_STEP = 2**-10
_MOST_SPREAD = 20.0
"""Of log coordinates within a row, for which exponentials need no shift and none is too small."""


class AbstractRelaxation(AbstractTaskClustering):
    """Assignments S that descend E = -sum s a - lambda/2 sum_k s_k'W s_k + sum s log s.

    By S <- softmax(a + lambda W S), a descent where W is positive semi-definite. An update
    under which the energy of a task would rise is made shorter,
    S <- S^(1 - t) softmax(a + lambda W S)^t normalised, t halved until it falls.

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

    def begin_at(
        self, unary: torch.Tensor, neighbour_sum: Averager, start: torch.Tensor | None
    ) -> None:
        """Go to a start, the softmax of the unaries where none is given."""
        self._unary, self._neighbour_sum = unary, neighbour_sum
        self._sums, self._next_sums, self._scratch, self._next, self._next_v = (
            torch.empty_like(self.v) for _ in range(5)
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
        self._is_shifted = self._seeds is not None or self._pull + float(high - low) > _MOST_SPREAD
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
            before = self.objectives
            v, energies, moving = self._find_descent(moving)
            if not moving.any():
                return
            torch.sub(self._next, self.assignment, out=self._scratch).abs_()
            changes = self._scratch.view(self.n_tasks, -1).sum(dim=1).cpu() * self.n_tasks / len(v)
            self._accept(moving, v)
            lowest = torch.minimum(energies, before)
            self.objectives = self.choose(moving, lowest, before)
            gains = before - energies
            moving &= (changes >= _STILL) & (gains > self._tolerance * energies.abs())
            if not moving.any():
                return

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
            steps[rising] /= 2
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
        if (steps < 1).any():
            shares = (1 - steps).to(v).repeat_interleave(len(v) // self.n_tasks)
            v.sub_(row_maxima(v)).lerp_(self.v, shares[:, None])
        return self.constrain(v) if self._is_shifted else v

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
        rows = torch.mv(terms.mul_(assignment), terms.new_ones(terms.shape[1]))
        return self.totals(rows.add_(scale.log()))
