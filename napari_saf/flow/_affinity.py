"""Affinities: how alike any two nodes are, and the product of that matrix with an assignment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from napari_saf.errors import InvalidInput
from napari_saf.flow._basis import Basis, EqualRows, equal_rows
from napari_saf.flow._simplex import cross_product
from napari_saf.graph import asymmetry, square_matrix
from napari_saf.parameters import check_bounds, parameter

_CHUNK_BYTES = 2**25
_SKETCH_CHUNK_BYTES = 2**22
"""Stays in the caches of a processor; the rows of the exact kernel are too long for that."""
_EIGENVALUE_TOLERANCE = 1e-6
_SHARING_ROWS = 2**20
"""Nodes among which equal features are looked for: with more, sums over a group miss the caches."""
_SAMPLE_ROWS = 2**16
_MOST_SAMPLED_LANDMARKS = 256
_MOST_GROUPS = 0.5
_LEAST_SAVED = 20
"""Share of the nodes, and numbers a node: rows are shared where there are few groups and it saves
much. With 16 labels and rank 67 the products took 0.4 of the time where a tenth of the nodes are
groups, 0.6 with a third on a photograph; with rank 10, as of grey images, often longer."""


class Product(NamedTuple):
    """K W in factors, K W = basis @ coefficients, and W'K W.

    Attributes
    ----------
    basis : Basis of shape (n_nodes, rank)
        On the device, in the type of the fields.
    coefficients : Tensor of shape (rank, n_labels)
        float64, on the CPU.
    quadratic : Tensor of shape (n_labels, n_labels)
        W'K W, float64, on the CPU.
    """

    basis: Basis
    coefficients: torch.Tensor
    quadratic: torch.Tensor


class AffinityOperator(Protocol):
    """An affinity matrix K that is bound to nodes, device and type."""

    def product(self, assignment: torch.Tensor) -> Product:
        """Return K W for W of shape (n_nodes, n_labels)."""


class LowRank:
    """K = Phi Phi', Phi a basis of low rank."""

    def __init__(self, basis: Basis) -> None:
        self.basis = basis

    def product(self, assignment: torch.Tensor) -> Product:
        """Return K W = Phi (Phi'W)."""
        coefficients = self.basis.overlap(assignment)
        return Product(self.basis, coefficients, coefficients.T @ coefficients)


