"""What the flows must reach, on real data."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from skimage.transform import downscale_local_mean

import napari_saf as saf
from napari_saf.samples import read_sample

DATA = Path(os.environ.get("NAPARI_SAF_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="module")
def football():
    file = DATA / "football" / "football.gml"
    if not file.exists():
        pytest.skip(f"no football network at {file}: set NAPARI_SAF_DATA")
    networkx = pytest.importorskip("networkx")
    graph = networkx.read_gml(file, label="id")
    truth = np.array([graph.nodes[node]["value"] for node in sorted(graph)])
    return networkx.to_numpy_array(graph, nodelist=sorted(graph)), truth


@pytest.mark.parametrize(("s", "at_most"), [(0.0, 13), (1.0, 10)])
def test_football_conferences(football, s, at_most):
    matrix, truth = football
    leading = np.linalg.eigh(matrix)[1][:, -12:]
    problem = saf.Problem(leading, saf.AffinityGraph(matrix, self_weight="degree"))
    method = saf.SelfAssignmentFlow(max_labels=12, s=s, affinity=saf.KernelAffinity(matrix), seed=0)
    table = np.zeros((13, 12))
    np.add.at(table, (method.run(problem).labels.astype(int), truth), 1)
    matched = table[linear_sum_assignment(-table)].sum()
    assert len(truth) - matched <= at_most


@pytest.fixture(scope="module")
def photograph():
    return downscale_local_mean(read_sample("astronaut").array, (8, 8, 1)).astype(np.float32) / 255


def columns_of(result):
    return result.columns[result.labels.ravel().astype(int) - 1]


def test_adaptive_scheme_labels_like_small_steps(photograph):
    problem = saf.Problem.from_image(
        photograph, features=photograph, window=3, weights="uniform", max_side=None
    )
    method = saf.SelfAssignmentFlow(max_labels=16, epsilon=1.0)
    small = dataclasses.replace(
        method,
        stepper=saf.BogackiShampine(tolerance=1e-5),
        stop=saf.StoppingRule(max_steps=4000),
    ).run(problem)
    assert small.n_evaluations >= 200
    adaptive = method.run(problem)
    assert adaptive.n_evaluations <= 100
    assert (columns_of(adaptive) == columns_of(small)).mean() >= 0.98
