"""Laws of Laplacian K-prototypes, and its updates against loops with the whole matrix W."""

from dataclasses import replace

import numpy as np
import pytest
from method_cases import by_column, softmax, squared_distances

import napari_saf as saf
from napari_saf.graph import GraphUnion
from napari_saf.input import PLAIN
from napari_saf.methods import run_to_end

SQUARES = np.kron([[0.0, 1, 0.4], [0.8, 0.2, 0.6]], np.ones((5, 6)))
KINDS = ("bo", "ms", "means")
LAPLACIANS = ("contrast", "graph", "features")
LIMIT = 30


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=LAPLACIANS)
def laplacian(request):
    return request.param


@pytest.fixture
def image():
    return SQUARES + 0.05 * np.random.default_rng(0).standard_normal(SQUARES.shape)


@pytest.fixture
def problem(image):
    return saf.Problem.from_image(image, window=3, **PLAIN)


def points(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 2)) + 3 * rng.integers(0, 3, (n, 1))


def masked_problem(window=3):
    rng = np.random.default_rng(1)
    image, mask = rng.random((7, 8)), rng.random((7, 8)) < 0.7
    return saf.Problem.from_image(image, window=window, mask=mask, **PLAIN)


def given_matrix(n=40):
    matrix = np.random.default_rng(2).random((n, n))
    return saf.AffinityGraph(matrix + matrix.T)


PROBLEMS = {
    "masked": masked_problem,
    "images": lambda: saf.Problem.from_images(
        [np.random.default_rng(0).random((5, 6)), np.random.default_rng(1).random((4, 4))], **PLAIN
    ),
    # q is the nearest of p: many pairs name each other, and no diagonal makes up for it
    "nearest": lambda: saf.Problem(points(), saf.AffinityGraph.k_nearest(points(), 1)),
}


def window_neighbours(grid):
    """Which nodes are within the window of each other, one by one."""
    pixels = np.ones(grid.shape, bool) if grid.mask is None else grid.mask
    position = np.argwhere(pixels)
    reach = np.array(grid.window) // 2
    near = [[(abs(a - b) <= reach).all() for b in position] for a in position]
    return np.array(near) & ~np.eye(len(position), dtype=bool)


def dense_weights(problem, laplacian, sigma2, n_neighbors=5):
    """W from its description, as a whole matrix."""
    features, graph = np.float64(problem.features), problem.graph
    if laplacian == "features":
        squares = squared_distances(features, features)
        np.fill_diagonal(squares, np.inf)
        nearest = np.zeros_like(squares)
        order = squares.argsort(axis=1, kind="stable")[:, :n_neighbors]
        np.put_along_axis(nearest, order, 1, axis=1)
        return (nearest + nearest.T) / 2
    if isinstance(graph, saf.AffinityGraph):
        matrix = graph.weights.toarray()
        return (matrix + matrix.T) / 2
    matrix = np.zeros((problem.n_nodes,) * 2)
    grids = graph.grids if isinstance(graph, GraphUnion) else [graph]
    ends = np.cumsum([grid.n_nodes for grid in grids])
    for grid, end in zip(grids, ends, strict=True):
        own = slice(end - grid.n_nodes, end)
        matrix[own, own] = window_neighbours(grid)
    if laplacian == "contrast":
        matrix *= np.exp(-squared_distances(features, features) / sigma2)
    return matrix


def unaries(problem, prototypes, kind, sigma2):
    scaled = squared_distances(np.float64(problem.features), prototypes) / (2 * sigma2)
    return -scaled if kind == "means" else np.exp(-scaled)


def energy(s, a, weights, lam):
    """E(S, m) of the class, term by term."""
    value = 0.0
    for p, k in np.ndindex(*s.shape):
        value -= s[p, k] * a[p, k]
        value += s[p, k] * np.log(s[p, k])
    for k in range(s.shape[1]):
        value -= lam / 2 * s[:, k] @ weights @ s[:, k]
    return value


def slk(kind="bo", laplacian="contrast", weight=1.0, sigma2=None, **options):
    return saf.SLK(
        prototypes=kind, laplacian=laplacian, laplacian_weight=weight, sigma2=sigma2, **options
    )


def one_update(monkeypatch):
    monkeypatch.setattr("napari_saf.methods._slk._MAX_INNER", (1, 1))


