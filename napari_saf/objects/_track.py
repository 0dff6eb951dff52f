"""Objects followed through the frames of a series: tracks, divisions, gaps, and their files."""

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
"""Diameters that an object moves from one frame to the next, at most, where nothing is given."""
_MOST = 2**16 - 1
"""Numbers in the images of the Cell Tracking Challenge."""
GEFF = ".geff"
_MOST_APART = 0.9
"""Share of an object that does not lie on the one before, where objects are followed by overlap."""
TrackBy = Literal["distance", "overlap"]
TRACK_BY = get_args(TrackBy)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """Objects of a series by track; made by `track_objects`.

    Attributes
    ----------
    objects : Objects
        The objects of all frames, along the first axis.
    table : dict of str to array
        A row for each object, by track and frame: ``track``, ``frame``, ``object``, and where its
        centroid is along each other axis, in pixels.
    parents : mapping of int to int
        The track that divided, by those that it divided into.

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
        """The number of the track at each pixel, 0 for none."""
        tracks = np.zeros(len(self.objects.kinds), np.uint32)
        tracks[self.table["object"]] = self.table["track"]
        return np.asarray(tracks[self.objects.labels])

    @property
    def layer_data(self) -> tuple[NDArray[np.float64], dict[int, list[int]]]:
        """Rows (track, frame, y, x) and graph of a Tracks layer of napari."""
        names = [name for name in self.table if name != "object"]
        rows = np.stack([self.table[name] for name in names], axis=1).astype(float)
        return rows, {track: [parent] for track, parent in self.parents.items()}


@documented
@dataclasses.dataclass(frozen=True, slots=True)
class TrackStep:
    """How objects are followed through frames, as commands have it; see `track_objects`."""

    by: TrackBy = parameter(
        "distance",
        label="Follow by",
        help="Follow by the distance of centroids, or by overlap, for objects that are large for "
        "their steps, or long.",
    )
    reach: float | None = parameter(
        None,
        minimum=0.0,
        label="Reach",
        none="automatic",
        help="How far an object may move from one frame to the next, in the unit of a pixel's "
        "size; none: one and a half median diameters. By distance only.",
    )
    most_missing: int = parameter(
        1,
        minimum=0,
        label="Missing frames",
        help="So many frames in which an object is missing do not end its track.",
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
    """Follow objects through frames with laptrack, by how near they are, or how they overlap.

    Parameters
    ----------
    objects : Objects
        Of a series of planes or volumes, split frame by frame: ``split_objects(..., axis=0)``.
    by : str
        ``"distance"`` of centroids, or ``"overlap"``: which share of an object lies on the one
        before, more than a tenth, for objects that are large for their steps, or long.
    spacing : sequence of float, optional
        Size of a pixel along each axis but the first. None: 1.
    reach : float, optional
        How far an object may move from one frame to the next, in the unit of the spacing. None:
        one and a half median diameters. By distance only.
    most_missing : int
        So many frames in which an object is not found do not end its track; 0 or more.
    divide : bool
        Whether objects may divide.

    Returns
    -------
    Tracks

    Raises
    ------
    InvalidInput
        If the objects are no series, each in one frame, or a number is out of its range.
    SafError
        If laptrack is missing.

    Notes
    -----
    Linear assignment of the squared distances, or of 1 less what overlaps, first between
    neighbouring frames, then of the ends of tracks to starts and to divisions (Jaqaman et al., https://doi.org/10.1038/nmeth.1237).

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
        nothing = {name: np.zeros(0, int) for name in ("track", "frame", "object")}
        return Tracks(objects, nothing, {})
    found, places, diameter = _measured(objects, sides)
    limit = (_REACH * diameter if reach is None else float(reach)) ** 2
    if not limit > 0:
        raise InvalidInput(f"reach: expected a number above 0, got {reach!r}")
    metric: str | Callable[..., float] = "sqeuclidean"
    where = places * sides
    if by == "overlap":
        metric, where, limit = _apart(objects, missing), found["region"][:, None], _MOST_APART
    rows, splits = _linked(found, where, metric, limit, missing, divide)
    order = np.lexsort((rows["frame"], rows["track_id"]))
    numbers = rows["object"].to_numpy()[order]
    row_of = np.argsort(found["region"])
    own = row_of[np.searchsorted(found["region"], numbers, sorter=row_of)]
    table = {
        "track": rows["track_id"].to_numpy()[order].astype(int) + 1,
        "frame": found["frame"][own],
        "object": numbers,
    }
    table |= {name: places[own, k] for k, name in enumerate("zyx"[-len(sides) :])}
    pairs = splits[["parent_track_id", "child_track_id"]].to_numpy() if len(splits) else []
    return Tracks(objects, table, {int(child) + 1: int(parent) + 1 for parent, child in pairs})


def tracking() -> Any:
    """Return laptrack; SafError where it is missing."""
    return library("laptrack", "track")


def save_tracks(folder: str | os.PathLike[str], tracks: Tracks) -> list[Path]:
    """Save tracks as the Cell Tracking Challenge has results, or as a geff.

    Results of the challenge are a mask a frame, and a list; a track with a gap is written as
    several, each the parent of the next. A geff is a graph in a zarr store,
    https://liveimagetrackingtools.org/geff: the objects with frame, centroid in pixels and track,
    and from which one to the next each goes on.

    Parameters
    ----------
    folder : path
        A geff if it ends in ``.geff``, written over. Else where ``mask000.tif``, ... and
        ``res_track.txt`` go; made if it is not there.
    tracks : Tracks
        As `track_objects` gives them.

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
    >>> frames = np.kron([[[1]], [[1]]], np.ones((8, 8), int))  # two frames of one thing
    >>> tracks = saf.track_objects(saf.split_objects(frames, axis=0))
    >>> [path.name for path in saf.save_tracks("01_RES", tracks)]
    ['mask000.tif', 'mask001.tif', 'res_track.txt']
    """
    import tifffile

    target = as_path(folder, "folder")
    check_kind(tracks, Tracks, "tracks", "Tracks, as saf.track_objects(objects) gives them")
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
    lines, before = [], 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = int(track[start])
        parent = (
            int(pieces[start]) - 1 if own == before else last.get(tracks.parents.get(own, 0), 0)
        )
        lines.append(f"{pieces[start]} {frame[start]} {frame[end]} {parent}")
        before = own
    numbers = np.zeros(len(tracks.objects.kinds), np.uint16)
    numbers[tracks.table["object"]] = pieces
    labels = tracks.objects.labels
    make_folder(target)
    width = max(3, len(str(len(labels) - 1)))
    paths = [target / f"mask{k:0{width}d}.tif" for k in range(len(labels))]
    for path, own_labels in zip(paths, labels, strict=True):
        with atomic_write(path) as temporary:
            tifffile.imwrite(temporary, numbers[own_labels], compression="zlib")
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
    about = {
        "geff_version": "1.0",
        "directed": True,
        "axes": [{"name": name, "type": "time" if name == "t" else "space"} for name in axes],
        "node_props_metadata": kinds,
        "edge_props_metadata": {},
        "track_node_props": {"tracklet": "track"},
    }
    with atomic_write(path) as temporary:
        group = zarr.open_group(temporary, mode="w", zarr_format=2)
        group.attrs["geff"] = about
        group.create_array("nodes/ids", data=nodes)
        group.create_array("edges/ids", data=np.concatenate(edges))
        for name, values in columns.items():
            group.create_array(f"nodes/props/{name}/values", data=values)


def _linked(
    found: Mapping[str, NDArray[Any]],
    places: NDArray[Any],
    metric: str | Callable[..., float],
    limit: float,
    missing: int,
    divide: bool,
) -> tuple[Any, Any]:
    """Return the rows of the objects with the number of their track, and divisions."""
    import pandas

    names = [f"p{axis}" for axis in range(places.shape[1])]
    frame = pandas.DataFrame(places, columns=names)
    frame["frame"], frame["object"] = found["frame"], found["region"]
    # What lies within reach is linked: the defaults take its cost from links that are cheap.
    alone = dict.fromkeys(("track_start_cost", "track_end_cost", "no_splitting_cost"), 1.05 * limit)
    alone |= dict.fromkeys(("segment_start_cost", "segment_end_cost"), 1.05 * limit)
    tracker = tracking().LapTrack(
        **alone,
        **dict.fromkeys(("metric", "gap_closing_metric", "splitting_metric"), metric),
        cutoff=limit,
        gap_closing_cutoff=limit if missing else False,
        gap_closing_max_frame_count=missing + 1,
        splitting_cutoff=limit if divide else False,
    )
    rows, splits, _ = tracker.predict_dataframe(frame, names, only_coordinate_cols=False)
    return rows, splits


def _apart(objects: Objects, missing: int) -> Callable[..., float]:
    """Return a measure of two objects by number: 1 less the share of the later that overlaps."""
    frames, count = objects.labels.reshape(len(objects.labels), -1), len(objects.kinds)
    sizes, shares = np.bincount(frames.ravel(), minlength=count), dict[tuple[int, int], float]()
    for gap in range(1, missing + 2):
        for before, after in zip(frames, frames[gap:], strict=False):
            is_both = (before > 0) & (after > 0)
            keys = before[is_both].astype(np.int64) * count + after[is_both]
            pairs, overlaps = np.unique(keys, return_counts=True)
            first, second = np.divmod(pairs, count)
            own = (overlaps / sizes[second]).tolist()
            shares |= zip(zip(first.tolist(), second.tolist(), strict=True), own, strict=True)

    def apart(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
        a, b = int(one[0]), int(other[0])
        return 1 - shares.get((a, b), shares.get((b, a), 0.0))

    return apart


def _measured(
    objects: Objects, sides: NDArray[np.floating]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64], float]:
    """Return the table of objects by frame, their centroids in pixels, and the median diameter."""
    axes = "t" + "zyx"[-len(sides) :]
    found = region_table(objects.kind_image, regions=objects.labels, axes=axes)
    if len(np.unique(found["region"])) < len(found["region"]):
        raise InvalidInput("objects: expected each in one frame; split them with axis=0")
    places = np.stack([found[f"centroid_{name}_px"] for name in axes[1:]], axis=1)
    size = np.median(found["pixels"]) * np.prod(sides)
    n_axes = len(sides)
    ball = np.pi if n_axes == 2 else 4 / 3 * np.pi
    return found, places, float(2 * (size / ball) ** (1 / n_axes))
