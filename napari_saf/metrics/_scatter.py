"""How far apart labels are in feature space."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from napari_saf.errors import InvalidInput

__all__ = ["class_separability"]


def class_separability(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the ratio of the scatter between labels to the scatter within them.

    Parameters
    ----------
    features : array of shape (..., n_features)
        Finite numbers.
    labels : array of int of shape (...)
        Label of each node or pixel; those that are 0 are left out.

    Returns
    -------
    float
        >= 0, larger is better; 0 if all labels have the same mean, infinite if each label has
        one feature only and the labels differ. It grows with the number of labels: compare at
        equal numbers.

    Raises
    ------
    InvalidInput
        If shapes disagree, features are not finite, labels are not whole numbers or negative,
        or all of them are 0.

    Notes
    -----
    tr S_B / tr S_W with S_W = sum_j sum_(i in j) (f_i - m_j) (f_i - m_j)' and
    S_B = sum_j n_j (m_j - m) (m_j - m)', m_j the mean of label j, m that of all.

    References
    ----------
    Fukunaga, "Introduction to statistical pattern recognition", 2nd ed. (1990), section 10.2,
    criterion J4, https://doi.org/10.1016/C2009-0-27872-X.
    """
    owner = np.asarray(labels)
    if owner.dtype.kind not in "biu" or (owner.size and owner.min() < 0):
        raise InvalidInput("labels: expected whole numbers 0, 1, 2, ...")
    array = np.asarray(features, dtype=np.float64)
    if array.shape[:-1] != owner.shape or array.ndim < 2:
        raise InvalidInput(f"features: expected shape {(*owner.shape, 'n')}, got {array.shape}")
    array, owner = array[owner > 0], owner[owner > 0]
    if not owner.size:
        raise InvalidInput("labels: expected labelled nodes, got 0 everywhere")
    if not np.isfinite(array).all():
        raise InvalidInput("features: expected finite numbers")
    owner, sizes = np.unique(owner, return_inverse=True, return_counts=True)[1:]
    centred = array - array.mean(axis=0)
    sums = np.zeros((len(sizes), array.shape[1]))
    np.add.at(sums, owner, centred)
    means = sums / sizes[:, None]
    within = float(np.square(centred - means[owner]).sum())
    between = float(sizes @ np.square(means).sum(axis=1))
    if within == 0:
        return 0.0 if between == 0 else float("inf")
    return between / within
