"""Fair clusterings under way: how the energy is brought down."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import rel_entr

from napari_saf.geometry import softmax
from napari_saf.methods._clustering import (
    AbstractClustering,
    total,
)
from napari_saf.methods._fairness_prices import FairnessPrices, Settlement
from napari_saf.methods._fairness_term import FairnessTerm
from napari_saf.methods._method import Call
from napari_saf.methods._start import from_assignment
from napari_saf.points import distances, squared_distances, weighted_means, weighted_medoid

__all__ = ["AbstractFairRun", "FairMeans", "FairMedoids", "FairStart"]

_MOST_TRIALS = 12
_START_GAP = 5.0
_START_BOUND = 10.0
_LEAST_BOUND = 4.0
_OVERSHOOT = 0.9
_LEAST_WEIGHT = 1e-6


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FairStart:
    """What a fair clustering is told, checked; see `FairClustering`.

    Attributes
    ----------
    groups : array of int of shape (n_nodes,)
        0, 1, ...; -1 for none.
    proportions : array of shape (n_groups,)
    weight : float or None
    lipschitz : float
    tolerance : float
    seed : int
    """

    groups: NDArray[np.int64]
    proportions: NDArray[np.float64]
    weight: float | None
    lipschitz: float
    tolerance: float
    seed: int


class AbstractFairRun(AbstractClustering):
    """A fair clustering under way.

    Parameters
    ----------
    call : Call
    start : FairStart
    centres : Tensor of shape (n_columns, n_features) or None
        Where to start; None: at the assignment of the call.
    """

    def __init__(self, call: Call, start: FairStart, centres: torch.Tensor | None) -> None:
        given = None
        if centres is None:
            assert call.initial is not None
            given = self._lift(from_assignment(call.initial, call.features))
            centres = weighted_means(torch.softmax(given, dim=1), call.features)
        super().__init__(call, len(centres))
        self._given = start
        self._term = FairnessTerm(start.groups, start.proportions, self.v)
        self._points = centres
        self._next, self._step = torch.empty_like(self.v), torch.empty_like(self.v)
        self._problem = call.problem
        self._bound: float | None = None
        self.move(self._near(centres) if given is None else given)

    def begin(self) -> None:
        self._set_off(self._given.weight)

    def _set_off(self, weight: float | None) -> None:
        """Compute the energy for a weight; None: as heavy as `FairClustering` says."""
        plain = self._plain(self.assignment)
        self._keep_next()
        self._weight = max(10 * plain, 1e-12) if weight is None else weight
        self._masses = self._term.masses(self.assignment)
        self.objective = self._energy(plain, self._masses)
        self._gain = 0.01 * abs(self.objective)
        self._prices: FairnessPrices | None = None
        if self._weight:
            self._prices = FairnessPrices(self._term, self._weight, self._masses)

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

    def remarks(self, labels: torch.Tensor) -> tuple[str, ...]:
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
        n_columns, n_groups = self.v.shape[1], len(self._term.proportions)
        cells = self._given.groups * n_columns + labels.cpu().numpy()
        counts = np.bincount(cells[self._given.groups >= 0], minlength=n_groups * n_columns)
        table = counts.reshape(n_groups, n_columns)
        return table[:, table.sum(axis=0) > 0]

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F of hard labels."""
        return self._plain(self._hard(labels))

    def _hard(self, labels: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(self.v).scatter_(1, labels[:, None], 1)

    def _lift(self, given: torch.Tensor) -> torch.Tensor:
        """Return log coordinates from which to start where these are given."""
        return given

    def _near(self, centres: torch.Tensor) -> torch.Tensor:
        """Return log coordinates near to the nearest of some prototypes."""
        squares = squared_distances(self.features, centres)
        return squares.mul_(-_START_GAP / _mean_gap(squares))

    def _settle(self, base: torch.Tensor, bound: float) -> tuple[Settlement, float]:
        """Return where log coordinates and the prices for them lead, and the energy there."""
        self.raise_if_cancelled()
        if self._prices is None:
            softmax(self.constrain(base), out=self._next)
            found = Settlement(base, self._masses, self._masses, 1, True)
        else:
            least = 0.3 * self._given.tolerance * abs(self.objective)
            enough = max(0.2 * self._gain, least)
            found = self._prices.settle(base, bound, enough, self.constrain, self._next)
        self.n_evaluations += found.n_updates
        return found, self._energy(self._plain(self._next), found.masses)

    def _falls(self, energy: float) -> bool:
        slack = 4 * torch.finfo(self.v.dtype).eps * abs(self.objective)
        return energy <= self.objective + slack

    def _accept(self, found: Settlement, energy: float) -> None:
        if self._prices is not None:
            self._prices.prices = found.prices
        self.v, self._masses = found.v, found.masses
        self.assignment, self._next = self._next, self.assignment
        self._keep_next()
        self._gain = max(self.objective - energy, 0.0)
        self.objective = min(self.objective, energy)

    def _energy(self, plain: float, masses: NDArray[np.float64]) -> float:
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


class _AbstractPointRun(AbstractFairRun):
    """Fair clustering around points.

    F is linear in S, and the step needs no memory of S^i to be right, only to be careful: of
    v^i a share `heat` / L is let go, which leaves S at a temperature of `heat` in the end.
    """

    def begin(self) -> None:
        self._unary = self._unaries(self._points)
        super().begin()
        gap = _mean_gap(self._unary)
        self._heat = gap / _START_GAP if self._weight else 1e-9 * gap
        self._bound = max(_START_BOUND * self._given.lipschitz, _LEAST_BOUND) * self._heat
        if not self._weight:
            self._bound = self._heat

    def _lower(self) -> None:
        assert self._bound is not None
        for _ in range(_MOST_TRIALS):
            base = torch.mul(self._unary, -1 / self._bound)
            if self._bound > self._heat:
                base.add_(self.v, alpha=1 - self._heat / self._bound)
            found, energy = self._settle(base, self._bound)
            if self._falls(energy):
                self._accept(found, energy)
                self._relax(found)
                return
            self._bound *= 2 if found.is_near else 4
            self._heat /= 2 if found.is_near else 1

    def _relax(self, found: Settlement) -> None:
        """Be less careful, and cooler, as long as prices are found easily."""
        assert self._bound is not None
        if self._weight and found.is_near:
            self._bound = max(self._bound / 2, self._heat)
            if self._bound <= 2 * self._heat:
                self._heat *= 0.7

    def _plain(self, assignment: torch.Tensor) -> float:
        return total(assignment * self._unary)

    @abstractmethod
    def _unaries(self, points: torch.Tensor) -> torch.Tensor:
        """Return what it costs to give each node to each of these points."""


class FairMeans(_AbstractPointRun):
    """Fair clustering around means."""

    def conclude(self) -> bool:
        self._go_to(self._means())
        self.objective = min(
            self.objective, self._energy(self._plain(self.assignment), self._masses)
        )
        return True

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F about the means of the labels, which Steiner's theorem says without a pass."""
        sizes = torch.bincount(labels, minlength=len(self._points))[:, None]
        means = self._hard(labels).T @ self.features / sizes.clamp(min=1)
        excess = sizes * (means - self._points).square()
        return total(self._unary.gather(1, labels[:, None])) - total(excess)

    def _update_prototypes(self) -> None:
        """Go to the means, and beyond: F is a paraboloid, so it falls up to twice the way."""
        means = self._means()
        self._go_to(means.lerp(self._points, -_OVERSHOOT) if self._weight else means)

    def _means(self) -> torch.Tensor:
        return weighted_means(self.assignment, self.features, self._points)

    def _go_to(self, points: torch.Tensor) -> None:
        self._points, self._unary = points, self._unaries(points)

    def _unaries(self, points: torch.Tensor) -> torch.Tensor:
        return squared_distances(self.features, points)


class FairMedoids(_AbstractPointRun):
    """Fair clustering around nodes."""

    def begin(self) -> None:
        self._nodes: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        self._move_medoids()
        super().begin()

    def exemplars(self) -> NDArray[np.int64] | None:
        return None if self._nodes is None else self._nodes.cpu().numpy()

    def _update_prototypes(self) -> None:
        self._move_medoids()

    def _unaries(self, points: torch.Tensor) -> torch.Tensor:
        return distances(self.features, points)

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
            self.raise_if_cancelled()
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


def _mean_gap(values: torch.Tensor) -> float:
    """Return by how much the least of a row is below the next, in the mean; > 0."""
    nearest = values.topk(min(2, values.shape[1]), dim=1, largest=False).values
    return max(float((nearest[:, -1] - nearest[:, 0]).mean()), 1e-30)
