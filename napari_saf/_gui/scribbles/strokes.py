"""The Labels layer of strokes: its events, the table of its classes, strokes from a box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Shapes
from napari.layers.base import ActionType
from numpy.typing import NDArray
from qtpy.QtCore import QModelIndex, QObject, QTimer, Signal
from qtpy.QtGui import QKeyEvent
from qtpy.QtWidgets import QAbstractItemView, QColorDialog, QVBoxLayout, QWidget

from napari_saf._gui.docks.label_table import LabelRow, LabelTable
from napari_saf._gui.docks.tables import to_qcolor
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf._gui.layers.large import narrowed
from napari_saf._gui.layers.live import N_COLORS, colormap_of, label_colors
from napari_saf._gui.layers.metadata import NAMES_KEY, STROKES_KEY, colors_of, is_strokes
from napari_saf._gui.layers.placement import Placement, note_on_slices
from napari_saf._gui.layers.reading import ImageJob, fingerprint
from napari_saf._gui.layers.view import insert_above, visibility_of
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf._gui.runs.panel import RunPanel
from napari_saf.errors import InvalidInput, format_count
from napari_saf.features import channels_last
from napari_saf.flow import not_cancelled
from napari_saf.objects import exemplar_strokes

_BUTTONS = {
    "new_strokes": (
        "New",
        "Add an empty layer for strokes; hide earlier strokes and labels.",
    ),
    "restore_strokes": ("Restore", "Bring back the strokes that were removed."),
    "add_class": ("Add class", "Add a class and paint it."),
    "erase_class": (
        "Erase class",
        "Erase all strokes of the chosen class (Ctrl+Z brings them back).",
    ),
    "draw_box": ("Box", "Draw a box around one object: strokes are painted on it and around it."),
}
"""Text and tooltip of a button by the name of its method."""
_DEBOUNCE_MILLISECONDS = 30
COMPARED_VALUES = 20_000_000
_COLUMNS = {
    "swatch": ("", "Click to choose another colour"),
    "name": ("Class", "Click to paint this class, double-click to rename it; keys: . and ,"),
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

    Painting has its own event, but undo and redo emit only the event of a slice change, so the
    pixels are compared. `chosen` is emitted when the user chooses a class to paint.
    """

    changed = Signal()
    selected = Signal()
    chosen = Signal()

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
        """Name a class; an empty name is ignored."""
        if name.strip():
            self.names[number] = name.strip()

    def name_labels(self, labels: NDArray[np.integer]) -> None:
        """Name unnamed classes after the labels they start from."""
        for number in np.unique(above_0(labels)):
            self.names.setdefault(int(number), f"label {number}")

    def add_class(self) -> None:
        number = max(self.classes(), default=0) + 1
        self.names[number] = f"class {number}"
        self.paint_with(number)

    def erase_class(self, number: int) -> None:
        """Erase the strokes and the name of a class; undo restores both."""
        self._erased_names[number] = self.name(number)
        self.names.pop(number, None)
        pixels = np.nonzero(np.asarray(self.layer.data) == number)
        if len(pixels[0]):
            # napari fails on a layer whose axes were reordered while it was hidden.
            self.layer.visible = True
            self.layer.data_setitem(pixels, 0)

    def paint_with(self, number: int) -> None:
        if self.layer is not None:
            self.layer.selected_label = number
            self.chosen.emit()  # before the mode, which a hidden layer does not keep
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
            # For a large stack only a sample is compared, which may miss thin strokes.
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
    """Return the values of the nonzero pixels, which are few and thus fast to sort."""
    flat = np.asarray(pixels).reshape(-1)
    return flat[np.flatnonzero(flat > 0)]


