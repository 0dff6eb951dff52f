"""Writers of label images: OME-TIFF readable by ImageJ, indexed PNG, NumPy, NIfTI, OME-Zarr."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import JsonObject, as_labels, as_path, own_floats
from napari_saf.errors import InvalidInput
from napari_saf.io._labels import Axes, Scale, color_table, label_axes, map_labels, spelled_out
from napari_saf.io._note import NOTE_KEY, TIFF_KEY, write_note
from napari_saf.io._paths import (
    MASK_SUFFIXES,
    NIFTI_SUFFIXES,
    check_suffix,
    file_stem,
    mask_stem,
    mask_suffix,
    printable,
)
from napari_saf.io._readers import PNG_MARK, library
from napari_saf.io._recipe import PrototypeSet
from napari_saf.result import MOST_LABELS, LabelMap
from napari_saf.storage import atomic_write

Labels = NDArray[np.unsignedinteger[Any]]
_INSIDE = 255
OME_ZARR = "0.5"
_AXES = {".tif": (2, 4), ".tiff": (2, 4), ".png": (2, 2), ".ome.zarr": (2, 4), ".npy": (1, 64)}
_AXES |= dict.fromkeys(NIFTI_SUFFIXES, (2, 4))
"""Minimum and maximum number of axes of each format."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Mask:
    labels: Labels
    name: str
    axes: Axes
    label_map: LabelMap
    note: str
    affine: ArrayLike | None
    georeference: Sequence[Any] = ()


def save_masks(
    path: str | os.PathLike[str],
    labels: ArrayLike | list[NDArray[Any]],
    *,
    scale: Scale | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    origin: Sequence[float] | None = None,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
    prototypes: PrototypeSet | None = None,
    recipe: Mapping[str, Any] | None = None,
    place: Mapping[str, Any] | None = None,
    affine: ArrayLike | None = None,
    georeference: Sequence[Any] = (),
) -> list[Path]:
    """Save a label image in the format of the suffix, and return the written paths.

    Labels are stored in the smallest sufficient unsigned type. An existing file is replaced only by
    a complete new one, and kept on failure. `read_mask` restores the metadata, except from
    ``.npy``, which stores the array alone.

    Parameters
    ----------
    path : path
        Ends in ``.tif`` or ``.tiff`` (OME-TIFF, readable with pixel sizes by ImageJ),
        ``.png`` (indexed, in the colours of the labels, up to label 255), ``.npy`` or
        ``.ome.zarr`` (with names and colours); or, with nibabel, ``.nii`` or ``.nii.gz``.
    labels : array of int, or list of such arrays
        Label image, 0 for no label. The images of a list go to ``stem-1.tif``,
        ``stem-2.tif``, ...
    scale : sequence of float or array of shape (n_world, n_axes), optional
        Pixel size along each axis; or, for rotated or sheared axes, the world displacement per
        pixel step along each axis, as columns. Files store the sizes alone.
    units : str or sequence of str, optional
        Unit of the scale, for all axes or each.
    axes : str, optional
        A letter per axis, such as ``"zyx"``.
    origin : sequence of float, optional
        Position of the first pixel along each axis, in these units; stored in ``.ome.zarr`` only.
    names : mapping of int to str, optional
        Names of the labels.
    colors : mapping of int to sequence of float, optional
        Red, green and blue in [0, 1] by label, stored up to label 255; None: a distinct colour
        for each label.
    prototypes : PrototypeSet, optional
        Prototypes of the labels.
    recipe : mapping, optional
        Recipe to reproduce the run, see `Segmentation.recipe`.
    place : mapping, optional
        Placement of the labels over their image, see `Labelling`.
    affine : array of shape (4, 4), optional
        Transform of a voxel (x, y, z, 1) to scanner space, stored in ``.nii`` and ``.nii.gz``;
        None: from scale and origin.
    georeference : sequence, optional
        GeoTIFF tags from `read_image`, stored in ``.tif``: the mask has the same location.

    Raises
    ------
    InvalidInput
        If the suffix is unknown, or the format does not support the labels.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> labels = np.array([[0, 1], [2, 2]])
    >>> [path] = saf.save_masks("labels.tif", labels, scale=(0.5, 0.5), units="um")
    >>> saf.read_labels(path).array.dtype, saf.read_mask(path).scale
    (dtype('uint8'), (0.5, 0.5))
    """
    target = as_path(path)
    suffix = check_suffix(target, MASK_SUFFIXES)
    if isinstance(labels, list):
        stem = mask_stem(target)
        targets = [target.with_name(f"{stem}-{k + 1}{suffix}") for k in range(len(labels))]
    else:
        targets, labels = [target], [np.asarray(labels)]
    masks = []
    for image, file in zip(labels, targets, strict=True):
        array = _checked(np.asarray(image), file, suffix)
        placed = label_axes(array.ndim, axes, scale, units, origin)
        label_map = map_labels(array, names, colors)
        note = write_note(placed, names, colors, prototypes, recipe, place)
        masks.append(_Mask(array, mask_stem(file), placed, label_map, note, affine, georeference))
    for mask, file in zip(masks, targets, strict=True):
        with atomic_write(file) as temporary:
            _WRITERS[suffix](temporary, mask)
    return targets


