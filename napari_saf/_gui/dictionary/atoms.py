"""Atoms on screen: pictures that can be chosen, and the gallery of them."""

from __future__ import annotations

import base64
import dataclasses
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from qtpy.QtCore import QBuffer, QEvent, QIODevice, QPoint, QRect, QSize, Qt, Signal
from qtpy.QtGui import QColor, QImage, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from qtpy.QtWidgets import QToolTip, QWidget

from napari_saf.dictionary import all_transforms

__all__ = ["AtomGallery", "AtomView", "Tile", "count_words", "to_rgb"]

_BORDER = 3
_GAP = 6
_DIMMED = 0.35
_SHEET_SIDE = 44
_SHEET_GAP = 4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """An atom on screen.

    Attributes
    ----------
    identity : int
        What tells it from other atoms.
    atom : array of shape (p, p, n_channels)
        In [0, 1].
    count : int
        Pixels that it labels.
    share : float
        Their share of all.
    color : array of shape (4,)
    """

    identity: int
    atom: NDArray[np.float32]
    count: int
    share: float
    color: NDArray[np.float32]


class AtomView(QWidget):
    """Atoms that a click chooses and the mouse over them explains.

    Subclasses say where each atom lies. `chosen_changed` sends the identities of the chosen
    atoms after a click: a click chooses one atom, or none where there is none; with Ctrl or
    Shift it adds one or takes it away.
    """

    chosen_changed = Signal(object)

    def __init__(self, hint: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._hint = hint
        self._tiles: list[Tile] = []
        self._images: list[QImage] = []
        self._places: list[QRect] = []
        self._chosen: frozenset[int] = frozenset()
        self._zoom = 36
        self.is_locked = False
        """Whether clicks choose nothing, as while atoms are learned."""

    @property
    def tiles(self) -> list[Tile]:
        """The atoms on screen, in order."""
        return list(self._tiles)

    @property
    def chosen(self) -> frozenset[int]:
        """Identities of the chosen atoms."""
        return self._chosen

    def show_tiles(self, tiles: Sequence[Tile]) -> None:
        """Show atoms."""
        self._tiles = list(tiles)
        self._images = [_as_image(to_rgb(tile.atom)) for tile in self._tiles]
        self._arrange()

    def set_chosen(self, identities: Collection[int]) -> None:
        """Mark atoms as chosen."""
        self._chosen = frozenset(identities)
        self.update()

    def set_zoom(self, side: int) -> None:
        """Show atoms at so many pixels a side."""
        self._zoom = side
        self._arrange()

    def place(self, identity: int) -> QRect:
        """Return where an atom lies."""
        return self._places[[tile.identity for tile in self._tiles].index(identity)]

    def tooltip(self, identity: int) -> str:
        """Return what the mouse over an atom tells, as HTML."""
        k = [tile.identity for tile in self._tiles].index(identity)
        tile = self._tiles[k]
        words = f"atom {k + 1}: {tile.count:,} pixels ({100 * tile.share:.1f} %)"
        sheet = _as_html(_draw_symmetries(tile.atom))
        return f"{words.replace(',', '&#8239;')}<br>turned and mirrored:<br>{sheet}"

    @abstractmethod
    def _find_places(self) -> list[QRect]:
        """Return where each atom lies, its border included."""

    def _arrange(self) -> None:
        self._places = self._find_places() if self._tiles else []
        self.update()

    def _at(self, point: QPoint) -> int | None:
        """Return the identity of the atom on top at a point."""
        for k in reversed(self._order()):
            if self._places[k].contains(point):
                return self._tiles[k].identity
        return None

    def _order(self) -> list[int]:
        """Return the atoms in the order in which they are painted."""
        return list(range(len(self._tiles)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Arrange the atoms anew."""
        super().resizeEvent(event)
        self._arrange()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Choose what is clicked."""
        if event.button() != Qt.MouseButton.LeftButton or self.is_locked:
            super().mousePressEvent(event)
            return
        hit = self._at(event.pos())
        more = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if hit is None:
            chosen: frozenset[int] = frozenset()
        elif event.modifiers() & more:
            chosen = self._chosen ^ {hit}
        else:
            chosen = frozenset() if self._chosen == {hit} else frozenset({hit})
        self.set_chosen(chosen)
        self.chosen_changed.emit(chosen)

    def event(self, event: QEvent) -> bool:
        """Explain the atom under the mouse."""
        if event.type() == QEvent.Type.ToolTip and self._tiles:
            hit = self._at(event.pos())
            if hit is None:
                QToolTip.hideText()
            else:
                QToolTip.showText(event.globalPos(), self.tooltip(hit), self, self.place(hit))
            return True
        return bool(super().event(event))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the atoms."""
        painter = QPainter(self)
        if not self._tiles:
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.setOpacity(0.7)
            painter.drawText(self.rect().adjusted(12, 0, -12, 0), int(flags), self._hint)
        for k in self._order():
            if self._places[k].intersects(event.rect().adjusted(0, -20, 0, 0)):
                self._paint_tile(painter, k)
        painter.end()

    def _paint_tile(self, painter: QPainter, k: int) -> None:
        tile, place = self._tiles[k], self._places[k]
        is_chosen = tile.identity in self._chosen
        painter.setOpacity(1.0 if is_chosen or not self._chosen else _DIMMED)
        painter.fillRect(place, _as_color(tile.color))
        inner = place.adjusted(_BORDER, _BORDER, -_BORDER, -_BORDER)
        painter.drawImage(inner, self._images[k])
        if is_chosen:
            painter.setPen(QPen(self.palette().color(self.foregroundRole()), 2))
            painter.drawRect(place.adjusted(-1, -1, 0, 0))


class AtomGallery(AtomView):
    """Atoms side by side in lines, with their counts below.

    Grows in height with what it shows, for a scroll area; `height_changed` tells how high it is.
    """

    height_changed = Signal(int)

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

    def show_tiles(self, tiles: Sequence[Tile]) -> None:
        """Show atoms."""
        if not tiles:
            self._grow(0)
        super().show_tiles(tiles)

    def sizeHint(self) -> QSize:
        """Return a width for a few atoms."""
        return QSize(300, self.minimumHeight())

    def _grow(self, height: int) -> None:
        if height != self.minimumHeight():
            self.setMinimumHeight(height)
            self.height_changed.emit(height)

    def _text_height(self) -> int:
        return int(self.fontMetrics().height()) if self._zoom >= 30 else 0

    def _paint_tile(self, painter: QPainter, k: int) -> None:
        super()._paint_tile(painter, k)
        if self._text_height():
            place = self._places[k]
            below = QRect(place.left() - _GAP, place.bottom() + 1, place.width() + 2 * _GAP, 20)
            flags = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop
            painter.setPen(self.palette().color(self.foregroundRole()))
            painter.drawText(below, int(flags), count_words(self._tiles[k].count))


def count_words(count: int) -> str:
    """Return a count in at most five characters: 940, 9.4k, 94k, 1.2M."""
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            number = count / size
            return f"{number:.1f}{unit}" if number < 9.95 else f"{number:.0f}{unit}"
    return str(count)


def to_rgb(atom: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return what stands for an atom on screen: RGB as it is, other channels by their mean."""
    scaled = np.clip(np.nan_to_num(atom), 0, 1)
    if scaled.shape[-1] != 3:
        scaled = np.repeat(scaled.mean(axis=-1, keepdims=True), 3, axis=-1)
    return np.asarray(np.round(255 * scaled), dtype=np.uint8)


def _draw_symmetries(atom: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return a picture of an atom under the 8 symmetries: turns above, mirrored below."""
    turned = all_transforms(torch.from_numpy(np.ascontiguousarray(atom)).movedim(-1, 0)[None])[0]
    zoom = max(1, _SHEET_SIDE // atom.shape[0])
    side = zoom * atom.shape[0]
    step = side + _SHEET_GAP
    sheet = np.full((2 * step - _SHEET_GAP, 4 * step - _SHEET_GAP, 4), 0, dtype=np.uint8)
    for k, one in enumerate(turned):
        large = to_rgb(one.movedim(0, -1).numpy()).repeat(zoom, axis=0).repeat(zoom, axis=1)
        part = sheet[k // 4 * step :, k % 4 * step :][:side, :side]
        part[..., :3], part[..., 3] = large, 255
    return sheet


def _as_image(pixels: NDArray[np.uint8]) -> QImage:
    height, width, n_channels = pixels.shape
    kind = QImage.Format.Format_RGBA8888 if n_channels == 4 else QImage.Format.Format_RGB888
    # The copy owns its pixels.
    return QImage(pixels.tobytes(), width, height, n_channels * width, kind).copy()


def _as_html(pixels: NDArray[np.uint8]) -> str:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    _as_image(pixels).save(buffer, "PNG")
    data = base64.b64encode(bytes(buffer.data())).decode("ascii")
    return f'<img src="data:image/png;base64,{data}">'


def _as_color(color: NDArray[Any]) -> QColor:
    return QColor.fromRgbF(*(float(x) for x in np.clip(color[:3], 0, 1)))
