"""The view: layers in the grid, the camera, labels brought into view, events of layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import napari
import numpy as np
from napari.layers import Labels, Layer
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtGui import QKeySequence
from qtpy.QtWidgets import QShortcut, QWidget
from scipy import ndimage

from napari_saf._gui.layers.placement import pixels_of, steps_of
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.napari_workarounds import camera_of, dims_of, grid_of


def list_events(viewer: napari.Viewer) -> tuple[Any, ...]:
    events = viewer.layers.events
    return events.inserted, events.removed, events.renamed


class EventWatch(QObject):
    """Emit `changed` once no event has come for so many milliseconds."""

    changed = Signal()

    def __init__(self, parent: QObject, milliseconds: int, events: Sequence[Any] = ()) -> None:
        super().__init__(parent)
        self._events: Sequence[Any] = ()
        self._rest = QTimer(self, singleShot=True, interval=milliseconds)
        self._rest.timeout.connect(self.changed)
        self.watch(events)

    def watch(self, events: Sequence[Any] = ()) -> None:
        """Watch these events instead of earlier ones."""
        self._rest.stop()
        for event in self._events:
            event.disconnect(self._on_event)
        self._events = events
        for event in events:
            event.connect(self._on_event)

    def _on_event(self, event: Any) -> None:
        self._rest.start()


class LayerWatch(EventWatch):
    """Follow one layer at a time; show all its labels again when another is followed."""

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
        self._grid: tuple[Any, ...] = ()
        self.is_on = False
        grid_of(viewer).events.enabled.connect(self._on_grid_changed)

    def enter(self, layers: Sequence[Any], shape: tuple[int, int]) -> None:
        """Show layers, in the viewer's order, in rows and columns; -1: as many as it takes."""
        viewer, grid = self._viewer, grid_of(self._viewer)
        if self.is_on or not layers:
            return
        self._before = [(layer, layer.visible, layer.opacity) for layer in viewer.layers]
        self._grid = grid.stride, grid.shape, grid.spacing
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
            grid_of(self._viewer).enabled = False

    def release(self) -> None:
        grid_of(self._viewer).events.enabled.disconnect(self._on_grid_changed)
        self._before = []

    def _on_grid_changed(self, event: object = None) -> None:
        grid = grid_of(self._viewer)
        if not self.is_on or grid.enabled:
            return
        self.is_on = False
        grid.stride, grid.shape, grid.spacing = self._grid
        for layer, visible, opacity in self._before:
            if layer in self._viewer.layers:
                layer.visible, layer.opacity = visible, opacity
                layer.name_overlay.visible = False
        self._before = []
        self._viewer.reset_view()
        self._on_left()


def center_on(
    viewer: napari.Viewer, layer: Layer, pixel: tuple[float, ...], *, only_if_hidden: bool = False
) -> None:
    """Go to the slice of a pixel of a layer, and bring it to the middle of the screen."""
    dims = dims_of(viewer)
    world = layer.data_to_world(np.array(pixel, dtype=float))
    here = np.round(layer.world_to_data(dims.point[-layer.ndim :]))
    for k, axis in enumerate(range(dims.ndim - len(world), dims.ndim)):
        # A pixel may be as wide as several slices, of which any may be on screen.
        if axis not in dims.displayed and here[k] != pixel[k]:
            dims.set_point(axis, world[k])
    axes, (first, last) = _axes_on_screen(viewer, layer), layer.corner_pixels
    if not only_if_hidden or not ((pixel >= first) & (pixel <= last))[axes].all():
        camera_of(viewer).center = (0, 0, *np.asarray(world)[axes])[-3:]


def middle_on_screen(viewer: napari.Viewer, layer: Layer) -> NDArray[np.floating]:
    """Return the pixel of a layer in the middle of the screen, in the slice on screen."""
    middle = np.array(layer.world_to_data(dims_of(viewer).point[-layer.ndim :]), float)
    axes = _axes_on_screen(viewer, layer)
    middle[axes] = layer.corner_pixels.mean(axis=0)[axes]
    return middle


def _axes_on_screen(viewer: napari.Viewer, layer: Layer) -> list[int]:
    missing = dims_of(viewer).ndim - layer.ndim
    return [axis - missing for axis in dims_of(viewer).displayed if axis >= missing]


_LEAST_RADIUS, _GOOD_RADIUS = 3.0, 12.0
"""Of a region on screen, in pixels of the screen: smaller cannot be seen; what to go to."""
_FAR = 1e6
"""Distance, in pixels, of slices of which one is on screen."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The pixel of a label that is deepest inside, how deep, and if that much of it is in sight."""

    pixel: tuple[int, ...]
    depth: float
    is_in_sight: bool


