"""Fair normalised cuts under way."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.geometry import FLOOR, row_maxima
from napari_saf.graph import SparseProduct
from napari_saf.methods._clustering import column_totals
from napari_saf.methods._fair_run import AbstractFairRun, FairStart
from napari_saf.methods._fairness_prices import DECIDED
from napari_saf.methods._method import Call
from napari_saf.methods._neighbourhood import Neighbourhood
from napari_saf.points import weighted_means

__all__ = ["FairCut"]

_LIGHT = 3.0
_ROUGH = 3e-3
"""Share of the energy; where an iteration gains no more, a light weight has led far enough."""
_SLOW = 0.03
"""Share of the energy; once an iteration gains no more, few nodes move on alone."""
_MOST_INNER = 10
_LEAST_BOUND = 1e-30
_EASED = 100.0
"""By what the step bound is lowered before a run may end."""
_FEW = 0.07
_MANY = 0.5
"""Share of the nodes; those nearest to a change are few, and do not move alone if many."""
_LEAST_DEGREE = 1e-30
_LEAST_OF_START = -5.0
"""Log coordinate from which a cut still moves."""

Tables = tuple[NDArray[np.float64], NDArray[np.float64]]
"""S_k'W S_k and d'S_k of every column; one without links cuts none."""


@dataclasses.dataclass(slots=True, eq=False)
class _Links:
    """What some nodes, all others held, contribute to a cut.

    Attributes
    ----------
    product : SparseProduct
        With the weights W among these nodes.
    degrees : Tensor of shape (n_nodes, 1)
        d, links to other nodes included.
    outside : Tensor of shape (n_nodes, n_columns) or None
        Sums W S over the other nodes, where there are any.
    others : pair of arrays of shape (n_columns,)
        The other nodes' share of the tables.
    """

    product: SparseProduct
    degrees: torch.Tensor
    outside: torch.Tensor | None = None
    others: Tables = (np.zeros(1), np.zeros(1))

    def sums(self, assignment: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return W S over all nodes."""
        self.product(assignment, out, out)
        return out if self.outside is None else out.add_(self.outside)

    def tables(self, assignment: torch.Tensor, sums: torch.Tensor) -> Tables:
        """Return the tables of all nodes."""
        seen = sums if self.outside is None else sums + self.outside
        links = column_totals(assignment * seen) + self.others[0]
        degrees = column_totals(assignment, self.degrees) + self.others[1]
        return links, np.maximum(degrees, _LEAST_DEGREE)

    def among(
        self, nodes: torch.Tensor, assignment: torch.Tensor, sums: torch.Tensor, tables: Tables
    ) -> _Links:
        """Return those of some of the nodes, given what is theirs and the tables of all."""
        product = self.product.among(nodes.cpu().numpy())
        part = _Links(product, self.degrees[nodes])
        part.outside = sums - part.sums(assignment, torch.empty_like(sums))
        links, degrees = part.tables(assignment, sums)
        part.others = np.maximum(tables[0] - links, 0), np.maximum(tables[1] - degrees, 0)
        return part


