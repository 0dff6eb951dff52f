"""Files of prototypes, as plain arrays or with names and colours."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from napari_saf import storage
from napari_saf.arrays import as_path, own_floats
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io._paths import PROTOTYPE_SUFFIXES, check_suffix
from napari_saf.io._recipe import LabelEntry, PrototypeSet, rows_of_json
from napari_saf.io._source import read_image
from napari_saf.problem import ImageOptions

_MOST_TABLE_BYTES = 2**25
"""Maximum file size; 65,535 prototypes of 20 features take half of it."""
_HOW_TO_SEPARATE = "write decimal points (0.1,0.9), or separate the columns by semicolons (0,1;0,9)"
_IS_UNCLEAR = re.compile(r"\s*[+-]?\d+,\d+\s*").fullmatch
"""Matches a line that may be one number with a decimal comma."""


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
        Ends in ``.npy`` or ``.csv`` (comma separated, no header), which store the vectors
        alone, one per row, or in ``.json``, with names, colours, features and scaling.
    prototypes : array of shape (n_prototypes, n_features) or PrototypeSet
        Row l - 1 of an array represents label l; rows that are not finite are left out.

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
    target = as_path(path)
    suffix = check_suffix(target, PROTOTYPE_SUFFIXES)
    if not isinstance(prototypes, PrototypeSet):
        rows = own_floats(prototypes, "prototypes").astype(np.float32)
        if rows.ndim != 2:
            raise InvalidInput(f"prototypes: expected a row for each, got shape {rows.shape}")
        finite = np.flatnonzero(np.isfinite(rows).all(axis=1))
        if not rows[finite].size:
            raise InvalidInput("prototypes: expected at least one of finite numbers")
        prototypes = PrototypeSet(rows[finite], finite + 1)
    if suffix == ".json":
        options = None if prototypes.options is None else prototypes.options.to_plain()
        head = {"schema": 1, "kind": "prototypes", "software": storage.VERSION, "input": options}
        lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
        lines += ['"labels": [', rows_of_json(prototypes.entries()), "]", "}"]
        return storage.write_json(target, "\n".join(["{", *lines]))
    with storage.atomic_write(target) as temporary, temporary.open("wb") as file:
        if suffix == ".npy":
            np.save(file, prototypes.vectors, allow_pickle=False)
        else:
            # str of a float32 is the shortest text that restores it.
            np.savetxt(file, prototypes.vectors.astype(str), fmt="%s", delimiter=",")
    return target


def load_prototypes(path: str | os.PathLike[str]) -> PrototypeSet:
    """Load a file of prototypes; file content is never executed.

    ``.npy`` and ``.csv`` contain vectors alone: row l - 1 represents label l. Columns of a ``.csv``
    are separated by commas, or by semicolons or tabs, with decimal commas or points.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it: not JSON, of an unknown version, an entry
        that is unknown, missing or of the wrong kind, numbers that are not finite; or an
        ambiguous table, whose lines, such as ``0,1``, may be one number or two.

    Examples
    --------
    >>> given = saf.PrototypeSet(np.eye(2), names={1: "cell", 2: "background"})
    >>> path = saf.save_prototypes("cells.prototypes.json", given)
    >>> saf.load_prototypes(path).names[1]
    'cell'
    """
    file = as_path(path)
    with storage.format_errors(file, "a file of prototypes"):
        if file.suffix.lower() != ".json":
            return PrototypeSet(read_array(file))
        entries = storage.validated(_PrototypeFile, storage.read_json(file))
        options = None if entries.input is None else ImageOptions.from_plain(entries.input)
        return PrototypeSet.from_entries(entries.labels, options)


def read_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read an array of numbers from ``.npy`` or ``.csv`` (no header), see `_numbers_of`.

    FormatError names the file and its fault, such as a ``.csv`` of more than 32 MiB.
    """
    file = as_path(path)
    suffix = file.suffix.lower()
    if suffix == ".npy":
        return read_image(file).array
    if suffix != ".csv":
        raise FormatError(f"{file}: expected a .npy, .csv or .json file")
    with storage.format_errors(file, "a table of numbers"):
        return _numbers_of(storage.decoded(storage.read_limited(file, _MOST_TABLE_BYTES)))


def _numbers_of(text: str) -> NDArray[np.float64]:
    """Return the rows of a table of numbers.

    Columns are separated by semicolons or tabs if present, otherwise by commas. A comma within a
    cell is the decimal sign.
    """
    separator = next((sign for sign in ";\t" if sign in text), ",")
    rows = [row for row in csv.reader(text.splitlines(), delimiter=separator) if "".join(row)]
    if not rows:
        raise InvalidInput("expected numbers, the file is empty")
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise InvalidInput(
            f"expected rows of one length, got rows of {lengths[0]} to {lengths[-1]} numbers, "
            f"separated by {separator!r}; {_HOW_TO_SEPARATE}"
        )
    if '"' not in text and all(_IS_UNCLEAR(separator.join(row)) for row in rows):
        raise InvalidInput(
            f"{','.join(rows[0])} is one number with a decimal comma, or two separated by a comma; "
            + _HOW_TO_SEPARATE
        )
    return np.array([[_number(cell) for cell in row] for row in rows], dtype=float)


def _number(cell: str) -> float:
    if "," in cell and (cell.count(",") > 1 or "." in cell):
        raise InvalidInput(f"expected numbers without thousands separators, got {cell}")
    return float(cell.replace(",", "."))


@dataclasses.dataclass(frozen=True, slots=True)
class PaintedClass:
    """Name and colour of a class: red, green, blue, each from 0 to 1."""

    name: str
    color: tuple[float, float, float]
