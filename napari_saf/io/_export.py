"""All files of a label image in one go: which are wanted, where they go, and their writing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES
from napari_saf.io._figure import save_figure
from napari_saf.io._labelling import Labelling
from napari_saf.io._masks import (
    binary_paths,
    label_axes,
    map_labels,
    save_binary_masks,
    save_masks,
)
from napari_saf.io._note import note_path, write_note
from napari_saf.io._prototypes import save_prototypes
from napari_saf.io._recipe import PrototypeSet, save_recipe
from napari_saf.io._regions import number_regions, save_table
from napari_saf.problem import ImageOptions
from napari_saf.storage import write_json


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """Which files are wanted, each by its suffix; an empty one means that it is not.

    `connected` gives the table a row for each connected region, as it has beside `numbered` ones;
    those of fewer than `min_pixels` pixels are left out of both.
    """

    masks: str = ""
    binary: str = ""
    regions: str = ""
    numbered: str = ""
    figure: str = ""
    prototypes: str = ""
    recipe: bool = False
    connected: bool = False
    min_pixels: int = 1

    @property
    def is_empty(self) -> bool:
        """Whether no file is wanted."""
        return self == Wanted(connected=self.connected, min_pixels=self.min_pixels)


class Export:
    """The files that are wanted of a label image, `paths`, in a folder under a common name.

    InvalidInput if nothing is wanted, or something that this labelling has not.
    """

    def __init__(self, folder: Path, name: str, labelling: Labelling, wanted: Wanted) -> None:
        self._steps = list(_steps(folder / name, labelling, wanted))
        self.paths = [path for paths, _ in self._steps for path in paths]
        if not self.paths:
            raise InvalidInput("nothing to save: no file is asked for, or there is no label")

    @property
    def in_the_way(self) -> list[Path]:
        """The files that are there already."""
        return [path for path in self.paths if path.exists()]

    def write(self, cancelled: Callable[[], bool] = lambda: False) -> list[Path]:
        """Write the files one after another until cancelled; return those that were written."""
        written: list[Path] = []
        for paths, save in self._steps:
            if cancelled():
                break
            save()
            written += paths
        return written


def _steps(
    stem: Path, given: Labelling, wanted: Wanted
) -> Iterator[tuple[list[Path], Callable[[], object]]]:
    """Yield the paths of each kind of file that is wanted, and what writes them."""
    labels, names, image = given.labels, {"names": given.all_names}, given.image
    placed: dict[str, Any] = {"scale": given.scale, "units": given.units, "axes": given.axes}
    styled, channels = placed | names | {"colors": given.colors}, given.channel_axis
    if wanted.masks:
        yield from _mask_steps(Path(f"{stem}{wanted.masks}"), given, placed)
    if wanted.binary:
        path = Path(f"{stem}{wanted.binary}")
        paths = list(binary_paths(path, map_labels(labels, given.names)).values())
        if paths:
            yield paths, partial(save_binary_masks, path, labels, **styled)
    if wanted.regions:
        path = Path(f"{stem}_regions{wanted.regions}")
        yield [path], partial(_save_table, path, given, wanted)
    if wanted.numbered:
        path = Path(f"{stem}_regions{wanted.numbered}")
        yield [path], partial(_save_numbered, path, labels, wanted.min_pixels, placed)
    if wanted.figure:
        path = Path(f"{stem}_figure{wanted.figure}")
        options = styled | {"channel_axis": channels, "plane": given.plane, "title": given.title}
        yield [path], partial(save_figure, path, labels, image, **options)
    if wanted.prototypes:
        path = Path(f"{stem}_prototypes{wanted.prototypes}")
        yield [path], partial(save_prototypes, path, _prototypes(given, path.suffix))
    if wanted.recipe:
        if given.recipe is None:
            raise InvalidInput("recipe: these labels come without one")
        path = Path(f"{stem}.recipe.json")
        yield [path], partial(save_recipe, path, given.recipe)


def _mask_steps(
    path: Path, given: Labelling, placed: dict[str, Any]
) -> Iterator[tuple[list[Path], Callable[[], object]]]:
    """Yield the path of the label image, and that of its note where it holds none."""
    own: dict[str, Any] = {"names": given.names, "colors": given.colors}
    own |= {"prototypes": given.prototypes, "recipe": given.recipe, "place": given.place}
    yield [path], partial(save_masks, path, given.labels, **placed, **own)
    if path.suffix == ".npy":
        note = write_note(label_axes(given.labels.ndim, **placed), **own)
        yield [note_path(path)], partial(write_json, note_path(path), note)


def _save_table(path: Path, given: Labelling, wanted: Wanted) -> None:
    connected = wanted.connected or bool(wanted.numbered)
    save_table(path, given.table(connected, wanted.min_pixels))


def _save_numbered(
    path: Path, labels: NDArray[Any], min_pixels: int, placed: dict[str, Any]
) -> None:
    regions = number_regions(labels, axes=placed["axes"], min_pixels=min_pixels)
    save_masks(path, regions, **placed)


def _prototypes(given: Labelling, suffix: str) -> PrototypeSet:
    """Return the prototypes with names and options, or, for a format without, a row a label."""
    if given.prototypes is None:
        raise InvalidInput("prototypes: these labels come without any")
    points = given.prototypes.by_label()
    if suffix != ".json":
        points = {label: own.mean(axis=0, keepdims=True) for label, own in points.items()}
    options = given.prototypes.options
    plain = (given.recipe or {}).get("input")
    if options is None and isinstance(plain, dict) and plain.get("features") in FEATURES:
        options = ImageOptions.from_plain(plain)
    return PrototypeSet.from_points(points, names=given.names, colors=given.colors, options=options)
