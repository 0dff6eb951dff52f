"""What comes of a dictionary that is applied to an image, or compared with another one."""

from __future__ import annotations

from typing import Any

import napari
import numpy as np
from napari.layers import Layer
from numpy.typing import NDArray
from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.layout import (
    FormSection,
    create_button,
    create_fold,
    create_row,
    fill_layout,
)
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import ImageRegion, lay_over, place
from napari_saf._gui.runs.controller import run_registry
from napari_saf.dictionary import PatchSegmentation

_PERCENTILE = 99.5
"""Of the errors; larger ones have the same colour."""
_RECONSTRUCTIONS = (
    ("closest atoms", "blended"),
    ("atoms of the labels", "matched"),
    ("contrast fitted", "fitted"),
)
NO_OTHER = [("none yet", None)]
_KINDS = {
    "Image": "The image alone.",
    "Labels": "The labels: which atom each pixel is like.",
    "Rebuilt": "The image rebuilt from atoms; how well is said in dB (peak signal-to-noise ratio): "
    "more is better, at 20 details are lost, at 40 hardly a difference is seen.",
    "Error": "Where the rebuilt image differs from the image, pixel by pixel.",
}
LayerData = dict[str, tuple[NDArray[Any], dict[str, Any], str]]
"""Layers as napari's plugins describe them, by kind: "Labels", "Rebuilt", "Error", "Gain"."""


