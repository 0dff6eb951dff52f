"""Arrays of numbers from small files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import FormatError
from napari_saf.io._image import read_image

__all__ = ["read_array"]


def read_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an array of numbers from ``.npy`` or ``.csv`` (comma separated, no header).

    A mark of the order of bytes, as Excel writes it, does not matter.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".npy", ".csv"):
        raise FormatError(f"{file}: expected a .npy or .csv file")
    return read_image(file).array if suffix == ".npy" else _read_csv(file)


def _read_csv(file: Path) -> NDArray[np.float64]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
        rows = [[float(cell) for cell in line.split(",")] for line in lines if line.strip()]
        array = np.array(rows, dtype=float)
    except OSError as error:
        raise FormatError(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise FormatError(f"{file}: not a table of numbers: {error}") from error
    if array.size == 0:
        raise FormatError(f"{file}: expected numbers, the file is empty")
    return array
