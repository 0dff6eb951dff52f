import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from napari_saf.points import k_means, weighted_medoid


def sums_of_distances(points, weights):
    return cdist(points, points) @ weights


def check(points, weights):
    index, total = weighted_medoid(points, weights)
    sums = sums_of_distances(np.float64(points), np.float64(weights))
    assert total == pytest.approx(sums[index], rel=1e-9)
    assert sums[index] <= sums.min() * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    n_points=st.integers(1, 90),
    n_features=st.integers(1, 5),
    repeated=st.booleans(),
    share_of_zeros=st.sampled_from([0.0, 0.5, 1.0]),
    offset=st.sampled_from([0.0, 1e6]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    seed=st.integers(0, 10**6),
)
@example(36, 2, True, 0.0, 1e6, 1e-6, 0)
@example(80, 3, False, 0.0, 1e6, 1e-6, 1)
def test_medoid_agrees_with_all_distances(
    n_points, n_features, repeated, share_of_zeros, offset, scale, seed
):
    """Several times more points than are tried at once: most are ruled out by their bounds."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n_points, n_features))
    points = (points.round() if repeated else points) * scale + offset
    weights = rng.exponential(size=n_points) * (rng.random(n_points) >= share_of_zeros)
    check(points, weights)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_and_distances_of_many_magnitudes(dtype):
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = rng.standard_normal((80, 2)) * 10 ** rng.uniform(-5, 5, (80, 1))
        check(points.astype(dtype), (10 ** rng.uniform(-8, 8, 80)).astype(dtype))


def test_a_medoid_that_need_not_be_exact_is_no_better_and_hardly_worse():
    rng = np.random.default_rng(0)
    for _ in range(10):
        points, weights = rng.standard_normal((300, 3)), rng.exponential(size=300)
        index, total = weighted_medoid(points, weights, exact=False)
        sums = sums_of_distances(points, weights)
        assert total == pytest.approx(sums[index], rel=1e-9)
        assert sums[index] <= sums.min() * 1.01


@pytest.mark.parametrize("n_values", [1, 5])
def test_means_of_few_values_are_these_without_a_warning(n_values):
    rng = np.random.default_rng(0)
    values = rng.random((n_values, 3))
    rows = values[np.append(np.arange(n_values), rng.integers(0, n_values, 200))]
    found = k_means(rows, 5, n_starts=2)
    assert found.shape == (5, 3)
    nearest = np.linalg.norm(found[:, None] - values, axis=2)
    assert nearest.min(axis=0).max() < 1e-9 and nearest.min(axis=1).max() < 1e-9
