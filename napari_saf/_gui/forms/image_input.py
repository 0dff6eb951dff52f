"""Form of the input: image, region, scale, features, mask."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import napari
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.forms.choices import Choice, LayerChoice, Plain
from napari_saf._gui.forms.fields import create_field
from napari_saf._gui.forms.image_selection import FEATURE_LABELS, OPTIONS, ImageSelection
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.method_form import OptionsForm
from napari_saf._gui.layers import placement
from napari_saf._gui.layers.metadata import is_given
from napari_saf.features import FEATURES, extractor_of
from napari_saf.input import AUTO, GIVEN_FEATURES
from napari_saf.parameters import describe
from napari_saf.problem import ImageOptions

DEFAULT_OPTIONS = ImageOptions()
_MOST_SCALE = 1000
_FIELDS = ("window", "weights", "max_side", "full_resolution")
"""Options whose fields are generated; the scale is laid out by the owner."""
_HELP = {
    "image": "The image layer to label.",
    "channels": "The axis that holds channels, not space; named as its slider is.",
    "extent": "What to label of a stack: the slice on screen; every slice by itself, with the same "
    "labels in all; every volume of a series likewise; or all as one volume.",
    "strokes": "A Labels layer in which some pixels were painted 1, 2, ...: their labels are kept, "
    "and all other pixels follow.",
    "groups": "What each label should be spread over: slices, bright and dark pixels of a channel, "
    "or the regions of a Labels layer (V).",
    "features": "What describes a pixel: computed here, or the channels of another image layer of "
    "the same size.",
    "mask": "Label only where this layer is not 0.",
}
_LABELS = {"channels": "Channel axis", "extent": "Slices", "features": "Kind"}
_IMAGE_ROWS = ("image", "channels", "extent", "strokes", "groups")


class ImageInput(QObject):
    """Controls of the image input: two sections and a scale, to be laid out by the owner.

    The fields begin with the options `start`; `strokes` is the text for no strokes. The `choices`
    are of the image and its axes, of layers, and the generated fields of options.
    """

    image_changed = Signal()
    axes_changed = Signal()
    options_changed = Signal()
    strokes_changed = Signal()

    def __init__(
        self, viewer: napari.Viewer, start: ImageOptions | None = None, *, strokes: str = "none"
    ) -> None:
        super().__init__()
        self._viewer, self.start = viewer, start or DEFAULT_OPTIONS
        self._selection: ImageSelection | None = None
        self.choices: dict[str, Any] = {
            "image": LayerChoice(viewer, Image),
            "channels": Choice(),
            "extent": Choice(),
            "strokes": LayerChoice(viewer, Labels, is_given, none=strokes),
            "groups": LayerChoice(viewer, Labels, none="none"),
        }
        self.choices["features"] = LayerChoice(viewer, Image, self._may_be_features)
        self.choices |= {name: self._create_field(name) for name in _FIELDS}
        self.choices["mask"] = LayerChoice(viewer, Labels, none="none")
        self.scale = self.choices["window"].control
        self.section, self.features = FormSection(), FormSection()
        for name, choice in self.choices.items():
            if name in _HELP:
                label, help = _LABELS.get(name, name.capitalize()), _HELP[name]
            else:
                label, help = OPTIONS[name].label, OPTIONS[name].help
            if name != "window":
                self._section_of(name).add_row(label, choice, help)
            if name == "features":
                self.extractors = self._create_extractors()
        self.show_row("groups", False)
        self._connect()
        self._on_image_changed()
        self.choose(features=self.start.features)

    def _create_field(self, name: str) -> Any:
        """Create the field of an option; "automatic" is offered where the scale starts as such."""
        item, words = OPTIONS[name], OPTIONS[name].choices
        if self.start.window != AUTO:
            words = tuple(word for word in words if word != AUTO)
        start = getattr(self.start, name)
        return create_field(dataclasses.replace(item, choices=words, default=start), self._viewer)

    def _create_extractors(self) -> dict[str, OptionsForm]:
        """Create the rows of what features ask for, such as a file of weights."""
        forms = {}
        for name, extractor in FEATURES.items():
            parameters = [item for item in describe(extractor) if item.in_form]
            if parameters:
                forms[name] = form = OptionsForm(self._viewer, self.features, self.features)
                form.ask_for(extractor, parameters)
                form.show_rows(False)
                form.changed.connect(self._on_options_changed)
        return forms

    def _connect(self) -> None:
        choices = self.choices
        for name, choice in choices.items():
            choice.changed.connect(self._on_options_changed if name in _FIELDS else self._forget)
            if isinstance(choice, LayerChoice):
                choice.layer_changed.connect(self._forget)
        choices["image"].layer_changed.connect(self._on_image_changed)
        choices["image"].layer_changed.connect(self.image_changed)
        choices["channels"].changed.connect(self._on_channels_changed)
        choices["extent"].changed.connect(self.read_axes)
        choices["features"].changed.connect(self._on_features_chosen)
        choices["strokes"].layer_changed.connect(self.strokes_changed)
        self.axes_changed.connect(self.options_changed)

    @property
    def image(self) -> Any:
        return self.choices["image"].value

    @property
    def strokes(self) -> Any:
        return self.choices["strokes"].value

    def pixels(self) -> ImageSelection:
        """Return which pixels and strokes are chosen, without options."""
        values = {name: self.choices[name].value for name in ("image", "extent", "strokes")}
        axis = self.choices["channels"].value
        return ImageSelection(viewer=self._viewer, channel_axis=axis, **values)

    def read(self) -> ImageSelection:
        """Return what the controls say; InvalidInput if they do not fit together."""
        if self._selection is None:
            values = {name: choice.value for name, choice in self.choices.items()}
            groups = values["groups"] if self.section.is_shown(self.choices["groups"]) else None
            features, is_layer = values["features"], isinstance(values["features"], Layer)
            if features in self.extractors:
                features = self.extractors[features].read()
            options = ImageOptions(
                features=GIVEN_FEATURES if is_layer else features,
                groups=None if isinstance(groups, Layer) else groups,
                **{name: values[name] for name in _FIELDS},
            )
            self._selection = dataclasses.replace(
                self.pixels(),
                options=options,
                features=features if is_layer else None,
                mask=values["mask"],
                groups=groups if isinstance(groups, Layer) else None,
            )
        return self._selection

    def choose(self, **values: Any) -> None:
        """Choose values by name; what is not offered is not chosen."""
        for name, value in values.items():
            extractor = extractor_of(value) if name == "features" else None
            if extractor is not None:
                value = extractor.name
                if value in self.extractors:
                    self.extractors[value].show(extractor)
                self._on_options_changed()
            if name in _FIELDS:
                with suppress(TypeError, ValueError):
                    self.choices[name].value = value
            else:
                self.choices[name].choose(value)

    def plain_values(self) -> dict[str, Any]:
        """Return scale and choices as values for JSON, but for layers."""
        values = {name: choice.value for name, choice in self.choices.items() if name != "window"}
        plain = {name: value for name, value in values.items() if isinstance(value, Plain)}
        return {"scale": self.scale.value, "choices": plain}

    def show_plain_values(self, values: Mapping[str, Any]) -> None:
        """Show what `plain_values` returned, as far as it is offered."""
        scale, choices = values.get("scale"), values.get("choices")
        if scale is None or (type(scale) is int and 0 < scale < _MOST_SCALE):
            self.scale.set_value(scale)
        stored = choices.items() if isinstance(choices, dict) else ()
        self.choose(**{n: x for n, x in stored if n in self.choices and isinstance(x, Plain)})

    def show_row(self, name: str, visible: bool) -> None:
        """Show or hide a choice; groups that are hidden do not count."""
        self._section_of(name).show_row(self.choices[name], visible)
        self._forget()

    def read_axes(self, event: object = None) -> None:
        """Offer as groups what the image defines; the first, unless others were chosen."""
        if self.image is not None:
            groups = self.choices["groups"]
            is_first = groups.currentIndex() <= 0
            groups.set_others(self.pixels().group_sources())
            if is_first:
                groups.setCurrentIndex(0)
        self._forget()
        self.axes_changed.emit()

    def _section_of(self, name: str) -> FormSection:
        return self.section if name in _IMAGE_ROWS else self.features

    def _forget(self, *change: object) -> None:
        self._selection = None

    def _on_options_changed(self, *change: object) -> None:
        self._forget()
        self.options_changed.emit()

    def _on_features_chosen(self) -> None:
        for name, form in self.extractors.items():
            form.show_rows(name == self.choices["features"].value)
        self._on_options_changed()

    def _on_image_changed(self) -> None:
        axes = placement.channel_axes(self.image)
        # An axis of the same name with as many channels holds channels again.
        self.choices["channels"].offer([("none", None), *axes])
        self.show_row("channels", bool(axes))
        self._on_channels_changed()

    def _on_channels_changed(self) -> None:
        pixels, extent = self.pixels(), self.choices["extent"]
        extent.offer(pixels.extents)
        self.section.rename_row(extent, f"{pixels.slice_word.capitalize()}s")
        self.show_row("extent", len(pixels.axes) > 2)
        automatic = [AUTO] * (self.start.window == AUTO)
        names = [*automatic, *pixels.feature_names]
        self.choices["features"].set_others([(FEATURE_LABELS[name], name) for name in names])
        self.read_axes()

    def _may_be_features(self, layer: Layer) -> bool:
        """Return whether a layer has the pixels of the image and an axis more."""
        if self.image is None or layer == self.image:
            return False
        return self.pixels().region().over_features(layer) is not None
