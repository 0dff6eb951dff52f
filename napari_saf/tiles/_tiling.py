"""How an image is cut into tiles, and its labels into the tiles of a pyramid."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from napari_saf import storage
from napari_saf.io import Axes, Region
from napari_saf.parts import grown
from napari_saf.result import LabelMap

_LEAST_LEVEL = 256


class Tiling(storage.VersionedModel):
    """Where the tiles of an image are, as JSON holds it; positions and sizes are in pixels.

    `request` is what was asked for, of which the same tiling would come, `source` what tells that
    the image changed.
    """

    kind: str
    request: dict[str, Any]
    source: dict[str, Any]
    shape: list[int]
    axes: str
    tile: list[int]
    chunk: list[int]
    halo: list[int]
    notes: list[str]

    @property
    def most_label(self) -> int:
        """The largest label that may come out."""
        raise NotImplementedError

    def describe(self, axes: Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        """Return names and colours of the labels there are, and the note of the mask."""
        raise NotImplementedError

    @property
    def n_bytes(self) -> int:
        """Bytes of the labels of all levels before they are compressed."""
        kind = np.min_scalar_type(self.most_label)
        return sum(math.prod(shape) * kind.itemsize for shape in self.level_shapes())

    @property
    def digest(self) -> str:
        """A short name."""
        text = json.dumps(self.model_dump(by_alias=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def level_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the pyramid: long axes of the tile are halved from level to level.

        Axes that a tile has one pixel of, such as time, are not.
        """
        shapes = [tuple(self.shape)]
        while any(
            n > _LEAST_LEVEL and side > 1 for n, side in zip(shapes[-1], self.tile, strict=True)
        ):
            shapes.append(
                tuple(
                    -(-n // 2) if n > _LEAST_LEVEL and side > 1 else n
                    for n, side in zip(shapes[-1], self.tile, strict=True)
                )
            )
        return shapes

    def tiles(self, level: int = 0) -> list[tuple[int, ...]]:
        """Return the places of the tiles of a level, in units of tiles."""
        sides = zip(self.level_shapes()[level], self.tile, strict=True)
        return list(itertools.product(*(range(-(-n // side)) for n, side in sides)))

    def every_tile(self) -> list[tuple[int, ...]]:
        """Return level and place of all tiles, the finest level first."""
        levels = range(len(self.level_shapes()))
        return [(level, *place) for level in levels for place in self.tiles(level)]

    def region(self, place: Sequence[int], level: int = 0) -> Region:
        """Return what a tile of a level covers."""
        sides = zip(place, self.tile, self.level_shapes()[level], strict=True)
        return tuple(slice(k * side, min((k + 1) * side, n)) for k, side, n in sides)

    def steps_between(self, level: int) -> tuple[int, ...]:
        """Return how many pixels of a level, along each axis, one of the coarser level is of."""
        shapes = self.level_shapes()
        return tuple(1 + (a != b) for a, b in zip(shapes[level], shapes[level + 1], strict=True))

    def coarser(self, tile: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the tile (level, place) of the next coarser level, if any, that one is part of."""
        level, *place = tile
        if level + 1 == len(self.level_shapes()):
            return None
        steps = self.steps_between(level)
        return (level + 1, *(at // step for at, step in zip(place, steps, strict=True)))

    def surroundings(self, region: Region) -> Region:
        """Return a region with the halo around it, within the image."""
        return grown(region, self.halo, self.shape)
