"""Images from files: TIFF, OME-Zarr, NumPy arrays, and pictures as Pillow reads them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import ComputeError, FormatError
from napari_saf.storage import check_room

PNG_MARK = ("Comment", "napari-saf label image: the index of a pixel is its label")
"""Note in an indexed PNG whose indices count, not its colours."""
Sizes = dict[str, tuple[float, str]]
"""Size of a pixel and its unit, by the letter of the axis."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageFile:
    """An image as read from a file.

    Attributes
    ----------
    array : array
        The pixels; axes of length 1 other than y and x are left out, but for those of ``.npy``.
    channel_axis : int or None
        Axis of the channels; None if there are none.
    axes : str
        A lower-case letter for each axis, ``c`` for the channels.
    scale : tuple of float or None
        Size of a pixel along each axis except the channels; None if the file does not say.
    units : tuple of str or None
        Unit of each entry of `scale`; None if the file does not say.
    """

    array: NDArray[Any]
    channel_axis: int | None = None
    axes: str = ""
    scale: tuple[float, ...] | None = None
    units: tuple[str, ...] | None = None

    @classmethod
    def of(cls, array: NDArray[Any], axes: str, sizes: Sizes | None = None) -> ImageFile:
        """Return an image without axes of length 1 other than y and x.

        From a letter for each axis, and the sizes that the file says, by letter.
        """
        places = [k for k, name in enumerate(axes) if array.shape[k] > 1 or name in "yx"]
        names = "".join(axes[k] for k in places)
        found = [(sizes or {}).get(name) for name in names.replace("c", "")]
        scale = units = None
        if any(found):
            scale = tuple(size[0] if size else 1.0 for size in found)
            units = tuple(size[1] if size else "pixel" for size in found)
        pixels = array.reshape([array.shape[k] for k in places])
        return cls(pixels, names.index("c") if "c" in names else None, names, scale, units)

    @property
    def stated_channel_axis(self) -> int | None:
        """The axis of channels, None also where it is the last of RGB(A), known by its length."""
        axis = self.channel_axis
        is_last = axis == self.array.ndim - 1 and self.array.shape[-1] in (3, 4)
        return None if is_last else axis

    @property
    def label_axes(self) -> str:
        """Letters of the axes that a label image of this image has."""
        return self.axes.replace("c", "")


def read_image(path: str | os.PathLike[str]) -> ImageFile:
    """Read an image; nothing in the file is executed.

    TIFF (OME, ImageJ or plain), OME-Zarr folders and NumPy arrays (``.npy``) are read with
    their axes and the size of a pixel where the file gives them, other formats (PNG, JPEG,
    BMP, ...) as Pillow reads them.

    Raises
    ------
    FormatError
        Naming the file and what is wrong with it.
    ComputeError
        If the image does not fit into memory.
    """
    return _read(Path(path), in_colors=True)


def read_labels(path: str | os.PathLike[str]) -> ImageFile:
    """Read a label image; as `read_image`, but the index of an indexed PNG is the label.

    Raises
    ------
    FormatError
        As `read_image`, and if the file holds other than whole numbers of 0 and above.
    """
    file = Path(path)
    image = _read(file, in_colors=False)
    array = image.array
    if array.dtype.kind not in "biu" or array.min() < 0 or image.channel_axis is not None:
        raise FormatError(
            f"{file}: expected a label image, whole numbers of 0 and above, got {array.dtype} "
            f"of shape {array.shape}"
        )
    return image


def _read(file: Path, *, in_colors: bool) -> ImageFile:
    if not file.exists():
        raise FormatError(f"{file}: no such file")
    try:
        if file.is_dir():
            from napari_saf.io._zarr import read_zarr

            image = ImageFile.of(*read_zarr(file))
        else:
            image = _READERS.get(file.suffix.lower(), _read_picture)(file, in_colors)
        if image.array.dtype.kind not in "biuf":
            raise ValueError(f"expected real numbers, got {image.array.dtype}")
        if image.array.size == 0 or image.array.ndim == 0:
            raise ValueError(f"expected pixels, got an array of shape {image.array.shape}")
        return image
    except MemoryError as error:
        raise ComputeError(f"{file}: not enough memory to read the image") from error
    except Exception as error:  # whatever a library raises for a damaged file
        fault = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(f"{file}: cannot be read as an image: {fault[:200]}") from error


def _read_npy(path: Path, in_colors: bool) -> ImageFile:
    check_room(path.stat().st_size)
    with path.open("rb") as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    is_rgb = array.ndim >= 3 and array.shape[-1] in (3, 4)
    names = "tzyx"[-(array.ndim - is_rgb) :] if array.ndim - is_rgb <= 4 else ""
    return ImageFile(array, array.ndim - 1 if is_rgb else None, names + "c" * is_rgb)


