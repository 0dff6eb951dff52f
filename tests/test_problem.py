import itertools
import re

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import napari_saf as saf
from napari_saf.device import interruptible
from napari_saf.errors import Cancelled
from napari_saf.input import PLAIN

GREY = np.random.default_rng(0).random((9, 9))
PLANE = saf.GridGraph((2, 3), window=1)
DTYPES = ["bool", "int16", "uint64", "float16"]


@pytest.fixture
def photo():
    return np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_becomes_float32_in_the_unit_interval(dtype):
    image = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (12, 13))
    problem = saf.Problem.from_image(image.astype(dtype), **PLAIN)
    assert problem.features.dtype == np.float32
    assert (problem.features.min(), problem.features.max()) == (0, 1)
    assert problem.features.shape == (156, 1)


def test_gain_and_offset_do_not_matter(photo):
    plain = saf.Problem.from_image(photo, **PLAIN).features
    other = saf.Problem.from_image(photo.astype(np.float64) * 17 - 4000, **PLAIN).features
    np.testing.assert_allclose(plain, other, atol=1e-5)


def test_channels(photo):
    grey = photo[..., 0]
    assert saf.Problem.from_image(photo, **PLAIN).features.shape == (480, 3)
    rgba = np.concatenate([photo, grey[..., None]], axis=-1)
    np.testing.assert_array_equal(
        saf.Problem.from_image(rgba, **PLAIN).features,
        saf.Problem.from_image(photo, **PLAIN).features,
    )
    assert saf.Problem.from_image(rgba, channel_axis=-1, **PLAIN).features.shape == (480, 4)
    first = saf.Problem.from_image(np.moveaxis(photo, -1, 0), channel_axis=0, **PLAIN)
    np.testing.assert_array_equal(first.features, saf.Problem.from_image(photo, **PLAIN).features)
    volume = saf.Problem.from_image(np.random.default_rng(0).random((6, 7, 8)), **PLAIN)
    assert volume.features.shape == (336, 1)
    assert volume.graph.window == (3, 3, 3)
    assert saf.Problem.from_image(photo[..., :2], window=1, **PLAIN).features.shape == (960, 1)


def test_a_recorded_scaling_repeats_the_features(photo):
    problem = saf.Problem.from_image(photo, **PLAIN)
    bounds = problem.options.scaling.low, problem.options.scaling.high
    for scaling in (bounds, np.array(bounds)):
        given = saf.Problem.from_image(photo, scaling=scaling, **PLAIN)
        assert given.options.scaling == problem.options.scaling
        assert problem.options.rescale and not given.options.rescale
    darker = saf.Problem.from_image(photo // 2, scaling=problem.options.scaling, **PLAIN)
    np.testing.assert_allclose(darker.features.max(), 127 / 255, atol=0.01)
    again = saf.Problem.from_image(photo, scaling=problem.options.scaling, **PLAIN)
    np.testing.assert_array_equal(problem.features, again.features)


def test_hot_pixels_do_not_flatten_the_image():
    image = np.random.default_rng(0).random((100, 100))
    image[3, 4] = 1e6
    assert saf.Problem.from_image(image, **PLAIN).features.std() > 0.2


def test_pixels_outside_the_mask_do_not_count(photo):
    mask = np.random.default_rng(0).random((20, 24)) < 0.5
    spoilt = photo.astype(float)
    spoilt[~mask] = np.nan
    inside = saf.Problem.from_image(spoilt, mask=mask, **PLAIN)
    assert inside.n_nodes == mask.sum()
    finite = saf.Problem.from_image(spoilt, mask="finite", **PLAIN)
    np.testing.assert_array_equal(inside.features, finite.features)
    np.testing.assert_array_equal(inside.graph.mask, finite.graph.mask)


def test_a_scaling_of_another_kind_of_image_is_told(photo):
    scaling = saf.Problem.from_image(photo, **PLAIN).options.scaling
    assert not saf.Problem.from_image(photo, scaling=scaling, **PLAIN).notes
    deeper = saf.Problem.from_image(photo.astype(np.uint16) * 257, scaling=scaling, **PLAIN)
    (note,) = deeper.notes
    assert re.match(r"\d\d+ % of the values lie outside", note)
    assert deeper.with_seeds(None).notes == (note,)
    few = saf.SelfAssignmentFlow(max_labels=3, stop=saf.StoppingRule(max_steps=2))
    assert note in few.run(deeper).notes
    features = np.zeros((*photo.shape[:2], 2)) + np.arange(2)
    assert not saf.Problem.from_image(
        photo, features=features, scaling=(-2, -1), weights="uniform", max_side=None
    ).notes


def test_several_images_share_scaling_and_stay_apart(photo):
    bright, dark = photo, photo[:10] // 4
    problem = saf.Problem.from_images([bright, dark], groups="image", **PLAIN)
    assert problem.n_nodes == 480 + 240
    assert np.bincount(problem.groups).tolist() == [0, 480, 240]
    assert problem.features[480:].max() < 0.3
    values = np.zeros((720, 1))
    values[:480] = 1
    assert set(problem.graph.average(values)[:, 0].round(12)) == {0.0, 1.0}


@given(npst.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(4, 6))))
def test_any_array_of_floats_is_a_problem_or_invalid(image):
    try:
        problem = saf.Problem.from_image(image, window=1, **PLAIN)
    except saf.InvalidInput:
        return
    assert 0 <= problem.features.min() <= problem.features.max() <= 1


