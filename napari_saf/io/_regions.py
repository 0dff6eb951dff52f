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
from napari_saf.io._axes import Axes, label_axes, symbol
from napari_saf.io._legend import Legend
from napari_saf.io._replace import replacing

__all__ = ["TABLE_SUFFIXES", "check_table_suffix", "region_table", "save_regions"]

_MOST = np.iinfo(np.int64).max
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
) -> Path:
    """Save what the regions of a label image measure; see `region_table` for the columns.

    Parameters
    ----------
    path : path
        Ends in ``.csv``, or in ``.parquet``, which needs pyarrow.
    labels, image, scale, units, axes, names, channel_axis, connected
        As in `region_table`.

    Raises
    ------
    InvalidInput
        As `region_table`, and if the suffix is unknown.
    SafError
        If pyarrow is missing, or the file cannot be written.
    """
    target = Path(path)
    suffix = check_table_suffix(target)
    table = region_table(
        labels,
        image,
        scale=scale,
        units=units,
        axes=axes,
        names=names,
        channel_axis=channel_axis,
        connected=connected,
    )
    with replacing(target) as temporary:
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

    Returns
    -------
    dict of str to array
        Columns of one length: label, name, region (if connected), pixels, share of the
        labelled pixels, area or volume, centroid, first and last pixel along each axis, and
        what scikit-image measures in 2-D or 3-D. Along an axis of time every frame is measured
        by itself, and shares are of its own pixels.

    Raises
    ------
    InvalidInput
        If there is no label, or the image has another shape.

    Examples
    --------
    >>> table = region_table([[1, 1, 0], [2, 2, 2]], scale=(2, 2), units="um")
    >>> table["area_um2"].tolist()
    [8.0, 12.0]
    """
    array = _check_labels(labels)
    placed = label_axes(array.ndim, axes, scale, units)
    legend = Legend.of(array, names)
    if not len(legend.labels):
        raise InvalidInput("labels: expected at least one pixel with a label, all are 0")
    intensities = _intensities(image, array, channel_axis)
    if not placed.names.startswith("t"):
        return _table(array, intensities, placed, legend, connected)
    return _table_of_frames(array, intensities, placed, legend, connected)


def check_table_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a table's name, in lower case.

    Raises
    ------
    InvalidInput
        If it is not a known one.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _WRITERS:
        raise InvalidInput(f"{path}: expected a name that ends in {', '.join(TABLE_SUFFIXES)}")
    return suffix


def _check_labels(labels: ArrayLike) -> NDArray[Any]:
    array = np.asarray(labels)
    is_image = 2 <= array.ndim <= 4 and array.size > 0
    if (
        array.dtype.kind not in "biu"
        or not is_image
        or not 0 <= array.min() <= array.max() <= _MOST
    ):
        raise InvalidInput(
            "labels: expected an image of 2 to 4 axes, whole numbers from 0 to 2**63 - 1, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def _table(
    labels: NDArray[Any],
    image: NDArray[Any] | None,
    axes: Axes,
    legend: Legend,
    connected: bool,
) -> Table:
    # scikit-image keeps a list as long as the largest number.
    ranks = np.where(labels > 0, np.searchsorted(legend.labels, labels) + 1, 0)
    if connected:
        regions, owners = _connected(ranks, legend.labels)
        return _named(_measure(regions, axes, image), legend, owners)
    found = _measure(ranks, axes, image)
    found["label"] = legend.labels[found["label"] - 1]
    return _named(found, legend, found["label"])


def _table_of_frames(
    labels: NDArray[Any],
    image: NDArray[Any] | None,
    axes: Axes,
    legend: Legend,
    connected: bool,
) -> Table:
    """Measure every frame by itself, with its number in a column."""
    inner = dataclasses.replace(
        axes, names=axes.names[1:], scale=axes.scale and axes.scale[1:],
        units=axes.units and axes.units[1:],
    )  # fmt: skip
    tables = []
    for k, frame in enumerate(labels):
        if frame.any():
            own = None if image is None else image[k]
            table = _table(frame, own, inner, legend, connected)
            tables.append({"frame": np.full(len(table["label"]), k)} | table)
    return {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}


def _connected(
    ranks: NDArray[np.int64], present: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the connected regions, numbered from 1 label by label, and the label of each.

    `ranks` are the places of the labels among those that are present.

    Label by label: labelling a large image in one call would keep all threads waiting.
    """
    from scipy.ndimage import find_objects, label

    around = np.ones((3,) * ranks.ndim)
    regions = np.zeros(ranks.shape, np.int32)
    owners: list[int] = []
    for rank, box in enumerate(find_objects(ranks), start=1):
        if box is not None:
            own, count = label(ranks[box] == rank, around)
            regions[box] += np.where(own > 0, own + len(owners), 0).astype(np.int32)
            owners += [int(present[rank - 1])] * count
    return regions, np.array(owners, np.int64)


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


def _named(found: Table, legend: Legend, owners: NDArray[Any]) -> Table:
    """Return the columns of a file: label and name first, then region, pixels, share."""
    names = dict(zip(legend.labels.tolist(), legend.names, strict=True))
    table: Table = {
        "label": owners,
        "name": np.array([names[int(label)] for label in owners]),
    }
    if found["label"] is not owners:
        starts = np.searchsorted(owners, owners)
        table["region"] = np.arange(len(owners)) - starts + 1
    table["pixels"] = found["pixels"]
    table["share"] = found["pixels"] / max(1, int(found["pixels"].sum()))
    return table | {key: column for key, column in found.items() if key not in table}


def _write_csv(path: Path, table: Table) -> None:
    columns = [[_text(value) for value in column.tolist()] for column in table.values()]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*columns, strict=True))


def _text(value: object) -> str:
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
TABLE_SUFFIXES = tuple(_WRITERS)
"""What the name of a table may end in."""
