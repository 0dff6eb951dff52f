"""Several grids side by side, as one graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from napari_saf.errors import InvalidInput
from napari_saf.graph._graph import AbstractGraph, Averager
from napari_saf.graph._grid import GridGraph


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
        return self.slices[-1].stop

    def smaller(self, share: float) -> str:
        return "fewer images at once"

    def averager(self, device: torch.device, dtype: torch.dtype) -> Averager:
        return self._join([grid.averager(device, dtype) for grid in self.grids])

    def neighbour_sum(self, device: torch.device, dtype: torch.dtype) -> Averager:
        return self._join([grid.neighbour_sum(device, dtype) for grid in self.grids])

    def steps(self) -> sparse.csr_array:
        """Return the steps of all grids; none leads from one into another."""
        return sparse.csr_array(sparse.block_diag([grid.steps() for grid in self.grids]))

    def laplacian_product(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        parts = zip(self.grids, self.slices, strict=True)
        return np.concatenate([grid.laplacian_product(values[part]) for grid, part in parts])

    def contrast_weights(self, features: NDArray[np.floating], sigma2: float) -> sparse.csr_array:
        """Return the weights of neighbours by their contrast; see `GridGraph`."""
        parts = zip(self.grids, self.slices, strict=True)
        blocks = [grid.contrast_weights(features[part], sigma2) for grid, part in parts]
        return sparse.csr_array(sparse.block_diag(blocks))

    def positions(self, nodes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return in which image, and at which pixel of it, nodes of the given indices are.

        Parameters
        ----------
        nodes : array of int of shape (n,)
            Indices of nodes.

        Returns
        -------
        images : array of int of shape (n,)
            Numbers of the images, from 0.
        positions : array of int of shape (n, n_axes)
            As from `GridGraph.positions`.

        Raises
        ------
        InvalidInput
            If there is no such node, or the images differ in their number of axes.
        """
        flat = self._check_nodes(nodes).ravel()
        counts = {len(grid.shape) for grid in self.grids}
        if len(counts) > 1:
            raise InvalidInput(f"images: expected one number of axes, got {sorted(counts)}")
        starts = np.array([part.start for part in self.slices])
        images = np.searchsorted(starts, flat, side="right") - 1
        places = np.zeros((len(flat), counts.pop()), np.int64)
        for number in np.unique(images):
            own = images == number
            places[own] = self.grids[number].positions(flat[own] - starts[number])
        return images, places

    def _join(self, operators: list[Averager]) -> Averager:
        def apply(values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor) -> None:
            for one, part in zip(operators, self.slices, strict=True):
                one(values[part], out[part], scratch[part])

        return apply

    def to_image(self, values: NDArray[np.generic], fill: float = 0) -> list[NDArray[np.generic]]:
        parts = zip(self.grids, self.slices, strict=True)
        return [grid.to_image(values[part], fill) for grid, part in parts]
