"""Probability maps: the soft labels of each pixel, as images and files."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import JsonObject, as_array, as_path, as_whole, check_kind
from napari_saf.errors import InvalidInput
from napari_saf.graph import AbstractGraph
from napari_saf.io._labels import Axes, check_color, check_name, count_labels, label_axes
from napari_saf.io._masks import OME_ZARR, check_replaceable, describe_levels, ome_entries
from napari_saf.io._paths import PROBABILITY_SUFFIXES, check_suffix, mask_stem, printable
from napari_saf.parameters import check_bounds, parameter
from napari_saf.problem import Problem
from napari_saf.result import Segmentation
from napari_saf.storage import atomic_write, write_errors

Kind = Literal["float32", "uint8"]
_CHUNK = 1024
_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are invalid in XML."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProbabilityStep:
    """Probability maps saved beside a mask: format, number type and labels; None: all labels."""

    suffix: str = parameter(
        ".ome.zarr", label="Format", choices=PROBABILITY_SUFFIXES, help="Format of the maps."
    )
    kind: Kind = parameter("float32", label="Numbers", help="As bytes, 0 to 255 stand for 0 to 1.")
    labels: tuple[int, ...] | None = parameter(
        None, label="Labels", none="all", help="Maps of these labels only."
    )

    def __post_init__(self) -> None:
        labels: Any = self.labels
        if isinstance(labels, list | np.ndarray):  # of a file
            object.__setattr__(self, "labels", tuple(np.asarray(labels).tolist()))
        check_bounds(self)


def probability_maps(
    problem: Problem, result: Segmentation, labels: Sequence[int] | None = None
) -> NDArray[np.float32] | list[NDArray[np.float32]]:
    """Return the soft labels of a result as images, one for each label.

    Parameters
    ----------
    problem : Problem
        The labelled problem.
    result : Segmentation
        Its result, with the assignment.
    labels : sequence of int, optional
        Labels to map, 1 or more; the map of a label unknown to the result is 0. None: all labels
        with at least one pixel.

    Returns
    -------
    array of float32 of shape (n_labels, ...), or list of such arrays
        The assignment in the shape of the labels, 0 outside the mask; a list for several images.

    Notes
    -----
    Maps of a run at a reduced size (`max_side`) are interpolated: then, and where regions without
    strokes were removed (`connected`), the largest map may differ from the label.

    Examples
    --------
    >>> import numpy as np
    >>> import napari_saf as saf
    >>> image = np.repeat([[0.1, 0.9]], 4, axis=0).repeat(4, axis=1)
    >>> problem = saf.Problem.from_image(image, features="intensity", max_side=None)
    >>> result = saf.SLK(n_clusters=2).run(problem)
    >>> maps = saf.probability_maps(problem, result)
    >>> maps.shape, bool((maps.argmax(axis=0) + 1 == result.labels).all())
    ((2, 4, 8), True)
    """
    check_kind(problem, Problem, "problem", "a Problem")
    check_kind(result, Segmentation, "result", "a Segmentation")
    if len(result.assignment) != problem.n_nodes:
        raise InvalidInput(
            f"result: expected soft labels of the problem's {problem.n_nodes} nodes, got "
            f"{len(result.assignment)}"
        )
    numbers = labels_of(result) if labels is None else labels
    return soft_images(problem.graph, result.assignment, result.label_map.numbers, numbers)


def labels_of(result: Segmentation) -> list[int]:
    """Return the labels of a result with at least one pixel, ascending."""
    images = result.labels if isinstance(result.labels, list) else [result.labels]
    return sorted({int(label) for image in images for label in count_labels(image)[0]})


def soft_images(
    graph: AbstractGraph,
    assignment: NDArray[np.floating],
    numbers: NDArray[np.int64],
    labels: Collection[int],
) -> NDArray[np.float32] | list[NDArray[np.float32]]:
    """Return the columns of labels of an assignment as images, see `probability_maps`."""
    chosen = [as_whole(label) for label in labels]
    if not chosen or not all(label is not None and label > 0 for label in chosen):
        raise InvalidInput(f"labels: expected whole numbers of 1 and above, got {labels!r}")
    images: list[Any] = []
    for label in chosen:
        columns = assignment[:, np.flatnonzero(numbers == label)]
        images.append(graph.to_image(columns.sum(axis=1, dtype=np.float32)))
    if isinstance(images[0], list):
        return [np.stack(maps) for maps in zip(*images, strict=True)]
    return np.stack(images)


def save_probabilities(
    path: str | os.PathLike[str],
    maps: ArrayLike,
    *,
    labels: Sequence[int] | None = None,
    names: Mapping[int, str] | None = None,
    colors: Mapping[int, Sequence[float]] | None = None,
    kind: Kind = "float32",
    scale: Sequence[float] | None = None,
    units: Sequence[str] | str | None = None,
    axes: str | None = None,
    origin: Sequence[float] | None = None,
) -> Path:
    """Save probability maps with the channel axis first, each channel named after its label.

    Parameters
    ----------
    path : path
        Ends in ``.ome.zarr`` (OME-Zarr 0.5), ``.tif`` (OME-TIFF) or ``.npy`` (the array alone).
    maps : array of shape (n_labels, ...)
        Numbers from 0 to 1, see `probability_maps`.
    labels : sequence of int, optional
        The label of each map; None: 1, 2, ...
    names : mapping of int to str, optional
        Names of labels; others are called ``label 2``.
    colors : mapping of int to sequence of float, optional
        Red, green and blue in [0, 1] of labels, for viewers of OME-Zarr; others are white.
    kind : "float32" or "uint8"
        Stored type: numbers from 0 to 1, or bytes with 255 for 1.
    scale, units, axes, origin : optional
        As for `save_masks`, of the axes after that of the labels.

    Raises
    ------
    InvalidInput
        If the suffix is unknown, or the maps are invalid.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> maps = np.stack([np.full((4, 8), 0.25), np.full((4, 8), 0.75)])
    >>> path = saf.save_probabilities("maps.tif", maps, labels=[1, 2])
    >>> saf.read_image(path).array.shape
    (2, 4, 8)
    """
    target = as_path(path)
    suffix = check_suffix(target, PROBABILITY_SUFFIXES)
    array = as_array(maps, "maps")
    n_axes = array.ndim - 1
    if array.dtype.kind not in "buif" or not array.size or not 2 <= n_axes <= 4:
        raise InvalidInput(
            f"maps: expected numbers of shape (n_labels, ...) with 2 to 4 axes of an image, got "
            f"{array.dtype} of shape {array.shape}"
        )
    if not (array.min() >= 0 and array.max() <= 1.001):  # sums round; NaN is refused
        raise InvalidInput("maps: expected numbers from 0 to 1")
    if kind not in ("float32", "uint8"):
        raise InvalidInput(f"kind: expected float32 or uint8, got {kind!r}")
    numbers = list(range(1, len(array) + 1)) if labels is None else list(labels)
    if len(numbers) != len(array):
        raise InvalidInput(f"labels: expected one for each of {len(array)} maps, got {labels!r}")
    check_replaceable(target, suffix)
    placed = label_axes(n_axes, axes, scale, units, origin)
    stored = _stored(array, np.dtype(kind))
    described = _maps_of(target, stored, numbers, placed, names or {}, colors or {})
    with atomic_write(target) as temporary:
        _WRITERS[suffix](temporary, described)
    return target


def _stored(maps: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return maps as float32, or as bytes."""
    values = maps.astype(np.float32)
    return np.rint(255 * values.clip(0, 1)).astype(np.uint8) if dtype == np.uint8 else values


