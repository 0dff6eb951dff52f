"""The Scribbles dock: strokes, undo, classes, and all that can go wrong."""

import numpy as np
import pytest
from gui_cases import ENDLESS, TIMEOUT, apply_to, blocks, lock, rename, share_texts
from qtpy.QtCore import Qt

import napari_saf as saf
from napari_saf._gui.scribbles.dock import ScribblesWidget

pytestmark = [pytest.mark.gui]

QUADRANTS = np.kron([[1, 2], [3, 4]], np.ones((16, 16), dtype=int))
CORNERS = ((6, 6), (6, 22), (22, 6), (22, 22))


@pytest.fixture
def scribbles(model, open_on):
    model.add_image(blocks(), name="blocks")
    dock = open_on(model, ScribblesWidget)
    dock.input.scale.set_value(5)
    dock.buttons["new_strokes"].click()
    return dock


@pytest.fixture
def settle(qtbot):
    """Wait until no stroke is left to follow."""

    def wait(dock):
        qtbot.wait(60)
        qtbot.waitUntil(lambda: not dock.panel.is_busy, timeout=TIMEOUT)

    return wait


@pytest.fixture
def paint(settle):
    """Paint a short stroke and wait for the labels."""

    def stroke(dock, corner, number, length=4, waits=True):
        rows = np.arange(corner[0], corner[0] + length)
        dock.strokes.layer.data_setitem((rows, np.full(length, corner[1])), number)
        if waits:
            settle(dock)

    return stroke


@pytest.fixture
def taught(scribbles, paint):
    """The dock after a stroke in each of the four blocks."""
    for number, corner in enumerate(CORNERS, start=1):
        paint(scribbles, corner, number, waits=number == len(CORNERS))
    return scribbles


def choose_by_hand(dock, **layers):
    """Choose layers in the boxes of a dock, as a person does."""
    dock.input.choose(**layers)
    for name in layers:
        box = dock.input.choices[name]
        box.activated.emit(box.currentIndex())


def labels_of(dock):
    """Return the labels of the result as an array of the axes that were labelled."""
    return np.squeeze(dock.result.data)


def test_labels_follow_strokes_undo_redo_and_erased_classes_in_one_layer_below(
    scribbles, model, paint, settle
):
    paint(scribbles, CORNERS[0], 1)
    assert scribbles.result is None
    assert "another class" in scribbles.status.text
    paint(scribbles, CORNERS[1], 2)
    assert set(np.unique(labels_of(scribbles))) == {1, 2}
    for number in (3, 4):
        paint(scribbles, CORNERS[number - 1], number, waits=number == 4)
    with_four = labels_of(scribbles).copy()
    assert (with_four == QUADRANTS).mean() > 0.95
    shares = share_texts(scribbles.classes).values()
    assert all(20 < float(share.split()[0]) < 30 for share in shares)
    names = ["blocks", "blocks [from strokes]", "blocks strokes"]
    assert [layer.name for layer in model.layers] == names
    assert model.layers.selection.active == scribbles.strokes.layer
    scribbles.strokes.layer.undo()
    settle(scribbles)
    assert set(np.unique(labels_of(scribbles))) == {1, 2, 3}
    scribbles.strokes.layer.redo()
    settle(scribbles)
    np.testing.assert_array_equal(labels_of(scribbles), with_four)
    for number in (4, 3, 2):
        scribbles.strokes.paint_with(number)
        scribbles.buttons["erase_class"].click()
        assert scribbles.classes.selected() == [1] == [scribbles.strokes.layer.selected_label]
        scribbles.strokes.layer.visible, model.dims.ndisplay = False, 3  # even so
    settle(scribbles)
    assert scribbles.classes.numbers() == [1]
    assert "another class" in scribbles.status.text and not labels_of(scribbles).any()


