"""An opened image file before its pixels are read, and the request for a part of a file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject

Sizes = dict[str, tuple[float, str]]
"""Pixel size and unit, by axis letter."""
MOST_PIECE = 2**28
"""Maximum bytes of a stored chunk, which is decoded as a whole for any part of it."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Opened:
    """An image file before its pixels are read.

    Attributes
    ----------
    axes : str
        A letter for each axis, ``c`` for the channels; "" if unknown.
    read : callable
        Returns all pixels.
    levels : list of arrays or None
        The image and the smaller levels of its pyramid, read in parts; None if it can only be read
        as a whole.
    sizes, origin : dict
        Pixel size with unit, and position of the first pixel, by axis letter.
    no_data : float or None
        Value of pixels without data.
    georeference : tuple
        Tags of a GeoTIFF, as arguments of tifffile.
    affine : array of shape (4, 4) or None
        Transform of a voxel (x, y, z, 1) of a NIfTI to scanner space.
    state : dict
        Values that change with the file.
    notes : tuple of str
        Messages for the user.
    close : callable
        Closes the file.
    is_squeezed : bool
        Whether axes of length 1 other than y and x are dropped when all pixels are read.
    """

    axes: str
    read: Callable[[], NDArray[Any]]
    levels: list[Any] | None = None
    sizes: Sizes = dataclasses.field(default_factory=dict)
    origin: dict[str, float] = dataclasses.field(default_factory=dict)
    no_data: float | None = None
    affine: NDArray[np.float64] | None = None
    georeference: tuple[Any, ...] = ()
    state: JsonObject = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    close: Callable[[], object] = lambda: None
    is_squeezed: bool = True


class Request(NamedTuple):
    """Options for opening a file.

    The `number` of a series, whether palettes are converted to colours or kept as label indices,
    whether the file is read in parts, and whether the EXIF orientation is applied.
    """

    in_colors: bool = True
    in_parts: bool = False
    number: int | None = None
    upright: bool = True


def number_of_image(path: Path, number: int | None, titles: Sequence[str]) -> int:
    """Return the number of the requested image; raise ValueError if it is ambiguous or missing."""
    n_images = len(titles)
    if number is None and n_images > 1:
        listed = ", ".join(f"{path.name}#{k} ({title})" for k, title in enumerate(titles[:4]))
        ending = ", ..." if n_images > 4 else ""
        raise ValueError(f"it holds {n_images} images: name one, {listed}{ending}")
    if number is not None and number >= n_images:
        raise ValueError(f"it holds {n_images} images, the first of which is #0")
    return number or 0


def letters_of(axes: str) -> str:
    """Return a letter for each axis: unknown ones get the unused letters of t, z, y, x."""
    if axes.count("S") + axes.count("C") > 1:
        raise ValueError(f"axes {axes}: expected one axis of channels")
    letters = {"S": "c", "C": "c", "T": "t", "Z": "z", "Y": "y", "X": "x"}
    names = [letters.get(axis, "") for axis in axes]
    free = [name for name in "ztyxuvw" if name not in names]
    return "".join(reversed([name or free.pop(0) for name in reversed(names)]))


def in_order(axes: str) -> list[int]:
    """Return the indices of the axes except channels, in the order t, z, y, x."""
    positions = [k for k, name in enumerate(axes) if name != "c"]
    is_known = {axes[k] for k in positions} <= {*"tzyx"}
    return sorted(positions, key=lambda k: "tzyx".find(axes[k])) if is_known else positions


def check_pieces(levels: Sequence[Any]) -> None:
    """Raise ValueError for levels with chunks too large to read in parts."""
    from napari_saf.io._checked_store import check_codecs

    for level in levels:
        check_codecs(level)
        check_piece(level.shards or level.chunks, level.dtype.itemsize)


def check_piece(sides: Sequence[int], itemsize: int) -> None:
    n_bytes = math.prod(sides) * itemsize
    if n_bytes > MOST_PIECE:
        raise ValueError(
            f"it is stored in pieces of {n_bytes / 2**20:.0f} MiB, expected at most "
            f"{MOST_PIECE // 2**20}; save it in tiles"
        )
