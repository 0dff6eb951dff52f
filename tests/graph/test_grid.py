import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napari_saf as saf
from napari_saf.errors import InvalidInput
from napari_saf.graph import GraphUnion, GridGraph
from napari_saf.input import PLAIN


def neighbours(shape, window):
    """All nodes within the window of each node, one by one."""
    position = list(itertools.product(*map(range, shape)))
    reach = [side // 2 for side in window]
    return [
        [
            k
            for k, other in enumerate(position)
            if all(abs(a - b) <= r for a, b, r in zip(own, other, reach, strict=True))
        ]
        for own in position
    ]


def slow_average(values, shape, window, mask=None):
    inside = np.ones(shape, bool).ravel() if mask is None else mask.ravel()
    full = np.zeros((len(inside), values.shape[1]))
    full[inside] = values
    means = [full[[k for k in near if inside[k]]].mean(axis=0) if inside[i] else None
             for i, near in enumerate(neighbours(shape, window))]  # fmt: skip
    return np.array([mean for mean in means if mean is not None])


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    half=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    n_columns=st.integers(1, 3),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_average_agrees_with_a_loop_over_neighbours(shape, half, n_columns, masked, seed):
    window = tuple(
        min(2 * h + 1, side - 1 + side % 2) for h, side in zip(half, shape, strict=False)
    )
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < 0.6 if masked else None
    if mask is not None:
        mask.flat[0] = True
    graph = saf.GridGraph(shape, window=window, mask=mask)
    values = rng.random((graph.n_nodes, n_columns))
    np.testing.assert_allclose(
        graph.average(values), slow_average(values, tuple(shape), window, mask), atol=1e-12
    )


@pytest.mark.parametrize(
    ("shape", "window"), [((90, 110), 21), ((7, 80, 75), (3, 21, 5)), ((300,), 33)]
)
def test_large_grids_go_through_the_blocked_product(shape, window):
    """Larger than a block along every axis: equal weights given one by one are the reference."""
    sides = (window,) * len(shape) if isinstance(window, int) else window
    plain = saf.GridGraph(shape, window=window)
    weighted = saf.GridGraph(
        shape, window=window, weights=np.ones((plain.n_nodes, int(np.prod(sides))))
    )
    values = np.random.default_rng(0).random((plain.n_nodes, 2))
    np.testing.assert_allclose(plain.average(values), weighted.average(values), atol=1e-7)


@pytest.mark.parametrize("window", [3, 99_999])
def test_memory_is_linear_in_the_length_of_an_axis(window):
    graph = saf.GridGraph((2, 100000), window=(1,) * (len((2, 100000)) - 1) + (window,))
    values = np.random.default_rng(0).random((graph.n_nodes, 1))
    tracemalloc.start()
    means = graph.average(values).reshape(-1, (2, 100000)[-1])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 200e6
    sums = np.pad(values.reshape(-1, (2, 100000)[-1]).cumsum(axis=1), [(0, 0), (1, 0)])
    pixels, radius = np.arange((2, 100000)[-1]), window // 2
    first, end = np.maximum(pixels - radius, 0), np.minimum(pixels + radius + 1, (2, 100000)[-1])
    np.testing.assert_allclose(means, (sums[:, end] - sums[:, first]) / (end - first), rtol=1e-9)


def test_nonlocal_weights_follow_the_patches():
    rng = np.random.default_rng(0)
    image = rng.random((9, 8))
    window, patch, rho = 3, 3, 0.5
    graph = saf.GridGraph.nonlocal_means(image, window=window, patch_size=patch, rho=rho)
    padded = np.pad(image, 1, mode="symmetric")
    expected = np.zeros((9, 8, 9))
    offsets = list(itertools.product((-1, 0, 1), repeat=2))
    for i, j in np.ndindex(9, 8):
        for k, (di, dj) in enumerate(offsets):
            if 0 <= i + di < 9 and 0 <= j + dj < 8:
                own = padded[i : i + 3, j : j + 3]
                other = padded[i + di : i + di + 3, j + dj : j + dj + 3]
                expected[i, j, k] = np.exp(-((own - other) ** 2).sum() / rho)
    expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(graph.weights, expected.reshape(72, 9), atol=2e-5)


def test_a_union_averages_each_grid_by_itself():
    rng = np.random.default_rng(0)
    grids = [saf.GridGraph((5, 6), window=3), saf.GridGraph((4, 4), window=3)]
    union = GraphUnion(grids)
    values = rng.random((46, 2))
    apart = [grids[0].average(values[:30]), grids[1].average(values[30:])]
    np.testing.assert_allclose(union.average(values), np.concatenate(apart))
    assert [image.shape for image in union.to_image(values[:, 0])] == [(5, 6), (4, 4)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"window": 4}, "odd"),
        ({"window": 11}, "larger than the image"),
        ({"window": (3, 3, 3)}, "expected one side length or 2"),
        ({"mask": np.zeros((9, 10), bool)}, "empty mask"),
        ({"mask": np.ones((9, 9), bool)}, "image's shape"),
        ({"weights": np.ones((90, 8))}, "expected shape"),
        ({"weights": -np.ones((90, 9))}, "not negative"),
        ({"weights": np.full((90, 9), np.nan)}, "finite"),
        ({"weights": np.zeros((90, 9))}, "positive weight"),
    ],
)
def test_bad_grids_are_refused(arguments, said):
    with pytest.raises(saf.InvalidInput, match=said):
        saf.GridGraph((9, 10), **arguments)


