"""Array types, and validation of arguments: numbers, paths, arrays, masks, windows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput

Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Mask = Bools | None
"""True for the pixels inside the mask; None: all pixels."""
Region = tuple[slice, ...]
"""Slices of a part of an image, one per axis."""

JsonObject = dict[str, Any]
"""Entries by name, of JSON types, as in recipes, requests of runs and attributes of stores."""

_LARGEST = float(np.finfo(np.float32).max)


def as_whole(value: object) -> int | None:
    """Return an integer, also from an integral float; None for anything else."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return None
    is_whole = isinstance(value, (int, np.integer)) or float(value).is_integer()
    return int(value) if is_whole else None


def as_path(value: object, name: str = "path") -> Path:
    """Return a path; InvalidInput for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidInput(f"{name}: expected a path, got {spelled_kind(value)}")
    return Path(os.fspath(value))


def check_kind(value: object, types: type | tuple[type, ...], name: str, expected: str) -> None:
    """Raise InvalidInput unless a value has one of the `types`."""
    if not isinstance(value, types):
        raise InvalidInput(f"{name}: expected {expected}, got {spelled_kind(value)}")


def spelled_kind(value: object) -> str:
    """Return a value described for messages, such as ``an array of shape (3, 4)``."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    is_plain = value is None or isinstance(value, str | bytes | bool | int | float | os.PathLike)
    return f"{value!r:.60}" if is_plain else type(value).__name__


def as_list(values: Any, name: str) -> list[Any]:
    """Return the items of an iterable; InvalidInput for anything else."""
    if isinstance(values, (str, bytes)):
        raise InvalidInput(f"{name}: expected several values, got {values!r}")
    try:
        return list(values)
    except TypeError as error:
        raise InvalidInput(f"{name}: expected several values, got {values!r}") from error


def as_dict(values: Any, name: str) -> dict[Any, Any]:
    """Return a mapping as a dictionary; InvalidInput for anything else."""
    if not isinstance(values, Mapping):
        raise InvalidInput(f"{name}: expected a mapping with labels as keys, got {values!r:.60}")
    return dict(values)


def as_array(values: ArrayLike, name: str) -> Array:
    """Return values as an unmasked array; InvalidInput for paths, ragged rows and other objects."""
    if isinstance(values, str | os.PathLike):
        raise InvalidInput(
            f"{name}: expected an array, got {values!r}; read files with saf.read_image"
        )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"{name}: expected an array of numbers: {error}") from error
    if array.dtype == object and not array.ndim:
        part = next((part for part in ("labels", "array") if hasattr(values, part)), None)
        hint = "" if part is None else f"; give its {part}"
        raise InvalidInput(f"{name}: expected an array, got {spelled_kind(values)}{hint}")
    return array


def as_labels(values: ArrayLike, name: str) -> Array:
    """Return integers from 0 to 2**63 - 1, also from integral float32; or raise InvalidInput."""
    array = as_array(values, name)
    if _is_single(array.dtype) and array.size:
        return whole_floats(array, name)
    if array.dtype.kind not in "biu":
        raise InvalidInput(
            f"{name}: expected whole numbers, got {array.dtype} of shape {array.shape}"
        )
    if array.size and not 0 <= array.min() <= array.max() <= np.iinfo(np.int64).max:
        low, high = array.min(), array.max()
        values = f"{low}" if low == high else f"{low} to {high}"
        raise InvalidInput(f"{name}: expected 0, 1, 2, ..., got {values}")
    return array


