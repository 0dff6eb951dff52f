"""Measure vectors of objects: shape, intensity, texture, outline, neighbours."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from scipy.spatial import KDTree

from napari_saf.arrays import as_array
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.features import FeatureExtractor, extractor_of
from napari_saf.io import Axes, Region, Scale, image_channels, label_axes, region_table
from napari_saf.objects._split import Objects, check_objects

_RING = 4
"""Width in pixels of the ring around an object whose intensities are compared with its inside."""
_CELLS, _ORIENTATIONS = 4, 8
"""Cells per side of the bounding square, and orientation bins, of gradient histograms."""
_NEAREST = (1, 3)
"""Ranks of the neighbours whose distances are measured."""
_NEAR = 3.0
"""Radius within which neighbours are counted, in mean object diameters."""
_HALO = 12
"""Margin in pixels around an object on which its measures depend, through rings of neighbours."""
_TILE = {2: 1024, 3: 128}
"""Side of tiles, by number of axes, for images larger than four tiles."""
MOST_PIXELS = 2**23
"""Maximum size of a tile, and of an object's bounding box in tiles on disk."""
_TINY = 1e-6

Columns = dict[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ObjectMeasures:
    """Measure vectors of objects, one row per object; made by `measure_objects`.

    Attributes
    ----------
    numbers : array of int of shape (n_objects,)
        Number of each object, ascending.
    values : array of float32 of shape (n_objects, n_measures)
        Finite numbers; lengths, areas and distances as logarithms.
    names : tuple of str
        Name of each measure.
    groups : tuple of str
        Group of each measure: shape, intensity, texture, outline, neighbours, features.
    features : FeatureExtractor or None
        Fitted extractor of the pixel features averaged in the group "features".

    Examples
    --------
    >>> objects = saf.split_objects(np.kron([[1, 0, 1]], np.ones((8, 8), int)))
    >>> measures = saf.measure_objects(objects)
    >>> measures.numbers.tolist(), sorted(set(measures.groups))
    ([1, 2], ['neighbours', 'outline', 'shape'])
    """

    numbers: NDArray[np.int64]
    values: NDArray[np.float32]
    names: tuple[str, ...]
    groups: tuple[str, ...]
    features: FeatureExtractor | None = None


def measure_objects(
    objects: Objects,
    image: ArrayLike | None = None,
    *,
    channel_axis: int | None = None,
    scale: Scale | None = None,
    axes: str | None = None,
    features: FeatureExtractor | str | Mapping[str, Any] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ObjectMeasures:
    """Compute measure vectors of objects, for classification with `ObjectClasses`.

    Parameters
    ----------
    objects : Objects
        Objects in 2-D or 3-D, or of a series of frames.
    image : array, optional
        The image, for intensity, texture and gradients. None: shape, outline and neighbours only.
    channel_axis : int, optional
        Axis of the channels. None: the last axis if the image has one more than the objects.
    scale : sequence of float or array of shape (n_world, n_axes), optional
        Pixel size along each axis; for sheared axes, a matrix whose columns are the world vectors
        of one-pixel steps, of which the lengths are used. None: 1.
    axes : str, optional
        One letter per axis, such as ``"tyx"``; frames are measured one by one.
    features : FeatureExtractor, str or dict, optional
        Pixel features, such as `DeepFeatures`, whose means over each object are added.
    cancelled : callable
        Called before each tile; `Cancelled` is raised once it returns True.

    Returns
    -------
    ObjectMeasures

    Raises
    ------
    InvalidInput
        If shapes disagree, or there is no object.

    Notes
    -----
    Large images are measured in tiles with a margin of 12 pixels or more around each object; see
    `LargeObjects.measure` for images on disk.

    Shape: logarithms of size and axes, axis ratio, roundness, relative depth (the distance
    transform over the radius). Intensity, per channel: mean, standard deviation, first and last
    decile inside; mean in a 4-pixel ring of background, and contrast to it; contrast of core and
    rim. Texture: gradient and curvature at scales of 1 and 2 pixels. Outline, in planes: histograms
    of oriented gradients in 4 x 4 cells of the bounding square (Dalal and Triggs,
    https://doi.org/10.1109/CVPR.2005.177), as square roots of shares, of the image, or of the mask
    without an image, and the share of pixels per cell. Neighbours: distances to the nearest and
    third nearest centre, objects within 3 diameters, share of the outline that touches others, size
    relative to the mean of the three nearest.

    Examples
    --------
    >>> rows, columns = np.ogrid[:20, :60]
    >>> image = sum(((rows - 10) ** 2 + (columns - x) ** 2 < r**2) for x, r in ((15, 8), (45, 4)))
    >>> measures = saf.measure_objects(saf.split_objects(image), image)
    >>> sizes = measures.values[:, measures.names.index("log size")]
    >>> bool(sizes[0] > sizes[1])
    True
    """
    check_objects(objects)
    if not len(objects.numbers):
        raise InvalidInput("objects: expected one or more, got none")
    labels, channels = objects.labels, None
    if image is not None:
        channels = image_channels(as_array(image, "image"), labels, channel_axis)
    placed = label_axes(labels.ndim, axes, scale, None)
    is_series = (axes or "").startswith("t")
    work = VectorWork.of(placed.of_frame if is_series else placed, features, image is not None)
    frames = []
    for k, frame in enumerate(labels if is_series else labels[None]):
        pixels = channels[k] if channels is not None and is_series else channels
        parts = []
        for part in _parts_in_memory(frame, work):
            raise_if(cancelled)
            crop = None if pixels is None else pixels[part.region]
            work = work.fitted(crop)
            parts.append(work.measure(part, frame[part.region], crop))
        if parts:
            frames.append(work.join(parts, frame.shape))
    return work.vectors(frames)


class Part(NamedTuple):
    """Objects measured together, and the image region read for them."""

    region: Region
    numbers: NDArray[np.int64]


class PartMeasures(NamedTuple):
    """Centres, sizes and measures (by group and name) of objects."""

    numbers: NDArray[np.int64]
    centres: NDArray[np.float64]
    sizes: NDArray[np.float64]
    columns: dict[tuple[str, str], NDArray[Any]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class VectorWork:
    """Measurement of objects part by part; `sides` are the pixel sizes."""

    sides: NDArray[np.float64]
    extractor: FeatureExtractor | None

    @classmethod
    def of(
        cls,
        axes: Axes,
        features: FeatureExtractor | str | Mapping[str, Any] | None,
        has_image: bool,
    ) -> VectorWork:
        extractor = None
        if features is not None:
            extractor = extractor_of(dict(features) if isinstance(features, Mapping) else features)
            if extractor is None or not has_image:
                raise InvalidInput("features: expected a feature extractor, together with an image")
        return cls(np.array([axes.scale.get(name, 1.0) for name in axes.names]), extractor)

    @property
    def needs_whole(self) -> bool:
        """Whether pixel features depend on the whole image."""
        return self.extractor is not None and self.extractor.normalisation == "image"

    def fitted(self, channels: NDArray[Any] | None) -> VectorWork:
        """Return the work with its extractor fitted to an image or a part, unless it is fitted."""
        if self.extractor is None or channels is None:
            return self
        looks = [(_finite(channels), tuple(range(channels.ndim - 1)), None)]
        return dataclasses.replace(self, extractor=self.extractor.fitted(looks))

    def parts(
        self, shape: Sequence[int], numbers: NDArray[np.int64], boxes: NDArray[np.int64]
    ) -> list[Part]:
        """Group objects into parts of an image by their bounding boxes (n, n_axes, 2).

        A part exceeds its tile by the objects that cross the border of the tile.
        """
        reach, stride = _HALO, 1
        if self.extractor is not None:
            reach, stride = max(reach, self.extractor.receptive_field), self.extractor.stride
        parts = []

        def add(rows: NDArray[np.int64]) -> None:
            low, high = boxes[rows, :, 0].min(axis=0), boxes[rows, :, 1].max(axis=0)
            if len(rows) > 1 and math.prod((high - low).tolist()) > MOST_PIXELS:
                for half in np.array_split(rows, 2):
                    add(half)
                return
            low = np.maximum(low - reach, 0) // stride * stride
            high = np.minimum(high + reach, shape)
            region = tuple(slice(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True))
            parts.append(Part(region, numbers[rows]))

        tiles = boxes.mean(axis=2) // _TILE[len(shape)]
        tile_of = np.unique(tiles, axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(tile_of, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(tile_of[order])) + 1):
            add(rows)
        return parts

    def measure(
        self, part: Part, labels: NDArray[Any], channels: NDArray[Any] | None
    ) -> PartMeasures:
        """Measure the objects of a part from its pixels, except for their neighbours."""
        present = np.unique(labels)
        present = present[present > 0].astype(np.int64)
        pixels = None if channels is None else _finite(channels)
        centres, sizes, groups = _measure(
            _ranks(labels, present), pixels, self.sides, self.extractor
        )
        rows = np.searchsorted(present, part.numbers)
        columns = {
            (group, name): values[rows]
            for group, measured in groups.items()
            for name, values in measured.items()
        }
        first = np.array([side.start for side in part.region]) * self.sides
        return PartMeasures(part.numbers, centres[rows] + first, sizes[rows], columns)

    def join(self, parts: Sequence[PartMeasures], shape: Sequence[int]) -> PartMeasures:
        """Join the measures of all parts of an image, and add those of neighbours."""
        numbers, centres, sizes = (np.concatenate([part[k] for part in parts]) for k in range(3))
        order = np.argsort(numbers, kind="stable")
        numbers, centres, sizes = numbers[order], centres[order], sizes[order]
        columns = {
            key: np.concatenate([part.columns[key] for part in parts])[order]
            for key in parts[0].columns
        }
        for group, name in [*columns]:
            if name.startswith("ring "):  # objects without a ring get the mean of the others
                ring, channel = columns[group, name], name.removeprefix("ring ")
                has_ring = ~np.isnan(ring)
                ring[~has_ring] = ring[has_ring].mean() if has_ring.any() else 0
                columns[group, f"contrast {channel}"] = columns[group, f"mean {channel}"] - ring
        around = _neighbours(centres, sizes, np.array(shape) * self.sides)
        columns |= {("neighbours", name): values for name, values in around.items()}
        return PartMeasures(numbers, centres, sizes, columns)

    def vectors(self, frames: Sequence[PartMeasures]) -> ObjectMeasures:
        """Return the measure vectors of the objects of all frames."""
        keys = [*frames[0].columns]
        table = np.concatenate([np.stack([x.columns[key] for key in keys], 1) for x in frames])
        every = np.concatenate([frame.numbers for frame in frames])
        numbers, first = np.unique(every, return_index=True)  # an object may be in several frames
        values = np.nan_to_num(table[first], posinf=0, neginf=0).astype(np.float32)
        groups, names = zip(*keys, strict=True)
        return ObjectMeasures(numbers, values, names, groups, self.extractor)


def _finite(channels: NDArray[Any]) -> NDArray[np.float32]:
    return np.nan_to_num(channels.astype(np.float32))


def _ranks(labels: NDArray[Any], present: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return labels renumbered consecutively from 1."""
    return np.asarray(np.where(labels > 0, np.searchsorted(present, labels) + 1, 0))


def _parts_in_memory(frame: NDArray[Any], work: VectorWork) -> list[Part]:
    numbers = np.unique(frame)
    numbers = numbers[numbers > 0].astype(np.int64)
    if not len(numbers):
        return []
    if work.needs_whole or frame.size <= 4 * _TILE[frame.ndim] ** frame.ndim:
        return [Part(tuple(slice(0, side) for side in frame.shape), numbers)]
    slices = ndimage.find_objects(_ranks(frame, numbers))
    boxes = np.array([[(side.start, side.stop) for side in box] for box in slices])
    return work.parts(frame.shape, numbers, boxes)


def _measure(
    labels: NDArray[np.integer[Any]],
    channels: NDArray[np.float32] | None,
    sides: NDArray[np.float64],
    extractor: FeatureExtractor | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, Columns]]:
    """Return centres, sizes and groups of measures of objects numbered 1 to n."""
    # Distance to the border of the object, also where two touch.
    is_border = _is_border(labels)
    depth = ndimage.distance_transform_edt(~is_border & (labels > 0), sampling=sides)
    depth = np.where(labels > 0, depth + sides.min() / 2, 0)
    indices = np.nonzero(labels)
    owners = labels[indices] - 1
    n_objects = int(labels.max())
    size = np.bincount(owners, minlength=n_objects) * np.prod(sides)
    radius = _radius(size, labels.ndim)
    groups = {"shape": _shape(labels, depth[indices], owners, size, radius, sides)}
    if channels is not None:
        is_core = depth[indices] > radius[owners] / 2
        groups["intensity"] = _intensity(labels, channels, channels[indices], owners, is_core)
        groups["texture"] = _texture(channels, indices, owners)
    if labels.ndim == 2:
        grey = (labels > 0) if channels is None else channels.mean(axis=-1)
        groups["outline"] = _outline(labels, np.asarray(grey, np.float32))
    unknown = np.full(n_objects, np.nan)  # until `VectorWork.join`
    groups["neighbours"] = dict.fromkeys([f"log distance {rank}" for rank in _NEAREST], unknown) | {
        "neighbours": unknown,
        "touching": _touching(labels, is_border),
        "relative size": unknown,
    }
    if extractor is not None and channels is not None:
        pooled = extractor.features(channels, tuple(range(labels.ndim)), None)[indices]
        means = [_mean(column, owners, n_objects) for column in pooled.T]
        groups["features"] = {f"feature {k}": mean for k, mean in enumerate(means)}
    centres = [
        _mean(row * side, owners, n_objects) for row, side in zip(indices, sides, strict=True)
    ]
    return np.stack(centres, axis=1), size, groups


def _radius(size: NDArray[np.float64], n_axes: int) -> NDArray[np.float64]:
    """Return the radius of the disc or ball of the same size."""
    return np.asarray(np.sqrt(size / np.pi) if n_axes == 2 else np.cbrt(size * 3 / (4 * np.pi)))


def _mean(
    values: NDArray[Any], owners: NDArray[np.integer[Any]], n_objects: int
) -> NDArray[np.float64]:
    counts = np.bincount(owners, minlength=n_objects)
    return np.bincount(owners, values, n_objects) / np.maximum(counts, 1)


def _is_border(labels: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Return the mask of object pixels with a face neighbour outside their object."""
    footprint = ndimage.generate_binary_structure(labels.ndim, 1)
    low = ndimage.minimum_filter(labels, footprint=footprint)
    high = ndimage.maximum_filter(labels, footprint=footprint)
    return np.asarray((labels > 0) & (low != high))


def _shape(
    labels: NDArray[np.integer[Any]],
    depths: NDArray[np.floating[Any]],
    owners: NDArray[np.integer[Any]],
    size: NDArray[np.float64],
    radius: NDArray[np.float64],
    sides: NDArray[np.float64],
) -> Columns:
    table = region_table(labels > 0, regions=labels, scale=sides.tolist(), units="pixel")
    column = {name.partition("_px")[0]: values for name, values in table.items()}
    major, minor = column["major_axis"], column["minor_axis"]
    n_objects = len(size)
    shape = {
        "log size": np.log(size),
        "log major axis": np.log(major + sides.min()),
        "log minor axis": np.log(minor + sides.min()),
        "axis ratio": minor / np.maximum(major, _TINY),
        "extent": column["extent"],
        "depth": ndimage.maximum(depths, owners + 1, np.arange(1, n_objects + 1)) / radius,
        "mean depth": _mean(depths, owners, n_objects) / radius,
    }
    if labels.ndim == 2:
        shape["ellipse fill"] = size / np.maximum(np.pi / 4 * major * minor, sides.prod())
        if "perimeter" in column:
            shape["roundness"] = 4 * np.pi * size / np.maximum(column["perimeter"], 1) ** 2
    return shape


def _intensity(
    labels: NDArray[np.integer[Any]],
    channels: NDArray[np.float32],
    values: NDArray[np.float32],
    owners: NDArray[np.integer[Any]],
    is_core: NDArray[np.bool_],
) -> Columns:
    n_objects = int(labels.max())
    counts = np.bincount(owners, minlength=n_objects)
    ends = np.cumsum(counts)
    distance, nearest = ndimage.distance_transform_edt(labels == 0, return_indices=True)
    ring = np.nonzero((distance > 1) & (distance <= _RING + 1))
    ring_owners = labels[tuple(axis[ring] for axis in nearest)] - 1
    has_ring = np.bincount(ring_owners, minlength=n_objects) > 0
    measured: Columns = {}
    for k in range(channels.shape[-1]):
        channel = values[:, k].astype(np.float64)
        mean = _mean(channel, owners, n_objects)
        around = _mean(channels[..., k][ring], ring_owners, n_objects)
        around[~has_ring] = np.nan  # until `VectorWork.join`
        ordered = channel[np.lexsort((channel, owners))]
        core, rim = (_mean(channel[part], owners[part], n_objects) for part in (is_core, ~is_core))
        has_both = (np.bincount(owners[is_core], minlength=n_objects) > 0) & (
            np.bincount(owners[~is_core], minlength=n_objects) > 0
        )
        measured |= {
            f"mean {k}": mean,
            f"deviation {k}": np.sqrt(_mean((channel - mean[owners]) ** 2, owners, n_objects)),
            f"low {k}": ordered[ends - counts + counts // 10],
            f"high {k}": ordered[ends - 1 - counts // 10],
            f"ring {k}": around,
            f"contrast {k}": mean - around,
            f"core {k}": np.where(has_both, core - rim, 0),
        }
    return measured


def _texture(
    channels: NDArray[np.float32],
    indices: tuple[NDArray[np.int64], ...],
    owners: NDArray[np.integer[Any]],
) -> Columns:
    n_objects = int(owners.max()) + 1
    measured: Columns = {}
    grey = channels.mean(axis=-1)
    for width in (1, 2):
        for name, image in (
            ("gradient", ndimage.gaussian_gradient_magnitude(grey, width)),
            ("curvature", ndimage.gaussian_laplace(grey, width)),
        ):
            values = image[indices]
            mean = _mean(values, owners, n_objects)
            spread = _mean((values - mean[owners]) ** 2, owners, n_objects)
            measured |= {f"{name} {width}": mean, f"{name} spread {width}": np.sqrt(spread)}
    return measured


def _outline(labels: NDArray[np.integer[Any]], grey: NDArray[np.float32]) -> Columns:
    """Return histograms of oriented gradients and of pixels over cells of bounding squares."""
    boxes = np.array([[(side.start, side.stop) for side in box] for box in
                      ndimage.find_objects(labels)])  # fmt: skip
    half = (boxes[..., 1] - boxes[..., 0]).max(axis=1) / 2 + 1
    centre = (boxes.sum(axis=2) - 1) / 2
    around = ndimage.maximum_filter(labels, 3)
    around = np.where(labels > 0, labels, around)  # gradients extend beyond outlines
    indices = np.nonzero(around)
    owners = around[indices] - 1
    down, across = (ndimage.gaussian_filter1d(grey, 1, axis=axis, order=1) for axis in (0, 1))
    strength = np.hypot(down, across)[indices]
    turn = np.arctan2(down, across)[indices] / (2 * np.pi) * _ORIENTATIONS
    positions = np.stack(
        [
            ((coordinates - centre[owners, axis]) / (2 * half[owners]) + 0.5) * _CELLS - 0.5
            for axis, coordinates in enumerate(indices)
        ]
    )
    n_objects = len(boxes)
    shape = (n_objects, _CELLS, _CELLS, _ORIENTATIONS)
    gradients, pixels = np.zeros(np.prod(shape)), np.zeros(np.prod(shape[:3]))
    is_inside, lows, low_turn = labels[indices] > 0, np.floor(positions), np.floor(turn)
    # Linear interpolation over the four nearest cells and the two nearest orientations.
    for step in itertools.product((0, 1), repeat=2):
        corner = np.reshape(step, (2, 1))
        share = (1 - abs(positions - lows - corner)).prod(axis=0)
        row, column = (lows + corner).astype(np.int64)
        inside = (row >= 0) & (row < _CELLS) & (column >= 0) & (column < _CELLS)
        cell = (owners * _CELLS + row) * _CELLS + column
        counted = inside & is_inside
        pixels += np.bincount(cell[counted], share[counted], len(pixels))
        for step_turn in (0, 1):
            weight = share * strength * (1 - abs(turn - low_turn - step_turn))
            bin_of = (low_turn + step_turn).astype(np.int64) % _ORIENTATIONS
            index = cell * _ORIENTATIONS + bin_of
            gradients += np.bincount(index[inside], weight[inside], len(gradients))
    measured: Columns = {}
    for name, table in (("gradients", gradients), ("pixels", pixels)):
        rows = table.reshape(n_objects, -1)
        rows = np.sqrt(rows / np.maximum(rows.sum(axis=1, keepdims=True), _TINY))
        measured |= {f"{name} {k}": column for k, column in enumerate(rows.T)}
    return measured


def _touching(
    labels: NDArray[np.integer[Any]], is_border: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the share of the border of each object that touches another one."""
    filled = np.where(labels > 0, labels, labels.max() + 1)
    low = ndimage.minimum_filter(filled, 3)
    highest = ndimage.maximum_filter(labels, 3)
    touches = is_border & ((low < labels) | (highest > labels))
    n_objects = int(labels.max())
    border = np.bincount(labels[is_border] - 1, minlength=n_objects)
    return np.bincount(labels[touches] - 1, minlength=n_objects) / np.maximum(border, 1)


def _neighbours(
    centres: NDArray[np.float64], sizes: NDArray[np.float64], extent: NDArray[np.float64]
) -> Columns:
    """Return neighbour measures of all objects of an image of this physical extent."""
    n_objects, n_axes = centres.shape
    tree = KDTree(centres)
    n_nearest = min(max(_NEAREST), n_objects - 1)
    distances, nearest = tree.query(centres, k=[*range(1, n_nearest + 2)])
    reach = _NEAR * 2 * _radius(sizes, n_axes).mean()
    near = tree.query_ball_point(centres, reach, return_length=True) - 1
    relative = np.zeros(n_objects)
    if n_nearest:
        relative = np.log(sizes) - np.log(sizes[nearest[:, 1:]]).mean(axis=1)
    far = np.full(n_objects, np.linalg.norm(extent))
    measured = {
        f"log distance {rank}": np.log((distances[:, rank] if rank <= n_nearest else far) + _TINY)
        for rank in _NEAREST
    }
    return {**measured, "neighbours": np.log1p(near), "relative size": relative}
