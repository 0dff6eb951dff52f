"""Geometry of labels over their image: axes, slices, regions and affine transforms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from numpy.typing import NDArray

from napari_saf._gui.layers.metadata import metadata_of
from napari_saf._gui.layers.reading import Index, Pixels
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf.arrays import JsonObject
from napari_saf.errors import counted
from napari_saf.io import Steps, split_affine

NO_IMAGE = "no image: open or choose an image layer first"
_TIMES = ("t", "time", "frame", "frames")
_ROUNDING = 1e-9
_FAR = 2.0**40
_LARGEST_DRIFT = 1e-3
"""Tolerance in image pixels of a step along labels from one along the image."""
Window = int | tuple[int, ...]
Entry = JsonObject
"""Layer arguments, or metadata, by name."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Geometry of a layer over some `axes` of its image.

    `singletons` are axes of length 1 for the labelled slice, or for all channels (`channels`).
    `transform` holds the layer arguments, `world` the affine.
    """

    singletons: tuple[int, ...]
    axes: tuple[int, ...]
    transform: Entry
    channels: int | None = None
    world: NDArray[np.float64] | None = None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        sides = list(shape)
        for axis in self.singletons:
            sides.insert(axis, 1)
        return tuple(sides)

    def entry(self, image: Image) -> Entry:
        """Return metadata that records the position of labels in an image."""
        axes = {"axes": self.axes, "singletons": self.singletons, "channels": self.channels}
        return {"image": str(image.unique_id)} | axes


def world_affine(layer: Layer) -> NDArray[np.float64]:
    """Return the affine (ndim + 1, ndim + 1) from pixels of a layer to world coordinates.

    It combines scale, shear, rotation and translation, then the affine of the layer.
    """
    affine = np.eye(layer.ndim + 1)
    origin = np.array(layer.data_to_world(np.zeros(layer.ndim)))
    # Long steps keep the precision for any translation of the layer.
    steps = [layer.data_to_world(step) for step in _FAR * np.eye(layer.ndim)]
    affine[:-1, :-1] = (np.array(steps) - origin).T / _FAR
    affine[:-1, -1] = origin
    is_plain = not np.count_nonzero(affine[:-1, :-1] - np.diag(np.diag(affine)[:-1]))
    if is_plain and np.array_equal(layer.affine.linear_matrix, np.eye(layer.ndim)):
        affine[:-1, :-1] = np.diag(layer.scale)
    return affine


def steps_of(layer: Layer, axes: Sequence[int] | None = None) -> Steps:
    """Return the world vectors of a step of one pixel along `axes` of a layer, by default all."""
    axes = range(layer.ndim) if axes is None else axes
    return Steps(world_affine(layer)[:-1, list(axes)])


def place(
    layer: Layer,
    axes: tuple[int, ...],
    fixed: Mapping[int, int],
    channels: int | None = None,
    first_pixel: Sequence[float] = (),
    pixel: Sequence[float] = (),
) -> Placement:
    """Return the placement of labels over the spatial `axes` of an image, ascending.

    One slice is labelled along the `fixed` axes. Unless it is the first, the channel axis is kept
    with one pixel as wide as all channels, as napari aligns layers by their last axes. For labels
    of a part of the image, `first_pixel` is its position along each axis; for those of a coarser
    level, `pixel` is their pixel size; both are in image pixels.
    """
    positions: dict[int, float] = dict(fixed)
    n_channels = 1.0
    if channels:
        n_channels = float(layer.extent.data[1][channels]) + 1
        positions[channels] = (n_channels - 1) / 2
        axes = tuple(sorted((*axes, channels)))
    chosen, origin = list(axes), np.zeros(layer.ndim)
    start = np.array(first_pixel or origin, dtype=float)
    widths = np.array(pixel or np.ones(layer.ndim), dtype=float)
    start[list(positions)] = list(positions.values())
    if channels:
        widths[channels] *= n_channels
    image = world_affine(layer)
    moved = image[:-1, :-1] @ start
    offset = np.linalg.solve(np.asarray(layer.affine.linear_matrix), moved)
    world = np.eye(len(chosen) + 1)
    world[:-1, :-1] = (image[:-1, :-1] * widths)[np.ix_(chosen, chosen)]
    world[:-1, -1] = (image[:-1, -1] + moved)[chosen]
    scale, translate = layer.scale * widths, layer.translate + offset
    transform = split_affine(world, scale[chosen], translate[chosen]) | {
        "units": tuple(layer.units[axis] for axis in chosen),
        "axis_labels": tuple(layer.axis_labels[axis] for axis in chosen),
    }
    singletons = tuple(chosen.index(axis) for axis in sorted(positions))
    return Placement(singletons, axes, transform, channels or None, world)


def placement_of(labels: Labels) -> Placement:
    """Return the placement of an existing layer of labels."""
    recorded, labelled = image_axes_of(labels), labelled_axes(labels)
    singletons = tuple(axis for axis in range(labels.ndim) if axis not in labelled)
    axes = recorded[0] if recorded else ()
    same = place(labels, tuple(range(labels.ndim)), {})
    return Placement(singletons, axes, same.transform, channel_axis_of(labels), same.world)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ImageRegion:
    """The labelled region of an image layer, and the aligned regions of other layers.

    `fixed` maps each axis with a single labelled slice to its position; labels are averaged along
    the axes in `together`.
    """

    image: Image
    channel_axis: int | None
    fixed: Mapping[int, int]
    together: tuple[int, ...] = ()

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(self.image.ndim) if axis != self.channel_axis)

    @property
    def index(self) -> Index:
        return tuple(self.fixed.get(axis, slice(None)) for axis in range(self.image.ndim))

    @property
    def pixels(self) -> Pixels:
        return Pixels(pixels_of(self.image), self.index)

    @property
    def sides(self) -> tuple[int, ...]:
        """The length of the labelled region along each axis of the image."""
        return tuple(pixels_of(self.image).shape)

    @property
    def channel_axis_read(self) -> int | None:
        """The channel axis of the array that is read; None without channels or for RGB."""
        channel = self.channel_axis
        return None if channel is None else sum(k not in self.fixed for k in range(channel))

    @property
    def placement(self) -> Placement:
        return place(self.image, self.axes, self.fixed, self.channel_axis)

    def whole(self) -> tuple[Placement, tuple[int, ...]]:
        """Return placement and shape of labels over all slices."""
        shape = pixels_of(self.image).shape
        placement = place(self.image, self.axes, {}, self.channel_axis)
        return placement, placement.shape(tuple(shape[axis] for axis in self.axes))

    def over(self, layer: Labels | None) -> Pixels | None:
        """Return the pixels of labels over the region.

        Labels have the axes of the image, its spatial axes, or a single plane for all slices. If
        they have fewer slices, the last is used; the channel axis may have length 1.
        """
        if layer is None:
            return None
        pixels, fixed = pixels_of(layer), dict(self.fixed)
        axes = self.axes if pixels.ndim == len(self.axes) else range(self.image.ndim)
        if pixels.ndim != len(axes):
            return Pixels(pixels)
        channels = self.channel_axis
        if channels is not None and channels in axes and pixels.shape[channels] == 1:
            fixed[channels] = 0
        sides = zip(axes, pixels.shape, strict=True)
        index = tuple(min(fixed[a], n - 1) if a in fixed else slice(None) for a, n in sides)
        return Pixels(pixels, index)

    def over_features(self, layer: Layer) -> tuple[Pixels, int] | None:
        """Return the features over the region and the index of their axis; None if they do not fit.

        The feature axis is the last one whose removal leaves the shape of the image.
        """
        data = pixels_of(layer)
        shape = list(data.shape)
        sides = [self.sides[axis] for axis in self.axes]
        fitting = [k for k in range(len(shape)) if shape[:k] + shape[k + 1 :] == sides]
        if not fitting:
            return None
        index: list[int | slice] = [self.fixed.get(axis, slice(None)) for axis in self.axes]
        axis = sum(isinstance(at, slice) for at in index[: fitting[-1]])
        index.insert(fitting[-1], slice(None))
        return Pixels(data, tuple(index)), axis

    @property
    def free_axes(self) -> list[int]:
        """The axes along which all slices are labelled."""
        return [axis for axis in self.axes if axis not in self.fixed]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sides[axis] for axis in self.free_axes)

    @property
    def averaged_axes(self) -> list[int]:
        """Indices of the free axes, longer than 1, along which labels are averaged."""
        axes = enumerate(self.free_axes)
        return [k for k, axis in axes if axis in self.together and self.sides[axis] > 1]

    def window(self, side: int) -> tuple[Window, str]:
        """Return a window of this side along the averaged axes, and a note if it was reduced."""
        widths = tuple(side if axis in self.together else 1 for axis in self.free_axes)
        return self.fit(side if set(widths) == {side} else widths)

    def fit(self, window: Window) -> tuple[Window, str]:
        """Return a window limited to the region along each axis, and a note if it was reduced."""
        axes = self.free_axes
        widths = (window,) * len(axes) if isinstance(window, int) else window
        if len(widths) != len(axes):
            return window, ""
        pairs = zip(widths, self.shape, strict=True)
        fitted = tuple(width if n == 1 else min(width, n - 1 + n % 2) for width, n in pairs)
        if fitted == widths:
            return window, ""
        names = (self.image.axis_labels[axis] for axis in axes)
        sides = zip(names, widths, fitted, strict=True)
        smaller = [f"axis {name}: {side} px" for name, width, side in sides if side < width]
        return fitted, f"scale along {', '.join(smaller)}, the most that fits"


def plane_on_screen(
    viewer: napari.Viewer, layer: Layer, axes: tuple[int, ...], n_shown: int = 2
) -> tuple[int, ...]:
    """Return which of `axes` are displayed, or would be in a view of `n_shown` dimensions."""
    missing = dims_of(viewer).ndim - layer.ndim
    order = [axis - missing for axis in dims_of(viewer).order]
    return tuple(axis for axis in order if axis in axes)[-n_shown:]


def image_folder(viewer: napari.Viewer) -> Path:
    """Return the folder of the newest image that was opened from a file, else the current one."""
    paths = (layer.source.path for layer in reversed(viewer.layers) if isinstance(layer, Image))
    files = (Path(path).absolute() for path in paths if path and Path(path).exists())
    return next((file.parent for file in files), Path.cwd())


def axis_name(viewer: napari.Viewer, layer: Layer, axis: int) -> str:
    """Return the name of an axis of a layer; "-1" if unnamed.

    It is the label of the axis, or else the name that the person gave to its slider.
    """
    name, sliders = str(layer.axis_labels[axis]), dims_of(viewer).axis_labels
    if not name.lstrip("-").isdigit() or len(sliders) < layer.ndim:
        return name
    slider = str(sliders[axis - layer.ndim])
    is_of_layer = any(slider in map(str, other.axis_labels) for other in viewer.layers)
    return name if is_of_layer else slider


def slice_word(viewer: napari.Viewer, layer: Layer, axis: int) -> str:
    """Return the word for a slice along an axis: "slice", or "frame" along time."""
    return "frame" if axis_name(viewer, layer, axis).lower() in _TIMES else "slice"


def slice_on_screen(viewer: napari.Viewer, layer: Layer, axes: tuple[int, ...]) -> dict[int, int]:
    """Return the position on screen along each axis that is not displayed."""
    plane = plane_on_screen(viewer, layer, axes)
    return positions_on_screen(viewer, layer, [axis for axis in axes if axis not in plane])


def positions_on_screen(viewer: napari.Viewer, layer: Layer, axes: Iterable[int]) -> dict[int, int]:
    """Return the position of the sliders along `axes`, in pixels of a layer."""
    point = layer.world_to_data(dims_of(viewer).point[-layer.ndim :])
    sides = pixels_of(layer).shape
    return {axis: int(np.clip(round(point[axis]), 0, sides[axis] - 1)) for axis in axes}


def note_on_slices(viewer: napari.Viewer, layer: Layer) -> str:
    """Return a warning if a layer is rotated out of the slices that napari shows."""
    shown = list(plane_on_screen(viewer, layer, tuple(range(layer.ndim))))
    across = [axis for axis in range(layer.ndim) if axis not in shown]
    linear = world_affine(layer)[:-1, :-1]
    is_turned = np.abs(linear) > _ROUNDING * np.abs(linear).max()
    if not (is_turned[np.ix_(across, shown)].any() or is_turned[np.ix_(shown, across)].any()):
        return ""
    return (
        "napari shows slices of this layer without its rotation but paints with it, in other "
        "slices: paint before rotating the layer"
    )


def channel_axes(viewer: napari.Viewer, layer: Layer | None) -> list[tuple[str, int]]:
    """Return the possible channel axes of a layer, each as a text and its index."""
    if layer is None or layer.rgb or layer.ndim < 3:
        return []
    return [
        (f"{axis_name(viewer, layer, axis)}  ({counted(side, 'channel')})", axis)
        for axis, side in enumerate(pixels_of(layer).shape)
    ]


def pixels_of(layer: Layer) -> Any:
    return layer.data[0] if layer.multiscale else layer.data


def image_axes_of(layer: Labels) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the image axis of each axis of labels, and the axes of length 1 for a slice.

    None if unknown, or if the pixels of the layer were replaced.
    """
    entry, shape = metadata_of(layer), pixels_of(layer).shape
    axes, singletons = entry.get("axes") or (), entry.get("singletons") or ()
    if len(axes) != len(shape) or any(shape[axis] != 1 for axis in singletons):
        return None
    return tuple(axes), tuple(singletons)


