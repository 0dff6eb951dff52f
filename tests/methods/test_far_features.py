"""Features far from the origin, or so large that their squares are none."""

import numpy as np
import pytest

import napari_saf as saf

OFFSET = 1e8
SHAPE = (12, 15)


def clouds(n_features=3):
    rng = np.random.default_rng(0)
    cloud = np.repeat([0, 1, 2], 60)
    return 3 * rng.standard_normal((3, n_features))[cloud] + 0.3 * rng.random((180, n_features))


def problem_of(features):
    seeds = np.zeros(180, dtype=int)
    seeds[[3, 4, 63, 64, 123, 124]] = 1, 1, 2, 2, 3, 3
    groups = np.tile([1, 2], 90)
    return saf.Problem(features, saf.GridGraph(SHAPE), seeds=seeds, groups=groups)


METHODS = {
    "slk": saf.SLK(n_clusters=4),
    "means": saf.SLK(n_clusters=3, prototypes="means"),
    "fair": saf.FairClustering(n_clusters=3, fairness_weight=1.0),
    "cut": saf.FairClustering(n_clusters=3, fairness_weight=1.0, objective="ncut"),
    "saf": saf.SelfAssignmentFlow(max_labels=4),
    "fine": saf.SelfAssignmentFlow(max_labels=4, s=1.0),
    "af": saf.AssignmentFlow(),
    "af of means": saf.AssignmentFlow(n_nearest=None),
    "bavardage": saf.Bavardage(),
    "laplacianshot": saf.LaplacianShot(preprocessing="centred unit"),
}


@pytest.mark.parametrize("name", list(METHODS))
def test_an_offset_in_float64_changes_nothing(name):
    features = clouds(30)
    near = METHODS[name].run(problem_of(features), max_iterations=10)
    far = METHODS[name].run(problem_of(features + OFFSET), max_iterations=10)
    np.testing.assert_array_equal(far.labels, near.labels)
    assert not any("distinct" in note for note in far.notes)
    np.testing.assert_allclose(far.prototypes, near.prototypes + OFFSET, atol=8)


@pytest.mark.parametrize("name", list(METHODS))
def test_features_too_small_are_refused(name):
    small = METHODS[name].run(problem_of(1e-15 * clouds()), max_iterations=10)
    assert np.isfinite(small.assignment).all()
    with pytest.raises(saf.InvalidInput, match=r"features: expected numbers of 3.1e-16 or more"):
        METHODS[name].run(problem_of(1e-20 * clouds()))


TASK_METHODS = ("slk", "bavardage", "laplacianshot")


def tasks(scale=1.0, offset=0.0):
    features = clouds()[None] * np.array([[[1.0]], [[1.5]]]) * scale + offset
    seeds = np.zeros((2, 180), dtype=int)
    seeds[:, [3, 63, 123]] = 1, 2, 3
    return features, seeds


@pytest.mark.parametrize("name", TASK_METHODS)
def test_tasks_far_from_the_origin(name):
    method = saf.METHODS[name]()
    np.testing.assert_array_equal(
        method.run_tasks(*tasks(offset=OFFSET)), method.run_tasks(*tasks())
    )


@pytest.mark.parametrize("name", TASK_METHODS)
def test_tasks_of_numbers_too_large_are_refused_as_a_run_refuses_them(name):
    features, seeds = tasks(scale=1e19)
    method = saf.METHODS[name]()
    with pytest.raises(saf.InvalidInput, match="features: expected numbers up to") as of_tasks:
        method.run_tasks(features[:1], seeds[:1])
    with pytest.raises(saf.InvalidInput) as of_run:
        method.run(saf.Problem(features[0], saf.GridGraph(SHAPE), seeds=seeds[0]))
    assert str(of_tasks.value) == str(of_run.value)


def test_prototypes_too_large_are_refused():
    method = saf.AssignmentFlow(prototypes=[[1e30] * 3] * 2)
    with pytest.raises(saf.InvalidInput, match="prototypes: expected numbers up to"):
        method.run(saf.Problem(clouds(), saf.GridGraph(SHAPE)))


@pytest.mark.parametrize("name", ["slk", "fair", "saf", "bavardage"])
def test_a_number_of_steps_is_a_whole_number(name):
    for limit in ("3", 2.5, 0, -1, True, [3]):
        with pytest.raises(saf.InvalidInput, match="max_iterations"):
            METHODS[name].run(problem_of(clouds()), max_iterations=limit)


def test_one_node_has_no_neighbours():
    problem = saf.Problem([[1.0]], saf.AffinityGraph([[0.0]]))
    with pytest.raises(saf.InvalidInput, match="two nodes or more"):
        saf.SLK(laplacian="features").run(problem)
    np.testing.assert_array_equal(saf.SLK(n_clusters=2).run(problem).labels, [1])
