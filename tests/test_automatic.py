"""What is chosen for an image, and how many labels it gets, where nobody says."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

import napari_saf as saf
from napari_saf.features import FEATURES, Foreground, ground_of
from napari_saf.input import ImageOptions
from napari_saf.pipeline import Pipeline
from napari_saf.points import global_means
from napari_saf.samples import read_sample

SIDES = st.lists(st.integers(1, 900), min_size=1, max_size=4).map(tuple)


def textures(n_values, shape=(40, 60), noise=0.02):
    """Stripes of so many values, with noise."""
    stripes = np.arange(shape[1]) * n_values // shape[1] / (n_values - 1)
    rng = np.random.default_rng(0)
    return np.broadcast_to(stripes, shape) + noise * rng.standard_normal(shape)


@settings(max_examples=100, deadline=None)
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
        is_large = n_long != 2 and math.prod(shape) > 2**22
        assert options.max_side < max(shape) and (options.max_side >= 240 or is_large)
        assert n_long == 2 or is_large


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


def test_texture_is_the_weighted_deviation_around_a_pixel():
    image = np.random.default_rng(0).random((12, 15, 1)).astype(np.float32)
    inside = np.random.default_rng(1).random((12, 15)) > 0.3
    found = FEATURES["texture"]().features(image, (0, 1), inside)
    weight = inside.astype(float)
    total = gaussian_filter(weight, 2, axes=(0, 1))
    light = image[..., 0].astype(float)
    mean = gaussian_filter(weight * light, 2, axes=(0, 1)) / total
    square = gaussian_filter(weight * light**2, 2, axes=(0, 1)) / total
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


@pytest.mark.parametrize("n_values", [2, 4, 6])
def test_there_are_as_many_labels_as_leave_three_tenths_of_the_variance(n_values):
    problem = saf.Problem.from_image(textures(n_values), features="intensity")
    history = saf.SelfAssignmentFlow().run(problem).history
    n_first = int((history.label_shares[0] > 0).sum())
    points = np.asarray(problem.graph.average(problem.features))

    def left(count):
        means = global_means(points, count)
        return np.square(points[:, None] - means).sum(axis=2).min(axis=1).mean() / points.var()

    assert n_first == next(count for count in range(2, 9) if left(count) <= 0.3)


def test_the_start_hangs_on_no_seed():
    problem = saf.Problem.from_image(textures(4))
    first = [next(saf.SelfAssignmentFlow(seed=seed).iterate(problem)).labels for seed in (0, 7)]
    np.testing.assert_array_equal(*first)


def blobs(is_bright_ground=False, noise=0.01, shading=0.0, n_channels=None):
    """Discs on a ground, in light that falls off to one side; and where the discs are."""
    rng = np.random.default_rng(0)
    rows, columns = np.indices((160, 200))
    inside = np.zeros(rows.shape, bool)
    for row in range(20, 160, 40):
        for column in range(20, 200, 40):
            at = row + rng.integers(-6, 7), column + rng.integers(-6, 7)
            inside |= np.hypot(rows - at[0], columns - at[1]) < rng.integers(6, 11)
    image = gaussian_filter(np.where(inside, 0.6, 0.1), 1) + shading * columns / 200
    image = 1 - image if is_bright_ground else image
    image = np.clip(image + noise * rng.standard_normal(image.shape), 0, 1)
    return (image if n_channels is None else image[..., None] * np.ones(n_channels)), inside


def agreement(labels, inside):
    """The share of pixels that is labelled right, each label called by what most of it is."""
    table = np.zeros((labels.max() + 1, 2), int)
    np.add.at(table, (labels, inside.astype(int)), 1)
    return table.max(axis=1).sum() / inside.size


@pytest.mark.parametrize(
    ("n_channels", "shading", "dtype"),
    [(None, 0.0, np.uint8), (3, 0.3, np.uint16), (None, 0.3, np.float32)],
)
def test_bright_things_get_one_label_also_in_uneven_light(n_channels, shading, dtype):
    image, inside = blobs(shading=shading, n_channels=n_channels)
    image = image.astype(dtype) if dtype == np.float32 else (4000 * image / 17).astype(dtype)
    problem = saf.Problem.from_image(image)
    assert problem.options.extractor == Foreground("dark")
    labels = saf.SelfAssignmentFlow().run(problem).labels
    assert labels.max() == 2 and agreement(labels, inside) > 0.96


def test_dark_things_on_a_bright_ground_are_told_from_it():
    image, inside = blobs(is_bright_ground=True)
    problem = saf.Problem.from_image(image)
    assert problem.options.extractor == Foreground("bright")
    labels = saf.SelfAssignmentFlow().run(problem).labels
    assert labels.max() <= 4 and agreement(labels, inside) > 0.96


def test_writing_gets_one_label_on_unevenly_lit_paper():
    rng = np.random.default_rng(0)
    light = np.linspace(0.6, 1, 240) * np.ones((180, 1))
    ink = np.zeros(light.shape, bool)
    for row in range(12, 170, 14):
        for column in range(8, 230, 9):
            ink[row : row + rng.integers(3, 9), column : column + 2] = True
    image = light * np.where(ink, 0.3, 1) + 0.01 * rng.standard_normal(light.shape)
    problem = saf.Problem.from_image(image)
    assert problem.options.extractor == Foreground("paper")
    labels = saf.SelfAssignmentFlow().run(problem).labels
    assert labels.max() == 2 and agreement(labels, ink) > 0.98


@settings(max_examples=12, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-1e3, 1e3), st.integers(0, 3), st.booleans())
def test_what_things_lie_on_hangs_on_no_scale_shift_or_turn(scale, shift, turns, is_bright_ground):
    image = blobs(is_bright_ground)[0][..., None]
    expected = "bright" if is_bright_ground else "dark"
    assert ground_of([np.rot90(scale * image + shift, turns)], [None]) == expected


def test_pixels_outside_the_mask_do_not_decide_what_things_lie_on():
    image, _ = blobs()
    wide = np.hstack([image, np.random.default_rng(0).random((160, 400))])
    mask = np.arange(wide.shape[1]) < image.shape[1]
    mask = np.broadcast_to(mask, wide.shape)
    assert ground_of([wide[..., None]], [None]) is None
    assert ground_of([wide[..., None]], [mask]) == "dark"
    assert saf.Problem.from_image(wide, mask=mask).options.extractor == Foreground("dark")


@pytest.mark.parametrize(
    "image",
    [
        np.random.default_rng(0).random((90, 90, 1)),
        np.random.default_rng(0).random((90, 90, 3)),
        read_sample("astronaut").array[..., :3],
        blobs()[0][..., None] * np.ones(2),
        np.stack([blobs()[0], blobs()[0].T[:160, ::-1].repeat(2, 1)[:, :200], 0 * blobs()[0]], -1),
    ],
    ids=["noise", "colour noise", "photograph", "two channels", "two hues"],
)
def test_other_images_are_described_as_before(image):
    assert ground_of([image], [None]) is None


def test_the_recipe_of_things_on_a_ground_repeats_it():
    image, _ = blobs(shading=0.3)
    result = saf.SelfAssignmentFlow().run(saf.Problem.from_image(image))
    assert result.recipe["input"]["features"] == {"kind": "foreground", "ground": "dark"}
    again = Pipeline.from_plain(result.recipe).run(image)
    np.testing.assert_array_equal(again.labels, result.labels)
    # also of an image that would not be recognised by itself
    other = Pipeline.from_plain(result.recipe).problem(textures(3))
    assert other.options.extractor == Foreground("dark")


@pytest.mark.parametrize(
    ("shape", "window"),
    [((2, 64, 64), (1, 3, 3)), ((64, 2, 64), (3, 1, 3)), ((2, 500), (1, 13)), ((2, 2), (1, 1))],
)
def test_an_axis_without_room_for_a_window_leaves_the_others_theirs(shape, window):
    assert ImageOptions().resolve([shape], 1).window == window
    assert ImageOptions().resolve([shape, shape], 1).window == window
