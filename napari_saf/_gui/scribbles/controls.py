"""The widgets of the Scribbles dock: the table of classes, buttons and fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import napari
import numpy as np
from napari.layers import Image, Labels
from qtpy.QtCore import QModelIndex, Signal
from qtpy.QtGui import QKeyEvent
from qtpy.QtWidgets import QCheckBox, QColorDialog, QWidget

from napari_saf._gui.docks.label_table import LabelRow, LabelTable, colors_of, to_qcolor
from napari_saf._gui.forms.choices import BRIGHTNESS, BRIGHTNESS_HELP, Choice, LayerChoice
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, create_row
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.scribbles.strokes import Strokes
from napari_saf.methods import METHODS, SweepMethod
from napari_saf.problem import ImageOptions

DEFAULT_OPTIONS = ImageOptions(features="lab", window=13, weights="contrast", max_side=240)
"""What objects in photographs are found with best; see ``benchmarks/scribbles.py``."""
_COLUMNS = {
    "swatch": ("", "Click to choose another colour"),
    "name": (
        "Class",
        "Click to paint this class, double-click to rename it; the keys . and , go on to the next "
        "class and back",
    ),
    "share": ("Share", "Share of the labelled pixels"),
    "lock": ("Lock", "Keep the pixels of this class as they are now"),
}


class ClassTable(LabelTable):
    """The classes of strokes; the row of the class that is painted is selected.

    A click chooses the class to paint; a double click renames it; a click on the square changes
    its colour; a locked class keeps its pixels.
    """

    recolored = Signal()

    def __init__(self, strokes: Strokes) -> None:
        super().__init__(_COLUMNS, (16, 16), (2, 6), selects_several=False)
        self._strokes = strokes
        self._shares: dict[int, float] = {}
        self.locked: set[int] = set()
        self.clicked.connect(self._on_cell_clicked)
        self.renamed.connect(self._on_renamed)
        self.lock_toggled.connect(self._on_lock_toggled)
        strokes.selected.connect(self._mark_painted)

    def numbers(self) -> list[int]:
        return [row.number for row in self.rows]

    def step(self, n_rows: int) -> None:
        """Paint the class so many rows below, around the ends."""
        numbers, now = self.numbers(), self.selected()
        if numbers:
            row = numbers.index(now[0]) if now else -1
            self._strokes.paint_with(numbers[(row + n_rows) % len(numbers)])

    def set_shares(self, shares: Mapping[int, float]) -> None:
        """Show the share of each class, 0 to 1; none where there are none at all."""
        self._shares = {n: shares.get(n, 0.0) for n in self.numbers()} if shares else {}
        rows = [dataclasses.replace(r, share=self._shares.get(r.number)) for r in self.rows]
        self.show_rows(rows)

    def refresh(self) -> None:
        strokes, numbers, counts = self._strokes, self._strokes.classes(), self._strokes.counts()
        colors = colors_of(strokes.layer, np.array(numbers)) if numbers else ()
        self.locked &= set(numbers)
        self.show_rows(
            [
                LabelRow(
                    number,
                    strokes.name(number),
                    color,
                    f". {counts.get(number, 0)} pixels are painted {number}",
                    share=self._shares.get(number),
                    locked=number in self.locked,
                )
                for number, color in zip(numbers, colors, strict=True)
            ]
        )
        self._mark_painted()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Paint the class of a row that was gone to by the arrow keys."""
        before = self.selected()
        super().keyPressEvent(event)
        now = self.selected()
        if now and now != before:
            self._strokes.paint_with(now[0])

    def _mark_painted(self) -> None:
        """Select the row of the class that is painted, wherever a click was."""
        numbers, layer = self.numbers(), self._strokes.layer
        if layer is not None and layer.selected_label in numbers:
            self.selectRow(numbers.index(layer.selected_label))

    def _on_cell_clicked(self, index: QModelIndex) -> None:
        row, column = self.rows[index.row()], [*_COLUMNS][index.column()]
        if column == "swatch":
            chosen = QColorDialog.getColor(to_qcolor(row.color), self, f"Colour of {row.name}")
            if chosen.isValid():
                color = (chosen.redF(), chosen.greenF(), chosen.blueF())
                self._strokes.set_color(row.number, color)
                self.refresh()
                self.recolored.emit()
        elif column != "lock":
            self._strokes.paint_with(row.number)
        self._mark_painted()

    def _on_renamed(self, number: int, name: str) -> None:
        self._strokes.rename(number, name)
        self.refresh()

    def _on_lock_toggled(self, number: int, locked: bool) -> None:
        (self.locked.add if locked else self.locked.discard)(number)
        self.refresh()


