"""The fairness term of fair clustering, its implicit steps, and the descent of the energy.

mu_j are the proportions wanted, V_j the indicator of group j, S_k the column of cluster k,
N_jk = V_j'S_k the masses, lambda the weight and L the step bound; see `FairClustering`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import rel_entr, xlogy

from napari_saf.device import torch
from napari_saf.flow import normalize_, softmax
from napari_saf.graph import Averager, SparseProduct
from napari_saf.methods._clustering import AbstractState, Tasks
from napari_saf.points import sampled_means, squared_distances, weighted_means

_CHUNK = 1024
_MAX_UPDATES = 6
DECIDED = 1 - 5e-7
"""Share of the cluster that a node prefers from which on it counts as decided."""
_MAX_UNDECIDED = 0.5
"""Share of the nodes; where no more are undecided, multipliers are sought for these alone."""
_MAX_CHANGE = 3.0
"""Largest change of a multiplier, in units of L: where only decided nodes see it, it does
little, and Newton asks for thousands."""
_MIN_CHANGE = 0.02
"""Share of a mass; a change that moves none by more need not be made."""
_MAX_FALL = 0.9
_MIN_RATIO = 1e-9
START_GAP = 5.0
MIN_START = -4.0
"""Log coordinate from which a run still moves."""
_APART = 0.3
"""Nats a label; labels whose divergence is larger keep the groups apart."""

Table = NDArray[np.float64]
"""A number for each group and cluster, of shape (n_groups, n_columns)."""


class StepStart(NamedTuple):
    """Log coordinates `base` = -a / L from which a step begins, and its bound L.

    The energy need be no more exact than `enough`; `constrain` normalises in place.
    """

    base: torch.Tensor
    bound: float
    enough: float
    constrain: Callable[[torch.Tensor], torch.Tensor]


class ImplicitStep(NamedTuple):
    """Where a step leads: log coordinates, their masses N and multipliers q.

    After `n_updates` assignments that were computed; `is_near` if better multipliers would make
    little difference.
    """

    v: torch.Tensor
    masses: Table
    multipliers: Table
    n_updates: int = 1
    is_near: bool = False


class FairnessTerm:
    """T = sum_k KL(mu || P_k), P_kj the share of group j among the nodes of cluster k.

    It depends on the assignment only through the masses N_jk = V_j'S_k. `groups` (n_nodes,) are
    0, 1, ..., n_groups - 1, and -1 for nodes of no group, which do not count; `proportions` are
    mu. Of other nodes, which do not move, the masses are `held`.

    Steps of the assignment are implicit: what makes

        <a, S> + lambda T(N(S)) + L sum s log s

    least is eq. (2) of `FairClustering`, S = softmax(-(a + q) / L) with multipliers
    q = lambda dT/dN at its own masses: lambda / N_k less r_jk = lambda mu_j / N_jk. Newton's method
    finds q as the root of lambda mu_j / r_jk - N_jk, in which a rare group has no pole; the
    derivative of N by q is -(diag(N_j) - S_j'S_j) / L, a block a group. Work on the tables grows
    with the number of groups, not with its square.
    """

    def __init__(
        self, groups: NDArray[np.int64], proportions: NDArray[np.float64], like: torch.Tensor
    ) -> None:
        self.groups, self.proportions = groups, proportions
        self.weight = 0.0
        self.multipliers: Table | None = None
        """Where the next search begins; None where the weight is 0."""
        self._held: Table | float = 0.0
        self._like, device = like[:0], like.device
        self._is_wanted = proportions[:, None] > 0
        self._rows = torch.from_numpy(groups + 1).to(device)
        sizes = np.bincount(groups[groups >= 0], minlength=len(proportions))
        order = np.argsort(groups, kind="stable")
        order = order[groups[order] >= 0]
        self._order, self._sizes = torch.from_numpy(order).to(device), sizes.tolist()
        # A row of the table adds up a chunk of nodes of one group: the sum of all of them in
        # float32 would lose digits that the logarithms need.
        places = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        begins = np.flatnonzero(places % _CHUNK == 0)
        self._chunk_groups = groups[order[begins]]
        entries = np.ones(len(order)), order, np.append(begins, len(order))
        table = sparse.csr_array(entries, shape=(len(begins), len(groups)))
        self._table = SparseProduct(table, device, like.dtype)

    def begin(self, weight: float, masses: Table) -> None:
        """Take a weight lambda, and multipliers of 0, but for groups that are not wanted."""
        self.weight, self.multipliers = weight, None
        if weight:
            self.multipliers = np.where(self._is_wanted, 0, weight / masses.sum(axis=0))

    def among(self, nodes: torch.Tensor, assignment: torch.Tensor, masses: Table) -> FairnessTerm:
        """Return the term as a function of some nodes alone, given theirs and all masses."""
        some = FairnessTerm(self.groups[nodes.cpu().numpy()], self.proportions, self._like)
        some.weight, some.multipliers = self.weight, self.multipliers
        some._held = np.maximum(masses - some.masses(assignment), 0)
        return some

    def masses(self, assignment: torch.Tensor) -> Table:
        """Return N of shape (n_groups, n_columns)."""
        return np.maximum(self._sums(assignment) + self._held, 1e-300)

    def _sums(self, rows: torch.Tensor) -> Table:
        """Return the sums of each group: of up to 1024 nodes, then in float64."""
        out = rows.new_empty(len(self._chunk_groups), rows.shape[1])
        self._table(rows, out, out)
        sums = np.zeros((len(self.proportions), rows.shape[1]))
        np.add.at(sums, self._chunk_groups, out.cpu().double().numpy())
        return sums

    def without_group_means(self, features: torch.Tensor) -> torch.Tensor:
        """Return features, moved so that each group has the mean of all nodes."""
        means = self._sums(features) / np.array(self._sizes)[:, None]
        return self.add_rows(features.double().mean(dim=0).cpu().numpy() - means, features)

    def value(self, masses: Table) -> float:
        """Return T, in nats."""
        mu, totals = self.proportions[:, None], masses.sum(axis=0)
        divergence = xlogy(mu, mu).sum() * masses.shape[1] - (mu * np.log(masses / totals)).sum()
        return max(float(divergence), 0.0)

    def slope(self, masses: Table) -> Table:
        """Return dT/dN_jk = 1 / N_k - mu_j / N_jk, positive for a group with too large a share."""
        return np.asarray(1 / masses.sum(axis=0) - self.proportions[:, None] / masses)

    def add_rows(self, table: Table, to: torch.Tensor) -> torch.Tensor:
        """Return `to`, each node's row more by that of its group in a table (n_groups, ...)."""
        rows = np.concatenate([np.zeros((1, table.shape[1])), table])
        return torch.from_numpy(rows).to(to).index_select(0, self._rows).add_(to)

    def step(self, start: StepStart, out: torch.Tensor) -> ImplicitStep:
        """Return the implicit step, exact enough or after a few updates; `out` becomes S."""
        assert self.multipliers is not None
        scale = torch.empty_like(start.base[:, 0])
        first = self._update(self.multipliers, start, out, scale)
        undecided = (scale < DECIDED).nonzero()[:, 0]
        if not 0 < len(undecided) <= _MAX_UNDECIDED * len(scale):
            return self._search(first, start, out)
        v, own = first.v, out[undecided]
        some = self.among(undecided, own, first.masses)
        start = start._replace(base=start.base[undecided], constrain=normalize_)
        found = some._search(first._replace(v=v[undecided]), start, own)
        v[undecided], out[undecided] = found.v, own
        return found._replace(v=v)

    def _update(
        self,
        multipliers: Table,
        start: StepStart,
        out: torch.Tensor,
        scale: torch.Tensor | None = None,
    ) -> ImplicitStep:
        """Return where multipliers lead, S = softmax(-(a + q) / L)."""
        v = start.constrain(self.add_rows(multipliers / -start.bound, start.base))
        softmax(v, out=out, scale=scale)
        return ImplicitStep(v, self.masses(out), multipliers)

    def _search(self, found: ImplicitStep, start: StepStart, out: torch.Tensor) -> ImplicitStep:
        """Make Newton's changes of the multipliers, from where the present ones lead."""
        while found.n_updates < _MAX_UPDATES:
            masses, multipliers = found.masses, found.multipliers
            grouped = torch.split(out.index_select(0, self._order), self._sizes)
            overlap = torch.stack([rows.T @ rows for rows in grouped]).cpu().double().numpy()
            diagonal = (masses - self._held)[:, :, None] * np.eye(masses.shape[1])
            sensitivity = (diagonal - overlap) / start.bound  # -dN_j/dq_j
            change = self._change(multipliers, masses, sensitivity)
            if change is None:
                break
            moved = (sensitivity @ change[:, :, None])[:, :, 0]
            missing = self.weight * self.slope(masses) - multipliers
            # <dT - q, dN>: what better multipliers would gain
            is_near = abs(float((missing * moved).sum())) <= 2 * start.enough
            found = found._replace(is_near=is_near)
            if is_near and float((np.abs(moved) / masses).max()) < _MIN_CHANGE:
                break
            change = np.clip(change, -_MAX_CHANGE * start.bound, _MAX_CHANGE * start.bound)
            # not so much that some r is used up
            falls = np.where(self._is_wanted, change / self._ratios(multipliers, masses), 0)
            share = _MAX_FALL / max(float(falls.max()), _MAX_FALL)
            step = self._update(multipliers + share * change, start, out)
            found = step._replace(n_updates=found.n_updates + 1, is_near=is_near)
        return found

    def _change(
        self, multipliers: Table, masses: Table, sensitivity: NDArray[np.float64]
    ) -> Table | None:
        """Return Newton's change dq of the multipliers; None where there is none.

        With dN = -sensitivity dq, solved for dN: its sums over the groups by a small system
        for the clusters, the rest a system a group. The curvature -lambda / N_k^2 of lambda / N_k
        is held where it would leave the sum with that of r a direction downwards. A group that is
        not wanted has no r: its multiplier is lambda / N_k.
        """
        totals, eye = masses.sum(axis=0), np.eye(masses.shape[1])
        wanted = self.weight * np.where(self._is_wanted, self.proportions[:, None], 1)
        ratios = self._ratios(multipliers, masses)
        inverse = np.where(self._is_wanted, ratios**2 / wanted, 0)
        spread = np.where(self._is_wanted, wanted / ratios**2, 0).sum(axis=0)
        across = np.minimum(self.weight / totals**2, 1 / spread)
        shortage = np.where(
            self._is_wanted, ratios - inverse * masses, multipliers - self.weight / totals
        )
        right = np.concatenate([sensitivity @ shortage[:, :, None], sensitivity], axis=2)
        try:
            solved = np.linalg.solve(sensitivity * inverse[:, None, :] + eye, right)
            both = solved.sum(axis=0)
            total = np.linalg.solve(eye - both[:, 1:] * across, both[:, 0])
        except np.linalg.LinAlgError:  # clusters that are all alike
            return None
        gain = solved[:, :, 0] + solved[:, :, 1:] @ (across * total)
        change = np.asarray(inverse * gain - shortage - across * total)
        return change if np.isfinite(change).all() else None

    def _ratios(self, multipliers: Table, masses: Table) -> Table:
        """Return r = lambda / N_k - q, at least slightly positive."""
        common = self.weight / masses.sum(axis=0)
        return np.asarray(np.maximum(common - multipliers, _MIN_RATIO * common))


class FairSetup(NamedTuple):
    """Where a fair clustering starts: first prototypes, log coordinates, fields of the method.

    `v` is None where a run starts near to the nearest of the `points`; `product` makes the product
    with the weights of a cut. A run that goes on has made `n_before` iterations.
    """

    term: FairnessTerm
    points: torch.Tensor
    v: torch.Tensor | None
    weight: float | None
    lipschitz: float
    tolerance: float
    has_medoids: bool
    product: Callable[[], Averager]
    n_before: int


class AbstractFairState(AbstractState):
    """A fair clustering under way: the energy (1) of `FairClustering` and its steps (2)."""

    def __init__(self, tasks: Tasks, setup: FairSetup) -> None:
        super().__init__(tasks, len(setup.points))
        self._term, self._points = setup.term, setup.points
        self._next = torch.empty_like(self.v)
        self._bound: float | None = None
        self._gain = math.inf
        v, self.setup = setup.v, setup._replace(v=None)
        self._is_fresh = v is None
        if v is None:
            v = near_points(squared_distances(self.features, self._points))
        self.move(v)

    @property
    def weight(self) -> float:
        """The weight of the divergence, known once the run has begun."""
        return self._term.weight

    @property
    def objective(self) -> float:
        """The energy E of the assignment."""
        return float(self.objectives[0])

    @objective.setter
    def objective(self, value: float) -> None:
        self.objectives = torch.tensor([value], dtype=torch.float64)

    def begin(self) -> None:
        self._begin_with(self.setup.weight)

    def _begin_with(self, weight: float | None) -> None:
        """Compute the energy for a weight; None: as heavy as `FairClustering` says."""
        plain = self._plain(self.assignment)
        self._keep_next()
        self._masses = self._term.masses(self.assignment)
        self._term.begin(max(10 * plain, 1e-12) if weight is None else weight, self._masses)
        self.objective = self._energy(plain, self._masses)
        self._gain = 0.01 * abs(self.objective)

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

    def _keeps_groups_apart(self) -> bool:
        """Return whether the labels of a start hardly mix the groups, which small steps keep."""
        if self.setup.n_before:
            return False
        masses = self._term.masses(self.hard_assignment(self.v.argmax(dim=1)))
        return bool(self._term.value(masses) > _APART * masses.shape[1])

    def _start_within_groups(self) -> torch.Tensor | None:
        """Return log coordinates near k-means of features of which no group has a mean of its own.

        Labels that hold all groups alike cost nearly as much there as they do, but for what the
        means of the groups cost whatever the labels. None where fewer features differ.
        """
        features = self._term.without_group_means(self.features)
        means = weighted_means(self.assignment, features)
        if self._seeds is None:
            found = sampled_means(features.cpu().numpy(), len(means))
            if len(found) < len(means):
                return None
            means = torch.from_numpy(found).to(means)
        v = near_points(squared_distances(features, means))
        return v.sub_(v.amax(dim=1, keepdim=True))

    def _count(self, labels: torch.Tensor) -> NDArray[np.int64]:
        """Return the nodes of each group (n_groups, n_used) in each label that has any."""
        groups, shape = self._term.groups, (len(self._term.proportions), self.v.shape[1])
        cells = groups * shape[1] + labels.cpu().numpy()
        counts = np.bincount(cells[groups >= 0], minlength=shape[0] * shape[1]).reshape(shape)
        return counts[:, counts.sum(axis=0) > 0]

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F of hard labels."""
        return self._plain(self.hard_assignment(labels))

    def _try_step(self, base: torch.Tensor, bound: float) -> tuple[ImplicitStep, bool]:
        """Make a step from log coordinates -a / L if the energy falls; return it, and whether."""
        self.raise_if_cancelled()
        if self._term.multipliers is None:
            softmax(self.constrain(base), out=self._next)
            found = ImplicitStep(base, self._masses, self._masses, is_near=True)
        else:
            enough = max(0.2 * self._gain, 0.3 * self.setup.tolerance * abs(self.objective))
            found = self._term.step(StepStart(base, bound, enough, self.constrain), self._next)
        self.n_evaluations += found.n_updates
        energy = self._energy(self._plain(self._next), found.masses)
        slack = 4 * torch.finfo(self.v.dtype).eps * abs(self.objective)
        if not energy <= self.objective + slack:
            return found, False
        if self._term.multipliers is not None:
            self._term.multipliers = found.multipliers
        self.v, self._masses = found.v, found.masses
        self.assignment, self._next = self._next, self.assignment
        self._keep_next()
        self._gain = max(self.objective - energy, 0.0)
        self.objective = min(self.objective, energy)
        return found, True

    def _energy(self, plain: float, masses: Table) -> float:
        """Return eq. (1), E = F + lambda sum_k KL(mu || P_k)."""
        return plain + self._term.weight * self._term.value(masses) if self._term.weight else plain

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


def near_points(squares: torch.Tensor) -> torch.Tensor:
    """Return log coordinates by squared distances, which are overwritten."""
    return squares.mul_(-START_GAP / mean_gap(squares))


def mean_gap(values: torch.Tensor) -> float:
    """Return by how much the least of a row is below the next, in the mean; > 0."""
    nearest = values.topk(min(2, values.shape[1]), dim=1, largest=False).values
    return max(float((nearest[:, -1] - nearest[:, 0]).mean()), 1e-30)
