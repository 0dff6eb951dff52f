"""Region hierarchies: labels cut by colour into regions, which are merged pairwise."""

from napari_saf.regions._graph import WEIGHTS, RegionGraph
from napari_saf.regions._hierarchy import (
    LEAST_SHARE,
    USUAL_LEVEL,
    RegionHierarchy,
    least_size,
    merge_regions,
)
from napari_saf.regions._separate import Separate, find_separate

__all__ = [
    "LEAST_SHARE",
    "USUAL_LEVEL",
    "WEIGHTS",
    "RegionGraph",
    "RegionHierarchy",
    "Separate",
    "find_separate",
    "least_size",
    "merge_regions",
]
