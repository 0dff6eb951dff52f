"""Run a method with a progress bar, if there is a terminal to show it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from napari_saf.methods import AbstractMethod, Iteration
from napari_saf.problem import Problem
from napari_saf.result import Segmentation, Snapshot

__all__ = ["run_with_progress"]


def run_with_progress(method: AbstractMethod, problem: Problem, title: str) -> Segmentation:
    """Run a method to its end.

    Parameters
    ----------
    method : AbstractMethod
        What to run.
    problem : Problem
        What to label.
    title : str
        Words beside the bar.
    """
    with _bar(method.iterate(problem), title) as steps:
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: Segmentation = stop.value
                return result


@contextmanager
def _bar(steps: Iteration, title: str) -> Iterator[Iteration]:
    if not sys.stderr.isatty():
        yield steps
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=console) as progress:
        task = progress.add_task(title, total=1, state="")

        def watched() -> Iteration:
            while True:
                try:
                    snapshot: Snapshot = next(steps)
                except StopIteration as stop:
                    progress.update(task, completed=1)
                    result: Segmentation = stop.value
                    return result
                state = f"{snapshot.n_labels} labels, t = {snapshot.record.time:.1f}"
                progress.update(task, completed=snapshot.fraction, state=state)
                yield snapshot

        yield watched()
