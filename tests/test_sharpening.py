"""Borders move onto the edges of the image, and nothing else of the labels changes."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, label, zoom

import napari_saf as saf
from napari_saf.device import torch
from napari_saf.parts import cut, grown
from napari_saf.sharpening import Sharpener


def scene(side=96, n_labels=4, n_channels=3, noise=8.0, seed=0, n_axes=2):
    """Labels of blobs, and an image of them with noise."""
    rng = np.random.default_rng(seed)
    fields = [gaussian_filter(rng.standard_normal([side] * n_axes), 9) for _ in range(n_labels)]
    truth = np.argmax(fields, axis=0)
    colours = np.linspace(30, 220, n_labels)[:, None] * np.ones(n_channels)
    image = colours[truth] + rng.normal(0, noise, (*truth.shape, n_channels))
    return truth, np.clip(image, 0, 255).astype(np.uint8)


def displaced(truth, factor=4, seed=1):
    """Return the labels of blocks, whose borders are off by .7 of a block."""
    rng = np.random.default_rng(seed)
    places = np.indices(truth.shape).astype(float)
    for place in places:
        field = gaussian_filter(rng.standard_normal([n // factor for n in truth.shape]), 2)
        place += zoom(0.7 * factor * field / field.std(), factor, order=1)
    limits = np.array(truth.shape).reshape(-1, *[1] * truth.ndim) - 1
    moved = truth[tuple(np.clip(np.rint(places), 0, limits).astype(int))]
    small = moved[(slice(factor // 2, None, factor),) * truth.ndim]
    return np.kron(small, np.ones([factor] * truth.ndim, int))


@pytest.mark.parametrize("n_axes", [2, 3])
def test_borders_beside_edges_move_onto_them(n_axes):
    truth, image = scene(96 if n_axes == 2 else 48, n_axes=n_axes)
    given = displaced(truth)
    sharp = saf.sharpen_labels(given, image, channel_axis=-1)
    assert (sharp != truth).mean() < 0.25 * (given != truth).mean()


def test_borders_on_edges_stay():
    truth, image = scene()
    assert (saf.sharpen_labels(truth, image) != truth).mean() < 0.01
    once = saf.sharpen_labels(displaced(truth), image)
    assert (saf.sharpen_labels(once, image) != once).mean() < 0.01


def test_only_pixels_within_reach_change():
    labels = np.ones((64, 64), int)
    labels[:, 32:] = 2
    image = np.random.default_rng(0).normal(0, 1, labels.shape)
    for reach in (2, 4, 8):
        changed = saf.sharpen_labels(labels, image, reach=reach, strength=1) != labels
        columns = np.flatnonzero(changed.any(axis=0))
        assert not len(columns) or np.abs(columns - 31.5).max() <= 2 * reach


@pytest.mark.parametrize("reach", [None, 8])
def test_no_object_vanishes_however_small(reach):
    rng = np.random.default_rng(0)
    labels = np.zeros((120, 120), np.uint16)
    for k in range(1, 60):
        row, column, side = *rng.integers(0, 110, 2), rng.integers(1, 8)
        labels[row : row + side, column : column + side] = k
    labels[60, 10:110], labels[:, 119] = 61, 62
    image = rng.normal(0, 1, labels.shape)  # says nothing of them
    sharp = saf.sharpen_labels(labels, image, reach=reach, strength=1)
    assert sharp.dtype == labels.dtype
    assert set(np.unique(sharp)) == set(np.unique(labels))
    single = labels.copy()
    single[labels > 0] = 1
    sharp = saf.sharpen_labels(single, image, reach=reach, strength=1)
    pieces, _ = label(single, np.ones((3, 3)))
    assert all(sharp[pieces == k].any() for k in range(1, pieces.max() + 1))


def test_a_thin_line_stays_in_one_piece():
    labels = np.ones((80, 80), int)
    labels[40] = 2
    labels[:, 20:22] = 3
    image = np.random.default_rng(0).normal(0, 1, labels.shape)
    for reach in (4, 8):
        sharp = saf.sharpen_labels(labels, image, reach=reach, strength=1)
        assert (sharp[:, 20:22] == 3).all()
        assert (sharp[40, :20] == 2).all() and (sharp[40, 22:] == 2).all()


def test_names_of_labels_do_not_matter():
    truth, image = scene(seed=2)
    given = displaced(truth)
    names = np.array([7, 300, 0, 2**40])
    renamed = saf.sharpen_labels(names[given], image)
    assert (renamed == names[saf.sharpen_labels(given, image)]).mean() > 0.9999


def test_flips_change_nothing():
    truth, image = scene(seed=3)
    given = displaced(truth)
    flipped = saf.sharpen_labels(np.flip(given, (0, 1)), np.flip(image, (0, 1)))
    assert (np.flip(flipped, (0, 1)) == saf.sharpen_labels(given, image)).mean() > 0.9999


def test_brightness_units_and_order_of_channels_do_not_matter():
    truth, image = scene(seed=4)
    image[..., 1] = np.random.default_rng(0).integers(0, 255, truth.shape)
    given = displaced(truth)
    sharp = saf.sharpen_labels(given, image)
    for other in (image[..., ::-1], 300.0 * image - 5e4, image.astype(np.uint16) * 200):
        assert (saf.sharpen_labels(given, other) == sharp).mean() > 0.999
    moved = saf.sharpen_labels(given, np.moveaxis(image, -1, 0), channel_axis=0)
    np.testing.assert_array_equal(moved, sharp)
    grey = saf.sharpen_labels(given, image[..., 0])
    np.testing.assert_array_equal(grey, saf.sharpen_labels(given, image[..., :1], channel_axis=-1))


def test_threads_do_not_matter():
    truth, image = scene(300, seed=5)
    given, before = displaced(truth), torch.get_num_threads()
    try:
        found = []
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            found.append(saf.sharpen_labels(given, image))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_what_is_outside_a_mask_stays_and_counts_nowhere():
    truth, image = scene(seed=6)
    given, image = displaced(truth), image.astype(float)
    mask = np.zeros(truth.shape, bool)
    mask[:, :60] = True
    image[:, 60:] = np.nan
    sharp = saf.sharpen_labels(given, image, mask=mask)
    np.testing.assert_array_equal(sharp[:, 60:], given[:, 60:])
    np.testing.assert_array_equal(sharp, saf.sharpen_labels(
        np.where(mask, given, 9), np.where(mask[..., None], image, 1e9), mask=mask
    ) * mask + given * ~mask)  # fmt: skip
    assert (sharp[mask] != truth[mask]).mean() < 0.5 * (given[mask] != truth[mask]).mean()
    inner = saf.sharpen_labels(given, np.nan_to_num(image), mask=given > 0)
    np.testing.assert_array_equal(inner > 0, given > 0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (2, 9, 30)])
def test_images_of_any_shape(shape):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, shape)
    image = rng.random((*shape, 2))
    sharp = saf.sharpen_labels(labels, image, channel_axis=-1)
    assert sharp.shape == shape and set(np.unique(sharp)) == set(np.unique(labels))
    one = np.ones(shape, bool)
    np.testing.assert_array_equal(saf.sharpen_labels(one, image[..., 0], reach=3), one)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"labels": np.zeros((8, 9), int)}, "shape"),
        ({"labels": np.zeros(8, int), "image": np.zeros(8)}, "2 or 3 axes"),
        ({"image": np.full((8, 8), np.nan)}, "finite"),
        ({"image": np.full((8, 8), "a")}, "real numbers"),
        ({"mask": np.ones((8, 9))}, "mask"),
        ({"reach": 2.5}, "reach"),
        ({"strength": np.nan}, "strength"),
        ({"channel_axis": 5}, "channel_axis"),
    ],
)
def test_errors_name_the_argument(change, word):
    call = {"labels": np.eye(8, dtype=int), "image": np.eye(8)} | change
    with pytest.raises(saf.InvalidInput, match=word):
        saf.sharpen_labels(call.pop("labels"), call.pop("image"), **call)


@pytest.mark.parametrize(("shape", "reach"), [((150, 170), 5), ((26, 44, 40), 3)])
def test_parts_are_sharpened_as_within_the_whole(shape, reach):
    rng = np.random.default_rng(0)
    smooth = gaussian_filter(rng.standard_normal(shape), 5)
    truth = np.digitize(smooth, np.quantile(smooth, [0.4, 0.8])) + 1
    image = (60 * truth + rng.normal(0, 15, shape)).clip(0, 255).astype(np.uint8)[..., None]
    labels = np.roll(truth, 2, axis=0).astype(np.uint8)
    sharpener = Sharpener.of([(labels, image, None)], shape, reach)
    whole = sharpener(labels, image)
    assert (whole != labels).any()
    for first in (0, 13, 30):
        region = tuple(slice(first, min(first + 20, n)) for n in shape)
        crop = sharpener.aligned(grown(region, sharpener.halo, shape), shape)
        part = sharpener(labels[crop], image[crop])
        np.testing.assert_array_equal(cut(part, crop, region), whole[region])
