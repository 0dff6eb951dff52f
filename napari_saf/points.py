"""Points in feature space: distances, k-means, weighted means, medoids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from napari_saf.arrays import Float64s, Floats
from napari_saf.device import Tensor, torch

_N_FIRST = 4
_BATCH = 16
_WEISZFELD_STEPS = 8
_NEWTON_STEPS = 3
_MAX_SAMPLES = 5000
_MAX_DRAWN = 4000
_N_SEARCHED, _MAX_SPACED, _N_CANDIDATES = 2000, 8000, 150
"""Numbers of evenly spaced rows for the search of means, for the final update, and candidates."""
_STRETCH, _N_STRETCHED, _MOST_AGAIN = 0.1, 8, 8
"""Perturbation of features, number of repeated searches, and most means for which they are made."""
_MAX_CURVED = 16
_MAX_DOUBLINGS = 40
_ROUNDING = 1e-14
_N_COMPARED, _DIFFERENCE = 1000, 1e-3
"""Number of points compared, and least difference relative to the range, for float32 squares."""
MAX_EXACT_FEATURES = 25
"""Number of features above which squared distances are computed by matrix products."""


def distances(features: Tensor, points: Tensor) -> Tensor:
    """Return |f_i - p_j| (n_nodes, n_points), without the cancellation of matrix products."""
    return torch.cdist(features, points, compute_mode="donot_use_mm_for_euclid_dist")


def squared_distances(features: Tensor, points: Tensor, norms: Tensor | None = None) -> Tensor:
    """Return |f_i - p_j|^2 (..., n_nodes, n_points); `norms` are squared lengths of features."""
    if features.shape[-1] <= MAX_EXACT_FEATURES:
        return distances(features, points).square_()
    squares = features.square().sum(dim=-1) if norms is None else norms
    products = torch.matmul(features, points.transpose(-1, -2))
    products.mul_(-2).add_(squares[..., None]).add_(points.square().sum(dim=-1)[..., None, :])
    return products.clamp_(min=0)


def weighted_means(weights: Tensor, features: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """Return weighted means (..., n_columns, n_features), or `otherwise` for zero weight."""
    masses = weights.sum(dim=-2)[..., None]
    means = (weights.mT @ features) / masses.clamp(min=1e-30)
    return means if otherwise is None else torch.where(masses > 1e-12, means, otherwise)


def k_means(
    points: Floats,
    clusters: int | Floats,
    *,
    seed: int | np.random.RandomState = 0,
    n_starts: int = 1,
    max_iterations: int = 300,
    cancelled: Callable[[], bool] = lambda: False,
) -> Floats:
    """Return the centres (n_clusters, n_features) of the best of `n_starts` runs of k-means.

    `clusters` is their number, or the initial centres of the first run; others start by k-means++.
    There are at least as many points, which may coincide. `cancelled` is polled before each run.
    """
    from sklearn.cluster import KMeans, kmeans_plusplus  # scikit-learn takes half a second to load

    draw = np.random.RandomState(seed) if isinstance(seed, int) else seed
    start = None if isinstance(clusters, int) else clusters
    count = clusters if isinstance(clusters, int) else len(clusters)
    init = "k-means++" if start is None else start
    search = KMeans(count, n_init=1, init=init, max_iter=max_iterations, random_state=draw)
    differ, best, least = _are_plainly_more(points, count), start, math.inf
    for number in range(n_starts):
        if cancelled():
            break
        if differ:
            search.fit(points)
            centres, inertia = search.cluster_centers_, search.inertia_
        else:  # scikit-learn would warn, and suppressed warnings affect all threads
            first = start if number == 0 else None
            if first is None:
                first = kmeans_plusplus(points, count, random_state=draw)[0]
            centres, inertia = _lloyd(points, first, max_iterations)
        if inertia < least:
            best, least = centres, inertia
        search.set_params(init="k-means++")
    return kmeans_plusplus(points, count, random_state=draw)[0] if best is None else best


def _are_plainly_more(points: Floats, count: int) -> bool:
    """Return whether more than `count` points of a sample differ by more than rounding errors."""
    sample = points[:: max(1, len(points) // _N_COMPARED)]
    unit = _DIFFERENCE * float(np.ptp(points, axis=0).max())
    return unit > 0 and len(np.unique(np.round(sample / unit), axis=0)) > count


def _lloyd(points: Floats, centres: Floats, max_iterations: int) -> tuple[Floats, float]:
    """Return the centres of one k-means run, which may coincide, and the sum of squares."""
    for _ in range(max_iterations):
        nearest = cdist(points, centres, "sqeuclidean").argmin(axis=1)
        sizes = np.bincount(nearest, minlength=len(centres))[:, None]
        sums = [np.bincount(nearest, values, len(centres)) for values in points.T]
        means = np.where(sizes > 0, np.stack(sums, axis=1) / sizes.clip(min=1), centres)
        if np.array_equal(means, centres):
            break
        centres = means
    squares = cdist(points, centres, "sqeuclidean").min(axis=1)
    return centres.astype(points.dtype), float(squares.sum())


def sampled_means(features: Floats, count: int, max_iterations: int = 300) -> Floats:
    """Return at most `count` distinct k-means centres of a sample of features, in float64."""
    draw = np.random.default_rng(0)
    drawn = draw.choice(len(features), min(_MAX_DRAWN, len(features)), replace=False)
    sample = features[drawn].astype(np.float64)
    distinct = np.unique(sample, axis=0)
    if len(distinct) <= count:
        return distinct
    return k_means(sample, count, max_iterations=max_iterations)


def global_means(features: Floats, most: int, share: float = 0.0) -> Floats:
    """Return 2 to `most` global k-means centres, float64, with a `share` of the variance or less.

    As minima of k-means are sensitive to perturbations, up to 8 means are recomputed with features
    perturbed by 10 %; the result whose partition agrees most with the others is returned.
    """
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to load

    sample = _spaced(features, _N_SEARCHED)
    signs = np.random.default_rng(0).choice((-1, 1), (_N_STRETCHED, sample.shape[1]))
    stretches = [np.ones(sample.shape[1]), *(1 + _STRETCH * signs if most <= _MOST_AGAIN else ())]
    trials = [_added_means(sample * factor, most, share) / factor for factor in stretches]
    nearest = [
        cdist(sample * factor, means * factor, "sqeuclidean").argmin(axis=1)
        for factor, means in zip(stretches, trials, strict=True)
    ]
    agreement = np.zeros(len(trials))
    for (i, x), (j, y) in itertools.combinations(enumerate(nearest), 2):
        counts = np.zeros((x.max() + 1, y.max() + 1))
        np.add.at(counts, (x, y), 1)
        agreement[[i, j]] += counts[linear_sum_assignment(counts, maximize=True)].sum()
    return k_means(_spaced(features, _MAX_SPACED), trials[agreement.argmax()])


def _added_means(sample: Float64s, most: int, share: float) -> Floats:
    """Return fast global k-means centres: https://doi.org/10.1016/S0031-3203(02)00060-2."""
    candidates = _spaced(sample, _N_CANDIDATES)
    apart = cdist(candidates, sample, "sqeuclidean")
    means = sample.mean(axis=0, keepdims=True)
    total = squares = cdist(means, sample, "sqeuclidean").min(axis=0)
    while len(means) < most and (len(means) < 2 or squares.mean() > share * total.mean()):
        gains = np.maximum(squares - apart, 0).sum(axis=1)
        if gains.max() <= _ROUNDING * total.sum():
            break
        means = k_means(sample, np.vstack([means, candidates[gains.argmax()]]))
        squares = cdist(means, sample, "sqeuclidean").min(axis=0)
    return np.asarray(means)


