"""The Prototypes dock: rows, edits, undo, use on other images, and what can go wrong."""

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks, lock
from label_cases import QUADRANTS, result_of
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QApplication, QLineEdit

from napari_saf._gui.forms.controls import fill_colors
from napari_saf._gui.layers.metadata import ARE_STROKES
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.prototypes.dock import PrototypesWidget
from napari_saf._gui.scribbles.strokes import add_strokes
from napari_saf.pipeline import Pipeline

pytestmark = [pytest.mark.gui]

LEFT = Qt.MouseButton.LeftButton
PAINTED = 250
"""Milliseconds after which the dock has seen what was painted."""


@pytest.fixture
def open_dock(model, open_on, settle):
    """Open the dock on an image and its labels, if there are any."""

    def opened(image=None, labels=None, **options):
        if image is not None:
            model.add_image(image, name="blocks")
        if labels is not None:
            metadata = {} if image is None else result_of(image, labels, **options)
            model.add_labels(labels.copy(), name="blocks [SAF]", metadata=metadata)
        dock = open_on(model, PrototypesWidget)
        settle(dock)
        return dock

    return opened


@pytest.fixture
def dock(open_dock):
    """The dock on the labels of four blocks."""
    return open_dock(blocks(), QUADRANTS)


@pytest.fixture
def press(qtbot, settle):
    """Choose rows, press a button, wait for the end."""

    def act(dock, name, *numbers):
        if numbers:
            dock.table.select(numbers)
        assert dock.buttons[name].isEnabled(), dock.buttons[name].toolTip()
        qtbot.mouseClick(dock.buttons[name], LEFT)
        settle(dock)

    return act


@pytest.fixture
def click(qtbot):
    """Click on the name of a label."""

    def act(dock, number):
        row = [row.number for row in dock.table.rows].index(number)
        where = dock.table.visualRect(dock.table.model().index(row, 1)).center()
        qtbot.mouseClick(dock.table.viewport(), LEFT, pos=QPoint(where))

    return act


def labels_of(dock):
    return np.squeeze(dock.source.layer.data)


def sizes_of(dock):
    return {row.number: row.size for row in dock.table.rows}


def test_a_row_shows_its_label_and_a_click_shows_where_it_is(
    dock, model, click, settle, qtbot, monkeypatch
):
    monkeypatch.setattr(QApplication, "doubleClickInterval", lambda: 1)
    layer = dock.source.layer
    assert sizes_of(dock) == {1: 256, 2: 256, 3: 256, 4: 256}
    for row in dock.table.rows:
        assert row.share == 0.25
        np.testing.assert_allclose(row.color, layer.get_color(row.number), atol=1e-6)
        point = dock.source.state.prototypes[row.number][0]
        np.testing.assert_array_equal(
            row.fills[0], fill_colors(point[None], "intensity", np.zeros((1, 3)))[0]
        )
    layer.data_setitem((np.array([2]), np.array([2])), 4)  # a small region far from the large one
    settle(dock, PAINTED)
    click(dock, 4)
    settle(dock)
    assert (layer.show_selected_label, layer.selected_label) == (True, 4)
    assert (np.array(model.scene.camera.center[1:]) == 15.5).all()  # it is in sight
    qtbot.keyClick(dock.table, Qt.Key.Key_Escape)
    assert not layer.show_selected_label
    assert dock.table.selected() == []
    click(dock, 2)
    assert dock.table.selected() == [2]
    qtbot.wait(5)
    click(dock, 2)
    assert dock.table.selected() == []
    assert not layer.show_selected_label


