"""Resume in the Segment dock: a run that was stopped goes on in its layer."""

import threading
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

SLOW = {"stepper": "euler", "stepper.step": 0.05, "max_labels": 4}


@pytest.fixture
def viewer(model):
    return model


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


def test_a_run_goes_on_in_its_layer_and_its_recipe_gives_the_labels(viewer, dock, run, stop, qtbot):
    dock.form.set_values(SLOW)
    assert not is_offered(dock)
    first = stop(dock, 0.1)
    (layer,) = (layer for layer in viewer.layers if isinstance(layer, Labels))
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.stopped.button.click()
        dock.panel.stop_button.click()  # before it went on
    assert is_offered(dock)
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
    assert recipe.method.max_labels == 4 and recipe.method.stepper.step == 0.05
    assert np.mean(recipe.run(blocks()).labels == layer.data) > 0.99


def test_strokes_keep_their_numbers(viewer, dock, run, stop):
    strokes = paint(viewer)
    strokes.data = strokes.data * 3
    dock.input.choose(strokes=strokes)
    dock.form.choose("af")
    dock.form.set_values(SLOW | {"stop.max_steps": 100})
    stop(dock, 0.1)
    labels = run(dock, resume(dock)).labels
    assert set(np.unique(labels)) == {3, 6}
    np.testing.assert_array_equal(labels[strokes.data > 0], strokes.data[strokes.data > 0])


@pytest.mark.parametrize("what", ["strokes", "removed", "replaced"])
def test_it_goes_with_what_it_needs(viewer, dock, stop, qtbot, what):
    strokes = paint(viewer)
    dock.input.choose(strokes=strokes)
    dock.form.set_values(SLOW)
    stop(dock, 0.1)
    strokes.visible, strokes.selected_label = False, 2  # to look at them changes nothing
    strokes.refresh()
    qtbot.wait(100)
    assert is_offered(dock)
    (layer,) = (one for one in viewer.layers if isinstance(one, Labels) and one is not strokes)
    if what == "strokes":
        strokes.paint((15, 15), 2)
    elif what == "removed":
        viewer.layers.remove(layer)
    else:
        layer.data = np.ones_like(layer.data)
        dock.stopped.button.click()
    qtbot.waitUntil(lambda: not is_offered(dock), timeout=TIMEOUT)
    assert not dock.controller.is_running


def test_it_is_not_offered_where_strokes_changed_in_the_run(viewer, dock, stop):
    strokes = paint(viewer)
    dock.input.choose(strokes=strokes)
    dock.form.set_values(SLOW)
    dock.controller.advanced.connect(lambda frame: strokes.paint((15, 15), 2))
    stop(dock, 0.1)
    assert not is_offered(dock)


def test_the_recording_goes_on_in_either_dock(viewer, dock, open_dock, run, stop):
    diagnostics = open_dock(viewer, DiagnosticsWidget)
    dock.form.set_values(SLOW)
    stop(dock, 0.1)
    result = run(dock, resume(dock))
    recorded = diagnostics.recorded.recording.history()
    np.testing.assert_allclose(recorded.time, result.history.time)
    assert (
        diagnostics.slider.times[0] == 0 and diagnostics.slider.times[-1] == result.history.time[-1]
    )
    stop(dock, 0.1)
    run(diagnostics, diagnostics.resume_button.click)
    dock.stopped.button.click()
    assert not is_offered(dock) and not dock.controller.is_running
