"""``napari-saf compare`` and ``fair-sweep``: several results for the same images."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from napari_saf import comparison, io
from napari_saf.batch import Companions, check_outputs
from napari_saf.cli import _methods as flags
from napari_saf.cli import run_with_progress
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.methods import METHODS, SWEPT, SweepMethod, TradeOff, count_points, map_steps
from napari_saf.pipeline import Pipeline, placed_labels
from napari_saf.problem import ImageOptions, Problem
from napari_saf.storage import atomic_write, make_folder

_SUFFIXES = ", ".join(comparison.COMPARISON_SUFFIXES)
_COMPARE_OPTIONS = [
    click.Argument(["image"], type=flags.PATH),
    flags.output("OUT", f"A picture or table ({_SUFFIXES}), or a folder for both, with a mask "
                 "and a recipe for each result."),
    click.Option(["--method", "methods"], type=click.Choice(list(METHODS)), multiple=True,
                 help="A method; may be given several times. [default: saf]"),
    click.Option(["--grid"], multiple=True, metavar="NAME=VALUE,...",
                 help="Values to go through, such as s=0,0.5,1: of a parameter of the methods "
                 f"or of {', '.join(comparison.OPTION_AXES)}. Given several times: all "
                 "combinations."),
    click.Option(["--truth"], type=flags.PATH, metavar="FILE",
                 help="Regions 1, 2, ... as they should be, in an image of that size; 0 does not "
                 "count. The table then says how well each result agrees."),
    click.Option(["--paint"], type=click.Choice(["mean", "palette"]), default="mean",
                 show_default=True,
                 help="Labels in the mean colour of the image, or in clear colours."),
    *flags.image_options(),
    flags.overwrite("what is there"),
]  # fmt: skip
_SWEEP_NAME, _SWEEP = next(
    (name, method) for name, method in METHODS.items() if issubclass(method, SweepMethod)
)
_GROUPS, _WINDOW = flags.image_options("groups", "window")
_GROUPS.help = f"{_GROUPS.help} [default for several images: image]"
_WINDOW.help = "Side of the window of neighbours, for ncut. [default: 3]"
_SWEEP_OPTIONS = [
    flags.IMAGES,
    flags.output("FOLDER", "Where the table (.csv), the plot (.png) and the masks go."),
    click.Option(["--weights", "fairness_weights"], metavar="FLOAT,...",
                 type=flags.ParameterValue(["list"], optional=True),
                 help="Fairness weights. [default: 0, and nine up to ten times the objective]"),
    _GROUPS,
    *flags.image_options("features"),
    _WINDOW,
    *flags.image_options("channel_axis", "scaling", "mask"),
    click.Option(["--masks"], is_flag=True, help="Save the labels of every weight, too."),
    flags.overwrite("what is there"),
]  # fmt: skip


@flags.command("compare", flags.method_options(_COMPARE_OPTIONS))
def compare(args: Any) -> None:
    """Label one image in several ways and show the results side by side.

    The labels of all results have common numbers and colours.
    """
    image, out = args.image, args.out
    is_folder = out.is_dir() or not out.suffix
    targets = [out]
    if is_folder:
        targets = [out / f"comparison{suffix}" for suffix in (".png", ".csv")]
    elif out.suffix.lower() not in comparison.COMPARISON_SUFFIXES:
        raise InvalidInput(f"{out}: expected a folder, or a name that ends in {_SUFFIXES}")
    options, companions = flags.image_options_of(vars(args))
    variants = _variants(args, options)
    stems = [
        f"{io.mask_stem(image)}_{io.file_stem(name)}" for name in comparison.short_names(variants)
    ]
    masks = [(out / f"{stem}{io.LABELS_MARK}.tif", out / f"{stem}.recipe.json") for stem in stems]
    each = dict(zip(variants, masks, strict=True)) if is_folder else {}
    check_outputs([*targets, *itertools.chain(*each.values())], [image], overwrite=args.overwrite)
    _print_notes(companions)
    file, companion_data = companions.read_image(image), companions.read()
    pipeline = companions.pipeline_for(Pipeline(METHODS["saf"](), options), file)
    assert pipeline.options is not None
    channel_axis = pipeline.options.channel_axis
    regions = None if args.truth is None else _read_truth(args.truth, file, channel_axis)

    def read(options: ImageOptions) -> Problem:
        shown = dataclasses.replace(options, channel_axis=channel_axis)
        return dataclasses.replace(pipeline, options=shown).problem(file, **companion_data)

    steps = map_steps(comparison.iterate_comparison(variants, read), lambda step: step.snapshot)
    result = run_with_progress(steps, image.name)
    for target in targets:
        make_folder(target.parent)
        comparison.save_comparison(
            target,
            result,
            file.array,
            truth=regions,
            paint=args.paint,
            channel_axis=channel_axis,
            title=image.name,
        )
    for compared in result.results if each else ():
        mask, recipe = each[compared.variant]
        io.save_masks(
            mask, compared.labels, **placed_labels(file, compared.labels, channel_axis).placed
        )
        io.save_recipe(recipe, compared.recipe | {"images": [image.name]})
    for failure in result.failures:
        click.echo(f"napari-saf: not run: {failure.variant.name}: {failure.error}", err=True)
    for row in comparison.comparison_table(result, regions):
        agreement = "" if np.isnan(row.covering) else f", covering {row.covering:.3f}"
        click.echo(f"{row.name}: {row.n_labels} labels{agreement}, {row.seconds:.1f} s")
    for target in targets:
        click.echo(target)


def _print_notes(companions: Companions) -> None:
    for note in companions.notes():
        click.echo(f"napari-saf: note: {note}", err=True)


def _read_truth(path: Path, image: io.ImageFile, channel_axis: int | None) -> NDArray[Any]:
    truth: NDArray[Any] = io.read_labels(path).array
    shape = channels_last(image.array, channel_axis)[0].shape[:-1]
    if truth.shape != shape or not truth.any():
        raise InvalidInput(f"{path}: expected regions of shape {shape}, got {truth.shape}")
    return truth


def _variants(args: Any, options: ImageOptions) -> list[comparison.Variant]:
    types = [METHODS[name] for name in args.methods or ("saf",)]
    methods = flags.make_methods(types, flags.given_parameters(vars(args)))
    axes: dict[str, list[object]] = {}
    for entry in args.grid:
        name, equals, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name in axes:
            raise click.UsageError(f"--grid: expected NAME=VALUE,..., each name once, got {entry}")
        axes[name] = comparison.read_values(name, text, types)
    return comparison.variants_of(methods, axes, options)


@flags.command("fair-sweep", flags.method_options(_SWEEP_OPTIONS, {_SWEEP_NAME: _SWEEP}, [SWEPT]))
def fair_sweep(args: Any) -> None:
    """Cluster images together at one fairness weight after another.

    Show what an even spread of the labels over groups costs.
    """
    out, weights = args.out, args.fairness_weights
    weights = None if isinstance(weights, str) else weights
    paths = io.find_images(args.images)
    args.groups = args.groups or ("image" if len(paths) > 1 else None)
    if args.groups is None:
        raise click.UsageError("--groups: one image needs groups; see --help")
    options, companions = flags.image_options_of(vars(args), len(paths))
    table, plot = out / "fair_sweep.csv", out / "fair_sweep.png"
    mask_paths = [
        [out / f"{io.mask_stem(path)}{io.LABELS_MARK}_{number}.tif" for path in paths]
        for number in range(count_points(weights) if args.masks else 0)
    ]
    check_outputs([table, plot, *itertools.chain(*mask_paths)], paths, overwrite=args.overwrite)
    method = flags.make_method(_SWEEP, flags.given_parameters(vars(args)))
    assert isinstance(method, SweepMethod)
    _print_notes(companions)
    files: list[Any] = [companions.read_image(path) for path in paths]
    pipeline = companions.pipeline_for(Pipeline(method, options), files[0])
    assert pipeline.options is not None
    problem, axis = pipeline.problem(files, **companions.read()), pipeline.options.channel_axis
    title = paths[0].name if len(paths) == 1 else f"{len(paths)} images"
    trade_off = run_with_progress(method.iterate_sweep(problem, weights), title)
    make_folder(out)
    columns = {
        "number": range(len(trade_off.points)),
        "fairness_weight": [point.weight for point in trade_off.points],
        "objective": [point.objective for point in trade_off.points],
        "fairness_error": [point.fairness_error for point in trade_off.points],
        "balance": [point.balance for point in trade_off.points],
        "labels": [point.segmentation.n_labels for point in trade_off.points],
    }
    io.save_table(table, {name: np.asarray(column) for name, column in columns.items()})
    _save_plot(plot, trade_off, title)
    for point, paths_of_point in zip(trade_off.points, mask_paths, strict=False):
        labels = point.segmentation.labels
        label_images = labels if isinstance(labels, list) else [labels]
        for image, mask, path in zip(files, label_images, paths_of_point, strict=True):
            io.save_masks(path, mask, **placed_labels(image, mask, axis).placed)
    click.echo(f"{table}\n{plot}")


def _save_plot(path: Path, trade_off: TradeOff, title: str) -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    cost_axes, balance_axes = figure.subplots(1, 2)
    weights = [point.weight for point in trade_off.points]
    points = [(point.fairness_error, point.objective) for point in trade_off.points]
    cost_axes.plot(*zip(*points, strict=True), "o-")
    for weight, point in zip(weights, points, strict=True):
        if np.isfinite(point[0]):
            cost_axes.annotate(f"{weight:.3g}", point, xytext=(4, 4), textcoords="offset points")
    cost_axes.set(xlabel="fairness error (nats, sum over labels)", ylabel="objective")
    cost_axes.set_title(io.printable(title), parse_math=False)
    balance_axes.plot(weights, [point.balance for point in trade_off.points], "o-")
    balance_axes.set_xscale("symlog", linthresh=min([w for w in weights if w > 0], default=1.0))
    balance_axes.set(xlabel="fairness weight", ylabel="balance", ylim=(0, 1))
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
