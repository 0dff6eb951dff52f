"""The leading eigenvectors of an affinity."""

from __future__ import annotations

import numpy as np
import torch

from napari_saf.affinity._operator import AffinityOperator
from napari_saf.geometry import cross_product, new_field, row_blocks
from napari_saf.tick import Tick, go_on

__all__ = ["leading_vectors"]

_EXTRA = 8
_MOST_ITERATIONS = 30
_TOLERANCE = 1e-3
"""Of the sum of the eigenvalues, how much it may still grow from one iteration to the next."""
_LEAST_DEGREE = 1e-6
"""Of the largest: a sketch may give a node that is like no other a sum below 0."""


def leading_vectors(
    operator: AffinityOperator,
    like: torch.Tensor,
    n_vectors: int,
    rng: np.random.Generator,
    tick: Tick = go_on,
) -> torch.Tensor:
    """Return eigenvectors of D^(-1/2) K D^(-1/2) to its largest eigenvalues, D the sums of rows.

    Parameters
    ----------
    operator : AffinityOperator
        K.
    like : Tensor of shape (n_nodes, ...)
        Gives number of nodes, device and type.
    n_vectors : int
        How many are wanted; there are fewer where K has a lower rank.
    rng : Generator
        Draws the start of the iteration.
    tick : callable
        Called between blocks of work.

    Returns
    -------
    Tensor of shape (n_nodes, n_found)
        Orthonormal columns, largest eigenvalue first.

    Notes
    -----
    Subspace iteration with a few columns more than wanted (Halko, Martinsson and Tropp,
    https://doi.org/10.1137/090771806, algorithm 4.4), which needs nothing of K but products.
    It finds eigenvalues of the largest magnitude; those of a Gaussian affinity are positive.
    """
    n_nodes = len(like)
    kernel = _Normalised(operator, like, tick)
    vectors = new_field(like, min(n_vectors + _EXTRA, n_nodes), tick)
    # Three times as fast as NumPy, and drawn on the CPU the same for every device.
    source = torch.Generator().manual_seed(int(rng.integers(2**63)))
    for rows in row_blocks(vectors):
        tick()
        vectors[rows] = torch.randn(vectors[rows].shape, generator=source).to(vectors)
    vectors = _orthonormal(vectors, tick)
    total = 0.0
    for left in reversed(range(_MOST_ITERATIONS)):
        images = kernel.times(vectors, tick)
        within = cross_product(vectors, images, tick)
        before, total = total, float(within.trace())
        if left == 0 or abs(total - before) <= _TOLERANCE * abs(total):
            break
        vectors = _orthonormal(images, tick)
    values, turns = torch.linalg.eigh((within + within.T) / 2)
    largest = values.argsort(descending=True)[:n_vectors]
    return torch.mm(vectors, turns[:, largest].to(vectors.dtype).to(vectors.device))


class _Normalised:
    """D^(-1/2) K D^(-1/2)."""

    def __init__(self, operator: AffinityOperator, like: torch.Tensor, tick: Tick) -> None:
        self._operator = operator
        self._scale = like.new_ones(len(like), 1)
        degrees = self.times(self._scale, tick)
        least = _LEAST_DEGREE * float(degrees.abs().amax())
        self._scale = degrees.clamp_(min=least or 1.0).rsqrt_()

    def times(self, vectors: torch.Tensor, tick: Tick) -> torch.Tensor:
        """Return the product with a field."""
        product = self._operator.product(vectors * self._scale)
        images, zeros = torch.empty_like(vectors), torch.zeros_like(vectors[:1]).expand_as(vectors)
        factor = product.coefficients.to(vectors.dtype).to(vectors.device)
        for rows, block in product.basis.plus(zeros, factor, images):
            tick()
            block.mul_(self._scale[rows])
        return images


def _orthonormal(vectors: torch.Tensor, tick: Tick) -> torch.Tensor:
    """Return an orthonormal basis of the columns, of those that are more than rounding."""
    squares, turns = torch.linalg.eigh(cross_product(vectors, vectors, tick))
    kept = squares >= 10 * torch.finfo(vectors.dtype).eps * squares[-1]
    whiten = turns[:, kept] / squares[kept].clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
    return torch.mm(vectors, whiten.to(vectors.dtype).to(vectors.device))
