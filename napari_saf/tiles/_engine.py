"""Execution of tiles, in this process or by dask workers, with a journal."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject
from napari_saf.device import interruptible, memory_errors_translated, proposing
from napari_saf.errors import InvalidInput, SafError, counted, format_count, raise_if
from napari_saf.io import ImageSource, Region, format_region, label_axes
from napari_saf.methods import not_cancelled, run_to_end
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles._cluster import is_in_process, run_tasks
from napari_saf.tiles._store import Journal, LabelStore
from napari_saf.tiles._tiling import Tiling

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
Tile = tuple[int, ...]
"""Level and position in units of tiles."""


Sent = ImageSource | tuple[Any, ...]
"""An image, or the arguments to open it in another process."""
Auxiliary = ImageSource | Literal["finite"] | None
Progress = Callable[[int, int], object]
_SMALLER = "choose smaller tiles"
_BEGINS_ANEW = "--overwrite starts over"
_MOST_SENT = 2**26
"""Maximum bytes of an array in memory that is sent to other processes with every tile."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AbstractTiledJob(ABC):
    """A validated request for a large image.

    The `auxiliary` data is read with the image: a mask, or the uncertainty of pixels.
    """

    plan_type: ClassVar[type[Tiling]]
    auxiliary_name: ClassVar[str] = "mask"

    image: ImageSource
    auxiliary: Auxiliary

    @property
    def state(self) -> JsonObject:
        """State of the input files, to detect changes."""
        state = self.auxiliary.state if isinstance(self.auxiliary, ImageSource) else self.auxiliary
        return {"image": self.image.state, self.auxiliary_name: state}

    @property
    @abstractmethod
    def request(self) -> JsonObject:
        """The parameters as JSON."""

    @abstractmethod
    def plan(self) -> Any:
        """Return the plan; the same image and request give the same plan."""

    @abstractmethod
    def work(self, plan: Any, out: Path, is_sent: bool) -> AbstractWork:
        """Return the worker of tiles, for other processes if it `is_sent`."""

    def described(self) -> JsonObject:
        """Return the fields of a plan that describe the request and its image."""
        shape = self.image.shape
        return {
            "schema": 1,
            "request": self.request,
            "source": json.loads(json.dumps(self.state)),
            "shape": list(shape),
            "axes": label_axes(len(shape), self.image.axes or None, None, None).names,
            "notes": list(self.image.notes),
        }

    def sent(self, is_sent: bool) -> tuple[Sent, Any]:
        """Return image and auxiliary for a worker."""
        auxiliary = self.auxiliary
        own_sent = as_sent(auxiliary, is_sent) if isinstance(auxiliary, ImageSource) else auxiliary
        return as_sent(self.image, is_sent), own_sent


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AbstractWork(ABC):
    """Processing of any tile; an image file is opened by the process that reads it."""

    plan: Any
    image: Sent
    auxiliary: Sent | Literal["finite"] | None
    out: Path

    def do(self, tile: Tile) -> dict[int, int]:
        """Write a tile; return the number of pixels of each label, of the finest level only."""
        level, *position = tile
        if level > 0:
            LabelStore(self.out).coarsen(self.plan, tile)
            return {}
        with memory_errors_translated(_SMALLER), proposing(_SMALLER):
            return self.do_finest(tile, self.plan.region(position))

    @abstractmethod
    def do_finest(self, tile: Tile, region: Region) -> dict[int, int]:
        """Write a tile of the finest level; return the number of pixels of each label."""

    def stages(self, done: dict[Tile, Any]) -> Iterator[Sequence[Tile]]:
        """Yield groups of tiles, each completed before the next; `done` are from an earlier run."""
        yield self.plan.every_tile()

    def read(self, region: Region) -> tuple[Region, NDArray[Any], Any]:
        """Return the surroundings of a region, their pixels, and the auxiliary values."""
        crop, auxiliary = self.plan.surroundings(region), self.auxiliary
        is_plain = auxiliary is None or isinstance(auxiliary, str)
        values = auxiliary if is_plain else self._opened(auxiliary).read(crop)[..., 0]
        return crop, self._opened(self.image).read(crop), values

    def _opened(self, image: Any) -> ImageSource:
        return open_sent(image, json.dumps(self.plan.source))


def as_sent(image: ImageSource, is_sent: bool) -> Sent:
    """Return an image, or the arguments to open it in another process."""
    if not is_sent:
        return image
    if image.is_remote:
        return image.source, *image.given
    if image.file is not None:
        return os.path.abspath(image.source), *image.given
    if isinstance(image.finest, np.ndarray) and image.finest.nbytes > _MOST_SENT:
        raise refusal(Strategy.CLUSTER, "array")
    return image


def open_sent(image: Sent, state: str) -> ImageSource:
    """Return a sent image, opened once per run and process; `state` identifies the run."""
    return image if isinstance(image, ImageSource) else _opened(state, *image)


@functools.lru_cache(maxsize=4)
def _opened(state: str, path: str, *arguments: Any) -> ImageSource:
    return ImageSource.open(path, *arguments)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeStep:
    """Progress of a large image; the first step, with `tile` None, precedes all tiles."""

    plan: Any
    tile: Tile | None
    done: Mapping[Tile, Any]
    n_tiles: int


