"""What regions measure: a table with physical units, as CSV or Parquet."""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput, SafError
from napari_saf.features import channels_last
from napari_saf.io._atomic_write import atomic_write
from napari_saf.io._axes import Axes, label_axes, symbol
from napari_saf.io._connected import (
    check_labels,
    check_min_pixels,
    connected_regions,
    ranks_of,
)
from napari_saf.io._legend import Legend
from napari_saf.io._paths import TABLE_SUFFIXES, check_suffix, table_cell

__all__ = ["region_table", "save_regions"]

Table = dict[str, NDArray[Any]]


def save_regions(
    path: str | os.PathLike[str],
    labels: ArrayLike,
    image: ArrayLike | None = None,
    *,
    scale: Sequence[float] | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    channel_axis: int | None = None,
    connected: bool = False,
    min_pixels: int = 1,
) -> Path:
    """Save what the regions of a label image measure; see `region_table` for the columns.

    Parameters
    ----------
    path : path
        Ends in ``.csv``, or in ``.parquet``, which needs pyarrow.
    labels, image, scale, units, axes, names, channel_axis, connected, min_pixels
        As in `region_table`.

    Raises
    ------
    InvalidInput
        As `region_table`, and if the suffix is unknown.
    SafError
        If pyarrow is missing, or the file cannot be written.
    """
    target = Path(path)
    suffix = check_suffix(target, TABLE_SUFFIXES)
    table = region_table(
        labels,
        image,
        scale=scale,
        units=units,
        axes=axes,
        names=names,
        channel_axis=channel_axis,
        connected=connected,
        min_pixels=min_pixels,
    )
    with atomic_write(target) as temporary:
        _WRITERS[suffix](temporary, table)
    return target


def region_table(
    labels: ArrayLike,
    image: ArrayLike | None = None,
    *,
    scale: Sequence[float] | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    channel_axis: int | None = None,
    connected: bool = False,
    min_pixels: int = 1,
) -> dict[str, NDArray[Any]]:
    """Measure the regions of a label image with `skimage.measure.regionprops_table`.

    Lengths, areas and volumes are in the unit that ends the name of their column, such as
    ``area_um2``: in pixels (``px``) without a scale. A scale without a unit ends no name, and
    where units differ between axes there are no lengths.

    Parameters
    ----------
    labels : array of int
        Label image, 0 for no label.
    image : array, optional
        Image of that shape, with or without channels, for mean, least and greatest intensity.
    scale : sequence of float, optional
        Size of a pixel along each axis.
    units : str or sequence of str, optional
        Unit of the scale, for all axes or each.
    axes : str, optional
        A letter an axis, such as ``"zyx"``.
    names : mapping of int to str, optional
        Names of the labels.
    channel_axis : int, optional
        Axis of the channels of the image; None: a last axis beyond those of the labels.
    connected : bool
        Whether each connected region of a label has a row of its own, instead of each label.
    min_pixels : int
        Connected regions of fewer pixels, 1 or more, have none.

    Returns
    -------
    dict of str to array
        Columns of one length: label, name, region (if connected: its number, as
        `number_regions` gives it), pixels, share of the labelled pixels, area or volume,
        centroid, first and last pixel along each axis, and what scikit-image measures in 2-D
        or 3-D. Along an axis of time every frame is measured
        by itself, and shares are of its own pixels.

    Raises
    ------
    InvalidInput
        If there is no label, or no region of so many pixels, or the image has another shape.

    Examples
    --------
    >>> table = region_table([[1, 1, 0], [2, 2, 2]], scale=(2, 2), units="um")
    >>> table["area_um2"].tolist()
    [8.0, 12.0]
    """
    array = check_labels(labels)
    check_min_pixels(min_pixels)
    placed = label_axes(array.ndim, axes, scale, units)
    legend = Legend.of(array, names)
    if not len(legend.labels):
        raise InvalidInput("labels: expected at least one pixel with a label, all are 0")
    intensities = _intensities(image, array, channel_axis)
    least = min_pixels if connected else None
    if placed.names.startswith("t"):
        table = _table_of_frames(array, intensities, placed, legend, least)
    else:
        table = _table(array, intensities, placed, legend, least)
    if table is None:
        raise InvalidInput(f"min_pixels: no region has {min_pixels} pixels or more")
    return table


def _table(
    labels: NDArray[Any],
    image: NDArray[Any] | None,
    axes: Axes,
    legend: Legend,
    min_pixels: int | None,
) -> Table | None:
    """Return a row for each label, or for each region of so many pixels; None if there is none."""
    # scikit-image keeps a list as long as the largest number.
    regions: NDArray[np.integer[Any]]
    if min_pixels is None:
        regions, owners = ranks_of(labels, legend.labels), legend.labels
    else:
        regions, owners = connected_regions(labels, legend.labels, min_pixels)
    if not len(owners):
        return None
    found = _measure(regions, axes, image)
    numbers, pixels = found.pop("label"), found.pop("pixels")
    own = owners[numbers - 1]
    names = dict(zip(legend.labels.tolist(), legend.names, strict=True))
    table: Table = {"label": own, "name": np.array([names[label] for label in own.tolist()])}
    if min_pixels is not None:
        table["region"] = numbers
    return table | {"pixels": pixels, "share": pixels / np.count_nonzero(labels)} | found


