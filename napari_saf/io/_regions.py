"""Connected regions, their numbers, and tables of measures in physical units."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels, as_path, as_whole
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io._labels import Axes, Scale, count_labels, label_axes
from napari_saf.io._measures import Sums, measures_of
from napari_saf.io._paths import TABLE_SUFFIXES, check_suffix, printable, table_cell
from napari_saf.result import LabelMap
from napari_saf.storage import atomic_write

if TYPE_CHECKING:
    import pandas

Table = dict[str, NDArray[Any]]
_LAYOUT = {"na_rep": "nan", "float_format": "%.10g"}


def number_regions(
    labels: ArrayLike, *, axes: str | None = None, min_pixels: int = 1
) -> NDArray[np.int32]:
    """Assign a number to each connected region of a label image.

    The numbers are those of the column ``region`` of `region_table` with ``connected=True``.
    Pixels that touch at a corner are connected.

    Parameters
    ----------
    labels : array of int
        Label image, 0 for no label.
    axes : str, optional
        A letter per axis, such as ``"tyx"``. Frames along a time axis are processed separately,
        with consecutive numbers.
    min_pixels : int
        Regions of fewer pixels, 1 or more, become 0.

    Returns
    -------
    array of int32 of the shape of the labels
        0 for no region; then 1, 2, ..., label by label.

    Raises
    ------
    InvalidInput
        If the labels are not an image of non-negative integers, or `min_pixels` is less than 1.

    Examples
    --------
    >>> saf.number_regions([[1, 0, 1], [2, 0, 1]])
    array([[1, 0, 2],
           [3, 0, 2]], dtype=int32)
    """
    array, placed = checked_labels(labels, min_pixels, axes)
    is_series = placed.names.startswith("t")
    numbered, count = [], 0
    for frame in array if is_series else array[None]:
        regions, owners = connected_regions(frame, count_labels(frame)[0], min_pixels)
        numbered.append(np.where(regions > 0, regions + np.int32(count), 0))
        count += len(owners)
    return np.stack(numbered).reshape(array.shape)


def check_table(path: Path) -> str:
    """Return the suffix of a table; raise the errors of `save_table` before it is computed.

    The folder must exist.
    """
    suffix = check_suffix(path, TABLE_SUFFIXES)
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise SafError(".parquet needs pyarrow: pip install 'napari-saf[parquet]'")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise SafError(f"{path}: cannot be written: it is a folder, or in a protected one")
    return suffix


def save_table(path: str | os.PathLike[str], table: Table) -> Path:
    """Save a table of columns of equal length by name.

    As ``.csv``, with formulas escaped for spreadsheets, or ``.parquet``, which needs pyarrow.
    SafError if pyarrow is missing, or the file cannot be written.
    """
    target = as_path(path)
    frame = _frame(table)
    if check_table(target) == ".csv":
        write_csv(target, frame, **_LAYOUT)
        return target
    with atomic_write(target) as temporary:
        frame.to_parquet(temporary, engine="pyarrow", index=False)
    return target


def table_text(table: Table) -> str:
    """Return a table as tab-separated text, for spreadsheets."""
    return str(_harmless(_frame(table)).to_csv(None, sep="\t", index=False, **_LAYOUT))


def _frame(table: Table) -> pandas.DataFrame:
    import pandas  # takes half a second to load

    return pandas.DataFrame({name: column.tolist() for name, column in table.items()})


def _harmless(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table with formulas in its texts escaped for spreadsheets."""
    return table.map(lambda cell: table_cell(printable(cell)) if isinstance(cell, str) else cell)


def write_csv(path: Path, table: pandas.DataFrame, **layout: Any) -> None:
    """Write a table with formulas escaped for spreadsheets."""
    with atomic_write(path) as temporary:
        _harmless(table).to_csv(temporary, index=False, lineterminator="\r\n", **layout)


def checked_labels(
    labels: ArrayLike,
    min_pixels: object,
    axes: str | None,
    scale: Scale | None = None,
    units: Sequence[str] | str | None = None,
) -> tuple[NDArray[Any], Axes]:
    """Return a label image as an integer array, and its axes."""
    array = as_labels(labels, "labels")
    check_regions(array.shape, min_pixels)
    placed = label_axes(array.ndim, axes, scale, units)
    return array.astype(np.uint8) if array.dtype.kind == "b" else array, placed


