"""``napari-saf objects``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from napari_saf import io
from napari_saf.batch import check_outputs
from napari_saf.cli import _methods as flags
from napari_saf.cli._large import SCHEDULER, tile_bar, workers
from napari_saf.errors import InvalidInput, SafError
from napari_saf.objects import (
    GEFF,
    Objects,
    ObjectStep,
    TrackStep,
    save_tracks,
    tracking,
)
from napari_saf.storage import make_folder
from napari_saf.tiles import LargeObjects, split_large

_OPTIONS: list[click.Parameter] = [
    flags.IMAGES,
    flags.output("TABLE", f"The table of all objects ({', '.join(io.TABLE_SUFFIXES)}); other files "
                 "go to its folder. OUT.ome.zarr: the numbers of a mask larger than memory, in "
                 "tiles, beside OUT.csv."),
    click.Option(["--image", "pictures"], type=flags.PATH, metavar="FILE|FOLDER",
                 help="What was labelled: for intensities, and objects are split at its edges "
                 "(not in tiles); of several masks the folder, in which each is looked for by the "
                 "name of its mask."),
    *flags.step_options(ObjectStep, without=["by_uncertainty"]),
    click.Option(["--uncertainty"], type=flags.PATH, metavar="FILE",
                 help="How uncertain each pixel is, 0 to 1: objects are split there, too."),
    click.Option(["--masks"], type=click.Choice(io.MASK_SUFFIXES), help="The numbers as an image."),
    *flags.OUTLINES,
    click.Option(["--tracks"], type=flags.PATH, metavar="FOLDER",
                 help="Follow objects along the first axis, frames of a series, and save tracks as "
                 "the Cell Tracking Challenge has them, or as a geff if it ends in .geff; the "
                 "table gets their numbers."),
    *flags.step_options(TrackStep, "track_"),
    click.Option(["--tile"], type=click.IntRange(min=16), metavar="N",
                 help="Of OUT.ome.zarr: pixels a side. [default: 1024 in planes, 128 in volumes]"),
    click.Option(["--halo"], type=click.IntRange(min=1), metavar="N",
                 help="So many pixels around a tile are seen, too: the radius of objects, and some "
                 "more. [default: 64 in planes, 24 in volumes]"),
    click.Option(["--jobs", "n_processes"], type=click.IntRange(min=1), default=1,
                 show_default=True, metavar="N", help="Processes for tiles."),
    SCHEDULER,
    flags.overwrite("files that are there"),
]  # fmt: skip


@flags.command("objects", _OPTIONS)
def objects(given: Any) -> None:
    """Split what touches in label images, and measure every object.

    The labels of a mask, whoever made it, are the kinds of its objects. Frames of a series are gone
    through one by one.
    """
    paths, out, tracks = find_masks(given.images), given.out, given.tracks
    uncertainty = given.uncertainty
    step = flags.step_of(vars(given), ObjectStep())
    if tracks is not None:
        step = dataclasses.replace(step, by_slice=True)
    formats = flags.outline_suffixes(given) + ([given.masks] if given.masks else [])
    if out.name.lower().endswith(".ome.zarr"):
        if len(paths) > 1 or given.masks or tracks:
            raise click.UsageError(f"{out}: goes with one mask, without --masks and --tracks")
        _split_in_tiles(paths[0], step, given, formats)
        return
    if given.tile or given.halo or given.scheduler:
        raise click.UsageError("--tile, --halo, --scheduler: go with -o OUT.ome.zarr")
    io.check_suffix(out, io.TABLE_SUFFIXES)
    files = _object_files(given, paths, formats)
    make_folder(out.parent)
    io.check_table(out)
    uncertain = None if uncertainty is None else io.read_image(uncertainty).array
    tables, failed = [], list[Path]()
    for path in paths:
        try:
            table = _measure(path, step, given, uncertain, files[path])
        except SafError as error:
            if len(paths) == 1:
                raise
            click.echo(f"napari-saf: error: {error}", err=True)
            failed.append(path)
            continue
        if len(paths) > 1 and table:
            table = {"image": np.full(len(table["object"]), path.name), **table}
        tables.append(table)
    io.save_table(out, _joined(tables))
    click.echo(out)
    if failed:
        raise SafError(f"{len(failed)} of {len(paths)} masks could not be done")


def _object_files(
    given: Any, paths: Sequence[Path], formats: Sequence[str]
) -> dict[Path, list[Path]]:
    """Return where the objects of each mask go; refuse to overwrite what is there."""
    is_file = given.pictures and not io.is_plain_folder(given.pictures)
    if len(paths) > 1 and given.tracks:
        raise click.UsageError("--tracks: goes with one mask")
    if not given.tracks and flags.step_of(vars(given), TrackStep(), "track_") != TrackStep():
        raise click.UsageError("--track-...: go with --tracks")
    if given.tracks:
        tracking()
    if len(paths) > 1 and (given.uncertainty or is_file):
        raise click.UsageError("--image, --uncertainty: a file goes with one mask")
    files = {
        path: [given.out.with_name(f"{_stem(path)}.objects{suffix}") for suffix in formats]
        for path in paths
    }
    sources = [path for path in (*paths, given.uncertainty) if path is not None]
    follows = [] if given.tracks is None else [given.tracks]
    if given.tracks is not None and given.tracks.suffix != GEFF:
        follows = [given.tracks / "res_track.txt"]
    outputs = [given.out, *follows, *itertools.chain(*files.values())]
    check_outputs(outputs, sources, overwrite=given.overwrite)
    return files


def _split_in_tiles(path: Path, step: ObjectStep, given: Any, formats: Sequence[str]) -> None:
    """Split a mask of any size into a store of numbers, and save table and outlines beside it."""
    out: Path = given.out
    table, *outlines = (out.with_name(f"{io.mask_stem(out)}{end}") for end in (".csv", *formats))
    sources = [one for one in (path, given.pictures, given.uncertainty) if one is not None]
    check_outputs([table, *outlines], [*sources, out], overwrite=given.overwrite)
    check_outputs([out], sources)
    opened = io.ImageSource.open(path, are_labels=True, are_whole=True)
    if outlines and len(opened.shape) > 3:
        raise InvalidInput(f"{path}: outlines are of 2 or 3 axes, got shape {opened.shape}")
    is_by_first = (step.by_slice or opened.axes.startswith("t")) and len(opened.shape) > 2
    with workers(given.scheduler, given.n_processes) as client, tile_bar(str(path)) as progress:
        found = split_large(
            path,
            out,
            uncertainty=given.uncertainty,
            smallest=step.smallest,
            neck=step.neck,
            axis=0 if is_by_first else None,
            kinds=step.kinds,
            tile=given.tile,
            halo=given.halo,
            client=client,
            overwrite=given.overwrite,
            progress=progress,
        )
    click.echo(out)
    _print_found(path, found, given, step)
    io.save_table(table, found.table(picture_of(path, given.pictures)) or _joined([]))
    for outline in outlines:
        io.save_objects(outline, found)
    for file in (table, *outlines):
        click.echo(file)


def _measure(
    path: Path, step: ObjectStep, options: Any, uncertainty: Any, files: Sequence[Path]
) -> dict[str, Any]:
    found_at = picture_of(path, options.pictures)
    picture = None if found_at is None else io.read_image(found_at)
    given = io.read_mask(path).lying_on(picture)
    scale = None if given.scale is None else [*given.scale]
    found, table = step.run(
        given.labels,
        None if picture is None else picture.array,
        uncertainty=uncertainty,
        names=given.names,
        scale=scale,
        units=given.units,
        axes=given.axes,
        channel_axis=None if picture is None else picture.channel_axis,
    )
    _print_found(path, found, options, step)
    if options.tracks is not None:
        table = _follow(options, found, table, scale)
        click.echo(options.tracks)
    for file in files:
        if io.mask_suffix(file) is None:
            io.save_objects(file, found)
        else:
            io.save_masks(file, found.labels, **given.placed)
            tell_lost_places(file, given)
        click.echo(file)
    return table


def tell_lost_places(path: Path, labelling: io.Labelling) -> None:
    """Print what the format of a mask does not keep of where it lies."""
    for text, kept_by in io.places_lost(io.mask_suffix(path), labelling).items():
        click.echo(f"napari-saf: note: {path} does not keep {text}: {kept_by} does", err=True)


def _print_found(path: Path, found: Objects | LargeObjects, given: Any, step: ObjectStep) -> None:
    """Print what was found; of a mask alone InvalidInput if the kinds asked for have no object."""
    n_objects, notes = np.count_nonzero(found.kinds), list(found.notes)
    missing = sorted({*(step.kinds or ())} - {*found.kinds.tolist()})
    if missing:
        expected = f"expected labels with objects of {step.smallest} pixels or more"
        notes.append(f"--kinds: {expected}, got {', '.join(map(str, missing))}")
        if not n_objects and [*given.images] == [path]:
            raise InvalidInput(f"{path}: {notes[-1]}")
    for note in notes:
        click.echo(f"napari-saf: note: {path}: {note}", err=True)
    click.echo(f"{path}: {n_objects} objects")


def find_masks(given: Sequence[Path]) -> list[Path]:
    """Return masks, of a folder those that are called like masks."""
    marks = (io.MASK_MARK, io.LABELS_MARK)
    found: list[Path] = []
    for path in given:
        is_folder = io.is_plain_folder(path)
        own = sorted(path.iterdir()) if is_folder else io.find_images([path])
        known = [file for file in own if io.mask_suffix(file) is not None]
        found += [f for f in known if io.mask_stem(f).endswith(marks)] if is_folder else own
    if not found:
        raise InvalidInput(
            f"{given[0]}: no masks, such as photo.labels.tif, are in this folder; name others, as "
            f"{given[0] / '*.tif'}"
        )
    return found


def _stem(mask: Path) -> str:
    return io.mask_stem(mask).removesuffix(io.MASK_MARK).removesuffix(io.LABELS_MARK)


def picture_of(mask: Path, pictures: Path | None) -> Path | None:
    if pictures is None or not io.is_plain_folder(pictures):
        return pictures
    found = [path for path in io.find_images([pictures]) if io.mask_stem(path) == _stem(mask)]
    if len(found) != 1:
        raise InvalidInput(f"{pictures}: expected one image {_stem(mask)}, found {len(found)}")
    return found[0]


def _follow(
    options: Any, found: Objects, table: dict[str, Any], scale: Sequence[float] | None
) -> dict[str, Any]:
    tracks = flags.step_of(vars(options), TrackStep(), "track_").run(found, scale and scale[1:])
    save_tracks(options.tracks, tracks)
    if not table:
        return table
    numbers = np.zeros(len(found.kinds), int)
    numbers[tracks.table["object"]] = tracks.table["track"]
    own = numbers[table["object"]]
    parents = np.array([tracks.parents.get(int(one), 0) for one in own], int)
    return {**table, "track": own, "parent": parents}


def _joined(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of all tables; what one has no column for is not a number."""
    filled = [table for table in tables if table]
    names = dict.fromkeys(name for table in filled for name in table)
    columns: dict[str, Any] = {} if names else {"object": np.zeros(0, int)}
    for name in names:
        parts = [table.get(name, np.full(len(table["object"]), np.nan)) for table in filled]
        columns[name] = np.concatenate(parts)
    return columns