def test_undo_or_a_stroke_overtakes_the_run_before_and_another_image_ends_it(
    scribbles, model, paint, qtbot
):
    other = model.add_image(blocks(40), name="other")
    scribbles.input.choose(image=model.layers["blocks"])
    scribbles.form.set_values(ENDLESS)
    paint(scribbles, CORNERS[0], 1, waits=False)
    with qtbot.waitSignal(scribbles.controller.advanced, timeout=TIMEOUT):
        paint(scribbles, CORNERS[1], 2, waits=False)
    for _ in range(2):
        scribbles.strokes.layer.undo()
    qtbot.waitUntil(lambda: not scribbles.controller.is_running, timeout=TIMEOUT)
    assert "class 1" in scribbles.status.text and not labels_of(scribbles).any()
    with qtbot.waitSignal(scribbles.controller.advanced, timeout=TIMEOUT):
        for _ in range(2):
            scribbles.strokes.layer.redo()
    ended = []
    scribbles.controller.returned.connect(ended.append)
    with qtbot.waitSignal(scribbles.controller.began, timeout=TIMEOUT):
        paint(scribbles, CORNERS[2], 3, waits=False)
    assert len(ended) <= 1
    with qtbot.waitSignal(scribbles.controller.finished, timeout=TIMEOUT):
        scribbles.input.choose(image=other)
    assert scribbles.input.strokes is None and not scribbles.classes.numbers()
    scribbles.start()
    assert "press New" in scribbles.status.text


def test_strokes_go_with_their_image(taught, model, paint, settle):
    strokes, alike = taught.strokes.layer, model.add_image(blocks()[::-1], name="alike")
    taught.input.choose(image=alike)
    assert taught.strokes.layer == strokes
    taught.new_strokes()
    of_alike = taught.strokes.layer
    for image, layer in (("blocks", strokes), ("alike", of_alike)):  # even without labels
        choose_by_hand(taught, image=model.layers[image])
        assert model.layers.selection.active == taught.strokes.layer == layer
    for number, corner in enumerate(CORNERS[:2], start=1):
        paint(taught, corner, number)
    assert taught.classes.numbers() == [1, 2]
    of_alike = [taught.strokes.layer, taught.result]
    choose_by_hand(taught, image=model.layers["blocks"])
    assert taught.strokes.layer == strokes and taught.classes.numbers() == [1, 2, 3, 4]
    assert taught.status.text.startswith("converged") and taught.result.visible
    assert "alike is hidden: it covered blocks" in taught.status.text
    assert model.layers.selection.active == strokes and not any(x.visible for x in of_alike)
    choose_by_hand(taught, image=alike)
    assert model.layers.selection.active == of_alike[0] and all(x.visible for x in of_alike)
    strokes.undo()  # while the dock shows another image
    settle(taught)
    assert labels_of(taught).max() == 2
    choose_by_hand(taught, image=model.layers["blocks"])
    settle(taught)
    assert labels_of(taught).max() == 3 and taught.classes.numbers() == [1, 2, 3]
    choose_by_hand(taught, image=alike)
    earlier = taught.strokes.layer
    assert earlier.name == "alike strokes" and earlier.visible
    taught.new_strokes()
    assert taught.strokes.layer != earlier and not earlier.visible and strokes.visible
    choose_by_hand(taught, strokes=earlier)
    assert earlier.visible


@pytest.mark.parametrize("which", ["blocks", "blocks [from strokes]"])
def test_a_layer_is_removed(taught, model, paint, settle, qtbot, which):
    strokes, values = taught.strokes.layer, taught.form.values()
    taught.form.set_values(ENDLESS)
    with qtbot.waitSignal(taught.controller.advanced, timeout=TIMEOUT):
        paint(taught, (2, 12), 2, waits=False)
    model.layers.remove(which)
    taught.controller.stop()
    settle(taught)
    if which == "blocks [from strokes]":
        assert taught.status.text == "stopped: the layer of its labels was removed"
        taught.form.set_values(values)
        strokes.undo()
        settle(taught)
        assert (labels_of(taught) == QUADRANTS).mean() > 0.9
        model.layers.remove(taught.result)
        assert taught.next_row.isHidden() and "press Update" in taught.status.text
        assert set(share_texts(taught.classes).values()) == {""}


