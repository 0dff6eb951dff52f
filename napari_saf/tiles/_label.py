"""Label images larger than memory, tile by tile, into a pyramid in zarr."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from napari_saf.batch import is_in_process, run_tasks
from napari_saf.device import memory_errors_translated, memory_limit
from napari_saf.errors import Cancelled, InvalidInput, SafError
from napari_saf.io import LazyImage, PrototypeSet, Recipe, Region, load_recipe, open_lazily, spelled
from napari_saf.methods import AbstractMethod, not_cancelled
from napari_saf.parameters import to_plain
from napari_saf.problem import ImageOptions
from napari_saf.tiles._plan import Plan, make_plan
from napari_saf.tiles._store import Journal, LabelStore

if TYPE_CHECKING:
    from distributed import Client

LEARN_PIXELS = 2**20
_MOST_SENT = 2**26
"""Bytes of an array in memory that may be sent to other processes, with every tile."""
Progress = Callable[[int, int], object]


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
        import zarr

        return zarr.open_array(self.path / "0", mode="r")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What a worker needs to label any tile; an image in a file is opened where it is read."""

    plan: Plan
    image: LazyImage | tuple[str, int | None]
    mask: LazyImage | str | None
    out: Path

    def opened(self, image: Any) -> LazyImage:
        if isinstance(image, LazyImage):
            return image
        path, axis = image if isinstance(image, tuple) else (image, None)
        return _opened(path, axis, json.dumps(self.plan.source))

    def do(self, tile: tuple[int, ...]) -> dict[int, int]:
        """Label a tile of the finest level, or make one of a coarser level; return its sizes."""
        level, *place = tile
        region = self.plan.region(place, level)
        store = LabelStore(self.out)
        if level:
            shape = self.plan.level_shapes()[level - 1]
            finer, steps = [], []
            for one, n, m in zip(region, self.plan.level_shapes()[level], shape, strict=True):
                step = 1 if n == m else 2
                finer.append(slice(one.start * step, min(one.stop * step, m)))
                steps.append(slice(None, None, step))
            store.write(level, region, store.read(level - 1, tuple(finer))[tuple(steps)])
            return {}
        with memory_errors_translated("choose smaller tiles"):
            labels = self.label(region)
        store.write(0, region, labels)
        counts = np.bincount(labels.ravel())
        return {int(n): int(counts[n]) for n in np.flatnonzero(counts) if n}

    def label(self, region: Region) -> Any:
        """Return the labels of a region."""
        crop = self.plan.surroundings(region)
        values = self.opened(self.image).read(crop)
        mask: Any = self.mask
        if mask is not None and mask != "finite":
            mask = self.opened(mask).read(crop)[..., 0] != 0
        try:
            labels = self.plan.label(values, mask)
        except SafError as error:
            raise type(error)(f"at {spelled(region)}: {error}") from error
        inner = zip(region, crop, strict=True)
        return labels[tuple(slice(r.start - c.start, r.stop - c.start) for r, c in inner)]


