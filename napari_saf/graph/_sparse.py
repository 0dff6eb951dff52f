"""Products with sparse matrices on a torch device."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy import sparse

__all__ = ["SparseProduct", "symmetric_part", "without_diagonal"]


class SparseProduct:
    """Product of a sparse matrix (n_nodes, n_nodes) with node values.

    torch's compressed rows: measured with 560,000 entries and 10 columns on two cores 0.5 ms,
    against 1.8 ms by scipy and 20 ms by adding entry by entry; and unlike the latter, the same
    result every time on a graphics card.
    """

    def __init__(self, matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse .* tensor support is in beta")
            self._matrix = torch.sparse_csr_tensor(
                torch.from_numpy(matrix.indptr.astype(np.int32)),
                torch.from_numpy(matrix.indices.astype(np.int32)),
                torch.from_numpy(matrix.data).to(dtype),
                size=matrix.shape,
                check_invariants=False,
            ).to(device)

    def __call__(self, values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor) -> None:
        torch.addmm(out, self._matrix, values, beta=0, out=out)


def symmetric_part(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return (A + A') / 2 without the diagonal."""
    return without_diagonal(sparse.csr_array((matrix + matrix.T) / 2))


def without_diagonal(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the matrix without its diagonal and entries of 0; the one given stays as it is."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    kept = (matrix.indices != rows) & (matrix.data != 0)
    ends = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    return sparse.csr_array((matrix.data[kept], matrix.indices[kept], ends), shape=matrix.shape)
