"""Laws of few-shot inference, and its updates against loops over nodes and classes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from method_cases import softmax, squared_distances
from scipy.special import digamma

import napari_saf as saf

METHODS = {"laplacianshot": saf.LaplacianShot, "bavardage": saf.Bavardage}
TASK_METHODS = {
    "laplacianshot": saf.LaplacianShot(),
    "seeds alone": saf.LaplacianShot(rectification=None, preprocessing="centred unit"),
    "bavardage": saf.Bavardage(),
    "scatter": saf.Bavardage(within_scatter=np.diag(np.linspace(0.2, 2, 12))),
    "slk bo": saf.SLK(n_clusters=3, laplacian="features", n_neighbors=3),
    "slk ms": saf.SLK(n_clusters=3, laplacian="features", prototypes="ms"),
    "slk means": saf.SLK(n_clusters=3, laplacian="features", prototypes="means"),
}


@pytest.fixture(params=list(METHODS))
def method(request):
    return METHODS[request.param]


def draw_tasks(
    n_tasks, n_shots=2, shares=(1, 1, 1), n_queries=24, n_features=12, spread=0.8, seed=0
):
    """Gaussian classes in random order: features, seeds, and the true labels."""
    rng = np.random.default_rng(seed)
    n_classes = len(shares)
    counts = np.round(np.array(shares) / np.sum(shares) * n_queries).astype(int)
    own = np.concatenate(
        [np.repeat(np.arange(n_classes), n_shots), np.repeat(np.arange(n_classes), counts)]
    )
    labels = np.stack([rng.permutation(n_classes)[own] for _ in range(n_tasks)]) + 1
    centres = rng.standard_normal((n_tasks, n_classes, n_features))
    noise = spread * rng.standard_normal((n_tasks, len(own), n_features))
    features = np.take_along_axis(centres, labels[..., None] - 1, axis=1) + noise
    seeds = np.where(np.arange(len(own)) < n_classes * n_shots, labels, 0)
    return features, seeds, labels


def one_task(**options):
    features, seeds, _ = draw_tasks(1, **options)
    return as_problem(features[0], seeds[0])


def as_problem(features, seeds):
    return saf.Problem(features, saf.GridGraph((len(features),)), seeds=seeds)


def with_seeds(assignment, seeds):
    fixed = assignment.copy()
    for p in np.flatnonzero(seeds):
        fixed[p] = np.eye(assignment.shape[1])[seeds[p] - 1]
    return fixed


def seed_means(x, seeds):
    return np.array([x[seeds == k].mean(axis=0) for k in range(1, seeds.max() + 1)])


def scaled(x):
    x = x - x.mean(axis=0)
    return x / np.sqrt(np.mean(np.sum(x**2, axis=1)))


def rectified(x, seeds, temperature):
    means = seed_means(x, seeds)
    for _ in range(4):
        sums, masses = np.zeros_like(means), np.zeros(len(means))
        for p, seed in zip(x, seeds, strict=True):
            cosines = [p @ c / np.linalg.norm(p) / np.linalg.norm(c) for c in means]
            weights = softmax(temperature * np.array([cosines]))[0]
            if seed:
                weights = np.eye(len(means))[seed - 1]
            sums, masses = sums + weights[:, None] * p, masses + weights
        means = sums / masses[:, None]
    return means


def nearest_weights(x, k):
    weights = np.zeros((len(x), len(x)))
    for p, row in enumerate(squared_distances(x, x)):
        row[p] = np.inf
        weights[p, np.argsort(row)[:k]] = 1
    return (weights + weights.T) / 2


def test_one_update_of_laplacian_shot_agrees_with_the_formulas():
    problem, lam = one_task(), 0.1
    x, seeds = scaled(problem.features), problem.seeds
    squares = squared_distances(x, rectified(x, seeds, 10.0))
    weights = np.zeros((len(x), len(x)))
    weights[np.ix_(seeds == 0, seeds == 0)] = nearest_weights(x[seeds == 0], 3)
    start = with_seeds(softmax(-squares), seeds)
    expected = with_seeds(softmax(-squares + lam * weights @ start), seeds)
    method = saf.LaplacianShot(laplacian_weight=lam, dtype="float64")
    result = method.run(problem, max_iterations=1)
    np.testing.assert_allclose(result.assignment, expected, atol=1e-6)
    for y, found in zip((start, expected), result.history.objective, strict=True):
        y = np.maximum(y, 1e-300)
        energy = np.sum(y * squares) - lam / 2 * np.sum(y * (weights @ y)) + np.sum(y * np.log(y))
        assert found == pytest.approx(energy, rel=1e-6)


def test_on_pixels_a_class_has_several_means_and_neighbours_are_near():
    rng = np.random.default_rng(0)
    seeds = np.zeros((6, 7), int)
    seeds[0, :2], seeds[5, 3:6] = 1, 2
    problem = saf.Problem.from_image(
        rng.random((6, 7, 3)), seeds=seeds, weights="contrast", features="intensity", max_side=None
    )
    x, given, lam = scaled(problem.features), problem.seeds, 0.4
    # as many means as seeds: each stands for itself
    squares = np.stack([squared_distances(x, x[given == k]).min(axis=1) for k in (1, 2)], axis=1)
    ones = torch.eye(problem.n_nodes, dtype=torch.float64)
    weights, scratch = torch.empty_like(ones), torch.empty_like(ones)
    problem.graph.neighbour_sum(ones.device, ones.dtype)(ones, weights, scratch)
    weights = 3 * weights.numpy() / weights.sum(dim=1).mean().item()
    start = with_seeds(softmax(-squares), given)
    expected = with_seeds(softmax(-squares + lam * weights @ start), given)
    method = saf.LaplacianShot(laplacian_weight=lam, dtype="float64")
    result = method.run(problem, max_iterations=1)
    np.testing.assert_allclose(result.assignment, expected, atol=1e-6)


def variational_step(y, assignment, seeds, precision, alpha, beta):
    """One step on features that need no projection, as in the class's Notes."""
    n_classes, n_dimensions = assignment.shape[1], min(assignment.shape[1] - 1, y.shape[1])
    scores = np.zeros_like(assignment)
    for k in range(n_classes):
        count = beta + assignment[:, k].sum()
        mean = sum(o * p for o, p in zip(assignment[:, k], y, strict=True)) / count
        share = digamma(alpha + assignment[seeds == 0, k].sum())
        for n, p in enumerate(y):
            scores[n, k] = share - precision / 2 * np.sum((p - mean) ** 2)
            scores[n, k] -= n_dimensions / (2 * count)
    return with_seeds(softmax(scores), seeds)


