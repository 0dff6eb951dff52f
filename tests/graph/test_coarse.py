"""A grid that is coarser than its image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_saf import Problem
from napari_saf.graph import CoarseGrid, CoarseMeans, GridGraph

sides = st.tuples(st.integers(1, 9), st.integers(1, 9))


def make(shape, image_shape, mask=None):
    return CoarseGrid(GridGraph(shape, window=1), image_shape, mask)


@given(sides, sides, st.integers(0, 2**32 - 1))
def test_names_come_back_from_the_large_image(shape, more, seed):
    large = tuple(3 * side + extra for side, extra in zip(shape, more, strict=True))
    grid = make(shape, large)
    names = np.random.default_rng(seed).integers(1, 5, grid.n_nodes).astype(np.uint8)
    image = grid.to_image(names)
    assert image.shape == large
    assert image.dtype == np.uint8
    assert set(np.unique(image)) <= set(np.unique(names))
    middle = grid.positions(np.arange(grid.n_nodes))
    np.testing.assert_array_equal(image[tuple(middle.T)], names)


@given(sides, st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_numbers_are_means_of_blocks(shape, factor, seed):
    large = tuple(factor * side for side in shape)
    image = np.random.default_rng(seed).random(large)
    blocks = image.reshape(shape[0], factor, shape[1], factor).mean(axis=(1, 3))
    np.testing.assert_allclose(make(shape, large).from_image(image), blocks.ravel(), atol=1e-5)


def test_a_plane_is_interpolated_without_error():
    grid = make((6, 8), (24, 32))
    rows, columns = grid.positions(np.arange(48)).T
    rows, columns = rows - 0.5, columns - 0.5
    image = grid.to_image((2 * rows + 3 * columns).astype(np.float64))
    wanted = 2 * np.arange(24)[:, None] + 3 * np.arange(32)
    np.testing.assert_allclose(image[2:-2, 2:-2], wanted[2:-2, 2:-2], atol=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(3, 8))
def test_maps_of_soft_labels_sum_to_one_inside_a_mask(seed, max_side):
    rng = np.random.default_rng(seed)
    mask = np.kron(rng.random((6, 8)) < 0.5, np.ones((5, 5))) > 0
    mask[7, 11] = True
    problem = Problem.from_image(
        rng.random(mask.shape),
        mask=mask,
        max_side=max_side,
        window=1,
        features="intensity",
        weights="uniform",
    )
    shares = rng.dirichlet(np.ones(3), problem.n_nodes).astype(np.float32)
    maps = np.stack([problem.graph.to_image(column) for column in shares.T])
    np.testing.assert_allclose(maps.sum(axis=0), mask, atol=1e-5)
    region = (slice(3, 17), slice(10, 31))
    spread = [problem.graph.spread(column) for column in shares.T]
    enlarged = [problem.graph.enlarged(image, region) * mask[region] for image in spread]
    np.testing.assert_allclose(enlarged, maps[(slice(None), *region)], atol=1e-5)


def test_seeds_are_found_again_and_can_be_exchanged():
    seeds = np.zeros((40, 40), dtype=np.uint8)
    seeds[3, 3], seeds[30, 30] = 1, 2
    image = np.random.default_rng(0).random((40, 40))
    plain = Problem.from_image(image, max_side=10, features="intensity", weights="uniform")
    problem = plain.with_seeds(seeds)
    np.testing.assert_array_equal(problem.seeds.reshape(10, 10)[[0, 7], [0, 7]], [1, 2])
    assert np.count_nonzero(problem.seeds) == 2
    assert problem.graph is plain.graph
    assert problem.with_seeds(None).seeds is None


@pytest.mark.parametrize(("shape", "small"), [((97, 130), (30, 41)), ((20, 33, 40), (7, 33, 13))])
def test_means_and_labels_of_a_region_are_those_of_the_whole(shape, small):
    """Bit by bit, with a mask, and where blocks share pixels."""
    rng = np.random.default_rng(0)
    image, mask = rng.random((*shape, 2), np.float32), rng.random(shape) > 0.4
    means = CoarseMeans(shape, small)
    whole = means(image, mask)
    nodes = rng.integers(0, 4, small).astype(np.uint8)
    grid = make(small, shape)
    labels = grid.to_image(grid.gather(nodes))
    for first in (0, 3):
        blocks = tuple(slice(first, min(first + 9, n)) for n in small)
        own = means.pixels_of(blocks)
        np.testing.assert_array_equal(means(image[own], mask[own], blocks), whole[blocks])
        region = tuple(slice(first, min(first + 17, n)) for n in shape)
        np.testing.assert_array_equal(grid.enlarged(nodes, region), labels[region])
    total = np.prod(np.divide(shape, small))
    np.testing.assert_allclose(means(image).sum() * total, image.sum(), rtol=1e-4)
