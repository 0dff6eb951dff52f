"""Form of the input image, region, scale, features and mask, and the selection that it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
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
from napari_saf._gui.layers.large import LargeRegion, ground_in, ground_search, narrowed
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
_COLOURS = ("red", "green", "blue")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ImageSelection:
    """An image layer, further input layers and options, as set by the controls.

    The window of `options` is one side, for all averaged axes, or "auto"; their groups and features
    apply if no layer is chosen for them. The displayed slice of a stack is read from the viewer
    on demand.
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
        """The spatial axes of the image; empty without an image."""
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
        """The word for a slice along the first axis: "slice" or "frame"."""
        return self._slice_word(self.axes[0]) if self.axes else "slice"

    def _slice_word(self, axis: int) -> str:
        return placement.slice_word(self.viewer, self.image, axis)

    @property
    def extents(self) -> list[tuple[str, object]]:
        """The extents of the image that can be labelled, with their texts."""
        return [
            (text.replace("slice", self.slice_word), extent)
            for text, extent in _EXTENTS
            if extent != "volumes" or len(self.axes) > 3
        ]

    @property
    def feature_names(self) -> list[str]:
        """The features applicable to the number of channels of the image."""
        n_channels = len(self.channel_names)
        return [name for name, cls in FEATURES.items() if cls.channels in (None, n_channels)]

    def group_sources(self) -> list[tuple[str, object]]:
        """Return the groups defined by the image: jointly labelled slices, channel intensities."""
        if self.image is None:
            return []
        sources: list[tuple[str, object]] = []
        if len(self.axes) > 2 and self.extent != "slice":
            plane = placement.plane_on_screen(self.viewer, self.image, self.axes)
            for number, axis in enumerate(self.axes):
                if axis not in plane:
                    name = placement.axis_name(self.viewer, self.image, axis)
                    name = f"axis {name}" if name.lstrip("-").isdigit() else name
                    sources.append((f"slices ({name})", f"axis:{number}"))
        for channel, name in enumerate(self.channel_names):
            sources.append((f"{name}: low and high", f"channel:{channel}"))
        return sources

    def slices(self, *, every: bool = False) -> placement.ImageRegion:
        """Return the slices to label, or `every` slice; raise InvalidInput without an image."""
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
        """Return the region to label at once; part of a large image, as by `narrowed`."""
        return narrowed(self.viewer, self.slices(), self.strokes if strokes is None else strokes)

    def job(self, *, finite_only: bool = False, strokes: Labels | None = None) -> ImageJob:
        """Return the image job with automatic options resolved.

        `strokes` replace the selected ones. Raises InvalidInput without an image.
        """
        strokes = self.strokes if strokes is None else strokes
        region = self.region(strokes)
        features = None if self.features is None else region.over_features(self.features)
        pixels, axis = features or (None, -1)
        options = self.options
        if isinstance(region, LargeRegion) and strokes is not None:
            # Strokes in a part are used for the whole image, at full resolution.
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
        """Return the job with its options resolved for the region."""
        window, axis = job.options.window, region.channel_axis_read
        if isinstance(window, int):
            window = region.window(window)[0]
        options = dataclasses.replace(job.options, window=window, channel_axis=axis)
        job = dataclasses.replace(job, options=options)
        ground = ground_in(region, options, self.mask) if options.features == AUTO else None
        shapes, n_channels = [region.shape], len(self.channel_names)
        options = options.resolve(shapes, n_channels, region.averaged_axes, ground)
        return dataclasses.replace(job, options=options)

    def scale_note(self) -> str:
        """Return a note if the image limits the window to less than the scale, else empty."""
        window = self.options.window
        return self.region().window(window)[1] if isinstance(window, int) else ""

    def note(self, *, uses_window: bool) -> str:
        """Return lines on the single slice that is labelled, if so, and on the scale."""
        fixed, lines = self.slices().fixed, []
        if fixed:
            shape, word = placement.pixels_of(self.image).shape, self._slice_word(min(fixed))
            # Counted from 0, as by the sliders and in tables.
            at = [f"{self._slice_word(n)} {k} of 0 to {shape[n] - 1}" for n, k in fixed.items()]
            lines = [f"{', '.join(at)} is labelled; to label all, change {word.capitalize()}s"]
        return "\n".join(filter(None, [*lines, self.scale_note() if uses_window else ""]))

    def automatic_note(self, *, uses_window: bool) -> str:
        """Return the description of the automatic options resolved for the image."""
        try:
            words = _words(self.job().options, uses_window)
        except InvalidInput:
            return ""
        automatic = [name for name in words if getattr(self.options, name) == AUTO]
        return ", ".join(" ".join(words[name]).strip() for name in automatic)

    def ground_search(self) -> Callable[[Callable[[], bool]], object] | None:
        """Return a function that looks for the background of a lazy image; None if unneeded."""
        if self.options.features != AUTO:
            return None
        region = self.region()
        options = dataclasses.replace(self.options, channel_axis=region.channel_axis_read)
        return ground_search(region, options, self.mask)

    def changes_since(self, start: ImageOptions, *, uses_window: bool) -> list[str]:
        """Return descriptions of an extent other than a slice, and of options unlike `start`."""
        words, at_start = _words(self.options, uses_window), _words(start, uses_window)
        if self.features is not None:
            words["features"] = ("", self.features.name)
        changed = [words[name] for name in words if words[name] != at_start[name]]
        texts = [f"{name.capitalize()} {text}".strip() for name, text in changed]
        is_stack = len(self.axes) > 2 and self.extent != "slice"
        return [text for text, extent in self.extents if extent == self.extent and is_stack] + texts


