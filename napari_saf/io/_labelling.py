"""Label images with what is known of them: all their files in one go, and back from a file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels, as_path
from napari_saf.errors import Cancelled, FormatError, InvalidInput
from napari_saf.features import extractor_of
from napari_saf.io._figure import save_figure
from napari_saf.io._labels import (
    Scale,
    check_color,
    check_name,
    count_labels,
    label_axes,
    map_labels,
)
from napari_saf.io._masks import binary_paths, save_binary_masks, save_masks
from napari_saf.io._note import note_path, read_note, write_note
from napari_saf.io._outlines import OUTLINE_SUFFIXES, check_outlines, save_objects
from napari_saf.io._paths import (
    FIGURE_SUFFIXES,
    LABELS_MARK,
    MASK_MARK,
    MASK_SUFFIXES,
    OME_ZARR_SUFFIX,
    PROBABILITY_MARK,
    PROBABILITY_SUFFIXES,
    PROTOTYPE_SUFFIXES,
    TABLE_SUFFIXES,
    companion_recipe,
    mask_stem,
    mask_suffix,
    places_lost,
)
from napari_saf.io._probabilities import Kind, save_probabilities
from napari_saf.io._prototypes import save_prototypes
from napari_saf.io._recipe import PrototypeSet, check_recipe, save_recipe
from napari_saf.io._regions import check_table, number_regions, save_table
from napari_saf.io._source import ImageFile, ImageSource, read_labels
from napari_saf.io._tables import LargeRegions, measure_large, region_table
from napari_saf.parameters import parameter
from napari_saf.problem import ImageOptions
from napari_saf.result import Segmentation, Status
from napari_saf.storage import format_errors, read_json, write_json
from napari_saf.strategies import Strategy, refusal


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Labelling:
    """A label image with what is known of it, in the terms of `save_masks` and `save_figure`.

    Names and colours are also those of the prototypes; the recipe repeats the run that made the
    labels; `plane` and `title` are for the figure. Where labels are of a slice or a part of an
    image, the `place` says how a layer of them lies over it: ``shape``, ``scale``, ``translate``
    and ``units`` along its axes, the ``affine`` that comes after scale and translate, which axes
    are ``singletons``, that stand for one slice, and which ``axes`` of the image they are;
    ``channels`` is the one that stands for all channels. The `origin` is that of `save_masks`; the
    `probabilities` are maps of some labels, by number, see `probability_maps`; the `affine` and the
    `georeference` are those of an `ImageFile`.

    What a run left, see `Pipeline.run`: its `result`, the `uncertain_share` of the pixels, the
    `kinds`, labels before they became regions, and `objects` with what they measure.

    Examples
    --------
    >>> labels = np.array([[1, 1, 0], [2, 2, 2]])
    >>> labelling = saf.Labelling(labels, scale=(2, 2), units=("um", "um"))
    >>> labelling.table(connected=False)["area_um2"].tolist()
    [8.0, 12.0]
    """

    labels: NDArray[Any]
    image: NDArray[Any] | None = None
    channel_axis: int | None = None
    scale: Scale | None = None
    units: Sequence[str] | str | None = None
    axes: str | None = None
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, Sequence[float]] = dataclasses.field(default_factory=dict)
    prototypes: PrototypeSet | None = None
    recipe: dict[str, Any] | None = None
    plane: tuple[int, ...] | None = None
    title: str = ""
    place: dict[str, Any] | None = None
    probabilities: Mapping[int, NDArray[np.floating]] = dataclasses.field(default_factory=dict)
    origin: Sequence[float] | None = None
    affine: NDArray[np.float64] | None = None
    georeference: Sequence[Any] = ()
    kinds: NDArray[Any] | None = None
    objects: Any = None
    measures: dict[str, NDArray[Any]] | None = None
    result: Segmentation | None = None
    uncertain_share: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def all_names(self) -> Mapping[int, str]:
        """The names of labels; regions are called so."""
        if self.is_large or not (self.recipe or {}).get("regions"):
            return self.names
        numbers = count_labels(self.labels)[0].tolist()
        return {n: f"region {n}" for n in numbers} | dict(self.names)

    @property
    def placed(self) -> dict[str, Any]:
        """How the labels lie, as `save_masks` takes it."""
        names = ("axes", "scale", "units", "origin", "affine", "georeference")
        return {name: getattr(self, name) for name in names}

    @property
    def is_cancelled(self) -> bool:
        """Whether the run that made the labels was stopped before its end."""
        return self.result is not None and self.result.status is Status.CANCELLED

    def lying_on(self, image: ImageFile | None) -> Labelling:
        """Return the labels, which lie as an image does as far as their file does not say it."""
        if image is None:
            return self
        sizes, n_axes = self.scale, self.labels.ndim
        more: dict[str, Any] = {"georeference": self.georeference or image.georeference}
        more["affine"] = image.affine if self.affine is None else self.affine
        if sizes is None and image.scale is not None and len(image.scale) == n_axes:
            more |= {name: getattr(image, name) for name in ("scale", "units", "origin")}
        return dataclasses.replace(self, **more)

    @property
    def is_large(self) -> bool:
        """Whether the labels are not in memory, and measured part by part."""
        return not isinstance(self.labels, np.ndarray)

    def table(
        self,
        connected: bool = False,
        min_pixels: int = 1,
        *,
        brief: bool = False,
    ) -> dict[str, NDArray[Any]]:
        """Measure the labels or their connected regions, see `region_table`."""
        measure = measure_large if self.is_large else region_table
        return measure(
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


def save_regions(
    path: str | os.PathLike[str],
    labels: ArrayLike,
    image: ArrayLike | None = None,
    *,
    scale: Scale | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    names: Mapping[int, str] | None = None,
    channel_axis: int | None = None,
    connected: bool = False,
    min_pixels: int = 1,
) -> Path:
    """Save what the regions of a label image measure: `save_table` of `region_table`.

    Examples
    --------
    >>> path = saf.save_regions("regions.csv", [[1, 1, 0], [2, 2, 2]])
    >>> len(path.read_text(encoding="utf-8").splitlines())  # a head and a row a label
    3
    """
    check_table(as_path(path))
    given = as_labels(labels, "labels")
    pixels = None if image is None else np.asarray(image)
    own = Labelling(given, pixels, channel_axis, scale, units, axes, names or {})
    return save_table(path, own.table(connected, min_pixels))


def is_own_mask(path: Path) -> bool:
    """Tell whether a file, or a folder, is a mask that napari-saf wrote.

    It says so itself, or it is called like one (``photo_labels.tif``) and its recipe lies beside
    it. Damaged files are none.
    """
    try:
        is_named = mask_stem(path).endswith((LABELS_MARK, MASK_MARK))
        return read_note(path) is not None or (is_named and companion_recipe(path) is not None)
    except FormatError:
        return False


def read_mask(path: str | os.PathLike[str], *, lazily: bool = False) -> Labelling:
    """Read a label image and what it says of itself; nothing in the file is executed.

    Parameters
    ----------
    path : path
        Any label image that `read_labels` reads. What was said of it to `save_masks` comes back,
        and where it says nothing of a recipe that beside it.
    lazily : bool
        Whether the labels are an array of zarr, of which parts are read; for OME-Zarr.

    Raises
    ------
    FormatError
        As `read_labels`, and naming what is wrong with what the file says of itself.
    ComputeError
        If the image does not fit into memory.

    Examples
    --------
    >>> labels = np.array([[0, 1], [2, 2]])
    >>> [path] = saf.save_masks("labels.tif", labels, names={2: "nucleus"})
    >>> labelling = saf.read_mask(path)
    >>> labelling.labels.tolist(), labelling.names[2]
    ([[0, 1], [2, 2]], 'nucleus')
    """
    file = as_path(path)
    note = read_note(file)
    image = ImageSource.open(file, are_labels=True).as_file() if lazily else read_labels(file)
    placed: dict[str, Any] = {"scale": image.scale, "units": image.units, "origin": image.origin}
    own = Labelling(image.array, axes=image.axes or None, **placed)
    more: dict[str, Any] = {"affine": image.affine, "georeference": image.georeference}
    own = dataclasses.replace(own, colors=image.colors or {}, **more)
    companion = companion_recipe(file) if note is None or note.recipe is None else None
    if companion is not None:
        with format_errors(companion, "a recipe"):
            recipe: Any = read_json(companion)
            prototypes = check_recipe(recipe).prototypes
        own = dataclasses.replace(own, recipe=recipe, prototypes=prototypes)
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
            place=None if note.place is None else note.place.to_plain(),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ExportSelection:
    """Output formats to write, each by its suffix; an empty one leaves it out."""

    # fmt: off
    masks: str = parameter(
        "", choices=MASK_SUFFIXES, label="Label image",
        help="All labels in one image. TIFF: for ImageJ and OME, with pixel sizes; PNG: in the "
        "colours of the labels; NPY: for Python. napari opens it as labels again.")
    binary: str = parameter(
        "", choices=MASK_SUFFIXES, label="A mask for each label",
        help="An image for each label: 255 inside, 0 outside.")
    regions: str = parameter(
        "", choices=TABLE_SUFFIXES, label="Table of regions",
        help="A table of size, position, shape and brightness, in the units of the image. "
        "Parquet needs pyarrow.")
    numbered: str = parameter(
        "", choices=MASK_SUFFIXES, label="Numbered regions",
        help="An image in which each connected region has a number of its own, that of its row in "
        "the table: to count things, and to find them again.")
    outlines: tuple[str, ...] = parameter(
        (), choices=OUTLINE_SUFFIXES, label="Outlines of regions",
        help="Connected regions for other programs: GeoJSON for QuPath, ROIs for ImageJ (.zip), "
        "COCO (.json).")
    figure: str = parameter(
        "", choices=FIGURE_SUFFIXES, label="Figure",
        help="Image, labels and legend side by side; of a stack one slice.")
    prototypes: str = parameter(
        "", choices=PROTOTYPE_SUFFIXES, label="Prototypes",
        help="The mean features of each label, to label other images with (f*).")
    probabilities: str = parameter(
        "", choices=PROBABILITY_SUFFIXES, label="Probability maps",
        help="How much each pixel is of each label, an image for each that is chosen (W).")
    recipe: bool = parameter(
        False, label="Recipe",
        help="A file that repeats the run from Python or a terminal (.json).")
    connected: bool = parameter(
        False, label="A row for each region",
        help="Whether a label is measured as a whole, or each of its connected regions by itself, "
        "as it is beside numbered regions.")
    min_pixels: int = parameter(
        1, bounds=(1, None), label="Regions of",
        help="Smaller connected regions are neither numbered nor outlined, nor given a row.")
    in_bytes: bool = parameter(
        False, label="In bytes",
        help="In files: 0 to 255 in place of numbers from 0 to 1; a quarter of the size.")
    # fmt: on

    @property
    def is_empty(self) -> bool:
        more = {name: getattr(self, name) for name in ("connected", "min_pixels", "in_bytes")}
        return self == ExportSelection(**more)


class Export:
    """The files that are wanted of a label image, `paths`, in a folder under a common name.

    InvalidInput if nothing is wanted, or something that this labelling has not. While files are
    written `follow` is called with the path of one and how much of it is done, and may raise
    Cancelled.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        labelling: Labelling,
        wanted: ExportSelection,
        follow: Callable[[Path, float], object] = lambda path, fraction: None,
    ) -> None:
        if labelling.is_large and wanted != dataclasses.replace(
            wanted, masks="", binary="", numbered="", figure="", prototypes="", probabilities=""
        ):
            raise refusal(Strategy.TILES_ON_DISK, "pixel exports")
        if wanted.recipe and labelling.recipe is None:
            raise InvalidInput("recipe: these labels come without one")
        self._follow, self._labelling, self._wanted = follow, labelling, wanted
        self._steps = list(_steps(folder / name, labelling, wanted, follow))
        self.paths = [path for paths, _ in self._steps for path in paths]
        if not self.paths:
            raise InvalidInput("nothing to save: no file is asked for, or there is no label")

    @property
    def in_the_way(self) -> list[Path]:
        return [path for path in self.paths if path.exists()]

    @property
    def note(self) -> str:
        """What of the place of the labels their files do not hold; empty if they hold all."""
        given, wanted = self._labelling, self._wanted
        kinds = (wanted.masks, wanted.binary, wanted.numbered, wanted.probabilities)
        suffixes = dict.fromkeys(mask_suffix(Path(f"x{kind}")) or kind for kind in kinds if kind)
        lost: dict[str, list[str]] = {}
        axes = label_axes(given.labels.ndim, given.axes, given.scale, given.units, given.origin)
        for suffix in suffixes:
            words = [*axes.left_out(suffix)]
            words += [
                text
                for text, kept_by in places_lost(suffix, given).items()
                if kept_by != OME_ZARR_SUFFIX
            ]
            if words:
                lost.setdefault(", ".join(words), []).append(suffix)
        return "; ".join(f"{', '.join(own)} without {words}" for words, own in lost.items())

    def write(self) -> list[Path]:
        """Write the files one after another until cancelled; return those that were written."""
        written: list[Path] = []
        with suppress(Cancelled):
            for paths, save in self._steps:
                self._follow(paths[0], 0)
                save()
                written += paths
        return written


