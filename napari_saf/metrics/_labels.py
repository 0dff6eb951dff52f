"""Checks of label numbers, and label numbers without gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput

_MAX_ENTRIES = 2**26


def check_labels(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return whole numbers from 0 on, of the type they have; InvalidInput if they are none."""
    array = np.asarray(values)
    largest = np.iinfo(np.int64).max
    if array.dtype.kind not in "biu" or (
        array.size and not 0 <= array.min() <= array.max() <= largest
    ):
        raise InvalidInput(f"{name}: expected whole numbers 0, 1, 2, ... to {largest}")
    return array


def check_table(n_rows: int, n_columns: int) -> None:
    """Raise InvalidInput if a table by such large numbers would fill the memory."""
    if n_rows * n_columns > _MAX_ENTRIES:
        raise InvalidInput(
            f"labels: expected smaller numbers, a table of {n_rows} x {n_columns} is too large; "
            "number labels without gaps first"
        )


def contingency(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how often each row meets each column."""
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    check_table(*shape)
    counts = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1])
    return counts.reshape(shape).astype(np.float64)


def compact_labels(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return flat labels >= 0, renumbered where one is larger than how many entries there are."""
    flat = values.ravel()
    if flat.max() > flat.size:
        flat = np.unique(flat, return_inverse=True)[1]
    return flat.astype(np.int64)
