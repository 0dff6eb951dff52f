"""The probability simplex in log coordinates.

A point W of the assignment manifold, one distribution a row, is kept as V with
W = softmax(V) by rows; V is log W up to a constant a row. Then every map of the manifold is
an addition: exp_W(u), eq. (2.31) of Zisler, Zern, Petra and Schnörr
(https://doi.org/10.1137/19M1298639), is softmax(V + u), and the geometric mean with weights A,
eq. (2.33), is softmax(A V).

Fields (n_nodes, n_columns) are large: they are gone through block by block of rows, each of which
stays in the caches of a processor, and their memory is used again where columns are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

FLOOR = math.log(1e-10)
"""Lowest log coordinate kept, relative to the largest of its row."""

_LEAST_EXPONENT = -60.0
"""Below this exponentials in float32 become denormal, and a processor ten times slower."""
_SLOW_WIDTHS = range(12, 64)
"""Numbers of columns for which torch finds the maxima of rows one by one."""
_BLOCK = 2**20
"""Entries of a block of rows."""
_ROWS = 2**13


def row_blocks(field: torch.Tensor) -> Iterator[slice]:
    """Yield the blocks of rows to go through a field by, all in one on a graphics card."""
    step = len(field)
    if field.device.type == "cpu":
        step = max(1, _BLOCK // max(1, field.shape[1]))
    for start in range(0, len(field), max(1, step)):
        yield slice(start, min(start + step, len(field)))


def cross_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return left' right of two fields as float64 in main memory, summed up block by block."""
    if left.shape[1] > right.shape[1]:
        # Twice as fast this way round with 16 and 3 columns.
        return cross_product(right, left).T
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)
    for rows in row_blocks(right):
        total += (left[rows].T @ right[rows]).cpu()
    return total


def with_columns(field: torch.Tensor, n_columns: int) -> torch.Tensor:
    """Return the memory of a field as one of another number of columns, of undefined values.

    There may be as many columns as the field had when it was new.
    """
    return field.as_strided((len(field), n_columns), (n_columns, 1))


def take_columns(field: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the columns of the given indices, in the memory of the field, which is overwritten."""
    taken = with_columns(field, len(kept))
    for start in range(0, len(field), _ROWS):
        # What is written lies before all that is still to be read.
        rows = slice(start, start + _ROWS)
        taken[rows] = field[rows].index_select(1, kept)
    return taken


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


def normalize_(v: torch.Tensor) -> torch.Tensor:
    """Shift each row of `v` to a maximum of 0 and raise what lies below `FLOOR`, in place.

    The renormalisation of the papers, written for log coordinates.
    """
    for rows in row_blocks(v):
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


def softmax(v: torch.Tensor, out: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    """Write the softmax of each row of `v` into `out`, for row maxima within about 40 of 0.

    `scale`, of shape (n_nodes,), receives 1 / sum exp v of each row. On the CPU torch's own
    softmax over a short last axis takes several times as long.
    """
    if v.device.type != "cpu" and scale is None:
        return torch.softmax(v, dim=1, out=out)
    ones = out.new_ones(out.shape[1])
    for rows in row_blocks(v):
        block = torch.exp(v[rows], out=out[rows])
        total = torch.mv(block, ones, out=None if scale is None else scale[rows])
        block.mul_(total.reciprocal_()[:, None])
    return out


def shifted_softmax(v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write the softmax of each row of `v` into `out`, whatever the size of its entries."""
    if v.device.type != "cpu":
        return torch.softmax(v, dim=1, out=out)
    for rows in row_blocks(v):
        block = torch.sub(v[rows], row_maxima(v[rows]), out=out[rows])
        softmax(block.clamp_(min=_LEAST_EXPONENT), block)
    return out


def entropy(assignment: torch.Tensor, v: torch.Tensor, highest: torch.Tensor) -> float:
    """Return the mean over the rows of -sum w log w, in nats.

    Parameters
    ----------
    assignment : Tensor of shape (n_nodes, n_labels)
        softmax(v).
    v : Tensor of shape (n_nodes, n_labels)
        Rows have a maximum of 0.
    highest : Tensor of shape (n_nodes,)
        The entry of `assignment` where that maximum is.

    Notes
    -----
    A row's entropy is log Z - sum w v with Z = sum exp v = 1 / w_highest: two sums of terms that
    are not negative, without a logarithm of a small number.
    """
    total = 0.0
    for rows in row_blocks(v):
        total -= float(highest[rows].log().sum())
        total -= float(torch.dot(assignment[rows].view(-1), v[rows].view(-1)))
    return total / len(v)