class _FullRank:
    """K by a function that multiplies it with fields."""

    def __init__(self, multiply: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._multiply = multiply

    def product(self, assignment: torch.Tensor) -> Product:
        """Return K W in trivial factors."""
        whole = self._multiply(assignment)
        identity = torch.eye(assignment.shape[1], dtype=torch.float64)
        return Product(Basis([(whole, None)]), identity, cross_product(assignment, whole))


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

    def bind(self, features: torch.Tensor, rng: np.random.Generator) -> AffinityOperator:
        """Return the operator for features (n_nodes, n_features) on their device.

        `rng` draws the landmarks.

        Raises
        ------
        InvalidInput
            If given landmarks are no node indices.
        """
        scaled = (features - features.mean(dim=0)) / self.sigma2**0.5
        if self.landmarks is None:
            right = _right(scaled)
            return _FullRank(lambda field: _kernel_product(scaled, right, field))
        drawn = torch.from_numpy(self._draw(len(features), rng)).to(scaled.device)
        return LowRank(_Sketch(scaled[drawn]).basis(scaled))

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
        groups = _shared_rows(sample.to(device), rank)
        return rank if groups is None else rank * len(groups.starts) / len(sample) + 2, most

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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class KernelAffinity:
    """A given affinity matrix.

    Parameters
    ----------
    matrix : array or sparse matrix of shape (n_nodes, n_nodes)
        Symmetric and finite. It need not be positive semi-definite.

    Raises
    ------
    InvalidInput
        If the matrix is not square, not finite or not symmetric.
    """

    matrix: ArrayLike | sparse.sparray

    def __post_init__(self) -> None:
        entries = square_matrix(self.matrix)
        difference = asymmetry(entries)
        if difference > 1e-8 * np.abs(entries.data).max(initial=1.0):
            raise InvalidInput(
                f"matrix: expected a symmetric matrix, entries differ by up to {difference:g}"
            )

    def bind(self, features: torch.Tensor, rng: np.random.Generator) -> AffinityOperator:
        """Return the operator on the features' device.

        Raises
        ------
        InvalidInput
            If the matrix is of another number of nodes.
        """
        given: Any = self.matrix if sparse.issparse(self.matrix) else np.asarray(self.matrix)
        n_rows = given.shape[0]
        if n_rows != len(features):
            raise InvalidInput(f"matrix: expected {len(features)} nodes, got {n_rows}")
        if sparse.issparse(self.matrix):
            entries = sparse.coo_array(self.matrix)
            index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
            values = torch.from_numpy(entries.data.astype(np.float64))
            kernel = torch.sparse_coo_tensor(index, values, entries.shape, check_invariants=True)
        else:
            kernel = torch.from_numpy(np.array(self.matrix, dtype=np.float64))
        kernel = kernel.to(features.dtype).to(features.device)
        return _FullRank(lambda field: kernel @ field)

    def sketch_width(
        self, features: NDArray[np.floating], device: torch.device, dtype: torch.dtype
    ) -> tuple[float, float]:
        """Return 0: there is no sketch."""
        return 0, 0


class _Sketch:
    """The rows of Phi, with Phi Phi' ~ K exact on the landmarks up to the tolerance.

    Parameters
    ----------
    chosen : Tensor of shape (n_landmarks, n_features)
        Features of the landmarks, scaled.
    """

    def __init__(self, chosen: torch.Tensor) -> None:
        self._right = _right(chosen)
        # Phi = C U Lambda^(-1/2) of the eigenpairs (Lambda, U) of the landmarks' block, in float64.
        block = (_left(chosen).cpu().double() @ self._right.cpu().double().T).exp()
        values, vectors = torch.linalg.eigh((block + block.T) / 2)
        kept = values > _EIGENVALUE_TOLERANCE * values[-1]
        whitening = vectors[:, kept] / values[kept].sqrt()
        self._whitening = whitening.to(chosen.dtype).to(chosen.device)

    @property
    def rank(self) -> int:
        """Number of columns of Phi."""
        return len(self._whitening.T)

    def basis(self, scaled: torch.Tensor) -> Basis:
        """Return Phi for nodes with these features, scaled."""
        if scaled.device.type != "cpu":  # one piece, as all that is computed there
            return Basis([(self._rows(scaled), None)])
        return Basis([self._part(some) for some in torch.split(scaled, _SHARING_ROWS)])

    def _part(self, scaled: torch.Tensor) -> tuple[torch.Tensor, EqualRows | None]:
        groups = _shared_rows(scaled, self.rank)
        return self._rows(scaled if groups is None else scaled[groups.first]), groups

    def _rows(self, scaled: torch.Tensor) -> torch.Tensor:
        found = scaled.new_empty((len(scaled), self.rank))
        for rows, block in _kernel_blocks(scaled, self._right, _SKETCH_CHUNK_BYTES):
            torch.matmul(block, self._whitening, out=found[rows])
        return found


def _left(scaled: torch.Tensor) -> torch.Tensor:
    """Return L with (L R')_ik = -|x_i - x_k|^2; one product instead of a distance."""
    square = scaled.square().sum(dim=1, keepdim=True)
    return torch.cat([2 * scaled, -square, -torch.ones_like(square)], 1)


def _right(scaled: torch.Tensor) -> torch.Tensor:
    """Return R; see `_left`."""
    square = scaled.square().sum(dim=1, keepdim=True)
    return torch.cat([scaled, torch.ones_like(square), square], 1)


def _kernel_blocks(
    scaled: torch.Tensor, right: torch.Tensor, n_bytes: int
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield the kernel block by block of rows; a block is valid until the next."""
    step = max(1, n_bytes // (right.element_size() * len(right)))
    memory = scaled.new_empty((min(step, len(scaled)), len(right)))
    for start in range(0, len(scaled), step):
        rows = slice(start, min(start + step, len(scaled)))
        block = memory[: rows.stop - start]
        yield rows, torch.matmul(_left(scaled[rows]), right.T, out=block).exp_()


def _kernel_product(scaled: torch.Tensor, right: torch.Tensor, field: torch.Tensor) -> torch.Tensor:
    """Return the product of the whole kernel with a field."""
    result = torch.empty_like(field)
    for rows, block in _kernel_blocks(scaled, right, _CHUNK_BYTES):
        torch.matmul(block, field, out=result[rows])
    return result


def _shared_rows(features: torch.Tensor, rank: int) -> EqualRows | None:
    """Return the groups of equal features, if sharing rows of so many numbers saves time.

    Sums over groups are fast in float32 in main memory.
    """
    most = min(_MOST_GROUPS, 1 - _LEAST_SAVED / max(rank, 1))
    if most <= 0 or features.device.type != "cpu" or features.dtype != torch.float32:
        return None
    return equal_rows(features, at_most=int(most * len(features)))
