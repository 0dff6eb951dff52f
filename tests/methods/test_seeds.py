"""Seeds in every method: their labels and classes, and parameters that act on seeds alone."""

from __future__ import annotations

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.input import PLAIN
from napari_saf.parameters import build, describe


def three_stripes():
    """Return an image of three stripes, and strokes on two of them."""
    image = np.random.default_rng(0).normal(0, 0.02, (12, 36))
    image[:, 12:24] += 0.5
    image[:, 24:] += 1
    strokes = np.zeros(image.shape, dtype=int)
    strokes[3:6, 3:6], strokes[3:6, 16:19] = 1, 2
    return image, strokes


def test_labels_that_no_stroke_has_come_out_if_that_is_asked():
    image, strokes = three_stripes()
    problem = saf.Problem.from_image(image, seeds=strokes, **PLAIN)
    new = saf.SelfAssignmentFlow(max_labels=3).run(problem)
    old = saf.SelfAssignmentFlow(max_labels=3, new_labels=False).run(problem)
    assert set(np.unique(new.labels[:, 26:])) == {3}
    assert set(np.unique(old.labels)) <= {1, 2}
    assert old.assignment.shape[1] == 2
    for result in (new, old):
        np.testing.assert_array_equal(result.labels[strokes > 0], strokes[strokes > 0])


METHODS = [
    saf.SelfAssignmentFlow(max_labels=2),
    saf.SelfAssignmentFlow(max_labels=2, new_labels=False),
    saf.SLK(n_clusters=2),
    saf.SLK(n_clusters=2, prototypes="ms"),
    saf.SLK(n_clusters=2, prototypes="means"),
    saf.FairClustering(n_clusters=2),
    saf.FairClustering(n_clusters=2, objective="kmedian"),
    saf.FairClustering(n_clusters=2, objective="ncut"),
]


@pytest.mark.parametrize("method", METHODS)
def test_seeds_may_have_more_classes_than_labels_were_asked_for(method):
    image, strokes = three_stripes()
    strokes[3:6, 28:31] = 3
    groups = np.ones(image.shape, dtype=int)
    groups[6:] = 2
    problem = saf.Problem.from_image(image, seeds=strokes, groups=groups, **PLAIN)
    result = method.run(problem)
    assert result.assignment.shape[1] == 3
    np.testing.assert_array_equal(result.labels[strokes > 0], strokes[strokes > 0])


@pytest.mark.parametrize("number", [3, 2**63 - 1])
@pytest.mark.parametrize("name", saf.METHODS)
def test_skipped_classes_are_told_before_memory_is_taken(name, number):
    image, strokes = three_stripes()
    strokes[strokes == 2] = number
    groups = np.ones(image.shape, dtype=int)
    groups[6:] = 2
    problem = saf.Problem.from_image(image, seeds=strokes, groups=groups, **PLAIN)
    with pytest.raises(saf.InvalidInput, match=f"classes 1 to {number}, class 2 has none"):
        saf.METHODS[name]().run(problem)


@pytest.mark.parametrize("name", ["af", "laplacianshot", "bavardage"])
def test_one_class_teaches_nothing_and_none_is_asked_for(name):
    image, strokes = three_stripes()
    for seeds, words in ((strokes == 1, "two or more classes, got one"), (None, "(seeds|strokes)")):
        problem = saf.Problem.from_image(image, seeds=seeds, **PLAIN)
        with pytest.raises(saf.InvalidInput, match=words):
            saf.METHODS[name]().run(problem)


OTHER = {
    "n_nearest": 1,
    "paths": 5.0,
    "edge_power": 3.0,
    "rounds": 0,
    "nearby": 16.0,
    "connected": True,
    "new_labels": None,
}
"""Another value than the default, None: the opposite."""
CASES = [(name, p.name) for name in saf.METHODS for p in describe(saf.METHODS[name]) if p.for_seeds]


@pytest.mark.parametrize(("method", "parameter"), CASES)
def test_without_seeds_it_changes_nothing(method, parameter):
    problem = saf.Problem.from_image(np.random.default_rng(0).random((8, 9, 3)), **PLAIN)
    given = {"prototypes": problem.features[::20]} if method == "af" else {}
    plain = build(saf.METHODS[method], given)
    value = OTHER[parameter]
    value = not getattr(plain, parameter) if value is None else value
    other = build(saf.METHODS[method], {**given, parameter: value})
    assert getattr(plain, parameter) != getattr(other, parameter)
    one, two = (m.run(problem, max_iterations=20) for m in (plain, other))
    np.testing.assert_array_equal(one.assignment, two.assignment)
    np.testing.assert_array_equal(one.labels, two.labels)


def test_there_are_such_parameters():
    assert {name for _, name in CASES} == set(OTHER)
