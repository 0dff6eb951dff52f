"""The affinity of patches, exp(-d / sigma^2) of their symmetric distance d, as a sketch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from napari_saf.dictionary._field import PatchField
from napari_saf.dictionary._sample import PatchSample

__all__ = ["landmark_distances", "pick_far_apart", "sketch"]

_EIGENVALUE_TOLERANCE = 1e-6


def landmark_distances(
    fields: Sequence[PatchField],
    landmarks: PatchSample,
    window: int,
    cancelled: Callable[[], bool] = lambda: False,
) -> torch.Tensor:
    """Return the symmetric squared distances (n_nodes, n_landmarks) of all interior patches.

    The smaller of both directions: a patch of the window around the node moved onto the
    landmark, and one of the window around the landmark moved onto the node. Once `cancelled`
    returns True, only the first landmarks are there, two at least.
    """
    n_nodes = sum(field.shape[0] * field.shape[1] for field in fields)
    rows: list[torch.Tensor] = []
    for k in range(len(landmarks)):
        if len(rows) >= 2 and cancelled():
            break
        block = landmarks.blocks[k]
        parts = [field.rough_symmetric(block, window).flatten() for field in fields]
        rows.append(torch.cat(parts))
    if not rows:
        return fields[0].image.new_empty(n_nodes, 0)
    return torch.stack(rows, dim=1)


def pick_far_apart(distances: torch.Tensor, count: int) -> list[int]:
    """Return indices of distinct points, the central one first, then each the farthest.

    `distances` has shape (n, n); fewer than `count` where all others are at distance 0.
    """
    chosen = [int(distances.sum(dim=1).argmin())]
    nearest = distances[:, chosen[0]].clone()
    while len(chosen) < count:
        farthest = int(nearest.argmax())
        if float(nearest[farthest]) <= 0:
            break
        chosen.append(farthest)
        nearest = torch.minimum(nearest, distances[:, farthest])
    return chosen


def sketch(columns: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    """Return Phi (n_nodes, rank) with Phi Phi' close to the positive part of a kernel.

    Parameters
    ----------
    columns : Tensor of shape (n_nodes, n_landmarks)
        Affinities of all nodes to the landmarks.
    block : Tensor of shape (n_landmarks, n_landmarks)
        Affinities of the landmarks to each other.

    Notes
    -----
    The kernel of a distance with a minimum in it is not positive semi-definite, and the
    pseudo-inverse of the Nystroem method would divide by its negative eigenvalues. Kept are
    those above the size of the most negative one: what is smaller is no better known.
    """
    wide = block.cpu().double()
    values, vectors = torch.linalg.eigh((wide + wide.T) / 2)
    floor = max(_EIGENVALUE_TOLERANCE * float(values[-1]), -float(values[0]))
    kept = values > floor
    whiten: torch.Tensor = vectors[:, kept] / values[kept].sqrt()
    product: torch.Tensor = columns @ whiten.to(columns.dtype).to(columns.device)
    return product
