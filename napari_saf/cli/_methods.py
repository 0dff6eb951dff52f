"""Methods and images as options of the command line; ``napari-saf methods`` lists the methods."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import click
import numpy as np

from napari_saf import io
from napari_saf.batch import Companions
from napari_saf.errors import FormatError
from napari_saf.features import (
    FEATURES,
    DeepFeatures,
    FeatureExtractor,
    Scaling,
    check_group_source,
)
from napari_saf.methods import METHODS, AbstractMethod
from napari_saf.parameters import READERS, Parameter, build, describe, parameter_named, values_of
from napari_saf.problem import ImageOptions

T = TypeVar("T", bound=AbstractMethod)
S = TypeVar("S")
PATH: Any = click.Path(path_type=Path)
_DEBUG = click.Option(
    ["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."
)
IMAGES = click.Argument(["images"], nargs=-1, required=True, type=PATH, metavar="IMAGE...")
_OUTLINE_SUFFIXES = {"geojson": ".geojson", "rois": ".zip", "coco": ".json"}
OUTLINES = [
    click.Option(["--geojson"], is_flag=True, help="Outlines for QuPath."),
    click.Option(["--rois"], is_flag=True, help="Outlines for ImageJ, a set of ROIs."),
    click.Option(["--coco"], is_flag=True, help="Annotations as COCO has them."),
]


def outline_suffixes(given: Any) -> list[str]:
    """Return the formats of outlines that are asked for; SafError if a library is missing."""
    wanted = [suffix for name, suffix in _OUTLINE_SUFFIXES.items() if getattr(given, name)]
    return [io.check_outlines(f"outlines{suffix}") for suffix in wanted]


_PREFIX = "parameter__"
_NONE = "none"


def command(
    name: str, params: Sequence[click.Parameter], group: Any = click
) -> Callable[[Callable[[Any], int | None]], click.Command]:
    """Make a command of a function that is given its options as attributes of one value."""

    def made(function: Callable[[Any], int | None]) -> click.Command:
        @functools.wraps(function)
        def call(**values: Any) -> int | None:
            return function(SimpleNamespace(**values))

        found: click.Command = group.command(name, params=[*params, _DEBUG])(call)
        return found

    return made


def output(metavar: str, text: str, **more: Any) -> click.Option:
    described = {"required": True, "type": PATH, "metavar": metavar, "help": text} | more
    return click.Option(["-o", "--output", "out"], **described)


def overwrite(what: str) -> click.Option:
    return click.Option(["--overwrite"], is_flag=True, help=f"Replace {what}.")


def _read_list(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _read_range(text: str) -> Scaling:
    low, high = _read_list(text)
    return Scaling.given(low, high)


def _read_rows(path: str) -> object:
    """Read an array, or prototypes with what is known of them."""
    return io.load_prototypes(path) if Path(path).suffix.lower() == ".json" else io.read_array(path)


def _read_level(text: str) -> float:
    level = float(text)
    if not 0 <= level <= 1:
        raise ValueError(text)
    return level


_KINDS: dict[str, tuple[str, str, Callable[[str], object]]] = {
    "int": ("INT", *READERS["int"]),
    "float": ("FLOAT", *READERS["float"]),
    "list": ("FLOAT,...", "numbers with commas between", lambda text: np.array(_read_list(text))),
    "array": ("FILE", "a file", _read_rows),
    "window": ("ODD[xODD...]", *READERS["window"]),
    "labels": ("LABEL,...", *READERS["labels"]),
    "range": ("LOW,HIGH", "two numbers, the lower first, such as 0,255", _read_range),
    "level": ("LEVEL", "a level from 0 to 1", _read_level),
    "text": ("TEXT", "text", str),
}
"""What the help and an error call a value, and what reads it; the first that can does."""


class ParameterValue(click.ParamType):  # type: ignore[type-arg]
    """A choice, ``none``, or what the kinds say: numbers, a range, the path of an array."""

    name = "value"

    def __init__(
        self, kinds: Collection[str], optional: bool = False, choices: Sequence[str] = ()
    ) -> None:
        self.kinds = [values for kind, values in _KINDS.items() if kind in kinds]
        self.choices, self.none = [*choices], [_NONE] * optional

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join([*self.choices, *(metavar for metavar, _, _ in self.kinds), *self.none])

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the value as the first kind that takes it; a choice and ``none`` stay texts."""
        if value in self.choices or value.lower() in self.none:
            return value if value in self.choices else _NONE
        for _, _, read in self.kinds:
            try:
                return read(value)
            except FormatError:
                raise
            except ValueError:
                continue
        expected = " or ".join([*self.choices, *(text for _, text, _ in self.kinds), *self.none])
        return self.fail(f"{value!r} is not {expected}", param, ctx)


