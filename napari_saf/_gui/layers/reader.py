"""Reader of the masks saved by Export; importing it loads no other library.

napari selects readers by the filename patterns in their manifests: if several plugins match, it
asks the user, unless a preference is set. It therefore asks for `cells.labels.tif`, since its own
reader matches `*.tif`, but not for the zarr.json of an OME-Zarr, which only this reader matches.
Other files with such names are passed on to the reader of napari. A command in the menu Layers
turns a mask opened as an image into labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import napari
import npe2
import numpy as np
from napari.layers import Image, Labels, Layer
from napari.types import FullLayerData
from napari.utils.notifications import show_info

_SUFFIXES = ("tif", "tiff", "png", "npy", "nii", "nii.gz")
MASK_PATTERNS = tuple(f"*.labels.{suffix}" for suffix in _SUFFIXES)
"""Patterns of the manifest that the reader of napari matches as well."""
ZARR_FILE = "zarr.json"
Paths = str | list[str]


def get_reader(path: Paths) -> Callable[[Paths], list[Any]] | None:
    """Return the reader of masks if all names match one of its patterns, else None."""
    names = [Path(name).name.lower() for name in ([path] if isinstance(path, str) else path)]
    patterns = (*MASK_PATTERNS, ZARR_FILE)
    matches = all(any(fnmatch(name, pattern) for pattern in patterns) for name in names)
    return _read if matches else None


def _read(path: Paths) -> list[Any]:
    """Read a saved mask as a Labels layer; pass other files and stacks on to napari."""
    from napari_saf.io import is_own_mask

    files = [Path(name) for name in ([path] if isinstance(path, str) else path)]
    files = [file.parent if file.name.lower() == ZARR_FILE else file for file in files]
    is_stack = not isinstance(path, str)
    if not is_stack and is_own_mask(files[0]):
        return [read_layer(files[0])]
    return npe2.read([str(file) for file in files], stack=is_stack, plugin_name="napari")


def show_as_labels(viewer: napari.Viewer) -> None:
    """Replace the active image, opened from a saved mask, by its labels."""
    from napari_saf.errors import SafError
    from napari_saf.io import is_own_mask

    layer = viewer.layers.selection.active
    path = layer.source.path if isinstance(layer, Image) else None
    if not path or not is_own_mask(Path(path)):
        show_info("Select an image layer that was opened from a mask saved by napari-saf.")
        return
    try:
        labels = Layer.create(*read_layer(Path(path)))
    except SafError as error:
        show_info(str(error))
        return
    index = viewer.layers.index(layer)
    viewer.layers.remove(layer)
    viewer.layers.insert(index, labels)


def read_layer(path: Path) -> FullLayerData:
    """Return a label image as data, arguments and type of a layer; errors as in `read_mask`."""
    from napari_saf import io
    from napari_saf._gui.layers.large import large_levels
    from napari_saf._gui.layers.live import colormap_of, label_colors
    from napari_saf._gui.layers.metadata import (
        LEVEL_KEY,
        METADATA_KEY,
        NAMES_KEY,
        Metadata,
        prototype_entries,
    )
    from napari_saf.errors import FormatError

    levels = large_levels(path)
    mask = io.read_mask(path, lazily=bool(levels))
    if mask.labels.ndim < 2:
        raise FormatError(f"{path}: expected a label image, got shape {mask.labels.shape}")
    metadata: Metadata = {NAMES_KEY: dict(mask.names)}
    if mask.recipe is not None:
        points = {} if mask.prototypes is None else mask.prototypes.by_label()
        metadata[METADATA_KEY] = {"recipe": mask.recipe} | prototype_entries(points)
        if isinstance(regions := mask.recipe.get("regions"), dict):
            metadata[METADATA_KEY][LEVEL_KEY] = regions.get("level")
    colormap = colormap_of(label_colors(mask.colors))
    arguments = {"name": io.image_stem(path), "colormap": colormap, "metadata": metadata}
    geometry = mask.place
    if geometry is not None and _without_ones(geometry["shape"]) == _without_ones(
        mask.labels.shape
    ):
        labels, units = mask.labels.reshape(geometry["shape"]), geometry["units"]
        transform = {name: geometry.get(name) for name in ("scale", "translate", "affine")}
        if mask.recipe is not None and geometry["axes"] is not None:
            axes = {name: geometry[name] for name in ("axes", "singletons", "channels")}
            metadata[METADATA_KEY] |= axes
    else:
        labels, units = mask.labels, mask.units
        transform = {"scale": mask.scale, "translate": mask.origin}
    transform["units"] = units if units is not None and _are_known(units) else None
    if mask.axes is not None and len(mask.axes) == labels.ndim:
        transform["axis_labels"] = tuple(mask.axes)
    arguments |= {name: value for name, value in transform.items() if value is not None}
    if len(levels) > 1:
        return levels, arguments | {"multiscale": True}, "labels"
    return labels, arguments, "labels"


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [side for side in shape if side > 1]


def _are_known(units: Sequence[str]) -> bool:
    """Return whether napari knows all units; only words, as it evaluates expressions."""
    if not all(unit.isalpha() for unit in units):
        return False
    try:
        Labels(np.zeros((1,) * len(units), np.uint8), units=units)
    except (ValueError, AttributeError):
        return False
    return True