class Controls:
    """The widgets of the Scribbles dock.

    `base` are labels of an earlier run that become classes, `other` is another image to label;
    `key_of` returns the key that calls a method of the dock.
    """

    def __init__(
        self, viewer: napari.viewer.Viewer, strokes: Strokes, key_of: Callable[[str], str]
    ) -> None:
        self.input = ImageInput(viewer, DEFAULT_OPTIONS, strokes="none yet: press New")
        offered = [method for method in METHODS.values() if not issubclass(method, SweepMethod)]
        offered.sort(key=lambda method: not method().follows_seeds)
        self.form = MethodForm(viewer, offered, asks_prototypes=False)
        self.classes = ClassTable(strokes)
        self.new = create_button(
            "New", "Add an empty layer to paint strokes on; hide earlier labels."
        )
        self.restore = create_button("Restore", "Bring back the strokes painted on this image.")
        self.restore.setVisible(False)
        self.add = create_button("Add class", "Add a class and paint it.")
        self.erase = create_button(
            "Erase", "Erase all strokes of the chosen class (Ctrl+Z brings them back)."
        )
        self.follow, self.uncertainty = QCheckBox("Follow"), QCheckBox("Uncertainty")
        self.follow.setChecked(True)
        self.follow.setToolTip("Label the image anew after every stroke, undo and redo.")
        self.uncertainty.setToolTip(
            "Show how uncertain each pixel is: bright where a stroke helps most."
        )
        self.suggest = create_button(
            "Suggest spot",
            f"Mark the place where the next stroke would help most ({key_of('suggest')}).",
        )
        self.update = create_button(
            "Update",
            f"Label the image by the strokes that there are now ({key_of('run_or_stop')}).",
        )
        self.base = LayerChoice(viewer, lambda layer: isinstance(layer, Labels), none="nothing")
        self.other = LayerChoice(
            viewer,
            lambda layer: (
                isinstance(layer, Image)
                and METADATA_KEY not in layer.metadata
                and layer != self.input.image
            ),
            none="choose an image",
        )
        self.warm_start, self.brightness = QCheckBox(), Choice(BRIGHTNESS)
        self.apply, self.save = create_button("Apply"), create_button("Save …")
        self._method, self._more = FormSection(), FormSection()
        self._add_rows()

    def _add_rows(self) -> None:
        self._method.add_row("Method", self.form.box, "How the strokes teach.")
        self._method.add_row(
            "Scale",
            self.input.scale,
            "Side of the window over which labels are averaged, in pixels of the size at which the "
            "dock works (N).",
        )
        for text, control, tooltip in (
            (
                "Start from",
                self.base,
                "Labels of an earlier run become classes. A stroke on a label turns it into the "
                "class painted: two labels painted alike are merged; one painted with two classes "
                "is split.",
            ),
            (
                "Warm start",
                self.warm_start,
                "Go on from the last labels: faster, but what was painted first then counts for "
                "more. Without it the same strokes give the same labels in whatever order.",
            ),
            ("Apply to", self.other, "Another image to label by what was taught here."),
            ("Brightness", self.brightness, BRIGHTNESS_HELP),
            ("", self.apply, "Label that image by what the classes look like in this one."),
            (
                "For others",
                self.save,
                "Keep what the classes look like in a small file, to label other images with: in "
                "the Prototypes dock, or a folder of them on the command line.",
            ),
        ):
            self._more.add_row(text, control, tooltip)

    def sections(self) -> list[QWidget]:
        """Return what stands in the dock from top to bottom."""
        return [
            self.input.section,
            create_row(self.new, self.restore, self.add, self.erase),
            self.classes,
            create_row(self.follow, self.uncertainty, self.suggest),
            self._method,
            self.form.basic,
            create_fold("Start from labels, apply elsewhere", self._more),
            create_fold("Features", self.input.features),
            create_fold("Advanced", self.form.advanced),
        ]

    def show_window_controls(self, visible: bool) -> None:
        """Show what only methods with a window use."""
        self._method.show_row(self.input.scale, visible)
        self.input.show_row("weights", visible)

    def release(self) -> None:
        self.input.release()
        self.form.release()
        self.base.disconnect_viewer()
        self.other.disconnect_viewer()
