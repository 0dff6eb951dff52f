"""Names of files: which are images, what results are called, and what names may hold."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from napari_saf.errors import InvalidInput

MASK_SUFFIXES = (".tif", ".tiff", ".png", ".npy", ".ome.zarr")
TABLE_SUFFIXES = (".csv", ".parquet")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
PROTOTYPE_SUFFIXES = (".npy", ".csv", ".json")
LABELS_MARK = "_labels"
"""What the name of a mask has after that of its image."""
_IMAGE_SUFFIXES = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".npy")
_RESULT_MARKS = (LABELS_MARK, "_reconstruction")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def find_images(paths: Sequence[Path]) -> list[Path]:
    """Return the images among files and folders; a folder stands for the images in it.

    What an earlier run left in a folder (``name_labels``, ``name_reconstruction``) is not taken
    for images; InvalidInput if there are no others.
    """

    def is_image(path: Path) -> bool:
        if path.name.startswith(".") or mask_stem(path).endswith(_RESULT_MARKS):
            return False
        return is_zarr(path) if path.is_dir() else path.suffix.lower() in _IMAGE_SUFFIXES

    images: list[Path] = []
    for path in paths:
        if not path.is_dir() or is_zarr(path):
            images.append(path)
            continue
        inside = [file for file in sorted(path.iterdir()) if is_image(file)]
        if not inside:
            known = ", ".join(_IMAGE_SUFFIXES)
            raise InvalidInput(f"{path}: expected images in the folder ({known}, .zarr)")
        images += inside
    return images


def is_zarr(path: Path) -> bool:
    """Tell whether a folder is a zarr store."""
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zattrs"))


def mask_suffix(path: str | os.PathLike[str]) -> str | None:
    """Return the suffix of a mask's name in lower case, or None if it is not a known one."""
    name = Path(path).name.lower()
    return next((suffix for suffix in MASK_SUFFIXES if name.endswith(suffix)), None)


def mask_stem(path: str | os.PathLike[str]) -> str:
    """Return the name of an image or mask without folder and suffix, ``.ome`` included."""
    name = Path(path).name
    for suffix in (".ome.zarr", ".ome.tif", ".ome.tiff"):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return Path(path).stem


def check_suffix(path: Path, known: Sequence[str]) -> str:
    """Return the suffix of a name in lower case; raise InvalidInput if it is not a known one."""
    name = path.name.lower()
    suffix = next((one for one in known if name.endswith(one)), None)
    if suffix is None:
        raise InvalidInput(f"{path}: expected a name that ends in {', '.join(known)}")
    return suffix


def file_stem(name: str) -> str:
    """Return a name that every system takes for a file, for a text that may not be one."""
    cleaned = "".join(c if c.isalnum() or c in "-_." else " " for c in name)
    return "_".join(cleaned.split()).strip("._")[:80] or "labels"


def printable(name: str) -> str:
    """Return a name as valid text: bytes of a file name that are no text become escapes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def table_cell(text: str) -> str:
    """Return a text that spreadsheets show and do not compute: formulas get an apostrophe.

    Source: OWASP, CSV injection, https://owasp.org/www-community/attacks/CSV_Injection.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


@dataclasses.dataclass(frozen=True, slots=True)
class FileState:
    """State of a file, or of a folder that is one image, when something was made from it.

    The path is relative to the folder of what is made from it, with slashes; the size is that of
    all that is in it, and the time of its last change in nanoseconds since 1970.
    """

    path: str
    n_bytes: int
    modified: int

    @classmethod
    def of(cls, file: Path, folder: Path) -> FileState:
        """Return the state of a file for what goes to a folder; 0 for one that is not there."""
        inner = [*file.rglob("*"), file] if file.is_dir() else [file]
        states = [path.stat() for path in inner if path.exists()]
        try:
            path = Path(os.path.relpath(file.absolute(), folder.absolute()))
        except ValueError:  # on Windows, of two drives
            path = file.absolute()
        return cls(
            path.as_posix(),
            sum(state.st_size for state in states),
            max((state.st_mtime_ns for state in states), default=0),
        )
