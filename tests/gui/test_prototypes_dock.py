"""The Prototypes dock in a real viewer: rows, edits, undo, use elsewhere, and what can go wrong."""

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, stack
from qtpy.QtCore import QPoint, Qt

import napari_saf as saf
from napari_saf._gui._history import History, Moment, PackedLabels
from napari_saf._gui._restart import free_number
from napari_saf._gui._sheet import LayerBook
from napari_saf._gui._swatches import fill_color

pytestmark = [pytest.mark.gui]

QUADRANTS = np.kron([[1, 2], [3, 4]], np.ones((16, 16), dtype=np.uint8)).astype(np.uint8)
LEFT = Qt.MouseButton.LeftButton


def result_of(image, labels, **options):
    """Metadata of labels as a run would leave them."""
    problem = saf.Problem.from_image(image, window=3, mask=labels > 0, **options)
    nodes = problem.graph.from_image(labels)
    numbers = np.arange(1, labels.max() + 1)
    means = [problem.features[nodes == n].mean(axis=0) for n in numbers]
    return {
        "napari_saf": {
            "recipe": saf.SelfAssignmentFlow(max_labels=6).recipe(problem),
            "prototypes": np.array(means, dtype=np.float32),
        }
    }


def open_dock(viewer):
    return viewer.window.add_plugin_dock_widget("napari-saf", "Prototypes")[1]


@pytest.fixture
def settle(qtbot):
    """Wait until nothing goes on, and the rows show what is there."""

    def wait(dock):
        qtbot.waitUntil(
            lambda: not dock.is_busy and not dock._asides and not dock._watch._rest.isActive(),
            timeout=TIMEOUT,
        )

    return wait


@pytest.fixture
def dock(viewer, settle):
    """The dock on the labels of four blocks."""
    viewer.add_image(blocks(), name="blocks")
    metadata = result_of(blocks(), QUADRANTS)
    viewer.add_labels(QUADRANTS.copy(), name="blocks [SAF]", metadata=metadata)
    dock = open_dock(viewer)
    settle(dock)
    return dock


@pytest.fixture
def press(qtbot, settle):
    """Choose rows, press a button, wait for the end."""

    def act(dock, name, *numbers):
        if numbers:
            dock.table.choose(numbers)
        button = {"undo": dock._undo_button, "redo": dock._redo_button} | dock._buttons
        assert button[name].isEnabled(), button[name].toolTip()
        qtbot.mouseClick(button[name], LEFT)
        settle(dock)

    return act


@pytest.fixture
def click(qtbot):
    """Click on the name of a label."""

    def act(dock, number, modifier=Qt.KeyboardModifier.NoModifier):
        row = [row.number for row in dock.table.rows].index(number)
        where = dock.table.visualRect(dock.table.model().index(row, 1)).center()
        qtbot.mouseClick(dock.table.viewport(), LEFT, modifier, QPoint(where))

    return act


def labels_of(dock):
    return np.squeeze(dock.book.layer.data)


def sizes_of(dock):
    return {row.number: row.size for row in dock.table.rows}


def test_there_is_a_row_for_each_label(dock):
    layer = dock.book.layer
    assert sizes_of(dock) == {1: 256, 2: 256, 3: 256, 4: 256}
    for row in dock.table.rows:
        assert row.share == 0.25
        np.testing.assert_allclose(row.color, layer.get_color(row.number), atol=1e-6)
        point = dock.book.sheet.points[row.number][0]
        np.testing.assert_array_equal(row.fills[0], fill_color(point, "intensity", None))


def test_features_that_are_no_colours_show_a_profile(viewer, settle):
    viewer.add_image(blocks(), name="blocks")
    metadata = result_of(blocks(), QUADRANTS, features="multiscale")
    viewer.add_labels(QUADRANTS.copy(), name="blocks [SAF]", metadata=metadata)
    dock = open_dock(viewer)
    settle(dock)
    profiles = [row.profile for row in dock.table.rows]
    assert min(p.min() for p in profiles) == 0
    assert max(p.max() for p in profiles) == 1
    assert not dock.table.model().data(dock.table.model().index(0, 0), 1).isNull()


