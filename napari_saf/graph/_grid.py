"""Grid graph: pixels or voxels, connected within windows."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from napari_saf.arrays import (
    Array,
    Float32s,
    Floats,
    Int64s,
    as_list,
    as_whole,
    check_mask,
    check_window,
    own_floats,
)
from napari_saf.device import Tensor, check_memory, in_threads, raise_if_interrupted, torch
from napari_saf.errors import InvalidInput
from napari_saf.graph._box import BoxSum, WeightedAverage, WindowWeights, as_whole_weights
from napari_saf.graph._graph import AbstractGraph, Averager, SparseProduct, symmetric_part

_BYTES_AS_MATRIX = 72
"""Peak bytes per weight during the construction of a sparse matrix; measured for 13 million."""
_STRIP = 2**16
"""Pixels per strip of rows, sized for the cache."""


class GridGraph(AbstractGraph):
    """Graph of the pixels of a 2-D, 3-D or n-D image, connected within a window.

    Parameters
    ----------
    shape : sequence of int
        Shape of the image, without channels.
    window : int or sequence of int
        Odd side length of the window in pixels, or one per axis.
    weights : array of shape (n_nodes, n_positions), optional
        Weight of each window position of each node, in C order of the offsets, >= 0. They
        are scaled to sum to 1 over the existing positions. None: equal weights.
    mask : array of bool of shape `shape`, optional
        Pixels that are nodes. None: all.
    stride : int
        >= 1; window offsets are its multiples, and the adjacent pixels along each axis. Above 1
        only with weights.

    Attributes
    ----------
    image_shape : tuple of int
        Shape of the images in `to_image` and `from_image`.

    Raises
    ------
    InvalidInput
        If a window is even, too large or of the wrong length, the mask has another shape or
        is empty, or weights are negative, not finite or of the wrong shape.

    Examples
    --------
    >>> graph = saf.GridGraph((4, 5), window=3)
    >>> graph.n_nodes, graph.positions([7]).tolist()  # counted along rows
    (20, [[1, 2]])
    >>> graph.to_image(np.arange(20)).shape
    (4, 5)
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        window: int | Sequence[int] = 3,
        weights: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        stride: int = 1,
    ) -> None:
        self.shape = tuple(as_whole(side) or 0 for side in as_list(shape, "shape"))
        if not self.shape or min(self.shape) < 1:
            raise InvalidInput(f"shape: expected positive sides, got {shape!r}")
        self.image_shape = self.shape
        self.window = check_window(window, self.shape)
        self.stride = as_whole(stride) or 0
        if self.stride < 1 or (self.stride > 1 and weights is None):
            raise InvalidInput(f"stride: expected 1 (or more if weights are set), got {stride!r}")
        self.mask = check_mask(mask, self.shape)
        self._n_nodes = int(np.prod(self.shape) if self.mask is None else self.mask.sum())
        self.window_weights: WindowWeights | None = None
        if weights is not None:
            array = own_floats(weights, "weights")
            expected = (self.n_nodes, len(self._offsets()))
            if array.shape != expected:
                raise InvalidInput(f"weights: expected shape {expected}, got {array.shape}")
            if not np.isfinite(array).all() or (array < 0).any():
                raise InvalidInput("weights: expected finite numbers that are not negative")
            images = np.stack([self.spread(column) for column in array.T])
            self.window_weights = self._of_neighbours(images.astype(np.float32, copy=False))

    @classmethod
    def nonlocal_means(
        cls,
        image: ArrayLike,
        *,
        window: int | Sequence[int],
        patch_size: int | Sequence[int],
        rho: float,
        channel_axis: int | None = None,
        mask: ArrayLike | None = None,
        stride: int = 1,
        noise_variance: float = 0.0,
    ) -> GridGraph:
        """Return a grid with non-local means weights, by the similarity of patches.

        Parameters
        ----------
        image : array
            Values near [0, 1].
        window : int or sequence of int
            Odd side length of the window.
        patch_size : int or sequence of int
            Odd side length of the patches.
        rho : float
            Width, > 0: a weight is proportional to exp(-d / rho) with d the sum of squared
            differences of two patches.
        channel_axis : int, optional
            Axis of the channels.
        mask : array of bool, optional
            Pixels that are nodes.
        stride : int
            Sample every `stride`-th pixel of the window, and the adjacent ones.
        noise_variance : float
            >= 0; noise variance of a pixel, summed over the channels. The expected contribution of
            noise to a distance, twice the variance per pixel of the patch, is subtracted.

        Raises
        ------
        InvalidInput
            As in the constructor, and if `rho` is not positive, `patch_size` does not fit the
            image, or a pixel within the mask is not finite.

        Notes
        -----
        Non-local means weights of Buades, Coll and Morel, https://doi.org/10.1137/040616024; with
        the noise subtracted as in https://doi.org/10.5201/ipol.2011.bcm_nlm. They are stored once
        per pair, in units of 1 / 65535 of the self weight, rounded up to at least one.
        """
        values = np.asarray(image, dtype=np.float32)
        values = values[None] if channel_axis is None else np.moveaxis(values, channel_axis, 0)
        shape = values.shape[1:]
        if not (np.isfinite(rho) and rho > 0):
            raise InvalidInput(f"rho: expected a positive number, got {rho}")
        patch = check_window(patch_size, shape, name="patch_size")
        if stride < 1:
            raise InvalidInput(f"stride: expected 1 or more, got {stride}")
        grid = cls(shape, window=window, mask=mask)
        grid.stride = stride
        is_known = np.isfinite(values).all(axis=0)
        n_bad = np.count_nonzero(grid.gather(~is_known))
        if n_bad:
            raise InvalidInput(f"image: {n_bad} of {is_known.size} pixels are NaN or infinite")
        values = values if is_known.all() else np.where(is_known, values, 0)
        grid.window_weights = grid._of_neighbours(
            grid._likeness(values, patch, rho, noise_variance)
        )
        return grid

    @property
    def weights(self) -> Float32s | None:
        """Weights (n_nodes, n_positions) that sum to 1 over the positions; None if all are equal.

        Computed at every access, as n_positions numbers per node take much memory.
        """
        stored = self.window_weights
        if stored is None:
            return None
        weights = self._new_weights()
        for k, (target, source) in enumerate(self._shifts()):
            if k < len(stored.images):
                image = stored.images[k]
            else:
                image = np.zeros_like(stored.images[0])
                image[target] = stored.images[len(stored.offsets) - 1 - k][source]
            np.multiply(self.gather(image), stored.inverse, out=weights[:, k])
        return weights

    @property
    def n_nodes(self) -> int:
        """Number of pixels inside the mask."""
        return self._n_nodes

    def averager(self, device: torch.device, dtype: torch.dtype) -> Averager:
        inside = self._inside(device)
        if self.window_weights is None:
            return BoxSum(self.shape, self.window, device, dtype, mean=True, inside=inside)
        return WeightedAverage(self.window_weights, device, dtype, inside)

    def neighbour_sum(self, device: torch.device, dtype: torch.dtype) -> Averager:
        weights = self.weights
        if weights is not None:
            return SparseProduct(symmetric_part(self._matrix(weights)), device, dtype)
        inside = self._inside(device)
        box = BoxSum(self.shape, self.window, device, dtype, mean=False, inside=inside)

        def sum_of_others(values: Tensor, out: Tensor, scratch: Tensor) -> None:
            box(values, out, scratch)
            out.sub_(values)

        return sum_of_others

    def steps(self) -> sparse.csr_array:
        """Return step lengths to adjacent pixels, as shares of the longest side.

        Diagonal steps exist in 2-D only, which takes a third of the memory or less in 3-D.
        """
        number = np.asarray(self.spread(np.arange(self.n_nodes, dtype=np.int32), fill=-1))
        parts = []
        for offset in itertools.product((-1, 0, 1), repeat=len(self.shape)):
            square = sum(o * o for o in offset)
            if offset <= (0,) * len(offset) or square > max(1, 4 - len(offset)):
                continue
            target, source = _shift(offset, self.shape)
            here, there = number[target].ravel(), number[source].ravel()
            inside = (here >= 0) & (there >= 0)
            lengths = np.full(np.count_nonzero(inside), square**0.5 / max(self.shape))
            parts.append((lengths, here[inside], there[inside]))
        data, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        return sparse.csr_array((data, (rows, columns)), shape=(self.n_nodes, self.n_nodes))

    def contrast_weights(self, features: Floats, sigma2: float) -> sparse.csr_array:
        """Return weights exp(-|f_i - f_k|^2 / sigma2) of neighbours within the window."""
        image = np.asarray(self.spread(own_floats(features, "features")))
        weights = self._new_weights(_BYTES_AS_MATRIX)
        for k, (target, source) in enumerate(self._shifts()):
            there = np.zeros(self.shape, dtype=np.float32)
            square = np.square(image[target] - image[source]).sum(axis=-1)
            there[target] = np.exp(-square / sigma2)
            weights[:, k] = self.gather(there)
        return symmetric_part(self._matrix(weights))

    def _matrix(self, weights: Float32s) -> sparse.csr_array:
        """Convert weights of window positions (n_nodes, prod(window)) to a sparse matrix."""
        number = np.asarray(self.spread(np.arange(self.n_nodes), fill=-1))
        rows, columns, entries = [], [], []
        for k, (target, source) in enumerate(self._shifts()):
            there = np.full(self.shape, -1, dtype=np.int64)
            there[target] = number[source]
            neighbour = np.asarray(self.gather(there))
            nodes = np.flatnonzero((neighbour >= 0) & (weights[:, k] > 0))
            rows.append(nodes)
            columns.append(neighbour[nodes])
            entries.append(weights[nodes, k])
        ends = (np.concatenate(rows), np.concatenate(columns))
        size = (self.n_nodes, self.n_nodes)
        return sparse.csr_array((np.concatenate(entries), ends), shape=size)

    def laplacian_product(self, values: Floats) -> Floats:
        weights = self.window_weights
        if weights is None:
            return self._apply(self.neighbour_sum, values)
        loops = np.asarray(self.gather(weights.images[len(weights.offsets) // 2]), np.float32)
        loops = (loops * weights.inverse)[:, None]
        return np.asarray(self.average(values) - loops * own_floats(values, "values"))

    def without_weights(self) -> GridGraph:
        """Return the grid with equal weights, which take no memory."""
        return GridGraph(self.shape, window=self.window, mask=self.mask)

    def spread(self, values: Array, fill: float = 0) -> Array:
        """Return node values in the shape of the grid, `fill` outside the mask."""
        values = np.asarray(values)
        if self.mask is None:
            return values.reshape(self.shape + values.shape[1:])
        image = np.full(self.shape + values.shape[1:], fill, dtype=values.dtype)
        image[self.mask] = values
        return image

    to_image = spread

    def positions(self, nodes: ArrayLike) -> Int64s:
        """Return the pixel indices (n, n_axes) of nodes."""
        flat = self._check_nodes(nodes)
        if self.mask is not None:
            flat = np.flatnonzero(self.mask)[flat]
        return np.stack(np.unravel_index(flat, self.shape), axis=-1)

    def gather(self, image: ArrayLike) -> Array:
        """Return the node values of an array in the shape of the grid, channels last."""
        image = np.asarray(image)
        if image.shape[: len(self.shape)] != self.shape:
            raise InvalidInput(f"image: expected shape {self.shape}, got {image.shape}")
        trailing = image.shape[len(self.shape) :]
        return image.reshape(-1, *trailing) if self.mask is None else image[self.mask]

    from_image = gather

    def smaller(self, share: float) -> str:
        allowed = share * math.prod(self.shape)
        k = bisect_right(
            range(1, max(self.shape) + 1),
            allowed,
            key=lambda side: math.prod(coarse_shape(self.shape, side, self.window)),
        )
        if not k:
            return super().smaller(share)
        return f"a smaller image: up to a longest side of {k} it fits (Compute at, max_side)"

    def _inside(self, device: torch.device) -> Tensor | None:
        if self.mask is None:
            return None
        return torch.from_numpy(np.flatnonzero(self.mask)).to(device)

    def _new_weights(self, bytes_each: int = 4) -> Float32s:
        shape = (self.n_nodes, len(self._offsets()))
        self._check_memory(bytes_each * math.prod(shape))
        return np.zeros(shape, np.float32, order="F")

    def _check_memory(self, need: float) -> None:
        message = "use a smaller window, a mask, or "
        check_memory(need, torch.device("cpu"), lambda share: message + self.smaller(share))

    def cropped(self, region: tuple[slice, ...]) -> GridGraph:
        """Return the grid of a region, with the weights between its pixels."""
        mask = None if self.mask is None else self.mask[region]
        shape = tuple(side.stop - side.start for side in region)
        grid = GridGraph(shape, window=self.window, mask=mask)
        grid.stride = self.stride
        if self.window_weights is not None:
            images = self.window_weights.images[(slice(None), *region)]
            grid.window_weights = grid._of_neighbours(images.copy())
        return grid

    def _likeness(
        self, values: Float32s, patch: Sequence[int], rho: float, noise_variance: float
    ) -> NDArray[np.uint16]:
        """Return patch similarities for the first half of the window offsets."""
        offsets = self._offsets()
        offsets = offsets[: len(offsets) // 2 + 1]
        self._check_memory(2 * len(offsets) * math.prod(self.shape))
        weights = np.empty((len(offsets), *self.shape), np.uint16)
        reach = np.abs(offsets).max(axis=0)
        rims = reach + np.array(patch) // 2
        padded = np.pad(values, [(0, 0), *((rim, rim) for rim in rims)], mode="symmetric")
        bias = np.float32(2 * noise_variance * math.prod(patch))
        ends = np.array(self.shape) + reach + patch - 1

        def compare(rows: slice) -> None:
            raise_if_interrupted()
            end = rows.stop + reach[0] + patch[0] - 1
            strip = (slice(rows.start + reach[0], end), *map(slice, reach[1:], ends[1:]))
            for weight, offset in zip(weights, offsets, strict=True):
                there = tuple(
                    slice(side.start + o, side.stop + o)
                    for side, o in zip(strip, offset, strict=True)
                )
                total = np.square(padded[0][there] - padded[0][strip])
                for channel in padded[1:]:
                    total += np.square(channel[there] - channel[strip])
                for axis, side in enumerate(patch):
                    total = _sum_along(total, axis, side)
                if bias:
                    total = np.maximum(total - bias, 0)
                total /= -rho
                np.exp(total, out=total)
                weight[rows] = as_whole_weights(total.clip(np.finfo(np.float32).tiny, out=total))

        in_threads(compare, self._strips())
        return weights

    def _strips(self) -> list[slice]:
        step = max(1, _STRIP * self.shape[0] // math.prod(self.shape))
        return [slice(k, min(k + step, self.shape[0])) for k in range(0, self.shape[0], step)]

    def _of_neighbours(self, images: Array) -> WindowWeights:
        """Clear weights of missing neighbours, and normalise the rest."""
        offsets, total = self._offsets(), np.zeros(self.shape, np.float32)
        shifts = [_shift(offset, self.shape) for offset in offsets[: len(images)]]
        n_mirrored = len(offsets) - len(images)

        def clear(rows: slice) -> None:
            raise_if_interrupted()
            for image, (target, source) in zip(images, shifts, strict=True):
                there = np.zeros(image[rows].shape, dtype=bool)
                here = _within(target, source, rows)
                if self.mask is None:
                    there[here[0]] = True
                else:
                    there[here[0]] = self.mask[here[1]] & self.mask[here[2]]
                image[rows] *= there

        def add(rows: slice) -> None:
            raise_if_interrupted()
            for k, (image, (target, source)) in enumerate(zip(images, shifts, strict=True)):
                total[rows] += image[rows]
                if k < n_mirrored:
                    _, here, there = _within(source, target, rows)
                    total[here] += image[there]

        in_threads(clear, self._strips())
        in_threads(add, self._strips())
        sums = np.asarray(self.gather(total), np.float32)
        if (sums == 0).any():
            raise InvalidInput("weights: every node needs a positive weight inside the image")
        return WindowWeights(offsets, images, np.reciprocal(sums))

    def _offsets(self) -> list[tuple[int, ...]]:
        reach = [side // 2 // self.stride * self.stride for side in self.window]
        offsets = set(itertools.product(*(range(-r, r + 1, self.stride) for r in reach)))
        # The adjacent pixels connect the sublattices of the stride.
        for axis, side in enumerate(self.window):
            if side > 1:
                step = (0,) * axis + (1,) + (0,) * (len(self.window) - axis - 1)
                offsets |= {step, tuple(-o for o in step)}
        return sorted(offsets)

    def _shifts(self) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
        """Yield the slices of nodes and of neighbours for each window offset, in C order."""
        for offset in self._offsets():
            raise_if_interrupted()
            yield _shift(offset, self.shape)


def _sum_along(image: Float32s, axis: int, side: int) -> Float32s:
    """Return the sums of `side` consecutive pixels, without padding; patches are small."""
    if side == 1:
        return image
    length = image.shape[axis] - side + 1
    moved = np.moveaxis(image, axis, 0)
    total = moved[:length] + moved[1 : length + 1]
    for start in range(2, side):
        total += moved[start : start + length]
    return np.moveaxis(total, 0, axis)


def _shift(
    offset: Sequence[int], shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the slices of pixels with a neighbour at an offset, and of these neighbours."""
    moves = list(zip(offset, shape, strict=True))
    return (
        tuple(slice(max(0, -o), max(0, min(side, side - o))) for o, side in moves),
        tuple(slice(max(0, o), max(0, min(side, side + o))) for o, side in moves),
    )


def _within(
    target: Sequence[slice], source: Sequence[slice], rows: slice
) -> tuple[tuple[slice, ...], tuple[slice, ...], tuple[slice, ...]]:
    """Restrict a shift to `rows`: targets relative to them, targets, and sources."""
    shift = source[0].start - target[0].start
    start, stop = max(rows.start, target[0].start), min(rows.stop, target[0].stop)
    stop = max(start, stop)
    return (
        (slice(start - rows.start, stop - rows.start), *target[1:]),
        (slice(start, stop), *target[1:]),
        (slice(start + shift, stop + shift), *source[1:]),
    )


def coarse_shape(shape: Sequence[int], max_side: int, window: Sequence[int]) -> tuple[int, ...]:
    """Return the shape reduced to `max_side`, but for axes of window 1; windows still fit."""
    shrinks = [width > 1 or max(window) == 1 for width in window]
    longest = max(side for side, shrink in zip(shape, shrinks, strict=True) if shrink)
    ratio = min(max_side, longest) / longest
    return tuple(
        max(min(side, width), round(side * ratio)) if shrink else side
        for side, width, shrink in zip(shape, window, shrinks, strict=True)
    )
