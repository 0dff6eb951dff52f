"""Graphs: what is a neighbour of what, and how to average over neighbours."""

from napari_saf.graph._affinity import AffinityGraph
from napari_saf.graph._coarse import CoarseGrid, coarse_mask, coarse_means
from napari_saf.graph._distances import (
    Neighbours,
    mean_nearest_distance,
    nearest_neighbours,
    path_costs,
    path_lengths,
)
from napari_saf.graph._graph import (
    AbstractGraph,
    Averager,
    SparseProduct,
    asymmetry,
    square_matrix,
    symmetric_part,
)
from napari_saf.graph._grid import GridGraph
from napari_saf.graph._shape import check_mask, check_window, coarse_shape, inside_of
from napari_saf.graph._union import GraphUnion

__all__ = [
    "AbstractGraph",
    "AffinityGraph",
    "Averager",
    "CoarseGrid",
    "GraphUnion",
    "GridGraph",
    "Neighbours",
    "SparseProduct",
    "asymmetry",
    "check_mask",
    "check_window",
    "coarse_mask",
    "coarse_means",
    "coarse_shape",
    "inside_of",
    "mean_nearest_distance",
    "nearest_neighbours",
    "path_costs",
    "path_lengths",
    "square_matrix",
    "symmetric_part",
]
