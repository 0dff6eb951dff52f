"""Threads that wait for one another let go of their cores, unless the person has settled how."""

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import napari_saf as saf

SCRIPT = "import os, napari_saf; print(os.environ.get('GOMP_SPINCOUNT'))"


def spin_count(**given):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.check_output(command, env=kept | given, text=True).strip()


def test_waiting_threads_spin_for_a_bounded_time():
    assert 1000 <= int(spin_count()) <= 3000


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"GOMP_SPINCOUNT": "17"}, "17"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_what_the_person_has_set_stays(given, expected):
    assert spin_count(**given) == expected


def _n_labels(image: np.ndarray) -> int:
    return saf.SelfAssignmentFlow(max_labels=3).run(saf.Problem.from_image(image)).n_labels


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_runs_after_its_parent_has_run():
    """The threads of OpenMP of the parent are not there, and would be waited for without end."""
    image = np.random.default_rng(0).random((64, 64), np.float32)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = _n_labels(image)
        pool = multiprocessing.get_context("fork").Pool(1)
        try:
            assert pool.apply_async(_n_labels, [image]).get(20) == expected
        finally:
            pool.terminate()
    finally:
        torch.set_num_threads(before)
