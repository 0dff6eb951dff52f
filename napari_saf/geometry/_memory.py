"""Memory of the large fields (n_nodes, n_columns)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from napari_saf.tick import Tick, go_on

__all__ = [
    "cross_product",
    "new_field",
    "released_later",
    "retire",
    "row_blocks",
    "take_columns",
    "with_columns",
]

_BLOCK = 2**20
"""Entries of a block of rows: what is computed of one stays in the caches, and in memory that
was used before; new memory takes longer than the computation."""
_ROWS = 2**13


def row_blocks(field: torch.Tensor) -> Iterator[slice]:
    """Yield the blocks of rows to go through a field by, all in one on a graphics card."""
    step = len(field)
    if field.device.type == "cpu":
        step = max(1, _BLOCK // max(1, field.shape[1]))
    for start in range(0, len(field), max(1, step)):
        yield slice(start, min(start + step, len(field)))


def cross_product(left: torch.Tensor, right: torch.Tensor, tick: Tick = go_on) -> torch.Tensor:
    """Return left' right of two fields as float64 in main memory, summed up block by block.

    `tick` is called in between.
    """
    if left.shape[1] > right.shape[1]:
        # Twice as fast this way round with 16 and 3 columns.
        return cross_product(right, left, tick).T
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)
    for rows in row_blocks(right):
        tick()
        total += (left[rows].T @ right[rows]).cpu()
    return total


def new_field(like: torch.Tensor, n_columns: int, tick: Tick = go_on) -> torch.Tensor:
    """Return a field of zeros with as many rows as another, of its kind.

    A system gives memory away at the first write to it, which may take longer than all that is
    then computed there: `tick` is called in between.
    """
    field = like.new_empty((len(like), n_columns))
    for rows in row_blocks(field):
        tick()
        field[rows].zero_()
    return field


def with_columns(field: torch.Tensor, n_columns: int) -> torch.Tensor:
    """Return the memory of a field as one of another number of columns, of no known values.

    There may be as many columns as the field had when it was new.
    """
    return field.as_strided((len(field), n_columns), (n_columns, 1))


def take_columns(field: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the columns of the given indices, in the memory of the field, which is lost."""
    taken = with_columns(field, len(kept))
    for start in range(0, len(field), _ROWS):
        # What is written lies before all that is still to be read.
        rows = slice(start, start + _ROWS)
        taken[rows] = field[rows].index_select(1, kept)
    return taken


class _Retired(threading.local):
    kept: list[object] | None = None


_RETIRED = _Retired()


def retire(owner: object) -> None:
    """Let go of what owns large fields; within `released_later`, at the end of that."""
    if _RETIRED.kept is not None:
        _RETIRED.kept.append(owner)


@contextmanager
def released_later() -> Iterator[None]:
    """Keep the memory of what this thread retires until the end of the context.

    A system takes 0.1 to 0.3 s to have a gigabyte back, which the result need not wait for.
    """
    before, _RETIRED.kept = _RETIRED.kept, []
    try:
        yield
    finally:
        _RETIRED.kept = before
