"""A limit on memory refuses a run that would take more, and only where it holds."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
import torch

import napari_saf as saf
from napari_saf import device
from napari_saf.device import memory_errors_translated, memory_limit
from napari_saf.input import PLAIN


@pytest.fixture
def problem():
    return saf.Problem.from_image(np.random.default_rng(0).random((8, 8)), **PLAIN)


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


def test_weights_that_take_more_are_refused_before_they_are_made():
    image, weights = np.random.default_rng(0).random((40, 40)), "contrast"
    with memory_limit(2 * 40 * 40 * 13 + 1):  # of a pair of pixels, 16 bits
        saf.Problem.from_image(
            image, weights=weights, window=5, features="intensity", max_side=None
        )
        with pytest.raises(saf.ComputeError, match="may be taken; use a smaller window"):
            saf.Problem.from_image(
                image, weights=weights, window=7, features="intensity", max_side=None
            )


@pytest.mark.parametrize(
    ("shape", "window"),
    [((12, 40, 40), (1, 3, 3)), ((5, 200), 3)],
)
@pytest.mark.parametrize("n_values", [2, 1000])
def test_the_size_that_is_proposed_fits_and_the_next_does_not(shape, window, n_values):
    image = np.random.default_rng(0).integers(n_values, size=shape).astype(float)
    method = saf.SelfAssignmentFlow(max_labels=4)

    def run(**options):
        problem = saf.Problem.from_image(image, window=window, **PLAIN | options)
        return method.run(problem, max_iterations=1)

    with memory_limit(150_000):
        with pytest.raises(saf.ComputeError, match="max_side") as caught:
            run()
        side = int(re.search(r"longest side of (\d+) it fits", str(caught.value))[1])
        assert run(max_side=side).labels.shape == shape
        if n_values == 1000:
            with pytest.raises(saf.ComputeError, match="max_side"):
                run(max_side=2 * side)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), "not enough memory .*; do less"),
        (MemoryError("Unable to allocate 9 GiB"), "not enough memory .*9 GiB.*; do less"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory .*do less"),
        (RuntimeError("CUDA error: device lost"), "^CUDA error: device lost$"),
    ],
)
def test_what_torch_and_numpy_raise_is_a_compute_error(error, words):
    with (
        pytest.raises(saf.ComputeError, match=words) as caught,
        memory_errors_translated("do less"),
    ):
        raise error
    assert caught.value.__cause__ is error


def test_memory_that_is_missing_within_a_run_is_a_compute_error(problem, monkeypatch):
    def fail(*arguments, **options):
        return torch.empty(2**60)

    monkeypatch.setattr(saf.SelfAssignmentFlow, "_prepare", fail)
    with pytest.raises(saf.ComputeError, match="not enough memory"):
        saf.SelfAssignmentFlow().run(problem)


def test_the_limits_of_a_group_of_processes_count(tmp_path):
    def group(name, limit, current, inactive):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{current}\n")
        (folder / "memory.stat").write_text(f"anon 7\ninactive_file {inactive}\nslab 3\n")

    own = tmp_path / "own"
    own.write_text("0::/all/mine\n")
    assert device.free_in_group(tmp_path, own) == float("inf")
    group("all/mine", "max", 10, 0)
    assert device.free_in_group(tmp_path, own) == float("inf")
    group("all", 1000, 600, 100)
    assert device.free_in_group(tmp_path, own) == 500
    group("all/mine", 300, 10, 5)
    assert device.free_in_group(tmp_path, own) == 295
    assert device.free_in_group(tmp_path, tmp_path / "none") == float("inf")
