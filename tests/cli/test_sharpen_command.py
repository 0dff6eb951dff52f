"""``napari-saf sharpen``."""

import os

import imageio.v3 as iio
import numpy as np
import pytest

import napari_saf as saf
from napari_saf.io import read_labels, read_mask, save_masks


def disk(n=64):
    rows, columns = np.mgrid[:n, :n]
    return (np.hypot(rows - 30, columns - 33) < 20).astype(np.uint8)


@pytest.fixture
def files(cli):
    """A mask with steps of four pixels, and its image."""
    coarse = np.kron(disk()[::4, ::4], np.ones((4, 4), np.uint8)) * np.uint8(3)
    about = {"names": {3: "cell"}, "colors": {3: (1, 0, 0)}, "scale": (0.5, 0.5), "units": "um"}
    save_masks("a.labels.tif", coarse, **about)
    iio.imwrite("a.png", 100 * disk())
    return coarse


def test_borders_move_and_names_colours_and_scale_stay(cli, files):
    outcome = cli("sharpen", "a.labels.tif", "a.png", "-o", "out/b.tif")
    assert outcome.code == 0 and "b.tif" in outcome.out
    given, found = read_mask("a.labels.tif"), read_mask("out/b.tif")
    np.testing.assert_array_equal(found.labels, 3 * disk())
    assert found.labels.dtype == given.labels.dtype
    for name in ("names", "colors", "scale", "units"):
        assert getattr(found, name) == getattr(given, name)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--reach", 2, "--strength", 0], {"reach": 2, "strength": 0}),
        (["--mask", "labels"], {"mask": True}),
        (["--mask", "inside.png"], {"mask": True}),
    ],
)
def test_options_are_those_of_the_function(cli, files, options, arguments):
    inside = np.broadcast_to(np.arange(64) < 30, (64, 64))
    iio.imwrite("inside.png", np.uint8(255) * inside)
    arguments = {key: files > 0 if "labels" in options else inside if key == "mask" else value
                 for key, value in arguments.items()}  # fmt: skip
    assert cli("sharpen", "a.labels.tif", "a.png", "-o", "b.png", *options).code == 0
    sharp = saf.sharpen_labels(files, iio.imread("a.png"), **arguments)
    np.testing.assert_array_equal(read_labels("b.png").array, sharp)


def test_masks_of_a_folder_find_their_images(cli, files):
    os.makedirs("images")
    os.makedirs("masks")
    for name in "bc":
        save_masks(f"masks/{name}.labels.png", files)
        iio.imwrite(f"images/{name}.png", 100 * disk())
    assert cli("sharpen", "masks", "images", "-o", "out").code == 0
    for name in "bc":
        np.testing.assert_array_equal(read_labels(f"out/{name}.labels.png").array, 3 * disk())
    iio.imwrite("images/c.png", 100 * disk(60))
    outcome = cli("sharpen", "masks", "images", "-o", "out", "--overwrite")
    assert outcome.code == 1 and "c.png" in outcome.err and "1 of 2" in outcome.err
    os.remove("images/c.png")
    assert cli("sharpen", "masks", "images", "-o", "new").is_error("one image c")


def test_frames_and_slices_are_gone_through_one_by_one(cli, files):
    image = np.stack([100 * disk(), 100 * disk()[::-1]])
    labels = np.stack([files, files[::-1]])
    iio.imwrite("image.tif", image)
    save_masks("m.tif", labels, axes="tyx")
    save_masks("v.tif", labels, axes="zyx")
    assert cli("sharpen", "m.tif", "image.tif", "-o", "frames.tif").code == 0
    assert cli("sharpen", "v.tif", "image.tif", "-o", "slices.tif", "--slices").code == 0
    expected = 3 * np.stack([disk(), disk()[::-1]])
    for name in ("frames.tif", "slices.tif"):
        np.testing.assert_array_equal(read_labels(name).array, expected)
