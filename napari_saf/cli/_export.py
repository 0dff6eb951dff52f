"""``napari-saf export``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf.batch import check_outputs
from napari_saf.cli._options import DEBUG, PATH, ParameterValue
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.io import (
    FIGURE_SUFFIXES,
    MASK_SUFFIXES,
    PROTOTYPE_SUFFIXES,
    TABLE_SUFFIXES,
    Export,
    ImageFile,
    Labelling,
    PrototypeSet,
    Wanted,
    load_recipe,
    make_folder,
    mask_stem,
    read_image,
    read_labels,
)
from napari_saf.problem import ImageOptions, Problem


class _Name(click.ParamType):  # type: ignore[type-arg]
    """``2=nucleus``."""

    name = "name"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, str]:
        """Return label and name."""
        number, equals, text = str(value).partition("=")
        if not (number.strip().isdigit() and equals and text.strip()):
            self.fail(f"{value!r} is not a label and its name, such as 2=nucleus", param, ctx)
        return int(number), text.strip()


_OPTIONS: list[click.Parameter] = [
    click.Argument(["source"], type=PATH, metavar="LABELS"),
    click.Option(["-o", "--output", "out"], required=True, type=PATH, metavar="FOLDER",
                 help="Where the files go."),
    click.Option(["--image", "image_file"], type=PATH, metavar="FILE",
                 help="What was labelled: for intensities, figure and prototypes."),
    click.Option(["--masks"], type=click.Choice(MASK_SUFFIXES), help="The label image."),
    click.Option(["--binary"], type=click.Choice(MASK_SUFFIXES),
                 help="A mask for each label, 255 inside."),
    click.Option(["--regions"], type=click.Choice(TABLE_SUFFIXES), help="What the labels measure."),
    click.Option(["--connected"], is_flag=True,
                 help="In that table, a row for each connected region of a label."),
    click.Option(["--numbered"], type=click.Choice(MASK_SUFFIXES),
                 help="An image in which each connected region has a number of its own, that of "
                 "the table."),
    click.Option(["--min-pixels"], type=click.IntRange(min=1), metavar="N",
                 help="Leave connected regions of fewer pixels out of both."),
    click.Option(["--figure"], type=click.Choice(FIGURE_SUFFIXES),
                 help="Image, labels and legend."),
    click.Option(["--prototypes"], type=click.Choice(PROTOTYPE_SUFFIXES),
                 help="The mean feature of each label, or several."),
    click.Option(["--per-label", "n_each"], type=click.IntRange(min=1), default=1,
                 show_default=True, metavar="N", help="So many means of each label, for labels "
                 "that look in several ways; 8 is a good number to label other images with."),
    click.Option(["--recipe"], is_flag=True, help="The recipe beside the labels."),
    click.Option(["--name", "names"], type=_Name(), multiple=True, metavar="LABEL=NAME",
                 help="Name of a label; may be given again for others."),
    click.Option(["--scale"], type=ParameterValue(["list"]), metavar="SIZE[,SIZE...]",
                 help="Size of a pixel, or along each axis, if the files do not say it."),
    click.Option(["--unit"], help="Its unit, such as um."),
    click.Option(["--channel-axis"], type=int,
                 help="Axis of the channels of the image, if the file does not say it."),
    click.Option(["--overwrite"], is_flag=True, help="Replace files that are there."),
    DEBUG,
]  # fmt: skip


@click.command("export", params=_OPTIONS)
def command(
    source: Path,
    out: Path,
    image_file: Path | None,
    names: tuple[tuple[int, str], ...],
    scale: NDArray[np.float64] | None,
    unit: str | None,
    channel_axis: int | None,
    n_each: int,
    overwrite: bool,
    debug: bool,
    **wanted: Any,
) -> None:
    """Save a label image for other programs: masks, a table of regions, a figure, prototypes.

    Without an option that says what, a table (.csv) and a figure (.png) are saved.
    """
    asked = Wanted(**{key: value for key, value in wanted.items() if value is not None})
    if asked.min_pixels > 1 and not (asked.connected or asked.numbered):
        raise click.UsageError("--min-pixels: goes with --connected or --numbered")
    if n_each > 1 and asked.prototypes != ".json":
        raise click.UsageError("--per-label: goes with --prototypes .json")
    if asked.is_empty:
        asked = dataclasses.replace(asked, regions=".csv", figure=".png")
    labels = read_labels(source)
    image = None if image_file is None else read_image(image_file)
    labelling = _labelling(source, labels, image, channel_axis, dict(names))
    labelling = _with_scale(labelling, scale, unit)
    if asked.prototypes:
        stated = None if image is None else image.stated_channel_axis
        axis = stated if channel_axis is None else channel_axis
        found = _prototypes(labelling, axis, n_each)
        labelling = dataclasses.replace(labelling, prototypes=found)
    export = Export(out, mask_stem(source), labelling, asked)
    sources = {path.resolve() for path in (source, image_file) if path is not None}
    for path in export.paths:
        if path.resolve() in sources:
            raise InvalidInput(f"{path}: the export would replace what it is made of")
    check_outputs(export.paths, overwrite=overwrite)
    make_folder(out)
    for path in export.write():
        click.echo(path)


def _labelling(
    source: Path,
    labels: ImageFile,
    image: ImageFile | None,
    channel_axis: int | None,
    names: dict[int, str],
) -> Labelling:
    """Return labels and image; the size of a pixel is told by either file."""
    beside = source.with_name(f"{mask_stem(source)}.recipe.json")
    recipe = load_recipe(beside).raw if beside.exists() else None
    known = labels if labels.scale is not None or image is None else image
    fits = known.scale is not None and len(known.scale) == labels.array.ndim
    if image is not None and channel_axis is None:
        channel_axis = image.channel_axis
    return Labelling(
        labels.array,
        None if image is None else image.array,
        channel_axis,
        known.scale if fits else None,
        known.units if fits else None,
        labels.axes or None,
        names,
        recipe=recipe,
        title="" if image is None else mask_stem(source).removesuffix("_labels"),
    )


def _with_scale(
    labelling: Labelling, scale: NDArray[np.float64] | None, unit: str | None
) -> Labelling:
    n_axes = labelling.labels.ndim
    if scale is not None:
        every = tuple(scale.tolist()) * (n_axes if len(scale) == 1 else 1)
        labelling = dataclasses.replace(labelling, scale=every, units=None)
    if unit is None:
        return labelling
    if labelling.scale is None:
        raise click.UsageError("--unit: goes with --scale, the files do not say the size")
    return dataclasses.replace(labelling, units=(unit,) * n_axes)


def _prototypes(labelling: Labelling, channel_axis: int | None, n_each: int) -> PrototypeSet:
    """Return means of the features of each label, by the features that the recipe names."""
    if labelling.image is None:
        raise click.UsageError("--prototypes: goes with --image")
    options = ImageOptions()
    if labelling.recipe is not None and labelling.recipe.get("input") is not None:
        options = ImageOptions.from_plain(labelling.recipe["input"])
    rescale = options.rescale or options.scaling is None
    if channels_last(labelling.image, labelling.channel_axis)[0].shape[:-1] != (
        labelling.labels.shape
    ):
        raise InvalidInput(
            f"image: expected the shape {labelling.labels.shape}, got {labelling.image.shape}"
        )
    # The window counts: it says along which axes a reduced size is reduced.
    quick = options.arguments() | {"weights": "uniform", "groups": None}
    quick["channel_axis"] = channel_axis
    problem = Problem.from_image(labelling.image, mask=labelling.labels > 0, **quick)
    found = PrototypeSet.from_labels(problem, labelling.labels, n_each)
    assert found.options is not None
    whole = dataclasses.replace(found.options, weights=options.weights, rescale=rescale)
    return dataclasses.replace(found, options=whole)
