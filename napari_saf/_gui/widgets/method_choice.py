"""A combobox of methods and the form of the chosen one."""

from __future__ import annotations

from collections.abc import Iterable

import napari
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QComboBox, QSizePolicy, QVBoxLayout, QWidget

from napari_saf._gui.widgets.form import MethodForm
from napari_saf.methods import AbstractMethod

__all__ = ["MethodChoice"]


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
