"""Arrays in whatever memory they come: what torch does not take as it is makes no difference."""

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.arrays import own_floats


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


def swapped(array):
    return array.astype(array.dtype.newbyteorder())


FORMS = [read_only, swapped, np.asfortranarray, lambda array: array[::-1].copy()[::-1]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_floats_are_the_same_numbers_in_memory_that_may_be_written(form, dtype):
    array = np.random.default_rng(0).random((6, 3)).astype(dtype)
    found = own_floats(form(array), "values")
    assert found.flags.writeable and found.flags.c_contiguous and found.dtype.isnative
    assert found.dtype == (np.float64 if dtype is np.float64 else np.float32)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("form", FORMS)
def test_features_and_start(form):
    rng, method = np.random.default_rng(0), saf.SLK(n_clusters=2)
    features, start = rng.random((20, 2)), rng.dirichlet((1, 1), 20)
    graph = saf.GridGraph((4, 5))
    plain = method.run(saf.Problem(features, graph), start, max_iterations=5)
    other = method.run(saf.Problem(form(features), graph), form(start), max_iterations=5)
    np.testing.assert_array_equal(other.assignment, plain.assignment)
