"""Reading of Labels layers and writing of the files of the Export dock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.layers import metadata, placement
from napari_saf._gui.layers.large import is_large
from napari_saf._gui.layers.live import N_COLORS
from napari_saf._gui.layers.reading import Pixels
from napari_saf.device import memory_errors_translated
from napari_saf.errors import SafError, raise_if
from napari_saf.io import (
    Export,
    ExportSelection,
    Labelling,
    PrototypeSet,
    count_labels,
    origin_of,
    scale_of,
)
from napari_saf.project import FileReference

_OBJECTS = "The dock Objects saves table and outlines of objects, with their kinds."
_LARGE = "For labels that are not in memory, only tables, outlines and the recipe can be saved."
_NOT_OURS = "These labels have no prototypes: they were not computed by napari-saf."
_AXIS_NAMES = {
    "t": ("time", "frame", "frames"),
    "z": ("depth", "plane", "slice"),
    "y": ("height", "row"),
    "x": ("width", "column"),
}
_LETTERS = {name: letter for letter, names in _AXIS_NAMES.items() for name in names}
_NUMBERS = np.arange(N_COLORS + 1)
_TIMES = ("second", "millisecond", "microsecond", "nanosecond", "minute", "hour", "day")


def is_read_in_parts(layer: Labels) -> bool:
    """Return whether labels are read in parts; those with axes of length 1 are read whole."""
    return is_large(layer) and len(placement.squeezed_axes(layer)) == layer.ndim


def labelling_reader(
    viewer: napari.Viewer,
    layer: Labels,
    image: Image | None,
    maps: Callable[[], Mapping[int, NDArray[np.floating]]] = dict,
) -> Callable[[Callable[[], bool]], Labelling]:
    """Return a function that reads a layer in its current state, without leading singleton axes.

    The worker thread calls it, as the pixels may be lazy. It also calls `maps`, which returns the
    probability maps to save.
    """
    axes = placement.squeezed_axes(layer)
    index = tuple(slice(None) if axis in axes else 0 for axis in range(layer.ndim))
    labels, pixels = Pixels(placement.pixels_of(layer), index), None
    region = None if image is None else placement.image_region(layer, image)
    if image is not None and region is not None:
        pixels = Pixels(placement.pixels_of(image), region[0])
    points, world = metadata.points_of(layer), placement.world_affine(layer)
    # With `use_selection` all labels but the selected one would be black.
    colormap = layer.colormap.model_copy(update={"use_selection": False})
    labelling = Labelling(
        np.empty(0),
        scale=scale_of(world, axes),
        units=tuple(str(layer.units[axis]) for axis in axes),
        axes=_letters([(layer.axis_labels[a], str(layer.units[a])) for a in axes]),
        names=metadata.class_names(layer),
        prototypes=PrototypeSet.from_points(points) if points else None,
        recipe=metadata.raw_recipe(layer),
        plane=tuple(placement.positions_on_screen(viewer, layer, axes[:-2]).values()),
        title="" if image is None else image.name,
        channel_axis=None if region is None else region[1],
        place=placement.place_entry(layer),
        origin=origin_of(world, axes),
    )

    def colors_of(numbers: NDArray[np.integer]) -> dict[int, Any]:
        colors = colormap.map(numbers) if len(numbers) else np.empty((0, 4))
        colors = np.clip(np.asarray(colors, dtype=float), 0, 1)
        return dict(zip(numbers.tolist(), colors.tolist(), strict=True))

    def read(cancelled: Callable[[], bool]) -> Labelling:
        if is_read_in_parts(layer):
            under, colors = None if pixels is None else pixels.data, colors_of(_NUMBERS)
            return dataclasses.replace(labelling, labels=labels.data, image=under, colors=colors)
        with memory_errors_translated("choose a smaller part of the layers"):
            array = labels.read(cancelled).copy()
            return dataclasses.replace(
                labelling,
                labels=array,
                image=None if pixels is None else pixels.read(cancelled),
                colors=colors_of(count_labels(array)[0]),
                probabilities={n: values.reshape(array.shape) for n, values in maps().items()},
            )

    return read


def measure(
    read: Callable[[Callable[[], bool]], Labelling],
    selection: ExportSelection,
    cancelled: Callable[[], bool],
) -> tuple[Mapping[str, NDArray[Any]] | str, Mapping[int, Sequence[float]]]:
    """Return the table of a layer, or the reason why it has none, and the label colours."""
    try:
        labelling = read(cancelled)
        table = labelling.table(selection.connected, selection.min_pixels, brief=True)
        return table, labelling.colors
    except SafError as error:
        return f"{error}.", {}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ExportRequest:
    """The files to write for a Labels layer, as read from the form.

    `path` is a folder, created if its parent exists, and the prefix of the file names.
    """

    image: Image | None
    read: Callable[[Callable[[], bool]], Labelling]
    path: Path
    selection: ExportSelection
    may_replace: bool = False


def write_files(
    request: ExportRequest,
    report: Callable[[tuple[float, str]], object],
    cancelled: Callable[[], bool],
) -> tuple[list[FileReference], list[Path], str]:
    """Write the selected files; return the written ones, the existing ones, and a note.

    Nothing is written if files exist. The note names the parts of the transform that the files do
    not hold. Raises Cancelled if stopped while reading; after a SafError, earlier files are
    complete.
    """

    def follow(file: Path, fraction: float) -> None:
        raise_if(cancelled)
        report((fraction, f"writing {file.name}"))

    path = request.path
    try:
        labelling = request.read(cancelled)
        export = Export(path.parent, path.name, labelling, request.selection, follow)
        if export.in_the_way and not request.may_replace:
            return [], export.in_the_way, ""
        path.parent.mkdir(exist_ok=True)
        return [FileReference.of(file) for file in export.write()], [], export.note
    except OSError as error:
        raise SafError(f"{path.parent}: {error.strerror or error}") from error


def why_not_written(labels: Labels | None, why_no_recipe: str, why_no_maps: str) -> dict[str, str]:
    """Return the reason why each kind of file cannot be written; empty if it can."""
    are_objects = labels is not None and metadata.OBJECTS_KEY in labels.metadata
    is_large = labels is not None and is_read_in_parts(labels)
    has_prototypes = labels is not None and metadata.prototypes_of(labels) is not None
    return {
        "recipe": f"No recipe: {why_no_recipe}." if why_no_recipe else "",
        "prototypes": "" if has_prototypes else _NOT_OURS,
        "probabilities": f"{why_no_maps.capitalize()}." if why_no_maps else "",
        **dict.fromkeys(("regions", "outlines"), _OBJECTS if are_objects else ""),
        **dict.fromkeys(("masks", "binary", "numbered", "figure"), _LARGE if is_large else ""),
    }


def replacing_texts(n_files: int) -> tuple[str, str]:
    """Return the verb for files that exist, and the text of a button that replaces them."""
    return ("are", f"Replace these {n_files}") if n_files > 1 else ("is", "Replace it")


def opened_text(layer: Labels) -> str:
    """Return the name of an opened mask, with the metadata that it holds."""
    parts = {
        "names": metadata.class_names(layer),
        "recipe": metadata.stored_recipe(layer),
        "prototypes": metadata.points_of(layer),
    }
    carried = ", ".join(name for name, part in parts.items() if part)
    return f"opened {layer.name}{f' with {carried}' if carried else ''}"


def _letters(axes: list[tuple[str, str]]) -> str | None:
    """Return a letter for each axis from its name and unit; None if an axis is unnamed."""
    letters = ["t" if unit in _TIMES else _LETTERS.get(name.lower(), name) for name, unit in axes]
    single = [letter for letter in letters if len(letter) == 1]
    unused = iter([letter for letter in "xyz" if letter not in single])
    if not single or len({*single}) < len(single):
        return None
    for k in reversed(range(len(letters))):
        if len(letters[k]) > 1:
            letters[k] = next(unused, "")
    return "".join(letters) if all(letters) else None
