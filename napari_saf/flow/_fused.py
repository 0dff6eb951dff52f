"""Steps of flows on a processor by the compiled kernels of `_kernels.py`, in several threads.

numba keeps the machine code on disk. Until it is there a process compiles it in the background,
and torch computes.
"""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from napari_saf.device import Tensor, torch
from napari_saf.errors import Cancelled
from napari_saf.flow._field import AbstractField
from napari_saf.graph import (
    AbstractGraph,
    Averager,
    BoxSum,
    GraphUnion,
    GridGraph,
    UnionAverager,
    WeightedAverage,
)

_log = logging.getLogger(__name__)

SWITCH = "NAPARI_SAF_KERNELS"
"""The environment variable that switches the kernels off where it is 0."""
_COMMAND = "from napari_saf.flow import _kernels; _kernels.compile_all()"
_LEAST_ENTRIES = 2**16
"""Below, a run gains less than the time that it takes to load the kernels, once in a process."""
_MANY_ENTRIES = 2**22
_CACHED_FLOATS = 2**18
"""Of the buffers of a box, so that they stay in the second-level cache."""
_MOST_IN_ROW = 1024
_LEAST_SLICES = 64
_NODES = 2**14
"""Nodes of a block where the geometry does not matter."""
_CALLS = 8
"""Calls a thread: with fewer the slowest thread is waited for, with more buffers are made anew."""


def kernels() -> ModuleType | None:
    """Return the module of the compiled functions; None where there are none, or not yet.

    Where there are none yet they are compiled in the background.
    """
    try:
        return None if os.environ.get(SWITCH) == "0" else _compiled()
    except Exception:  # noqa: BLE001 - whatever goes wrong, torch computes
        _log.info("no compiled kernels", exc_info=True)
        return None


def wait_for_kernels() -> None:
    """Wait until the kernels are compiled, so that all runs are computed alike."""
    if kernels() is None and _compilers:
        _compilers[0].wait()


_compilers: list[subprocess.Popen[bytes]] = []
"""The process that compiles, if this one has started it."""


def _compiled() -> ModuleType | None:
    import napari_saf.flow._kernels as _kernels

    if _kernels.marker().exists():
        _kernels.load()
        return _kernels
    if not _compilers:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        _compilers.append(process)
    return None