def nan_image():
    image = np.random.default_rng(0).random((9, 9))
    image[2, 3] = np.nan
    image[4, 5] = np.inf
    return image


@pytest.mark.parametrize(
    ("image", "arguments", "said"),
    [
        (nan_image(), {}, "2 of 81 pixels are NaN or infinite"),
        (np.full((9, 9), 7), {}, "all of them are 7"),
        (np.zeros((0, 5)), {}, "expected pixels"),
        (np.ones((9, 9), complex), {}, "real numbers"),
        (GREY, {"window": 11}, "larger than the image"),
        (GREY, {"mask": np.zeros((9, 9))}, "empty mask"),
        (GREY, {"mask": np.ones((9, 8))}, "image's shape"),
        (np.full((9, 9), np.nan), {"mask": "finite"}, "image: expected finite"),
        (GREY, {"seeds": np.eye(9, dtype=int), "mask": 1 - np.eye(9)}, "within the mask"),
        (GREY, {"mask": "inside"}, "'finite'"),
        (GREY, {"features": np.ones((8, 9, 2))}, "expected an array of shape"),
        (GREY, {"features": "lab"}, "3 channels"),
        (GREY, {"channel_axis": 2}, "2 axes"),
        (GREY, {"seeds": np.ones((8, 9), int)}, r"seeds: .* shape \(9, 9\)"),
        (GREY, {"seeds": np.zeros((9, 9), int)}, "not 0"),
        (GREY, {"seeds": -np.ones((9, 9), int)}, "seeds"),
    ],
)
def test_bad_images_are_refused(image, arguments, said):
    with pytest.raises(saf.InvalidInput, match=said):
        saf.Problem.from_image(image, **arguments)


@pytest.mark.parametrize(
    ("images", "arguments", "said"),
    [
        ([GREY] * 2, {"masks": [None]}, "masks: expected one for each of 2"),
        ([GREY] * 2, {"masks": "finit"}, "'finite'"),
        ([GREY] * 2, {"features": [np.ones((9, 9, 2)), np.ones((9, 9, 3))]}, "as many for each"),
        ([GREY] * 2, {"groups": [np.ones((9, 9), int)]}, "groups: expected one for each of 2"),
        ([], PLAIN, "at least one"),
        ([GREY, np.random.rand(9, 9, 3)], PLAIN, "same number of channels in all"),
    ],
)
def test_images_that_do_not_go_together_are_refused(images, arguments, said):
    with pytest.raises(saf.InvalidInput, match=said):
        saf.Problem.from_images(images, **arguments)


