"""The window that ``napari-saf demo`` opens."""

from __future__ import annotations

import napari

from napari_saf.io import ImageFile
from napari_saf.result import Segmentation

__all__ = ["fill", "show"]


def show(image: ImageFile, result: Segmentation, name: str) -> None:
    """Open napari with an image, its labels and the Segment dock; return when it is closed."""
    fill(napari.Viewer(title="napari-saf"), image, result, name)
    napari.run()


def fill(viewer: napari.Viewer, image: ImageFile, result: Segmentation, name: str) -> None:
    """Add an image and its labels to a viewer, and open the Segment dock."""
    is_rgb = image.channel_axis is not None
    scale = {} if image.scale is None else {"scale": image.scale}
    units = {} if image.units is None else {"units": image.units}
    viewer.add_image(image.array, name=name, rgb=is_rgb, **scale, **units)
    viewer.add_labels(result.labels, name=f"{name} labels", **scale, **units)
    viewer.window.add_plugin_dock_widget("napari-saf", "Segment")
