"""How a run goes: a bar, a line, a suggested action."""

from __future__ import annotations

import re

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QLabel,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

_STEPS = 1000
_ERROR_STYLE = "color: #e5534b;"
_LONG_WORD = re.compile(r"\S{25,}")
_BREAK = "\N{ZERO WIDTH SPACE}"


class StatusArea(QWidget):
    """A progress bar over a line of text over a button, where an action is suggested.

    Attributes
    ----------
    action_button : QPushButton
        Hidden where no action is suggested.
    """

    suggested_action_clicked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bar, self._line, self.action_button = QProgressBar(), QLabel(), QPushButton()
        self._bar.setTextVisible(False)
        self._bar.setRange(0, _STEPS)
        self._bar.setMaximumHeight(10)
        self._line.setWordWrap(True)
        self._line.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.action_button.setToolTip("Do this, and then what was asked for.")
        self.action_button.clicked.connect(self.suggested_action_clicked)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        for widget in (self._bar, self._line, self.action_button):
            layout.addWidget(widget)
        self.reset()

    @property
    def text(self) -> str:
        """The line of text."""
        return str(self._line.text()).replace(_BREAK, "")

    @property
    def is_error(self) -> bool:
        """Whether the line is an error."""
        return bool(self._line.styleSheet())

    @property
    def suggested_action(self) -> str:
        """The text of the button; empty where there is none."""
        return "" if self.action_button.isHidden() else str(self.action_button.text())

    def reset(self, text: str = "") -> None:
        """Show an empty bar and a line; also while work has no known end.

        A bar that moves has the canvas drawn with it, and where a processor draws, all cores are
        busy with that.
        """
        self._show(0, text)

    def show_progress(self, fraction: float, text: str, suggested_action: str = "") -> None:
        """Show the fraction done and an optional action."""
        self._show(fraction, text, suggested_action)

    def show_error(self, text: str, suggested_action: str = "") -> None:
        """Show an error and an optional action."""
        self._show(0, text, suggested_action, _ERROR_STYLE)

    def set_text(self, text: str) -> None:
        """Change the text, not the bar."""
        self._line.setText(_breakable(text))

    def _show(
        self, fraction: float, text: str, suggested_action: str = "", style: str = ""
    ) -> None:
        # A bar paints itself at once, and has the canvas painted with it: 35 ms on a slow screen.
        self._bar.setUpdatesEnabled(False)
        self._bar.setValue(round(fraction * _STEPS))
        self._bar.setUpdatesEnabled(True)
        if style != self._line.styleSheet():
            self._line.setStyleSheet(style)
        self.set_text(text)
        self.action_button.setText(suggested_action)
        self.action_button.setVisible(bool(suggested_action))


def _breakable(text: str) -> str:
    """Return a text whose long words, such as file names, can wrap."""
    return _LONG_WORD.sub(lambda match: _BREAK.join(match[0]), text)
