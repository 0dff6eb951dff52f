"""Fair clusterings under way: how the energy is brought down, and its steps around points."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import rel_entr

from napari_saf.flow import softmax
from napari_saf.methods._clustering import AbstractState, Tasks
from napari_saf.methods._fairness import FairnessMultipliers, FairnessTerm, ImplicitStep
from napari_saf.points import distances, squared_distances, weighted_means, weighted_medoid
from napari_saf.problem import Problem

_MAX_TRIALS = 12
_START_GAP = 5.0
_START_BOUND = 10.0
_MIN_BOUND = 4.0
_OVERSHOOT = 0.9
_MIN_WEIGHT = 1e-6


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FairOptions:
    """Parameters of a fair clustering, checked; see `FairClustering`.

    `groups` (n_nodes,) are 0, 1, ..., -1 for none; `proportions` have shape (n_groups,).
    """

    problem: Problem
    groups: NDArray[np.int64]
    proportions: NDArray[np.float64]
    weight: float | None
    lipschitz: float
    tolerance: float
    seed: int


class AbstractFairState(AbstractState):
    """A fair clustering under way: the energy (1) of `FairClustering` and its steps (2).

    `points` are the first prototypes, `v` log coordinates of the start; None: near to the nearest
    of the prototypes.
    """

    def __init__(
        self, tasks: Tasks, options: FairOptions, points: torch.Tensor, v: torch.Tensor | None
    ) -> None:
        super().__init__(tasks, len(points))
        self._options = options
        self._term = FairnessTerm(options.groups, options.proportions, self.v)
        self._points = points
        self._next, self._step = torch.empty_like(self.v), torch.empty_like(self.v)
        self._bound: float | None = None
        if v is None:
            squares = squared_distances(self.features, points)
            v = squares.mul_(-_START_GAP / _mean_gap(squares))
        self.move(v)

    @property
    def objective(self) -> float:
        """The energy E of the assignment."""
        return float(self.objectives[0])

    @objective.setter
    def objective(self, value: float) -> None:
        self.objectives = torch.tensor([value], dtype=torch.float64)

    def begin(self) -> None:
        self._begin_with(self._options.weight)

    def _begin_with(self, weight: float | None) -> None:
        """Compute the energy for a weight; None: as heavy as `FairClustering` says."""
        plain = self._plain(self.assignment)
        self._keep_next()
        self._weight = max(10 * plain, 1e-12) if weight is None else weight
        self._masses = self._term.masses(self.assignment)
        self.objective = self._energy(plain, self._masses)
        self._gain = 0.01 * abs(self.objective)
        self._multipliers: FairnessMultipliers | None = None
        if self._weight:
            self._multipliers = FairnessMultipliers.start(self._term, self._weight, self._masses)

    def advance(self) -> None:
        self._lower()
        self.raise_if_cancelled()
        self._update_prototypes()
        plain = self._plain(self.assignment)
        self._keep_next()
        self.objective = min(self.objective, self._energy(plain, self._masses))

    def measures(self, labels: torch.Tensor) -> dict[str, float]:
        used = self._count(labels)
        errors = rel_entr(self._term.proportions[:, None], used / used.sum(axis=0))
        return {
            "discrete_objective": self._discrete(labels),
            "fairness_error": float(errors.sum()),
            "balance": float((used.min(axis=0) / used.max(axis=0)).min()) if used.size else 0.0,
        }

    def final_notes(self, labels: torch.Tensor) -> tuple[str, ...]:
        used = self._count(labels)[self._term.proportions > 0]
        n_without = int((used == 0).any(axis=0).sum())
        if not n_without:
            return ()
        return (
            f"{n_without} of {used.shape[1]} labels have no pixel of one group or more; "
            "a larger fairness weight spreads them",
        )

    def prototypes(self) -> torch.Tensor:
        return self._points

    def _count(self, labels: torch.Tensor) -> NDArray[np.int64]:
        """Return the nodes of each group (n_groups, n_used) in each label that has any."""
        groups, n_columns = self._options.groups, self.v.shape[1]
        n_groups = len(self._term.proportions)
        cells = groups * n_columns + labels.cpu().numpy()
        counts = np.bincount(cells[groups >= 0], minlength=n_groups * n_columns)
        table = counts.reshape(n_groups, n_columns)
        return table[:, table.sum(axis=0) > 0]

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F of hard labels."""
        return self._plain(self._hard(labels))

    def _hard(self, labels: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(self.v).scatter_(1, labels[:, None], 1)

    def _try_step(self, base: torch.Tensor, bound: float) -> tuple[ImplicitStep, float]:
        """Return where a step from log coordinates -a / L leads, and the energy there."""
        self.raise_if_cancelled()
        if self._multipliers is None:
            softmax(self.constrain(base), out=self._next)
            found = ImplicitStep(base, self._masses, self._masses, 1, True)
        else:
            least = 0.3 * self._options.tolerance * abs(self.objective)
            enough = max(0.2 * self._gain, least)
            found = self._multipliers.step(base, bound, enough, self.constrain, self._next)
        self.n_evaluations += found.n_updates
        return found, self._energy(self._plain(self._next), found.masses)

    def _falls(self, energy: float) -> bool:
        slack = 4 * torch.finfo(self.v.dtype).eps * abs(self.objective)
        return energy <= self.objective + slack

    def _accept(self, found: ImplicitStep, energy: float) -> None:
        if self._multipliers is not None:
            self._multipliers.values = found.multipliers
        self.v, self._masses = found.v, found.masses
        self.assignment, self._next = self._next, self.assignment
        self._keep_next()
        self._gain = max(self.objective - energy, 0.0)
        self.objective = min(self.objective, energy)

    def _energy(self, plain: float, masses: NDArray[np.float64]) -> float:
        """Return eq. (1), E = F + lambda sum_k KL(mu || P_k)."""
        return plain + self._weight * self._term.value(masses) if self._weight else plain

    @abstractmethod
    def _plain(self, assignment: torch.Tensor) -> float:
        """Return F."""

    @abstractmethod
    def _lower(self) -> None:
        """Make steps of the assignment under which the energy falls."""

    @abstractmethod
    def _update_prototypes(self) -> None:
        """Find good prototypes for the present assignment."""

    def _keep_next(self) -> None:
        """Take note that the assignment last seen by `_plain` is the present one."""


class FairPoints(AbstractFairState):
    """Fair clustering around means, or around medoids: F = sum s_pk a_pk is linear in S.

    A step needs no memory of S^i to be right, only to be careful: of v^i a share T / L is let go,
    which leaves S at a temperature of T in the end.
    """

    def __init__(
        self,
        tasks: Tasks,
        options: FairOptions,
        points: torch.Tensor,
        v: torch.Tensor | None,
        *,
        medoids: bool,
    ) -> None:
        super().__init__(tasks, options, points, v)
        self._has_medoids = medoids
        self._nodes: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None

    def begin(self) -> None:
        if self._has_medoids:
            self._move_medoids()
        self._unary = self._unaries(self._points)
        super().begin()
        gap = _mean_gap(self._unary)
        self._temperature = gap / _START_GAP if self._weight else 1e-9 * gap
        factor = max(_START_BOUND * self._options.lipschitz, _MIN_BOUND) if self._weight else 1.0
        self._bound = factor * self._temperature

    def conclude(self) -> bool:
        if self._has_medoids:
            return False
        self._move_to(self._means())
        energy = self._energy(self._plain(self.assignment), self._masses)
        self.objective = min(self.objective, energy)
        return True

    def exemplars(self) -> NDArray[np.int64] | None:
        return None if self._nodes is None else self._nodes.cpu().numpy()

    def _lower(self) -> None:
        assert self._bound is not None
        for _ in range(_MAX_TRIALS):
            base = torch.mul(self._unary, -1 / self._bound)
            if self._bound > self._temperature:
                base.add_(self.v, alpha=1 - self._temperature / self._bound)
            found, energy = self._try_step(base, self._bound)
            if self._falls(energy):
                self._accept(found, energy)
                if self._weight and found.is_near:  # less careful, and cooler
                    self._bound = max(self._bound / 2, self._temperature)
                    if self._bound <= 2 * self._temperature:
                        self._temperature *= 0.7
                return
            self._bound *= 2 if found.is_near else 4
            self._temperature /= 2 if found.is_near else 1

    def _plain(self, assignment: torch.Tensor) -> float:
        return _total(assignment * self._unary)

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F; about the means of the labels, which Steiner's theorem says without a pass."""
        if self._has_medoids:
            return super()._discrete(labels)
        sizes = torch.bincount(labels, minlength=len(self._points))[:, None]
        means = self._hard(labels).T @ self.features / sizes.clamp(min=1)
        excess = sizes * (means - self._points).square()
        return _total(self._unary.gather(1, labels[:, None])) - _total(excess)

    def _update_prototypes(self) -> None:
        """Go to medoids, or to means and beyond: F, a paraboloid, falls up to twice the way."""
        if self._has_medoids:
            self._move_medoids()
            return
        means = self._means()
        self._move_to(means.lerp(self._points, -_OVERSHOOT) if self._weight else means)

    def _means(self) -> torch.Tensor:
        return weighted_means(self.assignment, self.features, self._points)

    def _move_to(self, points: torch.Tensor) -> None:
        self._points, self._unary = points, self._unaries(points)

    def _unaries(self, points: torch.Tensor) -> torch.Tensor:
        """Return a_pk = |x_p - c_k|^2 about means, |x_p - c_k| about medoids."""
        measure = distances if self._has_medoids else squared_distances
        return measure(self.features, points)

    def _move_medoids(self) -> None:
        """Give each cluster its medoid, where that serves it better."""
        moved = torch.stack([self._medoid(column) for column in range(len(self._points))])
        self._seen = self.assignment.clone()
        unary = distances(self.features, self.features[moved])
        if self._nodes is not None:
            now = (self.assignment * self._unary).sum(dim=0)
            better = (self.assignment * unary).sum(dim=0) < now
            moved = torch.where(better, moved, self._nodes)
            unary = torch.where(better, unary, self._unary)
        self._nodes, self._points, self._unary = moved, self.features[moved], unary

    def _medoid(self, column: int) -> torch.Tensor:
        """Return the node that is a cluster's medoid, the last one while it does not change."""
        weights = self.assignment[:, column]
        if self._seen is not None and self._nodes is not None:
            change = (self._seen[:, column] - weights).abs().max()
            if float(change) < _MIN_WEIGHT:
                return self._nodes[column]
        self.raise_if_cancelled()
        members = (weights > _MIN_WEIGHT).nonzero()[:, 0]
        if not len(members):
            members = weights.argmax()[None]
        points = self.features[members].cpu().numpy()
        return members[weighted_medoid(points, weights[members].cpu().numpy())[0]]


def _total(values: torch.Tensor) -> float:
    """Return the sum of all entries: rows in their own precision, their sums in float64."""
    return float(values.sum(dim=1).cpu().double().sum())


def _mean_gap(values: torch.Tensor) -> float:
    """Return by how much the least of a row is below the next, in the mean; > 0."""
    nearest = values.topk(min(2, values.shape[1]), dim=1, largest=False).values
    return max(float((nearest[:, -1] - nearest[:, 0]).mean()), 1e-30)
