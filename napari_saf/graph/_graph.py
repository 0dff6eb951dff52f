"""Graph interface, sparse products, and affinity graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from napari_saf.arrays import Array, Floats, Int64s, Integers, as_array, own_floats
from napari_saf.device import Tensor, torch
from napari_saf.errors import InvalidInput
from napari_saf.graph._distances import nearest_neighbours


class Averager(Protocol):
    """Linear operator of a graph on one device, for one dtype."""

    def __call__(self, values: Tensor, out: Tensor, scratch: Tensor) -> None:
        """Write the averages (sums) of `values` into `out`; `scratch` is overwritten.

        All three have shape (n_nodes, n_columns) and are contiguous; `out` and `values` may
        not be the same tensor.
        """


class AbstractGraph(ABC):
    """Base class of weighted graphs, whose nodes have features and labels."""

    @cached_property
    def cached_results(self) -> dict[str, tuple[Floats, Any]]:
        """Features and results computed from them on the graph, see `Problem.remember`."""
        return {}

    @property
    @abstractmethod
    def n_nodes(self) -> int:
        """Number of nodes."""

    def smaller(self, share: float) -> str:
        """Return advice for messages on how to have at most a `share` of the nodes."""
        return "fewer nodes"

    @abstractmethod
    def averager(self, device: torch.device, dtype: torch.dtype) -> Averager:
        """Return the averaging operator for a device; its rows of weights sum to 1."""

    @abstractmethod
    def neighbour_sum(self, device: torch.device, dtype: torch.dtype) -> Averager:
        """Return the product with (W + W') / 2 without self weights, the W of s'W s."""

    @abstractmethod
    def steps(self) -> sparse.csr_array:
        """Return step lengths between adjacent nodes, each once, as shares of the longest side."""

    @abstractmethod
    def laplacian_product(self, values: Floats) -> Floats:
        """Return the product of the weights, without self weights, with node values.

        Values have shape (n_nodes, n_columns). Grid weights are 1 in the window, or explicit
        weights, normalised per row including the self weight.
        """

    def to_image(self, values: Array, fill: float = 0) -> Array | list[Array]:
        """Return node values in the shape of the image(s), `fill` outside the mask."""
        return values

    def average(self, values: Floats) -> Floats:
        """Return the weighted means of node values (n_nodes, n_columns) over neighbourhoods."""
        return self._apply(self.averager, values)

    def _apply(
        self, make_operator: Callable[[torch.device, torch.dtype], Averager], values: Floats
    ) -> Floats:
        array = own_floats(values, "values")
        if array.ndim != 2 or array.shape[0] != self.n_nodes:
            raise InvalidInput(
                f"values: expected shape ({self.n_nodes}, n_columns), got {array.shape}"
            )
        field = torch.from_numpy(array)
        out, scratch = torch.empty_like(field), torch.empty_like(field)
        make_operator(field.device, field.dtype)(field, out, scratch)
        return out.numpy()

    def _check_nodes(self, nodes: ArrayLike) -> Int64s:
        array = as_array(nodes, "nodes")
        is_whole = array.dtype.kind in "iu" or not array.size
        if not is_whole or (array.size and not 0 <= array.min() <= array.max() < self.n_nodes):
            raise InvalidInput(f"nodes: expected whole numbers from 0 to {self.n_nodes - 1}")
        return array.astype(np.int64)


class SparseProduct:
    """Product of a sparse matrix (n_nodes, n_nodes) with node values, deterministic on a GPU.

    Uses embedding_bag: 0.4 times the time of CSR for 1.5 million random entries and 16 columns.
    """

    def __init__(self, matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        self._ends, self._columns = (
            torch.from_numpy(numbers.astype(np.int32)).to(device)
            for numbers in (matrix.indptr, matrix.indices)
        )
        self._weights = torch.from_numpy(matrix.data).to(dtype).to(device)

    def __call__(self, values: Tensor, out: Tensor, scratch: Tensor) -> None:
        product = torch.nn.functional.embedding_bag(
            self._columns,
            values,
            self._ends,
            mode="sum",
            per_sample_weights=self._weights,
            include_last_offset=True,
        )
        out.copy_(product)

    def among(self, nodes: Integers) -> SparseProduct:
        weights, n_nodes = self._weights, len(self._ends) - 1
        arrays = (x.cpu().numpy() for x in (weights, self._columns, self._ends))
        matrix = sparse.csr_array(tuple(arrays), shape=(n_nodes, n_nodes))
        return SparseProduct(
            sparse.csr_array(matrix[nodes][:, nodes]), weights.device, weights.dtype
        )


def square_matrix(matrix: ArrayLike | sparse.spmatrix | sparse.sparray) -> sparse.csr_array:
    """Return a dense or sparse matrix in float64; it must be square, finite and real."""
    array: Any = matrix if sparse.issparse(matrix) else as_array(matrix, "matrix")
    if array.dtype.kind not in "biuf" or array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise InvalidInput(
            f"matrix: expected a square matrix of numbers, got {array.dtype} of shape {array.shape}"
        )
    weights = sparse.csr_array(array.astype(np.float64))
    if not np.isfinite(weights.data).all():
        raise InvalidInput("matrix: expected finite numbers")
    return weights


def check_symmetric(matrix: sparse.csr_array) -> None:
    largest = float(np.abs(matrix - matrix.T).max()) if matrix.nnz else 0.0
    if largest > 1e-8 * float(np.abs(matrix.data).max(initial=0)):
        raise InvalidInput(
            f"matrix: expected a symmetric matrix, but entries differ by up to {largest:g}; "
            "symmetrise it, for example with (A + A.T) / 2"
        )


def symmetric_part(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return (A + A') / 2 without the diagonal."""
    return without_diagonal(sparse.csr_array((matrix + matrix.T) / 2))


def without_diagonal(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return a copy without the diagonal and explicit zeros."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    edges = (matrix.indices != rows) & (matrix.data != 0)
    ends = np.concatenate([[0], np.cumsum(edges)])[matrix.indptr]
    return sparse.csr_array((matrix.data[edges], matrix.indices[edges], ends), shape=matrix.shape)


class AffinityGraph(AbstractGraph):
    """Graph of a symmetric affinity matrix.

    Parameters
    ----------
    matrix : array or sparse matrix of shape (n_nodes, n_nodes)
        Weights, >= 0 and symmetric. The diagonal is ignored.
    self_weight : {"degree"} or float
        Weight of a node in its own average: its degree (the sum of its weights), or a
        number >= 0. A node without neighbours averages over itself.
    symmetric : bool
        Whether to require a symmetric matrix.

    Raises
    ------
    InvalidInput
        If the matrix is not square, has a negative or infinite weight, or is not symmetric,
        or if `self_weight` is negative.

    Notes
    -----
    The self weight by the degree is eq. (6.15) of Zisler, Zern, Petra and Schnörr,
    "Self-assignment flows for unsupervised data labeling on graphs",
    https://doi.org/10.1137/19M1298639.

    Examples
    --------
    >>> graph = saf.AffinityGraph([[0, 1, 0], [1, 0, 1], [0, 1, 0]])  # a chain of three nodes
    >>> graph.laplacian_product(np.array([[1.0], [0.0], [2.0]])).tolist()
    [[0.0], [3.0], [0.0]]
    >>> features = np.random.default_rng(0).random((50, 2))
    >>> saf.AffinityGraph.k_nearest(features, 4).n_nodes
    50
    """

    def __init__(
        self,
        matrix: ArrayLike | sparse.spmatrix | sparse.sparray,
        *,
        self_weight: Literal["degree"] | float = "degree",
        symmetric: bool = True,
    ) -> None:
        weights = square_matrix(matrix)
        if (weights.data < 0).any():
            raise InvalidInput("matrix: expected finite weights that are not negative")
        if symmetric:
            check_symmetric(weights)
        is_number = isinstance(self_weight, (int, float, np.integer, np.floating))
        if not (0 <= float(self_weight) < np.inf if is_number else self_weight == "degree"):
            raise InvalidInput(
                f"self_weight: expected 'degree' or a number >= 0, got {self_weight!r}"
            )
        self.weights = without_diagonal(weights)
        self._is_symmetric, self._self_weight = symmetric, self_weight

    @classmethod
    def k_nearest(cls, features: ArrayLike, k: int, *, symmetrise: bool = False) -> AffinityGraph:
        """Return the k-nearest-neighbour graph in feature space.

        Parameters
        ----------
        features : array of shape (n_nodes, n_features)
            Points in feature space.
        k : int
            Number of neighbours, without the node itself.
        symmetrise : bool
            Whether w_pq = max(w_pq, w_qp); otherwise w_pq = 1 only if q is among the k
            nearest of p.

        Raises
        ------
        InvalidInput
            If `k` is not in 1..n_nodes - 1.
        """
        matrix = nearest_neighbours(features, k).indicator()
        if symmetrise:
            matrix = matrix.maximum(matrix.T)
        return cls(matrix, symmetric=symmetrise)

    @property
    def n_nodes(self) -> int:
        return int(self.weights.shape[0])

    def in_order(self, nodes: Integers) -> AffinityGraph:
        """Return the graph with its nodes permuted."""
        weights = self.weights[nodes][:, nodes]
        graph = AffinityGraph(weights, self_weight=self._self_weight, symmetric=False)
        graph._is_symmetric = self._is_symmetric  # skips the check
        return graph

    def local_order(self) -> Int64s:
        """Return the reverse Cuthill-McKee order of the nodes, (n_nodes,).

        https://doi.org/10.1145/800195.805928. With a million nodes and 5 neighbours, a product with
        8 columns takes 12 ms in this order, 74 ms in random order.
        """
        return np.ascontiguousarray(reverse_cuthill_mckee(self.weights), dtype=np.int64)

    def averager(self, device: torch.device, dtype: torch.dtype) -> Averager:
        # In units of the row's largest weight, sums neither overflow nor underflow.
        self_weight = None if self._self_weight == "degree" else float(self._self_weight)
        largest = self.weights.max(axis=1).toarray().ravel()
        largest = np.maximum(largest, self_weight or 0.0)
        largest[largest == 0] = 1.0
        weights = self.weights.copy()
        weights.data /= np.repeat(largest, np.diff(weights.indptr))
        degree = np.asarray(weights.sum(axis=1)).ravel()
        loops = degree if self_weight is None else self_weight / largest
        loops = np.where(degree + loops > 0, loops, 1.0)
        mean = sparse.diags_array(1 / (degree + loops)) @ (weights + sparse.diags_array(loops))
        return SparseProduct(sparse.csr_array(mean), device, dtype)

    def neighbour_sum(self, device: torch.device, dtype: torch.dtype) -> Averager:
        return SparseProduct(self._symmetric_part, device, dtype)

    @cached_property
    def _symmetric_part(self) -> sparse.csr_array:
        return self.weights if self._is_symmetric else symmetric_part(self.weights)

    def steps(self) -> sparse.csr_array:
        upper = sparse.triu(self.weights + self.weights.T, k=1, format="csr")
        return sparse.csr_array(
            (np.zeros(upper.nnz), upper.indices, upper.indptr), shape=upper.shape
        )

    def laplacian_product(self, values: Floats) -> Floats:
        return self._apply(partial(SparseProduct, self.weights), values)