class LabelFinder(QObject):
    """Brings a label into sight where it is not, or too small; Esc brings the camera back.

    The `dock` is in the window whose keys are meant; `returned` follows Esc.
    """

    returned = Signal()

    def __init__(self, viewer: napari.Viewer, dock: QWidget) -> None:
        super().__init__(dock)
        self._viewer = viewer
        self._before: tuple[Any, ...] = ()
        self._after: tuple[Any, ...] = ()
        self._escape = QShortcut(QKeySequence("Esc"), dock)
        self._escape.setEnabled(False)
        # Where two docks wait for the key, none has it for itself.
        self._escape.activated.connect(self.go_back)
        self._escape.activatedAmbiguously.connect(self.go_back)

    def searcher(self, layer: Labels, label: int) -> Callable[[Callable[[], bool]], Place | None]:
        """Return a search for a label, first on screen; its result is None without such pixels."""
        pixels = pixels_of(layer)
        here = np.round(layer.world_to_data(dims_of(self._viewer).point[-layer.ndim :])).astype(int)
        box = np.array([here, here])
        shown = _axes_on_screen(self._viewer, layer)
        box[:, shown] = layer.corner_pixels[:, shown]
        box = np.clip(box, 0, np.array(pixels.shape) - 1)
        window = tuple(slice(first, last + 1) for first, last in box.T.tolist())
        least = _LEAST_RADIUS / self._side_of_pixel(layer)

        def search(cancelled: Callable[[], bool]) -> Place | None:
            labels = Pixels(pixels).read(cancelled)
            seen = deepest_pixel(labels[window], label, shown, cancelled)
            if seen is not None and seen[1] >= least:
                return Place(*seen, is_in_sight=True)
            deepest = deepest_pixel(labels, label, shown, cancelled)
            return None if deepest is None else Place(*deepest, is_in_sight=False)

        return search

    def go(self, layer: Labels, target: Place | None) -> None:
        if target is None or target.is_in_sight or layer not in self._viewer.layers:
            return
        now = self._view()
        if now != self._after:  # the person has moved since
            self._before = now
        radius = target.depth * self._side_of_pixel(layer)
        is_small = radius < _LEAST_RADIUS
        center_on(self._viewer, layer, target.pixel, only_if_hidden=not is_small)
        if is_small:
            camera_of(self._viewer).zoom *= _GOOD_RADIUS / radius
        self._after = self._view()
        self._escape.setEnabled(True)

    def go_back(self) -> None:
        camera, dims = camera_of(self._viewer), dims_of(self._viewer)
        point, camera.center, camera.zoom = self._before
        if len(point) == dims.ndim:
            dims.point = point
        self._before = self._after = ()
        self._escape.setEnabled(False)
        self.returned.emit()

    def _view(self) -> tuple[Any, ...]:
        camera = camera_of(self._viewer)
        return tuple(dims_of(self._viewer).point), tuple(camera.center), float(camera.zoom)

    def _side_of_pixel(self, layer: Layer) -> float:
        """Return the side of a pixel of a layer, in pixels of the screen."""
        sizes = steps_of(layer, _axes_on_screen(self._viewer, layer)).sizes
        return float(camera_of(self._viewer).zoom * min(sizes))


def deepest_pixel(
    labels: NDArray[Any], label: int, shown: Sequence[int], cancelled: Callable[[], bool]
) -> tuple[tuple[int, ...], float] | None:
    """Return the pixel of the largest region of a label that is deepest inside, and how deep.

    That is along the axes that are shown. None: no pixel.
    """
    regions, n_regions = ndimage.label(labels == label)
    if n_regions == 0 or cancelled():
        return None
    largest = 1 + int(np.bincount(regions.ravel())[1:].argmax())
    box = ndimage.find_objects(regions, max_label=largest)[largest - 1]
    rims = [int(axis in shown) for axis in range(labels.ndim)]
    inside = np.pad(regions[box] == largest, [(rim, rim) for rim in rims])
    depth = ndimage.distance_transform_edt(inside, [1 if rim else _FAR for rim in rims])
    deepest = np.unravel_index(int(depth.argmax()), depth.shape)
    starts = zip(deepest, box, rims, strict=True)
    return tuple(int(at) - rim + side.start for at, side, rim in starts), float(depth.max())