class ClassTable(LabelTable):
    """Table of the classes of strokes; the row of the active class is selected.

    A click chooses the class to paint, a double click or typing renames it, a click on its swatch
    changes its colour; a locked class keeps its pixels.
    """

    recolored = Signal()

    def __init__(self, strokes: Strokes) -> None:
        super().__init__(_COLUMNS, (16, 16), (2, 6), selects_several=False)
        self.strokes = strokes
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
        """Activate the class some rows below the active one, cyclically."""
        numbers, now = self.numbers(), self.selected()
        if numbers:
            row = numbers.index(now[0]) if now else -1
            self.strokes.paint_with(numbers[(row + n_rows) % len(numbers)])

    def set_shares(self, shares: Mapping[int, float]) -> None:
        """Show the share of each class, in [0, 1]; hide all shares if there are none."""
        self._shares = shares
        self.show_rows([replace(row, share=self._share(row.number)) for row in self.rows])

    def _share(self, number: int) -> float | None:
        return self._shares.get(number, 0.0) if self._shares else None

    def refresh(self) -> None:
        strokes, numbers, counts = self.strokes, self.strokes.classes(), self.strokes.counts()
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
        """Activate the class selected with the arrow keys."""
        previous = self.selected()
        if event.text() in (".", ","):
            event.ignore()  # shortcuts of the dock; the table would search for the typed text
        else:
            super().keyPressEvent(event)
        now = self.selected()
        if now and now != previous:
            self.strokes.paint_with(now[0])

    def _mark_painted(self) -> None:
        """Select the row of the active class, whichever row was clicked."""
        numbers, layer = self.numbers(), self.strokes.layer
        if layer is not None and layer.selected_label in numbers:
            self.selectRow(numbers.index(layer.selected_label))

    def _on_cell_clicked(self, index: QModelIndex) -> None:
        row, column = self.rows[index.row()], [*_COLUMNS][index.column()]
        if column == "swatch":
            chosen = QColorDialog.getColor(to_qcolor(row.color), self, f"Colour of {row.name}")
            if chosen.isValid():
                color = (chosen.redF(), chosen.greenF(), chosen.blueF())
                self.strokes.set_color(row.number, color)
                self.refresh()
                self.recolored.emit()
        elif column != "lock":
            self.strokes.paint_with(row.number)
        self._mark_painted()

    def _on_renamed(self, number: int, name: str) -> None:
        self.strokes.rename(number, name)
        self.refresh()

    def _on_lock_toggled(self, number: int, locked: bool) -> None:
        (self.locked.add if locked else self.locked.discard)(number)
        self.refresh()


class StrokeTools(QWidget):
    """The table of the classes, and buttons that add, erase and restore strokes.

    `box_drawn` emits the corners of a box around an object; `restored` is emitted after the
    strokes removed last were added back.
    """

    box_drawn = Signal(object)
    restored = Signal()

    def __init__(
        self, viewer: napari.Viewer, panel: RunPanel, chosen: ImageInput, strokes: Strokes
    ) -> None:
        super().__init__()
        self._viewer, self._panel, self._input = viewer, panel, chosen
        self._strokes = strokes
        self._removed: Any = None  # the layer of strokes removed last
        self.classes, self.box = ClassTable(strokes), BoxDrawing(viewer)
        self.buttons = {
            name: create_button(text, tooltip, getattr(self, name))
            for name, (text, tooltip) in _BUTTONS.items()
        }
        fill_layout(QVBoxLayout(self), create_row(*self.buttons.values()), self.classes)
        self.box.drawn.connect(self._on_box_drawn)
        strokes.chosen.connect(self._activate_strokes)
        for name in ("image", "strokes"):
            chosen.choices[name].activated.connect(self._show_chosen)

    def refresh(self) -> None:
        """Enable the buttons that apply to the current layer."""
        image, removed = self._input.image, self._removed
        has_strokes = self._input.strokes is not None
        self.buttons["erase_class"].setEnabled(has_strokes)
        self.buttons["draw_box"].setEnabled(image is not None)
        is_known = removed is not None and image is not None and not has_strokes
        is_known = is_known and removed.metadata[STROKES_KEY] == str(image.unique_id)
        self.buttons["restore_strokes"].setVisible(is_known)

    def release(self) -> None:
        self._removed = None
        self.box.blockSignals(True)
        self.box.stop()
        self._strokes.follow(None)

    def take_removal(self, event: Any) -> None:
        """Keep a removed layer for Restore, if strokes are painted on it."""
        if is_strokes(event.value) and event.value.data.any():
            self._removed = event.value
            self.refresh()

    def new_strokes_for(self, labels: Labels) -> None:
        """Create strokes in the colours of labels, whose names they take later."""
        self.new_strokes()
        self._strokes.names.clear()
        self._strokes.layer.colormap = labels.colormap

    def new_strokes(self) -> None:
        """Add an empty layer of strokes over the image and choose it; hide earlier ones."""
        self.box.stop()
        with self._panel.showing_errors():
            image, results = self._input.image, visibility_of(self._viewer)
            # All slices, or the displayed part of a large image.
            placement, shape = narrowed(self._viewer, self._input.pixels().slices()).whole()
            results.hide_results(image)
            for layer in self._viewer.layers:
                if is_strokes(layer) and layer.metadata[STROKES_KEY] == str(image.unique_id):
                    layer.visible = False
            layer = add_strokes(self._viewer, image, np.zeros(shape, np.uint8), placement)
            self._input.choose(strokes=layer)
            notes = [results.reveal(image, layer), note_on_slices(self._viewer, layer)]
            self._panel.explain_reason("paint a few pixels of class 1, then of class 2", *notes)

    def restore_strokes(self) -> None:
        """Restore the strokes on the image that were removed last."""
        layer, self._removed = self._removed, None
        if layer is not None:
            self._viewer.add_layer(layer)
            self._input.choose(strokes=layer)
            self.restored.emit()

    def add_class(self) -> None:
        if self._input.strokes is None:
            self.new_strokes()
        else:
            self._strokes.add_class()
            self.classes.refresh()

    def erase_class(self) -> None:
        """Erase the selected class, and choose the first of the others to paint."""
        for number in self.classes.selected():
            self._strokes.erase_class(number)
            self.classes.refresh()
            if remaining := self.classes.numbers():
                self._strokes.paint_with(remaining[0])

    def draw_box(self) -> None:
        self.box.start()
        self._panel.hint("draw a box around one object")

    def _show_chosen(self, *chosen: object) -> None:
        """Bring the chosen image into sight, and its strokes, ready to be painted on."""
        image = self._input.image
        self._panel.add_note(visibility_of(self._viewer).reveal(image, image))
        if self._strokes.layer is None:
            self._viewer.layers.selection.active = image
        else:
            self._strokes.paint_with(self._strokes.layer.selected_label)

    def _activate_strokes(self) -> None:
        """Make the strokes active and visible, not covered, and end the drawing of a box."""
        self.box.stop()
        strokes, view = self._strokes.layer, visibility_of(self._viewer)
        if not strokes.visible:
            strokes.visible = True
        self._viewer.layers.selection.active = strokes
        self._panel.add_note(view.uncover(self._input.image, strokes))

    def _on_box_drawn(self, corners: NDArray[Any]) -> None:
        if self._input.strokes is None:
            self.new_strokes()
        self.box_drawn.emit(corners)


