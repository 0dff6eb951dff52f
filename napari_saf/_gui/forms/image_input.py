"""Form of the input: image, region, scale, features, mask; and the frozen value that it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import napari
from napari.layers import Image, Labels, Layer
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.forms.choices import Choice, LayerChoice, Plain, PlainValues
from napari_saf._gui.forms.fields import create_field
from napari_saf._gui.forms.layout import FormSection
from napari_saf._gui.forms.method_form import OptionsForm
from napari_saf._gui.layers import placement
from napari_saf._gui.layers.large import LargeRegion, narrowed
from napari_saf._gui.layers.metadata import is_given
from napari_saf._gui.layers.reading import ImageJob
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES, Foreground, extractor_of
from napari_saf.input import AUTO, GIVEN_FEATURES
from napari_saf.parameters import describe
from napari_saf.problem import ImageOptions

Extent = Literal["slice", "each", "volumes", "volume"]
OPTIONS = {option.name: option for option in describe(ImageOptions)}
FEATURE_LABELS = dict(OPTIONS["features"].choice_labels)
_EXTENTS: tuple[tuple[str, Extent], ...] = (
    ("this slice", "slice"),
    ("each slice by itself", "each"),
    ("each volume by itself", "volumes"),
    ("as a volume", "volume"),
)
_TIMES = ("t", "time", "frame", "frames")
_COLOURS = ("red", "green", "blue")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ImageSelection:
    """Pixels of an image layer, layers that go with them, and options, as the controls show them.

    The window of the options is one side, along the axes that count as neighbours, or "auto".
    Their groups and features are those without a layer for them. What of a stack is on screen is
    looked up in the viewer when it is needed.
    """

    viewer: napari.Viewer
    image: Image | None = None
    channel_axis: int | None = None
    extent: Extent = "volume"
    options: ImageOptions = ImageOptions()
    features: Image | None = None
    mask: Labels | None = None
    groups: Labels | None = None
    strokes: Labels | None = None

    @property
    def axes(self) -> tuple[int, ...]:
        """The spatial axes of the image, none without one."""
        axes = () if self.image is None else range(self.image.ndim)
        return tuple(axis for axis in axes if axis != self.channel_axis)

    @property
    def channel_names(self) -> Sequence[str]:
        if self.image is None or self.channel_axis is None:
            return _COLOURS if self.image is not None and self.image.rgb else ("brightness",)
        n_channels = placement.pixels_of(self.image).shape[self.channel_axis]
        return [f"channel {k}" for k in range(n_channels)] if n_channels > 1 else ("brightness",)

    @property
    def slice_word(self) -> str:
        """What a slice along the first axis is called."""
        return slice_word(self.image, self.axes[0]) if self.axes else "slice"

    @property
    def extents(self) -> list[tuple[str, object]]:
        """What may be labelled of the image, each with its text."""
        return [
            (text.replace("slice", self.slice_word), extent)
            for text, extent in _EXTENTS
            if extent != "volumes" or len(self.axes) > 3
        ]

    @property
    def feature_names(self) -> list[str]:
        """The features that suit the channels of the image."""
        n_channels = len(self.channel_names)
        return [name for name, cls in FEATURES.items() if cls.channels in (None, n_channels)]

    def group_sources(self) -> list[tuple[str, object]]:
        """Return groups that the image defines: slices that are labelled together, channels."""
        if self.image is None:
            return []
        sources: list[tuple[str, object]] = []
        if len(self.axes) > 2 and self.extent != "slice":
            plane = placement.plane_on_screen(self.viewer, self.image, self.axes)
            for number, axis in enumerate(self.axes):
                if axis not in plane:
                    name = str(self.image.axis_labels[axis])  # without one numbered from the last
                    name = f"axis {name}" if name.lstrip("-").isdigit() else name
                    sources.append((f"slices ({name})", f"axis:{number}"))
        for channel, name in enumerate(self.channel_names):
            sources.append((f"{name}: low and high", f"channel:{channel}"))
        return sources

    def slices(self, *, every: bool = False) -> placement.ImageRegion:
        """Return the slices that are labelled, or all; InvalidInput without an image."""
        if self.image is None:
            raise InvalidInput(placement.NO_IMAGE)
        viewer, image, axes = self.viewer, self.image, self.axes
        region = placement.ImageRegion(image, self.channel_axis, {}, tuple(range(image.ndim)))
        if self.extent == "volume" or len(axes) <= 2:
            return region
        if self.extent == "slice" and not every:
            fixed = placement.slice_on_screen(viewer, image, axes)
            return dataclasses.replace(region, fixed=fixed)
        n_shown = 3 if self.extent == "volumes" else 2
        together = placement.plane_on_screen(viewer, image, axes, n_shown)
        return dataclasses.replace(region, together=together)

    def region(self, strokes: Labels | None = None) -> placement.ImageRegion:
        """Return what is labelled at once: of a large image a part, see `narrowed`."""
        return narrowed(self.viewer, self.slices(), self.strokes if strokes is None else strokes)

    def job(self, *, finite_only: bool = False, strokes: Labels | None = None) -> ImageJob:
        """Return what to read, with a value for what is automatic; InvalidInput without an image.

        The `strokes` take the place of those that are selected.
        """
        strokes = self.strokes if strokes is None else strokes
        region = self.region(strokes)
        features = None if self.features is None else region.over_features(self.features)
        pixels, axis = features or (None, -1)
        options = self.options
        if isinstance(region, LargeRegion) and strokes is not None:
            # What strokes teach in a part is for all of the image, at its full size.
            options = dataclasses.replace(options, max_side=None)
        job = ImageJob(
            region.pixels,
            options,
            mask=region.over(self.mask),
            groups=region.over(self.groups),
            seeds=region.over(strokes),
            finite_only=finite_only,
            features=pixels,
            features_axis=axis,
        )
        return self._resolved(job, region)

    def whole_options(self) -> ImageOptions:
        """Return the options for all slices of the image."""
        region = self.slices(every=True)
        return self._resolved(ImageJob(region.pixels, self.options), region).options

    def _resolved(self, job: ImageJob, region: placement.ImageRegion) -> ImageJob:
        """Return a job with the options that its region asks for."""
        window, axis = job.options.window, region.channel_axis_read
        if isinstance(window, int):
            window = region.window(window)[0]
        options = dataclasses.replace(job.options, window=window, channel_axis=axis)
        job = dataclasses.replace(job, options=options)
        ground = job.ground() if options.features == AUTO else None
        shapes, n_channels = [region.shape], len(self.channel_names)
        options = options.resolve(shapes, n_channels, region.averaged_axes, ground)
        return dataclasses.replace(job, options=options)

    def scale_note(self) -> str:
        """Return where the window is smaller than the scale, as the image is, and by how much."""
        window = self.options.window
        return self.region().window(window)[1] if isinstance(window, int) else ""

    def note(self, *, uses_window: bool) -> str:
        """Return in lines which slice of a stack is labelled alone, and the note on the scale."""
        fixed, lines = self.slices().fixed, []
        if fixed:
            shape, word = placement.pixels_of(self.image).shape, slice_word(self.image, min(fixed))
            names = {axis: slice_word(self.image, axis) for axis in fixed}
            at = [f"{names[axis]} {k + 1} of {shape[axis]}" for axis, k in fixed.items()]
            lines = [f"{', '.join(at)} is labelled: {word.capitalize()}s labels all"]
        return "\n".join(filter(None, [*lines, self.scale_note() if uses_window else ""]))

    def automatic_note(self, *, uses_window: bool) -> str:
        """Return in words what is chosen for the image where the options say "automatic"."""
        try:
            words = _words(self.job().options, uses_window)
        except InvalidInput:
            return ""
        automatic = [name for name in words if getattr(self.options, name) == AUTO]
        return ", ".join(" ".join(words[name]).strip() for name in automatic)

    def changes_since(self, start: ImageOptions, *, uses_window: bool) -> list[str]:
        """Return in words which options are not those of the start."""
        words, at_start = _words(self.options, uses_window), _words(start, uses_window)
        if self.features is not None:
            words["features"] = ("", self.features.name)
        changed = [words[name] for name in words if words[name] != at_start[name]]
        return [f"{name.capitalize()} {text}".strip() for name, text in changed]


def _words(options: ImageOptions, uses_window: bool) -> dict[str, tuple[str, str]]:
    """Return what options that are used say, each as a name, if it needs one, and a text."""
    features, window = FEATURE_LABELS.get(options.features_name, ""), options.window
    if isinstance(options.extractor, Foreground):
        features = f"things on {options.extractor.ground_text}"
    words = {
        "window": ("scale", str(max(window) if isinstance(window, tuple) else window)),
        "features": ("", features),
        "weights": ("edges", OPTIONS["weights"].choice_labels[options.weights]),
        "max_side": ("", f"{options.max_side} px" if options.max_side else "full size"),
        "full_resolution": ("full resolution", "on" if options.full_resolution else "off"),
    }
    if not uses_window:
        del words["window"], words["weights"]
    return words


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
    return side if isinstance(window, int) else tuple(1 if n == 1 else side for n in window)


DEFAULT_OPTIONS = ImageOptions()
_MOST_SCALE = 1000
_FIELDS = ("window", "weights", "max_side", "full_resolution")
"""Options whose fields are generated; the scale is laid out by the owner."""
_HELP = {
    "image": "The image layer to label.",
    "channels": "The axis that holds channels, not space; named as its slider is.",
    "extent": "The slice on screen; each slice, with the same labels in all; or one volume.",
    "strokes": "A Labels layer with pixels painted 1, 2, ...: all other pixels follow these.",
    "groups": "What each label is spread over: slices, bright and dark pixels, or a layer (V).",
    "features": "What describes a pixel: computed here, or the channels of another image layer.",
    "mask": "Label only where this layer is not 0.",
}
_LABELS = {name: name.capitalize() for name in _HELP}
_LABELS |= {"channels": "Channel axis", "extent": "Slices", "features": "Kind"}
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
        for name in _FIELDS:
            # "automatic" is offered where the scale starts as such.
            words = [x for x in OPTIONS[name].choices if x != AUTO or self.start.window == AUTO]
            start = getattr(self.start, name)
            field = dataclasses.replace(OPTIONS[name], choices=tuple(words), default=start)
            self.choices[name] = create_field(field, viewer)
        self.choices["mask"] = LayerChoice(viewer, Labels, none="none")
        self.scale = self.choices["window"].control
        self.section, self.features = FormSection(), FormSection()
        for name, choice in self.choices.items():
            help = _HELP.get(name) or OPTIONS[name].help
            label = _LABELS.get(name) or OPTIONS[name].label
            if name != "window":
                self._section_of(name).add_row(label, choice, help)
            if name == "features":
                self.extractors = self._create_extractors()
        self.show_row("groups", False)
        self._connect()
        self._on_image_changed()
        self.choose(features=self.start.features)

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

    def plain_values(self) -> PlainValues:
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
