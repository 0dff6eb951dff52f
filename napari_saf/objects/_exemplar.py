"""Segmentation by example: all objects similar to the one in a box."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import label as label_regions
from skimage.filters import threshold_otsu

from napari_saf.arrays import as_list, as_whole
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last, ground_of
from napari_saf.methods import stroke_choices
from napari_saf.objects._split import NECK, Objects, split_objects
from napari_saf.problem import Problem

_AROUND = 0.5
"""Width of the background margin, relative to the sides of the box."""
_CORE = 0.5
"""Side of the central part that belongs to the object, relative to the box."""
_SMALLEST = 0.25
"""Minimum size, relative to the example."""


def segment_like(
    image: ArrayLike,
    box: Sequence[int],
    *,
    channel_axis: int | None = None,
    neck: float = NECK,
) -> Objects:
    """Segment all objects similar to the one in a box.

    Parameters
    ----------
    image : array
        2-D or 3-D, with or without channels, as for `Problem.from_image`.
    box : sequence of int
        Start along each spatial axis, then stop (exclusive): top, left, bottom, right in 2-D. The
        box should enclose one object tightly.
    channel_axis : int, optional
        As for `Problem.from_image`.
    neck : float
        As for `split_objects`.

    Returns
    -------
    Objects
        Objects of kind 1, including the one in the box.

    Raises
    ------
    InvalidInput
        If the box is narrower than two pixels, exceeds the image or covers it all, or its content
        does not differ from its surroundings; and as in `Problem.from_image`.

    Notes
    -----
    Pixels of the box and of a margin of half its sides are projected onto the line from the median
    colour of the margin to that of the centre of the box, and thresholded (Otsu,
    https://doi.org/10.1109/TSMC.1979.4310076). Pixels above the threshold that are connected to the
    centre become strokes on the object, those below it strokes on the background. The assignment
    flow, with the settings for many objects or for objects on a background, labels the image from
    these strokes, and `split_objects` splits the objects; those smaller than a quarter of the
    example are removed.

    Examples
    --------
    >>> image = np.zeros((64, 64))
    >>> for row, column in ((8, 8), (8, 40), (40, 20)):
    ...     image[row : row + 12, column : column + 12] = 1
    >>> len(saf.segment_like(image, (8, 8, 20, 20)).numbers)
    3
    """
    values, _ = channels_last(image, channel_axis)
    strokes = exemplar_strokes(values, _checked(box, values.shape[:-1]))
    choices = stroke_choices(values.shape[-1], values.ndim - 1, max(values.shape[:-1]))
    has_ground = strokes.ndim == 2 and ground_of([values], [None]) is not None
    choice = choices["ground" if has_ground else "many"]
    options = dataclasses.replace(choice.options, channel_axis=-1)
    shortest = min(side for side in values.shape[:-1] if side > 1)
    window = min(options.window, shortest - 1 + shortest % 2)
    options = dataclasses.replace(options, window=window)
    problem = Problem.from_image(values, seeds=strokes, **options.arguments())
    result = choice.method.run(problem)
    assert result.uncertainty is not None
    return split_objects(
        np.asarray(result.labels) == 1,
        image=values,
        channel_axis=-1,
        uncertainty=problem.graph.to_image(result.uncertainty),
        smallest=max(1, round(_SMALLEST * int((strokes == 1).sum()))),
        neck=neck,
    )


def exemplar_strokes(image: NDArray[np.generic], box: tuple[slice, ...]) -> NDArray[np.uint8]:
    """Return strokes: 1 on the object in a box, 2 on the background around it, else 0."""
    shape = image.shape[:-1]
    reach = [max(2, round(_AROUND * (side.stop - side.start))) for side in box]
    ends = zip(box, reach, shape, strict=True)
    outer = tuple(slice(max(0, s.start - r), min(n, s.stop + r)) for s, r, n in ends)
    inner = tuple(
        slice(s.start - o.start, s.stop - o.start) for s, o in zip(box, outer, strict=True)
    )
    crop = image[outer].astype(float)
    inside = np.zeros(crop.shape[:-1], bool)
    inside[inner] = True
    core = tuple(
        slice(s.start + round(n), max(s.stop - round(n), s.start + round(n) + 1))
        for s in inner
        for n in [(1 - _CORE) / 2 * (s.stop - s.start)]
    )
    middle = np.median(crop[core].reshape(-1, crop.shape[-1]), axis=0)
    change = middle - np.median(crop[~inside], axis=0) if not inside.all() else np.zeros(1)
    levels = crop @ change if change @ change > 0 else np.zeros(inside.shape)
    if levels.min() == levels.max():
        raise InvalidInput("box: expected an object that differs from its surroundings")
    beyond = levels > threshold_otsu(levels[np.isfinite(levels)])
    pieces, _ = label_regions(beyond & inside)
    thing = np.isin(pieces, np.setdiff1d(pieces[core], 0))
    if not thing.any() or beyond.all():
        raise InvalidInput("box: expected an object that differs from its surroundings")
    strokes = np.zeros(shape, np.uint8)
    strokes[outer] = np.where(thing, 1, np.where(beyond, 0, 2))
    return strokes


def _checked(box: Sequence[int], shape: tuple[int, ...]) -> tuple[slice, ...]:
    ends = [as_whole(end) for end in as_list(box, "box")]
    starts, stops = ends[: len(shape)], ends[len(shape) :]
    is_within = len(ends) == 2 * len(shape) and all(
        a is not None and b is not None and 0 <= a < b - 1 and b <= n
        for a, b, n in zip(starts, stops, shape, strict=True)
    )
    if not is_within or (starts == [0] * len(shape) and stops == list(shape)):
        raise InvalidInput(
            f"box: expected starts, then stops at least 2 pixels further, of a part of an image of "
            f"shape {shape}, got {tuple(box)}"
        )
    return tuple(map(slice, starts, stops))
