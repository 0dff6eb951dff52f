"""Objectives, scatter and entropy of clusterings, against loops and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napari_saf as saf
from napari_saf.errors import InvalidInput
from napari_saf.metrics import (
    class_separability,
    kmeans_objective,
    kmedian_objective,
    mean_entropy,
    ncut_objective,
    pairwise_separability,
)


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


@pytest.mark.parametrize(
    ("features", "labels", "said"),
    [
        (np.ones((4, 2)), np.ones(3, int), "labels: expected shape"),
        (np.ones((4, 2)), np.ones(4), "labels: expected whole"),
        (np.ones((4, 2)), -np.ones(4, int), "labels: expected 0, 1, 2, ..., got -1"),
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


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(4)


def test_agrees_with_the_scatter_matrices(rng) -> None:
    features, labels = rng.normal(size=(60, 3)), rng.integers(1, 5, 60)
    within, between = np.zeros((3, 3)), np.zeros((3, 3))
    for label in np.unique(labels):
        own = features[labels == label]
        within += (own - own.mean(axis=0)).T @ (own - own.mean(axis=0))
        step = own.mean(axis=0) - features.mean(axis=0)
        between += len(own) * np.outer(step, step)
    expected = np.trace(between) / np.trace(within)
    assert class_separability(features, labels) == pytest.approx(expected)


def test_unlabelled_pixels_are_left_out(rng) -> None:
    features, labels = rng.normal(size=(50, 2)), rng.integers(0, 4, 50)
    assert class_separability(features, labels) == pytest.approx(
        class_separability(features[labels > 0], labels[labels > 0])
    )


def test_extremes() -> None:
    points = np.array([[0.0], [0.0], [1.0], [1.0]])
    assert class_separability(points, [1, 1, 2, 2]) == np.inf
    assert class_separability(points, [1, 2, 1, 2]) == 0
    assert class_separability(points, [1, 1, 1, 1]) == 0
    assert class_separability(np.ones((4, 1)), [1, 1, 2, 2]) == 0


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (np.ones((4, 2)), np.zeros(4, int)),
        (np.ones((4, 2)), -np.ones(4, int)),
        (np.full((4, 2), np.nan), np.ones(4, int)),
    ],
)
def test_bad_features_and_labels_are_named(features, labels) -> None:
    with pytest.raises(InvalidInput, match=r"^(features|labels): expected"):
        class_separability(features, labels)


def test_pairs_are_as_if_there_were_no_others(rng) -> None:
    features, labels = rng.normal(size=(80, 3)), rng.choice([0, 1, 2, 4], 80)
    table = pairwise_separability(features, labels)
    assert table.shape == (4, 4)
    assert np.isnan(np.diag(table)).all() and np.isnan(table[2]).all()
    for j, k in ((1, 2), (1, 4), (4, 2)):
        only = np.where(np.isin(labels, (j, k)), labels, 0)
        expected = class_separability(features, only)
        assert table[j - 1, k - 1] == table[k - 1, j - 1] == pytest.approx(expected)


def test_between_decided_and_undecided() -> None:
    assert mean_entropy(np.eye(5)) == 0
    assert mean_entropy(np.full((7, 5), 0.2)) == pytest.approx(np.log(5))
    assert mean_entropy([[1, 0], [0.5, 0.5]]) == pytest.approx(np.log(2) / 2)


@pytest.mark.parametrize(
    "assignment", [np.ones(3), np.ones((3, 2)), [[np.nan, 1]], [[2, -1]], np.ones((0, 2))]
)
def test_bad_assignments_are_named(assignment) -> None:
    with pytest.raises(InvalidInput, match=r"^assignment: expected"):
        mean_entropy(assignment)
