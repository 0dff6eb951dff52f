"""Images on their way into a problem: checked, scaled, described, at the size at which to work."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import all_finite
from napari_saf.errors import InvalidInput, NotFinite
from napari_saf.features import FEATURES, Scaling, channels_last
from napari_saf.graph import (
    CoarseGrid,
    GridGraph,
    check_mask,
    check_window,
    coarse_mask,
    coarse_means,
    coarse_shape,
)
from napari_saf.groups import image_groups
from napari_saf.image_options import ImageOptions

__all__ = ["PreparedImage", "prepare_images"]

_PATCH_RHO = 0.02
"""Width of the non-local weights, per value of a patch."""
_CONTRAST_RHO = 0.005
"""Width of the weights by contrast, per value of a patch; chosen on photographs with strokes."""
_NOISE_DEVIATIONS = 3.0
"""Contrast counts beyond so many standard deviations of what noise makes of it. Photographs with
strokes and nuclei are labelled as well with 2; a step in strong noise then has isolated pixels."""
_WIDE_WINDOW = 9
"""From this side on, contrast is taken with every second pixel, and with those around it, for what
lies between counts too: a quarter of the work, and with a side of 13 objects from strokes are
found as well."""
_MOST_NEIGHBOURS = 256
"""Where that leaves more, in volumes above all, contrast is taken with every third pixel or fewer:
125 for 343 with a side of 13, and objects are found as well."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PreparedImage:
    """An image scaled and described, at the size at which to work, and its own shape and mask."""

    scaled: NDArray[np.float32]
    features: NDArray[np.floating]
    mask: NDArray[np.bool_] | None
    groups: NDArray[np.int64] | None
    image_shape: tuple[int, ...]
    image_mask: NDArray[np.bool_] | None

    def grid(self, options: ImageOptions) -> GridGraph:
        """Return the graph of its pixels, or of blocks of them, which knows the way back."""
        grid = self._grid(options)
        if grid.shape == self.image_shape:
            return grid
        return CoarseGrid(grid, self.image_shape, self.image_mask)

    def _grid(self, options: ImageOptions) -> GridGraph:
        shape = self.scaled.shape[:-1]
        if options.weights == "uniform":
            return GridGraph(shape, window=options.window, mask=self.mask)
        if options.weights == "contrast":
            return self._contrast_grid(check_window(options.window, shape))
        return GridGraph.nonlocal_means(
            self.scaled,
            window=options.window,
            patch_size=3,
            rho=_PATCH_RHO * 3 ** len(shape) * self.scaled.shape[-1],
            channel_axis=-1,
            mask=self.mask,
        )

    def _contrast_grid(self, window: tuple[int, ...]) -> GridGraph:
        """Return a grid whose weights fall with contrast, in so far as noise does not make it."""
        guide = FEATURES["lab"](self.scaled) if self.scaled.shape[-1] == 3 else self.scaled
        stride = _contrast_stride(window)
        patch = tuple(3 if stride > 1 and side > 1 else 1 for side in window)
        variances = _noise_variances(guide, [side > 1 for side in window], self.mask)
        # A squared difference of two noisy values has the variance 8 sigma^4.
        deviation = (8 * math.prod(patch) * np.square(variances).sum()) ** 0.5
        return GridGraph.nonlocal_means(
            guide,
            window=window,
            patch_size=patch,
            rho=_CONTRAST_RHO * math.prod(patch) + _NOISE_DEVIATIONS * deviation,
            stride=stride,
            channel_axis=-1,
            mask=self.mask,
            noise_variance=float(variances.sum()),
        )

    def nodes(self, grid: GridGraph) -> NDArray[np.floating]:
        """Return the features, a row for each node of its grid."""
        return np.asarray(grid.gather(self.features))


