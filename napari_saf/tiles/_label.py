"""Labelling of images larger than memory, tile by tile, into a zarr pyramid."""

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
from napari_saf.pipeline import Pipeline
from napari_saf.project import ModelSource, as_model
from napari_saf.storage import make_folder
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles._dictionary import DictionaryJob
from napari_saf.tiles._engine import AbstractTiledJob, LargeStep, Progress, iterate_tiles, run_steps
from napari_saf.tiles._job import AbstractLargeJob
from napari_saf.tiles._large_job import LEARN_PIXELS, LargeJob, options_of
from napari_saf.tiles._objects import LargeObjects, split_large
from napari_saf.tiles._regions import RegionJob
from napari_saf.tiles._store import LabelStore

if TYPE_CHECKING:
    from distributed import Client

LARGE = 2**24
"""Number of pixels from which images are labelled in tiles by default."""


_LEAST_BYTES = LARGE // 64
"""Minimum bytes of a file with that many pixels, compressed; smaller files are not opened."""


def is_large(path: str | os.PathLike[str]) -> bool:
    """Return whether an image file is large enough for tiles, and can be read in parts.

    False for an unreadable file, so that reading it reports the error.
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
    """The mask of a large image, returned by `label_large`.

    Attributes
    ----------
    path : Path
        The OME-Zarr folder.
    shape : tuple of int
        Shape of the finest level.
    sizes : dict of int to int
        Number of pixels of each label.
    n_tiles : int
        Number of tiles of the finest level.
    n_done_before : int
        Number of them completed by an earlier run.
    seconds : float
        Duration of this run.
    notes : tuple of str
        Messages for the user.
    kinds : Path
        The store of labels: `path`, or the one beside it if `path` contains regions.
    objects : LargeObjects or None
        Objects of the labels, if the recipe includes them.

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
        """The labels of the finest level, a zarr array read on demand."""
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

    The labels equal those of the same recipe in memory (`Pipeline.run`): the method labels the
    image at a reduced size, which is read in parts; tiles are then labelled at full resolution as
    in memory. An interrupted run is resumed.

    If the recipe has a level of regions, the mask contains regions, merged on a level of the
    pyramid of at most 4 million pixels, and the labels are saved as ``NAME.kinds.ome.zarr``. If it
    has objects, their numbers (``NAME.objects.ome.zarr``) and a table of their measures
    (``NAME.objects.csv``) are saved too; they are split without the image, see `split_large`.

    Parameters
    ----------
    source : path or array
        OME-Zarr 0.4 or 0.5, a zarr array, a TIFF file in tiles, ``.npy``, a picture, or an array:
        dask, zarr, NumPy, memory-mapped. 2-D, 3-D or more, with or without channels.
    recipe : Pipeline, PrototypeSet, PatchDictionary, Project, path of one of them, or method
        The model to apply; a method is used with automatic options. With a dictionary each pixel
        is labelled by its atom, see `PatchDictionary.apply`.
    out : path
        Ends in ``.ome.zarr``, or is ``IMAGE.ome.zarr/labels/NAME`` in an OME-Zarr 0.5.
    mask : path, array or "finite", optional
        Pixels to label, in the shape of the image without channels.
    channel_axis : int, optional
        As in `Problem.from_image`; by default from the file or the recipe.
    tile : int, optional
        Side of a tile in pixels, 16 or more; by default 512 to 1024 in planes, 96 to 144 in
        volumes. Larger tiles need more memory, but less overlapping computation.
    learn_pixels : int
        Maximum number of pixels of the reduced size; if the recipe requires more, the size is
        reduced further, with a note.
    probabilities : path, optional
        Output of the maps of soft labels (``.ome.zarr``), a channel per label; not for a
        dictionary.
    client : distributed.Client, optional
        Its workers label the tiles; they need access to the same files. None: this process.
    overwrite : bool
        Whether to replace an existing zarr store.
    progress : callable, optional
        Called with the numbers of completed and of all tiles, coarser levels included.
    cancelled : callable
        Polled before each tile and during planning; once it returns True `Cancelled` is raised.

    Returns
    -------
    labels : LargeLabels

    Raises
    ------
    InvalidInput
        If the recipe is not supported in tiles, the mask does not fit, the image changed since
        the run began, or `out` is another file or store.
    FormatError
        If a region cannot be read; names the file and the region.
    ComputeError
        If a tile exceeds memory, or a process dies.
    SafError
        If the store cannot be written, or another process is writing it.

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
    """Run or resume a job; see `label_large`."""
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
    sizes = labels.sizes
    if level is not None:
        regions = _region_job(job.image, recipe, kinds)
        merged = run(regions, path)
        seconds = labels.seconds + merged.seconds
        notes = (*labels.notes, *merged.notes)
        labels = dataclasses.replace(merged, kinds=kinds, seconds=seconds, notes=notes)
    step = recipe.objects
    if step is None:
        return labels
    image, store = job.image, path_beside(path, "objects.ome.zarr")
    to_split, left_out = step.labels_to_split(sizes, math.prod(image.shape))
    objects = split_large(
        kinds,
        store,
        smallest=step.smallest,
        neck=step.neck,
        axis=0 if image.axes.startswith("t") or (step.by_slice and len(image.shape) > 2) else None,
        kinds=to_split,
        client=client,
        overwrite=overwrite,
        progress=progress,
        cancelled=cancelled,
    )
    table = objects.table(image, cancelled=cancelled) or {"object": np.zeros(0, int)}
    make_folder(table_path.parent)
    save_table(table_path, table)
    notes = (*labels.notes, *step.notes_on(objects), *[left_out] * bool(left_out))
    return dataclasses.replace(labels, objects=objects, notes=notes)


def is_done(job: AbstractLargeJob, out: str | os.PathLike[str]) -> bool:
    """Return whether the mask of a job is complete, for the current image.

    InvalidInput if `out` is another file or store.
    """
    recipe, path = job.recipe_of_run, LabelStore(as_path(out, "out")).path
    level = None if recipe is None else recipe.level
    if level is None:
        return LabelStore(path).is_finished(job)
    kinds = LabelStore(path_beside(path, "kinds.ome.zarr"))
    if recipe is None or not kinds.is_finished(job):
        return False
    return LabelStore(path).is_finished(_region_job(job.image, recipe, kinds.path))


def _region_job(image: ImageSource, recipe: Pipeline, kinds: Path) -> RegionJob:
    """Return the job that divides labels into regions, which extend as the windows do."""
    assert recipe.level is not None
    options, axes = options_of(recipe, image)
    axes = options.averaged_axes(image.shape) if axes is None else list(axes)
    return RegionJob.of(kinds, image, recipe.level, recipe.plain, axes)


def iterate_large(
    job: AbstractTiledJob,
    out: str | os.PathLike[str],
    *,
    client: Client | None = None,
    overwrite: bool = False,
    goes_on: bool = False,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Generator[LargeStep, None, LargeLabels]:
    """Yield the progress of labelling a job; it may be stopped at any time and resumed later.

    With `goes_on` an incomplete store at `out` is completed with its original settings.
    `cancelled` is polled during planning, which then raises `Cancelled`.
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