def test_classes_are_named_coloured_and_added_and_a_spot_is_suggested(taught, paint, model, qtbot):
    table, strokes = taught.classes, taught.strokes.layer
    rename(table, 1, "sky")
    assert taught.strokes.names[1] == "sky"
    assert taught.result.metadata["class_names"][1] == "sky"
    taught.strokes.set_color(1, (1.0, 0.0, 0.0))
    table.refresh()
    table.recolored.emit()
    np.testing.assert_allclose(taught.result.get_color(1), (1, 0, 0, 1), atol=1e-3)
    taught.buttons["add_class"].click()
    assert table.numbers() == [1, 2, 3, 4, 5]
    assert share_texts(table)[5] == "0.0 %" and strokes.selected_label == 5
    strokes.selected_label = 2
    assert table.selected() == [2]
    strokes.visible = False
    model.layers.selection.active = model.layers["blocks"]
    for is_drawing_a_box in (False, True):  # a class is painted, whichever layer was active
        if is_drawing_a_box:
            taught.buttons["draw_box"].click()
        strokes.mode, strokes.selected_label = "pan_zoom", 2
        rectangle = table.visualRect(table.model().index(2, 1))
        qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=rectangle.center())
        assert strokes.selected_label == 3 and strokes.visible and strokes.mode == "paint"
        assert model.layers.selection.active == strokes and taught.box.layer is None
        assert taught.status.text.startswith("converged")

    taught.uncertainty.click()
    image = model.layers["blocks uncertainty"]
    assert image.data.shape == (32, 32) and 0 <= image.data.min() < image.data.max() <= 1
    assert image.data[:, 15:17].mean() > image.data[4:12, 2:12].mean()
    taught.buttons["suggest"].click()
    spot = model.layers["suggested spot"].data[0].astype(int)
    assert not strokes.data[tuple(spot)]
    assert model.layers.selection.active == strokes
    taught.uncertainty.click()
    assert not image.visible
    paint(taught, spot, 1, length=1)
    assert not model.layers["suggested spot"].visible


def test_a_locked_class_keeps_its_pixels_and_gets_no_others(taught, paint, settle):
    """What is painted on them, or with its own brush, counts once it is free again."""
    taught.input.choose(max_side=12)
    paint(taught, (4, 8), 1)
    first = labels_of(taught) == 1
    assert 200 < first.sum() < 300
    lock(taught.classes, 1)
    paint(taught, (18, 18), 2, length=8)
    assert labels_of(taught)[20, 18] == 2
    paint(taught, (4, 12), 3)
    paint(taught, (20, 28), 1, length=8)
    np.testing.assert_array_equal(labels_of(taught) == 1, first)
    assert set(np.unique(labels_of(taught))) == {1, 2, 3, 4}
    assert not taught.status.is_error
    assert sum(taught.classes.rows[k].share for k in range(4)) == pytest.approx(1)
    lock(taught.classes, 1, False)
    settle(taught)
    assert labels_of(taught)[24, 28] == 1 and 3 in labels_of(taught)[3:9, 10:14]


def test_where_all_classes_but_one_are_locked_labels_stay(scribbles, paint):
    paint(scribbles, CORNERS[0], 1)
    paint(scribbles, CORNERS[3], 2)
    before = labels_of(scribbles).copy()
    lock(scribbles.classes, 1)
    paint(scribbles, CORNERS[1], 2)
    np.testing.assert_array_equal(labels_of(scribbles), before)
    assert "locked" in scribbles.status.text
    lock(scribbles.classes, 2)
    paint(scribbles, CORNERS[2], 2)
    np.testing.assert_array_equal(labels_of(scribbles), before)


def test_labels_of_another_run_are_merged_and_split(open_on, model, paint, settle):
    model.add_image(blocks(), name="blocks")
    labels = np.where(QUADRANTS > 2, 3, QUADRANTS).astype(np.uint8)
    earlier = model.add_labels(labels, name="earlier", metadata={"napari_saf": {}})
    dock = open_on(model, ScribblesWidget)
    dock.input.scale.set_value(5)
    dock.base.choose(earlier)
    settle(dock)
    np.testing.assert_array_equal(labels_of(dock), labels)
    assert dock.classes.numbers() == [1, 2, 3]
    paint(dock, (6, 22), 1)
    np.testing.assert_array_equal(labels_of(dock), np.where(labels == 2, 1, labels))
    paint(dock, (22, 6), 3)
    paint(dock, (22, 22), 5)
    found = labels_of(dock)
    assert (found[:16] == 1).all()
    assert (found[18:, 18:] == 5).mean() > 0.9
    assert (found[18:, :14] == 3).mean() > 0.9


