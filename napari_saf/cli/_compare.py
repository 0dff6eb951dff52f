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

from napari_saf.batch import check_outputs, save_labels
from napari_saf.cli._options import (
    DEBUG,
    PATH,
    flag_of,
    given_parameters,
    image_parameters,
    make_method,
    method_command,
    problem_source,
)
from napari_saf.cli._progress import run_with_progress
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
from napari_saf.features import channels_last
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
    source = problem_source(values)
    variants = _variants(methods or ("saf",), given_parameters(ctx), grid, source.options)
    each = _each_place(out, image, variants) if places[0].parent == out else {}
    check_outputs([*places, *itertools.chain(*each.values())], [image], overwrite=overwrite)
    file = read_image(image)
    options = source.options_for(file)
    regions = None if truth is None else _read_truth(truth, file, options.channel_axis)

    def read(wanted: ImageOptions) -> Problem:
        here = dataclasses.replace(wanted, channel_axis=options.channel_axis)
        return source.problem([file], here)

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


def _variants(
    names: Sequence[str], given: Mapping[str, object], grid: Sequence[str], options: ImageOptions
) -> list[Variant]:
    """Return what is compared; a parameter is given to each method that has it."""
    chosen = list(dict.fromkeys(names))
    types = [METHODS[name] for name in chosen]
    for key in given:
        if not any(parameter_named(method, key) for method in types):
            raise click.UsageError(
                f"{flag_of(key)}: none of {', '.join(chosen)} has such an option"
            )
    methods: list[AbstractMethod] = [
        make_method(method, {k: v for k, v in given.items() if parameter_named(method, k)})
        for method in types
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
    click.Argument(["image"], type=PATH),
    click.Option(["-o", "--output", "out"], required=True, type=PATH, metavar="OUT",
                 help=f"A page, picture or table ({_SUFFIXES}), or a folder for all "
                 "three, with a mask and a recipe for each result."),
    click.Option(["--method", "methods"], type=click.Choice(list(METHODS)), multiple=True,
                 help="A method; may be given several times. [default: saf]"),
    click.Option(["--grid"], multiple=True, metavar="NAME=VALUE,...",
                 help="Values to go through, such as s=0,0.5,1: of a parameter of the methods "
                 f"or of {', '.join(OPTION_AXES)}. Given several times: all combinations."),
    click.Option(["--truth"], type=PATH, metavar="FILE",
                 help="Regions 1, 2, ... as they should be, in an image of that size; 0 does not "
                 "count. The table then says how well each result agrees."),
    click.Option(["--paint"], type=click.Choice(["mean", "palette"]), default="mean",
                 show_default=True,
                 help="Labels in the mean colour of the image, or in clear colours."),
    *image_parameters(),
    click.Option(["--overwrite"], is_flag=True, help="Replace what is there."),
    DEBUG,
]  # fmt: skip

command = method_command(
    "compare",
    _compare,
    _FIXED,
    help="Label one image in several ways and show the results side by side. The labels of "
    "all results have common numbers and colours.",
)
