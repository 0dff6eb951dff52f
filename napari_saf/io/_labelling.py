"""Label images with what is known of them, and their way back from a file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.errors import FormatError
from napari_saf.io._image import read_labels
from napari_saf.io._masks import label_axes
from napari_saf.io._note import check_color, check_name, read_note
from napari_saf.io._paths import LABELS_MARK, MASK_MARK, mask_stem
from napari_saf.io._recipe import PrototypeSet, load_recipe
from napari_saf.io._regions import region_table
from napari_saf.storage import format_errors


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Labelling:
    """A label image with what is known of it, in the terms of `save_masks` and `save_figure`.

    Names and colours are also those of the prototypes; the recipe repeats the run that made the
    labels; `plane` and `title` are for the figure. Where labels are of a slice or a part of an
    image, the `place` says how a layer of them lies over it: ``shape``, ``scale``, ``translate``
    and ``units`` along its axes, which of these are ``singletons``, that stand for one slice, and
    which ``axes`` of the image they are; ``channels`` is the one that stands for all channels.
    """

    labels: NDArray[Any]
    image: NDArray[Any] | None = None
    channel_axis: int | None = None
    scale: Sequence[float] | None = None
    units: Sequence[str] | None = None
    axes: str | None = None
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, Sequence[float]] = dataclasses.field(default_factory=dict)
    prototypes: PrototypeSet | None = None
    recipe: dict[str, Any] | None = None
    plane: tuple[int, ...] | None = None
    title: str = ""
    place: dict[str, Any] | None = None

    @property
    def all_names(self) -> Mapping[int, str]:
        """The names of labels; regions are called so."""
        if not (self.recipe or {}).get("regions"):
            return self.names
        return {n: f"region {n}" for n in range(1, int(self.labels.max()) + 1)} | dict(self.names)

    def table(
        self, connected: bool = False, min_pixels: int = 1, *, brief: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Measure the labels or their connected regions, see `region_table`."""
        return region_table(
            self.labels,
            self.image,
            scale=self.scale,
            units=self.units,
            axes=self.axes,
            names=self.all_names,
            channel_axis=self.channel_axis,
            connected=connected,
            min_pixels=min_pixels,
            brief=brief,
        )


def is_own_mask(path: Path) -> bool:
    """Tell whether a file, or a folder, is a mask that napari-saf wrote.

    It says so itself, or it is called like one (``photo_labels.tif``) and its recipe lies beside
    it. Damaged files are none.
    """
    try:
        return read_note(path) is not None or _recipe_beside(path) is not None
    except FormatError:
        return False


def read_mask(path: str | os.PathLike[str]) -> Labelling:
    """Read a label image and what it says of itself; nothing in the file is executed.

    Parameters
    ----------
    path : path
        Any label image that `read_labels` reads. What was said of it to `save_masks` comes back,
        and where it says nothing of a recipe that beside it.

    Raises
    ------
    FormatError
        As `read_labels`, and naming what is wrong with what the file says of itself.
    ComputeError
        If the image does not fit into memory.
    """
    file = Path(path)
    note, image = read_note(file), read_labels(file)
    own = Labelling(image.array, axes=image.axes or None, scale=image.scale, units=image.units)
    beside = _recipe_beside(file) if note is None or note.recipe is None else None
    if beside is not None:
        recipe = load_recipe(beside)
        own = dataclasses.replace(own, recipe=recipe.raw, prototypes=recipe.taught)
    if note is None:
        return own
    with format_errors(file, "a label image"):
        points = {one.label: np.array(one.prototypes) for one in note.labels if one.prototypes}
        n_axes = image.array.ndim
        if image.scale is None and len(note.axes) == n_axes:
            label_axes(n_axes, note.axes, note.scale, note.units)
            own = dataclasses.replace(own, axes=note.axes, scale=note.scale, units=note.units)
        return dataclasses.replace(
            own,
            names={one.label: check_name(one.label, one.name) for one in note.labels if one.name},
            colors={one.label: check_color(one.color) for one in note.labels if one.color},
            prototypes=PrototypeSet.from_points(points) if points else own.prototypes,
            recipe=note.recipe or own.recipe,
            place=None if note.place is None else note.place.model_dump(),
        )


def _recipe_beside(mask: Path) -> Path | None:
    """Return the recipe of a mask that is called like one, if there is one."""
    stem = mask_stem(mask)
    for mark in (LABELS_MARK, MASK_MARK):
        if stem.endswith(mark):
            names = (stem, stem.removesuffix(mark))
            found = [mask.with_name(f"{name}.recipe.json") for name in names]
            return next((recipe for recipe in found if recipe.is_file()), None)
    return None
