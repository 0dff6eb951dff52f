import numpy as np
import pytest
from scipy import sparse

import napari_saf as saf


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((12, 12)) * (rng.random((12, 12)) < 0.4), 1)
    return upper + upper.T


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.coo_matrix])
@pytest.mark.parametrize("self_weight", ["degree", 0.0, 2.0])
def test_average_is_the_row_normalised_product(matrix, make, self_weight):
    own = matrix.sum(axis=1) if self_weight == "degree" else np.full(12, self_weight)
    weights = matrix + np.diag(own)
    values = np.random.default_rng(1).random((12, 3))
    expected = weights @ values / weights.sum(axis=1, keepdims=True)
    graph = saf.AffinityGraph(make(matrix), self_weight=self_weight)
    np.testing.assert_allclose(graph.average(values), expected, atol=1e-12)
    np.testing.assert_allclose(graph.laplacian_product(values), matrix @ values, atol=1e-12)


def test_the_diagonal_does_not_count(matrix):
    values = np.random.default_rng(1).random((12, 3))
    with_diagonal = saf.AffinityGraph(matrix + np.diag(np.arange(12.0)))
    plain = saf.AffinityGraph(matrix)
    np.testing.assert_array_equal(with_diagonal.average(values), plain.average(values))


def test_a_lone_node_averages_over_itself(matrix):
    matrix[3] = matrix[:, 3] = 0
    values = np.random.default_rng(1).random((12, 3))
    np.testing.assert_allclose(saf.AffinityGraph(matrix).average(values)[3], values[3])


def test_k_nearest_joins_each_node_with_its_k_nearest():
    points = np.random.default_rng(0).random((20, 2))
    distance = np.linalg.norm(points[:, None] - points, axis=-1) + 9 * np.eye(20)
    expected = np.zeros((20, 20))
    np.put_along_axis(expected, distance.argsort(axis=1)[:, :4], 1, axis=1)
    directed = saf.AffinityGraph.k_nearest(points, 4)
    assert (directed.weights.toarray() == expected).all()
    joined = saf.AffinityGraph.k_nearest(points, 4, symmetrise=True)
    assert (joined.weights.toarray() == np.maximum(expected, expected.T)).all()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (np.ones((3, 4)), "square"),
        (np.array([[0, 1], [2, 0.0]]), "symmetric"),
        (np.array([[0, -1], [-1, 0.0]]), "not negative"),
        (np.array([[0, np.inf], [np.inf, 0]]), "finite"),
        (np.eye(2) * 1j, "numbers"),
        ("matrix", "expected an array"),
    ],
)
def test_bad_matrices_are_refused(bad, said):
    with pytest.raises(saf.InvalidInput, match=said):
        saf.AffinityGraph(bad)


@pytest.mark.parametrize("own", [-1.0, np.nan, "degrees"])
def test_a_bad_self_weight_is_refused(matrix, own):
    with pytest.raises(saf.InvalidInput, match="self_weight"):
        saf.AffinityGraph(matrix, self_weight=own)


@pytest.mark.parametrize("self_weight", ["degree", 0, 1e308, 1e-320])
@pytest.mark.parametrize("scale", [1e-320, 1.0, 5e307])
def test_rows_of_weights_sum_to_1_whatever_the_weights(scale, self_weight):
    rng = np.random.default_rng(0)
    matrix = rng.random((6, 6)) * scale
    graph = saf.AffinityGraph((matrix + matrix.T) / 2, self_weight=self_weight)
    for dtype in (np.float32, np.float64):
        means = graph.average(np.ones((6, 1), dtype))
        np.testing.assert_allclose(means, 1, rtol=1e-6)