@functools.lru_cache(maxsize=4)
def _opened(path: str, channel_axis: int | None, state: str) -> LazyImage:
    """Open a file once for all tiles of a run; `state` tells runs apart."""
    return open_lazily(path, channel_axis)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeJob:
    """A large image with what is to be done with it, checked; `plan` is made when it is asked for.

    See `label_large` for the parameters.
    """

    image: LazyImage
    mask: LazyImage | Literal["finite"] | None
    recipe: Recipe
    tile: int | None = None
    learn_pixels: int = LEARN_PIXELS

    @classmethod
    def of(
        cls,
        source: Any,
        recipe: Any,
        *,
        mask: Any = None,
        channel_axis: int | None = None,
        tile: int | None = None,
        learn_pixels: int = LEARN_PIXELS,
    ) -> LargeJob:
        """Open the image and its mask, and check that they fit."""
        found = _recipe_of(recipe)
        if channel_axis is None and found.options is not None:
            channel_axis = found.options.channel_axis
        image = open_lazily(source, channel_axis)
        if mask is not None and not (isinstance(mask, str) and mask == "finite"):
            mask = open_lazily(mask)
            if mask.shape != image.shape or mask.n_channels != 1:
                raise InvalidInput(f"mask: expected the shape {image.shape}, got {mask.shape}")
        for name, value, least in (("tile", tile, 16), ("learn_pixels", learn_pixels, 1)):
            if value is not None and (not isinstance(value, int) or value < least):
                raise InvalidInput(f"{name}: expected {least} or more, got {value!r}")
        return cls(image, mask, found, tile, learn_pixels)

    @property
    def state(self) -> dict[str, Any]:
        """What tells whether image and mask changed."""
        own = self.mask.state if isinstance(self.mask, LazyImage) else self.mask
        return {"image": self.image.state, "mask": own}

    @property
    def request(self) -> dict[str, Any]:
        """What is asked for, as JSON holds it."""
        recipe, options = self.recipe, self.recipe.options
        plain = {
            "method": recipe.method.name,
            "parameters": to_plain(recipe.method),
            "input": None if options is None else options.to_plain(),
            "level": recipe.level,
            "taught": None if recipe.taught is None else recipe.taught.entries(),
            "tile": self.tile,
            "learn_pixels": self.learn_pixels,
        }
        return dict(json.loads(json.dumps(plain)))

    def plan(self) -> Plan:
        """Learn from blocks; the same image and request give the same plan."""
        own = make_plan(
            self.image,
            self.mask,
            self.recipe,
            tile=self.tile,
            learn_pixels=self.learn_pixels,
            request=self.request,
        )
        return own.model_copy(update={"source": json.loads(json.dumps(self.state))})

    def probe(self, plan: Plan) -> tuple[float, float]:
        """Label a tile in the middle of the image; return seconds, and bytes of the fields."""
        tiles, needs = plan.tiles(), [0.0]
        region = plan.region(tiles[len(tiles) // 2])
        work = self.work(plan, Path(), is_sent=False)
        with memory_limit(None, lambda need, room: needs.append(need)):
            began = time.perf_counter()
            work.label(region)
            return time.perf_counter() - began, max(needs)

    def work(self, plan: Plan, out: Path, is_sent: bool) -> _Work:
        """Return what labels tiles, here or, if it `is_sent`, in other processes."""

        def sent(image: LazyImage) -> Any:
            if not is_sent:
                return image
            if os.path.exists(image.source):
                return os.path.abspath(image.source), image.given_axis
            if image.n_bytes_in_memory > _MOST_SENT:
                raise InvalidInput(
                    "source: an array in memory is not sent to other processes; save it as zarr "
                    "or .npy and give its path, or do without --jobs and client"
                )
            return image

        mask = sent(self.mask) if isinstance(self.mask, LazyImage) else self.mask
        return _Work(plan, sent(self.image), mask, out.absolute())


def _recipe_of(given: Any) -> Recipe:
    if isinstance(given, (str, os.PathLike)):
        return load_recipe(given)
    if isinstance(given, PrototypeSet):
        return given.recipe()
    if isinstance(given, AbstractMethod):
        return Recipe(given, ImageOptions(), {})
    if not isinstance(given, Recipe):
        raise InvalidInput(
            f"recipe: expected a Recipe, its path, a PrototypeSet or a method, got {given!r:.60}"
        )
    return given


def label_large(
    source: Any,
    recipe: Recipe | PrototypeSet | AbstractMethod | str | os.PathLike[str],
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
        OME-Zarr 0.4 or 0.5, a zarr array, a TIFF file in tiles, ``.npy``, or an array: dask, zarr,
        NumPy, memory-mapped. 2-D, 3-D or more, with or without channels.
    recipe : Recipe, path, PrototypeSet or method
        What repeats a run, or what strokes taught; a method alone labels with automatic options.
        Its working size (`max_side`) does not count: tiles have full resolution.
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
    """
    began = time.perf_counter()
    job = LargeJob.of(
        source,
        recipe,
        mask=mask,
        channel_axis=channel_axis,
        tile=tile,
        learn_pixels=learn_pixels,
    )
    return run_large(
        job,
        out,
        client=client,
        overwrite=overwrite,
        progress=progress,
        cancelled=cancelled,
        began=began,
    )


def run_large(
    job: LargeJob,
    out: str | os.PathLike[str],
    *,
    plan: Plan | None = None,
    client: Client | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] = not_cancelled,
    began: float | None = None,
) -> LargeLabels:
    """Do a job, or what an earlier run has left of it; see `label_large`."""
    began = time.perf_counter() if began is None else began
    store = LabelStore(Path(out))
    if overwrite:
        store.remove()
    finished = store.finished(job.request)
    if finished is not None:
        _check_same(job, finished["source"], store.path)
        sizes = {int(label): int(count) for label, count in finished["finished"].items()}
        n_tiles = int(finished["n_tiles"])
        seconds = time.perf_counter() - began
        return LargeLabels(store.path, job.image.shape, sizes, n_tiles, n_tiles, seconds)
    journal = Journal(store.journal)
    try:
        plan = _begun(job, plan, store, journal)
        n_before = sum(tile[0] == 0 for tile in journal.done)
        work = job.work(plan, store.path, client is not None and not is_in_process(client))
        _do_all(work, journal, client, progress, cancelled)
        again = job.image.reopened()
        if again.state != job.image.state:
            raise InvalidInput(
                f"{job.image.source}: was changed while it was labelled; --overwrite begins anew"
            )
        sizes = Counter[int]()
        for own in journal.done.values():
            sizes.update(own)
        store.finish(plan, job.image, dict(sizes))
    finally:
        journal.close()
    notes = tuple(plan.notes)
    seconds = time.perf_counter() - began
    n_tiles = len(plan.tiles())
    found = {label: sizes[label] for label in sorted(sizes)}
    return LargeLabels(store.path, tuple(plan.shape), found, n_tiles, n_before, seconds, notes)


def _begun(job: LargeJob, plan: Plan | None, store: LabelStore, journal: Journal) -> Plan:
    """Return the plan of an earlier run, if it is of the same job, or begin with a new one."""
    if journal.plan is not None and store.is_of(journal.plan):
        if journal.plan.request != job.request:
            raise InvalidInput(
                f"{store.path}: is half made by a run with other settings; --overwrite begins anew"
            )
        _check_same(job, journal.plan.source, store.path)
        return journal.plan
    plan = job.plan() if plan is None else plan
    store.create(plan)
    journal.begin(plan)
    return plan


def _check_same(job: LargeJob, source: Any, path: Path) -> None:
    if source != json.loads(json.dumps(job.state)):
        raise InvalidInput(
            f"{job.image.source}: image or mask changed since {path} was begun; "
            "--overwrite begins anew"
        )


def _do_all(
    work: _Work,
    journal: Journal,
    client: Client | None,
    progress: Progress | None,
    cancelled: Callable[[], bool],
) -> None:
    """Do the tiles that are left, level after level: one is made of the whole one before."""
    plan, n_levels = work.plan, len(work.plan.level_shapes())
    tiles = [[(level, *place) for place in plan.tiles(level)] for level in range(n_levels)]
    n_tiles = sum(map(len, tiles))
    for own in tiles:
        left: Iterable[tuple[int, ...]] = (tile for tile in own if tile not in journal.done)
        for tile, outcome in run_tasks(client, work.do, left):
            if cancelled():
                raise Cancelled
            journal.add(tile, _told(outcome, tile, plan))
            if progress is not None:
                progress(len(journal.done), n_tiles)


def _told(outcome: Callable[[], dict[int, int]], tile: tuple[int, ...], plan: Plan) -> Any:
    """Return the outcome of a tile; an error that does not say where it is of says it then."""
    try:
        return outcome()
    except Cancelled:
        raise
    except SafError as error:
        where = spelled(plan.region(tile[1:], tile[0]))
        if where in str(error) or isinstance(error, InvalidInput):
            raise
        raise type(error)(f"tile {where}: {error}") from error
