"""Which image goes where: settled before anything is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from napari_saf.errors import InvalidInput
from napari_saf.io import MASK_SUFFIXES, mask_stem, mask_suffix

__all__ = ["Job", "find_images", "plan"]

_READ = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".npy")
_MARK = "_labels"


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


def find_images(paths: Sequence[Path]) -> list[Path]:
    """Return the images among files and folders; a folder stands for the images in it.

    Masks that an earlier run left in a folder (``name_labels``) are not taken for images.

    Raises
    ------
    InvalidInput
        If a folder holds no image.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir() or _is_zarr(path):
            found.append(path)
            continue
        inside = [file for file in sorted(path.iterdir()) if _is_image(file)]
        if not inside:
            raise InvalidInput(f"{path}: expected images in the folder ({', '.join(_READ)}, .zarr)")
        found += inside
    return found


def _is_zarr(path: Path) -> bool:
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zattrs"))


def _is_image(path: Path) -> bool:
    if path.name.startswith(".") or mask_stem(path).endswith(_MARK):
        return False
    return _is_zarr(path) if path.is_dir() else path.suffix.lower() in _READ


def plan(
    images: list[Path], out: Path, *, suffix: str, together: bool, overwrite: bool
) -> list[Job]:
    """Return what is to be done.

    One image goes to `out` if that is named as a mask; otherwise `out` is a folder, and the
    mask of ``name.png`` is ``name_labels`` with `suffix` in it.

    Raises
    ------
    InvalidInput
        If several images meet one file, two would have the same mask, a mask would replace an
        image, or a file is there already and may not be overwritten.
    """
    is_folder = out.is_dir() and not _is_zarr(out)
    if not is_folder and mask_suffix(out) is not None:
        if len(images) > 1:
            raise InvalidInput(f"{out}: expected a folder for {len(images)} images, got a file")
        masks = [out]
    elif not is_folder and out.suffix:
        raise InvalidInput(f"{out}: expected a folder, or a name in {', '.join(MASK_SUFFIXES)}")
    else:
        masks = [out / f"{mask_stem(image)}{_MARK}{suffix}" for image in images]
    if together and len(images) > 1:
        jobs = [Job(images, masks, out / "together.recipe.json")]
    else:
        recipes = [mask.with_name(f"{mask_stem(mask)}.recipe.json") for mask in masks]
        parts = zip(images, masks, recipes, strict=True)
        jobs = [Job([image], [mask], recipe) for image, mask, recipe in parts]
    _check_places(jobs, overwrite)
    return jobs


def _check_places(jobs: list[Job], overwrite: bool) -> None:
    images = {image.resolve() for job in jobs for image in job.images}
    seen: set[Path] = set()
    for place in (place for job in jobs for place in (*job.masks, job.recipe)):
        if place in seen:
            raise InvalidInput(f"{place}: two images would be saved under this name")
        seen.add(place)
        if place.resolve() in images:
            raise InvalidInput(f"{place}: the mask would replace the image")
        if place.exists() and not overwrite:
            raise InvalidInput(f"{place}: is there already; --overwrite replaces it")
