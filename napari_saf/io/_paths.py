"""File names: suffixes of images, names of results, and valid characters."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from napari_saf.arrays import JsonObject
from napari_saf.errors import InvalidInput

OME_ZARR_SUFFIX = ".ome.zarr"
NIFTI_SUFFIXES = (".nii", ".nii.gz")
"""Formats of masks that require nibabel, on the grid of a scan."""
MASK_SUFFIXES = (".tif", ".tiff", ".png", ".npy", ".ome.zarr", *NIFTI_SUFFIXES)
TABLE_SUFFIXES = (".csv", ".parquet")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
PROTOTYPE_SUFFIXES = (".json", ".npy", ".csv")
LABELS_MARK = ".labels"
"""Part of a mask's name between the image name and the suffix."""
PROBABILITY_SUFFIXES = (".ome.zarr", ".tif", ".npy")
PROBABILITY_MARK = ".probabilities"
"""The same for files of probability maps."""
BIOIO_SUFFIXES = {".czi": "bioio-czi", ".lif": "bioio-lif", ".nd2": "bioio-nd2", ".dv": "bioio-dv"}
"""Microscope formats by suffix, and the bioio plug-in that reads them."""
TIFF_SUFFIXES = (".tif", ".tiff", ".lsm", ".stk", ".svs", ".ndpi", ".scn", ".qptiff", ".btf")
PARTS_SUFFIXES = (*TIFF_SUFFIXES, ".npy", *BIOIO_SUFFIXES)
"""Files that are read in parts, like zarr folders; pictures are read as a whole."""
IMAGE_SUFFIXES: tuple[str, ...] = (
    *(*PARTS_SUFFIXES, ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"),
    *NIFTI_SUFFIXES,
)
RESULT_MARKS = (
    *(LABELS_MARK, PROBABILITY_MARK, ".objects", ".kinds", ".regions", ".figure"),
    ".reconstruction",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def place_in_store(path: Path) -> tuple[Path, tuple[str, ...]] | None:
    """Return the outermost zarr folder of an image and the path within it; None without one."""
    if path.suffix or path.parent.name == "labels" or not is_zarr(path.parent):
        return None
    around = [parent for parent in path.parents if is_zarr(parent) and parent.suffix]
    return (around[-1], path.relative_to(around[-1]).parts) if around else None


def is_zarr(path: Path) -> bool:
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zattrs", ".zarray"))


def is_plain_folder(path: Path) -> bool:
    """Return whether a path is a folder of files rather than a zarr store."""
    return path.is_dir() and not is_zarr(path)


def mask_stem(path: str | os.PathLike[str]) -> str:
    """Return the name of an image or mask without folder and suffix, ``.ome`` included.

    A series ``file.tif#1`` is ``file-1``, a field of a plate or a series of a converted file
    (``plate.zarr/B/3/0``) ``plate-B-3-0``.
    """
    file, mark, number = str(path).rpartition("#")
    if mark and number.isdigit():
        return f"{mask_stem(file)}-{number}"
    inner = place_in_store(Path(path))
    if inner is not None:
        return "-".join([mask_stem(inner[0]), *inner[1]])
    name = Path(path).name
    for suffix in (".ome.zarr", ".ome.tif", ".ome.tiff", ".nii.gz"):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return Path(path).stem


def image_stem(mask: Path) -> str:
    """Return the name of the image of a mask, without folder and suffix."""
    return mask_stem(mask).removesuffix(LABELS_MARK)


def path_beside(mask: Path, ending: str) -> Path:
    """Return the path of a file beside a mask, named after its image: ``photo.ENDING``.

    For a mask within an OME-Zarr image (``photo.ome.zarr/labels/NAME``), a file is saved beside the
    image as ``photo.NAME.ENDING`` (for a field of a plate in a folder of that name), a zarr store
    beside the mask as ``NAME_ENDING``.
    """
    if mask.parent.name == "labels" and is_zarr(mask.parent.parent):
        if ending.endswith(".ome.zarr"):
            return mask.with_name(f"{mask.name}_{ending.removesuffix('.ome.zarr')}")
        image = mask.parent.parent
        inner = place_in_store(image)
        if inner is None:
            return image.with_name(f"{mask_stem(image)}.{mask.name}.{ending}")
        (outer, names), (name, _, suffix) = inner, ending.rpartition(".")
        folder = outer.with_name(f"{mask_stem(outer)}.{mask.name}.{name}")
        return folder / f"{'-'.join(names)}.{suffix}"
    return mask.with_name(f"{image_stem(mask)}.{ending}")


def recipe_path(mask: Path) -> Path:
    """Return the path of the recipe of a mask."""
    return mask.with_name(f"{image_stem(mask)}.recipe.json")


def mask_suffix(path: Path, suffixes: Sequence[str] = MASK_SUFFIXES) -> str | None:
    """Return the suffix of a name in lower case, None if unknown."""
    return next((suffix for suffix in suffixes if path.name.lower().endswith(suffix)), None)


def keeps_origin(suffix: str | None) -> bool:
    """Return whether masks of a format store the position of their first pixel."""
    return suffix in (OME_ZARR_SUFFIX, *NIFTI_SUFFIXES)


def places_lost(suffix: str | None, image: Any) -> dict[str, str]:
    """Return spatial metadata of an image that a mask format loses, and a format that stores it."""
    lost = {}
    if image.origin and not keeps_origin(suffix):
        lost["where the image lies"] = OME_ZARR_SUFFIX
    if image.georeference and suffix not in (".tif", ".tiff"):
        lost["where the image lies on earth"] = ".tif"
    if image.affine is not None and suffix not in NIFTI_SUFFIXES:
        lost["where the scan lies"] = ".nii"
    return lost


def check_suffix(path: Path, suffixes: Sequence[str]) -> str:
    """Return the suffix of a name in lower case; raise InvalidInput if unknown."""
    suffix = mask_suffix(path, suffixes)
    if suffix is None:
        raise InvalidInput(f"{path}: expected a name that ends in {', '.join(suffixes)}")
    return suffix


def url_of(source: object) -> str | None:
    """Return the URL of a text, or of a path made of it; None for local files."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.:-]+):/+(.*)", str(source))
    return None if match is None else f"{match[1]}://{match[2]}"


def split_series(path: Path) -> tuple[Path, int | None]:
    """Return the file and the number of a series in a path such as ``file.tif#1``."""
    stem, mark, number = path.name.rpartition("#")
    if mark and number.isdigit() and not path.exists():
        return path.with_name(stem), int(number)
    return path, None


def file_stem(name: str) -> str:
    """Return a file name valid on all systems, derived from a text."""
    cleaned = "".join(c if c.isalnum() or c in "-_." else " " for c in name)
    return "_".join(cleaned.split()).strip("._")[:80] or "labels"


def printable(name: str) -> str:
    """Return a file name as valid text, with undecodable bytes escaped."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def table_cell(text: str) -> str:
    """Return a text that spreadsheets do not evaluate: formulas get an apostrophe.

    Source: OWASP, CSV injection, https://owasp.org/www-community/attacks/CSV_Injection.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def file_state(file: Path, folder: Path) -> JsonObject:
    """Return the state of a file, or of a folder that is one image, as recorded in `folder`.

    ``path`` is relative to `folder`, with slashes; ``n_bytes`` is the total size and ``modified``
    the last change in nanoseconds since 1970, both 0 if missing. For a series it is the state of
    its file.
    """
    image, (file, _) = file, split_series(file)
    inner = [*file.rglob("*"), file] if file.is_dir() else [file]
    states = [path.stat() for path in inner if path.exists()]
    try:
        path = Path(os.path.relpath(image.absolute(), folder.absolute()))
    except ValueError:  # on different Windows drives
        path = image.absolute()
    return {
        "path": path.as_posix(),
        "n_bytes": sum(state.st_size for state in states),
        "modified": max((state.st_mtime_ns for state in states), default=0),
    }
