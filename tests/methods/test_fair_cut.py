"""Steps of some nodes in a fair cut, and its start under a light weight."""

import numpy as np
import pytest
import torch
from method_cases import fair_energy, run_until

import napari_saf as saf
from napari_saf.methods import _fair_cut

K = 3


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


@pytest.mark.parametrize("weight", [0.0, 100.0])
def test_steps_of_some_nodes_lower_the_energy_of_all(monkeypatch, weight):
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
    result = cut(weight).run(problem)
    assert moved and min(map(len, moved)) < problem.n_nodes / 2
    found = result.history.objective
    assert (np.diff(found) <= 0).all()
    exact = energy(problem, result.assignment.astype(float), weight)
    assert found[-1] == pytest.approx(exact, rel=1e-4)


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
