"""Parts of large images, labelled as they would be within the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.features import FeatureExtractor
from napari_saf.graph import GraphUnion
from napari_saf.input import ImageOptions, Place, contrast_noise, prepare_images
from napari_saf.problem import Problem

Region = tuple[slice, ...]
Mask = NDArray[np.bool_] | None

WINDOWS_OF_HALO = {1: 3, 2: 3, 3: 4}
"""Beside what features see, a part is labelled with so many windows around it: in volumes of noise
flows take longer, and what is farther away counts."""
_LEAST_HALO = 8
"""Pixels of it around parts where windows are small."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageParts:
    """Pixels of parts of images, channels last, where to label them, and where they lie.

    All parts share the options, which are resolved and have a scaling.
    """

    values: list[NDArray[Any]]
    masks: list[Mask]
    places: list[Place]

    @classmethod
    def read(
        cls,
        regions: Sequence[Region],
        shape: Sequence[int],
        read: Callable[[Region], tuple[NDArray[Any], Mask]],
    ) -> ImageParts:
        """Return the regions of an image that have pixels within the mask.

        `read` returns pixels and mask (None for everywhere) of a region.
        """
        parts = cls([], [], [])
        for region in regions:
            values, inside = read(region)
            if inside is None or inside.any():
                parts.values.append(values)
                parts.masks.append(inside)
                parts.places.append(([side.start for side in region], shape))
        return parts

    def noise(self, options: ImageOptions) -> list[float]:
        """Return the variances of the noise that weights by contrast take for all parts."""
        pairs = zip(self.values, self.masks, strict=True)
        return np.mean([contrast_noise(*pair, options) for pair in pairs], axis=0).tolist()  # type: ignore[no-any-return]

    def scaled(
        self, window: Sequence[int], options: ImageOptions
    ) -> Iterator[tuple[NDArray[np.float32], list[int], Mask]]:
        """Yield parts as extractors are fitted to them: in [0, 1], with axes and mask."""
        scaling = options.scaling
        assert scaling is not None
        axes = [axis for axis, side in enumerate(window) if side > 1]
        for block, mask in zip(self.values, self.masks, strict=True):
            inside = block if mask is None else np.where(mask[..., None], block, scaling.low)
            yield scaling.apply(inside), axes, mask

    def problem(
        self, options: ImageOptions, noise: Sequence[float] | None, n_first: int | None = None
    ) -> Problem:
        """Return the problem of all parts, or of the first ones."""
        some = slice(n_first)
        variances = None if noise is None else np.array(noise)
        grids, fields = prepare_images(
            list(self.values[some]),
            list(self.masks[some]),
            None,
            options,
            variances,
            self.places[some],
        )
        groups = fields.pop("groups")
        if groups is not None:
            pairs = zip(grids, groups, strict=True)
            groups = np.concatenate([grid.gather(image) for grid, image in pairs]).astype(np.int64)
        graph = grids[0] if len(grids) == 1 else GraphUnion(grids)
        return Problem(graph=graph, groups=groups, **fields)


def halo_of(extractor: FeatureExtractor, window: Sequence[int], *, has_weights: bool) -> list[int]:
    """Return how many pixels around a part, per axis, its labels depend on."""
    # A patch reaches a pixel, and what smooths it before one more.
    reach = extractor.receptive_field + 2 * has_weights
    # What comes from a coarser grid is averaged over windows once more.
    n_averaged = max(1, min(3, sum(side > 1 for side in window)))
    n_sides = 2 * WINDOWS_OF_HALO[n_averaged] + (extractor.stride > 1)
    return [reach + max(_LEAST_HALO, n_sides * (s // 2)) if s > 1 else 0 for s in window]


def grown(region: Region, halo: Sequence[int], shape: Sequence[int]) -> Region:
    """Return a region with so many pixels around it along each axis, within an image."""
    sides = zip(region, halo, shape, strict=True)
    return tuple(slice(max(0, r.start - h), min(n, r.stop + h)) for r, h, n in sides)


def cut(array: NDArray[Any], around: Region, region: Region) -> NDArray[Any]:
    """Return a region of an array that covers what is around it."""
    sides = zip(around, region, strict=True)
    return array[tuple(slice(r.start - a.start, r.stop - a.start) for a, r in sides)]
