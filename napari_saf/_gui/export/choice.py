"""Which files Export writes: a tick and a format for each kind."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QGridLayout, QSizePolicy, QSpinBox, QWidget
from superqt.utils import signals_blocked

from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.layout import create_row
from napari_saf.io import (
    FIGURE_SUFFIXES,
    MASK_MARK,
    MASK_SUFFIXES,
    PROTOTYPE_SUFFIXES,
    TABLE_SUFFIXES,
    Wanted,
)

_FORMAT_WIDTH = 124
_INDENT = 23
_LARGEST_LEAST = 10_000_000
_KINDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "masks": (
        "Label image", tuple(suffix for suffix in MASK_SUFFIXES if suffix != ".tiff"),
        "All labels in one image. TIFF: for ImageJ and OME, with pixel sizes; PNG: in the "
        "colours of the labels; NPY: for Python. napari opens it as labels again."),
    "binary": (
        "A mask for each label", (".tif", ".png", ".npy"),
        "An image for each label: 255 inside, 0 outside."),
    "regions": (
        "Table of regions", TABLE_SUFFIXES,
        "Size, place, shape and brightness, in the units of the layer. Parquet needs pyarrow."),
    "numbered": (
        "Numbered regions", (".tif", ".png", ".npy", ".ome.zarr"),
        "An image in which each connected region has a number of its own, that of its row in "
        "the table: to count things, and to find them again."),
    "figure": (
        "Figure", FIGURE_SUFFIXES,
        "Image, labels and legend side by side; of a stack the slice on screen."),
    "prototypes": (
        "Prototypes", PROTOTYPE_SUFFIXES,
        "The mean features of each label, to label other images with (f*)."),
    "recipe": ("Recipe", (), "A file that repeats the run from Python or a terminal (.json)."),
}  # fmt: skip
"""The kinds of files by their name in `Wanted`: label, formats, help."""
_TICKED = ("masks", "regions")
_ROWS = (("a row for each label", False), ("a row for each region", True))
_ROWS_HELP = (
    "Whether a label is measured as a whole, or each of its connected regions by itself, as it is "
    "beside numbered regions."
)
_LEAST_HELP = "Smaller connected regions are neither numbered nor given a row."


class ExportChoice(QWidget):
    """A tick and a format for each kind of file."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._ticks: dict[str, QCheckBox] = {}
        self._formats: dict[str, Choice] = {}
        self._rows, self._least = Choice(_ROWS), QSpinBox()
        self._rows.setToolTip(_ROWS_HELP)
        self._rows.currentIndexChanged.connect(self._on_changed)
        self._least.setRange(1, _LARGEST_LEAST)
        self._least.setSpecialValueText("regions of any size")
        self._least.setPrefix("regions of ")
        self._least.setSuffix(" pixels or more")
        self._least.setToolTip(_LEAST_HELP)
        self._least.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        below: dict[str, QWidget] = {"regions": self._rows, "numbered": self._least}
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(4)
        layout.setColumnStretch(0, 1)
        for name, (label, suffixes, tooltip) in _KINDS.items():
            row = layout.rowCount()
            tick = self._ticks[name] = QCheckBox(label)
            tick.setChecked(name in _TICKED)
            tick.setToolTip(tooltip)
            tick.toggled.connect(self._on_changed)
            layout.addWidget(tick, row, 0)
            if suffixes:
                box = self._formats[name] = Choice([(suffix, suffix) for suffix in suffixes])
                box.setToolTip(tooltip)
                box.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
                box.setFixedWidth(_FORMAT_WIDTH)
                layout.addWidget(box, row, 1)
            if name in below:
                indented = create_row(below[name])
                indented.layout().setContentsMargins(_INDENT, 0, 0, 0)
                layout.addWidget(indented, row + 1, 0, 1, 2)
        self._on_changed()

    @property
    def wanted(self) -> Wanted:
        """What is ticked and may be."""
        found: dict[str, Any] = {
            name: self._formats[name].value if name in self._formats else True
            for name, tick in self._ticks.items()
            if tick.isEnabled() and tick.isChecked()
        }
        if "masks" in found:
            found["masks"] = f"{MASK_MARK}{found['masks']}"
        least = self._least.value() if self._least.isEnabled() else 1
        return Wanted(**found, connected=self._rows.value, min_pixels=least)

    def offer(self, name: str, reason: str) -> None:
        """Enable a kind of file, or disable it with a reason as tooltip."""
        self._ticks[name].setEnabled(not reason)
        self._ticks[name].setToolTip(reason or _KINDS[name][2])
        self._on_changed()

    def choose(self, name: str, suffix: str | bool) -> None:
        """Tick a kind of file, in a format; an empty one takes the tick away."""
        self._ticks[name].setChecked(bool(suffix))
        if name in self._formats:
            self._formats[name].choose(suffix)

    def _on_changed(self, *changed: object) -> None:
        for name, box in self._formats.items():
            box.setEnabled(self._ticks[name].isEnabled() and self._ticks[name].isChecked())
        is_numbered = self._formats["numbered"].isEnabled()
        if is_numbered:
            with signals_blocked(self._rows):
                self._rows.choose(True)  # each number has its row
        self._rows.setEnabled(self._formats["regions"].isEnabled() and not is_numbered)
        has_rows = self._rows.isEnabled() and self._rows.value
        self._least.setEnabled(has_rows or is_numbered)
        self.changed.emit()
