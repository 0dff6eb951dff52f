"""A limit on memory refuses a run that would take more, and only where it holds."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import napari_saf as saf
from napari_saf.device import memory_limit


@pytest.fixture
def problem():
    return saf.Problem.from_image(np.random.default_rng(0).random((8, 8)))


def test_a_run_that_takes_more_is_refused_with_a_way_on(problem):
    method = saf.SelfAssignmentFlow(max_labels=3)
    with memory_limit(10_000), pytest.raises(saf.ComputeError, match=r"may be taken; use fewer"):
        method.run(problem, max_iterations=1)
    with memory_limit(10_000_000):
        method.run(problem, max_iterations=1)


def test_the_limit_is_that_of_its_thread_and_ends_with_its_block(problem):
    errors = []

    def run():
        try:
            saf.SelfAssignmentFlow(max_labels=3).run(problem, max_iterations=1)
        except saf.ComputeError as error:
            errors.append(error)

    with memory_limit(1):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    run()
    assert not errors


def test_an_image_of_few_values_needs_less():
    method = saf.SelfAssignmentFlow(max_labels=2)
    noise = np.random.default_rng(0).random((40, 40, 3))
    with memory_limit(4 * 40 * 40 * 100):
        with pytest.raises(saf.ComputeError, match="not enough memory"):
            method.run(saf.Problem.from_image(noise), max_iterations=1)
        method.run(saf.Problem.from_image(noise.round()), max_iterations=1)


@pytest.mark.parametrize("weights", ["nonlocal", "contrast"])
def test_weights_that_take_more_are_refused_before_they_are_made(weights):
    image = np.random.default_rng(0).random((40, 40))
    with memory_limit(4 * 40 * 40 * 25 + 1):
        saf.Problem.from_image(image, weights=weights, window=5)
        with pytest.raises(saf.ComputeError, match="may be taken; use a smaller window"):
            saf.Problem.from_image(image, weights=weights, window=7)


def test_weights_as_a_matrix_are_counted_as_such():
    grid = saf.GridGraph((40, 40), window=5)
    with memory_limit(10 * 4 * 40 * 40 * 25), pytest.raises(saf.ComputeError, match="window"):
        grid.contrast_weights(np.random.default_rng(0).random((1600, 1)), 1.0)