def test_names_and_locks_are_edited_in_the_table_and_taken_back(dock, settle):
    table = dock.table
    index = table.model().index(2, 1)
    table.edit(index)
    (line,) = table.findChildren(QLineEdit)
    line.setText("  sea ")
    table.show_rows(table.rows)  # sizes that arrive meanwhile
    assert line.text() == "  sea "
    table.itemDelegate().setModelData(line, table.model(), index)
    settle(dock)
    assert dock.source.layer.metadata["class_names"] == {3: "sea"}
    lock(table, 2)
    assert dock.source.state.locked == {2}
    table.select([1, 2])
    for name in ("merge", "delete"):
        assert "locked" in dock.buttons[name].toolTip()
        assert not dock.buttons[name].isEnabled()
    dock.editor.undo()
    assert dock.source.state.locked == frozenset()
    assert dock.buttons["merge"].isEnabled()
    dock.editor.undo()
    assert table.rows[2].name == "label 3"
    dock.editor.redo()
    assert table.rows[2].name == "sea"
    table.select([3])
    table.sortByColumn(1, Qt.SortOrder.DescendingOrder)
    assert table.rows[0].number == 3 and table.selected() == [3]


def test_merge_and_undo_beside_the_brush_lose_no_stroke(dock, press, settle):
    dock.rename(4, "grass")
    press(dock, "merge", 2, 4)
    np.testing.assert_array_equal(labels_of(dock), np.where(QUADRANTS == 4, 2, QUADRANTS))
    assert dock.table.selected() == [2]
    assert dock.table.rows[1].name == "grass"
    assert len(dock.table.rows[1].fills) == 2
    dock.source.layer.data_setitem((np.arange(8), np.arange(8)), 7)
    settle(dock, PAINTED)
    assert sizes_of(dock)[7] == 8
    painted = labels_of(dock).copy()
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    assert sorted(dock.source.state.prototypes) == [1, 2, 3, 4]
    press(dock, "redo")
    np.testing.assert_array_equal(labels_of(dock), painted)
    assert dock.table.rows[1].name == "grass"


def test_what_is_named_locked_and_chosen_while_an_edit_computes_stays_so(dock, qtbot, settle):
    dock.table.select([2, 4])
    dock.edit("merge")
    dock.rename(1, "sky")
    dock.lock(3)
    settle(dock)
    assert (dock.source.state.names, dock.source.state.locked) == ({1: "sky"}, {3})
    dock.editor.undo()
    settle(dock)
    assert dock.source.state.names == {1: "sky"}
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    dock.table.select([1])
    with qtbot.waitSignal(dock.controller.began, timeout=TIMEOUT):
        dock.edit("split")
    dock.table.select([3])
    settle(dock)
    settle(dock, PAINTED)
    assert dock.table.selected() == [3]


def test_split_delete_refine_and_all_of_them_undone(dock, press):
    dock.source.layer.data[4:10, 4:10] = 2  # in the block of label 1
    start = labels_of(dock).copy()
    dock.lock(4)
    press(dock, "split", 2)
    assert dock.table.selected() == [2, 5]
    np.testing.assert_array_equal(labels_of(dock)[start != 2], start[start != 2])
    small = min((2, 5), key=lambda n: sizes_of(dock)[n])
    press(dock, "delete", small)
    assert (labels_of(dock)[5:9, 5:9] == 1).all()
    press(dock, "refine")
    assert (labels_of(dock) == QUADRANTS).mean() > 0.95
    assert dock.source.state.edits == ("split 2 into 2 and 5", f"deleted {small}", "refined")
    for _ in range(3):
        press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), start)
    assert dock.source.state.edits == ()
    assert dock.source.state.locked == {4}


def test_painted_labels_have_rows_and_say_what_they_lack(open_dock, press):
    dock = open_dock(labels=QUADRANTS.astype(np.int32))
    dock.table.select([1])
    for name in ("split", "refine"):
        assert not dock.buttons[name].isEnabled()
        assert "recipe" in dock.buttons[name].toolTip()
    assert not dock.applying.button.isEnabled()
    press(dock, "delete", 1)
    np.testing.assert_array_equal(labels_of(dock), np.where(QUADRANTS == 1, 0, QUADRANTS))
    press(dock, "merge", 2, 3)
    assert sorted(sizes_of(dock)) == [2, 4]
    for _ in range(2):
        press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    assert "napari_saf" not in dock.source.layer.metadata


