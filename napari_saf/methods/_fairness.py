"""Fairness term, its implicit steps, and the descent of the energy of fair clustering.

mu_j are the target proportions, V_j the indicator of group j, S_k the column of cluster k,
N_jk = V_j'S_k the masses, lambda the weight and L the step bound; see `FairClustering`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import rel_entr, xlogy

from napari_saf.arrays import Float64s, Int64s
from napari_saf.device import torch
from napari_saf.flow import normalize_, softmax
from napari_saf.graph import Averager, SparseProduct
from napari_saf.methods._clustering import AbstractState, Tasks
from napari_saf.points import sampled_means, squared_distances, weighted_means

_CHUNK = 1024
_MAX_UPDATES = 6
DECIDED = 1 - 5e-7
"""Maximum of a row of the assignment above which a node counts as decided."""
_MAX_UNDECIDED = 0.5
"""Share of undecided nodes up to which only these enter the multipliers."""
_MAX_CHANGE = 3.0
"""Largest Newton change of a multiplier, in units of L."""
_MIN_CHANGE = 0.02
"""Relative change of masses below which Newton ends."""
_MAX_FALL = 0.9
_MIN_RATIO = 1e-9
START_GAP = 5.0
MIN_START = -4.0
"""Smallest initial log coordinate: rows nearer to a vertex converge slowly."""
_APART = 0.3
"""Divergence per label, in nats, above which labels separate the groups."""

Table = Float64s
"""Array (n_groups, n_columns)."""


class StepStart(NamedTuple):
    """Log coordinates `base` = -a / L of a step, its bound L, and the energy precision `enough`."""

    base: torch.Tensor
    bound: float
    enough: float
    constrain: Callable[[torch.Tensor], torch.Tensor]


class ImplicitStep(NamedTuple):
    """Log coordinates of a step, their masses N and multipliers q; `is_near` if these converged."""

    v: torch.Tensor
    masses: Table
    multipliers: Table
    n_updates: int = 1
    is_near: bool = False


class FairnessTerm:
    """T = sum_k KL(mu || P_k), P_kj the share of group j among the nodes of cluster k.

    It depends on the assignment only through the masses N_jk = V_j'S_k. `groups` (n_nodes,) are
    0, 1, ..., n_groups - 1, or -1 for no group; `proportions` are mu. Fixed nodes contribute the
    masses `held`.

    Steps of the assignment are implicit: the minimiser of

        <a, S> + lambda T(N(S)) + L sum s log s

    is eq. (2) of `FairClustering`, S = softmax(-(a + q) / L) with multipliers
    q = lambda dT/dN at its own masses: lambda / N_k less r_jk = lambda mu_j / N_jk. Newton's method
    finds q as the root of lambda mu_j / r_jk - N_jk, in which a rare group has no pole; the
    derivative of N by q is -(diag(N_j) - S_j'S_j) / L, a block per group. Work on the tables is
    linear in the number of groups.
    """

    def __init__(self, groups: Int64s, proportions: Float64s, like: torch.Tensor) -> None:
        self.groups, self.proportions = groups, proportions
        self.weight = 0.0
        self.multipliers: Table | None = None
        """Initial value of the next search; None if the weight is 0."""
        self._held: Table | float = 0.0
        self._like, device = like[:0], like.device
        self._is_positive = proportions[:, None] > 0
        self._rows = torch.from_numpy(groups + 1).to(device)
        sizes = np.bincount(groups[groups >= 0], minlength=len(proportions))
        order = np.argsort(groups, kind="stable")
        order = order[groups[order] >= 0]
        self._order, self._sizes = torch.from_numpy(order).to(device), sizes.tolist()
        # Each table row sums a chunk of one group: full sums in float32 lose digits.
        ranks = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        begins = np.flatnonzero(ranks % _CHUNK == 0)
        self._chunk_groups = groups[order[begins]]
        entries = np.ones(len(order)), order, np.append(begins, len(order))
        table = sparse.csr_array(entries, shape=(len(begins), len(groups)))
        self._table = SparseProduct(table, device, like.dtype)

    def begin(self, weight: float, masses: Table) -> None:
        """Set the weight lambda and initial multipliers, 0 for groups of positive proportion."""
        self.weight, self.multipliers = weight, None
        if weight:
            self.multipliers = np.where(self._is_positive, 0, weight / masses.sum(axis=0))

    def among(self, nodes: torch.Tensor, assignment: torch.Tensor, masses: Table) -> FairnessTerm:
        """Return the term restricted to some nodes, from their assignment and the full masses."""
        subset = FairnessTerm(self.groups[nodes.cpu().numpy()], self.proportions, self._like)
        subset.weight, subset.multipliers = self.weight, self.multipliers
        subset._held = np.maximum(masses - subset.masses(assignment), 0)
        return subset

    def masses(self, assignment: torch.Tensor) -> Table:
        return np.maximum(self._sums(assignment) + self._held, 1e-300)

    def _sums(self, rows: torch.Tensor) -> Table:
        """Return the sums over each group, in float64 over chunks of 1024 nodes."""
        out = rows.new_empty(len(self._chunk_groups), rows.shape[1])
        self._table(rows, out, out)
        sums = np.zeros((len(self.proportions), rows.shape[1]))
        np.add.at(sums, self._chunk_groups, out.cpu().double().numpy())
        return sums

    def without_group_means(self, features: torch.Tensor) -> torch.Tensor:
        """Return features shifted to the overall mean in every group."""
        means = self._sums(features) / np.array(self._sizes)[:, None]
        return self.add_rows(features.double().mean(dim=0).cpu().numpy() - means, features)

    def value(self, masses: Table) -> float:
        mu, totals = self.proportions[:, None], masses.sum(axis=0)
        divergence = xlogy(mu, mu).sum() * masses.shape[1] - (mu * np.log(masses / totals)).sum()
        return max(float(divergence), 0.0)

    def slope(self, masses: Table) -> Table:
        """Return dT/dN_jk = 1 / N_k - mu_j / N_jk, positive for a group with too large a share."""
        return np.asarray(1 / masses.sum(axis=0) - self.proportions[:, None] / masses)

    def add_rows(self, table: Table, to: torch.Tensor) -> torch.Tensor:
        """Return `to` plus, for each node, the row of its group in `table` (n_groups, ...)."""
        rows = np.concatenate([np.zeros((1, table.shape[1])), table])
        return torch.from_numpy(rows).to(to).index_select(0, self._rows).add_(to)

    def step(self, start: StepStart, out: torch.Tensor) -> ImplicitStep:
        """Return the implicit step, to the required precision; `out` becomes S."""
        assert self.multipliers is not None
        scale = torch.empty_like(start.base[:, 0])
        first = self._update(self.multipliers, start, out, scale)
        undecided = (scale < DECIDED).nonzero()[:, 0]
        if not 0 < len(undecided) <= _MAX_UNDECIDED * len(scale):
            return self._search(first, start, out)
        v, assignment = first.v, out[undecided]
        subset = self.among(undecided, assignment, first.masses)
        start = start._replace(base=start.base[undecided], constrain=normalize_)
        result = subset._search(first._replace(v=v[undecided]), start, assignment)
        v[undecided], out[undecided] = result.v, assignment
        return result._replace(v=v)

    def _update(
        self,
        multipliers: Table,
        start: StepStart,
        out: torch.Tensor,
        scale: torch.Tensor | None = None,
    ) -> ImplicitStep:
        """Return the step for multipliers, S = softmax(-(a + q) / L)."""
        v = start.constrain(self.add_rows(multipliers / -start.bound, start.base))
        softmax(v, out=out, scale=scale)
        return ImplicitStep(v, self.masses(out), multipliers)

    def _search(self, current: ImplicitStep, start: StepStart, out: torch.Tensor) -> ImplicitStep:
        """Update the multipliers by Newton's method from the current step."""
        while current.n_updates < _MAX_UPDATES:
            masses, multipliers = current.masses, current.multipliers
            grouped = torch.split(out.index_select(0, self._order), self._sizes)
            overlap = torch.stack([rows.T @ rows for rows in grouped]).cpu().double().numpy()
            diagonal = (masses - self._held)[:, :, None] * np.eye(masses.shape[1])
            sensitivity = (diagonal - overlap) / start.bound  # -dN_j/dq_j
            change = self._change(multipliers, masses, sensitivity)
            if change is None:
                break
            moved = (sensitivity @ change[:, :, None])[:, :, 0]
            missing = self.weight * self.slope(masses) - multipliers
            # <dT - q, dN>: gain of better multipliers
            is_near = abs(float((missing * moved).sum())) <= 2 * start.enough
            current = current._replace(is_near=is_near)
            if is_near and float((np.abs(moved) / masses).max()) < _MIN_CHANGE:
                break
            change = np.clip(change, -_MAX_CHANGE * start.bound, _MAX_CHANGE * start.bound)
            # keep every r positive
            falls = np.where(self._is_positive, change / self._ratios(multipliers, masses), 0)
            share = _MAX_FALL / max(float(falls.max()), _MAX_FALL)
            step = self._update(multipliers + share * change, start, out)
            current = step._replace(n_updates=current.n_updates + 1, is_near=is_near)
        return current

    def _change(self, multipliers: Table, masses: Table, sensitivity: Float64s) -> Table | None:
        """Return Newton's change dq of the multipliers; None if the system is singular.

        With dN = -sensitivity dq, solved for dN: sums over groups by a system of the clusters, the
        rest by one per group. The curvature of lambda / N_k is bounded to keep the sum with r
        convex. A group of proportion 0 has the multiplier lambda / N_k.
        """
        totals, eye = masses.sum(axis=0), np.eye(masses.shape[1])
        targets = self.weight * np.where(self._is_positive, self.proportions[:, None], 1)
        ratios = self._ratios(multipliers, masses)
        inverse = np.where(self._is_positive, ratios**2 / targets, 0)
        spread = np.where(self._is_positive, targets / ratios**2, 0).sum(axis=0)
        across = np.minimum(self.weight / totals**2, 1 / spread)
        shortage = np.where(
            self._is_positive, ratios - inverse * masses, multipliers - self.weight / totals
        )
        right = np.concatenate([sensitivity @ shortage[:, :, None], sensitivity], axis=2)
        try:
            solved = np.linalg.solve(sensitivity * inverse[:, None, :] + eye, right)
            both = solved.sum(axis=0)
            total = np.linalg.solve(eye - both[:, 1:] * across, both[:, 0])
        except np.linalg.LinAlgError:  # identical clusters
            return None
        gain = solved[:, :, 0] + solved[:, :, 1:] @ (across * total)
        change = np.asarray(inverse * gain - shortage - across * total)
        return change if np.isfinite(change).all() else None

    def _ratios(self, multipliers: Table, masses: Table) -> Table:
        """Return r = lambda / N_k - q, bounded below by a small positive number."""
        common = self.weight / masses.sum(axis=0)
        return np.asarray(np.maximum(common - multipliers, _MIN_RATIO * common))


class FairSetup(NamedTuple):
    """Start of a fair clustering and fields of the method; `v` None starts near the `points`."""

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
    """State of a fair clustering: energy (1) of `FairClustering` and steps (2)."""

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
        return self._term.weight

    @property
    def objective(self) -> float:
        return float(self.objectives[0])

    @objective.setter
    def objective(self, value: float) -> None:
        self.objectives = torch.tensor([value], dtype=torch.float64)

    def begin(self) -> None:
        self._begin_with(self.setup.weight)

    def _begin_with(self, weight: float | None) -> None:
        """Compute the energy for a weight; None is the automatic weight."""
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
            f"{n_without} of {used.shape[1]} labels lack a group; increase the fairness weight to "
            "mix the groups",
        )

    def prototypes(self) -> torch.Tensor:
        return self._points

    def _keeps_groups_apart(self) -> bool:
        """Return whether the initial labels separate the groups."""
        if self.setup.n_before:
            return False
        masses = self._term.masses(self.hard_assignment(self.v.argmax(dim=1)))
        return bool(self._term.value(masses) > _APART * masses.shape[1])

    def _start_within_groups(self) -> torch.Tensor | None:
        """Return log coordinates near k-means of features without group means, if distinct."""
        features = self._term.without_group_means(self.features)
        means = weighted_means(self.assignment, features)
        if self._seeds is None:
            centres = sampled_means(features.cpu().numpy(), len(means))
            if len(centres) < len(means):
                return None
            means = torch.from_numpy(centres).to(means)
        v = near_points(squared_distances(features, means))
        return v.sub_(v.amax(dim=1, keepdim=True))

    def _count(self, labels: torch.Tensor) -> Int64s:
        """Return group counts (n_groups, n_used) of the non-empty labels."""
        groups, shape = self._term.groups, (len(self._term.proportions), self.v.shape[1])
        cells = groups * shape[1] + labels.cpu().numpy()
        counts = np.bincount(cells[groups >= 0], minlength=shape[0] * shape[1]).reshape(shape)
        return counts[:, counts.sum(axis=0) > 0]

    def _discrete(self, labels: torch.Tensor) -> float:
        """Return F of hard labels."""
        return self._plain(self.hard_assignment(labels))

    def _try_step(self, base: torch.Tensor, bound: float) -> tuple[ImplicitStep, bool]:
        """Try a step from log coordinates -a / L; return it, and whether it lowered the energy."""
        self.raise_if_cancelled()
        if self._term.multipliers is None:
            softmax(self.constrain(base), out=self._next)
            step = ImplicitStep(base, self._masses, self._masses, is_near=True)
        else:
            enough = max(0.2 * self._gain, 0.3 * self.setup.tolerance * abs(self.objective))
            step = self._term.step(StepStart(base, bound, enough, self.constrain), self._next)
        self.n_evaluations += step.n_updates
        energy = self._energy(self._plain(self._next), step.masses)
        slack = 4 * torch.finfo(self.v.dtype).eps * abs(self.objective)
        if not energy <= self.objective + slack:
            return step, False
        if self._term.multipliers is not None:
            self._term.multipliers = step.multipliers
        self.v, self._masses = step.v, step.masses
        self.assignment, self._next = self._next, self.assignment
        self._keep_next()
        self._gain = max(self.objective - energy, 0.0)
        self.objective = min(self.objective, energy)
        return step, True

    def _energy(self, plain: float, masses: Table) -> float:
        """Return eq. (1), E = F + lambda sum_k KL(mu || P_k)."""
        return plain + self._term.weight * self._term.value(masses) if self._term.weight else plain

    @abstractmethod
    def _plain(self, assignment: torch.Tensor) -> float:
        """Return F."""

    @abstractmethod
    def _lower(self) -> None:
        """Lower the energy by steps of the assignment."""

    @abstractmethod
    def _update_prototypes(self) -> None:
        """Update the prototypes to the current assignment."""

    def _keep_next(self) -> None:
        """Adopt the buffers of the last `_plain` for the current assignment."""


def near_points(squares: torch.Tensor) -> torch.Tensor:
    """Return log coordinates from squared distances, which are overwritten."""
    return squares.mul_(-START_GAP / mean_gap(squares))


def mean_gap(values: torch.Tensor) -> float:
    """Return the mean gap between the two smallest entries of a row; > 0."""
    nearest = values.topk(min(2, values.shape[1]), dim=1, largest=False).values
    return max(float((nearest[:, -1] - nearest[:, 0]).mean()), 1e-30)
