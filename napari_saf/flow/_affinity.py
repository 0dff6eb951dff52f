"""Affinity matrices of nodes, their products with assignments, and spectral embedding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from napari_saf.arrays import Floats, Int64s
from napari_saf.device import Tensor, raise_if_interrupted, torch
from napari_saf.errors import InvalidInput
from napari_saf.flow._simplex import cross_product, new_field, row_blocks
from napari_saf.graph import AbstractGraph, check_symmetric, square_matrix
from napari_saf.parameters import check_bounds, documented, parameter

_CHUNK_BYTES = 2**25
_SKETCH_CHUNK_BYTES = 2**22
"""Bytes per block, to fit the processor caches, which rows of the exact kernel exceed."""
_EIGENVALUE_TOLERANCE = 1e-6
_SHARING_ROWS = 2**20
"""Nodes per block in which equal features are grouped; larger blocks exceed the caches."""
_SAMPLE_ROWS = 2**16
_MOST_SAMPLED_LANDMARKS = 256
_MOST_GROUPS = 0.5
_LEAST_SAVED = 20
"""Rows are shared up to this ratio of groups to nodes, and from this many numbers saved per node.
With 16 labels and rank 67 products took 0.4 of the time at a ratio of a tenth, 0.6 at a third on a
photograph; with rank 10, as of grey images, often longer."""
_MORE_VECTORS = 8
_MOST_ITERATIONS = 30
_TRACE_TOLERANCE = 1e-3
_LEAST_DEGREE = 1e-6
"""Least degree relative to the largest: degrees of isolated nodes in a sketch may be negative."""
_LONGEST_GROUP = 128
"""Longest float32 sum of rows, for precision."""
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Product(NamedTuple):
    """Factors of K W = basis @ coefficients, and W'K W; float64 on the CPU but for the basis."""

    basis: Basis
    coefficients: Tensor
    quadratic: Tensor


class AffinityOperator(Protocol):
    """Affinity matrix K of nodes, on a device."""

    def product(self, assignment: Tensor) -> Product:
        """Return K W for W of shape (n_nodes, n_labels)."""


