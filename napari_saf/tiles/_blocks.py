"""Which blocks of a large image are learned from, and the sides of blocks, chunks and tiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf.device import size_text
from napari_saf.errors import InvalidInput
from napari_saf.flow import kernels
from napari_saf.io import ImageSource, Region

_BLOCK = {1: 4096, 2: 128, 3: 32}
_TILE = {1: 2**18, 2: 512, 3: 96}
_CHUNK = {1: 2**16, 2: 256, 3: 48}
"""Sides, by the number of axes along which labels are averaged, as above; 1 along the others."""
_BLOCK_WINDOWS = 3
_LEAST_CANDIDATES, _MOST_CANDIDATES = 256, 4096
_MOST_READ = 2**29
"""Blocks to choose from, as many as are read with so many pixels of the pieces of a file."""
_MOST_COARSE = 2**24
_MOST_SAMPLED = 2**20
"""Values of a level that is looked at whole; values from which the scaling is taken."""
_MOST_FIELDS = 3 * 2**29
"""Bytes of the fields of a tile with which a process stays below 2 GiB."""
_MOST_READ_MASK = 2**22
"""Pixels of a mask that are read at a time where it is searched for blocks."""


def sides_of(
    shape: Sequence[int], window: Sequence[int], tile: int | None
) -> tuple[list[int], list[int], list[int]]:
    """Return the sides of blocks to learn from, of chunks, and of tiles, which are whole chunks."""
    averaged = [side > 1 for side in window]
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
) -> tuple[list[int], list[int], list[str]]:
    """Return the sides of chunks and tiles, small ones if fields are large, and what to say of it.

    Where no tile is small enough, it has the usual size: halos would take most of the time.
    """
    usual = max(sides_of(shape, window, None)[2])
    found: list[tuple[list[int], list[int], int]] = []
    n_fields = 5 * n_labels + 12 if kernels() else 12 * n_labels  # as a flow counts them
    for side in (tile,) if tile is not None else (None, *(usual * k // 8 for k in (7, 6, 5, 4))):
        _, chunk, own = sides_of(shape, window, side)
        crop = [min(n, k + 2 * far) for n, k, far in zip(shape, own, halo, strict=True)]
        n_bytes = 4 * (n_fields + 4 * n_features) * math.prod(crop)
        if n_bytes <= _MOST_FIELDS:
            return chunk, own, []
        found.append((chunk, own, n_bytes))
    chunk, own, n_bytes = found[0]
    less = "a smaller window, or fewer labels, need less"
    return chunk, own, [f"a tile and what is around it take {size_text(n_bytes)}: {less}"]


def choose_blocks(
    image: ImageSource,
    mask: ImageSource | Literal["finite"] | None,
    block: Sequence[int],
    n_blocks: int,
) -> tuple[list[tuple[int, ...]], NDArray[Any]]:
    """Return the first pixels of blocks that differ most, and values that stand for the image.

    Blocks are chosen farthest first by means, deviations and extremes of channels: what is rare is
    then among them. They are looked at on a level of the pyramid, or, where there is none, at full
    resolution, some thousands of them.
    """
    level = next(
        (
            k
            for k in range(1, image.n_levels)
            if math.prod(image.level_shape(k)) * image.n_channels <= _MOST_COARSE
        ),
        0,
    )
    coarse = image.level_shape(level)
    ratio = [a / b for a, b in zip(image.shape, coarse, strict=True)]
    is_seen = level > 0 and tuple(block) != image.shape
    is_seen &= all(side / r >= 2 or side == 1 for side, r in zip(block, ratio, strict=True))
    places = _candidates(image.shape, block, None if is_seen else image.piece)
    whole = image.read(tuple(slice(0, n) for n in coarse), level) if is_seen else None
    kept, rows, sample = _described(image, mask, block, places, whole)
    if mask is not None and len(kept) < min(n_blocks, len(places)):  # it may lie between them
        kept, rows, sample = _described(image, mask, block, _places_within(image, mask, block))
    if not kept:
        raise InvalidInput("mask: expected pixels to learn from, none of them is within it")
    order = _farthest_first(np.array(rows), n_blocks)
    return [kept[k] for k in order], np.concatenate(sample)


def _described(
    image: ImageSource,
    mask: ImageSource | Literal["finite"] | None,
    block: Sequence[int],
    places: Sequence[tuple[int, ...]],
    coarse: NDArray[Any] | None = None,
) -> tuple[list[tuple[int, ...]], list[NDArray[np.float64]], list[NDArray[np.float32]]]:
    """Return the places of blocks with pixels to learn from, what these are, and some of them.

    They are looked at on a `coarse` level, or read.
    """
    rows, kept, sample = [], [], []
    n_values = max(1, _MOST_SAMPLED // max(1, len(places)))
    for place in places:
        region = region_of(place, block, image.shape)
        if coarse is None:
            values = image.read(region)
        else:
            inner = []  # a pixel of the level that begins before the block may be outside the mask
            for one, side, n in zip(region, image.shape, coarse.shape, strict=False):
                first = min(-(-one.start * n // side), n - 1)
                inner.append(slice(first, max(first + 1, one.stop * n // side)))
            values = coarse[tuple(inner)]
        flat = values.reshape(-1, values.shape[-1]).astype(np.float32)
        inside = np.isfinite(flat).all(axis=1)
        if isinstance(mask, ImageSource):
            own = mask.read(region)[..., 0] != 0
            inside &= own.ravel() if coarse is None else own.any()
        if not inside.any():
            continue
        flat = flat[inside]
        low, high = np.percentile(flat, [2, 98], axis=0)
        mean, spread = flat.mean(axis=0, dtype=np.float64), flat.std(axis=0, dtype=np.float64)
        rows.append(np.concatenate([mean, spread, low, high]))
        kept.append(place)
        sample.append(flat[:: max(1, flat.size // n_values)])
    return kept, rows, sample


def _places_within(
    image: ImageSource, mask: ImageSource | Literal["finite"], block: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return the first pixels of blocks side by side that a mask touches, read part by part."""
    n_wide = max(1, sum(side > 1 for side in block))
    factor = max(1, int((_MOST_READ_MASK / math.prod(block)) ** (1 / n_wide)))
    part = [side * factor if side > 1 else 1 for side in block]
    last = [n - min(side, n) for side, n in zip(block, image.shape, strict=True)]
    places: list[tuple[int, ...]] = []
    count, step = 0, 1
    for corner in itertools.product(*map(range, itertools.repeat(0), image.shape, part)):
        region = region_of(corner, part, image.shape)
        is_by_values = isinstance(mask, str) or image.no_data is not None
        values = image.read(region) if is_by_values else np.empty(0)
        touched: NDArray[Any] | None = read_mask(image, mask, values, region)
        assert touched is not None
        for axis, side in enumerate(block):
            firsts = range(0, touched.shape[axis], side)
            touched = np.logical_or.reduceat(touched, firsts, axis=axis)
        found = np.argwhere(touched)
        rows = found[-count % step :: step]
        places += map(tuple, np.minimum(rows * block + corner, last).tolist())
        count += len(found)
        while len(places) > _MOST_CANDIDATES:  # evenly, and no more of a larger image
            places, step = places[::2], 2 * step
    return places


