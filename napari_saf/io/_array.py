"""Arrays of numbers from small files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io._image import read_image
from napari_saf.io._untrusted import faults_named, read_at_most

__all__ = ["read_array"]

_MOST_BYTES = 2**25
"""65,535 prototypes of 20 features take half of it."""


def read_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an array of numbers from ``.npy`` or ``.csv`` (comma separated, no header).

    A mark of the order of bytes, as Excel writes it, does not matter.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it, such as a ``.csv`` of more than 32 MiB.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".npy", ".csv"):
        raise FormatError(f"{file}: expected a .npy or .csv file")
    return read_image(file).array if suffix == ".npy" else _read_csv(file)


def _read_csv(file: Path) -> NDArray[np.float64]:
    with faults_named(file, "a table of numbers"):
        text = read_at_most(file, _MOST_BYTES).decode("utf-8-sig")
        lines = (line for line in text.splitlines() if line.strip())
        array = np.array([[float(cell) for cell in line.split(",")] for line in lines], dtype=float)
        if array.size == 0:
            raise InvalidInput("expected numbers, the file is empty")
        return array