def test_a_click_shows_the_label_alone_and_centres_its_largest_region(
    dock, viewer, click, settle, qtbot
):
    layer = dock.book.layer
    layer.data_setitem((np.array([2]), np.array([2])), 4)  # a small region far from the large one
    settle(dock)
    click(dock, 4)
    settle(dock)
    assert (layer.show_selected_label, layer.selected_label) == (True, 4)
    assert (np.array(viewer.scene.camera.center[1:]) > 18).all()
    qtbot.keyClick(dock.table, Qt.Key.Key_Escape)
    assert not layer.show_selected_label
    assert dock.table.chosen() == []


def test_a_second_click_shows_all_labels_again(dock, click, qtbot):
    click(dock, 2)
    assert dock.table.chosen() == [2]
    dock.table._clicked = (0.0, 2)  # as if the first click were long ago
    click(dock, 2)
    assert dock.table.chosen() == []
    assert not dock.book.layer.show_selected_label


def test_a_click_moves_to_the_slice_of_a_volume(viewer, settle, click):
    labels = np.ones((9, 16, 16), dtype=np.uint8)
    labels[6:8, 3:6, 9:13] = 2
    viewer.add_image(stack(9), name="stack", scale=(2, 1, 1))
    viewer.add_labels(labels, name="stack [SAF]", scale=(2, 1, 1))
    dock = open_dock(viewer)
    settle(dock)
    click(dock, 2)
    settle(dock)
    assert viewer.dims.current_step[0] in (6, 7)


def test_merging_changes_the_pixels_of_the_merged_labels_alone(dock, press):
    points = dock.book.sheet.points
    dock.rename(4, "grass")
    press(dock, "merge", 2, 4)
    np.testing.assert_array_equal(labels_of(dock), np.where(QUADRANTS == 4, 2, QUADRANTS))
    sheet = dock.book.sheet
    assert sheet.name(2) == "grass"
    np.testing.assert_array_equal(sheet.points[2], np.concatenate([points[2], points[4]]))
    table = dock.book.layer.metadata["napari_saf"]["prototypes"]
    np.testing.assert_allclose(table[1], (points[2][0] + points[4][0]) / 2, rtol=1e-6)
    assert len(dock.table.rows[1].fills) == 2
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    assert dock.book.sheet.points.keys() == points.keys()
    press(dock, "redo")
    assert (labels_of(dock) == 2).sum() == 512
    assert dock.book.sheet.name(2) == "grass"


def test_splitting_divides_a_label_by_what_is_in_it(viewer, settle, press):
    """Two blocks that had been given one label come apart, and nothing else changes."""
    viewer.add_image(blocks(), name="blocks")
    start = np.where(QUADRANTS == 4, 1, QUADRANTS)
    metadata = result_of(blocks(), start)
    viewer.add_labels(start.copy(), name="blocks [SAF]", metadata=metadata)
    dock = open_dock(viewer)
    settle(dock)
    press(dock, "split", 1)
    found = labels_of(dock)
    assert sorted(sizes_of(dock)) == [1, 2, 3, 4]
    assert dock.table.chosen() == [1, 4]
    np.testing.assert_array_equal(found[start != 1], start[start != 1])
    both = found[start == 1].reshape(-1), QUADRANTS[start == 1].reshape(-1)
    assert max((both[0] == both[1]).mean(), (5 - both[0] == both[1]).mean()) > 0.98
    assert dock.book.sheet.edits == ("split 1 into 1 and 4",)
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), start)


def test_a_label_of_equal_pixels_is_not_split(viewer, settle, press):
    image = np.kron([[0.0, 1.0]], np.ones((8, 8)))
    labels = np.kron([[1, 2]], np.ones((8, 8), int))
    viewer.add_image(image, name="two")
    viewer.add_labels(labels.copy(), name="two [SAF]", metadata=result_of(image, labels))
    dock = open_dock(viewer)
    settle(dock)
    press(dock, "split", 1)
    assert dock.status.is_error
    assert "alike" in dock.status.text
    np.testing.assert_array_equal(labels_of(dock), labels)
    assert not dock._undo_button.isEnabled()


