"""A sample of patches: matched to atoms, averaged into atoms, and as landmarks of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from napari_saf.dictionary._distance import (
    INVERSE,
    N_SYMMETRIES,
    PatchField,
    all_transforms,
    transform,
)

_CHUNK_BYTES = 2**25
_EIGENVALUE_TOLERANCE = 1e-6


class PatchSample:
    """Patches with their surroundings, of one size.

    Parameters
    ----------
    blocks : Tensor of shape (n, n_channels, q, q)
        Patches with what lies within a window of centres around them, q = p + window - 1.
    patch_size : int
        Side p.
    """

    def __init__(self, blocks: torch.Tensor, patch_size: int) -> None:
        self.blocks = blocks
        self.patch_size = patch_size

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def centres(self) -> torch.Tensor:
        """The patches themselves, of shape (n, n_channels, p, p)."""
        rim = (self.blocks.shape[-1] - self.patch_size) // 2
        return self.blocks[..., rim : rim + self.patch_size, rim : rim + self.patch_size]

    def __getitem__(self, indices: slice | list[int]) -> PatchSample:
        """Return some of the patches."""
        return PatchSample(self.blocks[indices], self.patch_size)

    def distances(self, atoms: torch.Tensor) -> torch.Tensor:
        """Return the least squared distances (n, n_atoms) over symmetries and centres."""
        rows = [self._squared_distances(nodes, atoms) for nodes in self._chunks()]
        return torch.cat([table.flatten(2).amin(dim=2) for table in rows])

    def align(self, atoms: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best match of patch i to atom ``labels[i]``.

        Returns
        -------
        distances : Tensor of shape (n,)
            Least squared distance over symmetries and centres.
        patches : Tensor of shape (n, n_channels, p, p)
            The matched patches, turned onto their atoms.
        """
        distances = self.blocks.new_empty(len(self))
        patches = torch.empty_like(self.centres)
        for label in range(len(atoms)):
            own = (labels == label).nonzero()[:, 0]
            for nodes in self._chunks(own):
                table = self._squared_distances(nodes, atoms[label : label + 1])[:, 0].flatten(1)
                distances[nodes], place = table.min(dim=1)
                rows = torch.arange(len(nodes), device=nodes.device)
                found = self._windows(nodes)[rows, place // N_SYMMETRIES]
                symmetries = place % N_SYMMETRIES
                turned = torch.empty_like(found)
                for symmetry in range(N_SYMMETRIES):
                    chosen = symmetries == symmetry
                    turned[chosen] = transform(found[chosen], symmetry)
                patches[nodes] = turned
        return distances, patches

    def _chunks(self, nodes: torch.Tensor | None = None) -> Iterator[torch.Tensor]:
        nodes = torch.arange(len(self), device=self.blocks.device) if nodes is None else nodes
        n_windows = (self.blocks.shape[-1] - self.patch_size + 1) ** 2
        values = n_windows * self.blocks.shape[1] * self.patch_size**2
        step = max(1, _CHUNK_BYTES // (4 * values))
        return (nodes[start : start + step] for start in range(0, len(nodes), step))

    def _windows(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return all patches (n, n_windows, n_channels, p, p) of some blocks."""
        p = self.patch_size
        found = self.blocks[nodes].unfold(2, p, 1).unfold(3, p, 1)
        return found.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)

    def _squared_distances(self, nodes: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
        """Return squared distances (n, n_atoms, n_windows, 8)."""
        windows = self._windows(nodes).flatten(2)
        filters = all_transforms(atoms)[:, list(INVERSE)].flatten(2)
        inner = windows @ filters.flatten(0, 1).T
        inner = inner.view(*windows.shape[:2], len(atoms), N_SYMMETRIES).transpose(1, 2)
        square = windows.square().sum(dim=2)[:, None, :, None]
        own = atoms.flatten(1).square().sum(dim=1)[:, None, None]
        return (square + own - 2 * inner).clamp_(min=0)


def draw_nodes(
    fields: Sequence[PatchField], count: int, window: int, rng: np.random.Generator
) -> list[torch.Tensor]:
    """Draw interior pixels whose window of centres is interior, too, without replacement.

    Returns one tensor of flat indices for each image; together at most `count`.
    """
    inner = [tuple(side - window + 1 for side in field.shape) for field in fields]
    sizes = [height * width for height, width in inner]
    ends = np.cumsum(sizes)
    drawn = rng.choice(int(ends[-1]), min(count, int(ends[-1])), replace=False)
    found = []
    for field, (_, width), size, end in zip(fields, inner, sizes, ends, strict=True):
        own = drawn[(drawn >= end - size) & (drawn < end)] - (end - size)
        row, column = own // width + window // 2, own % width + window // 2
        flat = torch.from_numpy(row * field.shape[1] + column)
        found.append(flat.to(field.image.device))
    return found


def update_atoms(
    sample: PatchSample, atoms: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Turn and shift each patch onto its atom as well as it fits, and average.

    Parameters
    ----------
    sample : PatchSample
        n patches with their surroundings.
    atoms : Tensor of shape (n_atoms, n_channels, p, p)
        Where to start; atoms of empty labels stay.
    labels : Tensor of int of shape (n,)
        The atom of every patch.
    weights : Tensor of shape (n,)
        Weight of every patch, not negative.

    Returns
    -------
    atoms : Tensor of shape (n_atoms, n_channels, p, p)
    objective : float
        sum_i w_i min |T P_j - P*|^2 / sum_i w_i for the atoms that were given, j over the window
        of patch i and T over the symmetries. From round to round it never rises: the best fit
        lowers it, and so does the mean.

    Notes
    -----
    Eq. (6.13) of Zisler, Zern, Petra and Schnörr, https://doi.org/10.1137/19M1298639.
    """
    distances, patches = sample.align(atoms, labels)
    objective = float((weights * distances).sum(dtype=torch.float64)) / float(weights.sum())
    sums = torch.zeros_like(atoms)
    sums.index_add_(0, labels, patches * weights[:, None, None, None])
    masses = torch.zeros_like(atoms[:, 0, 0, 0]).index_add_(0, labels, weights)
    means = sums / masses.clamp(min=1e-12)[:, None, None, None]
    return torch.where((masses > 0)[:, None, None, None], means, atoms), objective


def landmark_distances(
    fields: Sequence[PatchField],
    landmarks: PatchSample,
    window: int,
    cancelled: Callable[[], bool],
) -> torch.Tensor:
    """Return the symmetric squared distances (n_nodes, n_landmarks) of all interior patches.

    The smaller of both directions: a patch of the window around the node moved onto the
    landmark, and one of the window around the landmark moved onto the node. Once `cancelled`
    returns True, only the first landmarks are there, two at least.
    """
    columns: list[torch.Tensor] = []
    for block in landmarks.blocks:
        if len(columns) >= 2 and cancelled():
            break
        parts = [field.rough_symmetric(block, window).flatten() for field in fields]
        columns.append(torch.cat(parts))
    if not columns:
        n_nodes = sum(field.shape[0] * field.shape[1] for field in fields)
        return fields[0].image.new_empty(n_nodes, 0)
    return torch.stack(columns, dim=1)


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
        Affinities exp(-d / sigma^2) of all nodes to the landmarks, d the symmetric distance.
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
    whitening: torch.Tensor = vectors[:, kept] / values[kept].sqrt()
    product: torch.Tensor = columns @ whitening.to(columns.dtype).to(columns.device)
    return product
