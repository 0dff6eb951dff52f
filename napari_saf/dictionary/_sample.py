"""A sample of patches with their surroundings, and the best match in each to an atom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from napari_saf.dictionary._field import PatchField
from napari_saf.dictionary._symmetries import (
    INVERSE,
    N_SYMMETRIES,
    all_transforms,
    transform,
)

__all__ = ["Aligned", "PatchSample", "draw_nodes"]

_CHUNK_BYTES = 2**25


class Aligned(NamedTuple):
    """The best match of every patch of a sample to one atom each.

    Attributes
    ----------
    distances : Tensor of shape (n,)
        Least squared distance over symmetries and centres.
    patches : Tensor of shape (n, n_channels, p, p)
        The matched patches as they are turned onto their atoms.
    """

    distances: torch.Tensor
    patches: torch.Tensor


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

    def head(self, count: int) -> PatchSample:
        """Return the first patches."""
        return PatchSample(self.blocks[:count], self.patch_size)

    def pick(self, indices: Sequence[int]) -> PatchSample:
        """Return the patches of some indices."""
        return PatchSample(self.blocks[list(indices)], self.patch_size)

    def distances(self, atoms: torch.Tensor) -> torch.Tensor:
        """Return the least squared distances (n, n_atoms) over symmetries and centres."""
        rows = [self._products(part, atoms) for part in self._chunks()]
        return torch.cat([part.flatten(2).amin(dim=2) for part in rows])

    def align(self, atoms: torch.Tensor, labels: torch.Tensor) -> Aligned:
        """Return the best match of patch i to atom ``labels[i]``."""
        distances = self.blocks.new_empty(len(self))
        patches = torch.empty_like(self.centres)
        for label in range(len(atoms)):
            own = (labels == label).nonzero()[:, 0]
            for part in self._chunks(own):
                table = self._products(part, atoms[label : label + 1])[:, 0].flatten(1)
                distances[part], place = table.min(dim=1)
                symmetry = place % N_SYMMETRIES
                found = self._windows(part)[
                    torch.arange(len(part), device=part.device), place // N_SYMMETRIES
                ]
                patches[part] = _turned(found, symmetry)
        return Aligned(distances, patches)

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

    def _products(self, nodes: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
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


def _turned(patches: torch.Tensor, symmetries: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(patches)
    for symmetry in range(N_SYMMETRIES):
        own = symmetries == symmetry
        out[own] = transform(patches[own], symmetry)
    return out
