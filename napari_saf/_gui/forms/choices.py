"""Widgets to choose a value: an entry of a list, a layer of the viewer, several images."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import napari
from napari.layers import Image, Layer
from qtpy.QtCore import QEvent, QSize, Qt, Signal
from qtpy.QtGui import QPaintEvent
from qtpy.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QListWidget,
    QListWidgetItem,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QToolTip,
)
from superqt.utils import signals_blocked

from napari_saf._gui.layers.metadata import is_given, is_strokes
from napari_saf._gui.layers.view import list_events

Entries = Sequence[tuple[str, object]]
Plain = str | int | float | None
PlainValues = dict[str, Plain | dict[str, Plain]]
"""JSON-serializable values of project files, by name."""
BRIGHTNESS: Entries = (("each image by itself", True), ("as in the first image", False))
BRIGHTNESS_HELP = "Scale intensities by the range of each image, or by that of the first image."
HEADING = object()
"""Value of an entry that is a heading of those below it and cannot be selected."""
_MOST_ROWS = 4
_ROW_HEIGHT = 24
_PADDING = 4
_EMPTY = "no image: open one"
_COMBO_BOX = QStyle.ComplexControl.CC_ComboBox


class Choice(QComboBox):
    """Combo box of entries (text, value), compared by equality; the first must not be a heading."""

    changed = Signal()

    def __init__(self, entries: Entries = ()) -> None:
        super().__init__()
        self._values: list[Any] = []
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.offer(entries)
        self.currentIndexChanged.connect(self.changed)

    @property
    def value(self) -> Any:
        """The value of the chosen entry; None without one."""
        index = self.currentIndex()
        return self._values[index] if 0 <= index < len(self._values) else None

    def values(self) -> list[Any]:
        return [value for value in self._values if value is not HEADING]

    @property
    def shown_text(self) -> str:
        """The text of the chosen entry, elided in the middle if necessary."""
        option, part = QStyleOptionComboBox(), QStyle.SubControl.SC_ComboBoxEditField
        self.initStyleOption(option)
        room = self.style().subControlRect(_COMBO_BOX, option, part, self).width()
        middle = Qt.TextElideMode.ElideMiddle
        return str(self.fontMetrics().elidedText(self.currentText(), middle, room - _PADDING))

    @property
    def shown_help(self) -> str:
        """The tooltip, preceded by the chosen text if that is elided."""
        help, text = self.toolTip(), self.currentText()
        return str(help) if self.shown_text == text else f"{text}\n{help}".strip()

    def event(self, event: QEvent) -> bool:
        # Without help here, the row shows its tooltip.
        if event.type() == QEvent.Type.ToolTip and self.shown_help:
            QToolTip.showText(event.globalPos(), self.shown_help, self)
            return True
        return bool(super().event(event))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, option = QStylePainter(self), QStyleOptionComboBox()
        self.initStyleOption(option)
        option.currentText = self.shown_text
        painter.drawComplexControl(_COMBO_BOX, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)

    def explain(self, value: object, text: str) -> None:
        self.setItemData(self._values.index(value), text, Qt.ItemDataRole.ToolTipRole)

    def choose(self, value: object) -> None:
        if value in self._values:
            self.setCurrentIndex(self._values.index(value))

    def offer(self, entries: Entries) -> None:
        """Replace the entries without a signal, keeping the choice if an entry has its text."""
        texts, chosen = [text for text, _ in entries], self.currentText()
        self._fill(entries, texts.index(chosen) if chosen in texts else 0)

    def _fill(self, entries: Entries, index: int) -> None:
        with signals_blocked(self):
            self.clear()
            self.addItems([text for text, _ in entries])
            self._values = [value for _, value in entries]
            for row, value in enumerate(self._values):
                if value is HEADING:
                    self.model().item(row).setEnabled(False)
            self.setCurrentIndex(index)


class SizeChoice(Choice):
    """Editable choice of a size in pixels, after the special entries `words`."""

    def __init__(self, words: Entries, sizes: Sequence[int]) -> None:
        super().__init__([*words, *((f"{size} px", size) for size in sizes)])
        self._words = list(words)
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.setCompleter(None)
        self.lineEdit().editingFinished.connect(self._on_typed)

    def choose(self, value: object) -> None:
        """Choose a value; a size that is not an entry is added."""
        if isinstance(value, int) and value not in self._values:
            sizes = sorted({value, *self._values[len(self._words) :]})
            self._fill([*self._words, *((f"{size} px", size) for size in sizes)], -1)
        super().choose(value)

    def _on_typed(self) -> None:
        """Accept a number or the beginning of an entry; discard other text."""
        typed = self.currentText().strip().lower()
        number = re.fullmatch(r"0*([1-9]\d{0,5})\s*(px)?", typed)
        meant = [value for text, value in self._words if typed and text.startswith(typed)]
        if number is not None:
            self.choose(int(number[1]))
        elif meant:
            self.choose(meant[0])
        self.setEditText(self.itemText(self.currentIndex()))


class LayerChoice(Choice):
    """Choice of a layer of a type, by identity, for which `fits` returns True; follows the viewer.

    `none`, or the entries of `set_others`, come before the layers, `last` after them. The default
    is the first entry before the layers, or else the active or the first layer; layers of strokes
    are sorted last.
    """

    layer_changed = Signal(object)

    def __init__(
        self,
        viewer: napari.Viewer,
        layer_type: type[Layer],
        fits: Callable[[Any], bool] = lambda layer: True,
        *,
        none: str | None = None,
        last: Entries = (),
    ) -> None:
        super().__init__()
        self._viewer, self._layer_type, self._fits, self._last = viewer, layer_type, fits, last
        self._first: Entries = [] if none is None else [(none, None)]
        _follow_list(viewer, self)
        self.currentIndexChanged.connect(lambda: self.layer_changed.emit(self.layer))

    @property
    def layer(self) -> Any:
        return self.value if isinstance(self.value, Layer) else None

    def set_others(self, entries: Entries) -> None:
        self._first = list(entries)
        self.refresh()

    def refresh(self, event: object = None) -> None:
        """List the current layers of the viewer, keeping the choice if it still exists."""
        previous, active = self.value, self._viewer.layers.selection.active
        of_type = [layer for layer in self._viewer.layers if isinstance(layer, self._layer_type)]
        of_type.sort(key=is_strokes)
        active = None if is_strokes(active) else active
        layers = [(layer.name, layer) for layer in of_type if self._fits(layer)]
        none = [(_EMPTY, None)] if self._last and not (layers or self._first) else []
        entries = [*none, *self._first, *layers, *self._last]
        values = [value for _, value in entries]
        chosen = previous if previous in values or self._first else active
        self._fill(entries, values.index(chosen) if chosen in values else 0)
        if self.value != previous:
            self.layer_changed.emit(self.layer)


BOX_STYLE = "QAbstractItemView::indicator:unchecked {border: 1px solid gray;}"
"""Makes unticked boxes visible in the lists and tables of a dark theme."""


class ImageList(QListWidget):
    """Checkable list of the images of a viewer, by identity, without images computed here.

    Images selected in the viewer are checked initially, or else the first.
    """

    changed = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self.setStyleSheet(BOX_STYLE)
        self._viewer = viewer
        self._items: list[tuple[Any, QListWidgetItem]] = []
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        _follow_list(viewer, self)
        self.itemChanged.connect(lambda item: self.changed.emit())

    def chosen(self) -> list[Any]:
        return [layer for layer, item in self._items if item.checkState() == Qt.CheckState.Checked]

    def choose(self, layers: Sequence[Layer]) -> None:
        with signals_blocked(self):
            for layer, item in self._items:
                _tick(item, layer in layers)
        self.changed.emit()

    def refresh(self, event: object = None) -> None:
        """List the current images of the viewer, keeping those checked."""
        previous, is_first = self.chosen(), not self._items
        layers = [
            layer for layer in self._viewer.layers if isinstance(layer, Image) and is_given(layer)
        ]
        ticked = [layer for layer in previous if layer in layers]
        if is_first:
            selected = self._viewer.layers.selection
            ticked = [layer for layer in layers if layer in selected] or layers[:1]
        with signals_blocked(self):
            self.clear()
            self._items = [(layer, QListWidgetItem(layer.name, self)) for layer in layers]
            for layer, item in self._items:
                item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable)
                item.setToolTip(f"{layer.name}: check to learn from it.")
                _tick(item, layer in ticked)
            if not layers:
                QListWidgetItem(_EMPTY, self).setFlags(Qt.ItemFlag.NoItemFlags)
            for row in range(self.count()):
                self.item(row).setSizeHint(QSize(0, _ROW_HEIGHT))
        rows = min(self.count(), _MOST_ROWS)
        self.setFixedHeight(rows * _ROW_HEIGHT + 2 * self.frameWidth() + _PADDING)
        if ticked != previous:
            self.changed.emit()


def _follow_list(viewer: napari.Viewer, widget: LayerChoice | ImageList) -> None:
    """Refresh a widget whenever the list of layers changes, until the widget is destroyed."""
    events, refresh = list_events(viewer), widget.refresh
    for event in events:
        event.connect(refresh)
    refresh()

    def disconnect() -> None:
        for event in events:
            event.disconnect(refresh)

    widget.destroyed.connect(disconnect)


def _tick(item: QListWidgetItem, is_ticked: bool) -> None:
    item.setCheckState(Qt.CheckState.Checked if is_ticked else Qt.CheckState.Unchecked)
