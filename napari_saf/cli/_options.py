"""Options of the command line, made of what methods and images say of their parameters."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf.batch import ProblemSource
from napari_saf.errors import FormatError
from napari_saf.features import Scaling, check_group_source
from napari_saf.io import PrototypeSet, load_prototypes, read_array
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import Parameter, build, describe, values_of
from napari_saf.problem import ImageOptions

PATH: Any = click.Path(path_type=Path)
DEBUG = click.Option(["--debug"], is_flag=True, help="Show the traceback of an error.")
IMAGES = click.Argument(["images"], nargs=-1, required=True, type=PATH, metavar="IMAGE...")
_PREFIX = "parameter__"
_KINDS = {
    "int": ("INT", "a whole number"),
    "float": ("FLOAT", "a number"),
    "list": ("FLOAT,...", "numbers with commas between"),
    "array": ("FILE", "a file"),
    "window": ("ODD[,ODD...]", "a number such as 5, or numbers such as 3,5,5"),
    "range": ("LOW,HIGH", "two numbers, the lower first, such as 0,255"),
    "text": ("TEXT", "text"),
}
"""What a value is called in the help, and in an error."""
T = TypeVar("T", bound=AbstractMethod)


class ParameterValue(click.ParamType):  # type: ignore[type-arg]
    """A choice, ``none``, or what the kinds say: numbers, a range, the path of an array."""

    name = "value"

    def __init__(
        self, kinds: Collection[str], optional: bool = False, choices: Sequence[str] = ()
    ) -> None:
        self.kinds = [kind for kind in _KINDS if kind in kinds]
        self.optional = optional
        self.choices = tuple(choices)

    def _join(self, names: Sequence[str], separator: str) -> str:
        return separator.join([*self.choices, *names, *["none"] * self.optional])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return what the help calls the value."""
        return self._join([_KINDS[kind][0] for kind in self.kinds], "|")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the value as the first kind that takes it."""
        if not isinstance(value, str) or (self.optional and value.lower() == "none"):
            return None
        if value in self.choices:
            return value
        for kind in self.kinds:
            try:
                return _READERS[kind](value)
            except FormatError:
                raise
            except ValueError:
                continue
        expected = self._join([_KINDS[kind][1] for kind in self.kinds], " or ")
        return self.fail(f"{value!r} is not {expected}", param, ctx)


def _read_window(text: str) -> int | tuple[int, ...]:
    sides = tuple(int(side) for side in text.split(","))
    return sides if len(sides) > 1 else sides[0]


def _read_range(text: str) -> Scaling:
    low, high = (float(bound) for bound in text.split(","))
    return Scaling.given(low, high)


def _read_rows(path: str) -> NDArray[Any] | PrototypeSet:
    """Read an array, or prototypes with what is known of them."""
    return load_prototypes(path) if Path(path).suffix.lower() == ".json" else read_array(path)


_READERS: dict[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "list": lambda text: np.array([float(number) for number in text.split(",")]),
    "array": _read_rows,
    "window": _read_window,
    "range": _read_range,
    "text": str,
}
_IMAGE_NAMES = ("features", "window", "weights", "channel_axis", "scaling", "max_side")
_FILES: dict[str, dict[str, Any]] = {
    "mask": {
        "metavar": "FILE|finite",
        "help": "Label only where the file is not 0, or where pixels are finite.",
    },
    "seeds": {
        "type": PATH,
        "metavar": "FILE",
        "help": "Labels given by hand: 1, 2, ... in an image of that size, 0 elsewhere.",
    },
    "groups": {
        "metavar": "image|axis:N|channel:N[:T]|FILE",
        "help": "Groups that labels are to be spread over: the images, the slices along an axis, "
        "the pixels above a threshold in a channel (T, or found), or a label image.",
    },
}
"""Options of an image that may name a file."""


def image_options(*names: str, **helps: str) -> list[click.Parameter]:
    """Return the options that say how images become problems; a value of None is not given.

    `names` are fields of `ImageOptions` and those of `_FILES`, by default all; `helps` what is
    said of some of them instead.
    """
    known = {item.name: item for item in describe(ImageOptions)}
    options: list[click.Parameter] = []
    for name in names or (*_IMAGE_NAMES, *_FILES):
        if name in _FILES:
            options.append(click.Option([flag_of(name)], **_FILES[name]))
            continue
        item = known[name]
        kind: click.ParamType[Any] = ParameterValue([item.kind])
        if item.kind == "choice":
            kind = click.Choice(item.choices)
        elif item.kind == "int" and item.minimum is not None:
            kind = click.IntRange(min=int(item.minimum))
        default = "" if item.default is None else f" [default: {item.default}]"
        text = helps.get(name, f"{item.help}{default}")
        options.append(click.Option([flag_of(name)], type=kind, help=text))
    return options


def problem_source(
    values: Mapping[str, Any], base: ImageOptions | None = None, *, axis_from_file: bool = True
) -> ProblemSource:
    """Return how files become problems: as the options that were given say, else as `base` does.

    `axis_from_file` says whether the file's own axis of channels counts where none is given.
    """
    options = base or ImageOptions()
    changes = {name: values[name] for name in _IMAGE_NAMES if values.get(name) is not None}
    groups: str | None = values.get("groups")
    groups_file: Path | None = None
    if groups is not None:
        if groups == "image" or groups.partition(":")[0] in ("axis", "channel"):
            changes["groups"] = check_group_source(groups)
        else:
            changes["groups"], groups_file = None, Path(groups)
    options = dataclasses.replace(options, **changes)
    return ProblemSource(
        options,
        axis_from_file and options.channel_axis is None,
        values.get("mask"),
        values.get("seeds"),
        groups_file,
    )


def check_one_file_each(source: ProblemSource, n_images: int) -> None:
    """Refuse files that belong to one image where there are several."""
    for name in source.files if n_images > 1 else ():
        only = "; only 'finite' suits several" if name == "mask" else ""
        raise click.UsageError(f"--{name}: one file for {n_images} images{only}")


def method_options(
    fixed: Sequence[click.Parameter],
    methods: Mapping[str, type[AbstractMethod]] = METHODS,
    without: Collection[str] = (),
) -> list[click.Parameter]:
    """Return options with, after them, one for every parameter of every method.

    The flags of `fixed` are no short forms of others; `without` are dotted names of parameters
    that are not offered.
    """
    taken = {flag for option in fixed for flag in option.opts} | {"--help", "--version"}
    found: dict[str, dict[str, Parameter]] = {}
    for method_name, method in methods.items():
        for item in describe(method):
            if item.name not in without:
                found.setdefault(item.name, {})[method_name] = item
    last_parts = Counter(dotted.rpartition(".")[2] for dotted in found)
    options = list(fixed)
    for dotted, known in found.items():
        last = dotted.rpartition(".")[2]
        flags = list(dict.fromkeys([flag_of(dotted), flag_of(last)]))
        if last_parts[last] > 1 or flags[-1] in taken:
            del flags[1:]
        options.append(_option(flags, dotted, known, is_shared=len(known) == len(methods)))
    return options


def _option(
    flags: list[str], name: str, known: Mapping[str, Parameter], *, is_shared: bool
) -> click.Option:
    """Return the option of a parameter that some methods have."""
    dest, items = _PREFIX + name.replace(".", "__"), list(known.values())
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
    given = {
        key.removeprefix(_PREFIX).replace("__", "."): value
        for key, value in ctx.params.items()
        if key.startswith(_PREFIX) and ctx.get_parameter_source(key) is source
    }
    return {
        key: None if isinstance(value, str) and value == "none" else value
        for key, value in given.items()
    }


def make_method(
    method: type[T], given: Mapping[str, object], base: AbstractMethod | None = None
) -> T:
    """Make a method from the given parameters, the others as in `base` or by default.

    Raise UsageError if the method, or the variant that was chosen, has no such parameter.
    """
    values = {} if base is None else values_of(base)
    known = {item.name: item for item in describe(method)}
    given = _own_names(method, given, known)
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


def _own_names(
    method: type[AbstractMethod], given: Mapping[str, object], known: Collection[str]
) -> dict[str, object]:
    """Return what is given by the names that a method has for it.

    Prototypes of a file come first, as the parameters that they are; a name that only another
    method has stands for the one parameter whose dotted name ends in it.
    """
    found: dict[str, object] = {}
    for key, value in given.items():
        if isinstance(value, PrototypeSet):
            found |= value.arguments()
            if not found.keys() <= set(known):
                raise click.UsageError(
                    f"{flag_of(key)}: the method {method.name!r} takes no file of prototypes"
                )
    for key, value in given.items():
        if not isinstance(value, PrototypeSet):
            meant = [own for own in known if own.rpartition(".")[2] == key]
            found[meant[0] if key not in known and len(meant) == 1 else key] = value
    return found


def summary(item: Parameter) -> str:
    """Return default, bounds and condition of a parameter in a few words."""
    texts = [f"default {'none' if item.default is None else item.default}"]
    texts += [f"at least {item.minimum:.10g}"] if item.minimum is not None else []
    texts += [f"at most {item.maximum:.10g}"] if item.maximum is not None else []
    texts += ["or none"] if item.optional and item.default is not None else []
    texts += [f"with {_condition(item.depends_on)}"] if item.depends_on else []
    return ", ".join(texts)


def _condition(need: tuple[str, tuple[str, ...]]) -> str:
    return f"{flag_of(need[0])} {' or '.join(need[1])}"


def flag_of(name: str) -> str:
    return "--" + name.replace(".", "-").replace("_", "-")