def test_what_cannot_be_done_is_told_and_changes_nothing(open_dock, model, settle, press, tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(1, 401, dtype=np.uint16).reshape(20, 20))
    model.add_labels(np.load(tmp_path / "labels.npy", mmap_mode="r"), name="from a file")
    dock = open_dock()
    assert len(dock.table.rows) == 400
    dock.table.select([1, 2])
    assert "memory" in dock.buttons["merge"].toolTip()
    labels = np.kron([[1, 2]], np.ones((8, 8))).astype(np.uint8)
    image = model.add_image(labels.astype(float), name="two")
    dock.choose(model.add_labels(labels, metadata=result_of(image.data, labels)))
    settle(dock)
    press(dock, "split", 1)
    assert dock.status.is_error and "equal features" in dock.status.text
    np.testing.assert_array_equal(labels_of(dock), labels)
    (tmp_path / "p.json").write_text("{}")
    dock.load_from(str(tmp_path / "p.json"))
    assert dock.status.is_error and len(dock.table.rows) == 2
    assert not dock.buttons["undo"].isEnabled()


def test_prototypes_are_saved_loaded_merged_and_used(dock, model, settle, press, tmp_path):
    dock.rename(3, "sea")
    dock.applying.save_to(str(tmp_path / "p.json"))
    assert "saved p.json" in dock.status.text
    dock.load_from(str(tmp_path / "p.json"))
    assert dock.source.layer is None
    assert [row.name for row in dock.table.rows] == ["label 1", "label 2", "sea", "label 4"]
    assert dock.table.rows[0].size is None
    layer = model.layers["blocks [SAF]"]
    np.testing.assert_allclose(dock.table.rows[1].color[:3], layer.get_color(2)[:3], atol=1e-4)
    press(dock, "merge", 1, 4)
    assert [row.number for row in dock.table.rows] == [1, 2, 3]
    dock.applying.image.choose(model.layers["blocks"])
    dock.applying.apply()
    settle(dock)
    made = model.layers["blocks [AF]"]
    assert (made.data == np.where(QUADRANTS == 4, 1, QUADRANTS)).mean() > 0.98
    replay = Pipeline.from_plain(made.metadata["napari_saf"]["recipe"])
    np.testing.assert_array_equal(replay.run(blocks()).labels, made.data)
    dock.editor.undo()
    assert made not in model.layers
    dock.editor.redo()
    assert made in model.layers
    for _ in range(3):
        dock.editor.undo()
    assert dock.source.layer == layer and made not in model.layers


def test_strokes_are_chosen_by_hand_alone(open_on, model, settle):
    image = model.add_image(blocks(), name="blocks")
    strokes = add_strokes(model, image, np.zeros((32, 32), np.uint8), Placement((), (0, 1), {}))
    dock = open_on(model, PrototypesWidget)
    assert dock.status.text == ARE_STROKES
    found = model.add_labels(QUADRANTS.copy(), metadata=result_of(blocks(), QUADRANTS))
    settle(dock)
    assert dock.source.layer == found and not dock.status.text
    dock.choose(strokes)
    assert dock.status.text == ARE_STROKES


def test_stop_rename_and_close(dock, model, qtbot, settle, press, click):
    """Stop leaves valid labels; layers are known whatever they are called; nothing is left over."""
    model.layers["blocks [SAF]"].name, model.layers["blocks"].name = "mine", "picture"
    with qtbot.waitSignal(dock.controller.began, timeout=TIMEOUT):
        dock.edit("refine")
    assert not dock.buttons["merge"].isEnabled()
    qtbot.mouseClick(dock.panel.stop_button, LEFT)
    settle(dock)
    assert labels_of(dock).min() >= 1
    press(dock, "undo")
    np.testing.assert_array_equal(labels_of(dock), QUADRANTS)
    layer = dock.source.layer
    click(dock, 1)
    with qtbot.waitSignal(dock.controller.began, timeout=TIMEOUT):
        dock.edit("refine")
    dock.shut_down()
    assert not layer.show_selected_label
    assert not dock.controller.is_running
