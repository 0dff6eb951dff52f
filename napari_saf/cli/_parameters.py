"""Options of the command line made from the parameters that the methods describe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import click

from napari_saf.cli._values import ParameterValue
from napari_saf.io import PrototypeSet
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import Parameter, build, describe, values_of

__all__ = ["given_parameters", "make_method", "make_of", "method_options", "summary"]

_PREFIX = "parameter__"
T = TypeVar("T", bound=AbstractMethod)


def method_options(
    taken: Collection[str],
    methods: Mapping[str, type[AbstractMethod]] = METHODS,
    without: Collection[str] = (),
) -> list[click.Option]:
    """Return one option for every parameter of every method.

    Parameters
    ----------
    taken : collection of str
        Flags that mean something else, such as ``"--mask"``; no alias takes them.
    methods : mapping of str to type
        The methods, by name.
    without : collection of str
        Dotted names of parameters that are not offered.
    """
    found = _parameters_by_name(methods)
    found = {name: known for name, known in found.items() if name not in without}
    last_parts = Counter(name.rpartition(".")[2] for name in found)
    options = []
    for name, known in found.items():
        flag, alias = _flag(name), _flag(name.rpartition(".")[2])
        short = last_parts[name.rpartition(".")[2]] == 1 and alias != flag and alias not in taken
        flags = [flag, alias] if short else [flag]
        is_shared = len(known) == len(methods)
        options.append(_option(flags, _PREFIX + name.replace(".", "__"), known, is_shared))
    return options


def given_parameters(ctx: click.Context) -> dict[str, object]:
    """Return the parameters given on the command line, by dotted name."""
    source = click.core.ParameterSource.COMMANDLINE
    return {
        key.removeprefix(_PREFIX).replace("__", "."): _none_or(value)
        for key, value in ctx.params.items()
        if key.startswith(_PREFIX) and ctx.get_parameter_source(key) is source
    }


def make_method(
    name: str, given: Mapping[str, object], base: AbstractMethod | None = None
) -> AbstractMethod:
    """Make a method from the given parameters, the others as in `base` or by default.

    Raises
    ------
    UsageError
        If the method, or the variant that was chosen, has no such parameter.
    InvalidInput
        If a value is out of bounds.
    """
    return make_of(METHODS[name], given, base)


def make_of(method: type[T], given: Mapping[str, object], base: AbstractMethod | None = None) -> T:
    """Make a method of a class; see `make_method`."""
    values = {} if base is None else values_of(base)
    known = {item.name: item for item in describe(method)}
    given = {_own_name(key, known): value for key, value in _spread(method, given, known)}
    if "prototypes" in given:  # labels that a recipe has for others go with those
        values.pop("prototype_labels", None)
    values |= given
    for key in given:
        if key not in known:
            raise click.UsageError(f"{_flag(key)}: the method {method.name!r} has no such option")
        if known[key].kind == "array" and isinstance(given[key], str):
            raise click.UsageError(f"{_flag(key)}: expected a file, got {given[key]!r}")
        need = known[key].depends_on
        if need is not None and values.get(need[0], known[need[0]].default) not in need[1]:
            raise click.UsageError(f"{_flag(key)}: goes with {_condition(need)}")
    return build(method, values)


def _spread(
    method: type[AbstractMethod], given: Mapping[str, object], known: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Yield what is given: first prototypes of a file, as the parameters that they are."""
    for key, value in sorted(given.items(), key=lambda pair: not isinstance(pair[1], PrototypeSet)):
        if not isinstance(value, PrototypeSet):
            yield key, value
            continue
        arguments = value.arguments()
        if not arguments.keys() <= set(known):
            raise click.UsageError(
                f"{_flag(key)}: the method {method.name!r} takes no file of prototypes"
            )
        yield from arguments.items()


def _own_name(name: str, known: Collection[str]) -> str:
    """Return the parameter that a method means by a name that another method has, too."""
    meant = [own for own in known if own.rpartition(".")[2] == name]
    return meant[0] if name not in known and len(meant) == 1 else name


def summary(item: Parameter) -> str:
    """Return default, bounds and condition of a parameter in a few words."""
    words = [f"default {'none' if item.default is None else item.default}"]
    words += [f"at least {item.minimum:.10g}"] if item.minimum is not None else []
    words += [f"at most {item.maximum:.10g}"] if item.maximum is not None else []
    words += ["or none"] if item.optional and item.default is not None else []
    words += [f"with {_condition(item.depends_on)}"] if item.depends_on else []
    return ", ".join(words)


def _parameters_by_name(
    methods: Mapping[str, type[AbstractMethod]],
) -> dict[str, dict[str, Parameter]]:
    """Return the parameters of all methods: by name, then by method."""
    found: dict[str, dict[str, Parameter]] = {}
    for method_name, method in methods.items():
        for item in describe(method):
            found.setdefault(item.name, {})[method_name] = item
    return found


def _condition(need: tuple[str, tuple[str, ...]]) -> str:
    return f"{_flag(need[0])} {' or '.join(need[1])}"


def _option(
    flags: list[str], dest: str, known: Mapping[str, Parameter], is_shared: bool
) -> click.Option:
    items = list(known.values())
    kinds = {item.kind for item in items}
    optional = any(item.optional for item in items)
    texts: dict[str, list[str]] = {}
    for method, item in known.items():
        texts.setdefault(f"{item.help} [{summary(item)}]", []).append(method)
    each = [f"{', '.join(owners)}: {text}" for text, owners in texts.items()]
    described = next(iter(texts)) if is_shared and len(texts) == 1 else " / ".join(each)
    if kinds == {"bool"}:
        flags = [f"{flag}/--no-{flag.removeprefix('--')}" for flag in flags]
        return click.Option([*flags, dest], default=None, help=described)
    choices = dict.fromkeys(choice for item in items for choice in item.choices)
    value: click.ParamType[Any] = ParameterValue(sorted(kinds), optional, tuple(choices))
    if kinds == {"choice"}:
        value = click.Choice([*choices, *["none"] * optional])
    return click.Option([*flags, dest], type=value, default=None, help=described)


def _flag(name: str) -> str:
    return "--" + name.replace(".", "-").replace("_", "-")


def _none_or(value: object) -> object:
    return None if isinstance(value, str) and value == "none" else value
