"""Export of objects: GeoJSON (QuPath), ImageJ ROI sets, COCO.

Outlines follow pixel edges, x to the right and y down, with the corner of the first pixel at
(0, 0); a pixel belongs to the outline that contains its centre, so masks are restored exactly.
Images are processed part by part, and outlines across parts are merged at the end: memory is
bounded by one part and the outlines of objects that span several.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject, as_path, boxes, spelled_kind
from napari_saf.errors import InvalidInput
from napari_saf.io._frame import part_regions
from napari_saf.io._paths import check_suffix, file_stem, printable
from napari_saf.io._readers import library
from napari_saf.io._source import ImageSource, Region
from napari_saf.io._tables import LargeRegions
from napari_saf.storage import atomic_write

T = TypeVar("T")
_SIDE = 512
"""Side of the squares in which outlines are traced; shapely blocks all threads meanwhile."""
_MOVE, _LINE, _CLOSE = 0.0, 1.0, 4.0
"""Segment types of an ImageJ path."""


class AnyObjects(Protocol):
    """`Objects`, or those of a large image, read in parts."""

    @property
    def labels(self) -> Any: ...
    @property
    def kinds(self) -> NDArray[np.int64]: ...
    @property
    def names(self) -> Mapping[int, str]: ...


def save_objects(path: str | os.PathLike[str], objects: AnyObjects | LargeRegions) -> Path:
    """Save outlines, numbers and kind names of objects for other programs.

    Parameters
    ----------
    path : path
        Ends in ``.geojson`` (QuPath), ``.zip`` (a set of ROIs of ImageJ) or ``.json`` (COCO). Each
        plane of a volume is written separately, with its index. `save_masks` writes the numbered
        image, `save_table` the result of `object_table`.
    objects : Objects or LargeObjects
        In 2-D or 3-D; results of `split_large` are read part by part.

    Returns
    -------
    Path

    Raises
    ------
    InvalidInput
        If the suffix is unknown, or the objects have more than 3 axes.
    SafError
        If a library is missing or the file cannot be written.

    Examples
    --------
    >>> objects = saf.split_objects(np.kron([[1, 0, 2]], np.ones((8, 8), int)))
    >>> saf.save_objects("cells.json", objects).name  # as COCO has them
    'cells.json'
    """
    target, suffix = as_path(path), check_outlines(path)
    numbered = objects if isinstance(objects, LargeRegions) else _Parts(objects)
    if len(numbered.shape) not in (2, 3):
        raise InvalidInput(f"objects: expected 2 or 3 axes, got shape {numbered.shape}")
    _WRITERS[suffix](target, numbered)
    return target


def check_outlines(path: str | os.PathLike[str]) -> str:
    """Return the suffix; raise the errors of `save_objects` before objects are computed."""
    suffix = check_suffix(as_path(path), [*_WRITERS])
    for name in _LIBRARIES.get(suffix, ()):
        library(name)
    return suffix


class _Parts:
    """Objects part by part, with the last part of each, like `LargeRegions`."""

    def __init__(self, objects: AnyObjects) -> None:
        names = ("labels", "kinds", "names")
        if any(getattr(objects, name, None) is None for name in names):
            expected = "Objects, as saf.split_objects(labels) or split_large give them"
            raise InvalidInput(f"objects: expected {expected}, got {spelled_kind(objects)}")
        self.kinds, self.names, self._labels = objects.kinds, objects.names, objects.labels
        self.shape = tuple(self._labels.shape)
        pieces = getattr(self._labels, "chunks", (1,) * len(self.shape))
        self._regions = list(part_regions(pieces, self.shape).values())
        self.last = np.zeros(len(self.kinds), np.int64)
        for k, (_, numbers) in enumerate(self.parts() if len(self._regions) > 1 else ()):
            self.last[numbers.ravel()] = k

    def parts(self) -> Iterator[tuple[Region, NDArray[Any]]]:
        """Yield each part and its object numbers."""
        if len(self.kinds) < 2:  # no objects
            return
        opened = ImageSource.open(self._labels, are_labels=True, are_whole=True)
        for region in self._regions:
            yield region, opened.read(region)[..., 0]


_Numbered = LargeRegions | _Parts


def _name(objects: _Numbered, label: int) -> str:
    return objects.names.get(label, f"label {label}")


def _joined(
    objects: _Numbered, find: Callable[[NDArray[Any], int, int], Iterable[tuple[int, T]]]
) -> Iterator[tuple[int, int, list[T]]]:
    """Yield number, plane and the pieces found of each object in each plane.

    `find` takes the numbers of a plane of a part, and its first row and column.
    """
    waiting: dict[int, dict[int, list[T]]] = {}
    for k, (region, numbers) in enumerate(objects.parts()):
        *first, row, column = (side.start for side in region)
        planes = numbers.reshape(-1, *numbers.shape[-2:])
        present = set[int]()
        for plane, labels in enumerate(planes, start=sum(first)):
            for number, piece in find(labels, row, column):
                waiting.setdefault(number, {}).setdefault(plane, []).append(piece)
                present.add(number)
        for number in sorted(present):
            if objects.last[number] == k:
                for plane, pieces in waiting.pop(number).items():
                    yield number, plane, pieces


def _outlines(objects: _Numbered) -> Iterator[tuple[int, int, Any]]:
    """Yield number, plane and shapely polygon of each object in each plane."""
    shapely = library("shapely")

    def faces(labels: NDArray[Any], row: int, column: int) -> Iterator[tuple[int, Any]]:
        for box in boxes(labels.shape, (_SIDE, _SIDE)):
            yield from faces_of(labels[box], row + box[0].start, column + box[1].start)

    def faces_of(labels: NDArray[Any], row: int, column: int) -> Iterator[tuple[int, Any]]:
        framed = np.pad(labels, 1)
        below = (framed[1:] != framed[:-1])[:, 1:-1]
        right = (framed[:, 1:] != framed[:, :-1])[1:-1]
        edges = np.concatenate([_straight(below, right), _straight(right.T, below.T)[..., ::-1]])
        lines = shapely.linestrings(edges[..., ::-1].astype(float))
        # A polygon for each face of the plane, without collinear vertices.
        polygons = shapely.simplify(shapely.get_parts(shapely.polygonize(lines)), 0)
        inner = shapely.get_coordinates(shapely.point_on_surface(polygons)).astype(int)
        owners = labels[inner[:, 1], inner[:, 0]]
        polygons = shapely.transform(polygons, lambda corners: np.add(corners, (column, row)))
        order = np.argsort(owners, kind="stable")[np.count_nonzero(owners == 0) :]
        for number, indices in itertools.groupby(order, key=lambda face: int(owners[face])):
            yield number, polygons[list(indices)]

    for number, plane, pieces in _joined(objects, faces):
        parts = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        if len(pieces) > 1:
            parts = shapely.get_parts(shapely.simplify(shapely.union_all(parts), 0))
        yield number, plane, parts[0] if len(parts) == 1 else shapely.multipolygons(parts)


def _straight(edges: NDArray[np.bool_], across: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the ends (n, 2, 2) of maximal straight runs of edges without crossing edges.

    `edges` connect nodes along the last axis, `across` along the first.
    """
    padded = np.pad(edges, ((0, 0), (1, 1)))
    crossing = np.pad(across, ((1, 1), (0, 0)))
    is_met = crossing[1:] | crossing[:-1]
    starts = np.argwhere(edges & (is_met[:, :-1] | ~padded[:, :-2]))
    ends = np.add(np.argwhere(edges & (is_met[:, 1:] | ~padded[:, 2:])), (0, 1))
    return np.stack([starts, ends], axis=1)


