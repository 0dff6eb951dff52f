"""The zarr pyramid of labels, and the journal of written tiles."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf import io, storage
from napari_saf.arrays import JsonObject
from napari_saf.errors import FormatError, InvalidInput, SafError
from napari_saf.strategies import Strategy, refusal
from napari_saf.tiles._tiling import Tiling

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

_VERSION = {"version": "0.5"}
_REPLACES = "--overwrite replaces it"
_KEY = "napari-saf-tiles"
"""Attribute with the digest of the plan and, once all tiles are written, the summary."""
Done = dict[tuple[int, ...], dict[int, int]]
"""Number of pixels of each label by tile."""


class LabelStore:
    """A label pyramid, which is no valid OME-Zarr until all tiles are written.

    `path` ends in ``.ome.zarr``, or is in the folder ``labels`` of an OME-Zarr image and then has
    its zarr format: labels of images older than OME-Zarr 0.5 have version 0.4.
    """

    def __init__(self, path: Path) -> None:
        if ".." in path.parts and not path.parent.exists():  # no folder is created for it
            path = Path(os.path.realpath(path.parent), path.name)
        self.path = path
        self.journal = path.with_name(f"{path.name}.journal")
        image = path.parent.parent
        is_inner = path.parent.name == "labels" and io.is_zarr(image)
        self.image = image if is_inner else None
        self.format: Any = 2 if is_inner and not (image / "zarr.json").is_file() else 3
        if is_inner and (path.name in (".", "..") or path.suffix):
            raise InvalidInput(f"{path}: expected a plain name within labels")
        if not is_inner:
            io.check_suffix(path, [".ome.zarr"])

    def check_apart(self, *read: object) -> None:
        """Raise InvalidInput if an input image is inside the store, or the store inside it."""
        store = Path(os.path.realpath(self.path))
        for image in read:
            if isinstance(image, io.ImageSource) and image.file is not None:
                source = Path(os.path.realpath(image.file))
                is_within = source in store.parents and store.parent.name != "labels"
                if is_within or source == store or store in source.parents:
                    raise InvalidInput(f"{self.path}: the result would replace what it is made of")
                if source in store.parents and image.is_reordered:
                    raise refusal(Strategy.TILES_ON_DISK, "axis order", path=self.path)

    def finished(self, request: JsonObject) -> JsonObject | None:
        """Return the summary of a finished store of the same request, None if there is none.

        InvalidInput if the path is another file or store.
        """
        summary = self._summary()
        if summary is None and (not self.path.exists() or _is_empty(self.path)):
            return None
        if summary is None:
            raise InvalidInput(f"{self.path}: is there already, and is no tiled mask; {_REPLACES}")
        if summary.get("finished") is None:
            return None
        if summary.get("request") != request:
            raise InvalidInput(f"{self.path}: is there already, from another run; {_REPLACES}")
        return summary

    def is_finished(self, job: Any) -> bool:
        """Return whether the store of a job is finished and its image unchanged; see `finished`."""
        summary = self.finished(job.request)
        return summary is not None and summary["source"] == json.loads(json.dumps(job.state))

    def _summary(self) -> JsonObject | None:
        try:
            summary = io.zarr_attributes(self.path).get(_KEY)
        except (OSError, ValueError, FormatError, InvalidInput):
            return None
        return summary if isinstance(summary, dict) else None

    def remove(self) -> None:
        """Remove the store; raise InvalidInput if the path is not a zarr store."""
        if self.path.exists() and not io.is_zarr(self.path):
            raise InvalidInput(f"{self.path}: is no zarr store; it stays as it is")
        storage.remove_path(self.journal)
        storage.remove_path(self.path)

    def create(self, plan: Tiling) -> None:
        """Create the empty arrays of all levels."""
        with storage.write_errors(self.path):
            storage.make_folder(self.path.parent)
            summary = {_KEY: {"plan": plan.digest}}
            group = _group(self.path, "w", zarr_format=self.format, attributes=summary)
            # Shards require zarr 3; a tile consists of whole chunks.
            stored: dict[str, Any] = {"shards": plan.tile, "dimension_names": plan.axes}
            if self.format == 2:
                stored = {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
            dtype = np.min_scalar_type(plan.most_label)
            for level, shape in enumerate(plan.level_shapes()):
                group.create_array(
                    str(level), shape=shape, chunks=plan.chunk, dtype=dtype, **stored
                )

    def is_of(self, plan: Tiling) -> bool:
        """Return whether the store was created for a plan."""
        summary = self._summary()
        return summary is not None and summary.get("plan") == plan.digest

    def write(self, level: int, region: io.Region, labels: NDArray[Any]) -> None:
        """Write whole shards of a level."""
        with storage.write_errors(self.path):
            _array(self.path, level, "r+")[region] = labels

    def level(self, level: int) -> Any:
        """Return a level as a zarr array, which is read on demand."""
        return _array(self.path, level, "r")

    def levels(self) -> list[Any]:
        """Return all levels, the finest first."""
        group = _group(self.path, "r")
        return [group[name] for name in sorted(group.array_keys(), key=int)]

    def read(self, level: int, region: io.Region) -> NDArray[Any]:
        """Return labels of a level."""
        return np.asarray(self.level(level)[region])

    def coarsen(self, plan: Tiling, tile: tuple[int, ...]) -> None:
        """Write a tile of a coarser level from the next finer one."""
        level, *position = tile
        region, steps = plan.region(position, level), plan.steps_between(level - 1)
        sides = zip(region, steps, plan.level_shapes()[level - 1], strict=True)
        finer = tuple(slice(r.start * k, min(r.stop * k, n)) for r, k, n in sides)
        every = tuple(slice(None, None, k) for k in steps)
        self.write(level, region, self.read(level - 1, finer)[every])

    def finish(self, plan: Tiling, image: io.ImageSource, counts: dict[int, int]) -> JsonObject:
        """Write the metadata of labels, which completes the store; remove the journal.

        Return the summary, see `finished`.
        """
        shapes = plan.level_shapes()
        paths = [str(level) for level in range(len(shapes))]
        axes = image.label_axes()
        label_map, note = plan.describe(axes, sorted(counts))
        attributes = io.describe_zarr(paths, shapes, axes, label_map, note, io.mask_stem(self.path))
        if self.image is not None:
            attributes["ome"]["image-label"]["source"] = {"image": "../../"}
        summary = {
            "plan": plan.digest,
            "request": plan.request,
            "source": plan.source,
            "n_tiles": len(plan.tiles()),
            "finished": {str(label): count for label, count in sorted(counts.items())},
            "notes": plan.notes,
        }
        with storage.write_errors(self.path):
            # Temporary files of a killed writer.
            for file in self.path.rglob("*.partial"):
                storage.remove_path(file)
            if self.image is not None:  # the group of all labels of an image lists them
                group = _group(self.path.parent, "a", zarr_format=self.format)
                ome: Any = dict(group.attrs) if self.format == 2 else group.attrs.get("ome", {})
                listed = sorted({*ome.get("labels", []), self.path.name})
                entry = {"labels": listed}
                group.attrs.update(entry if self.format == 2 else {"ome": _VERSION | ome | entry})
            if self.format == 2:
                attributes = _of_version_4(attributes)
            _group(self.path, "r+").update_attributes(attributes | {_KEY: summary})
        storage.remove_path(self.journal)
        return summary


def _of_version_4(attributes: JsonObject) -> JsonObject:
    """Convert label attributes of OME-Zarr 0.5 to 0.4."""
    plain = {key: value for key, value in attributes.items() if key != "ome"}
    ome, version = attributes["ome"], {"version": "0.4"}
    levels = [multiscale | version for multiscale in ome["multiscales"]]
    return plain | {"multiscales": levels, "image-label": ome["image-label"] | version}


def _is_empty(path: Path) -> bool:
    """Return whether a folder is empty except for temporary files of a killed writer."""
    return path.is_dir() and all(file.name.endswith(".partial") for file in path.iterdir())


def _group(path: Path, mode: str, **options: Any) -> Any:
    import zarr  # takes a tenth of a second to load

    return zarr.open_group(path, mode=mode, **options)


def _array(path: Path, level: int, mode: str) -> Any:
    import zarr

    return zarr.open_array(path / str(level), mode=mode)


class Journal:
    """The plan and a line for each written tile; locked by one process."""

    def __init__(self, path: Path, model: type[Tiling]) -> None:
        self._path, self._model = path, model
        self.plan: Any = None
        self.done: Done = {}
        with storage.write_errors(path):
            storage.make_folder(path.parent)
            self._file = open(path, "a+b")
        self._lock()
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise SafError(f"{self._path}: another process is writing this mask") from error

    def _read(self) -> None:
        """Read the tiles of an earlier run; a truncated last line is dropped."""
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        complete = [line for line in lines if line.endswith(b"\n")]
        if len(complete) < len(lines):
            self._file.truncate(sum(map(len, complete)))
        if not complete:
            return
        with storage.format_errors(self._path, "a journal of tiles"):
            self.plan = storage.validated(self._model, storage.parse_json(complete[0]))
            for line in complete[1:]:
                entry: Any = storage.parse_json(line)
                sizes = {int(label): int(count) for label, count in entry["sizes"].items()}
                self.done[tuple(map(int, entry["tile"]))] = sizes

    def begin(self, plan: Tiling) -> None:
        """Start over with a plan."""
        with storage.write_errors(self._path):
            self._file.truncate(0)
        self.plan, self.done = plan, {}
        self._append(plan.model_dump(by_alias=True))

    def add(self, tile: tuple[int, ...], sizes: dict[int, int]) -> None:
        """Append a written tile."""
        self.done[tile] = sizes
        self._append({"tile": list(tile), "sizes": sizes})

    def _append(self, entry: JsonObject) -> None:
        with storage.write_errors(self._path):
            self._file.write(json.dumps(entry, allow_nan=False).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Release the file for others; an empty one is removed."""
        is_empty = self.plan is None
        with suppress(OSError):
            self._file.close()
        if is_empty:
            storage.remove_path(self._path)