def _checked(labels: NDArray[Any], path: Path, suffix: str) -> Labels:
    """Return labels in the smallest type; raise InvalidInput if unsupported."""
    labels = as_labels(labels, str(path))
    if not labels.size or not labels.ndim:
        raise InvalidInput(f"{path}: expected whole numbers, got none in shape {labels.shape}")
    check_replaceable(path, suffix)
    low, high = _AXES[suffix]
    if not low <= labels.ndim <= high:
        expected = f"{low} axes" if low == high else f"{low} to {high} axes"
        fitting = ".npy" if labels.ndim < 2 or labels.ndim > 4 else ".tif, .npy or .ome.zarr"
        got = f"these have shape {labels.shape}; use {fitting}"
        raise InvalidInput(f"{path}: {suffix} holds labels of {expected}, {got}")
    most = np.iinfo(np.uint16 if suffix == ".png" else np.uint32).max
    if suffix != ".npy" and labels.max() > most:
        raise InvalidInput(f"{path}: {suffix} holds labels up to {most}, got {labels.max()}")
    return labels.astype(np.min_scalar_type(int(labels.max())))


def check_replaceable(path: Path, suffix: str) -> None:
    """Raise InvalidInput if the path is a folder other than an OME-Zarr."""
    is_group = any((path / name).exists() for name in ("zarr.json", ".zgroup"))
    if suffix == ".ome.zarr" and path.is_dir() and not is_group:
        raise InvalidInput(f"{path}: is a folder, but not an OME-Zarr; it stays as it is")


def save_binary_masks(
    path: str | os.PathLike[str],
    labels: ArrayLike,
    *,
    scale: Scale | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    origin: Sequence[float] | None = None,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
    affine: ArrayLike | None = None,
    georeference: Sequence[Any] = (),
) -> list[Path]:
    """Save a mask for each label: 255 where the label is, 0 elsewhere; return the paths.

    The mask of label 2 goes to ``stem_2.tif``, or to ``stem_2_nucleus.tif`` if that is its name.
    Parameters and errors are those of `save_masks`; also InvalidInput if there is no label.

    Examples
    --------
    >>> paths = saf.save_binary_masks("mask.png", [[0, 1], [2, 2]], names={2: "nucleus"})
    >>> [path.name for path in paths]
    ['mask_1.png', 'mask_2_nucleus.png']
    """
    array = as_labels(labels, "labels")
    label_map = map_labels(array, names, colors)
    targets = binary_paths(path, label_map)
    if not targets:
        raise InvalidInput("labels: expected at least one pixel with a label, all are 0")
    for label, target in targets.items():
        mask = np.where(array == label, np.uint8(_INSIDE), np.uint8(0))
        name = {_INSIDE: names[label]} if names and label in names else None
        color = {_INSIDE: colors[label]} if colors and label in colors else None
        save_masks(
            target,
            mask,
            names=name,
            colors=color,
            scale=scale,
            units=units,
            axes=axes,
            origin=origin,
            affine=affine,
            georeference=georeference,
        )
    return list(targets.values())


def binary_paths(path: str | os.PathLike[str], label_map: LabelMap) -> dict[int, Path]:
    """Return the path of the binary mask of each label."""
    target = as_path(path)
    suffix, stem = mask_suffix(target) or target.suffix, mask_stem(target)
    width = len(str(label_map.numbers.max(initial=0)))
    paths = {}
    for label in label_map.numbers.tolist():
        name = label_map.names[label]
        end = "" if name == f"label {label}" else f"_{file_stem(name)}"
        paths[label] = target.with_name(f"{stem}_{label:0{width}d}{end}{suffix}")
    return paths


