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


@pytest.mark.parametrize(
    ("end", "signal"), [("layers", "inserted"), ("viewer", "inserted"), ("dock", "advanced")]
)
def test_all_may_go_once_the_first_labels_are_there_or_are_shown(
    window, viewer, dock, qtbot, end, signal
):
    runs, image = [], dock.input.image

    def act(*arguments):
        if runs:
            return
        runs.append(dock.controller.run)
        if end == "layers":
            viewer.layers.clear()
        elif end == "dock":
            viewer.window.remove_dock_widget(dock)
        else:
            viewer.close()

    if signal == "advanced":
        dock.controller.advanced.connect(act)
    else:
        viewer.layers.events.inserted.connect(lambda event: QTimer.singleShot(0, act))
    dock.form.set_values(ENDLESS)
    dock.start()
    qtbot.waitUntil(lambda: bool(runs) and runs[0].wait(0), timeout=TIMEOUT)
    qtbot.wait(50)
    assert end != "layers" or image not in viewer.layers


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
