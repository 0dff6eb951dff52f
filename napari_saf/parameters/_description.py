"""What a field of a method says of itself, and all of a method's fields in a row."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

__all__ = ["FieldInfo", "Parameter", "describe", "info_of", "kind_of", "members_of", "parameter"]

Kind = Literal["int", "float", "bool", "choice", "array", "list"]
Condition = tuple[str, tuple[str, ...]]
_KEY = "napari_saf"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    """What `parameter` is told of a field and a form is told of a parameter."""

    label: str
    help: str
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    ends: tuple[str, str] | None = None
    advanced: bool = False
    none: str = "automatic"
    words: Mapping[str, str] | None = None
    in_form: bool = True
    for_seeds: bool = False
    at_start: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FieldInfo(_Description):
    """What a field knows of itself beside its type and default."""

    variants: Mapping[str, type] | None = None
    is_list: bool = False

    def variant_of(self, value: object) -> str | None:
        """Return the name of the variant that a value is, None if it is none of them."""
        variants = self.variants or {}
        return next((key for key, cls in variants.items() if type(value) is cls), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(_Description):
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
    choices: tuple[str, ...] = ()
    depends_on: Condition | None = None


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
    info = FieldInfo(
        label=label,
        help=help,
        minimum=minimum,
        maximum=maximum,
        step=step,
        ends=ends,
        advanced=advanced,
        variants=variants,
        none=none,
        is_list=is_list,
        words=words,
        in_form=in_form,
        for_seeds=for_seeds,
        at_start=at_start,
    )
    return dataclasses.field(default=default, metadata={_KEY: info})


def info_of(field: dataclasses.Field[Any]) -> FieldInfo | None:
    """Return what a field knows of itself, None if `parameter` did not make it."""
    info: FieldInfo | None = field.metadata.get(_KEY)
    return info


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
        info = info_of(field)
        if info is None:
            continue
        name = prefix + field.name
        info = dataclasses.replace(info, advanced=advanced or info.advanced)
        if info.variants is None:
            yield _scalar(name, hints[field.name], field.default, info, depends_on)
            continue
        if len(info.variants) > 1:
            yield _variant_choice(name, field.default, info)
        for key, variant in info.variants.items():
            only = (name, (key,)) if len(info.variants) > 1 else depends_on
            yield from _walk(variant, f"{name}.", only, info.advanced)


def _variant_choice(name: str, default: object, info: FieldInfo) -> Parameter:
    return Parameter(
        name=name,
        kind="choice",
        default=info.variant_of(default),
        optional=False,
        choices=tuple(info.variants or ()),
        **_described(info),
    )


def _scalar(
    name: str, hint: Any, default: object, info: FieldInfo, depends_on: Condition | None
) -> Parameter:
    kind, optional, choices = kind_of(hint)
    return Parameter(
        name=name,
        kind="list" if info.is_list else kind,
        default=default,
        optional=optional,
        choices=choices,
        depends_on=depends_on,
        **_described(info),
    )


def _described(info: FieldInfo) -> dict[str, Any]:
    return {field.name: getattr(info, field.name) for field in dataclasses.fields(_Description)}


def kind_of(hint: Any) -> tuple[Kind, bool, tuple[str, ...]]:
    """Return the kind that a type hint stands for, whether None will do, and the choices."""
    members = members_of(hint)
    optional = type(None) in members
    for member in members:
        if typing.get_origin(member) is Literal:
            return "choice", optional, typing.get_args(member)
        for scalar in (bool, int, float):
            if member is scalar:
                return typing.cast("Kind", scalar.__name__), optional, ()
    return "array", optional, ()


def members_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the hint itself."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)
