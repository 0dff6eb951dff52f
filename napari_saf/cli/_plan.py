"""Which image goes where: settled before anything is computed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from napari_saf.errors import InvalidInput
from napari_saf.io import (
    LABELS_MARK,
    MASK_SUFFIXES,
    find_images,
    is_zarr,
    mask_stem,
    mask_suffix,
)

__all__ = ["Job", "check_free", "find_images", "plan"]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Images that are labelled as one problem.

    Attributes
    ----------
    images, masks : list of Path
        One mask for each image.
    recipe : Path
        Where the recipe goes.
    """

    images: list[Path]
    masks: list[Path]
    recipe: Path

    @property
    def title(self) -> str:
        """The name of the image, or how many there are."""
        return self.images[0].name if len(self.images) == 1 else f"{len(self.images)} images"

    @property
    def about(self) -> str:
        """The path of the image, or how many there are."""
        return str(self.images[0]) if len(self.images) == 1 else self.title


def plan(images: list[Path], out: Path, *, suffix: str, together: bool) -> list[Job]:
    """Return what is to be done.

    One image goes to `out` if that is named as a mask; otherwise `out` is a folder, and the
    mask of ``name.png`` is ``name_labels`` with `suffix` in it.

    Raises
    ------
    InvalidInput
        If several images meet one file, two would have the same mask, or a mask would replace
        an image.
    """
    is_folder = out.is_dir() and not is_zarr(out)
    if not is_folder and mask_suffix(out) is not None:
        if len(images) > 1:
            raise InvalidInput(f"{out}: expected a folder for {len(images)} images, got a file")
        masks = [out]
    elif not is_folder and out.suffix:
        raise InvalidInput(f"{out}: expected a folder, or a name in {', '.join(MASK_SUFFIXES)}")
    else:
        masks = [out / f"{mask_stem(image)}{LABELS_MARK}{suffix}" for image in images]
    if together and len(images) > 1:
        jobs = [Job(images, masks, out / "together.recipe.json")]
    else:
        recipes = [mask.with_name(f"{mask_stem(mask)}.recipe.json") for mask in masks]
        parts = zip(images, masks, recipes, strict=True)
        jobs = [Job([image], [mask], recipe) for image, mask, recipe in parts]
    places = (place for job in jobs for place in (*job.masks, job.recipe))
    _check_places(places, images)
    return jobs


def check_free(places: Sequence[Path], images: Iterable[Path], *, overwrite: bool) -> None:
    """Check where results of images go, before anything is computed.

    Raises
    ------
    InvalidInput
        If two have one place, one would replace an image, or another file without `overwrite`.
    """
    _check_places(places, images)
    for place in places:
        if place.exists() and not overwrite:
            raise InvalidInput(f"{place}: is there already; --overwrite replaces it")


def _check_places(places: Iterable[Path], images: Iterable[Path]) -> None:
    taken = {os.path.realpath(image) for image in images}
    seen: set[Path] = set()
    for place in places:
        if place in seen:
            raise InvalidInput(f"{place}: two images would be saved under this name")
        seen.add(place)
        if os.path.realpath(place) in taken:
            raise InvalidInput(f"{place}: the mask would replace the image")
