"""Foreground features: detection of a uniform background, and contrast to it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import ClassVar, Literal

import numpy as np
from scipy.ndimage import uniform_filter
from skimage import color
from skimage.color.colorconv import xyz_from_rgb

from napari_saf.arrays import Array, Bools, Floats, Mask, all_finite
from napari_saf.features._extractors import (
    AbstractColourFirst,
    Axes,
    FeatureExtractor,
    Image,
    Intensity,
    Lab,
    lightness,
    perceived,
)
from napari_saf.features._image import Scaling, average_around
from napari_saf.parameters import parameter

Ground = Literal["dark", "bright", "paper"]
_SIGNS: dict[str, int] = {"dark": 1, "bright": -1, "paper": -1}
"""Sign of foreground contrast."""

_N_LOOKED_AT = 20_000
"""Approximate number of pixels sampled for the detection."""
_NEAR, _LEAST_ON, _MOST_BEYOND = 0.08, 0.4, 0.008
"""Tolerance around the background level; least share of background pixels, and greatest share of
pixels beyond it, such as darker than a dark background."""
_DARKEST, _BRIGHTEST, _MOST_CHANGE = 0.35, 0.72, 0.4
"""Largest median lightness of a dark background, smallest of a bright one; largest range between
the 2nd and the 98th percentile of a background."""
_ACROSS_HUE, _LEAST_CHROMA = 0.185, 0.02
"""Largest chroma orthogonal to the main hue, relative to that along it. Chosen, like the other
limits, on 60 images of nuclei and 120 photographs: `benchmarks/first_click.py`."""
_SIDE, _THIN, _MOST_LOST = 256, 5, 0.12
"""Side of a central crop, side of box means, and least loss of variance for paper: .26 and .58 for
writing, at most .04 for stained nuclei."""
_MOST_IMAGES = 4
"""Most images used for the detection."""
_N_LEVELS, _BEYOND_RGB = 29, 0.02
"""Levels of a bright ground that are tried, and tolerance of linear RGB beyond 1."""
_N_MEANS = 2
"""Iterations of the one-sided mean of the background."""


def ground_of(
    images: Sequence[Array], masks: Sequence[Mask], middles: Sequence[Array] | None = None
) -> Ground | None:
    """Return the type of uniform background of images (..., channels), None if there is none.

    Many pixels belong to a slowly varying background; all others are brighter, or all darker, and
    of one hue. The objects on "paper" are as thin as writing. `middles` are the centres of images
    of a reduced size, at full resolution.
    """
    looks = []
    for image, mask in zip(images, masks, strict=True):
        every = looked_at(image.shape[:-1], len(images))
        looks.append((image[every], None if mask is None else mask[every]))
    middles = images if middles is None else middles
    return ground_of_looks(looks, [image[middle_of(image.shape[:-1])] for image in middles])


def ground_of_looks(looks: Sequence[tuple[Array, Mask]], middles: Sequence[Array]) -> Ground | None:
    """Return the background from pixels at `looked_at`, with masks, and crops of `middle_of`."""
    seen = [_finite(*look) for look in looks]
    rows = np.concatenate([values[inside] for values, inside in seen])
    if rows.shape[-1] not in (1, 3) or len(np.unique(rows)) <= 2:
        return None
    scaling = Scaling.of([rows])
    colours = [perceived(scaling.apply(values)) for values, _ in seen]
    if rows.shape[-1] == 3:
        chroma = perceived(scaling.apply(rows))[:, 1:].astype(float)
        across, along = np.sqrt(np.linalg.eigvalsh(chroma.T @ chroma / len(chroma)).clip(0))
        if across > _ACROSS_HUE * (along + _LEAST_CHROMA):
            return None
    grounds: tuple[Ground, ...] = ("dark", "bright")
    for ground in grounds:
        sign, levels, above = _SIGNS[ground], [], []
        for colour, (_, inside) in zip(colours, seen, strict=True):
            light = lightness(colour)
            widths = np.maximum(np.divide(light.shape, 8), 1)
            level = _level_of(light, sign, average_around(light, widths, None, inside))
            levels.append(level[inside])
            above.append(sign * (light - level)[inside])
        height = np.concatenate(above)
        low, middle, high = np.percentile(np.concatenate(levels), (2, 50, 98)).tolist()
        is_there = middle <= _DARKEST if ground == "dark" else middle >= _BRIGHTEST
        is_there &= high - low <= _MOST_CHANGE
        is_there &= (np.abs(height) < _NEAR).mean() >= _LEAST_ON
        if is_there and (height < -_NEAR).mean() <= _MOST_BEYOND:
            is_thin = ground == "bright" and _is_thin(middles, scaling)
            return "paper" if is_thin else ground
    return None


def _is_thin(middles: Sequence[Array], scaling: Scaling) -> bool:
    """Return whether most contrast vanishes in means over a few pixels."""
    total = lost = 0.0
    for middle in middles:
        crop = np.where(np.isfinite(middle), middle, scaling.high)
        light = lightness(perceived(scaling.apply(crop)))
        total += float(light.var())
        lost += float((light - uniform_filter(light, _THIN)).var())
    return lost > _MOST_LOST * total


def middle_of(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the central region, in which the thickness of objects is measured."""
    return tuple(slice(max(0, (n - _SIDE) // 2), (n + _SIDE) // 2) for n in shape)


def looked_at(shape: Sequence[int], n_images: int = 1) -> tuple[slice, ...]:
    """Return evenly spaced positions for the detection of the background."""
    most = max(1, _N_LOOKED_AT // n_images)
    step = max(1, math.ceil((math.prod(shape) / most) ** (1 / len(shape))))
    return tuple(slice(min(step // 2, (side - 1) // 2), None, step) for side in shape)


def _finite(values: Array, mask: Mask) -> tuple[Array, Bools]:
    """Return pixels, 0 where invalid, and whether each is finite and within the mask."""
    inside = all_finite(values)
    inside = inside if mask is None else inside & mask
    return np.where(inside[..., None], values, 0), inside


def _level_of(light: Image, sign: int, average: Callable[[Image], Image]) -> Image:
    """Return the background level: iterated local means, clipped on the side of the foreground."""
    level = average(light)
    for _ in range(_N_MEANS):
        weight = (sign * (light - level) <= 0) + np.float32(1e-3)
        level = np.asarray(average(weight * light) / np.maximum(average(weight), 1e-9))
    return level


def _lightest(colour: Floats) -> float:
    """Return the largest lightness of a bright ground, 1 for white, at which colours are in RGB."""
    if colour.shape[1] != 3:
        return 1.0
    levels = np.linspace(1, _BRIGHTEST, _N_LEVELS)
    lab = colour + np.pad(levels[:, None], ((0, 0), (0, 2)))[:, None]
    lab[..., 0] = np.maximum(lab[..., 0], 0)
    lab[..., 2] = np.minimum(lab[..., 2], 2 * (lab[..., 0] + 0.16) / 1.16)  # Z is at least 0
    linear = color.lab2xyz(100 * lab) @ np.linalg.inv(xyz_from_rgb).T
    is_in_rgb = linear.max(axis=(1, 2)) <= 1 + _BEYOND_RGB
    return float(levels[int(is_in_rgb.argmax())] if is_in_rgb.any() else _BRIGHTEST)


@dataclasses.dataclass(frozen=True)
class Foreground(AbstractColourFirst):
    """Log brightness relative to the background, a one-sided mean, and to local means."""

    ground: Literal["auto", "dark", "bright", "paper"] = parameter(
        "auto", label="Ground",
        choice_labels={"auto": "automatic", "dark": "dark", "bright": "bright", "paper": "paper"},
        help="Type of background: darker than the objects (dark), or brighter, with objects of "
        "several tones (bright) or writing (paper). Automatic: detected.")  # fmt: skip
    name: ClassVar[str] = "foreground"
    title: ClassVar[str] = "things on a ground"
    _FAR, _OFFSET = 32.0, 0.3
    """Width in pixels of the background means, and offset of the logarithm."""
    _AROUND = (4.0, 8.0, 16.0)
    """Widths in pixels of the local means."""
    _N_OTHERS = len(_AROUND)

    receptive_field = (round(3 * _FAR) + 3) * (1 + _N_MEANS)

    @property
    def ground_text(self) -> str:
        return "paper" if self.ground == "paper" else f"a {self.ground} ground"

    @property
    def n_labels(self) -> int | None:
        return 4 if self.ground == "bright" else None  # stained objects have several tones

    def fitted(self, images: Iterable[tuple[Image, Axes, Mask]]) -> Foreground:
        if self.ground != "auto":
            return self
        looks = [(image, mask) for image, _, mask in islice(images, _MOST_IMAGES)]
        ground = ground_of([image for image, _ in looks], [mask for _, mask in looks])
        if ground is None:  # by the median tone
            rows = [image if mask is None else image[mask] for image, mask in looks]
            middle = np.median([np.median(lightness(perceived(values))) for values in rows])
            ground = "dark" if middle < 0.5 else "bright"
        return dataclasses.replace(self, ground=ground)

    def is_fit_of(self, template: FeatureExtractor) -> bool:
        return template in (self, dataclasses.replace(self, ground="auto"))

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        if self.ground == "auto":
            return self.fitted([(image, axes, mask)]).features(image, axes, mask)
        colour = np.array(perceived(np.log1p(image / self._OFFSET) / np.log1p(1 / self._OFFSET)))
        light, far = lightness(colour).copy(), average_around(colour[..., 0], self._FAR, axes, mask)
        values = colour[..., :1] if colour.shape[-1] == 3 else colour
        values -= _level_of(light, _SIGNS[self.ground], far)[..., None]
        means = [average_around(light, width, axes, mask)(light) for width in self._AROUND]
        contrasts = light[..., None] - np.stack(means, axis=-1)
        return np.concatenate([colour, contrasts], axis=-1).astype(np.float32)

    def colours(self, points: Floats) -> Floats | None:
        """Return RGB colours (n_points, 3) in [0, 1].

        The features do not hold the level of the ground: a dark one is taken as black, a bright one
        as white, or as light as the colours of all points can be in RGB.
        """
        colour = points[:, : -self._N_OTHERS].astype(float)
        if self.ground != "dark":
            colour[:, : 1 if colour.shape[1] == 3 else None] += _lightest(colour)
        rgb = (Lab() if colour.shape[1] == 3 else Intensity()).colours(colour)
        if rgb is None:
            return None
        return np.asarray(self._OFFSET * np.expm1(rgb * np.log1p(1 / self._OFFSET)))
