"""The Diagnostics dock: curves, back in time, on from there."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from gui_cases import TIMEOUT, asked_for, blocks, layer_of, stack, table_texts, values_at_cursor
from qtpy.QtCore import QEvent, QPoint, QPointF, Qt
from qtpy.QtGui import QMouseEvent

import napari_saf as saf
from napari_saf._gui.diagnostics.dock import DiagnosticsWidget
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.runs.controller import RunController, RunsOfViewer
from napari_saf._gui.scribbles.dock import ScribblesWidget

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


@pytest.fixture
def diagnostics(viewer, dock, open_dock, monkeypatch):
    """The dock beside the Segment dock; every step is recorded."""
    monkeypatch.setattr(saf.Recording.__init__, "__kwdefaults__", {"memory": 2**24, "share": 1e9})
    return open_dock(viewer, DiagnosticsWidget)


def settle(qtbot, widget):
    """Wait until what was calculated aside is on screen."""
    qtbot.waitUntil(lambda: not widget.panel.is_calculating, timeout=TIMEOUT)


def slide(qtbot, widget, place):
    """Move the slider and wait until the labels of that time are on screen."""
    widget.slider.setValue(place)
    at_end = place == widget.slider.maximum()

    def is_shown():
        layer = widget.earlier.labels
        return layer is not None and layer.name.endswith(f"t = {widget.slider.time:.3g}")

    qtbot.waitUntil(lambda: at_end or is_shown(), timeout=TIMEOUT)
    settle(qtbot, widget)


def layers_named(viewer, part):
    return [layer for layer in viewer.layers if part in layer.name]


def result_of(viewer):
    return layer_of(viewer, "blocks [SAF")


def point_to(plot, time):
    """Click on the curves at a time."""
    x = next(x for x in range(3000) if plot.time_at(x) >= time)
    at, left = QPointF(QPoint(x, 20)), Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    plot.mousePressEvent(QMouseEvent(QEvent.Type.MouseButtonPress, at, at, left, left, none))


def stop(qtbot, dock):
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.panel.stop_button.click()


def test_curves_and_labels_of_a_run_of_another_dock(viewer, diagnostics, dock, run, qtbot):
    result = run(dock)
    layer, entropy = result_of(viewer), result.history.entropy
    before, end = layer.data.copy(), diagnostics.slider.maximum()
    names = {"undecided", "label shares", "labels in use, at most", "objective", "changed"}
    assert set(values_at_cursor(diagnostics.plot)) == names
    assert values_at_cursor(diagnostics.plot)["undecided"] == f"{entropy[-1]:.3g} nats"
    assert diagnostics.slider.times[0] == 0
    assert diagnostics.slider.times[-1] == result.history.time[-1] == diagnostics.slider.time

    picture = diagnostics.plot.grab().toImage()
    slide(qtbot, diagnostics, 3)
    assert diagnostics.plot.grab().toImage() != picture  # the cursor moved
    (earlier,) = layers_named(viewer, "at t =")
    assert earlier.visible and not layer.visible
    assert "step 3" in diagnostics.description.text()
    assert values_at_cursor(diagnostics.plot)["undecided"] == f"{entropy[3]:.3g} nats"
    recorded = diagnostics.recorded.recording.labels[3].labels()[0]
    for number, column in enumerate(result.columns, start=1):
        np.testing.assert_array_equal(earlier.data == number, recorded == column + 1)
        np.testing.assert_allclose(earlier.get_color(number), layer.get_color(number))

    slide(qtbot, diagnostics, end)
    assert layer.visible and not earlier.visible
    np.testing.assert_array_equal(layer.data, before)
    middle = diagnostics.slider.times[-1] / 2
    point_to(diagnostics.plot, middle)
    nearest = np.abs(diagnostics.slider.times - middle).min()
    assert abs(diagnostics.slider.time - middle) <= nearest + diagnostics.slider.times[-1] / 200


def test_entropy_and_separability_are_of_the_time_that_is_chosen(
    viewer, diagnostics, dock, run, qtbot
):
    result = run(dock)
    diagnostics.entropy.setChecked(True)
    settle(qtbot, diagnostics)
    (layer,) = layers_named(viewer, "entropy at t =")
    assert layer.data.shape == blocks().shape[:2]
    late = layer.data.mean()
    slide(qtbot, diagnostics, 0)
    assert layer.data.mean() > late and layer.data.max() <= 1
    slide(qtbot, diagnostics, diagnostics.slider.maximum())
    diagnostics.apart_fold.expand(animate=False)
    settle(qtbot, diagnostics)
    features = diagnostics.recorded.problem.features
    whole = saf.metrics.class_separability(features, result.labels.ravel())
    apart = diagnostics.separability
    assert f"{whole:.3g}" in apart.summary.text()
    assert len(table_texts(apart.table)) == result.n_labels
    diagnostics.entropy.setChecked(False)
    assert not layer.visible


def test_resume_ends_as_the_run_did(viewer, diagnostics, dock, run, qtbot):
    run(dock)
    layer = result_of(viewer)
    before, history = layer.data.copy(), layer.metadata[METADATA_KEY]["history"]
    slide(qtbot, diagnostics, 4)
    at = diagnostics.slider.time
    later = run(diagnostics, diagnostics.resume_button.click)
    assert result_of(viewer) == layer and layer.visible
    assert np.mean(layer.data == before) >= 0.99
    assert later.status is saf.Status.CONVERGED
    joined = layer.metadata[METADATA_KEY]["history"]
    np.testing.assert_array_equal(joined.time[:5], history.time[:5])
    assert joined.time[4] == at and (np.diff(joined.time) > 0).all()
    assert diagnostics.slider.times[-1] == joined.time[-1]

    before = layer.data.copy()
    viewer.layers["blocks"].data = blocks(16)
    diagnostics.runs[-1].run.job = dataclasses.replace(
        diagnostics.runs[-1].job, image_job=dock.input.read().job()
    )
    run(diagnostics, diagnostics.resume_button.click)
    assert diagnostics.status.is_error and "expected shape" in diagnostics.status.text
    np.testing.assert_array_equal(layer.data, before)
    np.testing.assert_array_equal(diagnostics.slider.times[-1:], joined.time[-1:])

    slide(qtbot, diagnostics, 1)
    viewer.layers.remove(diagnostics.earlier.labels)
    assert layer.visible and diagnostics.slider.time == diagnostics.slider.times[-1]


def test_a_branch_has_settings_and_a_layer_of_its_own(viewer, diagnostics, dock, run, qtbot):
    dock.input.choose(image=viewer.add_image(stack(n_slices=3, side=12), name="stack"))
    dock.input.choose(extent="each")  # slices are labelled by themselves
    dock.input.scale.set_value(3)
    run(dock)
    layer = layer_of(viewer, "stack [SAF")
    before, branch = layer.data.copy(), diagnostics.branch
    slide(qtbot, diagnostics, 1)
    assert branch.form is None
    diagnostics.branch_fold.expand(animate=False)
    form = branch.form
    assert "max_labels" not in asked_for(form) and "s" in asked_for(form)
    assert branch.is_shown(branch.scale) and branch.scale.value == 3
    form.set_values({"s": 0.5})
    branch.scale.set_value(7)
    diagnostics.branch_fold.collapse(animate=False)
    diagnostics.branch_fold.expand(animate=False)
    assert branch.form is form
    run(diagnostics, branch.button.click)
    (made,) = layers_named(viewer, "[SAF from t =")
    recipe = made.metadata[METADATA_KEY]["recipe"]
    assert recipe["parameters"]["s"] == 0.5 and recipe["input"]["window"] == (1, 7, 7)
    np.testing.assert_array_equal(layer.data, before)
    assert made.visible and not layer.visible
    diagnostics.choice.choose(layer)
    assert diagnostics.slider.time == diagnostics.slider.times[-1]


def test_slide_while_running_then_stop_and_go_on(viewer, diagnostics, dock, long_run, qtbot):
    long_run(dock)
    qtbot.waitUntil(lambda: len(diagnostics.recorded.recording.labels) > 4, timeout=TIMEOUT)
    diagnostics.refresh()
    slide(qtbot, diagnostics, 1)
    at = diagnostics.slider.time
    assert not diagnostics.resume_button.isEnabled()
    diagnostics.refresh()
    assert diagnostics.slider.time == at
    stop(qtbot, dock)
    slide(qtbot, diagnostics, diagnostics.slider.maximum())
    assert result_of(viewer).visible

    stopped_at = diagnostics.slider.times[-1]
    with qtbot.waitSignal(diagnostics.controller.advanced, timeout=TIMEOUT):
        diagnostics.resume_button.click()
    n_before = len(diagnostics.recorded.recording)
    qtbot.waitUntil(lambda: len(diagnostics.recorded.recording) > n_before, timeout=TIMEOUT)
    stop(qtbot, diagnostics)
    assert diagnostics.slider.times[-1] > stopped_at
    shown = [layer for layer in viewer.layers if layer.visible]
    assert shown == [viewer.layers["blocks"], result_of(viewer)]


def test_a_layer_deleted_while_recorded(viewer, diagnostics, dock, long_run, qtbot):
    long_run(dock)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        viewer.layers.remove(result_of(viewer))
    assert not diagnostics.runs and not len(diagnostics.slider.times)
    long_run(dock)
    qtbot.waitUntil(lambda: len(diagnostics.recorded.recording.labels) > 1, timeout=TIMEOUT)
    stop(qtbot, dock)
    slide(qtbot, diagnostics, 0)
    viewer.layers.remove(result_of(viewer))
    settle(qtbot, diagnostics)
    assert [layer.name for layer in viewer.layers] == ["blocks"]
    assert not len(diagnostics.slider.times) and not diagnostics.resume_button.isEnabled()
    assert diagnostics.recorded is None and not diagnostics.runs


def test_opened_and_closed_while_running(viewer, dock, open_on, long_run, qtbot):
    long_run(dock)
    assert dock.controller.run.recording is None
    diagnostics = open_on(viewer, DiagnosticsWidget)
    qtbot.waitUntil(lambda: len(diagnostics.recorded.recording) > 2, timeout=TIMEOUT)
    recording = weakref.ref(diagnostics.recorded.recording)
    diagnostics.shut_down()
    assert dock.controller.run.recording is None
    stop(qtbot, dock)
    gc.collect()
    assert recording() is None


def test_nothing_is_recorded_when_nobody_looks_and_then_the_last_two_runs(
    viewer, dock, open_on, run
):
    recordings = []
    dock.controller.began.connect(lambda: recordings.append(dock.controller.run.recording))
    run(dock)
    assert recordings == [None]
    diagnostics = open_on(viewer, DiagnosticsWidget)
    history = result_of(viewer).metadata[METADATA_KEY]["history"]
    np.testing.assert_array_equal(diagnostics.slider.times, history.time)
    assert "not recorded" in diagnostics.description.text()
    assert not diagnostics.resume_button.isEnabled()
    for max_steps in (4, 5, 6):
        dock.form.set_values({"stop.max_steps": max_steps})
        run(dock)
    assert len(diagnostics.runs) == 2 and diagnostics.choice.count() == 4


def test_strokes_keep_their_numbers_and_colours(viewer, diagnostics, open_on, qtbot, run):
    scribbles = open_on(viewer, ScribblesWidget)
    scribbles.follow.setChecked(False)
    scribbles.input.choose(max_side=None)
    scribbles.new_strokes()
    strokes = scribbles.strokes.layer
    strokes.data[2:6, 2:6] = 2
    strokes.data[26:30, 26:30] = 5
    run(scribbles)
    result = scribbles.result
    slide(qtbot, diagnostics, 1)
    (earlier,) = layers_named(viewer, "at t =")
    assert set(np.unique(earlier.data)) <= {2, 5}
    np.testing.assert_allclose(earlier.get_color(5), result.get_color(5))
    run(diagnostics, diagnostics.resume_button.click)
    assert set(np.unique(result.data)) == {2, 5}


def test_a_run_ends_others_that_write_to_its_layer(model):
    runs, live, stopped = RunsOfViewer(), object(), []
    controllers = [RunController(model, runs) for _ in range(4)]
    for k, own in enumerate((live, live, object(), None)):
        controllers[k].run = SimpleNamespace(live=own, cancel=partial(stopped.append, k))
    runs.began.emit(controllers[1])
    assert stopped == [0]
