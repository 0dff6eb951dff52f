"""All that can be taken away of a label image, in one go: which files, and their writing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES
from napari_saf.io._binary import binary_paths, save_binary_masks
from napari_saf.io._connected import number_regions
from napari_saf.io._legend import Legend
from napari_saf.io._masks import save_masks
from napari_saf.io._prototypes import PrototypeSet, save_prototypes
from napari_saf.io._recipe import save_recipe
from napari_saf.io._regions import save_regions
from napari_saf.problem import ImageOptions

__all__ = ["Export", "Labelling", "Wanted"]


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
        Words above the figure.
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
        self._labelling = labelling
        self._steps: list[tuple[list[Path], Callable[[], object]]] = []
        stem = folder / name
        if wanted.masks:
            self._add_masks(_with(stem, wanted.masks))
        if wanted.binary:
            self._add_binary(_with(stem, wanted.binary))
        if wanted.regions:
            self._add_regions(_with(stem, f"_regions{wanted.regions}"), wanted)
        if wanted.numbered:
            self._add_numbered(_with(stem, f"_regions{wanted.numbered}"), wanted.min_pixels)
        if wanted.figure:
            self._add_figure(_with(stem, f"_figure{wanted.figure}"))
        if wanted.prototypes:
            self._add_prototypes(_with(stem, f"_prototypes{wanted.prototypes}"))
        if wanted.recipe:
            self._add_recipe(_with(stem, ".recipe.json"))
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

    def _placed(self) -> dict[str, Any]:
        found = self._labelling
        return {"scale": found.scale, "units": found.units, "axes": found.axes}

    def _styled(self) -> dict[str, Any]:
        found = self._labelling
        return self._placed() | {"names": found.names, "colors": found.colors}

    def _add_masks(self, path: Path) -> None:
        labels = self._labelling.labels
        self._steps.append(([path], lambda: save_masks(path, labels, **self._styled())))

    def _add_binary(self, path: Path) -> None:
        found = self._labelling
        paths = list(binary_paths(path, Legend.of(found.labels, found.names)).values())
        if paths:
            options = self._styled()
            self._steps.append((paths, lambda: save_binary_masks(path, found.labels, **options)))

    def _add_regions(self, path: Path, wanted: Wanted) -> None:
        found = self._labelling
        options = self._placed() | {"names": found.names, "channel_axis": found.channel_axis}
        options |= {"connected": wanted.connected, "min_pixels": wanted.min_pixels}
        self._steps.append(
            ([path], lambda: save_regions(path, found.labels, found.image, **options))
        )

    def _add_numbered(self, path: Path, min_pixels: int) -> None:
        found = self._labelling

        def save() -> None:
            regions = number_regions(found.labels, axes=found.axes, min_pixels=min_pixels)
            save_masks(path, regions, **self._placed())

        self._steps.append(([path], save))

    def _add_figure(self, path: Path) -> None:
        from napari_saf.io._figure import save_figure

        found = self._labelling
        options = self._styled() | {"channel_axis": found.channel_axis, "plane": found.plane}
        options["title"] = found.title
        self._steps.append(
            ([path], lambda: save_figure(path, found.labels, found.image, **options))
        )

    def _add_prototypes(self, path: Path) -> None:
        prototypes = self._labelling.prototypes
        if prototypes is None:
            raise InvalidInput("prototypes: these labels come without any")
        if path.suffix != ".json":  # a row for each label
            points = prototypes.by_label().items()
            means = {label: own.mean(axis=0, keepdims=True) for label, own in points}
            prototypes = PrototypeSet.from_points(means)
        named = _named(prototypes, self._labelling)
        self._steps.append(([path], lambda: save_prototypes(path, named)))

    def _add_recipe(self, path: Path) -> None:
        recipe = self._labelling.recipe
        if recipe is None:
            raise InvalidInput("recipe: these labels come without one")
        self._steps.append(([path], lambda: save_recipe(path, recipe)))


def _named(prototypes: PrototypeSet, known: Labelling) -> PrototypeSet:
    """Return prototypes with what is known of their labels.

    Raises
    ------
    InvalidInput
        If what is known is malformed.
    """
    said, options = (known.recipe or {}).get("input"), prototypes.options
    if options is None and isinstance(said, dict) and said.get("features") in FEATURES:
        options = ImageOptions.from_plain(said)
    return PrototypeSet.from_points(
        prototypes.by_label(), names=known.names, colors=known.colors, options=options
    )


def _with(stem: Path, end: str) -> Path:
    return stem.with_name(stem.name + end)
