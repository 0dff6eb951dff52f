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
from napari_saf.geometry import EqualRows, equal_rows
from napari_saf.parameters import check_bounds, parameter
from napari_saf.tick import Tick, go_on

__all__ = ["GaussianAffinity"]

_CHUNK_BYTES = 2**25
_SKETCH_CHUNK_BYTES = 2**22
"""Stays in the caches of a processor; the rows of the exact kernel are too long for that."""
_EIGENVALUE_TOLERANCE = 1e-6
_SHARING_ROWS = 2**20
"""Nodes among which equal features are looked for: among more, sums over them read from far."""
_SAMPLE_ROWS = 2**16
_MOST_SAMPLED_LANDMARKS = 256
_MOST_GROUPS = 0.5
_LEAST_SAVED = 20
"""Share of the nodes, and numbers a node: rows are shared where there are few groups and it saves
much. With 16 labels and rank 67 the products took 0.4 of the time where a tenth of the nodes are
groups, 0.6 with a third on a photograph; with rank 10, as of grey images, often longer."""


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
        help="How different two features may be and still be alike: larger joins more "
        "(sigma squared).",
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
        drawn = torch.from_numpy(self._draw(len(features), rng)).to(scaled.device)
        return LowRank(_Sketch(scaled[drawn]).basis(scaled, tick), tick)

    def sketch_width(
        self, features: NDArray[np.floating], device: torch.device, dtype: torch.dtype
    ) -> tuple[float, float]:
        """Return how many numbers a node takes in the sketch, by a sample of nodes, and at most."""
        if self.landmarks is None:
            return 0, 0
        step = max(1, len(features) // _SAMPLE_ROWS)
        sample = torch.from_numpy(np.ascontiguousarray(features[::step])).to(dtype)
        given = isinstance(self.landmarks, np.ndarray)
        drawn = self._draw(len(features if given else sample), np.random.default_rng(0))
        rank = len(drawn)
        most = rank
        if rank <= _MOST_SAMPLED_LANDMARKS:
            chosen = torch.from_numpy(features[drawn]).to(dtype) if given else sample[drawn]
            # Between nodes lie the features of an image that is reduced.
            share = torch.linspace(0, 1, rank, dtype=dtype)[:, None]
            rank, mixed = (self._rank(x) for x in (chosen, chosen.lerp(chosen.roll(1, 0), share)))
            most = max(rank, mixed) + 2
        nodes = _shared_rows(sample.to(device), rank)
        return rank if nodes is None else rank * nodes.n_groups / len(sample) + 2, most

    def _rank(self, chosen: torch.Tensor) -> int:
        return _Sketch((chosen - chosen.mean(dim=0)) / self.sigma2**0.5).rank

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


class _Sketch:
    """The rows of Phi, with Phi Phi' ~ K exact on the landmarks up to the tolerance.

    Parameters
    ----------
    chosen : Tensor of shape (n_landmarks, n_features)
        Features of the landmarks, scaled.
    """

    def __init__(self, chosen: torch.Tensor) -> None:
        self._right = _right(chosen)
        small = (_left(chosen).cpu().double() @ self._right.cpu().double().T).exp()
        values, vectors = torch.linalg.eigh((small + small.T) / 2)
        kept = values > _EIGENVALUE_TOLERANCE * values[-1]
        whiten = vectors[:, kept] / values[kept].sqrt()
        self._whiten = whiten.to(chosen.dtype).to(chosen.device)

    @property
    def rank(self) -> int:
        """Number of columns of Phi."""
        return len(self._whiten.T)

    def basis(self, scaled: torch.Tensor, tick: Tick) -> Basis:
        """Return Phi for nodes with these features, scaled."""
        if scaled.device.type != "cpu":  # one piece, as all that is computed there
            return DenseBasis(self._rows(scaled, tick))
        parts = [self._part(some, tick) for some in torch.split(scaled, _SHARING_ROWS)]
        return parts[0] if len(parts) == 1 else JoinedBasis(parts)

    def _part(self, scaled: torch.Tensor, tick: Tick) -> Basis:
        tick()
        nodes = _shared_rows(scaled, self.rank)
        if nodes is None:
            return DenseBasis(self._rows(scaled, tick))
        return SharedBasis(self._rows(scaled[nodes.first], tick), nodes)

    def _rows(self, scaled: torch.Tensor, tick: Tick) -> torch.Tensor:
        found = scaled.new_empty((len(scaled), self.rank))
        for rows, block in _blocks(scaled, self._right, _SKETCH_CHUNK_BYTES):
            tick()
            torch.matmul(block, self._whiten, out=found[rows])
        return found


def _shared_rows(features: torch.Tensor, rank: int) -> EqualRows | None:
    """Return the groups of equal features, if sharing rows of so many numbers saves time.

    Sums over groups are fast in float32 in main memory.
    """
    most = min(_MOST_GROUPS, 1 - _LEAST_SAVED / max(rank, 1))
    if most <= 0 or features.device.type != "cpu" or features.dtype != torch.float32:
        return None
    return equal_rows(features, at_most=int(most * len(features)))
