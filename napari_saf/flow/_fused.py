"""Multithreaded steps of flows on the CPU by the compiled kernels of `_kernels`.

numba caches the machine code on disk. torch steps the flow while a background process compiles it:
compilation within the first run takes 87 s in place of 34 s, on two busy cores.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from napari_saf import graph as graphs
from napari_saf.arrays import Array, Float64s
from napari_saf.device import Tensor, torch
from napari_saf.errors import Cancelled
from napari_saf.flow._field import AbstractField

_log = logging.getLogger(__name__)

SWITCH = "NAPARI_SAF_KERNELS"
"""Environment variable that disables the kernels with the value 0."""
_COMMAND = "from napari_saf.flow import _kernels; _kernels.compile_all()"
_LEAST_ENTRIES = 2**16
"""Smallest field for which kernels are loaded."""
_MANY_ENTRIES = 2**22
_CACHED_FLOATS = 2**18
"""Size of the buffers of a box, to fit the second-level cache."""
_MOST_IN_ROW = 1024
_LEAST_SLICES = 64
_NODES = 2**14
"""Nodes per block of kernels without geometry."""
_READ = 2**16
"""Nodes per block of label updates."""


_compilers: list[subprocess.Popen[bytes]] = []
"""Compiler process started by this process."""


def kernels() -> ModuleType | None:
    """Return the compiled kernels; None during background compilation or if it fails."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
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
    except Exception:  # noqa: BLE001 - whatever goes wrong, torch computes
        _log.info("no compiled kernels", exc_info=True)
    return None


def wait_for_kernels() -> None:
    """Wait for the compilation of the kernels, so that all runs give the same labels."""
    if kernels() is None and _compilers:
        _compilers[0].wait()


