"""A grid with fewer nodes than its image has pixels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.transform import resize_local_mean

from napari_saf.errors import InvalidInput
from napari_saf.graph._grid import GridGraph
from napari_saf.graph._shape import check_mask


class CoarseGrid(GridGraph):
    """A grid whose nodes each stand for a block of pixels of a larger image.

    Images go in and come out at the size of the large image.

    Parameters
    ----------
    grid : GridGraph
        The nodes.
    image_shape : sequence of int
        Shape of the large image, without channels; no side is shorter than that of the grid.
    image_mask : array of bool of shape `image_shape`, optional
        Which of its pixels take part. None stands for all.

    Raises
    ------
    InvalidInput
        If the shapes do not fit.
    """

    def __init__(
        self, grid: GridGraph, image_shape: Sequence[int], image_mask: ArrayLike | None = None
    ) -> None:
        super().__init__(grid.shape, window=grid.window, mask=grid.mask)
        self.weights, self.stride = grid.weights, grid.stride
        self.image_shape = tuple(int(side) for side in image_shape)
        if len(self.image_shape) != len(self.shape) or any(
            large < small for large, small in zip(self.image_shape, self.shape, strict=True)
        ):
            raise InvalidInput(
                f"image_shape: expected sides of at least {self.shape}, got {self.image_shape}"
            )
        self.image_mask = check_mask(image_mask, self.image_shape)

    def to_image(self, values: NDArray[np.generic], fill: float = 0) -> NDArray[np.generic]:
        """Return node values as an image of the large size, `fill` outside the mask.

        Between the nodes, numbers are interpolated linearly; whole numbers are names, of which
        the one with most weight is taken.
        """
        values = np.asarray(values)
        if values.dtype.kind == "f":
            image = self._interpolate(self.spread(values))
        else:
            image = self._vote(self.spread(values, fill=-1 if values.dtype.kind == "i" else 0))
        if self.image_mask is not None:
            image[~self.image_mask] = fill
        return image

    def positions(self, nodes: ArrayLike) -> NDArray[np.int64]:
        """Return the pixels in the middle of the blocks that nodes stand for."""
        ratio = np.divide(self.image_shape, self.shape)
        return ((super().positions(nodes) + 0.5) * ratio).astype(np.int64)

    def from_image(self, image: ArrayLike) -> NDArray[np.generic]:
        """Return what an image of the large size holds at the nodes, channels last.

        Numbers are averaged over the block of a node. Whole numbers are names: the most
        frequent in the block is taken, 0 only where there is no other.
        """
        image = np.asarray(image)
        if image.shape[: len(self.image_shape)] != self.image_shape:
            raise InvalidInput(f"expected an image of shape {self.image_shape}, got {image.shape}")
        if image.dtype.kind == "f":
            return self.gather(coarse_means(image, self.shape, self.image_mask))
        if image.ndim > len(self.shape):
            raise InvalidInput(f"expected whole numbers without channels, got {image.shape}")
        return self.gather(self._most_frequent(image))

    def _most_frequent(self, image: NDArray[np.generic]) -> NDArray[np.generic]:
        counted = image != 0 if self.image_mask is None else (image != 0) & self.image_mask
        places = np.nonzero(counted)
        blocks = [
            place * small // large
            for place, small, large in zip(places, self.shape, self.image_shape, strict=True)
        ]
        found = image[places].astype(np.int64)
        width = int(found.max(initial=0)) + 1
        keys = np.ravel_multi_index(blocks, self.shape) * width + found
        pairs, counts = np.unique(keys, return_counts=True)
        flat, own = np.divmod(pairs, width)
        order = np.lexsort((-own, counts))
        names = np.zeros(self.shape, dtype=image.dtype)
        # Of several assignments to one place the last one counts.
        names.ravel()[flat[order]] = own[order]
        return names

    def _interpolate(self, coarse: NDArray[np.generic]) -> NDArray[np.generic]:
        image: NDArray[np.generic] = coarse
        for axis, (low, share) in enumerate(self._between()):
            high = np.minimum(low + 1, self.shape[axis] - 1)
            along = [1] * image.ndim
            along[axis] = len(share)
            weight = share.reshape(along).astype(image.dtype)
            first, second = image.take(low, axis=axis), image.take(high, axis=axis)
            image = np.asarray((1 - weight) * first + weight * second)
        return image

    def _vote(self, coarse: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return at every pixel the name with most weight among the nodes around it."""
        between = self._between()
        nearest = [low + (share > 0.5) for low, share in between]
        corners = []
        for ends in itertools.product((0, 1), repeat=len(between)):
            where = [
                np.minimum(low + end, side - 1)
                for (low, _), end, side in zip(between, ends, self.shape, strict=True)
            ]
            corners.append((ends, coarse[np.ix_(*where)]))
        image = coarse[np.ix_(*nearest)]
        unlike = np.zeros(self.image_shape, dtype=bool)
        for _, names in corners[1:]:
            unlike |= names != corners[0][1]
        places = np.nonzero(unlike)
        shares = [share[place] for (_, share), place in zip(between, places, strict=True)]
        names = np.stack([names[places] for _, names in corners])
        weights = np.stack(
            [
                np.prod([s if end else 1 - s for s, end in zip(shares, ends, strict=True)], axis=0)
                for ends, _ in corners
            ]
        )
        votes = np.stack([(weights * (names == name)).sum(axis=0) for name in names])
        votes[names == (-1 if names.dtype.kind == "i" else 0)] = 0
        image[places] = np.take_along_axis(names, votes.argmax(axis=0)[None], axis=0)[0]
        return image

    def _between(self) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Return, per axis, the node before each pixel and how far the pixel is past it."""
        found = []
        for large, small in zip(self.image_shape, self.shape, strict=True):
            place = np.clip((np.arange(large) + 0.5) * small / large - 0.5, 0, small - 1)
            low = np.minimum(place.astype(np.int64), max(small - 2, 0))
            found.append((low, place - low))
        return found


def coarse_means(
    image: NDArray[np.generic], shape: tuple[int, ...], mask: NDArray[np.bool_] | None = None
) -> NDArray[np.float32]:
    """Return the means of an image, channels last, over blocks; over the mask if there is one."""
    has_channels = image.ndim > len(shape)
    values = np.asarray(image if has_channels else image[..., None], dtype=np.float32)
    if mask is not None:
        values = np.where(mask[..., None], values, 0)
    means = _block_means(values, shape)
    if mask is not None:
        means /= np.maximum(_block_means(mask[..., None].astype(np.float32), shape), 1e-6)
    return means if has_channels else means[..., 0]


def coarse_mask(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return where blocks hold a pixel of the mask."""
    return np.asarray(_block_means(mask[..., None].astype(np.float32), shape)[..., 0] > 1e-6)


def _block_means(values: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.asarray(
        resize_local_mean(values, shape, grid_mode=True, preserve_range=True, channel_axis=-1),
        dtype=np.float32,
    )