class ResultsSection(QWidget):
    """How images are rebuilt, what to compare with, and which of the results is in sight.

    The buttons in `kinds` choose which one of the `layers` that were made that is.
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self.reconstruction, self.other = Choice(_RECONSTRUCTIONS), Choice(NO_OTHER)
        self.compare = create_button(
            "Compare",
            "Rebuild the image from both dictionaries and show where this one is closer "
            "(green) and where the other one is (pink).",
        )
        self.kinds = {kind: create_button(kind, tooltip) for kind, tooltip in _KINDS.items()}
        for kind, button in self.kinds.items():
            button.setCheckable(True)
            button.setAutoExclusive(True)
            button.clicked.connect(lambda checked, kind=kind: self.show_kind(kind))
        self.layers: dict[str, Layer] = {}
        self._viewer = viewer
        self._region: ImageRegion | None = None
        self._kinds_row = create_row(*self.kinds.values())
        self._kinds_row.hide()
        comparison = FormSection()
        comparison.add_row(
            "Rebuild with",
            self.reconstruction,
            "How images are rebuilt: from the best atom of every pixel; from those of the labels "
            "alone; or from the best ones with brightness and contrast of their own.",
        )
        comparison.add_row("Compare with", self.other, "A dictionary that was on screen before.")
        comparison.add_row("", self.compare, "On the image that is chosen above.")
        options = create_fold("Compare, options", comparison)
        fill_layout(QVBoxLayout(self), self._kinds_row, options)

    def add_layers(self, region: ImageRegion, layers: dict[str, Layer]) -> str:
        """Let the buttons show and hide these too, or in place of earlier ones.

        Return a note on what was hidden for that.
        """
        self.layers |= layers
        self._region = region
        for layer in layers.values():
            lay_over(self._viewer, layer, region.image)
        if "Rebuilt" in layers:
            self._kinds_row.show()
        return self.show_kind("Rebuilt" if "Rebuilt" in layers else "Gain")

    def forget_layer(self, layer: Layer) -> None:
        """Let go of a layer that was removed: a result, or the image."""
        self.layers = {kind: own for kind, own in self.layers.items() if own != layer}
        if self._region is not None and layer == self._region.image:
            self._region = None
        self._kinds_row.setVisible(self.layers.keys() >= {"Labels", "Rebuilt", "Error"})

    def show_kind(self, kind: str) -> str:
        """Show "Image", "Labels", "Rebuilt", "Error" or "Gain" alone; return a note as above."""
        if kind in self.kinds:
            self.kinds[kind].setChecked(True)
        for own, layer in self.layers.items():
            layer.visible = own == kind
        if kind not in self.layers or self._region is None:
            return ""
        region, layer = self._region, self.layers[kind]
        return run_registry(self._viewer).show_result(region.image, layer, region.index)

    def show_labels(self, layer: Layer) -> None:
        if layer == self.layers.get("Labels"):
            self.show_kind("Labels")
        run_registry(self._viewer).bring_back(layer)
        layer.visible = True


def describe_results(found: PatchSegmentation, other: PatchSegmentation | None = None) -> str:
    """Say how well a dictionary rebuilds an image, and perhaps how well another one does."""
    if other is not None:
        return f"this dictionary {found.psnr:.1f} dB, the other {other.psnr:.1f} dB"
    n_unused = int((found.usage == 0).sum())
    unused = f", {n_unused} of {len(found.usage)} atoms not used" if n_unused else ""
    return f"{found.psnr:.1f} dB{unused}"


def create_layers(
    region: ImageRegion, found: PatchSegmentation, other: PatchSegmentation | None = None
) -> LayerData:
    """Return what a dictionary makes of a slice of an image layer.

    The image rebuilt, with its values, axes and colours; the difference, green where the image is
    brighter, of several channels the root of the sum of squares; and the labels. Or, if there is
    another result, its error less that of the first: above 0, green, where the first is closer.
    """
    image, shape = region.image, region.placement.shape(found.labels.shape)
    if other is not None:
        gain = np.asarray(_norm(other.difference) - _norm(found.difference))
        colors = _colors(gain, is_signed=True)
        return {"Gain": (gain.reshape(shape), _attributes(region, "compared") | colors, "image")}
    rebuilt: NDArray[Any] = found.reconstruction
    if image.dtype.kind in "iu":
        limits = np.iinfo(image.dtype)
        rebuilt = np.clip(np.round(rebuilt), limits.min, limits.max).astype(image.dtype)
    if image.rgb:
        rebuilt, as_image = rebuilt.reshape((*shape, rebuilt.shape[-1])), {"rgb": True}
    else:
        if region.channel_axis_read is not None:
            rebuilt = np.moveaxis(rebuilt, -1, region.channel_axis_read)
        with_channels = place(image, tuple(range(image.ndim)), region.fixed)
        rebuilt = rebuilt.reshape(with_channels.shape(rebuilt.shape))
        as_image = {"colormap": image.colormap.name, "contrast_limits": image.contrast_limits}
        as_image |= with_channels.transform
    difference = found.difference if found.difference.ndim == 2 else _norm(found.difference)
    colors = _colors(difference, is_signed=difference.min(initial=0) < 0)
    labels, difference = found.labels.reshape(shape), difference.reshape(shape)
    return {
        "Rebuilt": (rebuilt, _attributes(region, "reconstruction") | as_image, "image"),
        "Error": (difference, _attributes(region, "difference") | colors, "image"),
        "Labels": (labels, _attributes(region, "partition"), "labels"),
    }


def _norm(difference: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the size of a difference at each pixel, over its channels."""
    if difference.ndim == 2:
        return np.asarray(np.abs(difference), dtype=np.float32)
    return np.asarray(np.linalg.norm(difference, axis=-1), dtype=np.float32)


def _colors(values: NDArray[np.floating], *, is_signed: bool) -> dict[str, Any]:
    """Return colours that tell most sizes apart, about 0 where they have signs."""
    limit = float(max(np.percentile(np.abs(values), _PERCENTILE), 1e-6))
    return {
        "colormap": "PiYG" if is_signed else "magma",
        "contrast_limits": (-limit if is_signed else 0, limit),
    }


def _attributes(region: ImageRegion, title: str) -> dict[str, Any]:
    metadata = {METADATA_KEY: {"image": str(region.image.unique_id)}}
    own = {"name": f"{region.image.name} [{title}]", "metadata": metadata}
    return own | region.placement.transform


def describe_ratios(ratios: list[float]) -> str:
    """Return how well images of a folder were rebuilt, as the end of a line."""
    return f", {sum(ratios) / len(ratios):.1f} dB on average" if ratios else ""