class FairCut(AbstractFairRun):
    """Fair normalised cut on the problem's graph.

    Once the energy falls slowly, a step of all nodes is followed by some of those nearest to a
    change, which cost a fraction and lower the same energy. Where no start is given and the
    weight is heavy, the run starts where a light one leads: a heavy one parts what hangs
    together before it is found.
    """

    def __init__(self, call: Call, start: FairStart, centres: torch.Tensor | None) -> None:
        super().__init__(call, start, centres)
        self._is_fresh = centres is not None
        self._sums, self._next_sums = torch.empty_like(self.v), torch.empty_like(self.v)

    @functools.cached_property
    def _links(self) -> _Links:
        product = Neighbourhood(self._problem, seed=self._given.seed).operator(self.v)
        assert isinstance(product, SparseProduct)
        degrees = torch.empty_like(self.v[:, :1])
        product(torch.ones_like(degrees), degrees, degrees)
        return _Links(product, degrees)

    def approach(self) -> Iterator[None]:
        if not self._is_fresh:
            return
        self._set_off(self._given.weight)
        if self._weight <= _LIGHT:
            return
        self._given = dataclasses.replace(self._given, weight=self._weight)
        self._set_off(_LIGHT)
        before = math.inf
        while before - self.objective > _ROUGH * abs(self.objective):
            before = self.objective
            self.advance()
            yield
        self.move(self.v.clamp_(min=_LEAST_OF_START))

    def gain(self, before: float) -> float:
        return super().gain(before) / _MOST_INNER

    def _set_off(self, weight: float | None) -> None:
        super()._set_off(weight)
        self._last_gain = math.inf
        self._bound = None

    def _lift(self, given: torch.Tensor) -> torch.Tensor:
        """Lift rows near a vertex, whence a cut hardly moves; a hard assignment stays."""
        is_hard = bool(((given == 0) | (given == FLOOR)).all())
        return given if is_hard else given.clamp_(min=_LEAST_OF_START)

    def _lower(self) -> None:
        before = self.objective
        if self._last_gain > _SLOW * before:
            self._go_down(_MOST_INNER)
        elif self._go_down(1):
            self._lower_few(_MOST_INNER - 1)
        if self.gain(before) <= self._given.tolerance and self._bound is not None:
            # steps that failed raise the bound more than one that succeeds lowers it
            self._bound /= _EASED
            self._go_down(_MOST_INNER)
        self._last_gain = before - self.objective

    def _lower_few(self, count: int) -> None:
        nodes = self._nearest_to_change()
        if len(nodes) > _MANY * len(self.v):
            self._go_down(count)
            return
        part = self._among(nodes)
        part._go_down(count)
        self._join(part, nodes)

    def _go_down(self, count: int) -> bool:
        """Make up to so many steps; return whether more are worth while."""
        for _ in range(count):
            before = self.objective
            if not self._descend():
                return False
            if before - self.objective <= self._given.tolerance * abs(self.objective):
                return False
        return True

    def _nearest_to_change(self) -> torch.Tensor:
        """Return the nodes that are undecided, and those to which their cluster gives least."""
        cost = self._gradient(self._step)
        if self._prices is not None:
            cost = self._term.add_rows(self._prices.prices, cost)
        is_own = self.v == 0
        own = row_maxima(torch.where(is_own, cost, -math.inf))
        gap = -(row_maxima(cost.neg_().masked_fill_(is_own, -math.inf)) + own)[:, 0]
        if self._seeds is not None:
            gap[self._seeds > 0] = math.inf
        share = row_maxima(self.assignment)[:, 0]
        near = gap <= gap.kthvalue(max(int(_FEW * len(gap)), 1)).values
        return (near | (share < DECIDED)).nonzero()[:, 0]

    def _among(self, nodes: torch.Tensor) -> FairCut:
        """Return this run of some nodes, all others held."""
        part = copy.copy(self)
        # all that holds a row for each node; features and prototypes are not used in between
        part.v, part.assignment, part._sums = (
            field[nodes] for field in (self.v, self.assignment, self._sums)
        )
        part._next, part._step, part._next_sums = (torch.empty_like(part.v) for _ in range(3))
        part._seeds = None if self._seeds is None else self._seeds[nodes]
        part._links = self._links.among(nodes, part.assignment, part._sums, self._tables)
        if self._prices is not None:
            part._prices = self._prices.among(nodes, part.assignment, self._masses)
        return part

    def _join(self, part: FairCut, nodes: torch.Tensor) -> None:
        """Go to where a run of some nodes has led."""
        self.v[nodes], self.assignment[nodes] = part.v, part.assignment
        self._masses, self.n_evaluations = part._masses, part.n_evaluations
        self.objective, self._gain, self._bound = part.objective, part._gain, part._bound
        if self._prices is not None and part._prices is not None:
            self._prices.prices = part._prices.prices

    def _descend(self) -> bool:
        """Make one step under which the energy falls; return whether there was one."""
        gradient = self._gradient(self._step)
        if self._bound is None:
            spread = gradient.amax(dim=1) - gradient.amin(dim=1)
            self._bound = self._given.lipschitz * float(spread.mean())
        self._bound = max(self._bound, _LEAST_BOUND)
        most = self._bound * 2**40
        while self._bound <= most:
            base = torch.add(self.v, gradient, alpha=-1 / self._bound)
            found, energy = self._settle(base, self._bound)
            if self._falls(energy):
                self._accept(found, energy)
                self._bound /= 1.5 if found.is_near else 1
                return True
            self._bound *= 2 if found.is_near else 4
        self._bound = None
        return False

    def _plain(self, assignment: torch.Tensor) -> float:
        sums = self._links.sums(assignment, self._next_sums)
        self._next_tables = self._links.tables(assignment, sums)
        links, degrees = self._next_tables
        return float((1 - links / degrees)[degrees > _LEAST_DEGREE].sum())

    def _gradient(self, out: torch.Tensor) -> torch.Tensor:
        links, degrees = self._tables
        z, scale = (torch.from_numpy(x).to(out) for x in (links / degrees / degrees, -2 / degrees))
        return torch.mul(self._sums, scale, out=out).addmm_(self._links.degrees, z[None])

    def _update_prototypes(self) -> None:
        self._points = weighted_means(self.assignment, self.features, self._points)

    def _keep_next(self) -> None:
        self._sums, self._next_sums = self._next_sums, self._sums
        self._tables = self._next_tables
