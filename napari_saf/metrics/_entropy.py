"""How decided an assignment is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from napari_saf.errors import InvalidInput

__all__ = ["mean_entropy"]


def mean_entropy(assignment: ArrayLike) -> float:
    """Return the mean entropy of the rows of an assignment.

    Parameters
    ----------
    assignment : array of shape (n_nodes, n_labels)
        Entries are not negative, rows sum to 1.

    Returns
    -------
    float
        In nats, from 0 (every node has one label) to log n_labels.

    Raises
    ------
    InvalidInput
        If the shape is wrong, an entry is negative or not finite, or rows do not sum to 1.
    """
    array = np.asarray(assignment, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise InvalidInput(f"assignment: expected shape (n_nodes, n_labels), got {array.shape}")
    if not (array >= 0).all() or not (np.abs(array.sum(axis=1) - 1) < 1e-3).all():
        raise InvalidInput("assignment: expected rows of numbers >= 0 that sum to 1")
    return float(entr(array).sum(axis=1).mean())