def _write_list(path: Path, head: JsonObject, name: str, rows: Iterable[JsonObject]) -> None:
    """Write a JSON object whose last entry is a long list, row by row."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="ascii") as file:
        file.write(f'{json.dumps(head)[:-1]}, "{name}": [')
        for k, row in enumerate(rows):
            file.write(",\n" * (k > 0) + json.dumps(row, separators=(",", ":")))
        file.write("]}\n")


def _write_geojson(path: Path, objects: _Numbered) -> None:
    shapely = library("shapely")

    def features() -> Iterator[JsonObject]:
        for number, plane, area in _outlines(objects):
            label = int(objects.kinds[number])
            geometry = json.loads(shapely.to_geojson(area))
            if len(objects.shape) == 3:
                geometry["plane"] = {"c": -1, "z": plane, "t": 0}
            properties = {
                "objectType": "detection",
                "name": str(number),
                "classification": {"name": _name(objects, label)},
                "object": number,
                "kind": label,
            }
            yield {"type": "Feature", "geometry": geometry, "properties": properties}

    head = {"type": "FeatureCollection", "shape": objects.shape}
    _write_list(path, head, "features", features())


def _write_rois(path: Path, objects: _Numbered) -> None:
    roifile, shapely = library("roifile"), library("shapely")

    def rois() -> Iterator[Any]:
        for number, plane, area in _outlines(objects):
            label = int(objects.kinds[number])
            name = printable(_name(objects, label))
            rings = [*map(shapely.get_coordinates, shapely.get_rings(shapely.get_parts(area)))]
            corners = np.concatenate(rings).astype(int)
            if len(rings) == 1:
                roi = roifile.ImagejRoi.frompoints(corners[:-1])
                roi.roitype = roifile.ROI_TYPE.TRACED
            else:
                roi = roifile.ImagejRoi()
                path_of_rings = np.concatenate([_path(ring) for ring in rings])
                roi.roitype, roi.multi_coordinates = roifile.ROI_TYPE.RECT, path_of_rings
                roi.shape_roi_size = len(path_of_rings)
                roi.left, roi.top = corners.min(axis=0)
                roi.right, roi.bottom = corners.max(axis=0)
            is_stack = len(objects.shape) == 3
            if is_stack:
                roi.position = plane + 1
            roi.name = f"{number:06d}-{file_stem(name)}" + f"-{plane}" * is_stack
            roi.properties = {"object": number, "kind": label, "kind_name": name}
            yield roi

    with atomic_write(path) as temporary:
        roifile.roiwrite(temporary, rois(), mode="w")


def _path(ring: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Return a ring as an ImageJ path: segment type, x and y of each vertex, then the end mark."""
    steps = np.full((len(ring), 3), _LINE, np.float32)
    steps[0, 0], steps[:, 1:] = _MOVE, ring
    return np.append(steps.ravel(), np.float32(_CLOSE))


