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
    image_options,
    make_method,
    method_options,
    problem_source,
)
from napari_saf.cli._progress import run_with_progress
from napari_saf.comparison import (
    COMPARISON_SUFFIXES,
    OPTION_AXES,
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
from napari_saf.methods import METHODS, map_steps
from napari_saf.problem import ImageOptions, Problem

_SUFFIXES = ", ".join(COMPARISON_SUFFIXES)
_OPTIONS = [
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
    *image_options(),
    click.Option(["--overwrite"], is_flag=True, help="Replace what is there."),
    DEBUG,
]  # fmt: skip


@click.command("compare", params=method_options(_OPTIONS))
@click.pass_context
def command(
    ctx: click.Context,
    /,
    image: Path,
    out: Path,
    methods: tuple[str, ...],
    grid: tuple[str, ...],
    truth: Path | None,
    paint: Any,
    overwrite: bool,
    debug: bool,
    **values: Any,
) -> None:
    """Label one image in several ways and show the results side by side.

    The labels of all results have common numbers and colours.
    """
    is_folder = out.is_dir() or not out.suffix
    places = [out]
    if is_folder:
        places = [out / f"comparison{suffix}" for suffix in (".html", ".png", ".csv")]
    elif out.suffix.lower() not in COMPARISON_SUFFIXES:
        raise InvalidInput(f"{out}: expected a folder, or a name that ends in {_SUFFIXES}")
    source = problem_source(values)
    variants = _variants(methods or ("saf",), given_parameters(ctx), grid, source.options)
    stems = [f"{mask_stem(image)}_{file_stem(name)}" for name in short_names(variants)]
    masks = [(out / f"{stem}{LABELS_MARK}.tif", out / f"{stem}.recipe.json") for stem in stems]
    each = dict(zip(variants, masks, strict=True)) if is_folder else {}
    check_outputs([*places, *itertools.chain(*each.values())], [image], overwrite=overwrite)
    file = read_image(image)
    channel_axis = source.options_for(file).channel_axis
    regions = None if truth is None else _read_truth(truth, file, channel_axis)

    def read(options: ImageOptions) -> Problem:
        return source.problem([file], dataclasses.replace(options, channel_axis=channel_axis))

    steps = map_steps(iterate_comparison(variants, read), lambda step: step.snapshot)
    found = run_with_progress(steps, image.name)
    for place in places:
        make_folder(place.parent)
        save_comparison(
            place,
            found,
            file.array,
            truth=regions,
            paint=paint,
            channel_axis=channel_axis,
            title=image.name,
        )
    for one in found.results if each else ():
        mask, recipe = each[one.variant]
        save_labels(file, one.labels, mask, channel_axis)
        save_recipe(recipe, one.recipe | {"images": [image.name]})
    for failure in found.failures:
        click.echo(f"napari-saf: not run: {failure.variant.name}: {failure.error}", err=True)
    for row in comparison_table(found, regions):
        agreement = "" if np.isnan(row.covering) else f", covering {row.covering:.3f}"
        click.echo(f"{row.name}: {row.n_labels} labels{agreement}, {row.seconds:.1f} s")
    for place in places:
        click.echo(place)


def _read_truth(path: Path, image: ImageFile, channel_axis: int | None) -> NDArray[Any]:
    """Read the truth; whether it fits is known before anything is run."""
    truth: NDArray[Any] = read_labels(path).array
    shape = channels_last(image.array, channel_axis)[0].shape[:-1]
    if truth.shape != shape or not truth.any():
        raise InvalidInput(f"{path}: expected regions of shape {shape}, got {truth.shape}")
    return truth


def _variants(
    names: Sequence[str], given: Mapping[str, object], grid: Sequence[str], options: ImageOptions
) -> list[Variant]:
    """Return what is compared; a parameter is given to each method that has it."""
    types = [METHODS[name] for name in dict.fromkeys(names)]
    for key in given:
        if not any(parameter_named(method, key) for method in types):
            chosen = ", ".join(method.name for method in types)
            raise click.UsageError(f"{flag_of(key)}: none of {chosen} has such an option")
    methods = [
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
