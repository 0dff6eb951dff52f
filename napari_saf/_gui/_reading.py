"""From an image layer's data to a problem; runs in the worker, knows no widget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import ComputeError, InvalidInput
from napari_saf.features import is_rgb
from napari_saf.methods._method import Cancelled
from napari_saf.problem import ImageOptions, Problem

__all__ = ["ImageJob", "NotFinite", "read_pixels"]

Index = tuple[int | slice, ...]


class NotFinite(InvalidInput):
    """The image holds NaN or infinite pixels; leaving them out is a way on."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageJob:
    """Which pixels of a layer to label, and what describes them.

    Attributes
    ----------
    data : array-like
        Data of the layer at full resolution; numpy, dask or zarr.
    index : tuple of int or slice
        What to read of it, one entry per axis.
    options : ImageOptions
        Features, window, weights and the channel axis after reading.
    mask : array-like or None
        Where not 0 is inside.
    mask_index : tuple of int or slice
        What to read of the mask.
    groups : array-like or None
        Group of each pixel, 0 for none; beside those that the options name.
    groups_index : tuple of int or slice
        What to read of the groups.
    seeds : array-like or None
        Labels painted by hand, 0 where there are none.
    seeds_index : tuple of int or slice
        What to read of the seeds.
    finite_only : bool
        Whether to leave out NaN and infinite pixels instead of refusing the image.
    """

    data: Any
    index: Index
    options: ImageOptions
    mask: Any = None
    mask_index: Index = ()
    groups: Any = None
    groups_index: Index = ()
    seeds: Any = None
    seeds_index: Index = ()
    finite_only: bool = False

    def read(self, cancelled: Callable[[], bool]) -> Problem:
        """Read the pixels and return the problem.

        Raises
        ------
        Cancelled
            If `cancelled` returned True between two pieces of the image.
        NotFinite
            If pixels that are to be labelled are NaN or infinite.
        InvalidInput
            As `Problem.from_image`.
        ComputeError
            If memory does not suffice.
        """
        try:
            pixels = read_pixels(self.data, self.index, cancelled)
            mask = None if self.mask is None else read_pixels(self.mask, self.mask_index, cancelled)
            groups: NDArray[Any] | str | None = self.options.groups
            if self.groups is not None:
                groups = read_pixels(self.groups, self.groups_index, cancelled)
            seeds = self.seeds
            if seeds is not None:
                seeds = read_pixels(seeds, self.seeds_index, cancelled)
            return self._problem(pixels, mask, groups, seeds)
        except MemoryError as error:
            raise ComputeError(f"not enough memory to read the image: {error}") from error

    def _problem(
        self,
        pixels: NDArray[Any],
        mask: NDArray[Any] | None,
        groups: NDArray[Any] | str | None,
        seeds: NDArray[Any] | None,
    ) -> Problem:
        options, axis = self.options, self.options.channel_axis
        if axis is None and is_rgb(pixels.shape) and not self._is_rgb_layer:
            pixels, axis = pixels[..., None], -1
        try:
            return Problem.from_image(
                pixels,
                features=options.features,
                window=options.window,
                weights=options.weights,
                channel_axis=axis,
                mask=self._inside(pixels, mask, axis),
                seeds=seeds,
                groups=groups,
                scaling=options.scaling,
            )
        except InvalidInput as error:
            if pixels.dtype.kind == "f" and not self.finite_only and not np.isfinite(pixels).all():
                raise NotFinite(str(error).split(";")[0]) from error
            raise

    @property
    def _is_rgb_layer(self) -> bool:
        return len(self.index) < np.ndim(self.data)

    def _inside(
        self, pixels: NDArray[Any], mask: NDArray[Any] | None, axis: int | None
    ) -> NDArray[np.bool_] | None:
        inside: NDArray[np.bool_] | None = None if mask is None else np.asarray(mask != 0)
        if not self.finite_only:
            return inside
        if axis is None:
            axis = -1 if is_rgb(pixels.shape) else None
        finite: NDArray[np.bool_] = np.isfinite(pixels)
        if axis is not None:
            finite = np.asarray(finite.all(axis=axis))
        return finite if inside is None or inside.shape != finite.shape else finite & inside


def read_pixels(data: Any, index: Index, cancelled: Callable[[], bool]) -> NDArray[Any]:
    """Return a part of an array as numpy; of a lazy one slab by slab, so that it can be ended.

    Raises
    ------
    Cancelled
        If `cancelled` returned True before the last slab was read.
    """
    part = data[index]
    chunks = getattr(part, "chunks", None)
    if isinstance(part, np.ndarray) or not chunks:
        return np.asarray(part)
    whole = np.empty(part.shape, part.dtype)
    start = 0
    for length in chunks[0]:
        if cancelled():
            raise Cancelled
        whole[start : start + length] = np.asarray(part[start : start + length])
        start += length
    return whole
