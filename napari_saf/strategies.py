"""What each strategy of labelling cannot do, in words: the one table of refusals."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from napari_saf.errors import InvalidInput


class Strategy(enum.Enum):
    """How a pipeline gets through an image, or through many."""

    WHOLE = "an image in memory"
    TILES_IN_MEMORY = "tiles in memory"
    TILES_ON_DISK = "tiles on disk"
    FOLDER = "a folder"
    CLUSTER = "several processes"


_GRAPH = "recipe: is of a run on a graph, not on an image"
LIMITS: Mapping[Strategy, Mapping[str, str]] = {
    Strategy.WHOLE: {"graph": _GRAPH},
    Strategy.TILES_IN_MEMORY: {},
    Strategy.TILES_ON_DISK: {
        "graph": _GRAPH,
        "groups": "groups: {groups!r} of blocks are not those of the whole image; take a channel "
        "(channel:N), or cluster a smaller image and give the prototypes of its result",
        "strokes": "method: {method} needs strokes; paint on a part of the image, save its "
        "classifier or recipe, which hold what the strokes taught, and give that",
        "stroke files": "--seeds, --groups: files are not read in tiles; let strokes on a part of "
        "the image teach a recipe, and give that",
        "map format": "--probabilities: in tiles they are .ome.zarr",
        "maps of a dictionary": "probabilities: a dictionary labels pixels by their nearest atom",
        "reconstruction": "--{option}: goes with a folder; {out} gets the labels alone",
        "together": "--together: images are not labelled as one in tiles",
        "axis order": "{path}: labels within an image have its order of axes, which is not t, z, "
        "y, x; give a name that ends in .ome.zarr",
        "pixel exports": "labels that are not in memory: a table, outlines and the recipe can be "
        "saved of them; the label image is an OME-Zarr already",
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
        ".npy and give its path, or do without --jobs and client"
    },
}
"""By strategy and feature: why it is refused, and what to do instead."""


def refusal(strategy: Strategy, feature: str, **values: object) -> InvalidInput:
    """Return the error to raise where a strategy cannot do something; `values` fill its text."""
    return InvalidInput(LIMITS[strategy][feature].format(**values))