def _table_of_frames(
    labels: NDArray[Any],
    image: NDArray[Any] | None,
    axes: Axes,
    legend: Legend,
    min_pixels: int | None,
) -> Table | None:
    """Measure every frame by itself, with its number in a column; numbers of regions run on."""
    inner = dataclasses.replace(
        axes, names=axes.names[1:], scale=axes.scale and axes.scale[1:],
        units=axes.units and axes.units[1:],
    )  # fmt: skip
    tables: list[Table] = []
    count = 0
    for k, frame in enumerate(labels):
        own = None if image is None else image[k]
        table = _table(frame, own, inner, legend, min_pixels) if frame.any() else None
        if table is not None:
            length = len(table["label"])
            if "region" in table:
                table["region"] = table["region"] + count
            tables.append({"frame": np.full(length, k)} | table)
            count += length
    if not tables:
        return None
    return {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}


def _intensities(
    image: ArrayLike | None, labels: NDArray[Any], channel_axis: int | None
) -> NDArray[Any] | None:
    """Return the image with its channels last, in the shape of the labels."""
    if image is None:
        return None
    array = np.asarray(image)
    if channel_axis is None and array.ndim == labels.ndim + 1:
        channel_axis = -1
    if channel_axis is None:
        array = array[..., None]
    else:
        array = channels_last(array, channel_axis)[0]
    if array.shape[:-1] != labels.shape:
        raise InvalidInput(f"image: expected the shape {labels.shape}, got {np.shape(image)}")
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def _measure(regions: NDArray[Any], axes: Axes, image: NDArray[Any] | None) -> Table:
    """Measure the regions; columns have the names that are saved."""
    from skimage.measure import regionprops_table

    columns = _columns(axes, 0 if image is None else image.shape[-1])
    properties = dict.fromkeys(name.partition("-")[0] for name in columns)
    found = regionprops_table(
        regions,
        intensity_image=image,
        properties=("label", *properties),
        spacing=axes.scale or (1.0,) * regions.ndim,
    )
    table: Table = {"label": found["label"]}
    for name, column in columns.items():
        values = np.asarray(found[name] if name in found else found[f"{name}-0"])
        # skimage's boxes end behind their last pixel.
        is_end = name.startswith("bbox") and int(name.partition("-")[2]) >= regions.ndim
        table[column] = values - 1 if is_end else values
    return table


def _columns(axes: Axes, n_channels: int) -> dict[str, str]:
    """Return the names that columns of scikit-image get."""
    n_axes, unit = len(axes.names), axes.common_unit
    units = (unit,) * n_axes if unit is not None else axes.units or ()
    columns = {"num_pixels": "pixels"}
    if unit is not None:
        columns |= _sizes(n_axes, unit, _is_even(axes.scale))
    for k, name in enumerate(axes.names):
        columns[f"centroid-{k}"] = f"centroid_{name}{_end(units[k])}"
    for k, name in enumerate(axes.names):
        columns |= {f"bbox-{k}": f"first_{name}", f"bbox-{k + n_axes}": f"last_{name}"}
    for statistic in ("mean", "min", "max"):
        for channel in range(n_channels):
            column = f"intensity_{statistic}" + f"_{channel}" * (n_channels > 1)
            columns[f"intensity_{statistic}-{channel}"] = column
    return columns


def _sizes(n_axes: int, unit: str, is_even: bool) -> dict[str, str]:
    columns = {
        "area": f"area{_end(unit, 2)}" if n_axes == 2 else f"volume{_end(unit, 3)}",
        "equivalent_diameter_area": f"equivalent_diameter{_end(unit)}",
        "axis_major_length": f"major_axis{_end(unit)}",
        "axis_minor_length": f"minor_axis{_end(unit)}",
        "extent": "extent",
        "euler_number": "euler_number",
    }
    if n_axes == 2:
        columns |= {"eccentricity": "eccentricity", "orientation": "orientation_rad"}
        columns |= {"perimeter": f"perimeter{_end(unit)}"} if is_even else {}
    return columns


def _is_even(scale: tuple[float, ...] | None) -> bool:
    return scale is None or len(set(scale)) == 1


def _end(unit: str, power: int = 1) -> str:
    """Return a unit as it ends the name of a column."""
    words = symbol(unit).replace("µ", "u")
    plain = "px" if words == "pixel" else "".join(c if c.isalnum() else "_" for c in words)
    return f"_{plain}{power if power > 1 else ''}" if plain else ""


def _write_csv(path: Path, table: Table) -> None:
    columns = [[_cell(value) for value in column.tolist()] for column in table.values()]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*columns, strict=True))


def _cell(value: object) -> str:
    if isinstance(value, str):
        return table_cell(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _write_parquet(path: Path, table: Table) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SafError(
            ".parquet needs pyarrow: pip install 'napari-saf[parquet]'; .csv needs nothing"
        ) from error
    parquet.write_table(pyarrow.table({key: list(x.tolist()) for key, x in table.items()}), path)


_WRITERS: dict[str, Callable[[Path, Table], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
