"""An image made of atoms: put down where they belong, averaged where they overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.dictionary._distance import INVERSE, PatchField, all_transforms

__all__ = ["Canvas", "Placements"]

_CHUNK_BYTES = 2**25
_LEAST_WEIGHT = 1e-6


class Placements(NamedTuple):
    """Atoms to be put down, one a node.

    Attributes
    ----------
    labels : Tensor of int of shape (n,)
        Which atom.
    symmetries : Tensor of uint8 of shape (n,)
        Symmetry that turns the image's patch onto the atom.
    places : Tensor of int of shape (n,)
        Flat index, among interior pixels, of the patch's place.
    distances : Tensor of shape (n,)
        Squared distance of patch and atom.
    nodes : Tensor of int of shape (n,)
        Flat index of the pixel that puts it.
    """

    labels: torch.Tensor
    symmetries: torch.Tensor
    places: torch.Tensor
    distances: torch.Tensor
    nodes: torch.Tensor


class Canvas:
    """Weighted sums of the atoms put down.

    Parameters
    ----------
    shape : tuple of int
        (height, width, n_channels).
    atoms : Tensor of shape (n_atoms, n_channels, p, p)
    """

    def __init__(self, shape: tuple[int, ...], atoms: torch.Tensor) -> None:
        self._height, self._width, self._n_channels = shape
        self._size = atoms.shape[-1]
        turned = all_transforms(atoms)[:, list(INVERSE)]
        # Row 8 k + T: atom k turned back by T, channels last.
        self._turned = turned.flatten(0, 1).permute(0, 2, 3, 1).contiguous()
        n_pixels = self._height * self._width
        # The last column holds the weights.
        self._sums = atoms.new_zeros(n_pixels, self._n_channels + 1)
        self._spare: dict[str, torch.Tensor] = {}

    def put(
        self,
        placements: Placements,
        field: PatchField,
        origin: tuple[int, int],
        *,
        scale: float | None = None,
        fitted: bool = False,
    ) -> None:
        """Put atoms down, each turned back, at its place.

        Parameters
        ----------
        placements : Placements
            In the field.
        field : PatchField
            Of a part of the image.
        origin : tuple of int
            Row and column of that part in the image.
        scale : float, optional
            Atoms weigh exp(-distance / scale); None: all the same.
        fitted : bool
            Whether each atom gets the brightness and contrast that fit its patch best.
        """
        size, width = self._size, field.shape[1]
        index = placements.labels * 8 + placements.symmetries
        for part in self._chunks(len(index)):
            places = placements.places[part]
            patches, distances = self._turned[index[part]], placements.distances[part]
            if fitted:
                patches, distances = _fit(patches, field, places)
            weights = torch.ones_like(distances)
            if scale is not None:
                weights = torch.exp(-distances / scale).clamp_(min=_LEAST_WEIGHT)
            corner = (places // width + origin[0]) * self._width + places % width + origin[1]
            weighted = patches * weights[:, None, None, None]
            values = torch.cat([weighted, weights.view(-1, 1, 1, 1).expand(-1, size, size, 1)], 3)
            for row in range(size):
                for column in range(size):
                    self._sums.index_add_(
                        0, corner + (row * self._width + column), values[:, row, column]
                    )

    def put_spare(self, placements: Placements, field: PatchField, origin: tuple[int, int]) -> None:
        """Keep atoms that each pixel would put around itself, for where nothing else was put."""
        width = field.shape[1]
        nodes = placements.nodes
        row, column = nodes // width + origin[0], nodes % width + origin[1]
        if not self._spare:
            inner = (self._height - self._size + 1) * (self._width - self._size + 1)
            self._spare["index"] = torch.zeros(inner, dtype=torch.int32, device=nodes.device)
        flat = row * (self._width - self._size + 1) + column
        index = placements.labels * 8 + placements.symmetries
        self._spare["index"][flat] = index.to(torch.int32)

    def image(self) -> NDArray[np.float32]:
        """Return the averages, (height, width, n_channels)."""
        weights = self._sums[:, -1:]
        bare = (weights[:, 0] == 0).nonzero()[:, 0]
        means = self._sums[:, :-1] / weights.clamp(min=1e-30)
        if len(bare):
            means[bare] = self._fill(bare)
        shape = (self._height, self._width, self._n_channels)
        return np.asarray(means.view(shape).float().cpu().numpy())

    def _fill(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return values of bare pixels from the atom of the nearest interior pixel."""
        size = self._size
        inner = (self._height - size + 1, self._width - size + 1)
        row, column = pixels // self._width, pixels % self._width
        top = (row - size // 2).clamp(0, inner[0] - 1)
        left = (column - size // 2).clamp(0, inner[1] - 1)
        index = self._spare["index"][top * inner[1] + left].long()
        return self._turned[index, row - top, column - left]

    def _chunks(self, count: int) -> Iterator[slice]:
        values = (self._n_channels + 1) * self._size**2
        step = max(1, _CHUNK_BYTES // (4 * values))
        return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _fit(
    patches: torch.Tensor, field: PatchField, places: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return patches (n, p, p, n_channels) with gain and offset, and squared distances."""
    wanted = field.patches(places) + field.offset.float()
    wanted = wanted.permute(0, 2, 3, 1).flatten(1)
    flat = patches.flatten(1)
    mean, own = wanted.mean(dim=1, keepdim=True), flat.mean(dim=1, keepdim=True)
    hollow = flat - own
    gain = ((wanted - mean) * hollow).sum(dim=1, keepdim=True)
    gain = (gain / hollow.square().sum(dim=1, keepdim=True).clamp(min=1e-12)).clamp_(min=0)
    fitted = gain * hollow + mean
    distances = (fitted - wanted).square().sum(dim=1)
    return fitted.view(patches.shape), distances
