"""Fields of forms: a magicgui widget, or a wrapped Qt widget, for each described parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import napari
import numpy as np
from magicgui.widgets import CheckBox, ComboBox
from magicgui.widgets.bases import BaseValueWidget, ValuedContainerWidget
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtGui import QValidator
from qtpy.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSlider,
    QVBoxLayout,
    QWidget,
)
from superqt import QLabeledDoubleSlider
from superqt.utils import signals_blocked

from napari_saf._gui.forms.choices import LayerChoice, SizeChoice
from napari_saf._gui.forms.display_text import choice_entries
from napari_saf._gui.forms.layout import fill_layout
from napari_saf._gui.layers.metadata import METADATA_KEY, is_result, points_of
from napari_saf.errors import InvalidInput
from napari_saf.parameters import Parameter

_LARGEST = {"int": 2**31 - 1, "float": 1e6}
_DECIMALS = 7
_SLIDER_END = 41
_BOX_END = 999
_BOX_WIDTH = 106
_BUTTON_WIDTH = 30


def create_field(parameter: Parameter, viewer: napari.Viewer) -> BaseValueWidget[Any]:
    """Create the field of a parameter, at its default."""
    name, default = parameter.name, parameter.default
    if parameter.kind == "bool":
        return CheckBox(value=bool(default), name=name, text=" ")
    if parameter.kind == "choice" and parameter.hint is not str:
        entries, is_optional = choice_entries(parameter), parameter.optional
        return ComboBox(value=default, name=name, choices=entries, nullable=is_optional)
    if parameter.kind == "array":
        choice = PrototypesChoice(viewer)
        field = QtField(choice, choice.prototypes, choice.show_prototypes, choice.layer_changed)
    elif parameter.suggestions:
        field = _size_field(parameter)
    elif parameter.ends is not None:
        field = _slider_field(parameter)
    else:
        field = _FIELDS[parameter.kind](parameter)
    field.name, field.value = name, default
    return field


class QtField(ValuedContainerWidget[Any]):
    """A Qt widget wrapped as a magicgui field, with functions to read and show its value."""

    def __init__(
        self, control: Any, read: Callable[[], Any], show: Callable[[Any], Any], changed: Any
    ) -> None:
        self.control, self._read, self._show = control, read, show
        super().__init__(nullable=True, labels=False)
        self.margins = (0, 0, 0, 0)
        self.native.layout().addWidget(control)
        self.native.setFocusProxy(control)
        # Without the value, which may be incomplete text.
        changed.connect(lambda *value: self.changed.emit(None))

    def get_value(self) -> Any:
        return self._read()

    def set_value(self, value: object) -> None:
        self._show(value)


class NumberBox(QDoubleSpinBox):
    """A spin box for a number, or for None, displayed as `word`.

    None is the lowest value of the box, a step below the `minimum`. Trailing zeros are not shown.
    """

    def __init__(
        self, minimum: float, maximum: float, step: float, *, is_whole: bool, word: str = ""
    ) -> None:
        super().__init__()
        self._minimum, self._is_whole = minimum, is_whole
        self.setDecimals(0 if is_whole else _DECIMALS)
        self.setRange(minimum - step if word else minimum, maximum)
        self.setSingleStep(step)
        self.setSpecialValueText(word)

    def read(self) -> float | None:
        number = self.value()
        if number < self._minimum:
            return None
        return round(number) if self._is_whole else float(number)

    def show_value(self, value: float | None) -> None:
        self.setValue(self.minimum() if value is None else value)

    def textFromValue(self, value: float) -> str:
        if self._is_whole:
            return str(super().textFromValue(value))
        return str(self.locale().toString(value, "g", _DECIMALS))

    def validate(self, text: str, at: int) -> tuple[Any, str, int]:
        word, typed = self.specialValueText(), self._typed(text)
        if not (typed and word.startswith(typed)):
            return super().validate(text, at)  # type: ignore[no-any-return]
        state = QValidator.State
        return state.Acceptable if typed == word else state.Intermediate, text, at

    def valueFromText(self, text: str) -> float:
        is_word = self._typed(text) == self.specialValueText() != ""
        return float(self.minimum() if is_word else super().valueFromText(text))

    def _typed(self, text: str) -> str:
        return text.removesuffix(self.suffix()).strip().lower()


class OddSlider(QWidget):
    """A slider for small odd numbers of pixels, and a spin box for all.

    If `may_be_chosen`, the value may be None for an automatic choice, displayed below 1.
    """

    changed = Signal()

    def __init__(self, value: int | None, *, may_be_chosen: bool = False) -> None:
        super().__init__()
        word = "auto" if may_be_chosen else ""
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setRange(-1 if may_be_chosen else 0, _SLIDER_END // 2)
        self._box = NumberBox(1, _BOX_END, 2, is_whole=True, word=word)
        self._box.setSuffix(" px")
        self._box.setKeyboardTracking(False)
        self._box.setFixedWidth(_BOX_WIDTH)
        fill_layout(QHBoxLayout(self), self._slider, self._box)
        self._slider.valueChanged.connect(lambda half: self._show(2 * half + 1))
        self._box.valueChanged.connect(self._show)
        self.set_value(value)
        self._box.valueChanged.connect(self.changed)

    @property
    def value(self) -> int | None:
        number = self._box.read()
        return None if number is None else int(number)

    def set_value(self, value: int | None) -> None:
        """Set the number; even numbers are rounded up to odd ones."""
        self._show(-1 if value is None else value)

    def _show(self, value: float) -> None:
        self._box.setValue(value + 1 - value % 2)
        with signals_blocked(self._slider):
            self._slider.setValue(int(value // 2))


class FolderField(QWidget):
    """The path of a folder, or of a file that matches the dialog filter `files`."""

    changed = Signal()

    def __init__(self, purpose: str, *, files: str = "") -> None:
        super().__init__()
        self._purpose, self._files = purpose, files
        self._line = QLineEdit(placeholderText=f"choose a {'file' if files else 'folder'}")
        button = QPushButton("…", toolTip=purpose)
        button.setFixedWidth(_BUTTON_WIDTH)
        fill_layout(QHBoxLayout(self), self._line, button)
        button.clicked.connect(self._on_clicked)
        self._line.textChanged.connect(self.changed)

    @property
    def path(self) -> Path | None:
        text = self._line.text().strip()
        return Path(text).expanduser() if text else None

    def set_path(self, path: Path) -> None:
        self.set_text(str(path))

    def set_text(self, text: str) -> None:
        self._line.setText(text)

    def _on_clicked(self) -> None:
        purpose, text = self._purpose, self._line.text()
        if self._files:
            path, _ = QFileDialog.getOpenFileName(self, purpose, text, self._files)
        else:
            path = QFileDialog.getExistingDirectory(self, purpose, text)
        if path:
            self._line.setText(path)


class PrototypesChoice(LayerChoice):
    """Choice of a result whose prototypes are used."""

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__(viewer, Labels, is_result, none="choose a result")

    def prototypes(self) -> NDArray[np.floating] | None:
        points = {} if self.layer is None else points_of(self.layer)
        return np.concatenate(list(points.values())) if points else None

    def show_prototypes(self, prototypes: object) -> None:
        """Clear the choice for None; ignore an array, whose layer is unknown."""
        if prototypes is None:
            self.choose(None)

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The label of each prototype (n_prototypes,); None if they are 1, 2, ..."""
        points = {} if self.layer is None else points_of(self.layer)
        labels = np.repeat(list(points), [len(rows) for rows in points.values()])
        return None if np.array_equal(labels, np.arange(1, len(labels) + 1)) else labels

    @property
    def image_options(self) -> Mapping[str, Any]:
        """The image options in the recipe of the chosen result, if any."""
        recipe = {} if self.layer is None else self.layer.metadata[METADATA_KEY]["recipe"]
        return recipe.get("input") or {}


