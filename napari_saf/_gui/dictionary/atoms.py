"""The atoms of the current dictionary as a list or a map: selection, dropping, undo."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Collection, Sequence

import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QPoint, Qt, Signal
from qtpy.QtGui import QColor, QImage, QMouseEvent, QPainter, QPen, QPixmap, QResizeEvent
from qtpy.QtWidgets import (
    QFrame,
    QGraphicsScene,
    QGraphicsView,
    QLabel,
    QSlider,
    QToolTip,
    QVBoxLayout,
    QWidget,
)
from skimage.util import montage

from napari_saf._gui.dictionary.layers import ColoredDictionary
from napari_saf._gui.docks.tables import to_qcolor, to_qimage
from napari_saf._gui.forms.layout import create_button, create_row, fill_layout
from napari_saf.errors import format_count

_FRAME, _GAP, _MAP_MARGIN = 3, 6, 8
_MIN_ZOOM, _ZOOM, _MAX_ZOOM = 16, 36, 120
_MIN_ZOOM_WITH_TEXT = 30
_MIN_HEIGHT, _MAP_HEIGHT, _MAX_HEIGHT = 72, 240, 276
_DIMMED = 0.35
_TRANSFORMS_SIDE, _TRANSFORMS_GAP = 44, 4
_MAX_UNDO = 50
_NUMBER = 0
"""Data key of a graphics item for the number of its atom."""
_NO_ATOMS = "no dictionary yet: tick images above and press Learn, or load one"
_HELP = (
    "Click an atom to show where it is used; Ctrl or Shift selects several. "
    "Hover over an atom to see its rotations and reflections."
)
_BUTTONS = {
    "Drop": "Remove the selected atoms from the dictionary.",
    "Undo": "Restore the atoms dropped last.",
    "Load …": "Open a dictionary (.safetensors); dropping it on the viewer does too.",
    "Save …": "Save this dictionary to a file, to apply it to other images.",
}


class AtomView(QGraphicsView):
    """Atoms in rows with their counts, or on a map with similar atoms close together.

    A click selects an atom, or clears the selection beside all atoms; with Ctrl or Shift it
    toggles an atom. During learning there is neither selection nor map.
    """

    selection_changed = Signal(object)
    """Emitted with the ids of the selected atoms."""

    def __init__(self) -> None:
        super().__init__()
        self._drawing = QGraphicsScene(self)
        self.setScene(self._drawing)
        self.shown: ColoredDictionary | None = None
        self.selected: frozenset[int] = frozenset()
        self._images: list[QImage] = []
        self._embedding: dict[int, NDArray[np.float64]] = {}
        self._is_learning = self._is_map = False
        self._zoom = _ZOOM
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setStyleSheet("background: transparent;")
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def show_dictionary(self, shown: ColoredDictionary | None, *, is_learning: bool) -> None:
        """Show atoms, keeping the selection of those that still exist."""
        self.shown, self._is_learning = shown, is_learning
        self.selected &= frozenset(() if shown is None or is_learning else shown.atom_ids)
        dictionary = None if shown is None else shown.dictionary
        atoms = () if dictionary is None else dictionary.colours(dictionary.atoms)
        self._images = [to_qimage(_to_rgb(atom)) for atom in atoms]
        self.setVisible(shown is not None)
        self._draw()

    def select(self, atom_ids: Collection[int]) -> None:
        self.selected = frozenset(atom_ids)
        self._draw()
        self.selection_changed.emit(self.selected)

    def set_zoom(self, side: int) -> None:
        self._zoom = side
        self._draw()

    def set_embedding(self, atom_ids: Sequence[int], points: NDArray[np.float64]) -> None:
        """Set the positions (n_atoms, 2) of atoms on the map."""
        self._embedding = dict(zip(atom_ids, points, strict=True))
        self._draw()

    def show_map(self, is_map: bool) -> None:
        self._is_map = is_map
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self._draw()

    def center_of(self, number: int) -> QPoint:
        """Return the centre of the picture of an atom in the viewport."""
        pictures = (item for item in self.items() if item.data(_NUMBER) == number)
        return self.mapFromScene(next(pictures).sceneBoundingRect().center())

    def tooltip(self, number: int) -> str:
        """Return HTML with the count of an atom and a picture of its eight transforms."""
        assert self.shown is not None
        dictionary = self.shown.dictionary
        count, total = int(dictionary.usage[number]), max(1, int(dictionary.usage.sum()))
        rgb = _to_rgb(dictionary.colours(dictionary.transforms()[number]))
        zoom = max(1, _TRANSFORMS_SIDE // dictionary.patch_size)
        opaque = np.insert(rgb, 3, 255, axis=-1).repeat(zoom, axis=1).repeat(zoom, axis=2)
        gap = _TRANSFORMS_GAP
        picture = montage(opaque, [0] * 4, grid_shape=(2, 4), padding_width=gap, channel_axis=-1)
        data = base64.b64encode(iio.imwrite("<bytes>", picture, extension=".png")).decode("ascii")
        return (
            f"atom {number + 1}: {format_count(count)} pixels ({100 * count / total:.1f} %)"
            f'<br>rotated and mirrored:<br><img src="data:image/png;base64,{data}">'
        )

    def _draw(self) -> None:
        """Draw the atoms with frames in their colours, the most used and selected ones on top."""
        drawing = self._drawing
        drawing.clear()
        if self.shown is None:
            return
        usage, side, width = self.shown.dictionary.usage, self._side, self.viewport().width()
        is_map = self._is_map and not self._is_learning
        has_text = self._zoom >= _MIN_ZOOM_WITH_TEXT and not is_map
        if is_map:
            size = np.array([width, _MAP_HEIGHT])
            points = [self._embedding.get(atom_id, np.zeros(2)) for atom_id in self.shown.atom_ids]
            corners, height = map_corners(np.array(points), size - side), _MAP_HEIGHT
        else:
            step = side + _GAP + self.fontMetrics().height() * has_text
            corners, height = line_corners(len(usage), width, side, step)
        ink = self.palette().color(self.foregroundRole())
        for number, (x, y) in enumerate(corners.tolist()):
            is_selected = self.shown.atom_ids[number] in self.selected
            item = drawing.addPixmap(self._picture(number, ink if is_selected else None))
            item.setData(_NUMBER, number)
            item.setPos(x, y)
            item.setZValue(float(usage[number]) + float(usage.sum()) * is_selected)
            item.setOpacity(1 if is_selected or not self.selected else _DIMMED)
            if has_text:
                text = drawing.addSimpleText(short_count(int(usage[number])))
                text.setBrush(ink)
                text.setOpacity(item.opacity())
                text.setPos(x + (side - text.boundingRect().width()) / 2, y + side)
        drawing.setSceneRect(0, 0, width, height)
        edges = self.contentsMargins()  # set by the stylesheet of napari
        height += edges.top() + edges.bottom()
        self.setFixedHeight(int(np.clip(height, _MIN_HEIGHT, _MAX_HEIGHT)))

    def _picture(self, number: int, outline: QColor | None) -> QPixmap:
        assert self.shown is not None
        picture = QPixmap(self._side, self._side)
        picture.fill(to_qcolor(self.shown.colors[number]))
        painter = QPainter(picture)
        inner = picture.rect().adjusted(_FRAME, _FRAME, -_FRAME, -_FRAME)
        painter.drawImage(inner, self._images[number])
        if outline is not None:
            painter.setPen(QPen(outline, 2))
            painter.drawRect(picture.rect().adjusted(1, 1, -1, -1))
        painter.end()
        return picture

    @property
    def _side(self) -> int:
        return self._zoom + 2 * _FRAME

    def _number_at(self, point: QPoint) -> int | None:
        item = self.itemAt(point)
        return None if item is None else item.data(_NUMBER)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._draw()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton or self._is_learning or self.shown is None:
            return
        number = self._number_at(event.pos())
        if number is None:
            self.select(())
            return
        hit = {self.shown.atom_ids[number]}
        several = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
        if event.modifiers() & several:
            self.select(self.selected ^ hit)
        else:
            self.select(hit - self.selected if len(self.selected) == 1 else hit)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.ToolTip:
            return bool(super().viewportEvent(event))
        number = self._number_at(event.pos())
        text = _HELP if number is None else self.tooltip(number)
        QToolTip.showText(event.globalPos(), text, self)
        return True


def line_corners(n_atoms: int, width: int, side: int, step: int) -> tuple[NDArray[np.float64], int]:
    """Return the corners (n_atoms, 2) as x, y of pictures in rows, and the total height."""
    n_columns = max(1, (width - _GAP) // (side + _GAP))
    rows, columns = np.divmod(np.arange(n_atoms), n_columns)
    step_x = (width - _GAP) / n_columns
    corners = np.column_stack([(step_x - side + _GAP) / 2 + columns * step_x, _GAP + rows * step])
    return np.floor(corners), _GAP + -(-n_atoms // n_columns) * step


def map_corners(points: NDArray[np.float64], size: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return points (n, 2), scaled isotropically and centred in an area with a margin."""
    low, extent = points.min(axis=0), np.ptp(points, axis=0)
    room = size - 2 * _MAP_MARGIN
    scale = max(0.0, float((room / np.maximum(extent, 1e-12)).min()))
    return np.asarray(_MAP_MARGIN + (room - scale * extent) / 2 + scale * (points - low)).round()


