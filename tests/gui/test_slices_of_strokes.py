"""Strokes on several slices of a stack: labels, table and locks follow the slice on screen."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import ENDLESS, TIMEOUT, apply_to, lock, rename, share_texts, stack
from napari.layers import Labels
from qtpy.QtCore import QTimer

from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.view import EventWatch
from napari_saf._gui.runs.run import Run
from napari_saf._gui.scribbles.dock import ScribblesWidget
from napari_saf._gui.segment.dock import SegmentWidget

pytestmark = pytest.mark.gui

BALL, CORNER = (8, 8), (1, 1)
REST_MILLISECONDS = 60
"""After which the dock has seen another slice."""


@pytest.fixture
def scribbles(model, open_on):
    model.add_image(stack(), name="stack")
    dock = open_on(model, ScribblesWidget)
    for watch in dock.findChildren(EventWatch):
        watch.findChild(QTimer).setInterval(10)
    dock.input.scale.set_value(3)
    dock.input.choose(features="intensity")
    model.dims.set_current_step(0, 2)
    dock.buttons["new_strokes"].click()
    return dock


@pytest.fixture
def settle(scribbles, qtbot):
    """Wait until nothing is left to follow."""

    def wait():
        qtbot.wait(REST_MILLISECONDS)
        qtbot.waitUntil(lambda: not scribbles.panel.is_busy, timeout=TIMEOUT)

    return wait


@pytest.fixture
def go(model, settle):
    """Go to a slice, and wait."""

    def to(position):
        model.dims.set_current_step(0, position)
        settle()

    return to


@pytest.fixture
def paint(model, scribbles, settle):
    """Paint a short stroke on the slice on screen, and wait for the labels."""

    def stroke(place, number, waits=True):
        at = np.full(3, model.dims.current_step[0])
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
        paint(BALL, 1, waits=False)
        paint(CORNER, 2)
    return scribbles


def result_at(model, position):
    (layer,) = (
        layer
        for layer in model.layers
        if isinstance(layer, Labels)
        and "from strokes" in layer.name
        and layer.translate[0] == position
    )
    return layer


def shares_of(dock):
    return [share_texts(dock.classes).get(number) for number in (1, 2)]


def keeps(dock, model, position, pixels, number):
    """Tell whether pixels have a label still, but where another stroke was painted on them."""
    unpainted = dock.strokes.layer.data[position] == 0
    return (result_at(model, position).data[0][pixels[0] & unpainted] == number).all()


def test_labels_are_in_sight_after_each_stroke(painted, open_on, model, run, paint):
    """Also those that another dock has hidden."""
    run(open_on(model, SegmentWidget))
    assert not result_at(model, 3).visible and result_at(model, 2).visible
    paint((14, 14), 2)
    assert not next(layer for layer in model.layers if layer.name == "stack [SAF]").visible
    assert result_at(model, 2).visible and result_at(model, 3).visible


def test_the_table_and_the_status_are_those_of_the_slice_on_screen(painted, go, settle):
    began = []
    painted.controller.began.connect(lambda: began.append(1))
    third = shares_of(painted)
    go(2)
    assert all(shares_of(painted)) and "converged" in painted.status.text
    go(4)
    assert shares_of(painted) == ["", ""]
    assert "paint" in painted.status.text
    go(3)
    assert shares_of(painted) == third and "converged" in painted.status.text
    painted.input.choose(extent="volume")
    assert shares_of(painted) == ["", ""]
    assert painted.status.text == "no labels yet: press Update"
    painted.input.choose(extent="slice")
    assert shares_of(painted) == third and "converged" in painted.status.text
    assert not began
    painted.input.choose(extent="volume")
    extent = painted.input.choices["extent"]
    extent.activated.emit(extent.currentIndex())  # chosen by the person
    settle()
    assert began and painted.result.data.shape == (5, 16, 16)


def test_undo_takes_the_labels_of_another_slice_back(painted, model, go, settle):
    third, second = result_at(model, 3).data.copy(), result_at(model, 2).data.copy()
    go(2)
    began = []
    painted.controller.began.connect(lambda: began.append(1))
    for _ in range(2):
        painted.strokes.layer.undo()
    settle()
    painted.follow.setChecked(False)
    go(3)
    assert not began and result_at(model, 3).data.any()  # nothing starts without Follow
    go(2)
    painted.follow.setChecked(True)
    go(3)
    assert not result_at(model, 3).data.any() and shares_of(painted) == ["", ""]
    go(2)
    for _ in range(2):
        painted.strokes.layer.redo()
    settle()
    go(3)
    np.testing.assert_array_equal(result_at(model, 3).data, third)
    np.testing.assert_array_equal(result_at(model, 2).data, second)


def test_a_run_of_another_slice_leaves_the_table_and_is_followed_on_return(
    painted, model, qtbot, go, paint
):
    values, third = painted.form.values(), result_at(model, 3)
    painted.form.set_values(ENDLESS)
    with qtbot.waitSignal(painted.controller.advanced, timeout=TIMEOUT):
        paint((14, 14), 2, waits=False)
    model.dims.set_current_step(0, 2)
    qtbot.wait(REST_MILLISECONDS)
    painted.classes.set_shares({1: 0.5, 2: 0.5})
    with qtbot.waitSignal(painted.controller.advanced, timeout=TIMEOUT):
        pass
    assert painted.controller.is_running and shares_of(painted) == ["50.0 %", "50.0 %"]
    painted.form.set_values(values)
    paint((14, 14), 2)
    assert third.metadata[METADATA_KEY]["status"] == "cancelled"
    go(3)
    assert third.metadata[METADATA_KEY]["status"] == "converged"


def test_strokes_on_one_slice_label_a_volume_of_fewer_slices_than_the_scale(
    model, scribbles, settle, paint
):
    scribbles.input.scale.set_value(13)
    scribbles.input.choose(extent="volume")
    paint(BALL, 1)
    paint(CORNER, 2)
    assert not scribbles.status.is_error, scribbles.status.text
    labels = scribbles.result.data
    assert labels.shape == (5, 16, 16)
    assert labels[1, 8, 8] == 1 and labels[0, 1, 1] == labels[4, 14, 14] == 2
    assert "scale along axis -3: 5 px" in scribbles.status.text
    apply_to(scribbles, model.add_image(stack(3), name="fewer"))
    settle()
    assert model.layers["fewer [from strokes]"].data.shape == (3, 16, 16)
    assert "scale along axis -3: 3 px" in scribbles.status.text


def test_a_lock_ticked_before_there_are_labels_waits_for_those_that_a_run_ends_with(
    scribbles, model, paint, qtbot
):
    """To name or colour a class meanwhile fixes no pixels."""
    lock(scribbles.classes, 1)
    lock(scribbles.classes, 2)
    paint(BALL, 1)
    paint(CORNER, 3)
    first = result_at(model, 2).data == 1
    assert first.any()
    values = scribbles.form.values()
    scribbles.form.set_values(ENDLESS)
    with qtbot.waitSignal(scribbles.controller.advanced, timeout=TIMEOUT):
        paint((14, 14), 2, waits=False)
    underway = result_at(model, 2).data == 2
    rename(scribbles.classes, 1, "ball")
    scribbles.classes.recolored.emit()
    scribbles.form.set_values(values)
    paint((12, 12), 3)
    assert not keeps(scribbles, model, 2, underway, 2)
    second = result_at(model, 2).data == 2
    paint((14, 12), 3)
    paint((8, 6), 3)
    assert keeps(scribbles, model, 2, second, 2) and keeps(scribbles, model, 2, first, 1)


def test_a_lock_holds_on_all_slices(painted, model, go, paint):
    first = {2: result_at(model, 2).data == 1}
    lock(painted.classes, 1)
    for position in (2, 1):
        go(position)
        if position == 1:
            paint(BALL, 1)
            paint(CORNER, 2)
            first[1] = result_at(model, 1).data == 1
        paint((8, 6), 2)
        assert keeps(painted, model, position, first[position], 1)
    lock(painted.classes, 1, False)
    go(3)
    pixels = result_at(model, 3).data == 1
    paint((8, 9), 2)
    assert not keeps(painted, model, 3, pixels, 1)


def test_a_slice_whose_run_never_began_is_labelled_on_return(
    painted, model, go, paint, qtbot, monkeypatch
):
    values = painted.form.values()
    with monkeypatch.context() as slow:
        slow.setattr(Run, "cancel", lambda run: None)
        painted.form.set_values(ENDLESS)
        paint((14, 14), 2, waits=False)
        qtbot.waitUntil(lambda: painted.controller.is_running, timeout=TIMEOUT)
        for position in (2, 4):
            model.dims.set_current_step(0, position)
            qtbot.wait(REST_MILLISECONDS)
            paint(BALL, 1, waits=False)
            paint((14, 14), 2, waits=False)
            qtbot.wait(REST_MILLISECONDS)
    painted.controller.stop()
    qtbot.waitUntil(lambda: not painted.controller.is_running, timeout=TIMEOUT)
    painted.form.set_values(values)
    began = []
    painted.controller.began.connect(lambda: began.append(1))
    go(2)
    assert began and result_at(model, 2).metadata[METADATA_KEY]["status"] == "converged"