def _number_field(parameter: Parameter) -> QtField:
    is_whole, largest = parameter.kind == "int", _LARGEST[parameter.kind]
    box = NumberBox(
        -largest if parameter.minimum is None else parameter.minimum,
        largest if parameter.maximum is None else parameter.maximum,
        parameter.step or (1 if is_whole else 0.1),
        is_whole=is_whole,
        word=parameter.none if parameter.optional else "",
    )
    return QtField(box, box.read, box.show_value, box.valueChanged)


def _slider_field(parameter: Parameter) -> QtField:
    """Create a slider in steps, with a label below each end."""
    low, high, ends = parameter.minimum, parameter.maximum, parameter.ends
    assert low is not None and high is not None and ends is not None
    step, control = parameter.step or (high - low) / 100, QWidget()
    slider, labels = QLabeledDoubleSlider(Qt.Orientation.Horizontal), list(map(QLabel, ends))
    slider.setRange(low, high)
    slider.setSingleStep(step)
    slider.setDecimals(max(0, -math.floor(math.log10(step))))
    words = QWidget()
    fill_layout(QHBoxLayout(words), *labels, stretch=1)
    labels[1].setAlignment(Qt.AlignmentFlag.AlignRight)
    words.setStyleSheet("font-size: 8pt;")
    layout = QVBoxLayout(control)
    layout.setSpacing(0)
    fill_layout(layout, slider, words)

    def read() -> float:
        return float(round(low + round((slider.value() - low) / step) * step, 10))

    return QtField(control, read, slider.setValue, slider.valueChanged)


