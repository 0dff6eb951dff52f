"""Memory of the large fields (n_nodes, n_columns)."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["new_field", "take_columns", "with_columns"]

_BLOCK = 2**21
"""Entries between two calls of `tick`."""
_ROWS = 2**13


def new_field(
    like: torch.Tensor, n_columns: int, tick: Callable[[], None] = lambda: None
) -> torch.Tensor:
    """Return a field of zeros with as many rows as another, of its kind.

    A system gives memory away at the first write to it, which takes longer than all that is
    then computed there, at worst 150 ms for a million rows of 16: `tick` is called in between.
    """
    field = like.new_empty((len(like), n_columns))
    flat = field.view(-1)
    for start in range(0, len(flat), _BLOCK):
        tick()
        flat[start : start + _BLOCK].zero_()
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
