"""Parameters that are said to act on seeds alone change nothing without seeds."""

from __future__ import annotations

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.parameters import build, describe

OTHER = {"n_nearest": 1, "paths": 5.0, "rounds": 0, "connected": True, "new_labels": False}
CASES = [(name, p.name) for name in saf.METHODS for p in describe(saf.METHODS[name]) if p.for_seeds]


@pytest.mark.parametrize(("method", "parameter"), CASES)
def test_without_seeds_it_changes_nothing(method, parameter):
    problem = saf.Problem.from_image(np.random.default_rng(0).random((8, 9, 3)))
    given = {"prototypes": problem.features[::20]} if method == "af" else {}
    plain = build(saf.METHODS[method], given)
    other = build(saf.METHODS[method], {**given, parameter: OTHER[parameter]})
    assert getattr(plain, parameter) != getattr(other, parameter)
    one, two = (m.run(problem, max_iterations=20) for m in (plain, other))
    np.testing.assert_array_equal(one.assignment, two.assignment)
    np.testing.assert_array_equal(one.labels, two.labels)


def test_there_are_such_parameters():
    assert {name for _, name in CASES} == set(OTHER)
