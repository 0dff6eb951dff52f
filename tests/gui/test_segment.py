"""The Segment dock from click to labels."""

from __future__ import annotations

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, stack, tooltips
from napari.layers import Labels

import napari_saf as saf
from napari_saf._gui.layers.metadata import is_regions
from napari_saf._gui.layers.placement import NO_IMAGE
from napari_saf._gui.segment.dock import SegmentWidget

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model):
    return model


def result_layers(viewer):
    return [layer for layer in viewer.layers if isinstance(layer, Labels) and not is_regions(layer)]


def test_a_run_shows_the_labels_of_python_and_what_repeats_it(viewer, dock, run):
    shown = []
    dock.controller.advanced.connect(lambda _: shown.append(dock.controller.live.layer.colormap))
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

    entry = layer.metadata["napari_saf"]
    assert entry["recipe"]["method"] == "saf"
    assert entry["status"] == result.status.value
    np.testing.assert_array_equal(entry["prototypes"], result.prototypes)
    np.testing.assert_array_equal(entry["numbers"], result.label_map.numbers)

    for label, column in enumerate(result.columns, start=1):  # each keeps its colour
        np.testing.assert_allclose(layer.colormap.map(label), shown[0].map(int(column) + 1))
    shares = [float(text.split()[2]) for text in tooltips(dock.swatches)]
    assert len(shares) == result.n_labels and shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))


def test_stop_leaves_a_valid_labelling(viewer, dock, long_run, qtbot):
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.start()
        dock.panel.stop_button.click()  # before there are labels
    assert dock.status.text.startswith("stopped")
    long_run(dock)
    results = []
    dock.controller.returned.connect(results.append)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.panel.stop_button.click()
    assert results[0].status is saf.Status.CANCELLED
    *_, layer = result_layers(viewer)
    np.testing.assert_array_equal(layer.data, results[0].labels)
    assert layer.data.min() >= 1
    assert dock.status.text.startswith("stopped: ")
    assert dock.run_button.isEnabled() and not dock.panel.stop_button.isEnabled()


def test_clicks_in_a_run_end_it_and_start_another(viewer, dock, long_run, qtbot):
    long_run(dock)
    results, began = [], []
    dock.controller.returned.connect(results.append)
    dock.controller.began.connect(lambda: began.append(True))
    dock.form.set_values({"stop.max_steps": 3})
    with qtbot.waitSignals([dock.controller.finished] * 2, timeout=TIMEOUT):
        for _ in range(3):
            dock.start()
    assert len(began) == 1
    assert [r.status for r in results] == [saf.Status.CANCELLED, saf.Status.MAX_ITERATIONS]
    first, second = result_layers(viewer)
    assert not first.visible and second.visible
    np.testing.assert_array_equal(first.data, results[0].labels)
    np.testing.assert_array_equal(second.data, results[1].labels)


def test_removing_a_layer_ends_the_run_and_it_is_said(viewer, dock, long_run, qtbot):
    first = dock.input.image
    viewer.add_image(blocks()[::-1], name="second")
    dock.input.choose(image=first)
    for which in ("result", "image"):
        long_run(dock)
        layer = first if which == "image" else dock.controller.live.layer
        with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
            viewer.layers.remove(layer)
        assert layer not in viewer.layers
        words = {"image": "its image", "result": "the layer of its labels"}[which]
        assert dock.status.text == f"stopped: {words} was removed"
    (result,) = result_layers(viewer)
    assert result.data.min() >= 1


def test_a_run_goes_on_without_the_layers_it_has_read(viewer, dock, long_run, qtbot):
    painted = np.zeros((32, 32), dtype=int)
    painted[2:30, 2:16], painted[2:30, 16:30] = 1, 2
    layers = [viewer.add_labels(painted * k, name=f"painted {k}") for k in (1, 2)]
    dock.input.choose(mask=layers[0], strokes=layers[1])
    long_run(dock)
    for layer in layers:
        viewer.layers.remove(layer)
    with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
        pass
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.controller.stop()
    (result,) = result_layers(viewer)
    np.testing.assert_array_equal(result.data > 0, painted > 0)


def test_what_a_person_does_to_a_result_during_a_run_does_no_harm(viewer, dock, long_run, qtbot):
    """Names it, paints, takes that back, and puts another array in its place."""
    long_run(dock)
    (layer,) = result_layers(viewer)
    dock.input.image.name, layer.name = "another", "mine"
    for act in (lambda: layer.paint((3, 3), 2), layer.undo):
        act()
        with qtbot.waitSignal(dock.controller.advanced, timeout=TIMEOUT):
            pass
    layer.data = other = np.full(layer.data.shape, 7, dtype=np.uint8)
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        dock.controller.stop()
    assert result_layers(viewer) == [layer] and layer.name == "mine"
    assert layer.data is other and (other == 7).all()


def test_run_is_greyed_with_the_reason_where_it_can_only_fail(viewer, qtbot):
    dock = SegmentWidget(viewer)
    qtbot.addWidget(dock)
    assert not dock.run_button.isEnabled() and "no image" in dock.status.text
    viewer.add_image(blocks())
    assert dock.run_button.isEnabled() and not dock.status.text
    dock.form.choose("af")
    assert not dock.run_button.isEnabled()
    assert "paint strokes of two classes first" in dock.status.text
    assert dock.run_button.toolTip() == dock.status.text
    strokes = np.zeros(blocks().shape[:2], dtype=int)
    strokes[0, 0], strokes[-1, -1] = 1, 2
    dock.input.choose(strokes=viewer.add_labels(strokes))
    assert dock.run_button.isEnabled() and not dock.status.text


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
    assert text == f"stopped: its image was removed\n{NO_IMAGE}" and not any(results)


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
