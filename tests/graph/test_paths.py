"""Steps of graphs and the shortest paths along them."""

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.graph import GraphUnion, path_costs, path_lengths


def shortest(costs, sources):
    """Return path lengths by relaxing every step until nothing changes (Bellman and Ford)."""
    table = costs.toarray()
    table = np.where(table > 0, table, np.inf)
    table = np.minimum(table, table.T)
    lengths = np.full(len(table), np.inf)
    lengths[sources] = 0
    for _ in range(len(table)):
        lengths = np.minimum(lengths, (lengths[:, None] + table).min(axis=0))
    return lengths


@pytest.mark.parametrize("shape", [(7,), (4, 6), (3, 4, 5), (1, 6)])
def test_steps_join_pixels_that_touch(shape):
    steps = saf.GridGraph(shape, window=1).steps().tocoo()
    places = saf.GridGraph(shape, window=1).positions(np.arange(np.prod(shape)))
    apart = np.abs(places[steps.row] - places[steps.col])
    assert (apart.max(axis=1) == 1).all()
    np.testing.assert_allclose(steps.data * max(shape), np.linalg.norm(apart, axis=1))
    assert len({frozenset(pair) for pair in zip(steps.row, steps.col, strict=True)}) == steps.nnz


def test_paths_are_the_shortest():
    rng = np.random.default_rng(0)
    mask = rng.random((6, 7)) > 0.2
    graph = saf.GridGraph(mask.shape, window=3, mask=mask)
    features = rng.random((graph.n_nodes, 2))
    costs = path_costs(graph, features)
    np.testing.assert_allclose(
        path_lengths(costs, np.array([0, 9])), shortest(costs, [0, 9]), rtol=1e-9
    )


def test_paths_do_not_depend_on_the_unit_of_the_features():
    features = np.random.default_rng(0).random((30, 3))
    graph = saf.GridGraph((5, 6), window=3)
    left = path_lengths(path_costs(graph, features), np.array([3]))
    right = path_lengths(path_costs(graph, 1000 * features + 5), np.array([3]))
    np.testing.assert_allclose(left, right, rtol=1e-6)


def test_no_path_leads_from_one_image_into_another():
    union = GraphUnion([saf.GridGraph((3, 3), window=1), saf.GridGraph((2, 2), window=1)])
    lengths = path_lengths(path_costs(union, np.zeros((13, 1))), np.array([4]))
    assert np.isfinite(lengths[:9]).all()
    assert np.isinf(lengths[9:]).all()


def test_steps_of_a_network_are_its_edges():
    matrix = np.array([[0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 0], [0, 0, 0, 0]])
    costs = path_costs(saf.AffinityGraph(matrix), np.array([[0.0], [1], [3], [9]]))
    lengths = path_lengths(costs, np.array([0]))
    assert lengths[0] == 0 < lengths[1] < lengths[2]
    assert np.isinf(lengths[3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_stride_takes_every_second_pixel_of_the_window_and_the_nearest(dtype):
    rng = np.random.default_rng(0)
    image = rng.random((9, 11))
    options = {"window": 5, "patch_size": 1, "rho": 0.1}
    coarse = saf.GridGraph.nonlocal_means(image, **options, stride=2)
    dense = saf.GridGraph.nonlocal_means(image, **options)
    counts = np.zeros((5, 5), dtype=bool)
    counts[::2, ::2] = counts[2, 1:4] = counts[1:4, 2] = True
    weights = dense.weights[:, counts.ravel()]
    expected = weights / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(coarse.weights, expected, rtol=1e-5)
    full = np.zeros((99, 25))
    full[:, counts.ravel()] = expected
    same = saf.GridGraph((9, 11), window=5, weights=full)
    values = rng.random((99, 3)).astype(dtype)
    np.testing.assert_allclose(coarse.average(values), same.average(values), rtol=1e-5)
    with pytest.raises(saf.InvalidInput, match="stride"):
        saf.GridGraph((9, 11), window=5, stride=2)


@pytest.mark.parametrize("shape", [(19, 17), (11, 12, 15)])
@pytest.mark.parametrize("window", [3, 5, 7, 9, 11])
def test_every_pixel_is_reached_whatever_the_window(shape, window):
    graph = saf.Problem.from_image(
        np.random.default_rng(0).random(shape), window=window, weights="contrast"
    ).graph
    found = np.zeros((graph.n_nodes, 1))
    found[0] = 1
    for _ in range(sum(shape)):
        found = (graph.average(found) > 0).astype(float)
    assert found.all()


@pytest.mark.parametrize("noise_variance", [0.0, 0.02])
def test_patch_weights_are_those_of_the_formula(noise_variance):
    """exp(-max(sum |difference|^2 - 2 sigma^2 m, 0) / rho), m pixels of the patch."""
    image = np.random.default_rng(0).random((7, 8, 2))
    grid = saf.GridGraph.nonlocal_means(
        image,
        window=3,
        patch_size=(3, 1),
        rho=0.4,
        channel_axis=-1,
        noise_variance=noise_variance,
    )
    padded = np.pad(image, [(1, 1), (0, 0), (0, 0)], mode="symmetric")
    place, weights = (3, 4), []
    for step in np.ndindex(3, 3):
        other = tuple(np.add(place, step) - 1)
        here, there = (padded[row : row + 3, column] for row, column in (place, other))
        distance = np.square(here - there).sum() - 2 * noise_variance * 3
        weights.append(np.exp(-max(distance, 0) / 0.4))
    found = grid.weights[np.ravel_multi_index(place, (7, 8))]
    np.testing.assert_allclose(found, np.array(weights) / sum(weights), rtol=1e-5)
