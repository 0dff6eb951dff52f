"""The point of a set that is nearest to all others."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["weighted_medoid"]

_FIRST = 4
_BATCH = 16
_WEISZFELD_STEPS = 8
_NEWTON_STEPS = 3
_SAMPLE = 5000
_MOST_CURVED = 16
_MOST_DOUBLINGS = 40
_ROUNDING = 1e-14


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
    https://arxiv.org/abs/1605.06950). Near the geometric median m, where slopes are small, the
    curvature rules out most: with a = x_q - m /= 0, u its direction and h = x_r - m,

        |a - h| >= |a| - u'h + (|h|^2 - (u'h)^2) / (2 (|a| + |h|)),

    and a convex function that is above the least sum all around m is above it beyond. Where the
    sum is lower at a point than at what is taken for the median, the point takes its place. Points
    are tried in the order of their bounds, starting near m, until no bound lies below the
    least sum.
    """
    x = torch.from_numpy(np.ascontiguousarray(points, dtype=np.float64))
    w = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float64))
    mass = float(w.sum())
    centre = _geometric_median(x, w)
    apart = _distances(centre[None], x)[0]
    first = apart.topk(min(_FIRST, len(x)), largest=False).indices
    near = _distances(x[first], x)
    sums = near @ w
    best, index = float(sums.min()), int(first[sums.argmin()])
    if best < float(w @ apart):
        centre, apart = x[index], near[sums.argmin()]
    offsets, farthest = x - centre, float(apart.max())
    left = torch.arange(len(x))
    bounds = torch.zeros(len(x), dtype=x.dtype)
    if x.shape[1] <= _MOST_CURVED:
        left, bounds = _near_median(x, w, offsets, apart, best)
    bounds[torch.isin(left, first)] = np.inf
    left, bounds = left[bounds < np.inf], bounds[bounds < np.inf]
    while len(left):
        batch = left[bounds.topk(min(_BATCH, len(left)), largest=False).indices]
        distances = _distances(x[batch], x)
        sums = distances @ w
        if float(sums.min()) < best:
            best, index = float(sums.min()), int(batch[sums.argmin()])
        if len(batch) == len(left):
            break
        far = (sums[:, None] - mass * distances[:, left]).abs_().amax(dim=0)
        pull = w / distances
        pull[distances == 0] = 0
        steepness = pull.sum(dim=1, keepdim=True)
        slopes = steepness * offsets[batch] - pull @ offsets
        heights = sums[:, None] - (slopes * offsets[batch]).sum(dim=1, keepdim=True)
        heights -= _ROUNDING * farthest**2 * steepness
        planes = torch.addmm(heights, slopes, offsets[left].T)
        bounds = torch.maximum(bounds, torch.maximum(planes.amax(dim=0), far))
        bounds[torch.isin(left, batch)] = np.inf
        kept = bounds < best * (1 - 1e-12)
        left, bounds = left[kept], bounds[kept]
    return index, best


def _near_median(
    x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor, apart: torch.Tensor, best: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distinct points whose sum may be below the best, and bounds from curvature."""
    inside = torch.arange(len(x))
    directions = offsets / apart.clamp(min=1e-300)[:, None]
    slope, least, here = -(w @ directions), float(w @ apart), float(w[apart == 0].sum())
    farthest = float(apart.max())
    if not farthest:
        return inside[:0], apart[:0]
    reach = float(apart.topk(min(_FIRST, len(x)), largest=False).values[-1])
    reach = max(reach, 1e-9 * farthest)
    for _ in range(_MOST_DOUBLINGS):
        scaled = w / (apart + reach)
        scaled[apart == 0] = 0
        curvature = scaled.sum() * torch.eye(x.shape[1], dtype=x.dtype)
        curvature -= (directions * scaled[:, None]).T @ directions
        if not torch.isfinite(curvature).all():
            return inside, torch.zeros_like(apart)
        smallest = max(float(torch.linalg.eigvalsh(curvature)[0]), 0.0)
        steepness = here - float(slope.norm())
        if least + steepness * reach + 0.5 * smallest * reach**2 >= best:
            inside = (apart <= reach).nonzero()[:, 0]
            break
        if reach > farthest:
            break
        reach *= 2
    h = offsets[inside]
    bounds = least + h @ slope + here * apart[inside] + 0.5 * ((h @ curvature) * h).sum(dim=1)
    # Points farther than `reach`, if they are kept, are beyond where the curvature holds.
    bounds[apart[inside] > reach] = 0
    kept = bounds < best * (1 - 1e-12)
    left, bounds = inside[kept], bounds[kept]
    _, chosen = np.unique(x[left].numpy(), axis=0, return_index=True)
    return left[chosen], bounds[chosen].clamp_(min=0)


def _geometric_median(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return about the point with the least weighted sum of distances.

    By Weiszfeld's steps, which are short near a point of great weight, then by Newton's.
    """
    centre = w @ x / max(float(w.sum()), 1e-300)
    least = 1e-9 * max(float((x - centre).abs().max()), 1e-300)
    every = -(-len(x) // _SAMPLE)
    some, weights = x[::every], w[::every]
    for _ in range(_WEISZFELD_STEPS):
        pull = weights / _distances(centre[None], some)[0].clamp_(min=least)
        centre = pull @ some / max(float(pull.sum()), 1e-300)
    if x.shape[1] <= _MOST_CURVED:
        centre = _newton(some, weights, centre, least)
        centre = _newton(x, w, centre, least)
    return centre


def _newton(x: torch.Tensor, w: torch.Tensor, centre: torch.Tensor, least: float) -> torch.Tensor:
    """Return a point with a lower weighted sum of distances; steps that lead up are halved."""
    lowest, step = np.inf, torch.zeros_like(centre)
    for _ in range(_NEWTON_STEPS):
        offsets = x - (centre + step)
        apart = _distances((centre + step)[None], x)[0].clamp_(min=least)
        total = float(w @ apart)
        if not total < lowest:
            step = step / 2
            continue
        centre, lowest, pull = centre + step, total, w / apart
        curvature = pull.sum() * torch.eye(x.shape[1], dtype=x.dtype)
        curvature -= (offsets * (pull / apart**2)[:, None]).T @ offsets
        curvature.diagonal().add_(1e-9 * pull.sum() + 1e-300)
        step = torch.linalg.solve(curvature, pull @ offsets)
    return centre


def _distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return |a_i - b_j| from differences: products cancel far from the origin."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
