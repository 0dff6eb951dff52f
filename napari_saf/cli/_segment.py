"""``napari-saf segment``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from napari_saf.cli._batch import run_all
from napari_saf.cli._job import (
    GROUPS_HELP,
    GROUPS_METAVAR,
    Settings,
    read_group_option,
)
from napari_saf.cli._parameters import given_parameters, make_method, method_options
from napari_saf.cli._plan import find_images, plan
from napari_saf.cli._resume import split
from napari_saf.cli._values import ValueRange, WindowSize
from napari_saf.errors import FormatError
from napari_saf.features import FEATURES, Scaling
from napari_saf.image_options import WEIGHTS, ImageOptions
from napari_saf.io import MASK_SUFFIXES, PrototypeSet, Recipe, load_recipe
from napari_saf.methods import METHODS

__all__ = ["command"]

_PATH: Any = click.Path(path_type=Path)


@dataclasses.dataclass(frozen=True, slots=True)
class _Request:
    """The options that do not depend on the method, as given; None: not given."""

    images: tuple[Path, ...]
    out: Path
    method: str | None
    features: str | None
    window: int | tuple[int, ...] | None
    weights: str | None
    channel_axis: int | None
    scaling: Scaling | Literal["each", "first"] | None
    max_side: int | None
    mask: str | None
    seeds: Path | None
    groups: str | None
    together: bool
    recipe: Path | None
    suffix: str
    overwrite: bool
    n_processes: int


@click.pass_context
def _segment(ctx: click.Context, /, **values: Any) -> int:
    names = [field.name for field in dataclasses.fields(_Request)]
    request = _Request(**{name: values[name] for name in names})
    settings = _settings(request, given_parameters(ctx))
    images = find_images(request.images)
    _check_together(request, len(images))
    jobs = plan(images, request.out, suffix=request.suffix, together=request.together)
    todo, done = split(jobs, settings)
    return run_all(
        todo,
        settings,
        n_done=sum(len(job.images) for job in done),
        n_processes=request.n_processes,
        debug=values["debug"],
    )


def _settings(request: _Request, given: dict[str, object]) -> Settings:
    prototypes = next((value for value in given.values() if isinstance(value, PrototypeSet)), None)
    recipe = _recipe(request, prototypes)
    if recipe is None:
        options, method = ImageOptions(), make_method(request.method or "saf", given)
    else:
        options = _recipe_options(recipe, request)
        method = make_method(recipe.method.name, given, recipe.method)
    options = _scaled(options, request.scaling)
    names = ("features", "window", "weights", "channel_axis", "max_side")
    changes = {name: getattr(request, name) for name in names}
    changes = {name: value for name, value in changes.items() if value is not None}
    known = None if prototypes is None else prototypes.options
    features = changes.get("features", options.features)
    if known is not None and known.features != features:
        raise click.UsageError(
            f"--prototypes: those of the file are made of {known.features!r}, not of {features!r}"
        )
    source, groups_file = read_group_option(request.groups)
    if request.groups is not None:
        changes["groups"] = source
    return Settings(
        method,
        dataclasses.replace(options, **changes),
        axis_from_file=request.recipe is None
        and (options.channel_axis is None and request.channel_axis is None),
        mask=request.mask,
        seeds=request.seeds,
        groups=groups_file,
        names={} if prototypes is None else prototypes.names,
        colors={} if prototypes is None else prototypes.colors,
        overwrite=request.overwrite,
    )


def _scaled(
    options: ImageOptions, wanted: Scaling | Literal["each", "first"] | None
) -> ImageOptions:
    """Return the options with the scaling of the images that are to be labelled."""
    if isinstance(wanted, Scaling):
        return dataclasses.replace(options, scaling=wanted, rescale=False)
    if wanted == "first" and options.scaling is None:
        raise click.UsageError("--scaling first: goes with a recipe or prototypes of an image")
    return options.for_others(None if wanted is None else wanted == "each")


def _recipe(request: _Request, prototypes: PrototypeSet | None) -> Recipe | None:
    """Return what is to be repeated: the recipe of a file, or that of prototypes."""
    if request.recipe is not None:
        return load_recipe(request.recipe)
    if prototypes is None:
        return None
    known = dataclasses.replace(prototypes, options=prototypes.options or ImageOptions())
    recipe = known.recipe()
    return recipe if request.method in (None, recipe.method.name) else None


def _recipe_options(recipe: Recipe, request: _Request) -> ImageOptions:
    if request.method not in (None, recipe.method.name):
        raise click.UsageError(f"--method: the recipe is one of {recipe.method.name!r}")
    if recipe.options is None:
        raise FormatError(f"{request.recipe}: the recipe of a run on a graph, not on an image")
    return recipe.options


def _check_together(request: _Request, count: int) -> None:
    if count > 1 and request.mask not in (None, "finite"):
        raise click.UsageError(f"--mask: one mask for {count} images; only 'finite' suits several")
    if count > 1 and request.seeds is not None:
        raise click.UsageError(f"--seeds: one file of seeds for {count} images")
    if count > 1 and read_group_option(request.groups)[1] is not None:
        raise click.UsageError(f"--groups: one file of groups for {count} images")


def _options() -> list[click.Parameter]:
    """Return the options that do not depend on the method."""
    found: Callable[..., Any] = _segment
    for decorate in _FIXED:
        found = decorate(found)
    return list(found.__click_params__)  # type: ignore[attr-defined]


_FIXED = [
    click.argument("images", nargs=-1, required=True, type=_PATH, metavar="IMAGE..."),
    click.option("-o", "--output", "out", required=True, type=_PATH, metavar="OUT",
                 help=f"A mask ({', '.join(MASK_SUFFIXES)}) for one image, or a folder."),
    click.option("--method", type=click.Choice(list(METHODS)), help="Method. [default: saf]"),
    click.option("--features", type=click.Choice(list(FEATURES)),
                 help="What describes a pixel. [default: intensity]"),
    click.option("--window", type=WindowSize(), metavar="ODD[,ODD...]",
                 help="Side of the averaging window in pixels, the scale. [default: 3]"),
    click.option("--weights", type=click.Choice(list(WEIGHTS)),
                 help="Weights within the window. [default: uniform]"),
    click.option("--channel-axis", type=int,
                 help="Axis of the channels, if the file does not say it."),
    click.option("--scaling", type=ValueRange("each", "first"), metavar="each|first|LOW,HIGH",
                 help="Values that become 0 and 1: the 0.1 and 99.9 percentiles of each image, "
                 "what they were in the image that a recipe or prototypes come from, or two "
                 "numbers for all images. [default: as the recipe says, else each]"),
    click.option("--max-side", type=click.IntRange(min=1), metavar="PIXELS",
                 help="Work at a reduced size, no side longer; masks keep the image's size."),
    click.option("--mask", metavar="FILE|finite",
                 help="Label only where the file is not 0, or where pixels are finite."),
    click.option("--seeds", type=_PATH, metavar="FILE",
                 help="Labels given by hand: 1, 2, ... in an image of that size, 0 elsewhere."),
    click.option("--groups", metavar=GROUPS_METAVAR, help=GROUPS_HELP),
    click.option("--together", is_flag=True,
                 help="One set of labels for all images, instead of each by itself."),
    click.option("--recipe", type=_PATH, metavar="FILE",
                 help="Repeat what a recipe says; options given beside it take precedence."),
    click.option("--format", "suffix", type=click.Choice(list(MASK_SUFFIXES)),
                 default=".tif", show_default=True, help="Format of the masks in a folder."),
    click.option("--overwrite", is_flag=True, help="Replace masks and recipes that are there."),
    click.option("--jobs", "n_processes", type=click.IntRange(min=1), default=1,
                 show_default=True,
                 help="Images at a time, each in a process of its own with a share of the threads; "
                 "to start one takes seconds; sums over other threads round otherwise, which "
                 "may turn single pixels."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
]  # fmt: skip


def _command() -> click.Command:
    fixed = _options()
    taken = {flag for option in fixed for flag in option.opts} | {"--help", "--version"}
    return click.Command(
        "segment",
        callback=_segment,
        params=[*fixed, *method_options(taken)],
        help="Label images. Beside each mask goes a recipe that repeats it; a mask whose recipe "
        "says the same is not made again, so that a run that was stopped goes on.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


command = _command()
