"""Where a flow starts: greedy k-centre, or an assignment that was given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import own_floats
from napari_saf.errors import InvalidInput
from napari_saf.geometry import normalize_, row_blocks, to_logarithm
from napari_saf.points import distances
from napari_saf.tick import Tick, go_on

__all__ = [
    "Centres",
    "Start",
    "check_seeds_fit",
    "class_means",
    "count_classes",
    "from_assignment",
    "k_centres",
]


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
        the caller may have. It takes a function to call in between, which may end it by an
        exception.
    active : Tensor of int of shape (n_active,), optional
        The columns that a node can have, ascending; None: all.
    """

    labels: torch.Tensor
    n_columns: int
    logarithm: Callable[[Tick], torch.Tensor]
    active: torch.Tensor | None = None

    @classmethod
    def at(cls, logarithm: torch.Tensor) -> Start:
        """Return the start at normalised log coordinates, whose memory it takes."""
        return cls(logarithm.argmax(dim=1), logarithm.shape[1], lambda tick: logarithm)


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
        """Return the start at -epsilon times the distances of the nodes to the centres."""
        return Start(
            self.nearest,
            len(self.points),
            lambda tick: normalize_(self.distances(features, tick).mul_(-epsilon), tick),
        )

    def distances(self, features: torch.Tensor, tick: Tick = go_on) -> torch.Tensor:
        """Return the distances (n_nodes, n_centres) of the nodes to the centres."""
        table = features.new_empty((len(features), len(self.points)))
        for rows in row_blocks(table):
            tick()
            table[rows] = distances(features[rows], self.points)
        return table


def k_centres(
    features: torch.Tensor,
    n_centres: int,
    rng: np.random.Generator,
    *,
    given: torch.Tensor | None = None,
    cancelled: Callable[[], bool] = lambda: False,
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
    cancelled : callable
        Once it returns True, the given ones or two have to do.

    Notes
    -----
    Gonzalez, https://doi.org/10.1016/0304-3975(85)90224-5: within a factor 2 of the smallest
    radius that covers all nodes.
    """
    if given is None:
        first = int(rng.integers(len(features)))
        given = features[first : first + 1]
    cover = _Cover(features)
    for point in given:
        cover.add(point)
    few = max(2, len(given))
    while len(cover.points) < n_centres and cover.radius > 0:
        if len(cover.points) >= few and cancelled():
            return k_centres(features, few, rng, given=torch.stack(cover.points[:few]))
        cover.add(features[cover.farthest])
    return Centres(torch.stack(cover.points), cover.nearest)


class _Cover:
    """How far nodes are from the nearest of some points.

    Attributes
    ----------
    points : list of Tensor of shape (n_features,)
    nearest : Tensor of int of shape (n_nodes,)
        Which of the points that is.
    farthest : int
        The node that is farthest.
    radius : float
        How far that is.
    """

    def __init__(self, features: torch.Tensor) -> None:
        self.points: list[torch.Tensor] = []
        self.nearest = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        self.farthest = 0
        self.radius = np.inf
        self._features = features
        self._distance = torch.full_like(features[:, 0], np.inf)

    def add(self, point: torch.Tensor) -> None:
        """Take in one more point."""
        number, farthest = len(self.points), []
        self.points.append(point)
        blocks = list(row_blocks(self._distance[:, None]))
        for rows in blocks:
            from_point = distances(self._features[rows], point[None])[:, 0]
            distance = self._distance[rows]
            self.nearest[rows].masked_fill_(from_point < distance, number)
            torch.minimum(distance, from_point, out=distance)
            farthest.append(distance.amax())
        radii = torch.stack(farthest)
        rows = blocks[int(radii.argmax())]
        self.farthest = rows.start + int(self._distance[rows].argmax())
        self.radius = float(radii.max())


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
