"""Laws that both flows obey, and what a run yields and leaves."""

import numpy as np
import pytest
import torch
from method_cases import run_until
from test_all_methods import WITHOUT_STROKES

import napari_saf as saf
from napari_saf.input import PLAIN
from napari_saf.methods import run_to_end

SQUARES = np.kron([[0.0, 1, 0.4], [0.8, 0.2, 0.6]], np.ones((10, 12)))


@pytest.fixture
def image():
    return SQUARES + 0.05 * np.random.default_rng(0).standard_normal(SQUARES.shape)


@pytest.fixture
def problem(image):
    return saf.Problem.from_image(image, window=3, **PLAIN)


def two_prototypes(labels):
    return saf.AssignmentFlow(prototypes=np.array([[0.0], [1.0]]), prototype_labels=labels)


@pytest.fixture(params=[name for name in WITHOUT_STROKES if name.startswith(("saf", "af"))])
def method(request):
    return WITHOUT_STROKES[request.param]


def test_entropy_falls_and_stays_between_its_bounds(problem, method):
    history = method.run(problem).history
    n_columns = history.label_shares.shape[1]
    assert history.entropy[0] <= np.log(n_columns) + 1e-6
    assert history.entropy[-1] < 0.1 * history.entropy[0]
    assert (history.rank_bound >= 1 - 1e-6).all()
    assert (history.rank_bound <= n_columns + 1e-6).all()


@pytest.mark.parametrize("s", [0.0, 0.5, 1.0])
def test_without_neighbours_small_steps_raise_the_objective(image, s):
    """With a window of one pixel the flow is a gradient ascent."""
    problem = saf.Problem.from_image(image, window=1, **PLAIN)
    method = saf.SelfAssignmentFlow(
        max_labels=6,
        s=s,
        rho=10.0,
        epsilon=1.0,
        stepper=saf.GeometricEuler(step=0.02),
        dtype="float64",
    )
    objective = method.run(problem, max_iterations=60).history.objective
    assert (np.diff(objective) > -1e-9 * np.abs(objective[1:])).all()


def test_labels_follow_a_mirrored_image(image):
    """The uniform window knows no direction."""
    start = np.random.default_rng(0).dirichlet(np.ones(4), size=image.shape)
    method = saf.AssignmentFlow(prototypes=np.linspace(0, 1, 4)[:, None], dtype="float64")
    plain = method.run(saf.Problem.from_image(image, **PLAIN), initial=start.reshape(-1, 4))
    mirrored = method.run(
        saf.Problem.from_image(image[:, ::-1], **PLAIN), initial=start[:, ::-1].reshape(-1, 4)
    )
    np.testing.assert_array_equal(mirrored.labels, plain.labels[:, ::-1])


def test_a_run_asks_once_for_each_evaluation_and_ends_at_the_first_yes(problem, method):
    result, n_asked = run_until(method, problem)
    n_before = n_asked - result.n_evaluations
    assert 1 <= n_before <= 31  # the start, and each iteration of a spectral one
    ended, n_asked = run_until(method, problem, n_before + 4)
    assert ended.status is saf.Status.CANCELLED
    assert ended.n_evaluations == 4 and n_asked == n_before + 5


def test_a_run_that_drops_labels_can_be_ended_all_along(problem):
    points = np.random.default_rng(0).random((9, 1))
    method = saf.AssignmentFlow(prototypes=points)
    results = []
    while not results or results[-1].status is saf.Status.CANCELLED:
        results.append(run_until(method, problem, 5 * len(results))[0])
    assert (results[-2].assignment.max(axis=0) == 0).any(), "no label was dropped"
    for result in results:
        np.testing.assert_allclose(result.assignment.sum(axis=1), 1, atol=1e-5)
        own = result.columns[result.labels.ravel().astype(int) - 1]
        np.testing.assert_array_equal(own, result.assignment.argmax(axis=1))


def test_a_spectral_start_finds_regions_where_the_other_finds_odd_pixels():
    draw = np.random.default_rng(0)
    halves = np.kron([[0.3, 0.7]], np.ones((32, 16)))
    image = halves + 0.05 * draw.standard_normal(halves.shape)
    image[8, 8] = 4
    problem = saf.Problem.from_image(
        image, features=image[..., None], weights="uniform", max_side=None
    )
    agreement = {}
    for start in ("features", "spectral"):
        method = saf.SelfAssignmentFlow(max_labels=2, start=start)
        first = next(method.iterate(problem)).labels
        match = np.mean((first == first[0, 0]) == (halves == halves[0, 0]))
        agreement[start] = max(match, 1 - match)
    assert agreement["spectral"] > 0.95
    assert agreement["features"] < 0.6


