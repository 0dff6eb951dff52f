"""TIFF files with the axes and the size of a pixel that OME or ImageJ wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import tifffile

from napari_saf.io._image_file import ImageFile
from napari_saf.io._untrusted import check_room

__all__ = ["read_indexed_tiff", "read_tiff"]

_NAMED = {"S": "c", "C": "c", "T": "t", "Z": "z", "Y": "y", "X": "x"}


def read_tiff(path: Path) -> ImageFile:
    """Read the first series of a TIFF file, in colours where it has a palette."""
    return _read(path, in_colors=True)


def read_indexed_tiff(path: Path) -> ImageFile:
    """Read the first series of a TIFF file, as indices where it has a palette."""
    return _read(path, in_colors=False)


def _read(path: Path, *, in_colors: bool) -> ImageFile:
    with tifffile.TiffFile(path) as file:
        _check_companions(file)
        if not file.series:
            raise ValueError("it holds no image")
        series = file.series[0]
        names = _names(series.axes)
        kind = series.keyframe.photometric
        if kind == tifffile.PHOTOMETRIC.SEPARATED:
            raise ValueError("it holds inks (CMYK); save it as RGB")
        check_room(series.nbytes, _n_stored(file, series))
        array = series.asarray()
        if in_colors and kind == tifffile.PHOTOMETRIC.PALETTE:
            # Tables hold 16 bits a channel.
            array = (series.keyframe.colormap >> 8).astype(np.uint8).T[array]
            names += "c"
        sizes = _ome_sizes(file) if file.is_ome else _imagej_sizes(file)
    spatial = names.replace("c", "")
    known = [sizes.get(name) for name in spatial]
    scale = units = None
    if any(known):
        scale = tuple(size[0] if size else 1.0 for size in known)
        units = tuple(size[1] if size else "pixel" for size in known)
    channel = names.find("c")
    image = ImageFile(array, None if channel < 0 else channel, names, scale, units)
    return image.without_single_planes()


def _check_companions(file: tifffile.TiffFile) -> None:
    """Refuse OME metadata that name files outside the folder, before these are opened."""
    if not file.is_ome:
        return
    folder = Path(file.filehandle.dirname).resolve()
    for element in ElementTree.fromstring(file.ome_metadata or "").iter():
        name = element.get("FileName")
        if name and not (folder / name).resolve().is_relative_to(folder):
            raise ValueError(f"its pixels are said to be outside its folder, in {name}")


def _n_stored(file: tifffile.TiffFile, series: tifffile.TiffPageSeries) -> int:
    """Return the size of the file, or of all over which OME spreads a series."""
    if not file.is_ome:
        return int(file.filehandle.size)
    handles = {page.parent.filehandle for page in series.pages if page is not None}
    return sum(int(handle.size) for handle in handles)


def _names(axes: str) -> str:
    """Return a letter an axis: unknown ones become those of t, z, y, x that are free."""
    if axes.count("S") + axes.count("C") > 1:
        raise ValueError(f"axes {axes}: expected one axis of channels")
    names = [_NAMED.get(axis, "") for axis in axes]
    free = [name for name in "tzyxuvw" if name not in names]
    for k in range(len(names) - 1, -1, -1):
        if not names[k]:
            preferred = "z" if "z" in free else free[0]
            names[k] = preferred
            free.remove(preferred)
    return "".join(names)


def _ome_sizes(file: tifffile.TiffFile) -> dict[str, tuple[float, str]]:
    described: Any = tifffile.xml2dict(file.ome_metadata or "").get("OME", {})
    image = described.get("Image", {})
    pixels = (image[0] if isinstance(image, list) else image).get("Pixels", {})
    keys = {"t": "TimeIncrement"} | {name: f"PhysicalSize{name.upper()}" for name in "zyx"}
    found = {}
    for name, key in keys.items():
        size = float(pixels.get(key, 0))
        if 0 < size < float("inf"):
            default = "s" if name == "t" else "µm"
            found[name] = (size, str(pixels.get(f"{key}Unit", default)))
    return found


def _imagej_sizes(file: tifffile.TiffFile) -> dict[str, tuple[float, str]]:
    metadata: Any = file.imagej_metadata
    if not metadata:
        return {}
    unit = str(metadata.get("unit", "pixel")).replace("\\u00B5", "µ")
    found = {"z": (float(metadata["spacing"]), unit)} if "spacing" in metadata else {}
    tags = file.pages[0].tags
    for name, tag in (("y", "YResolution"), ("x", "XResolution")):
        count, length = tags[tag].value if tag in tags else (0, 1)
        if count and length and unit != "pixel":
            found[name] = (length / count, unit)
    return {name: size for name, size in found.items() if 0 < size[0] < float("inf")}