def test_deleting_gives_the_pixels_to_the_likeliest_labels(viewer, settle, press):
    """Half of a block had a label of its own: without it the block is one again."""
    start = QUADRANTS.copy()
    start[16:, 24:] = 5
    viewer.add_image(blocks(), name="blocks")
    viewer.add_labels(start.copy(), name="blocks [SAF]", metadata=result_of(blocks(), start))
    dock = open_dock(viewer)
    settle(dock)
    press(dock, "delete", 5)
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    assert sorted(dock.book.sheet.points) == [1, 2, 3, 4]
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), start)
    assert 5 in dock.book.sheet.points


def test_deleting_all_but_one_leaves_that_one(dock, press):
    press(dock, "delete", 1, 2, 3)
    assert (labels_of(dock) == 4).all()


def test_refining_moves_wrong_pixels_and_keeps_locked_ones(dock, press, settle):
    layer = dock.book.layer
    wrong = layer.data.copy()
    wrong[4:10, 4:10] = 2  # in the block of label 1
    wrong[20:26, 20:26] = 3  # in the block of label 4
    layer.data_setitem(np.nonzero(wrong != QUADRANTS), wrong[wrong != QUADRANTS])
    before = dock.book.sheet.points[3]
    settle(dock)
    dock.lock(3)
    press(dock, "refine")
    found = labels_of(dock)
    assert (found[4:10, 4:10] == 1).all()
    assert (found[wrong == 3] == 3).all()
    np.testing.assert_array_equal(dock.book.sheet.points[3], before)
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), wrong)


def test_refining_leaves_what_is_right(dock, press):
    press(dock, "refine")
    assert (labels_of(dock) == QUADRANTS).mean() > 0.98
    assert sorted(dock.book.sheet.points) == [1, 2, 3, 4]


def test_pixels_without_a_label_stay_so(dock, press, settle):
    places = np.nonzero(np.arange(32)[:, None] + np.zeros(32) < 6)
    dock.book.layer.data_setitem(places, 0)
    settle(dock)
    press(dock, "refine")
    assert (labels_of(dock)[:6] == 0).all()
    assert (labels_of(dock)[6:] > 0).all()


def test_locked_labels_are_neither_merged_nor_split_nor_deleted(dock):
    dock.lock(2)
    dock.table.choose([1, 2])
    assert "locked" in dock._buttons["merge"].toolTip()
    assert not dock._buttons["delete"].isEnabled()
    dock.undo()
    assert dock.book.sheet.locked == frozenset()
    assert dock._buttons["merge"].isEnabled()


def test_names_are_edited_in_the_table_and_taken_back(dock, qtbot):
    model = dock.table.model()
    assert model.setData(model.index(2, 1), "  sea ", Qt.ItemDataRole.EditRole)
    assert dock.table.rows[2].name == "sea"
    assert dock.book.layer.metadata["class_names"] == {3: "sea"}
    dock.undo()
    assert dock.table.rows[2].name == "label 3"
    dock.redo()
    assert dock.table.rows[2].name == "sea"


def test_a_tick_locks(dock):
    model = dock.table.model()
    checked = Qt.CheckState.Checked
    value = getattr(checked, "value", checked)
    model.setData(model.index(0, 4), value, Qt.ItemDataRole.CheckStateRole)
    assert dock.book.sheet.locked == {1}


def test_painted_labels_have_rows_and_say_what_they_lack(viewer, settle, press):
    viewer.add_labels(QUADRANTS.astype(np.int32), name="painted")
    dock = open_dock(viewer)
    settle(dock)
    assert len(dock.table.rows) == 4
    dock.table.choose([1])
    for name in ("split", "refine"):
        assert not dock._buttons[name].isEnabled()
        assert "recipe" in dock._buttons[name].toolTip()
    assert not dock.elsewhere._use.isEnabled()
    press(dock, "delete", 1)
    np.testing.assert_array_equal(labels_of(dock), np.where(QUADRANTS == 1, 0, QUADRANTS))
    press(dock, "merge", 2, 3)
    assert sorted(sizes_of(dock)) == [2, 4]
    press(dock, "undo")
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    assert "napari_saf" not in dock.book.layer.metadata


