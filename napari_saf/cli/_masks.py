"""``napari-saf sharpen`` and ``export``, and functions shared by commands for label images."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.batch import check_outputs
from napari_saf.cli import note, report
from napari_saf.cli._options import Given, ParameterValue, argument, option, output, step_options
from napari_saf.cli._run import WritingCommand
from napari_saf.errors import InvalidInput, SafError
from napari_saf.features import channels_last
from napari_saf.problem import ImageOptions, Problem
from napari_saf.sharpening import sharpen_labels
from napari_saf.storage import make_folder
from napari_saf.tiles import LARGE

T = TypeVar("T")
_CHANNEL_AXIS = "Channel axis of the image, if the file does not specify it."


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutlineCommand(WritingCommand):
    """A command that writes outlines."""

    geojson: bool = option(False, "Outlines for QuPath.")
    rois: bool = option(False, "Outlines as an ImageJ ROI set.")
    coco: bool = option(False, "Annotations in COCO format.")

    def outline_suffixes(self) -> list[str]:
        """Return the formats of outlines to write; SafError if a library is missing."""
        chosen = {".geojson": self.geojson, ".zip": self.rois, ".json": self.coco}
        return [io.check_outlines(f"outlines{suffix}") for suffix in chosen if chosen[suffix]]


def find_masks(paths: Sequence[Path]) -> list[Path]:
    """Return the masks; a folder is expanded to the files named as masks."""
    masks: list[Path] = []
    for path in paths:
        if io.is_plain_folder(path):
            files = [file for file in sorted(path.iterdir()) if io.mask_suffix(file) is not None]
            masks += [file for file in files if io.mask_stem(file).endswith(io.LABELS_MARK)]
        else:
            masks += io.find_images([path])
    if not masks:
        raise InvalidInput(
            f"{paths[0]}: no masks, such as photo.labels.tif, are in this folder; name others, as "
            f"{paths[0] / '*.tif'}"
        )
    return masks


def image_of(mask: Path, images: Path | None) -> Path | None:
    """Return the image of a mask: the given file, or the one with its name in a folder."""
    if images is None or not io.is_plain_folder(images):
        return images
    stem = io.image_stem(mask)
    files = [path for path in io.find_images([images]) if io.mask_stem(path) == stem]
    if len(files) != 1:
        raise InvalidInput(f"{images}: expected one image {stem}, found {len(files)}")
    return files[0]


def for_each_mask(masks: Sequence[Path], work: Callable[[Path], T]) -> tuple[list[T], str]:
    """Return the results of all masks, and a message on failures; for one mask raise its error."""
    results = []
    for path in masks:
        try:
            results.append(work(path))
        except SafError as error:
            if len(masks) == 1:
                raise
            report(error, debug=bool(click.get_current_context().obj), source=str(path))
    n_failed = len(masks) - len(results)
    return results, f"{n_failed} of {len(masks)} masks failed" if n_failed else ""


def tell_lost_places(path: Path, labelling: io.Labelling) -> None:
    """Print a note on spatial metadata that the format of a mask does not store."""
    for text, kept_by in io.places_lost(io.mask_suffix(path), labelling).items():
        note(f"{path} does not keep {text}: {kept_by} does")


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharpen(WritingCommand):
    """Move the borders of label images from any program onto the edges of the images.

    MASK and IMAGE are files, or folders in which the image of photo.labels.tif is named photo.
    Numbers, names, colours and pixel sizes are kept; frames of a series are processed one by one.
    """

    source: Path = argument("MASK")
    images: Path = argument("IMAGE")
    out: Path = output("OUT", f"Mask ({', '.join(io.MASK_SUFFIXES)}), or a folder for several.")
    inside: Path | None = option(
        None, "Change labels only where the file is not 0, or only borders between labels, not "
        "outlines.", "--mask", metavar="FILE|labels")
    reach: int | None = option(
        None, "How far borders move at most, about, in pixels. [default: twice the length of the "
        "steps in the borders, from 4 to 16]", minimum=1, metavar="N")
    strength: float | None = option(
        None, "Weight of the image, from 0, borders are merely smoothed along edges, to 1. "
        "[default: lower the better borders already fit edges]", minimum=0, maximum=1,
        metavar="SHARE")
    slices: bool = option(False, "Process each slice of a volume separately, along its first axis.")
    channel_axis: int | None = option(None, _CHANNEL_AXIS)
    # fmt: on

    @property
    def inside_file(self) -> Path | None:
        return None if str(self.inside) == "labels" else self.inside

    def run(self) -> None:
        is_folder = io.is_plain_folder(self.source)
        masks = find_masks([self.source])
        if not is_folder:
            io.check_suffix(self.out, io.MASK_SUFFIXES)
        outputs = {path: self.out / path.name if is_folder else self.out for path in masks}
        images = {path: image_of(path, self.images) or self.images for path in masks}
        if is_folder and (not io.is_plain_folder(self.images) or self.inside_file):
            raise click.UsageError("IMAGE, --mask: a file requires a single mask")
        sources = [*masks, *images.values(), *([self.inside_file] if self.inside_file else [])]
        check_outputs([*outputs.values()], sources, overwrite=self.overwrite)
        make_folder(outputs[masks[0]].parent)

        def sharpen(path: Path) -> None:
            self._sharpen(path, images[path], outputs[path])
            click.echo(outputs[path])

        failure = for_each_mask(masks, sharpen)[1]
        if failure:
            raise SafError(failure)

    def _sharpen(self, path: Path, image_path: Path, out: Path) -> None:
        mask, image = io.read_mask(path), io.read_image(image_path)
        axis = image.channel_axis if self.channel_axis is None else self.channel_axis
        labels, channels = mask.labels, channels_last(image.array, axis)[0]
        inside = None if self.inside is None else labels > 0
        if self.inside_file is not None:
            inside = io.read_labels(self.inside_file).array > 0
        for name, array in ((image_path, channels[..., 0]), (self.inside, inside)):
            if array is not None and array.shape != labels.shape:
                raise InvalidInput(f"{name}: expected shape {labels.shape}, got {array.shape}")
        if image.no_data is not None:
            inside = np.isfinite(channels).all(axis=-1) & (True if inside is None else inside)
        sharpened = labels.copy()
        is_by_first = labels.ndim > 3 or (mask.axes or "").startswith("t")
        n_axes = labels.ndim - 2 if self.slices else int(is_by_first)
        for index in np.ndindex(labels.shape[:n_axes]):
            region = None if inside is None else inside[index]
            if region is None or region.any():
                sharpened[index] = sharpen_labels(
                    labels[index],
                    channels[index],
                    channel_axis=-1,
                    mask=region,
                    reach=self.reach,
                    strength=self.strength,
                )
        mask = mask.lying_on(image)
        metadata = {key: getattr(mask, key) for key in ("names", "colors", "prototypes", "place")}
        io.save_masks(out, sharpened, **mask.placed, **metadata)
        tell_lost_places(out, mask)


def _read_names(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[int, str]:
    """Parse names by label, given as ``2=nucleus``."""
    names = {}
    for text in texts:
        number, equals, name = text.partition("=")
        if not (number.strip().isdigit() and equals and name.strip()):
            raise click.BadParameter(f"{text!r} is not a label and its name, such as 2=nucleus")
        names[int(number)] = name.strip()
    return names


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(OutlineCommand):
    """Save a label image for other programs: masks, a table of regions, a figure, prototypes.

    By default a table (.csv) and a figure (.png) are saved.
    """

    source: Path = argument("LABELS")
    out: Path = output("FOLDER", "Output folder.")
    image_file: Path | None = option(
        None, "The labelled image, for intensities, figure and prototypes.", "--image",
        metavar="FILE")
    files: Given = step_options(
        io.ExportSelection, without=["outlines", "probabilities", "in_bytes"])
    n_each: int = option(
        1, "Number of means per label, for labels with several appearances; 8 is a good number "
        "for labelling other images.", "--per-label", minimum=1, metavar="N")
    names: dict[int, str] = option(
        None, "Name of a label; repeat for further labels.", "--name", callback=_read_names,
        metavar="LABEL=NAME")
    scale: NDArray[np.float64] | None = option(
        None, "Pixel size, or one per axis, if the files do not specify it.",
        type=ParameterValue(["list"]), metavar="SIZE[,SIZE...]")
    unit: str | None = option(None, "Unit of --scale, such as um.")
    channel_axis: int | None = option(None, _CHANNEL_AXIS)
    # fmt: on

    def run(self) -> None:
        source, image = self.source, None
        is_large = io.is_zarr(source) and math.prod(io.ImageSource.open(source).shape) >= LARGE
        files = self._files(is_large)
        axis = stated = self.channel_axis
        if self.image_file is not None and not is_large:
            image = io.read_image(self.image_file)
            if axis is None:
                axis, stated = image.channel_axis, image.stated_channel_axis
        labelling = self._labelling(image, is_large)
        names = {**labelling.names, **self.names}
        labelling = dataclasses.replace(labelling, names=names, channel_axis=axis)
        if image is not None:  # checked before a folder is made
            io.image_channels(image.array, labelling.labels, axis)
        if is_large:
            labelling = dataclasses.replace(labelling, image=self.image_file)  # type: ignore[arg-type]
        elif files.prototypes:
            has_gaps = image is not None and image.no_data is not None
            prototypes = _prototypes(labelling, stated, self.n_each, has_gaps)
            labelling = dataclasses.replace(labelling, prototypes=prototypes)
        export = io.Export(self.out, io.image_stem(source), labelling, files)
        sources = [path for path in (source, self.image_file) if path is not None]
        check_outputs(export.paths, sources, overwrite=self.overwrite)
        make_folder(self.out)
        for path in export.write():
            click.echo(path)
        if export.note:
            click.echo(export.note, err=True)

    def _files(self, is_large: bool) -> io.ExportSelection:
        files = self.files.on(io.ExportSelection(outlines=tuple(self.outline_suffixes())))
        if files.min_pixels > 1 and not (files.connected or files.numbered or files.outlines):
            raise click.UsageError("--min-pixels: goes with --connected or --numbered, or outlines")
        if self.n_each > 1 and files.prototypes != ".json":
            raise click.UsageError("--per-label: goes with --prototypes .json")
        if files.is_empty:
            files = dataclasses.replace(files, regions=".csv", figure="" if is_large else ".png")
        return files

    def _labelling(self, image: io.ImageFile | None, is_large: bool) -> io.Labelling:
        """Return labels and image, with the pixel size of the options or of either file."""
        mask = io.read_mask(self.source, lazily=is_large).lying_on(image)
        n_axes, scale = mask.labels.ndim, self.scale
        if scale is not None:
            sizes = tuple(scale.tolist()) * (n_axes if len(scale) == 1 else 1)
            io.label_axes(n_axes, None, sizes, None)  # checked before a folder is made
            mask = dataclasses.replace(mask, scale=sizes, units=None, place=None, origin=None)
        if self.unit is not None:
            if mask.scale is None:
                raise click.UsageError("--unit: requires --scale, the files specify no pixel size")
            mask = dataclasses.replace(mask, units=(self.unit,) * n_axes)
        if image is not None:
            title = io.image_stem(self.source)
            mask = dataclasses.replace(mask, image=image.array, title=title)
        return mask


def _prototypes(
    labelling: io.Labelling, channel_axis: int | None, n_each: int, has_gaps: bool
) -> io.PrototypeSet:
    """Return means of the features of each label, using the features of the recipe.

    Pixels without data are left out.
    """
    labels, image = labelling.labels, labelling.image
    if image is None:
        raise click.UsageError("--prototypes: goes with --image")
    plain = (labelling.recipe or {}).get("input")
    options = ImageOptions() if plain is None else ImageOptions.from_plain(plain)
    inside, channels = labels > 0, channels_last(image, labelling.channel_axis)[0]
    if channels.shape[:-1] != labels.shape:
        raise InvalidInput(f"image: expected the shape {labels.shape}, got {image.shape}")
    # The window determines the axes along which the size is reduced.
    plain_options = dataclasses.replace(
        options, weights="uniform", groups=None, channel_axis=channel_axis
    )
    if has_gaps:
        inside &= np.isfinite(channels).all(axis=-1)
    problem = Problem.from_image(image, mask=inside, **plain_options.arguments())
    prototypes = io.PrototypeSet.from_labels(problem, labels, n_each)
    assert prototypes.options is not None
    rescale = options.rescale or options.scaling is None
    options = dataclasses.replace(prototypes.options, weights=options.weights, rescale=rescale)
    return dataclasses.replace(prototypes, options=options)
