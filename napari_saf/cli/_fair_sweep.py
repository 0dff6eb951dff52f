"""``napari-saf fair-sweep``."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure

from napari_saf.batch import check_outputs, save_labels
from napari_saf.cli._options import (
    DEBUG,
    IMAGES,
    PATH,
    ParameterValue,
    check_one_file_each,
    given_parameters,
    image_options,
    make_method,
    method_options,
    problem_source,
)
from napari_saf.cli._progress import run_with_progress
from napari_saf.io import (
    LABELS_MARK,
    atomic_write,
    find_images,
    make_folder,
    mask_stem,
    printable,
)
from napari_saf.methods import METHODS, SWEPT, SweepMethod, TradeOff, count_points

_NAME, _METHOD = next(
    (name, method) for name, method in METHODS.items() if issubclass(method, SweepMethod)
)
_OPTIONS = [
    IMAGES,
    click.Option(["-o", "--output", "out"], required=True, type=PATH, metavar="FOLDER",
                 help="Where the table (.csv), the plot (.png) and the masks go."),
    click.Option(["--weights"], type=ParameterValue(["list"], True), metavar="FLOAT,...",
                 help="Fairness weights. [default: 0, and nine up to ten times the objective]"),
    *image_options("groups", "features", "window", "channel_axis", "scaling", "mask",
                   window="Side of the window of neighbours, for ncut. [default: 3]"),
    click.Option(["--masks"], is_flag=True, help="Save the labels of every weight, too."),
    click.Option(["--overwrite"], is_flag=True, help="Replace what is there."),
    DEBUG,
]  # fmt: skip


@click.command("fair-sweep", params=method_options(_OPTIONS, {_NAME: _METHOD}, [SWEPT]))
@click.pass_context
def command(
    ctx: click.Context,
    /,
    images: tuple[Path, ...],
    out: Path,
    weights: Any,
    masks: bool,
    overwrite: bool,
    debug: bool,
    **values: Any,
) -> None:
    """Cluster images together at one fairness weight after another.

    Show what an even spread of the labels over groups costs. Several images are the groups by
    default.
    """
    paths = find_images(images)
    values["groups"] = values["groups"] or ("image" if len(paths) > 1 else None)
    if values["groups"] is None:
        raise click.UsageError("--groups: one image needs groups; see --help")
    source = problem_source(values)
    check_one_file_each(source, len(paths))
    table, plot = out / "fair_sweep.csv", out / "fair_sweep.png"
    mask_places = [
        [out / f"{mask_stem(path)}{LABELS_MARK}_{number}.tif" for path in paths]
        for number in range(count_points(weights) if masks else 0)
    ]
    check_outputs([table, plot, *itertools.chain(*mask_places)], paths, overwrite=overwrite)
    method = make_method(_METHOD, given_parameters(ctx))
    assert isinstance(method, SweepMethod)
    files, problem, axis = source.read(paths)
    title = paths[0].name if len(paths) == 1 else f"{len(paths)} images"
    found = run_with_progress(method.iterate_sweep(problem, weights), title)
    make_folder(out)
    _save_table(table, found)
    _save_plot(plot, found, title)
    for point, places in zip(found.points, mask_places, strict=False):
        labels = point.segmentation.labels
        each = labels if isinstance(labels, list) else [labels]
        for image, one, place in zip(files, each, places, strict=True):
            save_labels(image, one, place, axis)
    click.echo(f"{table}\n{plot}")


def _save_table(path: Path, found: TradeOff) -> None:
    with (
        atomic_write(path) as temporary,
        open(temporary, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(
            ["number", "fairness_weight", "objective", "fairness_error", "balance", "labels"]
        )
        for number, point in enumerate(found.points):
            values = (point.weight, point.objective, point.fairness_error, point.balance)
            count = point.segmentation.n_labels
            writer.writerow([number, *(f"{value:.8g}" for value in values), count])


def _save_plot(path: Path, found: TradeOff, title: str) -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    weights = [point.weight for point in found.points]
    places = [(point.fairness_error, point.objective) for point in found.points]
    left.plot(*zip(*places, strict=True), "o-")
    for weight, place in zip(weights, places, strict=True):
        if np.isfinite(place[0]):
            left.annotate(f"{weight:.3g}", place, xytext=(4, 4), textcoords="offset points")
    left.set(xlabel="fairness error (nats, sum over labels)", ylabel="objective")
    left.set_title(printable(title), parse_math=False)
    right.plot(weights, [point.balance for point in found.points], "o-")
    right.set_xscale("symlog", linthresh=min([w for w in weights if w > 0], default=1.0))
    right.set(xlabel="fairness weight", ylabel="balance", ylim=(0, 1))
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
