"""Options of the command line, made of what methods and images say of their parameters."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf.batch import ProblemSource
from napari_saf.errors import FormatError
from napari_saf.features import FEATURES, Scaling, check_group_source
from napari_saf.input import WEIGHTS
from napari_saf.io import PrototypeSet, load_prototypes, read_array
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import Parameter, build, describe, values_of
from napari_saf.problem import ImageOptions

__all__ = [
    "DEBUG",
    "GROUPS_HELP",
    "HELP_NAMES",
    "PATH",
    "NumberList",
    "ParameterValue",
    "ValueRange",
    "flag_of",
    "given_parameters",
    "image_changes",
    "image_parameters",
    "make_method",
    "method_command",
    "problem_source",
    "read_group_option",
    "summary",
]

PATH: Any = click.Path(path_type=Path)
HELP_NAMES = {"help_option_names": ["-h", "--help"]}
DEBUG = click.Option(["--debug"], is_flag=True, help="Show the traceback of an error.")
GROUPS_HELP = (
    "Groups that labels are to be spread over: the images, the slices along an axis, the "
    "pixels above a threshold in a channel (T, or found), or a label image."
)
_PREFIX = "parameter__"
_KINDS = {
    "int": ("INT", "a whole number"),
    "float": ("FLOAT", "a number"),
    "list": ("FLOAT,...", "numbers with commas between"),
    "array": ("FILE", "a file"),
}
T = TypeVar("T", bound=AbstractMethod)


class ParameterValue(click.ParamType):  # type: ignore[type-arg]
    """A choice, a number, some numbers, ``none``, or the path of an array, by the kinds."""

    name = "value"

    def __init__(self, kinds: Collection[str], optional: bool, choices: Sequence[str] = ()) -> None:
        self.kinds = [kind for kind in _KINDS if kind in kinds]
        self.optional = optional
        self.choices = tuple(choices)

    def _join(self, words: Sequence[str], separator: str) -> str:
        return separator.join([*self.choices, *words, *["none"] * self.optional])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the words for the help."""
        return self._join([_KINDS[kind][0] for kind in self.kinds], "|")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the value as the first kind that takes it."""
        if not isinstance(value, str) or (self.optional and value.lower() == "none"):
            return None
        if value in self.choices:
            return value
        readers: dict[str, Callable[[str], object]] = {
            "int": int,
            "float": float,
            "list": lambda text: np.array([float(number) for number in text.split(",")]),
            "array": _read_rows,
        }
        for kind in self.kinds:
            try:
                return readers[kind](value)
            except FormatError:
                raise
            except ValueError:
                continue
        expected = self._join([_KINDS[kind][1] for kind in self.kinds], " or ")
        return self.fail(f"{value!r} is not {expected}", param, ctx)


class NumberList(click.ParamType):  # type: ignore[type-arg]
    """One number, or one for each axis: ``5`` or ``3,5,5``."""

    name = "numbers"

    def __init__(self, kind: Callable[[str], float], one: str, several: str) -> None:
        self._kind = kind
        self._examples = f"a number such as {one}, or numbers such as {several}"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...] | float:
        """Return the number, or a tuple of several."""
        try:
            numbers = tuple(self._kind(number) for number in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not {self._examples}", param, ctx)
        return numbers if len(numbers) > 1 else numbers[0]


class ValueRange(click.ParamType):  # type: ignore[type-arg]
    """Two numbers, the lower first: ``0,255``; or one of some words."""

    name = "range"

    def __init__(self, *words: str) -> None:
        self.words = words

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Scaling | str:
        """Return the scaling whose ends they are, or the word."""
        if value in self.words:
            return str(value)
        try:
            low, high = (float(bound) for bound in str(value).split(","))
            return Scaling.given(low, high)
        except ValueError:
            words = "".join(f", or {word}" for word in self.words)
            self.fail(
                f"{value!r} is not two numbers, the lower first, such as 0,255{words}", param, ctx
            )


def _read_rows(path: str) -> NDArray[Any] | PrototypeSet:
    """Read an array, or prototypes with what is known of them."""
    return load_prototypes(path) if Path(path).suffix.lower() == ".json" else read_array(path)


_IMAGE_OPTIONS: Mapping[str, click.Option] = {
    option.name or "": option
    for option in (
        click.Option(["--features"], type=click.Choice(list(FEATURES)),
                     help="What describes a pixel. [default: intensity]"),
        click.Option(["--window"], type=NumberList(int, "5", "3,5,5"), metavar="ODD[,ODD...]",
                     help="Side of the averaging window in pixels, the scale. [default: 3]"),
        click.Option(["--weights"], type=click.Choice(list(WEIGHTS)),
                     help="Weights within the window. [default: uniform]"),
        click.Option(["--channel-axis"], type=int,
                     help="Axis of the channels, if the file does not say it."),
        click.Option(["--scaling"], type=ValueRange(), metavar="LOW,HIGH",
                     help="Values that become 0 and 1. [default: the 0.1 and 99.9 percentiles]"),
        click.Option(["--max-side"], type=click.IntRange(min=1), metavar="PIXELS",
                     help="Work at a reduced size, no side longer; masks keep the image's size."),
        click.Option(["--mask"], metavar="FILE|finite",
                     help="Label only where the file is not 0, or where pixels are finite."),
        click.Option(["--seeds"], type=PATH, metavar="FILE",
                     help="Labels given by hand: 1, 2, ... in an image of that size, 0 elsewhere."),
        click.Option(["--groups"], metavar="image|axis:N|channel:N[:T]|FILE",
                     help=GROUPS_HELP),
    )
}  # fmt: skip
"""How images become problems, by name; None: not given."""


def image_parameters(*names: str, **helps: str) -> list[click.Parameter]:
    """Return the options of some names, all by default; some with a help of their own."""
    options = []
    for name in names or _IMAGE_OPTIONS:
        option = copy.copy(_IMAGE_OPTIONS[name])
        option.help = helps.get(name, option.help)
        options.append(option)
    return list(options)


def image_changes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given of the `ImageOptions`, but for scaling and groups."""
    names = ("features", "window", "weights", "channel_axis", "max_side")
    return {name: values[name] for name in names if values.get(name) is not None}


