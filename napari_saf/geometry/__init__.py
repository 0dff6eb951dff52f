"""Geometry of the assignment manifold."""

from napari_saf.geometry._equal_rows import EqualRows, equal_rows
from napari_saf.geometry._memory import (
    cross_product,
    new_field,
    released_later,
    retire,
    row_blocks,
    take_columns,
    with_columns,
)
from napari_saf.geometry._simplex import (
    FLOOR,
    entropy,
    normalize_,
    one_hot_,
    row_maxima,
    shifted_softmax,
    softmax,
    to_logarithm,
)

__all__ = [
    "FLOOR",
    "EqualRows",
    "cross_product",
    "entropy",
    "equal_rows",
    "new_field",
    "normalize_",
    "one_hot_",
    "released_later",
    "retire",
    "row_blocks",
    "row_maxima",
    "shifted_softmax",
    "softmax",
    "take_columns",
    "to_logarithm",
    "with_columns",
]
