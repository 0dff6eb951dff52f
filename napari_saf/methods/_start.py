"""Where a flow starts: greedy k-centre, or an assignment that was given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import own_floats
from napari_saf.errors import InvalidInput
from napari_saf.geometry import to_logarithm

__all__ = [
    "check_seeds_fit",
    "class_means",
    "count_classes",
    "distances",
    "from_assignment",
    "k_centre_distances",
]

_BLOCK = 2**16


def distances(features: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean distances (n_nodes, n_points), to the last digit."""
    return torch.cdist(features, points, compute_mode="donot_use_mm_for_euclid_dist")


def k_centre_distances(
    features: torch.Tensor,
    n_centres: int,
    rng: np.random.Generator,
    *,
    given: torch.Tensor | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> torch.Tensor:
    """Return the distances to centres chosen greedily: each the node farthest from all before.

    Parameters
    ----------
    features : Tensor of shape (n_nodes, n_features)
        Points in feature space.
    n_centres : int
        Number of centres wanted.
    rng : Generator
        Draws the first centre where none is given.
    given : Tensor of shape (n_given, n_features), optional
        Points that are centres already.
    cancelled : callable
        Once it returns True, no more centres are sought.

    Returns
    -------
    Tensor of shape (n_nodes, n_found)
        n_found is less than `n_centres` where there are fewer distinct features, or after a
        cancel.

    Notes
    -----
    Gonzalez, https://doi.org/10.1016/0304-3975(85)90224-5: within a factor 2 of the smallest
    radius that covers all nodes.
    """
    if given is None:
        first = int(rng.integers(len(features)))
        given = features[first : first + 1]
    rows = list(distances(features, given).T)  # one a centre: columns would be written slowly
    nearest = torch.stack(rows).amin(dim=0)
    for found in range(len(given), n_centres):
        farthest = nearest.argmax()
        if float(nearest[farthest]) == 0 or (found >= 2 and cancelled()):
            break
        rows.append(distances(features, features[farthest][None])[:, 0])
        nearest = torch.minimum(nearest, rows[-1])
    if cancelled():
        del rows[max(2, len(given)) :]
    return _side_by_side(rows)


def _side_by_side(rows: list[torch.Tensor]) -> torch.Tensor:
    """Return columns as one table (n_nodes, n_columns), made a block of nodes at a time."""
    table = rows[0].new_empty((len(rows[0]), len(rows)))
    for start in range(0, len(table), _BLOCK):
        nodes = slice(start, start + _BLOCK)
        torch.stack([row[nodes] for row in rows], dim=1, out=table[nodes])
    return table


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
    array, n_nodes = np.asarray(initial), len(features)
    if array.ndim != 2 or len(array) != n_nodes or array.shape[1] < 1:
        raise InvalidInput(f"initial: expected shape ({n_nodes}, n_labels), got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InvalidInput("initial: expected finite numbers that are not negative")
    if np.abs(array.sum(axis=1) - 1).max() > 1e-3:
        raise InvalidInput("initial: expected rows that sum to 1")
    whole = torch.from_numpy(own_floats(array))
    return to_logarithm(whole.to(features.dtype).to(features.device))
