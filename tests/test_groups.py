"""Groups that an image itself tells, and groups that are given."""

import numpy as np
import pytest
from skimage.filters import threshold_otsu

import napari_saf as saf
from napari_saf.input import PLAIN

DTYPES = ["bool", "int16", "uint64", "float16"]


@pytest.fixture
def image():
    return np.random.default_rng(0).random((5, 6, 2))


def problem(image, **arguments):
    return saf.Problem.from_image(image, channel_axis=-1, **arguments)


def test_every_position_along_an_axis_is_a_group(image):
    rows, columns = np.indices((5, 6)) + 1
    np.testing.assert_array_equal(problem(image, groups="axis:0").groups, rows.ravel())
    np.testing.assert_array_equal(problem(image, groups="axis:1").groups, columns.ravel())
    volume = np.random.default_rng(0).random((4, 5, 6))
    slices = saf.Problem.from_image(volume, groups="axis:0", **PLAIN).groups
    np.testing.assert_array_equal(slices, np.repeat([1, 2, 3, 4], 30))


def test_a_channel_makes_two_groups(image):
    values = image[..., 1].ravel()
    found = problem(image, groups="channel:1").groups
    np.testing.assert_array_equal(found, 1 + (values > threshold_otsu(values)))
    given = problem(image, groups="channel:1:0.25").groups
    np.testing.assert_array_equal(given, 1 + (values > 0.25))


@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_of_every_dtype(dtype):
    """Two heaps of values fall apart; the threshold of the caller is in units of the image."""
    low = np.random.default_rng(0).integers(0, 1 if dtype == "bool" else 20, (6, 8, 2))
    high = np.indices((6, 8)).sum(axis=0) % 3 == 0
    image = (low + high[..., None] * (1 if dtype == "bool" else 80)).astype(dtype)
    expected = 1 + high.ravel()
    np.testing.assert_array_equal(problem(image, groups="channel:1").groups, expected)
    threshold = "0.5" if dtype == "bool" else "40"
    np.testing.assert_array_equal(problem(image, groups=f"channel:1:{threshold}").groups, expected)


def test_a_threshold_does_not_see_what_the_mask_leaves_out(image):
    mask = np.ones((5, 6), bool)
    mask[0, :3] = False
    spoilt = image.copy()
    spoilt[0, :3] = [[1e6, 1e6], [np.nan, 0], [np.inf, 1]]
    values = image[..., 0][mask]
    found = problem(spoilt, mask=mask, groups="channel:0").groups
    np.testing.assert_array_equal(found, 1 + (values > threshold_otsu(values)))


def test_groups_follow_the_mask(image):
    mask = np.random.default_rng(1).random((5, 6)) < 0.6
    columns = np.indices((5, 6))[1] + 1
    found = problem(image, mask=mask, groups="axis:1").groups
    np.testing.assert_array_equal(found, columns[mask])
    given = problem(image, mask=mask, groups=columns).groups
    np.testing.assert_array_equal(given, columns[mask])


def test_each_of_several_images_is_a_group(image):
    masks = [None, np.arange(24).reshape(4, 6) % 2 == 0]
    both = saf.Problem.from_images(
        [image, image[:4]], channel_axis=-1, masks=masks, groups="image", **PLAIN
    )
    np.testing.assert_array_equal(both.groups, np.repeat([1, 2], [30, 12]))


def test_several_images_share_axes_and_thresholds(image):
    images = [image, image[:3] + 0.2]
    by_row = saf.Problem.from_images(images, channel_axis=-1, groups="axis:0", **PLAIN).groups
    np.testing.assert_array_equal(by_row, np.repeat([1, 2, 3, 4, 5, 1, 2, 3], 6))
    values = np.concatenate([one[..., 1].ravel() for one in images])
    by_channel = saf.Problem.from_images(
        images, channel_axis=-1, groups="channel:1", **PLAIN
    ).groups
    np.testing.assert_array_equal(by_channel, 1 + (values > threshold_otsu(values)))


def test_the_recipe_names_the_source(image):
    named = problem(image, groups="channel:0:0.5")
    assert named.options.to_plain()["groups"] == "channel:0:0.5"
    arrays = problem(image, groups=np.ones((5, 6), int))
    assert arrays.options.to_plain()["groups"] is None


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ("rows", "groups: expected 'image', 'axis:N'"),
        ("image:1", "groups: expected"),
        ("axis:0:1", "groups: expected"),
        ("channel:0:nan", "groups: expected"),
        ("axis:2", "groups: expected an axis from 0 to 1, got 2"),
        ("channel:-1", "groups: expected a channel from 0 to 1, got -1"),
        (np.ones((6, 5), int), "groups: expected the image's shape"),
        (np.ones((5, 6)), "groups: expected whole numbers"),
        (-np.ones((5, 6), int), "groups: expected 0, 1, 2"),
        (np.zeros((5, 6), int), "groups: expected one that is not 0"),
    ],
)
def test_bad_groups_are_refused(image, groups, said):
    with pytest.raises(saf.InvalidInput, match=said):
        problem(image, groups=groups)


def test_a_constant_channel_makes_no_groups(image):
    image[..., 1] = 0.5
    with pytest.raises(saf.InvalidInput, match="groups: channel 1 is constant"):
        problem(image, groups="channel:1")


def test_groups_come_one_per_image(image):
    with pytest.raises(saf.InvalidInput, match="groups: expected one for each of 2 images, got 1"):
        saf.Problem.from_images(
            [image, image], channel_axis=-1, groups=[np.ones((5, 6), int)], **PLAIN
        )