def _words(options: ImageOptions, uses_window: bool) -> dict[str, tuple[str, str]]:
    """Return the name, which may be empty, and the text of each option in use."""
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


def side_of(window: int | tuple[int, ...] | str) -> int | None:
    """Return the side of a window along axes longer than 1; None if they differ or for "auto"."""
    if isinstance(window, str):
        return None
    if isinstance(window, int):
        return window
    sides = set(window) - {1}
    return sides.pop() if len(sides) == 1 else None


def with_side(window: int | tuple[int, ...], side: int) -> int | tuple[int, ...]:
    """Return a window with another side, keeping axes of length 1 of separate slices."""
    return side if isinstance(window, int) else tuple(1 if n == 1 else side for n in window)


DEFAULT_OPTIONS = ImageOptions()
_MOST_SCALE = 1000
_FIELDS = ("window", "weights", "max_side", "full_resolution")
"""Options with generated fields; the caller lays out the scale."""
_HELP = {
    "image": "The image layer to label.",
    "channels": "The axis of the channels, named like its slider in napari.",
    "extent": "The displayed slice; each slice separately, with shared labels; or one volume.",
    "strokes": "A Labels layer with pixels painted 1, 2, ..., which label all other pixels.",
    "groups": "Groups to balance in each label: slices, bright and dark pixels, or a layer (V).",
    "features": "Feature vector of a pixel: computed here, or the channels of another image layer.",
    "mask": "Label only where this layer is not 0.",
}
_LABELS = {name: name.capitalize() for name in _HELP}
_LABELS |= {"channels": "Channel axis", "extent": "Slices", "features": "Kind"}
_IMAGE_ROWS = ("image", "channels", "extent", "strokes", "groups")


class ImageInput(QObject):
    """Controls of the image input: two sections and a scale, laid out by the caller.

    Fields are initialized with the options `start`; `strokes` is the text for no strokes. `choices`
    holds the controls of the image, its axes, further layers, and generated fields by name.
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
            # "automatic" is offered only if the scale starts as automatic.
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
        """Create the rows of feature parameters, such as a weights file."""
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
        """Return the selected pixels and strokes, with default options."""
        values = {name: self.choices[name].value for name in ("image", "extent", "strokes")}
        axis = self.choices["channels"].value
        return ImageSelection(viewer=self._viewer, channel_axis=axis, **values)

    def read(self) -> ImageSelection:
        """Return the selection; raise InvalidInput if its parts are inconsistent."""
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
        """Choose values by name; values not offered are ignored."""
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
        """Return scale and choices, except layers, as JSON-serializable values."""
        values = {name: choice.value for name, choice in self.choices.items() if name != "window"}
        plain = {name: value for name, value in values.items() if isinstance(value, Plain)}
        return {"scale": self.scale.value, "choices": plain}

    def show_plain_values(self, values: Mapping[str, Any]) -> None:
        """Restore values returned by `plain_values`; those not offered are ignored."""
        scale, choices = values.get("scale"), values.get("choices")
        if scale is None or (type(scale) is int and 0 < scale < _MOST_SCALE):
            self.scale.set_value(scale)
        stored = choices.items() if isinstance(choices, dict) else ()
        self.choose(**{n: x for n, x in stored if n in self.choices and isinstance(x, Plain)})

    def show_row(self, name: str, visible: bool) -> None:
        """Show or hide a choice; hidden groups are ignored."""
        self._section_of(name).show_row(self.choices[name], visible)
        self._forget()

    def automatic_note(
        self, run: Callable[..., object], then: Callable[[], object], *, uses_window: bool
    ) -> str:
        """Return the description of the automatic options.

        A lazy image is read before by `run`, see `BackgroundTasks.run`, and `then` is called.
        """
        selection = self.read()
        search = selection.ground_search()
        if search is None:
            return selection.automatic_note(uses_window=uses_window)
        run("ground", search, lambda _: then())
        return "reading the image …"

    def read_axes(self, event: object = None) -> None:
        """Offer the groups of the image, choosing the first unless the user chose another."""
        if self.image is not None:
            groups = self.choices["groups"]
            is_first = groups.currentIndex() <= 0
            groups.set_others(self.pixels().group_sources())
            if is_first:
                groups.setCurrentIndex(0)
        self._forget()
        self.axes_changed.emit()

    def read_axis_names(self, event: object = None) -> None:
        """Name the axes like the sliders of the viewer, keeping the choices."""
        chosen = {name: self.choices[name].value for name in ("channels", "extent", "groups")}
        self._on_image_changed()
        self.choose(**chosen)

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
        axes = placement.channel_axes(self._viewer, self.image)
        # The choice is kept if an axis has the same name and number of channels.
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
        """Return whether a layer has the shape of the image plus a feature axis."""
        if self.image is None or layer == self.image:
            return False
        return self.pixels().region().over_features(layer) is not None
