"""Parts of large images, labelled as they would be within the whole."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.features import FeatureExtractor, Pixels
from napari_saf.graph import GraphUnion
from napari_saf.input import ImageOptions, Place, contrast_noise, nodes_of
from napari_saf.problem import Problem

Region = tuple[slice, ...]
Mask = NDArray[np.bool_] | None

WINDOWS_OF_HALO = {1: 3, 2: 3, 3: 4}
"""Beside what features see, a part is labelled with so many windows around it: in volumes of noise
flows take longer, and what is farther away counts."""
_LEAST_HALO = 8
"""Pixels of it around parts where windows are small."""

_BLOCK = {1: 2**14, 2: 256, 3: 48}
"""Side of the blocks of a large image whose pixels say how labels look, by the number of axes."""
_MOST_LEARNED = 2**19
"""Pixels of these blocks."""
LEAST_SIDE = 64
"""Sides of parts are not halved below."""
_centre: ContextVar[Callable[[], ArrayLike | None] | None] = ContextVar("view", default=None)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageParts:
    """Pixels of parts of images, channels last, where to label them, and where they lie.

    Each has what features see around the `regions` of it that count. All parts share the options,
    which are resolved and have a scaling.
    """

    values: list[NDArray[Any]]
    masks: list[Mask]
    places: list[Place]
    regions: list[Region]

    @classmethod
    def read(
        cls, regions: Sequence[Region], pixels: Pixels, reach: Sequence[int], step: int = 1
    ) -> ImageParts:
        """Return the regions of an image that have pixels within the mask, with `reach` around.

        What is around begins at multiples of a step.
        """
        parts = cls([], [], [], [])
        for region in regions:
            crop = grown(region, reach, pixels.shape, step)
            values, inside = pixels.read(crop)
            pairs = zip(region, crop, strict=True)
            own = tuple(slice(r.start - c.start, r.stop - c.start) for r, c in pairs)
            if inside is None or inside[own].any():
                parts.values.append(values)
                parts.masks.append(inside)
                parts.places.append(([side.start for side in crop], pixels.shape))
                parts.regions.append(own)
        return parts

    def noise(self, options: ImageOptions) -> list[float]:
        """Return the variances of the noise that weights by contrast take for all parts."""
        known = zip(self.values, self.masks, self.regions, strict=True)
        own = [(v[region], None if m is None else m[region]) for v, m, region in known]
        return np.mean([contrast_noise(*pair, options) for pair in own], axis=0).tolist()  # type: ignore[no-any-return]

    def scaled(
        self, window: Sequence[int], options: ImageOptions
    ) -> Iterator[tuple[NDArray[np.float32], list[int], Mask]]:
        """Yield parts as extractors are fitted to them: in [0, 1], with axes, and what counts."""
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
        shapes = [one.shape for one in pixels]
        variances = None if noise is None else np.array(noise)
        grids, rows, options = nodes_of(pixels, shapes, options, None, variances, self.places)
        for k, region in enumerate(self.regions):
            sides = zip(region, shapes[k], strict=True)
            if any(one.start > 0 or one.stop < n for one, n in sides):
                part = grids[k].cropped(region)
                rows[k] = part.gather(grids[k].spread(rows[k])[region])
                grids[k] = part
        nodes = np.concatenate(rows) if len(rows) > 1 else rows[0]
        graph = grids[0] if len(grids) == 1 else GraphUnion(grids)
        return Problem(features=np.asarray(nodes, np.float32), graph=graph, options=options)


def reach_of(extractor: FeatureExtractor, window: Sequence[int], *, has_weights: bool) -> list[int]:
    """Return how many pixels around a part, per axis, its features and weights depend on."""
    # A patch reaches a pixel, and what smooths it before one more.
    reach = extractor.receptive_field + 2 * has_weights
    # What comes from a coarser grid is averaged over windows once more.
    is_coarse = extractor.stride > 1
    return [reach + is_coarse * (side // 2) if side > 1 else 0 for side in window]


def halo_of(window: Sequence[int]) -> list[int]:
    """Return how many pixels around a part, per axis, the flow in it depends on."""
    n_averaged = max(1, min(3, sum(side > 1 for side in window)))
    n_sides = 2 * WINDOWS_OF_HALO[n_averaged]
    return [max(_LEAST_HALO, n_sides * (side // 2)) if side > 1 else 0 for side in window]


def grown(region: Region, halo: Sequence[int], shape: Sequence[int], step: int = 1) -> Region:
    """Return a region with so many pixels around it along each axis, within an image.

    It begins at multiples of a step.
    """
    firsts = [max(0, r.start - h) for r, h in zip(region, halo, strict=True)]
    sides = zip(firsts, region, halo, shape, strict=True)
    return tuple(slice(k - k % step if h else k, min(n, r.stop + h)) for k, r, h, n in sides)


def cut(array: NDArray[Any], around: Region, region: Region) -> NDArray[Any]:
    """Return a region of an array that covers what is around it."""
    sides = zip(around, region, strict=True)
    return array[tuple(slice(r.start - a.start, r.stop - a.start) for a, r in sides)]


@contextmanager
def in_view(centre: Callable[[], ArrayLike | None]) -> Iterator[None]:
    """Let parts nearest to a pixel be labelled first in this thread; it is asked before each."""
    token = _centre.set(centre)
    try:
        yield
    finally:
        _centre.reset(token)


def nearest_to_view(regions: Sequence[Region]) -> int:
    """Return the number of the region that is nearest to what is in view, 0 if that is unknown."""
    ask = _centre.get()
    centre = np.ravel(np.array([]) if ask is None else ask())  # type: ignore[arg-type]
    if len(centre) != len(regions[0]):
        return 0
    ends = np.array([[(side.start, side.stop) for side in region] for region in regions])
    outside = np.maximum(ends[..., 0] - centre, centre - ends[..., 1]).clip(0)
    return int(np.square(outside).sum(axis=1).argmin())


def blocks_of(shape: Sequence[int], window: Sequence[int]) -> list[Region]:
    """Return blocks that cover an image."""
    n_axes = max(1, min(3, sum(side > 1 for side in window)))
    sides = [
        min(n, max(_BLOCK[n_axes], 3 * side)) if side > 1 else 1
        for n, side in zip(shape, window, strict=True)
    ]
    starts = [range(0, n, side) for n, side in zip(shape, sides, strict=True)]
    return [
        tuple(slice(k, min(k + s, n)) for k, s, n in zip(corner, sides, shape, strict=True))
        for corner in itertools.product(*starts)
    ]


def blocks_with_labels(
    labels: NDArray[Any], shape: Sequence[int], window: Sequence[int], n_images: int
) -> list[Region]:
    """Return blocks of an image in which every label is, the rarest first, as evenly as can be.

    The labels are those of a reduced size, 0 outside of the mask.
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
    labels: NDArray[Any], shape: Sequence[int], window: Sequence[int], n_images: int
) -> list[Region]:
    """Return blocks of an image as evenly as can be, whatever its labels, where these are not 0."""
    regions, counts = _counted_blocks(labels, shape, window, n_images)
    there = np.flatnonzero(counts.any(axis=1))
    at = np.linspace(0, len(there) - 1, min(_n_blocks(regions, n_images), len(there)))
    return [regions[k] for k in there[at.astype(int)].tolist()]


