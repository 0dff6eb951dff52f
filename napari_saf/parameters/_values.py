"""Methods from values by name or from plain values, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from napari_saf.errors import InvalidInput
from napari_saf.parameters._description import FieldInfo, describe, info_of

__all__ = ["build", "from_plain", "to_plain", "values_of"]

T = TypeVar("T")


def build(method: type[T], values: Mapping[str, object]) -> T:
    """Make a method from values given by dotted name; what is absent keeps its default.

    Raises
    ------
    InvalidInput
        If a name is unknown or a value is of the wrong kind or out of bounds.
    """
    known = {item.name for item in describe(method)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidInput(f"unknown parameter {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return _build(method, values, "")


def values_of(method: object) -> dict[str, object]:
    """Return the values of a method by dotted name, of which `build` makes the same again.

    Raises
    ------
    InvalidInput
        If it holds something that is no named variant, such as a given affinity.
    """
    values: dict[str, object] = {}
    assert dataclasses.is_dataclass(method)
    for field in dataclasses.fields(method):
        info, value = info_of(field), getattr(method, field.name)
        if info is None:
            continue
        if info.variants is None:
            values[field.name] = value
            continue
        kind = info.variant_of(value)
        if kind is None:
            raise InvalidInput(f"{field.name}: expected one of {', '.join(info.variants)}")
        if len(info.variants) > 1:
            values[field.name] = kind
        for name, inner in values_of(value).items():
            values[f"{field.name}.{name}"] = inner
    return values


def _build(cls: type[T], values: Mapping[str, object], prefix: str) -> T:
    arguments: dict[str, object] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        info, name = info_of(field), prefix + field.name
        if info is not None and info.variants is not None:
            arguments[field.name] = _build_variant(info, field.default, values, name)
        elif name in values:
            arguments[field.name] = values[name]
    return cls(**arguments)


def _build_variant(
    info: FieldInfo, default: object, values: Mapping[str, object], name: str
) -> object:
    variants = info.variants
    assert variants is not None
    key = values.get(name)
    if key is None:
        key = info.variant_of(default)
    if not isinstance(key, str) or key not in variants:
        raise InvalidInput(f"{name}: expected one of {', '.join(variants)}, got {key!r}")
    return _build(variants[key], values, f"{name}.")


def to_plain(value: object) -> Any:
    """Return a dataclass of parameters as dicts, lists and scalars that JSON can hold.

    What is no named variant of its field, such as an affinity given as a matrix, becomes
    ``{"kind": None}``: no file can repeat it.
    """
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if not dataclasses.is_dataclass(value):
        return value
    plain = {}
    for field in dataclasses.fields(value):
        info, inner = info_of(field), getattr(value, field.name)
        if info is None or info.variants is None:
            plain[field.name] = to_plain(inner)
        else:
            kind = info.variant_of(inner)
            plain[field.name] = {"kind": kind} | (to_plain(inner) if kind else {})
    return plain


def from_plain(method: type[T], plain: object, where: str = "parameters") -> T:
    """Make a dataclass of parameters from what `to_plain` returned.

    Raises
    ------
    InvalidInput
        If a name is unknown or a value is of the wrong kind or out of bounds.
    """
    if not isinstance(plain, dict):
        raise InvalidInput(f"{where}: expected an object, got {type(plain).__name__}")
    fields = {field.name: field for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    arguments: dict[str, object] = {}
    for name, inner in plain.items():
        if name not in fields:
            raise InvalidInput(f"{where}: unknown entry {name!r}; known: {', '.join(fields)}")
        info = info_of(fields[name])
        if info is not None and info.variants is not None:
            arguments[name] = _variant_from_plain(info.variants, inner, f"{where}.{name}")
        else:
            arguments[name] = np.asarray(inner) if isinstance(inner, list) else inner
    return method(**arguments)


def _variant_from_plain(variants: Mapping[str, type], plain: object, where: str) -> object:
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not isinstance(kind, str) or kind not in variants:
        raise InvalidInput(f"{where}: expected a kind among {', '.join(variants)}, got {kind!r}")
    rest = {key: value for key, value in plain.items() if key != "kind"}
    return from_plain(variants[kind], rest, where)
