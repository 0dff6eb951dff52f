"""How a run goes: a bar, a line, a way on."""

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

__all__ = ["StatusArea"]

_STEPS = 1000
_ERROR_STYLE = "color: #e5534b;"
_LONG_WORD = re.compile(r"\S{25,}")
_BREAK = "\N{ZERO WIDTH SPACE}"


class StatusArea(QWidget):
    """A progress bar over a line of text over an optional button.

    Parameters
    ----------
    is_quiet : bool
        Whether the bar is out of sight as long as no share of the work is known to be done.
    """

    suggested_action_clicked = Signal()

    def __init__(self, parent: QWidget | None = None, *, is_quiet: bool = False) -> None:
        super().__init__(parent)
        self._is_quiet = is_quiet
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setRange(0, _STEPS)
        self._bar.setMaximumHeight(10)
        self._line = QLabel()
        self._line.setWordWrap(True)
        self._line.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self._suggested_action = QPushButton()
        self._suggested_action.setToolTip("Do this, and then what was asked for.")
        self._suggested_action.clicked.connect(self.suggested_action_clicked)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        for widget in (self._bar, self._line, self._suggested_action):
            layout.addWidget(widget)
        self.reset()

    @property
    def text(self) -> str:
        """The line of text."""
        return str(self._line.text()).replace(_BREAK, "")

    @property
    def is_error(self) -> bool:
        """Whether the line tells an error."""
        return bool(self._line.styleSheet())

    @property
    def suggested_action(self) -> str:
        """The words on the button; empty where there is none."""
        return "" if self._suggested_action.isHidden() else str(self._suggested_action.text())

    def reset(self, text: str = "") -> None:
        """Show an empty bar and a line.

        So it is where work has no known end, too: a bar that moves has the canvas drawn with it,
        and where a processor draws, all cores are busy with that.
        """
        self._set_bar(0)
        self._say(text)

    def show_progress(self, fraction: float, text: str, suggested_action: str = "") -> None:
        """Show how much is done and, where there is one, a button that leads on."""
        self._set_bar(round(fraction * _STEPS))
        self._say(text, suggested_action=suggested_action)

    def show_error(self, text: str, suggested_action: str = "") -> None:
        """Show an error and, where there is one, a button that leads on."""
        self._set_bar(0)
        self._say(text, _ERROR_STYLE, suggested_action)

    def set_text(self, text: str) -> None:
        """Change the line alone."""
        self._line.setText(_breakable(text))

    def _set_bar(self, value: int) -> None:
        """Change the bar, painted in a later turn of the event loop.

        A bar paints itself at once, and has the canvas painted with it: 35 ms on a slow screen.
        """
        self._bar.setUpdatesEnabled(False)
        self._bar.setValue(value)
        self._bar.setUpdatesEnabled(True)

    def _say(self, text: str, style: str = "", suggested_action: str = "") -> None:
        if style != self._line.styleSheet():
            self._line.setStyleSheet(style)
        if self._is_quiet:
            self._bar.setVisible(self._bar.value() > 0)
            self._line.setVisible(bool(text))
        self.set_text(text)
        self._suggested_action.setText(suggested_action)
        self._suggested_action.setVisible(bool(suggested_action))


def _breakable(text: str) -> str:
    """Return a text whose long words, such as names of files, can go on in a new line."""
    return _LONG_WORD.sub(lambda found: _BREAK.join(found[0]), text)
