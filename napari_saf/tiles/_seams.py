"""Merging of object parts across the seams of tiles.

A part is identified by the position of its peak, which is the same in all tiles whose surroundings
include it. Otherwise two parts are merged if they cover mostly the same pixels at a seam.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import joined_by
from napari_saf.io import Region
from napari_saf.objects import Parts, count_axes, find_saddles
from napari_saf.parts import cut, grown
from napari_saf.storage import atomic_write
from napari_saf.tiles._tiling import Tiling

_ROWS = ("kinds", "peaks", "tops", "is_own", "sizes", "pairs", "saddles")
Arrays = dict[str, NDArray[Any]]


def _touched(plan: Tiling, region: Region) -> Region:
    """Return a region padded by one pixel within the halo."""
    return grown(region, [min(1, far) for far in plan.halo], plan.shape)


def tile_table(plan: Tiling, region: Region, parts: Parts, heights: NDArray[np.float32]) -> Arrays:
    """Return the table of the parts of a tile.

    One row per part in the tile padded by one pixel: `kinds`, `peaks`, `tops` (positions of the
    peaks in the image), `sizes` within the tile, and whether the top is inside the tile.
    """
    crop, around = plan.surroundings(region), _touched(plan, region)
    wide, levels = cut(parts.labels, crop, around), cut(heights, crop, around)
    present = np.unique(wide)
    present = present[present > 0]
    ranks = np.zeros(len(parts.kinds), np.uint32)
    ranks[present] = np.arange(1, len(present) + 1)
    wide = ranks[wide]
    inner = cut(wide, around, region)
    positions = np.unravel_index(parts.tops[present], parts.labels.shape)
    positions = tuple(position + side.start for position, side in zip(positions, crop, strict=True))
    is_own = [(p >= r.start) & (p < r.stop) for p, r in zip(positions, region, strict=True)]
    pairs, saddles = find_saddles(inner, cut(levels, around, region))
    table: Arrays = {
        "kinds": parts.kinds[present],
        "peaks": parts.peaks[present],
        "tops": np.asarray(np.ravel_multi_index(positions, tuple(plan.shape))),
        "is_own": np.all(is_own, axis=0),
        "sizes": np.bincount(inner.ravel(), minlength=len(present) + 1)[1:],
        "pairs": pairs,
        "saddles": saddles,
    }
    for axis, is_end in itertools.product(range(len(region)), (False, True)):
        slab = seam_of(plan, region, axis, is_end)
        table[f"parts{axis}{is_end:d}"] = cut(wide, around, slab)
        table[f"heights{axis}{is_end:d}"] = cut(levels, around, slab)
    return {**table, "inner": inner}


def seam_of(plan: Tiling, region: Region, axis: int, is_end: bool) -> Region:
    """Return the pixels of both tiles along a side of a tile."""
    around = list(_touched(plan, region))
    side, both = region[axis], around[axis]
    at = side.stop if is_end else side.start
    around[axis] = slice(max(at - 1, both.start), min(at + 1, both.stop))
    return tuple(around)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class JoinedParts:
    """The merged `parts` of all tiles, without an image, and the merged part of each tile part.

    Tile parts are numbered consecutively over tiles: those of a tile follow its `start`.
    """

    parts: Parts
    owners: NDArray[np.int64]
    starts: Mapping[tuple[int, ...], int]
    n_unseen: int


def join_tiles(
    plan: Tiling, files: Mapping[tuple[int, ...], Path], axis: int | None
) -> JoinedParts:
    """Merge the parts of tiles from their tables; axes of separate frames are not merged."""
    starts, rows = dict[tuple[int, ...], int](), list[Arrays]()
    count = 0
    for position, file in files.items():
        with np.load(file) as table:
            rows_of_tile = {name: table[name] for name in table.files if name in _ROWS}
        starts[position] = count
        rows.append(rows_of_tile | {"pairs": rows_of_tile["pairs"] + count})
        count += len(rows_of_tile["kinds"])
    table = {name: np.concatenate([tile_rows[name] for tile_rows in rows]) for name in rows[0]}
    keys = np.stack([table["kinds"], table["tops"]])
    owners = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1) if count else keys[0]
    owners = np.append(-1, owners)  # for no part
    edges, same = [(table["pairs"], table["saddles"])], list[NDArray[np.int64]]()
    for first, second, step in _neighbours(files, axis):
        seam = _Seam.read(plan, files, starts, (first, second), step)
        edges.append(seam.saddles())
        if sum(map(abs, step)) == 1:
            same.append(seam.same(owners))
    owners, n_unseen = _grouped(owners[1:], same)
    pairs, saddles = (np.concatenate(column) for column in zip(*edges, strict=True))
    parts, owners = _whole(plan, table, owners, pairs, saddles, axis)
    return JoinedParts(parts, owners, starts, n_unseen)


def _neighbours(
    files: Mapping[tuple[int, ...], Path], axis: int | None
) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Return each pair of tiles that touch, also at corners, and the step between them."""
    n_axes = len(next(iter(files)))
    steps = [s for s in itertools.product((-1, 0, 1), repeat=n_axes) if s > (0,) * n_axes]
    steps = [step for step in steps if axis is None or not step[axis]]
    pairs = []
    for position, step in itertools.product(files, steps):
        neighbour = tuple(k + s for k, s in zip(position, step, strict=True))
        if neighbour in files:
            pairs.append((position, neighbour, step))
    return pairs


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Seam:
    """The pixels at the border of two tiles: parts in either tile, heights, and owning tile."""

    parts: tuple[NDArray[np.int64], NDArray[np.int64]]
    heights: tuple[NDArray[Any], NDArray[Any]]
    is_own: tuple[NDArray[np.bool_], NDArray[np.bool_]]

    @classmethod
    def read(
        cls,
        plan: Tiling,
        files: Mapping[tuple[int, ...], Path],
        starts: Mapping[tuple[int, ...], int],
        positions: tuple[tuple[int, ...], tuple[int, ...]],
        step: Sequence[int],
    ) -> _Seam:
        axis = next(k for k, offset in enumerate(step) if offset)
        regions = [plan.region(position) for position in positions]
        slabs = [seam_of(plan, regions[k], axis, k == 0) for k in (0, 1)]
        sides = zip(*slabs, strict=True)
        both = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in sides)
        parts, heights, is_own = [], [], []
        for k, position in enumerate(positions):
            with np.load(files[position]) as table:
                labels = cut(table[f"parts{axis}{k == 0:d}"], slabs[k], both).astype(np.int64)
                heights.append(cut(table[f"heights{axis}{k == 0:d}"], slabs[k], both))
            parts.append(np.where(labels > 0, labels + starts[position], 0))
            inside = np.zeros(labels.shape, bool)
            meet = zip(both, regions[k], strict=True)
            shared = [slice(max(a.start, r.start), min(a.stop, r.stop)) for a, r in meet]
            cut(inside, both, tuple(shared))[...] = True
            is_own.append(inside)
        return cls((parts[0], parts[1]), (heights[0], heights[1]), (is_own[0], is_own[1]))

    def saddles(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return pairs of parts that touch across the seam, and the height of their saddle."""
        (a, b), (is_a, is_b) = self.parts, self.is_own
        parts = np.where(is_a, a, np.where(is_b, b, 0))
        return find_saddles(parts, np.where(is_a, *self.heights))

    def same(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return pairs of owners that cover mostly the same pixels."""
        present, ranks = np.unique(owners[np.stack(self.parts)], return_inverse=True)
        a, b = ranks.reshape(2, -1)
        shared = np.zeros((len(present), len(present)), np.int64)
        np.add.at(shared, (a, b), 1)
        union = shared.sum(axis=1)[:, None] + shared.sum(axis=0) - shared
        is_same = (2 * shared > union) & (present >= 0) & (present[:, None] >= 0)
        pairs = np.argwhere(is_same)
        return np.asarray(present[pairs[pairs[:, 0] != pairs[:, 1]]].T)


def _grouped(
    owners: NDArray[np.int64], same: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], int]:
    """Return owners with equal ones merged, and their number."""
    group = joined_by(same, int(owners.max(initial=-1)) + 1)
    return group[owners], len({int(owner) for pairs in same for owner in group[pairs[0]]})


