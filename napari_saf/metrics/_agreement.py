"""Agreement of labels with classes that are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from napari_saf.errors import InvalidInput

__all__ = ["matched_accuracy", "normalized_mutual_information"]


def normalized_mutual_information(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the mutual information of classes and labels over the mean of their entropies.

    Parameters
    ----------
    classes, labels : array of int of the same shape
        Nodes whose class is 0 or less are counted like all others: a class is a number.

    Returns
    -------
    float
        0 (independent) to 1 (the same up to names).

    Raises
    ------
    InvalidInput
        If shapes differ, arrays are empty, or numbers are not whole.

    Notes
    -----
    Computed by scikit-learn, arithmetic mean of the entropies.
    """
    truth, found = _check(classes, labels)
    return float(normalized_mutual_info_score(truth, found))


def matched_accuracy(classes: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of the nodes that are right under the best matching of labels to classes.

    Parameters
    ----------
    classes, labels : array of int of the same shape
        As in `normalized_mutual_information`.

    Returns
    -------
    float
        0 to 1. A class has one label at most; labels left over are wrong.

    Raises
    ------
    InvalidInput
        As `normalized_mutual_information`.

    Notes
    -----
    The optimal assignment is found by scipy. Kuhn, https://doi.org/10.1002/nav.3800020109.
    """
    truth, found = _check(classes, labels)
    table = contingency_matrix(truth, found)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / len(truth))


def _check(
    classes: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    truth, found = np.asarray(classes), np.asarray(labels)
    if truth.shape != found.shape or truth.size == 0:
        raise InvalidInput(f"labels: expected shape {truth.shape}, got {found.shape}")
    if truth.dtype.kind not in "biu" or found.dtype.kind not in "biu":
        raise InvalidInput("classes and labels: expected whole numbers")
    return truth.ravel(), found.ravel()
