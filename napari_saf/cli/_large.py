"""``napari-saf segment`` for an image that is labelled in tiles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from napari_saf.batch import Tiles
from napari_saf.device import size_text
from napari_saf.errors import counted
from napari_saf.tiles import AbstractLargeJob, connected, local_client, run_large

TILES = [
    click.Option(["--tile"], type=click.IntRange(min=0), metavar="N",
                 help="Label in tiles of N pixels a side, whatever the size of the image, into a "
                 "pyramid OUT.ome.zarr, or IMAGE.ome.zarr/labels/NAME; 0: never. [default: from "
                 "16 million pixels on, if OUT is one of these or a folder; 512 in planes, 96 in "
                 "volumes]"),
    click.Option(["--dry-run"], is_flag=True,
                 help="Of an image in tiles: print tiles, memory, time and disk, write nothing."),
]  # fmt: skip
SCHEDULER = click.Option(
    ["--scheduler"],
    metavar="ADDRESS",
    help="Use the workers of a dask scheduler, such as tcp://host:8786, for images or tiles, in "
    "place of --jobs; they must see the same files.",
)
JOBS = click.Option(
    ["--jobs", "n_processes"],
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Images at a time, each in a process of its own with a share of the threads; to start one "
    "takes seconds; sums over other threads round otherwise, which may turn single pixels.",
)


def tiles_of(given: Any) -> Tiles:
    """Return which images are labelled in tiles."""
    if given.tile == 0:
        return "none"
    return "all" if given.tile or given.dry_run else "auto"


def label_in_tiles(job: AbstractLargeJob, given: Any) -> int:
    """Print the plan of a job, and do it; return the exit code."""
    if given.dry_run:
        print_plan(job, job.plan(), given.n_processes)
        return 0
    own = {"overwrite": given.overwrite}
    with (
        workers(given.scheduler, given.n_processes) as client,
        tile_bar(job.image.source) as progress,
    ):
        found = run_large(job, given.out, client=client, progress=progress, **own)
    done = f", {found.n_done_before} done before" if found.n_done_before else ""
    counts = f"{counted(len(found.sizes), 'label')}, {counted(found.n_tiles, 'tile')}"
    click.echo(f"{found.path}: {counts}{done}, {found.seconds:.1f} s")
    for note in found.notes:
        click.echo(f"napari-saf: note: {note}", err=True)
    return 0


@contextmanager
def workers(scheduler: str | None, n_processes: int = 1) -> Iterator[Any]:
    """Give a client of a scheduler, or of so many processes; None for work in this process."""
    if scheduler is None and n_processes == 1:
        yield None
        return
    with connected(scheduler) if scheduler else local_client(n_processes) as client:
        if client.dashboard_link:
            click.echo(f"dashboard: {client.dashboard_link}")
        yield client


def print_plan(job: AbstractLargeJob, plan: Any, n_processes: int) -> None:
    def sides(numbers: Any) -> str:
        return " x ".join(map(str, numbers))

    seconds, n_bytes = job.probe(plan)
    n_tiles, levels = len(plan.tiles()), plan.level_shapes()
    image = job.image
    lines = [
        f"image: {image.source}, {sides(image.shape)}, channels {image.n_channels}, {image.dtype}",
        f"labels: {plan.most_label}, {plan.decided}",
        f"tiles: {n_tiles} of {sides(plan.tile)}, with {sides(plan.halo)} around them",
        f"levels: {len(levels)}, the last one {sides(levels[-1])}",
        f"memory: about {size_text(n_bytes)} a process",
        f"time: about {_duration(seconds * n_tiles / n_processes)}, {seconds:.2g} s a tile",
        f"disk: at most {size_text(plan.n_bytes)}, before compression",
    ]
    for line in [*lines, *(f"note: {note}" for note in plan.notes)]:
        click.echo(line)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def tile_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, count: progress.update(task, completed=done, total=count)
