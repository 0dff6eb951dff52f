"""Sample images in the viewer, and the windows of ``napari-saf demo`` and ``app``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import napari
from napari.types import FullLayerData

from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.placement import place
from napari_saf._gui.layers.view import visibility_of
from napari_saf.io import ImageFile
from napari_saf.result import Segmentation
from napari_saf.samples import SAMPLES, read_sample


def show(image: ImageFile, result: Segmentation, name: str) -> None:
    """Open napari with an image, its labels and the Segment dock; return when it is closed."""
    fill(napari.Viewer(title="napari-saf"), image, result, name)
    napari.run()


def open_images(paths: Sequence[str], dock: str) -> None:
    """Open napari with images and a dock; return when it is closed."""
    viewer = napari.Viewer(title="napari-saf")
    if paths:
        viewer.open([*paths])
    viewer.window.add_plugin_dock_widget("napari-saf", dock)
    napari.run()


def fill(viewer: napari.Viewer, image: ImageFile, result: Segmentation, name: str) -> None:
    layer = viewer.add_image(image.array, **_options(image, name))
    title = str(result.recipe["method"]).upper()
    live = LiveLayer(viewer, layer, title, place(layer, tuple(range(layer.ndim)), {}))
    live.finish(result)
    viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
    visibility_of(viewer).show_result(layer, live.layer)


def _options(image: ImageFile, name: str) -> dict[str, object]:
    entries = {"scale": image.scale, "units": image.units, "translate": image.origin}
    options = {key: value for key, value in entries.items() if value is not None}
    return {"name": name, "rgb": image.channel_axis is not None} | options


def _layer(name: str) -> list[FullLayerData]:
    image = read_sample(name)
    return [(image.array, _options(image, SAMPLES[name].title.split(" (")[0]), "image")]


colour_wheel = partial(_layer, "colour_wheel")
astronaut = partial(_layer, "astronaut")
brick = partial(_layer, "brick")
coins = partial(_layer, "coins")
histology = partial(_layer, "histology")
nuclei = partial(_layer, "nuclei")