class Basis:
    """Affinity Phi Phi' in blocks of rows of Phi, one per group of equal features."""

    def __init__(self, blocks: Sequence[tuple[Tensor, EqualRows | None]]) -> None:
        self.blocks, end = [], 0
        for rows, groups in blocks:
            begin, end = end, end + len(rows if groups is None else groups.group)
            self.blocks.append((slice(begin, end), rows, groups))
        self.shape = (end, blocks[0][0].shape[1])

    def product(self, assignment: Tensor) -> Product:
        """Return K W = Phi (Phi'W)."""
        coefficients = torch.zeros(self.shape[1], assignment.shape[1], dtype=torch.float64)
        for nodes, rows, groups in self.blocks:
            w = assignment[nodes]
            if groups is None:
                coefficients += cross_product(rows, w)
                continue
            for block in row_blocks(rows):
                coefficients += cross_product(rows[block], groups.sums(w, block))
        return Product(self, coefficients, coefficients.T @ coefficients)

    def plus(self, values: Tensor, factor: Tensor, out: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Write values + Phi factor into `out`; yield each finished block of rows."""
        for nodes, rows, groups in self.blocks:
            source, target = values[nodes], out[nodes]
            product = None if groups is None else rows @ factor
            for part in row_blocks(rows if groups is None else source):
                block = target[part]
                if groups is None or product is None:
                    torch.addmm(source[part], rows[part], factor, out=block)
                else:
                    torch.index_select(product, 0, groups.group[part], out=block).add_(source[part])
                yield slice(nodes.start + part.start, nodes.start + part.stop), block

    def take_planes(self) -> tuple[Tensor, Tensor]:
        """Return Phi' (rank, n_nodes) in int16 and the unit of each row; release the blocks."""
        ends = [torch.stack(rows.aminmax(dim=0)) for _, rows, _ in self.blocks]
        unit = torch.cat(ends).abs().amax(dim=0) / (2**15 - 1)
        unit[unit == 0] = 1
        planes = new_field(torch.empty(self.shape[1], dtype=torch.int16), self.shape[0])
        while self.blocks:
            nodes, rows, groups = self.blocks.pop()
            for part in row_blocks(planes.T[nodes]):
                block = rows[part] if groups is None else rows[groups.group[part]]
                planes[:, nodes][:, part] = (block / unit).round_().to(planes.dtype).T.contiguous()
        return planes, unit


class _FullRank:
    """Affinity K defined by a function that multiplies fields by it."""

    def __init__(self, multiply: Callable[[Tensor], Tensor]) -> None:
        self._multiply = multiply

    def product(self, assignment: Tensor) -> Product:
        """Return K W in trivial factors."""
        product = self._multiply(assignment)
        identity = torch.eye(assignment.shape[1], dtype=torch.float64)
        return Product(Basis([(product, None)]), identity, cross_product(assignment, product))


@documented
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GaussianAffinity:
    """Gaussian affinity of features, K_ik = exp(-|f_i - f_k|^2 / sigma2).

    `landmarks` is the number of columns of K in the sketch (drawn without replacement with the seed
    of the method), or node indices. None: the exact kernel, recomputed by blocks at every
    evaluation, which takes n^2 time but not memory.

    Notes
    -----
    The sketch is the Nystroem method, K ~ C B^+ C' with C the kept columns and B the block of
    the landmarks: https://papers.nips.cc/paper/1866. Eigenvalues of B below 1e-6 of the
    largest are dropped.

    Examples
    --------
    >>> exact = saf.GaussianAffinity(sigma2=0.05, landmarks=None)
    >>> problem = saf.Problem.from_image(np.kron([[0.0, 1.0]], np.ones((8, 8))))
    >>> saf.SelfAssignmentFlow(max_labels=2, affinity=exact).run(problem).n_labels
    2
    """

    # fmt: off
    sigma2: float = parameter(
        0.1, label="Colour tolerance", bounds=(1e-6, None), step=0.01, advanced=True,
        help="Squared feature distance at which similarity decays: larger values join more pixels "
        "(sigma squared).")
    landmarks: int | NDArray[np.int64] | None = parameter(
        100, label="Landmarks", bounds=(2, 2000), step=10, advanced=True, none="all",
        help="Number of sample pixels for the approximation: more are more accurate and slower "
        "(ell).")
    # fmt: on

    def __post_init__(self) -> None:
        check_bounds(self)

    def bind(self, features: Tensor, rng: np.random.Generator) -> AffinityOperator:
        """Return the operator for features (n_nodes, n_features) on their device.

        `rng` draws the landmarks. Raises InvalidInput for landmarks that are not node indices.
        """
        scaled = (features - features.mean(dim=0)) / self.sigma2**0.5
        if self.landmarks is None:
            right = _right(scaled)
            return _FullRank(lambda field: _kernel_product(scaled, right, field, _CHUNK_BYTES))
        drawn = torch.from_numpy(self._draw(len(features), rng)).to(scaled.device)
        right, whitening = _right(scaled[drawn]), _whitening(scaled[drawn])
        blocks = []
        # a single block on a graphics card
        for part in scaled.split(_SHARING_ROWS if scaled.device.type == "cpu" else len(scaled)):
            raise_if_interrupted()
            groups = _shared_rows(part, whitening.shape[1])
            rows = part if groups is None else part[groups.order[groups.starts]]
            blocks.append((_kernel_product(rows, right, whitening, _SKETCH_CHUNK_BYTES), groups))
        return Basis(blocks)

    def sketch_width(
        self, features: Floats, device: torch.device, dtype: torch.dtype
    ) -> tuple[float, float]:
        """Return an estimate of the numbers per node in the sketch, and an upper bound."""
        if self.landmarks is None:
            return 0, 0
        step = max(1, len(features) // _SAMPLE_ROWS)
        sample = torch.from_numpy(np.ascontiguousarray(features[::step])).to(dtype)
        has_indices = isinstance(self.landmarks, np.ndarray)
        drawn = self._draw(len(features if has_indices else sample), np.random.default_rng(0))
        rank = len(drawn)
        most = rank
        if rank <= _MOST_SAMPLED_LANDMARKS:
            chosen = torch.from_numpy(features[drawn]).to(dtype) if has_indices else sample[drawn]
            # Features of a reduced image lie between those of the nodes.
            share = torch.linspace(0, 1, rank, dtype=dtype)[:, None]
            rank, mixed = (
                _whitening((points - points.mean(dim=0)) / self.sigma2**0.5).shape[1]
                for points in (chosen, chosen.lerp(chosen.roll(1, 0), share))
            )
            most = max(rank, mixed) + 2
        groups = _shared_rows(sample.to(device), rank)
        return rank if groups is None else rank * len(groups.starts) / len(sample) + 2, most

    def _draw(self, n_nodes: int, rng: np.random.Generator) -> Int64s:
        if not isinstance(self.landmarks, np.ndarray):
            count = min(self.landmarks or 0, n_nodes)
            return np.sort(rng.choice(n_nodes, count, replace=False))
        chosen = self.landmarks
        are_indices = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
        if not are_indices or len(chosen) == 0 or chosen.min() < 0 or chosen.max() >= n_nodes:
            raise InvalidInput(f"landmarks: expected node indices from 0 to {n_nodes - 1}")
        return np.unique(chosen)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class KernelAffinity:
    """Affinity given by a matrix.

    Parameters
    ----------
    matrix : array or sparse matrix of shape (n_nodes, n_nodes)
        Symmetric and finite. It need not be positive semi-definite.

    Raises
    ------
    InvalidInput
        If the matrix is not square, not finite or not symmetric.

    Examples
    --------
    >>> image = np.kron([[0.0, 1.0]], np.ones((8, 8)))
    >>> matrix = np.exp(-np.abs(np.subtract.outer(image.ravel(), image.ravel())))
    >>> flow = saf.SelfAssignmentFlow(max_labels=2, affinity=saf.KernelAffinity(matrix))
    >>> flow.run(saf.Problem.from_image(image)).n_labels
    2
    """

    matrix: ArrayLike | sparse.sparray

    def __post_init__(self) -> None:
        check_symmetric(square_matrix(self.matrix))

    def bind(self, features: Tensor, rng: np.random.Generator) -> AffinityOperator:
        """Return the operator on the features' device; InvalidInput if sizes differ."""
        matrix: Any = self.matrix if sparse.issparse(self.matrix) else np.asarray(self.matrix)
        if matrix.shape[0] != len(features):
            raise InvalidInput(f"matrix: expected {len(features)} nodes, got {matrix.shape[0]}")
        if sparse.issparse(self.matrix):
            entries = sparse.coo_array(self.matrix)
            index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
            values = torch.from_numpy(entries.data.astype(np.float64))
            kernel = torch.sparse_coo_tensor(index, values, entries.shape, check_invariants=True)
        else:
            kernel = torch.from_numpy(np.array(self.matrix, dtype=np.float64))
        kernel = kernel.to(features.dtype).to(features.device)
        return _FullRank(lambda field: kernel @ field)


def _whitening(landmarks: Tensor) -> Tensor:
    """Return U Lambda^(-1/2) of the landmarks' block of K: Phi = C U Lambda^(-1/2)."""
    block = (_left(landmarks).cpu().double() @ _right(landmarks).cpu().double().T).exp()
    values, vectors = torch.linalg.eigh((block + block.T) / 2)
    large = values > _EIGENVALUE_TOLERANCE * values[-1]
    whitening: Tensor = vectors[:, large] / values[large].sqrt()
    return whitening.to(landmarks.dtype).to(landmarks.device)


def _left(scaled: Tensor) -> Tensor:
    """Return L with (L R')_ik = -|x_i - x_k|^2, for R see `_right`."""
    square = scaled.square().sum(dim=1, keepdim=True)
    return torch.cat([2 * scaled, -square, -torch.ones_like(square)], 1)


def _right(scaled: Tensor) -> Tensor:
    square = scaled.square().sum(dim=1, keepdim=True)
    return torch.cat([scaled, torch.ones_like(square), square], 1)


def _kernel_product(scaled: Tensor, right: Tensor, factor: Tensor, n_bytes: int) -> Tensor:
    """Return the product of the kernel with a matrix, in blocks of `n_bytes`."""
    product = new_field(scaled, factor.shape[1])
    step = max(1, n_bytes // (right.element_size() * len(right)))
    memory = scaled.new_empty((min(step, len(scaled)), len(right)))
    for start in range(0, len(scaled), step):
        rows = scaled[start : start + step]
        block = torch.matmul(_left(rows), right.T, out=memory[: len(rows)]).exp_()
        torch.matmul(block, factor, out=product[start : start + step])
    return product


def _shared_rows(features: Tensor, rank: int) -> EqualRows | None:
    """Return the groups of equal features if sharing their rows saves time."""
    most = min(_MOST_GROUPS, 1 - _LEAST_SAVED / max(rank, 1))
    # Sums over groups are fast in float32 in main memory.
    if most <= 0 or features.device.type != "cpu" or features.dtype != torch.float32:
        return None
    return equal_rows(features, at_most=int(most * len(features)))


def spectral_points(
    operator: AffinityOperator,
    like: Tensor,
    n_vectors: int,
    graph: AbstractGraph,
    rng: np.random.Generator,
    cancelled: Callable[[], bool] = lambda: False,
) -> Tensor:
    """Return the spectral embedding of the nodes, averaged over the windows.

    Ng, Jordan and Weiss, "On spectral clustering", https://papers.nips.cc/paper/2092.
    """
    vectors = leading_vectors(operator, like, n_vectors, rng, cancelled)
    for rows in row_blocks(vectors):
        torch.nn.functional.normalize(vectors[rows], dim=1, out=vectors[rows])
    means = torch.empty_like(vectors)
    graph.averager(vectors.device, vectors.dtype)(vectors, means, torch.empty_like(vectors))
    return means


def leading_vectors(
    operator: AffinityOperator,
    like: Tensor,
    n_vectors: int,
    rng: np.random.Generator,
    cancelled: Callable[[], bool] = lambda: False,
) -> Tensor:
    """Return leading eigenvectors (n_nodes, n_vectors) of D^(-1/2) K D^(-1/2), D the row sums.

    Subspace iteration with a few extra columns: Halko, Martinsson and Tropp,
    https://doi.org/10.1137/090771806, algorithm 4.4. Fewer vectors if K has a lower rank;
    `cancelled` is polled.
    """
    degrees = _scaled_product(operator, like.new_ones(len(like), 1), like.new_ones(len(like), 1))
    least = _LEAST_DEGREE * float(degrees.abs().amax())
    scale = degrees.clamp_(min=least or 1.0).rsqrt_()
    # Three times faster than NumPy; drawn on the CPU for the same values on every device.
    source = torch.Generator().manual_seed(int(rng.integers(2**63)))
    vectors = like.new_empty((len(like), min(n_vectors + _MORE_VECTORS, len(like))))
    for rows in row_blocks(vectors):
        vectors[rows] = torch.randn(vectors[rows].shape, generator=source).to(vectors)
    vectors, total = _orthonormal(vectors), 0.0
    for n_left in reversed(range(_MOST_ITERATIONS)):
        images = _scaled_product(operator, vectors, scale)
        within = cross_product(vectors, images)
        previous, total = total, float(within.trace())
        if n_left == 0 or abs(total - previous) <= _TRACE_TOLERANCE * abs(total) or cancelled():
            break
        vectors = _orthonormal(images)
    values, turns = torch.linalg.eigh((within + within.T) / 2)
    largest = values.argsort(descending=True)[:n_vectors]
    return torch.mm(vectors, turns[:, largest].to(vectors.dtype).to(vectors.device))


def _scaled_product(operator: AffinityOperator, vectors: Tensor, scale: Tensor) -> Tensor:
    """Return diag(scale) K diag(scale) times a field."""
    product = operator.product(vectors * scale)
    images, zeros = torch.empty_like(vectors), torch.zeros_like(vectors[:1]).expand_as(vectors)
    factor = product.coefficients.to(vectors.dtype).to(vectors.device)
    for rows, block in product.basis.plus(zeros, factor, images):
        block.mul_(scale[rows])
    return images


def _orthonormal(vectors: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns, up to their numerical rank."""
    squares, turns = torch.linalg.eigh(cross_product(vectors, vectors))
    large = squares >= 10 * torch.finfo(vectors.dtype).eps * squares[-1]
    whitening = turns[:, large] / squares[large].clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
    return torch.mm(vectors, whitening.to(vectors.dtype).to(vectors.device))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EqualRows:
    """Groups of equal rows: indices in `order`, `starts` of groups in it, and `group` by row."""

    order: Tensor
    starts: Tensor
    group: Tensor

    def sums(self, values: Tensor, groups: slice) -> Tensor:
        """Return the sums of values (n_rows, n_columns) over consecutive groups."""
        starts, end = self.starts[groups], len(self.order)
        if groups.stop < len(self.starts):
            end = int(self.starts[groups.stop])
        begin = int(starts[0])
        order = self.order[begin:end]
        bags = torch.nn.functional.embedding_bag(order, values, starts - begin, mode="sum")
        return torch.as_tensor(bags)


def equal_rows(table: Tensor, at_most: int) -> EqualRows | None:
    """Return the groups of equal rows of a CPU table; None if more than `at_most`."""
    keys = _keys(table.numpy())
    keys_in_order, order = torch.sort(torch.from_numpy(keys), stable=True)
    if (keys_in_order[1:] != keys_in_order[:-1]).sum() >= at_most:
        return None
    sorted_rows = table[order]
    begins = torch.ones(len(table), dtype=torch.bool)
    begins[1:] = (sorted_rows[1:] != sorted_rows[:-1]).any(dim=1)
    first = begins.nonzero()[:, 0]
    within = torch.arange(len(table)) - first[begins.cumsum(0) - 1]
    begins |= within % _LONGEST_GROUP == 0
    starts = begins.nonzero()[:, 0]
    if len(starts) > at_most:
        return None
    group = torch.empty(len(table), dtype=torch.int32)
    group[order] = (begins.cumsum(0) - 1).int()
    return EqualRows(order.int(), starts.int(), group)


def _keys(rows: Floats) -> Int64s:
    """Return a hash of each row."""
    bits = rows.view(np.uint32 if rows.itemsize == 4 else np.uint64)
    keys = np.zeros(len(rows), dtype=np.uint64)
    for column in bits.T:
        keys ^= column
        keys *= _HASH_FACTOR
        keys ^= keys >> np.uint64(29)
    return (keys >> np.uint64(1)).view(np.int64)
