"""Edits of labels: merge, split, delete, refine; they run in a worker and know no widget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from scipy import ndimage

from napari_saf._gui.layers.alignment import image_region, labelled_axes
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.layers.placement import pixels_of
from napari_saf._gui.layers.reading import ImageJob, Index, ProblemReader, read_pixels
from napari_saf._gui.prototypes.history import PackedLabels
from napari_saf._gui.prototypes.restart import (
    Restart,
    count_pixels,
    free_number,
    mean_points,
    split_label,
)
from napari_saf._gui.prototypes.sheet import Sheet
from napari_saf.errors import InvalidInput
from napari_saf.methods import AbstractMethod, method_for_warm_start, method_with_prototypes
from napari_saf.problem import ImageOptions

__all__ = ["Canvas", "Edited", "delete", "merge", "refine", "split", "why_no_edit"]

Asked = Callable[[], bool]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Canvas:
    """What an edit works on, as seen at a click.

    Attributes
    ----------
    data : array-like
        Labels.
    index : tuple of int or slice
        What to read of them: no axes of length 1 before the plane.
    job : ImageJob or None
        What they are labels of; None where that is not known.
    method : AbstractMethod or None
        What goes on from edited labels.
    reason : str
        Why job and method are not known; empty where they are.
    """

    data: Any
    index: Index
    job: ImageJob | None = None
    method: AbstractMethod | None = None
    reason: str = ""

    @classmethod
    def of(cls, layer: Labels, image: Image | None) -> Canvas:
        """Return the canvas of a layer and the image under it."""
        kept = labelled_axes(layer)
        index = tuple(slice(None) if axis in kept else 0 for axis in range(layer.ndim))
        data = pixels_of(layer)
        try:
            recipe = recipe_of(layer)
        except InvalidInput as error:
            return cls(data, index, reason=str(error))
        part = None if image is None else image_region(layer, image, kept)
        if image is None or part is None:
            return cls(data, index, reason="choose the image that was labelled")
        if recipe.options is None:
            return cls(data, index, reason="the labels are of a graph, not of an image")
        options = dataclasses.replace(
            recipe.options, channel_axis=None if image.rgb else part[1], groups=None
        )
        job = ImageJob(pixels_of(image), part[0], options)
        return cls(data, index, job, method_for_warm_start(recipe.method))

    def read(self, cancelled: Asked) -> NDArray[Any]:
        """Return a copy of the labels."""
        return np.array(read_pixels(self.data, self.index, cancelled))

    def job_within(self, inside: NDArray[np.bool_]) -> ImageJob:
        """Return the job for the pixels inside."""
        if self.job is None:
            raise InvalidInput(self.reason)
        mask = None if inside.all() else inside
        return dataclasses.replace(self.job, mask=mask)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """What comes of an edit.

    Attributes
    ----------
    before : PackedLabels
        The labels as they were.
    labels : array of int
    where : array of bool
        Where they changed.
    sheet : Sheet
    job : ImageJob or None
        With `restart`: the run that goes on from here.
    restart : Restart or None
    method : AbstractMethod or None
        With `restart`: what goes on.
    chosen : tuple of int
        Labels to look at.
    """

    before: PackedLabels
    labels: NDArray[Any]
    where: NDArray[np.bool_]
    sheet: Sheet
    job: ImageJob | None = None
    restart: Restart | None = None
    method: AbstractMethod | None = None
    chosen: tuple[int, ...] = ()


def merge(canvas: Canvas, sheet: Sheet, numbers: Collection[int], cancelled: Asked) -> Edited:
    """Give the pixels of some labels to the largest of them."""
    labels = canvas.read(cancelled)
    sizes = count_pixels(labels)
    into = max(sorted(numbers), key=lambda number: sizes.get(number, 0))
    where = np.isin(labels, sorted({*numbers} - {into}))
    new = np.where(where, labels.dtype.type(into), labels)
    before, after = PackedLabels.of(labels), sheet.merged(numbers, into)
    return Edited(before, new, where, after, chosen=(into,))


def delete(
    canvas: Canvas,
    sheet: Sheet,
    numbers: Collection[int],
    reader: ProblemReader,
    cancelled: Asked,
) -> Edited:
    """Take labels away; the flow gives their pixels to the others, where it can.

    The flow sees these pixels and those around them, as far as the window reaches, and the
    prototypes of the labels that are left.
    """
    labels = canvas.read(cancelled)
    before, after = PackedLabels.of(labels), sheet.deleted(numbers)
    where = np.isin(labels, sorted(numbers))
    left = sorted({*count_pixels(labels)} - {*numbers})
    only = left[0] if len(left) == 1 and canvas.job is not None else 0
    new = np.where(where, labels.dtype.type(only), labels)
    if canvas.job is None or len(left) < 2 or not where.any():
        return Edited(before, new, where, after)
    unknown = sorted({*left} - {*after.points})
    if unknown:
        problem = reader.read(canvas.job_within(np.isin(labels, unknown)), cancelled)
        after = after.with_points({**after.points, **mean_points(problem, labels, unknown)})
    own = [after.points[number] for number in left]
    job = canvas.job_within((labels > 0) & _widened(where, canvas.job.options))
    numbers_of = np.repeat(left, [len(rows) for rows in own])
    restart = Restart(numbers_of, new, where, holds=False)
    method = method_with_prototypes(np.concatenate(own), canvas.method)
    return Edited(before, new, where, after, job, restart, method)


def _widened(where: NDArray[np.bool_], options: ImageOptions) -> NDArray[np.bool_]:
    """Return where a window around a pixel reaches."""
    window = np.broadcast_to(options.window, where.ndim)
    ratio = 1.0
    if options.max_side is not None:
        ratio = max(1.0, max(where.shape) / options.max_side)
    sides = [2 * math.ceil(ratio * (side // 2)) + 1 for side in window]
    return np.asarray(ndimage.maximum_filter(where, size=sides))


def split(
    canvas: Canvas, sheet: Sheet, number: int, reader: ProblemReader, cancelled: Asked
) -> Edited:
    """Divide a label in two by its features; the flow then makes the halves smooth.

    Raises
    ------
    InvalidInput
        If its pixels are alike, or no number is left for a new label.
    """
    labels = canvas.read(cancelled)
    new = free_number({*count_pixels(labels), *sheet.names}, labels.dtype)
    inside = labels == number
    job = canvas.job_within(inside)
    halves, points = split_label(reader.read(job, cancelled), labels, number, new)
    restart = Restart(np.array(sorted([number, new])), halves, inside)
    where = halves != labels
    return Edited(
        PackedLabels.of(labels),
        halves,
        where,
        sheet.split(number, new, points),
        job,
        restart,
        canvas.method,
        (number, new),
    )


def refine(canvas: Canvas, sheet: Sheet, cancelled: Asked) -> Edited:
    """Let the flow go on from the labels as they are; locked ones stay.

    Raises
    ------
    InvalidInput
        If there are fewer than two labels, or all are locked.
    """
    labels = canvas.read(cancelled)
    numbers = sorted(count_pixels(labels))
    if len(numbers) < 2:
        raise InvalidInput("the flow needs two labels or more to go on from")
    free = (labels > 0) & ~np.isin(labels, sorted(sheet.locked))
    if not free.any():
        raise InvalidInput("all labels are locked")
    restart = Restart(np.array(numbers), labels, free)
    where = np.zeros(labels.shape, dtype=bool)
    job = canvas.job_within(labels > 0)
    return Edited(
        PackedLabels.of(labels), labels, where, sheet.noted("refined"), job, restart, canvas.method
    )


def why_no_edit(layer: Labels) -> str:
    """Return why the pixels of a layer cannot be changed; empty where they can."""
    if layer.multiscale:
        return "labels at several resolutions cannot be edited here"
    data = layer.data
    if not isinstance(data, np.ndarray) or not data.flags.writeable:
        return "these labels lie in a file: duplicate the layer into memory to edit them"
    if data.dtype.kind not in "iu":
        return f"expected whole numbers, got {data.dtype}"
    return ""