_IMAGE_NAMES = (
    "features",
    "window",
    "weights",
    "channel_axis",
    "scaling",
    "max_side",
    "full_resolution",
)
_FILES: dict[str, dict[str, Any]] = {
    "mask": {
        "metavar": "FILE|finite",
        "help": "Label only where the file is not 0, or where pixels are finite.",
    },
    "no_data": {
        "type": float,
        "metavar": "VALUE",
        "help": "Label no pixel of this value, as files without data there have it (-9999). "
        "[default: as the file says]",
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


def image_options(*names: str) -> list[click.Option]:
    """Return the options that say how images become problems; a value of None is not given.

    `names` are fields of `ImageOptions` and those of `_FILES`, by default all.
    """
    known = {item.name: item for item in describe(ImageOptions)}
    options = []
    for name in names or (*_IMAGE_NAMES, *_FILES):
        described, flag = _FILES.get(name), flag_of(name)
        if described is None and known[name].kind == "bool":
            flag = f"{flag}/--no-{flag.removeprefix('--')}"
            described = {"default": None, "help": known[name].help}
        if described is None:
            item = known[name]
            default = "" if item.default is None else f" [default: {item.default}]"
            value = ParameterValue([item.kind], item.optional and bool(item.choices), item.choices)
            described = {"type": value, "help": f"{item.help}{default}"}
            if item.kind == "choice":
                described["type"] = click.Choice(item.choices)
        options.append(click.Option([flag], **described))
        for item in _extractor_parameters().values() if name == "features" else ():
            kinds = ["text" if item.hint is str else item.kind]
            value = ParameterValue(kinds, choices=item.choices)
            text = f"{item.help} With --features {_owner(item.name)}."
            options.append(click.Option([flag_of(item.name)], type=value, help=text))
    return options


def _extractor_parameters() -> dict[str, Parameter]:
    every = [item for cls in FEATURES.values() for item in describe(cls) if item.in_form]
    return {item.name: item for item in every}


def _owner(name: str) -> str:
    owners = [own for own, cls in FEATURES.items() if any(p.name == name for p in describe(cls))]
    return " or ".join(owners)


def take_deep(values: dict[str, Any]) -> DeepFeatures | None:
    """Take the options of a network that were given without features, for seeds to choose it."""
    if values.get("features") is not None or values.get("weights_file") is None:
        return None
    names = [item.name for item in describe(DeepFeatures) if item.in_form]
    given = {name: values[name] for name in names if values.get(name) is not None}
    values.update(dict.fromkeys(names))
    return DeepFeatures(**given)


def _features_of(values: Mapping[str, Any], options: ImageOptions) -> str | FeatureExtractor:
    known = _extractor_parameters()
    given = {name: values[name] for name in known if values.get(name) is not None}
    wanted = values.get("features") or options.features_name
    features = options.features if wanted == options.features_name else wanted
    own = {item.name for item in describe(FEATURES[wanted])} if wanted in FEATURES else set()
    for name in given.keys() - own:
        raise click.UsageError(f"{flag_of(name)}: goes with --features {_owner(name)}")
    if isinstance(features, FeatureExtractor):
        return dataclasses.replace(features, **given)
    return FEATURES[wanted](**given) if given else features


def image_options_of(
    values: Mapping[str, Any],
    n_images: int = 1,
    base: ImageOptions | None = None,
    *,
    axis_from_file: bool = True,
) -> tuple[ImageOptions, Companions]:
    """Return how images become problems: as the options that were given say, else as `base` does.

    `axis_from_file` says whether the file's own axis of channels counts where none is given.
    Raise UsageError if a file belongs to one image and there are several.
    """
    options = base or ImageOptions()
    given = {name: values[name] for name in _IMAGE_NAMES if values.get(name) is not None}
    changes: dict[str, Any] = {
        name: None if value == _NONE else value for name, value in given.items()
    }
    changes["features"] = _features_of(values, options)
    groups: str | None = values.get("groups")
    groups_file: Path | None = None
    if groups is not None:
        if groups == "image" or groups.partition(":")[0] in ("axis", "channel"):
            changes["groups"] = check_group_source(groups)
        else:
            changes["groups"], groups_file = None, Path(groups)
    options = dataclasses.replace(options, **changes)
    companions = Companions(
        mask=values.get("mask"),
        no_data=values.get("no_data"),
        seeds=values.get("seeds"),
        groups=groups_file,
        axis_from_file=axis_from_file and options.channel_axis is None,
    )
    for name in companions.files if n_images > 1 else ():
        only = "; only 'finite' suits several" if name == "mask" else ""
        raise click.UsageError(f"--{name}: one file for {n_images} images{only}")
    return options, companions


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
    last_names = Counter(dotted.rpartition(".")[2] for dotted in found)
    options = list(fixed)
    for dotted, known in found.items():
        last = dotted.rpartition(".")[2]
        flags = list(dict.fromkeys([flag_of(dotted), flag_of(last)]))
        if last_names[last] > 1 or flags[-1] in taken:
            del flags[1:]
        options.append(_option(flags, dotted, known, is_shared=len(known) == len(methods)))
    return options


def step_options(step: type, prefix: str = "", without: Collection[str] = ()) -> list[click.Option]:
    """Return an option for every parameter of a step, such as `ObjectStep`; see `step_of`."""
    options = []
    for item in describe(step):
        if item.name not in without:
            flag = flag_of(prefix + item.name)
            of = f"step__{prefix}"
            options.append(_option([flag], item.name, {"": item}, is_shared=True, of=of))
    return options


def step_of(values: Mapping[str, Any], base: S, prefix: str = "") -> S:
    """Return a step with what the options of `step_options` say, the rest as in another."""
    given = {}
    for item in describe(type(base)):
        value = values.get(f"step__{prefix}{item.name}")
        if value is not None:
            given[item.name] = None if value == _NONE else value
    return build(type(base), values_of(base) | given)


def _option(
    flags: list[str],
    name: str,
    known: Mapping[str, Parameter],
    *,
    is_shared: bool,
    of: str = _PREFIX,
) -> click.Option:
    dest, items = of + name.replace(".", "__"), list(known.values())
    kinds = {item.kind for item in items}
    optional = any(item.optional for item in items)
    texts: dict[str, list[str]] = {}
    for method, item in known.items():
        text = f"{item.help} [{summary(item)}]".removesuffix(" []")
        texts.setdefault(text, []).append(method)
    each = [f"{', '.join(owners)}: {text}" for text, owners in texts.items()]
    described = next(iter(texts)) if is_shared and len(texts) == 1 else " / ".join(each)
    if kinds == {"bool"}:
        flags = [f"{flag}/--no-{flag.removeprefix('--')}" for flag in flags]
        return click.Option([*flags, dest], default=None, help=described)
    choices = [*dict.fromkeys(choice for item in items for choice in item.choices if choice)]
    value: click.ParamType[Any] = ParameterValue(kinds, optional, choices)
    if kinds == {"choice"}:
        value = click.Choice([*choices, *[_NONE] * optional])
    return click.Option([*flags, dest], type=value, help=described)


def given_parameters(values: Mapping[str, Any]) -> dict[str, object]:
    given = {
        key.removeprefix(_PREFIX).replace("__", "."): value
        for key, value in values.items()
        if key.startswith(_PREFIX) and value is not None
    }
    is_none = {key for key, value in given.items() if isinstance(value, str) and value == _NONE}
    return {key: None if key in is_none else value for key, value in given.items()}


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


def make_methods(methods: Sequence[type[T]], given: Mapping[str, object]) -> list[T]:
    """Make methods, each once, from those of the given parameters that they have.

    Raise UsageError for a parameter that none has.
    """
    own = {method: {key for key in given if parameter_named(method, key)} for method in methods}
    for key in given:
        if not any(key in keys for keys in own.values()):
            names = ", ".join(method.name for method in own)
            raise click.UsageError(f"{flag_of(key)}: none of {names} has such an option")
    return [make_method(m, {key: given[key] for key in keys}) for m, keys in own.items()]


def _own_names(
    method: type[AbstractMethod], given: Mapping[str, object], known: Collection[str]
) -> dict[str, object]:
    """Return what is given by the names that a method has for it.

    Prototypes of a file come first, as the parameters that they are; a name that only another
    method has stands for the one parameter whose dotted name ends in it.
    """
    found: dict[str, object] = {}
    for key, value in sorted(
        given.items(), key=lambda pair: not isinstance(pair[1], io.PrototypeSet)
    ):
        if not isinstance(value, io.PrototypeSet):
            meant = [own for own in known if own.rpartition(".")[2] == key]
            found[meant[0] if key not in known and len(meant) == 1 else key] = value
        elif value.arguments().keys() <= set(known):
            found |= value.arguments()
        else:
            raise click.UsageError(
                f"{flag_of(key)}: the method {method.name!r} takes no file of prototypes"
            )
    return found


def summary(item: Parameter) -> str:
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


PROBABILITIES = [
    click.Option(["--probabilities"], type=click.Choice(io.PROBABILITY_SUFFIXES),
                 help="Beside each mask maps of how much each pixel is of each label (W)."),
    *step_options(io.ProbabilityStep, "probability_", without=["suffix"]),
]  # fmt: skip


def probability_step(
    values: Mapping[str, Any], base: io.ProbabilityStep | None = None
) -> io.ProbabilityStep | None:
    """Return which maps are made, as options say it, else as the `base` of a recipe does."""
    step = step_of(values, base or io.ProbabilityStep(), "probability_")
    if values["probabilities"] is not None:
        return dataclasses.replace(step, suffix=values["probabilities"])
    if base is None and step != io.ProbabilityStep():
        raise click.UsageError("--probability-...: go with --probabilities")
    return None if base is None else step


@command("methods", [
    click.Argument(["names"], nargs=-1, type=click.Choice(list(METHODS)), metavar="[METHOD]..."),
])  # fmt: skip
def methods(given: Any) -> None:
    """List the methods and their parameters."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    for name in given.names or METHODS:
        caution, text = METHODS[name].caution, f"\n{METHODS[name].summary}"
        if caution is not None:
            text = f" ({caution.heading}){text}\n{caution.reason}"
        title = f"{name}: {METHODS[name].title}{text}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("parameter", no_wrap=True)
        table.add_column("values")
        table.add_column("meaning")
        for item in describe(METHODS[name]):
            values = [" | ".join(item.choices)] if item.choices else []
            table.add_row(item.name, "; ".join([*values, summary(item)]), item.help)
        console.print(table)