def _read_picture(path: Path, in_colors: bool) -> ImageFile:
    """Read what Pillow knows; an indexed picture as indices if they are labels."""
    import imageio.v3 as iio
    from PIL import Image

    with Image.open(path) as picture:
        is_labels = not in_colors or picture.info.get(PNG_MARK[0]) == PNG_MARK[1]
        if picture.mode == "P" and is_labels:
            check_room(picture.width * picture.height, path.stat().st_size)
            return ImageFile(np.asarray(picture), None, "yx")
        # Of an animation imageio keeps all frames; four bytes hold a pixel of any mode.
        n_pixels = picture.width * picture.height * getattr(picture, "n_frames", 1)
        check_room(4 * n_pixels, path.stat().st_size)
        mode = "RGB" if picture.mode == "CMYK" else None
    # By name: left to itself imageio offers the file to every plugin it has, FFmpeg included.
    array = iio.imread(path, plugin="pillow", mode=mode)
    if array.ndim == 3 and array.shape[-1] == 2:  # grey with alpha
        array = array[..., 0]
    has_channels = array.ndim > 2 and array.shape[-1] in (3, 4)
    return ImageFile.of(array, "tzyx"[-(array.ndim - has_channels) :] + "c" * has_channels)


def _read_tiff(path: Path, in_colors: bool) -> ImageFile:
    """Read the first series of a TIFF file; a palette gives colours, or indices for labels."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        _check_companions(file)
        if not file.series:
            raise ValueError("it holds no image")
        series = file.series[0]
        axes = _letters(series.axes)
        kind = series.keyframe.photometric
        if kind == tifffile.PHOTOMETRIC.SEPARATED:
            raise ValueError("it holds inks (CMYK); save it as RGB")
        pages = [page for page in series.pages if page is not None] if file.is_ome else []
        handles = {page.parent.filehandle for page in pages} or {file.filehandle}
        check_room(series.nbytes, sum(int(handle.size) for handle in handles))
        array = series.asarray()
        if in_colors and kind == tifffile.PHOTOMETRIC.PALETTE:
            # Tables hold 16 bits a channel.
            array = (series.keyframe.colormap >> 8).astype(np.uint8).T[array]
            axes += "c"
        sizes = _ome_sizes(file) if file.is_ome else _imagej_sizes(file)
    return ImageFile.of(array, axes, sizes)


def _check_companions(file: Any) -> None:
    """Refuse OME metadata that name files outside the folder, before these are opened."""
    if not file.is_ome:
        return
    folder = Path(file.filehandle.dirname).resolve()
    for element in ElementTree.fromstring(file.ome_metadata or "").iter():
        name = element.get("FileName")
        if name and not (folder / name).resolve().is_relative_to(folder):
            raise ValueError(f"its pixels are said to be outside its folder, in {name}")


def _letters(axes: str) -> str:
    """Return a letter for each axis: unknown ones become those of t, z, y, x that are free."""
    if axes.count("S") + axes.count("C") > 1:
        raise ValueError(f"axes {axes}: expected one axis of channels")
    known = {"S": "c", "C": "c", "T": "t", "Z": "z", "Y": "y", "X": "x"}
    names = [known.get(axis, "") for axis in axes]
    free = [name for name in "ztyxuvw" if name not in names]
    return "".join(reversed([name or free.pop(0) for name in reversed(names)]))


def _ome_sizes(file: Any) -> Sizes:
    import tifffile

    metadata: Any = tifffile.xml2dict(file.ome_metadata or "").get("OME", {})
    image = metadata.get("Image", {})
    pixels = (image[0] if isinstance(image, list) else image).get("Pixels", {})
    keys = {"t": "TimeIncrement"} | {name: f"PhysicalSize{name.upper()}" for name in "zyx"}
    sizes: Sizes = {}
    for name, key in keys.items():
        size = float(pixels.get(key, 0))
        if 0 < size < float("inf"):
            default = "s" if name == "t" else "µm"
            sizes[name] = (size, str(pixels.get(f"{key}Unit", default)))
    return sizes


def _imagej_sizes(file: Any) -> Sizes:
    metadata = file.imagej_metadata
    if not metadata:
        return {}
    unit = str(metadata.get("unit", "pixel")).replace("\\u00B5", "µ")
    sizes = {"z": float(metadata["spacing"])} if "spacing" in metadata else {}
    tags = file.pages[0].tags
    for name, tag in (("y", "YResolution"), ("x", "XResolution")):
        count, length = tags[tag].value if tag in tags else (0, 1)
        if count and length and unit != "pixel":
            sizes[name] = length / count
    return {name: (size, unit) for name, size in sizes.items() if 0 < size < float("inf")}


_READERS: dict[str, Callable[[Path, bool], ImageFile]] = {
    ".tif": _read_tiff,
    ".tiff": _read_tiff,
    ".npy": _read_npy,
}
