"""The flows against slow references written from the formulas in W, not in log coordinates."""

import numpy as np
import pytest
import torch

import napari_saf as saf
from napari_saf.flow import AssignmentField, SelfAssignmentField, k_centres
from napari_saf.methods import AssignmentFlow
from napari_saf.points import distances

SHAPE, N_LABELS, RHO, STEP, N_STEPS = (16, 20), 5, 0.1, 0.1, 15
BOUND = {torch.float32: 1e-4, torch.float64: 1e-10}


@pytest.fixture(scope="module")
def image():
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    scene = np.stack([rows > 7, columns > 9, (rows + columns) % 10 > 4], axis=-1)
    return 0.7 * scene + 0.3 * rng.random((*SHAPE, 3))


def window_weights(window):
    """The averaging weights of (2.33), as a dense matrix, node by node."""
    n = SHAPE[0] * SHAPE[1]
    position = np.stack(np.unravel_index(np.arange(n), SHAPE), axis=1)
    near = np.abs(position[:, None] - position).max(axis=-1) <= window // 2
    return near / near.sum(axis=1, keepdims=True)


def lift(w, u):
    """exp_w(u), (2.31): w e^u / <w, e^u>."""
    raised = w * np.exp(u - u.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def similarity(w, likelihood, weights):
    """The weighted geometric mean of the likelihoods, seen from each row of w (2.33)."""
    result = np.empty_like(w)
    for i in range(len(w)):
        tangents = np.log(likelihood / w[i])
        result[i] = lift(w[i : i + 1], (weights[i] @ tangents)[None])[0]
    return result


def euler(w, utility, weights):
    """Geometric Euler steps (2.34) with the renormalisation of the papers."""
    for _ in range(N_STEPS):
        s = similarity(w, lift(w, utility(w) / RHO), weights)
        w = lift(w, STEP * s)
        w = np.maximum(w, 1e-10 * w.max(axis=1, keepdims=True))
        w /= w.sum(axis=1, keepdims=True)
    return w


def gradient_s0(w, kernel):
    """(4.3a)."""
    c = w.sum(axis=0)
    return 2 * kernel @ w / c - np.diag(w.T @ kernel @ w) / c**2


def gradient_s1(w, kernel):
    """(4.3b)."""
    inverse = np.linalg.inv(w.T @ w)
    return 2 * (kernel @ w - w @ (inverse @ (w.T @ kernel @ w))) @ inverse


def start_of(features):
    rng = np.random.default_rng(0)
    nodes = torch.from_numpy(features)
    table = distances(nodes, k_centres(nodes, N_LABELS, rng)[0]).numpy()
    return lift(np.full(table.shape, 1 / N_LABELS), -table), -table


def advance(field, v, n_steps=N_STEPS):
    run = saf.GeometricEuler(step=STEP).start(field, v)
    for _ in range(n_steps):
        run.advance()
    return run.assignment.double().numpy()


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize(("s", "gradient"), [(0.0, gradient_s0), (1.0, gradient_s1)])
def test_self_assignment_flow_takes_the_steps_of_the_paper(image, s, gradient, dtype):
    features, window = image.reshape(-1, 3), 3
    square = ((features[:, None] - features) ** 2).sum(axis=-1)
    kernel = np.exp(-square / 0.1)
    start, v = start_of(features)
    expected = euler(start, lambda w: gradient(w, kernel), window_weights(window))

    problem = saf.Problem(features, saf.GridGraph(SHAPE, window=window))
    on_device = torch.from_numpy(features).to(dtype)
    field = SelfAssignmentField(
        saf.GaussianAffinity(landmarks=None).bind(on_device, np.random.default_rng(0)),
        problem.graph.averager(torch.device("cpu"), dtype),
        on_device,
        N_LABELS,
        s=s,
        rho=RHO,
    )
    assert np.abs(advance(field, torch.from_numpy(v).to(dtype)) - expected).max() < BOUND[dtype]


@pytest.mark.parametrize("dtype", list(BOUND))
def test_assignment_flow_takes_the_steps_of_the_paper(image, dtype):
    features, window = image.reshape(-1, 3), 7
    prototypes = features[[0, 50, 130, 300, 17]]
    table = np.linalg.norm(features[:, None] - prototypes, axis=-1)
    start = np.full(table.shape, 1 / N_LABELS)
    expected = euler(start, lambda w: -table, window_weights(window))

    on_device, points = (torch.from_numpy(x).to(dtype) for x in (features, prototypes))
    averager = saf.GridGraph(SHAPE, window=window).averager(torch.device("cpu"), dtype)
    field = AssignmentField(averager, distances(on_device, points), points, RHO)
    v = torch.zeros(table.shape, dtype=dtype)
    assert np.abs(advance(field, v) - expected).max() < BOUND[dtype]


def test_the_method_runs_the_same_flow_as_its_field(image):
    """Guards that `run` adds nothing of its own to the steps."""
    features = image.reshape(-1, 3)
    prototypes = features[[0, 50, 130]]
    problem = saf.Problem(features, saf.GridGraph(SHAPE, window=3))
    method = AssignmentFlow(
        prototypes=prototypes, stepper=saf.GeometricEuler(step=STEP), dtype="float64"
    )
    result = method.run(problem, max_iterations=N_STEPS)
    points, on_device = torch.from_numpy(prototypes), torch.from_numpy(features)
    averager = problem.graph.averager(torch.device("cpu"), torch.float64)
    field = AssignmentField(averager, distances(on_device, points), points, RHO)
    expected = advance(field, torch.zeros(len(features), 3, dtype=torch.float64))
    np.testing.assert_allclose(result.assignment, expected, atol=1e-6)
    assert result.n_evaluations == N_STEPS + 1