def test_bad_widths_and_values_are_refused():
    with pytest.raises(saf.InvalidInput, match="rho"):
        saf.GridGraph.nonlocal_means(np.ones((9, 9)), window=3, patch_size=3, rho=np.nan)
    with pytest.raises(saf.InvalidInput, match="expected shape"):
        saf.GridGraph((4, 5)).average(np.ones((21, 2)))


def test_nodes_of_several_images_are_found_in_them():
    rng = np.random.default_rng(0)
    images, masks = [rng.random((6, 7)), rng.random((5, 4))], [rng.random((6, 7)) < 0.6, None]
    graph = saf.Problem.from_images(images, masks=masks, **PLAIN).graph
    nodes = rng.permutation(graph.n_nodes)
    numbers, places = graph.positions(nodes)
    for number, grid in enumerate(graph.grids):
        own = numbers == number
        start = graph.slices[number].start
        np.testing.assert_array_equal(places[own], grid.positions(nodes[own] - start))
        assert own.sum() == grid.n_nodes
    values = graph.to_image(np.arange(graph.n_nodes))
    found = [values[k][tuple(place)] for k, place in zip(numbers, places, strict=True)]
    np.testing.assert_array_equal(found, nodes)


@pytest.mark.parametrize("nodes", [[-1], [20], [0.5]])
def test_there_are_no_other_nodes(nodes):
    union = saf.Problem.from_images(
        [np.random.rand(2, 5), np.random.rand(2, 5)], window=1, **PLAIN
    ).graph
    for graph in (saf.GridGraph((4, 5)), union):
        with pytest.raises(saf.InvalidInput, match="nodes"):
            graph.positions(nodes)
        graph.positions([])


def test_pixels_outside_of_a_mask_that_are_no_numbers_do_not_count():
    image = np.random.default_rng(0).random((9, 11))
    mask = np.ones(image.shape, bool)
    mask[3:5, 4:9] = False
    holes = np.where(mask, image, np.nan)
    holes[3, 4] = np.inf
    options = {"window": 5, "patch_size": 1, "rho": 0.1, "mask": mask}
    found = GridGraph.nonlocal_means(holes, **options).weights  # warnings are errors
    np.testing.assert_allclose(found, GridGraph.nonlocal_means(image, **options).weights)
    with pytest.raises(InvalidInput, match="image: 1 of 99 pixels"):
        GridGraph.nonlocal_means(np.where(image == image[0, 0], np.nan, image), **options)
