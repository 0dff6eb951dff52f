"""Objects lie in their kind, cover it, and are what touches in it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from object_cases import share_found, touching_pair
from scipy import ndimage

import napari_saf as saf
from napari_saf.objects import find_parts, ground_label

SHAPES = [(23, 31), (1, 9), (7, 1), (7, 9, 11)]


def blobs(shape, n_kinds, seed):
    rng = np.random.default_rng(seed)
    fields = ndimage.gaussian_filter(
        rng.normal(size=(n_kinds + 1, *shape)), (0, *[1.5] * len(shape))
    )
    return fields.argmax(axis=0)


def is_same_partition(first, second):
    pairs = np.unique(np.stack([first.ravel(), second.ravel()]), axis=1)
    return len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]


def disc(shape, centre, radius):
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    return (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2


@given(st.sampled_from(SHAPES), st.integers(1, 4), st.integers(0, 99), st.booleans())
@settings(max_examples=20, deadline=None)
def test_objects_lie_in_their_kind_and_cover_it(shape, n_kinds, seed, with_uncertainty):
    labels = blobs(shape, n_kinds, seed)
    uncertainty = np.random.default_rng(seed).random(shape) if with_uncertainty else None
    objects = saf.split_objects(labels, smallest=1, neck=0, uncertainty=uncertainty)
    assert objects.labels.dtype == np.uint32
    assert np.array_equal(objects.kind_image, labels)
    sizes = np.bincount(objects.labels.ravel(), minlength=len(objects.kinds))
    assert np.array_equal(objects.numbers, np.arange(1, len(objects.kinds)))
    assert (sizes[1:] > 0).all()
    for number in objects.numbers:
        assert ndimage.label(objects.labels == number, np.ones((3,) * len(shape)))[1] == 1


@given(st.integers(0, 99), st.integers(1, 60))
@settings(max_examples=12, deadline=None)
def test_no_object_is_smaller_than_allowed_and_only_specks_are_left_out(seed, smallest):
    labels = blobs((40, 40), 2, seed)
    objects = saf.split_objects(labels, smallest=smallest)
    sizes = np.bincount(objects.labels.ravel())[1:]
    assert (sizes >= smallest).all()
    for kind in (1, 2):
        pieces, _ = ndimage.label(labels == kind, np.ones((3, 3)))
        is_kept = np.bincount(pieces.ravel()) >= smallest
        expected = np.where(is_kept[pieces] & (labels == kind), kind, 0)
        assert np.array_equal(np.where(labels == kind, objects.kind_image, 0), expected)


@given(st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_other_numbers_of_the_kinds_change_no_object(seed):
    labels = blobs((30, 40), 3, seed)
    new = np.array([0, 70_000, 5, 12])
    first, second = saf.split_objects(labels), saf.split_objects(new[labels])
    assert is_same_partition(first.labels, second.labels)
    assert np.array_equal(new[first.kind_image], second.kind_image)


@given(st.integers(0, 99), st.sampled_from([0.25, 3.0, 1e3]))
@settings(max_examples=6, deadline=None)
def test_another_unit_of_length_changes_nothing(seed, factor):
    labels = blobs((9, 30, 40), 1, seed)
    first = saf.split_objects(labels, spacing=(3, 1, 1))
    second = saf.split_objects(labels, spacing=np.array((3, 1, 1)) * factor)
    assert np.array_equal(first.labels, second.labels)


@given(st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_necks_go_from_all_parts_to_the_connected_pieces(seed):
    parts, _ = find_parts(blobs((50, 50), 2, seed))
    every, none = (parts.join(smallest=1, neck=neck) for neck in (0, 1))
    assert len(every.numbers) == len(parts.kinds) - 1
    n_pieces = sum(ndimage.label(none.kind_image == k, np.ones((3, 3)))[1] for k in (1, 2))
    assert len(none.numbers) == n_pieces
    between = parts.join(smallest=1, neck=0.1)
    assert all(len(np.unique(between.labels[every.labels == k])) == 1 for k in every.numbers)
    assert all(len(np.unique(none.labels[between.labels == k])) == 1 for k in between.numbers)


def test_what_is_together_as_large_as_others_stays_one_in_spite_of_a_shallow_neck():
    shape = 40, 60
    bone = disc(shape, (20, 20), 8) | disc(shape, (20, 28), 8)
    large, small = ([disc(shape, (20, 30), radius)] * 6 for radius in (12, 8))
    counts = [
        len(saf.split_objects(np.concatenate([bone, *others])).numbers)
        for others in ([], large, small, [2 * one for one in large])
    ]
    # By itself; among larger ones; as large as them, each; among larger ones of another kind.
    assert counts == [2, 7, 8, 8]


def test_a_neck_of_a_volume_is_as_narrow_as_its_cross_section():
    z, y, x = np.ogrid[-15:16, -15:16, -36:37]
    balls = z**2 + y**2 + (np.abs(x) - 3.6) ** 2 < 144
    counts = [len(saf.split_objects(balls, neck=neck).numbers) for neck in (0.03, 0.05)]
    assert counts == [2, 1]  # 1.8 % narrower, 3.6 % in its cross-section
    assert [find_parts(one)[0].n_axes for one in (balls, balls[15:16], balls[15])] == [3, 2, 2]
    assert find_parts(balls, axis=0)[0].n_axes == 2


def sheared_pairs(shear):
    """Return nine pairs of discs that touch, on a sheared grid, and the steps of its pixels."""
    steps, rng = np.array([[1.0, 0], [shear, 1]]), np.random.default_rng(0)
    shape, first = (120, 180 + int(120 * shear)), [[0], [int(120 * shear)]]
    at = steps @ (np.indices(shape).reshape(2, -1) - first)
    inside = np.zeros(at.shape[1], bool)
    for place in itertools.product((20, 56, 92), (30, 90, 150)):
        angle = rng.uniform(0, np.pi)
        way = 7.65 * np.array([np.sin(angle), np.cos(angle)])
        for centre in (place + way, place - way):
            inside |= ((at - centre[:, None]) ** 2).sum(axis=0) < 81
    return inside.reshape(shape).astype(np.uint8), steps


def test_pixels_may_be_sheared():
    labels, steps = sheared_pairs(1.5)
    turned = np.array([[0.6, -0.8], [0.8, 0.6]]) @ steps
    for spacing, image in ((steps, None), (turned, None), (steps, 100.0 * labels)):
        assert len(saf.split_objects(labels, spacing=spacing, image=image).numbers) == 18
    slices = np.diag([5.0, 1, 1])
    slices[1:, 1:] = steps
    stack = np.stack([labels] * 2)
    assert len(saf.split_objects(stack, spacing=slices, axis=0).numbers) == 36


@pytest.mark.parametrize(("spacing", "count"), [((1, 1), 50), ((3, 1, 1), 30)])
def test_shapes_that_touch_are_told_apart(spacing, count):
    rng = np.random.default_rng(0)
    cases = [touching_pair(rng, spacing, 1.5) for _ in range(count)]
    found = [saf.split_objects(truth > 0, spacing=spacing).labels for truth in cases]
    assert np.mean([share_found(a, b) for a, b in zip(cases, found, strict=True)]) >= 0.94


def test_one_disc_stays_one_object_also_at_the_border():
    for centre in ((20, 20), (0, 20), (0, 0)):
        for radius in (2, 5, 9, 14):
            labels = disc((41, 41), centre, radius)
            assert saf.split_objects(labels, smallest=1).labels.max() == 1


def test_uncertain_pixels_part_what_has_no_neck():
    labels, uncertainty = np.zeros((30, 60), int), np.zeros((30, 60))
    labels[5:25, 5:55] = 3
    uncertainty[:, 28:32] = 0.6
    assert len(saf.split_objects(labels).numbers) == 1
    objects = saf.split_objects(labels, uncertainty=uncertainty)
    assert objects.kinds.tolist() == [0, 3, 3]
    assert objects.labels[15, 10] != objects.labels[15, 50]


def test_slices_are_gone_through_one_by_one():
    frames = np.stack([blobs((30, 40), 2, seed) for seed in range(3)])
    for axis in (0, 1, -1):
        objects = saf.split_objects(np.moveaxis(frames, 0, axis), axis=axis, smallest=5, neck=0)
        own = np.moveaxis(objects.labels, axis, 0)
        seen = [set(np.unique(frame)) - {0} for frame in own]
        assert not seen[0] & seen[1] and not seen[1] & seen[2]
        for frame, mine in zip(frames, own, strict=True):
            alone = saf.split_objects(frame, smallest=5, neck=0)
            assert is_same_partition(alone.labels, mine)


def test_only_the_kinds_that_are_wanted_are_split():
    labels = blobs((30, 30), 3, 0)
    objects = saf.split_objects(labels, kinds=[3, 99, 0], smallest=1)
    assert np.array_equal(objects.kind_image, np.where(labels == 3, 3, 0))
    nothing = saf.split_objects(labels, kinds=[99])
    assert not nothing.labels.any() and nothing.kinds.tolist() == [0]


@pytest.mark.parametrize(
    "labels", [np.zeros((5, 6), int), np.ones((5, 6), bool), np.eye(4, dtype=int)]
)
def test_images_of_nothing_of_one_kind_and_of_a_line(labels):
    objects = saf.split_objects(labels, smallest=1)
    assert np.array_equal(objects.labels, labels)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": [[0.5]]}, "whole numbers"),
        ({"labels": np.zeros((2, 2, 2, 2), int)}, "planes or volumes"),
        ({"labels": np.zeros((0, 2), int)}, "planes or volumes"),
        ({"axis": 2}, "axis"),
        ({"smallest": 0}, "smallest"),
        ({"neck": 1.5}, "neck"),
        ({"spacing": (1, 0)}, "spacing"),
        ({"spacing": np.ones((2, 2))}, "linearly independent"),
        ({"image": np.zeros((3, 3))}, "image"),
        ({"uncertainty": np.zeros((3, 3))}, "uncertainty"),
        ({"uncertainty": np.full((2, 3), np.nan)}, "uncertainty"),
        ({"kinds": "ab"}, "kinds"),
    ],
)
def test_bad_input_is_named(given, message):
    with pytest.raises(saf.InvalidInput, match=message):
        saf.split_objects(**{"labels": np.ones((2, 3), int), **given})


def two_shades(shape, first, second):
    """Return an image of two halves within dark surroundings, and where they are."""
    labels = np.zeros(shape, int)
    inner = tuple(slice(6, -6) for _ in shape)
    labels[inner] = 1
    image = np.where(np.arange(shape[-1]) < shape[-1] // 2, first, second) * labels
    return labels, ndimage.gaussian_filter(image.astype(float), 1)


@pytest.mark.parametrize("shape", [(36, 60), (20, 20, 40)])
def test_things_of_two_shades_are_told_apart_by_the_image_alone(shape):
    labels, image = two_shades(shape, 1.0, 2.0)
    assert len(saf.split_objects(labels).numbers) == 1
    assert len(saf.split_objects(labels, image=labels).numbers) == 1
    objects = saf.split_objects(labels, image=image)
    assert len(objects.numbers) == 2
    is_right = np.broadcast_to(np.arange(shape[-1]) >= shape[-1] // 2, shape)[labels > 0]
    assert (is_right == (objects.labels[labels > 0] == 2)).mean() > 0.9


@given(st.integers(0, 20), st.sampled_from([-3.0, -0.1, 0.5, 40.0]), st.integers(-9, 9))
@settings(max_examples=10, deadline=None)
def test_objects_depend_neither_on_the_contrast_of_an_image_nor_on_its_channels(
    seed, slope, offset
):
    labels = blobs((40, 50), 1, seed)
    image = ndimage.gaussian_filter(labels + np.random.default_rng(seed).normal(size=(40, 50)), 1)
    expected = saf.split_objects(labels, image=image).labels
    other = slope * image + offset
    for pixels, axis in ((other, None), (np.stack([other, -2 * other]), 0)):
        found = saf.split_objects(labels, image=pixels, channel_axis=axis).labels
        assert is_same_partition(expected, found)


def test_an_image_of_touching_shapes_does_not_break_them():
    rng, shares = np.random.default_rng(0), []
    for _ in range(12):
        truth = touching_pair(rng, (1, 1), 1.5)
        image = ndimage.gaussian_filter((truth > 0).astype(float), 1)
        image += rng.normal(scale=0.05, size=truth.shape)
        shares.append(share_found(truth, saf.split_objects(truth > 0, image=image).labels))
    assert np.mean(shares) >= 0.95
    noise = rng.integers(0, 255, truth.shape)
    plain, noisy = (saf.split_objects(truth > 0, image=image) for image in (None, noise))
    assert np.array_equal(plain.labels, noisy.labels)


@pytest.mark.parametrize("label", [0, 1])
def test_a_kind_without_known_pixels_in_or_around_it_has_no_edges(label):
    labels = np.zeros((30, 40), int)
    labels[8:20, 8:30] = 1
    image = np.where(labels == label, np.nan, 5.0)
    found = saf.split_objects(labels, image=image)
    np.testing.assert_array_equal(found.labels, saf.split_objects(labels).labels)


@pytest.mark.parametrize(
    ("sizes", "ground"),
    [
        ((40, 60), 9),
        ((100, 0), None),
        ((30, 20), None),  # half of the image is unlabelled
        ((25, 25, 25), None),
        ((24,) + (19,) * 4, None),  # cells of another program, side by side
    ],
)
def test_the_ground_is_a_large_label_of_several(sizes, ground):
    sizes = [size for size in sizes if size]
    numbers = [3, 9, 10, 11, 12][: len(sizes)]
    assert ground_label(numbers, sizes, 100) == ground
