"""Label images with their metadata: export to several files, and import."""

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

from napari_saf.arrays import JsonObject, as_labels, as_path
from napari_saf.errors import Cancelled, FormatError, InvalidInput
from napari_saf.features import extractor_of
from napari_saf.io._figure import save_figure
from napari_saf.io._labels import (
    Axes,
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
    MASK_SUFFIXES,
    OME_ZARR_SUFFIX,
    PROBABILITY_MARK,
    PROBABILITY_SUFFIXES,
    PROTOTYPE_SUFFIXES,
    TABLE_SUFFIXES,
    mask_stem,
    mask_suffix,
    places_lost,
    recipe_path,
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
    """A label image with its metadata, named as in `save_masks` and `save_figure`.

    Names and colours also apply to the prototypes; the recipe reproduces the run; `plane` and
    `title` are those of the figure. For labels of a slice or a part of an image, `place` is the
    placement of their layer over it: ``shape``, ``scale``, ``translate`` and ``units`` along its
    axes, the ``affine`` applied after scale and translate, the ``singletons``, axes of length 1
    that stand for one slice, and the corresponding ``axes`` of the image; ``channels`` is the
    axis that stands for all channels. The `origin` is that of `save_masks`; the
    `probabilities` are maps of some labels, by number, see `probability_maps`; the `affine` and the
    `georeference` are those of an `ImageFile`.

    Outputs of a run (`Pipeline.run`): its `result`, the `uncertain_share` of the pixels, the
    `kinds`, labels before division into regions, and `objects` with their `measures`.

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
    recipe: JsonObject | None = None
    plane: tuple[int, ...] | None = None
    title: str = ""
    place: JsonObject | None = None
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
        """The names of the labels, or of the regions."""
        if self.is_large or not (self.recipe or {}).get("regions"):
            return self.names
        numbers = count_labels(self.labels)[0].tolist()
        return {n: f"region {n}" for n in numbers} | dict(self.names)

    @property
    def placed(self) -> dict[str, Any]:
        """Axes, scale, units and origin as arguments of `save_masks`."""
        names = ("axes", "scale", "units", "origin", "affine", "georeference")
        return {name: getattr(self, name) for name in names}

    @property
    def styled(self) -> dict[str, Any]:
        """Display properties as arguments of `save_figure`."""
        style = {name: getattr(self, name) for name in ("axes", "scale", "units", "colors")}
        return style | {"names": self.all_names}

    @property
    def checked_axes(self) -> Axes:
        """The axes with scale, units and origin, checked against the labels."""
        return label_axes(self.labels.ndim, self.axes, self.scale, self.units, self.origin)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run that made the labels was stopped before its end."""
        return self.result is not None and self.result.status is Status.CANCELLED

    def lying_on(self, image: ImageFile | None) -> Labelling:
        """Return the labels with missing spatial metadata taken from an image."""
        if image is None:
            return self
        placed = dataclasses.replace(
            self,
            affine=image.affine if self.affine is None else self.affine,
            georeference=self.georeference or image.georeference,
        )
        if self.scale is not None or image.scale is None or len(image.scale) != self.labels.ndim:
            return placed
        return dataclasses.replace(
            placed, scale=image.scale, units=image.units, origin=image.origin
        )

    @property
    def is_large(self) -> bool:
        """Whether the labels are on disk, and measured part by part."""
        return not isinstance(self.labels, np.ndarray)

    def table(
        self, connected: bool = False, min_pixels: int = 1, *, brief: bool = False
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
    """Save the measures of the regions of a label image: `save_table` of `region_table`.

    Examples
    --------
    >>> path = saf.save_regions("regions.csv", [[1, 1, 0], [2, 2, 2]])
    >>> len(path.read_text(encoding="utf-8").splitlines())  # a header and a row per label
    3
    """
    check_table(as_path(path))
    array = as_labels(labels, "labels")
    pixels = None if image is None else np.asarray(image)
    labelling = Labelling(array, pixels, channel_axis, scale, units, axes, names or {})
    return save_table(path, labelling.table(connected, min_pixels))


def is_own_mask(path: Path) -> bool:
    """Return whether a file or folder is a mask written by napari-saf.

    True if it contains a note, or is named as a mask (``photo.labels.tif``) with its recipe beside
    it. False for damaged files.
    """
    try:
        is_named = mask_stem(path).endswith(LABELS_MARK)
        return read_note(path) is not None or (is_named and recipe_path(path).is_file())
    except FormatError:
        return False


def read_mask(path: str | os.PathLike[str], *, lazily: bool = False) -> Labelling:
    """Read a label image with its metadata; file content is never executed.

    Parameters
    ----------
    path : path
        Any label image that `read_labels` reads. Metadata saved by `save_masks` is restored; a
        recipe is read from the file beside the mask if the mask contains none.
    lazily : bool
        Whether to return the labels of an OME-Zarr as a zarr array, read on demand.

    Raises
    ------
    FormatError
        As `read_labels`, or if the metadata is invalid; names the fault.
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
    labelling = Labelling(
        image.array,
        axes=image.axes or None,
        scale=image.scale,
        units=image.units,
        origin=image.origin,
        affine=image.affine,
        georeference=image.georeference,
        colors=image.colors or {},
    )
    companion = recipe_path(file)
    if (note is None or note.recipe is None) and companion.is_file():
        with format_errors(companion, "a recipe"):
            recipe: Any = read_json(companion)
            prototypes = check_recipe(recipe).prototypes
        labelling = dataclasses.replace(labelling, recipe=recipe, prototypes=prototypes)
    if note is None:
        return labelling
    with format_errors(file, "a label image"):
        entries = {entry.label: entry for entry in note.labels}
        points = {n: np.array(entry.prototypes) for n, entry in entries.items() if entry.prototypes}
        n_axes = image.array.ndim
        if image.scale is None and len(note.axes) == n_axes:
            label_axes(n_axes, note.axes, note.scale, note.units)
            labelling = dataclasses.replace(
                labelling, axes=note.axes, scale=note.scale, units=note.units
            )
        return dataclasses.replace(
            labelling,
            names={n: check_name(n, entry.name) for n, entry in entries.items() if entry.name},
            colors={n: check_color(entry.color) for n, entry in entries.items() if entry.color},
            prototypes=PrototypeSet.from_points(points) if points else labelling.prototypes,
            recipe=note.recipe or labelling.recipe,
            place=None if note.place is None else note.place.to_plain(),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ExportSelection:
    """Output formats to write, each by its suffix; empty: not written."""

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
        help="An image in which each connected region has a unique number, that of its row in the "
        "table: to count regions, and to find them again.")
    outlines: tuple[str, ...] = parameter(
        (), choices=OUTLINE_SUFFIXES, label="Outlines of regions",
        help="Connected regions for other programs: GeoJSON for QuPath, ROIs for ImageJ (.zip), "
        "COCO (.json).")
    figure: str = parameter(
        "", choices=FIGURE_SUFFIXES, label="Figure",
        help="Image, labels and legend side by side; of a stack one slice.")
    prototypes: str = parameter(
        "", choices=PROTOTYPE_SUFFIXES, label="Prototypes",
        help="The mean features of each label, for labelling other images (f*).")
    probabilities: str = parameter(
        "", choices=PROBABILITY_SUFFIXES, label="Probability maps",
        help="The probability of each label at each pixel, one image per chosen label (W).")
    recipe: bool = parameter(
        False, label="Recipe",
        help="A file to reproduce the run from Python or a terminal (.json).")
    connected: bool = parameter(
        False, label="A row for each region",
        help="Measure each connected region of a label separately instead of the whole label; "
        "always with numbered regions.")
    min_pixels: int = parameter(
        1, bounds=(1, None), label="Regions of",
        help="Smaller connected regions are left out of numbers, outlines and table.")
    in_bytes: bool = parameter(
        False, label="In bytes",
        help="Store 0 to 255 in place of numbers from 0 to 1, in a quarter of the size.")
    # fmt: on

    @property
    def is_empty(self) -> bool:
        formats = dataclasses.replace(self, connected=False, min_pixels=1, in_bytes=False)
        return formats == ExportSelection()


Step = tuple[list[Path], Callable[[], object]]
"""Output paths, and the functions that write them."""


class Export:
    """Export of a label image to the files `paths`, in a folder under a common name.

    Raise InvalidInput if no format is chosen, or one whose data this labelling lacks. During
    writing `follow` is called with the current path and its completed fraction, and may raise
    Cancelled.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        labelling: Labelling,
        formats: ExportSelection,
        follow: Callable[[Path, float], object] = lambda path, fraction: None,
    ) -> None:
        if labelling.is_large and formats != dataclasses.replace(
            formats, masks="", binary="", numbered="", figure="", prototypes="", probabilities=""
        ):
            raise refusal(Strategy.TILES_ON_DISK, "pixel exports")
        if formats.recipe and labelling.recipe is None:
            raise InvalidInput("recipe: these labels have none")
        self._stem, self._labelling, self._formats = folder / name, labelling, formats
        self._follow = follow
        self._steps = [*self._image_steps(), *self._region_steps(), *self._run_steps()]
        self.paths = [path for paths, _ in self._steps for path in paths]
        if not self.paths:
            raise InvalidInput("nothing to save: no output is chosen, or there is no label")

    @property
    def in_the_way(self) -> list[Path]:
        return [path for path in self.paths if path.exists()]

    @property
    def note(self) -> str:
        """Spatial metadata that the chosen formats cannot store, as text; empty if none."""
        mask, formats = self._labelling, self._formats
        images = (formats.masks, formats.binary, formats.numbered, formats.probabilities)
        lost: dict[str, list[str]] = {}
        for suffix in dict.fromkeys(mask_suffix(Path(f"x{end}")) or end for end in images if end):
            words = [*mask.checked_axes.left_out(suffix)]
            lost_places = places_lost(suffix, mask).items()
            words += [text for text, kept_by in lost_places if kept_by != OME_ZARR_SUFFIX]
            if words:
                lost.setdefault(", ".join(words), []).append(suffix)
        return "; ".join(f"{', '.join(ends)} without {words}" for words, ends in lost.items())

    def write(self) -> list[Path]:
        """Write the files in order until cancelled; return the written ones."""
        written: list[Path] = []
        with suppress(Cancelled):
            for paths, save in self._steps:
                self._follow(paths[0], 0)
                save()
                written += paths
        return written

    def _path(self, end: str) -> Path:
        return Path(f"{self._stem}{end}")

    def _image_steps(self) -> Iterator[Step]:
        """Yield the label image, its note if that is a separate file, and binary masks."""
        mask, formats = self._labelling, self._formats
        named: dict[str, Any] = {"names": mask.names, "colors": mask.colors}
        if formats.masks:
            path = self._path(f"{LABELS_MARK}{formats.masks}")
            named |= {"prototypes": mask.prototypes, "recipe": mask.recipe, "place": mask.place}
            yield [path], partial(save_masks, path, mask.labels, **mask.placed, **named)
            if path.suffix == ".npy":
                note = write_note(mask.checked_axes, **named)
                yield [note_path(path)], partial(write_json, note_path(path), note)
        if formats.binary:
            path = self._path(formats.binary)
            paths = list(binary_paths(path, map_labels(mask.labels, mask.names)).values())
            named = mask.placed | {"names": mask.all_names, "colors": mask.colors}
            if paths:
                yield paths, partial(save_binary_masks, path, mask.labels, **named)

    def _region_steps(self) -> Iterator[Step]:
        """Yield the table of regions, the numbered ones, and their outlines."""
        mask, formats, least = self._labelling, self._formats, self._formats.min_pixels
        if formats.regions:
            table = self._path(f".regions{formats.regions}")
            is_connected = formats.connected or formats.numbered != ""
            yield [table], lambda: save_table(table, mask.table(is_connected, least))
        if formats.numbered:
            image = self._path(f".regions{formats.numbered}")
            number = partial(number_regions, mask.labels, axes=mask.axes, min_pixels=least)
            yield [image], lambda: save_masks(image, number(), **mask.placed, place=mask.place)
        paths = [self._path(f".regions{suffix}") for suffix in formats.outlines]
        for path in paths:
            check_outlines(path)

        def save_outlines() -> None:
            follow = partial(self._follow, paths[0])
            regions = LargeRegions(mask.labels, mask.axes, mask.all_names, least, follow)
            for path in paths:
                save_objects(path, regions)

        if paths:
            yield paths, save_outlines

    def _run_steps(self) -> Iterator[Step]:
        """Yield the figure, and the prototypes, probability maps and recipe of a run."""
        mask, formats = self._labelling, self._formats
        if formats.figure:
            path = self._path(f".figure{formats.figure}")
            shown = {"channel_axis": mask.channel_axis, "plane": mask.plane, "title": mask.title}
            options: Any = mask.styled | shown
            yield [path], partial(save_figure, path, mask.labels, mask.image, **options)
        if formats.prototypes:
            path = self._path(f".prototypes{formats.prototypes}")
            yield [path], partial(save_prototypes, path, _prototypes(mask, path.suffix))
        if formats.probabilities:
            if not mask.probabilities:
                raise InvalidInput("probabilities: these labels have none, or none is chosen")
            maps = self._path(f"{PROBABILITY_MARK}{formats.probabilities}")
            labels, images = [*mask.probabilities], [*mask.probabilities.values()]
            kind: Kind = "uint8" if formats.in_bytes else "float32"
            named: Any = {"labels": labels, "kind": kind, "origin": mask.origin} | mask.styled
            yield [maps], lambda: save_probabilities(maps, np.stack(images), **named)
        if formats.recipe:
            path = self._path(".recipe.json")
            yield [path], partial(save_recipe, path, mask.recipe or {})


def _prototypes(mask: Labelling, suffix: str) -> PrototypeSet:
    """Return the prototypes with names and options, or rows only for formats without these."""
    if mask.prototypes is None:
        raise InvalidInput("prototypes: these labels have none")
    points = mask.prototypes.by_label()
    if suffix != ".json":
        points = {n: vectors.mean(axis=0, keepdims=True) for n, vectors in points.items()}
    options = mask.prototypes.options
    plain = (mask.recipe or {}).get("input")
    if options is None and isinstance(plain, dict) and extractor_of(plain.get("features")):
        options = ImageOptions.from_plain(plain)
    return PrototypeSet.from_points(points, names=mask.names, colors=mask.colors, options=options)
