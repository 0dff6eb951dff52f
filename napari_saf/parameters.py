"""Parameters: one description for library, form, command line and recipe.

A method is a frozen dataclass, and so are the options of an image. Each field is made by
`parameter`, which keeps the label, the help, the bounds and the level of the field beside its
default. A field may hold another such dataclass (the affinity, the stopping rule) or one of
several (the stepper); `describe` flattens all of it into a list of scalar `Parameter` with dotted
names. Values are validated by pydantic.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from napari_saf.arrays import as_array
from napari_saf.errors import InvalidInput

__all__ = [
    "Parameter",
    "build",
    "check_bounds",
    "describe",
    "from_plain",
    "parameter",
    "to_plain",
    "values_of",
]

T = TypeVar("T")
Kind = Literal["int", "float", "bool", "choice", "array", "list", "window", "range", "text"]
Condition = tuple[str, tuple[str, ...]]
_KEY = "napari_saf"
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "text": "a text",
    "window": "odd whole numbers of 1 or more",
    "range": "low and high",
}
_BEYOND = ("greater_than_equal", "less_than_equal", "finite_number")
"""What pydantic calls a number that is out of bounds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter, as a form, a command line or a recipe needs it; made by `parameter`.

    Attributes
    ----------
    name : str
        Dotted path of the field, such as ``"affinity.sigma2"``.
    kind : {"int", "float", "bool", "choice", "array", "list", "window", "range", "text"}
        What values it takes; a list is a short array of numbers that a person types, a window an
        odd side length or one for each axis, a range a lower and an upper value.
    default : object
        Its default; None where None is allowed and is the default.
    optional : bool
        Whether None is allowed.
    depends_on : tuple of (str, tuple of str) or None
        The name of a choice and those of its values under which alone this parameter exists.
    label, help, minimum, maximum, step, ends, advanced, variants, choices, none, is_list, words,
    in_form, for_seeds, at_start
        As given to `parameter`; the choices are those of the type, where none are given.
    """

    label: str
    help: str
    name: str = ""
    kind: Kind = "array"
    default: object = None
    optional: bool = False
    depends_on: Condition | None = None
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    ends: tuple[str, str] | None = None
    advanced: bool = False
    variants: Mapping[str, type] = dataclasses.field(default_factory=dict)
    choices: tuple[str, ...] = ()
    none: str = "automatic"
    is_list: bool = False
    words: Mapping[str, str] | None = None
    in_form: bool = True
    for_seeds: bool = False
    at_start: bool = False

    def variant_of(self, value: object) -> str | None:
        """Return the name of the variant that a value is, None if it is none of them."""
        return next((key for key, cls in self.variants.items() if type(value) is cls), None)


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
    choices: tuple[str, ...] = (),
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
    choices : tuple of str
        For a field of texts: the values to offer; whether others will do is for the class to say.
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
    info = Parameter(
        default=default,
        label=label,
        help=help,
        minimum=minimum,
        maximum=maximum,
        step=step,
        ends=ends,
        advanced=advanced,
        variants=variants or {},
        choices=choices,
        none=none,
        is_list=is_list,
        words=words,
        in_form=in_form,
        for_seeds=for_seeds,
        at_start=at_start,
    )
    return dataclasses.field(default=default, metadata={_KEY: info})


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Field:
    """A parameter that is a field itself, and the type hint by which it is validated."""

    parameter: Parameter
    hint: Any


def _read_fields(cls: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    fields = []
    for field in dataclasses.fields(cls):
        info: Parameter | None = field.metadata.get(_KEY)
        if info is not None:
            kind, optional, choices = _kind_of(hints[field.name])
            described = dataclasses.replace(
                info,
                name=field.name,
                kind="list" if info.is_list else "choice" if info.choices else kind,
                optional=optional,
                choices=info.choices or choices,
            )
            fields.append(_Field(described, hints[field.name]))
    return tuple(fields)


_fields_of: Callable[[Any], tuple[_Field, ...]] = functools.cache(_read_fields)


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the hint itself."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _kind_of(hint: Any) -> tuple[Kind, bool, tuple[str, ...]]:
    """Return the kind that a type hint stands for, whether None will do, and the choices."""
    members = _members(hint)
    optional = type(None) in members
    if any(typing.get_origin(member) is tuple for member in members):
        return "window", optional, ()
    for member in members:
        if typing.get_origin(member) is Literal:
            return "choice", optional, typing.get_args(member)
        if member in (bool, int, float):
            return typing.cast("Kind", member.__name__), optional, ()
        if member is str or dataclasses.is_dataclass(member):
            return "text" if member is str else "range", optional, ()
    return "array", optional, ()


def describe(cls: type) -> tuple[Parameter, ...]:
    """Return the scalar parameters of a dataclass, nested ones included.

    A parameter that several variants of a field share appears once.
    """
    found: dict[str, Parameter] = {}
    for item in _walk(cls, prefix="", depends_on=None, advanced=False):
        before = found.get(item.name)
        if before is not None and before.depends_on and item.depends_on:
            shared = (item.depends_on[0], before.depends_on[1] + item.depends_on[1])
            item = dataclasses.replace(before, depends_on=shared)
        found[item.name] = item
    return tuple(found.values())


def _walk(
    cls: type, prefix: str, depends_on: Condition | None, advanced: bool
) -> Iterator[Parameter]:
    for field in _fields_of(cls):
        name = prefix + field.parameter.name
        item = dataclasses.replace(
            field.parameter, name=name, advanced=advanced or field.parameter.advanced
        )
        if not item.variants:
            yield dataclasses.replace(item, depends_on=depends_on)
            continue
        is_choice = len(item.variants) > 1
        if is_choice:
            default, choices = item.variant_of(item.default), tuple(item.variants)
            yield dataclasses.replace(item, kind="choice", default=default, choices=choices)
        for key, variant in item.variants.items():
            only = (name, (key,)) if is_choice else depends_on
            yield from _walk(variant, f"{name}.", only, item.advanced)


def check_bounds(method: object) -> None:
    """Check kind and bounds of every field; call it from ``__post_init__``.

    Raises
    ------
    InvalidInput
        Naming the field, what was expected and what came.
    """
    for field in _fields_of(type(method)):
        item, value = field.parameter, getattr(method, field.parameter.name)
        if item.variants:
            if not isinstance(value, field.hint):
                known = [f"{cls.__name__}(...)" for cls in item.variants.values()]
                raise InvalidInput(f"{item.name}: expected {' or '.join(known)}, got {value!r}")
        elif value is not None or not item.optional:
            _check_value(field, value)


def _check_value(field: _Field, value: Any) -> None:
    item = field.parameter
    if item.kind in ("array", "list"):
        if isinstance(value, (str, bytes, dict, bool)):
            raise InvalidInput(f"{item.name}: expected an array, got {value!r}")
        array = as_array(value, item.name)
        if array.dtype.kind not in "biuf" or not array.ndim or not array.size:
            raise InvalidInput(
                f"{item.name}: expected an array of finite numbers, got {value!r:.60}"
            )
        return
    origins = [typing.get_origin(member) for member in _members(field.hint)]
    if isinstance(value, np.ndarray) and np.ndarray in origins:
        return
    plain = value.item() if isinstance(value, np.generic) else value
    try:
        # pydantic takes what has __float__ for a number
        is_other = item.kind in ("int", "float") and not isinstance(plain, int | float)
        _adapter_of(field).validate_python(None if is_other else plain, strict=True)
    except ValidationError as error:
        expected, bounds = _expected(item), _bounds(item)
        if error.errors()[0]["type"] in _BEYOND and item.kind in ("int", "float"):
            expected = bounds
        raise InvalidInput(f"{item.name}: expected {expected}, got {plain!r:.60}") from None


def _odd(side: int) -> int:
    if side % 2 == 0:
        raise ValueError("expected an odd number")
    return side


_Side = Annotated[int, Field(ge=1), AfterValidator(_odd)]


@functools.cache
def _adapter_of(field: _Field) -> TypeAdapter[Any]:
    """Return what validates the scalar values of a field."""
    bounds: dict[str, Any] = {"ge": field.parameter.minimum, "le": field.parameter.maximum}
    hints: dict[str, Any] = {
        "int": Annotated[int, Field(**bounds)],
        "float": Annotated[float, Field(allow_inf_nan=False, **bounds)],
        "window": _Side | Annotated[tuple[_Side, ...], Field(min_length=1)],
    }
    return TypeAdapter(hints.get(field.parameter.kind, field.hint))


def _expected(item: Parameter) -> str:
    return _EXPECTED.get(item.kind, f"one of {', '.join(item.choices)}")


def _bounds(item: Parameter) -> str:
    bounds = [f"at least {item.minimum:.10g}"] if item.minimum is not None else []
    bounds += [f"at most {item.maximum:.10g}"] if item.maximum is not None else []
    return " and ".join(bounds) or "a finite number"


def build(cls: type[T], values: Mapping[str, object]) -> T:
    """Make a method from values given by dotted name; what is absent keeps its default.

    Raises
    ------
    InvalidInput
        If a name is unknown or a value is of the wrong kind or out of bounds.
    """
    known = sorted(item.name for item in describe(cls))
    unknown = sorted(set(values).difference(known))
    if unknown:
        raise InvalidInput(f"unknown parameter {unknown[0]!r}; known: {', '.join(known)}")
    return _build(cls, values, "")


def _build(cls: type[T], values: Mapping[str, object], prefix: str) -> T:
    arguments: dict[str, object] = {}
    for item in (field.parameter for field in _fields_of(cls)):
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
    """Return the values of a method by dotted name, of which `build` makes the same again.

    Raises
    ------
    InvalidInput
        If it holds something that is no named variant, such as a given affinity.
    """
    values: dict[str, object] = {}
    for item in (field.parameter for field in _fields_of(type(method))):
        value = getattr(method, item.name)
        if not item.variants:
            values[item.name] = value
            continue
        kind = item.variant_of(value)
        if kind is None:
            raise InvalidInput(f"{item.name}: expected one of {', '.join(item.variants)}")
        if len(item.variants) > 1:
            values[item.name] = kind
        values |= {f"{item.name}.{name}": inner for name, inner in values_of(value).items()}
    return values


def to_plain(value: object) -> Any:
    """Return a dataclass of parameters as dicts, lists and scalars that JSON can hold.

    What is no named variant of its field, such as an affinity given as a matrix, becomes
    ``{"kind": None}``: no file can repeat it.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return to_jsonable_python(value, fallback=lambda array: array.tolist())
    known = {field.parameter.name: field.parameter for field in _fields_of(type(value))}
    plain = {}
    for field in dataclasses.fields(value):
        item, inner = known.get(field.name), getattr(value, field.name)
        if item is None or not item.variants:
            plain[field.name] = to_plain(inner)
        else:
            kind = item.variant_of(inner)
            plain[field.name] = {"kind": kind} | (to_plain(inner) if kind else {})
    return plain


def from_plain(cls: type[T], plain: object, where: str = "parameters") -> T:
    """Make a dataclass of parameters from what `to_plain` returned.

    Raises
    ------
    InvalidInput
        If a name is unknown or a value is of the wrong kind or out of bounds.
    """
    if not isinstance(plain, dict):
        raise InvalidInput(f"{where}: expected an object, got {type(plain).__name__}")
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    variants = {field.parameter.name: field.parameter.variants for field in _fields_of(cls)}
    arguments: dict[str, object] = {}
    for name, inner in plain.items():
        if name not in names:
            raise InvalidInput(f"{where}: unknown entry {name!r}; known: {', '.join(names)}")
        if variants.get(name):
            arguments[name] = _variant_from_plain(variants[name], inner, f"{where}.{name}")
        else:
            arguments[name] = np.asarray(inner) if isinstance(inner, list) else inner
    return cls(**arguments)


def _variant_from_plain(variants: Mapping[str, type], plain: object, where: str) -> object:
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not isinstance(kind, str) or kind not in variants:
        raise InvalidInput(f"{where}: expected a kind among {', '.join(variants)}, got {kind!r}")
    rest = {key: value for key, value in plain.items() if key != "kind"}
    return from_plain(variants[kind], rest, where)
