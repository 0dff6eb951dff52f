"""Objects of label images larger than memory: parts of tiles, merged at seams and numbered."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from napari_saf import io, storage
from napari_saf.arrays import JsonObject, as_labels, as_list, as_path, as_whole
from napari_saf.errors import InvalidInput
from napari_saf.features import FeatureExtractor
from napari_saf.methods import not_cancelled
from napari_saf.objects import NECK, SMALLEST, ObjectMeasures, find_parts, spacing_of
from napari_saf.result import LabelMap
from napari_saf.tiles._engine import (
    AbstractTiledJob,
    AbstractWork,
    Progress,
    Tile,
    iterate_tiles,
    run_steps,
)
from napari_saf.tiles._job import check_count
from napari_saf.tiles._seams import JoinedParts, join_tiles, save_table, tile_table
from napari_saf.tiles._store import LabelStore
from napari_saf.tiles._tiling import Tiling, chunks_and_tiles
from napari_saf.tiles._vectors import measure_stored

if TYPE_CHECKING:
    import zarr
    from distributed import Client

_PARTS = -1
"""Level of the tiles of the first pass, which finds parts; the finest level numbers them."""
_TILE, _HALO = {2: 1024, 3: 128}, {2: 64, 3: 24}
_CHUNK = {2: 256, 3: 64}
_MOST_OBJECT = 2**32 - 1
_OBJECTS, _FOLDER = "objects", ".parts"
"""Group of the store with the kind of each object, and temporary folder of the parts."""


class ObjectPlan(Tiling):
    """Tiling and parameters of `split_large`, stored as JSON."""

    plan_kind: Literal["objects"] = Field(alias="kind")
    smallest: int
    neck: float
    kinds: list[int] | None
    axis: int | None
    spacing: list[float] | None
    names: dict[int, str]

    @property
    def most_label(self) -> int:
        return _MOST_OBJECT

    def describe(self, axes: io.Axes, numbers: list[int]) -> tuple[LabelMap, str]:
        return io.map_labels(np.zeros(1, int)), io.write_note(axes)

    def every_tile(self) -> list[Tile]:
        return [(_PARTS, *position) for position in self.tiles()] + super().every_tile()

    def region(self, position: Sequence[int], level: int = 0) -> io.Region:
        return super().region(position, max(level, 0))

    def coarser(self, tile: Tile) -> Tile | None:
        return None if tile[0] == _PARTS else super().coarser(tile)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LargeObjects:
    """Objects of a large label image in an OME-Zarr store; made by `split_large`.

    Attributes
    ----------
    path : Path
        OME-Zarr folder of the object numbers.
    shape : tuple of int
        Shape of the finest level.
    kinds : array of int of shape (largest number + 1,)
        Kind of each object by its number.
    names : mapping of int to str
        Name of each kind.
    seconds : float
        Duration of this run.
    notes : tuple of str
        Notes for the user.

    Examples
    --------
    >>> kinds = np.kron([[1, 0, 0, 2]], np.ones((32, 32), int))
    >>> found = saf.split_large(kinds, "objects.ome.zarr", tile=64)
    >>> found.shape, sorted(found.kinds.tolist())
    ((32, 128), [0, 1, 2])
    """

    path: Path
    shape: tuple[int, ...]
    kinds: NDArray[np.int64]
    names: Mapping[int, str]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> zarr.Array[Any]:
        """Object numbers at the finest level, a lazily read zarr array."""
        return LabelStore(self.path).level(0)

    def table(
        self,
        image: Any = None,
        *,
        scale: Sequence[float] | None = None,
        units: Sequence[str] | str | None = None,
        channel_axis: int | None = None,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> dict[str, NDArray[Any]]:
        """Measure objects tile by tile with `measure_large`; columns as in `object_table`."""
        if len(self.kinds) < 2:
            return {}
        measures = io.measure_large(
            self.path,
            image,
            scale=scale,
            units=units,
            channel_axis=channel_axis,
            cancelled=cancelled,
        )
        kinds = self.kinds[measures["label"]]
        names = [self.names.get(label, f"label {label}") for label in kinds.tolist()]
        table = {"kind": kinds, "name": np.array(names), "object": measures["label"]}
        return table | {
            name: column
            for name, column in measures.items()
            if name not in ("label", "name", "euler_number")
        }

    def measure(
        self,
        image: Any = None,
        *,
        channel_axis: int | None = None,
        scale: Sequence[float] | None = None,
        axes: str | None = None,
        features: FeatureExtractor | str | Mapping[str, Any] | None = None,
        client: Client | None = None,
        progress: Progress | None = None,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> ObjectMeasures:
        """Compute measure vectors tile by tile, as `measure_objects` does in memory.

        The scale defaults to that of the file; for slices split one by one, name the first axis
        ``"t"``. `client`, `progress` and `cancelled` are as in `split_large`. Objects whose
        bounding boxes exceed 8,388,608 pixels are omitted.

        Examples
        --------
        >>> kinds = np.kron([[1, 0, 0, 2]], np.ones((32, 32), int))
        >>> found = saf.split_large(kinds, "objects.ome.zarr", tile=64)
        >>> measures = found.measure()
        >>> classes = saf.learn_classes(measures, {1: 1, 2: 2})
        >>> classes.classify(measures).classes.tolist()
        [1, 2]
        """
        return measure_stored(
            self.path,
            image,
            channel_axis=channel_axis,
            scale=scale,
            axes=axes,
            features=features,
            client=client,
            progress=progress,
            cancelled=cancelled,
        )


def split_large(
    labels: Any,
    out: str | os.PathLike[str],
    *,
    uncertainty: Any = None,
    spacing: Sequence[float] | None = None,
    smallest: int = SMALLEST,
    neck: float = NECK,
    axis: int | None = None,
    kinds: Sequence[int] | None = None,
    tile: int | None = None,
    halo: int | None = None,
    client: Client | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    cancelled: Callable[[], bool] = not_cancelled,
) -> LargeObjects:
    """Split the objects of a label image of any size, tile by tile, into an OME-Zarr store.

    Objects and numbers equal those of `split_objects` without an image, provided that the halo of a
    tile contains all that their split depends on. Memory is bounded by the tile size and the number
    of objects. An interrupted run is resumed.

    Parameters
    ----------
    labels : path or array
        Output of `label_large`, or a label image in any form that it accepts as an image.
    out : path
        As in `label_large`.
    uncertainty : path or array, optional
        As in `split_objects`.
    spacing : sequence of float, optional
        Pixel size along each axis. None: that of the file, or the same along all axes.
    smallest, neck, axis, kinds
        As in `split_objects`.
    tile : int, optional
        Side of a tile in pixels, 16 or more; by default 1024 in planes, 128 in volumes.
    halo : int, optional
        Width in pixels of the margin read around a tile, larger than the radius of objects; by
        default 64 in planes, 24 in volumes.
    client, overwrite, progress, cancelled
        As in `label_large`; tiles are processed in two passes.

    Returns
    -------
    LargeObjects

    Raises
    ------
    InvalidInput
        As in `split_objects`, or if the labels changed since the run began, or `out` holds other
        data.
    FormatError
        If the labels cannot be read; the message names the file and the region.
    ComputeError
        If a tile does not fit into memory, or a worker process is killed for that reason.
    SafError
        If the store cannot be written, or is in use by another process.

    Examples
    --------
    >>> rows, columns = np.ogrid[:64, :128]
    >>> discs = [(rows - 32) ** 2 + (columns - x) ** 2 < 150 for x in (32, 60, 96)]
    >>> kinds = np.logical_or.reduce(discs).astype(int)  # two touch, one spans two tiles
    >>> found = saf.split_large(kinds, "discs.ome.zarr", tile=64)
    >>> found.kinds.tolist()
    [0, 1, 1, 1]
    """
    began = time.perf_counter()
    parameters = {"smallest": smallest, "neck": neck, "axis": axis, "tile": tile, "halo": halo}
    job = ObjectJob.of(labels, uncertainty, spacing=spacing, kinds=kinds, **parameters)
    store = LabelStore(as_path(out, "out"))
    run_steps(iterate_tiles(job, store, client, overwrite), progress, cancelled)
    storage.remove_path(store.path / _FOLDER)
    own_kinds, notes = _read_objects(store)
    seconds = time.perf_counter() - began
    return LargeObjects(store.path, job.image.shape, own_kinds, job.names, seconds, notes)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ObjectJob(AbstractTiledJob):
    """Label image and validated parameters of `split_large`."""

    plan_type = ObjectPlan
    auxiliary_name = "uncertainty"

    names: Mapping[int, str]
    parameters: JsonObject

    @property
    def request(self) -> JsonObject:
        return self.parameters

    @classmethod
    def of(
        cls,
        labels: Any,
        uncertainty: Any,
        *,
        spacing: Sequence[float] | None,
        kinds: Sequence[int] | None,
        **parameters: Any,
    ) -> ObjectJob:
        image = io.ImageSource.open(labels, are_labels=True, are_whole=True)
        names = dict[int, str]()
        if isinstance(labels, str | os.PathLike):
            names = dict(io.read_mask(labels, lazily=True).names)
        if image.n_channels != 1 or image.dtype.kind not in "biu":
            raise InvalidInput(
                f"labels: expected whole numbers without channels, got {image.dtype} with "
                f"{image.n_channels} channels"
            )
        uncertain = (
            None if uncertainty is None else io.ImageSource.open(uncertainty, are_labels=True)
        )
        if uncertain is not None and (uncertain.shape != image.shape or uncertain.n_channels != 1):
            raise InvalidInput(f"uncertainty: expected shape {image.shape}, got {uncertain.shape}")
        for name, least in (("tile", 16), ("halo", 1)):
            check_count(name, parameters[name], least)
        sizes: Any = spacing if spacing is None else as_list(spacing, "spacing")
        if spacing is None:
            sizes, note = spacing_of(image.label_axes().of_frame, image.as_file().scale)
            image.notes += (note,) * bool(note)
        labels_to_split = None
        if kinds is not None:
            labels_to_split = as_labels(as_list(kinds, "kinds"), "kinds").tolist()
        axis = parameters["axis"]
        if axis is not None and as_whole(axis) is not None and abs(axis) <= 3:
            parameters["axis"] = axis % len(image.shape)
        parameters["spacing"] = None if sizes is None else list(sizes)
        parameters["kinds"] = labels_to_split
        # Validate the parameters before the first tile.
        corner = np.zeros([min(2, side) for side in image.shape], np.uint8)
        parts, _ = find_parts(corner, **{n: parameters[n] for n in ("spacing", "axis", "kinds")})
        parts.join(smallest=parameters["smallest"], neck=parameters["neck"])
        return cls(image, uncertain, names, json.loads(json.dumps(parameters)))

    def plan(self) -> ObjectPlan:
        parameters, shape = self.parameters, self.image.shape
        n_axes = len(shape) - (parameters["axis"] is not None)

        def sides(length: int, along_axis: int) -> list[int]:
            lengths = [length] * len(shape)
            if parameters["axis"] is not None:
                lengths[parameters["axis"]] = along_axis
            return lengths

        largest = sides(parameters["tile"] or _TILE[n_axes], 1)
        largest = [min(side, n) for side, n in zip(largest, shape, strict=True)]
        chunk, tile = chunks_and_tiles(largest, sides(_CHUNK[n_axes], 1))
        names = ("smallest", "neck", "kinds", "axis", "spacing")
        return ObjectPlan(
            kind="objects",
            tile=tile,
            chunk=chunk,
            halo=sides(parameters["halo"] or _HALO[n_axes], 0),
            names=dict(self.names),
            **{name: parameters[name] for name in names},
            **self.described(),
        )

    def work(self, plan: Any, out: Path, is_sent: bool) -> AbstractWork:
        return _Work(plan, *self.sent(is_sent), out.absolute())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Work(AbstractWork):
    """Worker of tiles; parts are stored in a temporary folder of the store."""

    def stages(self, done: dict[Tile, Any]) -> Iterator[Sequence[Tile]]:
        """Yield the tiles of the first pass, which finds parts, then those to number."""
        plan, every = self.plan, self.plan.every_tile()
        firsts = [tile for tile in every if tile[0] == _PARTS]
        if not done:
            storage.remove_path(self.out / _FOLDER)
        storage.make_folder(self.out / _FOLDER)
        for tile in firsts:
            if not self.table_of(tile).exists():  # removed since
                done.pop(tile, None)
        yield firsts
        joined = join_tiles(plan, {tile[1:]: self.table_of(tile) for tile in firsts}, plan.axis)
        numbers, kinds = joined.parts.number(plan.smallest, plan.neck)
        self.save_numbers(joined, numbers)
        yield every[len(firsts) :]
        notes = list(plan.notes)
        if joined.n_unseen:
            notes.append(
                f"{joined.n_unseen} parts extend beyond the halo of their tile: a larger halo may "
                "split them differently"
            )
        _write_objects(LabelStore(self.out), kinds, notes)

    def do_finest(self, tile: Tile, region: io.Region) -> dict[int, int]:
        """Find the parts of a tile, or in the second pass write its object numbers."""
        if tile[0] == _PARTS:
            _, labels, uncertainty = self.read(region)
            parts, heights = find_parts(
                labels[..., 0],
                uncertainty=uncertainty,
                spacing=self.plan.spacing,
                axis=self.plan.axis,
                kinds=self.plan.kinds,
            )
            save_table(self.table_of(tile), tile_table(self.plan, region, parts, heights))
            return {}
        with np.load(self.table_of(tile)) as table:
            numbers: NDArray[np.uint32] = np.load(self._numbers_of(tile))
            LabelStore(self.out).write(0, region, numbers[table["inner"]])
        return {}

    def table_of(self, tile: Tile) -> Path:
        """Return the file of the parts of a tile."""
        return self.out / _FOLDER / f"{'.'.join(map(str, tile[1:]))}.npz"

    def _numbers_of(self, tile: Tile) -> Path:
        return self.out / _FOLDER / f"{'.'.join(map(str, tile[1:]))}.npy"

    def save_numbers(self, joined: JoinedParts, numbers: NDArray[np.uint32]) -> None:
        """Save the object number of each part, tile by tile."""
        ends = [*list(joined.starts.values())[1:], len(joined.owners) - 1]
        for (position, start), end in zip(joined.starts.items(), ends, strict=True):
            owners = np.append(0, joined.owners[start + 1 : end + 1])
            with storage.write_errors(self.out):
                np.save(self._numbers_of((0, *position)), numbers[owners])


def _write_objects(store: LabelStore, kinds: NDArray[np.int64], notes: Sequence[str]) -> None:
    import zarr

    with storage.write_errors(store.path):
        group = zarr.open_group(store.path, mode="r+").create_group(_OBJECTS, overwrite=True)
        group.create_array("kinds", data=kinds)
        group.attrs["notes"] = list(notes)


def _read_objects(store: LabelStore) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    import zarr

    with storage.format_errors(store.path, "a store of objects"):
        group = zarr.open_group(store.path / _OBJECTS, mode="r")
        kinds: Any = group["kinds"]
        notes: Any = group.attrs["notes"]
        return np.asarray(kinds[:]), tuple(map(str, notes))
