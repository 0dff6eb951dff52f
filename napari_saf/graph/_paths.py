"""Paths through a graph along which features change little."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from napari_saf.graph._graph import AbstractGraph

__all__ = ["path_costs", "path_lengths"]

_WHOLE_IMAGE = 10.0
"""Length of a path straight along the longest side of an image of one colour; chosen on
photographs with strokes, where 2 to 30 give the same mean agreement within 1 %."""
_LEAST = 1e-9


def path_costs(graph: AbstractGraph, features: NDArray[np.floating]) -> sparse.csr_array:
    """Return the lengths of the steps of a graph by the change of the features along them.

    Parameters
    ----------
    graph : AbstractGraph
        Says which nodes are next to each other.
    features : array of shape (n_nodes, n_features)
        Points in feature space.

    Returns
    -------
    csr_array of shape (n_nodes, n_nodes)
        Every step once: the distance in feature space, in units of the spread of the features,
        and ten times the length in shares of the longest side.
    """
    steps = sparse.coo_array(graph.steps())
    spread = np.sqrt(np.square(features - features.mean(axis=0)).sum(axis=1).mean())
    squares = np.zeros(steps.nnz, dtype=np.float64)
    for column in features.T:
        squares += np.square(column[steps.row] - column[steps.col])
    lengths = np.sqrt(squares) / max(spread, 1e-30) + _WHOLE_IMAGE * steps.data + _LEAST
    return sparse.csr_array((lengths, (steps.row, steps.col)), shape=steps.shape)


def path_lengths(costs: sparse.csr_array, sources: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the length of the shortest path from the nearest source to every node.

    Parameters
    ----------
    costs : csr_array of shape (n_nodes, n_nodes)
        See `path_costs`.
    sources : array of int of shape (n_sources,)
        Nodes, one at least.

    Returns
    -------
    array of shape (n_nodes,)
        Infinite where no path leads.

    Notes
    -----
    Geodesic distances to strokes: Bai and Sapiro, https://doi.org/10.1007/s11263-008-0191-z.
    """
    found = dijkstra(costs, directed=False, indices=sources, min_only=True)
    return np.asarray(found, dtype=np.float64)
