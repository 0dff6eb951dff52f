"""The layers of a comparison: one a result, with common numbers and colours in the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import napari
from napari.layers import Image
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QWidget

from napari_saf._gui.compare.choice import panel_names
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.runs.fluency import painted_later
from napari_saf.comparison import Compared, Comparison, Variant

__all__ = ["ComparisonLayers"]

_TURN_MILLISECONDS = 15


class ComparisonLayers:
    """Adds and changes layers one at a time, each in a turn of the event loop of its own.

    Parameters
    ----------
    viewer : napari.Viewer
    widget : QWidget
        In the window of the viewer.
    image : Image
        What is labelled.
    placement : Placement
        Where the labels lie.
    variants : list of Variant
        What will be shown.
    """

    def __init__(
        self,
        viewer: napari.Viewer,
        widget: QWidget,
        image: Image,
        placement: Placement,
        variants: list[Variant],
    ) -> None:
        self.image = image
        self._viewer, self._widget = viewer, widget
        self._placement = placement
        self._names = dict(zip(variants, panel_names(variants), strict=True))
        self._lives: dict[Variant, LiveLayer] = {}
        self._steps: deque[Callable[[], None]] = deque()
        self._timer = QTimer(widget)
        self._timer.setInterval(_TURN_MILLISECONDS)
        self._timer.timeout.connect(self._take_step)

    def add(self, result: Compared) -> None:
        """Show a result on a layer of its own, above the others."""
        live = self._lives[result.variant] = LiveLayer(
            self._viewer, self.image, self._names[result.variant], self._placement
        )
        count = int(result.labels.max())
        # In the end there may be as many numbers as labels of all results.
        most = count * len(self._names)
        self._do(lambda: live.prepare(result.labels, most))
        self._do(lambda: self._show(live, result, count))

    def finish(self, comparison: Comparison, then: Callable[[], None]) -> None:
        """Give the labels of all layers common numbers, and sort the layers; then call back."""
        for result in comparison.results:
            if result.variant not in self._lives:
                self.add(result)
        for result in comparison.results:
            live = self._lives[result.variant]
            self._do(partial(self._finish, live, result, comparison))
        self._do(lambda: self._sort(comparison, then))

    def layer(self, variant: Variant) -> Any:
        """Return the layer of a variant, or None if it is gone."""
        live = self._lives.get(variant)
        if live is None or live.layer is None or live.layer not in self._viewer.layers:
            return None
        return live.layer

    def layers(self) -> list[Any]:
        """Return the layers that are there."""
        found = [self.layer(variant) for variant in self._names]
        return [layer for layer in found if layer is not None]

    def name(self, variant: Variant) -> str:
        """Return what tells a variant from the others."""
        return self._names[variant]

    def color(self, number: int) -> tuple[float, ...]:
        """Return the colour of a label in all layers."""
        live = next(iter(self._lives.values()))
        return tuple(float(x) for x in live.color(number - 1)[:3])

    def release(self) -> None:
        """Do no more, and let go of the layers."""
        self._timer.stop()
        self._steps.clear()
        self._lives.clear()

    def _show(self, live: LiveLayer, result: Compared, count: int) -> None:
        if self.image not in self._viewer.layers:
            return
        for layer in self.layers():
            layer.visible = False
        with painted_later(self._widget):
            live.show(result.labels, count)
        live.layer.name = self._names[result.variant]

    def _finish(self, live: LiveLayer, result: Compared, comparison: Comparison) -> None:
        if live.layer is None or live.is_lost:
            return
        live.show(result.labels, comparison.n_numbers)
        live.layer.metadata[METADATA_KEY] = live.source | {
            "recipe": result.recipe,
            "prototypes": result.prototypes,
            "columns": result.columns,
            "status": result.status.value,
        }

    def _sort(self, comparison: Comparison, then: Callable[[], None]) -> None:
        """Put the layers on top in the order of the variants, then call back."""
        found = [self.layer(result.variant) for result in comparison.results]
        wanted = [layer for layer in found if layer is not None]
        if wanted != list(self._viewer.layers)[-len(wanted) :]:
            for layer in wanted:
                self._do(partial(self._put_on_top, layer))
        self._do(then)

    def _put_on_top(self, layer: Any) -> None:
        every = self._viewer.layers
        if layer in every:
            every.move(every.index(layer), len(every))

    def _do(self, step: Callable[[], None]) -> None:
        self._steps.append(step)
        if not self._timer.isActive():
            self._timer.start()

    def _take_step(self) -> None:
        if self._steps:
            self._steps.popleft()()
        if not self._steps:
            self._timer.stop()
