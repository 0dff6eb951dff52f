"""Prices that keep groups in proportion: the implicit step of a fair clustering."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.geometry import normalize_, softmax
from napari_saf.methods._fairness_term import FairnessTerm

__all__ = ["DECIDED", "FairnessPrices", "Settlement"]

_MOST_UPDATES = 6
DECIDED = 1 - 5e-7
"""Share of the cluster that a node prefers from which on it counts as decided."""
_FEW = 0.5
"""Share of the nodes; where no more are undecided, prices are sought for these alone."""
_LONGEST = 3.0
"""Largest change of a price, in units of the bound: where only decided nodes pay it, it does
little, and Newton asks for thousands."""
_STILL = 0.02
"""Share of a mass; a change that moves none by more need not be made."""
_MOST_FALL = 0.9
_LEAST_REWARD = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Settlement:
    """What prices lead to.

    Attributes
    ----------
    v : Tensor of shape (n_nodes, n_columns)
        Log coordinates.
    masses : array of shape (n_groups, n_columns)
        N of their softmax.
    prices : array of shape (n_groups, n_columns)
        q.
    n_updates : int
        Assignments that were computed.
    is_near : bool
        Whether better prices would make little difference.
    """

    v: torch.Tensor
    masses: NDArray[np.float64]
    prices: NDArray[np.float64]
    n_updates: int
    is_near: bool


@dataclasses.dataclass(slots=True, eq=False)
class _Nodes:
    """Nodes that still choose between clusters.

    Attributes
    ----------
    term : FairnessTerm
        Of these nodes.
    base : Tensor of shape (n_nodes, n_columns)
        -a / L.
    bound : float
        L.
    constrain : callable
        Normalises log coordinates in place.
    others : array of shape (n_groups, n_columns) or 0
        Masses of all other nodes.
    """

    term: FairnessTerm
    base: torch.Tensor
    bound: float
    constrain: Callable[[torch.Tensor], torch.Tensor]
    others: NDArray[np.float64] | float

    def update(
        self, prices: NDArray[np.float64], out: torch.Tensor, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, NDArray[np.float64]]:
        """Return where prices lead, and the masses of all nodes there; see `softmax`."""
        v = self.term.add_rows(prices / -self.bound, self.base)
        softmax(self.constrain(v), out=out, scale=scale)
        return v, np.maximum(self.term.masses(out) + self.others, 1e-300)

    def softness(
        self, assignment: torch.Tensor, masses: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return by how much masses fall with the prices, a table for each group."""
        return self.term.softness(assignment, masses - self.others) / self.bound


