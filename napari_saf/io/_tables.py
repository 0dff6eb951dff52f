"""Regions of label images of any size, measured and numbered part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels
from napari_saf.device import raise_if_interrupted
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.io._frame import Frame
from napari_saf.io._labels import Axes, Scale, image_channels, label_axes, name_labels
from napari_saf.io._regions import Table, check_regions, checked_labels, table_columns
from napari_saf.io._source import ImageSource, Region


def region_table(
    labels: ArrayLike,
    image: ArrayLike | None = None,
    *,
    scale: Scale | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    channel_axis: int | None = None,
    connected: bool = False,
    min_pixels: int = 1,
    regions: ArrayLike | None = None,
    brief: bool = False,
) -> Table:
    """Measure the regions of a label image as `skimage.measure.regionprops_table` does.

    The unit of lengths, areas and volumes is a suffix of the column name, such as ``area_um2``;
    pixels (``px``) without a scale. A scale without a unit adds no suffix. Lengths are left out if
    units differ between axes, the perimeter for sheared axes (a scale of shape (n_world, n_axes)).

    Parameters
    ----------
    labels, scale, units, axes, names
        As in `save_masks`.
    image : array, optional
        Image of the same shape, with or without channels, for mean, minimum and maximum intensity.
    channel_axis : int, optional
        Channel axis of the image; None: the last axis, if the image has one more than the labels.
    connected : bool
        Whether a row is a connected region instead of a label.
    min_pixels : int
        Smallest size of a connected region in pixels, 1 or more; smaller ones are left out.
    regions : array of int, optional
        Numbered regions of the same shape, each of one label, as rows instead of labels; without
        the Euler number, which takes a millisecond per region.
    brief : bool
        Leave out position, shape, and minimum and maximum intensity.

    Returns
    -------
    dict of str to array
        Columns of equal length: label, name, region (its number, if connected that of
        `number_regions`), pixels, share of the labelled pixels, area or volume,
        centroid, first and last pixel along each axis, and the measures of scikit-image in 2-D
        or 3-D. Frames along a time axis are measured separately, with shares per frame.

    Raises
    ------
    InvalidInput
        If there is no label, or no region of `min_pixels`, or the image has another shape.

    Examples
    --------
    >>> table = saf.region_table([[1, 1, 0], [2, 2, 2]], scale=(2, 2), units="um")
    >>> table["area_um2"].tolist()
    [8.0, 12.0]
    """
    array, placed = checked_labels(labels, min_pixels, axes, scale, units)
    if not array.any():
        raise InvalidInput("labels: expected at least one pixel with a label, all are 0")
    numbered = None if regions is None else as_labels(regions, "regions")
    if numbered is not None and numbered.dtype == bool:
        numbered = numbered.astype(np.uint8)
    if numbered is not None and numbered.shape != array.shape:
        raise InvalidInput(f"regions: expected the shape {array.shape}, got {numbered.shape}")
    pixels = None
    if image is not None:
        channels = image_channels(np.asarray(image), array, channel_axis)
        pixels = ImageSource.of_array(channels, "", "image", -1)
    columns = table_columns(placed.of_frame, 0 if pixels is None else pixels.n_channels, brief)
    if numbered is None:
        opened = ImageSource.of_array(array, placed.names, "labels")
        return _named(_measured(opened, pixels, placed, columns, connected, min_pixels), names)
    columns.pop("euler_number", None)
    opened = ImageSource.of_array(numbered, placed.names, "regions")
    return _named(_of_regions(_measured(opened, pixels, placed, columns), array, numbered), names)


def _named(table: Table, names: Mapping[int, str] | None) -> Table:
    """Return the table with the column of label names."""
    known_names = name_labels(np.unique(table["label"]), names)
    head = {key: table[key] for key in ("frame", "label") if key in table}
    return head | {"name": np.array([known_names[n] for n in table["label"].tolist()])} | table


def _of_regions(table: Table, labels: NDArray[Any], numbered: NDArray[Any]) -> Table:
    """Return the table of numbered regions with the label of each."""
    numbers, first = np.unique(numbered, return_index=True)
    indices = first[np.searchsorted(numbers.astype(np.int64), table["label"])]
    kinds = labels.ravel()[indices].astype(np.int64)
    n_frames = len(labels) if "frame" in table else 1
    n_labelled = np.count_nonzero(labels.reshape(n_frames, -1), axis=1)
    share = table["pixels"] / n_labelled[table.get("frame", 0)]
    return {"label": kinds, "region": table["label"]} | table | {"label": kinds, "share": share}


def measure_large(
    labels: Any,
    image: Any = None,
    *,
    scale: Scale | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    channel_axis: int | None = None,
    connected: bool = False,
    min_pixels: int = 1,
    brief: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Table:
    """Measure the regions of a label image of any size, see `region_table`.

    Memory is bounded by a part of the image, and by the number of regions.

    Parameters
    ----------
    labels : path or array
        Output of `label_large`, or any label image in a format of `ImageSource.open`.
    image : path or array, optional
        Of the same shape, with or without channels.
    scale, units, axes
        As in `save_masks`; by default from the file.
    names, channel_axis, connected, min_pixels, brief
        As in `region_table`.
    cancelled : callable
        Polled before each part; once it returns True `Cancelled` is raised.

    Returns
    -------
    dict of str to array
        The columns and rows of `region_table`.

    Raises
    ------
    InvalidInput
        As `region_table`.
    FormatError
        If a part cannot be read; names the file and the part.

    Examples
    --------
    >>> [path] = saf.save_masks("labels.ome.zarr", np.kron([[1, 2]], np.ones((64, 64), int)))
    >>> saf.measure_large(path, brief=True)["pixels"].tolist()
    [4096, 4096]
    """
    opened, placed = open_labels(labels, axes, min_pixels, scale, units)
    pixels = None if image is None else open_image_of(opened, image, channel_axis)
    columns = table_columns(placed.of_frame, 0 if pixels is None else pixels.n_channels, brief)
    table = _measured(opened, pixels, placed, columns, connected, min_pixels, cancelled)
    return _named(table, names)


def open_image_of(labels: ImageSource, image: Any, channel_axis: int | None) -> ImageSource:
    """Open the image of labels; raise InvalidInput if its shape differs."""
    pixels = ImageSource.open(image, channel_axis)
    if channel_axis is None and pixels.shape[:-1] == labels.shape:
        pixels = ImageSource.open(image, -1)
    if pixels.shape != labels.shape:
        raise InvalidInput(f"image: expected the shape {labels.shape}, got {pixels.shape}")
    return pixels


def _measured(
    labels: ImageSource,
    image: ImageSource | None,
    axes: Axes,
    columns: Mapping[str, str],
    connected: bool = False,
    min_pixels: int = 1,
    cancelled: Callable[[], bool] = lambda: False,
) -> Table:
    """Return the rows of all frames of a series, or of one image, with consecutive numbers."""

    def on_part() -> None:
        raise_if(cancelled)
        raise_if_interrupted()

    is_series, tables, n_regions = axes.names.startswith("t"), list[Table](), 0
    for k in range(labels.shape[0]) if is_series else [None]:
        frame = Frame(labels, image, k, connected, on_part)
        table = frame.table(axes.of_frame, min_pixels, columns)
        n_rows = len(table.get("label", ()))
        if "region" in table:
            table["region"] = table["region"] + n_regions
            n_regions += n_rows
        tables += [({"frame": np.full(n_rows, k)} if is_series else {}) | table] * (n_rows > 0)
    if not tables:
        none = f"there is none: no region has {min_pixels} pixels or more"
        raise InvalidInput(f"labels: expected a label, {none}")
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


class LargeRegions:
    """The connected regions of a label image of any size, numbered as by `number_regions`.

    Attributes
    ----------
    shape : tuple of int
        Of the label image.
    kinds, names : array of int, mapping of int to str
        The label of each region by number, and the names of labels.
    last : array of int
        The index of the last part of each region, by number.

    `follow` is called before each part with the completed fraction: the first half is numbering,
    the second half the iteration over `parts`.
    """

    def __init__(
        self,
        labels: Any,
        axes: str | None = None,
        names: Mapping[int, str] | None = None,
        min_pixels: int = 1,
        follow: Callable[[float], object] = lambda fraction: None,
    ) -> None:
        opened, placed = open_labels(labels, axes, min_pixels)
        is_series = placed.names.startswith("t")
        self.shape, self.names, self._follow = opened.shape, names or {}, follow
        every = range(opened.shape[0]) if is_series else [None]
        self._frames = [Frame(opened, None, k, True, self._on_part) for k in every]
        self._n_parts, self._n_read = sum(len(frame.places) for frame in self._frames), 0
        kinds, lasts = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
        n_parts = n_regions = 0
        for frame in self._frames:
            columns = table_columns(placed.of_frame, 0, True)
            table = frame.table(placed.of_frame, min_pixels, columns)
            kinds.append(table.get("label", np.zeros(0, np.int64)))
            lasts.append(frame.number(n_regions)[1:] + n_parts)
            n_parts, n_regions = n_parts + len(frame.places), n_regions + len(kinds[-1])
        self.kinds, self.last = np.concatenate(kinds), np.concatenate(lasts)

    def parts(self) -> Iterator[tuple[Region, NDArray[np.int64]]]:
        """Yield each part and its region numbers."""
        self._n_read = self._n_parts
        for frame in self._frames:
            yield from frame.parts()

    def _on_part(self) -> None:
        self._follow(self._n_read / (2 * self._n_parts))
        self._n_read += 1


def open_labels(
    labels: Any,
    axes: str | None,
    min_pixels: object = 1,
    scale: Scale | None = None,
    units: Sequence[str] | str | None = None,
) -> tuple[ImageSource, Axes]:
    """Return a checked label image and its axes, by default those of the file."""
    opened = ImageSource.open(labels, are_labels=True, are_whole=True)
    if opened.n_channels != 1 or opened.dtype.kind not in "biu":
        raise InvalidInput(
            f"labels: expected whole numbers without channels, got {opened.dtype} with "
            f"{opened.n_channels} channels"
        )
    check_regions(opened.shape, min_pixels)
    file = opened.as_file()
    placed = label_axes(
        len(opened.shape),
        axes or file.axes or None,
        file.scale if scale is None else scale,
        file.units if scale is None and units is None else units,
    )
    return opened, placed
