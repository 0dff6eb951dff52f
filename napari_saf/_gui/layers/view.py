"""What the viewer shows: layers in its grid, the place in the middle, and when that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal
from scipy import ndimage


def list_events(viewer: napari.Viewer) -> tuple[Any, ...]:
    """Return the events of layers being inserted, removed or renamed."""
    events = viewer.layers.events
    return events.inserted, events.removed, events.renamed


class EventWatch(QObject):
    """Emits `changed` once some events have come to rest for so many milliseconds."""

    changed = Signal()

    def __init__(self, parent: QObject, milliseconds: int, events: Sequence[Any] = ()) -> None:
        super().__init__(parent)
        self._events: Sequence[Any] = ()
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(milliseconds)
        self._rest.timeout.connect(self.changed)
        self.watch(events)

    def watch(self, events: Sequence[Any] = ()) -> None:
        """Watch these events in place of those before."""
        self._rest.stop()
        for event in self._events:
            event.disconnect(self._on_event)
        self._events = events
        for event in events:
            event.connect(self._on_event)

    def _on_event(self, event: Any) -> None:
        self._rest.start()


class LayerWatch(EventWatch):
    """Follows one layer at a time, and shows all of its labels again when it leaves it."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent, 200)
        self.layer: Any = None
        self._highlights = False

    def follow(self, layer: Labels | None) -> None:
        self.show_all()
        self.layer = layer
        if layer is None:
            self.watch()
        else:
            events = layer.events
            self.watch((events.paint, events.set_data, events.labels_update, events.colormap))

    def highlight(self, number: int) -> None:
        if self.layer is not None:
            self._highlights = True
            self.layer.selected_label = number
            self.layer.show_selected_label = True

    def show_all(self) -> None:
        """Show all labels, where one alone was shown from here."""
        if self.layer is not None and self._highlights:
            self.layer.show_selected_label = False
        self._highlights = False


_SPACING = 0.03
_FONT_SIZE = 8


class SideBySide:
    """Shows some layers in the grid, each with its name, and hides the others.

    `on_left` is called when the grid was left, by whatever button.
    """

    def __init__(self, viewer: napari.Viewer, on_left: Callable[[], None]) -> None:
        self._viewer, self._on_left = viewer, on_left
        self._before: list[tuple[Any, bool, float]] = []
        self._grid: dict[str, Any] = {}
        self.is_on = False
        viewer.canvas.grid.events.enabled.connect(self._on_grid_changed)

    def enter(self, layers: Sequence[Any], shape: tuple[int, int]) -> None:
        """Show layers, in the viewer's order, in rows and columns; -1: as many as it takes."""
        viewer, grid = self._viewer, self._viewer.canvas.grid
        if self.is_on or not layers:
            return
        self._before = [(one, one.visible, one.opacity) for one in viewer.layers]
        self._grid = {name: getattr(grid, name) for name in ("stride", "shape", "spacing")}
        for layer in viewer.layers:
            layer.visible = layer in layers
        for layer in layers:
            layer.opacity = 1.0
            layer.name_overlay.font_size = _FONT_SIZE
            layer.name_overlay.visible = True
        grid.stride, grid.shape, grid.spacing = 1, shape, _SPACING
        grid.enabled = True
        self.is_on = True
        viewer.reset_view()

    def leave(self) -> None:
        if self.is_on:
            self._viewer.canvas.grid.enabled = False

    def release(self) -> None:
        self._viewer.canvas.grid.events.enabled.disconnect(self._on_grid_changed)
        self._before = []

    def _on_grid_changed(self, event: object = None) -> None:
        if not self.is_on or self._viewer.canvas.grid.enabled:
            return
        self.is_on = False
        for name, value in self._grid.items():
            setattr(self._viewer.canvas.grid, name, value)
        for layer, visible, opacity in self._before:
            if layer in self._viewer.layers:
                layer.visible, layer.opacity = visible, opacity
                layer.name_overlay.visible = False
        self._before = []
        self._viewer.reset_view()
        self._on_left()


def center_on(
    viewer: napari.Viewer, layer: Labels, where: tuple[float, ...], *, only_if_hidden: bool = False
) -> None:
    """Go to the slice of a pixel of a layer, and bring it to the middle of the screen."""
    dims = viewer.dims
    world = layer.data_to_world(np.array(where, dtype=float))
    here = np.round(layer.world_to_data(dims.point[-layer.ndim :]))
    for k, axis in enumerate(range(dims.ndim - len(world), dims.ndim)):
        # A pixel may be as wide as several slices, of which any may be on screen.
        if axis not in dims.displayed and here[k] != where[k]:
            dims.set_point(axis, world[k])
    first, last = layer.corner_pixels
    if only_if_hidden and ((where >= first) & (where <= last)).all():
        return
    shown = [world[axis - dims.ndim] for axis in dims.displayed if axis - dims.ndim >= -len(world)]
    viewer.scene.camera.center = (0, 0, *shown)[-3:]


def deepest_pixel(
    labels: NDArray[Any], label: int, cancelled: Callable[[], bool]
) -> tuple[int, ...] | None:
    """Return the pixel of the largest region of a label that is deepest inside; None: no pixel."""
    regions, n_regions = ndimage.label(labels == label)
    if n_regions == 0 or cancelled():
        return None
    largest = 1 + int(np.bincount(regions.ravel())[1:].argmax())
    box = ndimage.find_objects(regions, max_label=largest)[largest - 1]
    inside = np.pad(regions[box] == largest, 1)
    depth = ndimage.distance_transform_edt(inside)
    deepest = np.unravel_index(int(depth.argmax()), depth.shape)
    return tuple(int(at) - 1 + side.start for at, side in zip(deepest, box, strict=True))
