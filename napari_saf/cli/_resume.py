"""What an earlier run has done already, what is in the way, and what goes with what."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.cli._plan import Job
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io import (
    FileState,
    Recipe,
    hidden_name,
    load_recipe,
    make_folder,
    read_labels,
    remove_leftovers,
    remove_path,
    save_recipe,
)
from napari_saf.parameters import to_plain

if TYPE_CHECKING:
    from napari_saf.cli._job import Settings

__all__ = ["clear_away", "digest_of", "files_of", "is_done", "saving_recipe", "split"]


def files_of(job: Job, settings: Settings) -> list[dict[str, Any]]:
    """Return what a job reads, in the state in which it is now, as a recipe keeps it."""
    uses = [("image", path) for path in job.images] + list(settings.files.items())
    folder = job.recipe.parent
    return [{"use": use} | dataclasses.asdict(FileState.of(path, folder)) for use, path in uses]


def digest_of(labels: NDArray[Any]) -> str:
    """Return a short name for labels, whatever their type and axes of length 1."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()[:16]


def split(jobs: Sequence[Job], settings: Settings) -> tuple[list[Job], list[Job]]:
    """Return the jobs that are to be done, and those that are done.

    A job is done if its masks are there beside a recipe that says what this run would do, and the
    images, and files given beside them, are as they were then.

    Raises
    ------
    InvalidInput
        If a file is there that another run, or a person, has made.
    """
    todo, done = [], []
    for job in jobs:
        if not settings.overwrite and is_done(job, settings):
            clear_away(job)
            done.append(job)
        else:
            _check_free(job, settings)
            todo.append(job)
    return todo, done


def is_done(job: Job, settings: Settings) -> bool:
    """Tell whether a job has been done as these settings ask, on the images as they are now."""
    recipe = _load(job.recipe)
    return (
        all(mask.exists() for mask in job.masks)
        and not _begun(job).exists()
        and recipe is not None
        and _says_the_same(recipe, settings)
        and recipe.raw.get("files") == files_of(job, settings)
    )


@contextmanager
def saving_recipe(job: Job, settings: Settings, recipe: dict[str, Any]) -> Iterator[None]:
    """Save a recipe around the masks, so that whenever a run is killed it is known what is whose.

    Where there are no masks, it is saved before them. Where there are, it is kept beside until
    they are replaced: each mask is then one of the recipe, or of that beside it.

    Raises
    ------
    InvalidInput
        If another run, or a person, has made something there since this one began.
    """
    make_folder(job.recipe.parent)
    _check_free(job, settings)
    was_there, before = job.recipe.exists(), [_identity(mask) for mask in job.masks]
    is_first = not any(mask.exists() for mask in job.masks)
    place = job.recipe if is_first else _begun(job)
    # Of two runs that begin at the same time only one makes the recipe.
    save_recipe(place, recipe, overwrite=settings.overwrite or was_there)
    try:
        yield
    except BaseException:
        if [_identity(mask) for mask in job.masks] == before and not (is_first and was_there):
            remove_path(place)
        raise
    if not is_first:
        save_recipe(job.recipe, recipe)
    remove_path(_begun(job))  # also that of a killed run whose masks were removed since


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what differs once a file is replaced; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def clear_away(job: Job) -> None:
    """Remove what killed runs have left beside the files of a job."""
    for place in (*job.masks, job.recipe, _begun(job)):
        remove_leftovers(place)


def _begun(job: Job) -> Path:
    """Return where the recipe is while masks of an earlier run are replaced."""
    return job.recipe.with_name(f"{hidden_name(job.recipe)}.recipe.json")


def _check_free(job: Job, settings: Settings) -> None:
    """Refuse to replace what did not come from these files by these settings, now or earlier."""
    if settings.overwrite:
        return
    known = [recipe for recipe in map(_load, (job.recipe, _begun(job))) if recipe is not None]
    files = _places(files_of(job, settings))
    is_own = any(
        _says_the_same(recipe, settings) and _places(recipe.raw.get("files")) == files
        for recipe in known
    )
    for place in (*job.masks, job.recipe):
        if place.exists() and not is_own:
            raise InvalidInput(
                f"{place}: is there already, from another run; --overwrite replaces it"
            )
    written = [recipe.raw.get("labels") for recipe in known]
    digests = [one for one in written if isinstance(one, list) and len(one) == len(job.masks)]
    for k, mask in enumerate(job.masks):
        if digests and mask.exists():
            found = digest_of(read_labels(mask).array)
            if found not in [one[k] for one in digests]:
                raise InvalidInput(
                    f"{mask}: was changed since it was made; --overwrite replaces it"
                )


def _load(path: Path) -> Recipe | None:
    try:
        return load_recipe(path) if path.exists() else None
    except FormatError:
        return None


def _places(files: Any) -> list[tuple[object, object]] | None:
    """Return what each file is for and where it lies, whatever became of it."""
    try:
        return [(file["use"], file["path"]) for file in files]
    except (TypeError, KeyError):
        return None


def _says_the_same(recipe: Recipe, settings: Settings) -> bool:
    is_same_method = type(recipe.method) is type(settings.method)
    return (
        is_same_method
        and _plain(to_plain(recipe.method)) == _plain(to_plain(settings.method))
        and _has_same_input(recipe, settings)
    )


def _has_same_input(recipe: Recipe, settings: Settings) -> bool:
    """Compare the inputs, but for what is found in each image by itself."""
    if recipe.options is None:
        return False
    found = recipe.options.for_others()
    if settings.options.scaling is None:
        found = dataclasses.replace(found, scaling=None)
    if settings.axis_from_file:
        found = dataclasses.replace(found, channel_axis=settings.options.channel_axis)
    return found == settings.options


def _plain(values: object) -> str:
    return json.dumps(values, sort_keys=True)
