"""The atoms of the dictionary on screen: chosen, dropped and brought back, in lines or on a map."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from qtpy.QtCore import QBuffer, QEvent, QIODevice, QPoint, QRect, Qt, Signal
from qtpy.QtGui import QImage, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from qtpy.QtWidgets import QLabel, QSlider, QToolTip, QVBoxLayout, QWidget

from napari_saf._gui.dictionary.layers import AtomTile, ColoredDictionary
from napari_saf._gui.docks.label_table import to_qcolor
from napari_saf._gui.docks.undo import UndoHistory
from napari_saf._gui.forms.layout import create_button, create_row, create_scroll_area
from napari_saf.dictionary import all_transforms

_BORDER = 3
_GAP = 6
_TEXT_HEIGHT = 20
_LEAST_ZOOM_WITH_TEXT = 30
_DIMMED = 0.35
_TRANSFORMS_SIDE, _TRANSFORMS_GAP = 44, 4
_LEAST_HEIGHT, _MOST_HEIGHT = 72, 276
_MAP_HEIGHT, _MAP_MARGIN = 240, 8
_LEAST_ZOOM, _MOST_ZOOM, _ZOOM = 16, 120, 36
_HELP = (
    "A click shows where an atom is used; with Ctrl or Shift several are chosen. "
    "Wait over an atom to see its turns."
)
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
        self.tiles: list[AtomTile] = []
        self.chosen: frozenset[int] = frozenset()
        self.is_locked = self.is_map = False
        self._images: list[QImage] = []
        self._places: list[QRect] = []
        self._embedding: dict[int, NDArray[np.float64]] = {}
        self._height, self._zoom = 0, _ZOOM
        self.setToolTip(_HELP)

    def show_tiles(self, tiles: Sequence[AtomTile], is_locked: bool) -> None:
        """Show atoms; of those that are chosen, the ones that are still there stay so."""
        self.tiles, self.is_locked = list(tiles), is_locked
        self.chosen &= frozenset(tile.atom_id for tile in tiles if not is_locked)
        self._images = [_to_qimage(_to_rgb(tile.atom)) for tile in tiles]
        self._arrange()

    def set_chosen(self, atom_ids: Collection[int]) -> None:
        self.chosen = frozenset(atom_ids)
        self.update()

    def set_zoom(self, side: int) -> None:
        """Show atoms at so many pixels a side."""
        self._zoom = side
        self._arrange()

    def set_embedding(self, atom_ids: Sequence[int], places: NDArray[np.float64]) -> None:
        """Say where the atoms lie on the map, of shape (n_atoms, 2)."""
        self._embedding = dict(zip(atom_ids, places, strict=True))
        self._arrange()

    def show_map(self, is_map: bool) -> None:
        self.is_map = is_map
        self._arrange()

    def place(self, atom_id: int) -> QRect:
        return self._places[self._index(atom_id)]

    def tooltip(self, atom_id: int) -> str:
        """Return the tooltip of an atom, as HTML."""
        k = self._index(atom_id)
        tile = self.tiles[k]
        text = f"atom {k + 1}: {tile.count:,} pixels ({100 * tile.share:.1f} %)"
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        _to_qimage(_draw_transforms(tile.atom)).save(buffer, "PNG")
        data = base64.b64encode(bytes(buffer.data())).decode("ascii")
        picture = f'<img src="data:image/png;base64,{data}">'
        return f"{text.replace(',', '&#8239;')}<br>turned and mirrored:<br>{picture}"

    def _index(self, atom_id: int) -> int:
        return [tile.atom_id for tile in self.tiles].index(atom_id)

    def _arrange(self) -> None:
        """Place the atoms, each with its border, and ask for the height that they take."""
        if not self.tiles or (self.is_map and self.is_locked):
            self._places, height = [], 0
        elif self.is_map:
            self._places, height = self._places_on_map(), _MAP_HEIGHT
        else:
            self._places, height = self._places_in_lines()
        self.setMinimumHeight(0 if self.is_map else height)
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
            for k in range(len(self.tiles))
        ]
        return places, _GAP + -(-len(places) // n_columns) * step_y

    def _places_on_map(self) -> list[QRect]:
        """Fill the widget, as far as both axes have one scale."""
        unknown = np.zeros(2)
        places = np.array([self._embedding.get(tile.atom_id, unknown) for tile in self.tiles])
        low, extent = places.min(axis=0), np.ptp(places, axis=0)
        room = np.array([self.width(), self.height()], float) - self._zoom - 2 * _MAP_MARGIN
        scales = room[extent > 0] / extent[extent > 0]
        scale = max(0.0, float(scales.min())) if len(scales) else 0.0
        corners = _MAP_MARGIN + (room - scale * extent) / 2 + scale * (places - low)
        return [QRect(int(x), int(y), self._zoom, self._zoom) for x, y in np.round(corners)]

    def _paint_order(self) -> list[int]:
        """Return the order of painting: on a map those used most, then chosen ones, on top."""
        order = list(range(len(self._places)))
        if self.is_map:
            order.sort(key=lambda k: (self.tiles[k].atom_id in self.chosen, self.tiles[k].count))
        return order

    def _text_height(self) -> int:
        return int(self.fontMetrics().height()) if self._zoom >= _LEAST_ZOOM_WITH_TEXT else 0

    def _atom_at(self, point: QPoint) -> int | None:
        hits = (k for k in reversed(self._paint_order()) if self._places[k].contains(point))
        k = next(hits, None)
        return None if k is None else self.tiles[k].atom_id

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton or self.is_locked:
            super().mousePressEvent(event)
            return
        hit = self._atom_at(event.pos())
        extends = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if hit is None:
            chosen: frozenset[int] = frozenset()
        elif event.modifiers() & extends:
            chosen = self.chosen ^ {hit}
        else:
            chosen = frozenset() if self.chosen == {hit} else frozenset({hit})
        self.set_chosen(chosen)
        self.chosen_changed.emit(chosen)

    def event(self, event: QEvent) -> bool:
        """Explain the atom under the mouse."""
        if event.type() != QEvent.Type.ToolTip or not self._places:
            return bool(super().event(event))
        hit = self._atom_at(event.pos())
        if hit is None:
            QToolTip.hideText()
        else:
            QToolTip.showText(event.globalPos(), self.tooltip(hit), self, self.place(hit))
        return True

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the atoms, or a hint where there are none."""
        painter = QPainter(self)
        if not self._places:
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.setOpacity(0.7)
            area = self.rect().adjusted(12, 0, -12, 0)
            painter.drawText(area, int(flags), _HINTS[self.is_map])
        for k in self._paint_order():
            if self._places[k].intersects(event.rect().adjusted(0, -_TEXT_HEIGHT, 0, 0)):
                self._paint_tile(painter, k)
        painter.end()

    def _paint_tile(self, painter: QPainter, k: int) -> None:
        tile, place = self.tiles[k], self._places[k]
        is_chosen = tile.atom_id in self.chosen
        ink = self.palette().color(self.foregroundRole())
        painter.setOpacity(1.0 if is_chosen or not self.chosen else _DIMMED)
        painter.fillRect(place, to_qcolor(tile.color))
        painter.drawImage(place.adjusted(_BORDER, _BORDER, -_BORDER, -_BORDER), self._images[k])
        if is_chosen:
            painter.setPen(QPen(ink, 2))
            painter.drawRect(place.adjusted(-1, -1, 0, 0))
        if self._text_height() and not self.is_map:
            wide = place.adjusted(-_GAP, 0, _GAP, 0)
            below = QRect(wide.left(), wide.bottom() + 1, wide.width(), _TEXT_HEIGHT)
            flags = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop
            painter.setPen(ink)
            painter.drawText(below, int(flags), _count_text(tile.count))


