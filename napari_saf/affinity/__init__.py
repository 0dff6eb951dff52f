"""Affinities: how alike any two nodes are."""

from napari_saf.affinity._basis import Basis, DenseBasis
from napari_saf.affinity._gaussian import GaussianAffinity, LowRank
from napari_saf.affinity._given import KernelAffinity
from napari_saf.affinity._operator import AffinityOperator, Product
from napari_saf.affinity._spectrum import leading_vectors

__all__ = [
    "AffinityOperator",
    "Basis",
    "DenseBasis",
    "GaussianAffinity",
    "KernelAffinity",
    "LowRank",
    "Product",
    "leading_vectors",
]
