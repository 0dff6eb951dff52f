"""Options of commands, generated from the fields of dataclasses.

A command is a frozen dataclass: its docstring is the help, `run` does it. A field is an argument or
an option (`argument`, `option`), or holds what is given for the parameters of other dataclasses: of
a step (`step_options`), of images (`image_options`) or of methods (`method_options`).
"""

from __future__ import annotations

import abc
import dataclasses
import typing
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click
import numpy as np

from napari_saf import io
from napari_saf.errors import FormatError
from napari_saf.features import (
    Scaling,
)
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import READERS, Parameter, build, describe, parameter_named, values_of

T = TypeVar("T", bound=AbstractMethod)
S = TypeVar("S")
_KEY = "napari_saf.cli"
_NONE = "none"
PATH: Any = click.Path(path_type=Path)
_DEBUG = click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks.")


class AbstractCommand(abc.ABC):
    """A command: a frozen dataclass whose fields are its options; or a group of commands."""

    subcommands: ClassVar[tuple[type[AbstractCommand], ...]] = ()

    @abc.abstractmethod
    def run(self) -> int | None:
        """Run the command; return the exit code, None for 0."""


def option(default: Any, text: str, flag: str = "", **attributes: Any) -> Any:
    """Return a dataclass field for an option; its type is that of the field.

    `choices`, `minimum` and `maximum` limit values; other attributes are those of `click.Option`.
    """
    attributes = {"help": text, "default": default} | attributes
    return dataclasses.field(default=default, metadata={_KEY: (flag, attributes)})


def output(metavar: str, text: str, default: str | None = None) -> Any:
    """Return the field of the option ``--output``."""
    return option(default, text, "--output", metavar=metavar, required=default is None)


def argument(metavar: str, **attributes: Any) -> Any:
    """Return a dataclass field for an argument, required unless `required` is False."""
    return dataclasses.field(metadata={_KEY: (None, {"metavar": metavar} | attributes)})


def make_command(cls: type[AbstractCommand]) -> click.Command:
    """Convert a dataclass to a command of the same name: own fields first, methods last."""
    name = "".join(f"-{c.lower()}" if c.isupper() else c for c in cls.__name__).strip("-")
    if cls.subcommands:
        return click.Group(name, commands=[*map(make_command, cls.subcommands)], help=cls.__doc__)
    hints, fields = typing.get_type_hints(cls), dataclasses.fields(cls)  # type: ignore[arg-type]
    entries: dict[str, Any] = {field.name: field.metadata[_KEY] for field in fields}
    plain = {field: entry for field, entry in entries.items() if isinstance(entry, tuple)}
    params = {field: [_plain_param(field, hints[field], *plain[field])] for field in plain}
    taken = {flag for options in params.values() for param in options for flag in param.opts}
    taken |= {"--help", "--version"}
    groups = {field: entry for field, entry in entries.items() if field not in params}
    params |= {field: group.params(field, taken) for field, group in groups.items()}
    last = [field for field, hint in hints.items() if hint is GivenMethods]
    ordered = sorted(entries, key=lambda field: (field in last, field not in cls.__annotations__))

    def call(**values: Any) -> int | None:
        read = {field: group.read(field, values) for field, group in groups.items()}
        read |= {field: values[field] for field in plain}
        return cls(**read).run()

    every = [param for field in ordered for param in params[field]]
    return click.Command(name, params=[*every, _DEBUG], callback=call, help=cls.__doc__)


def _plain_param(
    name: str, hint: Any, flag: str | None, attributes: Mapping[str, Any]
) -> click.Parameter:
    members = [hint, *typing.get_args(hint)]
    minimum, maximum = attributes.get("minimum"), attributes.get("maximum")
    is_many = typing.get_origin(hint) in (tuple, dict)
    value: Any = PATH if Path in members else str
    if "choices" in attributes:
        value = click.Choice(attributes["choices"])
    elif int in members and not is_many:
        value = int if minimum is None else click.IntRange(minimum, maximum)
    elif float in members:
        value = float if maximum is None else click.FloatRange(minimum, maximum)
    limits = ("choices", "minimum", "maximum")
    described = {"type": value} | {k: v for k, v in attributes.items() if k not in limits}
    if flag is None:
        described = {"required": True, "nargs": -1 if is_many else 1} | described
        return click.Argument([name], **described)
    flags = ["-o", flag] if flag == "--output" else [flag or flag_of(name)]
    if hint is bool:
        return click.Option([*flags, name], is_flag=True, help=described["help"])
    if is_many or described["default"] is None:
        del described["default"]  # None would be a value
    shows_default = bool(described.get("default"))
    return click.Option([*flags, name], multiple=is_many, show_default=shows_default, **described)


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """Values given for the parameters of a dataclass, by dotted name; None for ``none``."""

    values: Mapping[str, Any]

    def on(self, base: S) -> S:
        """Return `base` with the given values."""
        return build(type(base), values_of(base) | dict(self.values))


