"""All that looks like the thing in a box."""

import numpy as np
import pytest

import napari_saf as saf

CENTRES = [(20, 20), (20, 60), (60, 24), (70, 70), (40, 88)]


def discs(shape=(96, 112), radius=8, dark=False):
    """Return an image of discs, noisy, and their labels."""
    truth = np.zeros(shape, int)
    for number, (row, column) in enumerate(CENTRES, start=1):
        rows, columns = np.ogrid[: shape[0], : shape[1]]
        truth[(rows - row) ** 2 + (columns - column) ** 2 <= radius**2] = number
    image = 0.2 + 0.5 * (truth > 0) + np.random.default_rng(0).normal(0, 0.03, shape)
    return (1 - image if dark else image), truth


def test_all_like_the_one_in_a_box():
    for dark in (False, True):
        image, truth = discs(dark=dark)
        objects = saf.segment_like(image, (12, 12, 29, 29))
        assert len(objects.numbers) == len(CENTRES)
        found = objects.labels[tuple(np.transpose(CENTRES))]
        assert len(set(found) - {0}) == len(CENTRES)
        assert ((objects.labels > 0) == (truth > 0)).mean() > 0.99


def test_what_is_small_beside_the_one_in_the_box_is_left_out():
    image, _ = discs()
    image[86:90, 8:12] = 0.7
    assert len(saf.segment_like(image, (12, 12, 29, 29)).numbers) == len(CENTRES)


def test_channels_count_wherever_they_are():
    image, _ = discs()
    colour = np.stack([image, 1 - image, image], axis=-1)
    last = saf.segment_like(colour, (12, 12, 29, 29))
    first = saf.segment_like(np.moveaxis(colour, -1, 0), (12, 12, 29, 29), channel_axis=0)
    np.testing.assert_array_equal(last.labels, first.labels)


@pytest.mark.parametrize("box", [(12, 12, 29), (12, 12, 13, 29), (-1, 12, 29, 29), (0, 0, 96, 112)])
def test_a_box_is_part_of_the_image(box):
    with pytest.raises(saf.InvalidInput, match="box"):
        saf.segment_like(discs()[0], box)
