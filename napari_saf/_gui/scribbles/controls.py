"""The widgets of the Scribbles dock, and how they are laid out."""

from __future__ import annotations

from collections.abc import Callable

import napari
from napari.layers import Image, Labels
from qtpy.QtWidgets import QCheckBox, QPushButton, QWidget

from napari_saf._gui.forms.controls import BRIGHTNESS_HELP, BrightnessChoice
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_fold, create_row
from napari_saf._gui.forms.method_form import MethodChoice
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.scribbles.classes import ClassTable
from napari_saf._gui.scribbles.strokes import Strokes
from napari_saf.methods import METHODS, SweepMethod
from napari_saf.problem import ImageOptions

DEFAULT_OPTIONS = ImageOptions(features="lab", window=13, weights="contrast", max_side=240)
"""What objects in photographs are found with best; see ``benchmarks/scribbles.py``."""


class Controls:
    """The widgets of the Scribbles dock.

    `base` are labels of an earlier run that become classes, `other` is another image to label;
    `key_of` returns the key that calls a method of the dock.
    """

    def __init__(
        self,
        viewer: napari.viewer.Viewer,
        strokes: Strokes,
        key_of: Callable[[str], str],
    ) -> None:
        self.input = ImageInput(viewer, DEFAULT_OPTIONS, strokes="none yet: press New")
        offered = [method for method in METHODS.values() if not issubclass(method, SweepMethod)]
        offered.sort(key=lambda method: not method().follows_seeds)
        self.methods = MethodChoice(viewer, offered, asks_prototypes=False)
        self.classes = ClassTable(strokes)
        self.new = _button("New", "Add an empty layer to paint strokes on; hide earlier labels.")
        self.restore = _button("Restore", "Bring back the strokes painted on this image.")
        self.restore.setVisible(False)
        self.add = _button("Add class", "Add a class and paint it.")
        self.erase = _button(
            "Erase", "Erase all strokes of the chosen class (Ctrl+Z brings them back)."
        )
        self.follow = QCheckBox("Follow")
        self.follow.setChecked(True)
        self.follow.setToolTip("Label the image anew after every stroke, undo and redo.")
        self.uncertainty = QCheckBox("Uncertainty")
        self.uncertainty.setToolTip(
            "Show how uncertain each pixel is: bright where a stroke helps most."
        )
        self.suggest = _button(
            "Suggest spot",
            f"Mark the place where the next stroke would help most ({key_of('suggest')}).",
        )
        self.update = _button(
            "Update",
            f"Label the image by the strokes that there are now ({key_of('run_or_stop')}).",
        )
        self.base = LayerChoice(viewer, lambda layer: isinstance(layer, Labels), none="nothing")
        self.warm_start = QCheckBox()
        self.other = LayerChoice(viewer, self._is_other_image, none="choose an image")
        self.brightness = BrightnessChoice()
        self.apply, self.save = QPushButton("Apply"), QPushButton("Save …")
        self._method = FormSection()
        self._method.add_row("Method", self.methods.box, "How the strokes teach.")
        self._method.add_row(
            "Scale",
            self.input.scale,
            "Side of the window over which labels are averaged, in pixels of the size at which the "
            "dock works (N).",
        )

    def sections(self) -> list[QWidget]:
        """Return what stands in the dock from top to bottom."""
        return [
            self.input.section,
            create_row(self.new, self.restore, self.add, self.erase),
            self.classes,
            create_row(self.follow, self.uncertainty, self.suggest),
            self._method,
            self.methods.basic,
            create_fold("Start from labels, apply elsewhere", self._create_more()),
            create_fold("Features", self.input.features),
            create_fold("Advanced", self.methods.advanced),
        ]

    def show_window_controls(self, visible: bool) -> None:
        """Show what only methods with a window use."""
        self._method.show_row(self.input.scale, visible)
        self.input.show_weights(visible)

    def release(self) -> None:
        """Disconnect from the viewer."""
        self.input.release()
        self.methods.release()
        self.base.disconnect_viewer()
        self.other.disconnect_viewer()

    def _is_other_image(self, layer: object) -> bool:
        is_image = isinstance(layer, Image) and METADATA_KEY not in layer.metadata
        return is_image and layer != self.input.image

    def _create_more(self) -> FormSection:
        section = FormSection()
        section.add_row(
            "Start from",
            self.base,
            "Labels of an earlier run become classes. A stroke on a label turns it into the class "
            "painted: two labels painted alike are merged; one painted with two classes is split.",
        )
        section.add_row(
            "Warm start",
            self.warm_start,
            "Go on from the last labels: faster, but what was painted first then counts for more. "
            "Without it the same strokes give the same labels in whatever order.",
        )
        section.add_row("Apply to", self.other, "Another image to label by what was taught here.")
        section.add_row("Brightness", self.brightness, BRIGHTNESS_HELP)
        section.add_row(
            "", self.apply, "Label that image by what the classes look like in this one."
        )
        section.add_row(
            "For others",
            self.save,
            "Keep what the classes look like in a small file, to label other images with: in the "
            "Prototypes dock, or a folder of them on the command line.",
        )
        return section


def _button(text: str, tooltip: str) -> QPushButton:
    button = QPushButton(text)
    button.setToolTip(tooltip)
    return button
