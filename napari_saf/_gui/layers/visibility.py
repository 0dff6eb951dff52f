"""Order and visibility of results: above their image, the newest per region, nothing over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import napari
import numpy as np
from napari.layers import Image, Labels, Layer

from napari_saf._gui.layers.metadata import (
    MAP_KEY,
    image_id_of,
    is_given,
    is_strokes,
    metadata_of,
)
from napari_saf._gui.napari_workarounds import dims_of, grid_of, unwrapped

_OPAQUE = 0.9
"""Opacity above which an image hides what lies below it."""
_COVERED = 0.5
"""Covered share of a layer from which on the layer that covers it is hidden."""


@contextmanager
def selection_kept(viewer: napari.Viewer) -> Iterator[None]:
    """Keep the selected layers selected although napari selects each layer that is added."""
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
    """Move a layer above its image and other layers of that image, but below strokes.

    From below: the image, images blended with it, labels, computed images, points, strokes.
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
    """Return visible layers that hide a layer of an image, and the share of it that they cover.

    These are opaque images, probability maps, and results of other images. In three dimensions,
    and in the grid, there are none.
    """
    order, image_ids = list(viewer.layers), ("", str(image.unique_id))
    if layer not in order or dims_of(viewer).ndisplay == 3 or grid_of(viewer).enabled:
        return []
    covering = []
    for cover in order[order.index(layer) + 1 :]:
        is_image = isinstance(cover, Image) and is_given(cover)
        hides = is_image and is_opaque(cover) and cover != image
        hides |= MAP_KEY in metadata_of(cover) or image_id_of(cover) not in image_ids
        if cover.visible and hides:
            covering.append((cover, _covered_share(viewer, layer, cover)))
    return [(cover, share) for cover, share in covering if share > 0]


def _covered_share(viewer: napari.Viewer, layer: Layer, cover: Layer) -> float:
    """Return the share of the bounding box of a layer, on screen, that lies in that of another."""
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
    """The image of a result, and the slice that was labelled: axes and positions, if any."""

    image: ReferenceType[Any]
    fixed: frozenset[tuple[int, int]]
    is_hidden: bool = False


class ResultVisibility:
    """Visibility of the results of a viewer; holds no layer alive."""

    def __init__(self, viewer: Callable[[], Any]) -> None:
        self._viewer = viewer
        self._regions: WeakKeyDictionary[Any, _Region] = WeakKeyDictionary()

    def show_result(self, image: Any, layer: Any, index: tuple[int | slice, ...] = ()) -> str:
        """Show a new result, and hide earlier ones of the same region of the image, once.

        The `index` is the labelled region: results of other slices stay, a volume hides those of
        its slices. Return a note on other layers that were hidden, see `uncover`.
        """
        fixed = frozenset((axis, at) for axis, at in enumerate(index) if isinstance(at, int))
        earlier, result = self._results_in(image, fixed), unwrapped(layer)
        if not earlier or earlier[-1] is not result or self._regions[result].is_hidden:
            self._show(result, _Region(ref(unwrapped(image)), fixed))
        return self.uncover(image, result)

    def restore(self, layer: Any) -> None:
        """Show a result that another one hid, and hide those of the same region."""
        result = unwrapped(layer)
        region = self._regions.get(result)
        if region is not None and region.is_hidden and not result.visible:
            self._show(result, _Region(region.image, region.fixed))
            self.uncover(region.image(), result)

    def reveal(self, image: Any, layer: Any) -> str:
        """Show a layer that is no result, and its image; see `uncover`."""
        _make_visible(image, layer)
        return self.uncover(image, layer)

    def uncover(self, image: Any, layer: Any) -> str:
        """Hide the layers that cover a layer of an image; return a note on images for the status.

        A layer over less than half of it, such as the next tile, stays, and is noted, too. Results
        that were hidden with their image are shown again with it.
        """
        viewer, notes = self._viewer(), list[str]()
        images, hidden = list[Any](), list[Any]()
        covering = [] if viewer is None or image is None else _covering(viewer, layer, image)
        for cover, share in covering:
            is_image = is_given(cover) and isinstance(cover, Image)
            if share < _COVERED:
                notes += [f"{cover.name} lies over a part of {layer.name}"] * is_image
                continue
            self._hide(cover)
            (images if is_image else hidden).append(cover)
            notes += [f"{cover.name} is hidden: it lay over {image.name}"] * is_image
        for cover in images:
            _show_together(cover, hidden)
        return "\n".join(notes)

    def hide_results(self, image: Any) -> None:
        for layer in self._results_of(image):
            self._hide(layer)

    def _show(self, layer: Any, region: _Region) -> None:
        for result in self._results_in(region.image(), region.fixed):
            self._hide(result)
        self._regions.pop(layer, None)  # the newest is last
        self._regions[layer] = region
        _make_visible(region.image(), layer)

    def _hide(self, layer: Any) -> None:
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


def _make_visible(*layers: Any) -> None:
    """Show layers that are hidden; setting it on others would end their mode."""
    for layer in layers:
        if layer is not None and not layer.visible:
            layer.visible = True


def _show_together(image: Image, layers: list[Any]) -> None:
    """Show the given layers of an image, if they still exist, once the image is shown again."""
    results = WeakSet(layer for layer in layers if image_id_of(layer) == str(image.unique_id))

    def on_visible(event: object) -> None:
        if image.visible:
            image.events.visible.disconnect(on_visible)
            _make_visible(*results)

    if results:
        image.events.visible.connect(on_visible)
