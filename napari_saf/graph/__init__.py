"""Graphs: neighbourhoods of nodes, and averages over them."""

from napari_saf.graph._box import BoxSum, WeightedAverage
from napari_saf.graph._distances import (
    NearestDistances,
    Neighbours,
    mean_nearest_distance,
    nearest_neighbours,
    path_costs,
    squared_steps,
)
from napari_saf.graph._graph import (
    AbstractGraph,
    AffinityGraph,
    Averager,
    SparseProduct,
    check_symmetric,
    square_matrix,
    symmetric_part,
)
from napari_saf.graph._grid import GridGraph, coarse_shape
from napari_saf.graph._images import (
    CoarseGrid,
    CoarseMeans,
    GraphUnion,
    UnionAverager,
    coarse_means,
)
