"""Names of files: which are images, what results are called, and what names may hold."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from napari_saf.errors import InvalidInput

OME_ZARR_SUFFIX = ".ome.zarr"
NIFTI_SUFFIXES = (".nii", ".nii.gz")
"""Masks with nibabel, on the grid of a scan."""
MASK_SUFFIXES = (".tif", ".tiff", ".png", ".npy", ".ome.zarr", *NIFTI_SUFFIXES)
TABLE_SUFFIXES = (".csv", ".parquet")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
PROTOTYPE_SUFFIXES = (".npy", ".csv", ".json")
LABELS_MARK = ".labels"
"""What the name of a mask has between that of its image and its suffix."""
PROBABILITY_SUFFIXES = (".ome.zarr", ".tif", ".npy")
PROBABILITY_MARK = ".probabilities"
"""The same of a file of probability maps."""
BIOIO_SUFFIXES = {".czi": "bioio-czi", ".lif": "bioio-lif", ".nd2": "bioio-nd2", ".dv": "bioio-dv"}
"""Files of microscopes, and the plug-in of bioio that reads them."""
TIFF_SUFFIXES = (".tif", ".tiff", ".lsm", ".stk", ".svs", ".ndpi", ".scn", ".qptiff", ".btf")
PARTS_SUFFIXES = (*TIFF_SUFFIXES, ".npy", *BIOIO_SUFFIXES)
"""Files that are read in parts, as folders of zarr are; pictures are read whole."""
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
    """Return the outermost zarr folder around an image in it, and its place; None without one."""
    if path.suffix or path.parent.name == "labels" or not is_zarr(path.parent):
        return None
    around = [parent for parent in path.parents if is_zarr(parent) and parent.suffix]
    return (around[-1], path.relative_to(around[-1]).parts) if around else None


def is_zarr(path: Path) -> bool:
    return any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zattrs", ".zarray"))


def is_plain_folder(path: Path) -> bool:
    """Tell whether a path is a folder of files, not a zarr store, which is one image."""
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
    """Return the path of a file beside a mask, called after its image: ``photo.ENDING``.

    Of a mask within an OME-Zarr image (``photo.ome.zarr/labels/NAME``) a file lies beside the
    image, ``photo.NAME.ENDING``, for a field of a plate in a folder of that name, and a zarr store
    beside the mask, ``NAME_ENDING``, a plain word as names there are.
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
    """Return where the recipe of a mask lies."""
    return mask.with_name(f"{image_stem(mask)}.recipe.json")


def mask_suffix(path: Path, suffixes: Sequence[str] = MASK_SUFFIXES) -> str | None:
    """Return the suffix of a name in lower case, or None if it is not a known one."""
    return next((suffix for suffix in suffixes if path.name.lower().endswith(suffix)), None)


def keeps_origin(suffix: str | None) -> bool:
    """Tell whether masks of a format hold where their first pixel lies."""
    return suffix in (OME_ZARR_SUFFIX, *NIFTI_SUFFIXES)


def places_lost(suffix: str | None, image: Any) -> dict[str, str]:
    """Return what masks of a format do not keep of where an image, or labels, lie; what does."""
    lost = {}
    if image.origin and not keeps_origin(suffix):
        lost["where the image lies"] = OME_ZARR_SUFFIX
    if image.georeference and suffix not in (".tif", ".tiff"):
        lost["where the image lies on earth"] = ".tif"
    if image.affine is not None and suffix not in NIFTI_SUFFIXES:
        lost["where the scan lies"] = ".nii"
    return lost


def check_suffix(path: Path, suffixes: Sequence[str]) -> str:
    """Return the suffix of a name in lower case; raise InvalidInput if it is not a known one."""
    suffix = mask_suffix(path, suffixes)
    if suffix is None:
        raise InvalidInput(f"{path}: expected a name that ends in {', '.join(suffixes)}")
    return suffix


def url_of(source: object) -> str | None:
    """Return the URL that a text, or a path made of it, stands for; None for what is on disk."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.:-]+):/+(.*)", str(source))
    return None if match is None else f"{match[1]}://{match[2]}"


def split_series(path: Path) -> tuple[Path, int | None]:
    """Return the file and the number of a series in a path such as ``file.tif#1``."""
    stem, mark, number = path.name.rpartition("#")
    if mark and number.isdigit() and not path.exists():
        return path.with_name(stem), int(number)
    return path, None


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


def file_state(file: Path, folder: Path) -> dict[str, Any]:
    """Return the state of a file, or of a folder that is one image, for what goes to a folder.

    ``path`` is relative to that folder, with slashes; ``n_bytes`` is the size of all that is in it
    and ``modified`` its last change in nanoseconds since 1970, both 0 where there is none. Of a
    series of a file it is the state of the file.
    """
    image, (file, _) = file, split_series(file)
    inner = [*file.rglob("*"), file] if file.is_dir() else [file]
    states = [path.stat() for path in inner if path.exists()]
    try:
        path = Path(os.path.relpath(image.absolute(), folder.absolute()))
    except ValueError:  # on Windows, of two drives
        path = image.absolute()
    return {
        "path": path.as_posix(),
        "n_bytes": sum(state.st_size for state in states),
        "modified": max((state.st_mtime_ns for state in states), default=0),
    }
