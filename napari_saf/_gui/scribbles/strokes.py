"""The Labels layer of painted strokes: events, and the table of its classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtCore import QModelIndex, QObject, QTimer, Signal
from qtpy.QtGui import QKeyEvent
from qtpy.QtWidgets import QAbstractItemView, QColorDialog

from napari_saf._gui.docks.label_table import LabelRow, LabelTable
from napari_saf._gui.docks.tables import to_qcolor
from napari_saf._gui.layers.live import N_COLORS, colormap_of, label_colors
from napari_saf._gui.layers.metadata import NAMES_KEY, STROKES_KEY, colors_of
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.layers.reading import fingerprint
from napari_saf._gui.layers.visibility import insert_above
from napari_saf.errors import format_count

_DEBOUNCE_MILLISECONDS = 30
COMPARED_VALUES = 20_000_000
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


def add_strokes(
    viewer: napari.Viewer, image: Image, pixels: NDArray[np.integer], placement: Placement
) -> Labels:
    layer = viewer.add_labels(
        pixels,
        name=f"{image.name} strokes",
        colormap=colormap_of(label_colors()),
        metadata={NAMES_KEY: {1: "class 1", 2: "class 2"}, STROKES_KEY: str(image.unique_id)},
        opacity=1.0,
        **placement.transform,
    )
    insert_above(viewer, layer, image)
    layer.brush_size = max(3, round(min(pixels.shape[-2:]) / 80))
    layer.selected_label = 1
    layer.mode = "paint"
    return layer


class Strokes(QObject):
    """The strokes on one layer at a time.

    Painting sends an event of its own; undo and redo send only the event that every change of
    slice sends too, so the pixels are compared.
    """

    changed = Signal()
    selected = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = None
        self._checksum = 0
        self._is_painted = False
        self._erased_names: dict[int, str] = {}
        self._debounce = QTimer(self, singleShot=True, interval=_DEBOUNCE_MILLISECONDS)
        self._debounce.timeout.connect(self._compare)

    def follow(self, layer: Labels | None) -> None:
        if self.layer is not None:
            for event in _events_of(self.layer):
                event.disconnect(self._on_event)
        self.layer = layer
        self._debounce.stop()
        self._is_painted = False
        self._erased_names.clear()
        if layer is not None:
            self._checksum = fingerprint(layer.data, COMPARED_VALUES)
            for event in _events_of(layer):
                event.connect(self._on_event)

    @property
    def names(self) -> dict[int, str]:
        if self.layer is None:
            return {}
        names: dict[int, str] = self.layer.metadata.setdefault(NAMES_KEY, {})
        return names

    def counts(self) -> dict[int, int]:
        if self.layer is None:
            return {}
        numbers, counts = np.unique(above_0(self.layer.data), return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    def classes(self) -> list[int]:
        """Return the numbers of the classes that have a name or strokes."""
        return sorted({*self.names, *self.counts()})

    def name(self, number: int) -> str:
        return self.names.get(number, f"class {number}")

    def rename(self, number: int, name: str) -> None:
        """Name a class; an empty name leaves it as it was."""
        if name.strip():
            self.names[number] = name.strip()

    def add_class(self) -> None:
        number = max(self.classes(), default=0) + 1
        self.names[number] = f"class {number}"
        self.paint_with(number)

    def erase_class(self, number: int) -> None:
        """Erase the strokes of a class; its name comes back with them when that is undone."""
        self._erased_names[number] = self.name(number)
        self.names.pop(number, None)
        pixels = np.nonzero(np.asarray(self.layer.data) == number)
        if len(pixels[0]):
            # napari fails on one that was hidden while it was turned.
            self.layer.visible = True
            self.layer.data_setitem(pixels, 0)

    def paint_with(self, number: int) -> None:
        if self.layer is not None:
            self.layer.selected_label = number
            if self.layer.mode not in ("paint", "polygon", "fill"):
                self.layer.mode = "paint"

    def color(self, number: int) -> NDArray[np.float64]:
        return np.asarray(colors_of(self.layer, np.array([number]))[0])

    def set_color(self, number: int, color: tuple[float, float, float]) -> None:
        colors = np.zeros((N_COLORS + 1, 4))
        colors[1:] = colors_of(self.layer, np.arange(1, N_COLORS + 1))
        colors[(number - 1) % N_COLORS + 1, :3] = color
        self.layer.colormap = colormap_of(colors)

    def _on_event(self, event: Any) -> None:
        if event.type == "selected_label":
            self.selected.emit()
        else:
            # Of a large stack only a sample is compared, which may miss a thin stroke.
            is_large = np.size(self.layer.data) > COMPARED_VALUES
            self._is_painted |= is_large and event.type == "paint"
            self._debounce.start()

    def _compare(self) -> None:
        checksum = fingerprint(self.layer.data, COMPARED_VALUES)
        if checksum != self._checksum or self._is_painted:
            self._checksum, self._is_painted = checksum, False
            for number in self._erased_names.keys() & self.counts():
                self.names.setdefault(number, self._erased_names.pop(number))
            self.changed.emit()


def _events_of(layer: Labels) -> tuple[Any, ...]:
    return layer.events.paint, layer.events.set_data, layer.events.selected_label


def above_0(pixels: Any) -> NDArray[np.integer]:
    """Return the numbers of the pixels above 0: few, which is less to sort."""
    flat = np.asarray(pixels).reshape(-1)
    return flat[np.flatnonzero(flat > 0)]


class ClassTable(LabelTable):
    """The classes of strokes; the row of the class that is painted is selected.

    A click chooses the class to paint; a double click renames it, as does typing on its name; a
    click on the square changes its colour; a locked class keeps its pixels.
    """

    recolored = Signal()

    def __init__(self, strokes: Strokes) -> None:
        super().__init__(_COLUMNS, (16, 16), (2, 6), selects_several=False)
        self._strokes = strokes
        self._shares: Mapping[int, float] = {}
        self.locked: set[int] = set()
        self.setEditTriggers(self.editTriggers() | QAbstractItemView.EditTrigger.AnyKeyPressed)
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
        self._shares = shares
        self.show_rows([replace(row, share=self._share(row.number)) for row in self.rows])

    def _share(self, number: int) -> float | None:
        return self._shares.get(number, 0.0) if self._shares else None

    def refresh(self) -> None:
        strokes, numbers, counts = self._strokes, self._strokes.classes(), self._strokes.counts()
        colors = colors_of(strokes.layer, np.array(numbers)) if numbers else ()
        self.locked &= set(numbers)
        rows = []
        for number, color in zip(numbers, colors, strict=True):
            note = f". {format_count(counts.get(number, 0))} pixels are painted {number}"
            row = LabelRow(number, strokes.name(number), color, note, share=self._share(number))
            rows.append(replace(row, locked=number in self.locked))
        self.show_rows(rows)
        self._mark_painted()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Paint the class of a row that was gone to by the arrow keys."""
        before = self.selected()
        if event.text() in (".", ","):
            event.ignore()  # keys of the dock, which the table would search for
        else:
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
