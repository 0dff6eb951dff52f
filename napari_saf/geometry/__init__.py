"""Geometry of the assignment manifold."""

from napari_saf.geometry._simplex import FLOOR, entropy, normalize_, one_hot_, to_logarithm

__all__ = ["FLOOR", "entropy", "normalize_", "one_hot_", "to_logarithm"]
