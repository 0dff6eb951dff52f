"""Jobs, run sequentially or in several processes, and their outcomes."""

from __future__ import annotations

import dataclasses
import os
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from napari_saf.device import memory_errors_translated
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import (
    LABELS_MARK,
    MASK_SUFFIXES,
    OME_ZARR_SUFFIX,
    is_plain_folder,
    is_zarr,
    mask_stem,
    mask_suffix,
    recipe_path,
    url_of,
)
from napari_saf.methods import Cancelled, not_cancelled
from napari_saf.result import Snapshot
from napari_saf.tiles import TileCount, is_large, local_client, run_tasks

if TYPE_CHECKING:
    from distributed import Client

R = TypeVar("R")
OnStep = Callable[[Snapshot | TileCount], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Images labelled as one problem, and the mask of each.

    The companion file is the recipe of the masks or the reconstruction of the image. An image
    labelled `in_tiles` has none: its mask is a pyramid that contains the recipe.
    """

    images: tuple[Path, ...]
    masks: tuple[Path, ...]
    companion: Path
    in_tiles: bool = False

    @property
    def outputs(self) -> tuple[Path, ...]:
        """All files that the job writes."""
        return self.masks if self.in_tiles else (*self.masks, self.companion)

    def absolute(self) -> Job:
        """Return the job with absolute paths, for processes with another working directory."""
        images = tuple(path.absolute() for path in self.images)
        masks = tuple(path.absolute() for path in self.masks)
        return dataclasses.replace(
            self, images=images, masks=masks, companion=self.companion.absolute()
        )

    @property
    def title(self) -> str:
        """The name of the image, or the number of images."""
        return self.images[0].name if len(self.images) == 1 else f"{len(self.images)} images"

    @property
    def path(self) -> str:
        """The path of the image, or the number of images."""
        return str(self.images[0]) if len(self.images) == 1 else self.title


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """Outcome of a job: the result of the task, or the error and its traceback.

    The state is "skipped" if an earlier run completed the job; `seconds` include input and output.
    """

    job: Job
    state: Literal["done", "skipped", "failed"]
    result: R | None = None
    error: str = ""
    trace: str = ""
    seconds: float = 0.0


class AbstractTask(ABC, Generic[R]):
    """The processing of each job; sent to the worker processes."""

    @abstractmethod
    def absolute(self) -> AbstractTask[R]:
        """Return the task with absolute paths, for processes with another working directory."""

    @abstractmethod
    def prepare(self, jobs: Sequence[Job]) -> Collection[Job]:
        """Return the jobs completed by an earlier run.

        Raise InvalidInput if an output file exists that another run or a user has made.
        """

    @abstractmethod
    def run(self, job: Job, on_step: OnStep | None, cancelled: Callable[[], bool]) -> R:
        """Run a job: read, compute and write all of its files, or none.

        Raise Cancelled if it was cancelled before anything was written.
        """

    def finish(self, jobs: Sequence[Job]) -> None:
        """Write the files that combine the results of all jobs."""

    def run_in_tiles(
        self, job: Job, on_step: OnStep | None, cancelled: Callable[[], bool], client: Client | None
    ) -> R:
        """Label the image of a job in tiles, with the workers of a client.

        Tiles completed before Cancelled is raised are kept for the next run.
        """
        raise NotImplementedError


def run_batch(
    task: AbstractTask[R],
    jobs: Sequence[Job],
    *,
    n_processes: int = 1,
    client: Client | None = None,
    progress: Callable[[Job, int, int], AbstractContextManager[OnStep | None]] | None = None,
    cancelled: Callable[[], bool] = not_cancelled,
) -> Iterator[Outcome[R]]:
    """Yield the outcome of each job, completed ones first; a failure does not stop the others.

    Jobs run in processes of this machine, or on the workers of a dask client, which need access to
    the same files; they share the images, then the tiles of each image labelled in tiles. With one
    process, and for tiles, `progress` is called with a job, its number from 1 and the number of
    jobs, and its context with every snapshot or tile count; once `cancelled` returns True the run
    stops, and completed results are kept. InvalidInput is raised before any computation if a job
    would overwrite files of another origin.
    """
    done = task.prepare(jobs)
    yield from (Outcome(job, "skipped") for job in jobs if job in done)
    todo = [job for job in jobs if job not in done]
    n_processes = n_processes if any(job.in_tiles for job in todo) else min(n_processes, len(todo))
    with (
        local_client(n_processes)
        if client is None and n_processes > 1 and todo
        else nullcontext(client)
    ) as workers:
        waiting = deque(todo)
        if workers is not None:
            waiting = deque(job for job in todo if job.in_tiles)
            yield from _run_on_workers(task, [job for job in todo if not job.in_tiles], workers)
        while waiting and not cancelled():
            job = waiting.popleft()
            number = len(todo) - len(waiting)
            bar = nullcontext() if progress is None else progress(job, number, len(todo))
            try:
                with bar as show:
                    outcome = _run(task, job, show, cancelled, workers)
            except Cancelled:
                return
            yield outcome
    if todo:
        task.finish(jobs)


Tiles = Literal["auto", "all", "none"]
"""Which images are labelled in tiles; "auto": large ones whose mask may be a pyramid."""


def plan_jobs(
    images: Sequence[Path], out: Path, suffix: str, together: bool, tiles: Tiles
) -> list[Job]:
    """Return the jobs that label images, each with a recipe next to its mask.

    If `out` has the suffix of a mask, it is the mask of the one image; otherwise it is a folder,
    where the mask of ``name.png`` is ``name.labels`` with `suffix`, or ``.ome.zarr`` for an image
    labelled in tiles. With `out` ``plate.zarr/labels/NAME`` the labels of each field of
    ``plate.zarr`` are saved in the field as ``labels/NAME``.
    """
    is_folder, around = is_plain_folder(out), out.parent.parent
    is_inner = out.parent.name == "labels" and is_zarr(around)
    if is_inner and all(around in image.parents for image in images):  # fields of a plate
        masks = [image / "labels" / out.name for image in images]
    elif not is_folder and (is_inner or mask_suffix(out) is not None):
        if len(images) > 1:
            raise InvalidInput(f"{out}: expected a folder for {len(images)} images, got a file")
        masks = [out]
    elif not is_folder and out.suffix:
        raise InvalidInput(f"{out}: expected a folder, or a name in {', '.join(MASK_SUFFIXES)}")
    else:
        masks = [out / f"{mask_stem(image)}{LABELS_MARK}{suffix}" for image in images]
    if together and len(images) > 1:
        jobs = [Job(tuple(images), tuple(masks), out / "together.recipe.json")]
    else:
        jobs = []
        for image, mask in zip(images, masks, strict=True):
            may_be_pyramid = is_inner or mask != out or mask_suffix(out) == OME_ZARR_SUFFIX
            in_tiles = url_of(image) is not None or tiles == "all"
            if tiles == "auto" and may_be_pyramid and not in_tiles:
                in_tiles = is_inner or is_large(image)
            if in_tiles and not is_inner and mask != out:
                mask = out / f"{mask_stem(image)}{LABELS_MARK}{OME_ZARR_SUFFIX}"
            jobs.append(Job((image,), (mask,), recipe_path(mask), in_tiles))
    check_outputs([output for job in jobs for output in job.outputs], images)
    return jobs


def check_outputs(
    outputs: Iterable[Path], images: Iterable[Path] = (), *, overwrite: bool = True
) -> None:
    """Raise InvalidInput if two results share a path, or one would overwrite an input image.

    Without `overwrite`, raise it for any existing output file.
    """
    taken = {os.path.realpath(image) for image in images}
    seen: set[Path] = set()
    for output in outputs:
        if output in seen:
            raise InvalidInput(f"{output}: two images would be saved under this name")
        seen.add(output)
        if os.path.realpath(output) in taken:
            raise InvalidInput(f"{output}: the result would replace what it is made of")
        if not overwrite and output.exists():
            raise InvalidInput(f"{output}: is there already; --overwrite replaces it")


def _run(
    task: AbstractTask[R],
    job: Job,
    on_step: OnStep | None = None,
    cancelled: Callable[[], bool] = not_cancelled,
    client: Client | None = None,
) -> Outcome[R]:
    began = time.perf_counter()
    try:
        with memory_errors_translated():
            if job.in_tiles:
                result = task.run_in_tiles(job, on_step, cancelled, client)
            else:
                result = task.run(job, on_step, cancelled)
    except Cancelled:
        raise
    except Exception as error:  # noqa: BLE001  (the other images continue)
        return _failed(job, error, time.perf_counter() - began)
    return Outcome(job, "done", result, seconds=time.perf_counter() - began)


def _failed(job: Job, error: BaseException, seconds: float = 0.0) -> Outcome[R]:
    text = str(error) if isinstance(error, SafError) else f"{type(error).__name__}: {error}"
    text = text.removeprefix(f"{job.path}: ")
    trace = "".join(traceback.format_exception(error))
    return Outcome(job, "failed", error=text, trace=trace, seconds=seconds)


def _run_on_workers(
    task: AbstractTask[R], jobs: Sequence[Job], client: Client
) -> Iterator[Outcome[R]]:
    originals = {job.absolute(): job for job in jobs}
    for job, outcome in run_tasks(client, partial(_run, task.absolute()), deque(originals)):
        try:
            yield dataclasses.replace(outcome(), job=originals[job])
        except SafError as error:  # its process died
            yield _failed(originals[job], error)
