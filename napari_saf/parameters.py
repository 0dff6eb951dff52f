"""Parameter descriptions, shared by library, forms, command line and recipes.

Methods and image options are frozen dataclasses whose fields are made by `parameter`. A field may
hold another such dataclass (the affinity) or one of several (the stepper); `describe` flattens
them into scalar parameters with dotted names.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic_core import to_jsonable_python

from napari_saf.arrays import JsonObject, as_array
from napari_saf.errors import InvalidInput

T = TypeVar("T")
Kind = Literal[
    "int", "float", "bool", "choice", "array", "list", "window", "labels", "range", "text"
]
Condition = tuple[str, tuple[str, ...]]
_KEY = "napari_saf"
_KINDS: dict[Any, Kind] = {bool: "bool", int: "int", float: "float", str: "text"}
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "text": "a text",
    "window": "odd whole numbers of 1 or more",
    "labels": "whole numbers of 1 or more",
    "range": "low and high",
}


def _read_window(text: str) -> int | tuple[int, ...]:
    sides = tuple(map(int, text.replace("x", ",").split(",")))
    return sides if len(sides) > 1 else sides[0]


READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "int": ("a whole number", int),
    "float": ("a number", float),
    "window": ("an odd number such as 5, or several such as 3x5x5", _read_window),
    "labels": ("labels such as 1,3", lambda text: tuple(map(int, text.split(",")))),
}
"""Description and parser of typed text, by kind."""
_UNIONS = (typing.Union, types.UnionType)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Description of a field, made by `parameter`; `name` and later are read from the dataclass."""

    label: str
    help: str  # One or two sentences: the meaning, then the symbol.
    default: object = None
    minimum: float | None = None
    maximum: float | None = None  # Inclusive, as `minimum`.
    step: float | None = None  # Increment of the form's control.
    ends: tuple[str, str] | None = None  # Labels of the two ends of a slider.
    advanced: bool = False  # Whether the form hides the field at first.
    # Allowed dataclasses by name, for a field that holds one of several.
    variants: Mapping[str, type] = dataclasses.field(default_factory=dict)
    # Allowed values, by default those of a literal type; words allowed besides numbers or windows.
    choices: tuple[str, ...] = ()
    suggestions: tuple[int, ...] = ()  # Suggested numbers, in pixels; others can be typed.
    # Texts of choices in the form.
    choice_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    none: str = "automatic"  # Text of None in the form.
    files: str = ""  # Pattern of a file path, such as *.csv.
    is_list: bool = False  # Whether an array is a short list that can be typed.
    in_form: bool = True  # Whether forms show it; library, command line and recipes always do.
    for_seeds: bool = False  # Whether it has no effect without seeds.
    at_start: bool = False  # Whether it has no effect with an initial assignment.
    name: str = ""  # Dotted path of the field, such as "affinity.sigma2".
    hint: Any = None  # Type for validation.
    # A list is a short array, a window odd side lengths, one or one per axis, a range low and high.
    kind: Kind = "array"
    optional: bool = False  # Whether None is allowed.
    # Name of a choice, and its values for which this parameter exists.
    depends_on: Condition | None = None

    def variant_of(self, value: object) -> str | None:
        """Return the name of the variant with the type of a value, if any."""
        return next((key for key, cls in self.variants.items() if type(value) is cls), None)

    def contains(self, number: float) -> bool:
        """Return whether a number is finite and within the bounds."""
        is_above = self.minimum is None or number >= self.minimum
        is_below = self.maximum is None or number <= self.maximum
        return is_above and is_below and (isinstance(number, int) or math.isfinite(number))


def parameter(
    default: Any, *, bounds: tuple[float | None, float | None] = (None, None), **description: Any
) -> Any:
    """Return a dataclass field with the attributes of a `Parameter`, and inclusive `bounds`."""
    limits = {"minimum": bounds[0], "maximum": bounds[1]}
    info = Parameter(default=default, **(limits | description))
    return dataclasses.field(default=default, metadata={_KEY: info})