def _is_single(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize <= 4


def whole_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the integer type of labels stored as floats, else `dtype`."""
    if dtype.kind != "f":
        return dtype
    return np.dtype(np.uint32 if _is_single(dtype) else np.int64)


def whole_floats(array: Floats, name: str) -> Array:
    """Return integers stored as floats; InvalidInput beyond the exact range of the type."""
    most = 2.0 ** (np.finfo(array.dtype).nmant + 1)
    is_label = (array >= 0) & (array <= most)
    is_label &= np.floor(array) == array
    if not is_label.all():
        wrong, n_wrong = array[~is_label][0], np.count_nonzero(~is_label)
        raise InvalidInput(
            f"{name}: expected whole numbers from 0 to {most:.0f}, got {array.dtype} of shape "
            f"{array.shape} with {n_wrong} other numbers, such as {wrong:g}"
        )
    return array.astype(whole_type(array.dtype))


def own_floats(values: ArrayLike, name: str) -> Floats:
    """Return a contiguous, writable array, float64 for float64 input, else float32."""
    array = as_array(values, name)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name}: expected real numbers, got dtype {array.dtype}")
    if np.ma.is_masked(values):
        raise InvalidInput(f"{name}: expected no masked values, got a masked array")
    is_double = array.dtype.kind == "f" and array.dtype.itemsize == 8
    return np.require(array, np.float64 if is_double else np.float32, ["C", "W"])


def check_size(
    name: str, values: Array, count: int, largest: float = _LARGEST, smallest: float = 0.0
) -> None:
    """Raise InvalidInput if `count` squared differences may overflow or are below `smallest`."""
    magnitude = max(abs(float(values.min())), abs(float(values.max())))
    least, most = smallest**0.5, (largest / (8 * count)) ** 0.5
    if magnitude > most:
        raise InvalidInput(
            f"{name}: expected numbers up to {most:.1e}, got {magnitude:.1e}; rescale them"
        )
    if 0 < magnitude < least:
        raise InvalidInput(
            f"{name}: expected numbers of {least:.1e} or more, the largest is {magnitude:.1e}; "
            "rescale them"
        )


def all_finite(array: Array) -> Bools:
    """Return whether all numbers of each pixel or node are finite."""
    finite = np.isfinite(array)
    every = np.ones(array.shape[:-1], dtype=bool)
    return every if finite.all() else np.asarray(finite.all(axis=-1))


def check_window(
    window: int | Sequence[int], shape: Sequence[int], name: str = "window"
) -> tuple[int, ...]:
    """Return the window as one odd side length per axis, or raise InvalidInput."""
    array = np.asarray(window)
    sides = array.tolist() if array.ndim else [array.item()] * len(shape)
    if len(sides) != len(shape):
        raise InvalidInput(
            f"{name}: expected one side length or {len(shape)} of them, got {len(sides)}"
        )
    result = [as_whole(side) or 0 for side in sides]
    for side, size, length in zip(sides, result, shape, strict=True):
        if size < 1 or size % 2 == 0:
            raise InvalidInput(f"{name}: expected odd side lengths of 1 or more, got {side}")
        if length > 1 and size > length:
            raise InvalidInput(
                f"{name}: {side} is larger than the image, whose shape is {tuple(shape)}"
            )
    return tuple(result)


def inside_of(mask: ArrayLike) -> Bools:
    """Return the non-zero pixels of a mask; InvalidInput for NaN."""
    array = np.asarray(mask)
    if array.dtype.kind == "f":
        n_unknown = int(np.isnan(array).sum())
        if n_unknown:
            raise InvalidInput(
                f"mask: expected numbers, 0 outside; {n_unknown} of {array.size} pixels are NaN"
            )
    return np.asarray(array != 0, dtype=bool)


def check_mask(mask: ArrayLike | None, shape: tuple[int, ...]) -> Mask:
    """Return the mask as bools (None if all are True), or raise InvalidInput."""
    if mask is None:
        return None
    array = inside_of(mask)
    if array.shape != shape:
        raise InvalidInput(f"mask: expected the image's shape {shape}, got {array.shape}")
    if not array.any():
        raise InvalidInput("mask: expected at least one pixel inside, got an empty mask")
    return None if array.all() else array


def joined_by(pairs: Sequence[Int64s], count: int) -> Int64s:
    """Return the connected component of each of `count` items, linked by pairs (2, n)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, second = np.concatenate([np.zeros((2, 0), np.int64), *pairs], axis=1)
    graph = coo_array((np.ones(len(first), np.int8), (first, second)), shape=(count, count))
    if not count:
        return np.zeros(0, np.int64)
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


def boxes(shape: Sequence[int], sides: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Yield the boxes of given sides that tile a shape, in C order; the last ones are clipped."""
    starts = (range(0, n, side) for n, side in zip(shape, sides, strict=True))
    for corner in itertools.product(*starts):
        ends = zip(corner, sides, shape, strict=True)
        yield tuple(slice(k, min(k + side, n)) for k, side, n in ends)
