"""A box round one thing: strokes on it and on what is around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Shapes
from napari.layers.base import ActionType
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal

from napari_saf._gui.layers.reading import ImageJob
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf.errors import InvalidInput
from napari_saf.features import channels_last
from napari_saf.flow import not_cancelled
from napari_saf.objects import exemplar_strokes


class BoxDrawing(QObject):
    """Lets a person draw a box; `drawn` has its corners (4, n_axes) in the world."""

    drawn = Signal(object)

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self.layer: Shapes | None = None

    def start(self) -> None:
        self.stop()
        self.layer = self._viewer.add_shapes(
            ndim=dims_of(self._viewer).ndim,
            name="box round one thing",
            edge_color="yellow",
            face_color="transparent",
        )
        self.layer.mode = "add_rectangle"
        self.layer.events.data.connect(self._on_data)

    def stop(self) -> None:
        layer, self.layer = self.layer, None
        if layer is not None:
            layer.events.data.disconnect(self._on_data)
            if layer in self._viewer.layers:
                self._viewer.layers.remove(layer)

    def _on_data(self, event: Any) -> None:
        if event.action == ActionType.ADDED:
            QTimer.singleShot(0, self._take)  # napari is not done with the box yet

    def _take(self) -> None:
        if self.layer is not None and len(self.layer.data):
            corners = np.array(self.layer.data[-1])
            self.stop()
            self.drawn.emit(corners)


def paint_box(job: ImageJob, image: Image, corners: NDArray[Any], strokes: Labels) -> None:
    """Paint class 1 on the thing in a box and class 2 around it; InvalidInput: why not.

    The corners are in the world, the job has these strokes.
    """
    assert job.seeds is not None
    pixels, axis = job.read_image(not_cancelled)
    values = channels_last(pixels, axis)[0]
    points = np.array([image.world_to_data(corner[-image.ndim :]) for corner in corners])
    box = tuple(_sides(job, points, values.shape[:-1]))
    if any(side.stop - side.start < 2 for side in box):
        raise InvalidInput("box: expected one round a thing within the image")
    painted = np.zeros(strokes.data.shape, np.uint8)
    region = painted[job.seeds.index]
    region[...] = exemplar_strokes(values, box).reshape(region.shape)
    for number in (2, 1):
        strokes.data_setitem(np.nonzero(painted == number), number)


def _sides(job: ImageJob, points: NDArray[Any], shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield the sides of a box in the region of a job; where it is flat, as deep as it is wide."""
    index, channels = job.pixels.index, job.options.channel_axis
    starts = {axis: at.start or 0 for axis, at in enumerate(index) if isinstance(at, slice)}
    axes = list(starts)
    if channels is not None and len(axes) > len(shape):
        del axes[channels]
    lows, highs = (ends[axes[: len(shape)]] for ends in (points.min(axis=0), points.max(axis=0)))
    depth = np.median((highs - lows)[highs - lows > 1]) if (highs - lows > 1).any() else 0
    for low, high, n_pixels, axis in zip(lows, highs, shape, axes, strict=False):
        margin = depth / 2 if high - low <= 1 < n_pixels else 0
        first = int(np.floor(low - margin - starts[axis] + 0.5))
        last = int(np.ceil(high + margin - starts[axis] + 0.5))
        yield slice(max(0, first), min(n_pixels, max(last, first + 1)))
