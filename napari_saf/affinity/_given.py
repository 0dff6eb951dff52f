"""An affinity given as a matrix."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from napari_saf.affinity._basis import DenseBasis
from napari_saf.affinity._operator import AffinityOperator, Product
from napari_saf.errors import InvalidInput
from napari_saf.graph import asymmetry, square_matrix
from napari_saf.tick import Tick, go_on

__all__ = ["KernelAffinity"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class KernelAffinity:
    """A given affinity matrix.

    Parameters
    ----------
    matrix : array or sparse matrix of shape (n_nodes, n_nodes)
        Symmetric and finite. It need not be positive semi-definite.

    Raises
    ------
    InvalidInput
        If the matrix is not square, not finite or not symmetric.
    """

    matrix: ArrayLike | sparse.sparray

    def __post_init__(self) -> None:
        entries = square_matrix(self.matrix)
        difference = asymmetry(entries)
        if difference > 1e-8 * np.abs(entries.data).max(initial=1.0):
            raise InvalidInput(
                f"matrix: expected a symmetric matrix, entries differ by up to {difference:g}"
            )

    def bind(
        self,
        features: torch.Tensor,
        rng: np.random.Generator,
        tick: Tick = go_on,
    ) -> AffinityOperator:
        """Return the operator on the features' device.

        Raises
        ------
        InvalidInput
            If the matrix is of another number of nodes.
        """
        given: Any = self.matrix if sparse.issparse(self.matrix) else np.asarray(self.matrix)
        n_rows = given.shape[0]
        if n_rows != len(features):
            raise InvalidInput(f"matrix: expected {len(features)} nodes, got {n_rows}")
        if sparse.issparse(self.matrix):
            entries = sparse.coo_array(self.matrix)
            index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
            values = torch.from_numpy(entries.data.astype(np.float64))
            kernel = torch.sparse_coo_tensor(index, values, entries.shape, check_invariants=True)
        else:
            kernel = torch.from_numpy(np.array(self.matrix, dtype=np.float64))
        return _Given(kernel.to(features.dtype).to(features.device))

    def sketch_width(
        self, features: NDArray[np.floating], device: torch.device, dtype: torch.dtype
    ) -> tuple[float, float]:
        """Return 0: there is no sketch."""
        return 0, 0


class _Given:
    def __init__(self, kernel: torch.Tensor) -> None:
        self._kernel = kernel

    def product(self, assignment: torch.Tensor) -> Product:
        identity = torch.eye(assignment.shape[1], dtype=torch.float64)
        return Product(DenseBasis(self._kernel @ assignment), identity)

    def quadratic(self, assignment: torch.Tensor, product: Product) -> torch.Tensor:
        return product.basis.overlap(assignment, go_on).T