@dataclasses.dataclass(frozen=True, slots=True)
class GivenMethods(Given):
    """Values given for the parameters of methods."""

    @property
    def prototypes(self) -> io.PrototypeSet | None:
        """The given prototypes, if any."""
        values = self.values.values()
        return next((value for value in values if isinstance(value, io.PrototypeSet)), None)

    def make(self, method: type[T], base: AbstractMethod | None = None) -> T:
        """Create a method from the given values, with other parameters from `base` or defaults.

        Raise UsageError for parameters unknown to the method or its chosen variant.
        """
        values = {} if base is None else values_of(base)
        parameters = {item.name: item for item in describe(method)}
        changes = _names_of_method(method, self.values, parameters)
        if "prototypes" in changes:  # labels of other prototypes in the recipe do not apply
            values.pop("prototype_labels", None)
        values |= changes
        for name, value in changes.items():
            flag = flag_of(name)
            if name not in parameters:
                raise click.UsageError(f"{flag}: the method {method.name!r} has no such option")
            if parameters[name].kind == "array" and isinstance(value, str):
                raise click.UsageError(f"{flag}: expected a file, got {value!r}")
            need = parameters[name].depends_on
            if need is not None and values.get(need[0], parameters[need[0]].default) not in need[1]:
                raise click.UsageError(f"{flag}: goes with {_condition(need)}")
        return build(method, values)

    def make_each(self, methods: Sequence[type[T]]) -> list[T]:
        """Create methods, each with the given parameters that it accepts.

        Raise UsageError for a parameter that no method accepts.
        """
        for name in self.values:
            if not any(parameter_named(method, name) for method in methods):
                names = ", ".join(method.name for method in methods)
                raise click.UsageError(f"{flag_of(name)}: none of {names} has such an option")
        items = self.values.items()
        each = [{n: v for n, v in items if parameter_named(method, n)} for method in methods]
        return [GivenMethods(values).make(m) for values, m in zip(each, methods, strict=True)]


def _names_of_method(
    method: type[AbstractMethod], values: Mapping[str, Any], parameters: Collection[str]
) -> dict[str, Any]:
    """Return the given values by the parameter names of a method.

    Prototypes of a file come first, as parameters; a name unknown to the method stands for the one
    parameter whose dotted name ends in it.
    """
    named: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, io.PrototypeSet):
            longer = [full for full in parameters if full.rpartition(".")[2] == name]
            named[longer[0] if name not in parameters and len(longer) == 1 else name] = value
        elif value.arguments().keys() <= set(parameters):
            named = value.arguments() | named
        else:
            raise click.UsageError(f"{flag_of(name)}: {method.name!r} takes no file of prototypes")
    return named


@dataclasses.dataclass(frozen=True, slots=True)
class _ParameterOptions:
    """Options for all parameters of some dataclasses, `described` by their names."""

    described: Mapping[str, Mapping[str, Parameter]]
    n_owners: int
    prefix: str
    result: type[Given]

    def params(self, name: str, taken: Collection[str]) -> list[click.Parameter]:
        """Return the options; the last part of a dotted name is a short form if it is unique."""
        last_parts = Counter(dotted.rpartition(".")[2] for dotted in self.described)
        options: list[click.Parameter] = []
        for dotted, items in self.described.items():
            flags = [flag_of(self.prefix + dotted)]
            last = dotted.rpartition(".")[2]
            short = flag_of(self.prefix + last)
            if short not in (*flags, *taken) and last_parts[last] == 1:
                flags.append(short)
            is_shared = len(items) == self.n_owners
            flags.append(dest_of(name, dotted))
            options.append(parameter_option(flags, items, is_shared=is_shared))
        return options

    def read(self, name: str, values: Mapping[str, Any]) -> Given:
        return self.result(given_values(name, self.described, values))


def step_options(step: type, prefix: str = "", without: Collection[str] = ()) -> Any:
    """Return a field of type `Given` for the parameters of a step, such as `ObjectStep`."""
    return _parameter_field({"": step}, prefix, without, Given)


def method_options(
    methods: Mapping[str, type[AbstractMethod]] = METHODS, without: Collection[str] = ()
) -> Any:
    """Return a field of type `GivenMethods` for the parameters of all methods, with exceptions."""
    return _parameter_field(methods, "", without, GivenMethods)


def _parameter_field(
    owners: Mapping[str, type], prefix: str, without: Collection[str], result: type[Given]
) -> Any:
    described = {n: items for n, items in described_by(owners).items() if n not in without}
    return option_group(_ParameterOptions(described, len(owners), prefix, result))


def option_group(group: Any) -> Any:
    """Return a field for the options of `group.params`, with the value of `group.read`."""
    return dataclasses.field(metadata={_KEY: group})


def described_by(owners: Mapping[str, type]) -> dict[str, dict[str, Parameter]]:
    """Return the parameters of dataclasses by dotted name, then by name of the owner."""
    described: dict[str, dict[str, Parameter]] = {}
    for owner, cls in owners.items():
        for item in describe(cls):
            described.setdefault(item.name, {})[owner] = item
    return described


