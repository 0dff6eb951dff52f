"""The Gaussian affinity of features: a low-rank sketch of it, or exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.affinity._basis import Basis, DenseBasis, JoinedBasis, SharedBasis
from napari_saf.affinity._operator import AffinityOperator, Product
from napari_saf.errors import InvalidInput
from napari_saf.geometry import equal_rows
from napari_saf.parameters import check_bounds, parameter
from napari_saf.tick import Tick, go_on

__all__ = ["GaussianAffinity"]

_CHUNK_BYTES = 2**25
_SKETCH_CHUNK_BYTES = 2**22
"""Stays in the caches of a processor; the rows of the exact kernel are too long for that."""
_EIGENVALUE_TOLERANCE = 1e-6
_SHARING_ROWS = 2**20
"""Nodes among which equal features are looked for: their fields stay in the caches."""
_SHARED = 0.75
"""With more groups than this share of the nodes, sharing rows is no faster."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GaussianAffinity:
    """K_ik = exp(-|f_i - f_k|^2 / sigma2) of the features of two nodes.

    Parameters
    ----------
    sigma2 : float
        Width of the kernel in squared feature units, > 0.
    landmarks : int, array of int or None
        How many nodes' columns of K to keep (drawn without replacement by the seed of the
        method), or which ones. None: the exact kernel, recomputed block by block at every
        evaluation, n^2 work and never n^2 memory.

    Notes
    -----
    The sketch is the Nystroem method, K ~ C B^+ C' with C the kept columns and B the block of
    the landmarks: https://papers.nips.cc/paper/1866. Eigenvalues of B below 1e-6 of the
    largest are dropped.
    """

    sigma2: float = parameter(
        0.1,
        label="Colour tolerance",
        help="How different two features may be and still be alike: larger joins more (sigma²).",
        minimum=1e-6,
        step=0.01,
        advanced=True,
    )
    landmarks: int | NDArray[np.int64] | None = parameter(
        100,
        label="Landmarks",
        help="How many sample pixels stand for all others; more is more exact and slower (ell).",
        minimum=2,
        maximum=2000,
        step=10,
        advanced=True,
        none="all",
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    def bind(
        self,
        features: torch.Tensor,
        rng: np.random.Generator,
        tick: Tick = go_on,
    ) -> AffinityOperator:
        """Return the operator for features (n_nodes, n_features) on their device.

        `rng` draws the landmarks; `tick` is called between blocks of work.

        Raises
        ------
        InvalidInput
            If given landmarks are no node indices.
        """
        scaled = (features - features.mean(dim=0)) / self.sigma2**0.5
        if self.landmarks is None:
            return _ExactGaussian(scaled)
        return LowRank(_sketch(scaled, self._draw(len(features), rng), tick), tick)

    def rank(self, n_nodes: int) -> int:
        """Return an upper bound of the number of columns of the sketch, 0 for the exact kernel."""
        if isinstance(self.landmarks, np.ndarray):
            return len(self.landmarks)
        return 0 if self.landmarks is None else min(n_nodes, self.landmarks)

    def _draw(self, n_nodes: int, rng: np.random.Generator) -> NDArray[np.int64]:
        if not isinstance(self.landmarks, np.ndarray):
            count = min(self.landmarks or 0, n_nodes)
            return np.sort(rng.choice(n_nodes, count, replace=False))
        chosen = self.landmarks
        whole = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
        if not whole or len(chosen) == 0 or chosen.min() < 0 or chosen.max() >= n_nodes:
            raise InvalidInput(f"landmarks: expected node indices from 0 to {n_nodes - 1}")
        return np.unique(chosen)


class LowRank:
    """K = basis basis', of low rank."""

    def __init__(self, basis: Basis, tick: Tick = go_on) -> None:
        self.basis = basis
        self._tick = tick

    def product(self, assignment: torch.Tensor) -> Product:
        """Return K W in factors."""
        return Product(self.basis, self.basis.overlap(assignment, self._tick))

    def quadratic(self, assignment: torch.Tensor, product: Product) -> torch.Tensor:
        """Return W'K W."""
        return product.coefficients.T @ product.coefficients


class _ExactGaussian:
    """The whole kernel, a block of rows at a time."""

    def __init__(self, scaled: torch.Tensor) -> None:
        self._scaled, self._right = scaled, _right(scaled)

    def product(self, assignment: torch.Tensor) -> Product:
        """Return K W in trivial factors."""
        result = torch.empty_like(assignment)
        for rows, block in _blocks(self._scaled, self._right):
            torch.matmul(block, assignment, out=result[rows])
        return Product(DenseBasis(result), torch.eye(assignment.shape[1], dtype=torch.float64))

    def quadratic(self, assignment: torch.Tensor, product: Product) -> torch.Tensor:
        """Return W'K W."""
        return product.basis.overlap(assignment, go_on).T


def _left(scaled: torch.Tensor) -> torch.Tensor:
    """Return L with (L R')_ik = -|x_i - x_k|^2; one product instead of a distance."""
    square = scaled.square().sum(dim=1, keepdim=True)
    return torch.cat([2 * scaled, -square, -torch.ones_like(square)], 1)


def _right(scaled: torch.Tensor) -> torch.Tensor:
    """Return R; see `_left`."""
    square = scaled.square().sum(dim=1, keepdim=True)
    return torch.cat([scaled, torch.ones_like(square), square], 1)


def _blocks(
    scaled: torch.Tensor, right: torch.Tensor, n_bytes: int = _CHUNK_BYTES
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield the kernel block by block of rows; a block is valid until the next."""
    step = max(1, n_bytes // (right.element_size() * len(right)))
    memory = scaled.new_empty((min(step, len(scaled)), len(right)))
    for start in range(0, len(scaled), step):
        rows = slice(start, min(start + step, len(scaled)))
        block = memory[: rows.stop - start]
        yield rows, torch.matmul(_left(scaled[rows]), right.T, out=block).exp_()


def _sketch(scaled: torch.Tensor, landmarks: NDArray[np.int64], tick: Tick) -> Basis:
    """Return Phi (n_nodes, rank) with Phi Phi' ~ K, exact on the landmarks up to the tolerance."""
    chosen = scaled[torch.from_numpy(landmarks).to(scaled.device)]
    right = _right(chosen)
    small = (_left(chosen).cpu().double() @ right.cpu().double().T).exp()
    values, vectors = torch.linalg.eigh((small + small.T) / 2)
    kept = values > _EIGENVALUE_TOLERANCE * values[-1]
    whiten = (vectors[:, kept] / values[kept].sqrt()).to(scaled.dtype).to(scaled.device)

    def rows_of(points: torch.Tensor) -> torch.Tensor:
        found = points.new_empty((len(points), whiten.shape[1]))
        for rows, block in _blocks(points, right, _SKETCH_CHUNK_BYTES):
            tick()
            torch.matmul(block, whiten, out=found[rows])
        return found

    if scaled.device.type != "cpu":
        return DenseBasis(rows_of(scaled))
    parts: list[Basis] = []
    for points in torch.split(scaled, _SHARING_ROWS):
        tick()
        nodes = equal_rows(points, at_most=int(_SHARED * len(points)))
        if nodes is None:
            parts.append(DenseBasis(rows_of(points)))
        else:
            parts.append(SharedBasis(rows_of(points[nodes.first]), nodes))
    return parts[0] if len(parts) == 1 else JoinedBasis(parts)
