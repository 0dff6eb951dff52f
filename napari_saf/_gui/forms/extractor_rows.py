"""Rows for what features ask for, such as a file of weights, beside the choice of features."""

from __future__ import annotations

from typing import Any

import napari
from magicgui.widgets.bases import BaseValueWidget
from qtpy.QtCore import QObject, Signal
from superqt.utils import signals_blocked

from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.method_form import create_field
from napari_saf.features import FEATURES, FeatureExtractor
from napari_saf.parameters import describe


class ExtractorRows(QObject):
    """The parameters of all extractors as rows of a section; those of the chosen one are shown."""

    changed = Signal()

    def __init__(self, viewer: napari.Viewer, section: FormSection) -> None:
        super().__init__()
        self._section = section
        self.fields: dict[str, dict[str, BaseValueWidget[Any]]] = {}
        self._given: dict[str, FeatureExtractor] = {}
        for name, cls in FEATURES.items():
            asked = [item for item in describe(cls) if item.in_form]
            self.fields[name] = {item.name: create_field(item, viewer) for item in asked}
            for item in asked:
                field = self.fields[name][item.name]
                section.add_row(item.label, field, item.help)
                field.changed.connect(lambda *value: self.changed.emit())
        self.show("")

    def show(self, chosen: object) -> None:
        """Show the rows of one extractor, by its name."""
        for name, fields in self.fields.items():
            for field in fields.values():
                self._section.show_row(field, name == chosen)

    def read(self, chosen: str) -> str | FeatureExtractor:
        """Return the extractor of a name as the rows say; the name, where there are none.

        One that was given comes back with what it learned, as long as the rows say the same.
        """
        fields, given = self.fields.get(chosen), self._given.get(chosen)
        if not fields:
            return chosen
        made = FEATURES[chosen](**{name: field.value for name, field in fields.items()})
        is_same = all(getattr(made, name) == getattr(given, name, None) for name in fields)
        return given if given is not None and is_same else made

    def set_values(self, extractor: FeatureExtractor) -> None:
        """Show the parameters of an extractor."""
        self._given[extractor.name] = extractor
        with signals_blocked(self):
            for name, field in self.fields[extractor.name].items():
                field.value = getattr(extractor, name)
        self.changed.emit()
