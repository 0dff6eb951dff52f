"""The atoms of the dictionary on screen: gallery, map, zoom, drop, undo."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QButtonGroup,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSlider,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.dictionary.atom_map import AtomMap
from napari_saf._gui.dictionary.atoms import AtomGallery, AtomView, Tile
from napari_saf._gui.dictionary.edition import Edition, describe_dictionary

__all__ = ["AtomsSection"]

_LEAST_HEIGHT, _MAP_HEIGHT, _MOST_HEIGHT = 72, 240, 276
_ZOOM = (16, 120, 36)
_NO_DICTIONARY = "no dictionary yet: tick images above and press Learn, or load one"
_HELP = (
    "A click shows where an atom is used; with Ctrl or Shift several are chosen. "
    "Wait over an atom to see its turns."
)


class AtomsSection(QWidget):
    """The atoms of a dictionary, sorted by use, as a gallery or as a map.

    `chosen_changed` sends the identities of the atoms that a click chose; `edited` the edition
    after atoms were dropped, or brought back.

    Attributes
    ----------
    gallery : AtomGallery
    map : AtomMap
    """

    chosen_changed = Signal(object)
    edited = Signal(object)
    save_clicked = Signal()
    load_clicked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._edition: Edition | None = None
        self._earlier: list[Edition] = []
        self.gallery = AtomGallery(_NO_DICTIONARY)
        self.map = AtomMap("the map of the atoms comes with a dictionary")
        self._views: tuple[AtomView, ...] = (self.gallery, self.map)
        self._create_controls()
        self._create_layout()
        self._connect()
        self.show_edition(None)
        self._fit_height()

    @property
    def edition(self) -> Edition | None:
        """The dictionary on screen."""
        return self._edition

    @property
    def words(self) -> str:
        """The line above the atoms."""
        return str(self._words.text())

    def begin(self, edition: Edition) -> None:
        """Show a new dictionary; what was dropped from the one before is forgotten."""
        self._earlier.clear()
        self.show_edition(edition)

    def show_edition(self, edition: Edition | None) -> None:
        """Show a dictionary, or none."""
        self._edition = edition
        tiles = [] if edition is None else _tiles_of(edition)
        self._words.setText("Atoms" if edition is None else describe_dictionary(edition.dictionary))
        self._show(tiles, is_locked=False)

    def show_live(
        self, atoms: NDArray[np.float32], counts: NDArray[np.int64], colors: NDArray[np.float32]
    ) -> None:
        """Show atoms that are being learned, largest first."""
        total = max(1, int(counts.sum()))
        order = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] > 0]
        tiles = [
            Tile(k, atoms[k], int(counts[k]), counts[k] / total, colors[k])
            for k in order
            if np.isfinite(atoms[k]).all()
        ]
        self._words.setText(f"{len(tiles)} atoms so far")
        self._show(tiles, is_locked=True)

    def choose(self, identities: Sequence[int]) -> None:
        """Choose atoms."""
        for view in self._views:
            view.set_chosen(identities)
        self._update_enabled()
        self.chosen_changed.emit(frozenset(identities))

    def drop_chosen(self) -> None:
        """Leave the chosen atoms out, unless none would be left."""
        if self._edition is None or not self._may_drop():
            return
        self._earlier.append(self._edition)
        self._edit(self._edition.without(tuple(self.gallery.chosen)))

    def undo(self) -> None:
        """Bring back what was dropped last."""
        if self._earlier:
            self._edit(self._earlier.pop())

    def set_enabled(self, enabled: bool) -> None:
        """Allow to change the dictionary, or do not."""
        self._is_enabled = enabled
        self._update_enabled()

    def _edit(self, edition: Edition) -> None:
        self.choose(())
        self.show_edition(edition)
        self.edited.emit(edition)

    def _show(self, tiles: list[Tile], is_locked: bool) -> None:
        known = {tile.identity for tile in tiles}
        for view in self._views:
            view.is_locked = is_locked
            view.show_tiles(() if is_locked and view is self.map else tiles)
            view.set_chosen(() if is_locked else view.chosen & known)
        self._update_enabled()

    def _fit_height(self) -> None:
        """Take no more room than the atoms need; more of them are scrolled."""
        frames = self._stack.frameWidth() + self._scroll.frameWidth()
        wanted = self.gallery.minimumHeight() + 2 * frames
        if self._stack.currentIndex() == 1 and self.map.tiles:
            wanted = _MAP_HEIGHT
        self._stack.setFixedHeight(min(max(wanted, _LEAST_HEIGHT), _MOST_HEIGHT))

    def _create_controls(self) -> None:
        self._is_enabled = True
        self._words = QLabel()
        self._as_gallery, self._as_map = QPushButton("Gallery"), QPushButton("Map")
        self._as_gallery.setToolTip("All atoms, the most used first, with the pixels they label.")
        self._as_map.setToolTip("Atoms that are alike lie near each other.")
        self._forms = QButtonGroup(self)
        for number, button in enumerate((self._as_gallery, self._as_map)):
            button.setCheckable(True)
            self._forms.addButton(button, number)
        self._as_gallery.setChecked(True)
        self._zoom = QSlider(Qt.Orientation.Horizontal)
        self._zoom.setRange(*_ZOOM[:2])
        self._zoom.setValue(_ZOOM[2])
        self._zoom.setToolTip("Size of the atoms on screen.")
        self._drop, self._undo = QPushButton("Drop"), QPushButton("Undo")
        self._drop.setToolTip("Leave the chosen atoms out of the dictionary.")
        self._undo.setToolTip("Bring back the atoms that were dropped last.")
        self._load, self._save = QPushButton("Load …"), QPushButton("Save …")
        self._load.setToolTip(
            "Open a dictionary (.safetensors); dropping it on the viewer does too."
        )
        self._save.setToolTip("Keep this dictionary as a file, to apply it to other images.")

    def _create_layout(self) -> None:
        scroll = self._scroll = QScrollArea()
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(self.gallery)
        self._stack = QStackedWidget()
        self._stack.addWidget(scroll)
        self._stack.addWidget(self.map)
        self._stack.setToolTip(_HELP)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._words)
        for row in (
            (self._as_gallery, self._as_map, self._zoom),
            (self._drop, self._undo, self._load, self._save),
        ):
            line = QHBoxLayout()
            for widget in row:
                line.addWidget(widget, stretch=1)
            layout.addLayout(line)
        layout.insertWidget(2, self._stack)

    def _connect(self) -> None:
        self._forms.idClicked.connect(self._stack.setCurrentIndex)
        self._forms.idClicked.connect(self._fit_height)
        self.gallery.height_changed.connect(self._fit_height)
        self._drop.clicked.connect(self.drop_chosen)
        self._undo.clicked.connect(self.undo)
        self._save.clicked.connect(self.save_clicked)
        self._load.clicked.connect(self.load_clicked)
        for view in self._views:
            self._zoom.valueChanged.connect(view.set_zoom)
            view.chosen_changed.connect(self.choose)

    def _may_drop(self) -> bool:
        n_chosen = len(self.gallery.chosen)
        return self._edition is not None and 0 < n_chosen < len(self._edition.identities)

    def _update_enabled(self) -> None:
        is_open = self._is_enabled and not self.gallery.is_locked
        self._drop.setEnabled(is_open and self._may_drop())
        self._undo.setEnabled(is_open and bool(self._earlier))
        self._save.setEnabled(is_open and self._edition is not None)
        self._load.setEnabled(is_open)


def _tiles_of(edition: Edition) -> list[Tile]:
    dictionary = edition.dictionary
    total = max(1, int(dictionary.usage.sum()))
    return [
        Tile(identity, atom, int(count), count / total, color)
        for identity, atom, count, color in zip(
            edition.identities, dictionary.atoms, dictionary.usage, edition.colors, strict=True
        )
    ]
