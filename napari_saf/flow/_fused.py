"""Steps of flows on a processor by compiled kernels, `_kernels.py`, in several threads.

The machine code is made once for a processor, by a process of its own in the background, and kept
in the user's cache; what is not there yet, or does not fit, is left to torch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import itertools
import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from napari_saf.device import Tensor, torch
from napari_saf.errors import Cancelled
from napari_saf.flow._field import AbstractField
from napari_saf.graph import AbstractGraph, Averager, BoxSum, GridGraph, WeightedAverage

_log = logging.getLogger(__name__)

IS_TRIED = sys.platform == "linux" and platform.machine() == "x86_64"
"""Whether the machine code was tried on this kind of machine; elsewhere torch computes."""
SWITCH = "NAPARI_SAF_KERNELS"
"""The environment variable that switches the kernels off where it is 0."""
_SOURCE = Path(__file__).with_name("_kernel_compiler.py")
_KERNELS = _SOURCE.with_name("_kernels.py"), _SOURCE.with_name("_kernel_rows.py")
_LEAST_ENTRIES = 2**16
"""Below, a run gains less than the 0.05 s that it takes to load the kernels, once in a process. A
first click takes 0.67 of the processor time of torch here, 0.66 at 2^19."""
_MANY_ENTRIES = 2**22
_CACHED_FLOATS = 2**18
"""Of the buffers of a tile, so that they stay in the second-level cache."""
_MOST_IN_ROW = 1024
_LEAST_SLICES = 64
_NODES = 2**14
"""Nodes of a block where the geometry does not matter."""
_ROW = 512
"""Nodes that `overlap` takes at a time."""
_LANES = 16
"""Floats in a line of memory, and in the largest registers."""


def kernels() -> dict[str, Callable[..., None]] | None:
    """Return the compiled functions by name; None where there are none, or not yet.

    Where there are none yet they are compiled in the background.
    """
    if not IS_TRIED or os.environ.get(SWITCH) == "0":
        return None
    try:
        target = _target()
        if target.exists():
            return _load(target)
        _compile(target)
    except Exception:  # noqa: BLE001 - whatever goes wrong, torch computes
        _log.info("no compiled kernels", exc_info=True)
    return None


def kernels_key() -> str:
    """Return a name for the machine code that steps flows here; empty where torch does."""
    return "" if kernels() is None else _target().stem


@functools.cache
def _target() -> Path:
    """Return where the machine code for this processor is kept."""
    import llvmlite.binding as llvm

    parts = (
        *(path.read_text(encoding="utf-8") for path in (_SOURCE, *_KERNELS)),
        str(llvm.llvm_version_info),
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
    return user_cache_path("napari-saf") / f"kernels-{key}.bin"


@functools.cache
def _load(target: Path) -> dict[str, Callable[..., None]]:
    """Return the functions of a file that `_kernel_compiler.py` wrote; they hold what they need."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    head, _, codes = target.read_bytes().partition(b"\n")
    names, start = json.loads(head), 0
    for _, size in names.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(codes[start : start + size]))
        start += size
    engine.finalize_object()
    functions: dict[str, Callable[..., None]] = {}
    for name, (symbol, _) in names.items():
        functions[name] = ctypes.CFUNCTYPE(None)(engine.get_function_address(symbol))
        functions[name].engine = engine  # type: ignore[attr-defined]
    return functions


