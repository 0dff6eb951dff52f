"""Numbers and arrays as they are needed, from what they were given as."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["as_whole", "own_floats"]


def as_whole(value: object) -> int | None:
    """Return a whole number, be it written as a float; None for anything else."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return None
    is_whole = isinstance(value, (int, np.integer)) or float(value).is_integer()
    return int(value) if is_whole else None


def own_floats(values: ArrayLike) -> NDArray[np.floating[Any]]:
    """Return numbers as float64 if that is what they are, else as float32.

    In one block of writable memory in the byte order of the machine: the array itself if it is
    like that, else a copy.
    """
    array = np.asarray(values)
    is_double = array.dtype.kind == "f" and array.dtype.itemsize == 8
    return np.require(array, np.float64 if is_double else np.float32, ["C", "W"])