@pytest.mark.parametrize("n_features", [2, 12])
def test_one_step_of_bavardage_agrees_with_the_formulas(n_features):
    """The projection takes from squared distances what is the same for all classes."""
    problem = one_task(n_features=n_features)
    x, seeds = scaled(problem.features), problem.seeds
    assignment = with_seeds(softmax(-10 * squared_distances(x, seed_means(x, seeds))), seeds)
    for _ in range(4):
        means = (assignment.T @ x) / assignment.sum(axis=0)[:, None]
        assignment = with_seeds(softmax(-10 * squared_distances(x, means)), seeds)
    scatter = np.diag(np.linspace(0.1, 2, n_features))
    y = x * np.minimum(np.diag(scatter) ** -0.5, 2)
    expected = variational_step(y - y.mean(axis=0), assignment, seeds, 50.0, 2.0, 10.0)
    method = saf.Bavardage(
        within_scatter=scatter, precision=50.0, mean_weight=10.0, dtype="float64"
    )
    result = method.run(problem, max_iterations=1)
    np.testing.assert_allclose(result.assignment, expected, atol=1e-6)


@pytest.mark.parametrize("temperature", [None, 10.0])
def test_without_neighbours_the_nearest_prototype_wins(temperature):
    problem = one_task()
    x, seeds = scaled(problem.features), problem.seeds
    points = seed_means(x, seeds) if temperature is None else rectified(x, seeds, temperature)
    expected = np.where(seeds > 0, seeds, squared_distances(x, points).argmin(axis=1) + 1)
    found = saf.LaplacianShot(laplacian_weight=0.0, rectification=temperature).run(problem)
    np.testing.assert_array_equal(found.labels, expected)


@pytest.mark.parametrize("weight", [0.5, 50.0])
def test_the_energy_of_laplacian_shot_never_rises(weight):
    method = saf.LaplacianShot(laplacian_weight=weight, tolerance=0.0)
    for seed in range(3):
        objective = method.run(one_task(seed=seed), max_iterations=20).history.objective
        assert (np.diff(objective) <= 1e-6 * np.abs(objective[1:])).all()


def test_the_bound_of_bavardage_never_loosens_where_nothing_is_projected_away():
    """With as many dimensions as features every step is a coordinate ascent."""
    method = saf.Bavardage(tolerance=0.0, max_iterations=20, dtype="float64")
    for seed, precision in itertools.product(range(4), (2.0, 50.0)):
        task = one_task(n_features=2, seed=seed)
        objective = replace(method, precision=precision).run(task).history.objective
        assert (np.diff(objective) <= 1e-9 * np.abs(objective[1:])).all()


@pytest.mark.parametrize("name", list(TASK_METHODS))
@pytest.mark.parametrize(("n_shots", "n_features", "offset"), [(1, 12, 0), (5, 90, 3)])
def test_many_tasks_are_labelled_like_each_by_itself(
    monkeypatch, name, n_shots, n_features, offset
):
    """Whether features come by task, or as rows of a table."""
    monkeypatch.setattr("napari_saf.methods._few_shot._CHUNK_BYTES", 30_000)
    method = replace(TASK_METHODS[name], dtype="float64")
    if name == "scatter":
        method = replace(method, within_scatter=np.diag(np.linspace(0.2, 2, n_features)))
    features, seeds, _ = draw_tasks(4, n_shots, n_features=n_features, spread=1.5)
    found = method.run_tasks(features + offset, seeds)
    rows = np.random.default_rng(0).permutation(seeds.size).reshape(seeds.shape)
    table = np.empty((seeds.size, n_features))
    table[rows] = features + offset
    np.testing.assert_array_equal(method.run_tasks(table, seeds, rows=rows), found)
    assert found.dtype == np.int64
    for x, given, labels in zip(features + offset, seeds, found, strict=True):
        np.testing.assert_array_equal(method.run(as_problem(x, given)).labels, labels)


