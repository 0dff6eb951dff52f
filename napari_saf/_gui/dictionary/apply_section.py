"""What a dictionary is applied to: an image layer, another dictionary's image, a folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import napari
from napari.layers import Layer
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.dictionary.edition import Edition
from napari_saf._gui.forms.controls import FolderField
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf.dictionary import Reconstruction

__all__ = ["ApplySection"]

_RECONSTRUCTIONS = {
    "blended": "closest atoms",
    "matched": "atoms of the labels",
    "fitted": "contrast fitted",
}
_KINDS = ("Image", "Labels", "Rebuilt", "Error")
_KIND_HELP = (
    "The image alone.",
    "The labels: which atom each pixel is like.",
    "The image rebuilt from atoms.",
    "Where the rebuilt image differs from the image, pixel by pixel.",
)


class ApplySection(QWidget):
    """Choices of what to apply the dictionary to, and buttons that ask for it.

    Parameters
    ----------
    viewer : napari.Viewer
    is_image : callable
        Tells whether a layer is offered.

    Attributes
    ----------
    target : LayerChoice
        The image to apply to.
    source, results : FolderField
        Images of a folder, and where what comes of them goes.
    """

    apply_clicked = Signal()
    compare_clicked = Signal()
    folder_clicked = Signal()

    def __init__(self, viewer: napari.Viewer, is_image: Callable[[Layer], bool]) -> None:
        super().__init__()
        self.target = LayerChoice(viewer, is_image)
        self.source = FolderField("The folder with the images")
        self.results = FolderField("The folder for labels and rebuilt images")
        self._others: list[Edition] = []
        self._shown: list[Layer] = []
        self._gain: Any = None
        self._create_controls()
        self._create_layout()
        self._connect()
        self.show_possible(False)

    @property
    def reconstruction(self) -> Any:
        """How images are rebuilt."""
        return self._how.currentData()

    @property
    def overwrites(self) -> bool:
        """Whether results that are there are made again."""
        return bool(self._overwrite.isChecked())

    @property
    def other(self) -> Edition | None:
        """The dictionary to compare with."""
        k = self._other.currentIndex()
        return self._others[k] if 0 <= k < len(self._others) else None

    def offer_others(self, editions: list[Edition]) -> None:
        """Offer dictionaries to compare with, the first of them chosen."""
        self._others = list(editions)
        self._other.clear()
        self._other.addItems([edition.title for edition in editions])
        for k, edition in enumerate(editions):
            self._other.setItemData(k, edition.title, Qt.ItemDataRole.ToolTipRole)

    def follow_layers(self, layers: list[Layer]) -> None:
        """Let the buttons show and hide these: reconstruction, difference, partition."""
        self._shown = layers
        self._show.setVisible(bool(layers))

    def forget_layer(self, layer: Layer) -> None:
        """Let go of a layer that is gone."""
        if layer in self._shown:
            self.follow_layers([])
        if layer == self._gain:
            self._gain = None

    def follow_gain(self, layer: Layer) -> None:
        """Hide this layer, on top of the others, when one of them is asked for."""
        self._gain = layer

    def show_kind(self, kind: str) -> None:
        """Show "Image", "Labels", "Rebuilt" or "Error" alone."""
        self._kinds[_KINDS.index(kind)].setChecked(True)
        reconstruction, difference, partition = self._shown
        if self._gain is not None:
            self._gain.visible = False
        reconstruction.visible = kind == "Rebuilt"
        difference.visible = kind == "Error"
        partition.visible = kind == "Labels"

    def show_partition(self, layer: Layer) -> None:
        """Bring a layer of labels into sight."""
        if self._shown and layer == self._shown[2]:
            self.show_kind("Labels")
        layer.visible = True

    def show_possible(self, may_apply: bool) -> None:
        """Allow the buttons, or do not."""
        has_target = may_apply and self.target.layer is not None
        self._apply.setEnabled(has_target)
        self._compare.setEnabled(has_target and self.other is not None)
        has_folders = self.source.path is not None and self.results.path is not None
        self._folder.setEnabled(may_apply and has_folders)

    def release(self) -> None:
        """Let go of the viewer."""
        self._shown, self._gain = [], None
        self.target.disconnect_viewer()

    def _create_controls(self) -> None:
        self._apply, self._compare = QPushButton("Apply"), QPushButton("Compare")
        self._folder = QPushButton("Apply to folder")
        self._apply.setToolTip("Label this image with the atoms, and rebuild it from them.")
        self._compare.setToolTip(
            "Rebuild the image from both dictionaries and show where this one is closer "
            "(green) and where the other one is (pink)."
        )
        self._folder.setToolTip(
            "Label all images of the folder; one that fails does not stop the others."
        )
        self._how, self._other = QComboBox(), QComboBox()
        for box in (self._how, self._other):
            box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        for name in ("blended", "matched", "fitted"):
            if name in get_args(Reconstruction):
                self._how.addItem(_RECONSTRUCTIONS[name], name)
        self._overwrite = QCheckBox("redo what is there")
        self._kinds = [QPushButton(kind) for kind in _KINDS]
        for button, words in zip(self._kinds, _KIND_HELP, strict=True):
            button.setCheckable(True)
            button.setAutoExclusive(True)
            button.setToolTip(words)

    def _create_layout(self) -> None:
        self._section = FormSection()
        row = QWidget()
        line = QHBoxLayout(row)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(self.target, stretch=1)
        line.addWidget(self._apply)
        self._section.add_row("Apply to", row, "An image layer, seen or not while learning.")
        self._show = QWidget()
        kinds = QHBoxLayout(self._show)
        kinds.setContentsMargins(0, 0, 0, 0)
        for button in self._kinds:
            kinds.addWidget(button, stretch=1)
        self._show.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._section)
        layout.addWidget(self._show)
        layout.addWidget(create_fold("Compare, options", self._create_comparison()))
        layout.addWidget(create_fold("Apply to a folder", self._create_folder()))

    def _create_comparison(self) -> FormSection:
        section = FormSection()
        section.add_row(
            "Rebuild with",
            self._how,
            "How images are rebuilt: from the best atom of every pixel; from those of the labels "
            "alone; or from the best ones with brightness and contrast of their own.",
        )
        section.add_row("Compare with", self._other, "A dictionary that was on screen before.")
        section.add_row("", self._compare, "On the image that is chosen above.")
        return section

    def _create_folder(self) -> FormSection:
        section = FormSection()
        section.add_row("Images in", self.source, "All images of this folder.")
        section.add_row("Results in", self.results, "Labels, rebuilt images and a table.")
        section.add_row("", self._overwrite, "Without this, images that have results are skipped.")
        section.add_row("", self._folder)
        return section

    def _connect(self) -> None:
        self._apply.clicked.connect(self.apply_clicked)
        self._compare.clicked.connect(self.compare_clicked)
        self._folder.clicked.connect(self.folder_clicked)
        for button, kind in zip(self._kinds, _KINDS, strict=True):
            button.clicked.connect(lambda checked, kind=kind: self.show_kind(kind))
