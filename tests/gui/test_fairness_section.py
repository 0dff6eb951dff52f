"""The Fairness section of the Segment dock, and typical pixels as points."""

import gc

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, layer_of, table_texts
from qtpy.QtCore import Qt

from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.segment.dock import SegmentWidget

pytestmark = pytest.mark.gui


@pytest.fixture
def viewer(model_or_window):
    return model_or_window


@pytest.fixture
def fair(dock):
    dock.form.choose("fair")
    dock.form.set_values({"n_clusters": 3, "n_starts": 1})
    return dock


def sweep(qtbot, dock):
    with qtbot.waitSignal(dock.controller.finished, timeout=TIMEOUT):
        qtbot.mouseClick(dock.fairness.button, Qt.MouseButton.LeftButton)


def test_groups_are_read_from_a_channel_unless_labels_are_chosen(fair, viewer, run):
    scale = fair.input.scale
    assert not fair.fairness.isHidden() and not fair.choice.is_shown(scale)
    fair.form.set_values({"objective": "ncut"})
    assert fair.choice.is_shown(scale)  # where it matters
    fair.form.set_values({"objective": "kmeans"})
    result = run(fair)
    assert result.recipe["input"]["groups"] == "channel:0"
    assert np.isfinite(result.history.measures["fairness_error"][-1])
    table = fair.fairness.table
    rows = table_texts(table)
    assert len(rows) == result.n_labels + 1
    assert all("→" in text for row in rows[:-1] for text in row)
    wells = np.where(np.arange(32) < 16, 5, 2**31 - 1) * np.ones((32, 1), int)
    layer = viewer.add_labels(wells.astype(np.int32), name="wells")
    assert fair.input.choices["groups"].value == "channel:0"
    fair.input.choose(groups=layer)
    result = run(fair)
    left, right = (
        np.bincount(half.ravel(), minlength=4)[1:] for half in np.hsplit(result.labels, 2)
    )
    np.testing.assert_allclose(left / (left + right), 0.5, atol=0.1)
    headings = [table.horizontalHeaderItem(k).text() for k in range(table.columnCount())]
    assert headings == ["group 5", f"group {2**31 - 1}"]
    fair.form.choose("slk")
    assert fair.fairness.isHidden()


def test_groups_follow_the_slices_until_others_are_chosen(model, open_on, run):
    model.add_image(np.stack([blocks(8)] * 3), name="stack", rgb=True)
    dock = open_on(model, SegmentWidget)
    dock.form.choose("fair")
    dock.form.set_values({"n_clusters": 2})
    groups, extent = (dock.input.choices[name] for name in ("groups", "extent"))
    seen = []
    for value in ("slice", "each", "slice", "each"):
        extent.choose(value)
        seen.append(groups.value)
    assert seen == ["channel:0", "axis:0"] * 2
    result = run(dock)
    assert result.recipe["input"]["groups"] == "axis:0" and result.labels.shape == (3, 8, 8)
    groups.setCurrentIndex(groups.values().index("channel:2"))
    groups.activated.emit(groups.currentIndex())  # as a person does
    for value in ("slice", "each"):
        extent.choose(value)
        assert groups.value == "channel:2"
    dock.input.choose(groups="axis:0")
    extent.choose("slice")  # where slices are no groups
    extent.choose("each")
    assert groups.value == "axis:0"


def test_a_solution_of_the_trade_off_is_shown_until_the_next_run(viewer, fair, qtbot, run):
    fair.input.choose(image=viewer.add_image(blocks(12), name="small", rgb=True))
    sweep(qtbot, fair)
    plot, layer = fair.fairness, viewer.layers[-1]
    points = plot.trade_off.points
    np.testing.assert_array_equal(layer.data, points[-1].segmentation.labels)
    errors = np.diff(plot.places[:, 0])
    assert (errors <= 0).all() and errors.any()  # from plain to fair, as the slider runs
    plot.slider.setValue(3)
    np.testing.assert_array_equal(layer.data, points[3].segmentation.labels)
    recipe = layer.metadata[METADATA_KEY]["recipe"]
    assert recipe["parameters"] == points[3].segmentation.recipe["parameters"]
    plot.choose(0)  # before and after are the same
    for row in table_texts(plot.table)[:-1]:
        for text in row:
            before, after = text.removesuffix(" %").split(" → ")
            assert before == after
    fair.form.set_values({"max_iterations": 2})
    run(fair)
    assert plot.trade_off is None and plot.slider_row.isHidden()


def test_a_sweep_can_be_stopped(fair, qtbot, viewer):
    viewer.add_image(np.random.default_rng(0).random((400, 400, 3)), rgb=True, name="large")
    fair.input.choose(image=viewer.layers["large"])
    complete = []
    fair.controller.swept.connect(lambda found: complete.append(found.is_complete))
    with qtbot.waitSignal(fair.controller.finished, timeout=TIMEOUT):
        with qtbot.waitSignal(fair.controller.advanced, timeout=TIMEOUT):
            fair.start(is_sweep=True)
        fair.controller.stop()
    assert not any(complete)


def test_typical_pixels_lie_on_the_image_and_are_of_these_labels_alone(dock, viewer, run):
    dock.form.choose("slk")
    dock.form.set_values({"n_clusters": 4})
    viewer.layers["blocks"].scale = (2, 3)
    run(dock)
    labels, points = viewer.layers[-2], viewer.layers[-1]
    assert viewer.layers.selection.active is labels
    np.testing.assert_array_equal(points.scale, (2, 3))
    dock.form.set_values({"n_clusters": 3})
    run(dock)
    assert not labels.visible and not points.visible
    gc.collect()
    labels.visible = True
    assert points.visible


def test_typical_pixels_and_shares_have_the_numbers_of_painted_labels(dock, viewer, run):
    strokes = np.zeros((32, 32), np.uint8)
    strokes[2:6, 2:6], strokes[26:30, 26:30] = 2, 5
    dock.input.choose(strokes=viewer.add_labels(strokes, name="strokes"))
    dock.form.choose("slk")
    dock.form.set_values({"prototypes": "bo", "new_labels": False})
    run(dock)
    assert not dock.status.is_error, dock.status.text
    points = next(layer for layer in viewer.layers if layer.name.endswith("typical pixels"))
    labels = layer_of(viewer, "blocks [SLK")
    assert points.features["label"].tolist() == [2, 5]
    for at, color, number in zip(points.data, points.face_color, (2, 5), strict=True):
        np.testing.assert_allclose(color, labels.get_color(number), atol=1e-6)
        assert labels.data[tuple(at.astype(int))] == number
    dock.form.choose("fair")
    dock.input.choose(groups="channel:0")
    dock.form.set_values({"n_clusters": 2})
    run(dock)
    assert np.unique(layer_of(viewer, "blocks [FAIR").data).tolist() == [2, 5]
    table = dock.fairness.table
    rows = [table.verticalHeaderItem(row).text() for row in range(table.rowCount())]
    assert rows == ["2", "5", "all"]
