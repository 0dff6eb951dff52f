"""Laws of fair clustering, its energy against loops, and the sweep over its weight."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from method_cases import blobs, by_column, fair_energy, run_until
from sklearn.cluster import KMeans

import napari_saf as saf
from napari_saf.methods import run_to_end
from napari_saf.metrics import (
    balance,
    fairness_error,
    group_shares,
    kmeans_objective,
    kmedian_objective,
    matched_accuracy,
    ncut_objective,
)

OBJECTIVES = ("kmeans", "kmedian", "ncut")
LIMIT = 30


@pytest.fixture(params=OBJECTIVES)
def objective(request):
    return request.param


@pytest.fixture
def problem():
    return blobs()


def with_groups(problem, groups):
    return saf.Problem(problem.features, problem.graph, groups=groups)


def fair(objective="kmeans", weight=None, **parameters):
    defaults = {"n_clusters": 4, "n_starts": 1}
    return saf.FairClustering(
        objective=objective, fairness_weight=weight, **(defaults | parameters)
    )


@pytest.mark.parametrize("weight", [0.0, 100.0, None])
def test_the_energy_never_rises_and_is_that_of_its_formula(objective, weight):
    problem = blobs(80, n_groups=4, seed=2, no_group=0.2)
    method = fair(objective, weight, tolerance=0.0, n_clusters=3)
    result = method.run(problem, max_iterations=6)
    recorded = result.history.objective
    assert np.isfinite(recorded).all()
    assert (np.diff(recorded) <= 0).all()
    s = np.float64(result.assignment)
    np.testing.assert_allclose(s.sum(axis=1), 1, atol=1e-5)
    assert s.min() >= 0
    if weight is not None:
        expected = fair_energy(problem, objective, s, by_column(result), weight)
        assert recorded[-1] == pytest.approx(expected, rel=1e-5)


def test_the_energy_of_given_proportions_is_that_of_its_formula(problem, objective):
    given = [1.0, 0.0]
    method = fair(objective, 20.0, proportions=np.array(given), dtype="float64")
    result = method.run(problem)
    s = np.float64(result.assignment)
    prototypes = None if objective == "ncut" else by_column(result)
    expected = fair_energy(problem, objective, s, prototypes, 20, given)
    assert result.history.objective[-1] == pytest.approx(expected, rel=1e-5)
    recorded = result.history.measures["fairness_error"][-1]
    assert recorded == pytest.approx(fairness_error(result.labels, problem.groups, given))


@settings(max_examples=10, deadline=None)
@given(
    objective=st.sampled_from(OBJECTIVES),
    n_nodes=st.integers(4, 40),
    n_features=st.integers(1, 3),
    n_groups=st.integers(2, 4),
    n_clusters=st.integers(2, 5),
    magnitude=st.floats(-3, 8),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    repeated=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_any_problem_ends_in_a_valid_labelling(
    objective, n_nodes, n_features, n_groups, n_clusters, magnitude, scale, repeated, seed
):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_nodes, n_features))
    features = scale * (features.round() if repeated else features)
    groups = np.concatenate([np.arange(1, n_groups + 1), rng.integers(0, n_groups + 1, n_nodes)])
    graph = saf.AffinityGraph.k_nearest(features, min(4, n_nodes - 1))
    problem = saf.Problem(features, graph, groups=groups[:n_nodes])
    method = fair(objective, 10**magnitude, n_clusters=n_clusters)
    result = method.run(problem, max_iterations=5)
    assert np.isfinite(result.history.objective).all()
    assert (np.diff(result.history.objective) <= 0).all()
    np.testing.assert_allclose(result.assignment.sum(axis=1), 1, atol=1e-5)
    assert result.labels.min() == 1
    assert result.labels.max() == result.n_labels <= n_clusters
    measures = result.history.measures
    assert np.isfinite(measures["discrete_objective"]).all()
    assert (measures["fairness_error"] >= 0).all()
    assert ((measures["balance"] >= 0) & (measures["balance"] <= 1)).all()


def test_what_is_recorded_agrees_with_the_metrics(objective):
    problem = blobs(n_groups=3, no_group=0.2)
    result = fair(objective, 50.0, dtype="float64").run(problem)
    last = {name: values[-1] for name, values in result.history.measures.items()}
    assert last["fairness_error"] == pytest.approx(fairness_error(result.labels, problem.groups))
    assert last["balance"] == pytest.approx(balance(result.labels, problem.groups))
    if objective == "ncut":
        cut = ncut_objective(problem.graph, result.labels)
        assert last["discrete_objective"] == pytest.approx(cut)
    assert (result.exemplars is None) == (objective != "kmedian")


def test_without_fairness_k_means_ends_at_a_fixed_point():
    problem = blobs(300)
    result = fair("kmeans", 0.0, tolerance=0.0, dtype="float64").run(problem)
    assert result.status is saf.Status.CONVERGED
    means = [problem.features[result.labels == k].mean(axis=0) for k in range(1, 5)]
    np.testing.assert_allclose(result.prototypes, means, atol=1e-5)
    distances = np.linalg.norm(problem.features[:, None] - np.array(means), axis=-1)
    np.testing.assert_array_equal(result.labels, distances.argmin(axis=1) + 1)
    start = KMeans(4, n_init=1, random_state=0).fit(problem.features).cluster_centers_
    search = KMeans(4, init=start, n_init=1, tol=0).fit(problem.features)
    assert matched_accuracy(search.labels_, result.labels) == 1
    assert result.history.objective[-1] == pytest.approx(search.inertia_, rel=1e-6)


def test_without_fairness_k_median_has_exact_medoids():
    problem = blobs(150)
    result = fair("kmedian", 0.0, tolerance=0.0).run(problem)
    recorded = result.history.measures["discrete_objective"][-1]
    cost = kmedian_objective(problem.features, result.labels)
    assert recorded == pytest.approx(cost, rel=1e-4)
    features = problem.features
    for label, node in enumerate(result.exemplars, start=1):
        own = features[result.labels == label]
        sums = np.linalg.norm(own[:, None] - own, axis=-1).sum(axis=1)
        best = np.linalg.norm(own - features[node], axis=1).sum()
        assert result.labels[node] == label
        assert best == pytest.approx(sums.min(), rel=1e-6)
        np.testing.assert_allclose(result.prototypes[label - 1], features[node], rtol=1e-6)
    distances = np.linalg.norm(features[:, None] - features[result.exemplars], axis=-1)
    np.testing.assert_array_equal(result.labels, distances.argmin(axis=1) + 1)


def test_a_large_weight_does_not_blow_up(objective):
    """With L = 1 as printed all nodes end up in one label."""
    problem = blobs(120, n_groups=3)
    result = fair(objective, 1e10).run(problem, max_iterations=LIMIT)
    assert np.isfinite(result.history.objective).all()
    assert np.isfinite(result.prototypes).all()
    assert result.n_labels == 4
    shares = group_shares(result.labels, problem.groups)
    assert (shares > 0).all()
    assert result.history.measures["fairness_error"][-1] < 0.1
    assert result.history.measures["balance"][-1] > 0


def test_permuted_nodes_and_columns_permute_the_assignment(problem, objective):
    start = np.random.default_rng(0).dirichlet(np.ones(4), size=problem.n_nodes)
    order, columns = np.random.default_rng(1).permutation(problem.n_nodes), np.array([2, 0, 3, 1])
    graph = problem.graph.in_order(order)
    moved = saf.Problem(problem.features[order], graph, groups=problem.groups[order])
    method = fair(objective, dtype="float64")
    plain = method.run(problem, start, max_iterations=5)
    permuted = method.run(moved, start[order][:, columns], max_iterations=5)
    expected = plain.assignment[order][:, columns]
    np.testing.assert_allclose(permuted.assignment, expected, atol=1e-5)
    np.testing.assert_allclose(permuted.history.objective, plain.history.objective, rtol=1e-9)


def test_classes_whose_seeds_look_the_same_stay_two_classes():
    """And scikit-learn's warning of coinciding clusters reaches nobody."""
    features = np.arange(90.0)[:, None] % 3
    graph, seeds = saf.AffinityGraph.k_nearest(features, 3), np.zeros(90, int)
    seeds[[0, 3]] = 1, 2
    problem = saf.Problem(features, graph, groups=1 + np.arange(90) % 2, seeds=seeds)
    result = fair(weight=20.0).run(problem, max_iterations=8)
    assert (result.labels[0], result.labels[3]) == (1, 2)
    assert result.assignment.shape[1] == 4
    assert np.isfinite(result.history.objective).all()


