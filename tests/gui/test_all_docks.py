"""What holds for every dock in the manifest: tooltips, help, width, shortcuts."""

from __future__ import annotations

import sys
import threading
import time
import types

import npe2
import numpy as np
import pytest
from gui_cases import TIMEOUT
from monkey import dock_names
from napari.layers import Image, Labels, Points
from napari.utils.key_bindings import coerce_keybinding
from napari.utils.shortcuts import default_shortcuts
from qtpy.QtCore import QPoint, QPointF, QRect, Qt, QTimer, QUrl
from qtpy.QtGui import QEnterEvent, QOpenGLContext
from qtpy.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QListWidget,
    QOpenGLWidget,
    QScrollBar,
    QTableView,
    QToolButton,
    QWidget,
)
from superqt import QCollapsible

from napari_saf import _gui
from napari_saf._gui.docks.help import HelpPage, page_path
from napari_saf.errors import FormatError

pytestmark = pytest.mark.gui

INTERACTIVE = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QLineEdit)
WIDEST = 380
SMALL_WINDOW = (1280, 800)
LONG_NAME = "20240213_exp12_plateA_wellB03_field07_ch2_max_projection"


@pytest.fixture
def frames(viewer):
    """The frames of all docks, by name, in the same window."""
    docks = {}
    for name in dock_names():
        docks[name] = viewer.window.add_plugin_dock_widget("napari-saf", name)
    viewer.window._qt_window.show()
    return docks


def widgets_in(parent, kinds):
    """Return the widgets of any of the kinds: PySide6 finds children of one kind at a time."""
    return [widget for widget in parent.findChildren(QWidget) if isinstance(widget, kinds)]


def needs_words(widget):
    if isinstance(widget, QScrollBar) or widget.objectName().startswith("qt_"):
        return False
    if isinstance(widget.parentWidget(), QAbstractItemView):
        return False
    return isinstance(widget, INTERACTIVE)


def words_on(widget, dock):
    """Return what the mouse over a widget tells: its own words, or those of what it lies in."""
    while widget is not dock and not widget.toolTip():
        widget = widget.parentWidget()
    return "" if widget is dock else widget.toolTip()


def test_docks_explain_themselves_and_all_of_them_is_reached_by_keys(
    frames, viewer, monkeypatch, qtbot
):
    tab_goes_through_what_is_unfolded_only(frames, qtbot)
    docks_explain_themselves(frames, monkeypatch, qtbot)  # all is unfolded now
    tables_and_lists_are_reached_and_left_by_tab(frames, viewer, qtbot)
    shortcuts_are_free_and_act_on_the_dock_visited_last(frames, viewer, monkeypatch)


def docks_explain_themselves(frames, monkeypatch, qtbot):
    silent = [
        f"{name}: {type(widget).__name__} {getattr(widget, 'text', str)()!r}"
        for name, (_, dock) in frames.items()
        for widget in widgets_in(dock, INTERACTIVE)
        if needs_words(widget) and not words_on(widget, dock)
    ]
    assert not silent, "\n".join(silent)

    opened = []
    monkeypatch.setattr(
        "napari_saf._gui.docks.base.HelpPage", lambda page, dock: Opened(opened, page)
    )
    manifest = npe2.PluginManifest.from_distribution("napari-saf")
    for widget in manifest.contributions.widgets:
        frame, dock = frames[widget.display_name]
        frame.raise_()
        qtbot.waitUntil(dock.isVisible)
        assert dock.minimumSizeHint().width() <= WIDEST
        page = widget.command.partition(".")[2]
        (button,) = [b for b in frame.findChildren(QToolButton) if "help" in b.objectName()]
        button.click()
        assert opened.pop() == page
        assert page_path(page).is_file()


class Opened:
    """A page of help that is not shown."""

    def __init__(self, opened, page):
        self.show = lambda: opened.append(page)


