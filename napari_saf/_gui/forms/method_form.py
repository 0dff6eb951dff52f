"""The form of a method, made from its dataclass: fields by magicgui, with what magicgui lacks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import napari
import numpy as np
from magicgui.widgets import create_widget
from magicgui.widgets.bases import BaseValueWidget, ValuedContainerWidget
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Qt, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QLabel,
    QLineEdit,
    QSlider,
    QWidget,
)
from superqt.utils import signals_blocked

from napari_saf._gui.forms.choices import HEADING, Choice, Entries, LayerChoice, Plain
from napari_saf._gui.forms.controls import FolderField
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.words import choice_entries
from napari_saf._gui.layers.metadata import METADATA_KEY, is_result, points_of
from napari_saf._gui.settings import current_settings
from napari_saf.errors import InvalidInput, SafError
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import Parameter, build, describe

_LARGEST = {"int": 2**31 - 1, "float": 1e6}
_DECIMALS = 7


class MethodForm(QObject):
    """A choice of methods (`box`), and a field for each parameter of the chosen one.

    The owner lays out the choice and two sections of fields, `basic` and `advanced`. Fields begin
    with the defaults of the method, and with the device of the settings. Prototypes of an earlier
    result are asked for only if `asks_prototypes`, what acts on strokes alone if it `has_seeds`,
    and what counts only where no assignment to start from is given if `asks_start`. Methods with a
    caution come last, those that do without strokes only in a form `for_strokes`.
    """

    method_changed = Signal()
    changed = Signal()

    def __init__(
        self,
        viewer: napari.Viewer,
        methods: Iterable[type[AbstractMethod]],
        *,
        asks_prototypes: bool = True,
        has_seeds: bool = True,
        asks_start: bool = True,
        for_strokes: bool = False,
    ) -> None:
        super().__init__()
        self._viewer, self._has_seeds = viewer, has_seeds
        self._asks_prototypes, self._asks_start = asks_prototypes, asks_start
        self.box = Choice(_entries(methods, for_strokes))
        for method in self.box.values():
            self.box.explain(method, described(method))
        self.basic, self.advanced = FormSection(), FormSection()
        self.fields: dict[str, BaseValueWidget[Any]] = {}
        self._parameters: dict[str, Parameter] = {}
        self._create_fields()
        self.box.currentIndexChanged.connect(self._on_method_chosen)

    @property
    def method(self) -> type[AbstractMethod]:
        method: type[AbstractMethod] = self.box.value
        return method

    def choose(self, name: str) -> None:
        self.box.choose(next((one for one in self.box.values() if one.name == name), None))

    @property
    def prototypes_field(self) -> PrototypesChoice | None:
        arrays = [name for name, item in self._parameters.items() if item.kind == "array"]
        held = [self.fields[name] for name in arrays if self._holds(name)]
        return held[0].control if held else None  # type: ignore[attr-defined]

    def read(self) -> AbstractMethod:
        return build(self.method, self.values())

    def values(self) -> dict[str, object]:
        values = {name: field.value for name, field in self.fields.items() if self._holds(name)}
        if self.prototypes_field is not None and self.prototypes_field.labels is not None:
            values["prototype_labels"] = self.prototypes_field.labels
        return values

    def set_values(self, values: dict[str, object]) -> None:
        """Show values by dotted name; choices first, since others depend on them."""
        for name in sorted(self.fields, key=lambda name: self._parameters[name].kind != "choice"):
            if name in values and self._holds(name):
                self.fields[name].value = values[name]

    def plain_values(self) -> dict[str, Any]:
        """Return the method and its parameters as values for JSON; one that is wrong hides all."""
        found: dict[str, Any] = {"method": self.method.name}
        with suppress(SafError):
            known = self.values().items()
            found["parameters"] = {name: value for name, value in known if isinstance(value, Plain)}
        return found

    def show_plain_values(self, values: Mapping[str, Any]) -> None:
        """Show what `plain_values` returned, as far as there is a field for it."""
        parameters = values.get("parameters")
        if isinstance(values.get("method"), str):
            self.choose(values["method"])
            for name, value in parameters.items() if isinstance(parameters, dict) else ():
                with suppress(TypeError, ValueError, ArithmeticError):  # of another version
                    self.set_values({name: value})

    def set_has_seeds(self, has_seeds: bool) -> None:
        self._has_seeds = has_seeds
        self._update_rows()

    def _create_fields(self) -> None:
        """Show the fields of the chosen method, at its defaults, in place of those there are."""
        self.box.setToolTip(described(self.method))
        for section in (self.basic, self.advanced):
            for choice in section.findChildren(LayerChoice):
                choice.disconnect_viewer()
            section.clear()
        self._parameters = {
            parameter.name: parameter
            for parameter in describe(self.method)
            if parameter.in_form
            and (self._asks_prototypes or parameter.kind != "array")
            and (self._asks_start or not parameter.at_start)
        }
        self.fields = {
            name: create_field(parameter, self._viewer)
            for name, parameter in self._parameters.items()
        }
        for name, field in self.fields.items():
            parameter = self._parameters[name]
            section = self.advanced if parameter.advanced else self.basic
            section.add_row(parameter.label, field, parameter.help)
            field.changed.connect(self._on_field_changed)
        self.set_values({"device": current_settings().device})
        self._update_rows()

    def _holds(self, name: str) -> bool:
        """Return whether a parameter exists under the present choices."""
        parameter = self._parameters[name]
        if parameter.for_seeds and not self._has_seeds:
            return False
        if parameter.depends_on is None:
            return True
        choice, wanted = parameter.depends_on
        return choice in self.fields and self.fields[choice].value in wanted

    def _on_method_chosen(self) -> None:
        with signals_blocked(self):
            self._create_fields()
        self.method_changed.emit()
        self.changed.emit()

    def _on_field_changed(self) -> None:
        self._update_rows()
        self.changed.emit()

    def _update_rows(self) -> None:
        for name, field in self.fields.items():
            section = self.advanced if self._parameters[name].advanced else self.basic
            section.show_row(field, self._holds(name))


def _entries(methods: Iterable[type[AbstractMethod]], for_strokes: bool) -> Entries:
    """Return the entries of a choice of methods, those with a caution last, under its heading."""
    groups: dict[str, list[tuple[str, object]]] = {"": []}
    for method in methods:
        caution = method.caution if for_strokes or method().follows_seeds else None
        heading = "" if caution is None else caution.heading
        groups.setdefault(heading, []).append((method.title, method))
    entries = groups.pop("")
    for heading, own in groups.items():
        # A choice does not begin with a heading.
        entries += [(f"— {heading} —", HEADING), *own] if entries else own
    return entries


def described(method: type[AbstractMethod]) -> str:
    """Return a sentence of what a method does, and another where it is not for strokes."""
    return method.summary if method.caution is None else f"{method.summary} {method.caution.reason}"


def create_field(parameter: Parameter, viewer: napari.Viewer) -> BaseValueWidget[Any]:
    default, name, kind = parameter.default, parameter.name, parameter.kind
    if parameter.files:
        return _QtField(_FileLine(parameter), default, name)
    if kind == "text" or parameter.hint is str:
        return _QtField(_TextBox(parameter), default, name)
    if kind in ("bool", "choice"):
        options: dict[str, Any] = {"text": " "}
        if kind == "choice":
            options = {"choices": choice_entries(parameter), "nullable": parameter.optional}
        widget_type = "CheckBox" if kind == "bool" else "ComboBox"
        return create_widget(default, name=name, widget_type=widget_type, options=options)  # type: ignore[return-value]
    control: QWidget
    if kind == "array":
        control = PrototypesChoice(viewer)
    elif kind == "list":
        control = _NumbersLine(parameter)
    elif kind == "float" and parameter.ends is not None:
        control = _SliderWithEnds(parameter)
    else:
        control = _NumberBox(parameter)
    return _QtField(control, default, name)


class _QtField(ValuedContainerWidget[Any]):
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
        return self.control.read()

    def set_value(self, value: object) -> None:
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
        if self._is_whole:
            return str(super().textFromValue(value))
        return str(self.locale().toString(value, "g", _DECIMALS))


class _NumbersLine(QLineEdit):
    edited = Signal()

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        self._label = parameter.label
        self.setPlaceholderText(parameter.none)
        self.editingFinished.connect(self.edited)

    def read(self) -> NDArray[np.float64] | None:
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


class _TextBox(QComboBox):
    """A text, some of which are offered."""

    edited = Signal()

    def __init__(self, parameter: Parameter) -> None:
        super().__init__()
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.addItems(parameter.choices)
        self.currentTextChanged.connect(self.edited)

    def read(self) -> str:
        return str(self.currentText()).strip()

    def show_value(self, value: str) -> None:
        self.setCurrentText(value)
        self.lineEdit().setCursorPosition(0)


class _FileLine(FolderField):
    edited = Signal()

    def __init__(self, parameter: Parameter) -> None:
        super().__init__(parameter.help, files=f"{parameter.label} ({parameter.files})")
        self.changed.connect(self.edited)

    def read(self) -> str:
        return "" if self.path is None else str(self.path)

    def show_value(self, value: str) -> None:
        self.set_text(value)


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
    edited = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__(viewer, Labels, is_result, none="choose a result")
        self.layer_changed.connect(self.edited)

    def read(self) -> NDArray[np.floating] | None:
        points = {} if self.layer is None else points_of(self.layer)
        return np.concatenate(list(points.values())) if points else None

    def show_value(self, value: object) -> None:
        """Choose nothing: the layer of an array is unknown."""
        if value is None:
            self.choose(None)

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The label of each prototype, None if they are 1, 2, ..."""
        points = {} if self.layer is None else points_of(self.layer)
        labels = np.repeat(list(points), [len(own) for own in points.values()])
        return None if np.array_equal(labels, np.arange(1, len(labels) + 1)) else labels

    @property
    def image_options(self) -> dict[str, Any]:
        """The options of the image in the recipe of the chosen result, if it has some."""
        recipe = {} if self.layer is None else self.layer.metadata[METADATA_KEY]["recipe"]
        return recipe.get("input") or {}
