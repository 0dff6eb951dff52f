"""How far apart labels are in feature space."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput
from napari_saf.metrics._numbers import check_labels, check_table, small_numbers

__all__ = ["class_separability", "pairwise_separability"]


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
    array, owner = _labelled(features, labels)
    sizes, means, within = _scatters(array, small_numbers(owner))
    present = sizes > 0
    centre = sizes @ means / sizes.sum()
    between = float(sizes[present] @ np.square(means[present] - centre).sum(axis=1))
    return _ratio(between, float(within.sum()))


def pairwise_separability(features: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return the class separability of every two labels, as if there were no others.

    Parameters
    ----------
    features : array of shape (..., n_features)
        Finite numbers.
    labels : array of int of shape (...)
        Label of each node or pixel; those that are 0 are left out.

    Returns
    -------
    array of shape (n_labels, n_labels)
        Entry (j - 1, k - 1) for labels j and k, n_labels the largest label: >= 0, larger is
        better; infinite if both have one feature only, NaN on the diagonal and where one of the
        two has no node.

    Raises
    ------
    InvalidInput
        As `class_separability`, and if the largest label is above 2**13.

    Notes
    -----
    n_j n_k / (n_j + n_k) |m_j - m_k|^2 over the sum of the scatters within both.
    """
    array, owner = _labelled(features, labels)
    count = int(owner.max()) + 1
    check_table(count, count)
    sizes, means, within = _scatters(array, owner)
    found = np.full((count, count), np.nan)
    for j in np.flatnonzero(sizes):
        for k in np.flatnonzero(sizes[:j]):
            weight = sizes[j] * sizes[k] / (sizes[j] + sizes[k])
            between = weight * float(np.square(means[j] - means[k]).sum())
            found[j, k] = found[k, j] = _ratio(between, float(within[j] + within[k]))
    return found


def _ratio(between: float, within: float) -> float:
    if within == 0:
        return 0.0 if between == 0 else float("inf")
    return between / within


def _labelled(
    features: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the features of the nodes that have a label, and that label, from 0."""
    owner = check_labels(labels, "labels")
    array = np.asarray(features, dtype=np.float64)
    if array.shape[:-1] != owner.shape or array.ndim < 2:
        raise InvalidInput(f"features: expected shape {(*owner.shape, 'n')}, got {array.shape}")
    array, owner = array[owner > 0], owner[owner > 0].astype(np.int64) - 1
    if not owner.size:
        raise InvalidInput("labels: expected labelled nodes, got 0 everywhere")
    if not np.isfinite(array).all():
        raise InvalidInput("features: expected finite numbers")
    return array, owner


def _scatters(
    array: NDArray[np.float64], owner: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return size, mean feature and scatter of each label 0, 1, ..., all 0 for an empty one."""
    count = int(owner.max()) + 1
    sizes = np.bincount(owner, minlength=count).astype(np.float64)
    origin = array.mean(axis=0)
    sums = [np.bincount(owner, weights=f, minlength=count) for f in (array - origin).T]
    means = np.where(
        sizes[:, None] > 0, origin + np.stack(sums, axis=1) / sizes.clip(1)[:, None], 0.0
    )
    away = np.square(array - means[owner]).sum(axis=1)
    within: NDArray[np.float64] = np.bincount(owner, weights=away, minlength=count)  # type: ignore[assignment]
    return sizes, np.asarray(means), within