def test_docks_join_in_tabs_and_are_not_widened_in_a_small_window(viewer, qtbot):
    viewer.add_image(np.eye(8), name=LONG_NAME)
    viewer.add_labels(np.eye(8, dtype=int), name=f"{LONG_NAME} [SAF]")
    viewer.window.resize(*SMALL_WINDOW)
    window = viewer.window._qt_window
    window.show()
    other = viewer.window.add_dock_widget(QLabel("of another plugin"))
    docks = {
        name: viewer.window.add_plugin_dock_widget("napari-saf", name) for name in dock_names()
    }
    joined = [frame for frame, _ in docks.values()]
    qtbot.waitUntil(lambda: len(window.tabifiedDockWidgets(joined[0])) == len(joined) - 1)
    assert not window.tabifiedDockWidgets(other)
    other.close()
    for frame, dock in docks.values():
        frame.raise_()
        qtbot.waitUntil(dock.isVisible)
        dock.status.show_error(f"{LONG_NAME}.tif is there already", "Replace it")
        for fold in dock.findChildren(QCollapsible):
            fold.expand(animate=False)
        for widget in widgets_in(dock, (QLabel, QAbstractButton, QComboBox)):
            left = widget.mapTo(dock, QPoint()).x()
            is_inside = left >= 0 and left + widget.width() <= dock.width()
            assert is_inside or not widget.isVisible(), widget
        assert frame.width() <= WIDEST
        corners = QRect(dock.mapTo(dock.window(), QPoint()), dock.size())
        assert window.rect().contains(corners)


def tab_goes_through_what_is_unfolded_only(frames, qtbot):
    for name, (frame, dock) in frames.items():
        frame.raise_()
        qtbot.waitUntil(dock.isVisible)
        folds = dock.findChildren(QCollapsible)
        for fold in folds:
            fold.collapse(animate=False)
        contents = [fold.content() for fold in folds]
        assert not [w for w in reached_by_tab(dock, qtbot) if is_in_any(w, contents)], name
        for fold in folds:
            fold.expand(animate=False)
        reached = reached_by_tab(dock, qtbot)
        for content in contents:  # a fold may have nothing but words in it
            if any(map(can_be_used, widgets_in(content, INTERACTIVE))):
                assert any(is_in_any(widget, [content]) for widget in reached), name


def tables_and_lists_are_reached_and_left_by_tab(frames, viewer, qtbot):
    viewer.add_image(np.zeros((9, 9)), name="image")
    viewer.add_labels(np.kron([[1, 2], [2, 1]], np.ones((4, 4), dtype=int)), name="labels")
    frames["Scribbles"][1].new_strokes()
    qtbot.waitUntil(lambda: len(frames["Prototypes"][1].table.rows) > 0)
    export = frames["Export"][1]
    export.labels.choose(viewer.layers["labels"])
    qtbot.waitUntil(lambda: export.table.model.rowCount() > 0)
    left = set()
    for frame, dock in frames.values():
        frame.raise_()
        qtbot.waitUntil(dock.isVisible)
        for table in widgets_in(dock, (QTableView, QListWidget)):
            if table.isVisible() and table.model().rowCount():
                assert table.focusPolicy() & Qt.FocusPolicy.TabFocus
                table.setFocus()
                qtbot.keyClick(table, Qt.Key.Key_Tab)
                assert dock.window().focusWidget() is not table
                left.add(type(table).__name__)
    assert left == {
        "ClassTable",
        "ImageList",
        "ImageTable",
        "LabelList",
        "LabelTable",
        "TableView",
    }


def reached_by_tab(dock, qtbot):
    """Return the widgets of a dock that take the keyboard one after another."""
    window, reached = dock.window(), []
    widget = next(filter(can_be_used, widgets_in(dock, INTERACTIVE)))
    widget.setFocus()
    while widget not in reached:
        reached.append(widget)
        qtbot.keyClick(widget, Qt.Key.Key_Tab)
        widget = window.focusWidget()
    return reached


def can_be_used(widget):
    return widget.isVisible() and widget.isEnabled() and not isinstance(widget, QScrollBar)


def is_in_any(widget, contents):
    return any(content.isAncestorOf(widget) for content in contents)


