"""What depends on versions of napari: where its models are, and workarounds with their reasons.

A workaround names the versions that need it; it goes with them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import napari
from qtpy.QtWidgets import QMainWindow, QOpenGLWidget, QWidget


def unwrapped(held: Any) -> Any:
    """Return a viewer or layer itself, of which napari hands a proxy to plugins."""
    return getattr(held, "__wrapped__", held)


def dims_of(viewer: napari.viewer.Viewer) -> Any:
    """Return the axes, and where their sliders stand; they move to a canvas when it has several."""
    return viewer.dims


def camera_of(viewer: napari.viewer.Viewer) -> Any:
    return viewer.scene.camera


def grid_of(viewer: napari.viewer.Viewer) -> Any:
    return viewer.canvas.grid


def canvas_size(viewer: napari.viewer.Viewer) -> tuple[int, int]:
    """Return height and width in pixels of the screen."""
    height, width = viewer.canvas.size
    return height, width


def free_graphics_in_canvas(viewer: napari.viewer.Viewer, dock: QWidget) -> Callable[[], None]:
    """Have the OpenGL context of the canvas current when a layer is removed.

    Needed with napari 0.9 and 0.10 (seen with 0.9.2 and vispy 0.17). It frees the graphics of a
    removed layer, see https://github.com/napari/napari/pull/8122, in whatever context is current,
    often one of Qt's own. With Mesa's software renderers a later drawing is a segmentation fault.
    The dock is in the window of the viewer, or floats with it. What is returned ends this.
    """
    dock_ref = weakref.ref(dock)

    def make_current(event: object) -> None:
        window = dock_ref()
        while window is not None and not isinstance(window, QMainWindow):
            window = window.parentWidget()
        center = None if window is None else window.centralWidget()
        canvas = None if center is None else center.findChild(QOpenGLWidget)
        if canvas is not None and canvas.isValid():
            canvas.makeCurrent()

    removing = viewer.layers.events.removing
    removing.connect(make_current)
    return lambda: removing.disconnect(make_current)


def is_close_question(widget: object) -> bool:
    """Tell whether a widget is the dialog by which napari asks before its window closes.

    Needed with napari 0.9 and 0.10: its keys Ctrl+Q and Ctrl+W, and its menu, ask before the window
    hears that it is to close, and nothing public comes before them.
    """
    return type(widget).__name__ == "ConfirmCloseDialog"


def prepare_labels_layers() -> None:
    """Compute, in any thread, what the first Labels layer would have the window wait for.

    Needed with vispy 0.17: lines with dashes, of which napari gives each Labels layer some, take a
    table of patterns, computed once in a process: half as long as all else of a layer.
    """
    with suppress(ImportError):
        from vispy.visuals.line.dash_atlas import DashAtlas

        DashAtlas()
