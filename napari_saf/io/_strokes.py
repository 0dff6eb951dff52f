"""Strokes as safetensors files with a JSON header."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.storage import Text, VersionedModel, format_errors, load_tensors, save_tensors

_BLOCK = 2**22


class _StrokesHeader(VersionedModel, strict=False):
    shape: tuple[int, ...]
    classes: list[tuple[int, Text, tuple[float, float, float]]]


@dataclasses.dataclass(frozen=True, slots=True)
class PaintedClass:
    """Name of a class, and its colour: red, green, blue, each from 0 to 1."""

    name: str
    color: tuple[float, float, float]


def save_strokes(
    path: str | os.PathLike[str], strokes: NDArray[Any], classes: dict[int, PaintedClass]
) -> Path:
    """Save the painted pixels of an image, however large it is, and the classes by number.

    `strokes` is 1, 2, ... where a class was painted, else 0; it may be painted on meanwhile.
    """
    flat = strokes.reshape(-1)
    places, numbers = [np.empty(0, "<i8")], [np.empty(0, "<i4")]
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK].copy()
        where = np.flatnonzero(block)
        places.append(where + start)
        numbers.append(block[where].astype("<i4"))
    tensors = {"places": np.concatenate(places), "numbers": np.concatenate(numbers)}
    rows = [[number, one.name, list(one.color)] for number, one in classes.items()]
    return save_tensors(path, tensors, {"schema": 1, "shape": list(strokes.shape), "classes": rows})


def load_strokes(
    path: str | os.PathLike[str], shape: tuple[int, ...]
) -> tuple[NDArray[np.integer], dict[int, PaintedClass]]:
    """Load the strokes on an image of this shape, and the classes by number.

    Nothing in the file is executed; FormatError names the file and what is wrong with it.
    """
    with format_errors(Path(path), "a file of strokes"):
        tensors, header = load_tensors(path, _StrokesHeader)
        if header.shape != shape:
            raise InvalidInput(f"expected strokes of shape {shape}, got {header.shape!r:.60}")
        classes = {}
        for number, name, color in header.classes:
            red, green, blue = np.clip(color, 0.0, 1.0).tolist()
            classes[number] = PaintedClass(name, (red, green, blue))
        if not {"places", "numbers"} <= set(tensors):
            raise InvalidInput("expected tensors 'places' and 'numbers': not a file of strokes")
        places, numbers = tensors["places"], tensors["numbers"]
        is_whole = places.dtype == np.int64 and numbers.dtype == np.int32
        if not is_whole or places.ndim != 1 or places.shape != numbers.shape:
            raise InvalidInput("expected places and numbers of painted pixels")
        low, high = places.min(initial=0), places.max(initial=0)
        if low < 0 or high >= math.prod(shape) or numbers.min(initial=1) < 1:
            raise InvalidInput("expected painted pixels within the image, of classes 1, 2, ...")
        strokes = np.zeros(shape, dtype=np.min_scalar_type(int(numbers.max(initial=0))))
        strokes.reshape(-1)[places] = numbers
        return strokes, classes