def problem_source(
    values: Mapping[str, Any], options: ImageOptions, axis_from_file: bool
) -> ProblemSource:
    """Return how files become problems, with the files that the options name."""
    _, groups = read_group_option(values.get("groups"))
    return ProblemSource(options, axis_from_file, values.get("mask"), values.get("seeds"), groups)


def read_group_option(value: str | None) -> tuple[str | None, Path | None]:
    """Return what ``--groups`` says: where groups come from in words, or the file of groups."""
    if value is None:
        return None, None
    if value == "image" or value.partition(":")[0] in ("axis", "channel"):
        return check_group_source(value), None
    return None, Path(value)


def method_command(
    name: str,
    callback: Callable[..., Any],
    fixed: Sequence[click.Parameter],
    *,
    help: str,
    methods: Mapping[str, type[AbstractMethod]] = METHODS,
    without: Collection[str] = (),
) -> click.Command:
    """Return a command with one option for every parameter of every method.

    Parameters
    ----------
    name, callback, help
        Of the command.
    fixed : sequence of click.Parameter
        Options that do not depend on the method; their flags are no short forms of others.
    methods : mapping of str to type
        The methods, by name.
    without : collection of str
        Dotted names of parameters that are not offered.
    """
    taken = {flag for option in fixed for flag in option.opts} | {"--help", "--version"}
    found: dict[str, dict[str, Parameter]] = {}
    for method_name, method in methods.items():
        for item in describe(method):
            if item.name not in without:
                found.setdefault(item.name, {})[method_name] = item
    last_parts = Counter(dotted.rpartition(".")[2] for dotted in found)
    options = []
    for dotted, known in found.items():
        last = dotted.rpartition(".")[2]
        flags = list(dict.fromkeys([flag_of(dotted), flag_of(last)]))
        if last_parts[last] > 1 or flags[-1] in taken:
            del flags[1:]
        options.append(_option(flags, dotted, known, is_shared=len(known) == len(methods)))
    return click.Command(
        name,
        callback=callback,
        params=[*fixed, *options],
        help=help,
        context_settings=HELP_NAMES,
    )


def _option(
    flags: list[str], name: str, known: Mapping[str, Parameter], *, is_shared: bool
) -> click.Option:
    """Return the option of a parameter that some methods have."""
    flags, dest = list(flags), _PREFIX + name.replace(".", "__")
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
    value: click.ParamType[Any] = ParameterValue(kinds, optional, tuple(choices))
    if kinds == {"choice"}:
        value = click.Choice([*choices, *["none"] * optional])
    return click.Option([*flags, dest], type=value, default=None, help=described)


def given_parameters(ctx: click.Context) -> dict[str, object]:
    """Return the parameters given on the command line, by dotted name."""
    source = click.core.ParameterSource.COMMANDLINE
    return {
        key.removeprefix(_PREFIX).replace("__", "."): None if _is_none(value) else value
        for key, value in ctx.params.items()
        if key.startswith(_PREFIX) and ctx.get_parameter_source(key) is source
    }


def _is_none(value: object) -> bool:
    return isinstance(value, str) and value == "none"


def make_method(
    method: type[T], given: Mapping[str, object], base: AbstractMethod | None = None
) -> T:
    """Make a method from the given parameters, the others as in `base` or by default.

    Raises
    ------
    UsageError
        If the method, or the variant that was chosen, has no such parameter.
    InvalidInput
        If a value is out of bounds.
    """
    values = {} if base is None else values_of(base)
    known = {item.name: item for item in describe(method)}
    given = {_own_name(key, known): value for key, value in _spread(method, given, known)}
    if "prototypes" in given:  # labels that a recipe has for others go with those
        values.pop("prototype_labels", None)
    values |= given
    for key in given:
        if key not in known:
            raise click.UsageError(f"{flag_of(key)}: the method {method.name!r} has no such option")
        if known[key].kind == "array" and isinstance(given[key], str):
            raise click.UsageError(f"{flag_of(key)}: expected a file, got {given[key]!r}")
        need = known[key].depends_on
        if need is not None and values.get(need[0], known[need[0]].default) not in need[1]:
            raise click.UsageError(f"{flag_of(key)}: goes with {_condition(need)}")
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
                f"{flag_of(key)}: the method {method.name!r} takes no file of prototypes"
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


def _condition(need: tuple[str, tuple[str, ...]]) -> str:
    return f"{flag_of(need[0])} {' or '.join(need[1])}"


def flag_of(name: str) -> str:
    """Return the flag of a parameter."""
    return "--" + name.replace(".", "-").replace("_", "-")
