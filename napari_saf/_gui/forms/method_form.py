"""The form of a method, made from its dataclass, and the choice of a method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import napari
from magicgui.widgets.bases import ValueWidget
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QComboBox, QSizePolicy
from superqt.utils import signals_blocked

from napari_saf._gui.forms.fields import PrototypesChoice, create_field
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.settings import current_settings
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import Parameter, build, describe


class MethodForm(QObject):
    """Fields for the parameters of a method, in two sections.

    They begin with the defaults of the method, and with the device of the settings.

    Parameters
    ----------
    asks_prototypes : bool
        Whether prototypes of an earlier result may be chosen.
    has_seeds : bool
        Whether pixels come with strokes: without, what acts on them alone is not asked for.
    asks_start : bool
        Whether to ask for what counts only where no assignment to start from is given.

    Attributes
    ----------
    basic, advanced : FormSection
        To be laid out by the owner.
    """

    changed = Signal()

    def __init__(
        self,
        method: type[AbstractMethod],
        viewer: napari.Viewer,
        *,
        asks_prototypes: bool = True,
        has_seeds: bool = True,
        asks_start: bool = True,
    ) -> None:
        super().__init__()
        self._viewer, self._has_seeds = viewer, has_seeds
        self._asks_prototypes, self._asks_start = asks_prototypes, asks_start
        self.basic, self.advanced = FormSection(), FormSection()
        self._fields: dict[str, ValueWidget[Any]] = {}
        self._parameters: dict[str, Parameter] = {}
        self.show_method(method)

    def show_method(self, method: type[AbstractMethod]) -> None:
        """Show the fields of a method, at its defaults, in place of those there are."""
        self.release()
        self.method = method
        self.basic.clear()
        self.advanced.clear()
        self._fields.clear()
        self._parameters = {p.name: p for p in describe(method) if self._is_asked(p)}
        for name, parameter in self._parameters.items():
            field = self._fields[name] = create_field(parameter, self._viewer)
            self._section(name).add_row(parameter.label, field, parameter.help)
            field.changed.connect(self._on_field_changed)
        self.set_values({"device": current_settings().device})
        self._show_what_holds()

    @property
    def prototypes_field(self) -> PrototypesChoice | None:
        """The choice of prototypes of an earlier result, if there is one."""
        controls = (self._fields[name].native for name in self._names())
        return next((one for one in controls if isinstance(one, PrototypesChoice)), None)

    def field(self, name: str) -> ValueWidget[Any]:
        """Return the field of a parameter."""
        return self._fields[name]

    def read(self) -> AbstractMethod:
        """Return the method that the form describes.

        Raises
        ------
        InvalidInput
            If a value is out of bounds.
        """
        return build(self.method, self.values())

    def values(self) -> dict[str, object]:
        """Return the value of every parameter that exists under the present choices."""
        values = {name: self._fields[name].value for name in self._names()}
        if self.prototypes_field is not None and self.prototypes_field.labels is not None:
            values["prototype_labels"] = self.prototypes_field.labels
        return values

    def set_values(self, values: dict[str, object]) -> None:
        """Show values by dotted name; choices first, since others depend on them."""
        for name in sorted(self._fields, key=lambda name: self._parameters[name].kind != "choice"):
            if name in values and self._holds(name):
                self._fields[name].value = values[name]

    def set_has_seeds(self, has_seeds: bool) -> None:
        """Ask for what acts on strokes alone, or do not."""
        if has_seeds != self._has_seeds:
            self._has_seeds = has_seeds
            self._show_what_holds()

    def visible_names(self) -> list[str]:
        """Return the names of the parameters that are asked for, basic ones first."""
        return [*self.basic.shown_names(), *self.advanced.shown_names()]

    def release(self) -> None:
        """Let go of the viewer."""
        for field in self._fields.values():
            if isinstance(field.native, PrototypesChoice):
                field.native.disconnect_viewer()

    def _is_asked(self, parameter: Parameter) -> bool:
        return (
            parameter.in_form
            and (self._asks_prototypes or parameter.kind != "array")
            and (self._asks_start or not parameter.at_start)
        )

    def _section(self, name: str) -> FormSection:
        return self.advanced if self._parameters[name].advanced else self.basic

    def _names(self) -> list[str]:
        return [name for name in self._parameters if self._holds(name)]

    def _holds(self, name: str) -> bool:
        """Return whether a parameter exists under the present choices."""
        parameter = self._parameters[name]
        if parameter.for_seeds and not self._has_seeds:
            return False
        if parameter.depends_on is None:
            return True
        choice, wanted = parameter.depends_on
        return choice in self._fields and self._fields[choice].value in wanted

    def _on_field_changed(self) -> None:
        self._show_what_holds()
        self.changed.emit()

    def _show_what_holds(self) -> None:
        for name, field in self._fields.items():
            self._section(name).show_row(field, self._holds(name))


class MethodChoice(QObject):
    """Methods to choose from; the form changes with the choice.

    Parameters
    ----------
    methods : iterable of type
        What is offered.
    asks_prototypes, has_seeds : bool
        See `MethodForm`.

    Attributes
    ----------
    form : MethodForm
        Of the chosen method.
    basic, advanced : FormSection
        Its sections, to be laid out by the owner.
    """

    method_changed = Signal()
    form_changed = Signal()

    def __init__(
        self,
        viewer: napari.Viewer,
        methods: Iterable[type[AbstractMethod]],
        *,
        asks_prototypes: bool = True,
        has_seeds: bool = True,
    ) -> None:
        super().__init__()
        self._methods = {method.name: method for method in methods}
        self.box = QComboBox()
        self.box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        for name, method in self._methods.items():
            self.box.addItem(method.title, name)
        first = next(iter(self._methods.values()))
        self.form = MethodForm(first, viewer, asks_prototypes=asks_prototypes, has_seeds=has_seeds)
        self.basic, self.advanced = self.form.basic, self.form.advanced
        self.box.setToolTip(first.title)
        self.box.currentIndexChanged.connect(self._on_method_changed)
        self.form.changed.connect(self.form_changed)

    def choose(self, name: str) -> None:
        self.box.setCurrentIndex(self.box.findData(name))

    def set_has_seeds(self, has_seeds: bool) -> None:
        """Show or hide the parameters that act on strokes alone, for all methods."""
        self.form.set_has_seeds(has_seeds)

    def release(self) -> None:
        """Let go of the viewer."""
        self.form.release()

    def _on_method_changed(self) -> None:
        method = self._methods[self.box.currentData()]
        self.box.setToolTip(method.title)
        with signals_blocked(self.form):
            self.form.show_method(method)
        self.method_changed.emit()
        self.form_changed.emit()