def _steps(
    stem: Path, given: Labelling, wanted: ExportSelection, follow: Callable[[Path, float], object]
) -> Iterator[tuple[list[Path], Callable[[], object]]]:
    """Yield the paths of each kind of file that is wanted, and what writes them."""
    labels, names, image = given.labels, {"names": given.all_names}, given.image
    measured: dict[str, Any] = {"scale": given.scale, "units": given.units, "axes": given.axes}
    placed, colors = given.placed, {"colors": given.colors}
    styled, channels = measured | {"origin": given.origin} | names | colors, given.channel_axis
    if wanted.masks:
        yield from _mask_steps(Path(f"{stem}{wanted.masks}"), given)
    if wanted.binary:
        path = Path(f"{stem}{wanted.binary}")
        paths = list(binary_paths(path, map_labels(labels, given.names)).values())
        if paths:
            yield paths, partial(save_binary_masks, path, labels, **(placed | names | colors))
    if wanted.regions:
        table = Path(f"{stem}_regions{wanted.regions}")
        measure = partial(given.table, wanted.connected or wanted.numbered != "", wanted.min_pixels)
        yield [table], lambda: save_table(table, measure())
    if wanted.numbered:
        regions = Path(f"{stem}_regions{wanted.numbered}")
        number = partial(number_regions, labels, axes=given.axes, min_pixels=wanted.min_pixels)
        yield [regions], lambda: save_masks(regions, number(), **placed, place=given.place)
    yield from _outline_steps(stem, given, wanted, follow)
    if wanted.figure:
        path = Path(f"{stem}_figure{wanted.figure}")
        shown = {"channel_axis": channels, "plane": given.plane, "title": given.title}
        options = measured | names | colors | shown
        yield [path], partial(save_figure, path, labels, image, **options)
    if wanted.prototypes:
        path = Path(f"{stem}_prototypes{wanted.prototypes}")
        yield [path], partial(save_prototypes, path, _prototypes(given, path.suffix))
    if wanted.probabilities:
        path = Path(f"{stem}{PROBABILITY_MARK}{wanted.probabilities}")
        yield [path], _map_saver(path, given, wanted.in_bytes, styled)
    if wanted.recipe:
        path = Path(f"{stem}.recipe.json")
        yield [path], partial(save_recipe, path, given.recipe or {})


