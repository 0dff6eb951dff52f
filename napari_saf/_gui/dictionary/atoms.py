"""The atoms of the dictionary on screen: chosen, dropped and brought back, in lines or on a map."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QBuffer, QEvent, QIODevice, QPoint, QRect, Qt, Signal
from qtpy.QtGui import QImage, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from qtpy.QtWidgets import QLabel, QSlider, QToolTip, QVBoxLayout, QWidget
from skimage.util import montage

from napari_saf._gui.dictionary.layers import ColoredDictionary
from napari_saf._gui.docks.tables import to_qcolor, to_qimage
from napari_saf._gui.forms.layout import FormArea, create_button, create_row, fill_layout

_BORDER = 3
_GAP = 6
_TEXT_HEIGHT = 20
_LEAST_ZOOM_WITH_TEXT = 30
_DIMMED = 0.35
_TRANSFORMS_SIDE, _TRANSFORMS_GAP = 44, 4
_LEAST_HEIGHT, _MOST_HEIGHT = 72, 276
_MAP_HEIGHT, _MAP_MARGIN = 240, 8
_LEAST_ZOOM, _MOST_ZOOM, _ZOOM = 16, 120, 36
_MOST_STEPS = 50
"""To undo."""
_HELP = (
    "A click shows where an atom is used; with Ctrl or Shift several are chosen. "
    "Wait over an atom to see its turns."
)
_BUTTONS = {
    "Drop": "Leave the chosen atoms out of the dictionary.",
    "Undo": "Bring back the atoms that were dropped last.",
    "Load …": "Open a dictionary (.safetensors); dropping it on the viewer does too.",
    "Save …": "Keep this dictionary as a file, to apply it to other images.",
}
_HINTS = (
    "no dictionary yet: tick images above and press Learn, or load one",
    "the map of the atoms comes with a dictionary",
)


class AtomView(QWidget):
    """Atoms in lines with their counts, or on a map on which those that are alike lie near.

    A click chooses one atom, or none where there is none; with Ctrl or Shift it adds one or takes
    it away; `chosen_changed` sends their ids. While `is_locked`, as atoms are learned, clicks
    choose nothing and there is no map. `height_changed` sends the height that all of it takes.
    """

    chosen_changed = Signal(object)
    height_changed = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.shown: ColoredDictionary | None = None
        self.chosen: frozenset[int] = frozenset()
        self.places: list[QRect] = []
        self._images: list[QImage] = []
        self._embedding: dict[int, NDArray[np.float64]] = {}
        self._is_locked = self._is_map = False
        self._height, self._zoom = 0, _ZOOM
        self.setToolTip(_HELP)

    def show_dictionary(self, shown: ColoredDictionary | None, is_locked: bool) -> None:
        """Show atoms; of those that are chosen, the ones that are still there stay so."""
        self.shown, self._is_locked = shown, is_locked
        self.chosen &= frozenset(() if shown is None or is_locked else shown.atom_ids)
        known = None if shown is None else shown.dictionary
        atoms = () if known is None else known.colours(known.atoms)
        self._images = [to_qimage(_to_rgb(atom)) for atom in atoms]
        self._arrange()

    def choose(self, atom_ids: Collection[int]) -> None:
        self.chosen = frozenset(atom_ids)
        self.update()
        self.chosen_changed.emit(self.chosen)

    def set_zoom(self, side: int) -> None:
        self._zoom = side
        self._arrange()

    def set_embedding(self, atom_ids: Sequence[int], places: NDArray[np.float64]) -> None:
        """Say where the atoms lie on the map, of shape (n_atoms, 2)."""
        self._embedding = dict(zip(atom_ids, places, strict=True))
        self._arrange()

    def show_map(self, is_map: bool) -> None:
        self._is_map = is_map
        self._arrange()

    def tooltip(self, k: int) -> str:
        assert self.shown is not None
        dictionary = self.shown.dictionary
        count, total = int(dictionary.usage[k]), max(1, int(dictionary.usage.sum()))
        text = f"atom {k + 1}: {count:,} pixels ({100 * count / total:.1f} %)"
        rgb = _to_rgb(dictionary.colours(dictionary.transforms()[k]))
        zoom = max(1, _TRANSFORMS_SIDE // dictionary.patch_size)
        opaque = np.insert(rgb, 3, 255, axis=-1).repeat(zoom, axis=1).repeat(zoom, axis=2)
        gap = _TRANSFORMS_GAP
        picture = montage(opaque, [0] * 4, grid_shape=(2, 4), padding_width=gap, channel_axis=-1)
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        to_qimage(picture).save(buffer, "PNG")
        data = base64.b64encode(bytes(buffer.data())).decode("ascii")
        html = f'<img src="data:image/png;base64,{data}">'
        return f"{text.replace(',', '&#8239;')}<br>turned and mirrored:<br>{html}"

    def _arrange(self) -> None:
        """Place the atoms, each with its border, and ask for the height that they take."""
        if not self._images or (self._is_map and self._is_locked):
            self.places, height = [], 0
        elif self._is_map:
            self.places, height = self._places_on_map(), _MAP_HEIGHT
        else:
            self.places, height = self._places_in_lines()
        self.setMinimumHeight(0 if self._is_map else height)
        if height != self._height:
            self._height = height
            self.height_changed.emit(height)
        self.update()

    def _places_in_lines(self) -> tuple[list[QRect], int]:
        """Fill lines, each as wide as the widget; return the height of all, too."""
        side = self._zoom + 2 * _BORDER
        n_columns = max(1, (self.width() - _GAP) // (side + _GAP))
        step_x = (self.width() - _GAP) / n_columns
        step_y = side + self._text_height() + _GAP
        left = (step_x - side + _GAP) / 2
        places = [
            QRect(int(left + k % n_columns * step_x), _GAP + k // n_columns * step_y, side, side)
            for k in range(len(self._images))
        ]
        return places, _GAP + -(-len(places) // n_columns) * step_y

    def _places_on_map(self) -> list[QRect]:
        """Fill the widget, as far as both axes have one scale."""
        assert self.shown is not None
        places = np.array([self._embedding.get(one, np.zeros(2)) for one in self.shown.atom_ids])
        low, extent = places.min(axis=0), np.ptp(places, axis=0)
        room = np.array([self.width(), self.height()], float) - self._zoom - 2 * _MAP_MARGIN
        scale = max(0.0, float((room / np.maximum(extent, 1e-12)).min()))
        corners = np.round(_MAP_MARGIN + (room - scale * extent) / 2 + scale * (places - low))
        return [QRect(int(x), int(y), self._zoom, self._zoom) for x, y in corners]

    def _paint_order(self) -> list[int]:
        """Return the order of painting: on a map those used most, then chosen ones, on top."""
        order = list(range(len(self.places)))
        if self._is_map and self.shown is not None:
            ids, usage = self.shown.atom_ids, self.shown.dictionary.usage
            order.sort(key=lambda k: (ids[k] in self.chosen, usage[k]))
        return order

    def _text_height(self) -> int:
        return int(self.fontMetrics().height()) if self._zoom >= _LEAST_ZOOM_WITH_TEXT else 0

    def _atom_at(self, point: QPoint) -> int | None:
        hits = (k for k in reversed(self._paint_order()) if self.places[k].contains(point))
        return next(hits, None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton or self._is_locked:
            super().mousePressEvent(event)
            return
        k = self._atom_at(event.pos())
        if k is None or self.shown is None:
            self.choose(())
            return
        hit = {self.shown.atom_ids[k]}
        extends = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if event.modifiers() & extends:
            self.choose(self.chosen ^ hit)
        else:
            self.choose(hit - self.chosen if len(self.chosen) == 1 else hit)

    def event(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.ToolTip or not self.places:
            return bool(super().event(event))
        k = self._atom_at(event.pos())
        if k is None:
            QToolTip.hideText()
        else:
            QToolTip.showText(event.globalPos(), self.tooltip(k), self, self.places[k])
        return True

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if not self.places:
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.setOpacity(0.7)
            area = self.rect().adjusted(12, 0, -12, 0)
            painter.drawText(area, int(flags), _HINTS[self._is_map])
        for k in self._paint_order():
            if self.places[k].intersects(event.rect().adjusted(0, -_TEXT_HEIGHT, 0, 0)):
                self._paint_atom(painter, k)
        painter.end()

    def _paint_atom(self, painter: QPainter, k: int) -> None:
        assert self.shown is not None
        place, is_chosen = self.places[k], self.shown.atom_ids[k] in self.chosen
        ink = self.palette().color(self.foregroundRole())
        painter.setOpacity(1.0 if is_chosen or not self.chosen else _DIMMED)
        painter.fillRect(place, to_qcolor(self.shown.colors[k]))
        painter.drawImage(place.adjusted(_BORDER, _BORDER, -_BORDER, -_BORDER), self._images[k])
        if is_chosen:
            painter.setPen(QPen(ink, 2))
            painter.drawRect(place.adjusted(-1, -1, 0, 0))
        if self._text_height() and not self._is_map:
            wide = place.adjusted(-_GAP, 0, _GAP, 0)
            below = QRect(wide.left(), wide.bottom() + 1, wide.width(), _TEXT_HEIGHT)
            flags = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop
            painter.setPen(ink)
            count = int(self.shown.dictionary.usage[k])
            painter.drawText(below, int(flags), _count_text(count))


def _count_text(count: int) -> str:
    """Return a count in at most five characters: 940, 9.4k, 94k, 1.2M."""
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            number = count / size
            return f"{number:.1f}{unit}" if number < 9.95 else f"{number:.0f}{unit}"
    return str(count)


def _to_rgb(atoms: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return atoms as RGB: three channels as they are, others by their mean."""
    scaled = np.clip(atoms, 0, 1)
    if scaled.shape[-1] != 3:
        scaled = np.repeat(scaled.mean(axis=-1, keepdims=True), 3, axis=-1)
    return np.asarray(np.round(255 * scaled), dtype=np.uint8)


