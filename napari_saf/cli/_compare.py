"""``napari-saf compare``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf.cli._job import (
    GROUPS_HELP,
    GROUPS_METAVAR,
    Settings,
    problem_of,
    read_group_option,
    read_options,
    save_labels,
)
from napari_saf.cli._parameters import given_parameters, make_method, method_options
from napari_saf.cli._plan import check_free
from napari_saf.cli._progress import run_with_progress
from napari_saf.cli._values import ValueRange, WindowSize
from napari_saf.comparison import (
    COMPARISON_SUFFIXES,
    OPTION_AXES,
    Comparison,
    Variant,
    comparison_table,
    iterate_comparison,
    parameter_named,
    read_values,
    save_comparison,
    short_names,
    variants_of,
)
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES, channels_last
from napari_saf.image_options import WEIGHTS
from napari_saf.io import (
    LABELS_MARK,
    ImageFile,
    file_stem,
    make_folder,
    mask_stem,
    read_image,
    read_labels,
    save_recipe,
)
from napari_saf.methods import METHODS, AbstractMethod, map_steps
from napari_saf.problem import ImageOptions, Problem

__all__ = ["command"]

_PATH: Any = click.Path(path_type=Path)
_SUFFIXES = ", ".join(COMPARISON_SUFFIXES)
_IN_FOLDER = ("comparison.html", "comparison.png", "comparison.csv")


@click.pass_context
def _compare(
    ctx: click.Context,
    /,
    image: Path,
    out: Path,
    methods: tuple[str, ...],
    grid: tuple[str, ...],
    truth: Path | None,
    paint: str,
    overwrite: bool,
    debug: bool,
    **values: Any,
) -> int:
    places = _places(out)
    settings = _settings(values)
    variants = _variants(methods or ("saf",), given_parameters(ctx), grid, settings.options)
    each = _each_place(out, image, variants) if places[0].parent == out else {}
    check_free([*places, *itertools.chain(*each.values())], [image], overwrite=overwrite)
    file = read_image(image)
    options = read_options(file, settings)
    regions = None if truth is None else _read_truth(truth, file, options.channel_axis)

    def read(wanted: ImageOptions) -> Problem:
        here = dataclasses.replace(wanted, channel_axis=options.channel_axis)
        return problem_of([file], here, settings)

    steps = map_steps(iterate_comparison(variants, read), lambda step: step.snapshot)
    found = run_with_progress(steps, image.name)
    shown: dict[str, Any] = {
        "truth": regions,
        "paint": paint,
        "channel_axis": options.channel_axis,
        "title": image.name,
    }
    _save(places, found, file, shown)
    if each:
        _save_each(each, image, file, found, options.channel_axis)
    for failure in found.failures:
        click.echo(f"napari-saf: not run: {failure.variant.name}: {failure.error}", err=True)
    for row in comparison_table(found, regions):
        agreement = "" if np.isnan(row.covering) else f", covering {row.covering:.3f}"
        click.echo(f"{row.name}: {row.n_labels} labels{agreement}, {row.seconds:.1f} s")
    for place in places:
        click.echo(place)
    return 0


def _settings(values: Mapping[str, Any]) -> Settings:
    source, file = read_group_option(values["groups"])
    names = ("features", "window", "weights", "channel_axis", "scaling", "max_side")
    options = ImageOptions(**{name: values[name] for name in names}, groups=source)
    return Settings(
        METHODS["saf"](),
        options,
        axis_from_file=values["channel_axis"] is None,
        mask=values["mask"],
        seeds=values["seeds"],
        groups=file,
    )


def _variants(
    names: Sequence[str], given: Mapping[str, object], grid: Sequence[str], options: ImageOptions
) -> list[Variant]:
    """Return what is compared; a parameter is given to each method that has it."""
    chosen = list(dict.fromkeys(names))
    types = [METHODS[name] for name in chosen]
    for key in given:
        if not any(parameter_named(method, key) for method in types):
            flag = "--" + key.replace(".", "-").replace("_", "-")
            raise click.UsageError(f"{flag}: none of {', '.join(chosen)} has such an option")
    methods: list[AbstractMethod] = [
        make_method(name, {k: v for k, v in given.items() if parameter_named(method, k)})
        for name, method in zip(chosen, types, strict=True)
    ]
    axes: dict[str, list[object]] = {}
    for entry in grid:
        name, equals, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name in axes:
            raise click.UsageError(f"--grid: expected NAME=VALUE,..., each name once, got {entry}")
        axes[name] = read_values(name, text, types)
    return variants_of(methods, axes, options)


def _places(out: Path) -> list[Path]:
    """Return the files to write."""
    if out.is_dir() or not out.suffix:
        places = [out / name for name in _IN_FOLDER]
    elif out.suffix.lower() in COMPARISON_SUFFIXES:
        places = [out]
    else:
        raise InvalidInput(f"{out}: expected a folder, or a name that ends in {_SUFFIXES}")
    return places


def _read_truth(path: Path, image: ImageFile, channel_axis: int | None) -> NDArray[Any]:
    """Read the truth; whether it fits is known before anything is run."""
    truth: NDArray[Any] = read_labels(path).array
    shape = channels_last(image.array, channel_axis)[0].shape[:-1]
    if truth.shape != shape or not truth.any():
        raise InvalidInput(f"{path}: expected regions of shape {shape}, got {truth.shape}")
    return truth


def _save(
    places: Sequence[Path], found: Comparison, image: ImageFile, shown: dict[str, Any]
) -> None:
    for place in places:
        make_folder(place.parent)
        save_comparison(place, found, image.array, **shown)


def _each_place(
    folder: Path, image: Path, variants: Sequence[Variant]
) -> dict[Variant, tuple[Path, Path]]:
    """Return where mask and recipe of each variant go."""
    stems = [f"{mask_stem(image)}_{file_stem(name)}" for name in short_names(variants)]
    return {
        variant: (folder / f"{stem}{LABELS_MARK}.tif", folder / f"{stem}.recipe.json")
        for variant, stem in zip(variants, stems, strict=True)
    }


def _save_each(
    places: Mapping[Variant, tuple[Path, Path]],
    path: Path,
    image: ImageFile,
    found: Comparison,
    channel_axis: int | None,
) -> None:
    """Save mask and recipe of each result; a number means the same in all masks."""
    for one in found.results:
        mask, recipe = places[one.variant]
        save_labels(image, one.labels, mask, channel_axis)
        save_recipe(recipe, one.recipe | {"images": [path.name]})


_FIXED: list[click.Parameter] = [
    click.Argument(["image"], type=_PATH),
    click.Option(["-o", "--output", "out"], required=True, type=_PATH, metavar="OUT",
                 help=f"A page, picture or table ({_SUFFIXES}), or a folder for all "
                 "three, with a mask and a recipe for each result."),
    click.Option(["--method", "methods"], type=click.Choice(list(METHODS)), multiple=True,
                 help="A method; may be given several times. [default: saf]"),
    click.Option(["--grid"], multiple=True, metavar="NAME=VALUE,...",
                 help="Values to go through, such as s=0,0.5,1: of a parameter of the methods "
                 f"or of {', '.join(OPTION_AXES)}. Given several times: all combinations."),
    click.Option(["--truth"], type=_PATH, metavar="FILE",
                 help="Regions 1, 2, ... as they should be, in an image of that size; 0 does not "
                 "count. The table then says how well each result agrees."),
    click.Option(["--paint"], type=click.Choice(["mean", "palette"]), default="mean",
                 show_default=True,
                 help="Labels in the mean colour of the image, or in clear colours."),
    click.Option(["--features"], type=click.Choice(list(FEATURES)), default="intensity",
                 show_default=True, help="What describes a pixel."),
    click.Option(["--window"], type=WindowSize(), default=3, show_default=True,
                 metavar="ODD[,ODD...]", help="Side of the averaging window in pixels, the scale."),
    click.Option(["--weights"], type=click.Choice(list(WEIGHTS)), default="uniform",
                 show_default=True, help="Weights within the window."),
    click.Option(["--channel-axis"], type=int,
                 help="Axis of the channels, if the file does not say it."),
    click.Option(["--scaling"], type=ValueRange(), metavar="LOW,HIGH",
                 help="Values that become 0 and 1. [default: the 0.1 and 99.9 percentiles]"),
    click.Option(["--max-side"], type=click.IntRange(min=1), metavar="PIXELS",
                 help="Work at a reduced size, no side longer."),
    click.Option(["--mask"], metavar="FILE|finite",
                 help="Label only where the file is not 0, or where pixels are finite."),
    click.Option(["--seeds"], type=_PATH, metavar="FILE",
                 help="Labels given by hand: 1, 2, ... in an image of that size, 0 elsewhere."),
    click.Option(["--groups"], metavar=GROUPS_METAVAR, help=GROUPS_HELP),
    click.Option(["--overwrite"], is_flag=True, help="Replace what is there."),
    click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
]  # fmt: skip


def _command() -> click.Command:
    taken = {flag for option in _FIXED for flag in option.opts} | {"--help", "--version"}
    return click.Command(
        "compare",
        callback=_compare,
        params=[*_FIXED, *method_options(taken)],
        help="Label one image in several ways and show the results side by side. The labels of "
        "all results have common numbers and colours.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


command = _command()
