"""Measures of all regions of a label image at once, by the names and formulas of scikit-image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STRAIGHT, _DIAGONAL = (5, 7, 15, 17, 25, 27), (21, 33)
_MIXED = (13, 23)
"""How the neighbours of a pixel of the outline lie, by their sum: 2 for each across, 10 for each
at a corner; see `skimage.measure.perimeter`."""


def measure_regions(
    regions: NDArray[np.integer[Any]], image: NDArray[Any] | None, spacing: Sequence[float]
) -> dict[str, NDArray[Any]]:
    """Return what regions 1, 2, ... of a plane or volume measure, a value for each that is there.

    As `skimage.measure.regionprops_table` does, in one pass over the pixels instead of one for
    each region; the image has channels last.
    """
    places = np.nonzero(regions)
    own = regions[places]
    counts = np.bincount(own)
    present = np.flatnonzero(counts)
    own = (np.cumsum(counts > 0) - 1)[own]
    pixels = counts[present]
    found: dict[str, NDArray[Any]] = {"area": pixels * math.prod(spacing)}
    found |= _moments(own, places, pixels, spacing)
    for axis, place in enumerate(places):
        for name, fold in ((axis, np.minimum), (axis + regions.ndim, np.maximum)):
            found[f"bbox-{name}"] = _fold(fold, own, place, len(pixels))
        found[f"bbox-{axis + regions.ndim}"] += 1
    ends = [found[f"bbox-{k + regions.ndim}"] - found[f"bbox-{k}"] for k in range(regions.ndim)]
    found["extent"] = pixels / np.prod(ends, axis=0)
    if regions.ndim == 2:
        found["perimeter"] = _perimeters(regions, own, places, len(pixels)) * spacing[0]
    for k, channel in enumerate(() if image is None else np.moveaxis(image, -1, 0)):
        values = channel[places]
        found[f"intensity_mean-{k}"] = np.bincount(own, values) / pixels
        found[f"intensity_min-{k}"] = _fold(np.minimum, own, values, len(pixels))
        found[f"intensity_max-{k}"] = _fold(np.maximum, own, values, len(pixels))
    return found


def _fold(
    call: np.ufunc, own: NDArray[np.integer], values: NDArray[Any], count: int
) -> NDArray[Any]:
    """Return the least or greatest value of each region."""
    result = np.empty(count, values.dtype)
    result[own] = values  # one of its own values to begin with
    call.at(result, own, values)
    return result


def _moments(
    own: NDArray[np.integer],
    places: tuple[NDArray[np.integer], ...],
    pixels: NDArray[np.integer],
    spacing: Sequence[float],
) -> dict[str, NDArray[Any]]:
    """Return centroids, and lengths and angle of the ellipses of the same second moments."""
    n_axes = len(places)
    offsets: list[NDArray[np.float64]] = []
    found: dict[str, NDArray[Any]] = {}
    for axis, (place, side) in enumerate(zip(places, spacing, strict=True)):
        centre = np.bincount(own, place) / pixels
        found[f"centroid-{axis}"] = centre * side
        offsets.append((place - centre[own]) * side)
    spread = np.empty((len(pixels), n_axes, n_axes))
    for a, b in itertools.combinations_with_replacement(range(n_axes), 2):
        spread[:, a, b] = np.bincount(own, offsets[a] * offsets[b]) / pixels
        spread[:, b, a] = spread[:, a, b]
    values = np.linalg.eigvalsh(spread)[:, ::-1].clip(min=0)
    size = pixels * math.prod(spacing)
    if n_axes == 2:
        major, minor = 4 * np.sqrt(values.T)
        with np.errstate(invalid="ignore"):
            ratio = np.where(values[:, 0] > 0, values[:, 1] / values[:, 0], 1.0)
        found["eccentricity"] = np.sqrt(1 - ratio)
        mixed, steepness = spread[:, 0, 1], spread[:, 0, 0] - spread[:, 1, 1]
        round_ones = np.where(mixed > 0, np.pi / 4, -np.pi / 4)
        angle = 0.5 * np.arctan2(2 * mixed, steepness)
        found["orientation"] = np.where(steepness == 0, round_ones, angle)
        diameter = 2 * np.sqrt(size / np.pi)
    else:
        # scikit-image takes the eigenvalues of the inertia tensor, which are sums of two of these.
        major, minor = np.sqrt(20 * values[:, 0]), np.sqrt(20 * values[:, 2])
        diameter = 2 * (3 * size / (4 * np.pi)) ** (1 / 3)
    found |= {"axis_major_length": major, "axis_minor_length": minor}
    return found | {"equivalent_diameter_area": diameter}


def _perimeters(
    regions: NDArray[np.integer[Any]],
    own: NDArray[np.integer],
    places: tuple[NDArray[np.integer], ...],
    count: int,
) -> NDArray[np.float64]:
    """Return the lengths of the outlines in pixels."""
    framed = np.pad(regions, 1)

    def around(
        picture: NDArray[Any], where: Sequence[NDArray[np.integer]], is_corner: bool
    ) -> list[NDArray[Any]]:
        steps = itertools.product((-1, 0, 1), repeat=2)
        steps_of_kind = [step for step in steps if sum(map(abs, step)) == 1 + is_corner]
        return [picture[where[0] + 1 + dy, where[1] + 1 + dx] for dy, dx in steps_of_kind]

    inside = regions[places]
    is_edge = np.any([other != inside for other in around(framed, places, False)], axis=0)
    edge = [place[is_edge] for place in places]
    outline = np.zeros_like(framed)
    outline[edge[0] + 1, edge[1] + 1] = inside[is_edge]
    same: Callable[[bool], Any] = lambda is_corner: np.sum(  # noqa: E731
        [other == inside[is_edge] for other in around(outline, edge, is_corner)], axis=0
    )
    codes = 1 + 2 * same(False) + 10 * same(True)
    lengths = np.zeros(50)
    lengths[[*_STRAIGHT]], lengths[[*_DIAGONAL]] = 1, math.sqrt(2)
    lengths[[*_MIXED]] = (1 + math.sqrt(2)) / 2
    return np.asarray(np.bincount(own[is_edge], lengths[codes], minlength=count), float)
