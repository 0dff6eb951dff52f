"""Feature extractors of pixels: their base class, and the built-in ones."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement
from typing import ClassVar, Literal, Self

import numpy as np
from skimage import color, feature, filters

from napari_saf.arrays import Array, Float32s, Floats, JsonObject, Mask
from napari_saf.device import in_threads, raise_if_interrupted
from napari_saf.errors import InvalidInput
from napari_saf.features._image import average_around, scales_of, standardized
from napari_saf.parameters import check_bounds, parameter, to_plain

_CONVERTED = 2**16
"""Pixels per block of colour conversion, which takes several times the memory of a block."""
_INTERRUPTED_EVERY = 2**20
"""Voxels per block: about a second in the slowest filter."""
Image = Float32s
Axes = Sequence[int] | None


@dataclasses.dataclass(frozen=True)
class FeatureExtractor(ABC):
    """Base class of feature extractors; `FEATURES` has the built-in ones by name.

    A frozen dataclass whose fields are made by `parameter`, which defines form, options and recipe.

    Attributes
    ----------
    name : str
        Name in options and recipes.
    title : str
        Name in forms.
    channels : int or None
        Required number of channels; None: any.
    normalisation : {"fixed", "image"}
        Whether features depend only on the neighbourhood of a pixel, so that they are the same in
        parts of an image, or on the entire image.
    is_portable : bool
        Whether features are comparable between images.
    is_equivariant : bool
        Whether features commute with shifts, quarter turns and reflections of the image.

    Examples
    --------
    >>> class Gradient(saf.FeatureExtractor):
    ...     name = title = "gradient"
    ...     def features(self, image, axes=None, mask=None):
    ...         return np.hypot(*np.gradient(image[..., 0]))[..., None]
    >>> image = np.kron([[0.0, 1.0]], np.ones((8, 8)))
    >>> saf.Problem.from_image(image, features=Gradient()).features.shape
    (128, 1)
    """

    name: ClassVar[str]
    title: ClassVar[str]
    channels: ClassVar[int | None] = None
    normalisation: ClassVar[Literal["fixed", "image"]] = "fixed"
    is_portable: ClassVar[bool] = True
    is_equivariant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def receptive_field(self) -> int:
        """Radius in pixels of the neighbourhood that features depend on."""
        return 0

    @property
    def stride(self) -> int:
        """Distance in pixels between computed positions, at multiples of which parts must begin."""
        return 1

    @property
    def n_labels(self) -> int | None:
        """Default initial number of labels; None: chosen by the variance of the features."""
        return None

    @abstractmethod
    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        """Return the features (..., n_features) of an image (..., channels) in [0, 1].

        `axes` are the spatial axes of neighbours, by default all.
        """

    def refined(self, features: Image, average: Callable[[Image], Image]) -> Image:
        """Return features averaged within edges by `average`; by default unchanged."""
        return features

    def fitted(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        """Return the extractor fitted to images, for comparable features of other images.

        `images` are the arguments of `features`.
        """
        return self

    def for_parts(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        """Return the extractor fitted to sample parts of a large image, for all its parts.

        `images` are as in `fitted`.
        """
        return self.fitted(images)

    def placed(self, start: Sequence[int], shape: Sequence[int]) -> Self:
        """Return the extractor for a part of an image, from its first pixel and the image shape."""
        return self

    def is_fit_of(self, template: FeatureExtractor) -> bool:
        """Return whether this equals `template`, or a result of its `fitted`."""
        return self == template

    def colours(self, points: Floats) -> Floats | None:
        """Return RGB colours (n_points, 3) in [0, 1] of features; None without colours."""
        return None

    def channels_of(self, n_features: int) -> int | None:
        """Return the number of image channels for `n_features`, if known."""
        return self.channels

    def to_plain(self) -> str | JsonObject:
        """Return the recipe entry: the name, or a dict with the parameters."""
        parameters = to_plain(self)
        return {"kind": self.name, **parameters} if parameters else self.name


class Intensity(FeatureExtractor):
    """Channel values."""

    name, title = "intensity", "intensity or colour"

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        return image

    def colours(self, points: Floats) -> Floats | None:
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
        flat, result = image.reshape(-1, 3), np.empty((image.size // 3, 3), np.float32)
        for start in range(0, len(flat), _CONVERTED):
            rows = slice(start, start + _CONVERTED)
            result[rows] = color.rgb2lab(flat[rows]) / 100
            raise_if_interrupted()
        return result.reshape(image.shape)

    def colours(self, points: Floats) -> Floats | None:
        if points.shape[1] != 3:
            return None
        return np.asarray(color.lab2rgb(100 * points.astype(float)))


def perceived(image: Image) -> Image:
    """Return L*a*b* colour, or the channel values of other images."""
    return Lab().features(image) if image.shape[-1] == 3 else image


class AbstractColourFirst(FeatureExtractor):
    """Base class: weighted L*a*b* colour or intensities, then `_N_OTHERS` other features."""

    _N_OTHERS: ClassVar[int]
    _COLOUR: ClassVar[float] = 1.0

    def colours(self, points: Floats) -> Floats | None:
        colour = points[:, : -self._N_OTHERS] / self._COLOUR
        return (Lab() if colour.shape[1] == 3 else Intensity()).colours(colour)

    def channels_of(self, n_features: int) -> int | None:
        return n_features - self._N_OTHERS


class Texture(AbstractColourFirst):
    """L*a*b* colour or intensities, and the local standard deviation of lightness."""

    name, title = "texture", "colour and texture"
    _N_OTHERS, _AROUND, _WEIGHT = 1, 2.0, 2.0
    """Width in pixels of the window, and weight relative to colour; best on photographs."""

    receptive_field = round(4 * _AROUND)  # truncation of scipy

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        raise_if_interrupted()
        light = lightness(colour)
        average = average_around(light, self._AROUND, axes, mask)
        mean, square = average(light), average(light**2)
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        return np.concatenate([colour, self._WEIGHT * deviation[..., None]], axis=-1)


class Local(AbstractColourFirst):
    """L*a*b* colour or intensities, and lightness minus its Gaussian means of several widths."""

    name, title = "local", "colour and surroundings"
    _AROUND = (8.0, 16.0, 32.0)
    """Widths in pixels; on nuclei as accurate as a single width of the stroke length."""
    _N_OTHERS = len(_AROUND)

    receptive_field = round(3 * max(_AROUND)) + 3  # three box means

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        light = lightness(colour)
        means = [average_around(light, width, axes, mask)(light) for width in self._AROUND]
        return np.concatenate([colour, light[..., None] - np.stack(means, axis=-1)], axis=-1)


def lightness(colour: Image) -> Image:
    """Return L*, or the mean of the channels of other images."""
    return colour[..., 0] if colour.shape[-1] == 3 else colour.mean(axis=-1)


class Patterns(AbstractColourFirst):
    """Colour, deviation of lightness, and histograms of local binary patterns around a pixel.

    Ojala, Pietikäinen and Mäenpää, https://doi.org/10.1109/TPAMI.2002.1017623: uniform patterns of
    two radii, as square roots of shares in a Gaussian window (Hellinger distance), in planes of
    volumes.
    """

    name, title = "patterns", "texture patterns"
    _RADII, _N_POINTS, _AROUND, _COLOUR = (1, 2), 8, 8.0, 0.5
    """Radii in pixels, width of the window, and weight of colour: chosen on the mosaics of even
    index of ``benchmarks/features.py``."""
    _N_OTHERS = len(_RADII) * (_N_POINTS + 2) + 1

    receptive_field = round(3 * _AROUND) + 3 + max(_RADII) + 1

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        light = lightness(colour)
        along = tuple(range(light.ndim) if axes is None else axes)
        around = average_around(light, self._AROUND, axes, mask)
        result = np.empty((*light.shape, colour.shape[-1] + self._N_OTHERS), np.float32)
        result[..., : colour.shape[-1]] = self._COLOUR * colour
        at = colour.shape[-1]
        for radius in self._RADII:
            patterns = _local_patterns(light, along[-2:], self._N_POINTS, radius)
            for pattern in range(self._N_POINTS + 2):
                share = around((patterns == pattern).astype(np.float32))
                result[..., at] = np.sqrt(np.maximum(share, 0) / len(self._RADII))
                at += 1
        variance = around(light**2) - around(light) ** 2
        result[..., at] = np.sqrt(np.maximum(variance, 0))
        return result


def _local_patterns(light: Image, axes: Sequence[int], n_points: int, radius: int) -> Array:
    """Return the uniform patterns, 0 to n_points + 1, in the planes of one or two axes."""
    moved = np.moveaxis(light, axes, range(-len(axes), 0))
    sides = moved.shape[-2:] if len(axes) == 2 else (1, moved.shape[-1])
    result = np.empty((moved.size // max(sides[0] * sides[1], 1), *sides), np.uint8)
    for plane, target in zip(moved.reshape(result.shape), result, strict=True):
        # rounded, so that flat regions stay flat
        levels = np.pad(np.clip(255 * plane, 0, 255).round().astype(np.uint8), radius + 1, "edge")
        patterns = feature.local_binary_pattern(levels, n_points, radius, "uniform")
        target[:] = patterns[radius + 1 : -radius - 1, radius + 1 : -radius - 1]
        raise_if_interrupted()
    return np.moveaxis(result.reshape(moved.shape), range(-len(axes), 0), axes)


@dataclasses.dataclass(frozen=True)
class Position(FeatureExtractor):
    """L*a*b* colour or intensities, and the position; for parts, relative to `image_shape`."""

    start: tuple[int, ...] | None = None
    image_shape: tuple[int, ...] | None = None
    name, title = "position", "colour and position"
    normalisation = "image"
    is_portable = is_equivariant = False
    _WEIGHT = 0.3
    """Feature distance of the ends of the longest side; that of black and white is 1."""

    def placed(self, start: Sequence[int], shape: Sequence[int]) -> Self:
        return dataclasses.replace(self, start=tuple(start), image_shape=tuple(shape))

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        shape = image.shape[:-1]
        position = np.moveaxis(np.indices(shape, dtype=np.float32), 0, -1)
        position += np.array(self.start or (0,), np.float32)
        position *= self._WEIGHT / max(self.image_shape or shape)
        return np.concatenate([perceived(image), position], axis=-1)


@dataclasses.dataclass(frozen=True)
class Multiscale(FeatureExtractor):
    """Brightness, edges and curvatures at several widths, each standardized over the image."""

    moments: tuple[float, ...] | None = parameter(
        None, label="Moments", is_list=True, in_form=False,
        help="Means, then scales of the features; none: those of the image.")  # fmt: skip
    image_shape: tuple[int, ...] | None = None  # of the whole image, for its parts
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

    receptive_field = 4 * 8 + 2  # widest blur and second differences

    def to_plain(self) -> str | JsonObject:
        return super().to_plain() if self.moments else self.name

    def placed(self, start: Sequence[int], shape: Sequence[int]) -> Self:
        return dataclasses.replace(self, image_shape=tuple(shape))

    def for_parts(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        count, sums, squares = 0, np.zeros(1), np.zeros(1)
        for image, _, mask in images:
            responses = self._responses(image)
            flat = responses.reshape(-1, responses.shape[-1]) if mask is None else responses[mask]
            count, sums = count + len(flat), sums + flat.sum(axis=0, dtype=np.float64)
            squares = squares + np.square(flat).sum(axis=0, dtype=np.float64)
        mean = sums / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 0))
        return dataclasses.replace(self, moments=(*mean.tolist(), *scales_of(spread).tolist()))

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        responses = self._responses(image)
        if self.moments and len(self.moments) != 2 * responses.shape[-1]:
            raise InvalidInput(
                f"moments: expected {2 * responses.shape[-1]}, got {len(self.moments)}"
            )
        return standardized(responses, self.moments)

    def _responses(self, image: Image) -> Image:
        thin = [axis for axis, side in enumerate(image.shape[:-1]) if side == 1]
        for axis in thin:
            # differences need two pixels and vanish along a repeated axis
            image = image.repeat(2, axis)
        widest = min(8, max(1, max(self.image_shape or image.shape[:-1]) // 8))
        widths = np.logspace(0, np.log2(widest), num=int(np.log2(widest)) + 1, base=2)
        jobs = [(channel, width) for channel in np.moveaxis(image, -1, 0) for width in widths]
        n_each = image.ndim + 1
        features = np.empty((*image.shape[:-1], len(jobs) * n_each), np.float32)
        for k, responses in enumerate(in_threads(lambda job: _at_width(*job), jobs)):
            for at, response in enumerate(responses, start=k * n_each):
                features[..., at] = response
                raise_if_interrupted()
        first = tuple(slice(1 if axis in thin else None) for axis in range(image.ndim - 1))
        return features[first]


def _at_width(channel: Image, width: float) -> list[Image]:
    """Return brightness, edges and curvatures at a Gaussian width, as skimage, but cancellable."""
    blurred = filters.gaussian(np.ascontiguousarray(channel), sigma=width)
    raise_if_interrupted()
    responses = [blurred, filters.sobel(blurred)]
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
    return [*responses, *curvatures]
