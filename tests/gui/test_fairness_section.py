"""The Fairness section of the Segment dock, and typical pixels as points."""

import gc

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, layer_of, stack, table_texts
from napari.utils.theme import get_theme
from qtpy.QtCore import QPoint, Qt

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


def test_the_section_is_there_for_methods_that_spread_labels_only(dock):
    assert dock.fairness.isHidden()
    dock.form.choose("fair")
    assert not dock.fairness.isHidden()
    dock.form.choose("slk")
    assert dock.fairness.isHidden()


def test_the_scale_is_asked_where_it_matters(fair):
    scale = fair.input.scale
    assert not fair.choice.is_shown(scale)
    fair.form.set_values({"objective": "ncut"})
    assert fair.choice.is_shown(scale)
    fair.form.choose("saf")
    assert fair.choice.is_shown(scale)


def test_groups_are_read_from_a_channel_by_default(fair, run):
    result = run(fair)
    assert result.recipe["input"]["groups"] == "channel:0"
    assert np.isfinite(result.history.measures["fairness_error"][-1])
    rows = table_texts(fair.fairness.table)
    assert len(rows) == result.n_labels + 1
    assert all("→" in text for row in rows[:-1] for text in row)


@pytest.mark.parametrize("opens_image_first", [True, False])
def test_a_labels_layer_is_taken_as_groups_only_when_asked(viewer, open_on, opens_image_first):
    viewer.add_labels(np.ones((32, 32), int), name="wells")
    dock = None if opens_image_first else open_on(viewer, SegmentWidget)
    viewer.add_image(blocks(), name="blocks")
    dock = dock or open_on(viewer, SegmentWidget)
    dock.form.choose("fair")
    assert dock.input.choices["groups"].currentText() == "red: low and high"


def test_a_labels_layer_makes_groups(fair, viewer, run):
    wells = np.ones((32, 32), dtype=int)
    wells[:, 16:] = 2
    fair.input.choose(groups=viewer.add_labels(wells, name="wells"))
    result = run(fair)
    left = np.bincount(result.labels[:, :16].ravel(), minlength=4)[1:]
    right = np.bincount(result.labels[:, 16:].ravel(), minlength=4)[1:]
    np.testing.assert_allclose(left / (left + right), 0.5, atol=0.1)


def test_slices_of_a_stack_make_groups_where_all_of_them_are_labelled(viewer, open_on, run):
    viewer.add_image(stack(), name="stack")
    dock = open_on(viewer, SegmentWidget)
    dock.form.choose("fair")
    assert "slices" not in dock.input.choices["groups"].currentText()
    dock.input.choose(extent="each")
    dock.form.set_values({"n_clusters": 2})
    result = run(dock)
    assert result.recipe["input"]["groups"] == "axis:0"
    assert result.labels.shape == stack().shape


def test_groups_follow_the_slices_until_others_are_chosen(model, open_on):
    model.add_image(np.stack([blocks()] * 3), name="stack", rgb=True)
    dock = open_on(model, SegmentWidget)
    dock.form.choose("fair")
    groups, extent = (dock.input.choices[name] for name in ("groups", "extent"))
    seen = []
    for value in ("slice", "each", "slice", "each"):
        extent.choose(value)
        seen.append(groups.value)
    assert seen == ["channel:0", "axis:0"] * 2
    groups.setCurrentIndex(groups.values().index("channel:2"))
    groups.activated.emit(groups.currentIndex())  # as a person does
    for value in ("slice", "each"):
        extent.choose(value)
        assert groups.value == "channel:2"
    dock.input.choose(groups="axis:0")
    extent.choose("slice")  # where slices are no groups
    extent.choose("each")
    assert groups.value == "axis:0"


