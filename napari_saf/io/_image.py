"""Images from files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import ComputeError, FormatError
from napari_saf.io._image_file import ImageFile
from napari_saf.io._untrusted import check_room

__all__ = ["PNG_MARK", "read_image", "read_labels"]

PNG_MARK = ("Comment", "napari-saf label image: the index of a pixel is its label")
"""Note in an indexed PNG whose indices count, not its colours."""


def read_image(path: str | os.PathLike[str]) -> ImageFile:
    """Read an image; nothing in the file is executed.

    TIFF (OME, ImageJ or plain), OME-Zarr folders and NumPy arrays (``.npy``) are read with
    their axes and the size of a pixel where the file gives them, other formats (PNG, JPEG,
    BMP, ...) as Pillow reads them.

    Parameters
    ----------
    path : path
        File, or folder of an OME-Zarr.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    ComputeError
        If the image does not fit into memory.
    """
    file = Path(path)
    return _read(file, _reader(file))


def read_labels(path: str | os.PathLike[str]) -> ImageFile:
    """Read a label image; as `read_image`, but the index of an indexed PNG is the label.

    Parameters
    ----------
    path : path
        File, or folder of an OME-Zarr, that holds whole numbers of 0 and above.

    Raises
    ------
    FormatError
        As `read_image`, and if the file holds no label image.
    """
    file = Path(path)
    image = _read(file, _reader(file, in_colors=False))
    array = image.array
    if array.dtype.kind not in "biu" or array.min() < 0 or image.channel_axis is not None:
        raise FormatError(
            f"{file}: expected a label image, whole numbers of 0 and above, got {array.dtype} "
            f"of shape {array.shape}"
        )
    return image


def _read(file: Path, reader: Callable[[Path], ImageFile]) -> ImageFile:
    if not file.exists():
        raise FormatError(f"{file}: no such file")
    try:
        return _checked(reader(file))
    except MemoryError as error:
        raise ComputeError(f"{file}: not enough memory to read the image") from error
    except Exception as error:  # whatever a library raises for a damaged file
        fault = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(f"{file}: cannot be read as an image: {fault[:200]}") from error


def _reader(path: Path, *, in_colors: bool = True) -> Callable[[Path], ImageFile]:
    from napari_saf.io._tiff import read_indexed_tiff, read_tiff
    from napari_saf.io._zarr import read_zarr

    if path.is_dir():
        return read_zarr
    suffix = path.suffix.lower()
    if suffix in (".tif", ".tiff"):
        return read_tiff if in_colors else read_indexed_tiff
    if suffix == ".npy":
        return _read_npy
    return _read_picture if in_colors else _read_indices


def _checked(image: ImageFile) -> ImageFile:
    if image.array.dtype.kind not in "biuf":
        raise ValueError(f"expected real numbers, got {image.array.dtype}")
    if image.array.size == 0 or image.array.ndim == 0:
        raise ValueError(f"expected pixels, got an array of shape {image.array.shape}")
    return image


def _read_npy(path: Path) -> ImageFile:
    check_room(path.stat().st_size)
    with path.open("rb") as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    is_rgb = array.ndim >= 3 and array.shape[-1] in (3, 4)
    names = "tzyx"[-(array.ndim - is_rgb) :] if array.ndim - is_rgb <= 4 else ""
    return ImageFile(array, array.ndim - 1 if is_rgb else None, names + "c" * is_rgb)


def _read_indices(path: Path) -> ImageFile:
    """Read a picture; an indexed one as indices, whatever colours they stand for."""
    indices = _indices(path, any_palette=True)
    return _read_picture(path) if indices is None else ImageFile(indices, None, "yx")


def _indices(path: Path, *, any_palette: bool) -> NDArray[Any] | None:
    from PIL import Image

    with Image.open(path) as image:
        is_labels = image.info.get(PNG_MARK[0]) == PNG_MARK[1]
        if image.mode != "P" or not (any_palette or is_labels):
            return None
        return np.asarray(image)


def _mode(path: Path) -> str:
    from PIL import Image

    with Image.open(path) as image:
        # Of an animation imageio keeps all frames; four bytes hold a pixel of any mode.
        n_pixels = image.width * image.height * getattr(image, "n_frames", 1)
        check_room(4 * n_pixels, path.stat().st_size)
        return str(image.mode)


def _read_picture(path: Path) -> ImageFile:
    import imageio.v3 as iio

    indices = _indices(path, any_palette=False)
    if indices is not None:
        return ImageFile(indices, None, "yx")

    # By name: left to itself imageio offers the file to every plugin it has, FFmpeg included.
    array = iio.imread(path, plugin="pillow", mode="RGB" if _mode(path) == "CMYK" else None)
    if array.ndim == 3 and array.shape[-1] == 2:
        array = array[..., 0]
    channels = array.ndim > 2 and array.shape[-1] in (3, 4)
    names = "tzyx"[-(array.ndim - channels) :] + "c" * channels
    image = ImageFile(array, array.ndim - 1 if channels else None, names)
    return image.without_single_planes()