class Grid(NamedTuple):
    """Grid of up to three axes, as slices of rows of pixels, in the format of `_kernels.step`.

    `weights` are images for window positions, concatenated; `offsets` (n_positions, 4) are the
    coordinates of a position and the start of its image. Sums over the window times `inverse`
    (n_nodes,) are means. `runs` of consecutive nodes in a row are first pixel, last pixel + 1 and
    first node; those of a row begin at `rows`. `geometry` are three sides and three window radii.
    """

    weights: Array
    offsets: Array
    inverse: Array
    runs: Array
    rows: Array
    geometry: tuple[int, ...]

    @classmethod
    def of(cls, averager: graphs.Averager, first: int = 0) -> Grid | None:
        """Return the grid of an averager; None if the kernels do not support it."""
        if (
            not isinstance(averager, graphs.BoxSum | graphs.WeightedAverage)
            or len(averager.shape) > 3
        ):
            return None
        sides = _three(averager.shape, 1)
        n_pixels, width = math.prod(sides), sides[-1]
        pixels: Any = slice(None)
        starts = begins = np.arange(0, n_pixels, width)
        lengths = np.full(len(starts), width)
        if averager.inside is not None:
            pixels = averager.inside.numpy()
            begins = np.flatnonzero((np.diff(pixels, prepend=-2) != 1) | (pixels % width == 0))
            starts, lengths = pixels[begins], np.diff(begins, append=len(pixels))
        runs = np.stack([starts % width, starts % width + lengths, begins + first], axis=1)
        rows = np.searchsorted(starts, np.arange(0, n_pixels + 1, width))
        if isinstance(averager, graphs.WeightedAverage):
            quantized = averager.weights.in_16_bits(pixels)
            weights: Array = quantized.images.ravel()
            inverse: Array = quantized.inverse
            offsets = np.array([_three(offset, 0) for offset in quantized.offsets])
            radii, image = np.abs(offsets).max(axis=0), np.arange(len(offsets))
            # Images may cover half of the positions: w_o(p) = w_-o(p + o).
            mirrored = image[::-1] * n_pixels + offsets @ [sides[1] * width, width, 1]
            begins = np.where(image < len(quantized.images), image * n_pixels, mirrored)
            offsets = np.column_stack([offsets, begins])
        else:
            weights, offsets = np.zeros(0, np.uint16), np.zeros((0, 4), np.int64)
            radii = np.array(_three(averager.window, 1)) // 2
            axes = [(np.arange(side), r) for side, r in zip(sides, radii, strict=True)]
            counts = [np.minimum(k + r, k[-1]) - np.maximum(k - r, 0) + 1.0 for k, r in axes]
            inverse = 1 / functools.reduce(np.multiply.outer, counts)
            if averager.counts is not None:
                inverse = 1 / averager.counts.numpy()
        return cls(weights, offsets, inverse.ravel(), runs, rows, (*sides, *radii.tolist()))

    def boxes(self, n_columns: int) -> list[tuple[int, ...]]:
        """Return bounds (z0, z1, y0, y1, x0, x1) of boxes that cover the grid."""
        depth, height, width, rz, ry, _ = self.geometry
        room = max(64, _CACHED_FLOATS // n_columns // (2 * rz + 4))
        n_x = -(-width // min(room, _MOST_IN_ROW if height == 1 else 128))
        n_y = -(-height // max(room // -(-width // n_x), 2 * ry, 1))
        n_z = -(-depth // max(_LEAST_SLICES, 12 * rz))
        cuts = [_ranges(*cut) for cut in ((depth, n_z), (height, n_y), (width, n_x))]
        return [(*z, *y, *x) for z, y, x in itertools.product(*cuts)]


def _ranges(n: int, n_parts: int) -> list[tuple[int, int]]:
    """Return the bounds of `n_parts` nearly equal parts of a range."""
    return list(itertools.pairwise(n * k // n_parts for k in range(n_parts + 1)))


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Return values per axis padded to slices, rows and pixels; 2-D images have one-row slices."""
    if len(values) == 2:
        return int(values[0]), fill, int(values[1])
    return (fill,) * (3 - len(values)) + tuple(int(value) for value in values)


def saves_memory(graph: graphs.AbstractGraph, n_entries: int, device: torch.device) -> bool:
    """Return whether kernels step fields of `n_entries`, for estimates of memory."""
    grids = graph.grids if isinstance(graph, graphs.GraphUnion) else (graph,)
    is_supported = all(
        isinstance(grid, graphs.GridGraph) and len(grid.shape) <= 3 for grid in grids
    )
    is_supported &= device.type == "cpu" and n_entries >= _MANY_ENTRIES
    return is_supported and kernels() is not None


class Fused:
    """Kernels bound to the fields of one flow, stored columns first."""

    def __init__(
        self, field: AbstractField, grids: Sequence[Grid], module: ModuleType, planes: Tensor
    ) -> None:
        inverse = np.concatenate([grid.inverse for grid in grids], dtype=np.float32)
        self._grids = [grid._replace(inverse=inverse) for grid in grids]
        self._field, self._module = field, module
        self._planes, n_nodes = planes.numpy(), planes.shape[1]
        self._blocks = _ranges(n_nodes, -(-n_nodes // _NODES))
        self._highest, self._entropy = np.empty(n_nodes, np.float32), 0.0
        self._n_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(max(1, self._n_threads - 1), "flow")

    @classmethod
    def of(cls, field: AbstractField, v: Tensor) -> Fused | None:
        """Return the kernels for a field; None if unsupported or not compiled."""
        if v.numel() < _LEAST_ENTRIES or v.device.type != "cpu" or v.dtype != torch.float32:
            return None
        parts, averager = [(field.averager, 0)], field.averager
        if isinstance(averager, graphs.UnionAverager):
            parts = [(part, nodes.start) for part, nodes in averager.parts]
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

        `fields` are state, slope, previous slope and, written, next slope and next state; 16-bit
        slopes.
        """
        field, (n, c) = self._field, fields[0].shape
        if field.cancelled():
            raise Cancelled
        field.n_evaluations += 1
        # Slopes are in 16 bits, except the new one.
        weights = np.array([*prediction, *correction]) / [65535, 65535, 65535, 1, 65535]
        v, s, previous, ahead_s, ahead = (_columns(array) for array in fields)
        cost, sketch = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int16)
        if field.has_costs:
            cost = self._planes[:c]
        else:
            sketch = self._planes
        # Padded to multiples of four; the sketch is followed by a row of ones.
        fours, n_rows, rank = -(-c // 4) * 4, len(sketch), (len(sketch) // 4 + 1) * 4
        factors = np.zeros((rank + fours, c + c % 2), np.float32)
        numbers = tuple(weights.astype(np.float32))
        flow = (v, s, previous), numbers, cost, sketch, factors, field.is_mixed
        sums = np.zeros((fours + rank, fours))
        if not field.has_costs:
            blocks = [(flow, nodes) for nodes in self._blocks]
            sums = self._sum(self._module.overlap, blocks, sums.shape)
        masses, product = sums[[fours + n_rows] * 2, :c], sums[fours : fours + n_rows, :c]
        overlap = sums[:c, :c] if field.is_mixed else masses
        affinity, shift = (np.atleast_2d(factor) for factor in field.factors(overlap, product))
        factors[: len(affinity), : affinity.shape[1]] = affinity
        end = rank if field.is_mixed else n_rows
        factors[end : end + len(shift), : shift.shape[1]] = shift
        labels = np.zeros(0, np.int64) if seeds is None else seeds.numpy()
        out = ahead_s, ahead, self._highest
        calls = [
            (flow, out, labels, tuple(grid), box) for grid in self._grids for box in grid.boxes(c)
        ]
        sums = self._sum(self._module.step, calls, (5, c)) / n
        if field.has_costs:
            field.objective = sums[4].sum()
        field.masses, field.squares = sums[2:4] * n
        self._entropy = -sums[1].sum()
        return float(sums[0].sum())

    def read(self, v: Tensor, labels: Tensor) -> tuple[float, float, Float64s, Tensor]:
        """Update labels by the state of the last attempt; return the fields of a `Reading`."""
        (n, c), values, columns = v.shape, _columns(v), labels.numpy()

        starts = iter(range(0, n, _READ))

        def update() -> int:
            n_moved = 0
            for start in starts:
                block, labelled = values[:, start : start + _READ], columns[start : start + _READ]
                moved = np.flatnonzero(block[labelled, np.arange(len(labelled))] < 0)
                labelled[moved] = block[:, moved].argmax(axis=0)
                n_moved += len(moved)
            return n_moved

        n_helpers = min(self._n_threads - 1, n // _READ)
        helpers = [self._pool.submit(update) for _ in range(n_helpers)]
        n_moved = update() + sum(helper.result() for helper in helpers)
        sizes = np.bincount(columns, minlength=c).astype(float)
        entropy = self._entropy - float(np.log(self._highest).mean(dtype=np.float64))
        return n_moved / n, entropy, sizes, torch.from_numpy(self._highest)

    def _sum(
        self, function: Any, calls: Sequence[tuple[Any, ...]], shape: tuple[int, ...]
    ) -> Float64s:
        """Call a kernel with each of `calls` in threads; return the sum of its outputs."""
        sums = np.zeros((len(calls), *shape))
        jobs = zip(calls, sums, strict=True)

        def work() -> None:
            for arguments, out in jobs:
                if self._field.cancelled():
                    raise Cancelled
                function(*arguments, out)

        helpers = [self._pool.submit(work) for _ in range(min(self._n_threads, len(calls)) - 1)]
        try:
            work()
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()
        return np.asarray(sums.sum(axis=0))


def _columns(field: Tensor) -> Array:
    """Return a field as (n_columns, n_nodes), slopes as uint16."""
    array = field.T.numpy()
    return array.view(np.uint16) if array.dtype == np.int16 else array