def dest_of(field: str, name: str) -> str:
    """Return the click name of the value of a parameter of a field."""
    return f"{field}__{name.replace('.', '__')}"


def given_values(field: str, names: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values given for the parameters of a field, by name; None for ``none``."""
    read = {name: values[dest_of(field, name)] for name in names}
    is_none = {name for name, value in read.items() if isinstance(value, str) and value == _NONE}
    not_none = {name: value for name, value in read.items() if value is not None}
    return {name: None if name in is_none else value for name, value in not_none.items()}


def parameter_option(
    flags: list[str],
    items: Mapping[str, Parameter],
    *,
    is_shared: bool,
    takes_other_texts: bool = False,
) -> click.Option:
    """Return the option of a parameter, with each distinct description of its owners.

    With `takes_other_texts` the choices of a text are only suggestions.
    """
    is_free = takes_other_texts and any(item.hint is str for item in items.values())
    kinds = {"text"} if is_free else {item.kind for item in items.values()}
    optional = any(item.optional for item in items.values())
    texts: dict[str, list[str]] = {}
    for owner, item in items.items():
        text = f"{item.help} [{summary(item)}]".removesuffix(" []")
        texts.setdefault(text, []).append(owner)
    each = [f"{', '.join(owners)}: {text}" for text, owners in texts.items()]
    described = next(iter(texts)) if is_shared and len(texts) == 1 else " / ".join(each)
    if kinds == {"bool"}:
        *names, dest = flags
        names = [f"{name}/--no-{name.removeprefix('--')}" for name in names]
        return click.Option([*names, dest], default=None, help=described)
    choices = [*dict.fromkeys(c for item in items.values() for c in item.choices if c)]
    value: click.ParamType[Any] = ParameterValue(kinds, optional, choices)
    if kinds == {"choice"}:
        value = click.Choice([*choices, *[_NONE] * optional])
    return click.Option(flags, type=value, help=described)


def summary(item: Parameter) -> str:
    """Return default, bounds and condition of a parameter."""
    default = _NONE if item.default is None else item.default
    default = f"{_NONE}: all" if item.default is None and item.none == "all" else default
    texts = [] if item.default in ("", ()) else [f"default {default}"]
    texts += [f"at least {item.minimum:.10g}"] if item.minimum is not None else []
    texts += [f"at most {item.maximum:.10g}"] if item.maximum is not None else []
    texts += ["or none"] if item.optional and item.default is not None else []
    texts += [f"with {_condition(item.depends_on)}"] if item.depends_on else []
    return ", ".join(texts)


def _condition(need: tuple[str, tuple[str, ...]]) -> str:
    return f"{flag_of(need[0])} {' or '.join(need[1])}"


def flag_of(name: str) -> str:
    return "--" + name.replace(".", "-").replace("_", "-")


def _read_numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _read_rows(path: str) -> object:
    """Read an array, or prototypes with their labels, names and options."""
    return io.load_prototypes(path) if Path(path).suffix.lower() == ".json" else io.read_array(path)


def _read_level(text: str) -> float:
    level = float(text)
    if not 0 <= level <= 1:
        raise ValueError(text)
    return level


_KINDS: dict[str, tuple[str, str, Callable[[str], object]]] = {
    "int": ("INT", *READERS["int"]),
    "float": ("FLOAT", *READERS["float"]),
    "list": ("FLOAT,...", "comma-separated numbers", lambda t: np.array(_read_numbers(t))),
    "array": ("FILE", "a file", _read_rows),
    "window": ("ODD[xODD...]", *READERS["window"]),
    "labels": ("LABEL,...", *READERS["labels"]),
    "range": (
        "LOW,HIGH",
        "two numbers, the lower first, such as 0,255",
        lambda text: Scaling.given(*_read_numbers(text)),
    ),
    "level": ("LEVEL", "a level from 0 to 1", _read_level),
    "text": ("TEXT", "text", str),
}
"""Metavar, description and parser of values by kind; the first successful parser is used."""


class ParameterValue(click.ParamType):  # type: ignore[type-arg]
    """A choice, ``none``, or a value of a kind: numbers, a range, the path of an array."""

    name = "value"

    def __init__(
        self, kinds: Collection[str], optional: bool = False, choices: Sequence[str] = ()
    ) -> None:
        self.kinds = [_KINDS[name] for name in _KINDS if name in kinds]
        self.choices, self.none = [*choices], [_NONE] * optional

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join([*self.choices, *(metavar for metavar, _, _ in self.kinds), *self.none])

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the value parsed by the first matching kind; choices and ``none`` stay texts."""
        if value in self.choices or value.lower() in self.none:
            return value if value in self.choices else _NONE
        for _, _, read in self.kinds:
            try:
                return read(value)
            except FormatError:
                raise
            except (ValueError, TypeError):
                continue
        expected = " or ".join([*self.choices, *(text for _, text, _ in self.kinds), *self.none])
        return self.fail(f"{value!r} is not {expected}", param, ctx)
