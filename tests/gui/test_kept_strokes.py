"""Strokes are on disk soon after they were painted, and come back with names and colours."""

import os
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, lock
from napari.components import ViewerModel
from napari.settings import get_plugin_settings

from napari_saf import storage
from napari_saf._gui.scribbles import strokes
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf.io import load_strokes

pytestmark = [pytest.mark.gui]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(strokes, "_AUTOSAVE_MILLISECONDS", 50)


@pytest.fixture
def scribbles(model, open_on):
    model.add_image(blocks(), name="blocks")
    dock = open_on(model, ScribblesWidget)
    dock.follow.setChecked(False)
    return dock


def files(tmp_path):
    return sorted((tmp_path / "data" / "strokes").glob("*"))


def paint(dock, row, number):
    dock.strokes.layer.data_setitem((np.arange(row, row + 4), np.full(4, 6)), number)


def painted(dock, qtbot):
    dock.new_strokes()
    paint(dock, 4, 1)
    paint(dock, 20, 2)
    dock.strokes.rename(2, "sky")
    dock.strokes.set_color(2, (0.0, 0.5, 1.0))
    wait_for(dock, qtbot)
    return np.array(dock.strokes.layer.data)


def wait_for(dock, qtbot):
    """Wait until nothing waits to be written."""
    qtbot.wait(60)
    qtbot.waitUntil(lambda: not dock.autosave.is_pending, timeout=TIMEOUT)


def test_lost_strokes_come_back_with_names_and_colours(model, scribbles, qtbot):
    assert scribbles.buttons["restore_strokes"].isHidden()
    before = painted(scribbles, qtbot)
    assert scribbles.buttons["restore_strokes"].isHidden()
    model.layers.remove(scribbles.strokes.layer)
    assert not scribbles.buttons["restore_strokes"].isHidden()
    scribbles.buttons["restore_strokes"].click()
    np.testing.assert_array_equal(scribbles.strokes.layer.data, before)
    assert scribbles.strokes.name(2) == "sky"
    np.testing.assert_allclose(scribbles.strokes.color(2), (0, 0.5, 1, 1), atol=0.01)
    qtbot.waitUntil(lambda: not scribbles.controller.is_running, timeout=TIMEOUT)
    assert scribbles.result is not None


def test_another_window_offers_them_for_the_same_image_only(open_on, scribbles, qtbot):
    before = painted(scribbles, qtbot)
    second = ViewerModel()
    second.add_image(blocks()[:, :-2], name="blocks")
    other = open_on(second, ScribblesWidget)
    other.follow.setChecked(False)
    assert other.buttons["restore_strokes"].isHidden()
    second.layers.clear()
    second.add_image(blocks(), name="others")
    assert other.buttons["restore_strokes"].isHidden()
    second.layers.clear()
    second.add_image(blocks(), name="blocks")
    assert not other.buttons["restore_strokes"].isHidden()
    other.restore_strokes()
    np.testing.assert_array_equal(other.strokes.layer.data, before)


def test_what_waits_is_written_when_the_dock_closes(scribbles, tmp_path):
    scribbles.new_strokes()
    paint(scribbles, 4, 1)
    scribbles.autosave.schedule(scribbles.input.image)
    assert scribbles.autosave.is_pending and not files(tmp_path)
    scribbles.shut_down()
    assert len(files(tmp_path)) == 1


def test_new_strokes_take_no_old_ones_away(scribbles, tmp_path, qtbot):
    painted(scribbles, qtbot)
    (first,) = files(tmp_path)
    kept_before = first.read_bytes()
    scribbles.new_strokes()
    paint(scribbles, 10, 1)
    wait_for(scribbles, qtbot)
    assert len(files(tmp_path)) == 2
    assert first.read_bytes() == kept_before


def test_strokes_that_are_all_erased_leave_the_last_ones(scribbles, tmp_path, qtbot):
    painted(scribbles, qtbot)
    (first,) = files(tmp_path)
    kept_before = first.read_bytes()
    layer = scribbles.strokes.layer
    layer.data_setitem(np.nonzero(layer.data), 0)
    wait_for(scribbles, qtbot)
    assert first.read_bytes() == kept_before


def numbers(path, dock):
    return set(np.unique(load_strokes(path, dock.strokes.layer.data.shape)[0]).tolist()) - {0}


def test_restored_strokes_have_a_file_of_their_own(scribbles, tmp_path, qtbot):
    painted(scribbles, qtbot)
    first = scribbles.strokes.layer
    scribbles.input.choose(strokes=None)
    scribbles.restore_strokes()
    paint(scribbles, 12, 3)
    wait_for(scribbles, qtbot)
    scribbles.input.choose(strokes=first)
    paint(scribbles, 12, 4)
    wait_for(scribbles, qtbot)
    assert {frozenset(numbers(path, scribbles)) for path in files(tmp_path)} == {
        frozenset({1, 2, 3}),
        frozenset({1, 2, 4}),
    }


