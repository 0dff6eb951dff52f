"""Box sums and weighted averages over the windows of a grid.

A box sum is one banded matrix product per axis: the axis is split into blocks of outputs, whose
inputs overlap by the radius, and all blocks share one band matrix. For a radius above
`_LARGEST_BAND`, running sums are used, as the band would take more memory than the axis.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import Float32s, Float64s, Int64s
from napari_saf.device import Tensor, torch

_BLOCK = 32
_LARGEST_BAND = 512
_CHUNK = 2**22
_WHOLE = np.float32(65535)


class BoxSum:
    """Box sum, or mean over existing nodes, around all pixels or those in `inside`."""

    def __init__(
        self,
        shape: Sequence[int],
        window: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        *,
        mean: bool,
        inside: Tensor | None = None,
    ) -> None:
        self.shape, self.window = tuple(shape), tuple(window)
        self._n_pixels = int(np.prod(shape, dtype=np.int64))
        self.inside = inside

        def to_device(band: Float64s) -> Tensor:
            return torch.from_numpy(band.copy()).to(dtype).to(device)

        self._axes = [
            _AxisSum(shape, axis, side // 2, mean and inside is None, to_device)
            for axis, side in enumerate(window)
            if side > 1 and shape[axis] > 1
        ]
        self.counts: Tensor | None = None
        if mean and inside is not None:
            unit = torch.ones(len(inside), 1, dtype=dtype, device=device)
            counts = torch.empty_like(unit)
            self(unit, counts, torch.empty_like(unit))
            self.counts = counts

    def __call__(self, values: Tensor, out: Tensor, scratch: Tensor) -> None:
        """Write the box sums of `values` (n_nodes, n_columns) into `out`; see `Averager`."""
        inside, sums = self.inside, out
        source = _scatter(values, inside, self._n_pixels)
        if inside is not None:
            sums, scratch = torch.empty_like(source), torch.empty_like(source)
        if not self._axes:
            sums.copy_(source)
        for parity, axis in enumerate(self._axes, start=1 - len(self._axes)):
            target = sums if parity % 2 == 0 else scratch
            axis(source, target)
            source = target
        if inside is not None:
            torch.index_select(sums, 0, inside, out=out)
        if self.counts is not None:
            out.div_(self.counts)


class _AxisSum:
    """Box sum, or mean over existing pixels, along one axis."""

    def __init__(
        self,
        shape: Sequence[int],
        axis: int,
        radius: int,
        mean: bool,
        to_device: Callable[[Float64s], Tensor],
    ) -> None:
        self._n_outer = int(np.prod(shape[:axis], dtype=np.int64))
        self._length = shape[axis]
        self._n_inner = int(np.prod(shape[axis + 1 :], dtype=np.int64))
        self._radius = head = min(radius, self._length - 1)
        self._is_running = head > _LARGEST_BAND
        if self._is_running:
            self._factors = to_device(1 / self._counts()[:, None]) if mean else None
            return
        inner = self._length - 2 * head
        self._block = min(max(_BLOCK, head), inner) if inner > 0 else 0
        self._n_blocks = inner // self._block if self._block else 0

        def band(rows: slice, columns: slice) -> Tensor:
            distance = np.arange(rows.start, rows.stop)[:, None] - np.r_[columns]
            weights = (abs(distance) <= head).astype(np.float64)
            return to_device(weights / self._counts()[rows, None] if mean else weights)

        if self._n_blocks == 0:
            self._full_band = band(slice(0, self._length), slice(0, self._length))
            return
        self._tail = tail = head + self._n_blocks * self._block
        self._band = band(slice(head, head + self._block), slice(0, self._block + 2 * head))
        self._first = band(slice(0, head), slice(0, 2 * head))
        self._last = band(slice(tail, self._length), slice(tail - head, self._length))

    def _counts(self) -> Int64s:
        """Return the number of pixels in the window of each pixel."""
        pixels = np.arange(self._length)
        last = np.minimum(pixels + self._radius, self._length - 1)
        return last - np.maximum(pixels - self._radius, 0) + 1

    def __call__(self, source: Tensor, target: Tensor) -> None:
        columns = self._n_inner * source.shape[1]
        x = source.view(self._n_outer, self._length, columns)
        y = target.view(self._n_outer, self._length, columns)
        if self._is_running:
            self._running_sums(x, y)
            return
        if self._n_blocks == 0:
            torch.matmul(self._full_band, x, out=y)
            return
        radius, block = self._radius, self._block
        blocks = x.as_strided(
            (self._n_outer, self._n_blocks, block + 2 * radius, columns),
            (self._length * columns, block * columns, columns, 1),
            x.storage_offset(),
        )
        inner = y[:, radius : self._tail].view(self._n_outer, self._n_blocks, block, columns)
        if self._n_outer == 1:
            for rows in _chunks(self._n_blocks, block * columns):
                torch.matmul(self._band, blocks[0, rows], out=inner[0, rows])
        else:
            for rows in _chunks(self._n_outer, self._length * columns):
                inner[rows] = torch.matmul(self._band, blocks[rows])
        y[:, :radius] = torch.matmul(self._first, x[:, : 2 * radius])
        y[:, self._tail :] = torch.matmul(self._last, x[:, self._tail - radius :])

    def _running_sums(self, x: Tensor, y: Tensor) -> None:
        """Add running sums from both ends of blocks of the window's side (van Herk).

        Nothing is subtracted, which would lose precision.
        """
        side, radius, length = 2 * self._radius + 1, self._radius, self._length
        n_blocks = -(-(length + 2 * radius) // side)
        for rows in _chunks(self._n_outer, length * x.shape[2]):
            padded = x.new_zeros(len(x[rows]), n_blocks, side, x.shape[2])
            padded.flatten(1, 2)[:, radius : radius + length] = x[rows]
            from_start = padded.cumsum(2)
            to_end = padded.flip(2).cumsum(2).flip(2)
            to_end[:, :, 0] = 0  # the window is one block, included in `from_start`
            sums, ends = to_end.flatten(1, 2)[:, :length], from_start.flatten(1, 2)
            torch.add(sums, ends[:, side - 1 : side - 1 + length], out=y[rows])
        if self._factors is not None:
            y.mul_(self._factors)


def _chunks(n_rows: int, n_entries: int) -> Iterator[slice]:
    step = max(1, _CHUNK // n_entries)
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WindowWeights:
    """Weights of window neighbours: one image per offset, or the first half if symmetric.

    Sums are multiplied by `inverse` (n_nodes,).
    """

    offsets: list[tuple[int, ...]]
    images: NDArray[np.uint16] | Float32s
    inverse: Float32s

    @property
    def n_mirrored(self) -> int:
        """Number of trailing offsets without an image, by symmetry."""
        return len(self.offsets) - len(self.images)

    def in_16_bits(self, nodes: Int64s | slice) -> WindowWeights:
        """Quantise to 16 bits, with an error of 8e-6 of the largest weight of a pixel."""
        if self.images.dtype == np.uint16:
            return self
        largest = self.images.max(axis=0)
        scale = np.where(largest > 0, largest, 1)
        images = as_whole_weights(np.divide(self.images, scale, dtype=np.float32))
        total = images.sum(axis=0, dtype=np.float32)
        return WindowWeights(self.offsets, images, np.reciprocal(total.ravel()[nodes]))


def as_whole_weights(weights: Float32s) -> NDArray[np.uint16]:
    """Quantise weights of at most 1 to 16 bits; positive weights stay positive."""
    scaled: Float32s = np.rint((weights * _WHOLE).clip(min=np.sign(weights)))
    return scaled.astype(np.uint16)


class WeightedAverage:
    """Average with a weight per window position and node, in columns-first layout for speed."""

    def __init__(
        self,
        weights: WindowWeights,
        device: torch.device,
        dtype: torch.dtype,
        inside: Tensor | None,
    ) -> None:
        self.weights, self.inside, self.shape = weights, inside, weights.images.shape[1:]
        self._rims = np.max(weights.offsets, axis=0).tolist()
        self._starts = (np.array(weights.offsets) + self._rims).tolist()
        self._inverse = torch.from_numpy(weights.inverse).to(device, dtype)[:, None]
        self._images: list[Tensor] = []

    def __call__(self, values: Tensor, out: Tensor, scratch: Tensor) -> None:
        if not self._images:  # unused by the compiled kernels
            images = (image.astype(np.float32) for image in self.weights.images)
            self._images = [torch.from_numpy(image).to(values) for image in images]
        full = _scatter(values, self.inside, math.prod(self.shape))
        sides = (side + 2 * rim for side, rim in zip(self.shape, self._rims, strict=True))
        padded = full.new_zeros(full.shape[1], *sides)
        columns = self._moved(padded, self._rims)
        columns.copy_(full.T.view(-1, *self.shape))
        total = torch.zeros_like(padded)
        sums = self._moved(total, self._rims)
        for k, (weights, start) in enumerate(zip(self._images, self._starts, strict=False)):
            sums.addcmul_(weights, self._moved(padded, start))
            if k < self.weights.n_mirrored:
                self._moved(total, start).addcmul_(weights, columns)
        means = sums.flatten(1).T
        torch.mul(means if self.inside is None else means[self.inside], self._inverse, out=out)

    def _moved(self, padded: Tensor, offset: Sequence[int]) -> Tensor:
        sides = zip(offset, self.shape, strict=True)
        slices = [slice(first, first + side) for first, side in sides]
        return padded[(slice(None), *slices)]


def _scatter(values: Tensor, inside: Tensor | None, n_pixels: int) -> Tensor:
    if inside is None:
        return values
    full = torch.zeros(n_pixels, values.shape[1], dtype=values.dtype, device=values.device)
    return full.index_copy_(0, inside, values)
