"""``napari-saf sharpen``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from napari_saf import io
from napari_saf.batch import check_outputs
from napari_saf.cli import _methods as flags
from napari_saf.cli._objects import find_masks, picture_of, tell_lost_places
from napari_saf.errors import InvalidInput, SafError
from napari_saf.features import channels_last
from napari_saf.sharpening import sharpen_labels
from napari_saf.storage import make_folder

_OPTIONS: list[click.Parameter] = [
    click.Argument(["source"], type=flags.PATH, metavar="MASK"),
    click.Argument(["pictures"], type=flags.PATH, metavar="IMAGE"),
    flags.output("OUT", f"Mask ({', '.join(io.MASK_SUFFIXES)}), of several a folder."),
    click.Option(["--mask", "inside"], type=flags.PATH, metavar="FILE|labels",
                 help="Change labels only where the file is not 0, or only borders between labels, "
                 "not outlines."),
    click.Option(["--reach"], type=click.IntRange(min=1), metavar="N",
                 help="How far borders move at most, about, in pixels. [default: twice the length "
                 "of the steps in the borders, from 4 to 16]"),
    click.Option(["--strength"], type=click.FloatRange(0, 1), metavar="SHARE",
                 help="How much the image counts: 0, borders are merely smoothed along edges, to "
                 "1. [default: as well as borders lie on edges, the less]"),
    click.Option(["--slices"], is_flag=True,
                 help="Each slice of a volume by itself, along its first axis."),
    click.Option(["--channel-axis"], type=int,
                 help="Axis of the channels of the image, if the file does not say it."),
    flags.overwrite("files that are there"),
]  # fmt: skip


@flags.command("sharpen", _OPTIONS)
def sharpen(args: Any) -> None:
    """Move the borders of label images, whatever made them, onto the edges of the images.

    MASK and IMAGE are files, or folders, in which the image of photo.labels.tif is called photo.
    Numbers, names, colours and the size of a pixel stay; frames of a series are gone through one
    by one.
    """
    is_folder = io.is_plain_folder(args.source)
    masks = find_masks([args.source])
    if not is_folder:
        io.check_suffix(args.out, io.MASK_SUFFIXES)
    outputs = [args.out / path.name if is_folder else args.out for path in masks]
    pictures = [picture_of(path, args.pictures) for path in masks]
    if is_folder and (not io.is_plain_folder(args.pictures) or _file_of(args.inside)):
        raise click.UsageError("IMAGE, --mask: a file goes with one mask")
    sources = [path for path in (*masks, *pictures, _file_of(args.inside)) if path is not None]
    check_outputs(outputs, sources, overwrite=args.overwrite)
    make_folder(outputs[0].parent)
    failed = 0
    for path, picture, out in zip(masks, pictures, outputs, strict=True):
        try:
            assert picture is not None
            _sharpen(path, picture, out, args)
            click.echo(out)
        except SafError as error:
            if len(masks) == 1:
                raise
            click.echo(f"napari-saf: error: {path}: {error}", err=True)
            failed += 1
    if failed:
        raise SafError(f"{failed} of {len(masks)} masks could not be done")


def _file_of(inside: Path | None) -> Path | None:
    return None if inside is None or str(inside) == "labels" else inside


def _sharpen(path: Path, picture: Path, out: Path, args: Any) -> None:
    mask, image = io.read_mask(path), io.read_image(picture)
    axis = image.channel_axis if args.channel_axis is None else args.channel_axis
    labels, channels = mask.labels, channels_last(image.array, axis)[0]
    inside_file = _file_of(args.inside)
    inside = None if args.inside is None else labels > 0
    if inside_file is not None:
        inside = io.read_labels(inside_file).array > 0
    for name, array in ((picture, channels[..., 0]), (args.inside, inside)):
        if array is not None and array.shape != labels.shape:
            raise InvalidInput(f"{name}: expected shape {labels.shape}, got {array.shape}")
    if image.no_data is not None:
        inside = np.isfinite(channels).all(axis=-1) & (True if inside is None else inside)
    sharpened = labels.copy()
    is_by_first = args.slices or labels.ndim > 3 or (mask.axes or "").startswith("t")
    for at in np.ndindex(labels.shape[: labels.ndim - 2 if args.slices else int(is_by_first)]):
        region = None if inside is None else inside[at]
        if region is None or region.any():
            sharpened[at] = sharpen_labels(
                labels[at],
                channels[at],
                channel_axis=-1,
                mask=region,
                reach=args.reach,
                strength=args.strength,
            )
    mask = mask.lying_on(image)
    metadata = {key: getattr(mask, key) for key in ("names", "colors", "prototypes", "place")}
    io.save_masks(out, sharpened, **mask.placed, **metadata)
    tell_lost_places(out, mask)