def channel_axis_of(layer: Labels) -> int | None:
    """Return the axis of labels that represents all channels of the image, or None."""
    axis = metadata_of(layer).get("channels")
    return axis if isinstance(axis, int) and image_axes_of(layer) is not None else None


def axes_entry(layer: Labels) -> Entry:
    """Return the axes of labels as stored in files; empty if unknown."""
    recorded, channels = image_axes_of(layer), channel_axis_of(layer)
    if recorded is None:
        return {}
    entry = {"axes": [*recorded[0]], "singletons": [*recorded[1]], "channels": channels}
    return {name: value for name, value in entry.items() if value is not None}


def place_entry(layer: Labels) -> Entry | None:
    """Return the transform of labels as stored in files, see `Labelling`; None if not needed."""
    recorded, sizes = image_axes_of(layer), np.abs(layer.scale)
    arguments = split_affine(world_affine(layer), sizes, layer.translate)
    is_moved = np.any(layer.translate) or "affine" in arguments
    if not is_moved and (recorded is None or not recorded[1]):
        return None
    plain = {key: np.asarray(value).tolist() for key, value in arguments.items()}
    shape = {"shape": list(pixels_of(layer).shape), "units": list(map(str, layer.units))}
    return shape | plain | axes_entry(layer)


def labelled_axes(layer: Labels) -> list[int]:
    """Return the labelled axes; if unknown, all but leading axes of length 1."""
    recorded, shape = image_axes_of(layer), pixels_of(layer).shape
    if recorded is not None:
        return [axis for axis in range(len(shape)) if axis not in recorded[1]]
    return [axis for axis, side in enumerate(shape) if side > 1 or axis >= len(shape) - 2]