class FairnessPrices:
    """Prices q_jk that a node of group j pays in cluster k, in step with what they lead to.

    The fairness term T depends on the table N of masses alone. So what makes

        <a, S> + lambda T(N(S)) + L sum s log s

    least is S = softmax(-(a + q) / L) with q = lambda dT/dN at its own masses: a fee
    lambda / N_k less a reward r_jk = lambda mu_j / N_jk. Newton's method finds q as the root of
    lambda mu_j / r_jk - N_jk, in which a rare group has no pole; the derivative of N by q is
    -(diag(N_j) - S_j'S_j) / L, a block a group. Work on the tables grows with the number of
    groups, not with its square.

    Parameters
    ----------
    term : FairnessTerm
    weight : float
        lambda > 0.
    masses : array of shape (n_groups, n_columns)
        Of the start; prices are nothing there.

    Attributes
    ----------
    prices : array of shape (n_groups, n_columns)
        Where the next search begins.
    """

    def __init__(self, term: FairnessTerm, weight: float, masses: NDArray[np.float64]) -> None:
        self._term = term
        self._weight = weight
        self._is_wanted = term.proportions[:, None] > 0
        self._wanted = weight * np.where(self._is_wanted, term.proportions[:, None], 1)
        self._others: NDArray[np.float64] | float = 0.0
        self.prices = np.where(self._is_wanted, 0, weight / masses.sum(axis=0))

    def among(
        self, nodes: torch.Tensor, assignment: torch.Tensor, masses: NDArray[np.float64]
    ) -> FairnessPrices:
        """Return the prices for some nodes alone.

        Given their rows of the assignment and the masses of all nodes, of which the others keep
        theirs.
        """
        part = copy.copy(self)
        part._term = self._term.of(nodes)
        part._others = np.maximum(masses - part._term.masses(assignment), 0)
        return part

    def settle(
        self,
        base: torch.Tensor,
        bound: float,
        enough: float,
        constrain: Callable[[torch.Tensor], torch.Tensor],
        out: torch.Tensor,
    ) -> Settlement:
        """Find prices for log coordinates -a / L = `base` and L = `bound`.

        Until better ones would gain no more than `enough` and hardly move a mass, or for six
        updates. `constrain` normalises log coordinates in place; their softmax is written into
        `out`.
        """
        found = _Nodes(self._term, base, bound, constrain, self._others)
        scale = torch.empty_like(base[:, 0])
        v, masses = found.update(self.prices, out, scale)
        undecided = (scale < DECIDED).nonzero()[:, 0]
        if not 0 < len(undecided) <= _FEW * len(v):
            return self._search(found, v, out, masses, enough)
        found = _Nodes(self._term.of(undecided), base[undecided], bound, normalize_, 0.0)
        rows, own = v[undecided], out[undecided]
        found.others = masses - found.term.masses(own)
        settled = self._search(found, rows, own, masses, enough)
        v[undecided], out[undecided] = settled.v, own
        return dataclasses.replace(settled, v=v)

    def _search(
        self,
        nodes: _Nodes,
        v: torch.Tensor,
        out: torch.Tensor,
        masses: NDArray[np.float64],
        enough: float,
    ) -> Settlement:
        """Make Newton's changes of the prices, from where the present ones lead."""
        prices, n_updates, is_near = self.prices, 1, False
        while n_updates < _MOST_UPDATES:
            softness = nodes.softness(out, masses)
            change = self._change(prices, masses, softness)
            if change is None:
                break
            moved = (softness @ change[:, :, None])[:, :, 0]
            missing = self._weight * self._term.slope(masses) - prices
            is_near = abs(float((missing * moved).sum())) <= 2 * enough
            if is_near and float((np.abs(moved) / masses).max()) < _STILL:
                break
            change = np.clip(change, -_LONGEST * nodes.bound, _LONGEST * nodes.bound)
            prices = prices + self._share(prices, change, masses) * change
            v, masses = nodes.update(prices, out)
            n_updates += 1
        return Settlement(v, masses, prices, n_updates, is_near)

    def _change(
        self,
        prices: NDArray[np.float64],
        masses: NDArray[np.float64],
        softness: NDArray[np.float64],
    ) -> NDArray[np.float64] | None:
        """Return Newton's change of the prices; None where there is none.

        With dN = -softness dq, solved for dN: its sums over the groups by a small system
        for the clusters, the rest a system a group. The curvature -lambda / N_k^2 of the fees
        is held where it would leave the sum with that of the rewards a direction downwards.
        A group that is not wanted has no reward: its price is the fee.
        """
        totals, n_columns = masses.sum(axis=0), masses.shape[1]
        rewards = self._rewards(prices, masses)
        inverse = np.where(self._is_wanted, rewards**2 / self._wanted, 0)
        spread = np.where(self._is_wanted, self._wanted / rewards**2, 0).sum(axis=0)
        across = np.minimum(self._weight / totals**2, 1 / spread)
        shortage = np.where(
            self._is_wanted, rewards - inverse * masses, prices - self._weight / totals
        )
        blocks = softness * inverse[:, None, :] + np.eye(n_columns)
        right = np.concatenate([softness @ shortage[:, :, None], softness], axis=2)
        try:
            solved = np.linalg.solve(blocks, right)
            both = solved.sum(axis=0)
            total = np.linalg.solve(np.eye(n_columns) - both[:, 1:] * across, both[:, 0])
        except np.linalg.LinAlgError:  # clusters that are all alike
            return None
        gain = solved[:, :, 0] + solved[:, :, 1:] @ (across * total)
        change = np.asarray(inverse * gain - shortage - across * total)
        return change if np.isfinite(change).all() else None

    def _rewards(
        self, prices: NDArray[np.float64], masses: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return r, kept positive."""
        fees = self._weight / masses.sum(axis=0)
        return np.asarray(np.maximum(fees - prices, _LEAST_REWARD * fees))

    def _share(
        self,
        prices: NDArray[np.float64],
        change: NDArray[np.float64],
        masses: NDArray[np.float64],
    ) -> float:
        """Return how much of a change to make: not so much that a reward is used up."""
        falls = np.where(self._is_wanted, change / self._rewards(prices, masses), 0)
        return _MOST_FALL / max(float(falls.max()), _MOST_FALL)
