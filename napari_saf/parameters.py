"""Parameters of a method: one description for library, form, command line and recipe.

A method is a frozen dataclass. Each of its fields is made by `parameter`, which keeps the
label, the help, the bounds and the level of the field beside its default. A field may hold
another such dataclass (the affinity, the stopping rule) or one of several (the stepper);
`describe` flattens all of it into a list of scalar `Parameter` with dotted names.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

import numpy as np

from napari_saf.errors import InvalidInput

__all__ = [
    "Parameter",
    "build",
    "check_bounds",
    "describe",
    "flatten",
    "from_plain",
    "parameter",
    "to_plain",
    "values_of",
]

Kind = Literal["int", "float", "bool", "choice", "array", "list"]
Condition = tuple[str, tuple[str, ...]]
T = TypeVar("T")
_KEY = "napari_saf"


@dataclasses.dataclass(frozen=True, slots=True)
class _Info:
    """What a field knows of itself beside its type and default."""

    label: str
    help: str
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    ends: tuple[str, str] | None = None
    advanced: bool = False
    variants: Mapping[str, type] | None = None
    none: str = "automatic"
    is_list: bool = False
    words: Mapping[str, str] | None = None
    in_form: bool = True
    for_seeds: bool = False
    at_start: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One scalar parameter of a method, as a form, a command line or a recipe needs it.

    Attributes
    ----------
    name : str
        Dotted path of the field, such as ``"affinity.sigma2"``.
    kind : {"int", "float", "bool", "choice", "array", "list"}
        What values it takes; a list is a short array of numbers that a person types.
    default : object
        Its default; None where None is allowed and is the default.
    optional : bool
        Whether None is allowed.
    choices : tuple of str
        The allowed values of a choice.
    depends_on : tuple of (str, tuple of str) or None
        The name of a choice and those of its values under which alone this parameter exists.
    label, help, minimum, maximum, step, ends, advanced, none, words, in_form, for_seeds, at_start
        As given to `parameter`.
    """

    name: str
    kind: Kind
    default: object
    optional: bool
    label: str
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    ends: tuple[str, str] | None = None
    advanced: bool = False
    depends_on: Condition | None = None
    none: str = "automatic"
    words: Mapping[str, str] | None = None
    in_form: bool = True
    for_seeds: bool = False
    at_start: bool = False


def parameter(
    default: Any,
    *,
    label: str,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    step: float | None = None,
    ends: tuple[str, str] | None = None,
    advanced: bool = False,
    variants: Mapping[str, type] | None = None,
    none: str = "automatic",
    is_list: bool = False,
    words: Mapping[str, str] | None = None,
    in_form: bool = True,
    for_seeds: bool = False,
    at_start: bool = False,
) -> Any:
    """Return a dataclass field that describes itself.

    Parameters
    ----------
    default : object
        Default value.
    label : str
        Plain words for the form.
    help : str
        One or two sentences: the meaning, then the symbol.
    minimum, maximum : float, optional
        Inclusive bounds.
    step : float, optional
        Increment of the form's control.
    ends : tuple of two str, optional
        Words for the two ends of a slider.
    advanced : bool
        Whether the form hides the field at first.
    variants : mapping of str to type, optional
        For a field that holds one of several dataclasses: their names.
    none : str
        Words for None, where that is allowed.
    is_list : bool
        Whether an array is a few numbers in a row that a person can type.
    words : mapping of str to str, optional
        What the form says for the values of a choice, where the values are no plain words.
    in_form : bool
        Whether a form asks for it; library, command line and recipe always take it.
    for_seeds : bool
        Whether it changes nothing without seeds, so that a form asks for it only with strokes.
    at_start : bool
        Whether it says nothing once an assignment to start from is given.
    """
    info = _Info(
        label,
        help,
        minimum,
        maximum,
        step,
        ends,
        advanced,
        variants,
        none,
        is_list,
        words,
        in_form,
        for_seeds,
        at_start,
    )
    return dataclasses.field(default=default, metadata={_KEY: info})


def describe(method: type) -> tuple[Parameter, ...]:
    """Return the scalar parameters of a method class, nested ones included.

    A parameter that several variants of a field share appears once.
    """
    found: dict[str, Parameter] = {}
    for item in _walk(method, prefix="", depends_on=None, advanced=False):
        before = found.get(item.name)
        if before is not None and before.depends_on and item.depends_on:
            shared = (item.depends_on[0], before.depends_on[1] + item.depends_on[1])
            item = dataclasses.replace(before, depends_on=shared)
        found[item.name] = item
    return tuple(found.values())


def _walk(
    cls: type, prefix: str, depends_on: Condition | None, advanced: bool
) -> Iterator[Parameter]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        info = field.metadata.get(_KEY)
        if info is None:
            continue
        name = prefix + field.name
        hidden = advanced or info.advanced
        if info.variants is None:
            yield _scalar(name, hints[field.name], field.default, info, depends_on, hidden)
            continue
        if len(info.variants) > 1:
            yield _variant_choice(name, field.default, info, hidden)
        for key, variant in info.variants.items():
            only = (name, (key,)) if len(info.variants) > 1 else depends_on
            yield from _walk(variant, f"{name}.", only, hidden)


