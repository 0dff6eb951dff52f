"""Many jobs: one after another or in several processes, and what became of them."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import click

from napari_saf.cli import report
from napari_saf.cli._job import Settings, run_job
from napari_saf.cli._plan import Job
from napari_saf.device import memory_errors_translated
from napari_saf.errors import SafError

__all__ = ["Outcome", "run_all"]

_TERMINATED = 128 + 15


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job.

    Attributes
    ----------
    title : str
        The image, or how many there are.
    lines, notes : tuple of str
        What is told of its masks, and beside.
    error : str or None
        Why there are none.
    trace : str
        Where the error arose.
    """

    title: str
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
    trace: str = ""


def run_all(
    jobs: Sequence[Job],
    settings: Settings,
    *,
    n_done: int = 0,
    n_processes: int = 1,
    debug: bool = False,
) -> int:
    """Run jobs, tell of each as it ends and of all at the end; return the exit code.

    A job that fails does not keep the others.

    Parameters
    ----------
    jobs : sequence of Job
        What is to be done.
    settings : Settings
        How.
    n_done : int
        Images that an earlier run has done.
    n_processes : int
        How many jobs run at a time, each in a process of its own.
    debug : bool
        Whether to show where errors arose.
    """
    began = time.perf_counter()
    n_processes = min(n_processes, len(jobs))
    run = (
        _in_turn(jobs, settings) if n_processes <= 1 else _side_by_side(jobs, settings, n_processes)
    )
    n_new, failed = 0, []
    for outcome in run:
        _tell(outcome, debug=debug)
        n_new += len(outcome.lines)
        if outcome.error is not None:
            failed.append(outcome.title)
    if len(jobs) + n_done > 1 or n_done:
        seconds = time.perf_counter() - began
        for line in _summary(n_new, n_done, failed, seconds):
            click.echo(line)
    return 1 if failed else 0


def _tell(outcome: Outcome, *, debug: bool) -> None:
    for line in outcome.lines:
        click.echo(line)
    for note in outcome.notes:
        click.echo(f"napari-saf: note: {outcome.title}: {note}", err=True)
    if outcome.error is not None:
        if debug:
            click.echo(outcome.trace, err=True)
        report(SafError(outcome.error), debug=False, about=outcome.title)


def _summary(n_new: int, n_done: int, failed: list[str], seconds: float) -> list[str]:
    total = n_new + n_done + len(failed)
    parts = [f"{n_new} labelled"] * bool(n_new) + [f"{n_done} done before"] * bool(n_done)
    parts += [f"{len(failed)} failed"] * bool(failed)
    images = f"{total} image{'s' * (total != 1)}"
    lines = [f"{images}: {', '.join(parts)}, {seconds:.1f} s"]
    return lines + [f"failed: {title}" for title in failed]


def _in_turn(jobs: Sequence[Job], settings: Settings) -> Iterator[Outcome]:
    for k, job in enumerate(jobs, start=1):
        place = "" if len(jobs) == 1 else f" ({k} of {len(jobs)})"
        yield _run(job, settings, f"{job.title}{place}")


def _run(job: Job, settings: Settings, progress: str | None) -> Outcome:
    try:
        with memory_errors_translated():
            lines, notes = run_job(job, settings, progress)
    except Exception as error:  # noqa: BLE001  (no image keeps the others)
        words = str(error) if isinstance(error, SafError) else f"{type(error).__name__}: {error}"
        return Outcome(job.about, error=words, trace=traceback.format_exc())
    return Outcome(job.about, tuple(lines), tuple(notes))


def _side_by_side(jobs: Sequence[Job], settings: Settings, n_processes: int) -> Iterator[Outcome]:
    """Run jobs in processes; where one dies, go on with one process to find whose fault it was."""
    waiting = dict(enumerate(jobs))
    while waiting:
        with _pool(n_processes) as pool:
            futures = {pool.submit(_work, job, settings): k for k, job in waiting.items()}
            is_broken = False
            for future in as_completed(futures):
                if isinstance(future.exception(), BrokenProcessPool):
                    is_broken = True
                    continue
                yield _outcome(future, waiting.pop(futures[future]))
        if is_broken and n_processes == 1:
            # One process takes the jobs in turn: it died of the first that is left.
            lost = waiting.pop(min(waiting))
            words = "the process died, perhaps for want of memory; try fewer --jobs"
            yield Outcome(lost.about, error=words)
        n_processes = 1


def _outcome(future: Future[Outcome], job: Job) -> Outcome:
    error = future.exception()
    if error is None:
        return future.result()
    trace = "".join(traceback.format_exception(error))
    return Outcome(job.about, error=f"{type(error).__name__}: {error}", trace=trace)


@contextmanager
def _pool(n_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Give processes that end when this one is interrupted or dies."""
    import torch

    others = set(multiprocessing.active_children())
    # Fresh processes: what torch and the libraries below it hold does not survive a fork.
    pool = ProcessPoolExecutor(
        n_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_process,
        initargs=(max(1, torch.get_num_threads() // n_processes),),
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_process(n_threads: int) -> None:
    import torch

    torch.set_num_threads(n_threads)
    # An interrupt at the keyboard reaches all processes: the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _on_terminate)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _on_terminate(number: int, frame: Any) -> None:
    raise SystemExit(_TERMINATED)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(_TERMINATED)


def _work(job: Job, settings: Settings) -> Outcome:
    try:
        return _run(job, settings, None)
    except SystemExit:
        # The pool would take it for the outcome of this job, and go on with the next.
        os._exit(_TERMINATED)
