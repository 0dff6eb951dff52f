"""Which results are in sight: one at a place of an image, and nothing that hides it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from napari.layers import Image

from napari_saf._gui.layers.metadata import image_id_of, is_given
from napari_saf._gui.layers.placement import layers_over

_MOST_COVERED = 0.5
"""Share of a result from which on what lies over it is hidden."""


@dataclasses.dataclass(slots=True, eq=False)
class _Place:
    """The image that a layer is a result of, and the slice: axes and positions, if any."""

    image: ReferenceType[Any]
    fixed: frozenset[tuple[int, int]]
    is_hidden: bool = False


class ResultsInSight:
    """The results of a viewer, which it does not keep alive."""

    def __init__(self, viewer: Callable[[], Any]) -> None:
        self._viewer = viewer
        self._places: WeakKeyDictionary[Any, _Place] = WeakKeyDictionary()

    def show_result(self, image: Any, layer: Any, index: tuple[int | slice, ...] = ()) -> str:
        """Keep a new result in sight, and hide the earlier ones at its place of the image, once.

        The `index` is what is labelled of the image: other slices stay in sight, a volume hides
        those of its slices. Return a note on what else was hidden, see `uncover`.
        """
        fixed = frozenset((axis, at) for axis, at in enumerate(index) if isinstance(at, int))
        here, own = self._results_at(image, fixed), unwrapped(layer)
        if not here or here[-1] is not own or self._places[own].is_hidden:
            self._show(own, _Place(ref(unwrapped(image)), fixed))
        return self.uncover(image, own)

    def bring_back(self, layer: Any) -> None:
        """Show a result that another one hid, and hide those at its place."""
        own = unwrapped(layer)
        place = self._places.get(own)
        if place is not None and place.is_hidden and not own.visible:
            self._show(own, _Place(place.image, place.fixed))
            self.uncover(place.image(), own)

    def reveal(self, image: Any, layer: Any) -> str:
        """Show a layer that is no result, and its image; see `uncover`."""
        _make_visible(image, layer)
        return self.uncover(image, layer)

    def uncover(self, image: Any, layer: Any) -> str:
        """Hide what lies over a layer of an image; return a note of the images for the status.

        What is over less than half of it, such as the next tile, stays, and is noted, too. With an
        image that is shown again comes what was hidden with it.
        """
        viewer, notes = self._viewer(), list[str]()
        images, hidden = list[Any](), list[Any]()
        covers = [] if viewer is None or image is None else layers_over(viewer, layer, image)
        for other, share in covers:
            is_image = is_given(other) and isinstance(other, Image)
            if share < _MOST_COVERED:
                notes += [f"{other.name} lies over a part of {layer.name}"] * is_image
                continue
            self._hide(other)
            (images if is_image else hidden).append(other)
            notes += [f"{other.name} is hidden: it lay over {image.name}"] * is_image
        for other in images:
            _show_together(other, hidden)
        return "\n".join(notes)

    def _show(self, layer: Any, place: _Place) -> None:
        for other in self._results_at(place.image(), place.fixed):
            self._hide(other)
        self._places.pop(layer, None)  # the newest is last
        self._places[layer] = place
        _make_visible(place.image(), layer)

    def _hide(self, layer: Any) -> None:
        if layer.visible:
            layer.visible = False
            if layer in self._places:
                self._places[layer].is_hidden = True

    def _results_at(self, image: Any, fixed: frozenset[tuple[int, int]]) -> list[Any]:
        known = ((layer, self._places[layer].fixed) for layer in self._results_of(image))
        return [layer for layer, own in known if own <= fixed or fixed <= own]

    def hide_results(self, image: Any) -> None:
        for layer in self._results_of(image):
            self._hide(layer)

    def _results_of(self, image: Any) -> list[Any]:
        own = unwrapped(image)
        return [layer for layer, place in self._places.items() if place.image() is own]


_OF_VIEWERS: WeakKeyDictionary[Any, ResultsInSight] = WeakKeyDictionary()


def results_in_sight(viewer: Any) -> ResultsInSight:
    own = unwrapped(viewer)
    return _OF_VIEWERS.setdefault(own, ResultsInSight(ref(own)))


def _make_visible(*layers: Any) -> None:
    """Show those that are hidden; to others it would not be nothing: they lose their mode."""
    for layer in layers:
        if layer is not None and not layer.visible:
            layer.visible = True


def _show_together(image: Image, layers: list[Any]) -> None:
    """Show those layers of an image that are left then, once it is shown again."""
    own = WeakSet(layer for layer in layers if image_id_of(layer) == str(image.unique_id))

    def on_visible(event: object) -> None:
        if image.visible:
            image.events.visible.disconnect(on_visible)
            _make_visible(*own)

    if own:
        image.events.visible.connect(on_visible)


def unwrapped(held: Any) -> Any:
    """Return a viewer or layer itself, of which a plugin may hold a proxy."""
    return getattr(held, "__wrapped__", held)
