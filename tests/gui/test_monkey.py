"""A short random walk over all docks; the long ones are for `monkey.py` itself."""

from __future__ import annotations

import pytest
from monkey import dock_names, walk

pytestmark = pytest.mark.gui

SEED, ACTIONS = 5, 50


def test_random_actions_cause_no_fault(viewer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    faults, monkey = walk(viewer, SEED, ACTIONS, tmp_path)
    assert not faults.found, "\n\n".join(faults.found)
    assert sum(monkey.counts.values()) >= ACTIONS and dock_names()