def _maps_of(
    path: Path,
    array: NDArray[Any],
    labels: Sequence[int],
    axes: Axes,
    names: Mapping[int, str],
    colors: Mapping[int, Sequence[float]],
) -> _Maps:
    """Return maps with title and colour of each label."""
    titles = [printable(check_name(n, names.get(n) or f"label {n}")) for n in labels]
    tints = [check_color(colors.get(n, (1, 1, 1)))[:3] for n in labels]
    return _Maps(array, axes, mask_stem(path), titles, tints)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Maps:
    array: NDArray[Any]
    axes: Axes
    name: str
    titles: list[str]
    colors: list[tuple[float, float, float]]

    @property
    def place(self) -> int:
        """Index of the channel axis, which follows time in OME."""
        return int(self.axes.names.startswith("t"))

    @property
    def letters(self) -> str:
        return f"{self.axes.names[: self.place]}c{self.axes.names[self.place :]}"

    @property
    def placed(self) -> NDArray[Any]:
        return np.moveaxis(self.array, 0, self.place)

    def attributes(self) -> JsonObject:
        """Return the OME-Zarr metadata of an image with a channel for each label."""
        highest = 255 if self.array.dtype == np.uint8 else 1
        shared = {"active": True, "window": {"min": 0, "max": highest, "start": 0, "end": highest}}
        tints = ["".join(f"{round(255 * value):02X}" for value in color) for color in self.colors]
        rows = zip(self.titles, tints, strict=True)
        channels = [{"label": title, "color": tint} | shared for title, tint in rows]
        levels = describe_levels(["s0"], [self.array.shape[1:]], self.axes, self.name, self.place)
        return {"version": OME_ZARR, "multiscales": [levels], "omero": {"channels": channels}}


