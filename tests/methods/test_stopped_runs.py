"""A run that was stopped goes on to where it would have ended."""

import numpy as np
import pytest
from method_cases import run_until
from skimage.data import astronaut
from skimage.transform import resize

import napari_saf as saf

IMAGE = resize(astronaut(), (48, 48))
SEEDS = np.zeros((48, 48), dtype=int)
SEEDS[2:5, 38:45], SEEDS[15:22, 20:23], SEEDS[41:45, 15:22], SEEDS[38:41, 2:5] = 1, 2, 3, 4

FLOWS = {
    "saf": (saf.SelfAssignmentFlow(), {}),
    "saf, s = 0.5": (saf.SelfAssignmentFlow(max_labels=8, s=0.5), {}),
    "saf, features": (saf.SelfAssignmentFlow(max_labels=8, start="features"), {}),
    "saf, spectral": (saf.SelfAssignmentFlow(max_labels=8, start="spectral"), {}),
    "saf, euler": (saf.SelfAssignmentFlow(stepper=saf.GeometricEuler()), {}),
    "saf, seeds": (saf.SelfAssignmentFlow(), {"seeds": SEEDS}),
    "af": (saf.AssignmentFlow(), {"seeds": SEEDS}),
    "af, one piece": (saf.AssignmentFlow(connected=True), {"seeds": SEEDS}),
    "af, means": (saf.AssignmentFlow(n_nearest=None), {"seeds": SEEDS}),
}
FAIR = {
    name: (saf.FairClustering(n_clusters=4, objective=name), {"groups": "channel:0"})
    for name in ("kmeans", "kmedian", "ncut")
}
OTHERS = {
    "slk": (saf.SLK(), {}),
    "slk, ms": (saf.SLK(prototypes="ms"), {}),
    "slk, means": (saf.SLK(prototypes="means"), {}),
    "slk, seeds": (saf.SLK(), {"seeds": SEEDS}),
    "laplacianshot": (saf.LaplacianShot(), {"seeds": SEEDS}),
    "bavardage": (saf.Bavardage(max_iterations=50), {"seeds": SEEDS}),
}
CASES = FLOWS | FAIR | OTHERS


def same(left, right):
    """Return the share of pixels of the same column: labels of like sizes may change numbers."""
    columns = [outcome.assignment.argmax(axis=1) for outcome in (left, right)]
    return float(np.mean(columns[0] == columns[1]))


FEW = ("saf", "af", "kmeans", "slk", "laplacianshot", "bavardage")
PARAMS = [pytest.param(n, marks=() if n in FEW else pytest.mark.exhaustive) for n in CASES]


@pytest.fixture(scope="module", params=PARAMS)
def case(request):
    """A method, a problem, the outcome in one go, and how often that asked."""
    method, options = CASES[request.param]
    problem = saf.Problem.from_image(IMAGE, max_side=None, **options)
    return method, problem, *run_until(method, problem)


def test_a_run_that_was_stopped_twice_ends_as_one_in_one_go(case):
    method, problem, whole, n_asked = case
    n_before = 0
    for share in (0.3, 0.7):
        stopped, _ = run_until(method, problem, int(share * n_asked))
        assert stopped.status is saf.Status.CANCELLED
        again, _ = run_until(method, problem, max(3, n_asked // 4), stopped)
        end, _ = run_until(method, problem, initial=again)
        assert end.status is whole.status
        assert same(end, whole) >= {"fair": 0.96, "slk": 0.98}.get(method.name, 0.99)
        last = end.history.objective[-1], whole.history.objective[-1]
        assert last[0] == pytest.approx(last[1], rel=2e-3)
        assert end.recipe == method.recipe(problem)
        assert end.assignment.shape == whole.assignment.shape
        assert np.abs(end.uncertainty - whole.uncertainty).mean() < 0.05
        if len(again.history) > 1:
            n_before = len(again.history)
            check_time_counts_and_records_go_on(method, problem, again, end)
    assert n_before


def check_time_counts_and_records_go_on(method, problem, stopped, end):
    first = next(iter(method.iterate(problem, stopped)))
    assert first.record.time == stopped.history.time[-1]
    n_kept = len(stopped.history) - 1
    for name in ("time", "n_evaluations", "entropy", "objective", "label_shares"):
        before = getattr(stopped.history, name)[:n_kept]
        np.testing.assert_array_equal(getattr(end.history, name)[:n_kept], before)
    assert (np.diff(end.history.time) >= 0).all()
    assert (np.diff(end.history.n_evaluations) >= 0).all()
    assert end.n_evaluations >= stopped.n_evaluations and end.seconds > stopped.seconds


def test_what_had_hardly_begun_begins_again(case):
    method, problem, whole, _ = case
    stopped, _ = run_until(method, problem, 1)
    end, _ = run_until(method, problem, initial=stopped)
    np.testing.assert_array_equal(end.labels, whole.labels)
    np.testing.assert_array_equal(end.history.time, whole.history.time)


def test_the_limit_of_steps_counts_those_before(case):
    method, problem, *_ = case
    part = method.run(problem, max_iterations=1)
    end = method.run(problem, part, max_iterations=2)
    whole = method.run(problem, max_iterations=2)
    assert len(end.history) == len(whole.history) <= 3 and end.status is whole.status
