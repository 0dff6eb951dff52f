"""Who is a neighbour in a Laplacian term, and how wide the kernel in feature space is."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy import sparse

from napari_saf.graph import (
    Averager,
    GraphUnion,
    GridGraph,
    SparseProduct,
    nearest_neighbours,
    symmetric_part,
)
from napari_saf.problem import Problem

__all__ = ["Laplacian", "Neighbourhood"]

Laplacian = Literal["contrast", "graph", "features"]

_SAMPLE = 2000


class Neighbourhood:
    """The weights W of a Laplacian term.

    Parameters
    ----------
    problem : Problem
    laplacian : {"contrast", "graph", "features"}
        See `SLK`.
    n_neighbors : int
        For "features", and for the estimate of sigma2.
    sigma2 : float or None
        None: the mean squared distance to the `n_neighbors` nearest; among 2000 nodes drawn at
        random, where the neighbours of all are not needed otherwise.
    seed : int
        Draws them.

    Attributes
    ----------
    sigma2 : float
        > 0.
    """

    def __init__(
        self,
        problem: Problem,
        laplacian: Laplacian = "contrast",
        n_neighbors: int = 5,
        sigma2: float | None = None,
        seed: int = 0,
    ) -> None:
        graph, features = problem.graph, problem.features
        self._graph = graph
        self._weights: sparse.csr_array | None = None
        if laplacian == "features":
            found = nearest_neighbours(features, min(n_neighbors, len(features) - 1))
            self._weights = symmetric_part(found.indicator())
            self.sigma2 = sigma2 or _mean(found.squared_distances, features)
            return
        if sigma2 is None:
            rng = np.random.default_rng(seed)
            sample = features
            if len(features) > _SAMPLE:
                sample = features[rng.choice(len(features), _SAMPLE, replace=False)]
            found = nearest_neighbours(sample, min(n_neighbors, len(sample) - 1))
            sigma2 = _mean(found.squared_distances, features)
        self.sigma2 = sigma2
        if laplacian == "contrast" and isinstance(graph, GridGraph | GraphUnion):
            self._weights = graph.contrast_weights(features, self.sigma2)

    def operator(self, like: torch.Tensor) -> Averager:
        """Return the product with W for the device and type of a tensor."""
        if self._weights is None:
            return self._graph.neighbour_sum(like.device, like.dtype)
        return SparseProduct(self._weights, like.device, like.dtype)


def _mean(squares: np.ndarray, features: np.ndarray) -> float:
    """Return the mean, or where all neighbours coincide a small share of the variance."""
    mean = float(squares.mean())
    return mean if mean > 0 else max(1e-4 * float(features.var(axis=0).sum()), 1e-12)
