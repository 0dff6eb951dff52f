"""A limit on memory refuses a run that would take more, and only where it holds."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import textwrap
import threading

import imageio.v3 as iio
import numpy as np
import pytest
import torch

import napari_saf as saf
from napari_saf import device
from napari_saf.device import memory_errors_translated, memory_limit
from napari_saf.flow import AdamsSchedule, _fused
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


def test_an_image_of_few_values_needs_less():
    method = saf.SelfAssignmentFlow(max_labels=2)
    noise = np.random.default_rng(0).random((40, 40, 3))
    with memory_limit(4 * 40 * 40 * 100):
        with pytest.raises(saf.ComputeError, match="not enough memory"):
            method.run(saf.Problem.from_image(noise, **PLAIN), max_iterations=1)
        method.run(saf.Problem.from_image(noise.round(), **PLAIN), max_iterations=1)


@pytest.mark.parametrize("weights", ["nonlocal", "contrast"])
def test_weights_that_take_more_are_refused_before_they_are_made(weights):
    image = np.random.default_rng(0).random((40, 40))
    with memory_limit(2 * 40 * 40 * 13 + 1):  # of a pair of pixels, 16 bits
        saf.Problem.from_image(
            image, weights=weights, window=5, features="intensity", max_side=None
        )
        with pytest.raises(saf.ComputeError, match="may be taken; use a smaller window"):
            saf.Problem.from_image(
                image, weights=weights, window=7, features="intensity", max_side=None
            )


def test_weights_as_a_matrix_are_counted_as_such():
    grid = saf.GridGraph((40, 40), window=5)
    with memory_limit(10 * 4 * 40 * 40 * 25), pytest.raises(saf.ComputeError, match="window"):
        grid.contrast_weights(np.random.default_rng(0).random((1600, 1)), 1.0)


@pytest.mark.parametrize(
    ("shape", "window"),
    [((60, 90), 3), ((12, 40, 40), (1, 3, 3)), ((16, 18, 20), 3), ((5, 200), 3)],
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


def test_many_images_or_a_network_have_no_side():
    images = [np.random.default_rng(k).random((9, 9)) for k in range(3)]
    several = saf.Problem.from_images(images, **PLAIN)
    with memory_limit(10_000), pytest.raises(saf.ComputeError, match="fewer images at once"):
        saf.SelfAssignmentFlow().run(several)
    network = saf.Problem(
        np.random.default_rng(0).random((9, 2)), saf.AffinityGraph(np.ones((9, 9)))
    )
    with memory_limit(1000), pytest.raises(saf.ComputeError, match="fewer nodes"):
        saf.SelfAssignmentFlow().run(network)


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


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.exhaustive
def test_a_folder_run_within_a_limit_goes_on_after_an_image_that_is_too_large(tmp_path):
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    for name, side in (("a_large.png", 2048), ("b_small.png", 24)):
        iio.imwrite(tmp_path / "in" / name, rng.integers(255, size=(side, side), dtype=np.uint8))
    script = """
        import resource, sys
        import psutil
        import sklearn.cluster, torch
        from napari_saf.cli import main

        room = psutil.Process().memory_info().vms + 2**30
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        plain = ["--features", "intensity", "--weights", "uniform", "--max-side", "none"]
        sys.exit(main(["segment", "in", "-o", "out", *plain]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert re.search(
        r"error: in/a_large\.png: not enough memory.*it fits \(Compute at, max_side\)", done.stderr
    )
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out" / "b_small.labels.tif").exists()


def test_compiled_kernels_need_less_than_torch(monkeypatch):
    if _fused.kernels() is None:
        pytest.skip("no kernels are compiled here")
    monkeypatch.setattr(_fused, "_MANY_ENTRIES", 0)
    image = np.random.default_rng(0).random((70, 80, 3))
    problem = saf.Problem.from_image(image, **PLAIN)
    method = saf.SelfAssignmentFlow(max_labels=16)
    with memory_limit(4 * problem.n_nodes * 16 * 13):
        method.run(problem, max_iterations=1)
        steps = AdamsSchedule((0.1,))  # as in tiles
        dataclasses.replace(method, stepper=steps).run(problem, max_iterations=1)
        monkeypatch.setenv(_fused.SWITCH, "0")
        with pytest.raises(saf.ComputeError, match="not enough memory"):
            method.run(problem, max_iterations=1)


def test_what_is_kept_for_the_next_stroke_counts():
    image = np.random.default_rng(0).random((40, 40))
    seeds = np.zeros(image.shape, int)
    seeds[:4], seeds[-4:] = 1, 2
    problem, needs = saf.Problem.from_image(image, seeds=seeds, **PLAIN), []
    for n_nearest in (1, 31):
        with memory_limit(None, lambda n_bytes, room: needs.append(n_bytes)):
            saf.AssignmentFlow(n_nearest=n_nearest).run(problem, max_iterations=1)
    float32, n_classes = 4, 2
    assert needs[1] - needs[0] >= float32 * 30 * n_classes * problem.n_nodes