def rough_start(problem, n_columns=3):
    """Random, but the means of the columns lie well apart."""
    values = problem.features[:, 0]
    ends = np.quantile(values, np.linspace(0, 1, n_columns + 1)[1:-1])
    nearest = np.eye(n_columns)[np.searchsorted(ends, values)]
    noise = np.random.default_rng(0).dirichlet(2 * np.ones(n_columns), size=problem.n_nodes)
    return 0.6 * nearest + 0.4 * noise


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_relaxed_objective_never_rises(name, kind, laplacian):
    problem = PROBLEMS[name]()
    for weight, seed in ((0.5, 0), (50.0, 2)):
        method = slk(kind, laplacian, weight, n_clusters=4, tolerance=0.0, seed=seed)
        objective = method.run(problem, max_iterations=5).history.objective
        assert np.isfinite(objective).all()
        assert (np.diff(objective) <= 1e-6 * np.abs(objective[1:])).all()


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_one_update_and_its_energy_agree_with_the_formulas(monkeypatch, name, kind, laplacian):
    one_update(monkeypatch)
    problem, lam, sigma2 = PROBLEMS[name](), 0.05, 0.4
    start = rough_start(problem)
    method = slk(kind, laplacian, lam, sigma2, n_neighbors=4, dtype="float64")
    result = method.run(problem, initial=start, max_iterations=1)
    features = np.float64(problem.features)
    first = start.T @ features / start.sum(axis=0)[:, None]
    if kind == "bo":
        first = features[squared_distances(features, first).argmin(axis=0)]
        assert len(np.unique(first, axis=0)) == 3
    weights = dense_weights(problem, laplacian, sigma2, n_neighbors=4)
    a = unaries(problem, first, kind, sigma2)
    updated = softmax(a + lam * weights @ start)
    np.testing.assert_allclose(result.assignment, updated, atol=1e-6)
    assert result.history.objective[0] == pytest.approx(energy(start, a, weights, lam), rel=1e-6)
    prototypes = by_column(result)
    a = unaries(problem, prototypes, kind, sigma2)
    expected = energy(updated, a, weights, lam)
    assert result.history.objective[1] == pytest.approx(expected, rel=1e-6)


def test_permuted_nodes_permute_the_assignment(kind):
    features, matrix = points(), given_matrix().weights.toarray() / 20
    start = np.random.default_rng(0).dirichlet(np.ones(3), size=40)
    order = np.random.default_rng(3).permutation(40)
    method = saf.SLK(prototypes=kind, laplacian="features", dtype="float64")
    plain, permuted = (
        method.run(
            saf.Problem(features[rows], saf.AffinityGraph(matrix[np.ix_(rows, rows)])), start[rows]
        )
        for rows in (np.arange(40), order)
    )
    np.testing.assert_allclose(permuted.assignment, plain.assignment[order], atol=1e-6)


def test_no_two_modes_share_their_features():
    """Few grey values, many pixels of each: nearly all candidates of a mode are equal."""
    for seed in range(2):
        levels = np.random.default_rng(seed).integers(0, 7, (12, 12))
        problem = saf.Problem.from_image(levels, **PLAIN)
        for weight in (1.0, 5.0, 20.0):
            method = slk("bo", "graph", weight, sigma2=0.1, n_clusters=4, seed=seed)
            found = method.run(problem).prototypes
            assert len(np.unique(found, axis=0)) == len(found)


def test_classes_whose_seeds_look_the_same_have_modes_of_their_own(image):
    seeds = np.zeros(image.shape, int)
    seeds[0, 0], seeds[7, 7], seeds[2, 9], seeds[9, 17] = 1, 2, 3, 4
    image[seeds > 0] = image[0, 0]
    result = saf.SLK(n_clusters=4).run(saf.Problem.from_image(image, seeds=seeds, **PLAIN))
    assert len(np.unique(result.prototypes, axis=0)) == 4


def test_a_start_beside_seeds_finds_all_distinct_features(kind):
    """Whatever is drawn where a class has its seeds already."""
    seeds = np.zeros((10, 10), int)
    seeds[0, 0], seeds[9, 9] = 1, 2
    image = np.repeat([0, 1, 2, 3], 25).reshape(10, 10)
    problem = saf.Problem.from_image(image, seeds=seeds, **PLAIN)
    for seed in range(2):
        method = saf.SLK(n_clusters=4, new_labels=True, prototypes=kind, seed=seed)
        result = method.run(problem)
        assert result.assignment.shape[1] == 4
        assert not any("reduced" in note for note in result.notes)


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_the_discrete_objective_is_that_of_the_hard_labels(name, kind, laplacian):
    problem, lam, sigma2 = PROBLEMS[name](), 0.3, 0.2
    method = slk(kind, laplacian, lam, sigma2, n_clusters=3, dtype="float64")
    result = method.run(problem)
    weights = dense_weights(problem, laplacian, sigma2)
    labels = result.labels if isinstance(result.labels, list) else [result.labels]
    labels = np.concatenate([one[one > 0] for one in labels]).astype(int)
    a = unaries(problem, result.prototypes, kind, sigma2)
    expected = -a[np.arange(len(labels)), labels - 1].sum()
    expected -= lam / 2 * weights[labels[:, None] == labels].sum()
    recorded = result.history.measures["discrete_objective"]
    assert recorded[-1] == pytest.approx(expected, rel=1e-5)
    assert len(recorded) == len(result.history)


