"""Products with sparse matrices on a torch device."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from napari_saf.arrays import as_array
from napari_saf.errors import InvalidInput
from napari_saf.tick import Tick, go_on

__all__ = ["SparseProduct", "asymmetry", "square_matrix", "symmetric_part", "without_diagonal"]


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

    def __call__(
        self, values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor, tick: Tick = go_on
    ) -> None:
        torch.addmm(out, self._matrix, values, beta=0, out=out)

    def among(self, nodes: NDArray[np.integer]) -> SparseProduct:
        """Return the product with the rows and columns of some nodes."""
        own = self._matrix
        parts = own.values(), own.col_indices(), own.crow_indices()
        given = sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=own.shape)
        return SparseProduct(sparse.csr_array(given[nodes][:, nodes]), own.device, own.dtype)


def square_matrix(matrix: ArrayLike | sparse.spmatrix | sparse.sparray) -> sparse.csr_array:
    """Return a matrix that was given, dense or sparse, in float64.

    Raises
    ------
    InvalidInput
        If it is not square, or holds anything but finite real numbers.
    """
    given: Any = matrix if sparse.issparse(matrix) else as_array(matrix, "matrix")
    if given.dtype.kind not in "biuf" or given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise InvalidInput(
            f"matrix: expected a square matrix of numbers, got {given.dtype} of shape {given.shape}"
        )
    found = sparse.csr_array(given.astype(np.float64))
    if not np.isfinite(found.data).all():
        raise InvalidInput("matrix: expected finite numbers")
    return found


def asymmetry(matrix: sparse.csr_array) -> float:
    """Return the largest difference of two entries that mirror each other."""
    return float(np.abs(matrix - matrix.T).max()) if matrix.nnz else 0.0


def symmetric_part(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return (A + A') / 2 without the diagonal."""
    return without_diagonal(sparse.csr_array((matrix + matrix.T) / 2))


def without_diagonal(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the matrix without its diagonal and entries of 0; the one given stays as it is."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    kept = (matrix.indices != rows) & (matrix.data != 0)
    ends = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    return sparse.csr_array((matrix.data[kept], matrix.indices[kept], ends), shape=matrix.shape)
