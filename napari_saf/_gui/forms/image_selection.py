"""Which pixels of an image are labelled, and by which options: a frozen value without widgets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import napari
from napari.layers import Image, Labels, Layer

from napari_saf._gui.layers import placement
from napari_saf._gui.layers.large import LargeRegion, narrowed
from napari_saf._gui.layers.reading import ImageJob
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES, Foreground
from napari_saf.input import AUTO
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
_OF_WINDOWS = ("weights", "window")
"""Options that only methods which average over windows use."""


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
            sources = [
                (f"slices ({axis_name(self.image, axis)})", f"axis:{number}")
                for number, axis in enumerate(self.axes)
                if axis not in plane
            ]
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
            words = _words(self.job().options)
        except InvalidInput:
            return ""
        unused = () if uses_window else _OF_WINDOWS
        automatic = [name for name in words if getattr(self.options, name) == AUTO]
        return ", ".join(" ".join(words[name]).strip() for name in automatic if name not in unused)

    def changes_since(self, start: ImageOptions, *, uses_window: bool) -> list[str]:
        """Return in words which options are not those of the start."""
        words, at_start = _words(self.options), _words(start)
        if self.features is not None:
            words["features"] = ("", self.features.name)
        unused = () if uses_window else _OF_WINDOWS
        changed = [name for name in words if words[name] != at_start[name] and name not in unused]
        return [f"{words[name][0].capitalize()} {words[name][1]}".strip() for name in changed]


def _words(options: ImageOptions) -> dict[str, tuple[str, str]]:
    """Return what options say, each as a name, if it needs one, and a text."""
    features, window = FEATURE_LABELS.get(options.features_name, ""), options.window
    if isinstance(options.extractor, Foreground):
        features = f"things on {options.extractor.ground_text}"
    return {
        "window": ("scale", str(max(window) if isinstance(window, tuple) else window)),
        "features": ("", features),
        "weights": ("edges", OPTIONS["weights"].choice_labels[options.weights]),
        "max_side": ("", f"{options.max_side} px" if options.max_side else "full size"),
        "full_resolution": ("full resolution", "on" if options.full_resolution else "off"),
    }


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
    return side if isinstance(window, int) else tuple(1 if n == 1 else side for n in window)
