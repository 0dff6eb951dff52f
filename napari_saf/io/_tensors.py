"""Patch dictionaries and strokes as safetensors files with a JSON header; never a pickle."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from napari_saf.dictionary import PatchDictionary
from napari_saf.errors import InvalidInput
from napari_saf.features import Scaling
from napari_saf.io._atomic_write import atomic_write
from napari_saf.io._paths import check_suffix
from napari_saf.io._reading import (
    FileModel,
    Model,
    Text,
    VersionedModel,
    format_errors,
    parse_json,
    read_limited,
    validated,
)

__all__ = [
    "DICTIONARY_SUFFIX",
    "PaintedClass",
    "load_dictionary",
    "load_strokes",
    "save_dictionary",
    "save_strokes",
]

DICTIONARY_SUFFIX = ".safetensors"
"""What the name of a dictionary ends in."""
_KEY = "napari-saf"
"""Where the header of a safetensors file holds what this project wrote there."""
_MOST_BYTES = 2**28
_BLOCK = 2**22
_Count = Annotated[int, Field(ge=0, lt=2**62)]


class _Scaling(FileModel):
    low: float
    high: float


class _DictionaryHeader(VersionedModel):
    patch_size: _Count
    channels: _Count
    scaling: _Scaling
    invariance: Literal["dihedral-8"]
    s: float
    window: _Count
    shift_window: _Count
    distance: float
    usage: list[_Count]
    software: Text
    images: list[Text]


class _StrokesHeader(VersionedModel, strict=False):
    shape: tuple[int, ...]
    classes: list[tuple[int, Text, tuple[float, float, float]]]


def save_dictionary(path: str | os.PathLike[str], dictionary: PatchDictionary) -> Path:
    """Save a dictionary.

    Parameters
    ----------
    path : path
        Ends in ``.safetensors``.
    dictionary : PatchDictionary
        What to save.

    Raises
    ------
    InvalidInput
        If the name ends otherwise.
    SafError
        If the file cannot be written.
    """
    check_suffix(Path(path), (DICTIONARY_SUFFIX,))
    header = {
        "schema": 1,
        "patch_size": dictionary.patch_size,
        "channels": dictionary.n_channels,
        "scaling": dataclasses.asdict(dictionary.scaling),
        "invariance": "dihedral-8",
        "s": dictionary.s,
        "window": dictionary.window,
        "shift_window": dictionary.shift_window,
        "distance": dictionary.distance,
        "usage": dictionary.usage.tolist(),
        "software": dictionary.software,
        "images": list(dictionary.images),
    }
    atoms = np.ascontiguousarray(dictionary.atoms, dtype="<f4")
    return _save(path, {"atoms": atoms}, header)


def load_dictionary(path: str | os.PathLike[str]) -> PatchDictionary:
    """Load a dictionary; nothing in the file is executed.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: no such file, not a safetensors file,
        truncated, of an unknown version, without atoms, or with impossible values.
    """
    with format_errors(Path(path), "a dictionary"):
        tensors, header = _load(path, _DictionaryHeader)
        if "atoms" not in tensors:
            names = ", ".join(sorted(tensors)) or "none"
            raise InvalidInput(f"expected a tensor 'atoms', got {names}")
        atoms = tensors["atoms"]
        if atoms.dtype != np.float32:
            raise InvalidInput(f"atoms: expected float32, got {atoms.dtype}")
        shape = (len(header.usage), header.patch_size, header.patch_size, header.channels)
        if atoms.shape != shape:
            raise InvalidInput(f"atoms: expected shape {shape} by the header, got {atoms.shape}")
        return PatchDictionary(
            atoms=atoms,
            usage=np.array(header.usage, dtype=np.int64),
            scaling=Scaling(header.scaling.low, header.scaling.high),
            s=header.s,
            window=header.window,
            shift_window=header.shift_window,
            distance=header.distance,
            images=tuple(header.images),
            software=header.software,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PaintedClass:
    """Name of a class, and its colour: red, green, blue, each from 0 to 1."""

    name: str
    color: tuple[float, float, float]


def save_strokes(
    path: str | os.PathLike[str], strokes: NDArray[Any], classes: dict[int, PaintedClass]
) -> Path:
    """Save the painted pixels of an image, however large it is.

    Parameters
    ----------
    path : path
        Where it goes.
    strokes : array of int, image-shaped
        1, 2, ... where a class was painted, else 0. May be painted on meanwhile.
    classes : dict of int to PaintedClass
        By number.

    Raises
    ------
    SafError
        If the file cannot be written.
    """
    flat = strokes.reshape(-1)
    places, numbers = [], []
    for start in range(0, max(1, flat.size), _BLOCK):
        block = flat[start : start + _BLOCK].copy()
        where = np.flatnonzero(block)
        places.append(where + start)
        numbers.append(block[where])
    tensors = {
        "places": np.concatenate(places).astype("<i8"),
        "numbers": np.concatenate(numbers).astype("<i4"),
    }
    rows = [[number, one.name, list(one.color)] for number, one in classes.items()]
    return _save(path, tensors, {"schema": 1, "shape": list(strokes.shape), "classes": rows})


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
    with format_errors(Path(path), "a file of strokes"):
        tensors, header = _load(path, _StrokesHeader)
        if header.shape != shape:
            raise InvalidInput(f"expected strokes of shape {shape}, got {header.shape!r:.60}")
        classes = {}
        for number, name, color in header.classes:
            red, green, blue = (min(1.0, max(0.0, part)) for part in color)
            classes[number] = PaintedClass(name, (red, green, blue))
        return _paint(tensors, shape), classes


def _paint(tensors: dict[str, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.integer]:
    """Return an image of the pixels whose places and numbers a file holds."""
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
    return strokes


def _save(
    path: str | os.PathLike[str], tensors: dict[str, NDArray[Any]], header: Mapping[str, object]
) -> Path:
    from safetensors.numpy import save

    content = save(tensors, metadata={_KEY: json.dumps(header, allow_nan=False)})
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def _load(
    path: str | os.PathLike[str], model: type[Model]
) -> tuple[dict[str, NDArray[Any]], Model]:
    """Return the tensors of a file and its header; raise InvalidInput if it is none of ours."""
    from safetensors.numpy import load

    content = read_limited(Path(path), _MOST_BYTES)
    try:
        tensors = load(content)
    except Exception as error:  # whatever the library raises for a damaged file
        fault = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInput(f"not a safetensors file, or a damaged one: {fault}") from error
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    if _KEY not in metadata:
        raise InvalidInput(f"expected an entry {_KEY!r} in the header: no file of napari-saf")
    return tensors, validated(model, parse_json(metadata[_KEY]))
