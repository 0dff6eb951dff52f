"""Graphs: what is a neighbour of what, and how to average over neighbours."""

from napari_saf.graph._affinity import AffinityGraph
from napari_saf.graph._graph import AbstractGraph, Averager
from napari_saf.graph._grid import GridGraph, check_mask, check_window
from napari_saf.graph._union import GraphUnion

__all__ = [
    "AbstractGraph",
    "AffinityGraph",
    "Averager",
    "GraphUnion",
    "GridGraph",
    "check_mask",
    "check_window",
]
