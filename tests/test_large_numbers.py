"""Labels may have any number: what is made of them takes memory by how many there are."""

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.comparison import align

RNG = np.random.default_rng(0)
SMALL = np.zeros((24, 30), np.int64)
SMALL[2:10, 3:12], SMALL[12:20, 15:28], SMALL[4:9, 18:26] = 1, 2, 3
IMAGE = SMALL / 3 + 0.05 * RNG.random(SMALL.shape)
NUMBERS = np.array([0, 7, 2**62, 2**62 + 1], np.int64)  # the last two are one as float64
LARGE = NUMBERS[SMALL]


@pytest.fixture(params=[np.int64, np.uint64])
def large(request):
    return LARGE.astype(request.param)


def rows_of(table, *numbered):
    """The columns of a table but for the numbers, and these as those of the small labels."""
    ranks = {name: np.searchsorted(NUMBERS, table[name]).tolist() for name in numbered}
    rest = {name: values.tolist() for name, values in table.items() if name not in numbered}
    return ranks, {name: values for name, values in rest.items() if name != "name"}


def test_tables_of_labels(large):
    table = saf.region_table(large, IMAGE, connected=True)
    expected = saf.region_table(SMALL, IMAGE, connected=True)
    assert rows_of(table, "label") == (
        {"label": expected["label"].tolist()},
        rows_of(expected, "label")[1],
    )


def test_objects_and_borders(large):
    objects, expected = saf.split_objects(large), saf.split_objects(SMALL)
    assert np.array_equal(objects.labels, expected.labels)
    assert np.array_equal(objects.kinds, NUMBERS[expected.kinds])
    assert np.array_equal(
        saf.sharpen_labels(large, IMAGE), NUMBERS[saf.sharpen_labels(SMALL, IMAGE)]
    )
    regions = saf.merge_regions(large, IMAGE)
    assert np.array_equal(regions.finest, saf.merge_regions(SMALL, IMAGE).finest)


@pytest.mark.parametrize("number", [65535, 65536])  # docs/limits.md
def test_seeds_have_numbers_of_16_bits(number):
    pipeline = saf.Pipeline(saf.AssignmentFlow())
    seeds = np.where(SMALL == 1, number, SMALL)
    if number > 65535:
        with pytest.raises(saf.InvalidInput, match="expected 1 to 65535, got 65536"):
            pipeline.run(IMAGE, seeds=seeds)
    else:
        assert np.array_equal(np.unique(pipeline.run(IMAGE, seeds=seeds).labels), [2, 3, number])


@pytest.mark.parametrize("name", ["seeds", "groups"])
def test_reduced_images_of_labels(large, name):
    """At the nodes of a coarse grid there are the same labels."""
    values = large + (name == "groups")
    graph = saf.Problem.from_image(IMAGE, max_side=12, window=3).graph
    found, expected = graph.from_image(values), graph.from_image(SMALL + (name == "groups"))
    assert np.array_equal(found, NUMBERS[expected - (name == "groups")] + (name == "groups"))


def test_common_numbers_of_results_with_gaps():
    """A table by the largest numbers of two images would have 2**32 entries."""
    images = [np.array([0, 1, 65535, 65535]), np.array([0, 65534, 65535, 2])]
    first, second = align(images)
    assert second[[65533, 65534, 1]].tolist() == [65534, 65535, 2]
    assert first[0] == 65534 and first[65534] in (65535, 2)
