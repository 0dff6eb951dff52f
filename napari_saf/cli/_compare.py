"""``napari-saf compare`` and ``fair-sweep``: several results on the same images."""

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
from napari_saf.cli import note, run_with_progress
from napari_saf.cli._options import (
    GivenMethods,
    ParameterValue,
    argument,
    method_options,
    option,
    output,
)
from napari_saf.cli._run import GROUPS, GivenImages, WritingCommand, image_options
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.methods import METHODS, SWEPT, SweepMethod, TradeOff, count_points, map_steps
from napari_saf.pipeline import Pipeline, placed_labels
from napari_saf.problem import ImageOptions, Problem
from napari_saf.storage import atomic_write, make_folder

_SUFFIXES = ", ".join(comparison.COMPARISON_SUFFIXES)
_SWEEPS = {name: method for name, method in METHODS.items() if issubclass(method, SweepMethod)}


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(WritingCommand):
    """Label one image with several methods or parameters, and show the results side by side.

    Label numbers and colours match across results.
    """

    image: Path = argument("IMAGE")
    out: Path = output(
        "OUT", f"Figure or table ({_SUFFIXES}), or a folder for both, with a mask and a recipe for "
        "each result.")
    methods: tuple[str, ...] = option(
        (), "Method to run; may be repeated. [default: saf]", "--method",
        choices=list(METHODS))
    grid: tuple[str, ...] = option(
        (), "Values to compare, such as s=0,0.5,1, of a parameter of the methods or of "
        f"{', '.join(comparison.OPTION_AXES)}. May be repeated: all combinations are run.",
        metavar="NAME=VALUE,...")
    truth: Path | None = option(
        None, "Reference regions 1, 2, ... in a label image of the same size; 0 is ignored. Adds "
        "measures of agreement to the table.", metavar="FILE")
    paint: str = option(
        "mean", "Paint labels in the mean colour of the image, or in distinct colours.",
        choices=["mean", "palette"])
    options: GivenImages = image_options()
    parameters: GivenMethods = method_options()
    # fmt: on

    def run(self) -> None:
        is_folder, targets = self.out.is_dir() or not self.out.suffix, [self.out]
        if is_folder:
            targets = [self.out / f"comparison{suffix}" for suffix in (".png", ".csv")]
        elif self.out.suffix.lower() not in comparison.COMPARISON_SUFFIXES:
            raise InvalidInput(
                f"{self.out}: expected a folder, or a name that ends in {_SUFFIXES}"
            )
        options, companions = self.options.on()
        variants = self._variants(options)
        stem = io.mask_stem(self.image)
        stems = [f"{stem}_{io.file_stem(name)}" for name in comparison.short_names(variants)]
        masks = [
            (self.out / f"{stem}{io.LABELS_MARK}.tif", self.out / f"{stem}.recipe.json")
            for stem in stems
        ]
        outputs = dict(zip(variants, masks, strict=True)) if is_folder else {}
        files = [*targets, *itertools.chain(*outputs.values())]
        check_outputs(files, [self.image], overwrite=self.overwrite)
        _print_notes(companions)
        file, companion_data = companions.read_image(self.image), companions.read()
        pipeline = companions.pipeline_for(Pipeline(METHODS["saf"](), options), file)
        assert pipeline.options is not None
        channel_axis = pipeline.options.channel_axis
        regions = None if self.truth is None else _read_truth(self.truth, file, channel_axis)

        def read(options: ImageOptions) -> Problem:
            shown = dataclasses.replace(options, channel_axis=channel_axis)
            return dataclasses.replace(pipeline, options=shown).problem(file, **companion_data)

        steps = map_steps(comparison.iterate_comparison(variants, read), lambda s: s.snapshot)
        result = run_with_progress(steps, self.image.name)
        for target in targets:
            make_folder(target.parent)
            comparison.save_comparison(
                target,
                result,
                file.array,
                truth=regions,
                paint=self.paint,  # type: ignore[arg-type]
                channel_axis=channel_axis,
                title=self.image.name,
            )
        for compared in result.results if outputs else ():
            mask, recipe = outputs[compared.variant]
            placed = placed_labels(file, compared.labels, channel_axis).placed
            io.save_masks(mask, compared.labels, **placed)
            io.save_recipe(recipe, compared.recipe | {"images": [self.image.name]})
        for failure in result.failures:
            click.echo(f"napari-saf: not run: {failure.variant.name}: {failure.error}", err=True)
        for row in comparison.comparison_table(result, regions):
            agreement = "" if np.isnan(row.covering) else f", covering {row.covering:.3f}"
            click.echo(f"{row.name}: {row.n_labels} labels{agreement}, {row.seconds:.1f} s")
        for target in targets:
            click.echo(target)

    def _variants(self, options: ImageOptions) -> list[comparison.Variant]:
        types = [METHODS[name] for name in self.methods or ("saf",)]
        methods = self.parameters.make_each(types)
        axes: dict[str, list[object]] = {}
        for entry in self.grid:
            name, equals, text = entry.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or name in axes:
                raise click.UsageError(
                    f"--grid: expected NAME=VALUE,..., each name once, got {entry}"
                )
            axes[name] = comparison.read_values(name, text, types)
        return comparison.variants_of(methods, axes, options)