def test_labels_in_a_file_are_looked_at_only(viewer, settle, tmp_path):
    np.save(tmp_path / "labels.npy", QUADRANTS)
    viewer.add_labels(np.load(tmp_path / "labels.npy", mmap_mode="r"), name="from a file")
    dock = open_dock(viewer)
    settle(dock)
    dock.table.choose([1, 2])
    assert sizes_of(dock)[1] == 256
    assert "memory" in dock._buttons["merge"].toolTip()


def test_rows_follow_the_brush_and_undo_loses_no_stroke(dock, press, settle):
    press(dock, "merge", 1, 2)
    merged = labels_of(dock).copy()
    dock.book.layer.data_setitem((np.arange(8), np.arange(8)), 7)
    settle(dock)
    assert sizes_of(dock)[7] == 8
    painted = labels_of(dock).copy()
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    press(dock, "redo")
    np.testing.assert_array_equal(labels_of(dock), painted)
    assert (merged != painted).sum() == 8


def test_prototypes_label_another_image_in_the_scaling_of_the_first(dock, viewer, settle, qtbot):
    """An image of two of the blocks alone would be scaled differently by itself."""
    dock.rename(1, "brick")
    viewer.add_image(blocks()[:16], name="upper", rgb=True)
    dock.elsewhere.choose_image(viewer.layers["upper"])
    qtbot.mouseClick(dock.elsewhere._use, LEFT)
    settle(dock)
    made = viewer.layers["upper [AF]"]
    assert (made.data == QUADRANTS[:16]).mean() > 0.98
    assert made.metadata["class_names"] == {1: "brick"}
    for number in (1, 2):
        np.testing.assert_allclose(
            made.get_color(number), dock.book.layer.get_color(number), atol=1e-6
        )
    qtbot.mouseClick(dock._undo_button, LEFT)
    assert "upper [AF]" not in viewer.layers
    qtbot.mouseClick(dock._redo_button, LEFT)
    assert "upper [AF]" in viewer.layers


def test_merged_labels_are_used_with_all_their_prototypes(dock, viewer, settle, press):
    press(dock, "merge", 1, 4)
    dock.elsewhere.choose_image(viewer.layers["blocks"])
    dock.use()
    settle(dock)
    expected = np.where(QUADRANTS == 4, 1, QUADRANTS)
    assert (viewer.layers["blocks [AF]"].data == expected).mean() > 0.98


def test_prototypes_are_saved_loaded_and_used(dock, viewer, settle, press, tmp_path):
    dock.rename(3, "sea")
    dock.save_to(str(tmp_path / "p.json"))
    assert "saved p.json" in dock.status.text
    dock.load_from(str(tmp_path / "p.json"))
    assert dock.book.layer is None
    assert [row.name for row in dock.table.rows] == ["label 1", "label 2", "sea", "label 4"]
    assert dock.table.rows[0].size is None
    layer = viewer.layers["blocks [SAF]"]
    np.testing.assert_allclose(dock.table.rows[1].color[:3], layer.get_color(2)[:3], atol=1e-4)
    press(dock, "merge", 1, 4)
    assert [row.number for row in dock.table.rows] == [1, 2, 3]
    dock.elsewhere.choose_image(viewer.layers["blocks"])
    dock.use()
    settle(dock)
    made = viewer.layers["blocks [AF]"]
    assert (made.data == np.where(QUADRANTS == 4, 1, QUADRANTS)).mean() > 0.98
    for _ in range(3):
        dock.undo()
    assert dock.book.layer == layer
    assert made not in viewer.layers


def test_a_damaged_file_is_told_and_nothing_changes(dock, tmp_path):
    (tmp_path / "p.json").write_text("{}")
    dock.load_from(str(tmp_path / "p.json"))
    assert dock.status.is_error
    assert len(dock.table.rows) == 4


