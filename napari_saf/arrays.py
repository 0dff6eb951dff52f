"""Arrays as torch takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["own_floats"]


def own_floats(values: ArrayLike) -> NDArray[np.floating[Any]]:
    """Return numbers as float64 if that is what they are, else as float32.

    In one block of writable memory in the byte order of the machine: the array itself if it is
    like that, else a copy.
    """
    array = np.asarray(values)
    is_double = array.dtype.kind == "f" and array.dtype.itemsize == 8
    return np.require(array, np.float64 if is_double else np.float32, ["C", "W"])
