"""Rows of a label and a field, sections that fold, buttons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magicgui.widgets import Widget
from qtpy.QtCore import QSize, Qt
from qtpy.QtWidgets import (
    QWIDGETSIZE_MAX,
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)
from superqt import QCollapsible

_LABEL_WIDTH = 96
_SPACING = 6


class FormSection(QWidget):
    """Rows that can be hidden, of a label and a field: a widget of magicgui or Qt.

    Unlike in a container of magicgui, labels wrap and are as wide in every section: the fields of
    a narrow dock stand one below the other.
    """

    def __init__(self) -> None:
        super().__init__()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(_SPACING)
        self._rows: dict[QWidget | Widget, QWidget] = {}

    def add_row(self, text: str, field: QWidget | Widget, tooltip: str = "") -> None:
        control = field.native if isinstance(field, Widget) else field
        label = QLabel(text)
        label.setFixedWidth(_LABEL_WIDTH)
        label.setWordWrap(True)
        label.setBuddy(control)
        control.setMinimumWidth(0)
        control.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._rows[field] = row = QWidget()
        row.setToolTip(tooltip)
        fill_layout(QHBoxLayout(row), label, control)
        self.layout().addWidget(row)

    def show_row(self, field: QWidget | Widget, visible: bool) -> None:
        self._rows[field].setVisible(visible)

    def is_shown(self, field: QWidget | Widget) -> bool:
        """Return whether there is a row that is shown where its section is."""
        return field in self._rows and not self._rows[field].isHidden()

    def clear(self) -> None:
        for row in self._rows.values():
            row.hide()
            row.deleteLater()
        self._rows.clear()


def create_fold(title: str, content: QWidget) -> QCollapsible:
    """Return a section, folded; unfolded it is as high as what it holds, also when that changes."""
    fold = QCollapsible(f"▸  {title}")
    button = fold.toggleButton()
    button.setIconSize(QSize(0, 0))
    button.setToolTip("Show or hide what is below.")

    def show(is_open: bool) -> None:
        button.setText(f"{'▾' if is_open else '▸'}  {title}")
        # The fold itself makes it 0 pixels high; Tab would still go through it.
        fold.content().setVisible(is_open)
        if is_open:
            fold.content().setMaximumHeight(QWIDGETSIZE_MAX)

    fold.toggled.connect(show)
    fold.setDuration(0)
    fold.layout().setContentsMargins(0, 0, 0, 0)
    fold.content().layout().setContentsMargins(0, _SPACING, 0, 0)
    # Not by the fold itself, which would hold on to the height that its content has now.
    fold.content().layout().addWidget(content)
    fold.collapse(animate=False)
    return fold


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


def fill_layout(layout: QBoxLayout, *widgets: QWidget, stretch: int = 0) -> None:
    """Put widgets into a layout without margins."""
    layout.setContentsMargins(0, 0, 0, 0)
    for widget in widgets:
        layout.addWidget(widget, stretch=stretch)


def create_row(*widgets: QWidget, stretch: int = 1) -> QWidget:
    """Return widgets side by side, as wide as each other; without stretch as they need."""
    row = QWidget()
    fill_layout(QHBoxLayout(row), *widgets, stretch=stretch)
    return row


def create_scroll_area(content: QWidget) -> QScrollArea:
    """Return an area in which a dock's content scrolls up and down only."""
    scroll = QScrollArea()
    scroll.setFrameShape(QFrame.Shape.NoFrame)
    scroll.setWidgetResizable(True)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(content)
    return scroll
