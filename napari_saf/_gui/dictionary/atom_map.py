"""A map of atoms: those that are alike lie near each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QRect
from qtpy.QtWidgets import QWidget

from napari_saf._gui.dictionary.atoms import AtomView

__all__ = ["AtomMap"]

_MARGIN = 8


class AtomMap(AtomView):
    """Atoms at places in the plane; the points are the atoms themselves."""

    def __init__(self, hint: str, parent: QWidget | None = None) -> None:
        super().__init__(hint, parent)
        self._embedding: dict[int, NDArray[np.float64]] = {}

    def set_embedding(self, identities: tuple[int, ...], places: NDArray[np.float64]) -> None:
        """Say where the atoms lie, (n_atoms, 2)."""
        self._embedding = dict(zip(identities, places, strict=True))
        self._arrange()

    def _find_places(self) -> list[QRect]:
        """Fill the widget, as far as both axes have one scale."""
        missing = np.zeros(2)
        places = np.array([self._embedding.get(tile.identity, missing) for tile in self._tiles])
        low, extent = places.min(axis=0), np.ptp(places, axis=0)
        side = self._zoom
        room = np.array([self.width(), self.height()], float) - side - 2 * _MARGIN
        scales = room[extent > 0] / extent[extent > 0]
        scale = max(0.0, float(scales.min())) if len(scales) else 0.0
        corner = _MARGIN + (room - scale * extent) / 2
        corners = np.round(corner + scale * (places - low)).astype(int)
        return [QRect(int(x), int(y), side, side) for x, y in corners]

    def _order(self) -> list[int]:
        """Paint the atoms that are chosen last, and before them those that are used most."""
        return sorted(
            range(len(self._tiles)),
            key=lambda k: (self._tiles[k].identity in self._chosen, self._tiles[k].count),
        )
