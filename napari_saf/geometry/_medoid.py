"""The point of a set that is nearest to all others."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["weighted_medoid"]

_FIRST = 4
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
    x = torch.from_numpy(np.ascontiguousarray(points, dtype=np.float64))
    w = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float64))
    mass = float(w.sum())
    left = torch.arange(len(x))
    bounds = torch.cdist(_geometric_median(x, w)[None], x)[0]
    best, index = np.inf, 0
    while len(left):
        count = min(_BATCH if np.isfinite(best) else _FIRST, len(left))
        batch = left[bounds.topk(count, largest=False).indices]
        distances = torch.cdist(x[batch], x, compute_mode="donot_use_mm_for_euclid_dist")
        sums = distances @ w
        if not np.isfinite(best):
            bounds = torch.zeros(len(x), dtype=x.dtype)
        if float(sums.min()) < best:
            best, index = float(sums.min()), int(batch[sums.argmin()])
        far = (sums[:, None] - mass * distances[:, left]).abs_().amax(dim=0)
        pull = w / distances
        pull[distances == 0] = 0
        slopes = pull.sum(dim=1, keepdim=True) * x[batch] - pull @ x
        planes = torch.addmm((sums - (slopes * x[batch]).sum(dim=1))[:, None], slopes, x[left].T)
        bounds = torch.maximum(bounds, torch.maximum(planes.amax(dim=0), far))
        bounds[torch.isin(left, batch)] = np.inf
        kept = bounds < best * (1 - 1e-12)
        left, bounds = left[kept], bounds[kept]
    return index, best


def _geometric_median(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return about the point with the least weighted sum of distances (Weiszfeld)."""
    centre = w @ x / max(float(w.sum()), 1e-300)
    least = 1e-9 * max(float((x - centre).abs().max()), 1e-300)
    for _ in range(_WEISZFELD_STEPS):
        pull = w / torch.cdist(centre[None], x)[0].clamp_(min=least)
        centre = pull @ x / max(float(pull.sum()), 1e-300)
    return centre