class Grid(NamedTuple):
    """A grid of at most three axes, seen as slices of rows of pixels, as `_kernels.step` reads it.

    `geometry` has three sides, three radii of the window, and the first node. Images of `weights`
    are for positions of the window, which lie at `offsets`; sums over the window times `inverse`
    (n_nodes,) are means. With a mask `n_before` counts the nodes before each pixel, and `pixels`
    says which pixel each node is.
    """

    weights: NDArray[Any]
    offsets: NDArray[Any]
    inverse: NDArray[Any]
    n_before: NDArray[Any]
    pixels: NDArray[Any]
    geometry: NDArray[Any]

    @classmethod
    def of(cls, averager: Averager, first: int = 0) -> Grid | None:
        """Return the grid that an averager averages over, if the kernels know its kind."""
        if not isinstance(averager, BoxSum | WeightedAverage) or len(averager.shape) > 3:
            return None
        sides = _three(averager.shape, 1)
        n_before = pixels = np.zeros(0, np.int64)
        if averager.inside is not None:
            pixels = averager.inside.numpy()
            n_before = np.searchsorted(pixels, np.arange(np.prod(sides) + 1))
        weights: NDArray[Any] = np.zeros((0, 0), np.uint16)
        offsets, inverse = np.zeros((0, 3), np.int64), weights
        if isinstance(averager, WeightedAverage):
            whole = averager.weights.in_16_bits(slice(None) if averager.inside is None else pixels)
            weights, inverse = whole.images.reshape(len(whole.images), -1), whole.inverse
            offsets = np.array([_three(offset, 0) for offset in whole.offsets])
            radii = np.abs(offsets).max(axis=0)
        else:
            radii, counts = np.array(_three(averager.window, 1)) // 2, averager.counts
            inverse = _inverse_counts(sides, radii) if counts is None else 1 / counts.numpy()
        geometry = np.array([*sides, *radii, first])
        arrays = weights, offsets, inverse.ravel(), n_before, pixels, geometry
        return cls(*(np.require(array, requirements=["C", "W"]) for array in arrays))

    def boxes(self, n_columns: int) -> NDArray[np.int64]:
        """Return begin and end of each axis of boxes (n_boxes, 6) that cover the grid."""
        depth, height, width, rz, ry, _, _ = self.geometry.tolist()
        room = max(64, _CACHED_FLOATS // n_columns // (2 * rz + 4))
        n_x = -(-width // min(room, _MOST_IN_ROW if height == 1 else 128))
        n_y = -(-height // max(room // -(-width // n_x), 2 * ry, 1))
        n_z = -(-depth // max(_LEAST_SLICES, 12 * rz))
        cuts = [
            itertools.pairwise([side * k // n for k in range(n + 1)])
            for side, n in ((depth, n_z), (height, n_y), (width, n_x))
        ]
        return np.array([(*z, *y, *x) for z, y, x in itertools.product(*cuts)], np.int64)


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Return one number an axis, as slices, rows and pixels; an image has one row a slice."""
    if len(values) == 2:
        return int(values[0]), fill, int(values[1])
    return (fill,) * (3 - len(values)) + tuple(int(value) for value in values)


def _inverse_counts(sides: Sequence[int], radii: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return 1 over the number of pixels in the window around each pixel."""
    pairs = [(np.arange(side), side, r) for side, r in zip(sides, radii, strict=True)]
    z, y, x = (np.minimum(k + r, n - 1) - np.maximum(k - r, 0) + 1 for k, n, r in pairs)
    counts: NDArray[np.float32] = (z[:, None, None] * y[:, None] * x).astype(np.float32)
    return np.reciprocal(counts)


def saves_memory(graph: AbstractGraph, n_entries: int, device: torch.device) -> bool:
    """Return whether kernels step fields of so many entries on a graph, where memory matters."""
    grids = graph.grids if isinstance(graph, GraphUnion) else (graph,)
    is_known = all(isinstance(grid, GridGraph) and len(grid.shape) <= 3 for grid in grids)
    is_known &= device.type == "cpu" and n_entries >= _MANY_ENTRIES
    return is_known and kernels() is not None


class Fused:
    """The kernels at work on the fields of one flow, which have their columns first."""

    def __init__(
        self, field: AbstractField, grids: Sequence[Grid], module: ModuleType, planes: Tensor
    ) -> None:
        self._field, self._grids, self._module = field, grids, module
        self._planes, n_nodes = planes.numpy(), planes.shape[1]
        starts = np.arange(0, n_nodes, _NODES)
        self._blocks = np.stack([starts, np.minimum(starts + _NODES, n_nodes)], axis=1)
        self._highest, self._entropy = np.empty(n_nodes, np.float32), 0.0
        self._n_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(max(1, self._n_threads - 1), "flow")

    @classmethod
    def of(cls, field: AbstractField, v: Tensor) -> Fused | None:
        """Return the kernels for a field; None if they do not suit it or are not there."""
        if v.numel() < _LEAST_ENTRIES or v.device.type != "cpu" or v.dtype != torch.float32:
            return None
        parts, averager = [(field.averager, 0)], field.averager
        if isinstance(averager, UnionAverager):
            parts = [(one, nodes.start) for one, nodes in averager.parts]
        grids = [grid for grid in itertools.starmap(Grid.of, parts) if grid is not None]
        module = kernels() if len(grids) == len(parts) else None
        planes = None if module is None else field.planes()
        return None if module is None or planes is None else cls(field, grids, module, planes)

    def attempt(
        self,
        fields: Sequence[Tensor],
        prediction: Sequence[float],
        correction: Sequence[float],
        seeds: Tensor | None,
    ) -> float:
        """Evaluate at the predicted state, correct it, and return the error.

        The fields (n_nodes, n_columns) are the state, its slope, the slope before, and what is
        written: the slope at the predicted state, and the corrected one. Slopes are int16 in which
        the kernels keep their 16 bits.
        """
        field, (n, c) = self._field, fields[0].shape
        if field.cancelled():
            raise Cancelled
        field.n_evaluations += 1
        numbers = np.array([*prediction, *correction])
        v, s, before, ahead_s, ahead = (_columns(one) for one in fields)
        state, out = (v, s, before), (ahead_s, ahead, self._highest)
        cost, sketch = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int16)
        fours, rank, sums = -(-c // 4) * 4, 0, np.zeros((0, c))
        if field.has_costs:
            cost = self._planes[:c]
        else:
            sketch, rank = self._planes, -(-len(self._planes) // 4) * 4
            calls = [((state, numbers, sketch, field.is_mixed), self._blocks)]
            sums = self._sum("overlap", calls, (fours + rank, fours))[:, :c]
        given = sums[: c if field.is_mixed else 2], sums[fours : fours + len(sketch)]
        affinity, own = (np.atleast_2d(one) for one in field.factors(*given))
        factors = np.zeros((rank + fours, c + c % 2), np.float32)
        factors[: len(affinity), : affinity.shape[1]] = affinity
        factors[rank : rank + len(own), : own.shape[1]] = own
        labels = np.zeros(0, np.int64) if seeds is None else seeds.numpy()
        common = state, numbers, out, cost, sketch, factors, field.is_mixed, labels
        steps = [((*common, *grid), grid.boxes(c)) for grid in self._grids]
        sums = self._sum("step", steps, (3 + 2 * c,))
        if field.has_costs:
            field.objective = sums[2] / n
            field.masses, field.squares = sums[3:].reshape(2, c)
        self._entropy = float(sums[1]) / n
        return float(sums[0]) / n

    def read(self, v: Tensor, labels: Tensor) -> tuple[float, float, NDArray[np.float64], Tensor]:
        """Update labels by the state of the last attempt; return what makes a `Reading`."""
        n, c = v.shape
        sums = self._sum("read", [((_columns(v), labels.numpy()), self._blocks)], (1 + c,))
        return float(sums[0]) / n, self._entropy, sums[1:], torch.from_numpy(self._highest)

    def _sum(
        self,
        name: str,
        calls: Sequence[tuple[tuple[Any, ...], NDArray[np.int64]]],
        shape: tuple[int, ...],
    ) -> NDArray[np.float64]:
        """Call a kernel with arguments for all boxes, in threads; return the sum over boxes."""
        function, jobs, sums = getattr(self._module, name), [], []
        n_parts = -(-_CALLS * self._n_threads // len(calls))
        for arguments, boxes in calls:
            sums.append(np.zeros((len(boxes), *shape)))
            cuts = np.linspace(0, len(boxes), min(len(boxes), n_parts) + 1).astype(int)
            for part in itertools.starmap(slice, itertools.pairwise(cuts)):
                jobs.append((*arguments, boxes[part], sums[-1][part]))
        queue = iter(jobs)

        def work() -> None:
            for job in queue:
                function(*job)

        helpers = [self._pool.submit(work) for _ in range(min(self._n_threads, len(jobs)) - 1)]
        try:
            for job in queue:
                if self._field.cancelled():
                    raise Cancelled
                function(*job)
        finally:
            for _ in queue:  # so that the helpers end
                pass
            for helper in helpers:
                helper.result()
        return np.concatenate(sums).sum(axis=0)  # type: ignore[no-any-return]


def _columns(field: Tensor) -> NDArray[Any]:
    """Return a field as (n_columns, n_nodes), slopes as they are kept."""
    array = field.T.numpy()
    return array.view(np.uint16) if array.dtype == np.int16 else array
