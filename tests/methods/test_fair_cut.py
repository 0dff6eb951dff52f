"""Steps of some nodes in a fair cut, and its start under a light weight."""

import numpy as np
import pytest
import torch
from method_cases import fair_energy, run_until
from scipy import sparse

import napari_saf as saf
from napari_saf.graph import SparseProduct
from napari_saf.methods import _fair_cut, _fairness
from napari_saf.methods._fair_cut import _Links

K = 3
COUNTED = pytest.mark.parametrize("weight", [0.0, 1.0, 100.0])


def clouds(n=300, seed=0):
    rng = np.random.default_rng(seed)
    cloud = rng.integers(0, 6, n)
    features = 4 * rng.random((6, 2))[cloud] + 0.6 * rng.standard_normal((n, 2))
    groups = 1 + (rng.random(n) < rng.random(6)[cloud]).astype(int)
    graph = saf.AffinityGraph.k_nearest(features, 6, symmetrise=True)
    return saf.Problem(features, graph, groups=groups)


def cut(weight, **parameters):
    return saf.FairClustering(
        objective="ncut", n_clusters=K, n_starts=1, fairness_weight=weight, **parameters
    )


def energy(problem, s, weight):
    return fair_energy(problem, "ncut", s, None, weight)


def test_the_product_among_some_nodes_is_that_of_their_rows_and_columns():
    rng = np.random.default_rng(0)
    matrix = sparse.random_array((20, 20), density=0.3, rng=rng, format="csr")
    nodes, values = np.array([3, 4, 11, 17]), torch.from_numpy(rng.random((4, 2)))
    whole = SparseProduct(matrix, torch.device("cpu"), torch.float64)
    out = torch.empty_like(values)
    whole.among(nodes)(values, out, out)
    np.testing.assert_allclose(out, matrix.toarray()[np.ix_(nodes, nodes)] @ values.numpy())


def test_some_nodes_see_the_cut_of_all():
    """Whatever they change to, sums and tables are those of a matrix that holds all nodes."""
    rng = np.random.default_rng(1)
    w = clouds(40).graph.weights.toarray()
    product = SparseProduct(sparse.csr_array(w), torch.device("cpu"), torch.float64)
    s = torch.from_numpy(rng.dirichlet(np.ones(K), 40))
    links = _Links(product, torch.from_numpy(w.sum(axis=1, keepdims=True)))
    sums = links.sums(s, torch.empty_like(s))
    nodes = torch.tensor([1, 2, 8, 30])
    part = links.among(nodes, s[nodes], sums[nodes], links.tables(s, sums))
    s[nodes] = torch.from_numpy(rng.dirichlet(np.ones(K), 4))
    own = part.sums(s[nodes], torch.empty_like(s[nodes]))
    np.testing.assert_allclose(own, (w @ s.numpy())[nodes])
    found, degrees = part.tables(s[nodes], own)
    np.testing.assert_allclose(found, [column @ w @ column for column in s.numpy().T])
    np.testing.assert_allclose(degrees, w.sum(axis=1) @ s.numpy())


@COUNTED
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_of_some_nodes_lower_the_energy_of_all(monkeypatch, weight, dtype):
    moved = []
    lower_few, among = _fair_cut.FairCut._lower_few, _fair_cut.FairCut._among

    def watch_nodes(self, nodes):
        moved.append(nodes)
        return among(self, nodes)

    def watch(self, count):
        before = self.v.clone()
        lower_few(self, count)
        held = np.setdiff1d(np.arange(len(before)), moved[-1])
        assert torch.equal(self.v[held], before[held])

    monkeypatch.setattr(_fair_cut, "_MANY", 1.0)
    monkeypatch.setattr(_fair_cut, "_SLOW", np.inf)
    monkeypatch.setattr(_fair_cut.FairCut, "_among", watch_nodes)
    monkeypatch.setattr(_fair_cut.FairCut, "_lower_few", watch)
    problem = clouds()
    result = cut(weight, dtype=dtype).run(problem)
    assert moved and min(map(len, moved)) < problem.n_nodes / 2
    found = result.history.objective
    assert (np.diff(found) <= 0).all()
    exact = energy(problem, result.assignment.astype(float), weight)
    assert found[-1] == pytest.approx(exact, rel=1e-4)


@COUNTED
def test_steps_of_some_nodes_end_as_low_as_steps_of_all(monkeypatch, weight):
    found = {}
    for many in (0.0, 0.5):
        monkeypatch.setattr(_fair_cut, "_MANY", many)
        monkeypatch.setattr(_fair_cut, "_SLOW", np.inf)
        runs = [cut(weight, seed=seed).run(clouds(seed=seed)) for seed in range(3)]
        found[many] = np.mean([run.history.objective[-1] for run in runs])
    assert found[0.5] <= 1.02 * found[0.0]


