"""Metadata note of a mask: names, colours, sizes, prototypes and recipe, as JSON in the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from napari_saf import storage
from napari_saf.arrays import JsonObject, check_kind
from napari_saf.io._labels import Axes, check_color, check_name
from napari_saf.io._paths import NIFTI_SUFFIXES, mask_stem, mask_suffix, printable
from napari_saf.io._readers import library
from napari_saf.io._recipe import LabelEntry, PrototypeSet

NOTE_KEY = "napari-saf"
"""Name of the PNG text chunk and of the OME-Zarr attribute that contain the note."""
TIFF_KEY = "Info"
"""Entry of the ImageJ metadata that contains the note in a TIFF; ImageJ preserves it."""
_IMAGEJ_METADATA, _NIFTI_COMMENT = 50839, 6
_KIND = "labels"
_MOST_CHARACTERS = 2**24
_MOST_ZARR_BYTES = 2**26
"""Maximum size of the attributes of an OME-Zarr: the indented note, names and colours."""
_MOST_COLORS = 255
"""Number of stored colours; those of larger labels repeat on screen."""


class MaskPlace(storage.FileModel):
    """Placement of a layer of the labels over its image, see `Labelling`."""

    shape: list[Annotated[int, Field(gt=0)]]
    scale: list[Annotated[float, Field(gt=0)]]
    translate: list[float]
    units: list[str]
    affine: list[list[float]] | None = None
    axes: list[int] | None = None
    singletons: list[int] | None = None
    channels: int | None = None

    def to_plain(self) -> JsonObject:
        """Return the entries, without a missing affine."""
        return self.model_dump(exclude=None if self.affine is not None else {"affine"})

    @model_validator(mode="after")
    def _check_lengths(self) -> MaskPlace:
        n_axes = len(self.shape)
        lengths = {len(self.scale), len(self.translate), len(self.units)}
        lengths.add(len(self.axes or self.shape))
        alone = self.singletons or []
        if self.affine is not None:
            check_affine(self.affine, n_axes)
        if lengths != {n_axes} or not all(0 <= k < n_axes and self.shape[k] == 1 for k in alone):
            raise ValueError("expected an entry for each axis")
        return self


def check_affine(affine: Sequence[Sequence[float]], n_axes: int) -> None:
    """Raise ValueError unless an affine (n_axes + 1, n_axes + 1) is invertible."""
    matrix = np.array(affine, float)
    is_square = matrix.shape == (n_axes + 1, n_axes + 1)
    if not (is_square and np.isfinite(matrix).all() and np.linalg.det(matrix) != 0):
        raise ValueError(f"expected an affine of {n_axes + 1} rows that can be inverted")
    if matrix[-1].tolist() != [0.0] * n_axes + [1.0]:
        raise ValueError("expected an affine with a last row of 0 and a 1")


class MaskNote(storage.VersionedModel):
    """Entries of a note; the recipe is checked where it is used."""

    kind: Literal["labels"]
    axes: str
    scale: list[float] | None = None
    units: list[str] | None = None
    labels: list[LabelEntry]
    recipe: JsonObject | None = None
    place: MaskPlace | None = None


def write_note(
    axes: Axes,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
    prototypes: PrototypeSet | None = None,
    recipe: Mapping[str, Any] | None = None,
    place: Mapping[str, Any] | None = None,
) -> str:
    """Return the note of a mask, in ASCII; arguments are those of `save_masks`.

    Prototypes and recipe are left out if too long, or if the recipe cannot be stored as JSON.
    """
    rows: dict[int, dict[str, object]] = {}
    if prototypes is not None:
        check_kind(prototypes, PrototypeSet, "prototypes", "a PrototypeSet")
    for entry in [] if prototypes is None else prototypes.entries():
        rows[entry["label"]] = entry
    for label, name in (names or {}).items():
        rows.setdefault(label, {"label": int(label)})["name"] = printable(check_name(label, name))
    for label, color in (colors or {}).items():
        if label <= _MOST_COLORS:
            values = [round(value, 4) for value in check_color(color)[:3]]
            rows.setdefault(label, {"label": int(label)})["color"] = values
    note = {
        "schema": 1,
        "kind": _KIND,
        "axes": axes.names,
        "scale": [axes.scale[name] for name in axes.names] if axes.scale else None,
        "units": [axes.units[name] for name in axes.names] if axes.units else None,
        "labels": [rows[label] for label in sorted(rows)],
        "recipe": recipe,
        "place": place,
    }
    try:
        text = json.dumps(note, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        if recipe is None:
            raise
        return write_note(axes, names, colors, prototypes, None, place)
    if len(text) > _MOST_CHARACTERS and (prototypes or recipe):
        return write_note(axes, names, colors, None, None, place)
    return text


def note_path(path: Path) -> Path:
    """Return the path of the JSON file with the note of a ``.npy`` mask."""
    return path.with_name(f"{mask_stem(path)}.json")


def read_note(path: Path) -> MaskNote | None:
    """Return the note of a mask, None for other files; raise FormatError if damaged."""
    read = {".tif": _of_tiff, ".tiff": _of_tiff, ".png": _of_png, ".npy": _of_npy}
    read |= dict.fromkeys(NIFTI_SUFFIXES, _of_nifti)
    suffix = mask_suffix(path)
    with storage.format_errors(path, "a label image"):
        plain = _of_zarr(path) if path.is_dir() else read[suffix](path) if suffix in read else None
        if not isinstance(plain, dict) or plain.get("kind") != _KIND:
            return None
        return storage.validated(MaskNote, plain)


def _parsed(text: object) -> object:
    """Return the parsed content of a text that may be a note, None if it is not."""
    if not isinstance(text, str) or not text.startswith("{") or len(text) > _MOST_CHARACTERS:
        return None
    try:
        return storage.parse_json(text)
    except ValueError:  # of another program
        return None


def _of_tiff(path: Path) -> object:
    import tifffile

    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags.get(_IMAGEJ_METADATA)
        if tag is None or tag.count > 4 * _MOST_CHARACTERS:
            return None
        return _parsed(tag.value.get(TIFF_KEY)) if isinstance(tag.value, dict) else None


def _of_png(path: Path) -> object:
    from PIL import Image

    with Image.open(path, formats=["PNG"]) as picture:
        return _parsed(picture.info.get(NOTE_KEY))


def _of_nifti(path: Path) -> object:
    header: Any = library("nibabel", "nifti").load(path).header
    comments = [item for item in header.extensions if item.get_code() == _NIFTI_COMMENT]
    contents = [item.get_content() for item in comments]
    texts = (x.decode(errors="replace") if isinstance(x, bytes) else x for x in contents)
    return next(filter(None, map(_parsed, texts)), None)


def _of_npy(path: Path) -> object:
    note = note_path(path)
    return storage.read_json(note) if note.is_file() else None


def _of_zarr(path: Path) -> object:
    return zarr_attributes(path).get(NOTE_KEY)


def zarr_attributes(path: Path) -> JsonObject:
    """Return the attributes of a zarr group or array, of format 2 or 3; may be empty."""
    for name in ("zarr.json", ".zattrs"):
        file = path / name
        if file.is_file():
            plain = storage.parse_json(storage.read_limited(file, _MOST_ZARR_BYTES))
            if name == "zarr.json" and isinstance(plain, dict):
                plain = plain.get("attributes")
            return plain if isinstance(plain, dict) else {}
    return {}
