"""One job of the command line: read, label, save."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.cli._plan import Job
from napari_saf.cli._progress import run_with_progress
from napari_saf.cli._resume import clear_away, digest_of, files_of, saving_recipe
from napari_saf.features import channels_last
from napari_saf.groups import check_group_source
from napari_saf.io import ImageFile, make_folder, read_image, read_labels, save_masks
from napari_saf.methods import AbstractMethod, run_to_end
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import STATUS_WORDS, Segmentation

__all__ = [
    "GROUPS_HELP",
    "GROUPS_METAVAR",
    "Settings",
    "problem_of",
    "read_group_option",
    "read_options",
    "read_problem",
    "run_job",
    "save_labels",
]

GROUPS_METAVAR = "image|axis:N|channel:N[:T]|FILE"
GROUPS_HELP = (
    "Groups that labels are to be spread over: the images, the slices along an axis, the "
    "pixels above a threshold in a channel (T, or found), or a label image."
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """What is the same for every image.

    Attributes
    ----------
    method : AbstractMethod
        What labels.
    options : ImageOptions
        How an image becomes a problem.
    axis_from_file : bool
        Whether the file's own axis of channels counts.
    mask : str or None
        ``"finite"``, the path of a mask, or None.
    seeds : Path or None
        A label image of seeds.
    groups : Path or None
        A label image of groups.
    names, colors : mapping
        By label, for masks whose format keeps them.
    overwrite : bool
        Whether what another run, or a person, has made is replaced.
    """

    method: AbstractMethod
    options: ImageOptions
    axis_from_file: bool
    mask: str | None = None
    seeds: Path | None = None
    groups: Path | None = None
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, Sequence[float]] = dataclasses.field(default_factory=dict)
    overwrite: bool = False

    @property
    def files(self) -> dict[str, Path]:
        """The files beside the images, by what they are for."""
        mask = None if self.mask in (None, "finite") else Path(self.mask)
        files = {"mask": mask, "seeds": self.seeds, "groups": self.groups}
        return {name: path for name, path in files.items() if path is not None}


def run_job(
    job: Job, settings: Settings, progress: str | None
) -> tuple[list[str], tuple[str, ...]]:
    """Label the images of a job, save masks and recipe.

    Parameters
    ----------
    job : Job
        Which images, and where the masks go.
    settings : Settings
        How they are labelled.
    progress : str or None
        Words beside a bar; None: show none.

    Returns
    -------
    lines : list of str
        What to tell of each mask.
    notes : tuple of str
        What the method has to tell.

    Raises
    ------
    SafError
        If an image cannot be read, labelled or saved.
    """
    files = files_of(job, settings)  # as they are before they are read
    images, problem, channel_axis = read_problem(job.images, settings)
    steps = settings.method.iterate(problem)
    result = run_to_end(steps) if progress is None else run_with_progress(steps, progress)
    labels = result.labels if isinstance(result.labels, list) else [result.labels]
    recipe = result.recipe | {
        "images": [path.name for path in job.images],
        "files": files,
        "labels": [digest_of(one) for one in labels],
    }
    with saving_recipe(job, settings, recipe):
        for image, one, mask in zip(images, labels, job.masks, strict=True):
            save_labels(image, one, mask, channel_axis, settings.names, settings.colors)
    clear_away(job)
    lines = [_line(mask, one, result) for one, mask in zip(labels, job.masks, strict=True)]
    return lines, result.notes


def read_problem(
    paths: Sequence[Path], settings: Settings
) -> tuple[list[ImageFile], Problem, int | None]:
    """Read images that are labelled together; return them, the problem, the axis of channels.

    Raises
    ------
    SafError
        If an image cannot be read or does not suit the settings.
    """
    images = [read_image(path) for path in paths]
    options = read_options(images[0], settings)
    return images, problem_of(images, options, settings), options.channel_axis


def read_group_option(value: str | None) -> tuple[str | None, Path | None]:
    """Return what ``--groups`` says: where groups come from in words, or the file of groups."""
    if value is None:
        return None, None
    if value == "image" or value.partition(":")[0] in ("axis", "channel"):
        return check_group_source(value), None
    return None, Path(value)


def read_options(image: ImageFile, settings: Settings) -> ImageOptions:
    """Return the options with the file's axis of channels, unless it is the last of RGB(A)."""
    axis = image.stated_channel_axis
    if not settings.axis_from_file or axis is None:
        return settings.options
    return dataclasses.replace(settings.options, channel_axis=axis)


def problem_of(images: list[ImageFile], options: ImageOptions, settings: Settings) -> Problem:
    """Return the problem of images that were read, with the mask, seeds and groups of settings."""
    mask: Any = settings.mask
    if mask is not None and mask != "finite":
        mask = read_image(mask).array
    shared = options.arguments()
    if len(images) > 1:
        return Problem.from_images([image.array for image in images], masks=mask, **shared)
    seeds = None if settings.seeds is None else read_labels(settings.seeds).array
    if settings.groups is not None:
        shared["groups"] = read_labels(settings.groups).array
    return Problem.from_image(images[0].array, mask=mask, seeds=seeds, **shared)


def save_labels(
    image: ImageFile,
    labels: NDArray[Any],
    mask: Path,
    channel_axis: int | None,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
) -> None:
    """Save a mask with the axes and pixel sizes that its image has."""
    make_folder(mask.parent)
    _, used = channels_last(image.array, channel_axis)
    if used == image.channel_axis:
        letters, kept = image.label_axes, list(range(labels.ndim))
    elif image.channel_axis is None:
        kept = [axis for axis in range(image.array.ndim) if axis != used]
        letters = "".join(image.axes[axis] for axis in kept) if image.axes else ""
    else:
        letters, kept = "", []
    scale = image.scale and tuple(image.scale[axis] for axis in kept)
    units = image.units and tuple(image.units[axis] for axis in kept)
    save_masks(
        mask,
        labels,
        axes=letters or None,
        scale=scale or None,
        units=units or None,
        names=names,
        colors=colors,
    )


def _line(mask: Path, labels: NDArray[Any], result: Segmentation) -> str:
    count = int(np.count_nonzero(np.bincount(labels.ravel())[1:]))
    words = f"{count} label{'s' * (count != 1)}"
    return f"{mask}: {words}, {STATUS_WORDS[result.status]}, {result.seconds:.1f} s"
