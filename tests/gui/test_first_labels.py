"""What may happen right after the first labels of a run came."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import ENDLESS, TIMEOUT
from napari.layers import Labels
from qtpy.QtCore import QTimer

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


def result_layers(viewer):
    return [layer for layer in viewer.layers if isinstance(layer, Labels)]


@pytest.fixture(params=["inserted", "advanced"])
def after_step(request, viewer, dock):
    """Return a function that has something done once the first labels are there, or are shown."""

    def have_done(action):
        done = []

        def act(*args):
            if not done:
                done.append(True)
                action()

        if request.param == "advanced":
            dock.controller.advanced.connect(act)
        else:
            viewer.layers.events.inserted.connect(lambda event: QTimer.singleShot(0, act))

    return have_done


def test_layers_removed(window, viewer, dock, qtbot, after_step):
    image = dock.input.image
    after_step(viewer.layers.clear)
    dock.form.set_values(ENDLESS)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
    assert image not in viewer.layers
    assert all(layer.data.min() >= 1 for layer in result_layers(viewer))


@pytest.mark.parametrize(
    ("after_step", "ended"), [("inserted", "viewer"), ("advanced", "dock")], indirect=["after_step"]
)
def test_viewer_or_dock_closed(window, viewer, dock, qtbot, after_step, ended):
    runs = []

    def close():
        runs.append(dock.controller.run)
        if ended == "viewer":
            viewer.close()
        else:
            viewer.window.remove_dock_widget(dock)

    after_step(close)
    dock.form.set_values(ENDLESS)
    dock.start()
    qtbot.waitUntil(lambda: bool(runs) and runs[0].wait(0), timeout=TIMEOUT)
    qtbot.wait(50)


def test_equal_runs_are_one_layer_and_others_are_kept(viewer, dock, run):
    for _ in range(3):
        run(dock)
    (first,) = result_layers(viewer)
    before = first.data.copy()
    painted = before[0, 0] % 4 + 1
    first.data_setitem((np.array([0]), np.array([0])), painted)  # as a person paints
    run(dock)
    dock.form.set_values({"max_labels": 2})
    for _ in range(2):
        run(dock)
    _, second, third = result_layers(viewer)
    assert first.data[0, 0] == painted and not first.visible
    np.testing.assert_array_equal(second.data, before)
    assert third.data.max() <= 2 and third.visible
