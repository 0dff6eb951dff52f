"""What describes the pixels of an image: the features that have a name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage import color, feature

from napari_saf.device import raise_if_interrupted
from napari_saf.errors import InvalidInput
from napari_saf.features._extractor import Axes, FeatureExtractor, Image, Mask
from napari_saf.features._multiscale import Multiscale
from napari_saf.parameters import from_plain

_CONVERTED = 2**16
"""Pixels whose colours are converted together; in between they have several times the room."""


class Intensity(FeatureExtractor):
    """The values of the channels."""

    name, title = "intensity", "intensity or colour"

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        return image

    def colours(self, points: NDArray[np.floating]) -> NDArray[np.floating] | None:
        if points.shape[1] not in (1, 3):
            return None
        return np.broadcast_to(np.clip(points, 0, 1), (len(points), 3))

    def channels_of(self, n_features: int) -> int | None:
        return n_features


class Lab(FeatureExtractor):
    """CIE L*a*b* / 100."""

    name, title = "lab", "perceived colour"
    channels = 3

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        if image.shape[-1] != 3:
            raise InvalidInput(f"features 'lab': expected 3 channels, got {image.shape[-1]}")
        flat, found = image.reshape(-1, 3), np.empty((image.size // 3, 3), np.float32)
        for start in range(0, len(flat), _CONVERTED):
            rows = slice(start, start + _CONVERTED)
            found[rows] = color.rgb2lab(flat[rows]) / 100
            raise_if_interrupted()
        return found.reshape(image.shape)

    def colours(self, points: NDArray[np.floating]) -> NDArray[np.floating] | None:
        if points.shape[1] != 3:
            return None
        return np.asarray(color.lab2rgb(100 * points.astype(float)))


def perceived(image: Image) -> Image:
    """Return perceived colour, or the values of channels that are no colour."""
    return Lab().features(image) if image.shape[-1] == 3 else image


class AbstractColourFirst(FeatureExtractor):
    """Perceived colour, or intensities, by a weight, and then so many other features."""

    _N_OTHERS: ClassVar[int]
    _COLOUR: ClassVar[float] = 1.0

    def colours(self, points: NDArray[np.floating]) -> NDArray[np.floating] | None:
        own = points[:, : -self._N_OTHERS] / self._COLOUR
        return (Lab() if own.shape[1] == 3 else Intensity()).colours(own)

    def channels_of(self, n_features: int) -> int | None:
        return n_features - self._N_OTHERS


class Texture(AbstractColourFirst):
    """Perceived colour, or intensities, and how much lightness varies around a pixel."""

    name, title = "texture", "colour and texture"
    _N_OTHERS, _AROUND, _WEIGHT = 1, 2.0, 2.0
    """Width in pixels of what is around, and weight beside colour: the best of those that were
    tried on photographs that people segmented."""

    @property
    def receptive_field(self) -> int:
        return round(4 * self._AROUND)  # as scipy has it

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        raise_if_interrupted()
        light = _lightness(colour)
        average = _average_around(light, self._AROUND, axes, mask)
        mean, square = average(light), average(light**2)
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        return np.concatenate([colour, self._WEIGHT * deviation[..., None]], axis=-1)


class Local(AbstractColourFirst):
    """Perceived colour, or intensities, and how much lighter a pixel is than what is around it.

    That is its lightness less the Gaussian mean, for several widths.
    """

    name, title = "local", "colour and surroundings"
    _AROUND = (8.0, 16.0, 32.0)
    """Widths in pixels. On nuclei these do as well as one width, the length of a stroke."""
    _N_OTHERS = len(_AROUND)

    @property
    def receptive_field(self) -> int:
        return round(4 * max(self._AROUND))  # as scipy has it

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        light = _lightness(colour)
        means = [_average_around(light, width, axes, mask)(light) for width in self._AROUND]
        return np.concatenate([colour, light[..., None] - np.stack(means, axis=-1)], axis=-1)


def _lightness(colour: Image) -> Image:
    """Return L*, or the mean of channels that are no colour."""
    return colour[..., 0] if colour.shape[-1] == 3 else colour.mean(axis=-1)


def _average_around(like: Image, width: float, axes: Axes, mask: Mask) -> Callable[[Image], Image]:
    """Return what takes Gaussian means of planes or volumes along axes, within the mask."""
    along = tuple(range(like.ndim) if axes is None else axes)
    inside = np.ones_like(like) if mask is None else mask.astype(np.float32)
    total = np.maximum(gaussian_filter(inside, width, axes=along), 1e-6)

    def average(values: Image) -> Image:
        raise_if_interrupted()
        return np.asarray(gaussian_filter(inside * values, width, axes=along) / total)

    return average


class Patterns(AbstractColourFirst):
    """Colour, and how often each local binary pattern occurs around a pixel.

    A pattern says which of the 8 pixels at some radius are brighter than the one between them, up
    to turns: Ojala, Pietikäinen and Mäenpää, https://doi.org/10.1109/TPAMI.2002.1017623. Those of
    two radii are counted in a Gaussian window; roots of the shares make distances those of
    Hellinger. With them stand the deviation of lightness in the same window, and colour.
    Volumes have the patterns of their planes.
    """

    name, title = "patterns", "texture patterns"
    _RADII, _N_POINTS, _AROUND, _COLOUR = (1, 2), 8, 8.0, 0.5
    """Radii in pixels, width of the window, and weight of colour: chosen on the mosaics of even
    index of ``benchmarks/features.py``."""
    _N_OTHERS = len(_RADII) * (_N_POINTS + 2) + 1

    @property
    def receptive_field(self) -> int:
        return round(4 * self._AROUND) + max(self._RADII) + 1

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        light = _lightness(colour)
        along = tuple(range(light.ndim) if axes is None else axes)
        around = _average_around(light, self._AROUND, axes, mask)
        found = np.empty((*light.shape, colour.shape[-1] + self._N_OTHERS), np.float32)
        found[..., : colour.shape[-1]] = self._COLOUR * colour
        at = colour.shape[-1]
        for radius in self._RADII:
            patterns = _local_patterns(light, along[-2:], self._N_POINTS, radius)
            for pattern in range(self._N_POINTS + 2):
                share = around((patterns == pattern).astype(np.float32))
                found[..., at] = np.sqrt(np.maximum(share, 0) / len(self._RADII))
                at += 1
        variance = around(light**2) - around(light) ** 2
        found[..., at] = np.sqrt(np.maximum(variance, 0))
        return found


def _local_patterns(light: Image, axes: Sequence[int], n_points: int, radius: int) -> NDArray[Any]:
    """Return the uniform patterns, 0 to n_points + 1, in the planes of one or two axes."""
    moved = np.moveaxis(light, axes, range(-len(axes), 0))
    sides = moved.shape[-2:] if len(axes) == 2 else (1, moved.shape[-1])
    found = np.empty((moved.size // max(sides[0] * sides[1], 1), *sides), np.uint8)
    for plane, own in zip(moved.reshape(found.shape), found, strict=True):
        # Rounded, so that what is flat stays flat.
        levels = np.pad(np.clip(255 * plane, 0, 255).round().astype(np.uint8), radius + 1, "edge")
        patterns = feature.local_binary_pattern(levels, n_points, radius, "uniform")
        own[:] = patterns[radius + 1 : -radius - 1, radius + 1 : -radius - 1]
        raise_if_interrupted()
    return np.moveaxis(found.reshape(moved.shape), range(-len(axes), 0), axes)


@dataclasses.dataclass(frozen=True)
class Position(FeatureExtractor):
    """Perceived colour, or intensities, and the place in the image.

    In a part of an image, from the pixel `start` on, that is the place in the `whole` of that
    shape.
    """

    start: tuple[int, ...] | None = None
    whole: tuple[int, ...] | None = None
    name, title = "position", "colour and position"
    normalisation = "image"
    is_portable = is_equivariant = False
    _WEIGHT = 0.3
    """Distance of the two ends of the longest side; black and white are 1 apart."""

    def placed(self, start: Sequence[int], shape: Sequence[int]) -> Self:
        return dataclasses.replace(self, start=tuple(start), whole=tuple(shape))

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        shape = image.shape[:-1]
        place = np.moveaxis(np.indices(shape, dtype=np.float32), 0, -1)
        place += np.array(self.start or (0,), np.float32)
        place *= self._WEIGHT / max(self.whole or shape)
        return np.concatenate([perceived(image), place], axis=-1)


FEATURES: dict[str, type[FeatureExtractor]] = {
    cls.name: cls for cls in (Intensity, Lab, Texture, Local, Patterns, Multiscale, Position)
}
"""The extractors by name."""


def extractor_of(features: object) -> FeatureExtractor | None:
    """Return what makes features, by name, by what a recipe holds, or itself; None if nothing."""
    if isinstance(features, FeatureExtractor):
        return features
    if isinstance(features, str):
        return FEATURES[features]() if features in FEATURES else None
    if not isinstance(features, dict) or features.get("kind") not in FEATURES:
        return None
    own = {name: value for name, value in features.items() if name != "kind"}
    return from_plain(FEATURES[features["kind"]], own, "features")
