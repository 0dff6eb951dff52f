"""Resume in the Segment dock: a run that was stopped goes on in its layer."""

import threading
from functools import partial
from time import sleep

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks
from napari.layers import Labels

import napari_saf as saf
from napari_saf._gui.diagnostics.dock import DiagnosticsWidget
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.runs.run import Run

pytestmark = pytest.mark.gui

SLOW = {"stepper": "euler", "stepper.step": 0.02, "max_labels": 4}


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


@pytest.fixture
def stop(qtbot, monkeypatch):
    """Start a run, or what is called, and stop it at a time of the flow.

    The worker waits there until Stop is pressed, however fast it is.
    """

    def stop_at(dock, time, start=None):
        put, results, reached = Run._put, [], threading.Event()

        def put_and_wait(run, snapshot):
            put(run, snapshot)
            while snapshot.record.time >= time and not run.is_cancelled:
                reached.set()
                sleep(0.001)

        monkeypatch.setattr(Run, "_put", put_and_wait)
        dock.controller.returned.connect(results.append)
        (start or dock.start)()
        run = dock.controller.run
        qtbot.waitUntil(
            lambda: bool(results) or (reached.is_set() and not run.mailbox), timeout=TIMEOUT
        )
        dock.panel.stop_button.click()
        qtbot.waitUntil(lambda: bool(results) and not dock.controller.is_running, timeout=TIMEOUT)
        dock.controller.returned.disconnect(results.append)
        monkeypatch.setattr(Run, "_put", put)
        assert results[0].status is saf.Status.CANCELLED
        return results[0]

    return stop_at


def is_offered(dock):
    return not dock.stopped.button.isHidden()


def resume(dock):
    return dock.stopped.button.click


def paint(viewer):
    seeds = np.zeros((32, 32), dtype=np.uint8)
    seeds[4:8, 4:8], seeds[20:28, 20:24] = 1, 2
    return viewer.add_labels(seeds, name="strokes")


def test_a_run_goes_on_in_its_layer_and_its_recipe_gives_the_labels(viewer, dock, run, stop):
    dock.form.set_values(SLOW)
    assert not is_offered(dock)
    first = stop(dock, 0.1)
    (layer,) = (layer for layer in viewer.layers if isinstance(layer, Labels))
    again = stop(dock, first.history.time[-1] + 0.1, resume(dock))
    assert again.history.time[-1] > first.history.time[-1]
    dock.form.set_values({"max_labels": 2})  # which is for the next run
    result = run(dock, resume(dock))
    assert not is_offered(dock)
    assert [own for own in viewer.layers if isinstance(own, Labels)] == [layer]
    np.testing.assert_array_equal(layer.data, result.labels)
    assert dock.status.text.startswith("converged: ")
    assert (np.diff(result.history.time) > 0).all() and result.seconds > again.seconds

    recipe = recipe_of(layer)
    assert recipe.method.max_labels == 4 and recipe.method.stepper.step == 0.02
    labels = recipe.run(blocks()).labels
    assert np.mean(labels == layer.data) > 0.99


def test_a_stop_before_the_run_went_on_leaves_what_there_was(dock, run, stop, qtbot):
    dock.form.set_values(SLOW)
    stop(dock, 0.1)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.stopped.button.click()
        dock.panel.stop_button.click()
    assert is_offered(dock)
    assert run(dock, resume(dock)).status is saf.Status.CONVERGED


def test_strokes_keep_their_numbers(viewer, dock, run, stop):
    strokes = paint(viewer)
    strokes.data = strokes.data * 3
    dock.input.choose(strokes=strokes)
    dock.form.choose("af")
    dock.form.set_values(SLOW | {"stepper.step": 0.04, "stop.max_steps": 400})
    stop(dock, 0.1)
    labels = run(dock, resume(dock)).labels
    assert set(np.unique(labels)) == {3, 6}
    np.testing.assert_array_equal(labels[strokes.data > 0], strokes.data[strokes.data > 0])


@pytest.mark.parametrize(
    "what",
    [
        *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("choice", "image", "run")),
        *("strokes", "removed", "replaced"),
    ],
)
def test_it_goes_with_what_it_needs(viewer, dock, run, stop, qtbot, what):
    strokes, other = paint(viewer), viewer.add_image(blocks(), name="other")
    dock.input.choose(strokes=strokes, image=viewer.layers["blocks"])
    dock.form.set_values(SLOW)
    stop(dock, 0.1)
    assert is_offered(dock)
    (layer,) = (one for one in viewer.layers if isinstance(one, Labels) and one is not strokes)
    if what == "strokes":
        strokes.paint((15, 15), 2)
    elif what == "choice":
        dock.input.choose(strokes=None)
    elif what == "image":
        dock.input.choose(image=other)
    elif what == "removed":
        viewer.layers.remove(layer)
    elif what == "replaced":
        layer.data = np.ones_like(layer.data)
        dock.stopped.button.click()
    else:
        dock.form.set_values({"stop.max_steps": 2})
        run(dock)
    qtbot.waitUntil(lambda: not is_offered(dock), timeout=TIMEOUT)
    assert not dock.controller.is_running


@pytest.mark.parametrize("what", ["strokes", "result"])
def test_it_is_not_offered_where_that_changed_in_the_run(viewer, dock, stop, what):
    strokes = paint(viewer)
    dock.input.choose(strokes=strokes)
    dock.form.set_values(SLOW)

    def change(frame):
        if what == "strokes":
            strokes.paint((15, 15), 2)
        elif not dock.controller.live.is_lost:
            viewer.layers.remove(dock.controller.live.layer)

    dock.controller.advanced.connect(change)
    stop(dock, 0.1)
    assert not is_offered(dock)
    is_said = dock.status.text == "stopped: the layer of its labels was removed"
    assert is_said == (what == "result")


def test_a_slice_on_screen_and_a_look_at_the_strokes_change_nothing(viewer, dock, stop, qtbot):
    strokes = paint(viewer)
    dock.input.choose(strokes=strokes)
    dock.form.set_values(SLOW)
    stop(dock, 0.1)
    strokes.visible = False
    strokes.refresh()
    strokes.selected_label = 2
    qtbot.wait(300)
    assert is_offered(dock)


def test_neither_an_end_nor_a_sweep_is_resumed(dock, run, qtbot):
    run(dock)
    assert not is_offered(dock)
    dock.form.choose("fair")
    dock.controller.advanced.connect(dock.panel.stop_button.click)
    run(dock, partial(dock.start, is_sweep=True))
    assert not is_offered(dock)


def test_the_recording_goes_on(viewer, dock, open_dock, run, stop):
    diagnostics = open_dock(viewer, DiagnosticsWidget)
    dock.form.set_values(SLOW)
    stop(dock, 0.1)
    result = run(dock, resume(dock))
    recorded = diagnostics.recorded.recording.history()
    np.testing.assert_allclose(recorded.time, result.history.time)
    assert diagnostics.times[0] == 0 and diagnostics.times[-1] == result.history.time[-1]


def test_it_goes_once_another_dock_goes_on_with_the_layer(viewer, dock, open_dock, run, stop):
    diagnostics = open_dock(viewer, DiagnosticsWidget)
    dock.form.set_values(SLOW)
    stop(dock, 0.1)
    run(diagnostics, diagnostics.resume_button.click)
    dock.stopped.button.click()
    assert not is_offered(dock) and not dock.controller.is_running
