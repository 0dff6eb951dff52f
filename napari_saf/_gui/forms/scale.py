"""The scale: an odd number of pixels, as a slider and a box."""

from __future__ import annotations

from collections.abc import Sequence

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QHBoxLayout, QSlider, QSpinBox, QWidget
from superqt.utils import signals_blocked

_SLIDER_END = 41
_BOX_END = 999
_BOX_WIDTH = 106


class OddSlider(QWidget):
    """A slider for the usual odd numbers with a box for all of them.

    Parameters
    ----------
    value : int
        The odd number to begin with.
    """

    value_changed = Signal(int)

    def __init__(self, value: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setRange(0, _SLIDER_END // 2)
        self._box = QSpinBox()
        self._box.setRange(1, _BOX_END)
        self._box.setSingleStep(2)
        self._box.setSuffix(" px")
        self._box.setKeyboardTracking(False)
        self._box.setFixedWidth(_BOX_WIDTH)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._slider, stretch=1)
        layout.addWidget(self._box)
        self._box.setValue(value)
        self._slider.setValue(value // 2)
        self._slider.valueChanged.connect(self._on_slider_moved)
        self._box.valueChanged.connect(self._on_box_changed)

    @property
    def value(self) -> int:
        """The odd number."""
        return int(self._box.value())

    def set_value(self, value: int) -> None:
        """Set the number; an even one becomes the odd one above."""
        self._box.setValue(value)

    def _on_slider_moved(self, half: int) -> None:
        if self._box.value() // 2 != half:
            self._box.setValue(2 * half + 1)

    def _on_box_changed(self, value: int) -> None:
        if value % 2 == 0:
            self._box.setValue(value + 1)
            return
        with signals_blocked(self._slider):
            self._slider.setValue(value // 2)
        self.value_changed.emit(value)


def side_of(window: int | tuple[int, ...]) -> int | None:
    """Return the side of a window, on all axes on which it is not 1; None where they differ."""
    if isinstance(window, int):
        return window
    sides = set(window) - {1}
    return sides.pop() if len(sides) == 1 else None


def with_side(window: int | tuple[int, ...], side: int) -> int | tuple[int, ...]:
    """Return a window of another side; slices that are labelled by themselves stay so."""
    return side if isinstance(window, int) else tuple(1 if one == 1 else side for one in window)


def fit(width: int, length: int) -> int:
    """Return the width of a window, or the largest odd one along so many pixels."""
    return width if length == 1 else min(width, length - 1 + length % 2)


def fit_window(window: int | tuple[int, ...], shape: Sequence[int]) -> int | tuple[int, ...]:
    """Return a window that is along no axis larger than an image of some shape."""
    widths = (window,) * len(shape) if isinstance(window, int) else window
    if len(widths) != len(shape):
        return window
    found = tuple(fit(width, length) for width, length in zip(widths, shape, strict=True))
    return window if found == widths else found


def fit_note(widths: Sequence[int], found: Sequence[int], axes: Sequence[str]) -> str:
    """Return along which axes a window is smaller than wanted, and how wide; empty if nowhere."""
    less = [
        f"axis {name}: {side} px"
        for name, width, side in zip(axes, widths, found, strict=True)
        if side < width
    ]
    return f"scale along {', '.join(less)}, the most that fits" if less else ""
