"""Atoms on screen: pictures that can be chosen, in a gallery or on a map."""

from __future__ import annotations

import base64
import dataclasses
from abc import abstractmethod
from collections.abc import Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from qtpy.QtCore import QBuffer, QEvent, QIODevice, QPoint, QRect, QSize, Qt, Signal
from qtpy.QtGui import QImage, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from qtpy.QtWidgets import QToolTip, QWidget

from napari_saf._gui.docks.tables import to_qcolor
from napari_saf.dictionary import all_transforms

_BORDER = 3
_GAP = 6
_MAP_MARGIN = 8
_TEXT_HEIGHT = 20
_LEAST_ZOOM_WITH_TEXT = 30
_DIMMED = 0.35
_TRANSFORMS_SIDE, _TRANSFORMS_GAP = 44, 4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AtomTile:
    """An atom (p, p, n_channels) in [0, 1], and how many pixels it labels."""

    atom_id: int
    atom: NDArray[np.float32]
    count: int
    share: float
    color: NDArray[np.float32]


class AtomView(QWidget):
    """Atoms that a click chooses and the mouse over them explains; subclasses place them.

    `chosen_changed` sends the ids of the chosen atoms after a click: a click chooses one atom, or
    none where there is none; with Ctrl or Shift it adds one or takes it away. While `is_locked`,
    as atoms are learned, clicks choose nothing.
    """

    chosen_changed = Signal(object)

    def __init__(self, hint: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._hint = hint
        self._tiles: list[AtomTile] = []
        self._images: list[QImage] = []
        self._places: list[QRect] = []
        self._chosen: frozenset[int] = frozenset()
        self._zoom = 36
        self.is_locked = False

    @property
    def tiles(self) -> list[AtomTile]:
        """The atoms on screen, in order."""
        return list(self._tiles)

    @property
    def chosen(self) -> frozenset[int]:
        """Ids of the chosen atoms."""
        return self._chosen

    def show_tiles(self, tiles: Sequence[AtomTile]) -> None:
        self._tiles = list(tiles)
        self._images = [_to_qimage(_to_rgb(tile.atom)) for tile in self._tiles]
        self._arrange()

    def set_chosen(self, atom_ids: Collection[int]) -> None:
        """Mark atoms as chosen."""
        self._chosen = frozenset(atom_ids)
        self.update()

    def set_zoom(self, side: int) -> None:
        """Show atoms at so many pixels a side."""
        self._zoom = side
        self._arrange()

    def place(self, atom_id: int) -> QRect:
        """Return where an atom lies."""
        return self._places[self._index(atom_id)]

    def tooltip(self, atom_id: int) -> str:
        """Return the tooltip of an atom, as HTML."""
        k = self._index(atom_id)
        tile = self._tiles[k]
        text = f"atom {k + 1}: {tile.count:,} pixels ({100 * tile.share:.1f} %)"
        picture = _to_html(_draw_transforms(tile.atom))
        return f"{text.replace(',', '&#8239;')}<br>turned and mirrored:<br>{picture}"

    def _index(self, atom_id: int) -> int:
        return [tile.atom_id for tile in self._tiles].index(atom_id)

    @abstractmethod
    def _find_places(self) -> list[QRect]:
        """Return where each atom lies, its border included."""

    def _paint_order(self) -> list[int]:
        """Return the atoms in the order in which they are painted."""
        return list(range(len(self._tiles)))

    def _arrange(self) -> None:
        self._places = self._find_places() if self._tiles else []
        self.update()

    def _atom_at(self, point: QPoint) -> int | None:
        """Return the id of the atom on top at a point."""
        hits = (k for k in reversed(self._paint_order()) if self._places[k].contains(point))
        k = next(hits, None)
        return None if k is None else self._tiles[k].atom_id

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Choose what is clicked."""
        if event.button() != Qt.MouseButton.LeftButton or self.is_locked:
            super().mousePressEvent(event)
            return
        hit = self._atom_at(event.pos())
        extends = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if hit is None:
            chosen: frozenset[int] = frozenset()
        elif event.modifiers() & extends:
            chosen = self._chosen ^ {hit}
        else:
            chosen = frozenset() if self._chosen == {hit} else frozenset({hit})
        self.set_chosen(chosen)
        self.chosen_changed.emit(chosen)

    def event(self, event: QEvent) -> bool:
        """Explain the atom under the mouse."""
        if event.type() != QEvent.Type.ToolTip or not self._tiles:
            return bool(super().event(event))
        hit = self._atom_at(event.pos())
        if hit is None:
            QToolTip.hideText()
        else:
            QToolTip.showText(event.globalPos(), self.tooltip(hit), self, self.place(hit))
        return True

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the atoms, or the hint where there are none."""
        painter = QPainter(self)
        if not self._tiles:
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.setOpacity(0.7)
            painter.drawText(self.rect().adjusted(12, 0, -12, 0), int(flags), self._hint)
        for k in self._paint_order():
            if self._places[k].intersects(event.rect().adjusted(0, -_TEXT_HEIGHT, 0, 0)):
                self._paint_tile(painter, k)
        painter.end()

    def _paint_tile(self, painter: QPainter, k: int) -> None:
        tile, place = self._tiles[k], self._places[k]
        is_chosen = tile.atom_id in self._chosen
        painter.setOpacity(1.0 if is_chosen or not self._chosen else _DIMMED)
        painter.fillRect(place, to_qcolor(tile.color))
        painter.drawImage(place.adjusted(_BORDER, _BORDER, -_BORDER, -_BORDER), self._images[k])
        if is_chosen:
            painter.setPen(QPen(self.palette().color(self.foregroundRole()), 2))
            painter.drawRect(place.adjusted(-1, -1, 0, 0))


class AtomGallery(AtomView):
    """Atoms side by side in lines, with their counts below.

    Grows in height with what it shows, for a scroll area; `height_changed` carries the new height.
    """

    height_changed = Signal(int)

    def show_tiles(self, tiles: Sequence[AtomTile]) -> None:
        if not tiles:
            self._grow(0)
        super().show_tiles(tiles)

    def sizeHint(self) -> QSize:
        """Return a width for a few atoms."""
        return QSize(300, self.minimumHeight())

    def _find_places(self) -> list[QRect]:
        """Fill lines, each as wide as the widget."""
        side = self._zoom + 2 * _BORDER
        n_columns = max(1, (self.width() - _GAP) // (side + _GAP))
        n_rows = -(-len(self._tiles) // n_columns)
        step_x = (self.width() - _GAP) / n_columns
        step_y = side + self._text_height() + _GAP
        self._grow(_GAP + n_rows * step_y)
        left = (step_x - side + _GAP) / 2
        return [
            QRect(int(left + k % n_columns * step_x), _GAP + k // n_columns * step_y, side, side)
            for k in range(len(self._tiles))
        ]

    def _grow(self, height: int) -> None:
        if height != self.minimumHeight():
            self.setMinimumHeight(height)
            self.height_changed.emit(height)

    def _text_height(self) -> int:
        return int(self.fontMetrics().height()) if self._zoom >= _LEAST_ZOOM_WITH_TEXT else 0

    def _paint_tile(self, painter: QPainter, k: int) -> None:
        super()._paint_tile(painter, k)
        if self._text_height():
            place = self._places[k].adjusted(-_GAP, 0, _GAP, 0)
            below = QRect(place.left(), place.bottom() + 1, place.width(), _TEXT_HEIGHT)
            flags = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop
            painter.setPen(self.palette().color(self.foregroundRole()))
            painter.drawText(below, int(flags), _count_text(self._tiles[k].count))


class AtomMap(AtomView):
    """Atoms at places in the plane: those that are alike lie near each other."""

    def __init__(self, hint: str, parent: QWidget | None = None) -> None:
        super().__init__(hint, parent)
        self._embedding: dict[int, NDArray[np.float64]] = {}

    def set_embedding(self, atom_ids: Sequence[int], places: NDArray[np.float64]) -> None:
        """Say where the atoms lie, of shape (n_atoms, 2)."""
        self._embedding = dict(zip(atom_ids, places, strict=True))
        self._arrange()

    def _find_places(self) -> list[QRect]:
        """Fill the widget, as far as both axes have one scale."""
        unknown = np.zeros(2)
        places = np.array([self._embedding.get(tile.atom_id, unknown) for tile in self._tiles])
        low, extent = places.min(axis=0), np.ptp(places, axis=0)
        room = np.array([self.width(), self.height()], float) - self._zoom - 2 * _MAP_MARGIN
        scales = room[extent > 0] / extent[extent > 0]
        scale = max(0.0, float(scales.min())) if len(scales) else 0.0
        corners = _MAP_MARGIN + (room - scale * extent) / 2 + scale * (places - low)
        return [QRect(int(x), int(y), self._zoom, self._zoom) for x, y in np.round(corners)]

    def _paint_order(self) -> list[int]:
        """Paint the atoms that are chosen last, and before them those that are used most."""
        return sorted(
            range(len(self._tiles)),
            key=lambda k: (self._tiles[k].atom_id in self._chosen, self._tiles[k].count),
        )


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


def _to_html(pixels: NDArray[np.uint8]) -> str:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    _to_qimage(pixels).save(buffer, "PNG")
    data = base64.b64encode(bytes(buffer.data())).decode("ascii")
    return f'<img src="data:image/png;base64,{data}">'
