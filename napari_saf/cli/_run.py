"""``napari-saf run``, and how every command does its images."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import click

from napari_saf import batch, io
from napari_saf.cli import _methods as flags
from napari_saf.cli import print_failure, progress_bar
from napari_saf.cli._large import JOBS, SCHEDULER, TILES, print_plan, tiles_of, workers
from napari_saf.errors import counted
from napari_saf.project import as_model
from napari_saf.strategies import Strategy, refusal

SCALING = click.Option(
    ["--scaling", "scaled_by"],
    type=flags.ParameterValue(["range"], choices=["each", "first"]),
    callback=lambda ctx, param, value: {"each": True, "first": False}.get(value, value),
    help="Values that become 0 and 1: the 0.1 and 99.9 percentiles of each image, what they were "
    "in the image that a recipe or prototypes come from, or two numbers for all images. [default: "
    "as the recipe says, else each]",
)
FORMAT = click.Option(
    ["--format", "suffix"],
    type=click.Choice(list(io.MASK_SUFFIXES)),
    default=".tif",
    show_default=True,
    help="Format of the masks in a folder.",
)
_OPTIONS = [
    click.Argument(["model"], type=flags.PATH, metavar="PROJECT"),
    flags.IMAGES,
    flags.output("OUT", "A mask for one image, or a folder."),
    SCALING,
    *flags.image_options("mask", "no_data"),
    *flags.PROBABILITIES,
    FORMAT,
    flags.overwrite("masks and recipes that are there"),
    JOBS,
    *TILES,
    SCHEDULER,
]


@flags.command("run", _OPTIONS)
def run(given: Any) -> int:
    """Label images by what was learned on others.

    PROJECT is a project (.napari-saf), or a recipe, a file of prototypes or a patch dictionary.
    Images may be files, folders or patterns. What an earlier run has done is not done again. Large
    images are labelled in tiles, into pyramids, but for those by a dictionary.
    """
    options = batch.ApplyOptions(
        scaling=given.scaled_by,
        suffix=given.suffix,
        mask=given.mask,
        no_data=given.no_data,
        probabilities=flags.probability_step(vars(given)),
        overwrite=given.overwrite,
        tiles=tiles_of(given),
        tile=given.tile or None,
    )
    paths = io.find_images(given.images)
    task, jobs = options.plan(as_model(given.model), paths, given.out)
    if isinstance(task, batch.DictionaryTask) and (given.tile or given.dry_run):
        raise click.UsageError(str(refusal(Strategy.FOLDER, "dictionary in tiles")))
    return run_jobs(task, jobs, given)


def run_jobs(task: batch.AbstractTask[Any], jobs: Sequence[batch.Job], given: Any) -> int:
    """Do jobs by the workers that are given, and print what becomes of each; return the code."""
    if given.dry_run and isinstance(task, batch.LabelTask):
        for job in jobs:
            large = task.large_job(job)
            print_plan(large, large.plan(), given.n_processes)
        return 0
    began, outcomes = time.perf_counter(), []
    with workers(given.scheduler) as client:
        own = {"n_processes": given.n_processes, "client": client, "progress": _bar}
        for outcome in batch.run_batch(task, jobs, **own):
            _print_outcome(task, outcome)
            outcomes.append(outcome)
    failed = [outcome.job.path for outcome in outcomes if outcome.state == "failed"]
    if len(jobs) > 1 or outcomes[0].state == "skipped":
        counts = Counter[str](failed=len(failed))
        for outcome in outcomes:
            if outcome.state != "failed":
                counts[outcome.state] += len(outcome.job.images)
        states = {"done": "labelled", "skipped": "done before", "failed": "failed"}
        text = ", ".join(f"{counts[key]} {state}" for key, state in states.items() if counts[key])
        images, seconds = counted(counts.total(), "image"), time.perf_counter() - began
        click.echo(f"{images}: {text}, {seconds:.1f} s")
        if uncertain := batch.least_certain(jobs):
            click.echo(uncertain)
        for path in failed:
            click.echo(f"failed: {path}")
    return 1 if failed else 0


def _bar(job: batch.Job, number: int, count: int) -> AbstractContextManager[Any]:
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
        for note in result.notes:
            click.echo(f"napari-saf: note: {job.path}: {note}", err=True)
    elif result is not None:  # how well a dictionary rebuilds the image
        click.echo(f"{job.masks[0]}: {result:.1f} dB, {outcome.seconds:.1f} s")
    if outcome.state == "failed":
        print_failure(outcome)
