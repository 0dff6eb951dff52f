"""One widget per kind of parameter, all with the same face: value, set_value, changed."""

from __future__ import annotations

import math
from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QSizePolicy,
    QSlider,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from napari_saf._gui.forms.layer_choice import LayerChoice
from napari_saf._gui.layers.live import METADATA_KEY, is_result
from napari_saf._gui.layers.part import points_of
from napari_saf.errors import InvalidInput
from napari_saf.parameters import Parameter

__all__ = ["Field", "create_field"]

_INT_END = 2**31 - 1
_FLOAT_END = 1e6
_DECIMALS = 7


class Field(QWidget):
    """A parameter on screen."""

    changed = Signal()

    def __init__(self, control: QWidget) -> None:
        super().__init__()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        control.setMinimumWidth(0)
        control.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        layout.addWidget(control)

    @property
    def value(self) -> object:
        """The value as a method takes it."""
        raise NotImplementedError

    def set_value(self, value: object) -> None:
        """Show a value."""
        raise NotImplementedError

    def release(self) -> None:
        """Let go of what the field follows."""


class _IntField(Field):
    def __init__(self, parameter: Parameter) -> None:
        self._box = QSpinBox()
        super().__init__(self._box)
        low = int(parameter.minimum) if parameter.minimum is not None else -_INT_END
        self._none = low - 1 if parameter.optional else None
        self._box.setRange(low - parameter.optional, int(parameter.maximum or _INT_END))
        if parameter.optional:
            self._box.setSpecialValueText(parameter.none)
        self._box.setSingleStep(int(parameter.step or 1))
        self._box.valueChanged.connect(self.changed)

    @property
    def value(self) -> int | None:
        value = int(self._box.value())
        return None if value == self._none else value

    def set_value(self, value: object) -> None:
        if value is None and self._none is not None:
            self._box.setValue(self._none)
        elif isinstance(value, int):
            self._box.setValue(value)


class _NumberBox(QDoubleSpinBox):
    """A box that writes 0.001 and not 0.0010000."""

    def textFromValue(self, value: float) -> str:
        """Return the shortest text of a number."""
        return str(self.locale().toString(value, "g", _DECIMALS))


class _FloatField(Field):
    def __init__(self, parameter: Parameter) -> None:
        self._box = _NumberBox()
        super().__init__(self._box)
        self._box.setDecimals(_DECIMALS)
        low = -_FLOAT_END if parameter.minimum is None else parameter.minimum
        high = _FLOAT_END if parameter.maximum is None else parameter.maximum
        self._low, self._is_optional = low, parameter.optional
        if parameter.optional:
            self._box.setSpecialValueText(parameter.none)
        # None is the lowest value of the box, one below the bound.
        self._box.setRange(low - parameter.optional, high)
        self._box.setSingleStep(parameter.step or 0.1)
        self._box.valueChanged.connect(self.changed)

    @property
    def value(self) -> float | None:
        value = float(self._box.value())
        return None if self._is_optional and value < self._low else value

    def set_value(self, value: object) -> None:
        if value is None:
            self._box.setValue(self._box.minimum())
        elif isinstance(value, (int, float)):
            self._box.setValue(float(value))


class _ListField(Field):
    """Some numbers with commas between."""

    def __init__(self, parameter: Parameter) -> None:
        self._line = QLineEdit()
        super().__init__(self._line)
        self._name = parameter.label
        self._line.setPlaceholderText(parameter.none)
        self._line.editingFinished.connect(self.changed)

    @property
    def value(self) -> NDArray[np.float64] | None:
        text = self._line.text().strip()
        if not text:
            return None
        try:
            return np.array([float(number) for number in text.replace(";", ",").split(",")])
        except ValueError as error:
            raise InvalidInput(
                f"{self._name}: expected numbers with commas between, got {text!r}"
            ) from error

    def set_value(self, value: object) -> None:
        numbers = () if value is None else np.atleast_1d(np.asarray(value, dtype=float))
        self._line.setText(", ".join(f"{number:g}" for number in numbers))


