"""What an earlier run has done already, and what is in the way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from napari_saf.cli._job import Settings
from napari_saf.cli._plan import Job
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.io import Recipe, load_recipe
from napari_saf.io._replace import is_newer
from napari_saf.parameters import to_plain

__all__ = ["is_done", "split"]


def split(
    jobs: Sequence[Job], settings: Settings, *, overwrite: bool
) -> tuple[list[Job], list[Job]]:
    """Return the jobs that are to be done, and those that are done.

    A job is done if its masks are there beside a recipe that says what this run would do, and
    neither an image nor a file given beside it was changed after its mask was made.

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
        if not _is_begun(job, settings):
            for place in (*job.masks, job.recipe):
                if place.exists():
                    raise InvalidInput(f"{place}: is there already; --overwrite replaces it")
        todo.append(job)
    return todo, done


def is_done(job: Job, settings: Settings) -> bool:
    """Tell whether a job has been done as these settings ask, on the images as they are now."""
    return (
        all(mask.exists() for mask in job.masks)
        and _is_begun(job, settings)
        and not any(map(is_newer, job.images, job.masks))
        and not any(is_newer(f, mask) for f in settings.files.values() for mask in job.masks)
    )


def _is_begun(job: Job, settings: Settings) -> bool:
    """Tell whether there is a recipe that says the same; it is never written after the masks."""
    if not job.recipe.exists():
        return False
    try:
        recipe = load_recipe(job.recipe)
    except FormatError:
        return False
    is_same_method = type(recipe.method) is type(settings.method)
    return (
        is_same_method
        and _plain(to_plain(recipe.method)) == _plain(to_plain(settings.method))
        and recipe.raw.get("images") == [path.name for path in job.images]
        and recipe.raw.get("files", {}) == {n: path.name for n, path in settings.files.items()}
        and _has_same_input(recipe, settings)
    )


def _has_same_input(recipe: Recipe, settings: Settings) -> bool:
    """Compare the inputs, but for what is found in each image by itself."""
    if recipe.options is None:
        return False
    found = recipe.options
    if settings.options.scaling is None:
        found = dataclasses.replace(found, scaling=None)
    if settings.axis_from_file:
        found = dataclasses.replace(found, channel_axis=settings.options.channel_axis)
    return found == settings.options


def _plain(values: object) -> str:
    return json.dumps(values, sort_keys=True)
