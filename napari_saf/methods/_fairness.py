"""The fairness term of variational fair clustering, and its multipliers: small tables of masses.

mu_j are the proportions wanted, V_j the indicator of group j, S_k the column of cluster k,
N_jk = V_j'S_k the masses, lambda the weight and L the step bound; see `FairClustering`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import xlogy

from napari_saf.flow import normalize_, softmax
from napari_saf.graph import SparseProduct

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
_MIN_REWARD = 1e-9

Table = NDArray[np.float64]
"""A number for each group and cluster, of shape (n_groups, n_columns)."""


class FairnessTerm:
    """sum_k KL(mu || P_k), P_kj the share of group j among the nodes of cluster k.

    It depends on the assignment only through the masses N_jk = V_j'S_k. `groups` (n_nodes,) are
    0, 1, ..., n_groups - 1, and -1 for nodes of no group, which do not count; `proportions` are mu.
    """

    def __init__(
        self, groups: NDArray[np.int64], proportions: NDArray[np.float64], like: torch.Tensor
    ) -> None:
        self.proportions = proportions
        self._groups, self._like = groups, like[:0]
        self._n_groups = len(proportions)
        self._rows = torch.from_numpy(groups + 1).to(like.device)
        self._chunk_groups, table = _chunks(groups, self._n_groups)
        self._sizes = np.bincount(groups[groups >= 0], minlength=self._n_groups).tolist()
        self._order = torch.from_numpy(table.indices.astype(np.int64)).to(like.device)
        self._table = SparseProduct(table, like.device, like.dtype)

    def of(self, nodes: torch.Tensor) -> FairnessTerm:
        """Return the term of some of the nodes."""
        return FairnessTerm(self._groups[nodes.cpu().numpy()], self.proportions, self._like)

    def masses(self, assignment: torch.Tensor) -> Table:
        """Return N of shape (n_groups, n_columns): sums of up to 1024 nodes, then in float64."""
        out = assignment.new_empty(len(self._chunk_groups), assignment.shape[1])
        self._table(assignment, out, out)
        masses = np.zeros((self._n_groups, assignment.shape[1]))
        np.add.at(masses, self._chunk_groups, out.cpu().double().numpy())
        return np.maximum(masses, 1e-300)

    def value(self, masses: Table) -> float:
        """Return the term, in nats."""
        mu, totals = self.proportions[:, None], masses.sum(axis=0)
        divergence = xlogy(mu, mu).sum() * masses.shape[1] - (mu * np.log(masses / totals)).sum()
        return max(float(divergence), 0.0)

    def slope(self, masses: Table) -> Table:
        """Return the derivative b of shape (n_groups, n_columns) by the masses.

        b_jk = 1 / N_k - mu_j / N_jk, which is sum_j' (mu_j' / N_k - mu_j' v_j' / N_j'k) for a
        node of group j: positive where the group is over-represented.
        """
        return np.asarray(1 / masses.sum(axis=0) - self.proportions[:, None] / masses)

    def covariances(self, assignment: torch.Tensor, masses: Table) -> NDArray[np.float64]:
        """Return diag(N_j) - S_j'S_j of every group, (n_groups, n_columns, n_columns)."""
        grouped = assignment.index_select(0, self._order)
        blocks = [rows.T @ rows for rows in torch.split(grouped, self._sizes)]
        overlap = torch.stack(blocks).cpu().double().numpy()
        eye = np.eye(masses.shape[1])
        return np.asarray(masses[:, :, None] * eye - overlap)

    def add_rows(self, table: Table, to: torch.Tensor) -> torch.Tensor:
        """Return `to`, each node's row more by that of its group in a table (n_groups, ...)."""
        rows = np.concatenate([np.zeros((1, table.shape[1])), table])
        return torch.from_numpy(rows).to(to).index_select(0, self._rows).add_(to)


