"""Masks from files as Labels layers with the metadata of a result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from napari.layers import Labels

from napari_saf import io
from napari_saf._gui.layers.live import colormap_of, label_colors
from napari_saf._gui.layers.metadata import (
    LEVEL_KEY,
    METADATA_KEY,
    NAMES_KEY,
    prototype_entries,
)
from napari_saf.errors import FormatError
from napari_saf.tiles import LARGE

LayerData = tuple[Any, dict[str, Any], str]


def read_layer(path: Path) -> LayerData:
    """Return a label image as data, arguments and kind of a layer; errors as `read_mask`."""
    levels = large_levels(path)
    mask = io.read_mask(path, lazily=bool(levels))
    if mask.labels.ndim < 2:
        raise FormatError(f"{path}: expected a label image, got shape {mask.labels.shape}")
    metadata: dict[str, Any] = {NAMES_KEY: dict(mask.names)}
    if mask.recipe is not None:
        points = {} if mask.prototypes is None else mask.prototypes.by_label()
        regions = mask.recipe.get("regions")
        level = {LEVEL_KEY: regions.get("level")} if isinstance(regions, dict) else {}
        metadata[METADATA_KEY] = {"recipe": mask.recipe} | prototype_entries(points) | level
    arguments: dict[str, Any] = {
        "name": io.image_stem(path),
        "colormap": colormap_of(label_colors(mask.colors)),
        "metadata": metadata,
    }
    labels, scale, units, placement = mask.labels, mask.scale, mask.units, mask.place
    if placement is not None and _longer(placement["shape"]) == _longer(labels.shape):
        labels = labels.reshape(placement["shape"])
        scale, units = placement["scale"], placement["units"]
        arguments["translate"] = tuple(placement["translate"])
        arguments |= {"affine": np.array(placement["affine"])} if "affine" in placement else {}
        if METADATA_KEY in metadata and placement["axes"] is not None:
            source = {name: placement[name] for name in ("axes", "singletons", "channels")}
            metadata[METADATA_KEY] |= source
    elif mask.origin is not None:
        arguments["translate"] = tuple(mask.origin)
    if scale is not None:
        arguments["scale"] = tuple(scale)
    if units is not None and _are_known(units):
        arguments["units"] = tuple(units)
    if mask.axes is not None and len(mask.axes) == labels.ndim:
        arguments["axis_labels"] = tuple(mask.axes)
    if len(levels) > 1:
        return levels, arguments | {"multiscale": True}, "labels"
    return labels, arguments, "labels"


def large_levels(path: Path) -> list[Any]:
    """Return the levels of an OME-Zarr mask larger than memory; none of other masks."""
    if not io.is_zarr(path):
        return []
    source = io.ImageSource.open(path)
    return source.levels() if math.prod(source.shape) >= LARGE else []


def _longer(shape: Sequence[int]) -> list[int]:
    return [side for side in shape if side > 1]


def _are_known(units: Sequence[str]) -> bool:
    """Tell whether napari knows units; words only, for it computes what it takes for a formula."""
    if not all(unit.isalpha() for unit in units):
        return False
    try:
        Labels(np.zeros((1,) * len(units), np.uint8), units=units)
    except (ValueError, AttributeError):
        return False
    return True
