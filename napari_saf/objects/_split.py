"""Splitting of touching objects by a watershed of the distance transform with merged basins.

`find_parts` computes the watershed once; `Parts.join` merges its basins by neck depth and size in
milliseconds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from napari_saf.arrays import as_array, as_labels, as_list, as_whole, check_kind, own_floats
from napari_saf.errors import InvalidInput
from napari_saf.io import Scale, Steps, count_labels, image_channels
from napari_saf.objects._basins import MARGIN, edge_weights, find_basins, first_places
from napari_saf.result import LabelMap

SMALLEST = 20
NECK = 0.03
_LEAST_GROUND = 0.25
"""Minimum share of the image in the label of the ground."""
_WIDE = 9.7
"""Distance from the border, in pixels, beyond which the required neck depth is constant."""
_ALIKE, _DEEPEST, _FEWEST = 1.8, 6.0, 5
"""Scaling of the required neck depth with size, in units of the typical size.

Below `_ALIKE`, the depth rises with the inverse square of the size, at most by a factor `_DEEPEST`,
for kinds of `_FEWEST` objects or more. Tuned on nuclei: scores for 1.5 to 2.2, and for a factor of
10, differ by .004.
"""
_SHARPNESS = 4
"""Exponent of the certainty that weights the distance."""
_LEAST = 1e-6


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """Objects of a label image, each of one kind; made by `split_objects`.

    Attributes
    ----------
    labels : array of uint32
        Number of the object at each pixel, 0 for none.
    kinds : array of int of shape (largest number + 1,)
        Kind of each object by its number; 0 for unused numbers.
    names : mapping of int to str
        Name of each kind.
    notes : tuple of str
        Notes for the user, such as that outlines in a file overlap.

    Examples
    --------
    >>> labels = np.kron([[1, 0, 1], [0, 2, 0]], np.ones((8, 8), int))
    >>> objects = saf.split_objects(labels)
    >>> objects.numbers.tolist(), objects.kinds.tolist(), int(objects.labels.max())
    ([1, 2, 3], [0, 1, 1, 2], 3)
    """

    labels: NDArray[np.uint32]
    kinds: NDArray[np.int64]
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        labels, kinds = as_labels(self.labels, "labels"), as_labels(self.kinds, "kinds")
        if kinds.ndim != 1:
            raise InvalidInput(
                f"kinds: expected one entry per object number, got shape {kinds.shape}"
            )
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "kinds", kinds)
        if self.labels.size and int(self.labels.max()) >= len(self.kinds):
            raise InvalidInput(
                f"kinds: expected an entry for object {self.labels.max()}, got "
                f"{len(self.kinds)} entries"
            )

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the objects, ascending."""
        return np.flatnonzero(self.kinds)

    @property
    def kind_image(self) -> NDArray[np.int64]:
        """Kind at each pixel, 0 outside objects."""
        return self.kinds[self.labels]


