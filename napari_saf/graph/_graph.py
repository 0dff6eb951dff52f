"""What every graph offers to the methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from napari_saf.arrays import as_array, own_floats
from napari_saf.errors import InvalidInput
from napari_saf.tick import Tick, go_on

__all__ = ["AbstractGraph", "Averager"]


class Averager(Protocol):
    """A linear operator of a graph, prepared for one device and one type."""

    def __call__(
        self, values: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor, tick: Tick = go_on
    ) -> None:
        """Write the averages (sums) of `values` into `out`; `scratch` is overwritten.

        All three have shape (n_nodes, n_columns) and are contiguous; `out` and `values` may
        not be the same tensor. `tick` is called between the parts of the work, where it has some.
        """


class AbstractGraph(ABC):
    """A weighted graph whose nodes carry features and labels."""

    @property
    @abstractmethod
    def n_nodes(self) -> int:
        """Number of nodes."""

    def smaller(self, share: float) -> str:
        """Return what has at most a share of the nodes, in words."""
        return "fewer nodes"

    @abstractmethod
    def averager(self, device: torch.device, dtype: torch.dtype) -> Averager:
        """Return the averaging operator for a device; its rows of weights sum to 1."""

    @abstractmethod
    def neighbour_sum(self, device: torch.device, dtype: torch.dtype) -> Averager:
        """Return the product with (W + W') / 2, W the weights without self weights.

        Objectives that hold s'W s see this part of the weights only.
        """

    @abstractmethod
    def steps(self) -> sparse.csr_array:
        """Return how long the steps are between nodes next to each other, (n_nodes, n_nodes).

        Lengths are shares of the longest side of an image, 0 (and stored) where nodes have no
        place. Every step is held once, in either direction.
        """

    @abstractmethod
    def laplacian_product(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the product of the weights, without self weights, with node values.

        The weights are those given for an `AffinityGraph`, and for a grid 1 in the window or,
        where some were given, those that sum to 1 with the self weight in each row.

        Parameters
        ----------
        values : array of shape (n_nodes, n_columns)
            Node values, column by column.

        Returns
        -------
        array of shape (n_nodes, n_columns)
        """

    def to_image(
        self, values: NDArray[np.generic], fill: float = 0
    ) -> NDArray[np.generic] | list[NDArray[np.generic]]:
        """Return node values in the shape of what the nodes came from.

        Parameters
        ----------
        values : array of shape (n_nodes,) or (n_nodes, n_columns)
            Node values.
        fill : float
            Value outside a mask.

        Returns
        -------
        array or list of array
            Image-shaped for a grid, a list for several grids, unchanged for other graphs.
        """
        return values

    def average(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the weighted means of node values over the neighbourhoods.

        Parameters
        ----------
        values : array of shape (n_nodes, n_columns), float32 or float64
            Node values, column by column.

        Returns
        -------
        array of shape (n_nodes, n_columns), of the type of `values`
            Weights that a grid was given are kept in float32: averages by them are exact to
            about 1e-7, in float64 too.

        Raises
        ------
        InvalidInput
            If the shape does not fit the graph.
        """
        field = self._as_field(values)
        out, scratch = torch.empty_like(field), torch.empty_like(field)
        self.averager(field.device, field.dtype)(field, out, scratch)
        return out.numpy()

    def _check_nodes(self, nodes: ArrayLike) -> NDArray[np.int64]:
        """Return indices of nodes, or raise InvalidInput."""
        array = as_array(nodes, "nodes")
        is_whole = array.dtype.kind in "iu" or not array.size
        if not is_whole or (array.size and not 0 <= array.min() <= array.max() < self.n_nodes):
            raise InvalidInput(f"nodes: expected whole numbers from 0 to {self.n_nodes - 1}")
        return array.astype(np.int64)

    def _as_field(self, values: NDArray[np.floating]) -> torch.Tensor:
        field = own_floats(values, "values")
        if field.ndim != 2 or field.shape[0] != self.n_nodes:
            raise InvalidInput(
                f"values: expected shape ({self.n_nodes}, n_columns), got {field.shape}"
            )
        return torch.from_numpy(field)