class _SliderField(Field):
    """A slider between two words, for a number with two bounds."""

    def __init__(self, parameter: Parameter) -> None:
        assert parameter.minimum is not None and parameter.maximum is not None
        content = QWidget()
        super().__init__(content)
        self._low, self._high = parameter.minimum, parameter.maximum
        step = parameter.step or (self._high - self._low) / 100
        self._n_steps = max(1, round((self._high - self._low) / step))
        self._slider = QSlider(Qt.Orientation.Horizontal)
        self._slider.setRange(0, self._n_steps)
        self._number = QLabel()
        layout = QGridLayout(content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setVerticalSpacing(0)
        layout.setColumnStretch(0, 1)
        left, right = parameter.ends or ("", "")
        words = QHBoxLayout()
        words.addWidget(_small(left))
        words.addStretch(1)
        words.addWidget(_small(right))
        layout.addWidget(self._slider, 0, 0)
        layout.addWidget(self._number, 0, 1)
        layout.addLayout(words, 1, 0, 1, 2)
        self._number.setFixedWidth(self._number.fontMetrics().horizontalAdvance("0.000"))
        self._slider.valueChanged.connect(self._on_moved)
        self._on_moved()

    @property
    def value(self) -> float:
        share = self._slider.value() / self._n_steps
        return float(round(self._low + share * (self._high - self._low), 10))

    def set_value(self, value: object) -> None:
        assert isinstance(value, (int, float))
        share = (value - self._low) / (self._high - self._low)
        self._slider.setValue(round(share * self._n_steps))

    def _on_moved(self) -> None:
        digits = max(0, -math.floor(math.log10((self._high - self._low) / self._n_steps)))
        self._number.setText(f"{self.value:.{digits}f}")
        self.changed.emit()


class _ChoiceField(Field):
    def __init__(self, parameter: Parameter) -> None:
        self._box = QComboBox()
        super().__init__(self._box)
        if parameter.optional:
            self._box.addItem(parameter.none, None)
        for choice in parameter.choices:
            words = (parameter.words or {}).get(choice, choice.replace("-", " "))
            self._box.addItem(words, choice)
        self._box.currentIndexChanged.connect(self.changed)

    @property
    def value(self) -> object:
        return self._box.currentData()

    def set_value(self, value: object) -> None:
        self._box.setCurrentIndex(self._box.findData(value))


class _BoolField(Field):
    def __init__(self, parameter: Parameter) -> None:
        self._box = QCheckBox()
        super().__init__(self._box)
        self._box.toggled.connect(self.changed)

    @property
    def value(self) -> bool:
        return bool(self._box.isChecked())

    def set_value(self, value: object) -> None:
        self._box.setChecked(bool(value))


class PrototypesField(Field):
    """Prototypes of an earlier result."""

    def __init__(self, viewer: napari.Viewer) -> None:
        self._choice = LayerChoice(viewer, is_result, none="choose a result")
        super().__init__(self._choice)
        self._choice.layer_changed.connect(self.changed)

    @property
    def value(self) -> object:
        points = self._points()
        return np.concatenate(list(points.values())) if points else None

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The label of each prototype, None if they are 1, 2, ..."""
        points = self._points()
        labels = np.repeat(list(points), [len(own) for own in points.values()])
        return None if np.array_equal(labels, np.arange(1, len(labels) + 1)) else labels

    def input_entry(self, name: str) -> object:
        """Return what the recipe of the chosen result says of its input, or None."""
        entry = self._entry()
        options = None if entry is None else entry["recipe"].get("input")
        return None if options is None else options.get(name)

    def set_value(self, value: object) -> None:
        if value is None:
            self._choice.choose(None)

    def refresh(self) -> None:
        """Look for results again; metadata send no event."""
        self._choice.refresh()

    def release(self) -> None:
        self._choice.disconnect_viewer()

    def _points(self) -> dict[int, NDArray[np.floating]]:
        layer = self._choice.layer
        return {} if layer is None else points_of(layer)

    def _entry(self) -> dict[str, Any] | None:
        layer = self._choice.layer
        return None if layer is None else layer.metadata[METADATA_KEY]


def create_field(parameter: Parameter, viewer: napari.Viewer) -> Field:
    """Return the field of a parameter, at its default."""
    field: Field
    if parameter.kind == "array":
        field = PrototypesField(viewer)
    elif parameter.kind == "float" and parameter.ends is not None:
        field = _SliderField(parameter)
    else:
        kinds = {
            "int": _IntField,
            "float": _FloatField,
            "choice": _ChoiceField,
            "bool": _BoolField,
            "list": _ListField,
        }
        field = kinds[parameter.kind](parameter)
    field.set_value(parameter.default)
    return field


def _small(text: str) -> QLabel:
    label = QLabel(text)
    label.setStyleSheet("font-size: 8pt;")
    return label