def test_what_was_painted_last_is_what_stays(scribbles, tmp_path, qtbot, monkeypatch):
    writing, slow, real = threading.Event(), threading.Event(), storage.atomic_write

    @contextmanager
    def slow_write(target):
        with real(target) as temporary:
            yield temporary
            if threading.current_thread() is not threading.main_thread():
                writing.set()
                slow.wait(0.5)

    monkeypatch.setattr(storage, "atomic_write", slow_write)
    scribbles.new_strokes()
    paint(scribbles, 4, 1)
    qtbot.waitUntil(writing.is_set, timeout=TIMEOUT)
    paint(scribbles, 12, 2)
    scribbles.autosave.schedule(scribbles.input.image)
    scribbles.shut_down()
    (only,) = files(tmp_path)
    assert set(np.unique(load_strokes(only, (32, 32))[0])) == {0, 1, 2}


def test_they_are_offered_by_the_axes_that_are_chosen(model, scribbles, qtbot):
    model.layers.clear()
    model.add_image(np.random.default_rng(0).random((3, 32, 32)), name="channels")
    scribbles.input.choose(channels=0)
    painted(scribbles, qtbot)
    model.layers.remove(scribbles.strokes.layer)
    assert not scribbles.buttons["restore_strokes"].isHidden()
    scribbles.input.choose(channels=None)
    assert scribbles.buttons["restore_strokes"].isHidden()
    scribbles.input.choose(channels=0)
    assert not scribbles.buttons["restore_strokes"].isHidden()


def test_colours_are_kept_while_one_class_is_shown_alone(model, scribbles, qtbot):
    scribbles.new_strokes()
    before = [scribbles.strokes.color(number) for number in (1, 2)]
    scribbles.strokes.layer.show_selected_label = True
    paint(scribbles, 4, 1)
    paint(scribbles, 12, 2)
    wait_for(scribbles, qtbot)
    model.layers.remove(scribbles.strokes.layer)
    scribbles.restore_strokes()
    after = [scribbles.strokes.color(number) for number in (1, 2)]
    np.testing.assert_allclose(after, before, atol=1e-3)


def test_other_strokes_begin_with_no_class_locked(scribbles, qtbot):
    painted(scribbles, qtbot)
    lock(scribbles.classes, 1)
    scribbles.new_strokes()
    assert not scribbles.classes.locked


def test_old_files_are_removed(scribbles, tmp_path, qtbot, monkeypatch):
    painted(scribbles, qtbot)
    (first,) = files(tmp_path)
    long_ago = time.time() - 31 * 86400
    os.utime(first, (long_ago, long_ago))
    scribbles.new_strokes()
    paint(scribbles, 10, 1)
    wait_for(scribbles, qtbot)
    (second,) = files(tmp_path)
    assert second != first
    monkeypatch.setattr(strokes, "_MOST_FILES", 1)
    scribbles.new_strokes()
    paint(scribbles, 10, 1)
    wait_for(scribbles, qtbot)
    assert len(files(tmp_path)) == 1


def test_a_person_can_do_without(scribbles, tmp_path, qtbot):
    get_plugin_settings("napari-saf").strokes.keeps_strokes = False
    painted(scribbles, qtbot)
    assert not files(tmp_path)


def test_a_full_disk_is_told_and_painting_goes_on(scribbles, tmp_path, qtbot):
    (tmp_path / "data").write_text("no folder")
    assert scribbles.autosave.note.isHidden()
    painted(scribbles, qtbot)
    assert not scribbles.autosave.note.isHidden() and "data" in scribbles.autosave.note.text()
    scribbles.status.reset("something else")
    paint(scribbles, 12, 1)
    wait_for(scribbles, qtbot)
    assert not scribbles.autosave.note.isHidden()
    (tmp_path / "data").unlink()
    paint(scribbles, 22, 1)
    wait_for(scribbles, qtbot)
    qtbot.waitUntil(scribbles.autosave.note.isHidden, timeout=TIMEOUT)
    assert files(tmp_path)


def test_no_stroke_on_a_large_stack_is_missed(scribbles, monkeypatch, qtbot):
    scribbles.new_strokes()
    monkeypatch.setattr(strokes, "_COMPARED_VALUES", 1)
    scribbles.strokes.follow(scribbles.strokes.layer)
    with qtbot.waitSignal(scribbles.strokes.changed, timeout=TIMEOUT):
        paint(scribbles, 4, 1)


def test_a_damaged_file_is_told(model, scribbles, tmp_path, qtbot):
    painted(scribbles, qtbot)
    model.layers.remove(scribbles.strokes.layer)
    files(tmp_path)[0].write_bytes(b"damaged")
    scribbles.restore_strokes()
    assert "safetensors" in scribbles.status.text
    assert scribbles.input.strokes is None