def short_count(count: int) -> str:
    """Return a count in at most five characters: 940, 9.4k, 94k, 1.2M."""
    for size, unit in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            number = count / size
            return f"{number:.1f}{unit}" if number < 9.95 else f"{number:.0f}{unit}"
    return str(count)


def _to_rgb(atoms: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return atoms as RGB: three channels unchanged, others averaged."""
    scaled = np.clip(atoms, 0, 1)
    if scaled.shape[-1] != 3:
        scaled = np.repeat(scaled.mean(axis=-1, keepdims=True), 3, axis=-1)
    return np.asarray(np.round(255 * scaled), dtype=np.uint8)


class AtomsSection(QWidget):
    """The current dictionary with its atoms sorted by use, and its buttons.

    `edited` is emitted with the dictionary after atoms were dropped or restored.
    """

    edited = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.current: ColoredDictionary | None = None
        self._past: deque[ColoredDictionary] = deque(maxlen=_MAX_UNDO)
        self._is_enabled = True
        self._heading, self.view = QLabel(wordWrap=True), AtomView()
        help = "All atoms, the most used first, with the pixels they label."
        gallery = create_button("Gallery", help)
        self.show_map = create_button("Map", "A map with similar atoms close to each other.")
        for button in (gallery, self.show_map):
            button.setCheckable(True)
            button.setAutoExclusive(True)
        gallery.setChecked(True)
        self.show_map.toggled.connect(self.view.show_map)
        self.zoom = QSlider(Qt.Orientation.Horizontal, toolTip="Size of the atoms on screen.")
        self.zoom.setRange(_MIN_ZOOM, _MAX_ZOOM)
        self.zoom.setValue(_ZOOM)
        self.zoom.valueChanged.connect(self.view.set_zoom)
        slots = {"Drop": self._on_drop_clicked, "Undo": lambda: self._edit(self._past.pop())}
        buttons = [create_button(name, help, slots.get(name)) for name, help in _BUTTONS.items()]
        self.drop, self.undo, self.load, self.save = buttons
        self.view.selection_changed.connect(self._update_enabled)
        views = create_row(gallery, self.show_map, self.zoom)
        fill_layout(QVBoxLayout(self), self._heading, views, self.view, create_row(*buttons))
        self.show_dictionary(None)

    def begin(self, new: ColoredDictionary) -> None:
        """Show a new dictionary, with an empty history of edits."""
        self._past.clear()
        self.show_dictionary(new)

    def show_dictionary(self, shown: ColoredDictionary | None) -> None:
        self.current = shown
        self._heading.setText(_NO_ATOMS if shown is None else shown.description)
        self.view.show_dictionary(shown, is_learning=False)
        self._update_enabled()

    def show_live(self, shown: ColoredDictionary) -> None:
        """Show atoms during learning, without replacing the current dictionary."""
        self._heading.setText(f"{len(shown.atom_ids)} atoms so far")
        self.view.show_dictionary(shown, is_learning=True)

    def set_enabled(self, enabled: bool) -> None:
        self._is_enabled = enabled
        self._update_enabled()

    def _on_drop_clicked(self) -> None:
        assert self.current is not None
        self._past.append(self.current)
        self._edit(self.current.without(self.view.selected))

    def _edit(self, edited: ColoredDictionary) -> None:
        self.view.select(())
        self.show_dictionary(edited)
        self.edited.emit(edited)

    def _update_enabled(self) -> None:
        n_atoms = 0 if self.current is None else len(self.current.atom_ids)
        # At least one atom must remain.
        self.drop.setEnabled(self._is_enabled and 0 < len(self.view.selected) < n_atoms)
        self.undo.setEnabled(self._is_enabled and bool(self._past))
        self.save.setEnabled(self._is_enabled and n_atoms > 0)
        self.load.setEnabled(self._is_enabled)
