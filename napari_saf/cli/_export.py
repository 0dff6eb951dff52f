"""``napari-saf export``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.batch import check_outputs
from napari_saf.cli import _methods as flags
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.problem import ImageOptions, Problem
from napari_saf.storage import make_folder
from napari_saf.tiles import LARGE


def _read_names(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[int, str]:
    """Return names by label, given as ``2=nucleus``."""
    names = {}
    for text in texts:
        number, equals, name = text.partition("=")
        if not (number.strip().isdigit() and equals and name.strip()):
            raise click.BadParameter(f"{text!r} is not a label and its name, such as 2=nucleus")
        names[int(number)] = name.strip()
    return names


_OPTIONS: list[click.Parameter] = [
    click.Argument(["source"], type=flags.PATH, metavar="LABELS"),
    flags.output("FOLDER", "Where the files go."),
    click.Option(["--image", "image_file"], type=flags.PATH, metavar="FILE",
                 help="What was labelled: for intensities, figure and prototypes."),
    *flags.step_options(io.ExportSelection, without=["outlines", "probabilities", "in_bytes"]),
    *flags.OUTLINES,
    click.Option(["--per-label", "n_each"], type=click.IntRange(min=1), default=1,
                 show_default=True, metavar="N", help="So many means of each label, for labels "
                 "that look in several ways; 8 is a good number to label other images with."),
    click.Option(["--name", "names"], callback=_read_names, multiple=True, metavar="LABEL=NAME",
                 help="Name of a label; may be given again for others."),
    click.Option(["--scale"], type=flags.ParameterValue(["list"]), metavar="SIZE[,SIZE...]",
                 help="Size of a pixel, or along each axis, if the files do not say it."),
    click.Option(["--unit"], help="Its unit, such as um."),
    click.Option(["--channel-axis"], type=int,
                 help="Axis of the channels of the image, if the file does not say it."),
    flags.overwrite("files that are there"),
]  # fmt: skip


@flags.command("export", _OPTIONS)
def export(given: Any) -> None:
    """Save a label image for other programs: masks, a table of regions, a figure, prototypes.

    Without an option that says what, a table (.csv) and a figure (.png) are saved.
    """
    source, image = given.source, None
    is_large = io.is_zarr(source) and math.prod(io.ImageSource.open(source).shape) >= LARGE
    asked = _read_wanted(given, is_large)
    axis = stated = given.channel_axis
    if given.image_file is not None and not is_large:
        image = io.read_image(given.image_file)
        if axis is None:
            axis, stated = image.channel_axis, image.stated_channel_axis
    labelling = _labelling(source, image, given.scale, given.unit, is_large)
    names = {**labelling.names, **given.names}
    labelling = dataclasses.replace(labelling, names=names, channel_axis=axis)
    if is_large:
        labelling = dataclasses.replace(labelling, image=given.image_file)
    elif asked.prototypes:
        has_gaps = image is not None and image.no_data is not None
        found = _prototypes(labelling, stated, given.n_each, has_gaps)
        labelling = dataclasses.replace(labelling, prototypes=found)
    stem = io.mask_stem(source)
    files = io.Export(given.out, stem, labelling, asked)
    sources = [path for path in (source, given.image_file) if path is not None]
    check_outputs(files.paths, sources, overwrite=given.overwrite)
    make_folder(given.out)
    for path in files.write():
        click.echo(path)
    if files.note:
        click.echo(files.note, err=True)


def _read_wanted(given: Any, is_large: bool) -> io.ExportSelection:
    asked = flags.step_of(
        vars(given), io.ExportSelection(outlines=tuple(flags.outline_suffixes(given)))
    )
    if asked.min_pixels > 1 and not (asked.connected or asked.numbered or asked.outlines):
        raise click.UsageError("--min-pixels: goes with --connected or --numbered, or outlines")
    if given.n_each > 1 and asked.prototypes != ".json":
        raise click.UsageError("--per-label: goes with --prototypes .json")
    if asked.is_empty:
        asked = dataclasses.replace(asked, regions=".csv", figure="" if is_large else ".png")
    return asked


def _labelling(
    source: Path,
    image: io.ImageFile | None,
    scale: NDArray[np.float64] | None,
    unit: str | None,
    is_large: bool,
) -> io.Labelling:
    """Return labels and image; either file may say the size of a pixel where it is not given."""
    given = io.read_mask(source, lazily=is_large)
    given = given.lying_on(image)
    n_axes, sizes, units = given.labels.ndim, given.scale, given.units
    if scale is not None:
        sizes, units = tuple(scale.tolist()) * (n_axes if len(scale) == 1 else 1), None
        given = dataclasses.replace(given, place=None)
    if unit is not None:
        if sizes is None:
            raise click.UsageError("--unit: goes with --scale, the files do not say the size")
        units = (unit,) * n_axes
    if image is not None:
        title = io.mask_stem(source).removesuffix(io.LABELS_MARK)
        given = dataclasses.replace(given, image=image.array, title=title)
    first = given.origin if scale is None else None
    return dataclasses.replace(given, scale=sizes, units=units, origin=first)


def _prototypes(
    labelling: io.Labelling, channel_axis: int | None, n_each: int, has_gaps: bool
) -> io.PrototypeSet:
    """Return means of the features of each label, by the features that the recipe names.

    Where the image has gaps, pixels without data, these are left out.
    """
    labels, image = labelling.labels, labelling.image
    if image is None:
        raise click.UsageError("--prototypes: goes with --image")
    plain = (labelling.recipe or {}).get("input")
    options = ImageOptions() if plain is None else ImageOptions.from_plain(plain)
    inside, channels = labels > 0, channels_last(image, labelling.channel_axis)[0]
    if channels.shape[:-1] != labels.shape:
        raise InvalidInput(f"image: expected the shape {labels.shape}, got {image.shape}")
    # The window counts: it says along which axes a reduced size is reduced.
    quick = options.arguments() | {"weights": "uniform", "groups": None}
    quick["channel_axis"] = channel_axis
    if has_gaps:
        inside &= np.isfinite(channels).all(axis=-1)
    problem = Problem.from_image(image, mask=inside, **quick)
    found = io.PrototypeSet.from_labels(problem, labels, n_each)
    assert found.options is not None
    rescale = options.rescale or options.scaling is None
    whole = dataclasses.replace(found.options, weights=options.weights, rescale=rescale)
    return dataclasses.replace(found, options=whole)