def split_objects(
    labels: ArrayLike,
    *,
    image: ArrayLike | None = None,
    channel_axis: int | None = None,
    uncertainty: ArrayLike | None = None,
    spacing: Scale | None = None,
    smallest: int = SMALLEST,
    neck: float = NECK,
    axis: int | None = None,
    kinds: Sequence[int] | None = None,
) -> Objects:
    """Find the objects of each kind in a label image, and split those that touch.

    Parameters
    ----------
    labels : array of int
        Label image in 2-D or 3-D, 0 for no label. Each label is a kind.
    image : array, optional
        The labelled image, with or without channels. Objects are also split at its edges.
    channel_axis : int, optional
        Axis of the channels. None: the last axis if the image has one more than the labels.
    uncertainty : array, optional
        Uncertainty of each pixel, 0 to 1, in the shape of the labels, such as
        ``problem.graph.to_image(result.uncertainty)``. Objects are also split where it is high.
    spacing : sequence of float or array of shape (n_world, n_axes), optional
        Pixel size along each axis; for sheared axes, a matrix whose columns are the world vectors
        of one-pixel steps. None: the same size along all axes.
    smallest : int
        Minimum size in pixels. Smaller objects are merged into an object that they touch, or
        removed.
    neck : float
        Relative neck depth, 0 to 1: two parts are separate objects if the neck between them is
        narrower than the narrower part by at least this share of its width (in volumes, of its
        cross-section), or of about 20 pixels where it is wider; by more if both together are not
        larger than most objects of the kind. 0 splits at every neck, 1 at none.
    axis : int, optional
        Split slice by slice along this axis, with one typical object size for all slices. None: the
        image is one plane or volume.
    kinds : sequence of int, optional
        Labels to split; others are left out. None: all.

    Returns
    -------
    Objects

    Raises
    ------
    InvalidInput
        If labels are not non-negative integers, a shape differs or a number is out of range.

    Notes
    -----
    The distance to the border of the kind, without holes of fewer than 20 pixels, times the fourth
    power of 1 - uncertainty and exp(-(g / 0.4)^2) has a maximum in each part; a watershed assigns
    pixels to maxima. g is the gradient of the image, blurred by 1.5 pixels, projected onto the line
    from the median colour within 4 pixels around the kind to that inside, in units of the distance
    between both and clipped to -0.5 to 3 of them. Two adjacent basins are merged, highest saddle
    first, if the lower of both maxima exceeds the saddle by less than `neck` times itself, or by
    less than 9.7 `neck` / (1 - `neck`) pixels if that is less. For kinds of five objects or more,
    merging is repeated with `neck` / (1 - `neck`) multiplied by (1.8 m / n)^2 or 6, whichever is
    less, where n is the number of pixels of both basins and m the size above which objects hold
    half of the pixels of the kind. In volumes `neck` is replaced by 1 - (1 - `neck`)^(1/2), as a
    cross-section scales with the square of the distance.

    Examples
    --------
    >>> rows, columns = np.ogrid[:40, :60]
    >>> discs = [(rows - 20) ** 2 + (columns - x) ** 2 < 150 for x in (20, 40)]
    >>> saf.split_objects(np.logical_or(*discs)).numbers
    array([1, 2])
    """
    parts, _ = find_parts(
        labels,
        image=image,
        channel_axis=channel_axis,
        uncertainty=uncertainty,
        spacing=spacing,
        axis=axis,
        kinds=kinds,
    )
    return parts.join(smallest=smallest, neck=neck)


def ground_label(numbers: ArrayLike, sizes: ArrayLike, n_pixels: int) -> int | None:
    """Return the label of the ground, which is no kind of objects; None if there is none.

    It is the largest of several labels, if it covers a quarter of the image or more, and more than
    is unlabelled.

    Parameters
    ----------
    numbers, sizes : array of int of shape (n_labels,)
        Labels above 0, and the pixel count of each; see `count_labels`.
    n_pixels : int
        Number of pixels of the image, with those of label 0.
    """
    counts, n_unlabelled = np.asarray(sizes), n_pixels - np.sum(sizes)
    largest = counts.max(initial=0)
    if len(counts) < 2 or largest < _LEAST_GROUND * n_pixels or largest <= n_unlabelled:
        return None
    return int(np.asarray(numbers)[counts.argmax()])


