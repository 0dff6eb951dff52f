"""What an earlier run has done already, and what is in the way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from napari_saf.cli._job import Settings, digest_of, files_of
from napari_saf.cli._plan import Job
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io import Recipe, load_recipe, read_labels
from napari_saf.parameters import to_plain

__all__ = ["is_done", "split"]


def split(
    jobs: Sequence[Job], settings: Settings, *, overwrite: bool
) -> tuple[list[Job], list[Job]]:
    """Return the jobs that are to be done, and those that are done.

    A job is done if its masks are there beside a recipe that says what this run would do, and the
    images, and files given beside them, are as they were then.

    Raises
    ------
    InvalidInput
        If a file is there that another run, or a person, has made.
    """
    if overwrite:
        return list(jobs), []
    todo, done = [], []
    for job in jobs:
        if is_done(job, settings):
            done.append(job)
            continue
        if not _is_own(job, settings):
            for place in (*job.masks, job.recipe):
                if place.exists():
                    raise InvalidInput(
                        f"{place}: is there already, from another run; --overwrite replaces it"
                    )
        _check_as_written(job)
        todo.append(job)
    return todo, done


def is_done(job: Job, settings: Settings) -> bool:
    """Tell whether a job has been done as these settings ask, on the images as they are now."""
    recipe = _recipe_of(job)
    return (
        all(mask.exists() for mask in job.masks)
        and recipe is not None
        and _says_the_same(recipe, settings)
        and recipe.raw.get("files") == files_of(job, settings)
    )


def _is_own(job: Job, settings: Settings) -> bool:
    """Tell whether what is there came from these files by these settings, now or earlier.

    The recipe is never written after the masks.
    """
    recipe = _recipe_of(job)
    return (
        recipe is not None
        and _says_the_same(recipe, settings)
        and _places(recipe.raw.get("files")) == _places(files_of(job, settings))
    )


def _check_as_written(job: Job) -> None:
    """Refuse masks that somebody has changed since they were written."""
    recipe = _recipe_of(job)
    digests = None if recipe is None else recipe.raw.get("labels")
    if not isinstance(digests, list) or len(digests) != len(job.masks):
        return
    for mask, digest in zip(job.masks, digests, strict=True):
        if mask.exists() and digest_of(read_labels(mask).array) != digest:
            raise InvalidInput(f"{mask}: was changed since it was made; --overwrite replaces it")


def _recipe_of(job: Job) -> Recipe | None:
    try:
        return load_recipe(job.recipe) if job.recipe.exists() else None
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
