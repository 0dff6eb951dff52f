"""One mask a label, and what stands for the labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput
from napari_saf.io._legend import Legend, file_stem
from napari_saf.io._masks import mask_stem, mask_suffix, save_masks
from napari_saf.io._replace import replacing

__all__ = ["PROTOTYPE_SUFFIXES", "binary_paths", "save_binary_masks", "save_prototypes"]

PROTOTYPE_SUFFIXES = (".npy", ".csv")
"""What the name of a file of prototypes may end in."""
_INSIDE = 255


def save_binary_masks(
    path: str | os.PathLike[str],
    labels: ArrayLike,
    *,
    scale: Sequence[float] | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
) -> list[Path]:
    """Save a mask for each label: 255 where the label is, 0 elsewhere.

    Parameters
    ----------
    path : path
        As in `save_masks`; the mask of label 2 goes to ``stem_2.tif``, or to
        ``stem_2_nucleus.tif`` if that is its name.
    labels, scale, units, axes, names, colors
        As in `save_masks`.

    Returns
    -------
    list of Path
        What was written, by label.

    Raises
    ------
    InvalidInput
        As `save_masks`, and if there is no label.
    SafError
        If a file cannot be written.
    """
    array = np.asarray(labels)
    targets = binary_paths(path, Legend.of(array, names, colors))
    if not targets:
        raise InvalidInput("labels: expected at least one pixel with a label, all are 0")
    for label, target in targets.items():
        mask = np.where(array == label, np.uint8(_INSIDE), np.uint8(0))
        name = {_INSIDE: names[label]} if names and label in names else None
        color = {_INSIDE: colors[label]} if colors and label in colors else None
        save_masks(target, mask, scale=scale, units=units, axes=axes, names=name, colors=color)
    return list(targets.values())


def binary_paths(path: str | os.PathLike[str], legend: Legend) -> dict[int, Path]:
    """Return where `save_binary_masks` puts the mask of each label."""
    target = Path(path)
    suffix, stem = mask_suffix(target) or target.suffix, mask_stem(target)
    width = len(str(max(legend.labels.tolist(), default=0)))
    found = {}
    for label, name in zip(legend.labels.tolist(), legend.names, strict=True):
        words = "" if name == f"label {label}" else f"_{file_stem(name)}"
        found[label] = target.with_name(f"{stem}_{label:0{width}d}{words}{suffix}")
    return found


def save_prototypes(path: str | os.PathLike[str], prototypes: ArrayLike) -> Path:
    """Save prototypes, a row a label, as ``--prototypes`` of the command line reads them.

    Labels without pixels, whose prototypes are not finite, are left out.

    Parameters
    ----------
    path : path
        Ends in ``.npy`` or ``.csv`` (comma separated, no header).
    prototypes : array of shape (n_prototypes, n_features)
        Row l - 1 stands for label l.

    Raises
    ------
    InvalidInput
        If the suffix is unknown or there are no prototypes.
    SafError
        If the file cannot be written.
    """
    target, rows = Path(path), np.asarray(prototypes, dtype=np.float32)
    suffix = target.suffix.lower()
    if suffix not in PROTOTYPE_SUFFIXES:
        known = ", ".join(PROTOTYPE_SUFFIXES)
        raise InvalidInput(f"{target}: expected a name that ends in {known}")
    if rows.ndim != 2:
        raise InvalidInput(f"prototypes: expected a row for each, got shape {rows.shape}")
    rows = rows[np.isfinite(rows).all(axis=1)]
    if not rows.size:
        raise InvalidInput("prototypes: expected at least one of finite numbers")
    with replacing(target) as temporary:
        _write_rows(temporary, rows, suffix)
    return target


def _write_rows(path: Path, rows: NDArray[np.float32], suffix: str) -> None:
    if suffix == ".npy":
        with path.open("wb") as file:
            np.save(file, rows, allow_pickle=False)
        return
    # repr of a float32 is the shortest text that gives it back.
    lines = [",".join(str(value) for value in row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
