"""Status area of runs, swatches of labels, and file dialogs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QAction,
    QApplication,
    QFileDialog,
    QLabel,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)
from superqt import QFlowLayout

from napari_saf._gui.forms.layout import fill_layout
from napari_saf.features import FeatureExtractor, extractor_of

PROTOTYPE_FILTER = "Prototypes (*.json)"
_STEPS = 1000
_ERROR_STYLE = "color: #e5534b;"
_LONG_WORD = re.compile(r"\S{25,}")
_BREAK = "\N{ZERO WIDTH SPACE}"
_JOINT, _LONG_PART = re.compile(r"[-_./\\]"), re.compile(rf"[^\s{_BREAK}]{{25,}}")
"""Long words break after these characters; long parts without them break anywhere."""
_SQUARE_SIDE = 24


def json_path(path: str, suffix: str = ".json") -> Path:
    """Return a path with the suffix, appended if missing."""
    target, is_json = Path(path), path.lower().endswith(".json")
    return target if is_json else target.with_name(f"{target.name}{suffix}")


def ask_for_path(
    parent: QWidget,
    title: str,
    start: str,
    kinds: str,
    then: Callable[[str], object],
    *,
    opens: bool = False,
) -> None:
    """Ask for a file to save or open; call `then` with its path unless cancelled."""
    ask = QFileDialog.getOpenFileName if opens else QFileDialog.getSaveFileName
    path, _ = ask(parent, title, start, kinds)
    if path:
        then(path)


class StatusArea(QWidget):
    """A progress bar, a text with faults in red below, and a button for a suggested action."""

    changed = Signal()
    suggested_action_clicked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._bar = QProgressBar(textVisible=False, maximum=_STEPS, maximumHeight=10)
        help = "Apply this change, then repeat the action."
        self._line, self.action_button = QLabel(wordWrap=True), QPushButton(toolTip=help)
        self._fault = QLabel(wordWrap=True, styleSheet=_ERROR_STYLE)
        copy = QAction("Copy", self)
        copy.triggered.connect(lambda: QApplication.clipboard().setText(self.text))
        for line in (self._line, self._fault):
            line.addAction(copy)
            line.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
            line.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.action_button.clicked.connect(self.suggested_action_clicked)
        fill_layout(QVBoxLayout(self), self._bar, self._line, self._fault, self.action_button)
        self.reset()

    @property
    def text(self) -> str:
        lines = filter(None, [self._line.text(), self._fault.text()])
        return "\n".join(lines).replace(_BREAK, "")

    @property
    def is_error(self) -> bool:
        return bool(self._fault.text())

    @property
    def suggested_action(self) -> str:
        """The text of the button; empty without one."""
        return "" if self.action_button.isHidden() else str(self.action_button.text())

    def reset(self, text: str = "") -> None:
        """Show an empty bar and a text, also for work of unknown length.

        A busy indicator would redraw the canvas continually, which takes all cores if rendering is
        by software.
        """
        self.show_progress(0, text)

    def show_error(self, text: str, suggested_action: str = "") -> None:
        self.show_progress(0, "", suggested_action, text)

    def show_progress(
        self, fraction: float, text: str, suggested_action: str = "", fault: str = ""
    ) -> None:
        # A bar repaints immediately, and the canvas with it, which takes 35 ms on a slow display.
        self._bar.setUpdatesEnabled(False)
        self._bar.setValue(round(fraction * _STEPS))
        self._bar.setUpdatesEnabled(True)
        self.action_button.setText(suggested_action)
        self.action_button.setVisible(bool(suggested_action))
        self.set_text(text, fault)

    def set_text(self, text: str, fault: str = "") -> None:
        """Change only the texts."""
        for line, words in ((self._line, text), (self._fault, fault)):
            line.setText(_breakable(words))
        self._line.setVisible(bool(text) or not fault)
        self._fault.setVisible(bool(fault))
        self.changed.emit()

    def mirror(self, source: StatusArea) -> None:
        """Copy the status of another area, without actions."""

        def copy() -> None:
            fault = source._fault.text().replace(_BREAK, "")
            text = source._line.text().replace(_BREAK, "")
            self.show_progress(source._bar.value() / _STEPS, text, fault=fault)

        source.changed.connect(copy)


def _breakable(text: str) -> str:
    """Let long words, such as file names, wrap between their parts."""
    text = _LONG_WORD.sub(lambda match: _JOINT.sub(rf"\g<0>{_BREAK}", match[0]), text)
    return _LONG_PART.sub(lambda match: _BREAK.join(match[0]), text)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Swatch:
    """A square for a label: colours (r, g, b, ...) in [0, 1]; crossed out if it has no pixels."""

    fill: NDArray[Any]
    border: NDArray[Any]
    tooltip: str
    is_crossed: bool = False


class Swatches(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._layout = QFlowLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self.squares: list[QLabel] = []

    def show_swatches(self, swatches: Sequence[Swatch]) -> None:
        while len(self.squares) < len(swatches):
            square = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
            square.setFixedSize(_SQUARE_SIDE, _SQUARE_SIDE)
            self._layout.addWidget(square)
            self.squares.append(square)
        for square in self.squares[len(swatches) :]:
            square.hide()
        for square, swatch in zip(self.squares, swatches, strict=False):
            square.setToolTip(swatch.tooltip)
            square.setText("✕" if swatch.is_crossed else "")
            ink = "black" if float(np.mean(swatch.fill[:3])) > 0.5 else "white"
            style = (
                f"background-color: {_css(swatch.fill)}; border: 3px solid {_css(swatch.border)};"
                f"border-radius: 5px; color: {ink};"
            )
            if style != square.styleSheet():
                square.setStyleSheet(style)
            square.show()


def fill_colors(
    prototypes: NDArray[np.floating], features: str | FeatureExtractor, otherwise: NDArray[Any]
) -> list[NDArray[Any]]:
    """Return the colours of all prototypes (n, n_features); `otherwise` (n, 3) without colours."""
    fills, known = list(otherwise), np.flatnonzero(np.isfinite(prototypes).all(axis=-1))
    extractor = extractor_of(features) if len(known) else None
    colours = None if extractor is None else extractor.colours(prototypes[known])
    for k, colour in () if colours is None else zip(known.tolist(), colours, strict=True):
        fills[k] = colour
    return fills


def _css(color: NDArray[Any]) -> str:
    red, green, blue = (round(255 * float(x)) for x in np.clip(color[:3], 0, 1))
    return f"rgb({red}, {green}, {blue})"
