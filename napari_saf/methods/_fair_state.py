"""Fair clusterings under way: steps around points, and of a cut."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from napari_saf.device import torch
from napari_saf.flow import row_maxima
from napari_saf.graph import SparseProduct
from napari_saf.methods._clustering import Tasks
from napari_saf.methods._fairness import DECIDED, START_GAP, AbstractFairState, FairSetup, mean_gap
from napari_saf.points import distances, squared_distances, weighted_means, weighted_medoid

_MAX_TRIALS = 12
_START_BOUND = 10.0
_MIN_BOUND = 4.0
_OVERSHOOT = 0.9
_COOLING = 0.7
_MIN_WEIGHT = 1e-6
_SETTLED = 1e-4
"""Share of the energy; where an iteration of the means gains no more, medoids may start."""
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
_MIN_DEGREE = 1e-30
MIN_START = -4.0
"""Log coordinate from which a run still moves."""
_BLOCK = 256


class FairPoints(AbstractFairState):
    """Fair clustering around means, or around medoids: F = sum s_pk a_pk is linear in S.

    A step needs no memory of S^i to be right, only to be careful: of v^i a share T / L is let go,
    which leaves S at a temperature of T in the end.
    """

    def __init__(self, tasks: Tasks, setup: FairSetup) -> None:
        super().__init__(tasks, setup)
        self._has_medoids = setup.has_medoids
        self._measure = distances if setup.has_medoids else squared_distances
        self._nodes: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None

    def warm_up(self) -> Iterator[None]:
        """Let medoids start where fair means lead, which no node holds back.

        The weight of the means is as large in units of F. Where the labels of the start keep the
        groups apart, means under a weight that mixes them lead, too, and medoids start where their
        energy is lower. A start that is given is left only if it keeps the groups apart.
        """
        is_apart = self._keeps_groups_apart()
        if not self._has_medoids or not (self._is_fresh or is_apart):
            return
        unary = squared_distances(self.features, weighted_means(self.assignment, self.features))
        squares, plain = (float(self.totals(self.assignment * a)) for a in (unary, unary.sqrt()))
        weight, weights = self.setup.weight, list[float | None]()
        if is_apart and weight is not None:
            weights.append(None)
        weight = max(10 * plain, 1e-12) if weight is None else weight
        if not weight:
            return
        weights.append(weight * squares / max(plain, 1e-300))
        self.setup = self.setup._replace(weight=weight)
        first, found = self.v, list[torch.Tensor]()
        for one in weights:
            self.move(first)
            v = yield from follow_means(self, one)
            found += [] if v is None else [v]
        best = min(found, key=self._energy_from) if len(found) > 1 else (found or [first])[0]
        self.move(best)
        self._nodes = None

    def _energy_from(self, v: torch.Tensor) -> float:
        """Return the energy of the start at some log coordinates."""
        self.move(v)
        self._nodes = None
        self.begin()
        return self.objective

    def begin(self) -> None:
        if self._has_medoids:
            self._move_medoids()
        self._unary = self._measure(self.features, self._points)
        super().begin()
        gap = mean_gap(self._unary)
        self._temperature = gap / START_GAP if self._term.weight else 1e-9 * gap
        factor = max(_START_BOUND * self.setup.lipschitz, _MIN_BOUND)
        self._bound = (factor if self._term.weight else 1.0) * self._temperature
        # A run that goes on is as cool, and no more careful, than it was by then as a rule.
        n_cooled = self.setup.n_before - round(math.log2(factor))
        if self._term.weight and n_cooled > 0:
            self._temperature *= _COOLING**n_cooled
            self._bound = self._temperature

    def conclude(self) -> bool:
        if self._has_medoids:
            return False
        self._move_to_means(overshoot=0.0)
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
            found, is_made = self._try_step(base, self._bound)
            if is_made:
                if self._term.weight and found.is_near:  # less careful, and cooler
                    self._bound = max(self._bound / 2, self._temperature)
                    if self._bound <= 2 * self._temperature:
                        self._temperature *= _COOLING
                return
            self._bound *= 2 if found.is_near else 4
            self._temperature /= 2 if found.is_near else 1

    def _plain(self, assignment: torch.Tensor) -> float:
        return float(self.totals(assignment * self._unary))

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F; about the means of the labels, which Steiner's theorem says without a pass."""
        if self._has_medoids:
            return super()._discrete(labels)
        sizes = torch.bincount(labels, minlength=len(self._points))[:, None]
        means = self.hard_assignment(labels).T @ self.features / sizes.clamp(min=1)
        excess = sizes * (means - self._points).square()
        squares = self._unary.gather(1, labels[:, None])
        return float(self.totals(squares) - self.totals(excess))

    def _update_prototypes(self) -> None:
        """Go to medoids, or to means and beyond: F, a paraboloid, falls up to twice the way."""
        if self._has_medoids:
            self._move_medoids()
        else:
            self._move_to_means(_OVERSHOOT if self._term.weight else 0.0)

    def _move_to_means(self, overshoot: float) -> None:
        means = weighted_means(self.assignment, self.features, self._points)
        self._points = means.lerp(self._points, -overshoot) if overshoot else means
        self._unary = squared_distances(self.features, self._points)

    def _move_medoids(self) -> None:
        """Give each cluster its medoid, or nearly while steps are long, where that is better."""
        is_settled = self._gain <= _SETTLED * abs(self.objective)
        columns = range(len(self._points))
        moved = torch.stack([self._medoid(column, exact=is_settled) for column in columns])
        self._seen = self.assignment.clone() if is_settled else None
        unary = distances(self.features, self.features[moved])
        if self._nodes is not None:
            now = (self.assignment * self._unary).sum(dim=0)
            better = (self.assignment * unary).sum(dim=0) < now
            moved = torch.where(better, moved, self._nodes)
            unary = torch.where(better, unary, self._unary)
        self._nodes, self._points, self._unary = moved, self.features[moved], unary

    def _medoid(self, column: int, *, exact: bool) -> torch.Tensor:
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
        own = weights[members].cpu().numpy()
        return members[weighted_medoid(points, own, exact=exact)[0]]


