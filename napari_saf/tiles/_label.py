"""Label images larger than memory, tile by tile, into a pyramid in zarr."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_saf.arrays import as_path
from napari_saf.dictionary import PatchDictionary
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import PARTS_SUFFIXES, ImageSource, is_zarr, path_beside, save_table
from napari_saf.methods import AbstractMethod, not_cancelled
from napari_saf.project import ModelSource, as_model
from napari_saf.storage import make_folder
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles._dictionary import DictionaryJob
from napari_saf.tiles._engine import AbstractTiledJob, LargeStep, Progress, iterate_tiles, run_steps
from napari_saf.tiles._job import AbstractLargeJob
from napari_saf.tiles._large_job import LEARN_PIXELS, LargeJob
from napari_saf.tiles._objects import LargeObjects, split_large
from napari_saf.tiles._regions import RegionJob
from napari_saf.tiles._store import LabelStore

if TYPE_CHECKING:
    from distributed import Client

LARGE = 2**24
"""Pixels from which on an image is labelled in tiles where nothing else is asked for."""


_LEAST_BYTES = LARGE // 64
"""Of a file with so many pixels, however it is compressed: smaller files are not opened."""


def is_large(path: str | os.PathLike[str]) -> bool:
    """Tell whether an image file that can be read in parts is to be labelled in tiles.

    False for a file that cannot be read: it is told by whoever reads it.
    """
    file = as_path(path)
    is_in_parts = is_zarr(file) or file.suffix.lower() in PARTS_SUFFIXES
    if not is_in_parts or (file.is_file() and file.stat().st_size < _LEAST_BYTES):
        return False
    try:
        return math.prod(ImageSource.open(file).shape) >= LARGE
    except SafError:
        return False


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeLabels:
    """The mask of a large image, as `label_large` leaves it.

    Attributes
    ----------
    path : Path
        The OME-Zarr folder.
    shape : tuple of int
        Of the finest level.
    sizes : dict of int to int
        Pixels of each label.
    n_tiles : int
        Tiles of the finest level.
    n_done_before : int
        Those of them that an earlier run had done.
    seconds : float
        What this run took.
    notes : tuple of str
        What a person should know.
    kinds : Path
        The store of labels: `path`, or, where that has regions, the one beside it.
    objects : LargeObjects or None
        Single objects of the labels, where the recipe asks for them.

    Examples
    --------
    >>> image = np.kron([[0.1, 0.9], [0.9, 0.1]], np.ones((64, 64), np.float32))
    >>> found = saf.label_large(image, saf.SLK(n_clusters=2), "masks.ome.zarr", tile=64)
    >>> found.shape, found.labels[:2, :3].shape  # only these are read
    ((128, 128), (2, 3))
    """

    path: Path
    shape: tuple[int, ...]
    sizes: dict[int, int]
    n_tiles: int
    n_done_before: int
    seconds: float
    notes: tuple[str, ...] = ()
    kinds: Path = Path()
    objects: LargeObjects | None = None

    @property
    def labels(self) -> Any:
        """The labels of the finest level, a zarr array of which parts are read when asked for."""
        return LabelStore(self.path).level(0)


def label_large(
    source: Any,
    recipe: ModelSource | AbstractMethod,
    out: str | os.PathLike[str],
    *,
    mask: Any = None,
    channel_axis: int | None = None,
    tile: int | None = None,
    learn_pixels: int = LEARN_PIXELS,
    probabilities: str | os.PathLike[str] | None = None,
    client: Client | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] = not_cancelled,
) -> LargeLabels:
    """Label an image of any size, tile by tile, into an OME-Zarr pyramid of labels.

    The labels are those of the same recipe in memory (`Pipeline.run`): the method labels the image
    at a reduced size, which is read in parts; tiles are then labelled at full resolution as parts
    are in memory. A run that was stopped, or killed, goes on where it was.

    Where the recipe has a level of regions, the mask is of regions, merged on a level of the
    pyramid of at most 4 million pixels, and the labels lie beside it (``NAME.kinds.ome.zarr``).
    Where it has objects, their numbers (``NAME.objects.ome.zarr``) and a table of their measures
    (``NAME.objects.csv``) lie beside the mask; they are split without the image, see `split_large`.

    Parameters
    ----------
    source : path or array
        OME-Zarr 0.4 or 0.5, a zarr array, a TIFF file in tiles, ``.npy``, a picture, or an array:
        dask, zarr, NumPy, memory-mapped. 2-D, 3-D or more, with or without channels.
    recipe : Pipeline, PrototypeSet, PatchDictionary, Project, path of one of them, or method
        What repeats a run, or what strokes taught; a method alone labels with automatic options.
        Of a dictionary each pixel gets its atom, as by `PatchDictionary.apply`.
    out : path
        Ends in ``.ome.zarr``, or is ``IMAGE.ome.zarr/labels/NAME`` within an OME-Zarr 0.5.
    mask : path, array or "finite", optional
        Where to label, of the shape of the image without channels.
    channel_axis : int, optional
        As in `Problem.from_image`; by default as the file, or the recipe, says.
    tile : int, optional
        Side of a tile in pixels, 16 or more; by default 512 to 1024 in planes, 96 to 144 in
        volumes. Memory grows with it, and the work that overlaps becomes less.
    learn_pixels : int
        Pixels, at a reduced size, that the method labels at once, at most; where the recipe asks
        for more, the size is reduced further, and a note says so.
    probabilities : path, optional
        Where maps of the soft labels go (``.ome.zarr``), a channel for each label; not of a
        dictionary.
    client : distributed.Client, optional
        Whose workers label the tiles; they must see the same files. None: this process.
    overwrite : bool
        Whether to replace a zarr store that is there.
    progress : callable, optional
        Called with the number of tiles that are done, and of all, coarser levels included.
    cancelled : callable
        Asked before each tile, and often before the first; once it returns True the run ends with
        `Cancelled`.

    Returns
    -------
    labels : LargeLabels

    Raises
    ------
    InvalidInput
        If the recipe cannot be done in tiles, the mask does not fit, the image changed since the
        run began, or something else is at `out`.
    FormatError
        Naming the file, and the region, that cannot be read.
    ComputeError
        If a tile does not fit into memory, or a process dies of it.
    SafError
        If the store cannot be written, or another process is at it.

    Examples
    --------
    >>> image = np.kron([[0.1, 0.9], [0.9, 0.1]], np.ones((64, 64), np.float32))
    >>> found = saf.label_large(image, saf.SLK(n_clusters=2), "mask.ome.zarr", tile=64)
    >>> found.n_tiles, sorted(found.sizes.values())
    (4, [8192, 8192])
    """
    learned = recipe if isinstance(recipe, AbstractMethod) else as_model(recipe, "recipe")
    job: AbstractLargeJob
    if isinstance(learned, PatchDictionary):
        if probabilities is not None:
            raise refusal(Strategy.TILES_ON_DISK, "maps of a dictionary")
        job = DictionaryJob.of(source, learned, channel_axis=channel_axis, mask=mask, tile=tile)
    else:
        job = LargeJob.of(
            source,
            learned,
            channel_axis=channel_axis,
            learn_pixels=learn_pixels,
            probability_path=None if probabilities is None else Path(probabilities),
            mask=mask,
            tile=tile,
        )
    return run_large(
        job, out, client=client, overwrite=overwrite, progress=progress, cancelled=cancelled
    )


def run_large(
    job: AbstractLargeJob,
    out: str | os.PathLike[str],
    *,
    client: Client | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] = not_cancelled,
) -> LargeLabels:
    """Do a job, or what an earlier run has left of it; see `label_large`."""
    path, recipe = LabelStore(as_path(out, "out")).path, job.recipe_of_run
    level = None if recipe is None else recipe.level
    kinds = path if level is None else path_beside(path, "kinds.ome.zarr")
    table_path = path_beside(path, "objects.csv")
    if not overwrite and not (kinds.exists() or LabelStore(kinds).journal.exists()):
        maps = job.probability_path if isinstance(job, LargeJob) else None
        has_table = recipe is not None and recipe.objects is not None
        for file in (maps, table_path if has_table else None):
            if file is not None and file.exists():
                raise InvalidInput(f"{file}: is there already; --overwrite replaces it")

    def run(tiled: AbstractTiledJob, out: Path) -> LargeLabels:
        steps = iterate_large(tiled, out, client=client, overwrite=overwrite, cancelled=cancelled)
        return run_steps(steps, progress, cancelled)

    labels = run(job, kinds)
    if recipe is None:
        return labels
    if level is not None:
        regions = RegionJob.of(kinds, job.image, level, recipe.plain)
        merged = run(regions, path)
        seconds = labels.seconds + merged.seconds
        notes = (*labels.notes, *merged.notes)
        labels = dataclasses.replace(merged, kinds=kinds, seconds=seconds, notes=notes)
    step = recipe.objects
    if step is None:
        return labels
    image, store = job.image, path_beside(path, "objects.ome.zarr")
    objects = split_large(
        kinds,
        store,
        smallest=step.smallest,
        neck=step.neck,
        axis=0 if image.axes.startswith("t") or (step.by_slice and len(image.shape) > 2) else None,
        kinds=step.kinds,
        client=client,
        overwrite=overwrite,
        progress=progress,
        cancelled=cancelled,
    )
    table = objects.table(image, cancelled=cancelled) or {"object": np.zeros(0, int)}
    make_folder(table_path.parent)
    save_table(table_path, table)
    notes = (*labels.notes, *objects.notes)
    return dataclasses.replace(labels, objects=objects, notes=notes)


def is_done(job: AbstractLargeJob, out: str | os.PathLike[str]) -> bool:
    """Tell whether the mask of a job is there as a whole, of the image as it is now.

    InvalidInput if something else is there.
    """
    recipe, path = job.recipe_of_run, LabelStore(as_path(out, "out")).path
    level = None if recipe is None else recipe.level
    if level is None:
        return LabelStore(path).is_finished(job)
    kinds = LabelStore(path_beside(path, "kinds.ome.zarr"))
    if recipe is None or not kinds.is_finished(job):
        return False
    return LabelStore(path).is_finished(RegionJob.of(kinds.path, job.image, level, recipe.plain))


def iterate_large(
    job: AbstractTiledJob,
    out: str | os.PathLike[str],
    *,
    client: Client | None = None,
    overwrite: bool = False,
    goes_on: bool = False,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Generator[LargeStep, None, LargeLabels]:
    """Yield how far the labels of a job are; it may be left at any time, and gone on with later.

    With `goes_on` what is half made at `out` is finished as it was begun, by whatever settings.
    While the plan is made `cancelled` is asked, and ends that with `Cancelled`.
    """
    began, store = time.perf_counter(), LabelStore(as_path(out, "out"))
    summary, n_before = yield from iterate_tiles(job, store, client, overwrite, goes_on, cancelled)
    return LargeLabels(
        store.path,
        job.image.shape,
        {int(label): int(count) for label, count in summary["finished"].items()},
        int(summary["n_tiles"]),
        n_before,
        time.perf_counter() - began,
        tuple(summary.get("notes", ())),
        store.path,
    )
