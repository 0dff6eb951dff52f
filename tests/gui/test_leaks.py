"""Nothing is left of docks that were closed and layers that were removed."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pytest
from gui_cases import TIMEOUT, blocks
from monkey import dock_names
from qtpy.compat import isalive
from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QApplication, QWidget

from napari_saf._gui.compare.dock import CompareWidget
from napari_saf._gui.docks.base import DockLifetime
from napari_saf._gui.forms import layout

pytestmark = pytest.mark.gui


def start_and_wait(dock, qtbot):
    """Start what a dock is for, if it is for something, and wait for the end."""
    if hasattr(dock, "start"):
        dock.start()
        qtbot.waitUntil(lambda: not dock.panel.is_busy, timeout=TIMEOUT)


def prepare(dock):
    """Give a dock what it needs for a short run."""
    if hasattr(dock, "form"):
        dock.form.set_values({"stop.max_steps": 5, "max_iterations": 2, "n_atoms": 3})
    if isinstance(dock, CompareWidget):
        dock.choice.rows[0].choose("max_labels", "2, 3")
        dock.choice.rows[1].choose(None)
    if hasattr(dock, "new_strokes"):
        dock.follow.setChecked(False)
        dock.new_strokes()
        strokes = dock.input.strokes
        strokes.data_setitem((np.array([3, 3]), np.array([3, 4])), 1)
        strokes.data_setitem((np.array([20, 20]), np.array([20, 21])), 2)


def alive(widget):
    """Return what finds a widget until Qt has deleted it: PySide6 keeps the shell of frames."""
    known = weakref.ref(widget)
    return lambda: known() if known() is not None and isalive(known()) else None


def run_all(viewer, qtbot):
    """Open all docks, run each, remove everything; return weak references to what there was."""
    viewer.add_image(blocks(), name="blocks")
    refs = []
    for name in dock_names():
        frame, dock = viewer.window.add_plugin_dock_widget("napari-saf", name)
        prepare(dock)
        start_and_wait(dock, qtbot)
        refs += [(name, weakref.ref(dock)), (f"frame of {name}", alive(frame))]
        refs += [
            (f"{name}: {attribute}", weakref.ref(value))
            for attribute, value in vars(dock).items()
            if type(value).__module__.startswith("napari_saf") and hasattr(value, "__weakref__")
        ]
        viewer.window.remove_dock_widget(frame)
    refs += [
        (layer.name, weakref.ref(layer.__wrapped__ if hasattr(layer, "__wrapped__") else layer))
        for layer in viewer.layers
    ]
    viewer.layers.clear()
    return refs


def test_nothing_is_left_of_docks_and_layers(viewer, qtbot, until_gone):
    n_threads = threading.active_count()
    refs = run_all(viewer, qtbot)
    assert len(refs) > 2 * len(dock_names())
    until_gone(refs)
    assert threading.active_count() <= n_threads


def test_open_docks_let_go_of_layers_that_are_removed(viewer, qtbot, until_gone):
    viewer.add_image(blocks(), name="blocks")
    docks = {
        name: viewer.window.add_plugin_dock_widget("napari-saf", name)[1] for name in dock_names()
    }
    prepare(docks["Segment"])
    for _ in range(2):
        start_and_wait(docks["Segment"], qtbot)
        viewer.add_labels(np.ones((24, 32), dtype=np.uint8), name="drawn")
        qtbot.wait(50)
        refs = [(layer.name, weakref.ref(layer)) for layer in viewer.layers]
        viewer.layers.clear()
        viewer.add_image(blocks(), name="blocks")
    until_gone(refs)


def test_a_viewer_that_closes_itself_takes_its_docks_along(make_napari_viewer, qtbot, long_run):
    viewer = make_napari_viewer(show=True)
    viewer.add_image(blocks(), name="blocks")
    dock, follower = (
        viewer.window.add_plugin_dock_widget("napari-saf", name)[1]
        for name in ("Segment", "Diagnostics")
    )
    long_run(dock)
    controller = dock.controller
    viewer.close()
    assert follower.lifetime.has_ended and not controller.is_running
    # What was on its way comes now; none of it may reach a widget that is gone.
    qtbot.wait(200)


def test_a_dock_that_has_ended_hears_of_no_events(model, qtbot):
    """Qt may delete what follows it after Python has cleared that."""
    dock, heard = QWidget(), []
    qtbot.addWidget(dock)
    lifetime = DockLifetime(model, dock, lambda: None)
    lifetime.eventFilter = lambda *event: bool(heard.append(event))
    QApplication.sendEvent(dock, QEvent(QEvent.Type.Polish))
    assert heard
    lifetime.end()
    heard.clear()
    QApplication.sendEvent(dock, QEvent(QEvent.Type.Polish))
    assert not heard


def test_sections_that_were_never_expanded_are_outside_the_window_and_deleted_with_the_dock(
    viewer, qtbot
):
    inserted = viewer.layers.events.inserted.callbacks
    frame, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    contents = [dock.input.features, dock.form.advanced, dock.applying]
    assert [content.parent() for content in contents] == [None] * len(contents)
    assert len(viewer.layers.events.inserted.callbacks) > len(inserted)
    layout._join()  # as the program ends
    assert all(content.parent() is not None for content in contents)
    viewer.window.remove_dock_widget(frame)
    qtbot.waitUntil(lambda: not any(map(isalive, contents)))
    assert viewer.layers.events.inserted.callbacks == inserted
