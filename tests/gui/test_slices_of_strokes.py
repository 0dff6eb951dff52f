"""Strokes on several slices of a stack: labels, table and locks follow the slice on screen."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import TIMEOUT, stack
from napari.layers import Labels

pytestmark = pytest.mark.gui

BALL, CORNER = (8, 8), (1, 1)
REST_MILLISECONDS = 250
"""After which the dock has seen another slice."""


@pytest.fixture
def scribbles(viewer):
    viewer.add_image(stack(), name="stack")
    dock = viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")[1]
    dock.input.scale.set_value(3)
    dock.input.choose_features("intensity")
    viewer.dims.set_current_step(0, 2)
    dock._new.click()
    return dock


@pytest.fixture
def settle(scribbles, qtbot):
    """Wait until nothing is left to follow."""

    def wait():
        qtbot.wait(REST_MILLISECONDS)
        qtbot.waitUntil(lambda: not scribbles.session.is_running, timeout=TIMEOUT)

    return wait


@pytest.fixture
def go(viewer, settle):
    """Go to a slice, and wait."""

    def to(position):
        viewer.dims.set_current_step(0, position)
        settle()

    return to


@pytest.fixture
def paint(viewer, scribbles, settle):
    """Paint a short stroke on the slice on screen, and wait for the labels."""

    def stroke(place, number, waits=True):
        at = np.full(3, viewer.dims.current_step[0])
        rows = np.arange(place[0] - 1, place[0] + 2)
        scribbles.strokes.layer.data_setitem((at, rows, np.full(3, place[1])), number)
        if waits:
            settle()

    return stroke


@pytest.fixture
def painted(scribbles, go, paint):
    """The dock after two strokes on slice 2 and two on slice 3, which is on screen."""
    for position in (2, 3):
        go(position)
        paint(BALL, 1)
        paint(CORNER, 2)
    return scribbles


def result_at(viewer, position):
    (layer,) = (
        layer
        for layer in viewer.layers
        if isinstance(layer, Labels)
        and "from strokes" in layer.name
        and layer.translate[0] == position
    )
    return layer


def shares_of(dock):
    return [dock.classes.share_text(number) for number in (1, 2)]


def test_labels_are_in_sight_after_each_stroke(painted, viewer, go, paint):
    go(2)
    paint((14, 14), 2)
    assert result_at(viewer, 2).visible and result_at(viewer, 3).visible


def test_labels_that_another_dock_hid_come_back_with_a_stroke(painted, viewer, run, go, paint):
    segment = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")[1]
    run(segment)
    assert not result_at(viewer, 3).visible and result_at(viewer, 2).visible
    paint((14, 14), 2)
    assert result_at(viewer, 3).visible
    assert not next(layer for layer in viewer.layers if layer.name == "stack [SAF]").visible
