"""From a Labels layer and its image to objects, their measures and files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.layers.metadata import class_names
from napari_saf._gui.layers.placement import image_region, pixels_of, squeezed_axes
from napari_saf._gui.layers.reading import Pixels
from napari_saf.io import MASK_SUFFIXES, TABLE_SUFFIXES, mask_suffix, save_masks, save_table
from napari_saf.objects import (
    OBJECT_SUFFIXES,
    Objects,
    Parts,
    find_parts,
    object_table,
    save_objects,
)

Cancelled = Callable[[], bool]
Measures = dict[str, NDArray[Any]]
HELP = {
    "smallest": "Pixels: what is smaller joins the object that it touches, or is left out.",
    "neck": "Per cent by which a neck (of volumes: its section) is less than the narrower part.",
    "image": "For the brightness of each object; objects are split at its edges, too.",
    "uncertainty": "Where labels are uncertain (0 to 1), objects are split, too.",
    "split": "Find the single objects of the ticked kinds.",
    "merge": "Make one object of the chosen ones (same kind).",
    "cut": "Then draw a line across an object in the image: it is cut there.",
    "delete": "Take the chosen objects away.",
    "new": "Paint a new object, of the first ticked kind, with napari's brush.",
    "keep": "Take away all objects but those that the table shows.",
    "undo": "Take the last correction back.",
    "redo": "Do again what was taken back.",
    "track": "Follow objects through the slices, frames of a series, by the distance of centroids, "
    "or by overlap, for long or large things (needs laptrack).",
    "save": "Save as table (.csv, .parquet), for QuPath (.geojson), ImageJ (.zip), COCO (.json) "
    "or as a mask (.tif, .png, .npy, .ome.zarr): the ending says which.",
}
SAVE_FILTER = (
    "Table (*.csv *.parquet);;QuPath (*.geojson);;ImageJ ROIs (*.zip);;COCO (*.json);;"
    "Mask (*.tif *.png *.npy *.ome.zarr)"
)
_KNOWN = (*TABLE_SUFFIXES, *OBJECT_SUFFIXES, *MASK_SUFFIXES)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The layers that objects are read from, as they are when it is made.

    Axes of one pixel, which stand for the slice that was labelled, are left out. Pixels are read in
    the thread that works: of those the layers may hold only a promise.
    """

    layer: Labels
    labels: Pixels
    axes: tuple[int, ...]
    names: Mapping[int, str]
    image: Pixels | None
    uncertainty: Pixels | None
    placed: dict[str, Any]  # arguments of object_table

    @classmethod
    def of(
        cls, layer: Labels, image: Image | None, uncertainty: Image | None, *, by_slice: bool
    ) -> Source:
        axes = tuple(squeezed_axes(layer))
        index = tuple(slice(None) if axis in axes else 0 for axis in range(layer.ndim))
        region = None if image is None else image_region(layer, image)
        doubt = None if uncertainty is None else image_region(layer, uncertainty)
        placed = {
            "scale": [abs(float(layer.scale[axis])) for axis in axes],
            "units": [str(layer.units[axis]) for axis in axes],
            "channel_axis": None if region is None else region[1],
            "axis": 0 if by_slice and len(axes) > 2 else None,
        }
        return cls(
            layer,
            Pixels(pixels_of(layer), index),
            axes,
            class_names(layer),
            None if region is None else Pixels(pixels_of(image), region[0]),
            None if doubt is None else Pixels(pixels_of(uncertainty), doubt[0]),
            placed,
        )

    def find_parts(self, kinds: Sequence[int], cancelled: Cancelled) -> Parts:
        parts, _ = find_parts(
            self.labels.read(cancelled),
            image=None if self.image is None else self.image.read(cancelled),
            channel_axis=self.placed["channel_axis"],
            uncertainty=None if self.uncertainty is None else self.uncertainty.read(cancelled),
            spacing=self.placed["scale"],
            axis=self.placed["axis"],
            kinds=kinds,
        )
        return parts

    def join(
        self, parts: Parts, smallest: int, neck: float, cancelled: Cancelled
    ) -> tuple[Objects, Measures]:
        joined = parts.join(smallest=smallest, neck=neck)
        objects = dataclasses.replace(joined, names=self.names)
        return objects, self.measure(objects, cancelled)

    def measure(self, objects: Objects, cancelled: Cancelled) -> Measures:
        image = None if self.image is None else self.image.read(cancelled)
        return object_table(objects, image, **self.placed)

    def in_layer(self, numbers: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        """Return numbers with the axes of the layer."""
        gaps = (axis not in self.axes for axis in range(self.layer.ndim))
        return numbers[tuple(np.newaxis if gap else slice(None) for gap in gaps)]

    def save(self, path: Path, objects: Objects, cancelled: Cancelled) -> Path:
        """Save what the suffix says, .csv where it says nothing; return the path."""
        suffix = mask_suffix(path, _KNOWN)
        if suffix is None:
            path = path.with_name(f"{path.name}.csv")
        if suffix in OBJECT_SUFFIXES:
            save_objects(path, objects)
        elif suffix in MASK_SUFFIXES:
            save_masks(path, objects.labels, scale=self.placed["scale"], units=self.placed["units"])
        else:
            save_table(path, self.measure(objects, cancelled) or {"object": np.zeros(0, int)})
        return path