def squeezed_axes(layer: Labels) -> list[int]:
    """Return the labelled axes without those of length 1 before the last two."""
    labelled, shape = labelled_axes(layer), pixels_of(layer).shape
    return [axis for axis in labelled if shape[axis] > 1 or axis in labelled[-2:]]


def labelled_image(
    viewer: napari.Viewer, layer: Labels, fits: Callable[[Any], bool]
) -> Image | None:
    """Return the labelled image, else one named like the layer, else any that fits."""
    fitting = [image for image in viewer.layers if isinstance(image, Image) and fits(image)]
    image_id = metadata_of(layer).get("image")

    def rank(image: Image) -> tuple[bool, int]:
        is_named = layer.name.startswith(image.name)
        return str(image.unique_id) == image_id, len(image.name) if is_named else -1

    return max(fitting, key=rank, default=None)


def image_region(
    layer: Labels, image: Image, spatial: list[int] | None = None
) -> tuple[Index, int | None] | None:
    """Return the image region under labels and its channel axis; None if not aligned.

    The region keeps the axes `spatial` of the labels, by default `squeezed_axes(layer)`.
    """
    spatial = squeezed_axes(layer) if spatial is None else spatial
    image_axes = range(image.ndim)
    channels: list[int | None] = []
    if image.ndim == layer.ndim:
        channels = [None if image.rgb else channel_axis_of(layer)]
    elif image.ndim == layer.ndim + 1 and not image.rgb:
        labelled = (image_axes_of(layer) or ((),))[0]
        # In a similar image, an axis that the labels do not have holds channels.
        channels = [*sorted(image_axes, key=lambda axis: axis in labelled)]
    for channel in channels:
        axes = [axis for axis in image_axes if axis != channel]
        label_axes = axes if image.ndim == layer.ndim else range(layer.ndim)
        index = _region(layer, image, list(zip(label_axes, axes, strict=True)), spatial)
        if index is None:
            continue
        if channel is None:
            return index, -1 if image.rgb else None
        n_preceding = sum(isinstance(at, slice) for at in index[:channel])
        return (*index[:channel], slice(None), *index[channel:]), n_preceding
    return None


def _along(layer: Layer, axes: list[int]) -> NDArray[np.float64]:
    """Return the affine of `axes` of a layer."""
    rows = [*axes, layer.ndim]
    return world_affine(layer)[np.ix_(rows, rows)]


def _region(
    layer: Labels, image: Image, pairs: list[tuple[int, int]], spatial: list[int]
) -> Index | None:
    """Return the index of the part of an image that labels cover, for pairs of axes."""
    label_axes, axes = (list(column) for column in zip(*pairs, strict=True))
    try:
        to_image = np.linalg.solve(_along(image, axes), _along(layer, label_axes))
    except np.linalg.LinAlgError:  # the plane is rotated
        return None
    index: list[int | slice] = []
    for row, (k, axis) in enumerate(pairs):
        side, image_side = pixels_of(layer).shape[k], pixels_of(image).shape[axis]
        step = np.abs(to_image[:-1, row] - np.eye(len(pairs))[row])
        if k in spatial and step.max() > min(_LARGEST_DRIFT, 0.5 / side):
            return None  # a coarser level, or rotated
        start = round(to_image[row, -1])
        if start < 0 or start + side > image_side:
            return None
        index.append(slice(start, start + side) if k in spatial else start)
    return tuple(index)
