"""What to save and in which format: a tick and a format for each kind of file."""

from __future__ import annotations

import dataclasses

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QGridLayout,
    QHBoxLayout,
    QSizePolicy,
    QSpinBox,
    QWidget,
)

from napari_saf.io import MASK_SUFFIXES, PROTOTYPE_SUFFIXES, TABLE_SUFFIXES, Wanted

_FIGURES = (".png", ".svg", ".pdf")
_FORMAT_WIDTH = 124
_INDENT = 23
_LARGEST_LEAST = 10_000_000
_ROWS = {False: "a row for each label", True: "a row for each region"}
_ROWS_HELP = "Whether a label is measured as a whole, or each of its connected regions by itself."
_LEAST_HELP = "Smaller connected regions are neither numbered nor given a row."


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of file: its name in `Wanted`, label, formats and whether it is ticked at first."""

    name: str
    label: str
    formats: tuple[str, ...]
    help: str
    is_first: bool = False


_KINDS = (
    _Kind("masks", "Label image", tuple(s for s in MASK_SUFFIXES if s != ".tiff"),
          "All labels in one image. TIFF: for ImageJ and OME, with pixel sizes; PNG: in the "
          "colours of the labels; NPY: for Python; OME-Zarr: with names and colours.", True),
    _Kind("binary", "A mask for each label", (".tif", ".png", ".npy"),
          "An image for each label: 255 inside, 0 outside."),
    _Kind("regions", "Table of regions", TABLE_SUFFIXES,
          "Size, place, shape and brightness, in the units of the layer. Parquet needs "
          "pyarrow.", True),
    _Kind("numbered", "Numbered regions", (".tif", ".png", ".npy", ".ome.zarr"),
          "An image in which each connected region has a number of its own, that of its row in "
          "the table: to count things, and to find them again."),
    _Kind("figure", "Figure", _FIGURES, "Image, labels and legend side by side; of a stack the "
          "slice on screen."),
    _Kind("prototypes", "Prototypes", PROTOTYPE_SUFFIXES,
          "The mean features of each label, to label other images with (f*)."),
    _Kind("recipe", "Recipe", (), "A file that repeats the run from Python or a terminal (.json)."),
)  # fmt: skip


class ExportChoice(QWidget):
    """Rows of a tick and a format."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._ticks: dict[str, QCheckBox] = {}
        self._formats: dict[str, QComboBox] = {}
        self._rows, self._least = QComboBox(), QSpinBox()
        for connected, label in _ROWS.items():
            self._rows.addItem(label, connected)
        self._rows.setToolTip(_ROWS_HELP)
        self._rows.currentIndexChanged.connect(self._on_ticked)
        self._least.setRange(1, _LARGEST_LEAST)
        self._least.setSpecialValueText("regions of any size")
        self._least.setPrefix("regions of ")
        self._least.setSuffix(" pixels or more")
        self._least.setToolTip(_LEAST_HELP)
        below = {"regions": self._rows, "numbered": self._least}
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(4)
        layout.setColumnStretch(0, 1)
        for kind in _KINDS:
            self._add(kind, layout)
            if kind.name in below:
                widget, indented = below[kind.name], QHBoxLayout()
                widget.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
                indented.setContentsMargins(_INDENT, 0, 0, 0)
                indented.addWidget(widget)
                layout.addLayout(indented, layout.rowCount(), 0, 1, 2)
        self._on_ticked()

    @property
    def wanted(self) -> Wanted:
        """What is ticked and may be."""
        found: dict[str, object] = {
            "connected": bool(self._rows.currentData()),
            "min_pixels": self._least.value() if self._least.isEnabled() else 1,
        }
        for name, tick in self._ticks.items():
            box = self._formats.get(name)
            if tick.isEnabled() and tick.isChecked():
                found[name] = True if box is None else box.currentText()
        return Wanted(**found)  # type: ignore[arg-type]

    def offer(self, name: str, reason: str) -> None:
        """Enable a kind of file, or disable it with a reason as tooltip."""
        kind = next(kind for kind in _KINDS if kind.name == name)
        tick = self._ticks[name]
        tick.setEnabled(not reason)
        tick.setToolTip(reason or kind.help)
        self._on_ticked()

    def choose(self, name: str, suffix: str | bool) -> None:
        """Tick a kind of file, in a format; an empty one takes the tick away."""
        self._ticks[name].setChecked(bool(suffix))
        if isinstance(suffix, str) and suffix:
            self._formats[name].setCurrentText(suffix)

    def _add(self, kind: _Kind, layout: QGridLayout) -> None:
        tick = self._ticks[kind.name] = QCheckBox(kind.label)
        tick.setChecked(kind.is_first)
        tick.setToolTip(kind.help)
        tick.toggled.connect(self._on_ticked)
        row = layout.rowCount()
        layout.addWidget(tick, row, 0)
        if kind.formats:
            box = self._formats[kind.name] = QComboBox()
            box.addItems(kind.formats)
            box.setToolTip(kind.help)
            box.setFixedWidth(_FORMAT_WIDTH)
            layout.addWidget(box, row, 1)

    def _on_ticked(self, *changed: object) -> None:
        for name, box in self._formats.items():
            box.setEnabled(self._ticks[name].isEnabled() and self._ticks[name].isChecked())
        self._rows.setEnabled(self._formats["regions"].isEnabled())
        has_rows = self._rows.isEnabled() and bool(self._rows.currentData())
        self._least.setEnabled(has_rows or self._formats["numbered"].isEnabled())
        self.changed.emit()