def _count_text(count: int) -> str:
    """Return a count in at most five characters: 940, 9.4k, 94k, 1.2M."""
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            number = count / size
            return f"{number:.1f}{unit}" if number < 9.95 else f"{number:.0f}{unit}"
    return str(count)


def _to_rgb(atom: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return an atom as RGB: three channels as they are, others by their mean."""
    scaled = np.clip(np.nan_to_num(atom), 0, 1)
    if scaled.shape[-1] != 3:
        scaled = np.repeat(scaled.mean(axis=-1, keepdims=True), 3, axis=-1)
    return np.asarray(np.round(255 * scaled), dtype=np.uint8)


def _draw_transforms(atom: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return a picture of an atom under the 8 symmetries: turns above, mirrored below."""
    channels_first = torch.from_numpy(np.ascontiguousarray(atom)).movedim(-1, 0)
    zoom = max(1, _TRANSFORMS_SIDE // atom.shape[0])
    side = zoom * atom.shape[0]
    step = side + _TRANSFORMS_GAP
    picture = np.zeros((2 * step - _TRANSFORMS_GAP, 4 * step - _TRANSFORMS_GAP, 4), dtype=np.uint8)
    for k, transformed in enumerate(all_transforms(channels_first[None])[0]):
        rgb = _to_rgb(transformed.movedim(0, -1).numpy())
        place = picture[k // 4 * step :, k % 4 * step :][:side, :side]
        place[..., :3], place[..., 3] = rgb.repeat(zoom, axis=0).repeat(zoom, axis=1), 255
    return picture


def _to_qimage(pixels: NDArray[np.uint8]) -> QImage:
    height, width, n_channels = pixels.shape
    kind = QImage.Format.Format_RGBA8888 if n_channels == 4 else QImage.Format.Format_RGB888
    # The copy owns its pixels.
    return QImage(pixels.tobytes(), width, height, n_channels * width, kind).copy()


class AtomsSection(QWidget):
    """The dictionary on screen, its atoms sorted by use.

    `chosen_changed` sends the ids of the atoms that a click chose; `edited` the dictionary after
    atoms were dropped, or brought back.
    """

    chosen_changed = Signal(object)
    edited = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.current: ColoredDictionary | None = None
        self._history: UndoHistory[ColoredDictionary] = UndoHistory()
        self._is_enabled = True
        self._heading, self.view = QLabel(), AtomView()
        self._scroll = create_scroll_area(self.view)
        self.show_gallery = create_button(
            "Gallery", "All atoms, the most used first, with the pixels they label."
        )
        self.show_map = create_button("Map", "Atoms that are alike lie near each other.")
        for button in (self.show_gallery, self.show_map):
            button.setCheckable(True)
            button.setAutoExclusive(True)
        self.show_gallery.setChecked(True)
        self.show_map.toggled.connect(self.view.show_map)
        self.zoom = QSlider(Qt.Orientation.Horizontal)
        self.zoom.setRange(_LEAST_ZOOM, _MOST_ZOOM)
        self.zoom.setValue(_ZOOM)
        self.zoom.setToolTip("Size of the atoms on screen.")
        self.zoom.valueChanged.connect(self.view.set_zoom)
        self.drop = create_button(
            "Drop", "Leave the chosen atoms out of the dictionary.", self.drop_chosen
        )
        self.undo = create_button(
            "Undo", "Bring back the atoms that were dropped last.", self.undo_drop
        )
        self.load = create_button(
            "Load …", "Open a dictionary (.safetensors); dropping it on the viewer does too."
        )
        self.save = create_button(
            "Save …", "Keep this dictionary as a file, to apply it to other images."
        )
        self.view.height_changed.connect(self._fit_height)
        self.view.chosen_changed.connect(self.choose)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._heading)
        layout.addWidget(create_row(self.show_gallery, self.show_map, self.zoom))
        layout.addWidget(self._scroll)
        layout.addWidget(create_row(self.drop, self.undo, self.load, self.save))
        self.show_dictionary(None)
        self._fit_height(0)

    def begin(self, new: ColoredDictionary) -> None:
        """Show a new dictionary; what was dropped from the one before is forgotten."""
        self._history.clear()
        self.show_dictionary(new)

    def show_dictionary(self, shown: ColoredDictionary | None) -> None:
        self.current = shown
        self._heading.setText("Atoms" if shown is None else shown.description)
        self.view.show_tiles([] if shown is None else shown.tiles(), is_locked=False)
        self._update_enabled()

    def show_live(
        self, atoms: NDArray[np.float32], counts: NDArray[np.int64], colors: NDArray[np.float32]
    ) -> None:
        """Show atoms that are being learned, largest first."""
        total = max(1, int(counts.sum()))
        order = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] > 0]
        tiles = [
            AtomTile(k, atoms[k], int(counts[k]), counts[k] / total, colors[k])
            for k in order
            if np.isfinite(atoms[k]).all()
        ]
        self._heading.setText(f"{len(tiles)} atoms so far")
        self.view.show_tiles(tiles, is_locked=True)
        self._update_enabled()

    def choose(self, atom_ids: Collection[int]) -> None:
        self.view.set_chosen(atom_ids)
        self._update_enabled()
        self.chosen_changed.emit(frozenset(atom_ids))

    def drop_chosen(self) -> None:
        """Leave the chosen atoms out, unless none would be left."""
        if self.current is not None and self._may_drop():
            self._history.push(self.current)
            self._edit(self.current.without(self.view.chosen))

    def undo_drop(self) -> None:
        if self.current is not None and self._history.past:
            self._edit(self._history.past.pop())

    def _edit(self, edited: ColoredDictionary) -> None:
        self.choose(())
        self.show_dictionary(edited)
        self.edited.emit(edited)

    def set_enabled(self, enabled: bool) -> None:
        """Allow to change the dictionary, or do not."""
        self._is_enabled = enabled
        self._update_enabled()

    def _may_drop(self) -> bool:
        return self.current is not None and 0 < len(self.view.chosen) < len(self.current.atom_ids)

    def _update_enabled(self) -> None:
        is_open = self._is_enabled and not self.view.is_locked
        self.drop.setEnabled(is_open and self._may_drop())
        self.undo.setEnabled(is_open and bool(self._history.past))
        self.save.setEnabled(is_open and self.current is not None)
        self.load.setEnabled(is_open)

    def _fit_height(self, wanted: int) -> None:
        """Take no more room than the atoms need; more of them are scrolled."""
        margins = self._scroll.contentsMargins()  # of napari's style
        wanted += margins.top() + margins.bottom()
        self._scroll.setFixedHeight(min(max(wanted, _LEAST_HEIGHT), _MOST_HEIGHT))
