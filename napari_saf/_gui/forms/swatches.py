"""A coloured square per label: what it stands for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel, QWidget
from skimage.color import lab2rgb
from superqt import QFlowLayout

_SIDE = 24


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Swatch:
    """A square on screen: colours (r, g, b, ...) in [0, 1] and its tooltip.

    One that is crossed stands for a label that is not there.
    """

    fill: NDArray[Any]
    border: NDArray[Any]
    tooltip: str
    is_crossed: bool = False


class Swatches(QWidget):
    """Squares side by side, wrapped into lines."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._layout = QFlowLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._squares: list[QLabel] = []

    def show_swatches(self, swatches: Sequence[Swatch]) -> None:
        """Show squares in the order given."""
        while len(self._squares) < len(swatches):
            square = QLabel()
            square.setFixedSize(_SIDE, _SIDE)
            square.setAlignment(Qt.AlignmentFlag.AlignCenter)
            self._layout.addWidget(square)
            self._squares.append(square)
        for square in self._squares[len(swatches) :]:
            square.hide()
        for square, swatch in zip(self._squares, swatches, strict=False):
            square.setToolTip(swatch.tooltip)
            square.setText("✕" if swatch.is_crossed else "")
            style = (
                f"background-color: {_css(swatch.fill)}; border: 3px solid {_css(swatch.border)};"
                f"border-radius: 5px; color: {_ink(swatch.fill)};"
            )
            if style != square.styleSheet():
                square.setStyleSheet(style)
            square.show()

    def tooltips(self) -> list[str]:
        """Return the tooltips of the visible squares."""
        return [str(square.toolTip()) for square in self._squares if not square.isHidden()]


def fill_color(
    prototype: NDArray[np.floating], features: str, otherwise: NDArray[Any]
) -> NDArray[Any]:
    """Return the colour of a prototype; `otherwise` for features that are no colours."""
    if not np.isfinite(prototype).all():
        return otherwise
    if features == "intensity" and len(prototype) in (1, 3):
        return np.broadcast_to(prototype, 3)
    if features == "lab":
        return np.asarray(lab2rgb(100 * prototype.astype(float)[None])[0])
    return otherwise


def _ink(fill: NDArray[Any]) -> str:
    """Return a text colour with contrast to the fill."""
    return "black" if float(np.mean(fill[:3])) > 0.5 else "white"


def _css(color: NDArray[Any]) -> str:
    red, green, blue = (round(255 * float(x)) for x in np.clip(color[:3], 0, 1))
    return f"rgb({red}, {green}, {blue})"
