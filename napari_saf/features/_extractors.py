"""What describes the pixels of an image: the protocol of extractors, and those with a name."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from skimage import color, feature, filters

from napari_saf.device import in_threads, raise_if_interrupted
from napari_saf.errors import InvalidInput
from napari_saf.features._image import average_around, scales_of, standardized
from napari_saf.parameters import check_bounds, parameter, to_plain

_CONVERTED = 2**16
"""Pixels whose colours are converted together; in between they have several times the room."""
_INTERRUPTED_EVERY = 2**20
"""So many pixels of a volume take a second where most is done."""
Image = NDArray[np.float32]
Axes = Sequence[int] | None
Mask = NDArray[np.bool_] | None


@dataclasses.dataclass(frozen=True)
class FeatureExtractor(ABC):
    """What makes features of the pixels of an image; `FEATURES` has those with a name.

    A frozen dataclass of its parameters, fields that are made by `parameter`: form, options and
    recipe come from them.

    Attributes
    ----------
    name : str
        In options and recipes.
    title : str
        In forms.
    channels : int or None
        How many an image must have; None: any number.
    normalisation : {"fixed", "image"}
        Whether values depend on what is close to a pixel alone, so that any part of an image has
        the features that it has in the whole; or on all of the image.
    is_portable : bool
        Whether features of one image stand for the same in another.
    is_equivariant : bool
        Whether an image that is shifted, turned by a quarter or mirrored has its features shifted,
        turned or mirrored.

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
        """How many pixels away from a pixel its features look."""
        return 0

    @property
    def stride(self) -> int:
        """Pixels from one place where features are computed to the next.

        Parts of an image that begin at multiples of it have the features of the whole.
        """
        return 1

    @property
    def n_labels(self) -> int | None:
        """Labels that a run begins with where nobody says; None: as their variance asks for."""
        return None

    @abstractmethod
    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        """Return the features (..., n_features) of an image (..., channels) in [0, 1].

        `axes` are those along which pixels are neighbours, by default all.
        """

    def refined(self, features: Image, average: Callable[[Image], Image]) -> Image:
        """Return features that follow the edges of an image; `average` takes means within them."""
        return features

    def fitted(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        """Return the extractor with what it learns from images, for others to be described alike.

        `images` are the arguments of `features`.
        """
        return self

    def for_parts(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Self:
        """Return the extractor that describes parts of a large image alike, as learned from some.

        `images` are as in `fitted`.
        """
        return self.fitted(images)

    def placed(self, start: Sequence[int], shape: Sequence[int]) -> Self:
        """Return what describes a part, from a first pixel on, of an image as in the whole."""
        return self

    def is_fit_of(self, other: FeatureExtractor) -> bool:
        """Return whether this is the other, or what it became by `fitted`."""
        return self == other

    def colours(self, points: NDArray[np.floating]) -> NDArray[np.floating] | None:
        """Return the colours (n_points, 3), 0 to 1, of features; None if they have none."""
        return None

    def channels_of(self, n_features: int) -> int | None:
        """Return how many channels an image has that has so many features, if that is known."""
        return self.channels

    def to_plain(self) -> str | dict[str, Any]:
        """Return what a recipe holds: the name, with the parameters if there are any."""
        own = to_plain(self)
        return {"kind": self.name, **own} if own else self.name


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
        light = lightness(colour)
        average = average_around(light, self._AROUND, axes, mask)
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
        return round(3 * max(self._AROUND)) + 3  # of three boxes

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        light = lightness(colour)
        means = [average_around(light, width, axes, mask)(light) for width in self._AROUND]
        return np.concatenate([colour, light[..., None] - np.stack(means, axis=-1)], axis=-1)


def lightness(colour: Image) -> Image:
    """Return L*, or the mean of channels that are no colour."""
    return colour[..., 0] if colour.shape[-1] == 3 else colour.mean(axis=-1)


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
        return round(3 * self._AROUND) + 3 + max(self._RADII) + 1

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = perceived(image)
        light = lightness(colour)
        along = tuple(range(light.ndim) if axes is None else axes)
        around = average_around(light, self._AROUND, axes, mask)
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
        return dataclasses.replace(self, moments=(*mean.tolist(), *scales_of(spread).tolist()))

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
        for k, responses in enumerate(in_threads(lambda job: _at_width(*job), jobs)):
            for at, response in enumerate(responses, start=k * n_each):
                features[..., at] = response
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
