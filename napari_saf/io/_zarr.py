"""OME-Zarr folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr

from napari_saf.io._image_file import ImageFile
from napari_saf.io._untrusted import check_room

__all__ = ["read_zarr"]


def read_zarr(path: Path) -> ImageFile:
    """Read the finest level of the first multiscale image of an OME-Zarr folder (0.1 to 0.5)."""
    group = zarr.open_group(path, mode="r")
    attributes: Any = dict(group.attrs)
    multiscales = attributes.get("ome", attributes).get("multiscales")
    if not multiscales:
        raise ValueError("the folder holds no OME-Zarr image")
    described = multiscales[0]
    dataset = described["datasets"][0]
    stored: Any = group[dataset["path"]]
    if stored.dtype.kind not in "biuf":
        # Before a pixel is read: chunks of objects may be pickled.
        raise ValueError(f"expected real numbers, got {stored.dtype}")
    check_room(stored.nbytes)
    array = np.asarray(stored)
    axes = [_named(axis) for axis in described.get("axes", "tczyx")][-array.ndim :]
    if len(axes) != array.ndim:
        raise ValueError(f"{len(axes)} axes are named, the array has {array.ndim}")
    scale = _scale(described, dataset, array.ndim)
    names = "".join(name for name, _ in axes)
    spatial = [k for k, name in enumerate(names) if name != "c"]
    channel = names.find("c")
    return ImageFile(
        array,
        None if channel < 0 else channel,
        names,
        None if scale is None else tuple(scale[k] for k in spatial),
        None if scale is None else tuple(axes[k][1] for k in spatial),
    ).without_single_planes()


def _named(axis: Any) -> tuple[str, str]:
    """Return the letter and the unit of an axis; before version 0.4 axes were strings."""
    if isinstance(axis, str):
        return axis, "pixel"
    kinds = {"channel": "c", "time": "t"}
    name = kinds.get(axis.get("type"), str(axis["name"]))
    return name[:1].lower(), str(axis.get("unit", "pixel"))


def _scale(described: Any, dataset: Any, n_axes: int) -> list[float] | None:
    found = None
    for place in (dataset, described):
        for transformation in place.get("coordinateTransformations", []):
            if transformation.get("type") == "scale":
                sizes = np.asarray(transformation["scale"], dtype=float)
                found = sizes if found is None else found * sizes
    if found is None:
        return None
    if found.shape != (n_axes,) or not (np.isfinite(found) & (found > 0)).all():
        raise ValueError(f"scale: expected {n_axes} sizes above 0, got {found.tolist()}")
    return [float(size) for size in found]
