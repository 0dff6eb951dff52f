"""Clustering measures: objectives, scatter, entropy and group fairness."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, rel_entr

from napari_saf.arrays import Array, Float64s, Int64s, as_array, as_labels, check_kind
from napari_saf.device import torch
from napari_saf.errors import InvalidInput
from napari_saf.graph import AbstractGraph
from napari_saf.points import weighted_medoid

_MAX_ENTRIES = 2**26


def kmeans_objective(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the k-means objective: the sum of squared distances of nodes to their label mean.

    Parameters
    ----------
    features : array of shape (n_nodes, n_features)
        Finite numbers.
    labels : array of int of shape (n_nodes,)
        Nodes with label 0 are ignored.

    Raises
    ------
    InvalidInput
        If shapes disagree, features are not finite, or labels are negative or not integers.

    Examples
    --------
    >>> saf.metrics.kmeans_objective([[0], [2], [4], [6]], [1, 1, 2, 2])
    4.0
    """
    members = _members(features, labels)
    return float(sum(np.square(values - values.mean(axis=0)).sum() for values in members))


def kmedian_objective(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the k-medoids objective: the sum of distances of nodes to their label medoid.

    `features`, `labels` and errors as in `kmeans_objective`.

    Examples
    --------
    >>> saf.metrics.kmedian_objective([[0], [1], [5]], [1, 1, 1])  # the medoid is 1
    5.0
    """
    members = _members(features, labels)
    return float(sum(weighted_medoid(values, np.ones(len(values)))[1] for values in members))


def _doubles(values: ArrayLike, name: str) -> Float64s:
    array = as_array(values, name)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name}: expected real numbers, got {array.dtype}")
    return array.astype(np.float64, copy=False)


def _members(features: ArrayLike, labels: ArrayLike) -> list[Float64s]:
    array, owner = _doubles(features, "features"), as_labels(labels, "labels")
    if array.ndim != 2 or not np.isfinite(array).all():
        raise InvalidInput("features: expected finite numbers of shape (n_nodes, n_features)")
    if owner.shape != (len(array),):
        raise InvalidInput(f"labels: expected shape ({len(array)},), got {owner.shape}")
    return [array[owner == label] for label in np.unique(owner[owner > 0])]


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
        0 (no link is cut) to the number of labels. Shi and Malik,
        https://doi.org/10.1109/34.868688.

    Examples
    --------
    >>> matrix = np.kron(np.eye(2), np.ones((3, 3)))  # two triangles without a link
    >>> saf.metrics.ncut_objective(saf.AffinityGraph(matrix), [1, 1, 1, 2, 2, 2])
    0.0
    """
    check_kind(graph, AbstractGraph, "graph", "a GridGraph or an AffinityGraph")
    owner = as_labels(labels, "labels")
    if owner.shape != (graph.n_nodes,):
        raise InvalidInput(f"labels: expected shape ({graph.n_nodes},), got {owner.shape}")
    indicators = (owner[:, None] == np.unique(owner[owner > 0])).astype(np.float64)
    field = torch.from_numpy(np.concatenate([indicators, np.ones((len(owner), 1))], axis=1))
    sums, scratch = torch.empty_like(field), torch.empty_like(field)
    graph.neighbour_sum(field.device, field.dtype)(field, sums, scratch)
    links = (indicators * sums.numpy()[:, :-1]).sum(axis=0)
    degrees = indicators.T @ sums.numpy()[:, -1]
    return float((1 - np.divide(links, degrees, out=np.ones_like(links), where=degrees > 0)).sum())


def class_separability(features: ArrayLike, labels: ArrayLike) -> float:
    """Return the ratio of the scatter between labels to the scatter within them.

    Parameters
    ----------
    features : array of shape (..., n_features)
        Finite numbers.
    labels : array of int of shape (...)
        Label of each node or pixel; 0 is ignored.

    Returns
    -------
    float
        >= 0, larger is better; 0 if all labels have the same mean, infinite if features are
        constant within each label but differ between labels. Increases with the number of labels,
        so compare it for equal numbers.

    Raises
    ------
    InvalidInput
        As in `kmeans_objective`, and if all labels are 0.

    Notes
    -----
    tr S_B / tr S_W with S_W = sum_j sum_(i in j) (f_i - m_j) (f_i - m_j)' and
    S_B = sum_j n_j (m_j - m) (m_j - m)', m_j the mean of label j, m that of all. Fukunaga,
    "Introduction to statistical pattern recognition", 2nd ed. (1990), section 10.2, criterion J4,
    https://doi.org/10.1016/C2009-0-27872-X.

    Examples
    --------
    >>> saf.metrics.class_separability([[0], [2], [4], [6]], [1, 1, 2, 2])
    4.0
    """
    array, owner = _labelled(features, labels)
    sizes, means, within = _scatters(array, compact_labels(owner))
    present = sizes > 0
    centre = sizes @ means / sizes.sum()
    between = float(sizes[present] @ np.square(means[present] - centre).sum(axis=1))
    return _ratio(between, float(within.sum()))


def pairwise_separability(features: ArrayLike, labels: ArrayLike) -> Float64s:
    """Return the class separability (n_labels, n_labels) of each pair of labels.

    `features`, `labels` and errors as in `class_separability`; InvalidInput also if a label is
    above 2**13. Entry (j - 1, k - 1) is n_j n_k / (n_j + n_k) |m_j - m_k|^2 over the sum of the
    scatters within labels j and k: infinite if features are constant within both, NaN on the
    diagonal and for labels without nodes.

    Examples
    --------
    >>> saf.metrics.pairwise_separability([[0], [2], [4], [6]], [1, 1, 2, 2])
    array([[nan,  4.],
           [ 4., nan]])
    """
    array, owner = _labelled(features, labels)
    _check_table(int(owner.max()) + 1, int(owner.max()) + 1)
    sizes, means, within = _scatters(array, owner)
    separability = np.full((len(sizes), len(sizes)), np.nan)
    for j, k in itertools.combinations(np.flatnonzero(sizes), 2):
        weight = sizes[j] * sizes[k] / (sizes[j] + sizes[k])
        between = weight * float(np.square(means[j] - means[k]).sum())
        separability[j, k] = separability[k, j] = _ratio(between, float(within[j] + within[k]))
    return separability


def _ratio(between: float, within: float) -> float:
    if within == 0:
        return 0.0 if between == 0 else float("inf")
    return between / within


def _labelled(features: ArrayLike, labels: ArrayLike) -> tuple[Float64s, Int64s]:
    """Return features and zero-based labels of the labelled nodes."""
    owner = as_labels(labels, "labels")
    array = _doubles(features, "features")
    if array.shape[:-1] != owner.shape or array.ndim < 2:
        raise InvalidInput(f"features: expected shape {(*owner.shape, 'n')}, got {array.shape}")
    array, owner = array[owner > 0], owner[owner > 0].astype(np.int64) - 1
    if not owner.size:
        raise InvalidInput("labels: expected at least one labelled node, all are 0")
    if not np.isfinite(array).all():
        raise InvalidInput("features: expected finite numbers")
    return array, owner


def _scatters(array: Float64s, owner: Int64s) -> tuple[Float64s, Float64s, Float64s]:
    """Return size, mean feature and scatter of each label from 0; 0 for empty labels."""
    sizes = np.bincount(owner).astype(np.float64)
    centre = array.mean(axis=0)
    sums = np.stack([np.bincount(owner, weights=f) for f in (array - centre).T], axis=1)
    means = np.where(sizes[:, None] > 0, centre + sums / sizes.clip(1)[:, None], 0.0)
    squares = np.square(array - means[owner]).sum(axis=1)
    return sizes, means, np.asarray(np.bincount(owner, weights=squares))


def mean_entropy(assignment: ArrayLike) -> float:
    """Return the mean entropy of the rows of an assignment.

    Parameters
    ----------
    assignment : array of shape (n_nodes, n_labels)
        Numbers >= 0, rows sum to 1.

    Returns
    -------
    float
        In nats, from 0 (every node has one label) to log n_labels.

    Examples
    --------
    >>> saf.metrics.mean_entropy([[1, 0], [0, 1]])
    0.0
    >>> undecided = np.full((5, 4), 1 / 4)
    >>> bool(np.isclose(saf.metrics.mean_entropy(undecided), np.log(4)))
    True
    """
    array = _doubles(assignment, "assignment")
    if array.ndim != 2 or array.size == 0:
        raise InvalidInput(f"assignment: expected shape (n_nodes, n_labels), got {array.shape}")
    if not (array >= 0).all() or not (np.abs(array.sum(axis=1) - 1) < 1e-3).all():
        raise InvalidInput("assignment: expected rows of numbers >= 0 that sum to 1")
    return float(entr(array).sum(axis=1).mean())


def group_shares(labels: ArrayLike, groups: ArrayLike) -> Float64s:
    """Return the share of each group in each label.

    Parameters
    ----------
    labels, groups : array of int of the same shape
        0, 1, 2, ...; nodes with label 0 or group 0 are ignored.

    Returns
    -------
    array of shape (largest label, largest group)
        Rows sum to 1; NaN in the row of a label without nodes.

    Raises
    ------
    InvalidInput
        If shapes differ, numbers are negative, not integers, or so large that the table would have
        more than 2**26 entries, or all nodes are ignored.

    Examples
    --------
    >>> saf.metrics.group_shares([1, 1, 1, 1, 2, 2], [1, 1, 1, 2, 1, 2])
    array([[0.75, 0.25],
           [0.5 , 0.5 ]])
    """
    counts = _contingency(*_grouped(labels, groups))
    with np.errstate(invalid="ignore"):
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def balance(labels: ArrayLike, groups: ArrayLike) -> float:
    """Return the balance: the least ratio of two groups within a label, min_ijk N_ik / N_jk.

    `labels`, `groups` and errors as in `group_shares`; empty groups are ignored. From 0 (a label
    lacks a group) to 1 (equal groups in every label); the highest value depends on the data.
    Chierichetti, Kumar, Lattanzi and Vassilvitskii, "Fair clustering through fairlets", NeurIPS
    2017, https://arxiv.org/abs/1802.05733.

    Examples
    --------
    >>> saf.metrics.balance([1, 1, 1, 2, 2, 2], groups=[1, 1, 2, 1, 2, 2])
    0.5
    """
    counts = _used_counts(labels, groups)
    return float((counts.min(axis=1) / counts.max(axis=1)).min())


def fairness_error(
    labels: ArrayLike,
    groups: ArrayLike,
    proportions: ArrayLike | None = None,
    *,
    reduction: Literal["sum", "mean"] = "sum",
) -> float:
    """Return the divergence of the group proportions within labels from a target.

    Parameters
    ----------
    labels, groups : array of int of the same shape
        As in `group_shares`.
    proportions : array of shape (n_groups,), optional
        Target share of each non-empty group, summing to 1; None: its share of all nodes.
    reduction : {"sum", "mean"}
        Sum over labels, as in the papers, or mean, comparable across numbers of labels.

    Returns
    -------
    float
        sum_k KL(mu || P_k) in nats, >= 0; infinite if a label lacks a target group.
        Ziko, Yuan, Granger and Ben Ayed, https://arxiv.org/abs/1906.08207.

    Raises
    ------
    InvalidInput
        As in `group_shares`, and if proportions do not fit the groups.

    Examples
    --------
    >>> saf.metrics.fairness_error([1, 1, 2, 2], [1, 2, 1, 2])  # both groups in both labels
    0.0
    >>> saf.metrics.fairness_error([1, 1, 2, 2], [1, 1, 2, 2])  # each label lacks a group
    inf
    """
    counts = _used_counts(labels, groups)
    target = counts.sum(axis=0) / counts.sum()
    if proportions is not None:
        target = _doubles(proportions, "proportions")
        adds_up = abs(target.sum() - 1) <= 1e-6 and (target >= 0).all()
        if target.shape != counts.shape[1:] or not adds_up:
            raise InvalidInput(
                f"proportions: expected {counts.shape[1]} numbers >= 0 that sum to 1, got "
                f"{np.asarray(proportions).tolist()}"
            )
    if reduction not in ("sum", "mean"):
        raise InvalidInput(f"reduction: expected sum or mean, got {reduction!r}")
    errors = rel_entr(target, counts / counts.sum(axis=1, keepdims=True)).sum(axis=1)
    return float(errors.sum() if reduction == "sum" else errors.mean())


def _used_counts(labels: ArrayLike, groups: ArrayLike) -> Float64s:
    """Return the contingency table of labels and groups without empty rows or columns."""
    owner, group = _grouped(labels, groups)
    counts = _contingency(compact_labels(owner), compact_labels(group))
    return np.asarray(counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0])


