"""Fair normalised cuts under way."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from napari_saf.device import torch
from napari_saf.flow import row_maxima
from napari_saf.graph import SparseProduct
from napari_saf.methods._clustering import Tasks
from napari_saf.methods._fairness import DECIDED, MIN_START, AbstractFairState, FairSetup
from napari_saf.points import weighted_means

_LIGHT = 3.0
_ROUGH = 3e-3
"""Share of the energy; where an iteration gains no more, a light weight has led far enough."""
_SLOW = 0.03
"""Share of the energy; once an iteration gains no more, few nodes move on alone."""
_MAX_INNER = 10
_MIN_CUT_BOUND = 1e-30
_BOUND_REDUCTION = 100.0
"""By what the step bound is lowered before a run may end."""
_FEW = 0.07
_MANY = 0.5
"""Share of the nodes; those nearest to a change are few, and do not move alone if many."""
_DECIDED = 100.0
"""By what differences within the groups are enlarged, whose labels a cut starts from."""
_MIN_DEGREE = 1e-30
_BLOCK = 256

Tables = tuple[NDArray[np.float64], NDArray[np.float64]]
"""S_k'W S_k and d'S_k of every column; one without links cuts none."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """What some nodes, all others held, contribute to a cut.

    `product` is that with the weights W among them, `degrees` (n_nodes, 1) are d with all links,
    `outside` the sums W S over the other nodes, and `held` those nodes' share of the tables.
    """

    product: SparseProduct
    degrees: torch.Tensor
    outside: torch.Tensor | None = None
    held: Tables = (np.zeros(1), np.zeros(1))

    def sums(self, assignment: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return W S over all nodes."""
        self.product(assignment, out, out)
        return out if self.outside is None else out.add_(self.outside)

    def tables(self, assignment: torch.Tensor, sums: torch.Tensor) -> Tables:
        """Return the tables of all nodes."""
        seen = sums if self.outside is None else sums + self.outside
        links = _column_totals(assignment * seen) + self.held[0]
        degrees = _column_totals(assignment, self.degrees) + self.held[1]
        return links, np.maximum(degrees, _MIN_DEGREE)

    def among(
        self, nodes: torch.Tensor, assignment: torch.Tensor, sums: torch.Tensor, tables: Tables
    ) -> _Links:
        """Return those of some of the nodes, given what is theirs and the tables of all."""
        some = _Links(self.product.among(nodes.cpu().numpy()), self.degrees[nodes])
        outside = sums - some.sums(assignment, torch.empty_like(sums))
        some = dataclasses.replace(some, outside=outside)
        links, degrees = some.tables(assignment, sums)
        held = np.maximum(tables[0] - links, 0), np.maximum(tables[1] - degrees, 0)
        return dataclasses.replace(some, held=held)


