"""Forms of options and methods, generated from their described dataclasses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import napari
from magicgui.widgets.bases import BaseValueWidget
from qtpy.QtCore import QObject, Signal
from superqt.utils import signals_blocked

from napari_saf._gui.forms.choices import HEADING, Choice, Entries, Plain, PlainValues
from napari_saf._gui.forms.fields import PrototypesChoice, create_field
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.settings import current_settings
from napari_saf.errors import SafError
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import Parameter, build, describe


class OptionsForm(QObject):
    """Fields for the parameters of a dataclass, in rows shown only while they have an effect.

    Rows are in two sections, `basic` and `advanced`, laid out by the caller. Values are cached
    until a field changes.
    """

    changed = Signal()

    def __init__(self, viewer: napari.Viewer, basic: FormSection, advanced: FormSection) -> None:
        super().__init__()
        self._viewer, self.basic, self.advanced = viewer, basic, advanced
        self.fields: dict[str, BaseValueWidget[Any]] = {}
        self._parameters: dict[str, Parameter] = {}
        self._type: type = object
        self._has_seeds = self._is_shown = True
        self._values: dict[str, object] | None = None
        self._options: Any = None  # or their validation error

    def ask_for(self, options_type: type, parameters: Iterable[Parameter]) -> None:
        """Add fields for some parameters of a dataclass, with their defaults."""
        self._type, self._parameters = options_type, {item.name: item for item in parameters}
        self.fields = {}
        for name, parameter in self._parameters.items():
            self.fields[name] = field = create_field(parameter, self._viewer)
            self._section_of(name).add_row(parameter.label, field, parameter.help)
            field.changed.connect(self._on_field_changed)
        self._update()

    def read(self) -> Any:
        """Return the dataclass with the values of the fields; raise SafError if invalid."""
        # Prototypes of a layer may change without a signal.
        if self._options is None or self.prototypes_field is not None:
            try:
                self._options = build(self._type, self.values())
            except SafError as error:
                self._options = error
        if isinstance(self._options, SafError):
            raise self._options
        return self._options

    def values(self) -> dict[str, object]:
        """Return values by dotted name; raise InvalidInput for text that cannot be parsed."""
        if self._values is None or self.prototypes_field is not None:
            counting = [name for name in self.fields if self._counts(name)]
            self._values = {name: self.fields[name].value for name in counting}
            field = self.prototypes_field
            if field is not None and field.labels is not None:
                self._values["prototype_labels"] = field.labels
        return dict(self._values)

    def set_values(self, values: Mapping[str, object]) -> None:
        """Show values by dotted name, choices first, since other fields depend on them."""
        for name in sorted(self.fields, key=lambda name: self._parameters[name].kind != "choice"):
            if name in values and self._counts(name):
                self.fields[name].value = values[name]

    @property
    def prototypes_field(self) -> PrototypesChoice | None:
        arrays = [name for name, item in self._parameters.items() if item.kind == "array"]
        fields = [self.fields[name] for name in arrays if self._counts(name)]
        return fields[0].control if fields else None  # type: ignore[attr-defined]

    def show(self, options: Any) -> None:
        """Show options; `read` returns the same object, with its fitted state, until a change."""
        with signals_blocked(self):
            self.set_values({name: getattr(options, name) for name in self.fields})
        self._options = options

    def show_rows(self, visible: bool) -> None:
        self._is_shown = visible
        self._update_rows()

    def set_has_seeds(self, has_seeds: bool) -> None:
        self._has_seeds = has_seeds
        self._update()

    def _counts(self, name: str) -> bool:
        """Return whether a parameter has an effect with the current choices."""
        parameter = self._parameters[name]
        if parameter.for_seeds and not self._has_seeds:
            return False
        if parameter.depends_on is None:
            return True
        choice, values = parameter.depends_on
        return choice in self.fields and self.fields[choice].value in values

    def _section_of(self, name: str) -> FormSection:
        return self.advanced if self._parameters[name].advanced else self.basic

    def _update(self) -> None:
        self._values = self._options = None
        self._update_rows()

    def _update_rows(self) -> None:
        for name, field in self.fields.items():
            self._section_of(name).show_row(field, self._is_shown and self._counts(name))

    def _on_field_changed(self) -> None:
        self._update()
        self.changed.emit()


class MethodForm(OptionsForm):
    """A choice of methods (`box`) and the fields of the chosen method.

    Fields are initialized with the defaults of the method and the device of the preferences; those
    of a method that was chosen before keep their values.
    `asks_prototypes`, `has_seeds` and `asks_start` include parameters for prototypes of an earlier
    result, for strokes, and for runs without an initial assignment. Methods with a caution come
    last, those that ignore strokes only in a form `for_strokes`.
    """

    method_changed = Signal()

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
        super().__init__(viewer, FormSection(), FormSection())
        self._has_seeds = has_seeds
        self._asks_prototypes, self._asks_start = asks_prototypes, asks_start
        self._previous: dict[type, dict[str, Plain]] = {}  # values by method
        self.box = Choice(_entries(methods, for_strokes))
        for method in self.box.values():
            self.box.explain(method, described(method))
        self._ask_for_method()
        self.box.currentIndexChanged.connect(self._on_method_chosen)

    @property
    def method(self) -> type[AbstractMethod]:
        method: type[AbstractMethod] = self.box.value
        return method

    def choose(self, name: str) -> None:
        self.box.choose(next((item for item in self.box.values() if item.name == name), None))

    def plain_values(self) -> PlainValues:
        """Return the method and its parameters as JSON values; only the first if one is wrong."""
        plain: PlainValues = {"method": self.method.name}
        with suppress(SafError):
            plain["parameters"] = self._plain_parameters()
        return plain

    def _plain_parameters(self) -> dict[str, Plain]:
        return {name: x for name, x in self.values().items() if isinstance(x, Plain)}

    def show_plain_values(self, values: Mapping[str, Any]) -> None:
        """Restore values returned by `plain_values`; those without a field are ignored."""
        parameters = values.get("parameters")
        if isinstance(values.get("method"), str):
            self.choose(values["method"])
            for name, value in parameters.items() if isinstance(parameters, dict) else ():
                with suppress(TypeError, ValueError, ArithmeticError):  # of another version
                    self.set_values({name: value})

    def _ask_for_method(self) -> None:
        """Replace the fields with those of the chosen method, with its defaults."""
        self.box.setToolTip(described(self.method))
        self.basic.clear()
        self.advanced.clear()
        parameters = [
            parameter
            for parameter in describe(self.method)
            if parameter.in_form
            and (self._asks_prototypes or parameter.kind != "array")
            and (self._asks_start or not parameter.at_start)
        ]
        self.ask_for(self.method, parameters)
        self.set_values(
            {"device": current_settings().device, **self._previous.get(self.method, {})}
        )

    def _on_method_chosen(self) -> None:
        with suppress(SafError):
            self._previous[self._type] = self._plain_parameters()
        with signals_blocked(self):
            self._ask_for_method()
        self.method_changed.emit()
        self.changed.emit()


def _entries(methods: Iterable[type[AbstractMethod]], for_strokes: bool) -> Entries:
    """Return the entries of a choice of methods, those with a caution last, below a heading."""
    groups: dict[str, list[tuple[str, object]]] = {"": []}
    for method in methods:
        caution = method.caution if for_strokes or method().follows_seeds else None
        heading = "" if caution is None else caution.heading
        groups.setdefault(heading, []).append((method.title, method))
    entries = groups.pop("")
    for heading, methods_below in groups.items():
        # The first entry must not be a heading.
        entries += [(f"— {heading} —", HEADING), *methods_below] if entries else methods_below
    return entries


def described(method: type[AbstractMethod]) -> str:
    """Return the summary of a method and the reason for its caution, if any."""
    return method.summary if method.caution is None else f"{method.summary} {method.caution.reason}"
