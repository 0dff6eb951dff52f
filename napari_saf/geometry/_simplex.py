"""The probability simplex in log coordinates.

A point W of the assignment manifold, one distribution a row, is kept as V with
W = softmax(V) by rows; V is log W up to a constant a row. Then every map of the manifold is
an addition: exp_W(u) is softmax(V + u), the geometric mean with weights A is softmax(A V).
"""

from __future__ import annotations

import math

import torch

from napari_saf.geometry._memory import row_blocks
from napari_saf.tick import Tick, go_on

__all__ = [
    "FLOOR",
    "entropy",
    "normalize_",
    "one_hot_",
    "row_maxima",
    "shifted_softmax",
    "softmax",
    "to_logarithm",
]

FLOOR = math.log(1e-10)
"""Lowest log coordinate kept, relative to the largest of its row."""

_LEAST_EXPONENT = -60.0
"""Below this exponentials in float32 become denormal, and a processor ten times slower."""

_SLOW_WIDTHS = range(12, 64)
"""Numbers of columns for which torch finds the maxima of rows one by one."""


def row_maxima(v: torch.Tensor) -> torch.Tensor:
    """Return the largest entry of each row, as a column.

    By halves where torch's own is slow: on a CPU with 30 columns it takes four times as long.
    """
    if v.device.type != "cpu" or v.shape[1] not in _SLOW_WIDTHS:
        return v.amax(dim=1, keepdim=True)
    while v.shape[1] > 1:
        half = (v.shape[1] + 1) // 2
        v = torch.maximum(v[:, :half], v[:, -half:])
    return v


def normalize_(v: torch.Tensor, tick: Tick = go_on) -> torch.Tensor:
    """Shift each row of `v` to a maximum of 0 and raise what lies below `FLOOR`, in place.

    The renormalisation of the papers, written for log coordinates. `tick` is called in between.
    """
    for rows in row_blocks(v):
        tick()
        v[rows].sub_(row_maxima(v[rows])).clamp_(min=FLOOR)
    return v


def to_logarithm(assignment: torch.Tensor) -> torch.Tensor:
    """Return log coordinates of an assignment (n_nodes, n_labels) with rows summing to 1."""
    return normalize_(assignment.clamp(min=math.exp(2 * FLOOR)).log_())


def one_hot_(v: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Set rows of `v` to vertices of the simplex, in place."""
    v[rows] = FLOOR
    v[rows, columns] = 0
    return v


def softmax(
    v: torch.Tensor,
    out: torch.Tensor,
    scale: torch.Tensor | None = None,
    tick: Tick = go_on,
) -> torch.Tensor:
    """Write the softmax of each row of `v` into `out`, for row maxima within about 40 of 0.

    `scale`, of shape (n_nodes,), receives 1 / sum exp v of each row. On the CPU torch's own
    softmax over a short last axis takes several times as long, and `tick` is called in between.
    """
    if v.device.type != "cpu" and scale is None:
        return torch.softmax(v, dim=1, out=out)
    ones = out.new_ones(out.shape[1])
    for rows in row_blocks(v):
        tick()
        block = torch.exp(v[rows], out=out[rows])
        total = torch.mv(block, ones, out=None if scale is None else scale[rows])
        block.mul_(total.reciprocal_()[:, None])
    return out


def shifted_softmax(v: torch.Tensor, out: torch.Tensor, tick: Tick = go_on) -> torch.Tensor:
    """Write the softmax of each row of `v` into `out`, whatever the size of its entries.

    `tick` is called in between.
    """
    if v.device.type != "cpu":
        return torch.softmax(v, dim=1, out=out)
    for rows in row_blocks(v):
        tick()
        block = torch.sub(v[rows], row_maxima(v[rows]), out=out[rows])
        softmax(block.clamp_(min=_LEAST_EXPONENT), block)
    return out


def entropy(
    assignment: torch.Tensor,
    v: torch.Tensor,
    highest: torch.Tensor,
    tick: Tick = go_on,
) -> float:
    """Return the mean over the rows of -sum w log w, in nats.

    Parameters
    ----------
    assignment : Tensor of shape (n_nodes, n_labels)
        softmax(v).
    v : Tensor of shape (n_nodes, n_labels)
        Rows have a maximum of 0.
    highest : Tensor of shape (n_nodes,)
        The entry of `assignment` where that maximum is.
    tick : callable
        Called in between.

    Notes
    -----
    A row's entropy is log Z - sum w v with Z = sum exp v = 1 / w_highest: two sums of terms that
    are not negative, without a logarithm of a small number.
    """
    total = 0.0
    for rows in row_blocks(v):
        tick()
        total -= float(highest[rows].log().sum())
        total -= float(torch.dot(assignment[rows].view(-1), v[rows].view(-1)))
    return total / len(v)
