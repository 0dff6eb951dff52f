"""Several grids side by side, as one graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from napari_saf.errors import InvalidInput
from napari_saf.graph._graph import AbstractGraph, Averager
from napari_saf.graph._grid import GridGraph
from napari_saf.tick import Tick, go_on

__all__ = ["GraphUnion"]


class GraphUnion(AbstractGraph):
    """The disjoint union of grids, one per image; its nodes follow one another.

    Parameters
    ----------
    grids : sequence of GridGraph
    """

    def __init__(self, grids: Sequence[GridGraph]) -> None:
        if not grids:
            raise InvalidInput("expected at least one image")
        self.grids = tuple(grids)
        ends = np.cumsum([grid.n_nodes for grid in self.grids])
        self.slices = tuple(
            slice(int(end) - grid.n_nodes, int(end))
            for grid, end in zip(self.grids, ends, strict=True)
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all grids."""
        return self.slices[-1].stop

    def averager(self, device: torch.device, dtype: torch.dtype) -> Averager:
        """Return the averaging operator for a device."""
        return self._join([grid.averager(device, dtype) for grid in self.grids])

    def neighbour_sum(self, device: torch.device, dtype: torch.dtype) -> Averager:
        """Return the product with the symmetric part of the weights."""
        return self._join([grid.neighbour_sum(device, dtype) for grid in self.grids])

    def steps(self) -> sparse.csr_array:
        """Return the steps of all grids; none leads from one into another."""
        return sparse.csr_array(sparse.block_diag([grid.steps() for grid in self.grids]))

    def laplacian_product(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the sum of the neighbours' values, grid by grid."""
        parts = zip(self.grids, self.slices, strict=True)
        return np.concatenate([grid.laplacian_product(values[part]) for grid, part in parts])

    def contrast_weights(self, features: NDArray[np.floating], sigma2: float) -> sparse.csr_array:
        """Return the weights of neighbours by their contrast; see `GridGraph`."""
        parts = zip(self.grids, self.slices, strict=True)
        blocks = [grid.contrast_weights(features[part], sigma2) for grid, part in parts]
        return sparse.csr_array(sparse.block_diag(blocks))

    def _join(self, operators: list[Averager]) -> Averager:
        def apply(
            values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor, tick: Tick = go_on
        ) -> None:
            for one, part in zip(operators, self.slices, strict=True):
                tick()
                one(values[part], out[part], scratch[part], tick)

        return apply

    def to_image(self, values: NDArray[np.generic], fill: float = 0) -> list[NDArray[np.generic]]:
        """Return node values as a list of images."""
        parts = zip(self.grids, self.slices, strict=True)
        return [grid.to_image(values[part], fill) for grid, part in parts]
