"""What a command prints while it works: a progress bar on a terminal, and what failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from napari_saf.batch import Outcome
from napari_saf.cli import report
from napari_saf.errors import SafError
from napari_saf.methods import run_to_end
from napari_saf.result import Snapshot

T = TypeVar("T")


def run_with_progress(steps: Generator[Snapshot, None, T], title: str) -> T:
    with progress_bar(title) as show:
        return run_to_end(steps, show)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[Snapshot], None] | None]:
    """Give what shows a snapshot in a bar with a title; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=console) as progress:
        task = progress.add_task(title, total=1, state="")

        def show(snapshot: Snapshot) -> None:
            state = f"{snapshot.n_labels} labels, t = {snapshot.record.time:.1f}"
            progress.update(task, completed=snapshot.fraction, state=state)

        yield show
        progress.update(task, completed=1)


def print_failure(outcome: Outcome[Any], *, debug: bool) -> None:
    if debug:
        click.echo(outcome.trace, err=True)
    report(SafError(outcome.error), debug=False, about=outcome.job.path)
