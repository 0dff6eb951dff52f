"""A run in its thread, the screen beside it, and what is said of how long it takes."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gui_cases import blocks
from napari.settings import get_plugin_settings
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QApplication

from napari_saf import SelfAssignmentFlow
from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf._gui.runs import task as task_module
from napari_saf._gui.runs.panel import TimeLeft
from napari_saf._gui.runs.run import Run, RunJob
from napari_saf._gui.runs.task import Task
from napari_saf.errors import InvalidInput
from napari_saf.problem import ImageOptions

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model):
    return model


def test_a_frame_stays_as_it_is_while_the_run_goes_on(qtbot):
    """No event is handled here meanwhile."""
    image, frames = blocks(), []
    job = ImageJob(Pixels(image, (slice(None),) * 3), ImageOptions(channel_axis=-1))
    run = Run(RunJob(None, job, SelfAssignmentFlow(max_labels=4), None), None, ProblemReader())

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


def test_errors_are_told_in_the_words_of_the_forms():
    words = {
        "window: expected odd side lengths": "Scale: expected odd side lengths",
        "stopping.max_steps: expected at most 9": "Most steps: expected at most 9",
        "seeds: expected two or more classes": "Strokes: expected two or more classes",
        "weights_file: choose a file": "Weights: choose a file",
        "/tmp/a: b.tif: damaged": "/tmp/a: b.tif: damaged",
        "not enough memory": "not enough memory",
    }
    for error, text in words.items():
        assert describe_error(InvalidInput(error)) == text


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


def test_memory_is_said_where_it_is_much(dock, long_run, settle, monkeypatch):
    for share, is_said in ((0.9, False), (1e-9, True)):
        monkeypatch.setattr(task_module, "LARGE_SHARE", share)
        long_run(dock)
        assert ("memory: about" in dock.status.text) == is_said
        dock.panel.stop_button.click()
        settle(dock)
