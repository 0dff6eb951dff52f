"""The probability simplex in log coordinates.

A point W of the assignment manifold, one distribution a row, is kept as V with
W = softmax(V) by rows; V is log W up to a constant a row. Then every map of the manifold is
an addition: exp_W(u) is softmax(V + u), the geometric mean with weights A is softmax(A V).
"""

from __future__ import annotations

import math

import torch

__all__ = ["FLOOR", "entropy", "normalize_", "one_hot_", "to_logarithm"]

FLOOR = math.log(1e-10)
"""Lowest log coordinate kept, relative to the largest of its row."""


def normalize_(v: torch.Tensor) -> torch.Tensor:
    """Shift each row of `v` to a maximum of 0 and raise what lies below `FLOOR`, in place.

    The renormalisation of the papers, written for log coordinates.
    """
    return v.sub_(v.amax(dim=1, keepdim=True)).clamp_(min=FLOOR)


def to_logarithm(assignment: torch.Tensor) -> torch.Tensor:
    """Return log coordinates of an assignment (n_nodes, n_labels) with rows summing to 1."""
    return normalize_(assignment.clamp(min=math.exp(2 * FLOOR)).log_())


def one_hot_(v: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Set rows of `v` to vertices of the simplex, in place."""
    v[rows] = FLOOR
    v[rows, columns] = 0
    return v


def entropy(assignment: torch.Tensor, out: torch.Tensor | None = None) -> float:
    """Return the mean over the rows of -sum w log w, in nats."""
    return float(torch.special.entr(assignment, out=out).sum() / len(assignment))
