"""Label images larger than memory, tile by tile, into a pyramid in zarr."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari_saf.dictionary import PatchDictionary
from napari_saf.methods import AbstractMethod, not_cancelled
from napari_saf.project import Taught, as_learned
from napari_saf.tiles._dictionary import DictionaryJob
from napari_saf.tiles._engine import LargeStep, Progress, iterate_tiles, run_steps
from napari_saf.tiles._job import AbstractLargeJob
from napari_saf.tiles._plan import LEARN_PIXELS, LargeJob
from napari_saf.tiles._store import LabelStore

if TYPE_CHECKING:
    from distributed import Client

LARGE = 2**24
"""Pixels from which on an image is labelled in tiles where nothing else is asked for."""


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

    @property
    def labels(self) -> Any:
        """The labels of the finest level, a zarr array of which parts are read when asked for."""
        return LabelStore(self.path).level(0)


def label_large(
    source: Any,
    recipe: Taught | AbstractMethod,
    out: str | os.PathLike[str],
    *,
    mask: Any = None,
    channel_axis: int | None = None,
    tile: int | None = None,
    learn_pixels: int = LEARN_PIXELS,
    client: Client | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] = not_cancelled,
) -> LargeLabels:
    """Label an image of any size, tile by tile, into an OME-Zarr pyramid of labels.

    What a method has to learn it learns from blocks of the image at full resolution; every tile is
    then labelled by the assignment flow with the prototypes that came out, with the same steps.
    A run that was stopped, or killed, goes on where it was.

    Parameters
    ----------
    source : path or array
        OME-Zarr 0.4 or 0.5, a zarr array, a TIFF file in tiles, ``.npy``, a picture, or an array:
        dask, zarr, NumPy, memory-mapped. 2-D, 3-D or more, with or without channels.
    recipe : Recipe, PrototypeSet, PatchDictionary, Project, path of one of them, or method
        What repeats a run, or what strokes taught; a method alone labels with automatic options.
        Its working size (`max_side`) does not count: tiles have full resolution. Of a dictionary
        each pixel gets its atom, as by `PatchDictionary.apply`.
    out : path
        Ends in ``.ome.zarr``, or is ``IMAGE.ome.zarr/labels/NAME`` within an OME-Zarr 0.5.
    mask : path, array or "finite", optional
        Where to label, of the shape of the image without channels.
    channel_axis : int, optional
        As in `Problem.from_image`; by default as the file, or the recipe, says.
    tile : int, optional
        Side of a tile in pixels, 16 or more; by default 512 in planes, 96 in volumes. Memory
        grows with it, and the work that overlaps becomes less.
    learn_pixels : int
        Pixels of the blocks that are learned from, at most.
    client : distributed.Client, optional
        Whose workers label the tiles; they must see the same files. None: this process.
    overwrite : bool
        Whether to replace a zarr store that is there.
    progress : callable, optional
        Called with the number of tiles that are done, and of all, coarser levels included.
    cancelled : callable
        Asked before each tile; once it returns True the run ends with `Cancelled`.

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
    own: dict[str, Any] = {"mask": mask, "channel_axis": channel_axis, "tile": tile}
    learned = recipe if isinstance(recipe, AbstractMethod) else as_learned(recipe, "recipe")
    job: AbstractLargeJob
    if isinstance(learned, PatchDictionary):
        job = DictionaryJob.of(source, learned, **own)
    else:
        job = LargeJob.of(source, learned, learn_pixels=learn_pixels, **own)
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
    steps = iterate_large(job, out, client=client, overwrite=overwrite)
    return run_steps(steps, progress, cancelled)


def iterate_large(
    job: AbstractLargeJob,
    out: str | os.PathLike[str],
    *,
    client: Client | None = None,
    overwrite: bool = False,
    goes_on: bool = False,
) -> Generator[LargeStep, None, LargeLabels]:
    """Yield how far a job is; it may be left at any time, and gone on with later.

    With `goes_on` what is half made at `out` is finished as it was begun, by whatever settings.
    """
    began, store = time.perf_counter(), LabelStore(Path(out))
    about, n_before = yield from iterate_tiles(job, store, client, overwrite, goes_on)
    return LargeLabels(
        store.path,
        job.image.shape,
        {int(label): int(count) for label, count in about["finished"].items()},
        int(about["n_tiles"]),
        n_before,
        time.perf_counter() - began,
        tuple(about.get("notes", ())),
    )