@pytest.mark.parametrize(
    ("features", "graph", "said"),
    [
        (np.ones((5, 2)), PLANE, "expected shape"),
        (np.ones((6, 0)), PLANE, "expected shape"),
        (np.array([[1.0]] * 5 + [[np.nan]]), PLANE, "1 of 6 nodes"),
        (np.ma.array(np.ones((6, 1)), mask=np.arange(6)[:, None] == 3), PLANE, "features"),
        (np.full((6, 1), "1"), PLANE, "features"),
        ([[1.0]] * 5 + [[1.0, 2.0]], PLANE, "features"),
        (np.ones((6, 2)), scipy.sparse.eye(6), "graph: expected"),
    ],
)
def test_features_and_a_graph_that_do_not_fit_are_refused(features, graph, said):
    with pytest.raises(saf.InvalidInput, match=said):
        saf.Problem(features, graph)


@pytest.mark.parametrize("name", saf.METHODS)
def test_features_whose_squares_are_no_numbers_are_refused(name):
    rng, double = np.random.default_rng(0), saf.METHODS[name](dtype="float64")
    seeds, groups = np.zeros(20, dtype=int), np.arange(20) % 2 + 1
    seeds[:2] = 1, 2
    graph = saf.GridGraph((4, 5))
    problem = saf.Problem(1e25 * rng.random((20, 2)), graph, seeds=seeds, groups=groups)
    with pytest.raises(saf.InvalidInput, match="features: expected numbers up to"):
        saf.METHODS[name]().run(problem)
    assert np.isfinite(double.run(problem, max_iterations=2).assignment).all()


@pytest.mark.parametrize("mask", [None, "half"])
def test_the_mask_of_a_masked_array_leaves_pixels_out(photo, mask):
    hidden = np.random.default_rng(1).random(photo.shape[:2]) < 0.3
    image = np.where(hidden[..., None], np.float32(-9999), photo)
    where = np.zeros(photo.shape, dtype=bool)
    where[..., 1] = hidden
    half = np.arange(24) < np.full((20, 1), 12)
    given = half if mask == "half" else mask
    inside = ~hidden & half if mask == "half" else ~hidden
    found = saf.Problem.from_image(np.ma.array(image, mask=where), mask=given, **PLAIN)
    plain = saf.Problem.from_image(image, mask=inside, **PLAIN)
    assert found.options == plain.options
    np.testing.assert_array_equal(found.features, plain.features)
    np.testing.assert_array_equal(found.graph.mask, plain.graph.mask)


@pytest.mark.parametrize(
    "image",
    [
        torch.rand(6, 7, requires_grad=True),
        torch.rand(6, 7).to(torch.bfloat16),
        [[1, 2], [3]],
    ],
)
def test_what_numpy_cannot_read_is_no_image(image):
    with pytest.raises(saf.InvalidInput, match="image"):
        saf.Problem.from_image(image, **PLAIN)


def test_the_rim_of_a_mask_is_no_contrast():
    mask = np.random.default_rng(0).random((30, 30)) < 0.8
    options = {"mask": mask, "window": 13, "max_side": None, "scaling": (0, 1)}
    weights = saf.Problem.from_image(
        np.full((30, 30), 0.6), weights="contrast", **options
    ).graph.weights
    there = weights > 0
    np.testing.assert_allclose(weights, there / there.sum(axis=1, keepdims=True), rtol=1e-4)


def test_a_mask_with_nan_is_refused(photo):
    mask = np.ones((20, 24), np.float32)
    mask[3, 4:7] = np.nan
    with pytest.raises(saf.InvalidInput, match=r"mask: .* 3 of 480 pixels are NaN"):
        saf.Problem.from_image(photo, mask=mask, **PLAIN)
    mask[3, 4:7] = 0
    assert saf.Problem.from_image(photo, mask=mask, **PLAIN).n_nodes == 477


@pytest.mark.parametrize("at", [0, 5])
def test_preparation_ends_at_the_first_yes(at):
    image, asked = np.random.default_rng(0).random((40, 40, 3)), itertools.count()

    def prepare():
        saf.Problem.from_image(image, weights="contrast", window=13, features="lab", max_side=None)

    with pytest.raises(Cancelled), interruptible(lambda: next(asked) >= at):
        prepare()
    assert next(asked) == at + 1
    prepare()
