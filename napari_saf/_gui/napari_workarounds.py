"""Code that depends on the version of napari: access to its models, and workarounds.

Each workaround names its reason and the versions that need it, and is removed with them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import napari
from qtpy.QtWidgets import QMainWindow, QOpenGLWidget, QWidget


def unwrapped(held: Any) -> Any:
    """Return the viewer or layer behind the proxy that napari passes to plugins."""
    return getattr(held, "__wrapped__", held)


def dims_of(viewer: napari.viewer.Viewer) -> Any:
    """Return the dims model; napari is to move it to the canvas when there are several."""
    return viewer.dims


def camera_of(viewer: napari.viewer.Viewer) -> Any:
    return viewer.scene.camera


def grid_of(viewer: napari.viewer.Viewer) -> Any:
    return viewer.canvas.grid


def canvas_size(viewer: napari.viewer.Viewer) -> tuple[int, int]:
    """Return height and width of the canvas in screen pixels."""
    height, width = viewer.canvas.size
    return height, width


def free_graphics_in_canvas(viewer: napari.viewer.Viewer, dock: QWidget) -> Callable[[], None]:
    """Make the OpenGL context of the canvas current when a layer is removed.

    Needed with napari 0.9 and 0.10 (seen with 0.9.2 and vispy 0.17), which free the graphics of a
    removed layer (https://github.com/napari/napari/pull/8122) in the current context, often one
    of Qt. With Mesa's software renderers, drawing then causes a segmentation fault. `dock` is
    docked in, or floats over, the window of the viewer. Returns a function that disconnects.
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
    """Return whether a widget is the dialog that napari shows before its window closes.

    Needed with napari 0.9 and 0.10: Ctrl+Q, Ctrl+W and the menu open it before the window receives
    a close event, and no public event precedes it.
    """
    return type(widget).__name__ == "ConfirmCloseDialog"


def prepare_labels_layers() -> None:
    """Compute in advance, in any thread, what would delay the first Labels layer.

    Needed with vispy 0.17: the dashed lines that napari adds to each Labels layer need a table of
    patterns, computed once per process, a third of the time that the layer takes.
    """
    with suppress(ImportError):
        from vispy.visuals.line.dash_atlas import DashAtlas

        DashAtlas()
