"""``napari-saf run``, and how commands label many images and images in tiles."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import click

from napari_saf import batch, io
from napari_saf.cli import note, print_failure, progress_bar
from napari_saf.cli._options import (
    AbstractCommand,
    Given,
    GivenImages,
    ParameterValue,
    argument,
    image_options,
    option,
    output,
    step_options,
)
from napari_saf.device import size_text
from napari_saf.errors import counted
from napari_saf.features import Scaling
from napari_saf.project import as_model
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles import AbstractLargeJob, connected, local_client, run_large


@dataclasses.dataclass(frozen=True, kw_only=True)
class WritingCommand(AbstractCommand):
    """A command that writes files."""

    overwrite: bool = option(False, "Replace files that are there.")


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelCommand(WritingCommand):
    """A command whose images or tiles are done by several workers."""

    n_processes: int = option(
        1, "Images, or tiles, at a time, each in a process of its own with a share of the threads; "
        "to start one takes seconds; sums over other threads round otherwise, which may turn "
        "single pixels.", "--jobs", minimum=1, metavar="N")
    scheduler: str | None = option(
        None, "Use the workers of a dask scheduler, such as tcp://host:8786, for images or tiles, "
        "in place of --jobs; they must see the same files.", metavar="ADDRESS")
    # fmt: on

    def workers(self, n_processes: int | None = None) -> AbstractContextManager[Any]:
        """Give a client of the scheduler, or of so many processes; None for this process."""
        return _workers(self.scheduler, n_processes or self.n_processes)


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelCommand(ParallelCommand):
    """A command that labels images, large ones in tiles."""

    suffix: str = option(
        ".tif", "Format of the masks in a folder.", "--format", choices=list(io.MASK_SUFFIXES))
    tile: int | None = option(
        None, "Label in tiles of N pixels a side, whatever the size of the image, into a pyramid "
        "OUT.ome.zarr, or IMAGE.ome.zarr/labels/NAME; 0: never. [default: from 16 million pixels "
        "on, if OUT is one of these or a folder; 512 in planes, 96 in volumes]",
        type=click.IntRange(min=0), metavar="N")
    dry_run: bool = option(
        False, "Of an image in tiles: print tiles, memory, time and disk, write nothing.")
    # fmt: on

    @property
    def tiles(self) -> batch.Tiles:
        """Which images are labelled in tiles."""
        if self.tile == 0:
            return "none"
        return "all" if self.tile or self.dry_run else "auto"

    def run_jobs(self, task: batch.AbstractTask[Any], jobs: Sequence[batch.Job]) -> int:
        """Do jobs, and print the outcome of each; return the exit code."""
        if self.dry_run and isinstance(task, batch.LabelTask):
            for job in jobs:
                _print_plan(task.large_job(job), self.n_processes)
            return 0
        began, outcomes = time.perf_counter(), []
        with self.workers(1) as client:
            options = {"n_processes": self.n_processes, "client": client, "progress": _job_bar}
            for outcome in batch.run_batch(task, jobs, **options):
                _print_outcome(task, outcome)
                outcomes.append(outcome)
        failed = [outcome.job.path for outcome in outcomes if outcome.state == "failed"]
        if len(jobs) > 1 or outcomes[0].state == "skipped":
            counts = Counter[str](failed=len(failed))
            for outcome in outcomes:
                if outcome.state != "failed":
                    counts[outcome.state] += len(outcome.job.images)
            states = {"done": "labelled", "skipped": "done before", "failed": "failed"}
            text = ", ".join(f"{counts[key]} {states[key]}" for key in states if counts[key])
            images, seconds = counted(counts.total(), "image"), time.perf_counter() - began
            click.echo(f"{images}: {text}, {seconds:.1f} s")
            if uncertain := batch.least_certain(jobs):
                click.echo(uncertain)
            for path in failed:
                click.echo(f"failed: {path}")
        return 1 if failed else 0

    def run_in_tiles(self, job: AbstractLargeJob, out: Path) -> None:
        """Label an image in tiles; or print the plan."""
        if self.dry_run:
            _print_plan(job, self.n_processes)
            return
        with self.workers() as client, tile_bar(job.image.source) as progress:
            options = {"client": client, "overwrite": self.overwrite, "progress": progress}
            labels = run_large(job, out, **options)
        done = f", {labels.n_done_before} done before" if labels.n_done_before else ""
        counts = f"{counted(len(labels.sizes), 'label')}, {counted(labels.n_tiles, 'tile')}"
        click.echo(f"{labels.path}: {counts}{done}, {labels.seconds:.1f} s")
        for text in labels.notes:
            note(text)


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineCommand(LabelCommand):
    """A command that labels images by a pipeline."""

    scaling: bool | Scaling | None = option(
        None, "Values that become 0 and 1: the 0.1 and 99.9 percentiles of each image, what they "
        "were in the image that a recipe or prototypes come from, or two numbers for all images. "
        "[default: as the recipe says, else each]",
        type=ParameterValue(["range"], choices=["each", "first"]),
        callback=lambda ctx, param, value: {"each": True, "first": False}.get(value, value))
    probabilities: str | None = option(
        None, "Beside each mask maps of how much each pixel is of each label (W).",
        choices=io.PROBABILITY_SUFFIXES)
    probability: Given = step_options(io.ProbabilityStep, "probability_", without=["suffix"])
    # fmt: on

    def probability_step(self, base: io.ProbabilityStep | None) -> io.ProbabilityStep | None:
        """Return which maps are made, as options say it, else as the `base` of a recipe does."""
        step = self.probability.on(base or io.ProbabilityStep())
        if self.probabilities is not None:
            return dataclasses.replace(step, suffix=self.probabilities)
        if base is None and self.probability.values:
            raise click.UsageError("--probability-...: go with --probabilities")
        return None if base is None else step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(PipelineCommand):
    """Label images by what was learned on others.

    PROJECT is a project (.napari-saf), or a recipe, a file of prototypes or a patch dictionary.
    Images may be files, folders or patterns. What an earlier run has done is not done again. Large
    images are labelled in tiles, into pyramids, but for those by a dictionary.
    """

    model: Path = argument("PROJECT")
    images: tuple[Path, ...] = argument("IMAGE...")
    out: Path = output("OUT", "A mask for one image, or a folder.")
    image: GivenImages = image_options("mask", "no_data")

    def run(self) -> int:
        options = batch.ApplyOptions(
            scaling=self.scaling,
            suffix=self.suffix,
            mask=self.image.values.get("mask"),
            no_data=self.image.values.get("no_data"),
            probabilities=self.probability_step(None),
            overwrite=self.overwrite,
            tiles=self.tiles,
            tile=self.tile or None,
        )
        paths = io.find_images(self.images)
        task, jobs = options.plan(as_model(self.model), paths, self.out)
        if isinstance(task, batch.DictionaryTask) and (self.tile or self.dry_run):
            raise click.UsageError(str(refusal(Strategy.FOLDER, "dictionary in tiles")))
        return self.run_jobs(task, jobs)


def _job_bar(job: batch.Job, number: int, count: int) -> AbstractContextManager[Any]:
    return progress_bar(job.title if count == 1 else f"{job.title} ({number} of {count})")


def _print_outcome(task: batch.AbstractTask[Any], outcome: batch.Outcome[Any]) -> None:
    job, result = outcome.job, outcome.result
    if isinstance(result, batch.LabelSummary) and isinstance(task, batch.LabelTask):
        noun = "label" if task.pipeline.level is None else "region"
        shares = result.uncertainty or (None,) * len(job.masks)
        for mask, count, share in zip(job.masks, result.n_labels, shares, strict=True):
            ending = "" if share is None else f", {100 * share:.1f} % uncertain"
            ending = f"{result.ending}, {result.seconds:.1f} s{ending}"
            click.echo(f"{mask}: {counted(count, noun)}, {ending}")
        for text in result.notes:
            note(f"{job.path}: {text}")
    elif result is not None:  # how well a dictionary rebuilds the image
        click.echo(f"{job.masks[0]}: {result:.1f} dB, {outcome.seconds:.1f} s")
    if outcome.state == "failed":
        print_failure(outcome)


@contextmanager
def _workers(scheduler: str | None, n_processes: int) -> Iterator[Any]:
    if scheduler is None and n_processes == 1:
        yield None
        return
    with connected(scheduler) if scheduler else local_client(n_processes) as client:
        if client.dashboard_link:
            click.echo(f"dashboard: {client.dashboard_link}")
        yield client


def _print_plan(job: AbstractLargeJob, n_processes: int) -> None:
    def sides(numbers: Sequence[int]) -> str:
        return " x ".join(map(str, numbers))

    plan, image = job.plan(), job.image
    seconds, n_bytes = job.probe(plan)
    seconds_in_all = seconds * len(plan.tiles()) / n_processes
    duration = f"{seconds_in_all / 3600:.1f} h"
    if seconds_in_all < 7200:
        is_short = seconds_in_all < 120
        duration = f"{seconds_in_all:.0f} s" if is_short else f"{seconds_in_all / 60:.0f} min"
    levels = plan.level_shapes()
    lines = [
        f"image: {image.source}, {sides(image.shape)}, channels {image.n_channels}, {image.dtype}",
        f"labels: {plan.most_label}, {plan.decided}",
        f"tiles: {len(plan.tiles())} of {sides(plan.tile)}, with {sides(plan.halo)} around them",
        f"levels: {len(levels)}, the last one {sides(levels[-1])}",
        f"memory: about {size_text(n_bytes)} a process",
        f"time: about {duration}, {seconds:.2g} s a tile",
        f"disk: at most {size_text(plan.n_bytes)}, before compression",
    ]
    for line in [*lines, *(f"note: {text}" for text in plan.notes)]:
        click.echo(line)


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