def _n_blocks(regions: Sequence[Region], n_images: int) -> int:
    n_pixels = math.prod(side.stop - side.start for side in regions[0])
    return int(max(1, _MOST_LEARNED // (n_pixels * n_images)))


def _counted_blocks(
    labels: NDArray[Any], shape: Sequence[int], window: Sequence[int], n_images: int
) -> tuple[list[Region], NDArray[np.int64]]:
    """Return blocks of one size in an image, all of it if it is small, and nodes of each label."""
    regions = [tuple(slice(0, n) for n in shape)]
    if math.prod(shape) * n_images > _MOST_LEARNED:
        regions = blocks_of(shape, window)
        sizes = [math.prod(side.stop - side.start for side in region) for region in regions]
        regions = [one for one, size in zip(regions, sizes, strict=True) if size == max(sizes)]
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
    """Return regions that cover an image and have, with their halo, at most so many pixels."""
    sides = list(shape)

    def n_pixels() -> int:
        return math.prod(min(n, s + 2 * h) for n, s, h in zip(shape, sides, halo, strict=True))

    while n_pixels() > most:
        # Along axes without windows nothing is labelled twice.
        free = [k for k, side in enumerate(window) if side == 1 and sides[k] > 1]
        wide = [k for k, side in enumerate(window) if side > 1 and sides[k] > LEAST_SIDE]
        if not free and not wide:
            break
        longest = max(free or wide, key=lambda k: sides[k])
        sides[longest] = -(-sides[longest] // 2)
    corners = itertools.product(*(range(0, n, s) for n, s in zip(shape, sides, strict=True)))
    return [
        tuple(slice(k, min(k + s, n)) for k, s, n in zip(corner, sides, shape, strict=True))
        for corner in corners
    ]
