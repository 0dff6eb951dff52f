"""The window that ``napari-saf demo`` opens."""

from __future__ import annotations

import napari

from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.placement import place
from napari_saf._gui.runs.controller import run_registry
from napari_saf.io import ImageFile
from napari_saf.result import Segmentation


def show(image: ImageFile, result: Segmentation, name: str) -> None:
    """Open napari with an image, its labels and the Segment dock; return when it is closed."""
    fill(napari.Viewer(title="napari-saf"), image, result, name)
    napari.run()


def fill(viewer: napari.Viewer, image: ImageFile, result: Segmentation, name: str) -> None:
    """Add an image and its labels to a viewer, as the Segment dock does, and open that."""
    is_rgb = image.channel_axis is not None
    scale = {} if image.scale is None else {"scale": image.scale}
    units = {} if image.units is None else {"units": image.units}
    layer = viewer.add_image(image.array, name=name, rgb=is_rgb, **scale, **units)
    title = str(result.recipe["method"]).upper()
    live = LiveLayer(viewer, layer, title, place(layer, tuple(range(layer.ndim)), {}))
    live.finish(result)
    _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    dock.input.scale.set_value(result.recipe["input"]["window"])
    run_registry(viewer).show_result(layer, live.layer)
