"""Objectives of hard clusterings."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput
from napari_saf.geometry import weighted_medoid
from napari_saf.graph import AbstractGraph
from napari_saf.metrics._numbers import check_labels

__all__ = ["kmeans_objective", "kmedian_objective", "ncut_objective"]


def kmeans_objective(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the sum of squared distances of the nodes to the mean of their label.

    Parameters
    ----------
    features : array of shape (n_nodes, n_features)
        Finite numbers.
    labels : array of int of shape (n_nodes,)
        Nodes with label 0 are left out.

    Raises
    ------
    InvalidInput
        If shapes disagree, features are not finite, or labels are negative or not whole.
    """
    parts = _parts(features, labels)
    return float(sum(np.square(part - part.mean(axis=0)).sum() for part in parts))


def kmedian_objective(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the sum of distances of the nodes to the best node of their label.

    Parameters
    ----------
    features, labels
        As in `kmeans_objective`.

    Raises
    ------
    InvalidInput
        As `kmeans_objective`.
    """
    parts = _parts(features, labels)
    return float(sum(weighted_medoid(part, np.ones(len(part)))[1] for part in parts))


def ncut_objective(graph: AbstractGraph, labels: ArrayLike) -> float:
    """Return the normalised cut: the sum over labels of 1 - S'W S / d'S.

    Parameters
    ----------
    graph : AbstractGraph
        W is the symmetric part of its weights without self weights, d their row sums.
    labels : array of int of shape (n_nodes,)
        Nodes with label 0 belong to no label.

    Returns
    -------
    float
        0 (no link is cut) to the number of labels.

    Raises
    ------
    InvalidInput
        If the shape does not fit the graph, or labels are negative or not whole.

    Notes
    -----
    Shi and Malik, https://doi.org/10.1109/34.868688.
    """
    owner = _check_labels(labels, graph.n_nodes)
    used = np.unique(owner[owner > 0])
    members = (owner[:, None] == used).astype(np.float64)
    values = np.concatenate([members, np.ones((len(owner), 1))], axis=1)
    field = torch.from_numpy(values)
    out, scratch = torch.empty_like(field), torch.empty_like(field)
    graph.neighbour_sum(field.device, field.dtype)(field, out, scratch)
    sums = out.numpy()
    links = (members * sums[:, :-1]).sum(axis=0)
    degrees = members.T @ sums[:, -1]
    return float((1 - np.divide(links, degrees, out=np.ones_like(links), where=degrees > 0)).sum())


def _parts(features: ArrayLike, labels: ArrayLike) -> list[NDArray[np.float64]]:
    array = np.asarray(features, dtype=np.float64)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise InvalidInput("features: expected finite numbers of shape (n_nodes, n_features)")
    owner = _check_labels(labels, len(array))
    return [array[owner == label] for label in np.unique(owner[owner > 0])]


def _check_labels(labels: ArrayLike, n_nodes: int) -> NDArray[np.integer]:
    owner = check_labels(labels, "labels")
    if owner.shape != (n_nodes,):
        raise InvalidInput(f"labels: expected shape ({n_nodes},), got {owner.shape}")
    return owner