class TileCount(NamedTuple):
    """Progress in tiles, for progress bars."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        return self.done / self.total

    @property
    def state(self) -> str:
        return f"{format_count(self.done)} of {counted(self.total, 'tile')}"


def iterate_tiles(
    job: AbstractTiledJob,
    store: LabelStore,
    client: Client | None,
    overwrite: bool,
    goes_on: bool = False,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Generator[LargeStep, None, tuple[JsonObject, int]]:
    """Write the missing tiles of a job.

    Return the summary in the finished store, and the number of tiles of the finest level that an
    earlier run wrote. With `goes_on` an unfinished store is completed with its original settings.
    `cancelled` is polled during planning; between tiles the caller may stop iterating.
    """
    store.check_apart(job.image, job.auxiliary)
    if overwrite:
        store.remove()
    summary = store.finished(job.request)
    if summary is not None:
        check_same(job, summary["source"], store.path)
        return summary, int(summary["n_tiles"])
    journal = Journal(store.journal, job.plan_type)
    try:
        with interruptible(cancelled):
            plan = begin(job, store, journal, goes_on)
        n_before = sum(tile[0] == 0 for tile in journal.done)
        work = job.work(plan, store.path, client is not None and not is_in_process(client))
        n_tiles = len(plan.every_tile())
        for tiles in work.stages(journal.done):
            for tile in do_tiles(plan, work.do, tiles, journal, client):
                yield LargeStep(plan, tile, journal.done, n_tiles)
        for image in (job.image, job.auxiliary):
            if isinstance(image, ImageSource) and image.reopened().state != image.state:
                changed = f"{image.source}: was changed while it was read"
                raise InvalidInput(f"{changed}; --overwrite starts over")
        sizes = Counter[int]()
        for tile_sizes in journal.done.values():
            sizes.update(tile_sizes)
        return store.finish(plan, job.image, dict(sizes)), n_before
    finally:
        journal.close()


def run_steps(
    steps: Generator[LargeStep, None, T], progress: Progress | None, cancelled: Callable[[], bool]
) -> T:
    """Run the steps to the end and return the result; see `label_large`."""

    def follow(step: LargeStep) -> None:
        raise_if(cancelled)
        if progress is not None and step.tile is not None:
            progress(len(step.done), step.n_tiles)

    with closing(steps):
        return run_to_end(steps, follow)


def begin(job: AbstractTiledJob, store: LabelStore, journal: Journal, goes_on: bool) -> Any:
    """Return the plan of an unfinished run of the same job, or begin a new one."""
    if journal.plan is not None and store.is_of(journal.plan):
        if journal.plan.request != job.request and not goes_on:
            raise InvalidInput(f"{store.path}: is half made with other settings; {_BEGINS_ANEW}")
        check_same(job, journal.plan.source, store.path)
        return journal.plan
    with proposing("learn from fewer pixels (learn_pixels), or use fewer labels"):
        plan = job.plan()
    store.create(plan)
    journal.begin(plan)
    return plan


def check_same(job: AbstractTiledJob, source: Any, path: Path) -> None:
    """Raise InvalidInput if an input file changed since a store was begun."""
    if source != json.loads(json.dumps(job.state)):
        raise InvalidInput(
            f"{job.image.source}: it, or what is read with it, changed since {path} was begun; "
            "--overwrite starts over"
        )


def do_tiles(
    plan: Tiling,
    do: Callable[[Tile], dict[int, int]],
    tiles: Sequence[Tile],
    journal: Journal,
    client: Client | None,
) -> Iterator[Tile | None]:
    """Write the missing tiles, in Morton order; coarser tiles follow as soon as possible.

    Yield None first, then each written tile.
    """
    done = journal.done
    remaining = [tile for tile in tiles if tile not in done]
    missing = Counter(plan.coarser(tile) for tile in remaining)
    ready = deque(sorted((tile for tile in remaining if not missing[tile]), key=_z_order))
    yield None
    for tile, outcome in run_tasks(client, do, ready):
        journal.add(tile, _result_with_location(outcome, tile, plan))
        coarser = plan.coarser(tile)
        missing[coarser] -= 1
        if coarser is not None and not missing[coarser] and coarser not in done:
            ready.appendleft(coarser)
        yield tile


def _z_order(tile: Tile) -> tuple[int, int]:
    """Return the sort key of a tile in Morton order, coarse levels first."""
    level, *position = tile
    bits = max(position, default=0).bit_length()
    code = 0
    for bit in reversed(range(bits)):
        for coordinate in position:
            code = 2 * code + (coordinate >> bit & 1)
    return -level, code


def _result_with_location(
    outcome: Callable[[], dict[int, int]], tile: Tile, plan: Tiling
) -> dict[int, int]:
    """Return the result of a tile; an error names its region."""
    try:
        return outcome()
    except SafError as error:
        location = format_region(plan.region(tile[1:], tile[0]))
        raise type(error)(f"tile {location}: {error}") from error
