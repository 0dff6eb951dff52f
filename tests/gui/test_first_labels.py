"""A layer of labels is put in over several turns of the event loop: what may come in between."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import ENDLESS, TIMEOUT
from napari.layers import Labels

import napari_saf as saf
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.runs.controller import RunController
from napari_saf._gui.runs.fluency import _parts

pytestmark = pytest.mark.gui

STEPS = [(LiveLayer, "prepare"), (LiveLayer, "show"), (RunController, "_tell")]


@pytest.fixture(autouse=True)
def in_sight(dock, qtbot):
    """Show the window: what is not seen is not painted later."""
    dock.window().show()
    qtbot.waitUntil(lambda: bool(_parts(dock.window())))


def is_painted(window):
    parts = _parts(window)
    return bool(parts) and all(part.updatesEnabled() for part in parts)


def result_layers(viewer):
    return [layer for layer in viewer.layers if isinstance(layer, Labels)]


@pytest.fixture(params=STEPS, ids=[name for _, name in STEPS])
def after_step(request, monkeypatch):
    """Return a function that has something done after a step towards the first labels, once."""
    owner, name = request.param

    def have_done(action):
        step, done = getattr(owner, name), []

        def take_step(*args):
            step(*args)
            if not done:
                done.append(True)
                action()

        monkeypatch.setattr(owner, name, take_step)

    return have_done


@pytest.mark.parametrize("which", ["image", "everything"])
def test_layers_removed(viewer, dock, qtbot, after_step, which):
    image = dock.input.image
    after_step(lambda: viewer.layers.remove(image) if which == "image" else viewer.layers.clear())
    dock.form.set_values(ENDLESS)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
    assert image not in viewer.layers
    assert all(layer.data.min() >= 1 for layer in result_layers(viewer))
    qtbot.waitUntil(lambda: is_painted(dock.window()))


def test_image_renamed(viewer, dock, qtbot, after_step):
    after_step(lambda: setattr(dock.input.image, "name", "another"))
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
    (layer,) = result_layers(viewer)
    assert layer.data.min() >= 1 and "recipe" in layer.metadata["napari_saf"]


def test_stop(viewer, dock, qtbot, after_step):
    results = []
    dock.controller.returned.connect(results.append)
    after_step(dock._stop_button.click)
    dock.form.set_values(ENDLESS)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
    assert results[0].status is saf.Status.CANCELLED
    (layer,) = result_layers(viewer)
    np.testing.assert_array_equal(layer.data, results[0].labels)
    qtbot.wait(50)
    np.testing.assert_array_equal(layer.data, results[0].labels)


def test_run_again(viewer, dock, qtbot, after_step):
    after_step(dock.start)
    with qtbot.waitSignals([dock.controller.finished] * 2, timeout=TIMEOUT):
        dock.start()
    first, second = result_layers(viewer)
    assert not first.visible and second.visible
    assert first.data.min() >= 1 and second.data.min() >= 1


def test_viewer_closed(viewer, dock, qtbot, after_step):
    runs = []

    def close():
        runs.append(dock.controller._run)
        viewer.close()

    after_step(close)
    dock.form.set_values(ENDLESS)
    dock.start()
    qtbot.waitUntil(lambda: bool(runs) and runs[0].wait(0), timeout=TIMEOUT)
    qtbot.wait(50)


def test_dock_closed(viewer, dock, qtbot, after_step):
    runs = []

    def close():
        runs.append(dock.controller._run)
        viewer.window.remove_dock_widget(dock)

    after_step(close)
    dock.form.set_values(ENDLESS)
    dock.start()
    qtbot.waitUntil(lambda: bool(runs) and runs[0].wait(0), timeout=TIMEOUT)
    qtbot.wait(50)
    qtbot.waitUntil(lambda: is_painted(viewer.window._qt_window))
    dock.deleteLater()


def test_the_new_layer_is_the_selected_one_and_the_window_is_painted(viewer, dock, run, qtbot):
    run(dock)
    (layer,) = result_layers(viewer)
    assert viewer.layers.selection.active == layer
    qtbot.waitUntil(lambda: is_painted(dock.window()))


def test_what_is_drawn_over_labels_is_made_when_a_tool_is_taken_up(viewer, dock, run, qtbot):
    made = viewer.window._qt_viewer.canvas._layer_overlay_to_visual
    run(dock)
    (layer,) = result_layers(viewer)
    qtbot.waitUntil(lambda: is_painted(dock.window()))
    (visuals,) = [visuals for shown, visuals in made.items() if shown == layer]
    assert not visuals
    layer.mode = "polygon"
    assert len(visuals) == 2 and layer._overlays["polygon"].enabled
    layer.mode = "pan_zoom"
    assert len(visuals) == 2 and not layer._overlays["polygon"].enabled
