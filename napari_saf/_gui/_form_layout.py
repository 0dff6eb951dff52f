"""A two-column form whose rows can be hidden, and a section that folds."""

from __future__ import annotations

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFormLayout, QLabel, QSizePolicy, QWidget
from superqt import QCollapsible

__all__ = ["FormSection", "add_fold"]

_LABEL_WIDTH = 104


class FormSection(QWidget):
    """Rows of a label and a field, aligned with those of every other section."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._form = QFormLayout(self)
        self._form.setContentsMargins(0, 0, 0, 0)
        self._form.setSpacing(6)
        self._form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        self._form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self._labels: dict[QWidget, QLabel] = {}

    def add_row(self, text: str, field: QWidget, tooltip: str = "") -> None:
        """Add a field with its label."""
        label = QLabel(text)
        label.setFixedWidth(_LABEL_WIDTH)
        label.setWordWrap(True)
        label.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Minimum)
        for widget in (label, field):
            widget.setToolTip(tooltip)
        label.setBuddy(field)
        self._labels[field] = label
        self._form.addRow(label, field)

    def show_row(self, field: QWidget, visible: bool) -> None:
        """Show or hide a field with its label."""
        field.setVisible(visible)
        self._labels[field].setVisible(visible)

    def clear(self) -> None:
        """Remove all rows."""
        while self._form.rowCount():
            self._form.removeRow(0)
        self._labels.clear()


def add_fold(title: str, content: QWidget) -> QCollapsible:
    """Return a folded section."""
    fold = QCollapsible(title)
    fold.setDuration(0)
    fold.layout().setContentsMargins(0, 0, 0, 0)
    fold.setContent(content)
    fold.collapse(animate=False)
    return fold
