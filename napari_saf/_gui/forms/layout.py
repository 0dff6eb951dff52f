"""Layout of forms: labelled rows, collapsible sections, buttons, scroll areas."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from magicgui.widgets import Widget
from qtpy.QtCore import QEvent, QObject, QSize, Qt
from qtpy.QtWidgets import (
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
    """Rows of a label and a field, a magicgui or Qt widget, that can be hidden.

    Unlike in a magicgui container, labels wrap and have the same width in all sections, which
    aligns the fields of a dock.
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
        policy = QSizePolicy.Policy
        height = policy.Minimum if isinstance(control, QLabel) else policy.Fixed  # lines may wrap
        control.setSizePolicy(policy.Ignored, height)
        self._rows[field] = row = QWidget()
        row.setToolTip(tooltip)
        fill_layout(QHBoxLayout(row), label, control)
        self.layout().addWidget(row)

    def rename_row(self, field: QWidget | Widget, text: str) -> None:
        self._rows[field].findChild(QLabel).setText(text)

    def show_row(self, field: QWidget | Widget, visible: bool) -> None:
        self._rows[field].setVisible(visible)

    def is_shown(self, field: QWidget | Widget) -> bool:
        return field in self._rows and not self._rows[field].isHidden()

    def clear(self) -> None:
        for row in self._rows.values():
            row.hide()
            row.deleteLater()
        self._rows.clear()


def create_fold(title: str, content: QWidget) -> QCollapsible:
    """Return a collapsed section, which follows the height of its content when expanded.

    The content has no parent until then: each widget in the window takes .5 ms to style, when a
    dock is opened and when the theme changes.
    """
    fold = QCollapsible(f"▸  {title}")
    button = fold.toggleButton()
    button.setIconSize(QSize(0, 0))
    button.setToolTip("Expand or collapse this section.")

    def show(is_open: bool) -> None:
        button.setText(f"{'▾' if is_open else '▸'}  {title}")
        # QCollapsible only sets the height to 0; Tab would still reach the content.
        fold.content().setVisible(is_open)
        if is_open:
            # Not with QCollapsible.addWidget, which would fix the current height of the content.
            fold.content().layout().addWidget(content)
            content.show()
            fold.content().setMaximumHeight(2**24 - 1)  # QWIDGETSIZE_MAX, which PySide6 lacks

    fold.toggled.connect(show)
    fold.setDuration(0)
    fold.layout().setContentsMargins(0, 0, 0, 0)
    fold.content().layout().setContentsMargins(0, _SPACING, 0, 0)
    keep_apart(content, fold)
    fold.collapse(animate=False)
    return fold


_apart = weakref.WeakKeyDictionary[QWidget, Any]()
"""Weak references to the future parents of widgets that have none yet."""


def keep_apart(widget: QWidget, parent: QWidget) -> None:
    """Keep a widget without a parent outside the window, and delete it with its future parent."""
    parent.destroyed.connect(widget.deleteLater)
    _apart[widget] = weakref.ref(parent)


@atexit.register
def _join() -> None:
    """Set the parents as the program ends: Python would delete the widgets too late."""
    for widget, parent in list(_apart.items()):
        with suppress(RuntimeError):  # deleted already
            if widget.parent() is None and (owner := parent()) is not None:
                widget.setParent(owner)


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
    layout.setContentsMargins(0, 0, 0, 0)
    for widget in widgets:
        layout.addWidget(widget, stretch=stretch)


def create_row(*widgets: QWidget, stretch: int = 1) -> QWidget:
    """Return widgets side by side, of equal width, or of their natural widths if `stretch` is 0."""
    row = QWidget()
    fill_layout(QHBoxLayout(row), *widgets, stretch=stretch)
    return row


class FormArea(QScrollArea):
    """Form of a dock, as high as its content; scrolls vertically if there is less space."""

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.setWidget(content)

    def sizeHint(self) -> QSize:
        """Return the size of the content, whose height depends on the width if lines wrap."""
        content, edge = self.widget(), self.contentsMargins()  # margins of napari's style
        hint, width = content.sizeHint(), self.viewport().width()
        height = content.heightForWidth(width) if content.hasHeightForWidth() else hint.height()
        return QSize(hint.width(), height + edge.top() + edge.bottom())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Update the height when the content or its width changes."""
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            self.updateGeometry()
        return bool(super().eventFilter(watched, event))