def _outline_steps(
    stem: Path, given: Labelling, wanted: ExportSelection, follow: Callable[[Path, float], object]
) -> Iterator[tuple[list[Path], Callable[[], object]]]:
    """Yield the paths of the outlines of connected regions, each of the kind of its label."""
    paths = [Path(f"{stem}_regions{suffix}") for suffix in wanted.outlines]
    for path in paths:
        check_outlines(path)

    def save() -> None:
        regions = LargeRegions(
            given.labels,
            axes=given.axes,
            names=given.all_names,
            min_pixels=wanted.min_pixels,
            follow=partial(follow, paths[0]),
        )
        for path in paths:
            save_objects(path, regions)

    if paths:
        yield paths, save


def _map_saver(
    path: Path, given: Labelling, in_bytes: bool, styled: dict[str, Any]
) -> Callable[[], object]:
    if not given.probabilities:
        raise InvalidInput("probabilities: these labels come without any, or none is chosen")
    labels, maps = [*given.probabilities], [*given.probabilities.values()]
    kind: Kind = "uint8" if in_bytes else "float32"
    return lambda: save_probabilities(path, np.stack(maps), labels=labels, kind=kind, **styled)


def _mask_steps(path: Path, given: Labelling) -> Iterator[tuple[list[Path], Callable[[], object]]]:
    """Yield the path of the label image, and that of its note where it holds none."""
    own: dict[str, Any] = {"names": given.names, "colors": given.colors}
    own |= {"prototypes": given.prototypes, "recipe": given.recipe, "place": given.place}
    yield [path], partial(save_masks, path, given.labels, **given.placed, **own)
    if path.suffix == ".npy":
        axes = label_axes(given.labels.ndim, given.axes, given.scale, given.units, given.origin)
        note = write_note(axes, **own)
        yield [note_path(path)], partial(write_json, note_path(path), note)


def _prototypes(given: Labelling, suffix: str) -> PrototypeSet:
    """Return the prototypes with names and options, or, for a format without, a row a label."""
    if given.prototypes is None:
        raise InvalidInput("prototypes: these labels come without any")
    points = given.prototypes.by_label()
    if suffix != ".json":
        points = {label: own.mean(axis=0, keepdims=True) for label, own in points.items()}
    options = given.prototypes.options
    plain = (given.recipe or {}).get("input")
    if options is None and isinstance(plain, dict) and extractor_of(plain.get("features")):
        options = ImageOptions.from_plain(plain)
    return PrototypeSet.from_points(points, names=given.names, colors=given.colors, options=options)
