"""From a Labels layer and its image to files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.layers.metadata import class_names, points_of, raw_recipe
from napari_saf._gui.layers.placement import (
    channel_axis_of,
    image_axes_of,
    image_region,
    pixels_of,
    positions_on_screen,
    squeezed_axes,
)
from napari_saf._gui.layers.reading import Pixels
from napari_saf.device import memory_errors_translated
from napari_saf.errors import SafError
from napari_saf.io import Export, Labelling, PrototypeSet, Wanted, count_labels

_AXIS_NAMES = {
    "t": ("time", "frame", "frames"),
    "z": ("depth", "plane", "slice"),
    "y": ("height", "row"),
    "x": ("width", "column"),
}
_LETTERS = {name: letter for letter, names in _AXIS_NAMES.items() for name in names}
_TIMES = ("second", "millisecond", "microsecond", "nanosecond", "minute", "hour", "day")


def labelling_reader(
    viewer: napari.Viewer, layer: Labels, image: Image | None
) -> Callable[[Callable[[], bool]], Labelling]:
    """Return what reads a layer as it is now, without its singleton axes outside the plane.

    It is called in the thread that writes: of the pixels the layer may hold only a promise.
    """
    axes = squeezed_axes(layer)
    index = tuple(slice(None) if axis in axes else 0 for axis in range(layer.ndim))
    labels, pixels = Pixels(pixels_of(layer), index), None
    region = None if image is None else image_region(layer, image)
    if image is not None and region is not None:
        pixels = Pixels(pixels_of(image), region[0])
    points = points_of(layer)
    # A colormap that shows the chosen label alone would leave the others black.
    colormap = layer.colormap.model_copy(update={"use_selection": False})
    known = Labelling(
        np.empty(0),
        scale=tuple(abs(float(layer.scale[axis])) for axis in axes),
        units=tuple(str(layer.units[axis]) for axis in axes),
        axes=_letters([(layer.axis_labels[a], str(layer.units[a])) for a in axes]),
        names=class_names(layer),
        prototypes=PrototypeSet.from_points(points) if points else None,
        recipe=raw_recipe(layer),
        plane=tuple(positions_on_screen(viewer, layer, axes[:-2]).values()),
        title="" if image is None else image.name,
        channel_axis=None if region is None else region[1],
        place=_place_of(layer),
    )

    def read(cancelled: Callable[[], bool]) -> Labelling:
        with memory_errors_translated("choose a smaller part of the layers"):
            own = labels.read(cancelled).copy()
            shown = None if pixels is None else pixels.read(cancelled)
            present = count_labels(own)[0]
            colors = colormap.map(present) if len(present) else np.empty((0, 4))
            colors = np.clip(np.asarray(colors, dtype=float), 0, 1)
            named = dict(zip(present.tolist(), colors.tolist(), strict=True))
            return dataclasses.replace(known, labels=own, image=shown, colors=named)

    return read


def _place_of(layer: Labels) -> dict[str, Any] | None:
    """Return how a layer of one slice or a part of an image lies over it; None for others."""
    own = image_axes_of(layer)
    if not np.any(layer.translate) and (own is None or not own[1]):
        return None
    place = {
        "shape": list(pixels_of(layer).shape),
        "scale": np.abs(layer.scale).tolist(),
        "translate": np.asarray(layer.translate).tolist(),
        "units": [str(unit) for unit in layer.units],
    }
    found = {} if own is None else {"axes": list(own[0]), "singletons": list(own[1])}
    return place | found | {"channels": channel_axis_of(layer)}


def measure(
    read: Callable[[Callable[[], bool]], Labelling],
    wanted: Wanted,
    cancelled: Callable[[], bool],
) -> tuple[Mapping[str, NDArray[Any]] | str, Mapping[int, Sequence[float]]]:
    """Return the table of a layer, or why there is none, and the colours of its labels."""
    try:
        labelling = read(cancelled)
        table = labelling.table(wanted.connected, wanted.min_pixels, brief=True)
        return table, labelling.colors
    except SafError as error:
        return f"{error}.", {}


def write_files(
    read: Callable[[Callable[[], bool]], Labelling],
    path: Path,
    wanted: Wanted,
    may_replace: bool,
    cancelled: Callable[[], bool],
) -> tuple[list[Path], list[Path]]:
    """Write the files that are wanted; return them, or else those that are there already.

    The path is a folder, made if only itself is missing, and what the names begin with. Cancelled
    is raised if nothing was read by then; after a SafError the files before are complete.
    """
    try:
        export = Export(path.parent, path.name, read(cancelled), wanted)
        if export.in_the_way and not may_replace:
            return [], export.in_the_way
        path.parent.mkdir(exist_ok=True)
        return export.write(cancelled), []
    except OSError as error:
        raise SafError(f"{path.parent}: {error.strerror or error}") from error


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