@pytest.mark.parametrize("laplacian", ["graph", "features"])
def test_the_kernel_width_of_a_table_is_the_mean_distance_to_the_nearest_of_all(laplacian):
    """Whatever the seed: nothing is drawn."""
    features = points(2200)
    squares = np.sort(squared_distances(features, features), axis=1)[:, 1:8]
    problem = saf.Problem(features, saf.AffinityGraph.k_nearest(features, 7))
    by_width = saf.SLK(n_clusters=3, laplacian=laplacian, n_neighbors=7, sigma2=squares.mean())
    given = by_width.run(problem, max_iterations=1).assignment
    found = replace(by_width, sigma2=None).run(problem, max_iterations=1).assignment
    np.testing.assert_allclose(found, given, atol=1e-4)


def test_the_kernel_width_of_an_image_is_a_share_of_its_variance(problem):
    sigma2 = 0.015 * np.float64(problem.features).var(axis=0).sum()
    found, given = (
        saf.SLK(n_clusters=4, sigma2=width, dtype="float64").run(problem).assignment
        for width in (None, sigma2)
    )
    np.testing.assert_allclose(found, given, atol=1e-5)


def test_an_order_in_memory_of_its_own_changes_nothing(monkeypatch, kind):
    """Nodes of a large graph are moved for the run: labels, exemplars and seeds with them."""
    n, seeds = 60, np.zeros(60, int)
    seeds[[3, 40, 59]] = 1, 2, 3
    graph = saf.AffinityGraph.k_nearest(points(n), 4, symmetrise=True)
    problem = saf.Problem(points(n), graph, seeds=seeds)
    start = np.random.default_rng(1).dirichlet(np.ones(3), size=n)
    method = saf.SLK(prototypes=kind, dtype="float64")
    plain = method.run(problem, initial=start)
    monkeypatch.setattr("napari_saf.methods._clustering._MIN_REORDERED_NODES", 1)
    assert (graph.local_order() != np.arange(n)).any()
    seen = []
    steps = method.iterate(problem, start)
    moved = run_to_end(steps, lambda snapshot: seen.append(snapshot.detach(assignment=True)))
    for result in (moved, seen[-1]):
        np.testing.assert_array_equal(result.labels, plain.labels)
        np.testing.assert_allclose(result.assignment, plain.assignment, atol=1e-6)
    np.testing.assert_array_equal(moved.exemplars, plain.exemplars)
    with pytest.raises(saf.InvalidInput, match=r"initial: expected shape \(60, n_labels\)"):
        method.run(problem, initial=start[:9])


def test_of_equal_shares_the_label_is_that_of_the_nearest_prototype(kind):
    """A narrow kernel leaves nodes far from every mode undecided."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((400, 3)) * rng.choice([0.2, 1, 3], 400)[:, None]
    features += 3 * rng.integers(0, 3, (400, 1))
    problem = saf.Problem(features, saf.GridGraph((20, 20)))
    result = saf.SLK(n_clusters=4, prototypes=kind, sigma2=0.025).run(problem)
    shares = result.assignment[:, result.columns]
    largest = shares == result.assignment.max(axis=1, keepdims=True)
    labels = result.labels.ravel() - 1
    assert largest[np.arange(len(labels)), labels].all()
    if kind != "means":
        assert (largest.sum(axis=1) > 1).mean() > 0.1
    squares = squared_distances(problem.features, result.prototypes)
    squares[~largest] = np.inf
    least = squares[np.arange(len(labels)), labels]
    np.testing.assert_allclose(least, squares.min(axis=1), rtol=1e-5)
    sizes = np.bincount(labels, minlength=4)[: result.n_labels] / len(labels)
    np.testing.assert_allclose(result.history.label_shares[-1][result.columns], sizes)
