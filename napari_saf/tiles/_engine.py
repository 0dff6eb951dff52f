"""Tiles done one after another, or by workers of dask, with a journal of what is done."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from napari_saf.batch import run_tasks
from napari_saf.device import proposing
from napari_saf.errors import Cancelled, InvalidInput, SafError
from napari_saf.io import LazyImage, spelled
from napari_saf.tiles._store import Journal, LabelStore
from napari_saf.tiles._tiling import Tiling

if TYPE_CHECKING:
    from distributed import Client

P = TypeVar("P", bound=Tiling)
P_co = TypeVar("P_co", bound=Tiling, covariant=True)
Tile = tuple[int, ...]
"""Level and place."""


class TiledJob(Protocol[P_co]):
    """What is asked for, checked; `plan` is made when it is asked for."""

    @property
    def image(self) -> LazyImage: ...

    @property
    def state(self) -> dict[str, Any]:
        """What tells whether what is read changed."""

    @property
    def request(self) -> dict[str, Any]:
        """What is asked for, as JSON holds it."""

    def plan(self) -> P_co: ...


def begin(job: TiledJob[P], store: LabelStore, journal: Journal[P], goes_on: bool = False) -> P:
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


def check_same(job: TiledJob[Any], source: Any, path: Path) -> None:
    """Raise InvalidInput if what is read is not what it was when a store was begun."""
    if source != json.loads(json.dumps(job.state)):
        raise InvalidInput(
            f"{job.image.source}: it, or what is read with it, changed since {path} was begun; "
            "--overwrite begins anew"
        )


def check_unchanged(image: LazyImage) -> None:
    """Raise InvalidInput if an image changed since it was opened."""
    if image.reopened().state != image.state:
        raise InvalidInput(
            f"{image.source}: was changed while it was read; --overwrite begins anew"
        )


def do_tiles(
    plan: Tiling,
    do: Callable[[Tile], dict[int, int]],
    tiles: Sequence[Tile],
    journal: Journal[Any],
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
