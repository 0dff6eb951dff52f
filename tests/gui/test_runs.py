"""A run in its thread and the screen: neither waits for the other."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gui_cases import blocks
from napari.settings import get_plugin_settings
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QApplication, QWidget

from napari_saf import SelfAssignmentFlow, Status
from napari_saf._gui.forms.controls import StatusArea
from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf._gui.runs.run import Run, RunJob, Task
from napari_saf.errors import InvalidInput
from napari_saf.pipeline import RunStart
from napari_saf.problem import ImageOptions

pytestmark = pytest.mark.gui


def a_run(**parameters):
    image = blocks()
    job = ImageJob(Pixels(image, (slice(None),) * 3), ImageOptions(channel_axis=-1))
    method = SelfAssignmentFlow(**({"max_labels": 4} | parameters))
    return Run(RunJob(None, job, method, None), None, ProblemReader())


def test_a_run_waits_for_nobody_and_makes_no_frame_that_nobody_takes(qtbot, monkeypatch):
    """No event is handled here while it goes on, and nothing taken."""
    paint, painted = RunStart.paint, []

    def count(self, columns, classes):
        painted.append(True)
        return paint(self, columns, classes)

    monkeypatch.setattr(RunStart, "paint", count)
    run = a_run()
    with qtbot.waitSignal(run.returned) as returned:
        run.start()
        assert run.wait(60)
    assert returned.args[0].status is not Status.CANCELLED
    assert len(painted) == 2  # the first frame, and the result


def test_a_frame_stays_as_it_is_while_the_run_goes_on(qtbot):
    run = a_run()
    frames = []

    def look(snapshot):
        frame = run.mailbox.pop()
        frames.append((frame, frame.labels.copy(), frame.prototypes.copy()))

    run.recording = SimpleNamespace(watch=look, finish=print)
    run.start()
    assert run.wait(60)
    assert len(frames) > 3
    for frame, labels, prototypes in frames:
        np.testing.assert_array_equal(frame.labels, labels)
        np.testing.assert_array_equal(frame.prototypes, prototypes)


def test_the_main_thread_waits_for_no_evaluation(dock, qtbot, monkeypatch):
    """Whatever it does while the run is stuck in an evaluation."""
    stuck, go_on, went_on = threading.Event(), threading.Event(), []
    iterate = SelfAssignmentFlow.iterate

    def iterate_stuck(self, problem, initial=None, *, cancelled):
        steps = iterate(self, problem, initial, cancelled=cancelled)
        yield next(steps)
        stuck.set()
        went_on.append(go_on.wait(60))
        return (yield from steps)

    monkeypatch.setattr(SelfAssignmentFlow, "iterate", iterate_stuck)
    controller = dock.controller
    with qtbot.waitSignal(controller.advanced):
        dock.start()
    assert stuck.wait(60)
    controller.run.record()
    controller.run.first_labels.emit()
    dock.panel.stop_button.click()
    assert controller.is_running and not went_on
    with qtbot.waitSignal(controller.finished):
        go_on.set()


def test_stop_ends_a_run_within_one_evaluation(dock, long_run, qtbot):
    counts = []
    long_run(dock)
    run = dock.controller.run

    def count(snapshot):
        counts.append(run.is_cancelled)

    run.recording = SimpleNamespace(watch=count, finish=print)
    qtbot.waitUntil(lambda: len(counts) > 2)
    with qtbot.waitSignal(dock.controller.finished):
        dock.controller.stop()
    assert sum(counts) <= 2


def test_frames_come_no_more_often_than_the_settings_say(dock, long_run, qtbot):
    get_plugin_settings("napari-saf").screen.frames = 5
    times = []
    dock.controller.advanced.connect(lambda frame: times.append(time.perf_counter()))
    long_run(dock)
    qtbot.waitUntil(lambda: len(times) == 3, timeout=20_000)
    with qtbot.waitSignal(dock.controller.finished):
        dock.controller.stop()
    assert min(np.diff(times)) > 0.15


def test_tasks_at_a_time_each_take_their_threads_and_leave_the_number_as_it_was(qtbot):
    def count():
        task = Task(lambda report, cancelled: torch.get_num_threads())
        with qtbot.waitSignal(task.returned) as returned:
            task.start()
        return returned.args[0]

    settings, of_window, usual = get_plugin_settings("napari-saf"), torch.get_num_threads(), count()
    both, seen = threading.Barrier(2, timeout=20), []

    def look(report, cancelled):
        both.wait()
        seen.append(torch.get_num_threads())
        both.wait()

    tasks = []
    for n_threads in (usual + 1, 0):
        settings.computing.threads = n_threads
        tasks.append(Task(look))
        tasks[-1].start()
    assert all(task.wait(30) for task in tasks)
    assert sorted(seen) == [usual, usual + 1]
    assert count() == usual and torch.get_num_threads() == of_window


def test_work_that_is_dropped_tells_nothing_any_more_not_even_what_was_under_way(qtbot, qtlog):
    task, listener = Task(lambda report, cancelled: report(1)), Listener()
    task.advanced.connect(listener.on_told)
    task.returned.connect(listener.told)
    listener.told.connect(listener.on_told)
    task.start()
    assert task.wait(20)
    task.silence()
    QApplication.processEvents()
    assert not listener.heard
    assert "disconnect" not in str([record.message for record in qtlog.records])


class Listener(QObject):
    """Hears what it is told, by itself or by its signal."""

    told = Signal(object)

    def __init__(self):
        super().__init__()
        self.heard = []

    def on_told(self, value):
        self.heard.append(value)


def test_status_is_copied_without_the_breaks_that_let_it_wrap(qtbot):
    status = StatusArea()
    qtbot.addWidget(status)
    name = "a_very_long_file_name_that_does_not_fit_in_the_line.tif"
    status.reset(f"saved {name}")
    assert "long_\u200bfile_" in status._line.text() and "lo\u200bng" not in status._line.text()
    (action,) = [a for part in status.findChildren(QWidget) for a in part.actions()]
    action.trigger()
    assert QApplication.clipboard().text() == f"saved {name}"


def test_errors_are_told_in_the_words_of_the_forms():
    words = {
        "window: expected odd side lengths": "Scale: expected odd side lengths",
        "stopping.max_steps: expected at most 9": "Most steps: expected at most 9",
        "seeds: expected two or more classes": "Strokes: expected two or more classes",
        "/tmp/a: b.tif: damaged": "/tmp/a: b.tif: damaged",
        "not enough memory": "not enough memory",
    }
    for error, text in words.items():
        assert describe_error(InvalidInput(error)) == text
