"""Order and visibility of layers, grid mode, camera, and bringing labels into view.

Results are above their image; the newest of each region is visible, and not covered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtGui import QKeySequence
from qtpy.QtWidgets import QShortcut, QWidget
from scipy import ndimage

from napari_saf._gui.layers.metadata import (
    MAP_KEY,
    SCORE_KEY,
    image_id_of,
    is_given,
    is_strokes,
    metadata_of,
)
from napari_saf._gui.layers.placement import pixels_of, steps_of
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.napari_workarounds import camera_of, dims_of, grid_of, unwrapped

_OPAQUE = 0.9
"""Opacity above which an image hides the layers below."""
_COVERED = 0.5
"""Covered share of a layer above which the covering layer is hidden."""


@contextmanager
def selection_kept(viewer: napari.Viewer) -> Iterator[None]:
    """Preserve the selection, as napari selects each added layer."""
    selected = list(viewer.layers.selection)
    yield
    remaining = [layer for layer in selected if layer in viewer.layers]
    if len(remaining) == 1:
        viewer.layers.selection.active = remaining[0]
    else:
        viewer.layers.selection = remaining


def insert_above(
    viewer: napari.Viewer, layer: Layer, image: Image, strokes: Labels | None = None
) -> None:
    """Move a layer above its image and the other layers of that image, but below strokes.

    From bottom to top: image, images blended with it, labels, computed images, points, strokes.
    """
    order, image_id = [item for item in viewer.layers if item != layer], str(image.unique_id)
    if image not in order:
        return

    def rank(neighbour: Layer) -> int:
        if neighbour == strokes or is_strokes(neighbour):
            return 3
        return 0 if isinstance(neighbour, Labels) else 1 if isinstance(neighbour, Image) else 2

    def lies_above(neighbour: Layer) -> bool:
        if image_id_of(neighbour) not in ("", image_id):
            return True
        if isinstance(neighbour, Image) and is_given(neighbour):
            return is_opaque(neighbour)
        return rank(neighbour) > rank(layer)

    index = order.index(image) + 1
    while index < len(order) and not lies_above(order[index]):
        index += 1
    now = viewer.layers.index(layer)
    viewer.layers.move(now, index + (index > now))


def is_opaque(layer: Layer) -> bool:
    blending = str(layer.blending)
    is_covering = blending.startswith("translucent") and layer.opacity > _OPAQUE
    return bool(blending == "opaque" or is_covering)


def _covering(viewer: napari.Viewer, layer: Layer, image: Image) -> list[tuple[Layer, float]]:
    """Return the visible layers above a layer of an image, with the share that each covers.

    These are opaque images, probability maps, and results of other images. Empty in 3-D and in
    grid mode.
    """
    order, image_ids = list(viewer.layers), ("", str(image.unique_id))
    if layer not in order or dims_of(viewer).ndisplay == 3 or grid_of(viewer).enabled:
        return []
    covering = []
    for cover in order[order.index(layer) + 1 :]:
        is_image = isinstance(cover, Image) and is_given(cover)
        hides = is_image and is_opaque(cover) and cover != image
        hides |= MAP_KEY in metadata_of(cover) or SCORE_KEY in cover.metadata
        hides |= image_id_of(cover) not in image_ids
        if cover.visible and hides:
            covering.append((cover, _covered_share(viewer, layer, cover)))
    return [(cover, share) for cover, share in covering if share > 0]


def _covered_share(viewer: napari.Viewer, layer: Layer, cover: Layer) -> float:
    """Return the share of the bounding box of a layer, on screen, inside that of another."""
    n_axes, share = min(layer.ndim, cover.ndim), 1.0
    boxes = [each.extent.world[:, -n_axes:] for each in (layer, cover)]
    low, high = np.maximum(boxes[0][0], boxes[1][0]), np.minimum(boxes[0][1], boxes[1][1])
    shown = [axis - dims_of(viewer).ndim for axis in dims_of(viewer).displayed]
    for axis in range(-n_axes, 0):
        side = boxes[0][1][axis] - boxes[0][0][axis]
        if high[axis] < low[axis]:
            return 0.0
        if axis in shown and side > 0:
            share *= (high[axis] - low[axis]) / side
    return float(share)


@dataclasses.dataclass(slots=True, eq=False)
class _Region:
    """The image of a result, and the labelled slice as pairs of axis and position."""

    image: ReferenceType[Any]
    fixed: frozenset[tuple[int, int]]
    is_hidden: bool = False


def _region_of(image: Any, index: tuple[int | slice, ...], *, is_hidden: bool = False) -> _Region:
    fixed = frozenset((axis, at) for axis, at in enumerate(index) if isinstance(at, int))
    return _Region(ref(unwrapped(image)), fixed, is_hidden)


class ResultVisibility:
    """Visibility of the results of a viewer; holds only weak references to layers."""

    def __init__(self, viewer: Callable[[], Any]) -> None:
        self._viewer = viewer
        self._regions: WeakKeyDictionary[Any, _Region] = WeakKeyDictionary()

    def show_result(self, image: Any, layer: Any, index: tuple[int | slice, ...] = ()) -> str:
        """Show a new result and hide earlier ones of the same region of the image, once.

        `index` is the labelled region: results of other slices stay visible, a volume hides those
        of its slices. Return a note on other layers that were hidden, see `uncover`.
        """
        region, result = _region_of(image, index), unwrapped(layer)
        earlier = self._results_in(image, region.fixed)
        if not earlier or earlier[-1] is not result or self._regions[result].is_hidden:
            self._show(result, region)
        return self.uncover(image, result)

    def register(self, image: Any, layer: Any, index: tuple[int | slice, ...] = ()) -> None:
        """Take a layer as a result without changing what is visible; see `show_result`."""
        self._regions[unwrapped(layer)] = _region_of(image, index, is_hidden=not layer.visible)

    def restore(self, layer: Any) -> None:
        """Show a hidden result again, and hide those of the same region."""
        result = unwrapped(layer)
        region = self._regions.get(result)
        if region is not None and region.is_hidden and not result.visible:
            self._show(result, _Region(region.image, region.fixed))
            self.uncover(region.image(), result)

    def reveal(self, image: Any, layer: Any) -> str:
        """Show a layer that is not a result, and its image; see `uncover`."""
        _make_visible(image, layer)
        return self.uncover(image, layer)

    def uncover(self, image: Any, layer: Any) -> str:
        """Hide the layers that cover a layer of an image; return a note on hidden images.

        A layer over less than half of it, such as the next tile, stays visible; images are noted.
        Results hidden together with their image are shown again with it.
        """
        viewer, notes = self._viewer(), list[str]()
        images, hidden = list[Any](), list[Any]()
        covering = [] if viewer is None or image is None else _covering(viewer, layer, image)
        for cover, share in covering:
            is_image = is_given(cover) and isinstance(cover, Image)
            if share < _COVERED:
                notes += [f"{cover.name} covers a part of {layer.name}"] * is_image
                continue
            self.hide(cover)
            (images if is_image else hidden).append(cover)
            notes += [f"{cover.name} is hidden: it covered {image.name}"] * is_image
        for cover in images:
            _show_together(cover, hidden)
        return "\n".join(notes)

    def hide_results(self, image: Any) -> None:
        for layer in self._results_of(image):
            self.hide(layer)

    def _show(self, layer: Any, region: _Region) -> None:
        """Show a result, above the others, and hide those; it becomes active if one of them was."""
        _make_visible(region.image())  # which may show results that were hidden with it
        replaced = self._results_in(region.image(), region.fixed)
        for result in replaced:
            self.hide(result)
        self._regions.pop(layer, None)  # moves to the end as the newest
        self._regions[layer] = region
        _make_visible(layer)
        viewer = self._viewer()
        if viewer is None or layer not in viewer.layers:
            return
        layers, now = viewer.layers, viewer.layers.index(layer)
        top = max([layers.index(result) for result in replaced if result in layers], default=now)
        if top > now:
            layers.move(now, top + 1)
        if layers.selection.active is not None and unwrapped(layers.selection.active) in replaced:
            layers.selection.active = layer

    def hide(self, layer: Any) -> None:
        """Hide a layer, which a later run that shows it makes visible again if it is a result."""
        layer = unwrapped(layer)
        if layer.visible:
            layer.visible = False
            if layer in self._regions:
                self._regions[layer].is_hidden = True

    def _results_in(self, image: Any, fixed: frozenset[tuple[int, int]]) -> list[Any]:
        pairs = [(layer, self._regions[layer].fixed) for layer in self._results_of(image)]
        return [layer for layer, stored in pairs if stored <= fixed or fixed <= stored]

    def _results_of(self, image: Any) -> list[Any]:
        image = unwrapped(image)
        return [layer for layer, region in self._regions.items() if region.image() is image]


_OF_VIEWERS: WeakKeyDictionary[Any, ResultVisibility] = WeakKeyDictionary()


def visibility_of(viewer: Any) -> ResultVisibility:
    viewer = unwrapped(viewer)
    return _OF_VIEWERS.setdefault(viewer, ResultVisibility(ref(viewer)))


def set_visible(layer: Any, is_visible: bool) -> None:
    """Show or hide a layer; napari takes time and resets its mode even where nothing changes."""
    if layer.visible != is_visible:
        layer.visible = is_visible


def _make_visible(*layers: Any) -> None:
    for layer in layers:
        if layer is not None:
            set_visible(layer, True)


_HIDDEN_WITH_IMAGE: WeakSet[Any] = WeakSet()


def is_shown_with_image(layer: Any) -> bool:
    """Return whether a layer is visible, or will be when its image is shown again."""
    return bool(layer.visible or unwrapped(layer) in _HIDDEN_WITH_IMAGE)


def _show_together(image: Image, layers: list[Any]) -> None:
    """Show layers of an image, if they still exist, when the image is shown again."""
    results = WeakSet(layer for layer in layers if image_id_of(layer) == str(image.unique_id))
    _HIDDEN_WITH_IMAGE.update(results)

    def on_visible(event: object) -> None:
        if image.visible:
            image.events.visible.disconnect(on_visible)
            _HIDDEN_WITH_IMAGE.difference_update(results)
            _make_visible(*results)

    if results:
        image.events.visible.connect(on_visible)


def list_events(viewer: napari.Viewer) -> tuple[Any, ...]:
    events = viewer.layers.events
    return events.inserted, events.removed, events.renamed


class EventWatch(QObject):
    """Emits `changed` when no event arrived for `milliseconds`."""

    changed = Signal()

    def __init__(self, parent: QObject, milliseconds: int, events: Sequence[Any] = ()) -> None:
        super().__init__(parent)
        self._events: Sequence[Any] = ()
        self._rest = QTimer(self, singleShot=True, interval=milliseconds)
        self._rest.timeout.connect(self.changed)
        self.watch(events)

    def watch(self, events: Sequence[Any] = ()) -> None:
        """Watch these events instead of the previous ones."""
        self._rest.stop()
        for event in self._events:
            event.disconnect(self._on_event)
        self._events = events
        for event in events:
            event.connect(self._on_event)

    def _on_event(self, event: Any) -> None:
        self._rest.start()


class LayerWatch(EventWatch):
    """Follows one layer at a time; shows all its labels again before following another."""

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
    """Shows layers in grid mode, each with its name, and hides the others.

    `on_left` is called when grid mode ends, by any button, with whether there are newer labels,
    which then stay in view.
    """

    def __init__(self, viewer: napari.Viewer, on_left: Callable[[bool], None]) -> None:
        self._viewer, self._on_left = viewer, on_left
        self._before: list[tuple[Any, bool, float]] = []
        self._camera: tuple[Any, float] = ((0, 0, 0), 1.0)
        self._grid: tuple[Any, ...] = ()
        self.is_on = False
        grid_of(viewer).events.enabled.connect(self._on_grid_changed)

    def enter(self, layers: Sequence[Any], shape: tuple[int, int]) -> None:
        """Show layers in the order of the viewer; `shape` is (rows, columns), -1 for automatic."""
        viewer, grid = self._viewer, grid_of(self._viewer)
        if self.is_on or not layers:
            return
        self._before = [(layer, layer.visible, layer.opacity) for layer in viewer.layers]
        self._grid = grid.stride, grid.shape, grid.spacing
        self._camera = camera_of(viewer).center, camera_of(viewer).zoom
        for layer in viewer.layers:
            set_visible(layer, layer in layers)
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
        earlier = [layer for layer, *_ in self._before]
        added = [layer for layer in self._viewer.layers if layer not in earlier and layer.visible]
        relabelled = {image_id_of(layer) for layer in added if isinstance(layer, Labels)} - {""}
        for layer, visible, opacity in self._before:
            if layer in self._viewer.layers:
                is_replaced = isinstance(layer, Labels) and image_id_of(layer) in relabelled
                set_visible(layer, visible and (is_strokes(layer) or not is_replaced))
                layer.opacity = opacity
                layer.name_overlay.visible = False
        self._before = []
        camera_of(self._viewer).center, camera_of(self._viewer).zoom = self._camera
        self._on_left(bool(relabelled))


def center_on(
    viewer: napari.Viewer, layer: Layer, pixel: tuple[float, ...], *, only_if_hidden: bool = False
) -> None:
    """Go to the slice of a pixel of a layer, and centre the view on it."""
    dims = dims_of(viewer)
    world = layer.data_to_world(np.array(pixel, dtype=float))
    here = np.round(layer.world_to_data(dims.point[-layer.ndim :]))
    for k, axis in enumerate(range(dims.ndim - len(world), dims.ndim)):
        # A coarse pixel may cover several slices; any of them may be on screen.
        if axis not in dims.displayed and here[k] != pixel[k]:
            dims.set_point(axis, world[k])
    axes, (first, last) = _axes_on_screen(viewer, layer), layer.corner_pixels
    if not only_if_hidden or not ((pixel >= first) & (pixel <= last))[axes].all():
        camera_of(viewer).center = (0, 0, *np.asarray(world)[axes])[-3:]


def middle_on_screen(viewer: napari.Viewer, layer: Layer) -> NDArray[np.floating]:
    """Return the pixel of a layer at the centre of the view, in the current slice."""
    middle = np.array(layer.world_to_data(dims_of(viewer).point[-layer.ndim :]), float)
    axes = _axes_on_screen(viewer, layer)
    middle[axes] = layer.corner_pixels.mean(axis=0)[axes]
    return middle


def _axes_on_screen(viewer: napari.Viewer, layer: Layer) -> list[int]:
    missing = dims_of(viewer).ndim - layer.ndim
    return [axis - missing for axis in dims_of(viewer).displayed if axis >= missing]


_LEAST_RADIUS, _GOOD_RADIUS = 3.0, 12.0
"""Radius of a region in screen pixels: least visible one, and target of zooming."""
_FAR = 1e6
"""Sampling distance along axes that are not displayed, which excludes them from the depth."""


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The innermost pixel of a label, its depth, and whether the label is visible there."""

    pixel: tuple[int, ...]
    depth: float
    is_in_sight: bool