def _print_notes(companions: Companions) -> None:
    for text in companions.notes():
        note(text)


def _read_truth(path: Path, image: io.ImageFile, channel_axis: int | None) -> NDArray[Any]:
    truth: NDArray[Any] = io.read_labels(path).array
    shape = channels_last(image.array, channel_axis)[0].shape[:-1]
    if truth.shape != shape or not truth.any():
        raise InvalidInput(f"{path}: expected regions of shape {shape}, got {truth.shape}")
    return truth


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class FairSweep(WritingCommand):
    """Cluster images jointly at several fairness weights.

    Plot the trade-off between the objective and the balance of labels over groups.
    """

    images: tuple[Path, ...] = argument("IMAGE...")
    out: Path = output("FOLDER", "Folder for the table (.csv), the plot (.png) and the masks.")
    weights: Any = option(
        None, "Fairness weights. [default: 0, and nine up to ten times the objective]",
        metavar="FLOAT,...", type=ParameterValue(["list"], optional=True))
    image: GivenImages = image_options(
        "groups", "features", "window", "channel_axis", "scaling", "mask",
        groups=f"{GROUPS} [default for several images: image]",
        window="Side of the window of neighbours, for ncut. [default: 3]")
    masks: bool = option(False, "Also save the labels of every weight.")
    parameters: GivenMethods = method_options(_SWEEPS, [SWEPT])
    # fmt: on

    def run(self) -> None:
        weights = None if isinstance(self.weights, str) else self.weights  # the word none
        paths = io.find_images(self.images)
        values = self.image.values
        if len(paths) > 1:
            values = {"groups": "image", **values}
        elif "groups" not in values:
            raise click.UsageError("--groups: required for a single image; see --help")
        options, companions = GivenImages(values).on(n_images=len(paths))
        table, plot = self.out / "fair_sweep.csv", self.out / "fair_sweep.png"
        mask_paths = [
            [self.out / f"{io.mask_stem(path)}-{number}{io.LABELS_MARK}.tif" for path in paths]
            for number in range(count_points(weights) if self.masks else 0)
        ]
        outputs = [table, plot, *itertools.chain(*mask_paths)]
        check_outputs(outputs, paths, overwrite=self.overwrite)
        (method_type,) = _SWEEPS.values()
        method = self.parameters.make(method_type)
        assert isinstance(method, SweepMethod)
        _print_notes(companions)
        files: list[Any] = [companions.read_image(path) for path in paths]
        pipeline = companions.pipeline_for(Pipeline(method, options), files[0])
        assert pipeline.options is not None
        problem, axis = pipeline.problem(files, **companions.read()), pipeline.options.channel_axis
        title = paths[0].name if len(paths) == 1 else f"{len(paths)} images"
        trade_off = run_with_progress(method.iterate_sweep(problem, weights), title)
        make_folder(self.out)
        points = trade_off.points
        columns = {
            "number": range(len(points)),
            "fairness_weight": [point.weight for point in points],
            "objective": [point.objective for point in points],
            "fairness_error": [point.fairness_error for point in points],
            "balance": [point.balance for point in points],
            "labels": [point.segmentation.n_labels for point in points],
        }
        io.save_table(table, {name: np.asarray(column) for name, column in columns.items()})
        _save_plot(plot, trade_off, title)
        for point, point_paths in zip(points, mask_paths, strict=False):
            labels = point.segmentation.labels
            label_images = labels if isinstance(labels, list) else [labels]
            for image, mask, path in zip(files, label_images, point_paths, strict=True):
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
