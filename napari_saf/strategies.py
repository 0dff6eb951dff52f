"""Unsupported features of each labelling strategy, with the error messages."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from napari_saf.errors import InvalidInput


class Strategy(enum.Enum):
    """Execution of a pipeline on one image or many."""

    WHOLE = "an image in memory"
    TILES_IN_MEMORY = "tiles in memory"
    TILES_ON_DISK = "tiles on disk"
    FOLDER = "a folder"
    CLUSTER = "several processes"


_GRAPH = "recipe: it was made by a run on a graph, not on an image"
LIMITS: Mapping[Strategy, Mapping[str, str]] = {
    Strategy.WHOLE: {"graph": _GRAPH},
    Strategy.TILES_IN_MEMORY: {},
    Strategy.TILES_ON_DISK: {
        "graph": _GRAPH,
        "groups": "groups: {groups!r} depends on the whole image; use groups from a channel "
        "(channel:N), or cluster a smaller image and use the prototypes of its result",
        "strokes": "method: {method} needs strokes; paint strokes on a part of the image, save its "
        "classifier or recipe, which contains their prototypes, and use that file",
        "stroke files": "--seeds, --groups: files are not supported in tiles; make a recipe from "
        "strokes on a part of the image, and use that",
        "map format": "--probabilities: expected .ome.zarr in tiles",
        "maps of a dictionary": "probabilities: a dictionary labels pixels by their nearest atom",
        "reconstruction": "--{option}: requires an output folder; {out} contains the labels alone",
        "together": "--together: images cannot be labelled jointly in tiles",
        "axis order": "{path}: labels in an image must have its order of axes, which is not t, z, "
        "y, x; give a name that ends in .ome.zarr",
        "pixel exports": "labels: on disk, only a table, outlines and the recipe can be exported; "
        "the label image already is an OME-Zarr",
    },
    Strategy.FOLDER: {
        "graph": _GRAPH,
        "options of a dictionary": "a patch dictionary labels pixels by their nearest atom and "
        "scales images as those that it was learned from: there are no probabilities, no scaling, "
        "no mask",
        "dictionary in tiles": "--tile, --dry-run: a dictionary labels one image in tiles, by "
        "`dictionary apply` into OUT.ome.zarr",
    },
    Strategy.CLUSTER: {
        "array": "source: an array in memory is not sent to other processes; save it as zarr or "
        ".npy and give its path, or omit --jobs and client"
    },
}
"""Error message by strategy and feature: the reason, and an alternative."""


def refusal(strategy: Strategy, feature: str, **values: object) -> InvalidInput:
    """Return the error for an unsupported feature of a strategy; `values` fill its message."""
    return InvalidInput(LIMITS[strategy][feature].format(**values))
