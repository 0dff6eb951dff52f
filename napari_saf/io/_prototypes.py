"""Files of what labels stand for: prototypes, with names and colours or plain, and strokes."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from napari_saf import storage
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io._image import read_image
from napari_saf.io._paths import PROTOTYPE_SUFFIXES, check_suffix
from napari_saf.io._recipe import LabelEntry, PrototypeSet, rows_of_json
from napari_saf.problem import ImageOptions

_MOST_TABLE_BYTES = 2**25
"""65,535 prototypes of 20 features take half of it."""
_BLOCK = 2**22
"""Pixels of strokes that are read at a time."""
_VERSION = importlib.metadata.version("napari-saf")


class _PrototypeFile(storage.VersionedModel):
    kind: Literal["prototypes"]
    software: Any = None
    input: dict[Any, Any] | None
    labels: Annotated[list[LabelEntry], Field(min_length=1)]


def save_prototypes(path: str | os.PathLike[str], prototypes: ArrayLike | PrototypeSet) -> Path:
    """Save prototypes.

    Parameters
    ----------
    path : path
        Ends in ``.npy`` or ``.csv`` (comma separated, no header), which hold the numbers alone, a
        row each, or in ``.json``, with names, colours, features and scaling as well.
    prototypes : array of shape (n_prototypes, n_features) or PrototypeSet
        Row l - 1 of an array stands for label l; rows that are not finite are left out.

    Raises
    ------
    InvalidInput
        If the suffix is unknown or there are no prototypes.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> path = saf.save_prototypes("prototypes.csv", [[0.0, 0.1], [1.0, 0.9]])
    >>> path.read_text(encoding="utf-8").split()
    ['0.0,0.1', '1.0,0.9']
    """
    target = Path(path)
    suffix = check_suffix(target, PROTOTYPE_SUFFIXES)
    if not isinstance(prototypes, PrototypeSet):
        rows = np.asarray(prototypes, dtype=np.float32)
        if rows.ndim != 2:
            raise InvalidInput(f"prototypes: expected a row for each, got shape {rows.shape}")
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        if not rows[finite].size:
            raise InvalidInput("prototypes: expected at least one of finite numbers")
        prototypes = PrototypeSet(rows[finite], finite + 1)
    if suffix == ".json":
        storage.write_json(target, _to_text(prototypes))
        return target
    with storage.atomic_write(target) as temporary, temporary.open("wb") as file:
        if suffix == ".npy":
            np.save(file, prototypes.vectors, allow_pickle=False)
        else:
            # str of a float32 is the shortest text that gives it back.
            np.savetxt(file, prototypes.vectors.astype(str), fmt="%s", delimiter=",")
    return target


def load_prototypes(path: str | os.PathLike[str]) -> PrototypeSet:
    """Load what `save_prototypes` wrote; nothing in the file is executed.

    From ``.npy`` and ``.csv`` come the numbers alone: row l - 1 then stands for label l.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: not JSON, of an unknown version, an entry
        that is unknown, missing or of the wrong kind, numbers that are not finite.

    Examples
    --------
    >>> given = saf.PrototypeSet(np.eye(2), names={1: "cell", 2: "background"})
    >>> path = saf.save_prototypes("cells.prototypes.json", given)
    >>> saf.load_prototypes(path).names[1]
    'cell'
    """
    file = Path(path)
    with storage.format_errors(file, "a file of prototypes"):
        if file.suffix.lower() != ".json":
            return PrototypeSet(read_array(file))
        entries = storage.validated(_PrototypeFile, storage.read_json(file))
        options = None if entries.input is None else ImageOptions.from_plain(entries.input)
        return PrototypeSet.from_entries(entries.labels, options)


def read_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an array of numbers from ``.npy`` or ``.csv`` (comma separated, no header).

    FormatError names the file and what is wrong with it, such as a ``.csv`` of more than 32 MiB.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix == ".npy":
        return read_image(file).array
    if suffix != ".csv":
        raise FormatError(f"{file}: expected a .npy or .csv file")
    with storage.format_errors(file, "a table of numbers"):
        text = storage.read_limited(file, _MOST_TABLE_BYTES).decode("utf-8-sig")
        lines = (line for line in text.splitlines() if line.strip())
        array = np.array([[float(cell) for cell in line.split(",")] for line in lines], dtype=float)
        if array.size == 0:
            raise InvalidInput("expected numbers, the file is empty")
        return array


def _to_text(prototypes: PrototypeSet) -> str:
    """Return the content of a file, with a line for each label."""
    options = None if prototypes.options is None else prototypes.options.to_plain()
    head = {"schema": 1, "kind": "prototypes", "software": _VERSION, "input": options}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, '"labels": [', rows_of_json(prototypes.entries()), "]", "}"])


class _StrokesHeader(storage.VersionedModel, strict=False):
    shape: tuple[int, ...]
    classes: list[tuple[int, storage.Text, tuple[float, float, float]]]


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
    header = {"schema": 1, "shape": list(strokes.shape), "classes": rows}
    return storage.save_tensors(path, tensors, header)


def load_strokes(
    path: str | os.PathLike[str], shape: tuple[int, ...]
) -> tuple[NDArray[np.integer], dict[int, PaintedClass]]:
    """Load the strokes on an image of this shape, and the classes by number.

    Nothing in the file is executed; FormatError names the file and what is wrong with it.
    """
    with storage.format_errors(Path(path), "a file of strokes"):
        tensors, header = storage.load_tensors(path, _StrokesHeader)
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
