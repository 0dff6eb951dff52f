"""A hierarchy of regions, against one made by comparing all pairs anew at every merge."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import wasserstein_distance

import napari_saf as saf
from napari_saf.methods import Cancelled
from napari_saf.pipeline import Pipeline
from napari_saf.problem import ImageOptions
from napari_saf.regions import WEIGHTS, RegionGraph, Separate, find_separate, merge_regions
from napari_saf.regions._graph import _RANGES
from napari_saf.regions._pieces import connected_components, describe


def picture(shape=(24, 30), n_labels=4, n_channels=3, seed=0):
    """Labels in blocks, and an image of differing colours with noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(1, n_labels + 1, [-(-side // 6) for side in shape])
    labels = coarse
    for axis in range(len(shape)):
        labels = labels.repeat(6, axis=axis)
    labels = labels[tuple(slice(side) for side in shape)]
    image = rng.random((n_labels + 1, n_channels))[labels]
    return labels, np.clip(image + rng.normal(0, 0.05, image.shape), 0, 1)


def is_merged_from(coarse, fine):
    """Whether each region of the fine one lies in one region of the coarse one."""
    return all(len(np.unique(coarse[fine == k])) == 1 for k in np.unique(fine))


@given(st.integers(0, 50), st.sampled_from([(24, 30), (13, 7), (9, 8, 11)]), st.integers(1, 5))
@settings(max_examples=12, deadline=None)
def test_levels_are_nested_and_lead_to_one_region(seed, shape, n_channels):
    labels, image = picture(shape, n_channels=n_channels, seed=seed)
    tree = merge_regions(labels, image, channel_axis=-1)
    assert (np.diff(tree.heights) >= 0).all() and ((tree.heights >= 0) & (tree.heights <= 1)).all()
    before = tree.finest
    for level in (0, 0.3, 0.6, 0.9, 1):
        merged = tree.at_level(level)
        assert is_merged_from(merged, before)
        sizes = np.bincount(merged.ravel())[1:]
        assert (np.diff(sizes) <= 0).all() and sizes.all() and sizes.sum() == labels.size
        before = merged
    assert before.max() == 1
    n = int(tree.finest.max())
    for count in {1, 2, n, n + 3}:
        assert tree.with_count(count).max() == min(count, n)


def test_cues_are_those_of_their_formulas():
    labels, image = picture((12, 17), n_labels=3, seed=1)
    finest = connected_components(labels, 0)
    values, gradients = describe(image)
    graph = RegionGraph(finest, values, gradients)
    steps = neighbours(finest)
    met = {tuple(sorted((finest[i], finest[j]))) for i, j in steps if finest[i] != finest[j]}
    assert sorted(met) == [tuple(pair) for pair in graph.pairs.tolist()]
    cues = graph.cues(np.arange(len(graph.pairs)))
    for (a, b), found in zip(graph.pairs.tolist(), cues, strict=True):
        expected = [
            # of the bin numbers, in shares of the range
            wasserstein_distance(*(np.digitize(value[finest == k], edges) for k in (a, b))) / 16
            for value, edges in zip(
                values, [np.linspace(*ends, 17)[1:-1] for ends in _RANGES], strict=True
            )
        ]
        common = [(i, j) for i, j in steps if {finest[i], finest[j]} == {a, b}]
        ends = [[g[i], g[j]] for i, j in common for g in [np.moveaxis(gradients, 0, -1)]]
        expected += np.mean(ends, axis=(0, 1)).tolist()
        sizes = sorted(np.mean(finest == k) for k in (a, b))
        expected += np.log(sizes).tolist()
        rims = [sum({finest[i], finest[j]} > {k} for i, j in steps) for k in (a, b)]
        expected += [len(common) / min(rims), 1]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def neighbours(finest):
    """Return the pairs of pixels side by side."""
    places = list(np.ndindex(finest.shape))
    return [
        (p, q)
        for p in places
        for q in ((p[0] + 1, p[1]), (p[0], p[1] + 1))
        if q[0] < finest.shape[0] and q[1] < finest.shape[1]
    ]


def obvious_merges(finest, image, least):
    """Merge as the docstring says, all cues computed from the pixels of the moment."""
    finest, found, described = finest.copy(), [], describe(image)
    while True:
        graph = RegionGraph(finest, *described)
        keys = []
        for row, (a, b) in enumerate(graph.pairs.tolist()):
            odds = float(graph.cues(np.array([row]))[0] @ WEIGHTS)
            is_small = min(graph.sizes[a], graph.sizes[b]) < least
            keys.append((not is_small, -odds, a, b))
        if not keys:
            return found
        best = min(keys)
        _, score, a, b = best
        found.append((a, b, 0.0 if best[0] is False else expit(score)))
        finest[finest == b] = a


def test_sums_are_those_of_the_pixels_after_every_merge():
    labels, image = picture(n_labels=5, seed=3)
    finest = connected_components(labels, 0)
    fast = list(RegionGraph(finest, *describe(image)).merges(WEIGHTS, 40))
    slow = obvious_merges(finest, image, 40)
    assert [pair for *pair, _ in fast] == [pair for *pair, _ in slow]
    np.testing.assert_allclose([h for *_, h in fast], [h for *_, h in slow], atol=1e-6)


def things(n_rows=4, n_columns=5, seed=0, side=18):
    """Labels 2 of small things on a ground 1, and an image with noise."""
    rng = np.random.default_rng(seed)
    labels = np.ones((n_rows * side, n_columns * side), int)
    for row in range(n_rows):
        for column in range(n_columns):
            top, left = row * side + 4, column * side + 4
            labels[top : top + rng.integers(7, 10), left : left + rng.integers(7, 10)] = 2
    image = np.array([0, 0.3, 0.7])[labels] + rng.normal(0, 0.05, labels.shape)
    return labels, image


def test_separate_things_are_counted_and_are_regions_however_large_the_image():
    for n_rows in (3, 12):
        labels, image = things(n_rows)
        tree = merge_regions(labels, image)
        n = 5 * n_rows
        assert tree.separate.number == n and str(n) in tree.separate.note
        assert tree.separate.size == pytest.approx((labels == 2).sum() / n, rel=0.1)
        assert tree.at_level().max() == n + 1
        np.testing.assert_array_equal(tree.at_level(), tree.at_level(0.1))
    coarse = merge_regions(labels, image, least_share=0.02)
    assert coarse.at_level(0).max() == 1


def test_what_is_separate_does_not_depend_on_numbers_specks_or_what_is_unlabelled():
    labels, _ = things(5)
    found = find_separate(labels)
    assert find_separate(np.array([0, 7, 3])[labels]) == find_separate(labels.T) == found
    assert find_separate(np.kron(labels, np.ones((2, 2), int))).number == found.number
    with_specks = labels.copy()
    with_specks[::9, ::9][labels[::9, ::9] == 1] = 2
    assert find_separate(with_specks).number == found.number
    assert find_separate(np.where(np.arange(labels.shape[1]) < 18, 0, labels)).number == 20
    assert find_separate(np.stack([labels, np.ones_like(labels)])).number == found.number
    assert find_separate(np.stack([labels] * 3), (1, 2)).number == 3 * found.number
    few = things(2, 3)[0]  # too few in a slice, enough in all
    counts = find_separate(few).number, find_separate(np.stack([few] * 4), (1, 2)).number
    assert counts == (0, 24)


def test_slices_by_themselves_have_the_regions_of_each(tmp_path):
    """Also of a recipe with a level, in memory and in tiles; one slice has no label."""
    pairs = [picture((60, 70), seed=1), picture((60, 70), seed=2)]
    labels = np.stack([0 * pairs[0][0], *(own for own, _ in pairs)])
    image = np.stack([pairs[0][1], *(own for _, own in pairs)])
    tree = merge_regions(labels, image, axes=(1, 2))
    for level in (0.0, 0.62, 1.0):
        regions = tree.at_level(level)
        assert not regions[0].any() and not np.intersect1d(regions[1], regions[2]).any()
        for k, (own, pixels) in enumerate(pairs, 1):
            expected = merge_regions(own, pixels).at_level(level)
            np.testing.assert_array_equal(relabelled(regions[k]), relabelled(expected))
    pipeline = Pipeline(saf.SLK(n_clusters=3), ImageOptions("lab", (1, 5, 5)), level=1.0)
    found = pipeline.run(image)
    expected = merge_regions(found.kinds, image, axes=(1, 2)).at_level(1.0)
    np.testing.assert_array_equal(found.labels, expected)
    in_tiles = saf.label_large(image, pipeline, tmp_path / "m.ome.zarr", tile=64)
    np.testing.assert_array_equal(in_tiles.labels[:], expected)


def relabelled(regions):
    """Return regions numbered by their first pixel."""
    _, first, inverse = np.unique(regions, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].reshape(regions.shape)


@pytest.mark.parametrize(
    "labels",
    [
        np.zeros((8, 8), int),
        np.indices((40, 40)).sum(axis=0) // 8 % 2 + 1,  # stripes
        np.random.default_rng(0).integers(1, 5, (80, 80)),
        np.where(np.arange(72)[:, None] < 48, 3, things()[0]),
        np.where(
            np.indices((72, 90)).sum(axis=0) < 60, 2, things()[0]
        ),  # one part of many is large
        np.where(np.arange(144)[:, None] < 18, 3, things(8)[0]),  # another label is
    ],
)
def test_labels_of_places_are_not_of_separate_things(labels):
    assert find_separate(labels) == Separate(0, 0.0) and not find_separate(labels).note


def test_blurred_edges_make_no_regions():
    labels = np.kron([[1, 2], [3, 4]], np.ones((16, 16), int))
    rng = np.random.default_rng(0)
    image = rng.random((5, 3))[labels] + rng.normal(0, 0.05, (*labels.shape, 3))
    np.testing.assert_array_equal(merge_regions(labels, image).finest, labels)


def test_one_label_is_cut_where_colours_differ():
    image = np.full((60, 60, 3), 0.2)
    image[10:40, 15:45] = 0.8, 0.3, 0.1
    image += np.random.default_rng(0).normal(0, 0.01, image.shape)
    whole = np.ones((60, 60), int)
    tree = merge_regions(whole, image)
    square = tree.finest[15:35, 20:40]
    assert not np.isin(square, tree.finest[50:]).any()
    np.testing.assert_array_equal(tree.finest, merge_regions(whole, image).finest)


def test_pixels_without_a_label_stay_without_a_region():
    labels, image = picture()
    labels[10:14] = 0
    tree = merge_regions(labels, image)
    for merged in (tree.finest, tree.at_level(1)):
        np.testing.assert_array_equal(merged == 0, labels == 0)
    assert tree.at_level(1).max() == 2  # the two that do not touch
    assert tree.sizes[0] == 0 and tree.sizes.sum() == np.count_nonzero(labels)
    assert all(size == (tree.finest == k).sum() for k, size in enumerate(tree.sizes) if k)
    np.testing.assert_array_equal(tree.numbers_at_level(1)[tree.finest], tree.at_level(1))


def test_transparent_pixels_belong_to_no_region():
    labels, image = picture()
    opaque = np.random.default_rng(0).random(labels.shape) > 0.2
    four = np.concatenate([image, opaque[..., None]], axis=-1)
    tree, expected = merge_regions(labels, four), merge_regions(np.where(opaque, labels, 0), image)
    np.testing.assert_array_equal(tree.finest, expected.finest)
    assert (tree.finest[~opaque] == 0).all() and (tree.finest[opaque] > 0).all()
    channels = merge_regions(labels, four, channel_axis=-1)  # four of a microscope
    assert (channels.finest > 0).all()


def test_pixels_that_are_not_finite_do_not_matter_where_there_is_no_label():
    labels, image = picture()
    labels[10:14] = 0
    image[10:14] = 0
    expected = merge_regions(labels, image).at_level()
    image[10:14] = np.nan
    np.testing.assert_array_equal(merge_regions(labels, image).at_level(), expected)


def test_numbers_and_brightness_do_not_matter():
    labels, image = picture()
    one = merge_regions(labels, image).at_level()
    np.testing.assert_array_equal(merge_regions(10 * labels, image).at_level(), one)
    eight_bits = np.rint(image * 255).astype(np.uint8)
    sixteen = eight_bits.astype(np.uint16) * 257
    np.testing.assert_array_equal(
        merge_regions(labels, eight_bits).at_level(), merge_regions(labels, sixteen).at_level()
    )


@pytest.mark.parametrize(
    ("labels", "image", "words"),
    [
        (np.zeros((4, 5), int), np.eye(4, 5), "at least one pixel"),
        (np.ones((4, 5)), np.eye(4, 5), "whole numbers"),
        (np.ones((5, 4), int), np.eye(4, 5), "shape"),
    ],
)
def test_bad_input_is_named(labels, image, words):
    with pytest.raises(saf.InvalidInput, match=words):
        merge_regions(labels, image)
    with pytest.raises(saf.InvalidInput, match="level"):
        merge_regions(*picture()).at_level(1.1)


def test_merging_ends_wherever_it_is_cancelled():
    labels, image = picture()
    asked = iter(range(10**6))
    n_merges = len(merge_regions(labels, image, cancelled=lambda: next(asked) < 0).merges)
    n_asked = next(asked)
    assert n_asked > n_merges + 3 > 4  # before each merge, and while the pixels are described
    for last in (0, 1, n_asked // 2, n_asked - 1):
        asked = iter(range(10**6))
        with pytest.raises(Cancelled):
            merge_regions(labels, image, cancelled=lambda: next(asked) == last)  # noqa: B023
        assert next(asked) == last + 1
