"""Labels as small numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput

__all__ = ["check_labels", "check_table", "small_numbers"]

_MOST_ENTRIES = 2**26


def check_labels(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return whole numbers from 0 on, of the type they have.

    Raises
    ------
    InvalidInput
        If they are none, or too large for int64.
    """
    array = np.asarray(values)
    most = np.iinfo(np.int64).max
    if array.dtype.kind not in "biu" or (
        array.size and not 0 <= array.min() <= array.max() <= most
    ):
        raise InvalidInput(f"{name}: expected whole numbers 0, 1, 2, ... to {most}")
    return array


def check_table(n_rows: int, n_columns: int) -> None:
    """Refuse numbers so large that a table by them would fill the memory.

    Raises
    ------
    InvalidInput
        Saying what to do.
    """
    if n_rows * n_columns > _MOST_ENTRIES:
        raise InvalidInput(
            f"labels: expected smaller numbers, a table of {n_rows} x {n_columns} is too large; "
            "number labels without gaps first"
        )


def small_numbers(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return whole numbers >= 0 in a row, renamed where one is larger than how many there are."""
    flat = values.ravel()
    if flat.max() > flat.size:
        flat = np.unique(flat, return_inverse=True)[1]
    return flat.astype(np.int64)
