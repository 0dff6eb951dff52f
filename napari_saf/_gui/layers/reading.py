"""Reading of image layers into problems, in a worker thread."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import all_finite, inside_of
from napari_saf.device import check_memory, memory_errors_translated, torch
from napari_saf.features import Ground, channels_last, ground_of, is_rgb, standardized
from napari_saf.graph import CoarseGrid, GridGraph
from napari_saf.methods import Cancelled
from napari_saf.problem import ImageOptions, Problem
from napari_saf.regions import RegionHierarchy, merge_regions
from napari_saf.result import LabelImage

Index = tuple[int | slice, ...]
_SMALLER = "choose one slice, or a smaller part of the image"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """A region of the array of a layer at full resolution: numpy, dask or zarr."""

    data: Any
    index: Index = ()

    def read(self, cancelled: Callable[[], bool]) -> NDArray[Any]:
        """Return the region as a numpy array; a lazy one is read in slabs, cancellable in between.

        Raises ComputeError if a lazy array does not fit into memory.
        """
        block = self.data[self.index]
        chunks = getattr(block, "chunks", None)
        if isinstance(block, np.ndarray) or not chunks:
            return np.asarray(block)
        # The pixels are also copied to float32.
        need = float(block.size) * (block.dtype.itemsize + 4)
        check_memory(need, torch.device("cpu"), _SMALLER)
        pixels = np.empty(block.shape, block.dtype)
        start = 0
        for length in chunks[0]:
            if cancelled():
                raise Cancelled
            pixels[start : start + length] = np.asarray(block[start : start + length])
            start += length
        return pixels


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageJob:
    """The pixels of a layer to label, and the options for their features.

    Channel and feature axes are those of the arrays that are read.

    With `finite_only`, NaN and infinite pixels are excluded; otherwise they raise an error.
    `features` replace those of the options. `base_labels` are the seeds where none was painted.
    Pixels with a `locked` label keep it and are excluded, and no other pixel gets it. The images
    of `extra_jobs` are labelled together with this one, with the options of this one.
    """

    pixels: Pixels
    options: ImageOptions
    mask: Pixels | None = None
    groups: Pixels | None = None
    seeds: Pixels | None = None
    finite_only: bool = False
    features: Pixels | None = None
    features_axis: int = -1
    base_labels: NDArray[Any] | None = None
    locked: NDArray[Any] | None = None
    extra_jobs: tuple[ImageJob, ...] = ()

    @property
    def shape(self) -> list[int]:
        """Shape of the labelled region, without channels."""
        pairs = zip(self.pixels.index, np.shape(self.pixels.data), strict=False)
        sides = [len(range(*at.indices(side))) for at, side in pairs if isinstance(at, slice)]
        if self.options.channel_axis is not None:
            del sides[self.options.channel_axis]
        return sides

    def read(self, cancelled: Callable[[], bool]) -> Problem:
        """Read the pixels and return the problem without seeds.

        Raises the errors of `Problem.from_image`, such as NotFinite, and ComputeError if memory
        is not sufficient.
        """
        options, axis = self.options, self.options.channel_axis
        names = ("window", "weights", "scaling", "max_side")
        arguments: dict[str, Any] = {name: getattr(options, name) for name in names}
        with memory_errors_translated(_SMALLER):
            if self.extra_jobs:
                pixels = self.pixels.read(cancelled)
                images = [extra.pixels.read(cancelled) for extra in self.extra_jobs]
                arguments |= {"features": options.features, "channel_axis": axis}
                arguments |= {"masks": "finite" if self.finite_only else None}
                return Problem.from_images([*images, pixels], **arguments)
            pixels, axis = self.read_image(cancelled)
            mask: NDArray[Any] | None = None
            groups: NDArray[Any] | str | None = options.groups
            features: Any = options.features
            if self.mask is not None:
                mask = self._spread(self.mask.read(cancelled))
            if self.groups is not None:
                groups = self._spread(self.groups.read(cancelled))
            if self.features is not None:
                array = self.features.read(cancelled)
                features = standardized(np.moveaxis(array, self.features_axis, -1))
            if cancelled():
                raise Cancelled
            arguments |= {"features": features, "channel_axis": axis, "groups": groups}
            return Problem.from_image(pixels, mask=self._inside(pixels, mask, axis), **arguments)

    def read_image(self, cancelled: Callable[[], bool]) -> tuple[NDArray[Any], int | None]:
        """Read the pixels; return them and their channel axis."""
        pixels, axis = self.pixels.read(cancelled), self.options.channel_axis
        is_rgb_layer = len(self.pixels.index) < np.ndim(self.pixels.data)
        if axis is None and is_rgb(pixels.shape) and not is_rgb_layer:
            return pixels[..., None], -1
        return pixels, axis

    def merge_regions(
        self,
        labels: LabelImage,
        cancelled: Callable[[], bool],
        progress: Callable[[float], object] | None = None,
    ) -> tuple[RegionHierarchy, NDArray[Any]]:
        """Read the image and merge its labels into regions; return the hierarchy and the pixels."""
        pixels, axis = self.read_image(cancelled)
        tree = merge_regions(
            labels,
            pixels,
            channel_axis=axis,
            axes=self.options.averaged_axes(labels.shape),
            progress=progress,
            cancelled=cancelled,
        )
        return tree, pixels

    @property
    def source_key(self) -> tuple[object, ...]:
        """Key of the pixels and the mask, whatever the options; valid while the arrays exist."""
        plain = ImageOptions(channel_axis=self.options.channel_axis)
        return _key_of(dataclasses.replace(self, options=plain, seeds=None))

    def ground(self, middle: ImageJob | None = None) -> Ground | None:
        """Return the background, see `ground_of`.

        `middle` is the centre, at full resolution, of an image of reduced size.
        """
        array = self._channels_last()
        mask = None if self.mask is None else self._spread(self.mask.read(lambda: False))
        inside = None if mask is None else inside_of(mask)
        return ground_of([array], [inside], None if middle is None else [middle._channels_last()])

    def _channels_last(self) -> NDArray[Any]:
        return channels_last(*self.read_image(lambda: False))[0]

    def read_seeds(self, cancelled: Callable[[], bool]) -> NDArray[Any] | None:
        """Read the strokes, painted over the base labels; None without strokes.

        Strokes of locked labels are excluded.
        """
        if self.seeds is None:
            return None
        with memory_errors_translated(_SMALLER):
            seeds = self.seeds.read(cancelled)
        seeds = seeds if self.base_labels is None else np.where(seeds != 0, seeds, self.base_labels)
        if self.locked is None:
            return seeds
        return np.where((self.locked > 0) | np.isin(seeds, np.unique(self.locked)), 0, seeds)

    def with_locked(self, labels: LabelImage) -> LabelImage:
        if self.locked is None:
            return labels
        return np.where(self.locked > 0, self.locked, labels)

    def _spread(self, over: NDArray[Any]) -> NDArray[Any]:
        """Return a mask or groups, repeated along the slices if they have one plane."""
        sides = self.shape
        is_plane = over.ndim == 2 < len(sides) and list(over.shape) == sides[-2:]
        return np.broadcast_to(over, sides) if is_plane else over

    def _inside(
        self, pixels: NDArray[Any], mask: NDArray[Any] | None, axis: int | None
    ) -> NDArray[np.bool_] | None:
        inside: NDArray[np.bool_] | None = None if mask is None else inside_of(mask)
        if not self.finite_only:
            return inside
        finite = all_finite(channels_last(pixels, axis)[0])
        if inside is None:
            return finite
        return finite & inside if inside.shape == finite.shape else inside  # raises an error later


class ProblemReader:
    """Reads jobs and caches the last problem: new strokes do not recompute features."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        # Held so that the ids of arrays in the key stay valid.
        self._job: ImageJob | None = None
        self.problem: Problem | None = None  # the last problem, with all pixels
        self._free: tuple[int, Problem] | None = None

    def read(self, job: ImageJob, cancelled: Callable[[], bool]) -> Problem:
        """Return the problem of a job with its seeds; raises the errors of `ImageJob.read`."""
        key, problem = _key_of(job), self.problem
        if problem is None or key != self._key:
            self.forget()
            problem = job.read(cancelled)
            self.problem, self._key, self._job = problem, key, job
        seeds = job.read_seeds(cancelled)
        if seeds is None:
            return problem
        if job.locked is not None:
            problem = self._without(problem, job.locked)
        return problem.with_seeds(seeds)

    def _without(self, problem: Problem, locked: NDArray[Any]) -> Problem:
        """Return the problem of the unlocked pixels, cached for the same locks."""
        key = fingerprint(locked, None)
        if self._free is None or self._free[0] != key:
            self._free = key, _within(problem, locked == 0)
        return self._free[1]

    def forget(self) -> None:
        self._key, self._job, self.problem, self._free = (), None, None, None


