"""Run a method with a progress bar, if there is a terminal to show it."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from napari_saf.methods import map_steps, run_to_end
from napari_saf.result import Snapshot

__all__ = ["run_with_progress"]

T = TypeVar("T")


def run_with_progress(steps: Generator[Snapshot, None, T], title: str) -> T:
    """Run a method to its end and return what it returns.

    Parameters
    ----------
    steps : generator of Snapshot
        The method under way.
    title : str
        Words beside the bar.
    """
    with _bar(steps, title) as watched:
        return run_to_end(watched)


@contextmanager
def _bar(steps: Generator[Snapshot, None, T], title: str) -> Iterator[Generator[Snapshot, None, T]]:
    if not sys.stderr.isatty():
        yield steps
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=console) as progress:
        task = progress.add_task(title, total=1, state="")

        def show(snapshot: Snapshot) -> Snapshot:
            state = f"{snapshot.n_labels} labels, t = {snapshot.record.time:.1f}"
            progress.update(task, completed=snapshot.fraction, state=state)
            return snapshot

        yield map_steps(steps, show)
        progress.update(task, completed=1)
