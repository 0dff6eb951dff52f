"""All files of a label image in one go: which are wanted, where they go, and their writing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES
from napari_saf.io._figure import save_figure
from napari_saf.io._label_image import map_labels
from napari_saf.io._masks import binary_paths, save_binary_masks, save_masks
from napari_saf.io._prototypes import PrototypeSet, save_prototypes
from napari_saf.io._recipe import save_recipe
from napari_saf.io._regions import number_regions, save_regions
from napari_saf.problem import ImageOptions

Step = tuple[list[Path], Callable[[], object]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Labelling:
    """A label image with what is known of it.

    Attributes
    ----------
    labels : array of int
        0 for no label.
    image : array or None
        What was labelled.
    channel_axis : int or None
        Axis of its channels; None: a last axis beyond those of the labels.
    scale, units, axes, names, colors
        As in `save_masks`.
    prototypes : PrototypeSet or None
        Their names and colours are those above.
    recipe : dict or None
        What repeats the run that made the labels.
    plane : tuple of int or None
        What a figure shows: positions along the axes before the last two.
    title : str
        Text above the figure.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """Which files are wanted, each by its suffix; an empty one means that it is not.

    Attributes
    ----------
    masks, binary, regions, numbered, figure, prototypes : str
        The label image; a mask for each label; the table; the image of numbered regions; the
        picture; the prototypes.
    recipe : bool
    connected : bool
        Whether the table has a row for each connected region.
    min_pixels : int
        Smaller connected regions are left out of the table and of the numbered ones.
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
    """The files that are wanted of a label image.

    Parameters
    ----------
    folder : Path
        Where they go.
    name : str
        What their names begin with.
    labelling : Labelling
    wanted : Wanted

    Attributes
    ----------
    paths : list of Path
        What `write` will write.

    Raises
    ------
    InvalidInput
        If nothing is wanted, or something that this labelling has not.
    """

    def __init__(self, folder: Path, name: str, labelling: Labelling, wanted: Wanted) -> None:
        stem = folder / name
        self._steps = [
            *_image_steps(stem, labelling, wanted),
            *_model_steps(stem, labelling, wanted),
        ]
        self.paths = [path for paths, _ in self._steps for path in paths]
        if not self.paths:
            raise InvalidInput("nothing to save: no file is asked for, or there is no label")

    @property
    def in_the_way(self) -> list[Path]:
        """The files that are there already."""
        return [path for path in self.paths if path.exists()]

    def write(self, cancelled: Callable[[], bool] = lambda: False) -> list[Path]:
        """Write the files one after another; return those that were written.

        Parameters
        ----------
        cancelled : callable
            Asked before each file; once it returns True, the rest is left.

        Raises
        ------
        SafError
            If a file cannot be written; those before it are complete.
        """
        written: list[Path] = []
        for paths, save in self._steps:
            if cancelled():
                break
            save()
            written += paths
        return written


def _path(stem: Path, ending: str) -> Path:
    return stem.with_name(stem.name + ending)


def _image_steps(stem: Path, given: Labelling, wanted: Wanted) -> Iterator[Step]:
    """Yield the wanted masks, table and figure: paths, and what writes them."""
    labels, image = given.labels, given.image
    placed: dict[str, Any] = {"scale": given.scale, "units": given.units, "axes": given.axes}
    styled = placed | {"names": given.names, "colors": given.colors}
    if wanted.masks:
        masks = _path(stem, wanted.masks)
        yield [masks], lambda: save_masks(masks, labels, **styled)
    if wanted.binary:
        binary = _path(stem, wanted.binary)
        paths = list(binary_paths(binary, map_labels(labels, given.names)).values())
        if paths:
            yield paths, lambda: save_binary_masks(binary, labels, **styled)
    if wanted.regions:
        table = _path(stem, f"_regions{wanted.regions}")
        columns = placed | {"names": given.names, "channel_axis": given.channel_axis}
        columns |= {"connected": wanted.connected, "min_pixels": wanted.min_pixels}
        yield [table], lambda: save_regions(table, labels, image, **columns)
    if wanted.numbered:
        numbered, least = _path(stem, f"_regions{wanted.numbered}"), wanted.min_pixels

        def save_numbered() -> None:
            regions = number_regions(labels, axes=given.axes, min_pixels=least)
            save_masks(numbered, regions, **placed)

        yield [numbered], save_numbered
    if wanted.figure:
        figure = _path(stem, f"_figure{wanted.figure}")
        shown = styled | {"channel_axis": given.channel_axis, "plane": given.plane}
        yield [figure], lambda: save_figure(figure, labels, image, title=given.title, **shown)


def _model_steps(stem: Path, given: Labelling, wanted: Wanted) -> Iterator[Step]:
    """Yield the wanted files that label other images: paths, and what writes them."""
    if wanted.prototypes:
        points = _path(stem, f"_prototypes{wanted.prototypes}")
        prototypes = _prototypes(given, with_names=points.suffix == ".json")
        yield [points], lambda: save_prototypes(points, prototypes)
    if wanted.recipe:
        plain = given.recipe
        if plain is None:
            raise InvalidInput("recipe: these labels come without one")
        recipe = _path(stem, ".recipe.json")
        yield [recipe], lambda: save_recipe(recipe, plain)


def _prototypes(given: Labelling, *, with_names: bool) -> PrototypeSet:
    """Return the prototypes with names and options, or, for a format without, a row a label."""
    if given.prototypes is None:
        raise InvalidInput("prototypes: these labels come without any")
    points = given.prototypes.by_label()
    if not with_names:
        points = {label: own.mean(axis=0, keepdims=True) for label, own in points.items()}
    options = given.prototypes.options
    plain = (given.recipe or {}).get("input")
    if options is None and isinstance(plain, dict) and plain.get("features") in FEATURES:
        options = ImageOptions.from_plain(plain)
    return PrototypeSet.from_points(points, names=given.names, colors=given.colors, options=options)