def _compile(target: Path) -> None:
    """Start a process that writes the machine code, once, and unless another one is at it."""
    import fcntl

    if _compilers or importlib.util.find_spec("numba") is None or not sys.executable:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not target.exists():
            # The process inherits the lock, which ends with it.
            process = subprocess.Popen(
                [sys.executable, str(_SOURCE), str(target.with_suffix(".part")), str(target)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
            _compilers.append(process)


_compilers: list[subprocess.Popen[bytes]] = []


def _lock(target: Path) -> Path:
    """Return the file that is locked while the machine code is made."""
    return target.with_suffix(".lock")


def wait_for_kernels() -> None:
    """Wait until the kernels are there, if they can be, so that all runs are computed alike."""
    if kernels() is None and IS_TRIED and _lock(_target()).exists():
        import fcntl

        with _lock(_target()).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        for process in _compilers:
            process.wait()


class Grid(NamedTuple):
    """A grid of at most three axes, seen as slices of rows of pixels."""

    sides: tuple[int, int, int]
    radii: tuple[int, int, int]
    weights: NDArray[np.uint16] | None
    offsets: NDArray[np.int64]
    first: NDArray[np.int64] | None
    places: NDArray[np.int32] | None
    inverse: NDArray[np.float32] | None

    @classmethod
    def of(cls, averager: Averager) -> Grid | None:
        """Return the grid that an averager averages over, if the kernels know its kind."""
        if not isinstance(averager, BoxSum | WeightedAverage) or len(averager.shape) > 3:
            return None
        sides, offsets = _three(averager.shape, 1), np.zeros((0, 3), np.int64)
        inside = None if averager.inside is None else averager.inside.numpy()
        weights = first = places = inverse = None
        if isinstance(averager, WeightedAverage):
            whole = averager.weights.in_16_bits(slice(None) if inside is None else inside)
            weights, inverse = np.ascontiguousarray(whole.images), whole.inverse
            offsets = np.array([_three(offset, 0) for offset in whole.offsets])
            radii = tuple(int(r) for r in np.abs(offsets).max(axis=0))
        else:
            radii = tuple(side // 2 for side in _three(averager.window, 1))
            if averager.counts is not None:
                inverse = np.asarray(1 / averager.counts.numpy().ravel(), np.float32)
        if inside is not None:
            first = np.searchsorted(inside, np.arange(sides[0] * sides[1] + 1) * sides[2])
            places = (inside % sides[2]).astype(np.int32)
        return cls(sides, radii, weights, offsets, first, places, inverse)  # type: ignore[arg-type]

    def boxes(self, n_columns: int) -> NDArray[np.int64]:
        """Return the tiles (n_tiles, 6): begin and end of each axis."""
        (depth, height, width), (rz, ry, _) = self.sides, self.radii
        room = max(64, _CACHED_FLOATS // n_columns // (2 * rz + 4))
        n_x = -(-width // min(room, _MOST_IN_ROW if height == 1 else 128))
        row = -(-width // n_x)
        n_y = -(-height // max(room // row, 2 * ry, 1))
        n_z = -(-depth // max(_LEAST_SLICES, 12 * rz))
        cuts = [
            [(side * k // n, side * (k + 1) // n) for k in range(n)]
            for side, n in zip(self.sides, (n_z, n_y, n_x), strict=True)
        ]
        found = [(*z, *y, *x) for z, y, x in itertools.product(*cuts)]
        return np.array(found, dtype=np.int64)

    def scratch_size(self, n_columns: int, boxes: NDArray[np.int64]) -> int:
        """Return the floats of the buffers of the largest tile; see `begin` in `_kernels.py`."""
        rz, ry, rx = self.radii
        rows, width = (int(sides.max()) for sides in (boxes[:, 3::2] - boxes[:, 2::2]).T)
        row, long_row = (width + 15) // 16 * 16, (width + 2 * rx + 15) // 16 * 16
        inner, outer = n_columns * rows * row, n_columns * (rows + 2 * ry) * long_row
        ring = (2 * rz + 1) * (outer if len(self.offsets) else inner)
        own = (rows + 2 * ry) * row + (2 * n_columns + 5) * long_row
        return _LANES + ring + outer + inner + own


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Return one number an axis, as slices, rows and pixels; an image has one row a slice."""
    if len(values) == 2:
        return int(values[0]), fill, int(values[1])
    return (fill,) * (3 - len(values)) + tuple(int(value) for value in values)


def saves_memory(graph: AbstractGraph, n_entries: int, device: torch.device) -> bool:
    """Return whether kernels step fields of so many entries on a graph, where memory matters."""
    is_known = isinstance(graph, GridGraph) and len(graph.shape) <= 3 and device.type == "cpu"
    return is_known and n_entries >= _MANY_ENTRIES and kernels() is not None


class Fused:
    """The kernels at work on the fields of one flow, which have their columns first."""

    def __init__(
        self,
        field: AbstractField,
        grid: Grid,
        functions: dict[str, Callable[..., None]],
        planes: Tensor,
    ) -> None:
        self._field, self._grid, self._functions = field, grid, functions
        self._planes, n_nodes = planes, planes.shape[1]
        starts = np.arange(0, n_nodes, _NODES)
        self._chunks = np.stack([starts, np.minimum(starts + _NODES, n_nodes)], axis=1)
        self._highest, self._entropy = torch.empty(n_nodes), 0.0
        self._n_helpers = torch.get_num_threads() - 1
        self._pool = ThreadPoolExecutor(max(1, self._n_helpers), "flow")

    @classmethod
    def of(cls, field: AbstractField, v: Tensor) -> Fused | None:
        """Return the kernels for a field; None if they do not suit it or are not there."""
        if v.numel() < _LEAST_ENTRIES or v.device.type != "cpu" or v.dtype != torch.float32:
            return None
        grid = Grid.of(field.averager)
        functions = None if grid is None else kernels()
        planes = None if functions is None else field.planes()
        if grid is None or functions is None or planes is None:
            return None
        return cls(field, grid, functions, planes)

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
        field, (n, c), costs_only = self._field, fields[0].shape, self._field.has_costs
        if field.cancelled():
            raise Cancelled
        field.n_evaluations += 1
        numbers = np.array([*prediction, *correction], dtype=np.float64)
        if costs_only:
            self._planes = self._planes[:c]
        shape = self._shape(n, c, seeds)
        both, n_own = np.empty((0, c)), c if field.is_mixed else 2
        if not costs_only:
            sums = self._all(
                "overlap", self._chunks, (c + 5) * _ROW, (n_own + len(self._planes)) * c,
                [*fields[:3], numbers, self._planes, shape],
            )  # fmt: skip
            both = sums.reshape(-1, c)
        factors = field.factors(both[:n_own], both[n_own:])
        planes = (self._planes, None) if costs_only else (None, self._planes)
        grid, boxes = self._grid, self._grid.boxes(c)
        sums = self._all(
            "step", boxes, grid.scratch_size(c, boxes), 3 + 2 * c,
            [*fields, self._highest, numbers, *planes, factors, seeds, grid.weights, grid.offsets,
             grid.first, grid.places, grid.inverse, shape],
        )  # fmt: skip
        if costs_only:
            field.objective = sums[2] / n
            field.masses, field.squares = sums[3:].reshape(2, c)
        self._entropy = float(sums[1]) / n
        return float(sums[0]) / n

    def read(self, v: Tensor, labels: Tensor) -> tuple[float, float, NDArray[np.float64], Tensor]:
        """Update labels by the state of the last attempt; return what makes a `Reading`."""
        n, c = v.shape
        sums = self._all("read", self._chunks, 0, 1 + c, [v, labels, self._shape(n, c, None)])
        return float(sums[0]) / n, self._entropy, sums[1:], self._highest

    def _shape(self, n: int, c: int, seeds: Tensor | None) -> NDArray[np.int64]:
        field, grid, rank = self._field, self._grid, len(self._planes)
        flags = grid.first is not None, seeds is not None, not field.has_costs, field.is_mixed
        images = 0 if grid.weights is None else len(grid.weights)
        geometry = *grid.sides, *grid.radii, len(grid.offsets)
        return np.array([n, c, rank, *geometry, *flags, images], np.int64)

    def _all(
        self,
        name: str,
        boxes: NDArray[np.int64],
        n_floats: int,
        n_sums: int,
        arguments: Sequence[Tensor | NDArray[Any] | None],
    ) -> NDArray[np.float64]:
        """Call a kernel for all boxes, in threads, and return the sums: in the order of boxes."""
        function, pointers = self._functions[name], [_pointer(one) for one in arguments]
        # Functions of numba write first what they return, and what went wrong: nothing.
        result = ctypes.byref(ctypes.c_void_p())
        sums, numbers = np.zeros((len(boxes), n_sums)), itertools.count()
        starts = [(rows.ctypes.data, rows.strides[0]) for rows in (boxes, sums)]
        stopped = False

        def work(is_own: bool = False) -> None:
            nonlocal stopped
            scratch = np.empty(n_floats + _LANES, np.float32)
            # Where a line of memory begins: what lies across two takes twice as long.
            place = ctypes.c_void_p(-(-scratch.ctypes.data // (4 * _LANES)) * 4 * _LANES)
            for k in numbers:
                if k >= len(boxes) or stopped:
                    return
                if is_own and k and self._field.cancelled():
                    stopped = True
                    raise Cancelled
                box, total = (ctypes.c_void_p(at + k * size) for at, size in starts)
                function(result, result, *pointers, box, place, total)

        n_helpers = min(self._n_helpers, len(boxes) - 1)
        helpers = [self._pool.submit(work) for _ in range(n_helpers)]
        try:
            work(is_own=True)
        finally:
            for helper in helpers:
                helper.result()
        return np.asarray(sums.sum(axis=0))


def _pointer(array: Tensor | NDArray[Any] | None) -> ctypes.c_void_p:
    if array is None:
        return ctypes.c_void_p(0)
    if isinstance(array, np.ndarray):
        return ctypes.c_void_p(array.ctypes.data)
    return ctypes.c_void_p(array.data_ptr())