def test_a_sweep_goes_by_rising_weight_from_one_solution_to_the_next(objective):
    """Fairness grows, and the cost with it; each solution is the best for its weight."""
    problem = blobs(120, n_groups=3, seed=1)
    unit = fair(objective, 0.0).run(problem).history.measures["discrete_objective"][-1]
    weights, snapshots = (unit * np.array([0, 1e-2, 10])).tolist(), []
    steps = fair(objective).iterate_sweep(problem, [weights[2], 0.0, weights[1]])
    found = run_to_end(steps, snapshots.append)
    assert found.is_complete
    assert [point.weight for point in found.points] == weights
    errors = [point.fairness_error for point in found.points]
    assert (np.diff(errors) <= 0.02 * errors[0]).all() and errors[-1] < 0.5 * errors[0]
    assert found.points[-1].objective > found.points[0].objective
    for before, after in itertools.pairwise(found.points):
        assert before.energy(before.weight) <= after.energy(before.weight)
        assert after.energy(after.weight) <= before.energy(after.weight)
    for point in found.points:
        labels = point.segmentation.labels
        assert point.fairness_error == pytest.approx(fairness_error(labels, problem.groups))
        assert point.balance == pytest.approx(balance(labels, problem.groups))
    fractions = [snapshot.fraction for snapshot in snapshots]
    assert (fractions[0], fractions[-1]) == (0, 1)
    parts = np.floor(3 * np.array(fractions[:-1]) - 1e-9)
    assert (np.diff(parts) >= 0).all()


