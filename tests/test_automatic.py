"""What is chosen for an image, and how many labels it gets, where nobody says."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from scipy.optimize import linear_sum_assignment

import napari_saf as saf
from napari_saf.features import FEATURES, Scaling
from napari_saf.input import ImageOptions
from napari_saf.points import global_means
from napari_saf.samples import read_sample

SIDES = st.lists(st.integers(1, 900), min_size=1, max_size=4).map(tuple)


def textures(n_values, shape=(40, 60), noise=0.02):
    """Stripes of so many values, with noise."""
    stripes = np.arange(shape[1]) * n_values // shape[1] / (n_values - 1)
    rng = np.random.default_rng(0)
    return np.broadcast_to(stripes, shape) + noise * rng.standard_normal(shape)


@settings(max_examples=200, deadline=None)
@given(SIDES, st.sampled_from([1, 3, 5]))
def test_what_is_chosen_suits_the_image_and_is_chosen_once(shape, n_channels):
    options = ImageOptions().resolve([shape], n_channels)
    assert "auto" not in [getattr(options, one.name) for one in dataclasses.fields(options)]
    assert options.resolve([shape], n_channels) == options
    n_long = sum(side > 1 for side in shape)
    assert (options.features == "texture") == (n_long == 2)
    sides = (options.window,) * len(shape) if isinstance(options.window, int) else options.window
    assert all(side == 1 or width <= side for width, side in zip(sides, shape, strict=True))
    if options.max_side is not None:
        assert n_long == 2 and 240 <= options.max_side < max(shape)


def test_given_options_stay():
    given_ones = ImageOptions("intensity", 5, "uniform", max_side=None)
    assert given_ones.resolve([(500, 700)], 3) == given_ones
    window = ImageOptions(window=(1, 5, 5)).resolve([(9, 500, 700)], 1)
    assert (window.window, window.features, window.max_side) == ((1, 5, 5), "texture", 350)


def test_a_problem_says_what_was_chosen_and_its_recipe_repeats_it():
    problem = saf.Problem.from_image(textures(3))
    assert problem.options.features == "texture" and problem.options.weights == "contrast"
    again = saf.Problem.from_image(textures(3), **problem.options.arguments())
    np.testing.assert_array_equal(again.features, problem.features)


@pytest.mark.parametrize("axes", [(0, 1), (1,)])
def test_texture_is_the_weighted_deviation_around_a_pixel(axes):
    image = np.random.default_rng(0).random((12, 15, 1)).astype(np.float32)
    inside = np.random.default_rng(1).random((12, 15)) > 0.3
    found = FEATURES["texture"]().features(image, axes, inside)
    weight = inside.astype(float)
    total = gaussian_filter(weight, 2, axes=axes)
    light = image[..., 0].astype(float)
    mean = gaussian_filter(weight * light, 2, axes=axes) / total
    square = gaussian_filter(weight * light**2, 2, axes=axes) / total
    known = total > 1e-3
    expected = 2 * np.sqrt(np.maximum(square - mean**2, 0))
    np.testing.assert_allclose(found[..., 1][known], expected[known], atol=2e-3)
    np.testing.assert_array_equal(found[..., 0], light.astype(np.float32))


def test_pixels_outside_the_mask_do_not_count_for_texture():
    image = np.random.default_rng(0).random((30, 30))
    mask = np.zeros((30, 30), bool)
    mask[5:25, 5:25] = True
    other = np.where(mask, image, 0.5)
    options = {"mask": mask, "features": "texture", "scaling": (0, 1)}
    one, two = (saf.Problem.from_image(x, **options).features for x in (image, other))
    np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("n_values", [2, 3, 4, 6])
def test_there_are_as_many_labels_as_leave_three_tenths_of_the_variance(n_values):
    problem = saf.Problem.from_image(textures(n_values), features="intensity")
    history = saf.SelfAssignmentFlow().run(problem).history
    n_first = int((history.label_shares[0] > 0).sum())
    points = np.asarray(problem.graph.average(problem.features))

    def left(count):
        means = global_means(points, count)
        return np.square(points[:, None] - means).sum(axis=2).min(axis=1).mean() / points.var()

    assert n_first == next(count for count in range(2, 9) if left(count) <= 0.3)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.floats(0.1, 10), st.floats(-3, 3))
def test_means_hang_on_no_draw_and_follow_scale_and_shift(seed, scale, shift):
    points = np.random.default_rng(seed).normal(size=(300, 2)) + 6 * (np.arange(300) % 3)[:, None]
    means = global_means(points, 8, 0.2)
    np.testing.assert_array_equal(means, global_means(points, 8, 0.2))
    moved = global_means(scale * points + shift, 8, 0.2)
    np.testing.assert_allclose(moved, scale * means + shift, atol=1e-3 * scale)


def test_the_start_hangs_on_no_seed():
    problem = saf.Problem.from_image(textures(4))
    first = [next(saf.SelfAssignmentFlow(seed=seed).iterate(problem)).labels for seed in (0, 7)]
    np.testing.assert_array_equal(*first)


def test_labels_stay_where_a_row_and_a_column_are_cut_off():
    coins = read_sample("coins").array
    whole, cut = (
        saf.SelfAssignmentFlow().run(saf.Problem.from_image(image)).labels
        for image in (coins, coins[1:, 1:])
    )
    table = np.zeros((9, 9))
    np.add.at(table, (whole[1:, 1:], cut), 1)
    assert table[linear_sum_assignment(-table)].sum() > 0.95 * cut.size


def test_a_reduced_image_hangs_little_on_where_its_blocks_begin():
    stripes = np.tile([1, 0, 0], (60, 20))[..., None].astype(float)
    inside = np.ones((60, 60), bool)
    inside[:, 30:] = False
    small, _ = Scaling(0, 1).apply_at((30, 30), stripes, None, True)
    assert np.ptp(small[2:-2, 2:-2]) < 0.1
    stripes[~inside] = 0.4
    stripes[inside] = 0.7
    small, mask = Scaling(0, 1).apply_at((30, 30), stripes, inside, True)
    np.testing.assert_allclose(small[mask], 0.7, atol=1e-6)


@pytest.mark.parametrize("features, is_smoothed", [("lab", False), ("texture", True)])
def test_colours_are_means_of_blocks_and_textures_those_of_a_smoothed_image(features, is_smoothed):
    image = np.random.default_rng(0).random((40, 40, 3))
    problem = saf.Problem.from_image(image, features=features, scaling=(0, 1), max_side=20)
    blocks = image.reshape(20, 2, 20, 2, 3).mean(axis=(1, 3))
    whole = saf.Problem.from_image(blocks, features=features, scaling=(0, 1))
    colours = problem.features[:, :3], whole.features[:, :3]
    assert np.allclose(*colours, atol=1e-5) != is_smoothed
