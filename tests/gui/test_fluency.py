"""What keeps the window fluent: collections wait, painting is spread, bars stand still."""

import gc

import numpy as np
import pytest
from gui_cases import ENDLESS
from napari.layers import Labels
from qtpy.QtCore import QEvent, QObject, QTimer
from qtpy.QtWidgets import QDockWidget, QWidget

from napari_saf._gui.forms.status import StatusArea
from napari_saf._gui.runs import fluency
from napari_saf._gui.runs import run as run_module
from napari_saf._gui.runs.background import FunctionTask
from napari_saf._gui.runs.fluency import (
    _parts,
    add_in_turns,
    full_collections,
    painted_later,
)
from napari_saf._gui.runs.start import RunStart

pytestmark = pytest.mark.gui


@pytest.fixture(autouse=True)
def no_rest(monkeypatch, qtbot):
    """Begin once the rest after the runs of tests before is over, and have none."""
    qtbot.waitUntil(lambda: gc.get_threshold()[2] < fluency._NEVER)
    monkeypatch.setattr(fluency, "_REST_MILLISECONDS", 0)


def test_full_collections_come_back_after_the_last_of_several_runs(qtbot):
    before = gc.get_threshold()
    full_collections().hold()
    full_collections().hold()
    full_collections().release()
    qtbot.wait(20)
    assert gc.get_threshold()[2] > 1000 * before[2]
    full_collections().release()
    qtbot.waitUntil(lambda: gc.get_threshold() == before)


def test_a_run_holds_them_and_its_end_releases_them(dock, run, qtbot):
    before, seen = gc.get_threshold(), []
    dock.controller.advanced.connect(lambda frame: seen.append(gc.get_threshold()))
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


def test_a_task_that_cannot_start_holds_nothing(qtbot):
    before = gc.get_threshold()
    task = FunctionTask(lambda report, cancelled: None)
    task.start()
    with pytest.raises(RuntimeError, match="once"):
        task.start()
    assert task.wait(5)
    qtbot.waitUntil(lambda: gc.get_threshold() == before)


def test_what_is_painted_later_holds_them(dock, qtbot):
    before = gc.get_threshold()
    with painted_later(dock):
        assert gc.get_threshold()[2] > before[2]
    qtbot.waitUntil(lambda: gc.get_threshold() == before)
    with pytest.raises(KeyError), painted_later(dock):
        raise KeyError
    qtbot.waitUntil(lambda: gc.get_threshold() == before)


def test_a_task_holds_them_whether_or_not_anybody_listens(qtbot):
    before = gc.get_threshold()
    task = FunctionTask(lambda report, cancelled: gc.get_threshold())
    with qtbot.waitSignal(task.returned) as waited:
        task.start()
    assert waited.args[0][2] > before[2]
    qtbot.waitUntil(lambda: gc.get_threshold() == before)
    unheard = FunctionTask(lambda report, cancelled: None)
    unheard.start()
    assert gc.get_threshold() != before
    assert unheard.wait(5)
    qtbot.waitUntil(lambda: gc.get_threshold() == before)


def test_in_long_tasks_there_is_one_now_and_then(qtbot, monkeypatch):
    monkeypatch.setattr(fluency, "_MINUTE_MILLISECONDS", 10)
    before = gc.get_stats()[2]["collections"]
    full_collections().hold()
    qtbot.waitUntil(lambda: gc.get_stats()[2]["collections"] > before + 2)
    full_collections().release()
    qtbot.waitUntil(lambda: not full_collections()._minute.isActive())


@pytest.fixture
def parts(dock, qtbot):
    """The parts of a window in sight that is shown."""
    window = dock.window()
    window.show()
    qtbot.waitUntil(lambda: len(_parts(window)) > 2)
    return _parts(window)


def test_a_window_closed_before_it_was_painted_is_let_go(dock, parts):
    """The fixture of the viewer looks for what is left of it."""
    with painted_later(dock):
        assert not any(part.updatesEnabled() for part in parts)
    parts.clear()


def test_the_parts_of_a_window_are_painted_later_one_by_one(dock, parts, qtbot):
    counts, ended = [], []
    with painted_later(dock, lambda: ended.append(True)):
        pass
    count_parts = QTimer()
    count_parts.timeout.connect(lambda: counts.append(sum(p.updatesEnabled() for p in parts)))
    count_parts.start(0)
    qtbot.waitUntil(lambda: bool(ended))
    count_parts.stop()
    assert counts == sorted(counts)
    assert {1, len(parts)} <= set(counts)
    assert all(part.updatesEnabled() for part in parts)