class AtomsSection(QWidget):
    """The dictionary on screen, its atoms sorted by use; buttons for what can be done with it.

    `edited` sends the dictionary after atoms were dropped, or brought back.
    """

    edited = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.current: ColoredDictionary | None = None
        self._past: deque[ColoredDictionary] = deque(maxlen=_MOST_STEPS)
        self._is_enabled = True
        self._heading, self.view = QLabel(), AtomView()
        self._scroll = FormArea(self.view)
        help = "All atoms, the most used first, with the pixels they label."
        self.show_gallery = create_button("Gallery", help)
        self.show_map = create_button("Map", "Atoms that are alike lie near each other.")
        for button in (self.show_gallery, self.show_map):
            button.setCheckable(True)
            button.setAutoExclusive(True)
        self.show_gallery.setChecked(True)
        self.show_map.toggled.connect(self.view.show_map)
        self.zoom = QSlider(Qt.Orientation.Horizontal, toolTip="Size of the atoms on screen.")
        self.zoom.setRange(_LEAST_ZOOM, _MOST_ZOOM)
        self.zoom.setValue(_ZOOM)
        self.zoom.valueChanged.connect(self.view.set_zoom)
        slots = {"Drop": self._on_drop_clicked, "Undo": lambda: self._edit(self._past.pop())}
        buttons = [create_button(name, help, slots.get(name)) for name, help in _BUTTONS.items()]
        self.drop, self.undo, self.load, self.save = buttons
        self.view.height_changed.connect(self._fit_height)
        self.view.chosen_changed.connect(self._update_enabled)
        views = create_row(self.show_gallery, self.show_map, self.zoom)
        fill_layout(QVBoxLayout(self), self._heading, views, self._scroll, create_row(*buttons))
        self.show_dictionary(None)
        self._fit_height(0)

    def begin(self, new: ColoredDictionary) -> None:
        """Show a new dictionary; what was dropped from the one before is forgotten."""
        self._past.clear()
        self.show_dictionary(new)

    def show_dictionary(self, shown: ColoredDictionary | None) -> None:
        self.current = shown
        self._heading.setText("Atoms" if shown is None else shown.description)
        self.view.show_dictionary(shown, is_locked=False)
        self._update_enabled()

    def show_live(self, shown: ColoredDictionary) -> None:
        """Show atoms that are being learned; the dictionary of before stays the current one."""
        self._heading.setText(f"{len(shown.atom_ids)} atoms so far")
        self.view.show_dictionary(shown, is_locked=True)

    def set_enabled(self, enabled: bool) -> None:
        self._is_enabled = enabled
        self._update_enabled()

    def _on_drop_clicked(self) -> None:
        assert self.current is not None
        self._past.append(self.current)
        self._edit(self.current.without(self.view.chosen))

    def _edit(self, edited: ColoredDictionary) -> None:
        self.view.choose(())
        self.show_dictionary(edited)
        self.edited.emit(edited)

    def _update_enabled(self) -> None:
        n_atoms = 0 if self.current is None else len(self.current.atom_ids)
        # At least one atom must be left.
        self.drop.setEnabled(self._is_enabled and 0 < len(self.view.chosen) < n_atoms)
        self.undo.setEnabled(self._is_enabled and bool(self._past))
        self.save.setEnabled(self._is_enabled and n_atoms > 0)
        self.load.setEnabled(self._is_enabled)

    def _fit_height(self, wanted: int) -> None:
        margins = self._scroll.contentsMargins()  # of napari's style
        wanted += margins.top() + margins.bottom()
        self._scroll.setFixedHeight(min(max(wanted, _LEAST_HEIGHT), _MOST_HEIGHT))