def test_a_light_weight_first_finds_better_cuts_under_a_heavy_one(monkeypatch):
    found = {}
    for light in (3.0, 1e30):
        monkeypatch.setattr(_fair_cut, "_LIGHT", light)
        runs = [cut(100.0, seed=seed).run(clouds(600, seed)) for seed in range(4)]
        found[light] = np.mean([run.history.objective[-1] for run in runs])
    assert found[3.0] < found[1e30]


def test_the_light_weight_is_shown_and_can_be_cancelled():
    problem, method = clouds(), cut(1e3)
    steps = method.iterate(problem)
    first = next(steps).labels.copy()
    later = next(steps)
    assert later.record.n_evaluations == 0 and not np.array_equal(later.labels, first)
    for after in range(1, 30, 4):
        result, _ = run_until(method, problem, after)
        assert result.status is saf.Status.CANCELLED
        np.testing.assert_allclose(result.assignment.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("weight", [2.0, None])
def test_a_start_that_is_given_needs_no_light_weight(monkeypatch, weight):
    problem = clouds()
    given = cut(weight).run(problem).assignment
    monkeypatch.setattr(_fair_cut, "_LIGHT", 0.0)
    assert cut(weight).run(problem, initial=given).history.n_evaluations[0] == 0
    assert cut(weight).run(problem).history.n_evaluations[0] > 0


def test_seeds_are_not_among_the_few_that_move(monkeypatch):
    chosen = []
    nearest = _fair_cut.FairCut._nearest_to_change

    def watch(self):
        nodes = nearest(self)
        chosen.append(int((self._seeds[nodes] > 0).sum()) / len(nodes))
        return nodes

    monkeypatch.setattr(_fair_cut.FairCut, "_nearest_to_change", watch)
    monkeypatch.setattr(_fair_cut, "_SLOW", np.inf)
    rng = np.random.default_rng(0)
    seeds = np.where(rng.random(300) < 0.25, rng.integers(1, K + 1, 300), 0)
    cut(1.0).run(clouds().with_seeds(seeds))
    assert chosen and max(chosen) == 0


@pytest.fixture
def begun(monkeypatch):
    """Return a function that begins a run and returns it under way, after a few iterations."""
    made = []
    begin = _fair_cut.FairCut.begin

    def watch(self):
        made.append(self)
        begin(self)

    monkeypatch.setattr(_fair_cut.FairCut, "begin", watch)

    def run(problem, method):
        method.run(problem)
        return made[-1]

    return run


@pytest.mark.parametrize("weight, least", [(0.0, 1.0), (1.0, 0.9)])
def test_the_few_that_move_are_those_to_which_another_cluster_gives_most(begun, weight, least):
    problem = clouds()
    state = begun(problem, cut(weight, max_iterations=3, dtype="float64"))
    s = state.assignment.numpy().copy()
    step, base = 1e-6, energy(problem, s, weight)
    slope = np.empty_like(s)
    for place in np.ndindex(s.shape):
        s[place] += step
        slope[place] = (energy(problem, s, weight) - base) / step
        s[place] -= step
    own = s.argmax(axis=1)[:, None]
    kept = np.take_along_axis(slope, own, axis=1)[:, 0]
    np.put_along_axis(slope, own, np.inf, axis=1)
    gap, n_few = slope.min(axis=1) - kept, int(0.07 * len(s))
    few = np.argsort(gap)[:n_few]
    assert np.isin(few, state._nearest_to_change()).mean() >= least


def test_multipliers_change_by_no_more_than_the_step_bound_allows(begun, monkeypatch):
    state = begun(clouds(), cut(100.0, max_iterations=1))
    values, bound = state._term.multipliers.copy(), 0.5
    monkeypatch.setattr(
        _fairness.FairnessTerm, "_change", lambda self, p, m, s: np.full(p.shape, -1e9)
    )
    base = torch.zeros_like(state.v)
    found = state._term.step(
        _fairness.StepStart(base, bound, 0.0, state.constrain), torch.empty_like(base)
    )
    change = np.abs(found.multipliers - values).max()
    assert 0 < change <= _fairness._MAX_CHANGE * bound * (found.n_updates - 1) * (1 + 1e-9)


@pytest.mark.parametrize("weight, factor", [(0.0, 1e3), (1.0, 1e4), (100.0, 1e5)])
def test_a_step_bound_that_was_raised_far_too_high_does_not_end_a_run(begun, weight, factor):
    method = cut(weight, max_iterations=1)
    state = begun(clouds(600), method)
    state._bound *= factor
    before = state.objectives
    state.advance()
    assert float(state.gains(before)) > method.tolerance
