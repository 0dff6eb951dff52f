"""What a dictionary is applied to: an image layer, another dictionary's image, a folder."""

from __future__ import annotations

from typing import Any

import napari
from napari.layers import Image, Layer
from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.dictionary.atoms_section import ColoredDictionary
from napari_saf._gui.forms.controls import FolderField
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_fold, create_row
from napari_saf._gui.layers.metadata import METADATA_KEY

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


class ApplySection(QWidget):
    """Choices of what to apply the dictionary to, and the buttons for it.

    The buttons in `kinds` choose which layer is in sight: "Image", "Labels", "Rebuilt" or "Error".
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self.target = LayerChoice(viewer, _is_input)
        self.source = FolderField("The folder with the images")
        self.results = FolderField("The folder for labels and rebuilt images")
        self._others: list[ColoredDictionary] = []
        self._layers: list[Layer] = []
        self._gain: Any = None
        self._create_controls()
        self._create_layout()
        self.update_enabled(False)

    def _create_controls(self) -> None:
        self.apply, self.compare = QPushButton("Apply"), QPushButton("Compare")
        self.apply_to_folder = QPushButton("Apply to folder")
        self.apply.setToolTip("Label this image with the atoms, and rebuild it from them.")
        self.compare.setToolTip(
            "Rebuild the image from both dictionaries and show where this one is closer "
            "(green) and where the other one is (pink)."
        )
        self.apply_to_folder.setToolTip(
            "Label all images of the folder; one that fails does not stop the others."
        )
        self._reconstruction, self._other = QComboBox(), QComboBox()
        for box in (self._reconstruction, self._other):
            box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        for name, text in _RECONSTRUCTIONS.items():
            self._reconstruction.addItem(text, name)
        self._overwrite = QCheckBox("redo what is there")
        self.kinds = {kind: QPushButton(kind) for kind in _KINDS}
        for kind, button in self.kinds.items():
            button.setCheckable(True)
            button.setAutoExclusive(True)
            button.setToolTip(_KINDS[kind])
            button.clicked.connect(lambda checked, kind=kind: self.show_kind(kind))

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
            self._reconstruction,
            "How images are rebuilt: from the best atom of every pixel; from those of the labels "
            "alone; or from the best ones with brightness and contrast of their own.",
        )
        comparison.add_row("Compare with", self._other, "A dictionary that was on screen before.")
        comparison.add_row("", self.compare, "On the image that is chosen above.")
        folder.add_row("Images in", self.source, "All images of this folder.")
        folder.add_row("Results in", self.results, "Labels, rebuilt images and a table.")
        folder.add_row("", self._overwrite, "Without this, images that have results are skipped.")
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
    def reconstruction(self) -> Any:
        """How images are rebuilt."""
        return self._reconstruction.currentData()

    @property
    def overwrites(self) -> bool:
        """Whether results that are there are made again."""
        return bool(self._overwrite.isChecked())

    @property
    def folders(self) -> tuple[Any, Any]:
        """The folder with the images, and that for the results; None where none is chosen."""
        return self.source.path, self.results.path

    @property
    def other(self) -> ColoredDictionary | None:
        """The dictionary to compare with."""
        k = self._other.currentIndex()
        return self._others[k] if 0 <= k < len(self._others) else None

    def offer_others(self, others: list[ColoredDictionary]) -> None:
        """Offer dictionaries to compare with, the first of them chosen."""
        self._others = list(others)
        self._other.clear()
        for k, other in enumerate(others):
            self._other.addItem(other.title)
            self._other.setItemData(k, other.title, Qt.ItemDataRole.ToolTipRole)

    def set_layers(self, layers: list[Layer]) -> None:
        """Let the buttons show and hide these: reconstruction, difference, labels."""
        self._layers = layers
        self._kinds_row.setVisible(bool(layers))

    def set_gain_layer(self, layer: Layer) -> None:
        """Hide this layer, on top of the others, when one of them is asked for."""
        self._gain = layer

    def forget_layer(self, layer: Layer) -> None:
        """Forget a layer that is gone."""
        if layer in self._layers:
            self.set_layers([])
        if layer == self._gain:
            self._gain = None

    def show_kind(self, kind: str) -> None:
        """Show "Image", "Labels", "Rebuilt" or "Error" alone."""
        self.kinds[kind].setChecked(True)
        if self._gain is not None:
            self._gain.visible = False
        for layer, own in zip(self._layers, ("Rebuilt", "Error", "Labels"), strict=True):
            layer.visible = kind == own

    def show_labels(self, layer: Layer) -> None:
        """Show a layer of labels."""
        if self._layers and layer == self._layers[2]:
            self.show_kind("Labels")
        layer.visible = True

    def update_enabled(self, may_apply: bool) -> None:
        """Enable the buttons, or do not."""
        has_target = may_apply and self.target.layer is not None
        self.apply.setEnabled(has_target)
        self.compare.setEnabled(has_target and self.other is not None)
        self.apply_to_folder.setEnabled(may_apply and None not in self.folders)

    def release(self) -> None:
        """Disconnect from the viewer."""
        self._layers, self._gain = [], None
        self.target.disconnect_viewer()


def _is_input(layer: Layer) -> bool:
    return isinstance(layer, Image) and METADATA_KEY not in layer.metadata