def _write_coco(path: Path, objects: _Numbered) -> None:
    *stack, rows, columns = objects.shape

    def runs(
        labels: NDArray[Any], row: int, column: int
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the runs (n, 2) of each object in column-major order: start and exclusive stop."""
        framed = np.pad(labels.T, ((0, 0), (1, 1)))
        is_change = framed[:, 1:] != framed[:, :-1]
        x, y = np.nonzero(is_change & (framed[:, 1:] > 0))
        last_x, behind = np.nonzero(is_change & (framed[:, :-1] > 0))
        owners = labels[y, x]
        ends = np.stack([(x + column) * rows + y + row, (last_x + column) * rows + behind + row], 1)
        order = np.argsort(owners, kind="stable")
        present, starts = np.unique(owners[order], return_index=True)
        yield from zip(present.tolist(), np.split(ends[order], starts[1:]), strict=False)

    def annotations() -> Iterator[JsonObject]:
        for k, (number, plane, pieces) in enumerate(_joined(objects, runs), start=1):
            spans = np.concatenate(pieces)
            spans = spans[np.argsort(spans[:, 0])]
            x, (top, bottom) = spans[:, 0] // rows, (spans - spans[:, :1] // rows * rows).T
            box = [x[0], top.min(), x[-1] + 1 - x[0], bottom.max() - top.min()]
            is_first = np.append(True, spans[1:, 0] != spans[:-1, 1])  # adjacent runs are merged
            ends = np.stack([spans[is_first, 0], spans[np.roll(is_first, -1), 1]], axis=1)
            counts = np.diff(ends.ravel(), prepend=0, append=rows * columns)
            yield {
                "id": k,
                "image_id": plane + 1,
                "category_id": int(objects.kinds[number]),
                "object": number,
                "segmentation": {"size": [rows, columns], "counts": counts.tolist()},
                "area": int((spans[:, 1] - spans[:, 0]).sum()),
                "bbox": list(map(int, box)),
                "iscrowd": 0,
            }

    size = {"width": columns, "height": rows}
    planes = range(stack[0] if stack else 1)
    images = [{"id": k + 1, "file_name": f"plane-{k}", **size} for k in planes]
    kinds = np.unique(objects.kinds[1:]).tolist()
    categories = [{"id": label, "name": _name(objects, label)} for label in kinds if label]
    _write_list(path, {"images": images, "categories": categories}, "annotations", annotations())


_LIBRARIES = {".geojson": ("shapely",), ".zip": ("roifile", "shapely")}
_WRITERS = {".geojson": _write_geojson, ".zip": _write_rois, ".json": _write_coco}
OUTLINE_SUFFIXES = tuple(_WRITERS)
"""GeoJSON, an ImageJ ROI set, COCO."""