class ProbabilityStore:
    """Probability maps written tile by tile; no valid OME-Zarr until `finish`.

    Parameters
    ----------
    path : path
        Ends in ``.ome.zarr``.
    step : ProbabilityStep
        Labels and type of number; labels are not None.
    shape : sequence of int
        Of the image, without channels.
    axes : Axes
        Of the image.
    names, colors : mapping
        By label.
    """

    def __init__(
        self,
        path: Path,
        step: ProbabilityStep,
        shape: Sequence[int],
        axes: Axes,
        names: Mapping[int, str],
        colors: Mapping[int, Sequence[float]],
    ) -> None:
        assert step.labels is not None
        self.path = path
        empty = np.broadcast_to(np.zeros((), step.kind), (len(step.labels), *shape))
        self._maps = _maps_of(path, empty, step.labels, axes, names, colors)

    def create(self, chunk: Sequence[int], shard: Sequence[int]) -> None:
        """Create the empty array, with one shard per tile."""
        import zarr

        def placed(sides: Sequence[int], n_maps: int) -> tuple[int, ...]:
            at = self._maps.place
            return (*sides[:at], n_maps, *sides[at:])

        with write_errors(self.path):
            group = zarr.open_group(self.path, mode="w", zarr_format=3)
            group.create_array(
                "s0",
                shape=placed(self._maps.array.shape[1:], len(self._maps.array)),
                chunks=placed(chunk, 1),
                shards=placed(shard, len(self._maps.array)),
                dtype=self._maps.array.dtype,
                dimension_names=self._maps.letters,
            )

    def write(self, region: Sequence[slice], maps: NDArray[np.floating]) -> None:
        """Write the maps (n_labels, ...) of a tile."""
        import zarr

        at, stored = self._maps.place, _stored(maps, self._maps.array.dtype)
        with write_errors(self.path):
            array = zarr.open_array(self.path / "s0", mode="r+")
            array[(*region[:at], slice(None), *region[at:])] = np.moveaxis(stored, 0, at)

    def finish(self) -> None:
        """Write the OME-Zarr metadata."""
        import zarr

        with write_errors(self.path):
            zarr.open_group(self.path, mode="r+").attrs["ome"] = self._maps.attributes()


def _write_zarr(path: Path, maps: _Maps) -> None:
    import zarr

    array = maps.placed
    chunks = [1] * (array.ndim - 2) + [min(side, _CHUNK) for side in array.shape[-2:]]
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("s0", data=array, chunks=tuple(chunks), dimension_names=maps.letters)
    group.attrs["ome"] = maps.attributes()


def _write_tiff(path: Path, maps: _Maps) -> None:
    import tifffile

    metadata = ome_entries(maps.axes, maps.array) | {"axes": maps.letters.upper()}
    metadata["Channel"] = {"Name": [_NO_XML.sub("?", title) for title in maps.titles]}
    with tifffile.TiffWriter(path, ome=True, bigtiff=maps.array.nbytes > 2**31) as file:
        file.write(maps.placed, compression="zlib", photometric="minisblack", metadata=metadata)


_WRITERS: dict[str, Callable[[Path, _Maps], None]] = {
    ".npy": lambda path, maps: np.save(path, maps.array, allow_pickle=False),
    ".tif": _write_tiff,
    ".ome.zarr": _write_zarr,
}
