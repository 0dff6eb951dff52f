"""Images of one kind of thing on a ground: how they are recognised, and what describes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from napari_saf.features._extractors import (
    AbstractColourFirst,
    Axes,
    Image,
    Intensity,
    Lab,
    Mask,
    average_around,
    lightness,
    perceived,
)
from napari_saf.features._image import Scaling
from napari_saf.parameters import parameter

Ground = Literal["dark", "bright"]

_N_LOOKED_AT = 20_000
"""Pixels, about, by which an image is recognised."""
_N_BINS, _BAND = 32, 5
"""The ground is the sixth of the range of lightness that holds most pixels."""
_DARK, _BRIGHT = (0.28, 0.45), (0.69, 0.37)
"""Where the middle of the band lies, at most or at least, and its least share of the pixels."""
_ACROSS_HUE = 0.185
"""Chroma across the main hue beside that along it, at most. Chosen, like the shares, on 60 images
of nuclei and 120 photographs: `benchmarks/first_click.py`."""
_LEAST_CHROMA = 0.02


def ground_of(
    images: Sequence[NDArray[Any]], masks: Sequence[NDArray[np.bool_] | None]
) -> Ground | None:
    """Return which ground one kind of thing lies on; None if images (..., channels) have no ground.

    Most pixels of such images are about equally dark, or bright, and all have one hue or none.
    """
    if images[0].shape[-1] not in (1, 3):
        return None
    most = max(1, _N_LOOKED_AT // len(images))
    rows = np.concatenate([_looked_at(*pair, most) for pair in zip(images, masks, strict=True)])
    if not len(rows) or rows.min() == rows.max():
        return None
    colour = perceived(Scaling.of([rows]).apply(rows))
    counts = np.histogram(lightness(colour), _N_BINS, (0, 1))[0]
    bands = np.convolve(counts, np.ones(_BAND), "valid") / len(rows)
    middle, share = (bands.argmax() + _BAND / 2) / _N_BINS, bands.max()
    if colour.shape[-1] == 3:
        chroma = colour[:, 1:].astype(float)
        across, along = np.sqrt(np.linalg.eigvalsh(chroma.T @ chroma / len(chroma)).clip(0))
        if across > _ACROSS_HUE * (along + _LEAST_CHROMA):
            return None
    if middle <= _DARK[0] and share >= _DARK[1]:
        return "dark"
    return "bright" if middle >= _BRIGHT[0] and share >= _BRIGHT[1] else None


def _looked_at(image: NDArray[Any], mask: NDArray[np.bool_] | None, most: int) -> NDArray[Any]:
    """Return about so many finite pixels of the mask (n, channels), spread evenly."""
    sides = image.shape[:-1]
    step = max(1, int((np.prod(sides, dtype=float) / most) ** (1 / len(sides))))
    every = tuple(slice(step // 2 if side >= step else 0, None, step) for side in sides)
    rows = image[every].reshape(-1, image.shape[-1])
    inside = np.isfinite(rows).all(axis=1)
    return rows[inside if mask is None else inside & mask[every].ravel()]


@dataclasses.dataclass(frozen=True)
class Foreground(AbstractColourFirst):
    """How much brighter, or darker, a pixel is than the ground, and than what is around it.

    Brightness counts about as its logarithm does, for things differ by factors. The ground is the
    mean around a pixel of what is not brighter (of a bright ground, darker) than that mean.
    """

    ground: Ground = parameter(
        "dark", label="Ground",
        choice_labels={"dark": "dark", "bright": "bright"},
        help="Whether things are brighter than the ground (dark) or darker (bright).")  # fmt: skip
    name: ClassVar[str] = "foreground"
    title: ClassVar[str] = "things on a ground"
    _FAR, _N_MEANS, _OFFSET = 32.0, 2, 0.3
    """Width in pixels of the means of the ground, how often they are taken, and the brightness up
    to which it counts as it is."""
    _AROUND = (4.0, 8.0, 16.0)
    """Widths of the means of what is around a pixel."""
    _N_OTHERS = len(_AROUND)

    @property
    def receptive_field(self) -> int:
        return round(4 * self._FAR) * (1 + self._N_MEANS)

    @property
    def n_labels(self) -> int | None:
        return 4 if self.ground == "bright" else None  # what is stained has more than two tones

    def features(self, image: Image, axes: Axes = None, mask: Mask = None) -> Image:
        colour = np.array(perceived(np.log1p(image / self._OFFSET) / np.log1p(1 / self._OFFSET)))
        light, sign = lightness(colour).copy(), 1 if self.ground == "dark" else -1
        average = average_around(light, self._FAR, axes, mask)
        ground = average(light)
        for _ in range(self._N_MEANS):
            weight = (sign * (light - ground) <= 0) + np.float32(1e-3)
            ground = average(weight * light) / average(weight)
        values = colour[..., :1] if colour.shape[-1] == 3 else colour
        values -= ground[..., None]
        means = [average_around(light, own, axes, mask)(light) for own in self._AROUND]
        others = light[..., None] - np.stack(means, axis=-1)
        return np.concatenate([colour, others], axis=-1).astype(np.float32)

    def colours(self, points: NDArray[np.floating]) -> NDArray[np.floating] | None:
        own = points[:, : -self._N_OTHERS].astype(float)
        own[:, : 1 if own.shape[1] == 3 else None] += self.ground == "bright"
        found = (Lab() if own.shape[1] == 3 else Intensity()).colours(own)
        if found is None:
            return None
        return self._OFFSET * np.expm1(found * np.log1p(1 / self._OFFSET))
