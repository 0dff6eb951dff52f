"""One mask a label."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from napari_saf.errors import InvalidInput
from napari_saf.io._legend import Legend
from napari_saf.io._masks import save_masks
from napari_saf.io._paths import file_stem, mask_stem, mask_suffix

__all__ = ["binary_paths", "save_binary_masks"]

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
