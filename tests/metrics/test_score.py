"""Scores of masks against a truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment
from sklearn import metrics as peers

import napari_saf as saf
from napari_saf.metrics import score_objects, score_pixels


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


def test_borders_match_within_so_many_pixels():
    truth = np.zeros((20, 40), int)
    truth[:, 20:] = 1
    for shift, expected in ((0, (1, 1)), (1, (1, 1)), (2, (0, 1)), (3, (0, 0))):
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
    hits = 4  # two are whole; of the halves one each matches at .5, and not above
    assert score.precision[0.5] == hits / (score.n_objects + 6 - hits)
    assert score.f1[0.5] == 2 * hits / (score.n_objects + 6)
    assert score.precision[0.6] == 2 / (score.n_objects + 6 - 2)
    errors = saf.metrics.object_error_image(labels, truth)
    assert (errors[truth == 2] == 1).all() and errors[0, 0] == 2
    assert (errors[truth == 5] == 4).all() and not errors[(truth == 0) & (labels == 0)].any()


label_images = arrays(np.uint8, (4, 5), elements=st.integers(0, 4))


@settings(max_examples=100, deadline=None)
@given(label_images, label_images)
def test_objects_are_matched_as_stardist_matches_them(labels, truth):
    """By `matching` of stardist/matching.py, written out: the overlap of each pair, assigned."""
    objects, true = (np.unique(image[image > 0]).tolist() for image in (labels, truth))
    iou = np.array(
        [[((truth == t) & (labels == n)).sum() / ((truth == t) | (labels == n)).sum()
          for n in objects] for t in true]
    ).reshape(len(true), len(objects))  # fmt: skip
    score = score_objects(labels, truth)
    assert (score.n_true, score.n_objects) == iou.shape
    for least, precision in score.precision.items():
        costs = -(iou >= least).astype(float) - iou / (2 * max(min(iou.shape), 1))
        hits = int((iou[linear_sum_assignment(costs)] >= least).sum())
        n_wrong = iou.shape[0] + iou.shape[1] - 2 * hits
        assert precision == (hits / (hits + n_wrong) if hits else 0)
        assert score.f1[least] == (2 * hits / (2 * hits + n_wrong) if hits else 0)
    for column in score.matches.T:
        assert len(set(column)) == len(column)
    assert all(iou[true.index(t), objects.index(n)] >= 0.5 for t, n in score.matches.tolist())


def test_wrong_pixels_are_missed_false_or_of_another_class():
    errors = saf.metrics.error_image([[0, 1, 2, 1, 0]], [[1, 0, 1, 1, 0]])
    assert errors.tolist() == [[1, 2, 3, 4, 0]]


def test_scores_refuse_what_does_not_fit():
    for score in (score_pixels, score_objects, saf.metrics.error_image):
        with pytest.raises(saf.InvalidInput, match="shape"):
            score(np.ones((2, 3), int), np.ones((3, 2), int))
    with pytest.raises(saf.InvalidInput, match="score_objects"):
        score_pixels(np.arange(2000), np.arange(2000))
    with pytest.raises(saf.InvalidInput, match="the ignored class"):
        score_pixels([[1]], [[0]], ignore=0)


def test_the_largest_number_of_a_type_is_a_class():
    mask = np.zeros((300, 300), np.uint8)
    mask[:9] = np.iinfo(np.uint8).max
    assert saf.metrics.score_pixels(mask, mask).classes.tolist() == [0, np.iinfo(np.uint8).max]
