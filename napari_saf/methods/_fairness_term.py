"""The fairness term of variational fair clustering, as work on a small table of masses."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import xlogy

from napari_saf.graph import SparseProduct

__all__ = ["FairnessTerm"]

_CHUNK = 1024


class FairnessTerm:
    """sum_k KL(mu || P_k), P_kj the share of group j among the nodes of cluster k.

    It depends on the assignment only through the masses N_jk = V_j'S_k.

    Parameters
    ----------
    groups : array of int of shape (n_nodes,)
        0, 1, ..., n_groups - 1; -1 for nodes of no group, which do not count.
    proportions : array of shape (n_groups,)
        mu: >= 0, sum 1.
    like : Tensor
        Gives device and type.
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

    def masses(self, assignment: torch.Tensor) -> NDArray[np.float64]:
        """Return N of shape (n_groups, n_columns): sums of up to 1024 nodes, then in float64."""
        out = assignment.new_empty(len(self._chunk_groups), assignment.shape[1])
        self._table(assignment, out, out)
        masses = np.zeros((self._n_groups, assignment.shape[1]))
        np.add.at(masses, self._chunk_groups, out.cpu().double().numpy())
        return np.maximum(masses, 1e-300)

    def value(self, masses: NDArray[np.float64]) -> float:
        """Return the term, in nats."""
        mu, totals = self.proportions[:, None], masses.sum(axis=0)
        divergence = xlogy(mu, mu).sum() * masses.shape[1] - (mu * np.log(masses / totals)).sum()
        return max(float(divergence), 0.0)

    def slope(self, masses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative b of shape (n_groups, n_columns) by the masses.

        b_jk = 1 / N_k - mu_j / N_jk, which is sum_j' (mu_j' / N_k - mu_j' v_j' / N_j'k) for a
        node of group j: positive where the group is over-represented.
        """
        return np.asarray(1 / masses.sum(axis=0) - self.proportions[:, None] / masses)

    def softness(
        self, assignment: torch.Tensor, masses: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return diag(N_j) - S_j'S_j of every group, (n_groups, n_columns, n_columns)."""
        grouped = assignment.index_select(0, self._order)
        blocks = [rows.T @ rows for rows in torch.split(grouped, self._sizes)]
        overlap = torch.stack(blocks).cpu().double().numpy()
        eye = np.eye(masses.shape[1])
        return np.asarray(masses[:, :, None] * eye - overlap)

    def add_rows(self, table: NDArray[np.float64], to: torch.Tensor) -> torch.Tensor:
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
