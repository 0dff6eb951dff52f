"""Strokes as prototypes of the assignment flow."""

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.graph import mean_nearest_distance


def scene():
    """Return an image and strokes: class 1 is black and white, class 2 is grey."""
    image = np.full((12, 36), 0.5)
    image[:, :12], image[:, 24:] = 0.0, 1.0
    image += np.random.default_rng(0).normal(0, 0.02, image.shape)
    strokes = np.zeros(image.shape, dtype=int)
    strokes[3:6, 3], strokes[3:6, 32], strokes[3:6, 18] = 1, 1, 2
    truth = np.ones(image.shape, dtype=int)
    truth[:, 12:24] = 2
    return image, strokes, truth


def test_a_class_of_two_colours_needs_more_than_their_mean():
    image, strokes, truth = scene()
    problem = saf.Problem.from_image(image, seeds=strokes)
    by_strokes = saf.AssignmentFlow(n_nearest=3).run(problem).labels
    by_means = saf.AssignmentFlow(n_nearest=None).run(problem).labels
    assert (by_strokes == truth).mean() > 0.97
    assert (by_means == truth).mean() < 0.9


def test_the_mean_of_the_strokes_is_a_prototype_as_if_it_were_given():
    image, strokes, _ = scene()
    problem = saf.Problem.from_image(image, seeds=strokes)
    values = problem.features
    means = [values[strokes.ravel() == label].mean(axis=0) for label in (1, 2)]
    own = saf.AssignmentFlow(n_nearest=None).run(problem)
    given = saf.AssignmentFlow(prototypes=np.array(means)).run(problem)
    np.testing.assert_array_equal(own.labels, given.labels)


@pytest.mark.parametrize("n_nearest", [1, 3, 1000])
def test_strokes_keep_their_labels(n_nearest):
    image, strokes, _ = scene()
    problem = saf.Problem.from_image(image, seeds=strokes)
    labels = saf.AssignmentFlow(n_nearest=n_nearest).run(problem).labels
    np.testing.assert_array_equal(labels[strokes > 0], strokes[strokes > 0])


@pytest.mark.parametrize("d", [2, 20])
def test_the_mean_distance_to_the_nearest_is_that_of_a_table(d):
    rng = np.random.default_rng(0)
    points, queries = rng.normal(size=(7, d)), rng.normal(size=(11, d))
    table = np.sort(np.linalg.norm(queries[:, None] - points, axis=2), axis=1)
    for k in (1, 4, 7, 50):
        expected = table[:, :k].mean(axis=1)
        np.testing.assert_allclose(mean_nearest_distance(points, queries, k), expected, rtol=1e-6)


def test_only_regions_that_a_stroke_touches_stay_if_that_is_asked():
    image = np.zeros((20, 30))
    image[4:10, 4:10] = image[4:10, 20:26] = 1
    strokes = np.zeros(image.shape, dtype=int)
    strokes[6, 5:8], strokes[15, 3:12] = 1, 2
    problem = saf.Problem.from_image(image, seeds=strokes)
    every = saf.AssignmentFlow(connected=False).run(problem).labels
    one = saf.AssignmentFlow(connected=True).run(problem).labels
    assert every[6, 22] == 1
    assert one[6, 22] == 2
    assert one[6, 6] == 1
    np.testing.assert_array_equal(one[:, :14], every[:, :14])


def test_regions_are_looked_for_in_each_image_and_within_the_mask():
    image = np.zeros((10, 12))
    image[2:5, 2:5] = 1
    strokes, none = np.zeros(image.shape, dtype=int), np.zeros(image.shape, dtype=int)
    strokes[3, 2:5], strokes[8, 2:5] = 1, 2
    none[8, 2:5] = 2
    mask = np.ones(image.shape, dtype=bool)
    mask[:, 9:] = False
    problem = saf.Problem.from_images([image, image], seeds=[strokes, none], masks=[mask, mask])
    first, second = saf.AssignmentFlow(connected=True).run(problem).labels
    assert first[3, 3] == 1
    assert (second[mask] == 2).all()
    assert not first[~mask].any()


def test_position_is_a_feature_in_units_of_the_longest_side():
    problem = saf.Problem.from_image(np.random.default_rng(0).random((5, 9)), features="position")
    place = problem.features[:, -2:].reshape(5, 9, 2)
    np.testing.assert_allclose(place[4, 8] - place[0, 0], 0.3 * np.array([4, 8]) / 9, rtol=1e-5)


def test_weights_by_contrast_do_not_reach_across_an_edge():
    image = np.zeros((6, 10))
    image[:, 5:] = 1
    graph = saf.Problem.from_image(image, window=3, weights="contrast").graph
    means = graph.average(image.reshape(-1, 1)).reshape(image.shape)
    np.testing.assert_allclose(means, image, atol=1e-6)
