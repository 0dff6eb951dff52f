"""A project: images with layers, recipes, dictionaries and dock settings."""

from __future__ import annotations

import dataclasses
import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels
from napari_saf.errors import Cancelled, ComputeError, InvalidInput
from napari_saf.io import PaintedClass, PrototypeSet
from napari_saf.methods import AbstractMethod, run_to_end
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions, Problem
from napari_saf.project._files import Digest, FileReference, FoundFile, find_files
from napari_saf.result import LabelMap, Status
from napari_saf.storage import check_room

_MOST_LABELS = 2**32 - 1
_BLOCK = 2**22
"""Pixels per block of the run-length search; no run is longer."""
_RUN_BYTES = 8
_MOST_DEFLATED = 1100
"""Bound of the deflate ratio, which is at most 1,032."""
Affine = tuple[tuple[float, ...], ...]
LayerKind = Literal["strokes", "labels"]
Stage = Literal["untouched", "taught", "labelled", "exported"]
_SHARED = ("features", "window", "weights", "channel_axis", "max_side")


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedLabels:
    """A label image as the lengths and labels of its runs, compressed.

    Attributes
    ----------
    shape : tuple of int
    content : bytes
        Compressed by zlib: the lengths of all runs in row-major order, then their labels, as
        little-endian unsigned numbers of 32 bits.
    n_runs : int

    Examples
    --------
    >>> labels = np.kron([[0, 3], [1, 0]], np.ones((100, 100), int))
    >>> encoded = saf.EncodedLabels.of(labels)
    >>> np.array_equal(encoded.to_array(), labels), len(encoded.content) < 200**2
    (True, True)
    """

    shape: tuple[int, ...]
    content: bytes
    n_runs: int

    @classmethod
    def of(cls, labels: ArrayLike) -> EncodedLabels:
        """Encode a label image; blocks are copied, so it may be modified meanwhile."""
        pixels = np.asarray(labels)
        if pixels.dtype == np.float32:
            pixels = as_labels(pixels, "labels")
        if pixels.dtype.kind not in "biu" or not pixels.size:
            got = f"{pixels.dtype} of shape {pixels.shape}"
            raise InvalidInput(f"labels: expected whole numbers, got {got}")
        flat = pixels.reshape(-1)
        lengths, values = [], []
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].copy()
            starts = np.append(0, np.flatnonzero(block[1:] != block[:-1]) + 1)
            lengths.append(np.diff(starts, append=block.size))
            values.append(block[starts])
        runs = np.concatenate(values)
        if int(runs.min()) < 0 or int(runs.max()) > _MOST_LABELS:
            raise InvalidInput(f"labels: expected 0 to {_MOST_LABELS}")
        table = np.stack([np.concatenate(lengths), runs.astype(np.int64)]).astype("<u4")
        return cls(pixels.shape, zlib.compress(table.tobytes(), 1), len(runs))

    def check(self) -> None:
        """Raise InvalidInput if the runs do not fill the shape."""
        self._runs()

    def to_array(self) -> NDArray[np.unsignedinteger[Any]]:
        """Return the label image, in the smallest unsigned type.

        ComputeError if it does not fit into memory.
        """
        lengths, values = self._runs()
        dtype = np.min_scalar_type(int(values.max()))
        try:
            check_room(math.prod(self.shape) * dtype.itemsize)
            return np.repeat(values.astype(dtype), lengths).reshape(self.shape)
        except MemoryError as error:
            raise ComputeError(f"not enough memory for labels of shape {self.shape}") from error

    def labels(self) -> NDArray[np.int64]:
        """Return the labels above 0, ascending."""
        labels = np.unique(self._runs()[1]).astype(np.int64)
        return labels[labels > 0]

    def _runs(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        n_bytes = self.n_runs * _RUN_BYTES
        n_pixels = math.prod(self.shape)
        if not 0 < self.n_runs <= n_pixels or n_bytes > _MOST_DEFLATED * len(self.content):
            raise InvalidInput(f"expected as many runs as pixels at most, got {self.n_runs}")
        unpacker = zlib.decompressobj()
        table = unpacker.decompress(self.content, n_bytes + 1)
        is_complete = len(table) == n_bytes and unpacker.eof and not unpacker.unused_data
        if not is_complete:
            raise InvalidInput(f"expected the runs of {self.n_runs} labels")
        lengths, values = np.frombuffer(table, "<u4").reshape(2, -1)
        if not lengths.all() or int(lengths.sum(dtype=np.uint64)) != n_pixels:
            raise InvalidInput(f"expected runs of {n_pixels} pixels")
        return lengths, values


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ProjectLayer:
    """Strokes or labels of an image of a project.

    Parameters
    ----------
    kind : {"strokes", "labels"}
    name : str
        Name of the napari layer.
    pixels : EncodedLabels
    classes : mapping of int to PaintedClass
        Name and colour by label; may be incomplete.
    scale, translate : tuple of float
        Pixel size and origin along each axis, in the units of the image; () if as the image.
    affine : tuple of tuple of float
        Transform from pixels to world (n_axes + 1, n_axes + 1), scale and translate included; () if
        unknown.
    place : mapping of str to object
        ``axes``, ``singletons`` and ``channels``: image axes of the layer's axes; empty if equal.
    recipe : str
        Name of the recipe that made the labels, or empty.
    level : float or None
        Level of the region hierarchy; None for plain labels.
    is_edited : bool
        Whether the labels were changed by hand.
    prototypes : mapping of int to array of shape (n_own, n_features)
        Prototypes of each label, where known.
    is_visible : bool
    kinds : tuple of int
        Kind of each object by its number, 0 for unused numbers; () if labels are not objects.
    object_classes : mapping of int to str
        Name of each class of objects.
    clicks : mapping of int to int
        Class of each object that was clicked, by its number.
    followed : int or None
        Checksum of the strokes of the labels, where known.
    uncertainty : float or None
        `Segmentation.uncertain_share` of labels by a recipe of other images.

    Examples
    --------
    >>> labels = np.kron([[1, 2]], np.ones((8, 8), int))
    >>> layer = saf.ProjectLayer("labels", "nuclei", saf.EncodedLabels.of(labels))
    >>> layer.pixels.labels().tolist()
    [1, 2]
    """

    kind: LayerKind
    name: str
    pixels: EncodedLabels
    classes: Mapping[int, PaintedClass] = dataclasses.field(default_factory=dict)
    scale: tuple[float, ...] = ()
    translate: tuple[float, ...] = ()
    place: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recipe: str = ""
    level: float | None = None
    is_edited: bool = False
    prototypes: Mapping[int, NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    is_visible: bool = True
    kinds: tuple[int, ...] = ()
    object_classes: Mapping[int, str] = dataclasses.field(default_factory=dict)
    clicks: Mapping[int, int] = dataclasses.field(default_factory=dict)
    followed: int | None = None
    uncertainty: float | None = None
    affine: Affine = ()


def layers_digest(layers: Iterable[tuple[LayerKind, EncodedLabels]]) -> str:
    """Return a hash of the kinds and pixels of layers in any order; empty layers do not count."""
    runs = [(kind, *pixels._runs()) for kind, pixels in layers]
    sums = [
        f"{kind} {zlib.crc32(values.tobytes(), zlib.crc32(lengths.tobytes())):08x}"
        for kind, lengths, values in runs
        if values.any()
    ]
    return ", ".join(sorted(sums))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ProjectImage:
    """An image of a project: its file, layers and exported results.

    Parameters
    ----------
    file : FileReference
    layers : tuple of ProjectLayer
        Strokes and labels, bottom first.
    results : tuple of FileReference
        Exported masks and tables.
    reader : str
        The napari plugin that opened the file; empty for napari itself.
    exported : str
        Digest of the layers as they were exported; empty if unknown.
    scale, translate : tuple of float
        Pixel size and origin along each axis, of the layer; () if unknown.
    units, axis_labels : tuple of str
        Unit and name of each axis; () if unknown.
    affine : tuple of tuple of float
        As that of a `ProjectLayer`.

    Examples
    --------
    >>> np.save("image.npy", np.eye(8))
    >>> saf.ProjectImage(saf.FileReference.of("image.npy")).stage
    'untouched'
    """

    file: FileReference
    layers: tuple[ProjectLayer, ...] = ()
    results: tuple[FileReference, ...] = ()
    reader: str = ""
    exported: str = ""
    scale: tuple[float, ...] = ()
    translate: tuple[float, ...] = ()
    units: tuple[str, ...] = ()
    axis_labels: tuple[str, ...] = ()
    affine: Affine = ()

    @property
    def stage(self) -> Stage:
        """Progress of the work on the image."""
        layers = [(layer.kind, layer.pixels) for layer in self.layers]
        if self.results and self.exported in ("", layers_digest(layers)):
            return "exported"
        if any(layer.kind == "labels" for layer in self.layers):
            return "labelled"
        return "taught" if self.layers else "untouched"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Project:
    """Images with layers, recipes, dictionaries and dock settings.

    Parameters
    ----------
    images : tuple of ProjectImage
    recipes : mapping of str to Pipeline
        Recipes by name, with prototypes if they were fitted to strokes.
    applied : str
        Name of the recipe that labels other images; empty: the only one.
    dictionaries : mapping of str to FileReference
        Files of patch dictionaries by name.
    docks : mapping of str to mapping
        Settings of the open docks, JSON-compatible.
    current : int or None
        Index of the displayed image.
    home : Path or None
        Folder of the loaded project file.

    Examples
    --------
    >>> np.save("image.npy", np.eye(8))
    >>> pixels = saf.EncodedLabels.of(2 * np.eye(8, dtype=int))
    >>> strokes = saf.ProjectLayer("strokes", "mine", pixels)
    >>> image = saf.ProjectImage(saf.FileReference.of("image.npy"), (strokes,))
    >>> [one.stage for one in saf.Project((image,)).images]
    ['taught']
    """

    images: tuple[ProjectImage, ...] = ()
    recipes: Mapping[str, Pipeline] = dataclasses.field(default_factory=dict)
    applied: str = ""
    dictionaries: Mapping[str, FileReference] = dataclasses.field(default_factory=dict)
    docks: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    current: int | None = None
    home: Path | None = None

    @property
    def recipe(self) -> Pipeline:
        """The recipe that labels other images; InvalidInput if there is none, or several."""
        if self.applied:
            return self.recipes[self.applied]
        if len(self.recipes) != 1:
            names = ", ".join(self.recipes) or "none"
            raise InvalidInput(f"expected a project with a recipe to apply, there are: {names}")
        return next(iter(self.recipes.values()))

    def find_images(
        self,
        folders: Sequence[str | os.PathLike[str]] = (),
        *,
        is_trusted: bool = False,
        digest: Digest | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[FoundFile]:
        """Return the current locations of the images, see `find_files`.

        Only the folder of the project and `folders` are searched, unless the project is trusted.
        """
        return find_files(
            [image.file for image in self.images],
            self.home,
            folders,
            is_trusted=is_trusted,
            digest=digest,
            cancelled=cancelled,
        )

    def find_dictionaries(
        self,
        folders: Sequence[str | os.PathLike[str]] = (),
        *,
        is_trusted: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> dict[str, FoundFile]:
        """Return the current locations of the dictionaries by name, as `find_images`."""
        files = list(self.dictionaries.values())
        locations = find_files(
            files, self.home, folders, is_trusted=is_trusted, cancelled=cancelled
        )
        return dict(zip(self.dictionaries, locations, strict=True))

    def with_found(self, locations: Iterable[FoundFile]) -> Project:
        """Return the project with found images at their current locations."""
        images = []
        for image, location in zip(self.images, locations, strict=True):
            if location.state == "found" and location.path is not None:
                file = dataclasses.replace(image.file, path=location.path)
                image = dataclasses.replace(image, file=file)
            images.append(image)
        return dataclasses.replace(self, images=tuple(images))


def fit_jointly(
    images: Sequence[NDArray[Any]],
    seeds: Sequence[NDArray[Any]],
    method: AbstractMethod,
    options: ImageOptions,
    *,
    finite_only: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> PrototypeSet:
    """Fit a few feature means per label to strokes on several images, and return them.

    Fitted to all pixels that `method` labels by the strokes if all images have the same classes,
    else to the painted pixels alone, as pixels of unpainted classes would be assigned to others.
    `images` have equal channels, `seeds` are image-shaped, `options` convert them to one problem,
    `finite_only` masks NaN. InvalidInput as `Problem.from_images`, or for features that
    do not transfer.
    """
    problem = Problem.from_images(
        list(images),
        seeds=list(seeds),
        masks="finite" if finite_only else None,
        **{name: getattr(options, name) for name in _SHARED},
    )
    if len({tuple(np.unique(array[array > 0])) for array in seeds}) > 1:
        return PrototypeSet.from_labels(problem)
    assert problem.seeds is not None
    classes = LabelMap.from_seeds(problem.seeds)
    problem = problem.with_seeds(classes.unpaint(problem.seeds))
    result = run_to_end(method.iterate(problem, cancelled=cancelled))
    if result.status is Status.CANCELLED:
        raise Cancelled
    labels = result.labels if isinstance(result.labels, list) else [result.labels]
    painted = [classes.extended(int(array.max(initial=0))).paint(array) for array in labels]
    prototypes = PrototypeSet.fit(problem, painted)
    if prototypes is None:
        raise InvalidInput("features: layers and positions do not transfer to other images")
    return prototypes
