"""How evenly labels are spread over groups."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from napari_saf.errors import InvalidInput
from napari_saf.metrics._labels import check_labels, compact_labels, contingency


def group_shares(labels: ArrayLike, groups: ArrayLike) -> NDArray[np.float64]:
    """Return the share of each group in each label.

    Parameters
    ----------
    labels, groups : array of int of the same shape
        0, 1, 2, ...; nodes with label 0 or group 0 are left out.

    Returns
    -------
    array of shape (largest label, largest group)
        Rows sum to 1; NaN in the row of a label without nodes.

    Raises
    ------
    InvalidInput
        If shapes differ, numbers are negative, not whole, or so large that the table would have
        more than 2**26 entries, or no node is left.
    """
    counts = contingency(*_members(labels, groups))
    with np.errstate(invalid="ignore"):
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def balance(labels: ArrayLike, groups: ArrayLike) -> float:
    """Return the least ratio of two groups within a label.

    Parameters
    ----------
    labels, groups : array of int of the same shape
        As in `group_shares`, errors too.

    Returns
    -------
    float
        From 0 (a label lacks a group) to 1 (in every label, all groups are equally large). The
        groups of the data set the highest value that can be reached.

    Notes
    -----
    min over labels k and groups i, j of N_ik / N_jk: Chierichetti, Kumar, Lattanzi and
    Vassilvitskii, "Fair clustering through fairlets", NeurIPS 2017,
    https://arxiv.org/abs/1802.05733. Groups that no node has do not count.
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
    """Return the divergence of the group shares within labels from those wanted.

    Parameters
    ----------
    labels, groups : array of int of the same shape
        As in `group_shares`.
    proportions : array of shape (n_groups,), optional
        Share wanted of each group that occurs, summing to 1; None: its share of all nodes.
    reduction : {"sum", "mean"}
        Sum over the labels, as in the papers, or mean, comparable between numbers of labels.

    Returns
    -------
    float
        sum_k KL(mu || P_k) in nats, >= 0; infinite if a label lacks a group that is wanted.

    Raises
    ------
    InvalidInput
        As `group_shares`, and if proportions do not fit the groups.

    Notes
    -----
    Ziko, Yuan, Granger and Ben Ayed, https://arxiv.org/abs/1906.08207.
    """
    counts = _used_counts(labels, groups)
    wanted = counts.sum(axis=0) / counts.sum()
    if proportions is not None:
        wanted = np.asarray(proportions, dtype=np.float64)
        adds_up = abs(wanted.sum() - 1) <= 1e-6 and (wanted >= 0).all()
        if wanted.shape != counts.shape[1:] or not adds_up:
            raise InvalidInput(
                f"proportions: expected {counts.shape[1]} numbers >= 0 that sum to 1, got "
                f"{np.asarray(proportions).tolist()}"
            )
    if reduction not in ("sum", "mean"):
        raise InvalidInput(f"reduction: expected sum or mean, got {reduction!r}")
    errors = rel_entr(wanted, counts / counts.sum(axis=1, keepdims=True)).sum(axis=1)
    return float(errors.sum() if reduction == "sum" else errors.mean())


def _used_counts(labels: ArrayLike, groups: ArrayLike) -> NDArray[np.float64]:
    """Return how many nodes of each group each label has, for those that occur."""
    owner, group = _members(labels, groups)
    counts = contingency(compact_labels(owner), compact_labels(group))
    return np.asarray(counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0])


def _members(labels: ArrayLike, groups: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return label and group, from 0, of the nodes that have both."""
    owner, group = check_labels(labels, "labels").ravel(), check_labels(groups, "groups").ravel()
    if np.shape(labels) != np.shape(groups):
        raise InvalidInput(f"groups: expected shape {np.shape(labels)}, got {np.shape(groups)}")
    kept = (owner > 0) & (group > 0)
    if not kept.any():
        raise InvalidInput("labels and groups: expected a node that has both, got none")
    return owner[kept].astype(np.int64) - 1, group[kept].astype(np.int64) - 1
