"""Tiles of an image and its pyramid, and blocks to learn from."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from napari_saf import storage
from napari_saf.arrays import JsonObject
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
"""Sides by number of averaged axes, as above; 1 along the others."""
_BLOCK_WINDOWS = 3
_MOST_FIELDS = 3 * 2**29
"""Maximum bytes of the fields of a tile, to keep a process below 2 GiB."""


class Tiling(storage.VersionedModel):
    """The tiles of an image, in JSON; sizes are in pixels, positions of tiles in units of tiles.

    The same `request` gives the same tiling; `source` is the state of the input files.
    """

    plan_kind: str = Field(alias="kind")
    request: JsonObject
    source: JsonObject
    shape: list[int]
    axes: str
    tile: list[int]
    chunk: list[int]
    halo: list[int]
    notes: list[str]

    @property
    def most_label(self) -> int:
        """The largest possible label."""
        raise NotImplementedError

    @property
    def decided(self) -> str:
        """Description of the labelling, for display."""
        raise NotImplementedError

    def describe(self, axes: Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        """Return names and colours of labels, and the metadata of the mask."""
        raise NotImplementedError

    @property
    def n_bytes(self) -> int:
        """Bytes of all levels before compression."""
        dtype = np.min_scalar_type(self.most_label)
        return sum(math.prod(shape) * dtype.itemsize for shape in self.level_shapes())

    @property
    def digest(self) -> str:
        """Digest of all fields."""
        text = json.dumps(self.model_dump(by_alias=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def level_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the levels: long axes are halved from level to level.

        Axes along which a tile has one pixel, such as time, are not.
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
        """Return the positions of the tiles of a level."""
        sides = zip(self.level_shapes()[level], self.tile, strict=True)
        return list(itertools.product(*(range(-(-n // side)) for n, side in sides)))

    def every_tile(self) -> list[tuple[int, ...]]:
        """Return level and position of all tiles, the finest level first."""
        levels = range(len(self.level_shapes()))
        return [(level, *position) for level in levels for position in self.tiles(level)]

    def region(self, position: Sequence[int], level: int = 0) -> Region:
        """Return the region of a tile of a level."""
        sides = zip(position, self.tile, self.level_shapes()[level], strict=True)
        return tuple(slice(k * side, min((k + 1) * side, n)) for k, side, n in sides)

    def steps_between(self, level: int) -> tuple[int, ...]:
        """Return the reduction from a level to the next along each axis, 1 or 2."""
        shapes = self.level_shapes()
        return tuple(1 + (a != b) for a, b in zip(shapes[level], shapes[level + 1], strict=True))

    def coarser(self, tile: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the tile of the next coarser level, if any, that contains a tile."""
        level, *position = tile
        if level + 1 == len(self.level_shapes()):
            return None
        steps = self.steps_between(level)
        return (level + 1, *(k // step for k, step in zip(position, steps, strict=True)))

    def surroundings(self, region: Region) -> Region:
        """Return a region with the halo around it, within the image."""
        return grown(region, self.halo, self.shape)


def sides_of(
    shape: Sequence[int], window: Sequence[int], tile: int | None
) -> tuple[list[int], list[int], list[int]]:
    """Return the sides of blocks to learn from, of chunks, and of tiles, which are whole chunks."""
    averaged = [side > 1 for side in window]
    if not any(averaged):  # pixels are labelled independently: in planes
        wide = [axis for axis, n in enumerate(shape) if n > 1][-2:]
        averaged = [axis in wide for axis in range(len(shape))]
    n_averaged = max(1, min(3, sum(averaged)))

    def sides(of: dict[int, int], least: Sequence[int]) -> list[int]:
        axes = zip(least, shape, averaged, strict=True)
        return [min(max(of[n_averaged], low), n) if wide else 1 for low, n, wide in axes]

    block = sides(_BLOCK, [_BLOCK_WINDOWS * side for side in window])
    tile_sides = sides(_TILE if tile is None else dict.fromkeys(_TILE, tile), [1] * len(window))
    return block, *chunks_and_tiles(tile_sides, sides(_CHUNK, [1] * len(window)))


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
    """Return the sides of chunks and of tiles whose fields fit into memory, and notes.

    Borders and features are computed on a tile grown by `reach` and halo, with fewer numbers per
    pixel. Tiles are larger if these dominate, and of default size if none fits.
    """
    far = [0] * len(shape) if reach is None else reach
    usual = max(sides_of(shape, window, None)[2])
    n_fields = 5 * n_labels + 12 if kernels() else 12 * n_labels  # as in a flow

    def with_bytes(side: int | None) -> tuple[list[int], list[int], int]:
        _, chunk, tile_sides = sides_of(shape, window, side)
        n_bytes = 0
        for around, n_each in ((far, 6), ([0] * len(shape), n_fields + 4 * n_features)):
            halos = [h + f for h, f in zip(halo, around, strict=True)]
            crop = [min(n, k + 2 * h) for n, k, h in zip(shape, tile_sides, halos, strict=True)]
            n_bytes += 4 * n_each * math.prod(crop)
        return chunk, tile_sides, n_bytes

    sides = [tile] if tile is not None else [usual * k // 8 for k in (8, 7, 6, 5, 4)]
    if tile is None and 4 * max(map(sum, zip(halo, far, strict=True))) > usual:
        sides = [2 * usual, 3 * usual // 2, *sides]
    sizes = [with_bytes(side) for side in sides]
    for chunk, tile_sides, n_bytes in sizes:
        if n_bytes <= _MOST_FIELDS:
            return chunk, tile_sides, []
    chunk, tile_sides, n_bytes = sizes[sides.index(usual if tile is None else tile)]
    less = "a smaller window, or fewer labels, reduce this"
    return chunk, tile_sides, [f"a tile with its surroundings needs {size_text(n_bytes)}: {less}"]


def blocks_within(pixels: Pixels, block: Sequence[int], n_blocks: int) -> list[Region]:
    """Return `n_blocks` blocks, spread evenly over those with pixels within the mask."""
    counts = [-(-n // side) for n, side in zip(pixels.shape, block, strict=True)]
    touched = np.full(counts, not pixels.has_mask)
    for region in pixels.regions() if pixels.has_mask else ():
        sides = zip(region, block, strict=True)
        numbers = [np.arange(side.start, side.stop) // length for side, length in sides]
        inside: Any = pixels.read(region)[1]
        any_inside, blocks = reduced_to_blocks(np.logical_or, inside, numbers)
        touched[blocks] |= any_inside
    positions = np.flatnonzero(touched)
    indices = np.linspace(0, len(positions) - 1, min(n_blocks, len(positions))).astype(int)
    corners = np.stack(np.unravel_index(positions[indices], counts), axis=1) * np.array(block)
    corners = np.minimum(corners, np.subtract(pixels.shape, block))
    return [
        tuple(slice(k, min(k + s, n)) for k, s, n in zip(corner, block, pixels.shape, strict=True))
        for corner in corners.tolist()
    ]


def reduced_to_blocks(
    reduce: np.ufunc, values: NDArray[Any], numbers: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[Any], Region]:
    """Reduce values over blocks, given the ascending block number of each pixel along each axis.

    Return the results, and the blocks they are of.
    """
    for axis, axis_numbers in enumerate(numbers):
        firsts = np.flatnonzero(np.diff(axis_numbers, prepend=-1))
        values = reduce.reduceat(values, firsts, axis=axis)
    return values, tuple(slice(int(n[0]), int(n[-1]) + 1) for n in numbers)
