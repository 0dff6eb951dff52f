"""Readers of outline files: GeoJSON (QuPath), ImageJ ROI sets, COCO; see `save_objects`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import JsonObject, as_list, as_path, as_whole
from napari_saf.errors import InvalidInput
from napari_saf.io import OUTLINE_SUFFIXES, check_suffix, library
from napari_saf.objects._split import Objects
from napari_saf.storage import check_room, format_errors, parse_json, read_limited

_MOST_BYTES = 2**30
MOST_NUMBER, _FARTHEST = 2**24, 2.0**31
"""Largest object number, and largest coordinate, in a file."""
_SOME = 5

Rings = list[NDArray[np.floating[Any]]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """Outline in one plane: even-odd rings (n, 2) of x and y, or flat indices `pixels`."""

    number: int
    kind: int
    name: str
    plane: int
    rings: Rings
    pixels: NDArray[np.integer[Any]] | None = None


def load_objects(
    path: str | os.PathLike[str],
    shape: Sequence[int] | None = None,
    *,
    image: str | None = None,
) -> Objects:
    """Load objects from GeoJSON (`save_objects`, QuPath), ImageJ ROI sets or COCO files.

    Parameters
    ----------
    path : path
        File in a format of `save_objects`. COCO images of equal size become planes.
    shape : sequence of int, optional
        Shape of the image. None: that stated in the file, or the bounding box of the outlines.
    image : str, optional
        File name of one of several COCO images; needed if their sizes differ.

    Returns
    -------
    Objects
        Overlapping pixels belong to the first object; `notes` reports them.

    Raises
    ------
    FormatError
        If the file is damaged, of another format, or has no such image.
    InvalidInput
        If `image` is given for a format other than COCO.
    SafError
        If a library is missing.

    Examples
    --------
    >>> objects = saf.split_objects(np.kron([[1, 0, 2]], np.ones((8, 8), int)))
    >>> loaded = saf.load_objects(saf.save_objects("cells.json", objects))
    >>> np.array_equal(loaded.labels, objects.labels)
    True
    """
    source = as_path(path)
    suffix = check_suffix(source, OUTLINE_SUFFIXES)
    if image is not None and suffix != ".json":
        raise InvalidInput(f"image: applies to COCO files (.json) only, got {source.name}")
    sides = () if shape is None else tuple(as_whole(n) or 0 for n in as_list(shape, "shape"))
    with format_errors(source, "a file of objects"):
        shapes, stated = _READERS[suffix](source) if image is None else _read_coco(source, image)
        return _draw(shapes, stated if shape is None else sides)


def _draw(shapes: Sequence[_Shape], shape: tuple[int, ...] | None) -> Objects:
    """Rasterise shapes; those without a number get a free one."""
    if shape is None:
        corners = [ring.max(axis=0) for roi in shapes for ring in roi.rings]
        x, y = np.ceil(np.max(corners, axis=0)).astype(int) if corners else (1, 1)
        n_planes = 1 + max((roi.plane for roi in shapes), default=0)
        shape = (n_planes, int(y), int(x))[0 if n_planes > 1 else 1 :]
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise InvalidInput(f"shape: expected 2 or 3 sides of 1 or more, got {shape}")
    check_room(8 * math.prod(shape))
    labels = np.zeros(shape, np.uint32)
    planes = labels.reshape(-1, math.prod(shape[-2:]))
    names = {roi.kind: roi.name for roi in reversed(shapes) if roi.kind}
    kind_of = {name: kind for kind, name in names.items()}
    numbers = itertools.count(1 + max((roi.number for roi in shapes), default=0))
    owners: dict[int, int] = {}
    seen = set[int]()
    n_shared = 0
    for roi in shapes:
        if not 0 <= roi.plane < len(planes):
            raise InvalidInput(
                f"expected outlines in planes below {len(planes)}, got plane {roi.plane}"
            )
        if not 0 <= roi.number <= MOST_NUMBER or roi.kind < 0:
            raise InvalidInput(f"expected numbers up to {MOST_NUMBER}, got {roi.number}")
        plane = planes[roi.plane]
        indices = _pixels(roi.rings, labels.shape[-2:]) if roi.pixels is None else roi.pixels
        free = indices[plane[indices] == 0]
        n_shared += len(indices) - len(free)
        number = roi.number or next(numbers)
        plane[free] = number
        seen |= {number} if len(free) else set()
        kind = roi.kind or kind_of.setdefault(roi.name, 1 + max(kind_of.values(), default=0))
        owners[number], names[kind] = kind, roi.name
    present = sorted(seen)
    kinds = np.zeros(1 + max(present, default=0), np.int64)
    kinds[present] = [owners[number] for number in present]
    notes = [f"{n_shared} pixels are in several outlines and belong to the first"] * (n_shared > 0)
    n_lost = len(owners) - len(present)
    notes += [f"{n_lost} objects without pixels of their own are omitted"] * (n_lost > 0)
    return Objects(labels, kinds, names, tuple(notes))


def _pixels(rings: Rings, shape: tuple[int, ...]) -> NDArray[np.integer[Any]]:
    """Return flat indices of pixels whose centres are inside an odd number of rings."""
    if not rings:
        return np.zeros(0, np.int64)
    starts = np.concatenate(rings)
    ends = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    if not (np.abs(starts) < _FARTHEST).all():
        raise InvalidInput("expected finite outline coordinates below 2^31")
    # Rows of pixel centres that each edge crosses, and the columns of the crossings.
    low, high = np.minimum(starts[:, 1], ends[:, 1]), np.maximum(starts[:, 1], ends[:, 1])
    first, stop = (np.ceil(y - 0.5).clip(0, shape[0]).astype(np.int64) for y in (low, high))
    check_room(64 * int((stop - first).sum()))
    rows, edges = _runs(first, stop), np.repeat(np.arange(len(starts)), stop - first)
    (x, y), (across, down) = starts[edges].T, (ends - starts)[edges].T
    columns = np.ceil(x + (rows + 0.5 - y) * across / down - 0.5).clip(0, shape[1])
    row, column = np.divmod(np.sort(rows * (shape[1] + 1) + columns.astype(np.int64)), shape[1] + 1)
    crossings = row * shape[1] + column
    return _runs(crossings[::2], crossings[1::2])


def _runs(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated integer ranges from starts to ends."""
    lengths = ends - starts
    offsets = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum()) + np.repeat(starts - offsets, lengths))


