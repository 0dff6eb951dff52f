"""Regions of large images: halos, training blocks, tiles, and their problems.

`ImageParts` makes the problem of regions, with the same features as in the whole image; the
functions after it choose regions. Read next: `methods/_learned`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import ArrayLike

from napari_saf.arrays import Array, Float32s, Int64s, Mask, Region, boxes
from napari_saf.features import FeatureExtractor, Pixels
from napari_saf.graph import GraphUnion
from napari_saf.input import ImageOptions, Place, contrast_noise, nodes_of
from napari_saf.problem import Problem

WINDOWS_OF_HALO = {1: 3, 2: 3, 3: 4}
"""Width of a flow's halo in windows, by the number of averaged axes: in noisy volumes flows take
longer and depend on more distant pixels."""
_LEAST_HALO = 8
"""Least halo in pixels, for small windows."""

_BLOCK = {1: 2**14, 2: 256, 3: 48}
"""Side of the training blocks, by the number of axes."""
_MOST_LEARNED = 2**19
"""Most pixels in the training blocks."""
LEAST_SIDE = 64
"""Least side of a tile."""
_centre: ContextVar[Callable[[], ArrayLike | None] | None] = ContextVar("view", default=None)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageParts:
    """Crops of images, channels last, with masks, positions, and the `regions` to label in them.

    A crop includes the receptive field of the features around its region. All crops share the
    resolved options and the intensity scaling.
    """

    values: list[Array]
    masks: list[Mask]
    positions: list[Place]
    regions: list[Region]

    @classmethod
    def read(
        cls, regions: Sequence[Region], pixels: Pixels, reach: Sequence[int], step: int = 1
    ) -> ImageParts:
        """Return crops of the regions that have pixels in the mask, padded by `reach` pixels.

        Crops begin at multiples of `step`.
        """
        parts = cls([], [], [], [])
        for region in regions:
            crop = grown(region, reach, pixels.shape, step)
            values, inside = pixels.read(crop)
            pairs = zip(region, crop, strict=True)
            inner = tuple(slice(r.start - c.start, r.stop - c.start) for r, c in pairs)
            if inside is None or inside[inner].any():
                parts.values.append(values)
                parts.masks.append(inside)
                parts.positions.append(([side.start for side in crop], pixels.shape))
                parts.regions.append(inner)
        return parts

    def noise(self, options: ImageOptions) -> list[float]:
        """Return the noise variances per channel for contrast weights, averaged over the parts."""
        crops = zip(self.values, self.masks, self.regions, strict=True)
        inner = [(v[region], None if m is None else m[region]) for v, m, region in crops]
        return np.mean([contrast_noise(*pair, options) for pair in inner], axis=0).tolist()  # type: ignore[no-any-return]

    def scaled(
        self, window: Sequence[int], options: ImageOptions
    ) -> Iterator[tuple[Float32s, list[int], Mask]]:
        """Yield the arguments of `FeatureExtractor.fitted`: crops in [0, 1], axes, and masks."""
        scaling = options.scaling
        assert scaling is not None
        axes = [axis for axis, side in enumerate(window) if side > 1]
        for values, mask, region in zip(self.values, self.masks, self.regions, strict=True):
            inside = values if mask is None else np.where(mask[..., None], values, scaling.low)
            counted = np.zeros(values.shape[:-1], bool)
            counted[region] = True if mask is None else mask[region]
            yield scaling.apply(inside), axes, None if counted.all() else counted

    def problem(self, options: ImageOptions, noise: Sequence[float] | None) -> Problem:
        """Return the problem of the regions of all parts."""
        pixels = [Pixels.of(*pair) for pair in zip(self.values, self.masks, strict=True)]
        shapes = [crop.shape for crop in pixels]
        variances = None if noise is None else np.array(noise)
        grids, rows, options = nodes_of(pixels, shapes, options, None, variances, self.positions)
        for k, region in enumerate(self.regions):
            sides = zip(region, shapes[k], strict=True)
            if any(side.start > 0 or side.stop < n for side, n in sides):
                part = grids[k].cropped(region)
                rows[k] = part.gather(grids[k].spread(rows[k])[region])
                grids[k] = part
        nodes = np.concatenate(rows) if len(rows) > 1 else rows[0]
        graph = grids[0] if len(grids) == 1 else GraphUnion(grids)
        return Problem(features=np.asarray(nodes, np.float32), graph=graph, options=options)


def reach_of(extractor: FeatureExtractor, window: Sequence[int], *, has_weights: bool) -> list[int]:
    """Return the receptive field per axis, in pixels, of the features and weights of a part."""
    # weights: one pixel for the patch, another for its smoothing
    reach = extractor.receptive_field + 2 * has_weights
    # features on a coarser grid are also averaged over windows
    is_coarse = extractor.stride > 1
    return [reach + is_coarse * (side // 2) if side > 1 else 0 for side in window]


def halo_of(window: Sequence[int]) -> list[int]:
    """Return the pixels around a part, per axis, on which its flow depends."""
    n_averaged = max(1, min(3, sum(side > 1 for side in window)))
    n_sides = 2 * WINDOWS_OF_HALO[n_averaged]
    return [max(_LEAST_HALO, n_sides * (side // 2)) if side > 1 else 0 for side in window]


def grown(region: Region, halo: Sequence[int], shape: Sequence[int], step: int = 1) -> Region:
    """Return a region grown by `halo` pixels along each axis, clipped to the image.

    It begins at multiples of `step`.
    """
    firsts = [max(0, r.start - h) for r, h in zip(region, halo, strict=True)]
    sides = zip(firsts, region, halo, shape, strict=True)
    return tuple(slice(k - k % step if h else k, min(n, r.stop + h)) for k, r, h, n in sides)


def cut(array: Array, around: Region, region: Region) -> Array:
    """Return `region` of an array that covers the larger region `around`."""
    sides = zip(around, region, strict=True)
    return array[tuple(slice(r.start - a.start, r.stop - a.start) for a, r in sides)]


@contextmanager
def in_view(centre: Callable[[], ArrayLike | None]) -> Iterator[None]:
    """Context in which this thread labels the regions nearest to the pixel `centre()` first."""
    token = _centre.set(centre)
    try:
        yield
    finally:
        _centre.reset(token)


def nearest_to_view(regions: Sequence[Region]) -> int:
    """Return the index of the region nearest to the centre of the view, 0 if unknown."""
    ask = _centre.get()
    centre = np.ravel(np.array([]) if ask is None else ask())  # type: ignore[arg-type]
    if len(centre) != len(regions[0]):
        return 0
    ends = np.array([[(side.start, side.stop) for side in region] for region in regions])
    outside = np.maximum(ends[..., 0] - centre, centre - ends[..., 1]).clip(0)
    return int(np.square(outside).sum(axis=1).argmin())


def blocks_of(shape: Sequence[int], window: Sequence[int]) -> list[Region]:
    """Return training blocks that cover an image."""
    n_axes = max(1, min(3, sum(side > 1 for side in window)))
    sides = [
        min(n, max(_BLOCK[n_axes], 3 * side)) if side > 1 else 1
        for n, side in zip(shape, window, strict=True)
    ]
    return list(boxes(shape, sides))


def blocks_with_labels(
    labels: Array, shape: Sequence[int], window: Sequence[int], n_images: int
) -> list[Region]:
    """Return evenly spread blocks of an image that contain every label, the rarest first.

    `labels` are at a reduced size, 0 outside the mask.
    """
    regions, counts = _counted_blocks(labels, shape, window, n_images)
    if len(regions) == 1:
        return regions
    n_blocks = _n_blocks(regions, n_images)
    n_each = -(-n_blocks // max(1, counts.shape[1]))
    chosen: list[int] = []
    for column in np.argsort(counts.sum(axis=0), kind="stable"):
        order = np.argsort(-counts[:, column], kind="stable")
        order = order[: max(1, np.count_nonzero(counts[:, column]) // 2)]
        at = np.linspace(0, len(order) - 1, min(n_each, len(order))).astype(int)
        chosen += [k for k in order[at].tolist() if k not in chosen]
    return [regions[k] for k in chosen[: max(n_blocks, counts.shape[1])]]


def even_blocks(
    labels: Array, shape: Sequence[int], window: Sequence[int], n_images: int
) -> list[Region]:
    """Return evenly spread blocks of an image that have pixels in the mask."""
    regions, counts = _counted_blocks(labels, shape, window, n_images)
    labelled = np.flatnonzero(counts.any(axis=1))
    at = np.linspace(0, len(labelled) - 1, min(_n_blocks(regions, n_images), len(labelled)))
    return [regions[k] for k in labelled[at.astype(int)].tolist()]


def _n_blocks(regions: Sequence[Region], n_images: int) -> int:
    n_pixels = math.prod(side.stop - side.start for side in regions[0])
    return int(max(1, _MOST_LEARNED // (n_pixels * n_images)))


def _counted_blocks(
    labels: Array, shape: Sequence[int], window: Sequence[int], n_images: int
) -> tuple[list[Region], Int64s]:
    """Return the blocks of full size, or a small image, and the node counts of each label."""
    regions = [tuple(slice(0, n) for n in shape)]
    if math.prod(shape) * n_images > _MOST_LEARNED:
        regions = blocks_of(shape, window)
        sizes = [math.prod(side.stop - side.start for side in region) for region in regions]
        regions = [region for region, n in zip(regions, sizes, strict=True) if n == max(sizes)]
    numbers, inverse = np.unique(labels, return_inverse=True)
    inverse = inverse.reshape(labels.shape)
    ratios = [small / large for small, large in zip(labels.shape, shape, strict=True)]
    counts = np.zeros((len(regions), len(numbers)), np.int64)
    for row, region in zip(counts, regions, strict=True):
        near = []
        for side, ratio in zip(region, ratios, strict=True):
            first = int(side.start * ratio)
            near.append(slice(first, max(first + 1, math.ceil(side.stop * ratio))))
        row += np.bincount(inverse[tuple(near)].ravel(), minlength=len(numbers))
    return regions, counts[:, numbers > 0]


def tiles_of(
    shape: Sequence[int], window: Sequence[int], halo: Sequence[int], most: int
) -> list[Region]:
    """Return tiles of an image with at most `most` pixels each, including the halo."""
    sides = list(shape)

    def n_pixels() -> int:
        return math.prod(min(n, s + 2 * h) for n, s, h in zip(shape, sides, halo, strict=True))

    while n_pixels() > most:
        # halos along axes without windows are empty
        free = [k for k, side in enumerate(window) if side == 1 and sides[k] > 1]
        wide = [k for k, side in enumerate(window) if side > 1 and sides[k] > LEAST_SIDE]
        if not free and not wide:
            break
        longest = max(free or wide, key=lambda k: sides[k])
        sides[longest] = -(-sides[longest] // 2)
    return list(boxes(shape, sides))
