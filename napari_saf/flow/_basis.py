"""The factor Phi of a low-rank affinity, whose rows nodes of equal features share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.flow._simplex import cross_product, row_blocks

_LONGEST = 128
"""Rows of a group: longer sums of float32 would lose digits."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Basis:
    """A matrix Phi (n_nodes, rank), for consecutive parts of the nodes.

    Parameters
    ----------
    parts : sequence of (rows, groups)
        Rows of a part: a Tensor of shape (n_part_nodes, rank) where `groups` is None, otherwise
        of shape (n_groups, rank), one for all nodes of a group.

    Attributes
    ----------
    shape : tuple of int
        n_nodes and rank.
    """

    def __init__(self, parts: Sequence[tuple[torch.Tensor, EqualRows | None]]) -> None:
        self._parts, end = [], 0
        for rows, groups in parts:
            begin, end = end, end + len(rows if groups is None else groups.group)
            self._parts.append((slice(begin, end), rows, groups))
        self.shape = (end, parts[0][0].shape[1])

    @property
    def n_numbers(self) -> int:
        """How many numbers are kept, those that say which rows nodes share included."""
        shared = [groups.group for _, _, groups in self._parts if groups is not None]
        return sum(rows.numel() for _, rows, _ in self._parts) + 2 * sum(map(len, shared))

    def overlap(self, assignment: torch.Tensor) -> torch.Tensor:
        """Return Phi' W for W of shape (n_nodes, n_labels), float64 on the CPU."""
        total = torch.zeros(self.shape[1], assignment.shape[1], dtype=torch.float64)
        for nodes, rows, groups in self._parts:
            own = assignment[nodes]
            if groups is None:
                total += cross_product(rows, own)
                continue
            for some in row_blocks(rows):
                total += cross_product(rows[some], groups.sums(own, some))
        return total

    def plus(
        self, values: torch.Tensor, factor: torch.Tensor, out: torch.Tensor
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Write values + Phi factor into `out`; yield each block of rows once it is there."""
        for nodes, rows, groups in self._parts:
            given, target = values[nodes], out[nodes]
            product = None if groups is None else rows @ factor
            for some in row_blocks(rows if groups is None else given):
                block = target[some]
                if groups is None or product is None:
                    torch.addmm(given[some], rows[some], factor, out=block)
                else:
                    torch.index_select(product, 0, groups.group[some], out=block).add_(given[some])
                yield slice(nodes.start + some.start, nodes.start + some.stop), block


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EqualRows:
    """Groups of equal rows of a table; of rows that occur often there are several.

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
    def first(self) -> torch.Tensor:
        """A row of each group."""
        return self.order[self.starts]

    def sums(self, values: torch.Tensor, groups: slice) -> torch.Tensor:
        """Return the sums of values (n_rows, n_columns) over some consecutive groups."""
        starts, end = self.starts[groups], len(self.order)
        if groups.stop < len(self.starts):
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
    """Return a hash of each row: the same for equal rows, hardly ever for others."""
    bits = rows.view(np.uint32 if rows.itemsize == 4 else np.uint64)
    keys = np.zeros(len(rows), dtype=np.uint64)
    for column in bits.T:
        keys ^= column
        keys *= _FACTOR
        keys ^= keys >> np.uint64(29)
    return (keys >> np.uint64(1)).view(np.int64)
