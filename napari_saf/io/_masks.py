"""Label masks on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput
from napari_saf.io._atomic_write import atomic_write
from napari_saf.io._axes import label_axes, spelled_out
from napari_saf.io._image import PNG_MARK
from napari_saf.io._legend import Legend
from napari_saf.io._mask_tiff import MaskDescription, write_tiff
from napari_saf.io._paths import MASK_SUFFIXES, mask_stem, mask_suffix, printable

__all__ = ["save_masks"]

Labels = NDArray[np.unsignedinteger[Any]]


def save_masks(
    path: str | os.PathLike[str],
    labels: ArrayLike | list[NDArray[Any]],
    *,
    scale: Sequence[float] | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
) -> list[Path]:
    """Save a label image in the format that the suffix names.

    The smallest unsigned type that holds the labels is used. A file of that name is replaced
    once the new one is complete; if anything fails, the old one stays.

    Parameters
    ----------
    path : path
        Ends in ``.tif`` or ``.tiff`` (OME-TIFF that ImageJ reads with its pixel sizes, too),
        ``.png`` (indexed, in the colours of the labels, up to label 255), ``.npy`` or
        ``.ome.zarr`` (with names and colours).
    labels : array of int, or list of such arrays
        Label image, 0 for no label. The images of a list go to ``stem-1.tif``,
        ``stem-2.tif``, ...
    scale : sequence of float, optional
        Size of a pixel along each axis. TIFF and OME-Zarr keep it.
    units : str or sequence of str, optional
        Unit of the scale, for all axes or each.
    axes : str, optional
        A letter an axis, such as ``"zyx"``.
    names : mapping of int to str, optional
        Names of the labels. OME-Zarr keeps them.
    colors : mapping of int to sequence of float, optional
        Red, green and blue in [0, 1] of the labels. OME-Zarr, PNG and, for ImageJ, TIFF keep
        them up to label 255; without them every label gets one of its own.

    Returns
    -------
    list of Path
        What was written.

    Raises
    ------
    InvalidInput
        If the suffix is unknown, or the format cannot hold the labels.
    SafError
        If the file cannot be written.
    """
    target = Path(path)
    suffix = mask_suffix(target)
    if suffix is None:
        known = ", ".join(MASK_SUFFIXES)
        raise InvalidInput(f"{target}: expected a name that ends in {known}")
    if isinstance(labels, list):
        stem = mask_stem(target)
        targets = [target.with_name(f"{stem}-{k + 1}{suffix}") for k in range(len(labels))]
    else:
        targets, labels = [target], [np.asarray(labels)]
    arrays = [_smallest(array, one) for array, one in zip(labels, targets, strict=True)]
    if suffix == ".ome.zarr":
        _check_folders(targets)
    placed = [label_axes(array.ndim, axes, scale, units) for array in arrays]
    _check_fit(arrays, targets, suffix)
    legends = [Legend.of(array, names, colors) for array in arrays]
    for array, axis, legend, one in zip(arrays, placed, legends, targets, strict=True):
        with atomic_write(one) as temporary:
            _WRITERS[suffix](temporary, array, MaskDescription(mask_stem(one), axis, legend))
    return targets


def _smallest(labels: ArrayLike, path: Path) -> Labels:
    array = np.asarray(labels)
    if array.dtype.kind not in "biu" or array.size == 0 or array.ndim == 0:
        raise InvalidInput(
            f"{path}: expected whole numbers as labels, got {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0:
        raise InvalidInput(f"{path}: expected labels of 0 and above, got {array.min()}")
    return array.astype(np.min_scalar_type(int(array.max())))


def _check_fit(arrays: list[Labels], targets: list[Path], suffix: str) -> None:
    n_axes = {".tif": (2, 4), ".tiff": (2, 4), ".png": (2, 2), ".ome.zarr": (2, 4), ".npy": (1, 64)}
    low, high = n_axes[suffix]
    for array, path in zip(arrays, targets, strict=True):
        if not low <= array.ndim <= high:
            wanted = f"{low} axes" if low == high else f"{low} to {high} axes"
            raise InvalidInput(
                f"{path}: {suffix} holds labels of {wanted}, these have shape {array.shape}; "
                f"use {'.npy' if array.ndim < 2 or array.ndim > 4 else '.tif, .npy or .ome.zarr'}"
            )
        most = np.iinfo(np.uint16 if suffix == ".png" else np.uint32).max
        if suffix != ".npy" and array.max() > most:
            raise InvalidInput(f"{path}: {suffix} holds labels up to {most}, got {array.max()}")


def _check_folders(targets: list[Path]) -> None:
    for path in targets:
        if path.is_dir() and not any((path / name).exists() for name in ("zarr.json", ".zgroup")):
            raise InvalidInput(f"{path}: is a folder, but not an OME-Zarr; it stays as it is")


def _write_png(path: Path, labels: Labels, described: MaskDescription) -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    image, notes = Image.fromarray(labels), PngInfo()
    if labels.dtype == np.uint8:
        image.putpalette(described.legend.palette().tobytes())
        notes.add_text(*PNG_MARK)
    with path.open("wb") as file:
        image.save(file, format="PNG", pnginfo=notes)


def _write_npy(path: Path, labels: Labels, described: MaskDescription) -> None:
    with path.open("wb") as file:
        np.save(file, labels, allow_pickle=False)


def _write_zarr(path: Path, labels: Labels, described: MaskDescription) -> None:
    import zarr
    from ome_zarr.format import FormatV05
    from ome_zarr.writer import Methods, write_image

    axes = described.axes
    spelled = {
        name: spelled_out(unit) for name, unit in zip(axes.names, axes.units or (), strict=False)
    }
    units = {name: unit for name, unit in spelled.items() if unit != "pixel"}
    group = zarr.open_group(path, mode="w", zarr_format=3)
    write_image(
        labels,
        group,
        name=printable(described.name),
        scale_factors=[],
        method=Methods.NEAREST,
        fmt=FormatV05(),
        axes=list(axes.names),
        scale=None if axes.scale is None else dict(zip(axes.names, axes.scale, strict=True)),
        axes_units=units or None,
    )
    entries = dict(group.attrs["ome"])
    group.attrs["ome"] = entries | {
        "image-label": {"version": entries["version"]} | _label_entries(described.legend)
    }


def _label_entries(legend: Legend) -> dict[str, Any]:
    """Return colours and names as OME-Zarr wants them."""
    rows = list(zip(legend.labels.tolist(), legend.names, legend.colors.tolist(), strict=True))
    return {
        "colors": [{"label-value": label, "rgba": [*color, 255]} for label, _, color in rows],
        "properties": [{"label-value": label, "name": name} for label, name, _ in rows],
    }


_WRITERS: dict[str, Callable[[Path, Labels, MaskDescription], None]] = {
    ".tif": write_tiff,
    ".tiff": write_tiff,
    ".png": _write_png,
    ".npy": _write_npy,
    ".ome.zarr": _write_zarr,
}
