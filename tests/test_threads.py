"""Threads that wait for one another let go of their cores, unless the person has settled how."""

import os
import subprocess
import sys

import pytest

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