def _read_fields(cls: type) -> tuple[Parameter, ...]:
    """Return the parameter fields of a dataclass, completed by their type hints."""
    hints, parameters = typing.get_type_hints(cls), []
    for field in dataclasses.fields(cls):
        if _KEY not in field.metadata:
            continue
        info, hint = field.metadata[_KEY], hints[field.name]
        members = typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
        literals = [typing.get_args(m) for m in members if typing.get_origin(m) is Literal]
        choices = info.choices or (literals[0] if literals else ())
        kinds = [_KINDS[member] for member in members if member in _KINDS]
        kind: Kind = kinds[0] if kinds else "array"
        if info.is_list:
            kind = "list"
        elif any(typing.get_origin(member) is tuple for member in members):
            kind = "window" if int in members else "labels"
        elif info.choices or (choices and not kinds):
            kind = "choice"
        elif not info.variants and any(map(dataclasses.is_dataclass, members)):
            kind = "range"
        read = {"kind": kind, "optional": type(None) in members, "choices": choices}
        parameters.append(dataclasses.replace(info, name=field.name, hint=hint, **read))
    return tuple(parameters)


_fields_of: Callable[[Any], tuple[Parameter, ...]] = functools.cache(_read_fields)


def _flatten(cls: type) -> tuple[Parameter, ...]:
    described: dict[str, Parameter] = {}
    for item in _walk(cls, prefix="", depends_on=None, advanced=False):
        previous = described.get(item.name)
        if previous is not None and previous.depends_on and item.depends_on:
            shared = (item.depends_on[0], previous.depends_on[1] + item.depends_on[1])
            item = dataclasses.replace(previous, depends_on=shared)
        described[item.name] = item
    return tuple(described.values())


describe: Callable[[type], tuple[Parameter, ...]] = functools.cache(_flatten)
"""Return the scalar parameters of a dataclass, nested ones included, shared ones once."""


def parameter_named(cls: type, name: str) -> Parameter | None:
    """Return the parameter with a dotted name, or with a unique last part of the name."""
    parameters = describe(cls)
    exact = [item for item in parameters if item.name == name]
    last = [item for item in parameters if item.name.rpartition(".")[2] == name]
    matches = exact or (last if len(last) == 1 else [])
    return matches[0] if matches else None


def _walk(
    cls: type, prefix: str, depends_on: Condition | None, advanced: bool
) -> Iterator[Parameter]:
    for field in _fields_of(cls):
        name, advanced_here = prefix + field.name, advanced or field.advanced
        item = dataclasses.replace(field, name=name, advanced=advanced_here, depends_on=depends_on)
        if not item.variants:
            yield item
        elif len(item.variants) > 1:
            default, choices = item.variant_of(item.default), tuple(item.variants)
            yield dataclasses.replace(item, kind="choice", default=default, choices=choices)
        for key, variant in item.variants.items():
            only = (name, (key,)) if len(item.variants) > 1 else depends_on
            yield from _walk(variant, f"{name}.", only, advanced_here)


def documented(cls: type[T]) -> type[T]:
    """Add a Parameters section to the docstring of a dataclass, inherited fields last."""
    described = {item.name: item for item in describe(cls)}
    lines = ["Parameters", "----------"]
    own_first = sorted(dataclasses.fields(cls), key=lambda f: f.name not in cls.__annotations__)  # type: ignore[arg-type]
    for field in own_first:
        (item,) = field.metadata.values()
        item, text = described.get(field.name, item), str(field.type)
        if item.kind == "choice" and not item.variants:
            text = "{" + ", ".join(f'"{choice}"' for choice in item.choices) + "}"
        text = re.sub(r"NDArray\[.*\]", "array", text).replace(" | None", ", optional")
        if item.minimum is not None:
            limit = "or more" if item.maximum is None else f"to {item.maximum:.10g}"
            text += f", {item.minimum:.10g} {limit}"
        lines.append(f"{field.name} : {text}, default {field.default!r}")
        lines.append(textwrap.indent(textwrap.fill(item.help, 96), "    "))
    written = inspect.cleandoc(cls.__doc__ or "")
    head, *sections = re.split(r"^(?=Notes\n-|Examples\n-)", written, flags=re.MULTILINE)
    section = "\n".join(lines)
    cls.__doc__ = f"{head.rstrip()}\n\n{section}\n\n{''.join(sections)}".rstrip()
    return cls