class FairCut(AbstractFairState):
    """Fair normalised cut on the problem's graph; `FairClustering` says how it starts and steps."""

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
            if self.objective < least:  # as decided; from shares the way is shorter
                self.move(v)
                return
            self.move(first)
        if weight <= _LIGHT or not self._is_fresh:
            return
        self._begin_with(_LIGHT)
        before = math.inf
        while before - self.objective > _ROUGH * abs(self.objective):
            before = self.objective
            self.advance()
            yield
        self.move(self.v.clamp_(min=MIN_START))

    def gains(self, before: torch.Tensor) -> torch.Tensor:
        """Return the mean gain of an inner step."""
        return super().gains(before) / _MAX_INNER

    def _begin_with(self, weight: float | None) -> None:
        super()._begin_with(weight)
        self._last_gain = math.inf
        self._bound = None

    def _lower(self) -> None:
        before = self.objectives
        if self._last_gain > _SLOW * self.objective:
            self._descend(_MAX_INNER)
        elif self._descend(1):
            self._lower_few(_MAX_INNER - 1)
        if float(self.gains(before)) <= self.setup.tolerance and self._bound is not None:
            # steps that failed raise the bound more than one that succeeds lowers it
            self._bound /= _BOUND_REDUCTION
            self._descend(_MAX_INNER)
        self._last_gain = float(before) - self.objective

    def _descend(self, count: int) -> bool:
        """Make up to so many steps; return whether more are worth while."""
        for _ in range(count):
            before = self.objective
            is_made = self._make_step()
            least = self.setup.tolerance * abs(self.objective)
            if not is_made or before - self.objective <= least:
                return False
        return True

    def _make_step(self) -> bool:
        """Make one step under which the energy falls; return whether there was one."""
        gradient = self._gradient(self._step)
        if self._bound is None:
            spread = gradient.amax(dim=1) - gradient.amin(dim=1)
            self._bound = self.setup.lipschitz * float(spread.mean())
        self._bound = max(self._bound, _MIN_CUT_BOUND)
        largest = self._bound * 2**40
        while self._bound <= largest:
            base = torch.add(self.v, gradient, alpha=-1 / self._bound)
            found, is_made = self._try_step(base, self._bound)
            if is_made:
                self._bound /= 1.5 if found.is_near else 1
                return True
            self._bound *= 2 if found.is_near else 4
        self._bound = None
        return False

    def _lower_few(self, count: int) -> None:
        """Make steps of the nodes nearest to a change, all others held."""
        nodes = self._nearest_to_change()
        if len(nodes) > _MANY * len(self.v):
            self._descend(count)
            return
        some = self._among(nodes)
        some._descend(count)
        self.v[nodes], self.assignment[nodes] = some.v, some.assignment
        self._continue(some)

    def _nearest_to_change(self) -> torch.Tensor:
        """Return the nodes that are undecided, and those to which their cluster gives least."""
        cost = self._gradient(self._step)
        if self._term.multipliers is not None:
            cost = self._term.add_rows(self._term.multipliers, cost)
        is_own = self.v == 0
        own = row_maxima(torch.where(is_own, cost, -math.inf))
        gap = -(row_maxima(cost.neg_().masked_fill_(is_own, -math.inf)) + own)[:, 0]
        if self._seeds is not None:
            gap[self._seeds > 0] = math.inf
        share = row_maxima(self.assignment)[:, 0]
        near = gap <= gap.kthvalue(max(int(_FEW * len(gap)), 1)).values
        return (near | (share < DECIDED)).nonzero()[:, 0]

    def _among(self, nodes: torch.Tensor) -> FairCut:
        """Return the state of some nodes, all others held."""
        term = self._term.among(nodes, self.assignment[nodes], self._masses)
        setup = self.setup._replace(term=term, points=self._points, v=self.v[nodes])
        some = FairCut(self.tasks.among(nodes), setup)
        some._sums = self._sums[nodes]
        some._links = self._links.among(nodes, some.assignment, some._sums, self._tables)
        some._continue(self)
        return some

    def _continue(self, other: FairCut) -> None:
        """Take over what does not depend on which nodes move: energy, masses, multipliers, L."""
        self.objectives, self._gain, self._bound = other.objectives, other._gain, other._bound
        self._masses, self._tables = other._masses, other._tables
        self.n_evaluations = other.n_evaluations
        self._term.multipliers = other._term.multipliers

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


def _column_totals(
    values: torch.Tensor, weights: torch.Tensor | None = None
) -> NDArray[np.float64]:
    """Return the sums of the columns in blocks of rows, and their sums in float64.

    `weights`, of shape (n_nodes, 1), say how often each row counts.
    """
    weights = torch.ones_like(values[:, :1]) if weights is None else weights
    whole = len(values) // _BLOCK * _BLOCK
    rows, counts = values[:whole].view(-1, _BLOCK, values.shape[1]), weights[:whole]
    blocks = torch.bmm(counts.view(-1, 1, _BLOCK), rows)[:, 0]
    sums = torch.cat([blocks, weights[whole:].T @ values[whole:]])
    return np.asarray(sums.cpu().double().sum(dim=0).numpy())
