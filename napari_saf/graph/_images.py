"""Grids of images at a reduced size, and unions of the grids of several images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from napari_saf.arrays import Array, Float32s, Float64s, Floats, Int64s, Mask, check_mask
from napari_saf.device import Tensor, raise_if_interrupted, torch
from napari_saf.errors import InvalidInput
from napari_saf.graph._graph import AbstractGraph, Averager
from napari_saf.graph._grid import GridGraph


class CoarseGrid(GridGraph):
    """Grid whose nodes are blocks of pixels of a larger image, `image` with channels last."""

    def __init__(
        self,
        grid: GridGraph,
        image_shape: Sequence[int],
        image_mask: ArrayLike | None = None,
        image: Array | None = None,
    ) -> None:
        super().__init__(grid.shape, window=grid.window, mask=grid.mask)
        self.window_weights, self.stride = grid.window_weights, grid.stride
        self.image_shape = tuple(image_shape)
        self.image_mask = check_mask(image_mask, self.image_shape)
        self.image = image

    def to_image(self, values: Array, fill: float = 0) -> Array:
        """Return node values as an image of full size, `fill` outside the mask.

        Floats are interpolated linearly; integers are labels, interpolated to the label of largest
        weight.
        """
        values = np.asarray(values)
        image = self.enlarged(self.spread(values, fill=-1 if values.dtype.kind == "i" else 0))
        if self.image_mask is not None:
            image[~self.image_mask] = fill
        return image

    def enlarged(self, image: Array, region: Sequence[slice] | None = None) -> Array:
        """Return an image of the nodes at full size, or a region of it.

        Floats at the border of the mask are interpolated between nodes inside it.
        """
        region = [slice(0, n) for n in self.image_shape] if region is None else region
        between = self._between(region)
        firsts = [int(low[0]) for low, _ in between]
        lasts = [int(low[-1]) + 2 for low, _ in between]
        nodes = tuple(map(slice, firsts, lasts))
        near = [(low - first, share) for (low, share), first in zip(between, firsts, strict=True)]
        if image.dtype.kind != "f":
            return _voted(image[nodes], near)
        enlarged = _interpolated(image[nodes], near)
        if self.mask is None:
            return enlarged
        weights: Any = _interpolated(self.mask[nodes].astype(image.dtype), near)
        weights = np.where(weights > 0, weights, 1)
        return np.asarray(enlarged / weights[(..., *[None] * (image.ndim - weights.ndim))])

    def without_weights(self) -> CoarseGrid:
        return CoarseGrid(super().without_weights(), self.image_shape, self.image_mask, self.image)

    def positions(self, nodes: ArrayLike) -> Int64s:
        """Return the central pixels of the blocks of nodes."""
        ratio = np.divide(self.image_shape, self.shape)
        return ((super().positions(nodes) + 0.5) * ratio).astype(np.int64)

    def from_image(self, image: ArrayLike) -> Array:
        """Return the node values of an image of full size, channels last.

        Floats are averaged over the block of a node. Integers are labels, reduced to the most
        frequent one of the block, 0 only if there is no other.
        """
        image = np.asarray(image)
        if image.shape[: len(self.image_shape)] != self.image_shape:
            raise InvalidInput(f"image: expected shape {self.image_shape}, got {image.shape}")
        if image.dtype.kind == "f":
            return self.gather(coarse_means(image, self.shape, self.image_mask))
        if image.ndim > len(self.shape):
            raise InvalidInput(f"image: expected labels without channels, got shape {image.shape}")
        counted = image != 0 if self.image_mask is None else (image != 0) & self.image_mask
        pixels = np.nonzero(counted)
        axes = zip(pixels, self.shape, self.image_shape, strict=True)
        blocks = [index * small // large for index, small, large in axes]
        numbers, ranks = np.unique(image[pixels], return_inverse=True)
        width = len(numbers) + 1
        keys = np.ravel_multi_index(blocks, self.shape) * width + ranks
        pairs, counts = np.unique(keys, return_counts=True)
        flat, rank = np.divmod(pairs, width)
        order = np.lexsort((-rank, counts))
        labels = np.zeros(self.shape, dtype=image.dtype)
        # for repeated indices the last assignment takes effect
        labels.ravel()[flat[order]] = numbers[rank[order]]
        return self.gather(labels)

    def _between(self, region: Sequence[slice]) -> list[_Between]:
        """Return per axis the node before each pixel, and the offset of the pixel from it."""
        between = []
        for side, large, small in zip(region, self.image_shape, self.shape, strict=True):
            pixels = np.arange(side.start, side.stop)
            position = np.clip((pixels + 0.5) * small / large - 0.5, 0, small - 1)
            low = np.minimum(position.astype(np.int64), max(small - 2, 0))
            between.append((low, position - low))
        return between


_Between = tuple[Int64s, Float64s]


def _interpolated(image: Array, between: Sequence[_Between]) -> Array:
    for axis, (low, share) in enumerate(between):
        high = np.minimum(low + 1, image.shape[axis] - 1)
        along = [1] * image.ndim
        along[axis] = len(share)
        weight = share.reshape(along).astype(image.dtype)
        first, second = image.take(low, axis=axis), image.take(high, axis=axis)
        image = np.asarray((1 - weight) * first + weight * second)
    return image


def _voted(coarse: Array, between: Sequence[_Between]) -> Array:
    """Return for each pixel the label of largest weight among the surrounding nodes."""
    image = _enlarged(coarse, [low + (share > 0.5) for low, share in between])
    ends = list(itertools.product((0, 1), repeat=len(between)))
    corners = []
    for end in ends:
        steps = zip(end, coarse.shape, strict=True)
        indices = [np.minimum(np.arange(side) + step, side - 1) for step, side in steps]
        corners.append(coarse[np.ix_(*indices)])
    unlike = np.any([corner != coarse for corner in corners], axis=0)
    near_borders = np.flatnonzero(_enlarged(unlike, [low for low, _ in between]))
    pixels = np.unravel_index(near_borders, image.shape)
    nodes = tuple(low[index] for (low, _), index in zip(between, pixels, strict=True))
    labels = np.stack([corner[nodes] for corner in corners])
    shares = [share[index] for (_, share), index in zip(between, pixels, strict=True)]
    weights = np.stack(
        [
            np.prod([s if step else 1 - s for s, step in zip(shares, end, strict=True)], axis=0)
            for end in ends
        ]
    )
    votes = np.stack([(weights * (labels == label)).sum(axis=0) for label in labels])
    votes[labels == (-1 if labels.dtype.kind == "i" else 0)] = 0
    image[pixels] = np.take_along_axis(labels, votes.argmax(axis=0)[None], axis=0)[0]
    return image


def _enlarged(image: Array, indices: Sequence[Int64s]) -> Array:
    """Return the values at indices along each axis; the last axis first, while rows are few."""
    for axis in reversed(range(image.ndim)):
        image = image.take(indices[axis], axis=axis)
    return image


def coarse_means(image: Array, shape: tuple[int, ...], mask: Mask = None) -> Float32s:
    """Return the means of an image, channels last, over blocks within the mask."""
    if image.ndim == len(shape):
        return coarse_means(image[..., None], shape, mask)[..., 0]
    return CoarseMeans(image.shape[:-1], shape)(image, mask)


class CoarseMeans:
    """Means over a grid of blocks of an image, identical for regions and for the whole image."""

    def __init__(self, image_shape: Sequence[int], shape: Sequence[int]) -> None:
        pairs = zip(image_shape, shape, strict=True)
        self.weights = [None if n == m else _shares_of_pixels(n, m) for n, m in pairs]

    def pixels_of(self, blocks: Sequence[slice]) -> tuple[slice, ...]:
        """Return the region of the image that is covered by a region of blocks."""
        region = []
        for side, weights in zip(blocks, self.weights, strict=True):
            if weights is not None:
                at = weights.indices[weights.indptr[side.start] : weights.indptr[side.stop]]
                side = slice(int(at[0]), int(at[-1]) + 1)
            region.append(side)
        return tuple(region)

    def __call__(
        self, image: Array, mask: Mask = None, blocks: Sequence[slice] | None = None
    ) -> Float32s:
        """Return the means of a region of blocks, by default all, from its pixels."""
        values: Array = image.astype(np.float32, copy=False)
        if mask is not None:
            values = np.where(mask[..., None], values, np.float32(0))
        for axis, weights in enumerate(self.weights):
            if weights is None:
                continue
            if blocks is not None:
                rows = weights[blocks[axis].start : blocks[axis].stop]
                first = int(rows.indices[0])
                weights = rows[:, first : first + values.shape[axis]]
            moved = np.moveaxis(values, axis, 0)
            flat = np.ascontiguousarray(moved).reshape(len(moved), -1)
            means = (weights @ flat).reshape(-1, *moved.shape[1:])
            values = np.moveaxis(np.asarray(means, np.float32), 0, axis)
            raise_if_interrupted()
        if mask is not None:
            counted = self(mask[..., None], None, blocks)
            values = values / np.maximum(counted, np.float32(1e-6))
        return np.ascontiguousarray(values, np.float32)


def _shares_of_pixels(n: int, n_blocks: int) -> sparse.csr_array:
    """Return the weights (n_blocks, n) of n pixels in the means of blocks."""
    ends = np.arange(n_blocks + 1) * (n / n_blocks)
    firsts = np.floor(ends[:-1] + 1e-9).astype(np.int64)
    lasts = np.minimum(np.ceil(ends[1:] - 1e-9).astype(np.int64), n)
    counts = lasts - firsts
    starts = np.concatenate([[0], np.cumsum(counts)])
    blocks = np.repeat(np.arange(n_blocks), counts)
    pixels = np.arange(starts[-1]) - starts[blocks] + firsts[blocks]
    shares = np.minimum(ends[blocks + 1], pixels + 1) - np.maximum(ends[blocks], pixels)
    shares = (shares * (n_blocks / n)).astype(np.float32)
    return sparse.csr_array((shares, pixels, starts), shape=(n_blocks, n))


class UnionAverager:
    """Operator of a union: one operator per range of nodes."""

    def __init__(self, parts: Sequence[tuple[Averager, slice]]) -> None:
        self.parts = parts

    def __call__(self, values: Tensor, out: Tensor, scratch: Tensor) -> None:
        """Write the averages (sums) of `values` into `out`; see `Averager`."""
        for operator, nodes in self.parts:
            operator(values[nodes], out[nodes], scratch[nodes])


class GraphUnion(AbstractGraph):
    """Disjoint union of grids, one per image, with concatenated nodes."""

    def __init__(self, grids: Sequence[GridGraph]) -> None:
        if not grids:
            raise InvalidInput("images: expected at least one image, got none")
        self.grids = tuple(grids)
        ends = itertools.accumulate((grid.n_nodes for grid in self.grids), initial=0)
        self.slices = tuple(slice(begin, end) for begin, end in itertools.pairwise(ends))
        self._parts = tuple(zip(self.grids, self.slices, strict=True))

    @property
    def n_nodes(self) -> int:
        return self.slices[-1].stop

    def smaller(self, share: float) -> str:
        return "fewer images at once"

    def averager(self, device: torch.device, dtype: torch.dtype) -> Averager:
        return UnionAverager([(grid.averager(device, dtype), part) for grid, part in self._parts])

    def neighbour_sum(self, device: torch.device, dtype: torch.dtype) -> Averager:
        return UnionAverager(
            [(grid.neighbour_sum(device, dtype), part) for grid, part in self._parts]
        )

    def steps(self) -> sparse.csr_array:
        return sparse.csr_array(sparse.block_diag([grid.steps() for grid in self.grids]))

    def laplacian_product(self, values: Floats) -> Floats:
        return np.concatenate(
            [grid.laplacian_product(values[nodes]) for grid, nodes in self._parts]
        )

    def contrast_weights(self, features: Floats, sigma2: float) -> sparse.csr_array:
        """Return the weights of neighbours by their contrast; see `GridGraph`."""
        blocks = [grid.contrast_weights(features[nodes], sigma2) for grid, nodes in self._parts]
        return sparse.csr_array(sparse.block_diag(blocks))

    def positions(self, nodes: ArrayLike) -> tuple[Int64s, Int64s]:
        """Return the image indices and the pixel indices, as `GridGraph.positions`, of nodes.

        Raises InvalidInput if there is no such node, or images differ in their number of axes.
        """
        flat = self._check_nodes(nodes).ravel()
        counts = {len(grid.shape) for grid in self.grids}
        if len(counts) > 1:
            raise InvalidInput(f"images: expected equal numbers of axes, got {sorted(counts)}")
        starts = np.array([nodes.start for nodes in self.slices])
        images = np.searchsorted(starts, flat, side="right") - 1
        pixels = np.zeros((len(flat), counts.pop()), np.int64)
        for image in np.unique(images):
            inside = images == image
            pixels[inside] = self.grids[image].positions(flat[inside] - starts[image])
        return images, pixels

    def to_image(self, values: Array, fill: float = 0) -> list[Array]:
        return [grid.to_image(values[nodes], fill) for grid, nodes in self._parts]
