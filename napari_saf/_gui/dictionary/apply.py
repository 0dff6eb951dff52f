"""A dictionary applied to an image, compared with another, applied to a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Layer
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QVBoxLayout, QWidget

from napari_saf._gui.dictionary.layers import ColoredDictionary, LayerData
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.controls import FolderField
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, create_row
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Plane
from napari_saf._gui.layers.reading import read_pixels
from napari_saf.batch import DictionaryTask, Outcome, run_batch
from napari_saf.dictionary import PatchDictionary, PatchSegmentation
from napari_saf.io import find_images

_PERCENTILE = 99.5
"""Of the errors; larger ones have the same colour."""
_MOST_NAMED = 3
_RECONSTRUCTIONS = {
    "blended": "closest atoms",
    "matched": "atoms of the labels",
    "fitted": "contrast fitted",
}
_KINDS = {
    "Image": "The image alone.",
    "Labels": "The labels: which atom each pixel is like.",
    "Rebuilt": "The image rebuilt from atoms.",
    "Error": "Where the rebuilt image differs from the image, pixel by pixel.",
}
Options = Mapping[str, Any]
"""Window, reconstruction and device, see `PatchDictionary.apply`."""


class ApplySection(QWidget):
    """What to apply the dictionary to, and the buttons for it.

    The buttons in `kinds` choose which layer is in sight: "Image", "Labels", "Rebuilt" or "Error";
    the `gain` over the other dictionary, on top of these, is then hidden.
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self.target = LayerChoice(
            viewer, lambda layer: isinstance(layer, Image) and METADATA_KEY not in layer.metadata
        )
        self.source = FolderField("The folder with the images")
        self.results = FolderField("The folder for labels and rebuilt images")
        self.overwrite = QCheckBox("redo what is there")
        self.reconstruction, self._other = QComboBox(), QComboBox()
        for name, text in _RECONSTRUCTIONS.items():
            self.reconstruction.addItem(text, name)
        self.apply = create_button(
            "Apply", "Label this image with the atoms, and rebuild it from them."
        )
        self.compare = create_button(
            "Compare",
            "Rebuild the image from both dictionaries and show where this one is closer "
            "(green) and where the other one is (pink).",
        )
        self.apply_to_folder = create_button(
            "Apply to folder",
            "Label all images of the folder; one that fails does not stop the others.",
        )
        self.kinds = {kind: create_button(kind, tooltip) for kind, tooltip in _KINDS.items()}
        for kind, button in self.kinds.items():
            button.setCheckable(True)
            button.setAutoExclusive(True)
            button.clicked.connect(lambda checked, kind=kind: self.show_kind(kind))
        self._layers: list[Layer] = []
        self.gain: Any = None
        self._create_layout()
        self.update_enabled(False)

    def _create_layout(self) -> None:
        target = QWidget()
        line = QHBoxLayout(target)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(self.target, stretch=1)
        line.addWidget(self.apply)
        image, comparison, folder = FormSection(), FormSection(), FormSection()
        image.add_row("Apply to", target, "An image layer, seen or not while learning.")
        comparison.add_row(
            "Rebuild with",
            self.reconstruction,
            "How images are rebuilt: from the best atom of every pixel; from those of the labels "
            "alone; or from the best ones with brightness and contrast of their own.",
        )
        comparison.add_row("Compare with", self._other, "A dictionary that was on screen before.")
        comparison.add_row("", self.compare, "On the image that is chosen above.")
        folder.add_row("Images in", self.source, "All images of this folder.")
        folder.add_row("Results in", self.results, "Labels, rebuilt images and a table.")
        folder.add_row("", self.overwrite, "Without this, images that have results are skipped.")
        folder.add_row("", self.apply_to_folder)
        self._kinds_row = create_row(*self.kinds.values())
        self._kinds_row.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(image)
        layout.addWidget(self._kinds_row)
        layout.addWidget(create_fold("Compare, options", comparison))
        layout.addWidget(create_fold("Apply to a folder", folder))

    @property
    def folders(self) -> tuple[Any, Any]:
        """The folder with the images, and that for the results; None where none is chosen."""
        return self.source.path, self.results.path

    @property
    def other(self) -> Any:
        """The dictionary to compare with, or None."""
        return self._other.currentData()

    def offer_others(self, others: list[ColoredDictionary]) -> None:
        """Offer dictionaries to compare with, the first of them chosen."""
        self._other.clear()
        for k, other in enumerate(others):
            self._other.addItem(other.title, other)
            self._other.setItemData(k, other.title, Qt.ItemDataRole.ToolTipRole)

    def show_layers(self, layers: list[Layer]) -> None:
        """Let the buttons show and hide these: reconstruction, difference, labels."""
        self._layers = layers
        self._kinds_row.show()
        self.show_kind("Rebuilt")

    def forget_layer(self, layer: Layer) -> None:
        if layer in self._layers:
            self._layers = []
            self._kinds_row.hide()
        if layer == self.gain:
            self.gain = None

    def show_kind(self, kind: str) -> None:
        """Show "Image", "Labels", "Rebuilt" or "Error" alone."""
        self.kinds[kind].setChecked(True)
        if self.gain is not None:
            self.gain.visible = False
        for layer, own in zip(self._layers, ("Rebuilt", "Error", "Labels"), strict=True):
            layer.visible = kind == own

    def show_labels(self, layer: Layer) -> None:
        if self._layers and layer == self._layers[2]:
            self.show_kind("Labels")
        layer.visible = True

    def update_enabled(self, may_apply: bool) -> None:
        has_target = may_apply and self.target.layer is not None
        self.apply.setEnabled(has_target)
        self.compare.setEnabled(has_target and self.other is not None)
        self.apply_to_folder.setEnabled(may_apply and None not in self.folders)

    def release(self) -> None:
        self._layers, self.gain = [], None


