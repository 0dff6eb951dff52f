"""The form of a method, made from its dataclass, and the choice of a method."""

from __future__ import annotations

from collections.abc import Iterable

import napari
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QComboBox, QSizePolicy, QVBoxLayout, QWidget

from napari_saf._gui.forms.fields import Field, PrototypesField, create_field
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.settings import current_settings
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import Parameter, build, describe

__all__ = ["MethodChoice", "MethodForm"]


class MethodForm(QObject):
    """Fields for the parameters of a method, in two sections.

    They begin with the defaults of the method, and with the device of the settings.

    Parameters
    ----------
    method : type
    viewer : napari.Viewer
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
        self.method = method
        self._has_seeds = has_seeds
        self.basic, self.advanced = FormSection(), FormSection()
        self._rows: list[tuple[Parameter, Field, FormSection]] = []
        for parameter in describe(method):
            if not parameter.in_form or (parameter.kind == "array" and not asks_prototypes):
                continue
            if parameter.at_start and not asks_start:
                continue
            field = create_field(parameter, viewer)
            section = self.advanced if parameter.advanced else self.basic
            section.add_row(parameter.label, field, parameter.help)
            self._rows.append((parameter, field, section))
            field.changed.connect(self._on_field_changed)
        self.set_values({"device": current_settings().device})
        self._show_what_holds()

    @property
    def prototypes_field(self) -> PrototypesField | None:
        """The field that takes prototypes from an earlier result, if there is one."""
        fields = (field for p, field, _ in self._rows if self._holds(p))
        return next((field for field in fields if isinstance(field, PrototypesField)), None)

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
        values = {p.name: field.value for p, field, _ in self._rows if self._holds(p)}
        if self.prototypes_field is not None and self.prototypes_field.labels is not None:
            values["prototype_labels"] = self.prototypes_field.labels
        return values

    def set_values(self, values: dict[str, object]) -> None:
        """Show values by dotted name; choices first, since others depend on them."""
        for parameter, field, _ in sorted(self._rows, key=lambda row: row[0].kind != "choice"):
            if parameter.name in values and self._holds(parameter):
                field.set_value(values[parameter.name])

    def set_has_seeds(self, has_seeds: bool) -> None:
        """Ask for what acts on strokes alone, or do not."""
        if has_seeds != self._has_seeds:
            self._has_seeds = has_seeds
            self._show_what_holds()

    def visible_names(self) -> list[str]:
        """Return the names of the fields that are not hidden, once for each."""
        return [p.name for p, field, section in self._rows if section.is_shown(field)]

    def release(self) -> None:
        """Let go of the viewer."""
        for _, field, _ in self._rows:
            field.release()

    def _holds(self, parameter: Parameter) -> bool:
        if parameter.for_seeds and not self._has_seeds:
            return False
        if parameter.depends_on is None:
            return True
        name, wanted = parameter.depends_on
        return any(p.name == name and field.value in wanted for p, field, _ in self._rows)

    def _on_field_changed(self) -> None:
        self._show_what_holds()
        self.changed.emit()

    def _show_what_holds(self) -> None:
        for parameter, field, section in self._rows:
            section.show_row(field, self._holds(parameter))


class MethodChoice(QObject):
    """Methods to choose from; the form changes with the choice.

    Parameters
    ----------
    viewer : napari.Viewer
    methods : iterable of type
        What is offered.
    asks_prototypes : bool
        Whether prototypes of an earlier result may be chosen.
    has_seeds : bool
        Whether there are strokes: see `MethodForm`.

    Attributes
    ----------
    box : QComboBox
    basic, advanced : QWidget
        Where the form shows its two sections; to be laid out by the owner.
    form : MethodForm
        Of the chosen method.
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
        self._viewer = viewer
        self._asks_prototypes = asks_prototypes
        self._has_seeds = has_seeds
        self._methods = {method.name: method for method in methods}
        self.box = QComboBox()
        self.box.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        for name, method in self._methods.items():
            self.box.addItem(method.title, name)
        self.basic, self.advanced = _create_place(), _create_place()
        self.form = self._create_form()
        self.box.currentIndexChanged.connect(self._on_method_changed)

    def choose(self, name: str) -> None:
        """Choose a method by its name."""
        self.box.setCurrentIndex(self.box.findData(name))

    def set_has_seeds(self, has_seeds: bool) -> None:
        """Ask for what acts on strokes alone, or do not, whatever the method."""
        self._has_seeds = has_seeds
        self.form.set_has_seeds(has_seeds)

    def release(self) -> None:
        """Let go of the viewer."""
        self.form.release()

    def _create_form(self) -> MethodForm:
        method = self._methods[self.box.currentData()]
        form = MethodForm(
            method,
            self._viewer,
            asks_prototypes=self._asks_prototypes,
            has_seeds=self._has_seeds,
        )
        self.basic.layout().addWidget(form.basic)
        self.advanced.layout().addWidget(form.advanced)
        form.changed.connect(self.form_changed)
        self.box.setToolTip(method.title)
        return form

    def _on_method_changed(self) -> None:
        self.form.release()
        for place, section in ((self.basic, self.form.basic), (self.advanced, self.form.advanced)):
            place.layout().removeWidget(section)
            section.hide()
            section.deleteLater()
        self.form = self._create_form()
        self.method_changed.emit()
        self.form_changed.emit()


def _create_place() -> QWidget:
    place = QWidget()
    layout = QVBoxLayout(place)
    layout.setContentsMargins(0, 0, 0, 0)
    return place