def _read_geojson(path: Path) -> tuple[list[_Shape], tuple[int, ...] | None]:
    plain: Any = parse_json(read_limited(path, _MOST_BYTES))
    features = plain if isinstance(plain, list) else plain.get("features", [plain])
    shapes = []
    for feature in features:
        geometry, properties = feature["geometry"], feature.get("properties") or {}
        areas = geometry.get("coordinates", [])
        areas = {"Polygon": [areas], "MultiPolygon": areas}.get(geometry["type"], [])
        rings = [np.asarray(ring, float)[:, :2] for area in areas for ring in area]
        name = (properties.get("classification") or {}).get("name", "object")
        number, kind = (as_whole(properties.get(key, 0)) or 0 for key in ("object", "kind"))
        plane = int((geometry.get("plane") or {}).get("z", 0))
        shapes.append(_Shape(number, kind, str(name), plane, rings))
    shape = None if isinstance(plain, list) else plain.get("shape")
    return shapes, None if shape is None else tuple(map(int, shape))


def _read_rois(path: Path) -> tuple[list[_Shape], tuple[int, ...] | None]:
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(entry.file_size for entry in archive.infolist())
    if n_bytes > _MOST_BYTES:
        raise InvalidInput(f"expected at most {_MOST_BYTES // 2**20} MiB unpacked")
    shapes = []
    for roi in library("roifile").roiread(path):
        properties = roi.properties
        rings = [np.asarray(ring, float) for ring in roi.coordinates(multi=True)]
        number, kind = (as_whole(properties.get(key, 0)) or 0 for key in ("object", "kind"))
        plane = max(roi.position, roi.z_position, roi.t_position, 1) - 1
        name = str(properties.get("kind_name", "object"))
        rings = [ring for ring in rings if len(ring) > 2]
        shapes.append(_Shape(number, kind, name, plane, rings))
    return shapes, None


def _read_coco(path: Path, image: str | None = None) -> tuple[list[_Shape], tuple[int, ...] | None]:
    plain: Any = parse_json(read_limited(path, _MOST_BYTES))
    images = plain["images"]
    if image is not None:
        named = [(entry, PureWindowsPath(entry["file_name"])) for entry in images]  # of / and of \
        images = [entry for entry, path in named if image in (entry["file_name"], path.name)]
        if len(images) != 1:
            examples = ", ".join(str(entry["file_name"]) for entry in plain["images"][:_SOME])
            raise InvalidInput(
                f"expected one image {image}, found {len(images)}; there are {examples}"
            )
    planes = {entry["id"]: plane for plane, entry in enumerate(images)}
    sizes = {(int(entry["height"]), int(entry["width"])) for entry in images}
    if len(sizes) != 1:
        raise InvalidInput(
            f"images have {len(sizes)} sizes: select one with load_objects(path, image=NAME)"
        )
    size = sizes.pop()
    names = {entry["id"]: str(entry["name"]) for entry in plain.get("categories", ())}
    shapes = []
    for annotation in plain["annotations"]:
        rings, pixels, segmentation = [], None, annotation["segmentation"]
        if image is not None and annotation["image_id"] not in planes:
            continue
        if isinstance(segmentation, dict):
            pixels = _decode(segmentation, size)
        else:
            rings = [np.asarray(ring, float).reshape(-1, 2) for ring in segmentation]
        kind = int(annotation["category_id"])
        name, number = names.get(kind, f"label {kind}"), as_whole(annotation.get("object", 0)) or 0
        shapes.append(_Shape(number, kind, name, planes[annotation["image_id"]], rings, pixels))
    return shapes, size if len(planes) == 1 else (len(planes), *size)


def _decode(runs: JsonObject, size: tuple[int, int]) -> NDArray[np.integer[Any]]:
    """Decode column-major COCO run lengths into flat row-major pixel indices."""
    check_room(8 * math.prod(size))
    if list(runs["size"]) != list(size):
        raise InvalidInput(f"expected runs of size {size}, got {runs['size']}")
    packed = runs["counts"]
    counts = np.asarray(_unpack(packed) if isinstance(packed, str) else packed, np.int64)
    if (counts < 0).any() or counts.sum() != math.prod(size):
        raise InvalidInput(f"expected runs of {math.prod(size)} pixels, got {counts.sum()}")
    ends = np.cumsum(counts)
    stops = ends[1::2]
    indices = _runs(ends[::2][: len(stops)], stops)
    return np.asarray(indices % size[0] * size[1] + indices // size[0])


def _unpack(packed: str) -> list[int]:
    """Decode compressed COCO run lengths: five bits per character, lowest first."""
    counts: list[int] = []
    value = shift = 0
    for sign in packed.encode("ascii"):
        value |= (sign - 48 & 31) << shift
        shift += 5
        if not sign - 48 & 32:
            value -= (sign - 48 & 16) << (shift - 4)
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    return counts


_Read = Callable[[Path], tuple[list[_Shape], tuple[int, ...] | None]]
_READERS: dict[str, _Read] = {".geojson": _read_geojson, ".zip": _read_rois, ".json": _read_coco}
