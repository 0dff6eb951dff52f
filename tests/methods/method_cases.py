"""Problems, formulas and ways to run that tests of several methods share."""

import itertools

import numpy as np

import napari_saf as saf
from napari_saf.methods import run_to_end


def run_until(method, problem, n_questions=np.inf, initial=None):
    """Return the result of a run cancelled after some questions, and the number of questions."""
    asked = itertools.count()
    steps = method.iterate(problem, initial, cancelled=lambda: next(asked) >= n_questions)
    return run_to_end(steps), next(asked)


def softmax(rows):
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def squared_distances(features, others):
    return np.square(features[:, None] - others).sum(axis=-1)


def by_column(result, values=None):
    """Values of labels, by default prototypes, in the order of the columns; all must be left."""
    assert sorted(result.columns) == list(range(result.assignment.shape[1]))
    values = result.prototypes if values is None else values
    ordered = np.empty(np.shape(values))
    ordered[result.columns] = values
    return ordered


def blobs(n=120, n_groups=2, seed=0, no_group=0.0):
    """Six clouds of points, which lean to one group or another."""
    rng = np.random.default_rng(seed)
    cloud = rng.integers(0, 6, n)
    features = 4 * rng.random((6, 2))[cloud] + 0.4 * rng.standard_normal((n, 2))
    leaning = rng.dirichlet(np.full(n_groups, 0.7), size=6)[cloud].cumsum(axis=1)
    groups = 1 + (rng.random((n, 1)) > leaning[:, :-1]).sum(axis=1)
    groups[:n_groups] = np.arange(1, n_groups + 1)
    groups[rng.random(n) < no_group] = 0
    graph = saf.AffinityGraph.k_nearest(features, 6, symmetrise=True)
    return saf.Problem(features, graph, groups=groups)


def divergence(s, groups, proportions=None):
    """sum_k KL(mu || P_k), term by term, of nodes of a group."""
    v, value = (groups[:, None] == np.unique(groups[groups > 0])).astype(float), 0.0
    mu = v.mean(axis=0) / v.mean(axis=0).sum() if proportions is None else proportions
    for k, j in np.ndindex(s.shape[1], v.shape[1]):
        share = (v[:, j] @ s[:, k]) / (v.sum(axis=1) @ s[:, k])
        value += mu[j] * np.log(mu[j] / share) if mu[j] else 0
    return value


def fair_energy(problem, objective, s, prototypes, weight, proportions=None):
    """F(S) + lambda sum_k KL(mu || P_k), term by term."""
    value = weight * divergence(s, problem.groups, proportions) if weight else 0.0
    if objective == "ncut":
        weights = problem.graph.weights.toarray()
        weights = (weights + weights.T) / 2
        degrees = weights.sum(axis=1)
        return value + sum(1 - column @ weights @ column / (degrees @ column) for column in s.T)
    for p, k in np.ndindex(*s.shape):
        distance = np.linalg.norm(problem.features[p] - prototypes[k])
        value += s[p, k] * (distance if objective == "kmedian" else distance**2)
    return value
