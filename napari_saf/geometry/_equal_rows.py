"""Rows of a table that occur more than once."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["EqualRows", "equal_rows"]

_LONGEST = 128
"""Rows of a group: longer sums of float32 would lose digits."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EqualRows:
    """Groups of equal rows; of rows that occur often there are several.

    Attributes
    ----------
    order : Tensor of int32 of shape (n_rows,)
        The rows, group by group.
    starts : Tensor of int32 of shape (n_groups,)
        Where in `order` each group begins.
    group : Tensor of int32 of shape (n_rows,)
        The group of each row.
    """

    order: torch.Tensor
    starts: torch.Tensor
    group: torch.Tensor

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.starts)

    @property
    def first(self) -> torch.Tensor:
        """A row of each group."""
        return self.order[self.starts]

    def sums(self, values: torch.Tensor, groups: slice) -> torch.Tensor:
        """Return the sums of values (n_rows, n_columns) over some consecutive groups."""
        starts, end = self.starts[groups], len(self.order)
        if groups.stop < self.n_groups:
            end = int(self.starts[groups.stop])
        begin = int(starts[0])
        order = self.order[begin:end]
        bags = torch.nn.functional.embedding_bag(order, values, starts - begin, mode="sum")
        return torch.as_tensor(bags)


def equal_rows(table: torch.Tensor, at_most: int) -> EqualRows | None:
    """Return the groups of equal rows of a table in main memory.

    None where there are more than `at_most`, those counted that hold equal rows.
    """
    keys = _keys(table.numpy())
    keys_in_order, order = torch.sort(torch.from_numpy(keys), stable=True)
    if (keys_in_order[1:] != keys_in_order[:-1]).sum() >= at_most:
        return None
    sorted_rows = table[order]
    begins = torch.ones(len(table), dtype=torch.bool)
    begins[1:] = (sorted_rows[1:] != sorted_rows[:-1]).any(dim=1)
    first = begins.nonzero()[:, 0]
    within = torch.arange(len(table)) - first[begins.cumsum(0) - 1]
    begins |= within % _LONGEST == 0
    starts = begins.nonzero()[:, 0]
    if len(starts) > at_most:
        return None
    group = torch.empty(len(table), dtype=torch.int32)
    group[order] = (begins.cumsum(0) - 1).int()
    return EqualRows(order.int(), starts.int(), group)


def _keys(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return a number for each row, the same for equal ones; hardly ever for others."""
    bits = rows.view(np.uint32 if rows.itemsize == 4 else np.uint64)
    keys = np.zeros(len(rows), dtype=np.uint64)
    for column in bits.T:
        keys ^= column
        keys *= _FACTOR
        keys ^= keys >> np.uint64(29)
    return (keys >> np.uint64(1)).view(np.int64)
