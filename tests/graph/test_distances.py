"""Nearest neighbours, sums over neighbours and paths, against loops and dense matrices."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra

import napari_saf as saf
from napari_saf.graph import GraphUnion, nearest_neighbours, path_costs

MODULE = "napari_saf.graph._distances"


def squared_distances(points):
    return np.square(points[:, None] - points).sum(axis=-1)


def check_nearest(points, found, k):
    """Distances decide: of several nodes at one distance any will do."""
    squares = squared_distances(np.float64(points))
    own = np.take_along_axis(squares, found.indices, axis=1)
    np.testing.assert_allclose(found.squared_distances, own, rtol=1e-5, atol=1e-12)
    assert (found.indices != np.arange(len(points))[:, None]).all()
    assert all(len(set(row)) == k for row in found.indices)
    np.fill_diagonal(squares, np.inf)
    nearest = np.sort(squares, axis=1)[:, :k]
    np.testing.assert_allclose(np.sort(own, axis=1), nearest, rtol=1e-6, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    n_nodes=st.integers(2, 40),
    n_features=st.integers(1, 20),
    part=st.floats(0, 1),
    repeated=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 10**6),
)
def test_neighbours_agree_with_all_distances(n_nodes, n_features, part, repeated, dtype, seed):
    """Both by the tree (up to 16 features) and by brute force."""
    points = np.random.default_rng(seed).standard_normal((n_nodes, n_features)).astype(dtype)
    points = points.round() if repeated else points
    k = 1 + int(part * (n_nodes - 2))
    check_nearest(points, nearest_neighbours(points, k), k)


def test_many_nodes_that_coincide_are_no_neighbours_of_themselves():
    points = np.repeat(np.random.default_rng(0).random((3, 2)), 30, axis=0)
    check_nearest(points, nearest_neighbours(points, 4), 4)


def test_the_index_for_many_features_finds_nearly_all(monkeypatch):
    points = np.random.default_rng(0).random((600, 20)).astype(np.float32)
    exact = nearest_neighbours(points, 5)
    monkeypatch.setattr(f"{MODULE}._MOST_EXACT_NODES", 100)
    found, again = nearest_neighbours(points, 5), nearest_neighbours(points, 5)
    both = zip(found.indices, exact.indices, strict=True)
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in both]) > 0.95
    assert (found.indices != np.arange(600)[:, None]).all()
    np.testing.assert_array_equal(found.indices, again.indices)


@pytest.mark.parametrize("most_tree_features", [0, 16])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16"])
def test_distances_of_whole_numbers_do_not_wrap_around(monkeypatch, dtype, most_tree_features):
    monkeypatch.setattr(f"{MODULE}._MOST_TREE_FEATURES", most_tree_features)
    points = np.array([[0, 0], [20, 3], [100, 9], [7, 100]], dtype=dtype)
    check_nearest(points, nearest_neighbours(points, 2), 2)


@pytest.mark.parametrize(
    ("features", "k", "said"),
    [
        (np.ones((5, 2)), 0, "k: expected 1 to 4, got 0"),
        (np.ones((5, 2)), 5, "k: expected 1 to 4, got 5"),
        (np.ones(5), 2, "features: expected"),
        (np.full((5, 2), np.nan), 2, "features: expected finite"),
    ],
)
def test_bad_input_is_named(features, k, said):
    with pytest.raises(saf.InvalidInput, match=said):
        nearest_neighbours(features, k)


def window_matrix(shape, window, weight):
    """Weights between the pixels within a window of each other, one by one; diagonal 0."""
    position = list(itertools.product(*map(range, shape)))
    offsets = list(itertools.product(*(range(-(w // 2), w // 2 + 1) for w in window)))
    matrix = np.zeros((len(position), len(position)))
    for i, own in enumerate(position):
        for place, offset in enumerate(offsets):
            other = tuple(a + o for a, o in zip(own, offset, strict=True))
            if other in position and other != own:
                k = position.index(other)
                matrix[i, k] = weight(i, k, place)
    return matrix


def check_neighbour_sum(graph, matrix, dtype="float64"):
    values = torch.from_numpy(np.random.default_rng(5).random((graph.n_nodes, 3)).astype(dtype))
    out, scratch = torch.full_like(values, np.nan), torch.full_like(values, np.nan)
    graph.neighbour_sum(values.device, values.dtype)(values, out, scratch)
    expected = (matrix + matrix.T) / 2 @ values.numpy()
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=[False, True], ids=["whole", "masked"])
def mask(request):
    return np.random.default_rng(3).random((5, 6)) < 0.7 if request.param else None


def inside(matrix, mask):
    return matrix if mask is None else matrix[np.ix_(mask.ravel(), mask.ravel())]


def test_uniform_grids_sum_their_neighbours(mask):
    matrix = window_matrix((5, 6), (3, 5), lambda i, k, place: 1)
    graph = saf.GridGraph((5, 6), window=(3, 5), mask=mask)
    check_neighbour_sum(graph, inside(matrix, mask))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weighted_grids_sum_by_the_symmetric_part_of_their_weights(mask, dtype):
    weights = np.random.default_rng(0).random((30, 9))
    nodes = np.arange(30) if mask is None else np.flatnonzero(mask)
    graph = saf.GridGraph((5, 6), window=3, weights=weights[nodes], mask=mask)
    full = np.zeros((30, 9))
    full[nodes] = graph.weights
    matrix = window_matrix((5, 6), (3, 3), lambda i, k, place: full[i, place])
    check_neighbour_sum(graph, inside(matrix, mask), dtype)


def test_given_graphs_sum_by_the_symmetric_part_of_their_weights():
    points = np.random.default_rng(0).random((25, 2))
    directed = saf.AffinityGraph.k_nearest(points, 3)
    assert np.abs(directed.weights - directed.weights.T).max() == 1
    check_neighbour_sum(directed, directed.weights.toarray(), "float32")
    matrix = np.exp(-squared_distances(points))
    check_neighbour_sum(saf.AffinityGraph(matrix), matrix - np.eye(25), "float32")


def test_a_union_sums_each_grid_by_itself():
    matrix = np.zeros((42, 42))
    matrix[:30, :30] = window_matrix((5, 6), (3, 3), lambda i, k, place: 1)
    matrix[30:, 30:] = window_matrix((3, 4), (3, 3), lambda i, k, place: 1)
    check_neighbour_sum(GraphUnion([saf.GridGraph((5, 6)), saf.GridGraph((3, 4))]), matrix)


@pytest.mark.parametrize("shape", [(5, 6), (3, 2, 5), (9,)])
def test_contrast_weights_agree_with_a_loop(shape):
    features = np.random.default_rng(0).random((int(np.prod(shape)), 2))
    window = (3,) * len(shape) if min(shape) >= 3 else (3, 1, 5)
    squares = squared_distances(features)
    expected = window_matrix(shape, window, lambda i, k, place: np.exp(-squares[i, k] / 0.3))
    weights = saf.GridGraph(shape, window=window).contrast_weights(features, 0.3).toarray()
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_array_equal(weights, weights.T)


def test_a_number_of_neighbours_is_whole_and_there():
    features = np.random.default_rng(0).random((9, 2))
    for k in (0, 2.5, "2", None, np.nan, 9):
        with pytest.raises(saf.InvalidInput, match="k: expected"):
            saf.AffinityGraph.k_nearest(features, k)


@pytest.mark.parametrize("features", [[["a"], ["b"]], [[1j], [2]], [[1, 2], [3]], [[1.0]]])
def test_what_has_no_neighbours_is_refused(features):
    with pytest.raises(saf.InvalidInput, match="features"):
        saf.AffinityGraph.k_nearest(features, 1)


def lengths_from(costs, sources):
    return dijkstra(costs, directed=False, indices=sources, min_only=True)


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


def test_paths_are_the_shortest():
    rng = np.random.default_rng(0)
    mask = rng.random((6, 7)) > 0.2
    graph = saf.GridGraph(mask.shape, window=3, mask=mask)
    features = rng.random((graph.n_nodes, 2))
    costs = path_costs(graph.steps(), features)
    np.testing.assert_allclose(lengths_from(costs, [0, 9]), shortest(costs, [0, 9]), rtol=1e-9)


def test_no_path_leads_from_one_image_into_another():
    union = GraphUnion([saf.GridGraph((3, 3), window=1), saf.GridGraph((2, 2), window=1)])
    lengths = lengths_from(path_costs(union.steps(), np.zeros((13, 1))), [4])
    assert np.isfinite(lengths[:9]).all()
    assert np.isinf(lengths[9:]).all()


def test_steps_of_a_network_are_its_edges():
    matrix = np.array([[0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 0], [0, 0, 0, 0]])
    costs = path_costs(saf.AffinityGraph(matrix).steps(), np.array([[0.0], [1], [3], [9]]))
    lengths = lengths_from(costs, [0])
    assert lengths[0] == 0 < lengths[1] < lengths[2]
    assert np.isinf(lengths[3])


def test_a_stride_takes_every_second_pixel_of_the_window_and_the_nearest():
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
    values = rng.random((99, 3)).astype(np.float32)
    np.testing.assert_allclose(coarse.average(values), same.average(values), rtol=1e-5)
    with pytest.raises(saf.InvalidInput, match="stride"):
        saf.GridGraph((9, 11), window=5, stride=2)


@pytest.mark.parametrize("shape", [(19, 17), (11, 12, 13)])
@pytest.mark.parametrize("window", [3, 11])
def test_every_pixel_is_reached_whatever_the_window(shape, window):
    graph = saf.Problem.from_image(
        np.random.default_rng(0).random(shape),
        window=window,
        weights="contrast",
        features="intensity",
        max_side=None,
    ).graph
    found = np.zeros((graph.n_nodes, 1))
    found[0] = 1
    for _ in range(sum(shape)):
        found = (graph.average(found) > 0).astype(float)
    assert found.all()
