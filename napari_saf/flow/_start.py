"""Where a flow starts: greedy k-centre, the spectrum of the affinity, or a given assignment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import own_floats
from napari_saf.errors import InvalidInput
from napari_saf.flow._affinity import AffinityOperator
from napari_saf.flow._field import not_cancelled
from napari_saf.flow._simplex import cross_product, normalize_, row_blocks, to_logarithm
from napari_saf.graph import AbstractGraph
from napari_saf.points import distances

_MORE_VECTORS = 8
_MOST_ITERATIONS = 30
_TOLERANCE = 1e-3
"""Of the sum of the eigenvalues, how much it may still grow from one iteration to the next."""
_LEAST_DEGREE = 1e-6
"""Of the largest: a sketch may give a node that is like no other a sum below 0."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The start of a flow: first its labels, then all of it.

    Attributes
    ----------
    labels : Tensor of int of shape (n_nodes,)
        Which of the active columns each node prefers, or what to show of a node that prefers none.
    n_columns : int
    logarithm : callable
        Makes the log coordinates (n_nodes, n_active), rows with a maximum of 0, whose memory
        the caller may have.
    active : Tensor of int of shape (n_active,), optional
        The columns that a node can have, ascending; None: all.
    """

    labels: torch.Tensor
    n_columns: int
    logarithm: Callable[[], torch.Tensor]
    active: torch.Tensor | None = None

    @classmethod
    def at(cls, logarithm: torch.Tensor) -> Start:
        """Return the start at normalised log coordinates, whose memory it takes."""
        return cls(logarithm.argmax(dim=1), logarithm.shape[1], lambda: logarithm)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Centres:
    """Points in feature space and the nodes that are nearest to them.

    Attributes
    ----------
    points : Tensor of shape (n_centres, n_features)
    nearest : Tensor of int of shape (n_nodes,)
        The centre that each node is nearest to, the first of several.
    """

    points: torch.Tensor
    nearest: torch.Tensor

    def start(self, features: torch.Tensor, epsilon: float) -> Start:
        """Return the start at V = -epsilon D, D the distances of the nodes to the centres."""
        return Start(
            self.nearest,
            len(self.points),
            lambda: normalize_(self.distances(features).mul_(-epsilon)),
        )

    def distances(self, features: torch.Tensor) -> torch.Tensor:
        """Return the distances (n_nodes, n_centres) of the nodes to the centres."""
        table = features.new_empty((len(features), len(self.points)))
        for rows in row_blocks(table):
            table[rows] = distances(features[rows], self.points)
        return table


def k_centres(
    features: torch.Tensor,
    n_centres: int,
    rng: np.random.Generator,
    given: torch.Tensor | None = None,
) -> Centres:
    """Return centres chosen greedily: each the node farthest from all before.

    Parameters
    ----------
    features : Tensor of shape (n_nodes, n_features)
        Points in feature space.
    n_centres : int
        Number of centres wanted; there are fewer where there are fewer distinct features.
    rng : Generator
        Draws the first centre where none is given.
    given : Tensor of shape (n_given, n_features), optional
        Points that are centres already.

    Notes
    -----
    Gonzalez, https://doi.org/10.1016/0304-3975(85)90224-5: within a factor 2 of the smallest
    radius that covers all nodes.
    """
    if given is None:
        first = int(rng.integers(len(features)))
        given = features[first : first + 1]
    points = list(given)
    nearest = torch.zeros(len(features), dtype=torch.int64, device=features.device)
    distance = torch.full_like(features[:, 0], np.inf)
    blocks, number = list(row_blocks(distance[:, None])), 0
    while number < len(points):
        radii = []
        for rows in blocks:
            from_point = distances(features[rows], points[number][None])[:, 0]
            nearest[rows].masked_fill_(from_point < distance[rows], number)
            torch.minimum(distance[rows], from_point, out=distance[rows])
            radii.append(distance[rows].amax())
        number += 1
        radius = torch.stack(radii)
        if number == len(points) < n_centres and float(radius.max()) > 0:
            rows = blocks[int(radius.argmax())]
            points.append(features[rows.start + int(distance[rows].argmax())])
    return Centres(torch.stack(points), nearest)


def class_means(features: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """Return the mean feature (n_classes, n_features) of the seeds 1, 2, ... of each class.

    Raises
    ------
    InvalidInput
        If a class number is skipped.
    """
    n_classes = count_classes(seeds)
    total = torch.zeros(n_classes + 1, features.shape[1], dtype=features.dtype)
    total = total.to(features.device).index_add_(0, seeds, features)
    return total[1:] / torch.bincount(seeds)[1:, None]


def count_classes(seeds: torch.Tensor | NDArray[np.int64]) -> int:
    """Return the number of classes 1, 2, ... of seeds (n_nodes,), 0 where there is none.

    Raises
    ------
    InvalidInput
        If a class number is skipped.
    """
    found = torch.unique(torch.as_tensor(seeds[seeds > 0]))
    numbers = torch.arange(1, len(found) + 1, device=found.device)
    skipped = (found != numbers).nonzero()[:, 0]
    if len(skipped):
        missing, last = int(skipped[0]) + 1, int(found[-1])
        raise InvalidInput(f"seeds: expected classes 1 to {last}, class {missing} has none")
    return len(found)


def check_seeds_fit(seeds: torch.Tensor | None, n_columns: int) -> None:
    """Raise InvalidInput if there are seeds of a class that has no column."""
    if seeds is not None and int(seeds.max()) > n_columns:
        raise InvalidInput(f"seeds: expected classes up to {n_columns}, got {int(seeds.max())}")


def from_assignment(initial: ArrayLike, features: torch.Tensor) -> torch.Tensor:
    """Return the log coordinates of an assignment, of the kind that the features are.

    Raises
    ------
    InvalidInput
        If the shape is wrong, an entry is negative or not finite, or rows do not sum to 1.
    """
    array, n_nodes = own_floats(initial, "initial"), len(features)
    if array.ndim != 2 or len(array) != n_nodes or array.shape[1] < 1:
        raise InvalidInput(f"initial: expected shape ({n_nodes}, n_labels), got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InvalidInput("initial: expected finite numbers that are not negative")
    if np.abs(array.sum(axis=1) - 1).max() > 1e-3:
        raise InvalidInput("initial: expected rows that sum to 1")
    return to_logarithm(torch.from_numpy(array).to(features.dtype).to(features.device))


def spectral_points(
    operator: AffinityOperator,
    like: torch.Tensor,
    n_vectors: int,
    graph: AbstractGraph,
    rng: np.random.Generator,
    cancelled: Callable[[], bool] = not_cancelled,
) -> torch.Tensor:
    """Return the nodes in the space of the leading eigenvectors, averaged over the windows.

    Rows of `leading_vectors` of length 1, as in Ng, Jordan and Weiss, "On spectral clustering"
    (https://papers.nips.cc/paper/2092).
    """
    vectors = leading_vectors(operator, like, n_vectors, rng, cancelled)
    for rows in row_blocks(vectors):
        torch.nn.functional.normalize(vectors[rows], dim=1, out=vectors[rows])
    means = torch.empty_like(vectors)
    graph.averager(vectors.device, vectors.dtype)(vectors, means, torch.empty_like(vectors))
    return means


def leading_vectors(
    operator: AffinityOperator,
    like: torch.Tensor,
    n_vectors: int,
    rng: np.random.Generator,
    cancelled: Callable[[], bool] = not_cancelled,
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
    cancelled : callable
        Asked at each iteration; once it returns True the vectors are those found so far.

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
    degrees = _scaled_product(operator, like.new_ones(len(like), 1), like.new_ones(len(like), 1))
    least = _LEAST_DEGREE * float(degrees.abs().amax())
    scale = degrees.clamp_(min=least or 1.0).rsqrt_()
    # Three times as fast as NumPy, and drawn on the CPU the same for every device.
    source = torch.Generator().manual_seed(int(rng.integers(2**63)))
    vectors = like.new_empty((len(like), min(n_vectors + _MORE_VECTORS, len(like))))
    for rows in row_blocks(vectors):
        vectors[rows] = torch.randn(vectors[rows].shape, generator=source).to(vectors)
    vectors, total = _orthonormal(vectors), 0.0
    for left in reversed(range(_MOST_ITERATIONS)):
        images = _scaled_product(operator, vectors, scale)
        within = cross_product(vectors, images)
        before, total = total, float(within.trace())
        if left == 0 or abs(total - before) <= _TOLERANCE * abs(total) or cancelled():
            break
        vectors = _orthonormal(images)
    values, turns = torch.linalg.eigh((within + within.T) / 2)
    largest = values.argsort(descending=True)[:n_vectors]
    return torch.mm(vectors, turns[:, largest].to(vectors.dtype).to(vectors.device))


def _scaled_product(
    operator: AffinityOperator, vectors: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Return diag(scale) K diag(scale) times a field."""
    product = operator.product(vectors * scale)
    images, zeros = torch.empty_like(vectors), torch.zeros_like(vectors[:1]).expand_as(vectors)
    factor = product.coefficients.to(vectors.dtype).to(vectors.device)
    for rows, block in product.basis.plus(zeros, factor, images):
        block.mul_(scale[rows])
    return images


def _orthonormal(vectors: torch.Tensor) -> torch.Tensor:
    """Return an orthonormal basis of the columns, of those that are more than rounding."""
    squares, turns = torch.linalg.eigh(cross_product(vectors, vectors))
    kept = squares >= 10 * torch.finfo(vectors.dtype).eps * squares[-1]
    whitening = turns[:, kept] / squares[kept].clamp(min=torch.finfo(squares.dtype).tiny).sqrt()
    return torch.mm(vectors, whitening.to(vectors.dtype).to(vectors.device))
