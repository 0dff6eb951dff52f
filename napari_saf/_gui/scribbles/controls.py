"""The buttons of the Scribbles dock, and a section with what is seldom wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import napari
from napari.layers import Labels
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QAbstractButton, QCheckBox, QFileDialog, QPushButton

from napari_saf._gui.forms.controls import BRIGHTNESS_HELP, PROTOTYPE_FILTER, BrightnessChoice
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.scribbles.kept import RestoreButton

__all__ = ["MoreSection", "StrokeButtons"]


class StrokeButtons:
    """What makes, erases and follows strokes.

    Parameters
    ----------
    key_of : callable
        Returns the key that calls a method of the dock.
    """

    def __init__(self, key_of: Callable[[str], str]) -> None:
        self.new, self.add, self.erase = (QPushButton(w) for w in ("New", "Add class", "Erase"))
        self.suggest, self.update = QPushButton("Suggest spot"), QPushButton("Update")
        self.follow, self.doubt = QCheckBox("Follow"), QCheckBox("Uncertainty")
        self.restore = RestoreButton()
        self.follow.setChecked(True)
        words: dict[QAbstractButton, str] = {
            self.new: "Add an empty layer to paint strokes on; hide earlier labels.",
            self.add: "Add a class and paint it.",
            self.erase: "Erase all strokes of the chosen class (Ctrl+Z brings them back).",
            self.follow: "Label the image anew after every stroke, undo and redo.",
            self.doubt: "Show how uncertain each pixel is: bright where a stroke helps most.",
            self.suggest: f"Mark the place where the next stroke would help most "
            f"({key_of('suggest')}).",
            self.update: f"Label the image by the strokes that there are now "
            f"({key_of('run_or_stop')}).",
        }
        for button, tooltip in words.items():
            button.setToolTip(tooltip)


class MoreSection(FormSection):
    """Where labels start from, and where else the strokes label.

    Parameters
    ----------
    viewer : napari.Viewer
    is_other_image : callable
        Tells of a layer whether it can be labelled by the strokes on the image.
    """

    save_asked = Signal(str)

    def __init__(
        self, viewer: napari.viewer.Viewer, is_other_image: Callable[[object], bool]
    ) -> None:
        super().__init__()
        self.base = LayerChoice(viewer, lambda layer: isinstance(layer, Labels), none="nothing")
        self.other = LayerChoice(viewer, is_other_image, none="choose an image")
        self.apply, self.go_on = QPushButton("Apply"), QCheckBox()
        self.save, self.brightness = QPushButton("Save …"), BrightnessChoice()
        self.add_row(
            "Start from",
            self.base,
            "Labels of an earlier run become classes. A stroke on a label turns it into the class "
            "painted: two labels painted alike are merged; one painted with two classes is split.",
        )
        self.add_row(
            "Warm start",
            self.go_on,
            "Go on from the last labels: faster, but what was painted first then counts for more. "
            "Without it the same strokes give the same labels in whatever order.",
        )
        self.add_row("Apply to", self.other, "Another image to label by what was taught here.")
        self.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        self.add_row("", self.apply, "Label that image by what the classes look like in this one.")
        self.add_row(
            "For others",
            self.save,
            "Keep what the classes look like in a small file, to label other images with: in the "
            "Prototypes dock, or a folder of them on the command line.",
        )
        self.save.clicked.connect(self._on_save_clicked)

    def _on_save_clicked(self) -> None:
        path, _ = QFileDialog.getSaveFileName(
            self,
            "Save what was taught",
            str(Path.cwd() / "taught.prototypes.json"),
            PROTOTYPE_FILTER,
        )
        if path:
            self.save_asked.emit(path)

    def release(self) -> None:
        """Let go of the viewer."""
        self.base.disconnect_viewer()
        self.other.disconnect_viewer()
