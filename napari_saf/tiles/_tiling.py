"""How an image is cut into blocks and tiles, and its labels into the tiles of a pyramid."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from napari_saf import storage
from napari_saf.device import size_text
from napari_saf.features import Pixels
from napari_saf.flow import kernels
from napari_saf.io import Axes, Region
from napari_saf.parts import grown
from napari_saf.result import LabelMap

_LEAST_LEVEL = 256
_BLOCK = {1: 4096, 2: 128, 3: 32}
_TILE = {1: 2**18, 2: 512, 3: 96}
_CHUNK = {1: 2**16, 2: 256, 3: 48}
"""Sides, by the number of axes along which labels are averaged, as above; 1 along the others."""
_BLOCK_WINDOWS = 3
_MOST_FIELDS = 3 * 2**29
"""Bytes of the fields of a tile with which a process stays below 2 GiB."""


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

    @property
    def decided(self) -> str:
        """How labels are decided, in words."""
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


def sides_of(
    shape: Sequence[int], window: Sequence[int], tile: int | None
) -> tuple[list[int], list[int], list[int]]:
    """Return the sides of blocks to learn from, of chunks, and of tiles, which are whole chunks."""
    averaged = [side > 1 for side in window]
    if not any(averaged):  # single pixels are labelled: in planes
        wide = [axis for axis, n in enumerate(shape) if n > 1][-2:]
        averaged = [axis in wide for axis in range(len(shape))]
    n_averaged = max(1, min(3, sum(averaged)))

    def sides(of: dict[int, int], least: Sequence[int]) -> list[int]:
        return [
            min(max(of[n_averaged], low), n) if is_wide else 1
            for low, n, is_wide in zip(least, shape, averaged, strict=True)
        ]

    block = sides(_BLOCK, [_BLOCK_WINDOWS * side for side in window])
    wanted = sides(_TILE if tile is None else dict.fromkeys(_TILE, tile), [1] * len(window))
    return block, *chunks_and_tiles(wanted, sides(_CHUNK, [1] * len(window)))


def chunks_and_tiles(tile: Sequence[int], chunk: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the sides of chunks, at most as given, and of tiles, as given or a little more."""
    counts = [-(-side // part) for side, part in zip(tile, chunk, strict=True)]
    sides = [-(-side // count) for side, count in zip(tile, counts, strict=True)]
    return sides, [part * count for part, count in zip(sides, counts, strict=True)]


def fitting_tile(
    shape: Sequence[int],
    window: Sequence[int],
    tile: int | None,
    halo: Sequence[int],
    n_labels: int,
    n_features: int,
    reach: Sequence[int] | None = None,
) -> tuple[list[int], list[int], list[str]]:
    """Return the sides of chunks and tiles, small ones if fields are large, and what to say of it.

    Borders and features are made of a tile with `reach` and halo around, with fewer numbers a
    pixel. Tiles are larger where that is most of the work, and have the usual size where no tile is
    small enough.
    """
    far = [0] * len(shape) if reach is None else reach
    usual = max(sides_of(shape, window, None)[2])
    n_fields = 5 * n_labels + 12 if kernels() else 12 * n_labels  # as a flow counts them

    def with_bytes(side: int | None) -> tuple[list[int], list[int], int]:
        _, chunk, own = sides_of(shape, window, side)
        n_bytes = 0
        for around, n_each in ((far, 6), ([0] * len(shape), n_fields + 4 * n_features)):
            halos = [h + f for h, f in zip(halo, around, strict=True)]
            crop = [min(n, k + 2 * h) for n, k, h in zip(shape, own, halos, strict=True)]
            n_bytes += 4 * n_each * math.prod(crop)
        return chunk, own, n_bytes

    sides = [tile] if tile is not None else [usual * k // 8 for k in (8, 7, 6, 5, 4)]
    if tile is None and 4 * max(map(sum, zip(halo, far, strict=True))) > usual:
        sides = [2 * usual, 3 * usual // 2, *sides]
    found = [with_bytes(side) for side in sides]
    for chunk, own, n_bytes in found:
        if n_bytes <= _MOST_FIELDS:
            return chunk, own, []
    chunk, own, n_bytes = found[sides.index(usual if tile is None else tile)]
    less = "a smaller window, or fewer labels, need less"
    return chunk, own, [f"a tile and what is around it take {size_text(n_bytes)}: {less}"]


def blocks_within(pixels: Pixels, block: Sequence[int], n_blocks: int) -> list[Region]:
    """Return so many blocks, spread evenly over an image where it has pixels within its mask."""
    counts = [-(-n // side) for n, side in zip(pixels.shape, block, strict=True)]
    touched = np.ones(counts, bool)
    if pixels.has_mask:
        touched[...] = False
        for region in pixels.regions():
            inside: Any = pixels.read(region)[1]
            near = []
            for axis, (side, own) in enumerate(zip(region, block, strict=True)):
                at = np.arange(side.start, side.stop) // own
                firsts = np.flatnonzero(np.diff(at, prepend=-1))
                inside = np.logical_or.reduceat(inside, firsts, axis=axis)
                near.append(slice(int(at[0]), int(at[-1]) + 1))
            touched[tuple(near)] |= inside
    places = np.flatnonzero(touched)
    chosen = places[np.linspace(0, len(places) - 1, min(n_blocks, len(places))).astype(int)]
    corners = np.stack(np.unravel_index(chosen, counts), axis=1) * np.array(block)
    last = np.subtract(pixels.shape, block)
    return [region_of(corner, block, pixels.shape) for corner in np.minimum(corners, last).tolist()]


def region_of(place: Sequence[int], side: Sequence[int], shape: Sequence[int]) -> Region:
    return tuple(slice(k, min(k + s, n)) for k, s, n in zip(place, side, shape, strict=True))
