"""Fair normalised cuts: state and steps, see `FairClustering`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from napari_saf.arrays import Float64s
from napari_saf.device import torch
from napari_saf.flow import row_maxima
from napari_saf.graph import SparseProduct
from napari_saf.methods._clustering import Tasks
from napari_saf.methods._fairness import DECIDED, MIN_START, AbstractFairState, FairSetup
from napari_saf.points import weighted_means

_LIGHT = 3.0
_ROUGH = 3e-3
"""Relative gain below which the warm-up at a light weight ends."""
_SLOW = 0.03
"""Relative gain below which steps are restricted to few nodes."""
_MAX_INNER = 10
_MIN_CUT_BOUND = 1e-30
_BOUND_REDUCTION = 100.0
"""Factor by which the step bound must be lowered before a run ends."""
_FEW = 0.07
_MANY = 0.5
"""Share of nodes in restricted steps, and share above which all nodes are updated."""
_DECIDED = 100.0
"""Scale of log coordinates of a near-hard start within groups."""
_MIN_DEGREE = 1e-30
_BLOCK = 256

Tables = tuple[Float64s, Float64s]
"""S_k'W S_k and d'S_k of every column."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """Terms of a cut over a subset of nodes: degrees d, and shares of the fixed nodes.

    `outside` are the sums W S over the fixed nodes, `held` their share of the tables.
    """

    product: SparseProduct
    degrees: torch.Tensor
    outside: torch.Tensor | None = None
    held: Tables = (np.zeros(1), np.zeros(1))

    def sums(self, assignment: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        self.product(assignment, out, out)
        return out if self.outside is None else out.add_(self.outside)

    def tables(self, assignment: torch.Tensor, sums: torch.Tensor) -> Tables:
        seen = sums if self.outside is None else sums + self.outside
        links = _column_totals(assignment * seen) + self.held[0]
        degrees = _column_totals(assignment, self.degrees) + self.held[1]
        return links, np.maximum(degrees, _MIN_DEGREE)

    def among(
        self, nodes: torch.Tensor, assignment: torch.Tensor, sums: torch.Tensor, tables: Tables
    ) -> _Links:
        """Return the terms of some nodes, from their assignment and sums, and the full tables."""
        subset = _Links(self.product.among(nodes.cpu().numpy()), self.degrees[nodes])
        outside = sums - subset.sums(assignment, torch.empty_like(sums))
        subset = dataclasses.replace(subset, outside=outside)
        links, degrees = subset.tables(assignment, sums)
        held = np.maximum(tables[0] - links, 0), np.maximum(tables[1] - degrees, 0)
        return dataclasses.replace(subset, held=held)


class FairCut(AbstractFairState):
    """State of a fair normalised cut on the problem's graph."""

    def __init__(self, tasks: Tasks, setup: FairSetup) -> None:
        super().__init__(tasks, setup)
        self._tables: Tables = (np.zeros(1), np.zeros(1))
        self._sums, self._next_sums, self._step = (torch.empty_like(self.v) for _ in range(3))

    def warm_up(self) -> Iterator[None]:
        product, degrees = self.setup.product(), torch.empty_like(self.v[:, :1])
        assert isinstance(product, SparseProduct)
        product(torch.ones_like(degrees), degrees, degrees)
        self._links = _Links(product, degrees)
        is_apart = self._keeps_groups_apart()
        if not (self._is_fresh or is_apart):
            return
        self._begin_with(self.setup.weight)
        weight = self._term.weight
        self.setup = self.setup._replace(weight=weight)
        v = self._start_within_groups() if is_apart and weight else None
        if v is not None:
            least, first = self.objective, self.v
            self.move(v.mul(_DECIDED).clamp_(min=MIN_START))
            self._begin_with(weight)
            if self.objective < least:  # compared near convergence
                self.move(v)
                return
            self.move(first)
        if weight <= _LIGHT or not self._is_fresh:
            return
        self._begin_with(_LIGHT)
        previous = math.inf
        while previous - self.objective > _ROUGH * abs(self.objective):
            previous = self.objective
            self.advance()
            yield
        self.move(self.v.clamp_(min=MIN_START))

    def gains(self, previous: torch.Tensor) -> torch.Tensor:
        return super().gains(previous) / _MAX_INNER

    def _begin_with(self, weight: float | None) -> None:
        super()._begin_with(weight)
        self._last_gain = math.inf
        self._bound = None

    def _lower(self) -> None:
        previous = self.objectives
        if self._last_gain > _SLOW * self.objective:
            self._descend(_MAX_INNER)
        elif self._descend(1):
            self._lower_few(_MAX_INNER - 1)
        if float(self.gains(previous)) <= self.setup.tolerance and self._bound is not None:
            # rejected steps raise the bound more than accepted ones lower it
            self._bound /= _BOUND_REDUCTION
            self._descend(_MAX_INNER)
        self._last_gain = float(previous) - self.objective

    def _descend(self, count: int) -> bool:
        """Make up to `count` steps; return whether further steps are worthwhile."""
        for _ in range(count):
            previous = self.objective
            is_made = self._make_step()
            least = self.setup.tolerance * abs(self.objective)
            if not is_made or previous - self.objective <= least:
                return False
        return True

    def _make_step(self) -> bool:
        """Make one step that lowers the energy; return whether one was accepted."""
        gradient = self._gradient(self._step)
        if self._bound is None:
            spread = gradient.amax(dim=1) - gradient.amin(dim=1)
            self._bound = self.setup.lipschitz * float(spread.mean())
        self._bound = max(self._bound, _MIN_CUT_BOUND)
        largest = self._bound * 2**40
        while self._bound <= largest:
            base = torch.add(self.v, gradient, alpha=-1 / self._bound)
            step, is_made = self._try_step(base, self._bound)
            if is_made:
                self._bound /= 1.5 if step.is_near else 1
                return True
            self._bound *= 2 if step.is_near else 4
        self._bound = None
        return False

    def _lower_few(self, count: int) -> None:
        """Make steps of the nodes nearest to a change, with all others fixed."""
        nodes = self._nearest_to_change()
        if len(nodes) > _MANY * len(self.v):
            self._descend(count)
            return
        subset = self._among(nodes)
        subset._descend(count)
        self.v[nodes], self.assignment[nodes] = subset.v, subset.assignment
        self._copy_shared(subset)

    def _nearest_to_change(self) -> torch.Tensor:
        """Return undecided nodes and those with the smallest cost gap."""
        cost = self._gradient(self._step)
        if self._term.multipliers is not None:
            cost = self._term.add_rows(self._term.multipliers, cost)
        is_own = self.v == 0
        own_cost = row_maxima(torch.where(is_own, cost, -math.inf))
        gap = -(row_maxima(cost.neg_().masked_fill_(is_own, -math.inf)) + own_cost)[:, 0]
        if self._seeds is not None:
            gap[self._seeds > 0] = math.inf
        share = row_maxima(self.assignment)[:, 0]
        near = gap <= gap.kthvalue(max(int(_FEW * len(gap)), 1)).values
        return (near | (share < DECIDED)).nonzero()[:, 0]

    def _among(self, nodes: torch.Tensor) -> FairCut:
        term = self._term.among(nodes, self.assignment[nodes], self._masses)
        setup = self.setup._replace(term=term, points=self._points, v=self.v[nodes])
        subset = FairCut(self.tasks.among(nodes), setup)
        subset._sums = self._sums[nodes]
        subset._links = self._links.among(nodes, subset.assignment, subset._sums, self._tables)
        subset._copy_shared(self)
        return subset

    def _copy_shared(self, source: FairCut) -> None:
        """Copy energy, masses, multipliers and step bound, which are shared by all subsets."""
        self.objectives, self._gain, self._bound = source.objectives, source._gain, source._bound
        self._masses, self._tables = source._masses, source._tables
        self.n_evaluations = source.n_evaluations
        self._term.multipliers = source._term.multipliers

    def _plain(self, assignment: torch.Tensor) -> float:
        """Return F = sum_k 1 - S_k'W S_k / d'S_k."""
        sums = self._links.sums(assignment, self._next_sums)
        self._next_tables = self._links.tables(assignment, sums)
        links, degrees = self._next_tables
        return float((1 - links / degrees)[degrees > _MIN_DEGREE].sum())

    def _gradient(self, out: torch.Tensor) -> torch.Tensor:
        """Return dF/dS_pk = d_p S_k'W S_k / (d'S_k)^2 - 2 (W S_k)_p / d'S_k."""
        links, degrees = self._tables
        z, scale = (torch.from_numpy(x).to(out) for x in (links / degrees / degrees, -2 / degrees))
        return torch.mul(self._sums, scale, out=out).addmm_(self._links.degrees, z[None])

    def _update_prototypes(self) -> None:
        self._points = weighted_means(self.assignment, self.features, self._points)

    def _keep_next(self) -> None:
        self._sums, self._next_sums = self._next_sums, self._sums
        self._tables = self._next_tables


def _column_totals(values: torch.Tensor, weights: torch.Tensor | None = None) -> Float64s:
    """Return column sums, weighted by `weights` (n_nodes, 1), in float64 over blocks of rows."""
    weights = torch.ones_like(values[:, :1]) if weights is None else weights
    n_blocked = len(values) // _BLOCK * _BLOCK
    rows, counts = values[:n_blocked].view(-1, _BLOCK, values.shape[1]), weights[:n_blocked]
    blocks = torch.bmm(counts.view(-1, 1, _BLOCK), rows)[:, 0]
    sums = torch.cat([blocks, weights[n_blocked:].T @ values[n_blocked:]])
    return np.asarray(sums.cpu().double().sum(dim=0).numpy())
