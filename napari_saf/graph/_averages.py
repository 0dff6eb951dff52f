"""Sums and averages over the windows of a grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from napari_saf.graph._box import BoxSum
from napari_saf.tick import Tick, go_on

__all__ = ["MaskedMean", "NeighbourSum", "WeightedAverage"]


class MaskedMean:
    """Box mean over the nodes inside a mask: the pixels of the given indices."""

    def __init__(self, box: BoxSum, inside: torch.Tensor, dtype: torch.dtype) -> None:
        self._box, self._inside = box, inside
        ones = torch.ones(len(inside), 1, dtype=dtype, device=inside.device)
        self._counts = _through_grid(box, ones, inside)

    def __call__(
        self, values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor, tick: Tick = go_on
    ) -> None:
        torch.div(_through_grid(self._box, values, self._inside, tick), self._counts, out=out)


class NeighbourSum:
    """Box sum over the nodes inside a mask, without the node itself; None: no mask."""

    def __init__(self, box: BoxSum, inside: torch.Tensor | None) -> None:
        self._box, self._inside = box, inside

    def __call__(
        self, values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor, tick: Tick = go_on
    ) -> None:
        if self._inside is None:
            self._box(values, out, scratch, tick)
        else:
            out.copy_(_through_grid(self._box, values, self._inside, tick))
        out.sub_(values)


class WeightedAverage:
    """Average with a weight for each window position of each node.

    Weights are given as images, one for each offset. Columns come first here, and images have a
    rim of zeros: with few columns a product of whole images takes a quarter of the time that it
    takes with the columns last.
    """

    def __init__(
        self,
        weights: torch.Tensor,
        offsets: Sequence[Sequence[int]],
        inside: torch.Tensor | None,
    ) -> None:
        self._weights, self._inside = weights, inside
        self._rims = np.max(offsets, axis=0).tolist()
        self._offsets = (np.array(offsets) + self._rims).tolist()

    def __call__(
        self, values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor, tick: Tick = go_on
    ) -> None:
        shape = self._weights.shape[1:]
        full = _scatter(values, self._inside, shape.numel())
        padded = full.new_zeros(
            full.shape[1],
            *(side + 2 * rim for side, rim in zip(shape, self._rims, strict=True)),
        )
        columns = full.T.view(-1, *shape)
        self._moved(padded, self._rims).copy_(columns)
        total = torch.zeros_like(columns, memory_format=torch.contiguous_format)
        for weights, offset in zip(self._weights, self._offsets, strict=True):
            tick()
            total.addcmul_(weights, self._moved(padded, offset))
        means = total.flatten(1).T
        out.copy_(means if self._inside is None else means[self._inside])

    def _moved(self, padded: torch.Tensor, offset: Sequence[int]) -> torch.Tensor:
        """Return the images that begin at an offset into those with a rim."""
        shape = self._weights.shape[1:]
        slices = [slice(first, first + side) for first, side in zip(offset, shape, strict=True)]
        return padded[(slice(None), *slices)]


def _scatter(values: torch.Tensor, inside: torch.Tensor | None, n_pixels: int) -> torch.Tensor:
    if inside is None:
        return values
    full = torch.zeros(n_pixels, values.shape[1], dtype=values.dtype, device=values.device)
    return full.index_copy_(0, inside, values)


def _through_grid(
    box: BoxSum, values: torch.Tensor, inside: torch.Tensor | None, tick: Tick = go_on
) -> torch.Tensor:
    """Return box sums at the nodes inside a mask, of values there."""
    full = _scatter(values, inside, box.n_pixels)
    out, scratch = torch.empty_like(full), torch.empty_like(full)
    box(full, out, scratch, tick)
    return out if inside is None else out[inside]
