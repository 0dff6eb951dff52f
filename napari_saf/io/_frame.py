"""A label image, or one frame of a series, measured and numbered part by part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import boxes, joined_by
from napari_saf.errors import FormatError
from napari_saf.io._labels import Axes, count_labels
from napari_saf.io._measures import (
    HALO,
    Sums,
    euler_counts,
    join_sums,
    outline_lengths,
    region_sums,
)
from napari_saf.io._regions import Table, connected_regions, table_rows
from napari_saf.io._source import ImageSource, Region, format_region
from napari_saf.parts import grown
from napari_saf.result import LabelMap

PART = 2**22
"""Target number of pixels per part; a part consists of whole chunks of the file."""
Place = tuple[int, ...]


def part_regions(pieces: Sequence[int], shape: Sequence[int]) -> dict[Place, Region]:
    """Return the parts in which an array is read: whole chunks, in row-major order."""
    pieces = [min(side, n) for side, n in zip(pieces, shape, strict=True)]
    ideal = PART ** (1 / len(shape))
    excess = math.prod(max(1, side / ideal) for side in pieces)  # fewer along the other axes
    ideal /= excess ** (1 / max(1, sum(side < ideal for side in pieces)))
    sides = [max(1, int(ideal // side)) * side for side in pieces]
    counts = [range(-(-n // side)) for n, side in zip(shape, sides, strict=True)]
    return dict(zip(itertools.product(*counts), boxes(shape, sides), strict=True))


class Frame:
    """A label image, or one frame of a series, processed part by part.

    Regions get provisional numbers per part; after the last part, regions that touch across parts
    are merged and get their final numbers.
    """

    def __init__(
        self,
        labels: ImageSource,
        image: ImageSource | None,
        frame: int | None,
        connected: bool,
        on_part: Callable[[], object],
    ) -> None:
        self._labels, self._image, self._connected = labels, image, connected
        self._on_part = on_part  # called before a part is read
        self._fixed = () if frame is None else (slice(frame, frame + 1),)
        self.shape = labels.shape[len(self._fixed) :]
        self.places = part_regions(labels.piece[len(self._fixed) :], self.shape)
        self._parts: list[Sums] = []
        self._pairs: list[NDArray[np.int64]] = []
        self._owners = [np.zeros(1, np.int64)]  # the label of each number
        self._euler: list[NDArray[np.float64]] = []
        self._ends: dict[Place, list[NDArray[np.int64]]] = {}
        self._final = np.zeros(1, np.int64)  # the region of each number

    def table(self, axes: Axes, min_pixels: int, columns: Mapping[str, str]) -> Table:
        """Return the rows of all regions; an empty table if there are none."""
        for index, region in self.places.items():
            self._on_part()
            self._add(index, region, "euler_number" in columns, "perimeter" in columns)
        owners = np.concatenate(self._owners)
        self._final = np.zeros(len(owners), np.int64)
        if not self._parts:
            return {}
        joined = self._joined(owners)
        sums = join_sums(self._parts, joined)
        if self._euler:
            ids, counts = np.concatenate(self._euler, axis=1)
            totals = np.bincount(joined[ids.astype(np.int64)], counts, len(joined))
            sums["euler_number"] = totals[sums["id"]]
        labels, least = owners[sums["id"]], min_pixels if self._connected else 1
        n_labelled, numbers = int(sums["pixels"].sum()), None
        order = np.lexsort((sums.get("order", labels), labels))
        order = order[sums["pixels"][order] >= least]
        sums, labels = {name: values[order] for name, values in sums.items()}, labels[order]
        if self._connected:
            numbers = np.arange(1, len(labels) + 1)
            self._final[sums["id"]] = numbers
            self._final = self._final[joined]
            if not len(labels):
                return {}
        return table_rows(sums, labels, numbers, n_labelled, axes, columns)

    def number(self, n_before: int) -> NDArray[np.int64]:
        """Continue region numbers from an offset; return the last part index of each region."""
        last = np.zeros(int(self._final.max()) + 1, np.int64)
        starts = np.cumsum([len(owners) for owners in self._owners])
        for k, (start, stop) in enumerate(itertools.pairwise(starts)):
            last[self._final[start:stop]] = k
        self._final[self._final > 0] += n_before
        self._parts.clear()
        return last

    def parts(self) -> Iterator[tuple[Region, NDArray[np.int64]]]:
        """Yield each part and its region numbers."""
        n_before = 0
        for region, owners in zip(self.places.values(), self._owners, strict=False):
            n_before += len(owners)
            self._on_part()
            around, inner = self._read_labels(region)
            ids, _ = self._numbered(around[inner], n_before)
            numbers = self._final[ids]
            yield (*self._fixed, *region), numbers.reshape((1,) * len(self._fixed) + ids.shape)

    def _add(self, index: Place, region: Region, has_euler: bool, has_perimeter: bool) -> None:
        """Measure a part, and match its regions with those of earlier parts."""
        around, inner = self._read_labels(region)
        labels = around[inner]
        ids, owners = self._numbered(labels, sum(map(len, self._owners)))
        self._owners.append(owners)
        framed = self._framed(index, ids)
        self._ends[index] = [np.asarray(ids.take(-1, axis)) for axis in range(ids.ndim)]
        self._ends.pop(tuple(k - 1 for k in index), None)
        neighbourhood = tuple(slice(side.start - 1, side.stop + 1) for side in inner)
        if self._connected:
            self._note_pairs(around[neighbourhood], framed)
        if has_euler:
            # Cells beyond the part count only at the end of the image.
            sides = zip(region, self.shape, strict=True)
            cut = tuple(slice(0, None if side.stop == n else -1) for side, n in sides)
            present = count_labels(framed[cut])[0]
            ranks = LabelMap(present).unpaint(framed[cut])
            counts = euler_counts(around[neighbourhood][cut], ranks)
            self._euler.append(np.stack([present, counts[1:]]))
        if not labels.any():
            return
        image = None
        if self._image is not None:
            values = self._image.read((*self._fixed, *region))
            image = values[0] if self._fixed else values
            image = image.astype(np.uint8) if image.dtype.kind == "b" else image
        first = [side.start for side in region]
        sums = region_sums(ids, image, first)
        is_region = ids > 0
        rows = ids[is_region] - sums["id"][0]
        if self._connected:
            sums["order"] = np.full(len(owners), np.iinfo(np.int64).max)
            positions = [index + start for index, start in zip(np.nonzero(ids), first, strict=True)]
            raster = np.ravel_multi_index(positions, self.shape)  # row-major in the image
            np.minimum.at(sums["order"], rows, raster)
        if has_perimeter:
            sums["perimeter"] = np.bincount(rows, outline_lengths(around)[inner][is_region])
        self._parts.append(sums)

    def _read_labels(self, region: Region) -> tuple[NDArray[Any], Region]:
        """Return the labels of a region with a halo, 0 outside the image, and the inner region."""
        wide = grown(region, [HALO] * len(region), self.shape)
        labels = self._labels.read((*self._fixed, *wide))[..., 0]
        labels = labels[0] if self._fixed else labels
        labels = labels.astype(np.uint8) if labels.dtype.kind == "b" else labels
        if labels.dtype.kind == "i" and labels.min(initial=0) < 0:
            location = f"{self._labels.source}: {format_region(region)}"
            raise FormatError(f"{location}: expected labels of 0 and above")
        pairs = zip(region, wide, strict=True)
        missing = [(HALO - (r.start - w.start), HALO - (w.stop - r.stop)) for r, w in pairs]
        inner = tuple(slice(HALO, HALO + side.stop - side.start) for side in region)
        return np.pad(labels, missing), inner

    def _numbered(
        self, labels: NDArray[Any], n_before: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the provisional region numbers of a part, and the label of each region.

        Regions are whole labels or connected components.
        """
        numbers: NDArray[np.integer[Any]]
        owners = count_labels(labels)[0]
        if self._connected:
            numbers, owners = connected_regions(labels, owners, 1)
        else:
            numbers = LabelMap(owners).unpaint(labels)
        return np.where(numbers > 0, numbers + np.int64(n_before - 1), 0), owners

    def _framed(self, index: Place, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return numbers padded by a pixel: those of earlier parts before, 0 after."""
        framed = np.pad(ids, 1)
        for step in itertools.product((0, 1), repeat=ids.ndim):
            ends = self._ends.get(tuple(k - s for k, s in zip(index, step, strict=True)))
            if not any(step) or ends is None:
                continue
            axis = step.index(1)
            steps = [s for k, s in enumerate(step) if k != axis]
            end = ends[axis][tuple(slice(-1, None) if s else slice(None) for s in steps)]
            sides = [1 if s else n for s, n in zip(step, ids.shape, strict=True)]
            starts = [1 - s for s in step]
            target = tuple(slice(k, k + n) for k, n in zip(starts, sides, strict=True))
            framed[target] = end.reshape(sides)
        return framed

    def _note_pairs(self, labels: NDArray[Any], framed: NDArray[np.int64]) -> None:
        """Record pairs of touching regions of one label, of this part and earlier ones."""
        labels = np.where(framed > 0, labels, 0)
        for axis in range(framed.ndim):
            index: list[slice] = [slice(None)] * framed.ndim
            index[axis] = slice(0, 2)
            values, slab = labels[tuple(index)], framed[tuple(index)]
            for step in itertools.product((-1, 0, 1), repeat=framed.ndim):
                if step <= (0,) * framed.ndim:
                    continue
                moves = zip(step, slab.shape, strict=True)
                ends = [(max(0, s), min(n, n + s), max(0, -s), min(n, n - s)) for s, n in moves]
                a = tuple(slice(*bounds[:2]) for bounds in ends)
                b = tuple(slice(*bounds[2:]) for bounds in ends)
                is_one = (values[a] == values[b]) & (values[a] > 0) & (slab[a] != slab[b])
                if is_one.any():
                    pairs = np.unique(np.stack([slab[a][is_one], slab[b][is_one]]), axis=1)
                    self._pairs.append(pairs)

    def _joined(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the merged region of each provisional number, given the label of each."""
        groups = joined_by(self._pairs, len(owners)) if self._connected else owners
        _, first, group = np.unique(groups, return_index=True, return_inverse=True)
        return np.asarray(first[group])
