"""Measurement of objects as a table with one row per object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_array
from napari_saf.io import Axes, Scale, count_labels, image_channels, label_axes, region_table
from napari_saf.objects._split import (
    NECK,
    SMALLEST,
    Objects,
    check_objects,
    ground_label,
    split_objects,
)
from napari_saf.parameters import check_bounds, documented, parameter

Table = dict[str, NDArray[Any]]


def spacing_of(axes: Axes, scale: Scale | None) -> tuple[Scale | None, str]:
    """Return the spacing for the split, and a note if units differ."""
    if scale is None or axes.common_unit is not None:
        return scale, ""
    units = ", ".join(f"{name} {axes.units.get(name, 'pixel')}" for name in axes.names)
    return None, f"units differ ({units}): objects are split with equal pixel sizes along all axes"


def object_table(
    objects: Objects,
    image: ArrayLike | None = None,
    *,
    scale: Sequence[float] | NDArray[np.floating[Any]] | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    channel_axis: int | None = None,
    axis: int | None = None,
) -> Table:
    """Measure objects as a table; see `save_table`.

    Parameters
    ----------
    objects : Objects
        See `split_objects`.
    image, scale, units, axes, channel_axis
        As for `region_table`.
    axis : int, optional
        Axis along which the objects were split slice by slice; adds a column ``slice``, the slice
        index of each object.

    Returns
    -------
    dict of str to array
        Columns of equal length: kind, name, object, and those of `region_table` from pixels on;
        empty without objects.

    Raises
    ------
    InvalidInput
        As `region_table`.

    Examples
    --------
    >>> objects = saf.split_objects([[1, 1, 0], [2, 2, 2]], smallest=1)
    >>> table = saf.object_table(objects, scale=(2, 2), units="um")
    >>> table["kind"].tolist(), table["area_um2"].tolist()
    ([1, 2], [8.0, 12.0])
    """
    check_objects(objects)
    if not objects.labels.any():
        return {}
    numbers, pixels = objects.labels, None if image is None else as_array(image, "image")
    if axis is not None:
        # Slices are measured one by one, like frames.
        n_axes = numbers.ndim
        if pixels is not None:
            pixels = image_channels(pixels, numbers, channel_axis)
            pixels, channel_axis = np.moveaxis(pixels, axis % n_axes, 0), -1
        numbers, axes = np.moveaxis(numbers, axis, 0), "t" + "zyx"[1 - n_axes :]
        order = [axis % n_axes, *(k for k in range(n_axes) if k != axis % n_axes)]
        scale = None if scale is None else as_array(scale, "scale")[..., order]
        units = units if units is None or isinstance(units, str) else [units[k] for k in order]
    table = region_table(
        objects.kinds[numbers],
        pixels,
        regions=numbers,
        scale=scale,
        units=units,
        axes=axes,
        names=objects.names,
        channel_axis=channel_axis,
    )
    titles = {"label": "kind", "region": "object"} | ({} if axis is None else {"frame": "slice"})
    return {titles.get(name, name): column for name, column in table.items()}


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class ObjectStep:
    """Parameters of `split_objects`, for recipes, commands and forms.

    Examples
    --------
    >>> labels = np.kron([[1, 0, 1], [0, 0, 2]], np.ones((8, 8), int))
    >>> objects, measures = saf.ObjectStep(kinds=(1,)).run(labels, None)
    >>> measures["pixels"].tolist()
    [64, 64]
    """

    smallest: int = parameter(
        SMALLEST,
        bounds=(1, None),
        label="Smallest",
        help="Minimum size of an object in pixels; smaller ones are merged into an object that "
        "they touch, or removed.",
    )
    neck: float = parameter(
        NECK,
        bounds=(0, 1),
        step=0.01,
        ends=("more objects", "fewer objects"),
        advanced=True,
        label="Neck",
        help="Relative neck depth for a split: two parts become two objects if the neck between "
        "them is narrower than the narrower part by this share of its width (in volumes, of its "
        "cross-section).",
    )
    kinds: tuple[int, ...] | Literal["all"] | None = parameter(
        None,
        label="Kinds",
        none="all but the ground",
        help="Split these labels only. By default the ground is left out: the largest of several "
        "labels, if it covers a quarter of the image or more, and more than is unlabelled.",
    )
    by_slice: bool = parameter(
        False,
        label="By slice",
        help="Split each slice of a volume separately, along its first axis.",
    )
    by_uncertainty: bool = parameter(
        True,
        label="By uncertainty",
        help="Also split objects where labels from strokes on the same image are uncertain.",
    )

    def __post_init__(self) -> None:
        kinds: Any = self.kinds
        if isinstance(kinds, list | np.ndarray):  # of a file
            object.__setattr__(self, "kinds", tuple(np.asarray(kinds).tolist()))
        check_bounds(self)

    def run(
        self,
        labels: NDArray[Any],
        image: NDArray[Any] | None,
        *,
        uncertainty: NDArray[Any] | None = None,
        names: Mapping[int, str] | None = None,
        scale: Scale | None = None,
        units: Sequence[str] | None = None,
        axes: str | None = None,
        channel_axis: int | None = None,
    ) -> tuple[Objects, Table]:
        """Split and measure objects, frames of a series one by one."""
        is_series = (axes or "").startswith("t")
        axis = 0 if is_series or (self.by_slice and labels.ndim > 2) else None
        pixel_axes = label_axes(labels.ndim, axes, scale, units)
        spacing, note = spacing_of(pixel_axes.of_frame if is_series else pixel_axes, scale)
        numbers, counts = count_labels(labels)
        sizes = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        kinds, left_out = self.labels_to_split(sizes, labels.size)
        objects = split_objects(
            labels,
            image=image,
            channel_axis=channel_axis,
            uncertainty=uncertainty,
            spacing=spacing,
            smallest=self.smallest,
            neck=self.neck,
            axis=axis,
            kinds=kinds,
        )
        notes = (*objects.notes, *filter(None, [note, left_out]))
        objects = dataclasses.replace(objects, names=dict(names or {}), notes=notes)
        table = object_table(
            objects,
            image,
            channel_axis=channel_axis,
            axis=None if is_series else axis,
            scale=scale,
            units=units,
            axes=axes,
        )
        return objects, table

    def labels_to_split(
        self, sizes: Mapping[int, int], n_pixels: int
    ) -> tuple[Sequence[int] | None, str]:
        """Return the labels to split, None for all, and a note if the ground is left out.

        `sizes` are the pixel counts of the labels above 0; `n_pixels` includes those of label 0.
        """
        if self.kinds is not None:
            return (None if isinstance(self.kinds, str) else self.kinds), ""
        labels = sorted(sizes)
        ground = ground_label(labels, [sizes[label] for label in labels], n_pixels)
        if ground is None:
            return None, ""
        note = f"kinds: label {ground} is left out as the ground, all others are split"
        return [label for label in labels if label != ground], note

    def notes_on(self, objects: Any) -> tuple[str, ...]:
        """Return the notes of objects in memory or on disk, and which kinds have none."""
        notes: tuple[str, ...] = objects.notes
        expected_kinds = () if isinstance(self.kinds, str) else self.kinds or ()
        missing = sorted({*expected_kinds} - {*objects.kinds.tolist()})
        if not missing:
            return notes
        expected = f"expected labels with objects of {self.smallest} pixels or more"
        return (*notes, f"kinds: {expected}, got {', '.join(map(str, missing))}")
