import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napari_saf as saf
from napari_saf.metrics import kmeans_objective, kmedian_objective, ncut_objective


@settings(max_examples=30, deadline=None)
@given(
    n_nodes=st.integers(1, 50),
    n_features=st.integers(1, 3),
    n_labels=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
def test_scatter_around_means_and_medoids_agrees_with_loops(n_nodes, n_features, n_labels, seed):
    rng = np.random.default_rng(seed)
    features, labels = (
        rng.standard_normal((n_nodes, n_features)),
        rng.integers(0, n_labels + 1, n_nodes),
    )
    squares, distances = 0.0, 0.0
    for label in set(labels[labels > 0]):
        own = [x for x, other in zip(features, labels, strict=True) if other == label]
        mean = sum(own) / len(own)
        squares += sum(((x - mean) ** 2).sum() for x in own)
        distances += min(sum(np.linalg.norm(x - centre) for x in own) for centre in own)
    assert kmeans_objective(features, labels) == pytest.approx(squares, abs=1e-12)
    assert kmedian_objective(features, labels) == pytest.approx(distances, abs=1e-12)


def test_normalised_cut_of_a_path_by_hand():
    """The path 1 - 2 - 3 - 4 with weights 1, 2, 4: cut between its second and third node."""
    matrix = np.zeros((4, 4))
    matrix[[0, 1, 2], [1, 2, 3]] = 1, 2, 4
    graph = saf.AffinityGraph(matrix + matrix.T)
    assert ncut_objective(graph, np.array([1, 1, 2, 2])) == pytest.approx(2 / 4 + 2 / 10)
    assert ncut_objective(graph, np.array([1, 1, 1, 1])) == pytest.approx(0)
    assert ncut_objective(graph, np.array([1, 2, 3, 4])) == pytest.approx(4)
    assert ncut_objective(graph, np.array([5, 5, 0, 0])) == pytest.approx(2 / 4)


@settings(max_examples=20, deadline=None)
@given(k=st.integers(1, 4), n_labels=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_normalised_cut_agrees_with_its_formula(k, n_labels, seed):
    rng = np.random.default_rng(seed)
    points, labels = rng.random((25, 2)), rng.integers(0, n_labels + 1, 25)
    directed = saf.AffinityGraph.k_nearest(points, k)
    matrix = (directed.weights + directed.weights.T).toarray() / 2
    expected = 0.0
    for label in set(labels[labels > 0]):
        own = (labels == label).astype(float)
        expected += 1 - own @ matrix @ own / (matrix.sum(axis=1) @ own)
    assert ncut_objective(directed, labels) == pytest.approx(expected, abs=1e-12)


def test_normalised_cut_of_grids():
    labels = np.repeat([[1, 1, 2]], 4, axis=0)
    # Among the pixels of the left two columns 4 + 3 links along each, 10 across, twice each;
    # to the right column 10 links. That column has 3 within itself.
    grid = saf.GridGraph((4, 3), window=3)
    expected = 10 / (2 * (3 + 3 + 10) + 10) + 10 / (2 * 3 + 10)
    assert ncut_objective(grid, labels.ravel()) == pytest.approx(expected)


def test_a_label_without_links_cuts_none():
    matrix = np.zeros((3, 3))
    matrix[1, 2] = matrix[2, 1] = 1
    assert ncut_objective(saf.AffinityGraph(matrix), np.array([1, 2, 2])) == 0


def test_a_split_never_costs_scatter():
    rng = np.random.default_rng(0)
    features, labels = rng.random((40, 2)), rng.integers(1, 4, 40)
    split = labels + 3 * rng.integers(0, 2, 40)
    assert kmeans_objective(features, split) <= kmeans_objective(features, labels)
    assert kmedian_objective(features, split) <= kmedian_objective(features, labels)


@pytest.mark.parametrize(
    ("features", "labels", "said"),
    [
        (np.ones((4, 2)), np.ones(3, int), "labels: expected shape"),
        (np.ones((4, 2)), np.ones((2, 2), int), "labels: expected shape"),
        (np.ones((4, 2)), np.ones(4), "labels: expected whole"),
        (np.ones((4, 2)), -np.ones(4, int), "labels: expected whole"),
        (np.ones(4), np.ones(4, int), "features: expected"),
        (np.full((4, 2), np.inf), np.ones(4, int), "features: expected finite"),
    ],
)
def test_bad_input_is_named(features, labels, said):
    for objective in (kmeans_objective, kmedian_objective):
        with pytest.raises(saf.InvalidInput, match=said):
            objective(features, labels)
    if said.startswith("labels"):
        with pytest.raises(saf.InvalidInput, match=said):
            ncut_objective(saf.GridGraph((2, 2), window=1), labels)