def _grouped(labels: ArrayLike, groups: ArrayLike) -> tuple[Int64s, Int64s]:
    """Return zero-based label and group of the nodes that have both."""
    owner, group = as_labels(labels, "labels").ravel(), as_labels(groups, "groups").ravel()
    if np.shape(labels) != np.shape(groups):
        raise InvalidInput(f"groups: expected shape {np.shape(labels)}, got {np.shape(groups)}")
    has_both = (owner > 0) & (group > 0)
    if not has_both.any():
        raise InvalidInput("labels and groups: expected at least one node with both, got none")
    return owner[has_both].astype(np.int64) - 1, group[has_both].astype(np.int64) - 1


def _check_table(n_rows: int, n_columns: int) -> None:
    if n_rows * n_columns > _MAX_ENTRIES:
        raise InvalidInput(
            f"labels: expected smaller numbers, a table of {n_rows} x {n_columns} is too large; "
            "renumber labels without gaps"
        )


def _contingency(rows: Int64s, columns: Int64s) -> Float64s:
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    _check_table(*shape)
    counts = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1])
    return counts.reshape(shape).astype(np.float64)


def compact_labels(values: Array) -> Int64s:
    """Return flat labels >= 0, renumbered if the largest exceeds the number of entries."""
    flat = values.ravel()
    if flat.max() > flat.size:
        flat = np.unique(flat, return_inverse=True)[1]
    return flat.astype(np.int64)