def _within(problem: Problem, inside: NDArray[np.bool_]) -> Problem:
    """Return the problem restricted to the pixels of a mask, with unchanged features."""
    grid = problem.graph
    assert isinstance(grid, GridGraph)
    nodes = grid.from_image(inside.astype(np.uint8)).astype(bool)
    mask, weights = np.asarray(grid.spread(nodes)), grid.weights
    weights = None if weights is None else weights[nodes]
    part = GridGraph(grid.shape, window=grid.window, weights=weights, mask=mask, stride=grid.stride)
    if isinstance(grid, CoarseGrid):
        inside = inside if grid.image_mask is None else inside & grid.image_mask
        part = CoarseGrid(part, grid.image_shape, inside, grid.image)
    return dataclasses.replace(problem, features=problem.features[nodes], graph=part, seeds=None)


def _key_of(job: ImageJob) -> tuple[object, ...]:
    """Return a key that is equal for jobs that differ only in strokes.

    Images enter by identity and a sample of their values, painted layers by all values.
    """
    inputs = ((job.pixels, _SAMPLE), (job.features, _SAMPLE), (job.mask, None), (job.groups, None))
    arrays = [
        None if pixels is None else (id(pixels.data), fingerprint(pixels.data, size), pixels.index)
        for pixels, size in inputs
    ]
    extra_keys = [_key_of(extra) for extra in job.extra_jobs]
    return (*arrays, job.features_axis, job.options, job.finite_only, *extra_keys)


def fingerprint(array: Any, n_values: int | None) -> int:
    """Return a checksum of `n_values` values of an array, None for all; 0 for lazy arrays."""
    if not isinstance(array, np.ndarray):
        return 0
    step = 1 if n_values is None else max(1, array.size // n_values)
    return zlib.crc32(np.ascontiguousarray(array.reshape(-1)[::step]).view(np.uint8).data)


_SAMPLE = 100_000
