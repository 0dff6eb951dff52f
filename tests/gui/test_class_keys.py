"""Keys of the Scribbles dock, pressed in the window."""

from __future__ import annotations

import pytest
from gui_cases import blocks
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QLineEdit

pytestmark = pytest.mark.gui


@pytest.fixture
def dock(viewer, qtbot):
    """The dock in a window on screen, with three classes."""
    viewer.add_image(blocks(), name="blocks")
    dock = viewer.window.add_plugin_dock_widget("napari-saf", "Scribbles")[1]
    viewer.window._qt_window.show()
    qtbot.waitUntil(dock.isVisible)
    dock.new_strokes()
    dock.add_class()
    return dock


def test_keys_go_through_the_classes_and_names_are_typed(dock, qtbot):
    strokes = dock.input.strokes
    assert strokes.selected_label == 3

    def press(key):
        QTest.keyClick(dock, key)
        return int(strokes.selected_label)

    assert [press(Qt.Key.Key_Period) for _ in range(4)] == [1, 2, 3, 1]
    assert [press(Qt.Key.Key_Comma) for _ in range(2)] == [3, 2]
    for key in (Qt.Key.Key_S, Qt.Key.Key_R):
        dock.status.reset("")
        QTest.keyClick(dock, key, Qt.KeyboardModifier.ShiftModifier)
        assert "paint a few pixels of class 1" in dock.status.text
    table = dock.classes
    assert press(Qt.Key.Key_Period) == 3
    qtbot.keyClick(table, Qt.Key.Key_Up)
    assert table.selected() == [strokes.selected_label] == [2]
    lock = table.visualRect(table.model().index(0, 3)).center()
    for locked in ({1}, set()):
        qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=lock)
        assert table.selected() == [2] and table.locked == locked
    # typing on the name of a class renames it; other keys still go through the classes
    name = table.visualRect(table.model().index(0, 1)).center()
    qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=name)
    assert strokes.selected_label == 1
    qtbot.keyClick(table, Qt.Key.Key_Period)
    assert strokes.selected_label == 2
    qtbot.keyClick(table, Qt.Key.Key_Comma)
    qtbot.keyClick(table, Qt.Key.Key_Right)
    qtbot.keyClick(table, "s")
    editor = table.findChild(QLineEdit)
    qtbot.keyClicks(editor, "ky.")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: dock.strokes.name(1) == "sky.")
    assert strokes.selected_label == 1