def test_a_dock_closed_before_it_was_painted_is_left_out(viewer, dock, parts, qtbot):
    other = viewer.window.add_plugin_dock_widget("napari-saf", "Export")[1]
    qtbot.waitUntil(lambda: not other.visibleRegion().isEmpty())
    ended = []
    with painted_later(dock, lambda: ended.append(True)):
        viewer.window.remove_dock_widget(other)
        other.deleteLater()
    qtbot.waitUntil(lambda: bool(ended))


def test_nothing_is_held_back_in_a_window_that_waits_already(dock, parts, qtbot):
    ended = []
    with painted_later(dock), painted_later(dock, lambda: ended.append(True)):
        pass
    assert ended
    qtbot.waitUntil(lambda: all(part.updatesEnabled() for part in parts))


def test_a_window_waits_for_a_dock_that_floats_too(dock, parts, qtbot):
    frame = dock.parentWidget()
    while not isinstance(frame, QDockWidget):
        frame = frame.parentWidget()
    frame.setFloating(True)
    qtbot.waitUntil(lambda: dock.window() is frame)
    with painted_later(dock):
        assert not any(part.updatesEnabled() for part in parts)
    qtbot.waitUntil(lambda: all(part.updatesEnabled() for part in parts))


def test_each_of_several_layers_waits_to_be_painted(viewer, dock, parts, qtbot):
    """Parts that still wait for the layer before do not keep the others from waiting."""
    canvas = viewer.window._qt_window.centralWidget()
    waits, ended = [], []
    viewer.layers.events.inserted.connect(lambda event: waits.append(not canvas.updatesEnabled()))
    makers = [lambda: Labels(np.ones((8, 8), np.uint8)) for _ in range(4)]
    add_in_turns(viewer, dock, makers, ended.append)
    qtbot.waitUntil(lambda: bool(ended))
    assert waits == [True] * 4
    qtbot.waitUntil(lambda: all(part.updatesEnabled() for part in parts))


def test_a_run_rests_until_its_labels_are_on_screen_and_told(dock, run, monkeypatch):
    order = []

    def noted(name, word):
        method = getattr(run_module.Run, name)

        def call(self, *arguments):
            order.append(word)
            return method(self, *arguments)

        monkeypatch.setattr(run_module.Run, name, call)

    noted("_look", "step")
    noted("_send", "sent")
    noted("consume", "painted")
    monkeypatch.setattr(run_module, "_FRAME_SECONDS", 60)

    def told(frame):
        order.append("told")
        if order.count("told") == 3:
            dock.controller.stop()

    dock.controller.advanced.connect(told)
    dock.form.set_values(ENDLESS)
    run(dock)
    sent = [k for k, word in enumerate(order) if word == "sent"][:2]
    assert len(sent) > 1, "no frame after the first"
    for k in sent:
        assert order[k + 1 : k + 3] == ["told", "painted"]


def test_a_run_that_is_stopped_while_it_makes_a_frame_waits_for_nobody(dock, run, monkeypatch):
    paint = RunStart.paint

    def stop(self, labels, numbers):
        dock.controller._run.cancel()
        return paint(self, labels, numbers)

    monkeypatch.setattr(RunStart, "paint", stop)
    monkeypatch.setattr(run_module.Run, "consume", lambda self: None)
    monkeypatch.setattr(run_module, "_FRAME_SECONDS", 3600)
    run(dock)


def test_work_of_unknown_length_leaves_the_screen_in_peace(qtbot):
    """Where a processor draws, a bar that moves by itself takes all its cores."""
    status = StatusArea()
    qtbot.addWidget(status)
    status.show()
    status.reset("reading the image …")
    qtbot.wait(100)
    paintings = Paintings(status)
    qtbot.wait(500)
    assert paintings.count <= 2


class Paintings(QObject):
    """Counts how often something in a widget is painted."""

    def __init__(self, widget):
        super().__init__()
        self.count = 0
        for part in (widget, *widget.findChildren(QWidget)):
            part.installEventFilter(self)

    def eventFilter(self, watched, event):
        self.count += event.type() == QEvent.Type.Paint
        return False