def apply_to_plane(
    dictionary: PatchDictionary,
    plane: Plane,
    data: Any,
    options: Options,
    cancelled: Callable[[], bool],
) -> tuple[PatchSegmentation, LayerData]:
    """Apply a dictionary to the plane of a layer; `data` is what the layer holds.

    The layers are the image rebuilt, with its values, axes and colours; the difference, green where
    the image is brighter, of several channels the root of the sum of squares; and the labels.
    """
    pixels = read_pixels(data, plane.index, cancelled)
    found = dictionary.apply(
        pixels, channel_axis=plane.channel_axis, cancelled=cancelled, **options
    )
    rebuilt: NDArray[Any] = found.reconstruction
    if pixels.dtype.kind in "iu":
        limits = np.iinfo(pixels.dtype)
        rebuilt = np.clip(np.round(rebuilt), limits.min, limits.max).astype(pixels.dtype)
    if pixels.ndim == 2:
        rebuilt = rebuilt.reshape(pixels.shape)
        difference = found.difference.reshape(pixels.shape)
    else:
        if plane.channel_axis is not None:
            rebuilt = np.moveaxis(rebuilt, -1, plane.channel_axis)
        difference = _norm(found.difference)
    image, shape, limit = plane.layer, plane.placement.shape(found.labels.shape), _limit(difference)
    if image.rgb:
        rebuilt, as_image = rebuilt.reshape((*shape, rebuilt.shape[-1])), {"rgb": True}
    else:
        place = plane.placement_with_channels
        rebuilt = rebuilt.reshape(place.shape(rebuilt.shape))
        as_image = {"colormap": image.colormap.name, "contrast_limits": image.contrast_limits}
        as_image |= place.transform
    is_signed = difference.min(initial=0) < 0
    colors = {
        "colormap": "PiYG" if is_signed else "magma",
        "contrast_limits": (-limit if is_signed else 0, limit),
    }
    return found, [
        (rebuilt, _attributes(plane, "reconstruction", **as_image), "image"),
        (difference.reshape(shape), _attributes(plane, "difference", False, **colors), "image"),
        (found.labels.reshape(shape), _attributes(plane, "partition", False), "labels"),
    ]


def compare_on_plane(
    dictionaries: tuple[PatchDictionary, PatchDictionary],
    plane: Plane,
    data: Any,
    options: Options,
    cancelled: Callable[[], bool],
) -> tuple[float, float, tuple[NDArray[Any], dict[str, Any]]]:
    """Return the PSNR of two dictionaries on the plane of a layer, and an image of the gain.

    The gain is the error of the second less that of the first: above 0, green, where the first is
    closer.
    """
    pixels = read_pixels(data, plane.index, cancelled)
    one, other = (
        own.apply(pixels, channel_axis=plane.channel_axis, cancelled=cancelled, **options)
        for own in dictionaries
    )
    gain = np.asarray(_norm(other.difference) - _norm(one.difference))
    limit = _limit(gain)
    attributes = _attributes(plane, "compared", colormap="PiYG", contrast_limits=(-limit, limit))
    return one.psnr, other.psnr, (gain.reshape(plane.placement.shape(gain.shape)), attributes)


def _norm(difference: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the size of a difference at each pixel, over its channels."""
    if difference.ndim == 2:
        return np.asarray(np.abs(difference), dtype=np.float32)
    return np.asarray(np.linalg.norm(difference, axis=-1), dtype=np.float32)


def _limit(values: NDArray[np.floating]) -> float:
    """Return what most sizes are below, above 0."""
    return float(max(np.percentile(np.abs(values), _PERCENTILE), 1e-6))


def _attributes(plane: Plane, kind: str, visible: bool = True, **others: Any) -> dict[str, Any]:
    """Return the attributes of a layer that was computed from an image."""
    name = f"{plane.layer.name} [{kind}]"
    own = {"name": name, "visible": visible, "metadata": {METADATA_KEY: {}}}
    return own | plane.placement.transform | others


def apply_to_folder(
    dictionary: PatchDictionary,
    folders: tuple[Path, Path],
    options: Options,
    report: Callable[[object], None],
    cancelled: Callable[[], bool],
) -> tuple[str, bool]:
    """Apply a dictionary to the images of one folder; report a fraction and a text.

    Return a summary with the names of images that failed, and whether any did.
    """
    paths = find_images([folders[0]])
    report((0.0, f"0 of {len(paths)}"))
    task = DictionaryTask(dictionary=dictionary, folder=folders[1], **options)
    outcomes: list[Outcome[float]] = []
    for outcome in run_batch(task, task.plan(paths), cancelled=cancelled):
        outcomes.append(outcome)
        text = f"{len(outcomes)} of {len(paths)}: {outcome.job.title} {outcome.state}"
        report((len(outcomes) / len(paths), text))
    done, skipped, failed = (
        [outcome for outcome in outcomes if outcome.state == state]
        for state in ("done", "skipped", "failed")
    )
    lines = [f"{len(done)} of {len(paths)} images done"]
    psnrs = [outcome.result for outcome in done if outcome.result is not None]
    if psnrs:
        lines[0] += f", {sum(psnrs) / len(psnrs):.1f} dB on average"
    if skipped:
        lines.append(f"{len(skipped)} skipped: results were there")
    if len(outcomes) < len(paths):
        lines.append(f"stopped, {len(paths) - len(outcomes)} left")
    if failed:
        named = ", ".join(outcome.job.title for outcome in failed[:_MOST_NAMED])
        more = f" and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
        lines.append(f"failed: {named}{more} ({failed[0].error})")
    return "\n".join(lines), bool(failed)