def _candidates(
    shape: Sequence[int],
    block: Sequence[int],
    piece: Sequence[int] | None,
    most: int = _MOST_CANDIDATES,
) -> list[tuple[int, ...]]:
    """Return the first pixels of blocks that are spread evenly, with all there are if few.

    Where each is read from the pieces of a file, it lies in one of them, and they are fewer the
    larger pieces are.
    """
    if piece is not None:
        most = min(most, max(_LEAST_CANDIDATES, _MOST_READ // math.prod(piece)))
    counts = [max(1, n // side) for n, side in zip(shape, block, strict=True)]
    thin = max(1.0, math.prod(counts) / most)
    n_wide = max(1, sum(count > 1 for count in counts))
    counts = [max(1, math.floor(count / thin ** (1 / n_wide))) for count in counts]
    along: list[list[int]] = []
    for n, count, side, own in zip(shape, counts, block, piece or shape, strict=True):
        middles = [(2 * k + 1) * n // (2 * count) for k in range(count)]
        firsts = [min(max(0, middle - side // 2), n - min(side, n)) for middle in middles]
        if side <= own < n and thin > 1:
            ends = [min((middle // own + 1) * own, n) for middle in middles]
            pairs = zip(firsts, middles, ends, strict=True)
            firsts = [max(0, min(max(k, m // own * own), end - side)) for k, m, end in pairs]
        along.append(firsts)
    return list(itertools.product(*along))


def _farthest_first(points: NDArray[np.float64], count: int) -> list[int]:
    """Return some points (n_points, n_features), each as far as can be from those before.

    The first is the one nearest to the mean; Gonzalez, https://doi.org/10.1016/0304-3975(85)90224-5.
    """
    nearest = np.square(points - points.mean(axis=0)).sum(axis=1)
    chosen = [int(nearest.argmin())]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < min(count, len(points)):
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(axis=1))
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    return chosen


def spread_regions(shape: Sequence[int], window: Sequence[int], n_pixels: int) -> list[Region]:
    """Return what covers an image, or, if it has more than so many pixels, evenly spaced blocks."""
    block, _, tile = sides_of(shape, window, None)
    if math.prod(shape) <= n_pixels:
        pairs = zip(shape, tile, strict=True)
        places = itertools.product(*(range(0, n, side) for n, side in pairs))
        return [region_of(place, tile, shape) for place in places]
    evenly = _candidates(shape, block, None, max(1, n_pixels // math.prod(block)))
    return [region_of(place, block, shape) for place in evenly]


def region_of(place: Sequence[int], side: Sequence[int], shape: Sequence[int]) -> Region:
    return tuple(slice(k, min(k + s, n)) for k, s, n in zip(place, side, shape, strict=True))


def read_mask(
    image: ImageSource,
    mask: ImageSource | Literal["finite"] | None,
    values: NDArray[Any],
    region: Region,
) -> NDArray[np.bool_] | None:
    """Return where a region with its values is to be labelled, None for everywhere."""
    if mask is None:
        return None
    if isinstance(mask, str):
        return np.asarray(np.isfinite(values).all(axis=-1))
    return within_data(image, mask.read(region)[..., 0] != 0, values)


def within_data(
    image: ImageSource, inside: NDArray[np.bool_], values: NDArray[Any]
) -> NDArray[np.bool_]:
    """Return a mask less the pixels without data of an image that says which they are."""
    return inside if image.no_data is None else inside & np.isfinite(values).all(axis=-1)
