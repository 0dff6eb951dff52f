"""Nodes of large graphs in an order in which neighbours lie close together in memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

from napari_saf.graph import AffinityGraph
from napari_saf.methods._method import Call
from napari_saf.problem import Problem

__all__ = ["in_local_order"]

_LEAST_NODES = 2**16
"""With fewer, the fields stay near the processor in any order."""


def in_local_order(call: Call) -> tuple[Call, NDArray[np.int64] | None]:
    """Return a call on the same problem with its nodes in an order that makes products faster.

    And that order, None where there is no need.
    """
    whole, graph = call.problem, call.problem.graph
    if graph.n_nodes < _LEAST_NODES or not isinstance(graph, AffinityGraph):
        return call, None
    nodes, ordered = whole.remember("graph in local order", lambda: _in_local_order(graph))
    seeds, groups = (None if x is None else x[nodes] for x in (whole.seeds, whole.groups))
    initial = None if call.initial is None else np.asarray(call.initial)
    if initial is not None and initial.shape[:1] == nodes.shape:
        initial = initial[nodes]
    moved = dataclasses.replace(
        call,
        problem=Problem(whole.features[nodes], ordered, seeds=seeds, groups=groups),
        features=call.features[torch.from_numpy(nodes).to(call.features.device)],
        initial=initial,
    )
    return moved, nodes


def _in_local_order(graph: AffinityGraph) -> tuple[NDArray[np.int64], AffinityGraph]:
    nodes = graph.local_order()
    return nodes, graph.in_order(nodes)