def test_help_shows_pages_with_pictures_that_fit_and_leads_to_others(qtbot):
    page = HelpPage("segment")
    qtbot.addWidget(page)
    page.show()
    text = page.toPlainText()
    assert "toctree" not in text and len(text) > 500
    widths = [
        page.loadResource(2, QUrl(f"pictures/{path.name}")).width()
        for path in page_path("segment").parent.glob("pictures/segment_*.png")
    ]
    assert widths and max(widths) < page.width()
    page.setSource(QUrl("export.md"))
    assert page.source().fileName() == "export.md" and page.toPlainText() != text
    with pytest.raises(FormatError, match=r"nothing\.md"):
        HelpPage("nothing")


def shortcuts_are_free_and_act_on_the_dock_visited_last(frames, viewer, monkeypatch):
    keys = {
        coerce_keybinding(key)
        for _, dock in frames.values()
        for key in getattr(dock, "shortcuts", ())
    }
    assert keys and keys <= set(viewer.keymap)
    taken = {key for bindings in default_shortcuts.values() for key in bindings}
    for kind in (Image, Labels, Points, type(viewer)):
        taken |= set(kind.class_keymap)
    assert not keys & taken

    called = []
    docks = [frames[name][1] for name in ("Segment", "Patch dictionary")]
    for dock in docks:
        monkeypatch.setitem(dock.shortcuts, "Shift-R", lambda dock=dock: called.append(dock))
        monkeypatch.setattr(dock, "isVisible", lambda: True)
    for dock in docks:
        dock.enterEvent(QEnterEvent(*[QPointF(1, 1)] * 3))
        viewer.keymap[coerce_keybinding("Shift-R")](viewer)
    assert called == docks
    followers = [dock for _, dock in frames.values() if type(dock).__dict__.get("start") is None]
    for dock in followers:
        monkeypatch.setattr(dock, "isVisible", lambda: True)
        dock.enterEvent(QEnterEvent(*[QPointF(1, 1)] * 3))
    viewer.keymap[coerce_keybinding("Shift-R")](viewer)
    assert followers and called == [*docks, docks[-1]]

    for frame, _ in frames.values():
        viewer.window.remove_dock_widget(frame)
    assert not keys & set(viewer.keymap)
    viewer.bind_key("Shift-R", kept := lambda viewer: None)  # of a person
    frame, _ = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    assert viewer.keymap[coerce_keybinding("Shift-R")] is kept
    viewer.window.remove_dock_widget(frame)
    assert viewer.keymap[coerce_keybinding("Shift-R")] is kept


def test_layers_go_in_the_context_of_the_canvas(make_napari_viewer, qtbot):
    viewer = make_napari_viewer(show=True)
    frame, widget = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    layers = [viewer.add_image(np.eye(8)) for _ in range(2)]
    canvas = widget.window().findChild(QOpenGLWidget)
    qtbot.waitUntil(lambda: canvas.isValid(), timeout=TIMEOUT)
    current = []
    viewer.layers.events.removed.connect(lambda: current.append(QOpenGLContext.currentContext()))
    canvas.doneCurrent()
    viewer.layers.remove(layers[0])
    assert current == [canvas.context()]
    viewer.window.remove_dock_widget(frame)
    canvas.doneCurrent()
    viewer.layers.remove(layers[1])
    assert current[1] is None


def test_libraries_of_the_first_dock_are_loaded_while_the_window_lives(viewer, monkeypatch):
    loaded, ticks, timer = [], [], QTimer(interval=10)

    def load(name):
        loaded.append((name, threading.current_thread() is threading.main_thread()))
        time.sleep(0.1)
        return types.SimpleNamespace(SegmentWidget=QWidget)

    monkeypatch.delitem(sys.modules, "napari_saf._gui.segment.dock")
    monkeypatch.setattr(_gui.importlib, "import_module", load)
    viewer.window._qt_window.show()
    timer.timeout.connect(lambda: ticks.append(len(loaded)))
    timer.start()
    assert _gui.SegmentWidget is QWidget
    timer.stop()
    *others, last = loaded
    assert ("torch", False) in others and not any(is_main for _, is_main in others)
    assert last == ("napari_saf._gui.segment.dock", True) and len(ticks) > 3
