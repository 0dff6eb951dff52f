"""Which files of a folder are images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from napari_saf.errors import InvalidInput
from napari_saf.io._masks import mask_stem

__all__ = ["LABELS_MARK", "find_images", "is_zarr"]

LABELS_MARK = "_labels"
"""What the name of a mask has after that of its image."""
_READ = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".npy")
_MADE = (LABELS_MARK, "_reconstruction")


def find_images(paths: Sequence[Path]) -> list[Path]:
    """Return the images among files and folders; a folder stands for the images in it.

    What an earlier run left in a folder (``name_labels``, ``name_reconstruction``) is not taken
    for images.

    Raises
    ------
    InvalidInput
        If a folder holds no image.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir() or is_zarr(path):
            found.append(path)
            continue
        inside = [file for file in sorted(path.iterdir()) if _is_image(file)]
        if not inside:
            raise InvalidInput(f"{path}: expected images in the folder ({', '.join(_READ)}, .zarr)")
        found += inside
    return found


def is_zarr(path: Path) -> bool:
    """Tell whether a folder is a zarr store."""
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zattrs"))


def _is_image(path: Path) -> bool:
    if path.name.startswith(".") or mask_stem(path).endswith(_MADE):
        return False
    return is_zarr(path) if path.is_dir() else path.suffix.lower() in _READ
