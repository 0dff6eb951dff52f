"""The form of a method, made from its dataclass, and the choice of a method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import napari
from magicgui.widgets.bases import BaseValueWidget
from qtpy.QtCore import QObject, Signal
from superqt.utils import signals_blocked

from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.fields import PrototypesChoice, create_field
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.settings import current_settings
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import Parameter, build, describe


class MethodForm(QObject):
    """A choice of methods, and fields for the parameters of the chosen one, in two sections.

    The choice (`box`) and the sections (`basic`, `advanced`) are laid out by the owner. Fields
    begin with the defaults of the method, and with the device of the settings.

    Parameters
    ----------
    asks_prototypes : bool
        Whether prototypes of an earlier result may be chosen.
    has_seeds : bool
        Whether pixels come with strokes: without, what acts on them alone is not asked for.
    asks_start : bool
        Whether to ask for what counts only where no assignment to start from is given.
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
    ) -> None:
        super().__init__()
        self._viewer, self._has_seeds = viewer, has_seeds
        self._asks_prototypes, self._asks_start = asks_prototypes, asks_start
        self.box = Choice([(method.title, method) for method in methods])
        self.basic, self.advanced = FormSection(), FormSection()
        self._fields: dict[str, BaseValueWidget[Any]] = {}
        self._parameters: dict[str, Parameter] = {}
        self._create_fields()
        self.box.currentIndexChanged.connect(self._on_method_chosen)

    @property
    def method(self) -> type[AbstractMethod]:
        """The chosen method."""
        method: type[AbstractMethod] = self.box.value
        return method

    def choose(self, name: str) -> None:
        """Choose a method by its name."""
        self.box.choose(next((one for one in self.box.values() if one.name == name), None))

    @property
    def prototypes_field(self) -> PrototypesChoice | None:
        """The choice of prototypes of an earlier result, if there is one."""
        own = [control for name, control in self._prototypes_fields() if self._holds(name)]
        return own[0] if own else None

    def field(self, name: str) -> BaseValueWidget[Any]:
        """Return the field of a parameter."""
        return self._fields[name]

    def read(self) -> AbstractMethod:
        """Return the method that the form describes; InvalidInput if a value is out of bounds."""
        return build(self.method, self.values())

    def values(self) -> dict[str, object]:
        """Return the value of every parameter that exists under the present choices."""
        values = {name: field.value for name, field in self._fields.items() if self._holds(name)}
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
        self._has_seeds = has_seeds
        self._update_rows()

    def visible_names(self) -> list[str]:
        """Return the names of the parameters that are asked for, basic ones first."""
        sections = (self.basic, self.advanced)
        return [name for one in sections for name in self._fields if one.is_shown(self.field(name))]

    def release(self) -> None:
        """Let go of the viewer."""
        for _, control in self._prototypes_fields():
            control.disconnect_viewer()

    def _prototypes_fields(self) -> list[tuple[str, PrototypesChoice]]:
        found = [(name, getattr(field, "control", None)) for name, field in self._fields.items()]
        return [(name, control) for name, control in found if isinstance(control, PrototypesChoice)]

    def _create_fields(self) -> None:
        """Show the fields of the chosen method, at its defaults, in place of those there are."""
        self.release()
        self.box.setToolTip(self.method.title)
        for section in (self.basic, self.advanced):
            section.clear()
        self._fields.clear()
        self._parameters = {
            parameter.name: parameter
            for parameter in describe(self.method)
            if parameter.in_form
            and (self._asks_prototypes or parameter.kind != "array")
            and (self._asks_start or not parameter.at_start)
        }
        for name, parameter in self._parameters.items():
            field = self._fields[name] = create_field(parameter, self._viewer)
            self._section(name).add_row(parameter.label, field, parameter.help)
            field.changed.connect(self._on_field_changed)
        self.set_values({"device": current_settings().device})
        self._update_rows()

    def _section(self, name: str) -> FormSection:
        return self.advanced if self._parameters[name].advanced else self.basic

    def _holds(self, name: str) -> bool:
        """Return whether a parameter exists under the present choices."""
        parameter = self._parameters[name]
        if parameter.for_seeds and not self._has_seeds:
            return False
        if parameter.depends_on is None:
            return True
        choice, wanted = parameter.depends_on
        return choice in self._fields and self._fields[choice].value in wanted

    def _on_method_chosen(self) -> None:
        with signals_blocked(self):
            self._create_fields()
        self.method_changed.emit()
        self.changed.emit()

    def _on_field_changed(self) -> None:
        self._update_rows()
        self.changed.emit()

    def _update_rows(self) -> None:
        for name, field in self._fields.items():
            self._section(name).show_row(field, self._holds(name))
