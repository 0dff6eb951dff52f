"""Form of the input: image, region, scale, features, mask."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import napari
from magicgui.widgets.bases import BaseValueWidget
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QObject, Signal
from superqt.utils import signals_blocked

from napari_saf._gui.forms.choices import Choice, LayerChoice, Plain, SizeChoice
from napari_saf._gui.forms.controls import OddSlider
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.method_form import create_field
from napari_saf._gui.forms.words import choice_entries
from napari_saf._gui.layers import placement
from napari_saf._gui.layers.large import LargeRegion, narrowed
from napari_saf._gui.layers.metadata import is_given
from napari_saf._gui.layers.reading import ImageJob
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES, FeatureExtractor, Foreground, extractor_of
from napari_saf.input import AUTO
from napari_saf.parameters import describe
from napari_saf.problem import ImageOptions

DEFAULT_OPTIONS = ImageOptions()
_EXTENTS = (
    ("this slice", "slice"),
    ("each slice by itself", "each"),
    ("each volume by itself", "volumes"),
    ("as a volume", "volume"),
)
_TIMES = ("t", "time", "frame", "frames")
_MAX_SIDES = (240, 480, 960)
_MOST_SCALE = 1000
_CHOSEN = ("features", "weights", "max_side", "full_resolution")
_COLOURS = ("red", "green", "blue")
_OPTIONS = {option.name: option for option in describe(ImageOptions)}
FEATURE_LABELS = dict(_OPTIONS["features"].choice_labels)
_IMAGE_ROWS = {
    "image": ("Image", "The image layer to label."),
    "channels": (
        _OPTIONS["channel_axis"].label,
        "The axis that holds channels, not space; named as its slider is.",
    ),
    "extent": (
        "Slices",
        "What to label of a stack: the slice on screen; every slice by itself, with the same "
        "labels in all; every volume of a series likewise; or all as one volume.",
    ),
    "strokes": (
        "Strokes",
        "A Labels layer in which some pixels were painted 1, 2, ...: their labels are kept, and "
        "all other pixels follow.",
    ),
    "groups": (
        _OPTIONS["groups"].label,
        "What each label should be spread over: slices, bright and dark pixels of a channel, or "
        "the regions of a Labels layer (V).",
    ),
}
_FEATURE_ROWS = {
    "features": (
        "Kind",  # of features: the heading above says so
        "What describes a pixel: computed here, or the channels of another image layer of the same "
        "size.",
    ),
    "weights": (_OPTIONS["weights"].label, _OPTIONS["weights"].help),
    "max_side": (
        _OPTIONS["max_side"].label,
        f"{_OPTIONS['max_side'].help} Choose a longest side, or type one.",
    ),
    "full_resolution": ("Labels at", _OPTIONS["full_resolution"].help),
    "mask": ("Mask", "Label only where this layer is not 0."),
}


class ExtractorRows(QObject):
    """What features ask for, such as a file of weights, as rows; those of the chosen are shown."""

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
        self._given[extractor.name] = extractor
        with signals_blocked(self):
            for name, field in self.fields[extractor.name].items():
                field.value = getattr(extractor, name)
        self.changed.emit()


class ImageInput(QObject):
    """Controls of the image input: two sections and a scale, to be laid out by the owner.

    `options` are what to begin with, `strokes` the text for no strokes. The `choices` have the
    names of the rows above.
    """

    image_changed = Signal()
    axes_changed = Signal()
    options_changed = Signal()
    strokes_changed = Signal()

    def __init__(
        self, viewer: napari.Viewer, options: ImageOptions | None = None, *, strokes: str = "none"
    ) -> None:
        super().__init__()
        options = options or DEFAULT_OPTIONS
        assert not isinstance(options.window, tuple)
        self._viewer, self._begun = viewer, options
        self._may_be_chosen, self._has_own_groups = options.window == AUTO, False
        side = None if isinstance(options.window, str) else options.window
        self.scale = OddSlider(side, may_be_chosen=self._may_be_chosen)
        automatic = [("automatic", AUTO)] * self._may_be_chosen
        weights = [entry for entry in choice_entries(_OPTIONS["weights"]) if entry[1] != AUTO]
        self.choices: dict[str, Any] = {
            "image": LayerChoice(viewer, Image),
            "channels": Choice(),
            "extent": Choice(),
        }
        self.choices |= {
            "strokes": LayerChoice(viewer, Labels, is_given, none=strokes),
            "groups": LayerChoice(viewer, Labels, none="none"),
            "features": LayerChoice(viewer, Image, self._may_be_features),
            "weights": Choice([*automatic, *weights]),
            "max_side": SizeChoice([*automatic, (_OPTIONS["max_side"].none, None)], _MAX_SIDES),
            "full_resolution": Choice([("full resolution", True), ("computed size", False)]),
            "mask": LayerChoice(viewer, Labels, none="none"),
        }
        self.section, self.features = FormSection(), FormSection()
        for section, rows in ((self.section, _IMAGE_ROWS), (self.features, _FEATURE_ROWS)):
            for name, (label, help) in rows.items():
                section.add_row(label, self.choices[name], help)
                if name == "features":
                    self.extractor_rows = ExtractorRows(viewer, section)
        self.show_row("groups", False)
        image = self.choices["image"]
        self.choices["channels"].currentIndexChanged.connect(self._on_channels_changed)
        self.choices["extent"].currentIndexChanged.connect(self.read_axes)
        self.choices["groups"].activated.connect(self._on_groups_chosen)
        image.layer_changed.connect(self._on_image_changed)
        self._on_image_changed()
        self.choose(**{name: getattr(options, name) for name in _CHOSEN})
        image.layer_changed.connect(self.image_changed)
        for name in _CHOSEN:
            self.choices[name].currentIndexChanged.connect(self.options_changed)
        features = self.choices["features"]
        features.currentIndexChanged.connect(lambda: self.extractor_rows.show(features.value))
        self.extractor_rows.changed.connect(self.options_changed)
        self.axes_changed.connect(self.options_changed)
        self.scale.changed.connect(self.options_changed)
        self.choices["strokes"].layer_changed.connect(self.strokes_changed)

    @property
    def image(self) -> Any:
        return self.choices["image"].value

    @property
    def strokes(self) -> Any:
        return self.choices["strokes"].value if "strokes" in self.choices else None

    def choose(self, **values: object) -> None:
        for name, value in values.items():
            extractor = extractor_of(value) if name == "features" else None
            if extractor is not None:
                self.extractor_rows.set_values(extractor)
                value = extractor.name
            self.choices[name].choose(value)
        if "groups" in values:
            self._on_groups_chosen()

    def plain_values(self) -> dict[str, Any]:
        """Return scale and choices as values for JSON, but for layers."""
        choices = {name: box.value for name, box in self.choices.items()}
        choices = {name: value for name, value in choices.items() if isinstance(value, Plain)}
        return {"scale": self.scale.value, "choices": choices}

    def show_plain_values(self, values: Mapping[str, Any]) -> None:
        """Show what `plain_values` returned, as far as it is offered."""
        scale, choices = values.get("scale"), values.get("choices")
        if scale is None or (type(scale) is int and 0 < scale < _MOST_SCALE):
            self.scale.set_value(scale)
        known = choices.items() if isinstance(choices, dict) else ()
        self.choose(**{n: x for n, x in known if n in self.choices and isinstance(x, Plain)})

    def _on_groups_chosen(self, *index: object) -> None:
        self._has_own_groups = True

    def show_row(self, name: str, visible: bool) -> None:
        """Show or hide a choice; groups that are hidden do not count."""
        section = self.section if name in _IMAGE_ROWS else self.features
        section.show_row(self.choices[name], visible)

    def job(self, *, finite_only: bool = False, strokes: Labels | None = None) -> ImageJob:
        """Return what to read of the image that is chosen; InvalidInput if there is none.

        The strokes are those that are chosen, unless others are given.
        """
        values = {name: box.value for name, box in self.choices.items()}
        values["strokes"] = strokes = self.strokes if strokes is None else strokes
        region = narrowed(self._viewer, self._region(), strokes)
        if not self.section.is_shown(self.choices["groups"]):
            values["groups"] = None
        layers = {name: value for name, value in values.items() if isinstance(value, Layer)}
        read: dict[str, Any] = {}
        for name, choice in (("mask", "mask"), ("groups", "groups"), ("seeds", "strokes")):
            read[name] = region.over(layers.get(choice))
        found = region.over_features(layers["features"]) if "features" in layers else None
        if found is not None:
            read["features"], read["features_axis"] = found
        # What strokes teach in a part is for all of the image, at its full size.
        is_part = isinstance(region, LargeRegion) and strokes is not None
        max_side = None if is_part else values["max_side"]
        options = self._options(region, values | {"max_side": max_side})
        job = ImageJob(region.pixels, options, finite_only=finite_only, **read)
        return self._resolved(job, region)

    def whole_options(self) -> ImageOptions:
        """Return the options for all slices of the image."""
        values = {name: box.value for name, box in self.choices.items()}
        region = self.whole_region()
        options = self._options(region, values)
        return self._resolved(ImageJob(region.pixels, options), region).options

    def _resolved(self, job: ImageJob, region: placement.ImageRegion) -> ImageJob:
        """Return a job with a value for what is automatic, as its pixels ask for."""
        ground = job.ground() if job.options.features == AUTO else None
        given = [region.shape], len(self._channel_labels()), region.averaged_axes
        return dataclasses.replace(job, options=job.options.resolve(*given, ground=ground))

    def _options(self, region: placement.ImageRegion, values: dict[str, Any]) -> ImageOptions:
        side, features, groups = self.scale.value, values["features"], values["groups"]
        return ImageOptions(
            window="auto" if side is None else region.window(side)[0],
            channel_axis=region.channel_axis_read,
            features="array" if isinstance(features, Layer) else self.extractor_rows.read(features),
            weights=values["weights"],
            groups=None if isinstance(groups, Layer) else groups,
            max_side=values["max_side"],
            full_resolution=values["full_resolution"],
        )

    def scale_note(self) -> str:
        """Return where the window is smaller than the scale, as the image is, and by how much."""
        return "" if self.scale.value is None else self.region().window(self.scale.value)[1]

    def slice_note(self) -> str:
        """Return which slice or frame of a stack is labelled alone; empty where that is all."""
        fixed = self._region().fixed
        if not fixed:
            return ""
        shape, word = placement.pixels_of(self.image).shape, slice_word(self.image, min(fixed))
        names = {axis: slice_word(self.image, axis) for axis in fixed}
        at = [f"{names[axis]} {k + 1} of {shape[axis]}" for axis, k in fixed.items()]
        return f"{', '.join(at)} is labelled: {word.capitalize()}s labels all"

    def options_by_hand(self) -> list[str]:
        """Return in words what is not as the dock began with, and counts."""
        is_averaged = self.features.is_shown(self.choices["weights"])
        begun, scale = self._begun, self.scale.value
        words = [f"Scale {scale}"] * (is_averaged and (scale or AUTO) != begun.window)
        for name in _CHOSEN:
            box = self.choices[name]
            if box.value != getattr(begun, name) and (is_averaged or name != "weights"):
                edges = f"{_OPTIONS[name].label} " * (name == "weights")
                words.append(f"{edges}{box.currentText()}")
        return words

    def choice_note(self) -> str:
        """Return what is chosen for the image where that is "automatic", and counts."""
        is_averaged = self.features.is_shown(self.choices["weights"])
        left = [choice for choice in _CHOSEN if self.choices[choice].value == AUTO]
        left = [choice for choice in left if choice != "weights" or is_averaged]
        try:
            options = self.job().options
        except InvalidInput:
            return ""
        sides = options.window if isinstance(options.window, tuple) else (options.window,)
        size = "the full size" if options.max_side is None else f"{options.max_side} px a side"
        features = FEATURE_LABELS.get(options.features_name, "")
        if isinstance(options.extractor, Foreground):
            features = f"things on {options.extractor.ground_text}"
        texts = {
            "features": features,
            "weights": f"edges: {_OPTIONS['weights'].choice_labels[options.weights]}",
            "max_side": size,
        }
        scale = [f"scale {max(sides)}"] * (self.scale.value is None and is_averaged)
        return ", ".join([*(texts[name] for name in left), *scale])

    def region(self) -> placement.ImageRegion:
        return narrowed(self._viewer, self._region(), self.strokes)

    def place_for_strokes(self) -> tuple[placement.Placement, tuple[int, ...]]:
        """Return where new strokes lie, and their shape: over all slices, or what is on screen."""
        return narrowed(self._viewer, self._region()).whole()

    def whole_region(self) -> placement.ImageRegion:
        return self._region(is_whole=True)

    def _region(self, is_whole: bool = False) -> placement.ImageRegion:
        if self.image is None:
            raise InvalidInput(placement.NO_IMAGE)
        image, channels = self.image, self.choices["channels"].value
        whole = placement.ImageRegion(image, channels, {}, tuple(range(image.ndim)))
        extent = self.choices["extent"].value if len(whole.axes) > 2 else "volume"
        if extent == "volume":
            return whole
        if extent == "slice" and not is_whole:
            fixed = placement.slice_on_screen(self._viewer, image, whole.axes)
            return dataclasses.replace(whole, fixed=fixed)
        n_shown = 3 if extent == "volumes" else 2
        together = placement.plane_on_screen(self._viewer, image, whole.axes, n_shown)
        return dataclasses.replace(whole, together=together)

    def _on_image_changed(self) -> None:
        axes = placement.channel_axes(self.image)
        # An axis of the same name with as many channels holds channels again.
        self.choices["channels"].offer([("none", None), *axes])
        self.show_row("channels", bool(axes))
        self._on_channels_changed()

    def _on_channels_changed(self) -> None:
        axes = () if self.image is None else self._region().axes
        n_axes, word = len(axes), slice_word(self.image, axes[0]) if axes else "slice"
        extents = [(text.replace("slice", word), value) for text, value in _EXTENTS]
        extents = [entry for entry in extents if entry[1] != "volumes" or n_axes > 3]
        self.choices["extent"].offer(extents)
        self.section.rename_row(self.choices["extent"], f"{word.capitalize()}s")
        self.show_row("extent", n_axes > 2)
        n_channels = len(self._channel_labels())
        names = [AUTO] * self._may_be_chosen
        names += [name for name, one in FEATURES.items() if one.channels in (None, n_channels)]
        offered = [(FEATURE_LABELS[name], name) for name in names]
        self.choices["features"].set_others(offered)
        self.read_axes()

    def read_axes(self, event: object = None) -> None:
        """Offer as groups what the image defines: slices that are labelled together, channels.

        The first of them are the groups, unless others were chosen and are still offered.
        """
        if self.image is not None:
            entries: list[tuple[str, object]] = []
            axes = self._region().axes
            if len(axes) > 2 and self.choices["extent"].value != "slice":
                plane = placement.plane_on_screen(self._viewer, self.image, axes)
                entries = [
                    (f"slices ({axis_name(self.image, axis)})", f"axis:{number}")
                    for number, axis in enumerate(axes)
                    if axis not in plane
                ]
            for channel, label in enumerate(self._channel_labels()):
                entries.append((f"{label}: low and high", f"channel:{channel}"))
            groups = self.choices["groups"]
            before = groups.value
            groups.set_others(entries)
            self._has_own_groups &= groups.value == before
            if not self._has_own_groups:
                groups.setCurrentIndex(0)
        self.axes_changed.emit()

    def _channel_labels(self) -> Sequence[str]:
        axis = self.choices["channels"].value
        if self.image is None or axis is None:
            return _COLOURS if self.image is not None and self.image.rgb else ("brightness",)
        n_channels = placement.pixels_of(self.image).shape[axis]
        return [f"channel {k}" for k in range(n_channels)] if n_channels > 1 else ("brightness",)

    def _may_be_features(self, layer: Layer) -> bool:
        """Return whether a layer has the pixels of the image and an axis more."""
        if self.image is None or layer == self.image:
            return False
        return self.region().over_features(layer) is not None


def axis_name(layer: Layer, axis: int) -> str:
    """Return the name of an axis; axes without one are numbered from the last, -1."""
    name = str(layer.axis_labels[axis])
    return f"axis {name}" if name.lstrip("-").isdigit() else name


def slice_word(layer: Layer, axis: int) -> str:
    return "frame" if str(layer.axis_labels[axis]).lower() in _TIMES else "slice"


def side_of(window: int | tuple[int, ...] | str) -> int | None:
    """Return the side of a window, on all axes on which it is not 1; None where they differ."""
    if isinstance(window, str):
        return None
    if isinstance(window, int):
        return window
    sides = set(window) - {1}
    return sides.pop() if len(sides) == 1 else None


def with_side(window: int | tuple[int, ...], side: int) -> int | tuple[int, ...]:
    """Return a window of another side; slices that are labelled by themselves stay so."""
    return side if isinstance(window, int) else tuple(1 if one == 1 else side for one in window)