def _variant_choice(name: str, default: object, info: _Info, advanced: bool) -> Parameter:
    assert info.variants is not None
    key = next(key for key, variant in info.variants.items() if isinstance(default, variant))
    choices = tuple(info.variants)
    return Parameter(name, "choice", key, False, info.label, info.help, choices, advanced=advanced)


def _scalar(
    name: str,
    hint: Any,
    default: object,
    info: _Info,
    depends_on: Condition | None,
    advanced: bool,
) -> Parameter:
    kind, optional, choices = _kind_of(hint)
    return Parameter(
        name,
        "list" if info.is_list else kind,
        default,
        optional,
        info.label,
        info.help,
        choices,
        info.minimum,
        info.maximum,
        info.step,
        info.ends,
        advanced,
        depends_on,
        info.none,
        info.words,
        info.in_form,
        info.for_seeds,
        info.at_start,
    )


def _kind_of(hint: Any) -> tuple[Kind, bool, tuple[str, ...]]:
    members = typing.get_args(hint) if _is_union(hint) else (hint,)
    optional = type(None) in members
    for member in members:
        if typing.get_origin(member) is Literal:
            return "choice", optional, typing.get_args(member)
        for scalar in (bool, int, float):
            if member is scalar:
                return typing.cast("Kind", scalar.__name__), optional, ()
    return "array", optional, ()


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


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
        info, value = field.metadata.get(_KEY), getattr(method, field.name)
        if info is None:
            continue
        if info.variants is None:
            values[field.name] = value
            continue
        kind = next((key for key, cls in info.variants.items() if type(value) is cls), None)
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
        info, name = field.metadata.get(_KEY), prefix + field.name
        if info is not None and info.variants is not None:
            arguments[field.name] = _build_variant(info, field.default, values, name)
        elif name in values:
            arguments[field.name] = values[name]
    return cls(**arguments)


def _build_variant(info: _Info, default: object, values: Mapping[str, object], name: str) -> object:
    variants = info.variants
    assert variants is not None
    key = values.get(name)
    if key is None:
        key = next((k for k, cls in variants.items() if isinstance(default, cls)), None)
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
        inner = getattr(value, field.name)
        info = field.metadata.get(_KEY)
        if info is None or info.variants is None:
            plain[field.name] = to_plain(inner)
        else:
            kinds = [key for key, cls in info.variants.items() if type(inner) is cls]
            known = {"kind": kinds[0]} | to_plain(inner) if kinds else {"kind": None}
            plain[field.name] = known
    return plain


def flatten(method: object) -> dict[str, object]:
    """Return the parameters of a method by dotted name, as `build` takes them."""
    known = {item.name for item in describe(type(method))}
    found: dict[str, object] = {}

    def walk(plain: Mapping[str, Any], prefix: str) -> None:
        for key, value in plain.items():
            if isinstance(value, dict):
                found[prefix + key] = value.get("kind")
                walk({k: v for k, v in value.items() if k != "kind"}, f"{prefix}{key}.")
            else:
                found[prefix + key] = np.asarray(value) if isinstance(value, list) else value

    walk(to_plain(method), "")
    return {key: value for key, value in found.items() if key in known}


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
        info = fields[name].metadata.get(_KEY)
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


def check_bounds(method: object) -> None:
    """Check kind and bounds of every field; call it from ``__post_init__``.

    Raises
    ------
    InvalidInput
        Naming the field, what was expected and what came.
    """
    hints = typing.get_type_hints(type(method))
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        info = field.metadata.get(_KEY)
        if info is not None and info.variants is None:
            _check_field(field.name, getattr(method, field.name), hints[field.name], info)


def _check_field(name: str, value: object, hint: Any, info: _Info) -> None:
    kind, optional, choices = _kind_of(hint)
    if value is None and optional:
        return
    if kind == "array":
        if isinstance(value, (str, bytes, dict, bool)):
            raise InvalidInput(f"{name}: expected an array, got {value!r}")
        return
    if isinstance(value, np.ndarray) and _takes_arrays(hint):
        return
    if kind == "choice":
        if value not in choices:
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
    members = typing.get_args(hint) if _is_union(hint) else (hint,)
    return any(typing.get_origin(member) is np.ndarray for member in members)


def _check_range(name: str, value: float, info: _Info) -> None:
    low = -np.inf if info.minimum is None else info.minimum
    high = np.inf if info.maximum is None else info.maximum
    if not (np.isfinite(value) and low <= value <= high):
        bounds = [f"at least {info.minimum:g}"] if info.minimum is not None else []
        bounds += [f"at most {info.maximum:g}"] if info.maximum is not None else []
        expected = " and ".join(bounds) or "a finite number"
        raise InvalidInput(f"{name}: expected {expected}, got {value:g}")


def _an(kind: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "true or false"}[kind]
