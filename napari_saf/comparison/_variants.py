"""What is compared: methods with their parameters, and the options of the image."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from napari_saf.arrays import as_dict, as_list, check_kind
from napari_saf.errors import InvalidInput
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import READERS, build, parameter_named, values_of
from napari_saf.problem import ImageOptions

OPTION_AXES = ("window", "features", "weights", "max_side")
"""The options of an image that may vary, as the parameters of the methods."""
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
        Where it stands in a grid: names of axes, and the text of its value on each.

    Examples
    --------
    >>> one, other = saf.variants_of([saf.SLK()], {"n_clusters": [2, 8]})
    >>> one.method.n_clusters, other.method.n_clusters
    (2, 8)
    """

    method: AbstractMethod
    options: ImageOptions = dataclasses.field(default_factory=ImageOptions)
    place: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Method and values as text."""
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

    Examples
    --------
    >>> variants = saf.variants_of([saf.SelfAssignmentFlow(), saf.SLK()], {"s": [0, 1]})
    >>> [variant.name for variant in variants]  # SLK has no s
    ['SAF, s = 0', 'SAF, s = 1', 'SLK']
    """
    named = {} if axes is None else as_dict(axes, "axes")
    given = {name: tuple(as_list(values, name)) for name, values in named.items()}
    methods = as_list(methods, "methods")
    if not methods:
        raise InvalidInput("methods: expected at least one")
    for method in methods:
        check_kind(method, AbstractMethod, "methods", "methods such as saf.SelfAssignmentFlow()")
    for name, values in given.items():
        if not values:
            raise InvalidInput(f"{name}: expected at least one value")
        known = name in OPTION_AXES or any(parameter_named(type(m), name) for m in methods)
        if not known:
            raise InvalidInput(f"{name}: no chosen method has such a parameter")
    variants: dict[tuple[object, ...], Variant] = {}
    for number, method in enumerate(methods):
        for values in itertools.product(*given.values()):
            variant = _variant(method, dict(zip(given, values, strict=True)), options)
            variants.setdefault((number, variant.place), variant)
    return list(variants.values())


def _variant(
    method: AbstractMethod, values: dict[str, Any], options: ImageOptions | None
) -> Variant:
    """Return a method with those of the values that it has a parameter or a use for."""
    names = [name for name in values if name not in OPTION_AXES]
    known = {name: parameter_named(type(method), name) for name in names}
    own = {name: item for name, item in known.items() if item is not None}
    settings = values_of(method) | {item.name: values[name] for name, item in own.items()}
    made = build(type(method), settings)
    for name, item in own.items():
        if item.depends_on and settings.get(item.depends_on[0]) not in item.depends_on[1]:
            choice, needed = item.depends_on
            raise InvalidInput(f"{name}: goes with {choice} {' or '.join(needed)}")
    changes = {name: value for name, value in values.items() if name in OPTION_AXES}
    if not made.uses_window:
        changes.pop("window", None)
    place = [(name, _text(values[name])) for name in values if name in own or name in changes]
    options = dataclasses.replace(options or ImageOptions(), **changes)
    return Variant(made, options, ((_METHOD, method.name.upper()), *place))


def read_values(name: str, text: str, methods: Sequence[type[AbstractMethod]]) -> list[object]:
    """Return the values that a text with commas names, such as ``"0, 0.5, 1"`` for ``"s"``.

    Windows that differ by axis are written as ``"1x5x5"``. InvalidInput if no method has such a
    parameter, or a value is of the wrong kind.
    """
    classes = [ImageOptions] if name in OPTION_AXES else methods
    items = [item for item in (parameter_named(cls, name) for cls in classes) if item]
    if not items:
        raise InvalidInput(f"{name}: no chosen method has such a parameter")
    kinds = {item.kind for item in items}
    if kinds & {"array", "list"}:
        raise InvalidInput(f"{name}: takes arrays, of which none can be typed here")
    known: dict[str, object] = {"none": None} if any(item.optional for item in items) else {}
    if kinds & {"choice", "bool"}:
        known |= {choice: choice for item in items for choice in sorted(item.choices)}
        known |= {"true": True, "false": False} if "bool" in kinds else {}
        expected, read = f"one of {', '.join(known)}", known.__getitem__
    else:
        expected, read = READERS["float" if "float" in kinds else items[0].kind]
        expected += " or none" if known else ""
    values = []
    for word in (word.strip() for word in text.split(",")):
        try:
            values.append(known[word.lower()] if word.lower() in known else read(word))
        except (KeyError, ValueError):
            raise InvalidInput(f"{name}: expected {expected}, got {word!r}") from None
    return list(dict.fromkeys(values))


def open_axes(variants: Sequence[Variant]) -> list[str]:
    """Return the axes on which variants differ, in their order."""
    places = [dict(variant.place) for variant in variants]
    names = dict.fromkeys(axis for place in places for axis in place)
    return [name for name in names if len({place.get(name) for place in places}) > 1]


def short_names(variants: Sequence[Variant]) -> list[str]:
    """Return for each variant what tells it from the others."""
    axes = open_axes(variants)
    names = [", ".join(_phrase(*p) for p in variant.place if p[0] in axes) for variant in variants]
    return [short or variant.name for short, variant in zip(names, variants, strict=True)]


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
    if len(axes) > 1 and all(axes[-1] in place for place in placed):
        rows = [tuple(place.get(axis) for axis in axes[:-1]) for place in placed]
        columns = [place[axes[-1]] for place in placed]
        row_of = {row: rank for rank, row in enumerate(dict.fromkeys(rows))}
        column_of = {column: rank for rank, column in enumerate(dict.fromkeys(columns))}
        if len(row_of) * len(column_of) == count:
            places = [(row_of[r], column_of[c]) for r, c in zip(rows, columns, strict=True)]
            return Layout(len(row_of), len(column_of), tuple(places), is_table=True)
    width = max(1, count if count <= _MOST_IN_A_ROW else math.ceil(math.sqrt(count)))
    places = [divmod(k, width) for k in range(count)]
    return Layout(-(-count // width), width, tuple(places))


def _phrase(axis: str, value: str) -> str:
    if axis == _METHOD:
        return value
    return f"{_text(axis)}{'' if axis in OPTION_AXES else ' ='} {value}"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    text = "none" if value is None else str(value)
    return text.rpartition(".")[2].replace("_", " ")
