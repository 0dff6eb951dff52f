"""Full garbage collections wait while runs are on."""

import gc

import pytest

from napari_saf._gui.runs import fluency
from napari_saf._gui.runs.fluency import FullCollections, painted_later

pytestmark = pytest.mark.gui


@pytest.fixture(autouse=True)
def no_rest(monkeypatch, qtbot):
    """Begin once the rest after the runs of tests before is over, and have none."""
    qtbot.waitUntil(lambda: gc.get_threshold()[2] < fluency._NEVER)
    monkeypatch.setattr(fluency, "_REST_MILLISECONDS", 0)


def test_full_collections_come_back_after_the_last_of_several_runs(qtbot):
    before = gc.get_threshold()
    FullCollections.hold()
    FullCollections.hold()
    FullCollections.release()
    qtbot.wait(20)
    assert gc.get_threshold()[2] > 1000 * before[2]
    FullCollections.release()
    qtbot.waitUntil(lambda: gc.get_threshold() == before)


def test_a_run_holds_them_and_its_end_releases_them(dock, run, qtbot):
    before, seen = gc.get_threshold(), []
    dock.session.began.connect(lambda: seen.append(gc.get_threshold()))
    dock.form.set_values({"max_labels": 2})
    run(dock)
    assert seen[0][2] > before[2]
    qtbot.waitUntil(lambda: gc.get_threshold() == before)


def test_closing_the_dock_during_a_run_releases_them(viewer, dock, long_run, qtbot):
    before = gc.get_threshold()
    long_run(dock)
    assert gc.get_threshold() != before
    viewer.window.remove_dock_widget(dock)
    qtbot.waitUntil(lambda: gc.get_threshold() == before)


def test_a_window_closed_before_it_was_painted_is_let_go(dock):
    """The fixture of the viewer looks for what is left of it."""
    with painted_later(dock):
        assert not dock.window().updatesEnabled()


def test_the_window_is_painted_later(dock, qtbot):
    with painted_later(dock):
        pass
    assert not dock.window().updatesEnabled()
    qtbot.waitUntil(lambda: dock.window().updatesEnabled())
