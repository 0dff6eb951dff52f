"""Label masks as TIFF that both OME and ImageJ understand."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.io._axes import Axes, symbol
from napari_saf.io._legend import Legend

__all__ = ["MaskDescription", "write_tiff"]

_IMAGE_DESCRIPTION, _MAKE, _ASCII = 270, 271, 2
_IMAGEJ_UNITS = {"µm": "micron"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MaskDescription:
    """What a file tells of a mask beside its labels."""

    name: str
    axes: Axes
    legend: Legend


def write_tiff(
    path: Path, labels: NDArray[np.unsignedinteger[Any]], described: MaskDescription
) -> None:
    """Write an OME-TIFF whose first page also holds the description that ImageJ reads."""
    import tifffile

    axes, is_little = described.axes, "<"
    extra: list[Any] = [(_MAKE, _ASCII, 0, _imagej_description(labels, axes), True)]
    if labels.dtype == np.uint8:
        table = described.legend.palette().T
        extra += tifffile.imagej_metadata_tag({"LUTs": [table]}, is_little)
    with tifffile.TiffWriter(
        path, ome=True, bigtiff=labels.nbytes > 2**31, byteorder=is_little
    ) as file:
        file.write(
            labels,
            compression="zlib",
            photometric="minisblack",
            metadata=_ome_entries(axes),
            resolution=_pixels_per_unit(axes),
            resolutionunit="none",
            extratags=extra,
        )
    _rename_tag(path)


def _rename_tag(path: Path) -> None:
    """Make of the tag that holds ImageJ's text a second description.

    Two descriptions are how OME and ImageJ can share a file: each reads the one that it knows.
    tifffile writes a second one only of its own.
    """
    import tifffile

    with tifffile.TiffFile(path) as file:
        place = file.pages[0].tags[_MAKE].offset
    with path.open("r+b") as stream:
        stream.seek(place)
        stream.write(_IMAGE_DESCRIPTION.to_bytes(2, "little"))


def _ome_entries(axes: Axes) -> dict[str, object]:
    entries: dict[str, object] = {"axes": axes.names.upper()}
    for k, name in enumerate(axes.names):
        if name == "t" and (axes.units is None or symbol(axes.units[k]) == "pixel"):
            continue  # frames are no unit of time
        key = "TimeIncrement" if name == "t" else f"PhysicalSize{name.upper()}"
        if axes.scale is not None:
            entries[key] = axes.scale[k]
        if axes.units is not None:
            entries[f"{key}Unit"] = symbol(axes.units[k])
    return entries


def _imagej_description(labels: NDArray[Any], axes: Axes) -> str:
    """Return the lines that ImageJ keeps in the description of an image."""
    sides = dict(zip(axes.names, labels.shape, strict=True))
    scale = dict(zip(axes.names, axes.scale or (), strict=False))
    units = dict(zip(axes.names, axes.units or (), strict=False))
    slices, frames = sides.get("z", 1), sides.get("t", 1)
    lines = ["ImageJ=1.54f"]
    if slices * frames > 1:
        lines += [f"images={slices * frames}", f"slices={slices}", f"frames={frames}"]
        lines += ["hyperstack=true"] * (slices > 1 and frames > 1)
    unit = symbol(units.get("x", "pixel"))
    lines += [f"unit={_IMAGEJ_UNITS.get(unit, unit)}"] if unit.isascii() or unit == "µm" else []
    lines += [f"spacing={scale['z']!r}"] if "z" in scale else []
    lines += [f"finterval={scale['t']!r}"] if "t" in scale else []
    # The lookup table of the labels covers the numbers from 0 to 255.
    most = 255 if labels.dtype == np.uint8 else int(labels.max())
    return "\n".join([*lines, "loop=false", "min=0.0", f"max={most}.0", ""])


def _pixels_per_unit(axes: Axes) -> tuple[float, float]:
    scale = dict(zip(axes.names, axes.scale or (), strict=False))
    dense = [1 / scale.get(name, 1.0) for name in "xy"]
    in_range = [value if 1e-6 < value < 1e6 and math.isfinite(value) else 1.0 for value in dense]
    return in_range[0], in_range[1]
