"""Scores of tracks, by the operations that Matula et al. (2015) count, with their weights."""

import itertools

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.metrics import score_tracks

pytest.importorskip("ctc_metrics")
COSTS = np.array([5, 10, 1, 1, 1.5, 1])
"""To split, add and remove an object, and to remove, add and change a link.

https://celltrackingchallenge.net/evaluation-methodology, after https://doi.org/10.1371/journal.pone.0144959.
"""
TWO = np.array([[[1, 1, 1, 0, 2, 2, 2, 0, 0]]] * 3)
"""Two tracks in three frames: six objects, four links."""
MOTHER = np.array([[[1, 1, 1, 1, 1, 0]], [[1, 1, 1, 1, 1, 0]], [[2, 2, 0, 3, 3, 0]]])
"""One track that divides."""
PARENTS = {2: 1, 3: 1}


def with_frame(frames, k, *values):
    changed = frames.copy()
    changed[k, 0] = values
    return changed


def counts_of(score):
    return [*score.errors.values()]


@pytest.mark.parametrize(
    ("labels", "parents", "truth", "true_parents", "expected"),
    [
        pytest.param(TWO, {}, TWO, {}, [0, 0, 0, 0, 0, 0], id="the same"),
        pytest.param(9 * TWO, {}, TWO, {}, [0, 0, 0, 0, 0, 0], id="other numbers"),
        pytest.param(MOTHER, PARENTS, MOTHER, PARENTS, [0, 0, 0, 0, 0, 0], id="a division"),
        pytest.param(
            with_frame(TWO, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0), {}, TWO, {}, [0, 1, 0, 0, 2, 0],
            id="a missed object and its two links"),
        pytest.param(
            with_frame(TWO, 0, 1, 1, 1, 0, 2, 2, 2, 0, 3), {}, TWO, {}, [0, 0, 1, 0, 0, 0],
            id="a false object"),
        pytest.param(
            with_frame(TWO, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0), {}, TWO, {}, [1, 0, 0, 0, 4, 0],
            id="an object to be split, whose links do not count"),
        pytest.param(
            with_frame(TWO, 2, 2, 2, 2, 0, 1, 1, 1, 0, 0), {}, TWO, {}, [0, 0, 0, 2, 2, 0],
            id="tracks that change places"),
        pytest.param(
            TWO, {}, with_frame(TWO, 2, 1, 1, 1, 0, 5, 5, 5, 0, 0), {5: 2}, [0, 0, 0, 0, 0, 1],
            id="a link within a track for one to a daughter"),
        pytest.param(MOTHER, {}, MOTHER, PARENTS, [0, 0, 0, 0, 2, 0], id="a missed division"),
        pytest.param(MOTHER, PARENTS, MOTHER, {}, [0, 0, 0, 2, 0, 0], id="a false division"),
        pytest.param(0 * TWO, {}, TWO, {}, [0, 6, 0, 0, 4, 0], id="nothing"),
    ],
)  # fmt: skip
def test_operations_are_counted_and_weighed(labels, parents, truth, true_parents, expected):
    score = score_tracks(labels, truth, parents, true_parents)
    assert counts_of(score) == expected
    n_objects = sum(len(np.unique(frame[frame > 0])) for frame in truth)
    n_links = sum(len(np.intersect1d(a[a > 0], b)) for a, b in itertools.pairwise(truth))
    n_links += len(true_parents)
    of_nothing = 10 * n_objects + 1.5 * n_links
    assert score.tra == pytest.approx(1 - min(COSTS @ expected, of_nothing) / of_nothing)
    of_objects = 1 - min(COSTS[:3] @ expected[:3], 10 * n_objects) / (10 * n_objects)
    assert score.det == pytest.approx(of_objects)


@pytest.mark.parametrize(
    ("labels", "truth", "parents", "message"),
    [
        (TWO, TWO[1:], {}, "shape"),
        (TWO[:, 0], TWO[:, 0], {}, "frames along the first axis"),
        (TWO[:1], TWO[:1], {}, "two or more frames"),
        (TWO, 0 * TWO, {}, "expected tracks"),
        (TWO, TWO, {2: 1}, "does not end"),
        (TWO, TWO, {2: 7}, "does not end"),
    ],
)
def test_what_has_no_tracks_is_refused(labels, truth, parents, message):
    with pytest.raises(saf.InvalidInput, match=message):
        score_tracks(labels, truth, parents)


def test_errors_are_of_objects_and_of_tracks_that_go_on_with_another():
    labels = with_frame(TWO, 2, 2, 2, 2, 0, 1, 1, 1, 0, 6)
    labels[0, 0, :3] = 0
    errors = saf.score(labels, TWO, "tracks").errors[:, 0]
    assert errors[0].tolist() == [1, 1, 1, 0, 4, 4, 4, 0, 0]
    assert errors[1].tolist() == [4, 4, 4, 0, 4, 4, 4, 0, 0]
    assert errors[2].tolist() == [3, 3, 3, 0, 3, 3, 3, 0, 2]