def follow_means(
    state: AbstractFairState, weight: float | None
) -> Generator[None, None, torch.Tensor | None]:
    """Return log coordinates to which fair means lead from a state; None if a label is lost."""
    points = weighted_means(state.assignment, state.features)
    setup = state.setup._replace(points=points, v=state.v, weight=weight, has_medoids=False)
    means = FairPoints(state.tasks, setup)
    means.begin()
    gain = math.inf
    while gain > _SETTLED * abs(means.objective):
        before = means.objective
        means.advance()
        gain = before - means.objective
        yield
    state.n_evaluations += means.n_evaluations
    has_all = torch.bincount(means.v.argmax(dim=1), minlength=len(points)).all()
    return means.v.clamp_(min=MIN_START) if has_all else None


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
    """Fair normalised cut on the problem's graph.

    Once the energy falls slowly, a step of all nodes is followed by some of those nearest to a
    change, which cost a fraction and lower the same energy. Where no start is given and the
    weight is heavy, the run starts where a light one leads: a heavy one parts what hangs
    together before it is found. Where the labels of the start keep the groups apart, it starts
    where fair means lead, if that is lower.
    """

    def __init__(self, tasks: Tasks, setup: FairSetup) -> None:
        super().__init__(tasks, setup)
        self._tables: Tables = (np.zeros(1), np.zeros(1))
        self._sums, self._next_sums = torch.empty_like(self.v), torch.empty_like(self.v)

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
        if is_apart and weight:
            least, first = self.objective, self.v
            v = yield from follow_means(self, None)
            if v is not None:
                self.move(v)
                self._begin_with(weight)
                if self.objective < least:
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
        seeds = None if self._seeds is None else self._seeds[None, nodes]
        blocks = self.tasks.blocks[:, nodes]
        tasks = dataclasses.replace(self.tasks, blocks=blocks, seed_blocks=seeds)
        term = self._term.among(nodes, self.assignment[nodes], self._masses)
        some = FairCut(tasks, self.setup._replace(term=term, points=self._points, v=self.v[nodes]))
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