def _chunks(groups: NDArray[np.int64], n_groups: int) -> tuple[NDArray[np.int64], sparse.csr_array]:
    """Return a table that adds up chunks of nodes of one group, and the group of each chunk.

    Adding all nodes of a group in float32 would lose digits that the logarithms need.
    """
    order = np.argsort(groups, kind="stable")
    order = order[groups[order] >= 0]
    ends, of_chunk, start = [0], [], 0
    for group, size in enumerate(np.bincount(groups[order], minlength=n_groups)):
        cuts = [*range(start + _CHUNK, start + size, _CHUNK), start + size] if size else []
        ends += cuts
        of_chunk += [group] * len(cuts)
        start += size
    shape = (len(of_chunk), len(groups))
    table = sparse.csr_array((np.ones(len(order)), order, np.array(ends)), shape=shape)
    return np.array(of_chunk, dtype=np.int64), table


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImplicitStep:
    """Where a step leads: log coordinates, their masses N and multipliers q.

    After `n_updates` assignments that were computed; `is_near` if better multipliers would make
    little difference.
    """

    v: torch.Tensor
    masses: Table
    multipliers: Table
    n_updates: int
    is_near: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Nodes that still choose between clusters: their term, -a / L, and masses of all others."""

    term: FairnessTerm
    base: torch.Tensor
    bound: float
    constrain: Callable[[torch.Tensor], torch.Tensor]
    held: Table | float

    def update(
        self, multipliers: Table, out: torch.Tensor, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Table]:
        """Return S = softmax(-(a + q) / L) in log coordinates, and the masses of all nodes."""
        v = self.term.add_rows(multipliers / -self.bound, self.base)
        softmax(self.constrain(v), out=out, scale=scale)
        return v, np.maximum(self.term.masses(out) + self.held, 1e-300)

    def sensitivity(self, assignment: torch.Tensor, masses: Table) -> NDArray[np.float64]:
        """Return -dN_j/dq_j = (diag(N_j) - S_j'S_j) / L, a table for each group."""
        return self.term.covariances(assignment, masses - self.held) / self.bound


@dataclasses.dataclass(slots=True, eq=False)
class FairnessMultipliers:
    """Multipliers q_jk of the masses, which make a step of the assignment implicit.

    The fairness term T depends on the table N of masses alone. So what makes

        <a, S> + lambda T(N(S)) + L sum s log s

    least is eq. (2) of `FairClustering`, S = softmax(-(a + q) / L) with q = lambda dT/dN at its
    own masses: lambda / N_k less r_jk = lambda mu_j / N_jk. Newton's method finds q as the root of
    lambda mu_j / r_jk - N_jk, in which a rare group has no pole; the derivative of N by q is
    -(diag(N_j) - S_j'S_j) / L, a block a group. Work on the tables grows with the number of
    groups, not with its square.

    `weight` is lambda > 0, `values` are the multipliers where the next search begins, `held` the
    masses of nodes that do not move.
    """

    term: FairnessTerm
    weight: float
    values: Table
    held: Table | float = 0.0

    @classmethod
    def start(cls, term: FairnessTerm, weight: float, masses: Table) -> FairnessMultipliers:
        """Return multipliers of 0, those of groups that are not wanted as they are."""
        is_wanted = term.proportions[:, None] > 0
        return cls(term, weight, np.where(is_wanted, 0, weight / masses.sum(axis=0)))

    def among(
        self, term: FairnessTerm, assignment: torch.Tensor, masses: Table
    ) -> FairnessMultipliers:
        """Return those for some nodes alone, of all masses, the other nodes' held."""
        held = np.maximum(masses - term.masses(assignment), 0)
        return dataclasses.replace(self, term=term, held=held)

    def step(
        self,
        base: torch.Tensor,
        bound: float,
        enough: float,
        constrain: Callable[[torch.Tensor], torch.Tensor],
        out: torch.Tensor,
    ) -> ImplicitStep:
        """Return the implicit step from log coordinates `base` = -a / L.

        Good to `enough`, a difference in the energy that does not matter, or to a few updates.
        `constrain` normalises log coordinates in place; their softmax is written into `out`.
        """
        nodes = _Nodes(self.term, base, bound, constrain, self.held)
        scale = torch.empty_like(base[:, 0])
        v, masses = nodes.update(self.values, out, scale)
        undecided = (scale < DECIDED).nonzero()[:, 0]
        if not 0 < len(undecided) <= _MAX_UNDECIDED * len(v):
            return self._search(nodes, v, out, masses, enough)
        rows, own = v[undecided], out[undecided]
        term = self.term.of(undecided)
        held = masses - term.masses(own)
        nodes = _Nodes(term, base[undecided], bound, normalize_, held)
        found = self._search(nodes, rows, own, masses, enough)
        v[undecided], out[undecided] = found.v, own
        return dataclasses.replace(found, v=v)

    def _search(
        self,
        nodes: _Nodes,
        v: torch.Tensor,
        out: torch.Tensor,
        masses: Table,
        enough: float,
    ) -> ImplicitStep:
        """Make Newton's changes of the multipliers, from where the present ones lead."""
        multipliers, n_updates, is_near = self.values, 1, False
        while n_updates < _MAX_UPDATES:
            sensitivity = nodes.sensitivity(out, masses)
            change = self._change(multipliers, masses, sensitivity)
            if change is None:
                break
            moved = (sensitivity @ change[:, :, None])[:, :, 0]
            missing = self.weight * self.term.slope(masses) - multipliers
            # <dT - q, dN>: what better multipliers would gain
            is_near = abs(float((missing * moved).sum())) <= 2 * enough
            if is_near and float((np.abs(moved) / masses).max()) < _MIN_CHANGE:
                break
            change = np.clip(change, -_MAX_CHANGE * nodes.bound, _MAX_CHANGE * nodes.bound)
            multipliers = multipliers + self._share(multipliers, change, masses) * change
            v, masses = nodes.update(multipliers, out)
            n_updates += 1
        return ImplicitStep(v, masses, multipliers, n_updates, is_near)

    def _change(
        self, multipliers: Table, masses: Table, sensitivity: NDArray[np.float64]
    ) -> Table | None:
        """Return Newton's change dq of the multipliers; None where there is none.

        With dN = -sensitivity dq, solved for dN: its sums over the groups by a small system
        for the clusters, the rest a system a group. The curvature -lambda / N_k^2 of lambda / N_k
        is held where it would leave the sum with that of r a direction downwards. A group that is
        not wanted has no r: its multiplier is lambda / N_k.
        """
        totals, n_columns = masses.sum(axis=0), masses.shape[1]
        is_wanted = self.term.proportions[:, None] > 0
        wanted = self.weight * np.where(is_wanted, self.term.proportions[:, None], 1)
        rewards = self._rewards(multipliers, masses)
        inverse = np.where(is_wanted, rewards**2 / wanted, 0)
        spread = np.where(is_wanted, wanted / rewards**2, 0).sum(axis=0)
        across = np.minimum(self.weight / totals**2, 1 / spread)
        shortage = np.where(
            is_wanted, rewards - inverse * masses, multipliers - self.weight / totals
        )
        blocks = sensitivity * inverse[:, None, :] + np.eye(n_columns)
        right = np.concatenate([sensitivity @ shortage[:, :, None], sensitivity], axis=2)
        try:
            solved = np.linalg.solve(blocks, right)
            both = solved.sum(axis=0)
            total = np.linalg.solve(np.eye(n_columns) - both[:, 1:] * across, both[:, 0])
        except np.linalg.LinAlgError:  # clusters that are all alike
            return None
        gain = solved[:, :, 0] + solved[:, :, 1:] @ (across * total)
        change = np.asarray(inverse * gain - shortage - across * total)
        return change if np.isfinite(change).all() else None

    def _rewards(self, multipliers: Table, masses: Table) -> Table:
        """Return r = lambda / N_k - q, at least slightly positive."""
        fees = self.weight / masses.sum(axis=0)
        return np.asarray(np.maximum(fees - multipliers, _MIN_REWARD * fees))

    def _share(self, multipliers: Table, change: Table, masses: Table) -> float:
        """Return how much of a change to make: not so much that some r is used up."""
        falls = np.where(
            self.term.proportions[:, None] > 0, change / self._rewards(multipliers, masses), 0
        )
        return _MAX_FALL / max(float(falls.max()), _MAX_FALL)