def _spaced(features: Floats, most: int) -> Float64s:
    """Return at most `most` evenly spaced rows."""
    count = min(most, len(features))
    return features[(2 * np.arange(count) + 1) * len(features) // (2 * count)].astype(np.float64)


def weighted_medoid(points: Floats, weights: Floats, *, exact: bool = True) -> tuple[int, float]:
    """Return the index of the point of least weighted sum of distances to all points, and that sum.

    If `exact`, the best of all points, without all n^2 distances, else of those nearest to the
    geometric median. The sum E is convex with Lipschitz constant W = sum of the weights, so every
    evaluated point b bounds it from below: E(r) >= E(b) + g_b (x_r - x_b), g_b a subgradient, and
    E(r) >= |E(b) - W |x_r - x_b|| (Newling and Fleuret, "A sub-quadratic exact medoid algorithm",
    AISTATS 2017, https://arxiv.org/abs/1605.06950). Near the geometric median m, where slopes are
    small, curvature excludes most points: with a = x_q - m /= 0, u its direction and h = x_r - m,

        |a - h| >= |a| - u'h + (|h|^2 - (u'h)^2) / (2 (|a| + |h|)),

    and a convex function that exceeds the least sum on a sphere around m exceeds it outside. A
    point with a lower sum than the approximate median replaces it. Points are evaluated in the
    order of their bounds, starting near m, until no bound is below the least sum.
    """
    x = torch.from_numpy(np.ascontiguousarray(points, dtype=np.float64))
    w = torch.from_numpy(np.ascontiguousarray(weights, dtype=np.float64))
    centre = _geometric_median(x, w)
    apart = distances(centre[None], x)[0]
    first = apart.topk(min(_N_FIRST, len(x)), largest=False).indices
    near = distances(x[first], x)
    sums = near @ w
    best, index = float(sums.min()), int(first[sums.argmin()])
    if not exact:
        return index, best
    if best < float(w @ apart):
        centre, apart = x[index], near[sums.argmin()]
    offsets = x - centre
    candidates = torch.arange(len(x))
    bounds = torch.zeros(len(x), dtype=x.dtype)
    if x.shape[1] <= _MAX_CURVED:
        candidates, bounds = _near_median(x, w, offsets, apart, best)
    bounds[torch.isin(candidates, first)] = np.inf
    candidates, bounds = candidates[bounds < np.inf], bounds[bounds < np.inf]
    while len(candidates):
        batch = candidates[bounds.topk(min(_BATCH, len(candidates)), largest=False).indices]
        from_batch = distances(x[batch], x)
        sums = from_batch @ w
        if float(sums.min()) < best:
            best, index = float(sums.min()), int(batch[sums.argmin()])
        if len(batch) == len(candidates):
            break
        tighter = _lower_bounds(from_batch, w, offsets, batch, candidates)
        bounds = torch.maximum(bounds, tighter)
        bounds[torch.isin(candidates, batch)] = np.inf
        is_open = bounds < best * (1 - 1e-12)
        candidates, bounds = candidates[is_open], bounds[is_open]
    return index, best


def _lower_bounds(
    from_batch: Tensor, w: Tensor, offsets: Tensor, batch: Tensor, candidates: Tensor
) -> Tensor:
    sums, farthest = from_batch @ w, float(offsets.square().sum(dim=1).max().sqrt())
    # |E(b) - W |x_r - x_b||
    cones = (sums[:, None] - float(w.sum()) * from_batch[:, candidates]).abs_().amax(dim=0)
    # E(b) + g_b (x_r - x_b), less the rounding error
    pull = w / from_batch
    pull[from_batch == 0] = 0
    steepness = pull.sum(dim=1, keepdim=True)
    slopes = steepness * offsets[batch] - pull @ offsets
    heights = sums[:, None] - (slopes * offsets[batch]).sum(dim=1, keepdim=True)
    heights -= _ROUNDING * farthest**2 * steepness
    planes = torch.addmm(heights, slopes, offsets[candidates].T)
    return torch.maximum(planes.amax(dim=0), cones)


def _near_median(
    x: Tensor, w: Tensor, offsets: Tensor, apart: Tensor, best: float
) -> tuple[Tensor, Tensor]:
    """Return the distinct points with a sum possibly below `best`, and bounds from curvature."""
    inside = torch.arange(len(x))
    directions = offsets / apart.clamp(min=1e-300)[:, None]
    slope, least, here = -(w @ directions), float(w @ apart), float(w[apart == 0].sum())
    farthest = float(apart.max())
    if not farthest:
        return inside[:0], apart[:0]
    reach = float(apart.topk(min(_N_FIRST, len(x)), largest=False).values[-1])
    reach = max(reach, 1e-9 * farthest)
    for _ in range(_MAX_DOUBLINGS):
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
    # the curvature bound holds up to `reach`
    bounds[apart[inside] > reach] = 0
    is_open = bounds < best * (1 - 1e-12)
    candidates, bounds = inside[is_open], bounds[is_open]
    _, chosen = np.unique(x[candidates].numpy(), axis=0, return_index=True)
    return candidates[chosen], bounds[chosen].clamp_(min=0)


def _geometric_median(x: Tensor, w: Tensor) -> Tensor:
    """Return the approximate geometric median, by Weiszfeld's and then Newton's iteration."""
    centre = w @ x / max(float(w.sum()), 1e-300)
    least = 1e-9 * max(float((x - centre).abs().max()), 1e-300)
    every = -(-len(x) // _MAX_SAMPLES)
    sample, weights = x[::every], w[::every]
    for _ in range(_WEISZFELD_STEPS):
        pull = weights / distances(centre[None], sample)[0].clamp_(min=least)
        centre = pull @ sample / max(float(pull.sum()), 1e-300)
    if x.shape[1] <= _MAX_CURVED:
        centre = _newton(sample, weights, centre, least)
        centre = _newton(x, w, centre, least)
    return centre


def _newton(x: Tensor, w: Tensor, centre: Tensor, least: float) -> Tensor:
    """Return a point of lower weighted sum by Newton's method with step halving."""
    lowest, step = np.inf, torch.zeros_like(centre)
    for _ in range(_NEWTON_STEPS):
        offsets = x - (centre + step)
        apart = distances((centre + step)[None], x)[0].clamp_(min=least)
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
