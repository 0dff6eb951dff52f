"""From a Labels layer and its image to files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels

from napari_saf._gui.layers.metadata import class_names, metadata_of, points_of
from napari_saf._gui.layers.placement import (
    image_region,
    pixels_of,
    positions_on_screen,
    squeezed_axes,
)
from napari_saf._gui.layers.reading import Index, read_pixels
from napari_saf.device import memory_errors_translated
from napari_saf.errors import SafError
from napari_saf.io import Export, Labelling, PrototypeSet, Wanted, count_labels

_LETTERS = {
    "time": "t",
    "frame": "t",
    "frames": "t",
    "depth": "z",
    "plane": "z",
    "slice": "z",
    "height": "y",
    "row": "y",
    "width": "x",
    "column": "x",
}
_TIMES = ("second", "millisecond", "microsecond", "nanosecond", "minute", "hour", "day")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelSource:
    """What a layer holds, as seen at a click; `read` is for the thread that writes."""

    data: Any
    index: Index
    colormap: Any
    image: Any
    image_index: Index
    known: Labelling

    def read(self, cancelled: Callable[[], bool]) -> Labelling:
        """Read the pixels, of which the layer may hold only a promise.

        Raises
        ------
        Cancelled
            If `cancelled` returned True between two pieces of an array.
        ComputeError
            If memory does not suffice.
        """
        with memory_errors_translated("choose a smaller part of the layers"):
            labels = read_pixels(self.data, self.index, cancelled).copy()
            image = self.image
            if image is not None:
                image = read_pixels(image, self.image_index, cancelled)
            present = count_labels(labels)[0]
            colors = self.colormap.map(present) if len(present) else np.empty((0, 4))
            colors = np.clip(np.asarray(colors, dtype=float), 0, 1)
            named = dict(zip(present.tolist(), colors.tolist(), strict=True))
            return dataclasses.replace(self.known, labels=labels, image=image, colors=named)


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, or those that are there already, which nothing was done to."""

    paths: list[Path]
    in_the_way: list[Path] = dataclasses.field(default_factory=list)


def write_files(
    source: LabelSource,
    path: Path,
    wanted: Wanted,
    may_replace: bool,
    cancelled: Callable[[], bool],
) -> Written:
    """Write the files that are wanted of a layer.

    Parameters
    ----------
    source : LabelSource
        What to write.
    path : Path
        A folder, made if only itself is missing, and what the names of the files begin with.
    wanted : Wanted
        Which files.
    may_replace : bool
        Whether files that are there may be replaced.
    cancelled : callable
        Asked before each file and while the layer is read.

    Raises
    ------
    Cancelled
        If nothing was written when it was cancelled.
    SafError
        If a file cannot be written; those before it are complete.
    """
    try:
        export = Export(path.parent, path.name, source.read(cancelled), wanted)
        if export.in_the_way and not may_replace:
            return Written([], export.in_the_way)
        path.parent.mkdir(exist_ok=True)
        return Written(export.write(cancelled))
    except OSError as error:
        raise SafError(f"{path.parent}: {error.strerror or error}") from error


def source_of(viewer: napari.Viewer, layer: Labels, image: Image | None) -> LabelSource:
    """Return what is exported of a layer, without its singleton axes outside the plane."""
    axes_kept = squeezed_axes(layer)
    region = None if image is None else image_region(layer, image)
    points = points_of(layer)
    known = Labelling(
        np.empty(0),
        scale=tuple(abs(float(layer.scale[axis])) for axis in axes_kept),
        units=tuple(str(layer.units[axis]) for axis in axes_kept),
        axes=_letters([(layer.axis_labels[a], str(layer.units[a])) for a in axes_kept]),
        names=class_names(layer),
        prototypes=PrototypeSet.from_points(points) if points else None,
        recipe=metadata_of(layer).get("recipe"),
        plane=tuple(positions_on_screen(viewer, layer, axes_kept[:-2]).values()),
        title="" if image is None else image.name,
        channel_axis=None if region is None else region[1],
    )
    # A colormap that shows the chosen label alone would leave the others black.
    colormap = layer.colormap.model_copy(update={"use_selection": False})
    return LabelSource(
        pixels_of(layer),
        tuple(slice(None) if axis in axes_kept else 0 for axis in range(layer.ndim)),
        colormap,
        None if image is None or region is None else pixels_of(image),
        () if region is None else region[0],
        known,
    )


def _letters(axes: list[tuple[str, str]]) -> str | None:
    """Return a letter for each axis by its name and unit, None for an unnamed axis."""
    letters = ["t" if unit in _TIMES else _LETTERS.get(name.lower(), name) for name, unit in axes]
    known = [letter for letter in letters if len(letter) == 1]
    rest = iter([letter for letter in "xyz" if letter not in known])
    if not known or len({*known}) < len(known):
        return None
    for k in reversed(range(len(letters))):
        if len(letters[k]) > 1:
            letters[k] = next(rest, "")
    return "".join(letters) if all(letters) else None
