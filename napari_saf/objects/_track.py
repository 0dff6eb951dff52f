"""Tracking of objects through the frames of a series, and track files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import as_path, as_whole, check_kind, own_floats
from napari_saf.errors import InvalidInput
from napari_saf.io import library, region_table
from napari_saf.objects._split import Objects, check_objects
from napari_saf.parameters import documented, parameter
from napari_saf.storage import atomic_write, make_folder

_REACH = 1.5
"""Default search radius between frames, in median diameters."""
_MOST = 2**16 - 1
"""Largest number in Cell Tracking Challenge images."""
GEFF = ".geff"
_MOST_APART = 0.9
"""Maximum share of an object outside its predecessor, when linking by overlap."""
TrackBy = Literal["distance", "overlap"]
TRACK_BY = get_args(TrackBy)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """Tracks of the objects of a series; made by `track_objects`.

    Attributes
    ----------
    objects : Objects
        The objects of all frames, along the first axis.
    table : dict of str to array
        One row per object, sorted by track and frame: ``track``, ``frame``, ``object``, and the
        centroid along each spatial axis, in pixels.
    parents : mapping of int to int
        Parent track by daughter track.

    Examples
    --------
    >>> frames = np.zeros((3, 16, 32), int)
    >>> for t, frame in enumerate(frames):
    ...     frame[4:12, 4 + 4 * t : 12 + 4 * t] = 1  # a square that moves
    >>> tracks = saf.track_objects(saf.split_objects(frames, axis=0))
    >>> tracks.table["track"].tolist(), tracks.table["frame"].tolist()
    ([1, 1, 1], [0, 1, 2])
    """

    objects: Objects
    table: dict[str, NDArray[Any]]
    parents: Mapping[int, int]

    @property
    def labels(self) -> NDArray[np.uint32]:
        """Track number at each pixel, 0 for none."""
        tracks = np.zeros(len(self.objects.kinds), np.uint32)
        tracks[self.table["object"]] = self.table["track"]
        return np.asarray(tracks[self.objects.labels])

    @property
    def layer_data(self) -> tuple[NDArray[np.float64], dict[int, list[int]]]:
        """Rows (track, frame, [z,] y, x) and graph for a napari Tracks layer."""
        names = [name for name in self.table if name != "object"]
        rows = np.stack([self.table[name] for name in names], axis=1).astype(float)
        return rows, {track: [parent] for track, parent in self.parents.items()}


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class TrackStep:
    """Parameters of `track_objects`, for commands and forms."""

    by: TrackBy = parameter(
        "distance",
        label="Follow by",
        help="Link objects by the distance of centroids, or by overlap, for objects that are "
        "elongated or large compared with their motion.",
    )
    reach: float | None = parameter(
        None,
        minimum=0.0,
        label="Reach",
        none="automatic",
        help="Maximum motion from one frame to the next, in the unit of the pixel size; none: 1.5 "
        "median diameters. For linking by distance only.",
    )
    most_missing: int = parameter(
        1,
        minimum=0,
        label="Missing frames",
        help="Maximum number of consecutive frames in which an object of a track may be missing.",
    )
    divide: bool = parameter(True, label="Divide", help="Whether objects may divide.")

    def run(self, objects: Objects, spacing: Sequence[float] | None = None) -> Tracks:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return track_objects(objects, spacing=spacing, **fields)


def track_objects(
    objects: Objects,
    *,
    by: TrackBy = "distance",
    spacing: Sequence[float] | None = None,
    reach: float | None = None,
    most_missing: int = 1,
    divide: bool = True,
) -> Tracks:
    """Link objects through frames by distance or overlap, with laptrack.

    Parameters
    ----------
    objects : Objects
        Objects of a series of planes or volumes, split by ``split_objects(..., axis=0)``.
    by : str
        ``"distance"`` of centroids, or ``"overlap"``, the share of an object that overlaps its
        predecessor, at least 0.1; for objects that are elongated or large compared with their
        motion.
    spacing : sequence of float, optional
        Pixel size along each axis but the first. None: 1.
    reach : float, optional
        Maximum motion from one frame to the next, in the unit of the spacing. None: 1.5 median
        diameters. For ``"distance"`` only.
    most_missing : int
        Longest gap of a track, in frames; 0 or more.
    divide : bool
        Whether objects may divide.

    Returns
    -------
    Tracks

    Raises
    ------
    InvalidInput
        If the labels are not a series, an object is in several frames, or a number is out of range.
    SafError
        If laptrack is missing.

    Notes
    -----
    Linear assignment with the squared distance, or 1 - overlap, as cost: first between consecutive
    frames, then from ends of tracks to starts and to divisions (Jaqaman et al.,
    https://doi.org/10.1038/nmeth.1237).

    Examples
    --------
    >>> frames = np.zeros((3, 16, 32), int)
    >>> for t, frame in enumerate(frames):
    ...     frame[4:12, 4 + 4 * t : 12 + 4 * t] = 1  # a square that moves
    >>> objects = saf.split_objects(frames, axis=0)
    >>> tracks = saf.track_objects(objects)
    >>> len(objects.numbers), np.unique(tracks.labels).tolist()
    (3, [0, 1])
    """
    check_objects(objects)
    shape = objects.labels.shape
    if len(shape) not in (3, 4):
        raise InvalidInput(f"objects: expected a series of planes or volumes, got shape {shape}")
    missing = as_whole(most_missing)
    if missing is None or missing < 0:
        raise InvalidInput(f"most_missing: expected 0 or more, got {most_missing!r}")
    sides = np.ones(len(shape) - 1) if spacing is None else own_floats(spacing, "spacing")
    if sides.shape != (len(shape) - 1,) or not (sides > 0).all():
        raise InvalidInput(f"spacing: expected {len(shape) - 1} sizes above 0, got {spacing!r}")
    if by not in TRACK_BY or (by == "overlap" and reach is not None):
        raise InvalidInput(f"by: expected distance, or overlap without reach, got {by!r}")
    if not objects.labels.any():
        empty = {name: np.zeros(0, int) for name in ("track", "frame", "object")}
        return Tracks(objects, empty, {})
    measures, centroids, diameter = _measured(objects, sides)
    limit = (_REACH * diameter if reach is None else float(reach)) ** 2
    if not limit > 0:
        raise InvalidInput(f"reach: expected a number above 0, got {reach!r}")
    metric: str | Callable[..., float] = "sqeuclidean"
    positions = centroids * sides
    if by == "overlap":
        metric, limit = _apart(objects, missing), _MOST_APART
        positions = measures["region"][:, None]
    rows, splits = _linked(measures, positions, metric, limit, missing, divide)
    order = np.lexsort((rows["frame"], rows["track_id"]))
    numbers = rows["object"].to_numpy()[order]
    row_of = np.argsort(measures["region"])
    index = row_of[np.searchsorted(measures["region"], numbers, sorter=row_of)]
    table = {
        "track": rows["track_id"].to_numpy()[order].astype(int) + 1,
        "frame": measures["frame"][index],
        "object": numbers,
    }
    table |= {name: centroids[index, k] for k, name in enumerate("zyx"[-len(sides) :])}
    pairs = splits[["parent_track_id", "child_track_id"]].to_numpy() if len(splits) else []
    return Tracks(objects, table, {int(child) + 1: int(parent) + 1 for parent, child in pairs})


def tracking() -> Any:
    """Import laptrack; SafError if it is missing."""
    return library("laptrack", "track")


def save_tracks(folder: str | os.PathLike[str], tracks: Tracks) -> list[Path]:
    """Save tracks in the format of the Cell Tracking Challenge, or as a geff.

    The challenge format has a mask per frame and a text file of tracks; a track with gaps is
    written as several tracks, each the parent of the next. A geff is a graph in a zarr store,
    https://liveimagetrackingtools.org/geff: nodes with frame, centroid in pixels and track, and an
    edge from each object to its successor.

    Parameters
    ----------
    folder : path
        A geff if it ends in ``.geff``, overwritten if it exists; else the folder for
        ``mask000.tif``, ... and ``res_track.txt``, created if needed.
    tracks : Tracks
        See `track_objects`.

    Returns
    -------
    list of path

    Raises
    ------
    InvalidInput
        If there are more than 65,535 tracks.
    SafError
        If a file cannot be written.

    Examples
    --------
    >>> frames = np.kron([[[1]], [[1]]], np.ones((8, 8), int))  # one object in two frames
    >>> tracks = saf.track_objects(saf.split_objects(frames, axis=0))
    >>> [path.name for path in saf.save_tracks("01_RES", tracks)]
    ['mask000.tif', 'mask001.tif', 'res_track.txt']
    """
    import tifffile

    target = as_path(folder, "folder")
    check_kind(tracks, Tracks, "tracks", "Tracks, as returned by saf.track_objects")
    if target.suffix == GEFF:
        _save_geff(target, tracks)
        return [target]
    track, frame = tracks.table["track"], tracks.table["frame"]
    is_new = (np.diff(track, prepend=0) != 0) | (np.diff(frame, prepend=-2) > 1)
    pieces = np.cumsum(is_new)
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(track))[: len(starts)] - 1
    if len(starts) > _MOST:
        raise InvalidInput(f"tracks: expected up to {_MOST}, got {len(starts)}")
    last = dict(zip(track[ends].tolist(), pieces[ends].tolist(), strict=True))
    lines, previous = [], 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        number = int(track[start])
        parent = last.get(tracks.parents.get(number, 0), 0)
        parent = int(pieces[start]) - 1 if number == previous else parent
        lines.append(f"{pieces[start]} {frame[start]} {frame[end]} {parent}")
        previous = number
    numbers = np.zeros(len(tracks.objects.kinds), np.uint16)
    numbers[tracks.table["object"]] = pieces
    labels = tracks.objects.labels
    make_folder(target)
    width = max(3, len(str(len(labels) - 1)))
    paths = [target / f"mask{k:0{width}d}.tif" for k in range(len(labels))]
    for path, frame_labels in zip(paths, labels, strict=True):
        with atomic_write(path) as temporary:
            tifffile.imwrite(temporary, numbers[frame_labels], compression="zlib")
    listing = target / "res_track.txt"
    with atomic_write(listing) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return [*paths, listing]


def _save_geff(path: Path, tracks: Tracks) -> None:
    import zarr

    columns = {"t" if name == "frame" else name: values for name, values in tracks.table.items()}
    columns["seg_id"] = nodes = columns.pop("object").astype(np.uint64)
    axes = [name for name in "tzyx" if name in columns]
    same = np.flatnonzero(np.diff(columns["track"]) == 0)  # rows are by track and frame
    edges = [np.stack([nodes[same], nodes[same + 1]], axis=1)]
    numbers, first = np.unique(columns["track"], return_index=True)
    last = np.append(first[1:], len(nodes)) - 1
    for child, parent in tracks.parents.items():
        ends = last[np.searchsorted(numbers, parent)], first[np.searchsorted(numbers, child)]
        edges.append(nodes[list(ends)][None])
    kinds = {name: {"identifier": name, "dtype": str(x.dtype)} for name, x in columns.items()}
    metadata = {
        "geff_version": "1.0",
        "directed": True,
        "axes": [{"name": name, "type": "time" if name == "t" else "space"} for name in axes],
        "node_props_metadata": kinds,
        "edge_props_metadata": {},
        "track_node_props": {"tracklet": "track"},
    }
    with atomic_write(path) as temporary:
        group = zarr.open_group(temporary, mode="w", zarr_format=2)
        group.attrs["geff"] = metadata
        group.create_array("nodes/ids", data=nodes)
        group.create_array("edges/ids", data=np.concatenate(edges))
        for name, values in columns.items():
            group.create_array(f"nodes/props/{name}/values", data=values)


def _linked(
    measures: Mapping[str, NDArray[Any]],
    positions: NDArray[Any],
    metric: str | Callable[..., float],
    limit: float,
    missing: int,
    divide: bool,
) -> tuple[Any, Any]:
    """Return object rows with their track numbers, and divisions, by laptrack."""
    import pandas

    names = [f"p{axis}" for axis in range(positions.shape[1])]
    frame = pandas.DataFrame(positions, columns=names)
    frame["frame"], frame["object"] = measures["frame"], measures["region"]
    # All pairs within reach are linked; laptrack's default costs depend on the cheapest links.
    costs = dict.fromkeys(("track_start_cost", "track_end_cost", "no_splitting_cost"), 1.05 * limit)
    costs |= dict.fromkeys(("segment_start_cost", "segment_end_cost"), 1.05 * limit)
    tracker = tracking().LapTrack(
        **costs,
        **dict.fromkeys(("metric", "gap_closing_metric", "splitting_metric"), metric),
        cutoff=limit,
        gap_closing_cutoff=limit if missing else False,
        gap_closing_max_frame_count=missing + 1,
        splitting_cutoff=limit if divide else False,
    )
    rows, splits, _ = tracker.predict_dataframe(frame, names, only_coordinate_cols=False)
    return rows, splits


def _apart(objects: Objects, missing: int) -> Callable[..., float]:
    """Return a metric of object numbers: 1 - the overlapping share of the later object."""
    frames, count = objects.labels.reshape(len(objects.labels), -1), len(objects.kinds)
    sizes, shares = np.bincount(frames.ravel(), minlength=count), dict[tuple[int, int], float]()
    for gap in range(1, missing + 2):
        for earlier, later in zip(frames, frames[gap:], strict=False):
            is_both = (earlier > 0) & (later > 0)
            keys = earlier[is_both].astype(np.int64) * count + later[is_both]
            pairs, overlaps = np.unique(keys, return_counts=True)
            first, second = np.divmod(pairs, count)
            ratios = (overlaps / sizes[second]).tolist()
            shares |= zip(zip(first.tolist(), second.tolist(), strict=True), ratios, strict=True)

    def apart(u: NDArray[np.floating], v: NDArray[np.floating]) -> float:
        a, b = int(u[0]), int(v[0])
        return 1 - shares.get((a, b), shares.get((b, a), 0.0))

    return apart


def _measured(
    objects: Objects, sides: NDArray[np.floating]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64], float]:
    """Return the object table by frame, centroids in pixels, and the median diameter."""
    axes = "t" + "zyx"[-len(sides) :]
    table = region_table(objects.kind_image, regions=objects.labels, axes=axes)
    if len(np.unique(table["region"])) < len(table["region"]):
        raise InvalidInput("objects: expected each object in one frame; split them with axis=0")
    centroids = np.stack([table[f"centroid_{name}_px"] for name in axes[1:]], axis=1)
    size = np.median(table["pixels"]) * np.prod(sides)
    n_axes = len(sides)
    ball = np.pi if n_axes == 2 else 4 / 3 * np.pi
    return table, centroids, float(2 * (size / ball) ** (1 / n_axes))
