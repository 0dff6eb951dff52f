"""Buttons as docks have them: a text, a tooltip, what a click calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qtpy.QtWidgets import QPushButton


def create_button(
    text: str, tooltip: str = "", on_clicked: Callable[..., Any] | None = None
) -> QPushButton:
    button = QPushButton(text)
    button.setToolTip(tooltip)
    if on_clicked is not None:
        button.clicked.connect(on_clicked)
    return button


def enable(button: QPushButton, why_not: str, tooltip: str) -> None:
    """Enable a button, or disable it with the reason as its tooltip."""
    button.setEnabled(not why_not)
    button.setToolTip(f"{why_not[:1].upper()}{why_not[1:]}." if why_not else tooltip)
