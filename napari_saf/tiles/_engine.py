"""Tiles done one after another, or by workers of dask, with a journal of what is done."""

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

from napari_saf.device import interruptible, memory_errors_translated, proposing
from napari_saf.errors import InvalidInput, SafError, raise_if
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
"""Level and place."""


Sent = ImageSource | tuple[Any, ...]
"""An image, or what another process opens it from."""
Auxiliary = ImageSource | Literal["finite"] | None
Progress = Callable[[int, int], object]
_SMALLER = "choose smaller tiles"
_MOST_SENT = 2**26
"""Bytes of an array in memory that may be sent to other processes, with every tile."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AbstractTiledJob(ABC):
    """What is asked of a large image, checked; `plan` is made when it is asked for.

    With the image its `auxiliary` is read: a mask, or how uncertain pixels are.
    """

    plan_type: ClassVar[type[Tiling]]
    auxiliary_name: ClassVar[str] = "mask"

    image: ImageSource
    auxiliary: Auxiliary

    @property
    def state(self) -> dict[str, Any]:
        """What tells whether what is read changed."""
        own = self.auxiliary.state if isinstance(self.auxiliary, ImageSource) else self.auxiliary
        return {"image": self.image.state, self.auxiliary_name: own}

    @property
    @abstractmethod
    def request(self) -> dict[str, Any]:
        """What is asked for, as JSON holds it."""

    @abstractmethod
    def plan(self) -> Any:
        """Return how it is done; the same image and request give the same plan."""

    @abstractmethod
    def work(self, plan: Any, out: Path, is_sent: bool) -> AbstractWork:
        """Return what does tiles, here or, if it `is_sent`, in other processes."""

    def described(self) -> dict[str, Any]:
        """Return the fields that say of what a plan is."""
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
        """Return the image and what is read with it for a worker."""
        own = self.auxiliary
        own_sent = _sent(own, is_sent) if isinstance(own, ImageSource) else own
        return _sent(self.image, is_sent), own_sent


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AbstractWork(ABC):
    """What a worker needs to do any tile; an image in a file is opened where it is read."""

    plan: Any
    image: Sent
    auxiliary: Sent | Literal["finite"] | None
    out: Path

    def do(self, tile: Tile) -> dict[int, int]:
        """Do a tile, or make one of a coarser level; return the pixels of its labels."""
        level, *place = tile
        if level > 0:
            LabelStore(self.out).coarsen(self.plan, tile)
            return {}
        with memory_errors_translated(_SMALLER), proposing(_SMALLER):
            return self.do_finest(tile, self.plan.region(place))

    @abstractmethod
    def do_finest(self, tile: Tile, region: Region) -> dict[int, int]:
        """Do a tile of the finest level, which covers a region."""

    def stages(self, done: dict[Tile, Any]) -> Iterator[Sequence[Tile]]:
        """Yield tiles that are done before the next ones are asked for, given those done before."""
        yield self.plan.every_tile()

    def read(self, region: Region) -> tuple[Region, NDArray[Any], Any]:
        """Return the surroundings of a region, the pixels there, and what is read with them."""
        crop, own = self.plan.surroundings(region), self.auxiliary
        is_plain = own is None or isinstance(own, str)
        beside = own if is_plain else self._opened(own).read(crop)[..., 0]
        return crop, self._opened(self.image).read(crop), beside

    def _opened(self, image: Any) -> ImageSource:
        state = json.dumps(self.plan.source)
        return image if isinstance(image, ImageSource) else _opened(state, *image)


def _sent(image: ImageSource, is_sent: bool) -> Sent:
    """Return what a worker, if it is another process, opens an image from."""
    if not is_sent:
        return image
    if image.is_remote:
        return image.source, *image.given
    if image.file is not None:
        return os.path.abspath(image.source), *image.given
    if isinstance(image.finest, np.ndarray) and image.finest.nbytes > _MOST_SENT:
        raise refusal(Strategy.CLUSTER, "array")
    return image


@functools.lru_cache(maxsize=4)
def _opened(state: str, path: str, *given: Any) -> ImageSource:
    """Open a file once for all tiles of a run; `state` tells runs apart."""
    return ImageSource.open(path, *given)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeStep:
    """How far a large image is: at first with what was done before, then after each tile.

    `tile` is the one just written, its level and place; None at first.
    """

    plan: Any
    tile: Tile | None
    done: Mapping[Tile, Any]
    n_tiles: int


class TileCount(NamedTuple):
    """How many tiles are done, as bars of progress show it."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        return self.done / self.total

    @property
    def state(self) -> str:
        return f"{self.done:,} of {self.total:,} tiles"


