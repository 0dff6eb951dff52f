"""What is compared: methods with their parameters, and what they are told of the image."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from napari_saf.errors import InvalidInput
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import Parameter, build, describe, values_of
from napari_saf.problem import ImageOptions

__all__ = [
    "OPTION_AXES",
    "Layout",
    "Variant",
    "lay_out",
    "open_axes",
    "parameter_named",
    "short_names",
    "variants_of",
]

OPTION_AXES = ("window", "features", "weights", "max_side")
"""What may vary beside the parameters of the methods."""
_METHOD = "method"
_MOST_IN_A_ROW = 5


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """One of the things that are compared.

    Attributes
    ----------
    method : AbstractMethod
        The method with its parameters.
    options : ImageOptions
        How the image becomes a problem.
    place : tuple of (str, str)
        Where it stands in a grid: names of axes, and the words for its value on each.
    """

    method: AbstractMethod
    options: ImageOptions = dataclasses.field(default_factory=ImageOptions)
    place: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """All its words."""
        return ", ".join(_phrase(*pair) for pair in self.place) or self.method.name.upper()


def variants_of(
    methods: Sequence[AbstractMethod],
    axes: Mapping[str, Sequence[Any]] | None = None,
    options: ImageOptions | None = None,
) -> list[Variant]:
    """Return every method with every combination of values.

    Parameters
    ----------
    methods : sequence of AbstractMethod
        At least one.
    axes : mapping of str to sequence, optional
        Values by name: a parameter of a method, such as ``"s"`` or ``"affinity.sigma2"``, or
        ``"window"``, ``"features"``, ``"weights"``, ``"max_side"``. A method without such a
        parameter, or one that takes no notice of the window, is in the list once for all values.
    options : ImageOptions, optional
        What is the same for all.

    Returns
    -------
    list of Variant
        The last axis varies fastest.

    Raises
    ------
    InvalidInput
        If there is no method, no method knows an axis, an axis has no values, or a value is of
        the wrong kind or out of bounds.
    """
    given = {name: tuple(values) for name, values in (axes or {}).items()}
    if not methods:
        raise InvalidInput("methods: expected at least one")
    for name, values in given.items():
        if not values:
            raise InvalidInput(f"{name}: expected at least one value")
        known = name in OPTION_AXES or any(parameter_named(type(m), name) for m in methods)
        if not known:
            raise InvalidInput(f"{name}: no chosen method has such a parameter")
    found: dict[tuple[object, ...], Variant] = {}
    for number, method in enumerate(methods):
        for values in itertools.product(*given.values()):
            made = _variant(method, dict(zip(given, values, strict=True)), options)
            found.setdefault((number, made.place), made)
    return list(found.values())


def parameter_named(method: type, name: str) -> Parameter | None:
    """Return the parameter of a method that a name, or the last part of one, means."""
    known = describe(method)
    exact = [item for item in known if item.name == name]
    last = [item for item in known if item.name.rpartition(".")[2] == name]
    found = exact or (last if len(last) == 1 else [])
    return found[0] if found else None


def open_axes(variants: Sequence[Variant]) -> list[str]:
    """Return the axes on which variants differ, in their order."""
    names = dict.fromkeys(axis for variant in variants for axis, _ in variant.place)
    return [
        name for name in names if len({dict(variant.place).get(name) for variant in variants}) > 1
    ]


def short_names(variants: Sequence[Variant]) -> list[str]:
    """Return for each variant the words that tell it from the others."""
    axes = open_axes(variants)
    words = [
        ", ".join(_phrase(*pair) for pair in variant.place if pair[0] in axes)
        for variant in variants
    ]
    return [short or variant.name for short, variant in zip(words, variants, strict=True)]


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Rows and columns, and the place (row, column) of each variant.

    In a full table places have a meaning: the last axis varies from left to right.
    """

    n_rows: int
    n_columns: int
    places: tuple[tuple[int, int], ...]
    is_table: bool = False


def lay_out(variants: Sequence[Variant]) -> Layout:
    """Return a table of the variants: the last axis from left to right, if it is a full one."""
    count, axes = len(variants), open_axes(variants)
    placed = [dict(variant.place) for variant in variants]
    is_grid = len(axes) > 1 and all(axes[-1] in place for place in placed)
    if is_grid:
        rows = [tuple(place.get(axis) for axis in axes[:-1]) for place in placed]
        columns = [place[axes[-1]] for place in placed]
        row_of, column_of = _ranks(rows), _ranks(columns)
        if len(row_of) * len(column_of) == count:
            places = [(row_of[r], column_of[c]) for r, c in zip(rows, columns, strict=True)]
            return Layout(len(row_of), len(column_of), tuple(places), is_table=True)
    width = count if count <= _MOST_IN_A_ROW else math.ceil(math.sqrt(count))
    places = [divmod(k, max(1, width)) for k in range(count)]
    return Layout(-(-count // max(1, width)), width, tuple(places))


def _ranks(values: Sequence[Any]) -> dict[Any, int]:
    return {value: rank for rank, value in enumerate(dict.fromkeys(values))}


def _variant(
    method: AbstractMethod, values: dict[str, Any], options: ImageOptions | None
) -> Variant:
    settings = values_of(method)
    found = {name: parameter_named(type(method), name) for name in values}
    place = [(_METHOD, method.name.upper())]
    for name, item in found.items():
        if item is not None and name not in OPTION_AXES:
            settings[item.name] = values[name]
            place.append((name, _words(values[name])))
    made = build(type(method), settings)
    for name, item in found.items():
        _check_condition(name, item, settings)
    changes = {}
    for name in OPTION_AXES:
        if name in values and (name != "window" or made.uses_window):
            changes[name] = values[name]
            place.append((name, _words(values[name])))
    _check_window(changes.get("window"))
    return Variant(
        made, dataclasses.replace(options or ImageOptions(), **changes), _in_order(place, values)
    )


def _in_order(place: list[tuple[str, str]], values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    order = [_METHOD, *values]
    return tuple(sorted(place, key=lambda pair: order.index(pair[0])))


def _check_condition(name: str, item: Parameter | None, settings: Mapping[str, object]) -> None:
    need = None if item is None else item.depends_on
    if need is not None and settings.get(need[0]) not in need[1]:
        raise InvalidInput(f"{name}: goes with {need[0]} {' or '.join(need[1])}")


def _check_window(window: object) -> None:
    if window is None:
        return
    sides = np.atleast_1d(np.asarray(window))
    if sides.dtype.kind not in "iu" or (sides < 1).any() or not (sides % 2).all():
        raise InvalidInput(f"window: expected odd numbers, got {window}")


def _phrase(axis: str, words: str) -> str:
    """Return an axis and the value on it."""
    if axis == _METHOD:
        return words
    return f"{_words(axis)}{'' if axis in OPTION_AXES else ' ='} {words}"


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    text = "none" if value is None else str(value)
    return text.rpartition(".")[2].replace("_", " ")
