"""Scores of tracks against a truth, by the measures of the Cell Tracking Challenge."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput, SafError
from napari_saf.metrics._score import Row, check_pair, overlap_of


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TrackScore:
    """Agreement of tracks; made by `score_tracks`.

    Attributes
    ----------
    tra, det : float
        Tracking and detection accuracy of the Cell Tracking Challenge, in [0, 1].
    n_split, n_missed, n_false : int
        Number of objects to split, as they match several true ones, of true objects without a
        match, and of objects without a match.
    n_false_links, n_missed_links, n_other_links : int
        Number of links to remove, to add, and to change from links within a track to links from
        parent to daughter, or the converse.
    matches : tuple of arrays of int of shape (n_matches, 2)
        For each frame, numbers of the true and the matching track.

    Examples
    --------
    >>> saf.metrics.score_tracks([[[1, 1]], [[1, 1]]], [[[3, 3]], [[3, 3]]]).tra
    1.0
    """

    tra: float
    det: float
    n_split: int
    n_missed: int
    n_false: int
    n_false_links: int
    n_missed_links: int
    n_other_links: int
    matches: tuple[NDArray[np.int64], ...]

    def rows(self) -> list[Row]:
        """Return part, measure and value of each score, for tables."""
        return [
            ("tracks", name, float(value))
            for name, value in (("TRA", self.tra), ("DET", self.det), *self.errors.items())
        ]

    @property
    def errors(self) -> dict[str, int]:
        """Number of errors by name."""
        return {
            "to be split": self.n_split,
            "missed": self.n_missed,
            "false": self.n_false,
            "false links": self.n_false_links,
            "missed links": self.n_missed_links,
            "links of another kind": self.n_other_links,
        }


def score_tracks(
    labels: ArrayLike,
    truth: ArrayLike,
    parents: Mapping[int, int] | None = None,
    true_parents: Mapping[int, int] | None = None,
) -> TrackScore:
    """Score tracks of objects in a series of frames, with py-ctcmetrics.

    Parameters
    ----------
    labels, truth : array of int of the same shape (n_frames, rows, columns) or more axes
        Number of the track at each pixel, 0 for none; numbers need not agree.
    parents, true_parents : mapping of int to int, optional
        Parent track by daughter track, for divisions.

    Returns
    -------
    TrackScore

    Raises
    ------
    InvalidInput
        If shapes differ or have no axis of frames, there is only one frame or no true track, or a
        parent does not end before its daughter begins.
    SafError
        If py-ctcmetrics is missing.

    Notes
    -----
    An object matches a true one if it covers more than half of it. TRA = 1 - min(A, A0) / A0, where
    A is the cost of the operations that turn the graph of the tracks into the true one (5 to split
    an object, 10 for a missed and 1 for a false object; 1 for a false and 1.5 for a missed link, 1
    for one of another kind), and A0 that of building it from nothing; DET is the same without links
    (Matula et al., https://doi.org/10.1371/journal.pone.0144959).

    Examples
    --------
    >>> truth = np.array([[[1, 1, 0, 2, 2]], [[1, 1, 0, 2, 2]]])
    >>> saf.metrics.score_tracks(truth * (truth < 2), truth).det
    0.5
    """
    mask, reference = check_pair(labels, truth)
    if mask.ndim < 3:
        raise InvalidInput(
            "tracks: expected frames along the first axis, of rows and columns, "
            f"got the shape {mask.shape}"
        )
    if len(mask) < 2 or not reference.any():
        raise InvalidInput("truth: expected tracks in two or more frames")
    try:
        graphs: Any = importlib.import_module("ctc_metrics.utils.representations")
        measures: Any = importlib.import_module("ctc_metrics.metrics")
    except ImportError as error:
        raise SafError("tracks need py-ctcmetrics: pip install py-ctcmetrics") from error
    tracks = _track_rows(mask, parents or {}, "labels")
    true_tracks = _track_rows(reference, true_parents or {}, "truth")
    overlaps = [overlap_of(*frames).of_objects for frames in zip(mask, reference, strict=True)]
    numbers = [[part.true_numbers for part in overlaps], [part.numbers for part in overlaps]]
    matches = []
    for part in overlaps:
        is_match = 2 * part.shared > part.true_sizes
        matches.append(np.stack([part.true[is_match], part.objects[is_match]], axis=1))
    pairs = [[frame[:, 0] for frame in matches], [frame[:, 1] for frame in matches]]
    if len(tracks):
        counts = graphs.count_acyclic_graph_correction_operations(
            true_tracks, tracks, *numbers, *pairs
        )
    else:  # compare the truth with itself to count its objects and links
        same = true_tracks, true_tracks, *[numbers[0]] * 4
        counts = graphs.count_acyclic_graph_correction_operations(*same)
        counts |= {"FN": counts["num_vertices"], "EA": counts["num_edges"]}
    return TrackScore(
        tra=measures.tra(**counts)[0],
        det=measures.det(**counts),
        n_split=int(counts["NS"]),
        n_missed=int(counts["FN"]),
        n_false=int(counts["FP"]),
        n_false_links=int(counts["ED"]),
        n_missed_links=int(counts["EA"]),
        n_other_links=int(counts["EC"]),
        matches=tuple(matches),
    )


def _track_rows(frames: NDArray[Any], parents: Mapping[int, int], name: str) -> NDArray[np.int64]:
    """Return number, first frame, last frame and parent (0: none) of each track."""
    ends: dict[int, tuple[int, int]] = {}
    for k, frame in enumerate(frames):
        for number in np.unique(frame[frame > 0]).tolist():
            ends[number] = ends.get(number, (k, k))[0], k
    for daughter, parent in parents.items():
        if not {daughter, parent} <= {*ends} or ends[parent][1] >= ends[daughter][0]:
            raise InvalidInput(
                f"{name}: track {parent} does not end before its daughter {daughter} begins"
            )
    rows = [(number, *span, parents.get(number, 0)) for number, span in ends.items()]
    return np.array(rows, np.int64).reshape(-1, 4)