def _whole(
    plan: Tiling,
    table: Arrays,
    owners: NDArray[np.int64],
    pairs: NDArray[np.int64],
    saddles: NDArray[np.float32],
    axis: int | None,
) -> tuple[Parts, NDArray[np.int64]]:
    """Return parts in the order of `find_parts`, and the index of each tile part among them.

    Values from the tile that contains the peak take precedence.
    """
    n = int(owners.max(initial=-1)) + 1
    order = np.lexsort((-table["peaks"], ~table["is_own"], owners))
    first = order[np.flatnonzero(np.diff(owners[order], prepend=-1))]
    tops, kinds = table["tops"][first], table["kinds"][first]
    planes = np.zeros(n) if axis is None else np.unravel_index(tops, tuple(plan.shape))[axis]
    order = np.lexsort((tops, kinds, planes))
    ranks = np.zeros(n + 1, np.int64)
    ranks[order + 1] = np.arange(1, n + 1)
    owners = ranks[np.append(-1, owners) + 1]
    sizes = np.bincount(owners[1:], table["sizes"], n + 1).astype(np.int64)
    ends = np.sort(owners[pairs], axis=1)
    by_part = np.append(0, kinds[order])[ends]
    is_pair = (ends[:, 0] < ends[:, 1]) & (by_part[:, 0] == by_part[:, 1])
    unique_pairs, inverse = np.unique(ends[is_pair], axis=0, return_inverse=True)
    highest = np.zeros(len(unique_pairs), np.float32)
    np.maximum.at(highest, inverse.reshape(-1), saddles[is_pair])
    down = np.argsort(-highest, kind="stable")
    parts = Parts(
        np.zeros(0, np.int32),
        np.append(0, kinds[order]),
        np.append(np.float32(0), table["peaks"][first][order]),
        np.append(0, tops[order]),
        sizes,
        unique_pairs[down],
        highest[down],
        count_axes(plan.shape, axis),
    )
    return parts, owners


def save_table(path: Path, table: Arrays) -> None:
    """Save the table of a tile."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **table)