@pytest.mark.parametrize("gone", ["blocks", "blocks [SAF]"])
def test_a_layer_removed_under_way_ends_the_run(dock, viewer, qtbot, settle, gone):
    with qtbot.waitSignal(dock.session.began, timeout=TIMEOUT):
        dock.refine()
    viewer.layers.remove(gone)
    settle(dock)
    assert not dock.session.is_running
    assert len(dock.table.rows) == (4 if gone == "blocks" else 0)
    assert not dock._buttons["refine"].isEnabled()


def test_a_layer_removed_before_its_edit_is_done(dock, viewer, settle):
    dock.table.choose([1, 2])
    dock.merge()
    viewer.layers.remove("blocks [SAF]")
    settle(dock)
    assert dock.table.rows == []
    assert not dock.history.past


def test_stop_leaves_valid_labels_and_undo(dock, qtbot, settle, press):
    with qtbot.waitSignal(dock.session.began, timeout=TIMEOUT):
        dock.refine()
    assert not dock._buttons["merge"].isEnabled()
    qtbot.mouseClick(dock._stop_button, LEFT)
    settle(dock)
    assert labels_of(dock).min() >= 1
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)


def test_a_renamed_layer_is_still_the_same(dock, viewer, press):
    dock.lock(2)
    viewer.layers["blocks [SAF]"].name = "mine"
    viewer.layers["blocks"].name = "picture"
    assert dock.book.sheet.locked == {2}
    press(dock, "refine")
    assert (labels_of(dock) == QUADRANTS).mean() > 0.98


def test_closing_the_dock_under_way_shows_all_labels_again(dock, viewer, qtbot, click):
    layer = dock.book.layer
    click(dock, 1)
    with qtbot.waitSignal(dock.session.began, timeout=TIMEOUT):
        dock.refine()
    viewer.window.remove_dock_widget(dock)
    assert not layer.show_selected_label
    assert not dock.session.is_running


def test_a_slice_of_a_stack_is_edited_in_its_place(viewer, settle, press):
    image = np.stack([blocks(), blocks()[::-1]])
    viewer.add_image(image, name="two", rgb=True)
    metadata = result_of(image[1], QUADRANTS[::-1])
    viewer.add_labels(QUADRANTS[None, ::-1].copy(), name="two [SAF]", metadata=metadata,
                      translate=(1, 0, 0))  # fmt: skip
    dock = open_dock(viewer)
    settle(dock)
    press(dock, "refine")
    assert (labels_of(dock) == QUADRANTS[::-1]).mean() > 0.98


def test_many_labels_are_drawn_when_they_are_seen(viewer, settle):
    labels = np.arange(1, 401, dtype=np.uint16).reshape(20, 20)
    viewer.add_labels(labels, name="many")
    dock = open_dock(viewer)
    settle(dock)
    dock.table.grab()
    assert len(dock.table.rows) == 400
    assert 0 < len(dock.table.model()._pictures) < 60


def test_rows_are_sorted_and_the_choice_stays(dock, settle):
    dock.book.layer.data_setitem((np.arange(8), np.arange(8)), 3)
    settle(dock)
    dock.table.choose([3])
    dock.table.sortByColumn(3, Qt.SortOrder.DescendingOrder)
    assert dock.table.rows[0].number == 3
    assert dock.table.chosen() == [3]


def test_undo_keeps_within_its_memory():
    history, book = History(most_bytes=300), LayerBook(None)
    noise = np.random.default_rng(0)
    for k in range(5):
        pixels = PackedLabels.of(noise.integers(0, 255, (10, 10)).astype(np.uint8))
        history.push(Moment(str(k), book, pixels=pixels))
    assert history.n_bytes <= 300
    assert history.past[-1].words == "4"
    assert len(history.past) == 2


def test_packed_labels_come_back():
    labels = np.random.default_rng(0).integers(0, 9, (7, 5)).astype(np.int32)[::2]
    again = PackedLabels.of(labels).unpack()
    np.testing.assert_array_equal(again, labels)
    assert again.dtype == labels.dtype


def test_new_labels_take_the_first_free_number():
    assert free_number({1, 2, 4}, np.dtype(np.uint8)) == 3
    with pytest.raises(saf.InvalidInput, match="255"):
        free_number(range(1, 256), np.dtype(np.uint8))