def test_a_sweep_chooses_weights_by_what_the_plain_clustering_costs():
    problem = blobs(80)
    scaled = saf.Problem(1e6 * problem.features, problem.graph, groups=problem.groups)
    found = fair().sweep(scaled)
    weights = np.array([point.weight for point in found.points])
    assert found.is_complete
    assert weights[0] == 0
    assert (np.diff(weights) > 0).all()
    assert weights[1] == pytest.approx(1e-3 * found.points[0].objective, rel=1e-2)
    assert weights[-1] >= found.points[0].objective
    assert found.points[-1].fairness_error < found.points[0].fairness_error


def test_a_cancelled_sweep_keeps_what_is_finished(problem):
    stop = False
    steps = fair().iterate_sweep(problem, [0.0, 1.0, 1e4], cancelled=lambda: stop)
    next(snapshot for snapshot in steps if snapshot.fraction > 1 / 3)
    stop = True
    found = run_to_end(steps)
    assert not found.is_complete
    assert [point.weight for point in found.points] in ([0], [0, 1])
    assert all(p.segmentation.status is saf.Status.CONVERGED for p in found.points)
    empty = run_to_end(fair().iterate_sweep(problem, cancelled=lambda: True))
    assert (empty.points, empty.is_complete) == ((), False)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (None, "groups: expected groups, got none"),
        (np.ones(120, int), "groups: expected two or more groups, got one"),
        (np.arange(120) % 2, "groups: expected two or more groups, got one"),
    ],
)
def test_problems_without_two_groups_are_refused(problem, groups, said):
    for call in (fair().run, fair("ncut").run, fair().sweep):
        with pytest.raises(saf.InvalidInput, match=said):
            call(with_groups(problem, groups))


