"""What is said of a long run: how long it goes on, and its memory."""

import itertools

import numpy as np
import pytest

from napari_saf._gui.runs import run
from napari_saf._gui.runs.panel import TimeLeft

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


def told(seconds, fractions):
    """Return what an estimate says after each of some frames."""
    own, words = TimeLeft(), []
    for at, fraction in zip(seconds, fractions, strict=True):
        own.update(at, fraction)
        words.append((own.seconds_left(at), own.words(at)))
    return words


@pytest.mark.parametrize("length", [5, 40, 600])
def test_of_an_even_run_the_time_left_falls_and_is_near(length):
    seconds = np.linspace(0, length, 101)[:-1]
    found = told(seconds, seconds / length)
    assert all(words == "" for (_, words), at in zip(found, seconds, strict=True) if at < 1)
    known = [(left, length - at) for (left, _), at in zip(found, seconds, strict=True) if left]
    assert len(known) > 50
    for left, true in known:
        assert true / 2 <= left <= 3 * true + max(1, 0.02 * length)
    assert all(later <= now + 1e-6 for (now, _), (later, _) in itertools.pairwise(known))


def test_nothing_is_said_of_a_run_that_stands_still():
    seconds = np.arange(0, 100, 0.5)
    found = told(seconds, np.minimum(seconds / 20, 0.7))
    assert found[20][1].endswith("left")
    assert found[-1] == (None, "")


@pytest.mark.parametrize(("share", "is_said"), [(1e-9, True), (0.9, False)])
def test_memory_is_said_where_it_is_much(dock, long_run, settle, monkeypatch, share, is_said):
    monkeypatch.setattr(run, "LARGE_SHARE", share)
    long_run(dock)
    assert ("memory: about" in dock.status.text) == is_said
    dock.panel.stop_button.click()
    settle(dock)