class LabelFinder(QObject):
    """Brings a label into view if it is hidden or too small; Esc restores the camera, if it moved.

    Esc applies in the window of `dock`; `returned` is emitted after it.
    """

    returned = Signal()

    def __init__(self, viewer: napari.Viewer, dock: QWidget) -> None:
        super().__init__(dock)
        self._viewer = viewer
        self._before: tuple[Any, ...] = ()
        self._after: tuple[Any, ...] = ()
        self._escape = QShortcut(QKeySequence("Esc"), dock)
        self._escape.setEnabled(False)
        # If two docks define the shortcut, Qt emits only `activatedAmbiguously`.
        self._escape.activated.connect(self.go_back)
        self._escape.activatedAmbiguously.connect(self.go_back)

    def searcher(self, layer: Labels, label: int) -> Callable[[Callable[[], bool]], Place | None]:
        """Return a function that searches a label, first on screen; None if it has no pixels."""
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
        if target is None or layer not in self._viewer.layers:
            return
        self._escape.setEnabled(True)
        if target.is_in_sight:
            return
        now = self._view()
        if now != self._after:  # the user has moved the camera since
            self._before = now
        radius = target.depth * self._side_of_pixel(layer)
        is_small = radius < _LEAST_RADIUS
        center_on(self._viewer, layer, target.pixel, only_if_hidden=not is_small)
        if is_small:
            camera_of(self._viewer).zoom *= _GOOD_RADIUS / radius
        self._after = self._view()

    def go_back(self) -> None:
        camera, dims = camera_of(self._viewer), dims_of(self._viewer)
        if self._before:  # else the label was in sight
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
        """Return the side of a pixel of a layer in screen pixels."""
        sizes = steps_of(layer, _axes_on_screen(self._viewer, layer)).sizes
        return float(camera_of(self._viewer).zoom * min(sizes))


def deepest_pixel(
    labels: NDArray[Any], label: int, shown: Sequence[int], cancelled: Callable[[], bool]
) -> tuple[tuple[int, ...], float] | None:
    """Return the innermost pixel of the largest region of a label, and its depth.

    The depth is measured along the axes `shown`. None without a pixel.
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