def prepare_images(
    images: list[ArrayLike],
    masks: list[Any],
    given: list[NDArray[np.floating]] | None,
    options: ImageOptions,
) -> tuple[list[PreparedImage], ImageOptions, float]:
    """Scale images, compute or check their features.

    Returns
    -------
    parts : list of PreparedImage
    options : ImageOptions
        With the scaling, whether it was given or found.
    clipped : float
        Share of the values that lie outside a scaling that was given.
    """
    arrays = [channels_last(image, options.channel_axis)[0] for image in images]
    if len({array.shape[-1] for array in arrays}) > 1:
        counts = [array.shape[-1] for array in arrays]
        raise InvalidInput(f"images: expected one number of channels, got {counts}")
    shapes = [_working_shape(array.shape[:-1], options) for array in arrays]
    hidden = [_masked_pixels(image, options.channel_axis) for image in images]
    inside = list(map(_check_finite, arrays, masks, hidden))
    seen = [a if m is None else a[m] for a, m in zip(arrays, inside, strict=True)]
    is_scaled = given is None or options.weights != "uniform"
    scaling = options.scaling or (Scaling.of(seen) if is_scaled else Scaling(0.0, 1.0))
    clipped = scaling.share_outside(seen) if is_scaled and options.scaling is not None else 0.0
    options = dataclasses.replace(options, scaling=scaling, rescale=options.scaling is None)
    groups: Sequence[NDArray[np.int64] | None] = [None] * len(arrays)
    if options.groups is not None:
        groups = image_groups(options.groups, arrays, inside)
    parts = []
    for k, (array, mask) in enumerate(zip(arrays, inside, strict=True)):
        kept = array if mask is None else np.where(mask[..., None], array, scaling.low)
        scaled, shape, whole = scaling.apply(kept), shapes[k], array.shape[:-1]
        features = None if given is None else _check_given(given, k, array)
        small = mask
        if shape != whole:
            scaled = coarse_means(scaled, shape, mask)
            features = None if features is None else coarse_means(features, shape, mask)
            small = None if mask is None else coarse_mask(mask, shape)
        if features is None:
            features = FEATURES[options.features](scaled)
        parts.append(PreparedImage(scaled, features, small, groups[k], whole, mask))
    return parts, options, clipped


def _contrast_stride(window: Sequence[int]) -> int:
    """Return the step between the pixels of a window that count."""
    if max(window) < _WIDE_WINDOW:
        return 1
    stride = 2
    while math.prod(side // 2 // stride * 2 + 1 for side in window) > _MOST_NEIGHBOURS:
        stride += 1
    return stride


def _noise_variances(
    image: NDArray[np.floating], along: Sequence[bool], mask: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Return the variance of the noise in each channel of an image, channels last.

    From second differences along some axes, in which smooth parts vanish: Immerkaer,
    https://doi.org/10.1006/cviu.1996.0060, with the median for the mean, so that edges hardly
    count.
    """
    axes = [axis for axis, counts in enumerate(along) if counts and image.shape[axis] > 2]
    if not axes:
        return np.zeros(image.shape[-1])
    inner = tuple(slice(1, -1) if axis in axes else slice(None) for axis in range(len(along)))
    found = []
    for channel in np.moveaxis(image, -1, 0):
        for axis in axes:
            channel = np.diff(channel, n=2, axis=axis)
        size = np.abs(channel if mask is None or not mask[inner].any() else channel[mask[inner]])
        # The median of a normal variable's size is 0.6745 sigma; 1, -2, 1 have the norm sqrt(6).
        found.append(float(np.median(size)) ** 2 / (0.6745**2 * 6 ** len(axes)))
    return np.array(found)


def _working_shape(shape: tuple[int, ...], options: ImageOptions) -> tuple[int, ...]:
    if options.max_side is not None:
        window = options.window if isinstance(options.window, tuple) else (options.window,)
        widths = window if len(window) == len(shape) else window[:1] * len(shape)
        shape = coarse_shape(shape, options.max_side, widths)
    check_window(options.window, shape)
    return shape


def _check_given(
    given: list[NDArray[np.floating]], k: int, array: NDArray[np.generic]
) -> NDArray[np.floating]:
    shape = array.shape[:-1]
    if k >= len(given) or given[k].shape[:-1] != shape:
        got = given[k].shape if k < len(given) else "none"
        raise InvalidInput(f"features: expected an array of shape {(*shape, 'n')}, got {got}")
    if given[k].shape[-1] != given[0].shape[-1]:
        counts = [features.shape[-1] for features in given]
        raise InvalidInput(f"features: expected as many for each image, got {counts}")
    return given[k]


def _masked_pixels(image: ArrayLike, channel_axis: int | None) -> NDArray[np.bool_] | None:
    """Return which pixels of a masked array are masked in any channel; None if none is."""
    if not isinstance(image, np.ma.MaskedArray) or not np.ma.is_masked(image):
        return None
    masked, _ = channels_last(np.ma.getmaskarray(image), channel_axis)
    return np.asarray(masked.any(axis=-1))


def _check_finite(
    array: NDArray[np.generic], mask: Any, hidden: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    """Return the mask without hidden pixels, within which all must be finite; None: no mask."""
    finite = all_finite(array)
    if not finite.any():
        raise InvalidInput("image: expected finite pixels, all of them are NaN or infinite")
    if isinstance(mask, str):
        if mask != "finite":
            raise InvalidInput(f"mask: expected an array or 'finite', got {mask!r}")
        mask = finite
    inside = check_mask(mask, finite.shape)
    if hidden is not None:
        inside = check_mask(~hidden if inside is None else ~hidden & inside, finite.shape)
    n_bad = int(np.count_nonzero(~finite if inside is None else ~finite & inside))
    if n_bad:
        raise NotFinite(
            f"image: {n_bad} of {finite.size} pixels are NaN or infinite; "
            "leave them out with the mask 'finite', or give a mask"
        )
    return inside
