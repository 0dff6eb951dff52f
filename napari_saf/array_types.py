"""Names of the types of arrays, regions and masks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Mask = Bools | None
"""True for the pixels of an image that count; None: all of them."""
Region = tuple[slice, ...]
"""Slices of a part of an image, one per axis."""
