"""Whether values are of the right kind and within bounds."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import numpy as np

from napari_saf.arrays import as_array
from napari_saf.errors import InvalidInput
from napari_saf.parameters._description import FieldInfo, info_of, kind_of, members_of

__all__ = ["check_bounds"]


def check_bounds(method: object) -> None:
    """Check kind and bounds of every field; call it from ``__post_init__``.

    Raises
    ------
    InvalidInput
        Naming the field, what was expected and what came.
    """
    hints = typing.get_type_hints(type(method))
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        info = info_of(field)
        if info is None:
            continue
        if info.variants is None:
            _check_field(field.name, getattr(method, field.name), hints[field.name], info)
        else:
            _check_variant(field.name, getattr(method, field.name), hints[field.name], info)


def _check_variant(name: str, value: object, hint: Any, info: FieldInfo) -> None:
    if not isinstance(value, hint):
        known = " or ".join(f"{cls.__name__}(...)" for cls in (info.variants or {}).values())
        raise InvalidInput(f"{name}: expected {known}, got {value!r}")


def _check_field(name: str, value: object, hint: Any, info: FieldInfo) -> None:
    kind, optional, choices = kind_of(hint)
    if value is None and optional:
        return
    if kind == "array":
        if isinstance(value, (str, bytes, dict, bool)):
            raise InvalidInput(f"{name}: expected an array, got {value!r}")
        array = as_array(value, name)  # type: ignore[arg-type]
        if array.dtype.kind not in "biuf" or not array.ndim or not array.size:
            raise InvalidInput(f"{name}: expected an array of finite numbers, got {value!r:.60}")
        return
    if isinstance(value, np.ndarray) and _takes_arrays(hint):
        return
    if kind == "choice":
        if not isinstance(value, str) or value not in choices:
            raise InvalidInput(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
        return
    accepted = {
        "bool": (bool, np.bool_),
        "int": (int, np.integer),
        "float": (int, float, np.integer, np.floating),
    }[kind]
    if not isinstance(value, accepted) or (kind != "bool" and isinstance(value, bool)):
        raise InvalidInput(f"{name}: expected {_an(kind)}, got {value!r}")
    if kind != "bool":
        _check_range(name, float(value), info)  # type: ignore[arg-type]


def _takes_arrays(hint: Any) -> bool:
    return any(typing.get_origin(member) is np.ndarray for member in members_of(hint))


def _check_range(name: str, value: float, info: FieldInfo) -> None:
    low = -np.inf if info.minimum is None else info.minimum
    high = np.inf if info.maximum is None else info.maximum
    if not (np.isfinite(value) and low <= value <= high):
        bounds = [f"at least {info.minimum:.10g}"] if info.minimum is not None else []
        bounds += [f"at most {info.maximum:.10g}"] if info.maximum is not None else []
        expected = " and ".join(bounds) or "a finite number"
        raise InvalidInput(f"{name}: expected {expected}, got {value:g}")


def _an(kind: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "true or false"}[kind]