def _write_png(path: Path, mask: _Mask) -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    image, notes = Image.fromarray(mask.labels), PngInfo()
    if mask.labels.dtype == np.uint8:
        image.putpalette(_palette(mask.label_map).tobytes())
        notes.add_text(*PNG_MARK)
    notes.add_text(NOTE_KEY, mask.note)
    with path.open("wb") as file:
        image.save(file, format="PNG", pnginfo=notes)


def _write_nifti(path: Path, mask: _Mask) -> None:
    """Write voxels in the order x, y, z, time, aligned with the scan."""
    nibabel: Any = library("nibabel", "nifti")
    names, array = mask.axes.names, mask.labels
    if "z" not in names:
        names, array = names.replace("yx", "zyx"), np.expand_dims(array, names.index("y"))
    axes = mask.axes
    scale = [axes.scale.get(name, 1.0) for name in "xyz"]
    affine = np.diag([*scale, 1.0])
    affine[:3, 3] = [axes.origin.get(name, 0.0) for name in "xyz"]
    if mask.affine is not None:
        affine = own_floats(mask.affine, "affine").astype(np.float64)
    image = nibabel.Nifti1Image(array.T, affine, dtype=array.dtype)
    image.set_sform(affine, code="scanner")
    image.set_qform(affine, code="scanner", strip_shears=True)
    unit = {"µm": "micron", "m": "meter"}.get(axes.units.get("x", ""), "mm")
    image.header.set_xyzt_units(xyz=unit, t="sec")
    if "t" in names:
        image.header["pixdim"][4] = axes.scale.get("t", 1.0)
    note = nibabel.nifti1.Nifti1Extension("comment", mask.note.encode())
    image.header.extensions.append(note)
    with path.open("wb") as stream:
        content = image.to_bytes()
        stream.write(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _palette(label_map: LabelMap) -> NDArray[np.uint8]:
    """Return a colour for each index up to 255: black for 0 and unused indices."""
    palette = np.zeros((256, 3), np.uint8)
    palette[np.concatenate([[0], label_map.numbers])] = color_table(label_map)
    return palette


def _write_zarr(path: Path, mask: _Mask) -> None:
    import zarr

    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array(
        "s0",
        data=mask.labels,
        dimension_names=mask.axes.names,
        config={"write_empty_chunks": not mask.labels.any()},  # no chunks: damaged
    )
    shapes = [mask.labels.shape]
    described = describe_zarr(["s0"], shapes, mask.axes, mask.label_map, mask.note, mask.name)
    group.update_attributes(described)


def describe_zarr(
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    axes: Axes,
    label_map: LabelMap,
    note: str,
    name: str,
) -> JsonObject:
    """Return the attributes of an OME-Zarr 0.5 of labels, at the paths of levels of a pyramid."""
    numbers = label_map.numbers[:MOST_LABELS].tolist()  # objects may exceed it
    rows = zip(numbers, color_table(label_map)[1:].tolist(), strict=False)
    label_entry = {
        "version": OME_ZARR,
        "colors": [{"label-value": label, "rgba": [*color, 255]} for label, color in rows],
        "properties": [{"label-value": n, "name": label_map.names[n]} for n in numbers],
    }
    multiscale = describe_levels(paths, shapes, axes, name)
    ome = {"version": OME_ZARR, "multiscales": [multiscale], "image-label": label_entry}
    return {"ome": ome, NOTE_KEY: json.loads(note)}


def describe_levels(
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    axes: Axes,
    name: str,
    channels: int | None = None,
) -> JsonObject:
    """Return the OME-Zarr metadata of a pyramid, with a channel axis at a position if any.

    Levels are subsampled: a pixel is the first of those of the finest level that it covers.
    """
    kinds = {"t": "time"}
    described: list[dict[str, str]] = []
    for letter in axes.names:
        unit = spelled_out(axes.units.get(letter, "pixel"))
        axis = {"name": letter, "type": kinds.get(letter, "space")}
        described.append(axis if unit == "pixel" else axis | {"unit": unit})
    datasets = []
    for path, shape in zip(paths, shapes, strict=True):
        steps = [2 ** round(math.log2(a / b)) for a, b in zip(shapes[0], shape, strict=True)]
        scale = [axes.scale.get(n, 1.0) * k for n, k in zip(axes.names, steps, strict=True)]
        if channels is not None:
            scale.insert(channels, 1.0)
        transformations: list[JsonObject] = [{"type": "scale", "scale": scale}]
        if axes.origin:
            first = [axes.origin.get(name, 0.0) for name in axes.names]
            if channels is not None:
                first.insert(channels, 0.0)
            transformations.append({"type": "translation", "translation": first})
        datasets.append({"path": path, "coordinateTransformations": transformations})
    if channels is not None:
        described.insert(channels, {"name": "c", "type": "channel"})
    return {"axes": described, "datasets": datasets, "name": printable(name)}


def _write_tiff(path: Path, mask: _Mask) -> None:
    """Write an OME-TIFF whose first page also contains a description for ImageJ.

    With two descriptions OME and ImageJ can share a file, as each reads its own. tifffile writes
    no custom second description, so a text tag is converted to one afterwards.
    """
    import tifffile

    labels, axes = mask.labels, mask.axes
    density = [1 / axes.scale.get(name, 1.0) for name in "xy"]
    density = [value if 1e-6 < value < 1e6 else 1.0 for value in density]
    image_description, make, ascii_text = 270, 271, 2
    extra: list[Any] = [(make, ascii_text, 0, _imagej_description(labels, axes), True)]
    luts = {"LUTs": [_palette(mask.label_map).T]} if labels.dtype == np.uint8 else {}
    extra += tifffile.imagej_metadata_tag({TIFF_KEY: mask.note} | luts, "<")
    extra += mask.georeference
    with tifffile.TiffWriter(path, ome=True, bigtiff=labels.nbytes > 2**31, byteorder="<") as file:
        file.write(
            labels,
            compression="zlib",
            photometric="minisblack",
            metadata=ome_entries(axes, labels),
            resolution=(density[0], density[1]),
            resolutionunit="none",
            extratags=extra,
        )
    with tifffile.TiffFile(path) as file:
        offset = file.pages[0].tags[make].offset
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(image_description.to_bytes(2, "little"))


def ome_entries(axes: Axes, pixels: NDArray[Any]) -> dict[str, object]:
    digest = hashlib.sha256(np.ascontiguousarray(pixels).data).digest()
    # tifffile would derive it from the time: equal images would give different files.
    entries: dict[str, object] = {"axes": axes.names.upper(), "UUID": str(UUID(bytes=digest[:16]))}
    for name in axes.names:
        if name == "t" and axes.units.get("t", "pixel") == "pixel":
            continue  # a frame is not a unit of time
        key = "TimeIncrement" if name == "t" else f"PhysicalSize{name.upper()}"
        entries |= {key: axes.scale[name]} if axes.scale else {}
        entries |= {f"{key}Unit": axes.units[name]} if axes.units else {}
    return entries


def _imagej_description(labels: NDArray[Any], axes: Axes) -> str:
    """Return the image description in the format of ImageJ."""
    sides, scale = dict(zip(axes.names, labels.shape, strict=True)), axes.scale
    slices, frames = sides.get("z", 1), sides.get("t", 1)
    lines = ["ImageJ=1.54f"]
    if slices * frames > 1:
        lines += [f"images={slices * frames}", f"slices={slices}", f"frames={frames}"]
        lines += ["hyperstack=true"] * (slices > 1 and frames > 1)
    unit = axes.units.get("x", "pixel")
    unit = "micron" if unit == "µm" else unit
    lines += [f"unit={unit}"] if unit.isascii() else []
    lines += [f"spacing={scale['z']!r}"] if "z" in scale else []
    lines += [f"finterval={scale['t']!r}"] if "t" in scale else []
    # The lookup table covers the labels from 0 to 255.
    most = 255 if labels.dtype == np.uint8 else int(labels.max())
    return "\n".join([*lines, "loop=false", "min=0.0", f"max={most}.0", ""])


_WRITERS: dict[str, Callable[[Path, _Mask], None]] = {
    ".tif": _write_tiff,
    ".tiff": _write_tiff,
    ".png": _write_png,
    ".npy": lambda path, mask: np.save(path, mask.labels, allow_pickle=False),
    ".ome.zarr": _write_zarr,
    ".nii": _write_nifti,
    ".nii.gz": _write_nifti,
}
