"""Laws that every method obeys: what a run yields and leaves, however it ends."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from method_cases import run_until

import napari_saf as saf
from napari_saf.input import PLAIN
from napari_saf.methods import run_to_end
from napari_saf.metrics import matched_accuracy

SQUARES = np.kron([[0.0, 1, 0.4], [0.8, 0.2, 0.6]], np.ones((6, 8)))
SIZE = SQUARES.size
STROKES = np.zeros(SQUARES.shape, dtype=int)
STROKES[1:3, 1:3], STROKES[1:3, 9:12], STROKES[9, 3] = 1, 2, 2
STROKES[4, 4], STROKES[3, 13], STROKES[7, 20] = 2, 1, 1  # against what is around
FIVE = np.linspace(0, 1, 5)[:, None]

WITHOUT_STROKES = {
    "saf": saf.SelfAssignmentFlow(max_labels=8),
    "saf, s = 0.5": saf.SelfAssignmentFlow(max_labels=8, s=0.5),
    "saf, s = 1": saf.SelfAssignmentFlow(max_labels=8, s=1.0),
    "saf, spectral": saf.SelfAssignmentFlow(max_labels=8, start="spectral"),
    "af": saf.AssignmentFlow(prototypes=FIVE),
    "af, labels": saf.AssignmentFlow(prototypes=FIVE, prototype_labels=[2, 2, 5, 1, 2]),
    "slk": saf.SLK(n_clusters=5),
    "slk, ms": saf.SLK(n_clusters=5, prototypes="ms", laplacian="graph"),
    "slk, means": saf.SLK(n_clusters=5, prototypes="means", laplacian="features"),
    "fair": saf.FairClustering(n_clusters=4, n_starts=1),
    "fair, medians": saf.FairClustering(n_clusters=4, n_starts=1, objective="kmedian"),
    "fair, cut": saf.FairClustering(n_clusters=4, n_starts=1, objective="ncut"),
}
CASES = WITHOUT_STROKES | {
    "strokes": saf.AssignmentFlow(),
    "laplacianshot": saf.LaplacianShot(),
    "bavardage": saf.Bavardage(),
}

FREE = [name for name in WITHOUT_STROKES if not name.startswith("af")]
"""Those that find labels by themselves."""


FURTHER = ("saf, s = 0.5", "saf, spectral", "af, labels", "slk", "slk, means", "fair, medians")


def params(names):
    """Return cases of which those in FURTHER run once a week."""
    return [pytest.param(n, marks=pytest.mark.exhaustive if n in FURTHER else ()) for n in names]


def make_problem(strokes=None, **options):
    image = SQUARES + 0.05 * np.random.default_rng(0).standard_normal(SQUARES.shape)
    return saf.Problem.from_image(
        image, window=3, seeds=strokes, groups="channel:0", **options, **PLAIN
    )


def problem_for(name):
    """Return the problem for a method, with strokes where it needs them."""
    return make_problem(None if name in WITHOUT_STROKES else STROKES)


@pytest.fixture(params=params(CASES), scope="module")
def case(request):
    """A method and a problem for it."""
    return CASES[request.param], problem_for(request.param)


@pytest.fixture(scope="module")
def outcome(case):
    """The result of a whole run, and of each snapshot the fraction and its labels by column."""
    method, problem = case
    seen = []

    def look(snapshot):  # its labels are there until the next step
        assert snapshot.labels.shape == SQUARES.shape
        assert len(snapshot.prototypes) == len(snapshot.record.label_shares)
        assert len(np.unique(snapshot.labels)) == snapshot.n_labels
        seen.append((snapshot.fraction, snapshot.label_map.unpaint(snapshot.labels)))

    return run_to_end(method.iterate(problem), look), seen


def test_every_method_has_a_case():
    assert {method.name for method in CASES.values()} == set(saf.METHODS)


def test_what_a_run_leaves_hangs_together(case, outcome):
    method, problem = case
    result, _ = outcome
    assert result.status is not saf.Status.CANCELLED
    assert result.labels.shape == SQUARES.shape
    assert result.labels.dtype == np.uint8
    assert result.labels.min() >= 1
    np.testing.assert_allclose(result.assignment.sum(axis=1), 1, atol=1e-5)
    assert result.assignment.min() >= 0
    columns = result.columns[result.labels.ravel() - 1]
    chosen = np.take_along_axis(result.assignment, columns[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(chosen, result.assignment.max(axis=1))
    np.testing.assert_array_equal(result.columns, result.label_map.columns)
    painted = result.label_map.paint(result.assignment.argmax(axis=1).reshape(SQUARES.shape) + 1)
    assert np.mean(painted == result.labels) > 0.99
    assert result.n_labels == len(np.unique(result.labels))
    assert len(result.prototypes) == len(result.columns)
    assert ((result.uncertainty >= 0) & (result.uncertainty <= 1)).all()
    history = result.history
    assert len(history) >= 2
    assert np.isfinite(history.objective).all()
    steps = np.diff(history.time)
    assert (steps > 0 if problem.seeds is None else steps >= 0).all()  # by strokes, several runs
    assert history.n_evaluations[-1] == result.n_evaluations
    np.testing.assert_allclose(history.label_shares.sum(axis=1), 1, rtol=1e-6)
    shares = np.bincount(result.labels.ravel(), minlength=len(result.columns) + 1)[1:]
    own = np.where(result.columns >= 0, history.label_shares[-1][result.columns], 0)
    np.testing.assert_allclose(own, shares / result.labels.size, rtol=1e-6)
    if method in [CASES[name] for name in FREE]:  # labels are numbered by size
        assert (np.diff(shares) <= 0).all() and (shares > 0).all()
    recipe = result.recipe
    assert json.loads(json.dumps(recipe)) == recipe
    assert recipe["method"] == method.name
    assert (recipe["input"]["window"], recipe["input"]["groups"]) == (3, "channel:0")


def test_the_same_seed_gives_the_same_assignment(case):
    method, problem = case
    first, second = (method.run(problem, max_iterations=3) for _ in range(2))
    np.testing.assert_array_equal(first.assignment, second.assignment)


@pytest.mark.parametrize("name", params(CASES))
def test_an_image_that_is_given_twice_has_its_labels_twice(name):
    """As planes of a volume beyond whose own rows and columns no window reaches."""
    image = SQUARES + 0.05 * np.random.default_rng(0).standard_normal(SQUARES.shape)
    strokes = None if name in WITHOUT_STROKES else np.stack([STROKES, STROKES])
    groups = np.stack([np.indices(SQUARES.shape).sum(axis=0) % 2 + 1] * 2)
    options = {"seeds": strokes, "groups": groups} | PLAIN
    problem = saf.Problem.from_image(np.stack([image, image]), window=(1, 3, 3), **options)
    first, second = CASES[name].run(problem).labels
    assert first.shape == second.shape == SQUARES.shape
    assert (first == second).mean() > 0.99


def test_snapshots_show_the_labels_while_they_form(case, outcome):
    result, seen = outcome
    fractions = [fraction for fraction, _ in seen]
    assert fractions[0] == 0 and all(0 <= fraction <= 1 for fraction in fractions)
    # Where strokes teach, flows that change no label more are left out at the end.
    assert fractions[-1] == 1 or case[1].seeds is not None
    unpainted = [result.label_map.unpaint(result.labels), seen[-1][1]]
    if case[1].seeds is None:  # where strokes teach, parts may go to other labels at the end
        np.testing.assert_array_equal(*unpainted)


@pytest.mark.parametrize("after", [0, 3])
def test_a_cancelled_run_leaves_a_valid_labelling(case, after):
    method, problem = case
    result, _ = run_until(method, problem, after)
    assert result.status is saf.Status.CANCELLED
    assert result.labels.shape == SQUARES.shape
    assert np.isin(result.labels, result.label_map.numbers).all() and result.labels.min() >= 1
    assert result.n_labels == len(np.unique(result.labels))
    np.testing.assert_allclose(result.assignment.sum(axis=1), 1, atol=1e-5)
    if problem.seeds is not None:
        np.testing.assert_array_equal(result.labels[STROKES > 0], STROKES[STROKES > 0])


@pytest.mark.parametrize("name", params(WITHOUT_STROKES))
def test_outside_the_mask_is_zero(name):
    mask = np.zeros(SQUARES.shape, bool)
    mask[2:9, 3:21] = np.random.default_rng(1).random((7, 18)) < 0.8
    result = CASES[name].run(make_problem(mask=mask), max_iterations=5)
    np.testing.assert_array_equal(result.labels > 0, mask)


@pytest.mark.parametrize("name", params(CASES))
def test_seeds_keep_their_labels(name, monkeypatch):
    """Also where a field is processed in blocks, and with a start that contradicts them."""
    monkeypatch.setattr("napari_saf.flow._simplex._BLOCK", 100)
    problem = make_problem(STROKES)
    result = CASES[name].run(problem, max_iterations=10)
    if CASES[name].accepts_any_initial:
        contradicting = np.tile([0.001, 0.001, 0.998], (SIZE, 1))
        result = CASES[name].run(problem, contradicting, max_iterations=3)
    np.testing.assert_array_equal(result.labels[STROKES > 0], STROKES[STROKES > 0])
    held = result.assignment[STROKES.ravel() > 0].max(axis=1)
    np.testing.assert_allclose(held, 1, atol=1e-6)


@pytest.mark.parametrize("name", params(sorted(set(CASES) - {"saf, spectral"})))
def test_float64_runs_like_float32(name):
    problem = problem_for(name)
    labels = [
        dataclasses.replace(CASES[name], dtype=dtype).run(problem, max_iterations=10).labels
        for dtype in ("float32", "float64")
    ]
    assert matched_accuracy(*labels) > 0.98


@pytest.mark.parametrize("name", params(sorted({*FREE} - {"fair, cut"})))
def test_permuted_columns_of_the_start_permute_the_assignment(name):
    problem, order = make_problem(), np.array([2, 0, 3, 1])
    nearest = np.eye(4)[np.digitize(problem.features[:, 0], [0.25, 0.5, 0.75])]
    start = 0.6 * nearest + 0.4 * np.random.default_rng(0).dirichlet(np.ones(4), SIZE)
    method = dataclasses.replace(CASES[name], dtype="float64")
    plain, permuted = (
        method.run(problem, initial=given, max_iterations=5) for given in (start, start[:, order])
    )
    np.testing.assert_allclose(permuted.assignment, plain.assignment[:, order], atol=1e-5)
    np.testing.assert_allclose(permuted.history.objective, plain.history.objective, rtol=1e-9)


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        (np.ones(SIZE), "expected shape"),
        (np.ones((3, 2)), "expected shape"),
        (np.ones((SIZE, 2)), "expected rows that sum to 1"),
        (np.full((SIZE, 2), np.nan), "expected finite"),
        (np.ones((SIZE, 1)), r"expected( shape|.*up to 1| 2 columns)"),  # of two classes
        (np.full((SIZE, 3), 1 / 3), r"expected( shape| 2 columns)"),
    ],
)
@pytest.mark.parametrize("name", saf.METHODS)
def test_bad_starts_are_refused(name, initial, said):
    method = saf.METHODS[name]()
    if np.shape(initial) == (SIZE, 3) and method.accepts_any_initial:
        return
    with pytest.raises(saf.InvalidInput, match=f"(initial|seeds): {said}"):
        method.run(make_problem(STROKES), initial=initial)


LARGE = np.kron([[0.0, 1, 0.4], [0.8, 0.2, 0.6]], np.ones((10, 12)))
OF_SQUARES = {
    "saf": saf.SelfAssignmentFlow(max_labels=6, affinity=saf.GaussianAffinity(sigma2=0.01)),
    "slk": saf.SLK(n_clusters=6, sigma2=0.01),
    "slk, ms": saf.SLK(n_clusters=6, sigma2=0.01, prototypes="ms"),
    "slk, means": saf.SLK(n_clusters=6, sigma2=0.01, prototypes="means"),
    "fair": saf.FairClustering(n_clusters=6, fairness_weight=0),
    "strokes": saf.AssignmentFlow(),
    "laplacianshot": saf.LaplacianShot(),
    "bavardage": saf.Bavardage(),
}


@pytest.mark.parametrize("name", OF_SQUARES)
def test_the_squares_are_found(name):
    """With a seed in each by methods that need them."""
    image = LARGE[..., None] * [1.0, 0.5, 0.2] + [0, 0.3, 0.1]
    image += 0.02 * np.random.default_rng(0).standard_normal(image.shape)
    seeds, corners = np.zeros(LARGE.shape, int), itertools.product((1, 12), (1, 14, 27))
    for label, (row, column) in enumerate(corners, start=1):
        seeds[row : row + 2, column : column + 3] = label
    seeds = None if name in WITHOUT_STROKES else seeds
    groups = 1 + np.indices(LARGE.shape).sum(axis=0) % 2
    problem = saf.Problem.from_image(image, channel_axis=-1, seeds=seeds, groups=groups, **PLAIN)
    result, truth = OF_SQUARES[name].run(problem), (LARGE * 10).round().astype(int)
    pairs = {(int(a), int(b)) for a, b in zip(truth.flat, result.labels.flat, strict=True)}
    assert len(pairs) == 6
    assert seeds is None or (result.columns == np.arange(6)).all()


def test_a_detached_snapshot_stays_as_it_was_and_others_say_that_they_are_out_of_date(case):
    method, problem = case
    steps = method.iterate(problem)
    next(steps)
    snapshot = next(steps)
    labels, prototypes, assignment = snapshot.labels, snapshot.prototypes, snapshot.assignment
    small, full = snapshot.detach(), snapshot.detach(assignment=True)
    run_to_end(steps)
    for read in (lambda: snapshot.labels, snapshot.detach):
        with pytest.raises(saf.SafError, match="out of date"):
            read()
    for detached in (small, full):
        np.testing.assert_array_equal(detached.labels, labels)
        np.testing.assert_array_equal(detached.prototypes, prototypes)
        painted = detached.label_map.paint(detached.label_map.unpaint(labels))
        np.testing.assert_array_equal(painted, labels)
    assert not small.has_assignment
    np.testing.assert_array_equal(full.assignment, assignment)


@pytest.mark.parametrize("name", params(FREE))
def test_fewer_distinct_features_than_labels_reduce_the_labels(name):
    image = np.repeat([0, 1, 2, 3], 25).reshape(10, 10)
    most = "max_labels" if name.startswith("saf") else "n_clusters"
    problem = saf.Problem.from_image(image, window=1, groups="axis:1", **PLAIN)
    result = dataclasses.replace(CASES[name], **{most: 9}).run(problem)
    n_distinct = len(np.unique(image))
    assert result.assignment.shape[1] == n_distinct
    assert result.notes[0] == f"labels reduced to {n_distinct}: no more distinct features"
