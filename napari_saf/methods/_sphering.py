"""Features stretched so that classes are as wide along every axis."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput

__all__ = ["given_sphering", "sphered_by_seeds"]


def given_sphering(scatter: ArrayLike, n_features: int, max_scale: float) -> NDArray[np.float64]:
    """Return R S R', S = min(eigenvalue^(-1/2), max_scale), of a scatter matrix.

    Raises
    ------
    InvalidInput
        If it is not a symmetric, positive semi-definite matrix of `n_features` rows.
    """
    matrix = np.asarray(scatter, dtype=np.float64)
    if matrix.shape != (n_features, n_features) or not np.isfinite(matrix).all():
        raise InvalidInput(
            f"within_scatter: expected finite numbers of shape ({n_features}, {n_features}), "
            f"got shape {matrix.shape}"
        )
    largest = np.abs(matrix).max()
    if np.abs(matrix - matrix.T).max() > 1e-6 * largest:
        raise InvalidInput("within_scatter: expected a symmetric matrix")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if values[0] < -1e-6 * largest:
        raise InvalidInput(
            f"within_scatter: expected eigenvalues >= 0, got {values[0]:.3g} among them"
        )
    with np.errstate(divide="ignore"):
        scales = np.minimum(values.clip(min=0) ** -0.5, max_scale)
    return np.asarray((vectors * scales) @ vectors.T)


def sphered_by_seeds(
    points: torch.Tensor, class_indicators: torch.Tensor, max_scale: float, *, n_features: int
) -> torch.Tensor:
    """Return R S R' x, with the scatter of the seeds, shrunk and brought to scale.

    Parameters
    ----------
    points : Tensor of shape (n_tasks, n_nodes, n_features)
        Features.
    class_indicators : Tensor of shape (n_tasks, n_nodes, n_classes)
        1 where a node is a seed of a class.
    max_scale : float
        The largest entry of S.
    n_features : int
        Of how many axes the identity is; the points may lie in a space of fewer.

    Notes
    -----
    Eigenvalues count as shares of their mean, each weighted by itself: axes along which
    classes are widest keep their scale.
    """
    residuals, freedom = _residuals(points, class_indicators)
    values, axes = _principal_axes(residuals.cpu().double())
    mean = values.sum(dim=1) / n_features
    is_known = (freedom > 0) & (mean > 0)
    if not is_known.any():
        return points
    shares = values / torch.where(is_known, mean, 1)[:, None]
    shrinkage = torch.where(is_known, _shrinkage(shares, freedom, n_features), 1)
    own = (1 - shrinkage)[:, None] * shares + shrinkage[:, None]
    squares = own.square().sum(dim=1) + (n_features - values.shape[1]) * shrinkage.square()
    unit = squares / n_features
    own = (unit[:, None] / own).sqrt().clamp(max=max_scale)
    others = (unit / shrinkage).sqrt().clamp(max=max_scale)[:, None]
    along = points @ axes.to(points)
    stretched = (along * (own - others).to(points)[:, None]) @ axes.to(points).mT
    return stretched + points * others.to(points)[:, None]


def _residuals(
    points: torch.Tensor, class_indicators: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the seeds less the mean of their class, rows of 0 after them, and their freedom.

    That is how many more there are than classes, of shape (n_tasks,), in float64.
    """
    is_seed = class_indicators.sum(dim=2)
    counts = is_seed.sum(dim=1).cpu().double()
    order = is_seed.argsort(dim=1, descending=True, stable=True)[:, : int(counts.max())]
    own = class_indicators.gather(1, order[..., None].expand(-1, -1, class_indicators.shape[2]))
    seeds = points.gather(1, order[..., None].expand(-1, -1, points.shape[2]))
    means = (own.mT @ seeds) / own.sum(dim=1)[..., None]
    residuals = (seeds - own @ means) * own.sum(dim=2, keepdim=True)
    return residuals, counts - class_indicators.shape[2]


def _principal_axes(residuals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eigenvalues and eigenvectors, in columns, of E'E; all that are not 0."""
    if residuals.shape[1] >= residuals.shape[2]:
        values, axes = torch.linalg.eigh(residuals.mT @ residuals)
        return values.clamp(min=0), axes
    values, vectors = torch.linalg.eigh(residuals @ residuals.mT)
    values = torch.where(values > 1e-9 * values[:, -1:], values, 0)
    factors = torch.where(values > 0, values.clamp(min=1e-300).rsqrt(), 0)
    return values, residuals.mT @ (vectors * factors[:, None])


def _shrinkage(shares: torch.Tensor, freedom: torch.Tensor, n_features: int) -> torch.Tensor:
    """Return how much of the identity the estimate holds, for eigenvalues of mean 1.

    The oracle approximation takes too little where the spread lies in a few of many axes.
    """
    squares, p = shares.square().sum(dim=1), float(n_features)
    above = (1 - 2 / p) * squares + p * p
    below = (freedom + 1 - 2 / p) * (squares - p)
    oracle = torch.where(below > above, above / below.clamp(min=1e-300), 1)
    return torch.maximum(oracle, p / (p + freedom)).clamp(0, 1)