def test_a_click_on_the_trade_off_shows_that_solution_until_the_next_run(viewer, fair, qtbot, run):
    fair.show()
    sweep(qtbot, fair)
    qtbot.waitUntil(fair.fairness.canvas.isVisible, timeout=TIMEOUT)
    qtbot.wait(200)
    points = fair.fairness.trade_off.points
    layer = viewer.layers[-1]
    np.testing.assert_array_equal(layer.data, points[-1].segmentation.labels)
    plot = fair.fairness
    plot.canvas.draw()
    places = plot.axes.transData.transform(plot.places)
    across = np.diff(places[:, 0])
    assert (across >= 0).all() and across.any()  # from plain to fair, as the slider runs
    number = len(points) - 4
    x, y = places[number]
    assert np.abs(np.delete(places, number, axis=0) - (x, y)).sum(axis=1).min() > 5
    ratio = plot.canvas.device_pixel_ratio
    spot = QPoint(round(x / ratio), round((plot.canvas.height() * ratio - y) / ratio))
    qtbot.mouseClick(plot.canvas, Qt.MouseButton.LeftButton, pos=spot)
    np.testing.assert_array_equal(layer.data, points[number].segmentation.labels)
    recipe = layer.metadata[METADATA_KEY]["recipe"]
    assert recipe["parameters"]["fairness_weight"] == points[number].weight
    fair.fairness.slider.setValue(3)
    np.testing.assert_array_equal(layer.data, points[3].segmentation.labels)
    for theme in ("light", "dark"):
        viewer.theme = theme
        assert plot.axes.xaxis.label.get_color() == get_theme(theme).text.as_hex()
        assert plot.axes.lines[-1].get_xdata() == plot.places[3, 0]
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


def test_proportions_are_typed(fair, run):
    fair.form.set_values({"proportions": np.array([0.5, 0.5])})
    assert run(fair).recipe["parameters"]["proportions"] == [0.5, 0.5]


def test_typical_pixels_are_points_in_the_colours_of_their_labels(dock, viewer, run):
    dock.form.choose("slk")
    dock.form.set_values({"n_clusters": 4})
    viewer.layers["blocks"].scale = (2, 3)
    result = run(dock)
    labels, points = viewer.layers[-2], viewer.layers[-1]
    assert viewer.layers.selection.active is labels
    np.testing.assert_array_equal(points.scale, (2, 3))
    for place, color, number in zip(
        points.data.astype(int), points.face_color, points.features["label"], strict=True
    ):
        assert result.labels[tuple(place)] == number
        np.testing.assert_allclose(labels.get_color(number), color, atol=1e-3)
    # They are of these labels alone.
    dock.form.set_values({"n_clusters": 3})
    run(dock)
    assert not labels.visible and not points.visible
    gc.collect()
    labels.visible = True
    assert points.visible


def test_points_of_one_slice_lie_in_that_slice(viewer, open_on, run):
    viewer.add_image(stack(), name="stack")
    dock = open_on(viewer, SegmentWidget)
    dock.form.choose("slk")
    dock.form.set_values({"n_clusters": 2})
    viewer.dims.set_current_step(0, 3)
    run(dock)
    points = viewer.layers[-1]
    np.testing.assert_allclose(points.data_to_world(points.data[0])[0], 3)


def test_points_of_a_volume_lie_where_their_pixels_do(viewer, open_on, run):
    viewer.add_image(stack(), name="stack")
    dock = open_on(viewer, SegmentWidget)
    dock.form.choose("slk")
    dock.form.set_values({"n_clusters": 2})
    dock.input.choose(extent="volume")
    result = run(dock)
    points = viewer.layers[-1]
    places = points.data.astype(int)
    np.testing.assert_array_equal(result.labels[tuple(places.T)], points.features["label"])


def test_groups_of_any_numbers_are_named_by_them(viewer, fair, run):
    wells = np.where(np.arange(32) % 2, 5, 2**31 - 1) * np.ones((32, 1), int)
    layer = viewer.add_labels(wells.astype(np.int32), name="wells")
    fair.input.choose(groups=layer)
    run(fair)
    table = fair.fairness.table
    headings = [table.horizontalHeaderItem(k).text() for k in range(table.columnCount())]
    assert headings == ["group 5", f"group {2**31 - 1}"]
    assert table_texts(fair.fairness.table)[-1] == ["50 %", "50 %"]


def test_typical_pixels_of_painted_labels_have_their_numbers_and_colours(dock, viewer, run):
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


def test_shares_of_painted_labels_stand_beside_their_numbers(dock, viewer, run):
    strokes = np.zeros((32, 32), np.uint8)
    strokes[2:6, 2:6], strokes[26:30, 26:30] = 2, 5
    dock.input.choose(strokes=viewer.add_labels(strokes, name="strokes"))
    dock.form.choose("fair")
    dock.input.choose(groups="channel:0")
    dock.form.set_values({"n_clusters": 2})
    run(dock)
    assert not dock.status.is_error, dock.status.text
    assert np.unique(layer_of(viewer, "blocks [FAIR").data).tolist() == [2, 5]
    table = dock.fairness.table
    rows = [table.verticalHeaderItem(row).text() for row in range(table.rowCount())]
    assert rows == ["2", "5", "all"]
