"""The self-assignment objective and its gradient, as work on c x c matrices."""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["PSEUDO_INVERSE_TOLERANCE", "Gradient", "self_assignment_gradient"]

PSEUDO_INVERSE_TOLERANCE = 1e-9
"""Eigenvalues of the label overlap below this share of the largest are left out.

It must stay near the rounding level of the products over all nodes: 1e-3 would leave the
flow at the barycentre, where all labels overlap, for ever.
"""


class Gradient(NamedTuple):
    """The objective and the factors of its gradient.

    ``dE/dW = (K W) affinity_factor + W assignment_factor``

    Attributes
    ----------
    objective : float
        E_s(W).
    affinity_factor, assignment_factor : Tensor of shape (n_labels, n_labels)
        float64.
    """

    objective: float
    affinity_factor: torch.Tensor
    assignment_factor: torch.Tensor


def self_assignment_gradient(
    masses: torch.Tensor, overlap: torch.Tensor, affinity: torch.Tensor, s: float
) -> Gradient:
    """Return E_s and its gradient from sums over the nodes.

    Parameters
    ----------
    masses : Tensor of shape (n_labels,)
        W'1, float64.
    overlap : Tensor of shape (n_labels, n_labels)
        W'W, float64.
    affinity : Tensor of shape (n_labels, n_labels)
        W'K W, float64.
    s : float
        0 to 1.

    Notes
    -----
    With C = diag(W'1), Y = W C^(-1/2), M = Y'Y and G = Y'K Y the objective is
    E_s = tr(M^(-s) G); s = 0 and s = 1 give eqs. (4.3a) and (4.3b) of Zisler, Zern, Petra and
    Schnörr, https://doi.org/10.1137/19M1298639. The derivative of M^(-s) goes through the
    divided differences of x^(-s) on the spectrum of M. As the rows of W sum to 1, the term
    1 v' is W (1 v'), so all of the gradient is two products with c x c matrices.
    """
    scale = masses.rsqrt()
    outer = scale[:, None] * scale
    g = outer * affinity
    if s == 0:
        power, direction = torch.eye(len(masses), dtype=g.dtype), torch.zeros_like(g)
    else:
        power, direction = _power_and_derivative(outer * overlap, g, s)
    # diag(W'Gamma) with Gamma = 2 K Y power + 2 Y direction.
    inner = 2 * affinity @ (scale[:, None] * power) + 2 * (overlap * scale) @ direction
    v = scale**3 * inner.diagonal() / 2
    return Gradient(float((power * g).sum()), 2 * outer * power, 2 * outer * direction - v[None, :])


def _power_and_derivative(
    m: torch.Tensor, g: torch.Tensor, s: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return M^(-s) and the gradient of tr(M^(-s) G) with respect to M."""
    values, vectors = torch.linalg.eigh((m + m.T) / 2)
    kept = values > PSEUDO_INVERSE_TOLERANCE * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    f, slope = values**-s, -s * values ** (-s - 1)
    gap = values[:, None] - values
    meet = gap.abs() < 1e-8 * values[-1]
    differences = torch.where(
        meet, (slope[:, None] + slope) / 2, (f[:, None] - f) / torch.where(meet, 1.0, gap)
    )
    direction = vectors @ (differences * (vectors.T @ g @ vectors)) @ vectors.T
    return (vectors * f) @ vectors.T, direction
