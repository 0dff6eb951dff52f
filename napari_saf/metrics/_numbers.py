"""Labels as small numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["small_numbers"]


def small_numbers(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return whole numbers >= 0 in a row, renamed where one is larger than how many there are."""
    flat = values.ravel()
    if flat.max() > flat.size:
        flat = np.unique(flat, return_inverse=True)[1]
    return flat.astype(np.int64)