def test_pixels_that_are_no_numbers_are_left_out_once_that_is_asked_for(
    model, taught, paint, settle
):
    holes = blocks().astype(np.float32)
    holes[14:18, 20] = np.nan
    inside = np.isfinite(holes).all(axis=-1)
    layer = model.add_image(holes, name="holes", rgb=True)
    taught.input.choose(image=model.layers["blocks"])
    apply_to(taught, layer)
    settle(taught)
    assert taught.status.suggested_action == "Mask them and run"
    taught.applying.image.choose(layer)
    taught.status.suggested_action_clicked.emit()
    settle(taught)
    made = model.layers["holes [from strokes]"]
    np.testing.assert_array_equal(made.data > 0, inside)

    taught.input.choose(image=layer)
    taught.new_strokes()
    for number, corner in enumerate(CORNERS, start=1):
        paint(taught, corner, number, waits=number == 4)
    assert taught.status.is_error and "4 of 1024 pixels" in taught.status.text
    taught.status.suggested_action_clicked.emit()
    settle(taught)
    np.testing.assert_array_equal(labels_of(taught), QUADRANTS * inside)
    paint(taught, (13, 20), 2)
    assert not taught.status.is_error
    np.testing.assert_array_equal(labels_of(taught) > 0, inside)


def test_what_was_taught_is_applied_to_another_image(taught, paint, model, settle):
    """Also what a class is like that is locked, and takes no part in the run."""
    lock(taught.classes, 1)
    paint(taught, (24, 24), 4)
    apply_to(taught, model.add_image(blocks()[::-1, ::-1].copy(), name="turned", scale=(2, 2)))
    settle(taught)
    found = model.layers["turned [from strokes]"]
    assert (found.data == QUADRANTS[::-1, ::-1]).mean() > 0.95
    np.testing.assert_array_equal(found.scale, (2, 2))


def test_what_was_taught_is_saved_for_other_images(taught, paint, tmp_path, settle):
    taught.strokes.rename(2, "brick")
    taught.applying.save_to(str(tmp_path / "taught.csv"))
    assert taught.status.text.startswith("saved taught.csv.json"), taught.status.text
    found = saf.load_prototypes(tmp_path / "taught.csv.json")
    assert found.names[2] == "brick"
    np.testing.assert_allclose(found.colors[2], taught.strokes.color(2)[:3], atol=1e-4)
    turned = saf.Pipeline.from_prototypes(found).run(blocks()[::-1, ::-1].copy())
    assert (turned.labels == QUADRANTS[::-1, ::-1]).mean() > 0.95
    taught.input.choose(features="position")
    taught.buttons["update_labels"].click()
    settle(taught)
    other = tmp_path / "other.json"
    taught.applying.save_to(str(other))
    assert taught.status.is_error and "positions" in taught.status.text
    taught.follow.setChecked(False)
    paint(taught, (12, 4), 3)
    taught.applying.save_to(str(other))
    assert "press Update first" in taught.status.text
    taught.buttons["new_strokes"].click()
    taught.applying.save_to(str(other))
    assert "no labels to learn from yet" in taught.status.text and not other.exists()


def test_other_methods_follow_too(taught, settle):
    for method in taught.form.box.values():
        taught.form.box.choose(method)
        taught.form.set_values({"max_iterations": 5})
        taught.start()
        settle(taught)
        assert not taught.status.is_error, taught.form.box.currentText()
        painted = taught.strokes.layer.data > 0
        if taught.form.read().follows_seeds:
            np.testing.assert_array_equal(
                labels_of(taught)[painted], taught.strokes.layer.data[painted]
            )


def test_a_layer_of_a_person_holds_strokes_of_any_numbers(open_on, model, settle):
    model.add_image(blocks(), name="blocks")
    mine = model.add_labels(np.zeros((32, 32), dtype=np.int32), name="mine")
    dock, most = open_on(model, ScribblesWidget), np.iinfo(np.int32).max
    assert dock.strokes.layer is None
    dock.input.choose(strokes=mine)
    mine.data_setitem((np.arange(6, 10), np.full(4, 6)), 3)
    mine.data_setitem((np.arange(22, 26), np.full(4, 22)), most)
    settle(dock)
    assert set(np.unique(labels_of(dock))) == {3, most} and labels_of(dock)[24, 24] == most
    np.testing.assert_allclose(dock.result.get_color(3), dock.strokes.color(3), atol=1e-3)


