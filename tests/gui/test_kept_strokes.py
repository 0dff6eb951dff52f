"""Strokes are kept soon after they were painted, and come back where they were removed."""

import threading

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, lock, recover
from napari.components import ViewerModel
from napari.settings import get_plugin_settings
from qtpy.QtCore import QTimer

from napari_saf._gui.project.dock import ProjectWidget
from napari_saf._gui.scribbles import strokes
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget
from napari_saf._gui.session import workspace

pytestmark = [pytest.mark.gui]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(workspace, "SOON", 50)
    monkeypatch.setattr(workspace, "REST", 0)


@pytest.fixture
def scribbles(model, open_on):
    model.add_image(blocks(), name="blocks")
    dock = open_on(model, ScribblesWidget)
    dock.follow.setChecked(False)
    return dock


def kept(tmp_path):
    return sorted((tmp_path / "data" / "recovery").glob("*.napari-saf"))


def paint(dock, row, number):
    dock.strokes.layer.data_setitem((np.arange(row, row + 4), np.full(4, 6)), number)


def painted(dock, qtbot):
    dock.new_strokes()
    paint(dock, 4, 1)
    paint(dock, 20, 2)
    dock.strokes.rename(2, "sky")
    dock.strokes.set_color(2, (0.0, 0.5, 1.0))
    qtbot.wait(60)
    return np.array(dock.strokes.layer.data)


def test_a_run_is_kept_before_a_minute_is_over(
    model, open_on, settle, qtbot, tmp_path, monkeypatch
):
    monkeypatch.setattr(workspace, "AUTOSAVE_MILLISECONDS", 10**8)
    model.add_image(blocks(), name="blocks")
    dock, project = open_on(model, SegmentWidget), open_on(model, ProjectWidget)
    dock.start()
    settle(dock)
    qtbot.waitUntil(lambda: len(kept(tmp_path)) == 1, timeout=20_000)
    qtbot.waitUntil(lambda: "not saved" in project.name.text(), timeout=20_000)


def test_strokes_are_kept_before_a_minute_is_over(open_on, scribbles, qtbot, tmp_path, settle):
    """Nothing asks for it, and nothing is closed, as in a crash."""
    before = painted(scribbles, qtbot)
    qtbot.waitUntil(lambda: len(kept(tmp_path)) == 1, timeout=TIMEOUT)
    qtbot.waitUntil(lambda: not scribbles.workspace.is_autosaving, timeout=TIMEOUT)
    scribbles.workspace.file.release()
    second = ViewerModel()
    other, project = open_on(second, ScribblesWidget), open_on(second, ProjectWidget)
    other.follow.setChecked(False)
    recover(project)
    settle(project)
    np.testing.assert_array_equal(other.strokes.layer.data, before)
    assert other.strokes.name(2) == "sky"
    np.testing.assert_allclose(other.strokes.color(2), (0, 0.5, 1, 1), atol=0.01)


def test_what_is_painted_while_it_is_kept_is_kept_too(scribbles, qtbot, monkeypatch):
    classes, may_end, keep = [], threading.Event(), scribbles.workspace.file.autosave

    def slow(state):
        classes.append(state.images[0].shown[0].data.max())
        may_end.wait(TIMEOUT / 1000)
        return keep(state)

    monkeypatch.setattr(scribbles.workspace.file, "autosave", slow)
    painted(scribbles, qtbot)
    qtbot.waitUntil(lambda: len(classes) == 1, timeout=TIMEOUT)
    paint(scribbles, 24, 3)
    qtbot.wait(120)
    may_end.set()
    qtbot.waitUntil(lambda: len(classes) == 2, timeout=TIMEOUT)
    assert classes == [2, 3]


def test_nothing_is_kept_once_the_end_has_come_or_if_a_person_does_without(
    scribbles, tmp_path, qtbot
):
    strokes_settings = get_plugin_settings("napari-saf").strokes
    strokes_settings.keeps_strokes = False
    painted(scribbles, qtbot)
    qtbot.wait(60)
    assert not kept(tmp_path)
    strokes_settings.keeps_strokes = True
    paint(scribbles, 8, 1)
    qtbot.wait(60)
    scribbles.workspace.end()
    (path,) = kept(tmp_path)
    before = path.read_bytes()
    paint(scribbles, 12, 1)
    scribbles.workspace.autosave_soon()
    timers = scribbles.workspace.findChildren(QTimer)
    assert timers and not any(timer.isActive() for timer in timers)
    assert not scribbles.workspace.is_autosaving and path.read_bytes() == before


def test_strokes_that_were_removed_come_back(model, scribbles, qtbot):
    restore = scribbles.buttons["restore_strokes"]
    before = painted(scribbles, qtbot)
    assert restore.isHidden()
    lock(scribbles.classes, 1)
    image, layer = model.layers["blocks"], scribbles.strokes.layer
    model.layers.remove(layer)
    assert not restore.isHidden()
    other = model.add_image(blocks()[::-1], name="other")
    scribbles.input.choose(image=other)
    assert restore.isHidden()
    scribbles.input.choose(image=image)
    restore.click()
    assert scribbles.strokes.layer is layer and scribbles.strokes.name(2) == "sky"
    np.testing.assert_array_equal(layer.data, before)
    qtbot.waitUntil(lambda: not scribbles.panel.is_busy, timeout=TIMEOUT)
    assert scribbles.result is not None and restore.isHidden()
    layer.undo()
    assert (layer.data != before).any()
    scribbles.new_strokes()
    assert not scribbles.classes.locked


def test_no_stroke_on_a_large_stack_is_missed(scribbles, monkeypatch, qtbot):
    scribbles.new_strokes()
    monkeypatch.setattr(strokes, "COMPARED_VALUES", 1)
    scribbles.strokes.follow(scribbles.strokes.layer)
    with qtbot.waitSignal(scribbles.strokes.changed, timeout=TIMEOUT):
        paint(scribbles, 4, 1)


def test_labels_of_another_size_are_no_start_for_strokes(model, scribbles):
    scribbles.new_strokes()
    scribbles.base.choose(model.add_labels(np.ones((7, 9), np.uint8), name="other"))
    assert scribbles.status.is_error
    assert "32 x 32" in scribbles.status.text and "7 x 9" in scribbles.status.text
    assert set(scribbles.strokes.names) == {1, 2}


def test_labels_that_a_run_replaced_come_back_by_undo_if_a_person_edited_them(
    model, scribbles, qtbot
):
    def start():
        scribbles.start()
        qtbot.waitUntil(lambda: not scribbles.panel.is_busy, timeout=TIMEOUT)
        return np.array(scribbles.result.data)

    painted(scribbles, qtbot)
    start()
    result, told = scribbles.result, []
    paint(scribbles, 8, 1)
    after = start()
    result.undo()  # nothing of a person is in it
    np.testing.assert_array_equal(result.data, after)
    result.data_setitem((np.arange(9), np.arange(9)), 7)
    edited = np.array(result.data)
    paint(scribbles, 12, 1)
    result.events.paint.connect(told.append)
    after = start()
    assert scribbles.result is result and 7 not in after and not told
    result.undo()
    np.testing.assert_array_equal(result.data, edited)
    result.redo()
    np.testing.assert_array_equal(result.data, after)
