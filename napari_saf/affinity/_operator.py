"""What the flows need of an affinity: its product with an assignment."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from napari_saf.affinity._basis import Basis

__all__ = ["AffinityOperator", "Product"]


class Product(NamedTuple):
    """K W in factors: ``K W = basis @ coefficients``.

    Attributes
    ----------
    basis : Basis of shape (n_nodes, rank)
        On the device, in the type of the fields.
    coefficients : Tensor of shape (rank, n_labels)
        float64, on the CPU.
    """

    basis: Basis
    coefficients: torch.Tensor


class AffinityOperator(Protocol):
    """An affinity matrix K that is bound to nodes, device and type."""

    def product(self, assignment: torch.Tensor) -> Product:
        """Return K W for W of shape (n_nodes, n_labels)."""

    def quadratic(self, assignment: torch.Tensor, product: Product) -> torch.Tensor:
        """Return W'K W, float64 on the CPU, from what `product` returned for W."""