def check_objects(objects: object) -> None:
    check_kind(
        objects, Objects, "objects", "Objects, as returned by saf.split_objects or saf.load_objects"
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Watershed basins of every kind, and their adjacency; made by `find_parts`.

    Indexed by part number are `kinds`, `peaks` (maximum height), `tops` (flat index of the first
    maximum) and `sizes` in pixels. `pairs` (n, 2) are adjacent parts, and `saddles` (n,) the
    maximum heights between them, descending. `n_axes` is 3 in a volume.
    """

    labels: NDArray[np.int32]
    kinds: NDArray[np.int64]
    peaks: NDArray[np.float32]
    tops: NDArray[np.int64]
    sizes: NDArray[np.int64]
    pairs: NDArray[np.int64]
    saddles: NDArray[np.float32]
    n_axes: int

    def join(self, *, smallest: int = SMALLEST, neck: float = NECK) -> Objects:
        numbers, kinds = self.number(smallest, neck)
        return Objects(numbers[self.labels], kinds)

    def number(self, smallest: int, neck: float) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the object number of each part, 0 for none, and the kind of each object."""
        if (as_whole(smallest) or 0) < 1:
            raise InvalidInput(f"smallest: expected a whole number of 1 or more, got {smallest!r}")
        if not 0 <= neck <= 1:
            raise InvalidInput(f"neck: expected a number from 0 to 1, got {neck!r}")
        if self.n_axes > 2:  # distance scales with the root of the cross-section
            neck = 1 - (1 - neck) ** 0.5
        typical = np.zeros(len(self.kinds))
        roots, sizes = self._join(smallest, neck, typical)
        is_whole = (roots == np.arange(len(roots))) & (sizes >= smallest)
        for kind in np.unique(self.kinds[is_whole]):
            ordered = np.sort(sizes[is_whole & (self.kinds == kind)])
            if len(ordered) >= _FEWEST:  # larger objects hold half of the pixels
                half = np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)
                typical[self.kinds == kind] = ordered[half]
        if typical.any():
            roots, sizes = self._join(smallest, neck, typical)
        is_object = sizes[roots] >= smallest
        numbers = np.cumsum((roots == np.arange(len(roots))) & is_object, dtype=np.uint32)
        numbers = np.where(is_object, numbers[roots], np.uint32(0))
        kinds = np.zeros(int(numbers.max(initial=0)) + 1, np.int64)
        kinds[numbers[is_object]] = self.kinds[is_object]
        return numbers, kinds

    def _join(
        self, smallest: int, neck: float, typical: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the root of each part, and sizes by root; `typical` sizes are 0 where unknown."""
        owners = list(range(len(self.kinds)))
        sizes, peaks = self.sizes.tolist(), self.peaks.tolist()
        alike = (_ALIKE * typical[self.pairs[:, 0]]).tolist()
        base_odds = neck / (1 - neck) if neck < 1 else math.inf

        def find(part: int) -> int:
            while owners[part] != part:
                owners[part] = part = owners[owners[part]]
            return part

        # Plain numbers, since many small lists would slow down garbage collection.
        ends = (column.tolist() for column in self.pairs.T)
        for first, second, saddle, like in zip(*ends, self.saddles.tolist(), alike, strict=True):
            a, b = find(first), find(second)
            a, b = min(a, b), max(a, b)
            peak, size = min(peaks[a], peaks[b]), sizes[a] + sizes[b]
            odds = base_odds * min((like / size) ** 2, _DEEPEST) if like else base_odds
            is_wide = saddle > peak - min(peak * (1 - 1 / (1 + odds)), _WIDE * odds)
            if a != b and (is_wide or min(sizes[a], sizes[b]) < smallest):
                owners[b] = a
                sizes[a] = size
                peaks[a] = max(peaks[a], peaks[b])
        return np.array([find(part) for part in range(len(owners))]), np.array(sizes)


def find_parts(
    labels: ArrayLike,
    *,
    image: ArrayLike | None = None,
    channel_axis: int | None = None,
    uncertainty: ArrayLike | None = None,
    spacing: Scale | None = None,
    axis: int | None = None,
    kinds: Sequence[int] | None = None,
) -> tuple[Parts, NDArray[np.float32]]:
    """Return the basins that `split_objects` merges, and the heights of the watershed."""
    array = as_labels(labels, "labels")
    array = array.astype(np.uint8) if array.dtype.kind == "b" else array
    certainty = _certainty(uncertainty, array.shape)
    if axis is not None and (as_whole(axis) is None or not -array.ndim <= axis < array.ndim):
        raise InvalidInput(f"axis: expected one of {array.ndim} axes, got {axis!r}")
    if array.ndim - (axis is not None) not in (2, 3) or not array.size:
        raise InvalidInput(f"labels: expected planes or volumes, got shape {array.shape}")
    sides = _sides(spacing, array.ndim, axis)
    selected = None if kinds is None else as_labels(as_list(kinds, "kinds"), "kinds")
    parts, heights = np.zeros(array.shape, np.int32), np.zeros(array.shape, np.float32)
    colours = (
        None if image is None else image_channels(as_array(image, "image"), array, channel_axis)
    )
    blocks: list[tuple[Any, ...]] = [(array, colours, certainty, parts, heights)]
    if axis is not None:
        slices = [None if a is None else np.moveaxis(a, axis % array.ndim, 0) for a in blocks[0]]
        n_slices = array.shape[axis]
        blocks = [tuple(None if a is None else a[k] for a in slices) for k in range(n_slices)]
    tables: list[tuple[NDArray[Any], ...]] = [(np.zeros(1, np.int64), np.zeros(1, np.float32))]
    edges: list[tuple[NDArray[Any], ...]] = [(np.zeros((0, 2), np.int64), np.zeros(0, np.float32))]
    count = 0
    for block_labels, block_image, block_certainty, out, block_heights in blocks:
        for label, box, mask in _masks(block_labels, selected):
            weights = np.ones(()) if block_certainty is None else block_certainty[box]
            if block_image is not None:
                weights = weights * edge_weights(block_image[box], mask, sides)
            basins, values, own_peaks, own_pairs, own_saddles = find_basins(mask, weights, sides)
            out[box] += np.where(mask, basins + np.int32(count), 0)
            block_heights[box] += values
            tables.append((np.full(len(own_peaks), label), own_peaks))
            edges.append((own_pairs + count, own_saddles))
            count += len(own_peaks)
    owners, peaks = (np.concatenate(column) for column in zip(*tables, strict=True))
    pairs, saddles = (np.concatenate(column) for column in zip(*edges, strict=True))
    order = np.argsort(-saddles, kind="stable")
    sizes = np.bincount(parts.ravel(), minlength=count + 1)
    sizes[0] = 0
    tops, n_axes = first_places(parts, heights, peaks), count_axes(array.shape, axis)
    return Parts(parts, owners, peaks, tops, sizes, pairs[order], saddles[order], n_axes), heights


def count_axes(shape: Sequence[int], axis: int | None) -> int:
    """Return the number of axes longer than 1, without the axis of slices."""
    return sum(side > 1 for side in shape) - (axis is not None and shape[axis] > 1)


def _certainty(
    uncertainty: ArrayLike | None, shape: tuple[int, ...]
) -> NDArray[np.floating] | None:
    if uncertainty is None:
        return None
    values = own_floats(uncertainty, "uncertainty")
    if values.shape != shape:
        raise InvalidInput(f"uncertainty: expected shape {shape}, got {values.shape}")
    if not np.isfinite(values).all():
        raise InvalidInput("uncertainty: expected numbers from 0 to 1, some are not finite")
    return np.asarray(np.maximum(1 - values.clip(0, 1), _LEAST) ** _SHARPNESS)


def _sides(spacing: Scale | None, n_axes: int, without: int | None) -> NDArray[np.float64]:
    """Return relative pixel sizes (smallest: 1); a matrix of axis vectors if axes are sheared."""
    columns, sizes = None, spacing
    if isinstance(sizes, np.ndarray) and sizes.ndim == 2:
        columns = own_floats(sizes, "spacing")
        sizes = np.linalg.norm(columns, axis=0)
    sides = np.ones(n_axes) if sizes is None else as_array(sizes, "spacing")
    if sides.shape != (n_axes,) or sides.dtype.kind not in "iuf":
        raise InvalidInput(f"spacing: expected {n_axes} sizes, one for each axis, got {spacing!r}")
    if not (np.isfinite(sides) & (sides > 0)).all():
        raise InvalidInput(f"spacing: expected sizes above 0, got {spacing!r}")
    axes = [axis for axis in range(n_axes) if without is None or axis != without % n_axes]
    upright = None if columns is None else Steps(columns[:, axes]).upright
    return np.asarray((sides[axes] if upright is None else upright) / sides[axes].min())


def _masks(
    labels: NDArray[np.integer], selected: NDArray[np.integer] | None
) -> Iterator[tuple[int, tuple[slice, ...], NDArray[np.bool_]]]:
    """Yield each requested label, its bounding box with a margin, and its mask there."""
    present = count_labels(labels)[0]
    present = present if selected is None else np.intersect1d(present, selected)
    ranks = LabelMap(present).unpaint(labels)
    boxes = ndimage.find_objects(ranks)
    for rank, (label, box) in enumerate(zip(present.tolist(), boxes, strict=True), start=1):
        box = tuple(slice(max(side.start - MARGIN, 0), side.stop + MARGIN) for side in box)
        yield label, box, ranks[box] == rank