def check_regions(shape: tuple[int, ...], min_pixels: object) -> None:
    """Raise InvalidInput for an unsupported shape of labels, or an invalid `min_pixels`."""
    if not 2 <= len(shape) <= 4 or 0 in shape:
        raise InvalidInput(f"labels: expected an image of 2 to 4 axes, got shape {shape}")
    if (as_whole(min_pixels) or 0) < 1:
        raise InvalidInput(f"min_pixels: expected a whole number of 1 or more, got {min_pixels!r}")


def table_rows(
    sums: Sums,
    labels: NDArray[Any],
    numbers: NDArray[Any] | None,
    n_labelled: int,
    axes: Axes,
    columns: Mapping[str, str],
) -> Table:
    """Return a row per region: label, number (if any), size and measures."""
    steps = None if axes.steps is None else axes.steps.upright
    measured = measures_of(sums, [axes.scale.get(name, 1.0) for name in axes.names], steps)
    table: Table = {"label": labels}
    if numbers is not None:
        table["region"] = numbers
    table |= {"pixels": sums["pixels"], "share": sums["pixels"] / n_labelled}
    for name, column in columns.items():
        # The ends of scikit-image bounding boxes are exclusive.
        is_end = name.startswith("bbox") and int(name.partition("-")[2]) >= len(axes.names)
        table[column] = measured[name] - 1 if is_end else measured[name]
    return table


def connected_regions(
    labels: NDArray[Any], present: NDArray[np.int64], min_pixels: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the connected regions, numbered from 1 label by label, and the label of each.

    Labels are processed one by one: a single call for a large image would block all threads.
    """
    from scipy.ndimage import find_objects, label

    ranks = LabelMap(present).unpaint(labels)
    around = np.ones((3,) * ranks.ndim)
    regions = np.zeros(ranks.shape, np.int32)
    owners: list[int] = []
    for rank, box in enumerate(find_objects(ranks), start=1):
        if box is not None:
            numbered, _ = label(ranks[box] == rank, around)
            is_large = np.bincount(numbered.ravel()) >= min_pixels
            is_large[0] = False
            number = np.where(is_large, is_large.cumsum() + len(owners), 0).astype(np.int32)
            regions[box] += number[numbered]
            owners += [int(present[rank - 1])] * np.count_nonzero(is_large)
    return regions, np.array(owners, np.int64)


def table_columns(axes: Axes, n_channels: int, brief: bool) -> dict[str, str]:
    """Return column names by scikit-image name; for a brief table, of sizes and means only."""
    n_axes, unit = len(axes.names), axes.common_unit
    columns: dict[str, str] = {}
    if unit is not None:
        length, is_plane = _end(unit), n_axes == 2
        columns = {
            "area": f"area{_end(unit, 2)}" if is_plane else f"volume{_end(unit, 3)}",
            "equivalent_diameter_area": f"equivalent_diameter{length}",
            "axis_major_length": f"major_axis{length}",
            "axis_minor_length": f"minor_axis{length}",
            "extent": "extent",
            "euler_number": "euler_number",
        }
        if is_plane:
            columns |= {"eccentricity": "eccentricity", "orientation": "orientation_rad"}
        is_sheared = axes.steps is not None and axes.steps.upright is not None
        if is_plane and len(set(axes.scale.values())) < 2 and not is_sheared:
            columns["perimeter"] = f"perimeter{length}"
    for k, name in enumerate(axes.names):
        unit_of_axis = axes.units[name] if unit is None else unit
        columns[f"centroid-{k}"] = f"centroid_{name}{_end(unit_of_axis)}"
    for k, name in enumerate(axes.names):
        columns |= {f"bbox-{k}": f"first_{name}", f"bbox-{k + n_axes}": f"last_{name}"}
    for statistic in ("mean", "min", "max"):
        for channel in range(n_channels):
            column = f"intensity_{statistic}" + f"_{channel}" * (n_channels > 1)
            columns[f"intensity_{statistic}-{channel}"] = column
    prefixes = ("area", "intensity_mean") if brief else tuple(columns)
    return {name: column for name, column in columns.items() if name.startswith(prefixes)}


def _end(unit: str, power: int = 1) -> str:
    short = unit.replace("µ", "u")
    plain = "px" if short == "pixel" else "".join(c if c.isalnum() else "_" for c in short)
    return f"_{plain}{power if power > 1 else ''}" if plain else ""
