"""Scores of masks against a truth, and digests."""

import numpy as np
import pytest
from sklearn import metrics as peers

import napari_saf as saf
from napari_saf.metrics import compare_digests, label_digest, score_objects, score_pixels


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, (30, 40)), rng.integers(0, 4, (30, 40))


def test_pixels_are_scored_as_scikit_learn_scores_them(pair):
    labels, truth = pair
    score = score_pixels(labels, truth)
    flat = truth.ravel(), labels.ravel()
    assert np.array_equal(score.confusion, peers.confusion_matrix(*flat))
    assert np.allclose(score.iou, peers.jaccard_score(*flat, average=None))
    assert np.allclose(score.f1, peers.f1_score(*flat, average=None))
    classes = saf.metrics.score_classes(labels.ravel(), truth.ravel())
    assert np.isclose(classes.balanced_accuracy, peers.balanced_accuracy_score(*flat))


def test_ignored_pixels_do_not_count(pair):
    labels, truth = pair
    score = score_pixels(labels, truth, ignore=0)
    assert score.confusion.sum() == (truth > 0).sum()
    other = np.where(truth == 0, 1, labels)
    assert np.array_equal(score_pixels(other, truth, ignore=0).confusion[-1], score.confusion[-1])


def test_borders_match_within_so_many_pixels():
    truth = np.zeros((20, 40), int)
    truth[:, 20:] = 1
    for shift, expected in ((0, (1, 1)), (2, (0.5, 1)), (8, (0, 0))):
        labels = np.roll(truth, shift, axis=1)
        labels[:, :5] = 0
        f1 = score_pixels(labels, truth).boundary_f1
        assert f1[1] == pytest.approx(expected[0]) and f1[2] == pytest.approx(expected[1])


def squares(n=6, side=8):
    return np.kron(np.arange(1, n + 1)[None], np.pad(np.ones((side, side), int), 2))


def test_objects_match_whatever_their_numbers():
    truth = squares()
    score = score_objects(np.where(truth, 7 - truth, 0), truth)
    assert set(score.precision.values()) == set(score.f1.values()) == {1.0}
    assert sorted(score.matches.tolist()) == [[k, 7 - k] for k in range(1, 7)]
    assert (score.n_objects, score.n_true, score.n_split, score.n_merged) == (6, 6, 0, 0)


def test_split_merged_missed_and_false_objects_are_counted():
    truth = squares()
    labels = np.where(truth == 2, 0, truth)  # missed
    labels[:6][truth[:6] == 1] = 20  # split
    labels[labels == 4] = 3  # merged
    labels[0, 0] = 30  # false
    score = score_objects(labels, truth)
    assert (score.n_split, score.n_merged) == (1, 1)
    hits = 2  # two are left; halves are not above .5
    assert score.precision[0.5] == hits / (score.n_objects + 6 - hits)
    assert score.f1[0.5] == 2 * hits / (score.n_objects + 6)
    errors = saf.metrics.object_error_image(labels, truth)
    assert (errors[truth == 2] == 1).all() and errors[0, 0] == 2 and not errors[truth == 5].any()


def test_wrong_pixels_are_missed_false_or_of_another_class():
    errors = saf.metrics.error_image([[0, 1, 2, 1, 0]], [[1, 0, 1, 1, 0]])
    assert errors.tolist() == [[1, 2, 3, 0, 0]]


def test_scores_refuse_what_does_not_fit():
    for score in (score_pixels, score_objects, saf.metrics.error_image):
        with pytest.raises(saf.InvalidInput, match="shape"):
            score(np.ones((2, 3), int), np.ones((3, 2), int))
    with pytest.raises(saf.InvalidInput, match="score_objects"):
        score_pixels(np.arange(2000), np.arange(2000))
    with pytest.raises(saf.InvalidInput, match="that count"):
        score_pixels([[1]], [[0]], ignore=0)


@pytest.mark.parametrize("shape", [(5,), (64,), (33, 20), (3, 50, 41), (2, 3, 20, 20)])
def test_a_digest_tells_where_labels_differ(shape):
    labels = np.random.default_rng(0).integers(0, 5, shape)
    digest = label_digest(labels)
    assert len(digest) == 64
    assert label_digest(labels.astype(np.uint8)) == digest == label_digest(labels.T.T.copy())
    assert "64 of 64" in compare_digests(label_digest(labels), digest)
    labels[(0,) * labels.ndim] += 1
    changed = [
        k for k, (a, b) in enumerate(zip(label_digest(labels), digest, strict=True)) if a != b
    ]
    assert len(changed) == 1
    assert f"1 of 64 blocks: {changed[0] + 1}" in compare_digests(label_digest(labels), digest)
    assert label_digest(labels[..., :-1])[-1] != digest[-1]
