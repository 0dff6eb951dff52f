"""Brightness, edges and curvatures at several widths, and features that weigh the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from skimage import feature, filters

from napari_saf.device import raise_if_interrupted, torch
from napari_saf.errors import InvalidInput
from napari_saf.features._extractor import Axes, FeatureExtractor, Image, Mask
from napari_saf.parameters import parameter

_INTERRUPTED_EVERY = 2**20
"""So many pixels of a volume take a second where most is done."""


@dataclasses.dataclass(frozen=True)
class Multiscale(FeatureExtractor):
    """Brightness, edges and curvatures at several widths, each standardized over the image."""

    moments: tuple[float, ...] | None = parameter(
        None, label="Moments", is_list=True, in_form=False,
        help="Means and then scales of the features; none: those of the image.")  # fmt: skip
    whole: tuple[int, ...] | None = None  # the shape of the image that others are parts of
    name: ClassVar[str] = "multiscale"
    title: ClassVar[str] = "edges and texture"
    normalisation: ClassVar[Literal["fixed", "image"]] = "image"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moments is not None:
            numbers = np.ravel(self.moments).astype(float)
            if len(numbers) % 2 or (numbers[len(numbers) // 2 :] <= 0).any():
                raise InvalidInput("moments: expected means and scales > 0")
            object.__setattr__(self, "moments", tuple(numbers.tolist()))

    @property
    def receptive_field(self) -> int:
        return 4 * 8 + 2  # of the widest blur, and second differences

    def to_plain(self) -> str | dict[str, Any]:
        return super().to_plain() if self.moments else self.name

    def placed(self, start: Sequence[int], shape: Sequence[int]) -> Self:
        return dataclasses.replace(self, whole=tuple(shape))

    def for_parts(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        count, sums, squares = 0, np.zeros(1), np.zeros(1)
        for image, _, mask in images:
            found = self._responses(image)
            flat = found.reshape(-1, found.shape[-1]) if mask is None else found[mask]
            count, sums = count + len(flat), sums + flat.sum(axis=0, dtype=np.float64)
            squares = squares + np.square(flat).sum(axis=0, dtype=np.float64)
        mean = sums / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 0))
        return dataclasses.replace(self, moments=(*mean.tolist(), *_scale(spread).tolist()))

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        found = self._responses(image)
        if self.moments and len(self.moments) != 2 * found.shape[-1]:
            raise InvalidInput(f"moments: expected {2 * found.shape[-1]}, got {len(self.moments)}")
        return standardized(found, self.moments)

    def _responses(self, image: Image) -> Image:
        thin = [axis for axis, side in enumerate(image.shape[:-1]) if side == 1]
        for axis in thin:
            # Differences want two pixels; along a copy there are none.
            image = image.repeat(2, axis)
        widest = min(8, max(1, max(self.whole or image.shape[:-1]) // 8))
        widths = np.logspace(0, np.log2(widest), num=int(np.log2(widest)) + 1, base=2)
        jobs = [(channel, width) for channel in np.moveaxis(image, -1, 0) for width in widths]
        n_each = image.ndim + 1
        features = np.empty((*image.shape[:-1], len(jobs) * n_each), np.float32)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            # Each with what interrupts this thread.
            found = [pool.submit(copy_context().run, _at_width, *job) for job in jobs]
            for k, each in enumerate(found):
                for at, own in enumerate(each.result(), start=k * n_each):
                    features[..., at] = own
                    raise_if_interrupted()
        first = tuple(slice(1 if axis in thin else None) for axis in range(image.ndim - 1))
        return features[first]


def _at_width(channel: Image, width: float) -> list[Image]:
    """Return brightness, edges and curvatures of a plane or volume blurred by a width.

    As `skimage.feature.multiscale_basic_features`, which cannot be interrupted.
    """
    blurred = filters.gaussian(np.ascontiguousarray(channel), sigma=width)
    raise_if_interrupted()
    found = [blurred, filters.sobel(blurred)]
    raise_if_interrupted()
    slopes = np.gradient(blurred)
    slopes = slopes if blurred.ndim > 1 else [slopes]
    bends = []
    for first, second in combinations_with_replacement(range(blurred.ndim), 2):
        bends.append(np.gradient(slopes[first], axis=second))
        raise_if_interrupted()
    curvatures = np.empty((blurred.ndim, *blurred.shape), blurred.dtype)
    n_rows = max(1, _INTERRUPTED_EVERY * len(blurred) // blurred.size)
    for start in range(0, len(blurred), n_rows):
        rows = slice(start, start + n_rows)
        curvatures[:, rows] = feature.hessian_matrix_eigvals([bend[rows] for bend in bends])
        raise_if_interrupted()
    return [*found, *curvatures]


def standardized(features: NDArray[np.generic], moments: Sequence[float] | None = None) -> Image:
    """Return features, channels last, of which each weighs the same.

    Their mean is 0, and the variances sum to that of a uniform variable in [0, 1]: distances
    stay in the range of an image. Or by moments as of `Multiscale`.
    """
    values = np.asarray(features, dtype=np.float32)
    flat, found = values.reshape(-1, values.shape[-1]), np.empty(values.shape, np.float32)
    if moments is None:
        spread = flat.std(axis=0)
        raise_if_interrupted()
        mean, scale = flat.mean(axis=0), _scale(spread)
    else:
        mean, scale = np.array(moments).reshape(2, -1)
    for start in range(0, len(flat), _INTERRUPTED_EVERY):
        rows = slice(start, start + _INTERRUPTED_EVERY)
        found.reshape(flat.shape)[rows] = (flat[rows] - mean) / scale
        raise_if_interrupted()
    return found


def _scale(spread: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return by what features of such standard deviations are divided."""
    return np.asarray(np.where(spread > 1e-6, spread, 1) * np.sqrt(12 * len(spread)))