def test_a_warm_start_needs_fewer_evaluations_and_knows_a_new_class(taught, paint, settle):
    results = []
    taught.controller.returned.connect(results.append)
    for warm in (False, True):
        taught.warm_start.setChecked(warm)
        taught.start()
        settle(taught)
    cold, warm = results
    assert warm.n_evaluations <= cold.n_evaluations
    assert (warm.labels == cold.labels).mean() > 0.98
    paint(taught, (27, 27), 9)
    assert labels_of(taught)[28, 27] == 9
    assert set(np.unique(labels_of(taught))) >= {1, 2, 3, 9}


def test_labels_that_do_not_follow_strokes_or_settings_are_said_to_be_older(taught, paint, settle):
    outcome = taught.status.text
    assert outcome.startswith("converged")
    scale, method = taught.input.scale.value, taught.form.box.currentIndex()
    taught.follow.setChecked(False)
    paint(taught, (2, 12), 2)
    assert "older than the strokes: press Update" in taught.status.text
    erased = taught.strokes.layer.data.copy()
    for number in [n for n in np.unique(erased) if n > 1]:
        taught.strokes.erase_class(int(number))
    settle(taught)
    assert "older" not in taught.status.text  # but that one class is painted
    while (taught.strokes.layer.data != erased).any():
        taught.strokes.layer.undo()
    settle(taught)
    assert "older than the strokes: press Update" in taught.status.text
    taught.input.scale.set_value(9)
    assert "older than the strokes and settings" in taught.status.text
    taught.strokes.layer.undo()
    settle(taught)
    assert "older than the settings" in taught.status.text
    taught.input.scale.set_value(scale)
    assert taught.status.text == outcome
    taught.form.box.setCurrentIndex(1)
    assert "older than the settings" in taught.status.text
    taught.form.box.setCurrentIndex(method)
    assert taught.status.text == outcome
    taught.form.set_values({"rho": 0.3})
    assert "older" in taught.status.text
    taught.buttons["update_labels"].click()
    settle(taught)
    assert taught.status.text.startswith("converged")


def test_a_box_round_one_thing_paints_it_and_all_like_it_follow(model, open_on, settle, qtbot):
    image = np.zeros((64, 64, 3), np.uint8)
    for row in (4, 24, 44):
        for column in (4, 24, 44):
            image[row : row + 9, column : column + 9] = (200, 180, 60)
    model.add_image(image, name="squares", scale=(2, 2), translate=(10, 0))
    dock = open_on(model, ScribblesWidget)
    dock.buttons["draw_box"].click()
    box = np.array([[22, 22], [34, 34]])  # of the image, in whose world it is drawn
    corners = np.array([box[0], (box[0, 0], box[1, 1]), box[1], (box[1, 0], box[0, 1])])
    dock.box.layer.add_rectangles(2 * corners + np.array([10, 0]))
    qtbot.waitUntil(lambda: "ground" in dock.automatic.text(), timeout=TIMEOUT)
    settle(dock)
    strokes = dock.strokes.layer.data
    assert (strokes[25:32, 25:32] == 1).all() and (strokes[20:23, 20:23] == 2).all()
    assert not strokes[:15].any() and dock.box.layer is None
    assert (dock.result.data[48, 48], dock.result.data[40, 8]) == (1, 2)
    dock.strokes.layer.undo()
    assert not strokes.any()
    dock.strokes.layer.redo()
    dock.buttons["draw_box"].click()
    dock.new_strokes()
    assert dock.box.layer is None  # the box was not drawn after all
    dock.buttons["draw_box"].click()
    dock.box.layer.add_rectangles([[12, 2], [12, 2.4], [12.4, 2.4], [12.4, 2]])
    qtbot.waitUntil(lambda: dock.status.is_error, timeout=TIMEOUT)
    assert "box:" in dock.status.text and dock.box.layer is None
