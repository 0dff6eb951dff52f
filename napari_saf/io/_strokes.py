"""Strokes as files: the painted pixels alone, however large the image is."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.io._atomic_write import atomic_write
from napari_saf.io._untrusted import HEADER_KEY, faults_named, parse_tensors, read_at_most

__all__ = ["PaintedClass", "load_strokes", "save_strokes"]

_SCHEMA = 1
_MOST_BYTES = 2**28
_BLOCK = 2**22


@dataclasses.dataclass(frozen=True, slots=True)
class PaintedClass:
    """What a person calls a class, and its colour.

    Attributes
    ----------
    name : str
    color : tuple of float
        Red, green, blue, each from 0 to 1.
    """

    name: str
    color: tuple[float, float, float]


def save_strokes(
    path: str | os.PathLike[str], strokes: NDArray[Any], classes: dict[int, PaintedClass]
) -> Path:
    """Save the painted pixels of an image as a safetensors file.

    Parameters
    ----------
    path : path
        Where it goes.
    strokes : array of int, image-shaped
        1, 2, ... where a class was painted, else 0.
    classes : dict of int to PaintedClass
        By number.

    Raises
    ------
    SafError
        If the file cannot be written.
    """
    from safetensors.numpy import save

    places, numbers = _painted(strokes)
    header = {
        "schema": _SCHEMA,
        "shape": list(strokes.shape),
        "classes": [[number, one.name, list(one.color)] for number, one in classes.items()],
    }
    painted = {"places": places.astype("<i8"), "numbers": numbers.astype("<i4")}
    content = save(painted, metadata={HEADER_KEY: json.dumps(header, allow_nan=False)})
    target = Path(path)
    with atomic_write(target) as temporary:
        temporary.write_bytes(content)
    return target


def _painted(strokes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return places and numbers of the painted pixels; somebody may be painting meanwhile."""
    flat = strokes.reshape(-1)
    places, numbers = [], []
    for start in range(0, max(1, flat.size), _BLOCK):
        block = flat[start : start + _BLOCK].copy()
        where = np.flatnonzero(block)
        places.append(where + start)
        numbers.append(block[where])
    return np.concatenate(places), np.concatenate(numbers)


def load_strokes(
    path: str | os.PathLike[str], shape: tuple[int, ...]
) -> tuple[NDArray[np.integer], dict[int, PaintedClass]]:
    """Load the strokes on an image of this shape; nothing in the file is executed.

    Returns
    -------
    strokes : array of unsigned int of shape `shape`
    classes : dict of int to PaintedClass

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    """
    file = Path(path)
    with faults_named(file, "a file of strokes"):
        return _parse(read_at_most(file, _MOST_BYTES), shape)


def _parse(
    content: bytes, shape: tuple[int, ...]
) -> tuple[NDArray[np.integer], dict[int, PaintedClass]]:
    tensors, header = parse_tensors(content, _SCHEMA)
    missing = {"shape", "classes"} - set(header) or {"places", "numbers"} - set(tensors)
    if missing:
        raise InvalidInput(f"expected {missing.pop()!r}: not a file of strokes")
    if header["shape"] != list(shape):
        raise InvalidInput(f"expected strokes of shape {shape}, got {header['shape']!r:.60}")
    places, numbers = tensors["places"], tensors["numbers"]
    is_whole = places.dtype == np.int64 and numbers.dtype == np.int32
    if not is_whole or places.ndim != 1 or places.shape != numbers.shape:
        raise InvalidInput("expected places and numbers of painted pixels")
    low, high = places.min(initial=0), places.max(initial=0)
    if low < 0 or high >= math.prod(shape) or numbers.min(initial=1) < 1:
        raise InvalidInput("expected painted pixels within the image, of classes 1, 2, ...")
    kind = np.uint8 if numbers.max(initial=0) < 256 else np.uint16
    strokes = np.zeros(shape, dtype=kind if numbers.max(initial=0) < 2**16 else np.uint32)
    strokes.reshape(-1)[places] = numbers
    return strokes, {int(number): _read_class(*rest) for number, *rest in header["classes"]}


def _read_class(name: Any, color: Any) -> PaintedClass:
    red, green, blue = (min(1.0, max(0.0, float(part))) for part in color)
    return PaintedClass(str(name), (red, green, blue))