def test_given_prototypes_keep_their_numbers(image):
    """An unused prototype leaves its number unused."""
    problem = saf.Problem.from_image(image, **PLAIN)
    result = saf.AssignmentFlow(prototypes=np.array([[0.9], [50.0], [0.1]])).run(problem)
    assert set(np.unique(result.labels)) == {1, 3}
    assert result.n_labels == 2
    assert (result.labels == 1)[image > 0.9].mean() > 0.95


def test_a_label_of_several_prototypes_is_as_near_as_the_nearest_of_them(image, tmp_path):
    problem = saf.Problem.from_image(image, window=1, **PLAIN)
    points, labels = np.linspace(0, 1, 5)[:, None], np.array([4, 2, 4, 1, 2])
    flow = saf.AssignmentFlow(prototypes=points, prototype_labels=labels)
    result = flow.run(problem)
    nearest = labels[np.abs(problem.features - points.T).argmin(axis=1)]
    np.testing.assert_array_equal(result.labels.ravel(), nearest)
    assert result.n_labels == 3
    assert result.assignment.shape == (problem.n_nodes, 3)
    assert result.label_map.numbers.tolist() == [1, 2, 4]
    np.testing.assert_allclose(result.assignment.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(result.prototypes.ravel(), [0.75, 0.625, np.nan, 0.25])
    assert all(np.isfinite(values).all() for values in result.history.measures.values())
    replay = saf.load_recipe(saf.save_recipe(tmp_path / "r.json", result.recipe))
    np.testing.assert_array_equal(replay.run(image).labels, result.labels)


@pytest.mark.parametrize("numbers", [[9, 2, 30], [1, 500, 900]])
def test_labels_of_prototypes_are_numbers_alone(problem, numbers):
    points, snapshots = np.array([[0.1], [0.5], [0.9]]), []
    plain = saf.AssignmentFlow(prototypes=points).run(problem)
    flow = saf.AssignmentFlow(prototypes=points, prototype_labels=numbers)
    result = run_to_end(flow.iterate(problem), snapshots.append)
    np.testing.assert_array_equal(np.array([0, *numbers])[plain.labels], result.labels)
    order = np.argsort(numbers)
    np.testing.assert_allclose(plain.assignment[:, order], result.assignment, atol=1e-5)
    np.testing.assert_allclose(plain.uncertainty, result.uncertainty, atol=1e-5)
    assert snapshots[0].record.entropy == pytest.approx(np.log(3))
    assert set(np.unique(next(flow.iterate(problem)).labels)) <= set(numbers)


def test_seeds_go_with_the_labels_of_prototypes(image):
    seeds = np.zeros(image.shape, int)
    seeds[5, 5], seeds[15, 30] = 1, 3
    problem = saf.Problem.from_image(image, seeds=seeds, **PLAIN)
    result = two_prototypes([3, 1]).run(problem)
    assert (result.labels[5, 5], result.labels[15, 30]) == (1, 3)
    assert result.labels[5, 18] == 1  # as bright as the prototype of label 1
    with pytest.raises(saf.InvalidInput, match="class 1 has no prototype"):
        two_prototypes([3, 2]).run(problem)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (saf.AssignmentFlow(), "prototypes: expected an array, such as the prototypes of a result"),
        (saf.AssignmentFlow(prototypes=np.ones((3, 2))), r"expected shape \(2 or more, 1\)"),
        (saf.AssignmentFlow(prototypes=np.ones((1, 1))), "2 or more"),
        (saf.AssignmentFlow(prototype_labels=[1, 2]), "one for each of 0 prototypes"),
        (two_prototypes([1]), "one for each of 2 prototypes, got 1"),
        (two_prototypes([0, 1]), "whole numbers from 1"),
        (two_prototypes([1.5, 1]), "whole numbers from 1"),
        (two_prototypes([1, 2**16]), "whole numbers from 1"),
    ],
)
def test_what_does_not_suit_a_method_is_refused(problem, method, said):
    with pytest.raises(saf.InvalidInput, match=said):
        method.run(problem)
    with pytest.raises(saf.InvalidInput, match=r"^prototype_labels: .* finite"):
        two_prototypes([1, np.inf])


def test_a_missing_device_is_told(problem):
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(saf.ComputeError, match="not available"):
        next(saf.SelfAssignmentFlow(device="cuda").iterate(problem))
