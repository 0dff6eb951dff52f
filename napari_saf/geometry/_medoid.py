"""The point of a set that is nearest to all others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

__all__ = ["weighted_medoid"]

_BATCH = 16
_WEISZFELD_STEPS = 10


def weighted_medoid(
    points: NDArray[np.floating], weights: NDArray[np.floating]
) -> tuple[int, float]:
    """Return the point whose weighted sum of distances to all points is least, and that sum.

    Parameters
    ----------
    points : array of shape (n_points, n_features)
        Finite; one at least.
    weights : array of shape (n_points,)
        >= 0.

    Returns
    -------
    index : int
        Of one of the points that reach the least sum.
    total : float
        sum_q weights_q |x_q - x_index|.

    Notes
    -----
    Exact without all n^2 distances. The sum E is convex and grows by at most W = sum of the
    weights per unit of length, so every point b where it was computed bounds it elsewhere from
    below: E(r) >= E(b) + g_b (x_r - x_b), g_b a subgradient, and E(r) >= |E(b) - W |x_r - x_b||
    (the latter: Newling and Fleuret, "A sub-quadratic exact medoid algorithm", AISTATS 2017,
    https://arxiv.org/abs/1605.06950). Points are tried in the order of their bounds, starting
    near the geometric median, until no bound lies below the least sum.
    """
    x, w = np.asarray(points, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    mass = float(w.sum())
    away = np.linalg.norm(x - _geometric_median(x, w), axis=1)
    bounds = np.zeros(len(x))
    batch = _smallest(away)
    best, index = np.inf, 0
    while len(batch):
        distances = cdist(x[batch], x)
        sums = distances @ w
        if sums.min() < best:
            best, index = float(sums.min()), int(batch[sums.argmin()])
        pull = np.divide(w, distances, out=np.zeros_like(distances), where=distances > 0)
        slopes = pull.sum(axis=1)[:, None] * x[batch] - pull @ x
        planes = (sums - (slopes * x[batch]).sum(axis=1))[:, None] + slopes @ x.T
        np.maximum(bounds, planes.max(axis=0), out=bounds)
        np.maximum(bounds, np.abs(sums[:, None] - mass * distances).max(axis=0), out=bounds)
        bounds[batch] = np.inf
        left = np.flatnonzero(bounds < best * (1 - 1e-12))
        batch = left[_smallest(bounds[left])]
    return index, best


def _geometric_median(x: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return about the point with the least weighted sum of distances (Weiszfeld)."""
    centre = w @ x / max(float(w.sum()), 1e-300)
    least = 1e-9 * max(float(np.abs(x - centre).max()), 1e-300)
    for _ in range(_WEISZFELD_STEPS):
        pull = w / np.maximum(np.linalg.norm(x - centre, axis=1), least)
        centre = pull @ x / max(float(pull.sum()), 1e-300)
    return centre


def _smallest(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the positions of the smallest values, a batch of them."""
    if len(values) <= _BATCH:
        return np.arange(len(values))
    return np.argpartition(values, _BATCH)[:_BATCH]
