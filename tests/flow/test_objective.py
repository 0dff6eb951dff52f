"""The self-assignment objective against its definition."""

import numpy as np
import pytest

from napari_saf.flow._field import self_assignment_gradient

S_VALUES = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)


def random_assignment(n=30, c=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(c), size=n)


def random_kernel(n=30, seed=1):
    points = np.random.default_rng(seed).random((n, 2))
    return np.exp(-((points[:, None] - points) ** 2).sum(axis=-1) / 0.1)


def objective(w, kernel, s):
    """E_s from its definition, with the whole n x n matrix."""
    y = w / np.sqrt(w.sum(axis=0))
    values, vectors = np.linalg.eigh(y.T @ y)
    power = (vectors * values**-s) @ vectors.T
    return np.trace(power @ y.T @ kernel @ y)


def gradient(w, kernel, s):
    result = self_assignment_gradient(w.T @ w, w.T @ kernel @ w, s)
    whole = kernel @ w @ result.affinity_factor + w @ result.assignment_factor
    return result.objective, whole


@pytest.mark.parametrize("s", S_VALUES)
def test_objective_agrees_with_its_definition(s):
    w, kernel = random_assignment(), random_kernel()
    assert gradient(w, kernel, s)[0] == pytest.approx(objective(w, kernel, s), rel=1e-10)


def test_gradient_entry_by_entry_against_finite_differences():
    """Off the simplex the factor form holds up to a constant a row; compare without it."""
    w, kernel = random_assignment(n=12, c=3), random_kernel(n=12)
    for s in S_VALUES:
        _, whole = gradient(w, kernel, s)
        numeric = np.empty_like(w)
        for index in np.ndindex(*w.shape):
            step = np.zeros_like(w)
            step[index] = 1e-5
            numeric[index] = (
                objective(w + step, kernel, s) - objective(w - step, kernel, s)
            ) / 2e-5
        centred = [x - x.mean(axis=1, keepdims=True) for x in (whole, numeric)]
        error = np.abs(centred[0] - centred[1]).max() / np.abs(centred[1]).max()
        assert error < 1e-6


def test_two_equal_columns_do_not_blow_up():
    w = random_assignment(c=3)
    twin = np.column_stack([w[:, 0] / 2, w[:, 0] / 2, w[:, 1:]])
    for s in S_VALUES[1:]:
        value, whole = gradient(twin, random_kernel(), s)
        assert np.isfinite(value)
        assert np.isfinite(whole).all()