def _window_field(parameter: Parameter) -> QtField:
    """Create a slider for the side of a window, or for the word that replaces it."""
    word = parameter.choices[0] if parameter.choices else None
    slider = OddSlider(None if word else 1, may_be_chosen=word is not None)

    def show(value: Any) -> None:
        slider.set_value(None if value == word else value)

    return QtField(slider, lambda: slider.value or word, show, slider.changed)


def _size_field(parameter: Parameter) -> QtField:
    words = sorted(choice_entries(parameter), key=lambda entry: entry[1] != parameter.default)
    box = SizeChoice(words, parameter.suggestions)
    return QtField(box, lambda: box.value, box.choose, box.changed)


def _list_field(parameter: Parameter) -> QtField:
    line = QLineEdit(placeholderText=parameter.none)

    def read() -> NDArray[np.float64] | None:
        text = line.text().strip()
        try:
            numbers = [float(number) for number in text.replace(";", ",").split(",") if text]
        except ValueError as error:
            raise InvalidInput(
                f"{parameter.label}: expected numbers separated by commas, got {text!r}"
            ) from error
        return np.array(numbers) if numbers else None

    def show(value: object) -> None:
        numbers = () if value is None else np.atleast_1d(np.asarray(value, dtype=float))
        line.setText(", ".join(f"{number:g}" for number in numbers))

    return QtField(line, read, show, line.textChanged)


def _text_field(parameter: Parameter) -> QtField:
    """Create a line for a text, with suggestions if any, or for the path of a file."""
    if parameter.files:
        folder = FolderField(parameter.help, files=f"{parameter.label} ({parameter.files})")
        return QtField(folder, lambda: str(folder.path or ""), folder.set_text, folder.changed)
    box = QComboBox()
    box.setEditable(True)
    box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
    box.addItems(parameter.choices)

    def show(text: str) -> None:
        box.setCurrentText(text)
        box.lineEdit().setCursorPosition(0)

    return QtField(box, lambda: box.currentText().strip(), show, box.currentTextChanged)


_FIELDS: dict[str, Callable[[Parameter], QtField]] = {
    "int": _number_field,
    "float": _number_field,
    "window": _window_field,
    "list": _list_field,
    "text": _text_field,
    "choice": _text_field,  # texts with suggestions
}