def check_bounds(options: object) -> None:
    """Raise InvalidInput for fields of wrong type or out of bounds; called in ``__post_init__``."""
    for item in _fields_of(type(options)):
        value = getattr(options, item.name)
        value = value.item() if isinstance(value, np.generic) else value
        if value is None and item.optional:
            continue
        is_array, expected = item.kind in ("array", "list") and not item.variants, ""
        if is_array and isinstance(value, (str, bytes, dict, bool)):
            expected = "an array"
        elif is_array:
            array = as_array(value, item.name)
            is_numbers = array.dtype.kind in "biuf" and array.ndim and array.size
            if not is_numbers or not np.isfinite(array).all():
                expected = "an array of finite numbers"
        elif not _fits(value, item.hint) or (item.kind == "window" and not _is_window(value)):
            classes = [f"{cls.__name__}(...)" for cls in item.variants.values()]
            one_of = f"{'one of ' * (len(item.choices) > 1)}{', '.join(item.choices)}"
            forms = filter(None, [_EXPECTED.get(item.kind), one_of])
            expected = " or ".join(classes) or ", or ".join(forms)
        elif isinstance(value, float | int) and not item.contains(value):
            bounds = {"at least": item.minimum, "at most": item.maximum}
            limits = [f"{words} {x:.10g}" for words, x in bounds.items() if x is not None]
            expected = " and ".join(limits) or "a finite number"
        if expected:
            raise InvalidInput(f"{item.name}: expected {expected}, got {value!r:.60}")


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has a type; integers also fit floats."""
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        return any(_fits(value, member) for member in members)
    if origin is Literal:
        return isinstance(value, str) and value in members
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(member, members[0]) for member in value)
    if hint in (int, float):
        return isinstance(value, hint | int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _is_window(value: Any) -> bool:
    sides = value if isinstance(value, tuple) else (value,)
    odd = [isinstance(side, str) or (side > 0 and side % 2) for side in sides]
    return bool(odd) and all(odd)


def build(cls: type[T], values: Mapping[str, object]) -> T:
    """Build a dataclass from values by dotted name, with defaults for missing ones."""
    names = sorted(item.name for item in describe(cls))
    unknown = sorted(set(values).difference(names))
    if unknown:
        raise InvalidInput(f"unknown parameter {unknown[0]!r}; known: {', '.join(names)}")
    return _build(cls, values, "")


def _build(cls: type[T], values: Mapping[str, object], prefix: str) -> T:
    arguments: dict[str, object] = {}
    for item in _fields_of(cls):
        variants, name = item.variants, prefix + item.name
        if variants:
            key = values.get(name)
            key = item.variant_of(item.default) if key is None else key
            if not isinstance(key, str) or key not in variants:
                raise InvalidInput(f"{name}: expected one of {', '.join(variants)}, got {key!r}")
            arguments[item.name] = _build(variants[key], values, f"{name}.")
        elif name in values:
            arguments[item.name] = values[name]
    return cls(**arguments)


def values_of(method: object) -> dict[str, object]:
    """Return values by dotted name, inverse of `build`; InvalidInput for unnamed variants."""
    values: dict[str, object] = {}
    for item in _fields_of(type(method)):
        value = getattr(method, item.name)
        if not item.variants:
            values[item.name] = value
            continue
        variant = item.variant_of(value)
        if variant is None:
            raise InvalidInput(f"{item.name}: expected one of {', '.join(item.variants)}")
        if len(item.variants) > 1:
            values[item.name] = variant
        values |= {f"{item.name}.{name}": inner for name, inner in values_of(value).items()}
    return values


def to_plain(method: object) -> JsonObject:
    """Return a dataclass as JSON-compatible values; unnamed variants become ``{"kind": None}``."""
    plain: JsonObject = {}
    for item in _fields_of(type(method)):
        value = getattr(method, item.name)
        if item.variants:
            variant = item.variant_of(value)
            plain[item.name] = {"kind": variant} | (to_plain(value) if variant else {})
        else:
            plain[item.name] = to_jsonable_python(value, fallback=lambda array: array.tolist())
    return plain


def from_plain(cls: type[T], plain: object, location: str = "parameters") -> T:
    """Build a dataclass from the result of `to_plain`, with file paths reduced to their names."""
    if not isinstance(plain, dict):
        raise InvalidInput(f"{location}: expected an object, got {type(plain).__name__}")
    fields = {item.name: item for item in _fields_of(cls)}
    arguments: dict[str, object] = {}
    for name, value in plain.items():
        if name not in fields:
            raise InvalidInput(f"{location}: unknown entry {name!r}; known: {', '.join(fields)}")
        variants = fields[name].variants
        if variants:
            entry = dict(value) if isinstance(value, dict) else {}
            variant = entry.pop("kind", None)
            if not isinstance(variant, str) or variant not in variants:
                names = ", ".join(variants)
                raise InvalidInput(
                    f"{location}.{name}: expected a kind among {names}, got {variant!r}"
                )
            value = from_plain(variants[variant], entry, f"{location}.{name}")
        elif fields[name].files and isinstance(value, str):
            value = value.replace("\\", "/").rpartition("/")[2]
        arguments[name] = np.asarray(value) if isinstance(value, list) else value
    return cls(**arguments)