@pytest.mark.parametrize("proportions", [[0.5], [0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]])
def test_bad_proportions_are_refused(problem, proportions):
    with pytest.raises(saf.InvalidInput, match="proportions: expected"):
        fair(proportions=np.array(proportions)).run(problem)


@pytest.mark.parametrize("weights", [[], [-1.0, 2.0], [0.0, np.nan]])
def test_bad_weights_of_a_sweep_are_refused(problem, weights):
    with pytest.raises(saf.InvalidInput, match="weights: expected numbers >= 0"):
        fair().sweep(problem, weights)


def test_prototypes_and_objective_are_those_of_the_assignment_at_any_stop():
    problem, method = blobs(n_groups=3, no_group=0.2), fair("kmeans")
    limited = [method.run(problem, max_iterations=limit) for limit in (1, 3, 100)]
    cancelled = [run_until(method, problem, n_questions)[0] for n_questions in (6, 10, 15, 21)]
    for result in (*limited, *(one for one in cancelled if len(one.history))):
        shares = result.assignment[:, result.columns].astype(float)
        means = shares.T @ problem.features / shares.sum(axis=0)[:, None]
        np.testing.assert_allclose(result.prototypes, means, rtol=1e-4, atol=1e-5)
        recorded = result.history.measures["discrete_objective"][-1]
        cost = kmeans_objective(problem.features, result.labels)
        assert recorded == pytest.approx(cost, rel=1e-5)
    assert any(len(x.history) and x.status is saf.Status.CANCELLED for x in cancelled)


@pytest.fixture(scope="module")
def clouds():
    """Two groups far apart, each of two clouds side by side: fair labels are left and right."""
    rng = np.random.default_rng(1)
    centres = np.array([(1, 1), (2.1, 1), (1, 5), (2.1, 5)])
    x = np.repeat(centres, 30, axis=0) + [0.2, 0.1] * rng.standard_normal((120, 2))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    graph = saf.AffinityGraph.k_nearest(x, 10, symmetrise=True)
    return saf.Problem(x, graph, groups=np.repeat([1, 2], 60))


@pytest.mark.parametrize(("weight", "is_given"), [(5.0, True), (150.0, False)])
def test_a_run_leaves_the_groups_that_plain_clusters_are(clouds, objective, weight, is_given):
    sides = np.tile(np.repeat([1, 2], 30), 2)
    start = np.eye(2, dtype=np.float32)[clouds.groups - 1] if is_given else None
    found = fair(objective, weight, n_clusters=2).run(clouds, start)
    measures = {"kmeans": kmeans_objective, "kmedian": kmedian_objective, "ncut": ncut_objective}
    measure, data = measures[objective], clouds.graph if objective == "ncut" else clouds.features
    assert found.history.measures["discrete_objective"][-1] <= 1.05 * measure(data, sides) + 1e-6
    assert found.history.measures["fairness_error"][-1] < 0.3


def test_a_run_that_is_stopped_while_medoids_are_exchanged_keeps_the_better_ones():
    rng = np.random.default_rng(3)
    middles = ((0, 0), (4, 0), (9, 1), (9, 6), (2, 7))  # lumps, more than there are labels
    points = np.concatenate([rng.normal(middle, 0.3, (30, 2)) for middle in middles])
    graph = saf.AffinityGraph.k_nearest(points, 5)
    problem = saf.Problem(points, graph, groups=np.arange(len(points)) // 7 % 2 + 1)
    method = saf.FairClustering(objective="kmedian", n_clusters=3)
    _, n_asked = run_until(method, problem)
    for most in range(n_asked // 2, n_asked, 48):
        result, _ = run_until(method, problem, most)
        energies = result.history.objective
        assert (np.diff(energies) <= 1e-6 * abs(energies[0])).all()