class BoxDrawing(QObject):
    """Lets the user draw a box; `drawn` emits its corners (4, n_axes) in world coordinates.

    `ended` is emitted when the box is complete, or is not drawn after all.
    """

    drawn = Signal(object)
    ended = Signal()

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self.layer: Shapes | None = None

    def start(self) -> None:
        self.stop()
        self.layer = self._viewer.add_shapes(
            ndim=dims_of(self._viewer).ndim,
            name="box around one object",
            edge_color="yellow",
            face_color="transparent",
        )
        self.layer.mode = "add_rectangle"
        self.layer.events.data.connect(self._on_data)

    def stop(self) -> None:
        layer, self.layer = self.layer, None
        if layer is not None:
            layer.events.data.disconnect(self._on_data)
            if layer in self._viewer.layers:
                self._viewer.layers.remove(layer)
            self.ended.emit()

    def _on_data(self, event: Any) -> None:
        if event.action == ActionType.ADDED:
            QTimer.singleShot(0, self._take)  # napari has not finished the box yet

    def _take(self) -> None:
        if self.layer is not None and len(self.layer.data):
            corners = np.array(self.layer.data[-1])
            self.stop()
            self.drawn.emit(corners)


def paint_box(job: ImageJob, image: Image, corners: NDArray[Any], strokes: Labels) -> None:
    """Paint class 1 on the object in a box and class 2 around it.

    `corners` are in world coordinates; `job` uses the layer `strokes`. Raises InvalidInput if a
    side of the box inside the image is shorter than 2 pixels.
    """
    assert job.seeds is not None
    pixels, axis = job.read_image(not_cancelled)
    values = channels_last(pixels, axis)[0]
    points = np.array([image.world_to_data(corner[-image.ndim :]) for corner in corners])
    box = tuple(_sides(job, points, values.shape[:-1]))
    if any(side.stop - side.start < 2 for side in box):
        raise InvalidInput("box: expected a box around an object, with sides of at least 2 pixels")
    painted = np.zeros(strokes.data.shape, np.uint8)
    region = painted[job.seeds.index]
    region[...] = exemplar_strokes(values, box).reshape(region.shape)
    changed = np.nonzero(painted)
    strokes.data_setitem(changed, painted[changed])  # one undo step


def _sides(job: ImageJob, points: NDArray[Any], shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield the sides of a box in the region of a job; along a flat axis, as deep as it is wide."""
    index, channels = job.pixels.index, job.options.channel_axis
    starts = {axis: at.start or 0 for axis, at in enumerate(index) if isinstance(at, slice)}
    axes = list(starts)
    if channels is not None and len(axes) > len(shape):
        del axes[channels]
    lows, highs = (ends[axes[: len(shape)]] for ends in (points.min(axis=0), points.max(axis=0)))
    depth = np.median((highs - lows)[highs - lows > 1]) if (highs - lows > 1).any() else 0
    for low, high, n_pixels, axis in zip(lows, highs, shape, axes, strict=False):
        margin = depth / 2 if high - low <= 1 < n_pixels else 0
        first = int(np.floor(low - margin - starts[axis] + 0.5))
        last = int(np.ceil(high + margin - starts[axis] + 0.5))
        yield slice(max(0, first), min(n_pixels, max(last, first + 1)))