def iterate_tiles(
    job: AbstractTiledJob,
    store: LabelStore,
    client: Client | None,
    overwrite: bool,
    goes_on: bool = False,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Generator[LargeStep, None, tuple[dict[str, Any], int]]:
    """Do what is left of a job.

    Return what the whole store says of itself, and how many tiles of the finest level an earlier
    run had done. With `goes_on` what is half made is finished as it was begun, by any settings.
    While the plan is made, `cancelled` is asked; between tiles whoever iterates may end.
    """
    store.check_apart(job.image, job.auxiliary)
    if overwrite:
        store.remove()
    about = store.finished(job.request)
    if about is not None:
        check_same(job, about["source"], store.path)
        return about, int(about["n_tiles"])
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
                raise InvalidInput(f"{changed}; --overwrite begins anew")
        sizes = Counter[int]()
        for own in journal.done.values():
            sizes.update(own)
        return store.finish(plan, job.image, dict(sizes)), n_before
    finally:
        journal.close()


def run_steps(
    steps: Generator[LargeStep, None, T], progress: Progress | None, cancelled: Callable[[], bool]
) -> T:
    """Go through the steps, and return the result; see `label_large`."""

    def follow(step: LargeStep) -> None:
        raise_if(cancelled)
        if progress is not None and step.tile is not None:
            progress(len(step.done), step.n_tiles)

    with closing(steps):
        return run_to_end(steps, follow)


def begin(job: AbstractTiledJob, store: LabelStore, journal: Journal, goes_on: bool) -> Any:
    """Return the plan of an earlier run, if it is of the same job, or begin with a new one."""
    if journal.plan is not None and store.is_of(journal.plan):
        if journal.plan.request != job.request and not goes_on:
            raise InvalidInput(
                f"{store.path}: is half made by a run with other settings; --overwrite begins anew"
            )
        check_same(job, journal.plan.source, store.path)
        return journal.plan
    with proposing("learn from fewer pixels (learn_pixels), or use fewer labels"):
        plan = job.plan()
    store.create(plan)
    journal.begin(plan)
    return plan


def check_same(job: AbstractTiledJob, source: Any, path: Path) -> None:
    """Raise InvalidInput if what is read is not what it was when a store was begun."""
    if source != json.loads(json.dumps(job.state)):
        raise InvalidInput(
            f"{job.image.source}: it, or what is read with it, changed since {path} was begun; "
            "--overwrite begins anew"
        )


def do_tiles(
    plan: Tiling,
    do: Callable[[Tile], dict[int, int]],
    tiles: Sequence[Tile],
    journal: Journal,
    client: Client | None,
) -> Iterator[Tile | None]:
    """Do the tiles that are left; one of a coarser level once those that it is made of are there.

    Yield None at first, then each tile that was done. Neighbours come one after another, so that
    coarser levels follow soon.
    """
    done = journal.done
    left = [tile for tile in tiles if tile not in done]
    missing = Counter(plan.coarser(tile) for tile in left)
    ready = deque(sorted((tile for tile in left if not missing[tile]), key=_z_order))
    yield None
    for tile, outcome in run_tasks(client, do, ready):
        journal.add(tile, _told(outcome, tile, plan))
        coarser = plan.coarser(tile)
        missing[coarser] -= 1
        if coarser is not None and not missing[coarser] and coarser not in done:
            ready.appendleft(coarser)
        yield tile


def _z_order(tile: Tile) -> tuple[int, int]:
    """Return where a tile comes in Morton's order, coarse levels first."""
    level, *place = tile
    bits = max(place, default=0).bit_length()
    code = 0
    for bit in reversed(range(bits)):
        for at in place:
            code = 2 * code + (at >> bit & 1)
    return -level, code


def _told(outcome: Callable[[], dict[int, int]], tile: Tile, plan: Tiling) -> Any:
    """Return the outcome of a tile; an error says where it is of."""
    try:
        return outcome()
    except SafError as error:
        where = format_region(plan.region(tile[1:], tile[0]))
        raise type(error)(f"tile {where}: {error}") from error
