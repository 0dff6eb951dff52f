"""Layers of dictionaries: colours, labels by atom, reconstructions; reader and writer."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from napari.types import FullLayerData
from napari.utils.colormaps import CyclicLabelColormap
from numpy.typing import NDArray
from qtpy.QtWidgets import QVBoxLayout, QWidget

from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.layout import (
    FormSection,
    create_button,
    create_fold,
    create_row,
    fill_layout,
)
from napari_saf._gui.layers.live import N_COLORS, colormap_of, label_colors
from napari_saf._gui.layers.metadata import METADATA_KEY, Metadata
from napari_saf._gui.layers.placement import ImageRegion, place
from napari_saf._gui.layers.view import insert_above, visibility_of
from napari_saf._gui.runs.panel import RunPanel
from napari_saf._gui.runs.run import Frame, Run
from napari_saf.dictionary import (
    DICTIONARY_SUFFIX,
    LearnedDictionary,
    PatchDictionary,
    PatchDictionaryLearning,
    PatchSegmentation,
)
from napari_saf.errors import InvalidInput, counted
from napari_saf.features import FEATURES, Scaling

_DICTIONARY_KEY = "dictionary"
"""Metadata key of a layer: the dictionary whose atoms it shows."""
_DIMMED_ALPHA = 0.12
_ids = itertools.count()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ColoredDictionary:
    """A dictionary whose atoms keep ids and colours when others are dropped."""

    dictionary: PatchDictionary
    atom_ids: tuple[int, ...]
    colors: NDArray[np.float32]

    @classmethod
    def of(
        cls, dictionary: PatchDictionary, colors: NDArray[np.float32] | None = None
    ) -> ColoredDictionary:
        """Assign new ids to all atoms, and by default the label colours."""
        if colors is None:
            colors = label_colors()[np.arange(dictionary.n_atoms) % N_COLORS + 1]
        return cls(dictionary, tuple(itertools.islice(_ids, dictionary.n_atoms)), colors)

    @classmethod
    def in_progress(cls, run: Run, frame: Frame) -> ColoredDictionary | None:
        """Return the atoms during learning, the most used first; None if none is used yet."""
        assert run.problem is not None and isinstance(run.job.method, PatchDictionaryLearning)
        counts = np.round(frame.shares * run.problem.n_nodes).astype(int)
        side, options = run.job.method.patch_size, run.problem.options
        atoms = frame.prototypes.reshape(len(counts), side, side, -1)
        features = "intensity" if options is None else options.features_name
        is_seen = (counts > 0) & np.isfinite(atoms).all(axis=(1, 2, 3))
        order = [int(k) for k in np.argsort(-counts, kind="stable") if is_seen[k]]
        if not order:
            return None
        scaling = Scaling(0.0, 1.0)
        dictionary = PatchDictionary(
            atoms=atoms[order], usage=counts[order], scaling=scaling, features=features
        )
        return cls(dictionary, tuple(order), np.array([run.live.color(k) for k in order]))

    @classmethod
    def learned(cls, run: Run, result: LearnedDictionary) -> ColoredDictionary:
        """Return the dictionary of a finished run, in the colours of its labels."""
        names = tuple(image.name for image in (*run.job.extra_images, run.job.image))
        colors = np.array([run.live.color(int(column)) for column in result.columns])
        return cls.of(dataclasses.replace(result.dictionary, images=names), colors)

    def without(self, atom_ids: Collection[int]) -> ColoredDictionary:
        """Return the dictionary without some of its atoms; at least one must remain."""
        dropped = [k for k, atom_id in enumerate(self.atom_ids) if atom_id in atom_ids]
        remaining = tuple(atom_id for atom_id in self.atom_ids if atom_id not in atom_ids)
        colors = np.delete(self.colors, dropped, axis=0)
        return ColoredDictionary(self.dictionary.without(dropped), remaining, colors)

    def label_of(self, atom_id: int) -> int:
        """Return the label of an atom, 0 if the dictionary does not contain it."""
        return self.atom_ids.index(atom_id) + 1 if atom_id in self.atom_ids else 0

    def colormap(self, atom_ids: Collection[int] = ()) -> CyclicLabelColormap:
        """Return the colormap of the labels; all but highlighted atoms are pale."""
        colors = np.concatenate([np.zeros((1, 4), np.float32), self.colors])
        labels = [self.label_of(atom_id) for atom_id in atom_ids]
        if any(labels):
            colors[np.setdiff1d(np.arange(len(colors)), labels), 3] *= _DIMMED_ALPHA
        return colormap_of(colors)

    @property
    def file_name(self) -> str:
        """The suggested name of a file, after the first image."""
        return f"{next(iter(self.dictionary.images), 'dictionary')}{DICTIONARY_SUFFIX}"

    @property
    def title(self) -> str:
        text = f"{self.dictionary.n_atoms} atoms, {self.dictionary.patch_size} px"
        names = ", ".join(self.dictionary.images)
        return f"{text}: {names}" if names else text

    @property
    def description(self) -> str:
        side, n_channels = self.dictionary.patch_size, self.dictionary.n_channels
        channels = {1: "grey", 3: "RGB"}.get(n_channels, f"{n_channels} channels")
        text = f"{counted(self.dictionary.n_atoms, 'atom')} of {side} × {side} px, {channels}"
        features = self.dictionary.features
        return text if features == "intensity" else f"{text}, {FEATURES[features].title}"


class AtomLabelsList:
    """Layers in which label l is atom l - 1 of a dictionary, with their images."""

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self.entries: list[tuple[Labels, Image, ColoredDictionary]] = []

    def add(self, layer: Labels, image: Image, shown: ColoredDictionary) -> None:
        layer.metadata.setdefault(METADATA_KEY, {})[_DICTIONARY_KEY] = shown.dictionary
        layer.colormap = shown.colormap()
        self.entries.append((layer, image, shown))

    def highlight(self, atom_ids: Collection[int]) -> None:
        for layer, _, shown in self.entries:
            layer.colormap = shown.colormap(atom_ids)
            if len(atom_ids) == 1:
                layer.selected_label = shown.label_of(*atom_ids) or layer.selected_label

    def find(self, atom_id: int) -> tuple[Labels, int] | None:
        """Return a layer with an atom, the selected or else the newest one, and the label."""
        active = self._viewer.layers.selection.active
        entries = [entry for entry in self.entries if entry[2].label_of(atom_id)]
        entries.sort(key=lambda entry: active in entry[:2])
        return (entries[-1][0], entries[-1][2].label_of(atom_id)) if entries else None

    def forget(self, layer: Layer) -> None:
        """Forget a removed layer, and the layers that show atoms on it."""
        self.entries = [entry for entry in self.entries if layer not in entry[:2]]


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], list[Any]] | None:
    paths = [path] if isinstance(path, str) else path
    is_dictionary = all(Path(path).suffix.lower() == DICTIONARY_SUFFIX for path in paths)
    return _read_dictionaries if is_dictionary else None


def _read_dictionaries(path: str | list[str]) -> list[Any]:
    """Open dictionaries in the dock of the current viewer, if any."""
    viewer = napari.current_viewer()
    if viewer is not None:
        _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Patch dictionary")
        for file in [path] if isinstance(path, str) else path:
            dock.load(file)
    return [(None,)]  # no layer, by the convention of napari


def write_dictionary(path: str, data: Any, attributes: Mapping[str, Any]) -> list[str]:
    """Save the dictionary whose atoms a Labels layer shows."""
    entry = attributes.get("metadata", {}).get(METADATA_KEY)
    dictionary = entry.get(_DICTIONARY_KEY) if isinstance(entry, dict) else None
    if not isinstance(dictionary, PatchDictionary):
        raise InvalidInput(
            f"{attributes.get('name', 'layer')}: expected labels computed with a patch dictionary"
        )
    dictionary.save(path)
    return [path]


_PERCENTILE = 99.5
"""Percentile of the errors at the end of the colour range."""
_RECONSTRUCTIONS = (
    ("closest atoms", "blended"),
    ("atoms of the labels", "matched"),
    ("contrast fitted", "fitted"),
)
NO_OTHER = [("none yet", None)]
_REBUILD_HELP = (
    "How images are rebuilt: from the best atoms of every pixel, from the atoms of the labels "
    "only, or from the best atoms with fitted brightness and contrast."
)
_COMPARE_HELP = (
    "Rebuild the image from both dictionaries and show where this one is closer (green) and where "
    "the other one is (pink)."
)
_KINDS = {
    "Image": "The image alone.",
    "Labels": "The labels: which atom each pixel is like.",
    "Rebuilt": "The image rebuilt from atoms, with its peak signal-to-noise ratio in dB: higher is "
    "better, details are lost at 20, differences hardly visible at 40.",
    "Error": "Where the rebuilt image differs from the image, pixel by pixel.",
}
LayerData = dict[str, FullLayerData]
"""Layers by kind: "Labels", "Rebuilt", "Error", "Gain"."""


class ResultsSection(QWidget):
    """Options of the reconstruction, a dictionary to compare with, and the choice of a result.

    The buttons in `kinds` select which of the created `layers` is visible.
    """

    def __init__(self, viewer: napari.Viewer, panel: RunPanel) -> None:
        super().__init__()
        self.atom_labels = AtomLabelsList(viewer)
        self._panel = panel
        self._target: Image | None = None  # of the running task
        self.reconstruction, self.other = Choice(_RECONSTRUCTIONS), Choice(NO_OTHER)
        self.compare = create_button("Compare", _COMPARE_HELP)
        self.kinds = {title: create_button(title, tooltip) for title, tooltip in _KINDS.items()}
        for title, button in self.kinds.items():
            button.setCheckable(True)
            button.clicked.connect(lambda checked, title=title: self.show_kind(title))
        self.layers: dict[str, Layer] = {}
        self._viewer = viewer
        self._region: ImageRegion | None = None
        self.reconstruction.changed.connect(self._on_reconstruction_changed)
        self._kinds_row = create_row(*self.kinds.values())
        self._kinds_row.hide()
        rows = FormSection()
        rows.add_row("Rebuild with", self.reconstruction, _REBUILD_HELP)
        rows.add_row("Compare with", self.other, "An earlier dictionary.")
        rows.add_row("", self.compare, "On the image that is chosen above.")
        fill_layout(QVBoxLayout(self), self._kinds_row, create_fold("Compare, options", rows))

    def offer_others(self, dictionaries: Sequence[ColoredDictionary]) -> None:
        """Offer dictionaries to compare with."""
        self.other.offer([(shown.title, shown) for shown in dictionaries] or NO_OTHER)
        for shown in dictionaries:
            self.other.explain(shown, shown.title)
        self.other.setCurrentIndex(0)

    def _on_reconstruction_changed(self) -> None:
        if "Rebuilt" in self.layers and not self._panel.is_busy:
            self._panel.note("apply the dictionary again to rebuild the image in this way")

    def release(self) -> None:
        self.layers.clear()
        self.atom_labels.entries.clear()

    def apply(
        self, region: ImageRegion, shown: Sequence[ColoredDictionary], options: Mapping[str, Any]
    ) -> None:
        """Apply one dictionary to a slice of an image, or two to compare their results."""
        image, pixels, axis = region.image, region.pixels, region.channel_axis_read

        def calculate(report: object, stop: Callable[[], bool]) -> tuple[str, LayerData]:
            array = pixels.read(stop)
            results = [
                each.dictionary.apply(array, channel_axis=axis, cancelled=stop, **options)
                for each in shown
            ]
            return describe_results(*results), create_layers(region, *results)

        def show(applied: tuple[str, LayerData]) -> None:
            text, created = applied
            if image not in self._viewer.layers:
                self._panel.note("the image was removed")
                return
            add = self._viewer.add_layer
            layers = {title: add(Layer.create(*layer)) for title, layer in created.items()}
            if "Labels" in layers:
                self.atom_labels.add(layers["Labels"], image, shown[0])
            note = self.add_layers(region, layers)
            self._panel.show_outcome("\n".join(filter(None, [f"{image.name}: {text}", note])))

        def forget() -> None:
            self._target = None

        self._target = image
        text = f"{'applying to' if len(shown) == 1 else 'comparing on'} {image.name}"
        self._panel.begin_task(text, calculate, show, on_finished=forget)

    def add_layers(self, region: ImageRegion, layers: dict[str, Layer]) -> str:
        """Add layers to those that the buttons show and hide, replacing those of the same kind.

        Return a note on layers that were hidden.
        """
        self.layers |= layers
        self._region = region
        for layer in layers.values():
            insert_above(self._viewer, layer, region.image)
        if "Rebuilt" in layers:
            self._kinds_row.show()
        return self.show_kind("Rebuilt" if "Rebuilt" in layers else "Gain")

    def forget_removed(self, event: Any) -> None:
        layer = event.value
        self.atom_labels.forget(layer)
        if self._target is not None and layer == self._target:
            self._panel.stop()
        self.layers = {title: shown for title, shown in self.layers.items() if shown != layer}
        if self._region is not None and layer == self._region.image:
            self._region = None
        self._kinds_row.setVisible(self.layers.keys() >= {"Labels", "Rebuilt", "Error"})

    def show_kind(self, title: str) -> str:
        """Show only "Image", "Labels", "Rebuilt", "Error" or "Gain"; return a note as above."""
        for kind, button in self.kinds.items():
            button.setChecked(kind == title)
        selection = self._viewer.layers.selection
        if title in self.layers and selection.active in self.layers.values():
            selection.active = self.layers[title]  # the one in view
        for layer_title, layer in self.layers.items():
            layer.visible = layer_title == title
        if title not in self.layers or self._region is None:
            return ""
        region, layer = self._region, self.layers[title]
        return visibility_of(self._viewer).show_result(region.image, layer, region.index)

    def show_labels(self, layer: Layer) -> None:
        if layer == self.layers.get("Labels"):
            self.show_kind("Labels")
        visibility_of(self._viewer).restore(layer)
        layer.visible = True


def describe_results(result: PatchSegmentation, second: PatchSegmentation | None = None) -> str:
    text = f"rebuilt at {result.psnr:.1f} dB PSNR (more is better)"
    if second is not None:
        return f"{text}, by the other at {second.psnr:.1f} dB"
    n_unused = int((result.usage == 0).sum())
    return f"{text}, {n_unused} of {len(result.usage)} atoms not used" if n_unused else text


def create_layers(
    region: ImageRegion, result: PatchSegmentation, second: PatchSegmentation | None = None
) -> LayerData:
    """Return layers of the rebuilt image, the difference and the labels of an image slice.

    The rebuilt image has the value range, axes and colours of the image. The difference is green
    where the image is brighter; for several channels it is the norm. With a second result, the
    only layer is its error minus that of the first: positive, green, where the first is closer.
    """
    if second is not None:
        gain = np.subtract(_norm(second.difference), _norm(result.difference))
        return {"Gain": _difference_layer(region, "compared", gain, is_signed=True)}
    difference = result.difference if result.difference.ndim == 2 else _norm(result.difference)
    is_signed = bool(difference.min(initial=0) < 0)
    labels = result.labels.reshape(region.placement.shape(result.labels.shape))
    return {
        "Rebuilt": _rebuilt_layer(region, result.reconstruction),
        "Error": _difference_layer(region, "error", difference, is_signed=is_signed),
        "Labels": (labels, _attributes(region, "labels"), "labels"),
    }


def _rebuilt_layer(region: ImageRegion, rebuilt: NDArray[Any]) -> FullLayerData:
    image, attributes = region.image, _attributes(region, "rebuilt")
    if image.dtype.kind in "iu":
        limits = np.iinfo(image.dtype)
        rebuilt = np.clip(np.round(rebuilt), limits.min, limits.max).astype(image.dtype)
    if image.rgb:
        shape = (*region.placement.shape(rebuilt.shape[:-1]), rebuilt.shape[-1])
        return rebuilt.reshape(shape), attributes | {"rgb": True}, "image"
    if region.channel_axis_read is not None:
        rebuilt = np.moveaxis(rebuilt, -1, region.channel_axis_read)
    with_channels = place(image, tuple(range(image.ndim)), region.fixed)
    colors = {"colormap": image.colormap.name, "contrast_limits": image.contrast_limits}
    attributes |= colors | with_channels.transform
    return rebuilt.reshape(with_channels.shape(rebuilt.shape)), attributes, "image"


def _difference_layer(
    region: ImageRegion, title: str, values: NDArray[np.floating], *, is_signed: bool
) -> FullLayerData:
    """Return an image layer with robust contrast limits, symmetric around 0 if signed."""
    limit = float(max(np.percentile(np.abs(values), _PERCENTILE), 1e-6))
    colors = {
        "colormap": "PiYG" if is_signed else "magma",
        "contrast_limits": (-limit if is_signed else 0, limit),
    }
    shape = region.placement.shape(values.shape)
    return values.reshape(shape), _attributes(region, title) | colors, "image"


def _norm(difference: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the norm of a difference over its channels."""
    return np.asarray(np.linalg.norm(np.atleast_3d(difference), axis=-1), dtype=np.float32)


def _attributes(region: ImageRegion, title: str) -> Metadata:
    metadata = {METADATA_KEY: {"image": str(region.image.unique_id)}}
    name = {"name": f"{region.image.name} [{title}]", "metadata": metadata}
    return name | region.placement.transform
