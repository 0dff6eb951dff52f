"""The atoms of the dictionary on screen: gallery, map, zoom, drop, undo."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QButtonGroup,
    QFrame,
    QLabel,
    QPushButton,
    QScrollArea,
    QSlider,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.dictionary.atoms import AtomGallery, AtomMap, AtomTile
from napari_saf._gui.docks.undo import UndoHistory
from napari_saf._gui.forms.layout import create_row
from napari_saf._gui.layers.live import N_COLORS, label_colors
from napari_saf.dictionary import PatchDictionary

_LEAST_HEIGHT, _MAP_HEIGHT, _MOST_HEIGHT = 72, 240, 276
_LEAST_ZOOM, _MOST_ZOOM, _ZOOM = 16, 120, 36
_HELP = (
    "A click shows where an atom is used; with Ctrl or Shift several are chosen. "
    "Wait over an atom to see its turns."
)
_ids = itertools.count()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ColoredDictionary:
    """A dictionary on screen: its atoms keep ids and colours when others are dropped."""

    dictionary: PatchDictionary
    atom_ids: tuple[int, ...]
    colors: NDArray[np.float32]

    @classmethod
    def of(
        cls, dictionary: PatchDictionary, colors: NDArray[np.float32] | None = None
    ) -> ColoredDictionary:
        """Give new ids to all atoms, and the colours of labels unless others are given."""
        n_atoms = dictionary.n_atoms
        if colors is None:
            colors = label_colors()[np.arange(n_atoms) % N_COLORS + 1]
        atom_ids = tuple(itertools.islice(_ids, n_atoms))
        return cls(dictionary, atom_ids, np.asarray(colors, np.float32))

    def without(self, atom_ids: Collection[int]) -> ColoredDictionary:
        """Leave some atoms out, but not all."""
        left = [k for k, own in enumerate(self.atom_ids) if own not in atom_ids]
        dropped = sorted({*range(len(self.atom_ids))} - {*left})
        left_ids = tuple(self.atom_ids[k] for k in left)
        return ColoredDictionary(self.dictionary.without(dropped), left_ids, self.colors[left])

    @property
    def title(self) -> str:
        """A one-line description of the dictionary."""
        text = f"{self.dictionary.n_atoms} atoms, {self.dictionary.patch_size} px"
        names = ", ".join(self.dictionary.images)
        return f"{text}: {names}" if names else text

    def tiles(self) -> list[AtomTile]:
        """Return the atoms as they are shown."""
        usage = self.dictionary.usage
        total = max(1, int(usage.sum()))
        return [
            AtomTile(atom_id, atom, int(count), count / total, color)
            for atom_id, atom, count, color in zip(
                self.atom_ids, self.dictionary.atoms, usage, self.colors, strict=True
            )
        ]


def describe_dictionary(dictionary: PatchDictionary) -> str:
    """Return the number and the size of the atoms as text."""
    n_atoms, side = dictionary.n_atoms, dictionary.patch_size
    kind = {1: "grey", 3: "RGB"}.get(dictionary.n_channels, f"{dictionary.n_channels} channels")
    return f"{n_atoms} atom{'s' * (n_atoms != 1)} of {side} × {side} px, {kind}"


class AtomsSection(QWidget):
    """The atoms of a dictionary, sorted by use, as a gallery or as a map.

    `chosen_changed` sends the ids of the atoms that a click chose; `edited` the dictionary after
    atoms were dropped, or brought back.
    """

    chosen_changed = Signal(object)
    edited = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._current: ColoredDictionary | None = None
        self._history: UndoHistory[ColoredDictionary] = UndoHistory()
        self._is_enabled = True
        self.gallery = AtomGallery(
            "no dictionary yet: tick images above and press Learn, or load one"
        )
        self.map = AtomMap("the map of the atoms comes with a dictionary")
        self._create_controls()
        self._create_layout()
        self.show_dictionary(None)
        self._fit_height()

    def _create_controls(self) -> None:
        self._heading = QLabel()
        self.show_gallery, self.show_map = QPushButton("Gallery"), QPushButton("Map")
        self.show_gallery.setToolTip("All atoms, the most used first, with the pixels they label.")
        self.show_map.setToolTip("Atoms that are alike lie near each other.")
        group = QButtonGroup(self)
        for number, button in enumerate((self.show_gallery, self.show_map)):
            button.setCheckable(True)
            group.addButton(button, number)
        self.show_gallery.setChecked(True)
        self.zoom = QSlider(Qt.Orientation.Horizontal)
        self.zoom.setRange(_LEAST_ZOOM, _MOST_ZOOM)
        self.zoom.setValue(_ZOOM)
        self.zoom.setToolTip("Size of the atoms on screen.")
        self.drop, self.undo = QPushButton("Drop"), QPushButton("Undo")
        self.drop.setToolTip("Leave the chosen atoms out of the dictionary.")
        self.undo.setToolTip("Bring back the atoms that were dropped last.")
        self.load, self.save = QPushButton("Load …"), QPushButton("Save …")
        self.load.setToolTip(
            "Open a dictionary (.safetensors); dropping it on the viewer does too."
        )
        self.save.setToolTip("Keep this dictionary as a file, to apply it to other images.")
        self.drop.clicked.connect(self.drop_chosen)
        self.undo.clicked.connect(self.undo_drop)
        group.idClicked.connect(self._on_view_chosen)
        self.gallery.height_changed.connect(self._fit_height)
        for view in (self.gallery, self.map):
            self.zoom.valueChanged.connect(view.set_zoom)
            view.chosen_changed.connect(self.choose)

    def _create_layout(self) -> None:
        self._scroll = QScrollArea()
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setWidgetResizable(True)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setWidget(self.gallery)
        self._stack = QStackedWidget()
        self._stack.addWidget(self._scroll)
        self._stack.addWidget(self.map)
        self._stack.setToolTip(_HELP)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._heading)
        layout.addWidget(create_row(self.show_gallery, self.show_map, self.zoom))
        layout.addWidget(self._stack)
        layout.addWidget(create_row(self.drop, self.undo, self.load, self.save))

    @property
    def current(self) -> ColoredDictionary | None:
        """The dictionary on screen."""
        return self._current

    def begin(self, new: ColoredDictionary) -> None:
        """Show a new dictionary; what was dropped from the one before is forgotten."""
        self._history.clear()
        self.show_dictionary(new)

    def show_dictionary(self, shown: ColoredDictionary | None) -> None:
        self._current = shown
        self._heading.setText("Atoms" if shown is None else describe_dictionary(shown.dictionary))
        self._show([] if shown is None else shown.tiles(), is_locked=False)

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
        self._show(tiles, is_locked=True)

    def _show(self, tiles: list[AtomTile], is_locked: bool) -> None:
        known = {tile.atom_id for tile in tiles}
        for view in (self.gallery, self.map):
            view.is_locked = is_locked
            view.show_tiles(() if is_locked and view is self.map else tiles)
            view.set_chosen(() if is_locked else view.chosen & known)
        self._update_enabled()

    def choose(self, atom_ids: Collection[int]) -> None:
        for view in (self.gallery, self.map):
            view.set_chosen(atom_ids)
        self._update_enabled()
        self.chosen_changed.emit(frozenset(atom_ids))

    def drop_chosen(self) -> None:
        """Leave the chosen atoms out, unless none would be left."""
        if self._current is not None and self._may_drop():
            self._history.push(self._current)
            self._edit(self._current.without(self.gallery.chosen))

    def undo_drop(self) -> None:
        """Bring back what was dropped last."""
        if self._current is not None and self._history.past:
            before = self._history.past[-1]
            self._history.exchange(before, self._current, is_undo=True)
            self._edit(before)

    def _edit(self, edited: ColoredDictionary) -> None:
        self.choose(())
        self.show_dictionary(edited)
        self.edited.emit(edited)

    def set_enabled(self, enabled: bool) -> None:
        """Allow to change the dictionary, or do not."""
        self._is_enabled = enabled
        self._update_enabled()

    def _may_drop(self) -> bool:
        n_chosen = len(self.gallery.chosen)
        return self._current is not None and 0 < n_chosen < len(self._current.atom_ids)

    def _update_enabled(self) -> None:
        is_open = self._is_enabled and not self.gallery.is_locked
        self.drop.setEnabled(is_open and self._may_drop())
        self.undo.setEnabled(is_open and bool(self._history.past))
        self.save.setEnabled(is_open and self._current is not None)
        self.load.setEnabled(is_open)

    def _on_view_chosen(self, number: int) -> None:
        self._stack.setCurrentIndex(number)
        self._fit_height()

    def _fit_height(self) -> None:
        """Take no more room than the atoms need; more of them are scrolled."""
        frames = self._stack.frameWidth() + self._scroll.frameWidth()
        wanted = self.gallery.minimumHeight() + 2 * frames
        if self._stack.currentIndex() == 1 and self.map.tiles:
            wanted = _MAP_HEIGHT
        self._stack.setFixedHeight(min(max(wanted, _LEAST_HEIGHT), _MOST_HEIGHT))
