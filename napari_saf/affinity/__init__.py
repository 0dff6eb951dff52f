"""Affinities: how alike any two nodes are."""

from napari_saf.affinity._basis import Basis, DenseBasis
from napari_saf.affinity._gaussian import GaussianAffinity, LowRank
from napari_saf.affinity._given import KernelAffinity
from napari_saf.affinity._operator import AffinityOperator, Product

__all__ = [
    "AffinityOperator",
    "Basis",
    "DenseBasis",
    "GaussianAffinity",
    "KernelAffinity",
    "LowRank",
    "Product",
]
