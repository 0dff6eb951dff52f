"""What figure and page show of a comparison: pictures with titles and swatches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.comparison._comparison import Comparison
from napari_saf.comparison._table import Row
from napari_saf.comparison._variants import short_names
from napari_saf.errors import InvalidInput
from napari_saf.io import (
    color_labels,
    color_table,
    displayed_plane,
    map_labels,
    middle_plane,
    thinned,
)

__all__ = ["Colors", "Panel", "Swatch", "given_panels", "result_panels"]

Colors = Literal["mean", "palette"]
_Pixels = NDArray[np.uint8]
_MOST_SWATCHES = 48
_ELSEWHERE = 205.0
"""The grey of labels that are in other planes only."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Swatch:
    """The colour of a label; dead if the result does not have it and others do."""

    number: int
    color: _Pixels
    is_dead: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """A picture of shape (height, width, 3), words above it, swatches below it."""

    title: str
    note: str
    pixels: _Pixels
    swatches: tuple[Swatch, ...] = ()


def given_panels(
    labels: NDArray[Any],
    image: ArrayLike,
    truth: ArrayLike | None,
    channel_axis: int | None,
    title: str,
) -> list[Panel]:
    """Return panels of the image and the truth."""
    panels = [Panel(title or "image", "", _image_pixels(labels, image, channel_axis))]
    if truth is not None:
        regions = np.asarray(truth)
        label_map = map_labels(regions)
        pixels = color_labels(thinned(middle_plane(regions, regions.ndim)), label_map)
        count = label_map.n_columns
        panels.append(Panel("truth", f"{count} region{'s' * (count != 1)}", pixels))
    return panels


def result_panels(
    comparison: Comparison,
    rows: Sequence[Row],
    image: ArrayLike,
    *,
    paint: Colors = "mean",
    colors: Mapping[int, Sequence[float]] | None = None,
    channel_axis: int | None = None,
) -> list[Panel]:
    """Return a panel for each result.

    Parameters
    ----------
    comparison : Comparison
        With at least one result.
    rows : sequence of Row
        Of the same results.
    image : array
        With the shape of the labels, and channels or not; of a stack the middle is shown.
    paint : {"mean", "palette"}
        Labels in the mean colour that the image has there, or in the same clear colour in all
        results.
    colors : mapping of int to sequence of float, optional
        The palette: red, green, blue in [0, 1] by label.
    channel_axis : int, optional
        As in `save_figure`.

    Raises
    ------
    InvalidInput
        If the image has another shape, or `paint` is unknown.
    """
    if paint not in ("mean", "palette"):
        raise InvalidInput(f"paint: expected mean or palette, got {paint!r}")
    count = comparison.n_numbers
    palette = color_table(map_labels(np.arange(count + 1), colors=colors))[1:]
    pixels = _image_pixels(comparison.results[0].labels, image, channel_axis)
    planes = [thinned(middle_plane(r.labels, r.labels.ndim)) for r in comparison.results]
    tables = [palette] * len(planes)
    if paint == "mean":
        means = [_means(plane, pixels, count) for plane in planes]
        together = _mean_of(means)
        tables = [np.where(np.isnan(one), together, one).astype(np.uint8) for one in means]
    names = short_names([one.variant for one in comparison.results])
    return [
        Panel(
            names[k],
            _note(rows[k]),
            np.vstack([np.zeros((1, 3), np.uint8), tables[k]])[planes[k]],
            _swatches(tables[k], comparison.dead(k), count),
        )
        for k in range(len(planes))
    ]


def _swatches(table: _Pixels, dead: NDArray[np.int64], count: int) -> tuple[Swatch, ...]:
    shown = range(1, min(count, _MOST_SWATCHES) + 1)
    return tuple(Swatch(number, table[number - 1], number in dead) for number in shown)


def _note(row: Row) -> str:
    words = f"{row.n_labels} label{'s' * (row.n_labels != 1)}"
    return words if np.isnan(row.covering) else f"{words}, covering {row.covering:.2f}"


def _image_pixels(labels: NDArray[Any], image: ArrayLike, channel_axis: int | None) -> _Pixels:
    index = tuple(side // 2 for side in labels.shape[:-2])
    plane = displayed_plane(np.asarray(image), labels, channel_axis, index)
    pixels = plane if plane.dtype == np.uint8 else np.round(255 * np.clip(plane, 0, 1))
    colored = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=-1)
    return np.asarray(colored, np.uint8)


def _means(plane: NDArray[Any], pixels: _Pixels, count: int) -> NDArray[np.float64]:
    """Return the mean colour of each label, NaN where it has no pixel in the plane."""
    flat = plane.ravel()
    sizes = np.bincount(flat, minlength=count + 1)[1:]
    channels = pixels.reshape(-1, 3).T
    sums = [np.bincount(flat, channel, minlength=count + 1)[1:] for channel in channels]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.stack(sums, axis=1) / sizes[:, None])


def _mean_of(means: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the mean colour of each label over the results that have it in the plane shown."""
    stacked = np.stack(means)
    known = ~np.isnan(stacked)
    count = known.sum(axis=0)
    total = np.where(known, stacked, 0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), _ELSEWHERE)