@pytest.mark.parametrize("name", list(TASK_METHODS))
def test_permuted_classes_permute_the_labels(name):
    features, seeds, _ = draw_tasks(6)
    order = np.array([0, 3, 1, 2])
    method = replace(TASK_METHODS[name], dtype="float64")
    plain = method.run_tasks(features, seeds)
    np.testing.assert_array_equal(method.run_tasks(features, order[seeds]), order[plain])


@pytest.mark.parametrize("method", [saf.LaplacianShot(), saf.SLK(), saf.Bavardage()])
def test_defaults_are_no_worse_than_the_nearest_prototype(method):
    features, seeds, labels = draw_tasks(
        30, 1, shares=(6, 3, 2, 1, 1), n_queries=75, n_features=100, spread=2.5
    )
    nearest = saf.LaplacianShot(laplacian_weight=0.0, rectification=None, max_iterations=1)
    right, least = (
        (found.run_tasks(features, seeds) == labels)[seeds == 0].mean()
        for found in (method, nearest)
    )
    assert right >= least


@pytest.mark.parametrize("preprocessing", ["scaled", "centred unit"])
def test_labels_depend_neither_on_origin_nor_on_scale(method, preprocessing):
    features, seeds, _ = draw_tasks(5)
    options = method(preprocessing=preprocessing, dtype="float64")
    np.testing.assert_array_equal(
        options.run_tasks(1e3 * features + 5, seeds), options.run_tasks(features, seeds)
    )


def test_a_run_that_stands_still_has_converged(method):
    result = method(max_iterations=1000, tolerance=1e-6).run(one_task(spread=0.3))
    assert result.status is saf.Status.CONVERGED


@pytest.mark.parametrize(
    ("features", "seeds", "said"),
    [
        (np.zeros((5, 3)), np.ones((2, 5), int), "features: expected finite numbers of shape"),
        (np.full((2, 5, 3), np.nan), np.ones((2, 5), int), "features: expected finite"),
        (np.zeros((2, 0, 3)), np.zeros((2, 0), int), "features"),
        (np.full((1, 4, 2), "a"), np.ones((1, 4), int), "features"),
        (np.zeros((2, 5, 3)), np.ones((2, 4), int), r"seeds: expected shape \(2, 5\)"),
        (np.zeros((2, 5, 3)), np.ones((2, 5)), "seeds: expected whole .* float64"),
        (np.zeros((2, 5, 3)), -np.ones((2, 5), int), "seeds: expected 0, 1, 2, ..., got -1"),
        (np.zeros((2, 5, 3)), np.ones((2, 5), int), "task 0 has none of class 2"),
        (
            np.zeros((2, 3, 3)),
            np.array([[1, 2, 0], [1, 0, 0]]),
            "seeds: expected classes 1 to 2 in every task, task 1 has none of class 2",
        ),
    ],
)
def test_bad_tasks_are_refused(features, seeds, said):
    with pytest.raises(saf.InvalidInput, match=said):
        saf.LaplacianShot().run_tasks(features, seeds)


@pytest.mark.parametrize(
    ("scatter", "said"),
    [
        (np.eye(3), r"within_scatter: expected finite numbers of shape \(2, 2\)"),
        (np.full((2, 2), np.inf), "within_scatter: expected an array of finite"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "within_scatter: expected a symmetric"),
        (np.diag([1.0, -1.0]), "within_scatter: expected eigenvalues >= 0, got -1"),
    ],
)
def test_a_bad_scatter_is_refused(scatter, said):
    problem = as_problem(np.arange(10.0).reshape(5, 2), np.array([1, 2, 0, 0, 0]))
    with pytest.raises(saf.InvalidInput, match=said):
        saf.Bavardage(within_scatter=scatter).run(problem)


def test_neighbours_are_the_same_in_small_and_large_tables(monkeypatch):
    problem = one_task()
    method = saf.LaplacianShot(laplacian_weight=1.0, dtype="float64")
    small = method.run(problem)
    monkeypatch.setattr("napari_saf.methods._laplacian._MAX_DENSE_NODES", 1)
    np.testing.assert_allclose(method.run(problem).assignment, small.assignment, atol=1e-9)


@pytest.mark.parametrize("method", [saf.LaplacianShot(), saf.SLK(), saf.Bavardage()])
def test_an_assignment_without_history_is_that_of_a_run(method):
    points = np.random.default_rng(0).random((60, 3)).astype(np.float32)
    seeds = np.r_[1, 1, 2, 3, np.zeros(56, int)]
    problem = saf.Problem(points, saf.AffinityGraph.k_nearest(points, 4), seeds=seeds)
    np.testing.assert_array_equal(method.assign(problem), method.run(problem).assignment)
