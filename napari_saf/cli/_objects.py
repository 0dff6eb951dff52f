"""``napari-saf objects``: split and measure the objects of label images."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from napari_saf import io
from napari_saf.batch import check_outputs
from napari_saf.cli import note
from napari_saf.cli._masks import (
    OutlineCommand,
    find_masks,
    for_each_mask,
    image_of,
    tell_lost_places,
)
from napari_saf.cli._options import (
    Given,
    argument,
    option,
    output,
    step_options,
)
from napari_saf.cli._run import ParallelCommand, tile_bar
from napari_saf.errors import InvalidInput, SafError, counted
from napari_saf.objects import (
    GEFF,
    ObjectStep,
    Tracks,
    TrackStep,
    load_classes,
    save_tracks,
    tracking,
)
from napari_saf.objects import Objects as ObjectImage
from napari_saf.storage import make_folder
from napari_saf.tiles import LargeObjects, split_large

_Table = dict[str, NDArray[Any]]


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Objects(OutlineCommand, ParallelCommand):
    """Split touching objects in label images, and measure every object.

    The labels of a mask, from any software, are the kinds of its objects. Frames of a series are
    processed one by one.
    """

    images: tuple[Path, ...] = argument("IMAGE...")
    out: Path = output(
        "TABLE", f"Table of all objects ({', '.join(io.TABLE_SUFFIXES)}); other files are written "
        "to its folder. OUT.ome.zarr: object numbers of a mask larger than memory, in tiles, and "
        "OUT.csv.")
    pictures: Path | None = option(
        None, "Labelled image: adds intensities to the table, and objects are split at its edges "
        "(not in tiles). For several masks, a folder of images named like their masks.",
        "--image", metavar="FILE|FOLDER")
    step: Given = step_options(ObjectStep, without=["by_uncertainty"])
    uncertainty: Path | None = option(
        None, "Uncertainty of each pixel, 0 to 1: objects are also split where it is high.",
        metavar="FILE")
    classes: Path | None = option(
        None, "Object classes saved by the Objects dock or save_classes: adds class and "
        "class_uncertainty to the table, and makes classes the kinds of outlines.", metavar="FILE")
    masks: str | None = option(
        None, "Also save a label image of object numbers.", choices=io.MASK_SUFFIXES)
    tracks: Path | None = option(
        None, "Track objects through the frames of a series, along the first axis, and save tracks "
        "in the format of the Cell Tracking Challenge, or as a geff if it ends in .geff; adds "
        "track numbers to the table.", metavar="FOLDER")
    track: Given = step_options(TrackStep, "track_")
    tile: int | None = option(
        None, "Tile side in pixels, for OUT.ome.zarr. [default: 1024 in planes, 128 in volumes]",
        minimum=16, metavar="N")
    halo: int | None = option(
        None, "Margin read around a tile in pixels, larger than the radius of objects. "
        "[default: 64 in planes, 24 in volumes]", minimum=1, metavar="N")
    # fmt: on

    def run(self) -> None:
        paths, step = find_masks(self.images), self.step.on(ObjectStep())
        if self.tracks is not None:
            step = dataclasses.replace(step, by_slice=True)
        suffixes = self.outline_suffixes() + ([self.masks] if self.masks else [])
        if self.out.name.lower().endswith(".ome.zarr"):
            if len(paths) > 1 or self.masks or self.tracks:
                raise click.UsageError(
                    f"{self.out}: expected one mask, without --masks and --tracks"
                )
            self._split_in_tiles(paths[0], step, suffixes)
            return
        if self.tile or self.halo or self.scheduler or self.n_processes > 1:
            raise click.UsageError("--tile, --halo, --jobs, --scheduler: only with -o OUT.ome.zarr")
        io.check_suffix(self.out, io.TABLE_SUFFIXES)
        files = self._check_files(paths, suffixes)
        make_folder(self.out.parent)
        io.check_table(self.out)
        uncertainty = None if self.uncertainty is None else io.read_image(self.uncertainty).array

        def measure(path: Path) -> _Table:
            table = self._measure(path, step, uncertainty, files[path])
            if len(paths) > 1 and table:
                table = {"image": np.full(len(table["object"]), path.name), **table}
            return table

        tables, failure = for_each_mask(paths, measure)
        io.save_table(self.out, _joined(tables))
        click.echo(self.out)
        if failure:
            raise SafError(failure)

    def _check_files(
        self, paths: Sequence[Path], suffixes: Sequence[str]
    ) -> dict[Path, list[Path]]:
        """Return the output files of each mask, checked against overwriting."""
        if self.tracks is None and self.track.values:
            raise click.UsageError("--track-...: only with --tracks")
        track_files = []
        if self.tracks is not None:
            if len(paths) > 1:
                raise click.UsageError("--tracks: only with one mask")
            tracking()
            is_geff = self.tracks.suffix == GEFF
            track_files = [self.tracks if is_geff else self.tracks / "res_track.txt"]
        is_file = self.pictures and not io.is_plain_folder(self.pictures)
        if len(paths) > 1 and (self.uncertainty or is_file):
            raise click.UsageError("--image, --uncertainty: a file applies to one mask only")
        files = {
            path: [self.out.with_name(f"{io.image_stem(path)}.objects{end}") for end in suffixes]
            for path in paths
        }
        sources = [path for path in (*paths, self.uncertainty, self.classes) if path is not None]
        outputs = [self.out, *track_files, *itertools.chain(*files.values())]
        check_outputs(outputs, sources, overwrite=self.overwrite)
        return files

    def _split_in_tiles(self, path: Path, step: ObjectStep, suffixes: Sequence[str]) -> None:
        """Split a mask of any size into an OME-Zarr, and save table and outlines next to it."""
        stem = io.mask_stem(self.out)
        table, *outlines = (self.out.with_name(f"{stem}{end}") for end in (".csv", *suffixes))
        image = image_of(path, self.pictures)
        classes = None if self.classes is None else load_classes(self.classes)
        files = (path, image, self.uncertainty, self.classes)
        sources = [file for file in files if file is not None]
        check_outputs([table, *outlines], [*sources, self.out], overwrite=self.overwrite)
        check_outputs([self.out], sources)
        mask = io.ImageSource.open(path, are_labels=True, are_whole=True)
        if outlines and len(mask.shape) > 3:
            raise InvalidInput(f"{path}: expected 2 or 3 axes for outlines, got shape {mask.shape}")
        if image is not None and (shape := io.ImageSource.open(image).shape) != mask.shape:
            raise InvalidInput(f"{image}: expected shape {mask.shape}, got {shape}")
        is_by_first = (step.by_slice or mask.axes.startswith("t")) and len(mask.shape) > 2
        sizes = Counter[int]()
        for part in io.part_regions(mask.piece, mask.shape).values() if step.kinds is None else ():
            numbers, counts = io.count_labels(mask.read(part))
            sizes.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        kinds, left_out = step.labels_to_split(sizes, math.prod(mask.shape))
        with self.workers() as client, tile_bar(str(path)) as progress:
            objects = split_large(
                path,
                self.out,
                uncertainty=self.uncertainty,
                smallest=step.smallest,
                neck=step.neck,
                axis=0 if is_by_first else None,
                kinds=kinds,
                tile=self.tile,
                halo=self.halo,
                client=client,
                overwrite=self.overwrite,
                progress=progress,
            )
            click.echo(self.out)
            notes = (*objects.notes, *[left_out] * bool(left_out))
            objects = dataclasses.replace(objects, notes=notes)
            self._print_objects(path, objects, step)
            columns = objects.table(image)
            if classes is not None and columns:
                axes = _frame_axes(len(mask.shape)) if is_by_first else None
                features = classes.features
                measures = objects.measure(
                    image, axes=axes, features=features, client=client, progress=progress
                )
                classified = classes.classify(measures)
                columns |= classified.columns(columns["object"])
                objects = classified.as_kinds(objects)
                if n_large := len(columns["object"]) - len(measures.numbers):
                    note(f"{path}: {counted(n_large, 'object')}, larger than tiles, got no class")
        io.save_table(table, columns or _joined([]))
        for outline in outlines:
            io.save_objects(outline, objects)
        for file in (table, *outlines):
            click.echo(file)

    def _measure(
        self,
        path: Path,
        step: ObjectStep,
        uncertainty: NDArray[Any] | None,
        files: Sequence[Path],
    ) -> _Table:
        image_path = image_of(path, self.pictures)
        image = None if image_path is None else io.read_image(image_path)
        mask = io.read_mask(path).lying_on(image)
        scale = None if mask.scale is None else [*mask.scale]
        channel_axis = None if image is None else image.channel_axis
        objects, table = step.run(
            mask.labels,
            None if image is None else image.array,
            uncertainty=uncertainty,
            names=mask.names,
            scale=scale,
            units=mask.units,
            axes=mask.axes,
            channel_axis=channel_axis,
        )
        self._print_objects(path, objects, step)
        tracks = None
        if self.tracks is not None:
            tracks = self.track.on(TrackStep()).run(objects, scale and scale[1:])
            save_tracks(self.tracks, tracks)
            click.echo(self.tracks)
        if self.classes is not None and table:
            is_by_first = step.by_slice and mask.labels.ndim > 2
            classified = load_classes(self.classes).apply(
                objects,
                None if image is None else image.array,
                channel_axis=channel_axis,
                scale=scale,
                axes=_frame_axes(mask.labels.ndim) if is_by_first else mask.axes,
                tracks=tracks,
            )
            table = {**table, **classified.columns(table["object"])}
            objects = classified.as_kinds(objects)
        if tracks is not None and table:
            table = {**table, **_track_columns(tracks, table["object"])}
        for file in files:
            if io.mask_suffix(file) is None:
                io.save_objects(file, objects)
            else:
                io.save_masks(file, objects.labels, **mask.placed)
                tell_lost_places(file, mask)
            click.echo(file)
        return table

    def _print_objects(
        self,
        path: Path,
        objects: ObjectImage | LargeObjects,
        step: ObjectStep,
    ) -> None:
        """Print the number of objects; InvalidInput if the only mask has none of the kinds."""
        n_objects, notes = np.count_nonzero(objects.kinds), [*step.notes_on(objects)]
        if isinstance(step.kinds, tuple) and not n_objects and [*self.images] == [path]:
            raise InvalidInput(f"{path}: {notes[-1]}")
        for text in notes:
            note(f"{path}: {text}")
        click.echo(f"{path}: {n_objects} objects")


def _frame_axes(n_axes: int) -> str:
    """Return axis letters with "t" for the first axis, of frames or slices."""
    return "t" + "zyx"[1 - n_axes :]


def _track_columns(tracks: Tracks, numbers: NDArray[np.integer]) -> _Table:
    """Return the track of each object and its parent, 0 for none."""
    of_object = dict(zip(tracks.table["object"], tracks.table["track"], strict=True))
    track = [of_object.get(number, 0) for number in numbers.tolist()]
    parent = [tracks.parents.get(number, 0) for number in track]
    return {"track": np.array(track, int), "parent": np.array(parent, int)}


def _joined(tables: Sequence[_Table]) -> _Table:
    """Concatenate tables; columns that a table lacks are NaN."""
    filled = [table for table in tables if table]
    names = dict.fromkeys(name for table in filled for name in table)
    columns: _Table = {} if names else {"object": np.zeros(0, int)}
    for name in names:
        parts = [table.get(name, np.full(len(table["object"]), np.nan)) for table in filled]
        columns[name] = np.concatenate(parts)
    return columns
