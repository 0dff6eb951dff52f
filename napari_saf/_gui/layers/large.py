"""Images larger than memory: the region labelled interactively, and labels written by tile."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.layers.placement import ImageRegion, Placement, pixels_of, place
from napari_saf._gui.layers.reading import ImageJob, Index, Pixels
from napari_saf._gui.napari_workarounds import camera_of, canvas_size, dims_of, unwrapped
from napari_saf.errors import FormatError, InvalidInput
from napari_saf.features import Ground, looked_at, middle_of
from napari_saf.io import ImageSource, Region, is_zarr
from napari_saf.problem import ImageOptions
from napari_saf.tiles import LARGE, LabelStore, Plan

MOST_ON_SCREEN = 1280
"""Maximal side in pixels of the region labelled interactively; larger ones are subsampled."""
LEAST_OVERVIEW = 2048
"""Least longest side of the level in which a background is detected."""
STROKES_SIDE = 512
"""Side in pixels of the region in which strokes are painted."""
MOST_IN_MEMORY = 2**22
"""Maximal number of pixels of a level that is kept in memory while tiles are written."""


def is_large(image: Any) -> bool:
    """Return whether an image layer is labelled by region and tile: multiscale or a lazy array."""
    if image is None or (not image.multiscale and type(image.data) is np.ndarray):
        return False
    return bool(math.prod(pixels_of(image).shape[: image.ndim]) >= LARGE)


def large_levels(path: Path) -> list[Any]:
    """Return the levels of an OME-Zarr mask larger than memory; empty for other masks."""
    if not is_zarr(path):
        return []
    source = ImageSource.open(path)
    return source.levels() if math.prod(source.shape) >= LARGE else []


def levels_of(image: Image) -> list[Any]:
    return list(image.data) if image.multiscale else [image.data]


def source_of(image: Image) -> Any:
    """Return the source of a layer for `ImageSource`: a path or arrays."""
    levels, path = levels_of(image), image.source.path
    if path is not None:
        try:
            if tuple(ImageSource.open(path).finest.shape) == tuple(levels[0].shape):
                return path
        except (FormatError, InvalidInput):
            pass  # opened by another reader
    return levels if len(levels) > 1 else levels[0]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeRegion(ImageRegion):
    """The region of a large image that is labelled interactively.

    `part` has a slice for each axis of the image, in pixels of the pyramid level `level`.
    """

    level: int = 0
    part: Region = ()

    @property
    def _data(self) -> Any:
        return levels_of(self.image)[self.level]

    @property
    def _pixel(self) -> tuple[float, ...]:
        """Side of a pixel that is read, along each axis, in pixels of the full resolution."""
        finest = pixels_of(self.image).shape
        sides = zip(finest, self._data.shape, self.part, strict=False)
        return tuple(n / m * (side.step or 1) for n, m, side in sides)

    @property
    def index(self) -> Index:
        finest, sides = pixels_of(self.image).shape, self._data.shape
        fixed = {axis: min(k * sides[axis] // finest[axis], sides[axis] - 1)
                 for axis, k in self.fixed.items()}  # fmt: skip
        return tuple(fixed.get(axis, side) for axis, side in enumerate(self.part))

    @property
    def pixels(self) -> Pixels:
        return Pixels(self._data, self.index)

    @property
    def sides(self) -> tuple[int, ...]:
        return tuple(len(range(each.start, each.stop, each.step or 1)) for each in self.part)

    @property
    def _first(self) -> tuple[float, ...]:
        """Centre of the first pixel that is read, in pixels of the full resolution."""
        pairs = zip(self.part, self._pixel, strict=True)
        return tuple(each.start * w / (each.step or 1) + (w - 1) / 2 for each, w in pairs)

    @property
    def placement(self) -> Placement:
        return place(self.image, self.axes, self.fixed, self.channel_axis, self._first, self._pixel)

    def whole(self) -> tuple[Placement, tuple[int, ...]]:
        """Return placement and shape of strokes: at full resolution, centred in the part."""
        finest, box = pixels_of(self.image).shape, []
        for axis, (first, width, side) in enumerate(
            zip(self._first, self._pixel, self.sides, strict=True)
        ):
            if axis in self.fixed:
                box.append(slice(0, finest[axis]))
                continue
            most = min(round(side * width), finest[axis])
            n = min(most, STROKES_SIDE) if axis in self.together else most
            start = round(first - (width - 1) / 2) + (most - n) // 2
            box.append(slice(max(0, min(start, finest[axis] - n)), start + n))
        starts = [float(side.start) for side in box]
        placement = place(self.image, self.axes, {}, self.channel_axis, starts)
        sides = tuple(box[axis].stop - box[axis].start for axis in self.axes)
        return placement, placement.shape(sides)

    def over(self, layer: Labels | None) -> Pixels | None:
        """Return the pixels of labels over the part, or all pixels if they do not cover it."""
        if layer is None:
            return None
        pixels = pixels_of(layer)
        axes = range(self.image.ndim) if pixels.ndim == self.image.ndim else self.axes
        index: list[int | slice] = []
        if pixels.ndim == len(axes):
            origin = _origin(self.image, layer, tuple(axes))
            for axis, offset, n in zip(axes, origin, pixels.shape, strict=True):
                if axis == self.channel_axis:
                    index.append(0)
                elif axis in self.fixed:
                    index.append(min(max(self.fixed[axis] - offset, 0), n - 1))
                else:
                    width = self._pixel[axis]
                    start = round(self._first[axis] - (width - 1) / 2) - offset
                    stop = start + round(self.sides[axis] * width)
                    if start < 0 or stop > n + width:
                        break
                    index.append(slice(start, stop, max(1, round(width))))
        if len(index) < pixels.ndim:
            index = [slice(None)] * pixels.ndim
        return Pixels(pixels, tuple(index))


def _origin(image: Image, layer: Labels, axes: tuple[int, ...]) -> list[int]:
    """Return the pixel of an image, along `axes`, under the first pixel of labels."""
    world = np.zeros(image.ndim)
    world[list(axes)] = layer.data_to_world(np.zeros(layer.ndim))
    pixel = image.world_to_data(world)
    return [round(float(pixel[axis])) for axis in axes]


def narrowed(viewer: napari.Viewer, region: ImageRegion, strokes: Any = None) -> ImageRegion:
    """Return the region to label: for a large image, the part that the strokes cover.

    Without strokes it is the part on screen, at the displayed level.
    """
    image = region.image
    if not is_large(image):
        return region
    level, part = image.data_level if image.multiscale else 0, _on_screen(viewer, region)
    finest, level_sides = pixels_of(image).shape, levels_of(image)[level].shape
    if strokes is not None:
        axes = tuple(range(image.ndim)) if strokes.ndim == image.ndim else region.axes
        sides = pixels_of(strokes).shape
        if len(axes) == len(sides) and any(sides[k] != finest[axis] for k, axis in enumerate(axes)):
            level, level_sides = 0, finest
            for axis, first, n in zip(axes, _origin(image, strokes, axes), sides, strict=True):
                if axis != region.channel_axis:
                    part[axis] = slice(max(0, first), min(first + n, finest[axis]))
    box = [
        (side.start * m // n, -(-side.stop * m // n))
        for n, m, side in zip(finest, level_sides, part, strict=False)
    ]
    shown = region.together or region.axes
    longest = max(box[axis][1] - box[axis][0] for axis in shown)
    step = max(1, -(-longest // MOST_ON_SCREEN))
    sampled = tuple(
        slice(*ends, step if axis in shown and step > 1 and level_sides[axis] > 1 else None)
        for axis, ends in enumerate(box)
    )
    return LargeRegion(image, region.channel_axis, region.fixed, region.together, level, sampled)


def ground_in(
    region: ImageRegion, options: ImageOptions, mask: Labels | None = None
) -> Ground | None:
    """Return the background of the image of a region; None for volumes, which need none.

    That of a large image is detected in all of it, at a reduced size, as for its tiles. That of a
    lazy image is kept; None if it cannot be read.
    """
    jobs = _ground_jobs(region, options, mask)
    if not jobs or isinstance(jobs[0].pixels.data, np.ndarray):
        return jobs[0].ground(*jobs[1:]) if jobs else None
    image, key = unwrapped(region.image), [job.source_key for job in jobs]
    if image not in _GROUNDS or _GROUNDS[image][0] != key:
        ground = None
        with suppress(Exception):  # of any reader; the run reports it
            ground = jobs[0].ground(*jobs[1:])
        _GROUNDS[image] = key, jobs, ground
    return _GROUNDS[image][2]


def ground_search(
    region: ImageRegion, options: ImageOptions, mask: Labels | None = None
) -> Callable[[Callable[[], bool]], object] | None:
    """Return a function that reads a lazy image for `ground_in`; None where that takes no time."""
    jobs = _ground_jobs(region, options, mask)
    if not jobs or isinstance(jobs[0].pixels.data, np.ndarray):
        return None
    key, image = [job.source_key for job in jobs], unwrapped(region.image)
    if image in _GROUNDS and _GROUNDS[image][0] == key:
        return None
    return lambda cancelled: ground_in(region, options, mask)


def _ground_jobs(region: ImageRegion, options: ImageOptions, mask: Labels | None) -> list[ImageJob]:
    """Return the jobs that read the pixels of the background; none for a volume."""
    if region.together and len(region.averaged_axes) != 2:
        return []
    parts = _overview(region) if is_large(region.image) else [region]
    return [ImageJob(each.pixels, options, mask=each.over(mask)) for each in parts]


_GROUNDS: WeakKeyDictionary[Any, tuple[list[tuple[object, ...]], list[ImageJob], Ground | None]]
_GROUNDS = WeakKeyDictionary()
"""By lazy image: key of the pixels, the jobs that keep it valid, and the background."""


def _overview(region: ImageRegion) -> list[LargeRegion]:
    """Return a large image at a reduced size, and its centre at full resolution."""
    image, together = region.image, region.together or region.axes
    shown = [axis for axis in region.free_axes if axis in together]
    levels = [level.shape[: image.ndim] for level in levels_of(image)]
    fits = [max(sides[axis] for axis in shown) >= LEAST_OVERVIEW for sides in levels]
    level = max((k for k, is_enough in enumerate(fits) if is_enough), default=0)
    every, middle = ([slice(0, n) for n in levels[k]] for k in (level, 0))
    places = looked_at([levels[level][axis] for axis in region.free_axes])
    for axis, place_on_axis in zip(region.free_axes, places, strict=True):
        n, m = levels[0][axis], levels[level][axis]
        every[axis] = slice(*place_on_axis.indices(m))
        centre = middle_of([n])[0] if axis in shown else slice(n // 2, n // 2 + 1)
        middle[axis] = slice(*centre.indices(n))
    chosen = image, region.channel_axis, region.fixed, region.together
    return [LargeRegion(*chosen, level, tuple(every)), LargeRegion(*chosen, 0, tuple(middle))]


def _on_screen(viewer: napari.Viewer, region: ImageRegion) -> list[slice]:
    """Return a slice for each axis: the part on screen, in pixels of the full resolution."""
    image, dims = region.image, dims_of(viewer)
    finest = pixels_of(image).shape
    part = [slice(0, n) for n in finest[: image.ndim]]
    if dims.ndisplay == 3:
        return part
    half = np.array(canvas_size(viewer)) / (2 * camera_of(viewer).zoom)
    center = np.array(camera_of(viewer).center)[-2:]
    corners = []
    for signs in itertools.product((-1, 1), repeat=2):
        point = np.array(dims.point)
        point[list(dims.displayed)] = center + half * signs
        corners.append(image.world_to_data(point[-image.ndim :]))
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    for axis in (at - (dims.ndim - image.ndim) for at in dims.displayed):
        if axis < 0 or axis == region.channel_axis:
            continue
        n = finest[axis]
        first, last = max(0, math.floor(low[axis])), min(n, math.ceil(high[axis]) + 1)
        if last - first >= min(n, 2):  # else the image is outside the view
            part[axis] = slice(first, last)
    return part


class SpreadArray:
    """A lazy array with additional axes of length 1 in place of the channels."""

    def __init__(self, array: Any, axes: tuple[int, ...]) -> None:
        self._array, self._axes, self.dtype = array, axes, array.dtype
        shape = list(array.shape)
        for axis in axes:
            shape.insert(axis, 1)
        self.shape, self.ndim = tuple(shape), len(shape)

    def __getitem__(self, index: Any) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        index = (*index, *(slice(None),) * (self.ndim - len(index)))
        inner = tuple(at for axis, at in enumerate(index) if axis not in self._axes)
        spread = [axis for axis in self._axes if isinstance(index[axis], slice)]
        n_dropped = [sum(not isinstance(at, slice) for at in index[:axis]) for axis in spread]
        axes = [axis - n for axis, n in zip(spread, n_dropped, strict=True)]
        return np.expand_dims(np.asarray(self._array[inner]), axes)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self[(slice(None),) * self.ndim], dtype)


class GrowingLevels:
    """Levels of a mask under construction; coarse levels are in memory, updated for each tile."""

    def __init__(self, store: LabelStore, plan: Plan, done: Any) -> None:
        self._store, self._plan = store, plan
        shapes = plan.level_shapes()
        self._first = next(
            (k for k, shape in enumerate(shapes) if math.prod(shape) <= MOST_IN_MEMORY),
            len(shapes) - 1,
        )
        coarse = range(self._first, len(shapes))
        self.arrays: list[Any] = [store.level(k) for k in range(self._first)]
        self.arrays += [np.asarray(store.level(k)[...]) for k in coarse]
        between = [(1,) * len(plan.shape), *map(plan.steps_between, range(len(shapes) - 1))]
        steps = np.cumprod(between, axis=0).tolist()
        self._steps = {k: steps[k] for k in coarse}
        for tile in done:
            if tile[0] == 0 and not self._is_there(tile, done):
                self.take(tile)

    def _is_there(self, tile: tuple[int, ...], done: Any) -> bool:
        """Return whether the finest of the coarse levels contains a tile."""
        parent: tuple[int, ...] | None = tile
        for _ in range(self._first):
            parent = None if parent is None else self._plan.coarser(parent)
        return parent in done

    def take(self, tile: tuple[int, ...]) -> None:
        """Copy a newly written tile of the finest level into the coarse levels."""
        region = self._plan.region(tile[1:])
        labels: NDArray[Any] = self._store.read(0, region)
        for k, steps in self._steps.items():
            target, samples = [], []
            for side, step in zip(region, steps, strict=True):
                start, stop = -(-side.start // step), -(-side.stop // step)
                target.append(slice(start, stop))
                samples.append(slice(start * step - side.start, None, step))
            self.arrays[k][tuple(target)] = labels[tuple(samples)]
