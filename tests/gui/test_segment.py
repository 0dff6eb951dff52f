"""The Segment dock from click to labels."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, stack, tooltips
from napari.layers import Labels
from qtpy.QtWidgets import QMainWindow

import napari_saf as saf
from napari_saf._gui.layers.metadata import is_regions
from napari_saf._gui.segment.dock import SegmentWidget

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


def result_layers(viewer):
    return [layer for layer in viewer.layers if isinstance(layer, Labels) and not is_regions(layer)]


def test_a_run_shows_the_labels_of_python_and_what_repeats_it(viewer, dock, run):
    result = run(dock)
    options = dock.input.read().job().options
    problem = saf.Problem.from_image(
        blocks(), window=options.window, features=options.features, weights="uniform", max_side=None
    )
    expected = saf.SelfAssignmentFlow().run(problem)
    (layer,) = result_layers(viewer)
    np.testing.assert_array_equal(layer.data, expected.labels)
    assert layer.data.dtype == np.uint8
    assert result.status is expected.status
    assert layer.name == "blocks [SAF]"
    assert dock.status.text.startswith("converged: ")
    assert not dock.controller.is_running

    entry = layer.metadata["napari_saf"]
    assert entry["recipe"]["method"] == "saf"
    assert entry["status"] == result.status.value
    np.testing.assert_array_equal(entry["prototypes"], result.prototypes)
    np.testing.assert_array_equal(entry["numbers"], result.label_map.numbers)

    assert len(tooltips(dock.swatches)) == result.n_labels
    shares = [float(text.split()[2]) for text in tooltips(dock.swatches)]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))


def test_every_region_keeps_its_colour(viewer, dock, qtbot, monkeypatch):
    shown = []
    dock.controller.advanced.connect(
        lambda frame: shown.append((frame.labels, dock.controller.live.layer.colormap))
    )
    result_of = []
    dock.controller.returned.connect(result_of.append)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
    (layer,) = result_layers(viewer)
    _, running = shown[0]
    for label, column in enumerate(result_of[0].columns, start=1):
        np.testing.assert_allclose(layer.colormap.map(label), running.map(int(column) + 1))


def test_stop_leaves_a_valid_labelling(viewer, dock, long_run, qtbot):
    long_run(dock)
    results = []
    dock.controller.returned.connect(results.append)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.panel.stop_button.click()
    assert results[0].status is saf.Status.CANCELLED
    (layer,) = result_layers(viewer)
    np.testing.assert_array_equal(layer.data, results[0].labels)
    assert layer.data.min() >= 1
    assert dock.status.text.startswith("stopped: ")
    assert dock.run_button.isEnabled() and not dock.panel.stop_button.isEnabled()


def test_stop_before_the_first_labels(dock, qtbot):
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
        dock.panel.stop_button.click()
    assert dock.status.text.startswith("stopped")


def test_run_again_ends_the_old_run_and_starts_a_new_one(viewer, dock, long_run, qtbot):
    long_run(dock)
    results = []
    dock.controller.returned.connect(results.append)
    dock.form.set_values({"stop.max_steps": 3})
    with qtbot.waitSignals([dock.controller.finished] * 2, timeout=TIMEOUT):
        dock.start()
    assert [r.status for r in results] == [saf.Status.CANCELLED, saf.Status.MAX_ITERATIONS]
    first, second = result_layers(viewer)
    assert not first.visible and second.visible
    np.testing.assert_array_equal(first.data, results[0].labels)
    np.testing.assert_array_equal(second.data, results[1].labels)


def test_only_the_last_of_several_clicks_is_run(dock, long_run, qtbot):
    long_run(dock)
    began = []
    dock.controller.began.connect(lambda: began.append(True))
    dock.form.set_values({"stop.max_steps": 2})
    with qtbot.waitSignals([dock.controller.finished] * 2, timeout=TIMEOUT):
        dock.start()
        dock.start()
        dock.start()
    assert len(began) == 1


@pytest.mark.parametrize("which", ["image", "result"])
def test_removing_a_layer_ends_the_run_and_it_is_said(viewer, dock, long_run, qtbot, which):
    long_run(dock)
    layer = dock.input.image if which == "image" else dock.controller.live.layer
    n_layers = len(viewer.layers)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        viewer.layers.remove(layer)
    assert len(viewer.layers) == n_layers - 1
    assert layer not in viewer.layers
    if which == "result":
        assert dock.status.text == "stopped: the layer of its labels was removed"
    else:
        assert dock.status.text.startswith("no image")
        (result,) = result_layers(viewer)
        assert result.data.min() >= 1


def test_it_is_said_that_the_image_of_a_run_was_removed(viewer, dock, long_run, qtbot):
    viewer.add_image(blocks()[::-1], name="second")
    long_run(dock)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        viewer.layers.remove(dock.input.image)
    assert dock.status.text == "stopped: its image was removed"


@pytest.mark.parametrize("which", ["mask", "strokes"])
def test_a_run_goes_on_without_the_layers_it_has_read(viewer, dock, long_run, qtbot, which):
    painted = np.zeros((32, 32), dtype=int)
    painted[2:30, 2:16], painted[2:30, 16:30] = 1, 2
    layer = viewer.add_labels(painted, name="painted")
    dock.input.choose(**{which: layer})
    long_run(dock)
    viewer.layers.remove(layer)
    with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
        pass
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.controller.stop()
    (result,) = result_layers(viewer)
    np.testing.assert_array_equal(result.data[painted > 0] > 0, True)


def test_removing_the_image_before_the_first_labels_leaves_nothing(viewer, dock, qtbot):
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
        viewer.layers.clear()
    assert len(viewer.layers) == 0


def test_renaming_layers_does_no_harm(viewer, dock, long_run, qtbot):
    long_run(dock)
    dock.input.image.name = "another"
    dock.controller.live.layer.name = "mine"
    assert dock.input.image.name == "another"
    with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
        pass
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.controller.stop()
    (layer,) = result_layers(viewer)
    assert layer.name == "mine" and "napari_saf" in layer.metadata


def test_a_result_whose_array_was_replaced_is_left_alone(viewer, dock, long_run, qtbot):
    long_run(dock)
    (layer,) = result_layers(viewer)
    mine = np.full(layer.data.shape, 7, dtype=np.uint8)
    layer.data = mine
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.controller.stop()
    assert layer.data is mine and (mine == 7).all()


def test_painting_and_undo_during_a_run_raise_nothing(viewer, dock, long_run, qtbot):
    long_run(dock)
    (layer,) = result_layers(viewer)
    layer.paint((3, 3), 2)
    with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
        pass
    layer.undo()
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.controller.stop()


def test_closing_the_window_ends_the_run(viewer, qtbot, long_run):
    viewer.add_image(blocks())
    dock, frame = SegmentWidget(viewer), QMainWindow()
    qtbot.addWidget(frame)
    frame.setCentralWidget(dock)
    frame.show()
    long_run(dock)
    run = dock.controller.run
    frame.close()
    qtbot.waitUntil(lambda: run.wait(0), timeout=60_000)
    assert not dock.controller.is_running


def test_the_samples_open(viewer):
    from napari_saf.samples import SAMPLES

    for key in SAMPLES:
        viewer.layers.clear()
        viewer.open_sample("napari-saf", key)
        assert len(viewer.layers) == 1


def test_run_is_greyed_with_the_reason_where_it_can_only_fail(viewer, qtbot):
    dock = SegmentWidget(viewer)
    qtbot.addWidget(dock)
    assert not dock.run_button.isEnabled() and "no image" in dock.status.text
    viewer.add_image(blocks())
    assert dock.run_button.isEnabled() and not dock.status.text
    for method in ("af", "laplacianshot"):
        dock.form.choose(method)
        assert not dock.run_button.isEnabled()
        assert "paint strokes of two classes first" in dock.status.text
        assert dock.run_button.toolTip() == dock.status.text
    strokes = np.zeros(blocks().shape[:2], dtype=int)
    strokes[0, 0], strokes[-1, -1] = 1, 2
    dock.input.choose(strokes=viewer.add_labels(strokes))
    assert dock.run_button.isEnabled() and not dock.status.text
    viewer.layers.clear()
    assert not dock.run_button.isEnabled()


def shown(dock):
    """Return what a dock shows of a result."""
    return dock.status.text, tooltips(dock.swatches), not dock.regions.isHidden()


def test_what_is_shown_belongs_to_the_image_that_is_chosen(viewer, dock, run, long_run, qtbot):
    first, second = viewer.layers[0], viewer.add_image(blocks()[::-1], name="second")
    run(dock)
    assert all(shown(dock))
    dock.input.choose(image=second)
    assert not any(shown(dock))
    # A run under way keeps its status; what came of it then is no result of the image chosen.
    before = dock.form.values()
    long_run(dock)
    dock.input.choose(image=first)
    assert dock.status.text and tooltips(dock.swatches)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.controller.stop()
    text, *results = shown(dock)
    assert text.startswith("second: ") and not any(results)
    # Nor is anything left of one that is removed, at rest or in a run.
    dock.form.set_values(before)
    dock.input.choose(image=second)
    run(dock)
    assert all(shown(dock))
    viewer.layers.remove(second)
    assert not any(shown(dock))
    long_run(dock)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        viewer.layers.remove(first)
    text, *results = shown(dock)
    assert text.startswith("no image") and not any(results)


def test_names_of_results_say_what_differs(viewer, dock, run):
    dock.form.set_values({"max_labels": 3})
    run(dock)
    dock.input.scale.set_value(7)
    dock.input.choose(features="intensity", max_side=240)
    dock.form.set_values({"max_labels": None, "device": "cpu"})
    run(dock)
    dock.form.set_values({"s": 0.25, "stop.max_steps": 50, "stop.entropy": 0.01})
    run(dock)
    names = {layer.name for layer in result_layers(viewer)}
    first, second = "blocks [SAF, Labels 3]", "blocks [SAF, Scale 7, 240 px]"
    assert {first, second} < names
    (third,) = names - {first, second}
    assert third.startswith(second[:-1]) and third.endswith(", …]")


@pytest.mark.parametrize(("axis", "word"), [("z", "slice"), ("time", "frame")])
def test_what_of_a_stack_is_labelled_is_said(viewer, dock, run, axis, word):
    image = viewer.add_image(stack(), name="stack", axis_labels=(axis, "y", "x"))
    dock.input.choose(image=image)
    viewer.dims.set_current_step(0, 2)
    assert dock.input.choices["extent"].currentText() == f"this {word}"
    run(dock)
    words = f"{word} 3 of 5 is labelled: {word.capitalize()}s labels all"
    assert dock.status.text.splitlines()[1] == words
    dock.input.choose(extent="volume")
    run(dock)
    assert words not in dock.status.text


def test_in_3_d_the_ground_is_seen_through(viewer, dock, run):
    dock.input.choose(image=viewer.add_image(stack(), name="stack"), extent="volume")
    run(dock)
    layer = dock.result
    before = layer.colormap.colors.copy()
    ground = np.bincount(layer.data.ravel()).argmax()
    for _ in range(2):  # also of a run that ends in that view
        viewer.dims.ndisplay = 3
        assert np.flatnonzero(layer.colormap.colors[1:, 3] == 0).tolist() == [ground - 1]
        run(dock)
        assert np.flatnonzero(layer.colormap.colors[1:, 3] == 0).tolist() == [ground - 1]
        viewer.dims.ndisplay = 2
        np.testing.assert_array_equal(layer.colormap.colors, before)
