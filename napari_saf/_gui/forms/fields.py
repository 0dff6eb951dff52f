"""The field of a described parameter: a widget of magicgui, with what magicgui lacks."""

from __future__ import annotations

import math
from typing import Any

import napari
import numpy as np
from magicgui.widgets import create_widget
from magicgui.widgets.bases import BaseValueWidget, ValuedContainerWidget
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QDoubleSpinBox, QGridLayout, QLabel, QLineEdit, QSlider, QWidget

from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.layers.metadata import METADATA_KEY, is_result, points_of
from napari_saf.errors import InvalidInput
from napari_saf.parameters import Parameter

_LARGEST = {"int": 2**31 - 1, "float": 1e6}
_DECIMALS = 7


def create_field(parameter: Parameter, viewer: napari.Viewer) -> BaseValueWidget[Any]:
    """Return the field of a parameter, at its default."""
    default, name = parameter.default, parameter.name
    if parameter.kind == "bool":
        return create_widget(default, bool, name=name, options={"text": " "})  # type: ignore[return-value]
    if parameter.kind == "choice":
        return create_widget(  # type: ignore[return-value]
            default,
            name=name,
            widget_type="ComboBox",
            options={"choices": choice_entries(parameter), "nullable": parameter.optional},
        )
    if parameter.kind == "array":
        return QtField(PrototypesChoice(viewer), default, name)
    if parameter.kind == "list":
        return QtField(_NumbersLine(parameter), default, name)
    if parameter.kind == "float" and parameter.ends is not None:
        return QtField(_SliderWithEnds(parameter), default, name)
    return QtField(_NumberBox(parameter), default, name)


def choice_entries(parameter: Parameter) -> list[tuple[str, Any]]:
    """Return the texts and the values of a parameter that is a choice."""
    texts = parameter.choice_labels
    none = [(parameter.none, None)] if parameter.optional else []
    return none + [(texts.get(one, one.replace("-", " ")), one) for one in parameter.choices]


class QtField(ValuedContainerWidget[Any]):
    """A Qt widget with `read`, `show_value` and `edited` as a field of magicgui."""

    def __init__(self, control: Any, value: object, name: str) -> None:
        self.control = control
        super().__init__(name=name, nullable=True, labels=False)
        self.margins = (0, 0, 0, 0)
        self.native.layout().addWidget(control)
        self.native.setFocusProxy(control)
        self.value = value
        # Without the value, which may be a text that is none yet.
        control.edited.connect(lambda: self.changed.emit(None))

    def get_value(self) -> Any:
        """Return what the widget reads."""
        return self.control.read()

    def set_value(self, value: object) -> None:
        """Show a value."""
        self.control.show_value(value)


class _NumberBox(QDoubleSpinBox):
    """A box that writes 0.001 and not 0.0010000, and can show a text for None.

    None is the lowest value of the box, one below the least number.
    """

    edited = Signal()

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        self._is_whole = parameter.kind == "int"
        largest = _LARGEST[parameter.kind]
        self._least = -largest if parameter.minimum is None else parameter.minimum
        self.setDecimals(0 if self._is_whole else _DECIMALS)
        self.setRange(
            self._least - parameter.optional,
            largest if parameter.maximum is None else parameter.maximum,
        )
        self.setSingleStep(parameter.step or (1 if self._is_whole else 0.1))
        if parameter.optional:
            self.setSpecialValueText(parameter.none)
        self.valueChanged.connect(self.edited)

    def read(self) -> float | None:
        value = self.value()
        if value < self._least:
            return None
        return round(value) if self._is_whole else float(value)

    def show_value(self, value: float | None) -> None:
        self.setValue(self.minimum() if value is None else value)

    def textFromValue(self, value: float) -> str:
        """Return the shortest text of a number."""
        if self._is_whole:
            return str(super().textFromValue(value))
        return str(self.locale().toString(value, "g", _DECIMALS))


class _NumbersLine(QLineEdit):
    """Some numbers with commas between; empty for None."""

    edited = Signal()

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        self._label = parameter.label
        self.setPlaceholderText(parameter.none)
        self.editingFinished.connect(self.edited)

    def read(self) -> NDArray[np.float64] | None:
        """Return the numbers; InvalidInput if they are none."""
        text = self.text().strip()
        if not text:
            return None
        try:
            return np.array([float(number) for number in text.replace(";", ",").split(",")])
        except ValueError as error:
            raise InvalidInput(
                f"{self._label}: expected numbers with commas between, got {text!r}"
            ) from error

    def show_value(self, value: object) -> None:
        numbers = () if value is None else np.atleast_1d(np.asarray(value, dtype=float))
        self.setText(", ".join(f"{number:g}" for number in numbers))


class _SliderWithEnds(QWidget):
    """A slider between two labels, in steps, for a number with two bounds."""

    edited = Signal()

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        assert parameter.minimum is not None and parameter.maximum is not None
        assert parameter.ends is not None
        self._low, width = parameter.minimum, parameter.maximum - parameter.minimum
        self._step = parameter.step or width / 100
        self._slider, self._number = QSlider(Qt.Orientation.Horizontal), QLabel()
        self._slider.setRange(0, max(1, round(width / self._step)))
        self._number.setFixedWidth(self._number.fontMetrics().horizontalAdvance("0.000"))
        left, right = map(QLabel, parameter.ends)
        right.setAlignment(Qt.AlignmentFlag.AlignRight)
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(0)
        layout.setColumnStretch(0, 1)
        layout.addWidget(self._slider, 0, 0, 1, 2)
        layout.addWidget(self._number, 0, 2)
        for label, column, n_columns in ((left, 0, 1), (right, 1, 2)):
            label.setStyleSheet("font-size: 8pt;")
            layout.addWidget(label, 1, column, 1, n_columns)
        self._slider.valueChanged.connect(self._on_moved)
        self._on_moved()

    def read(self) -> float:
        return float(round(self._low + self._slider.value() * self._step, 10))

    def show_value(self, value: float) -> None:
        self._slider.setValue(round((value - self._low) / self._step))

    def _on_moved(self) -> None:
        digits = max(0, -math.floor(math.log10(self._step)))
        self._number.setText(f"{self.read():.{digits}f}")
        self.edited.emit()


class PrototypesChoice(LayerChoice):
    """Prototypes of an earlier result."""

    edited = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__(viewer, is_result, none="choose a result")
        self.layer_changed.connect(self.edited)

    def read(self) -> NDArray[np.floating] | None:
        points = self._points()
        return np.concatenate(list(points.values())) if points else None

    def show_value(self, value: object) -> None:
        """Choose nothing: the layer of an array is unknown."""
        if value is None:
            self.choose(None)

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The label of each prototype, None if they are 1, 2, ..."""
        points = self._points()
        labels = np.repeat(list(points), [len(own) for own in points.values()])
        return None if np.array_equal(labels, np.arange(1, len(labels) + 1)) else labels

    def input_entry(self, name: str) -> object:
        """Return an entry of the input in the recipe of the chosen result, or None."""
        layer = self.layer
        options = None if layer is None else layer.metadata[METADATA_KEY]["recipe"].get("input")
        return None if options is None else options.get(name)

    def _points(self) -> dict[int, NDArray[np.floating]]:
        return {} if self.layer is None else points_of(self.layer)
