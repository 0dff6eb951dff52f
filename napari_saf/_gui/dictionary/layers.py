"""Layers that a dictionary makes, where its atoms are used, and dictionaries as napari's files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from napari.utils.colormaps import CyclicLabelColormap

from napari_saf._gui.dictionary.apply import Applied, Compared
from napari_saf._gui.dictionary.atoms_section import ColoredDictionary
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf._gui.layers.placement import Plane
from napari_saf.dictionary import DICTIONARY_SUFFIX, PatchDictionary
from napari_saf.errors import InvalidInput

DICTIONARY_KEY = "dictionary"
"""Where the metadata of a layer hold the dictionary whose atoms it shows."""
_DIMMED_ALPHA = 0.12
LayerData = list[tuple[Any, ...]]
_NO_LAYER: LayerData = [(None,)]
"""The layer data by which a napari reader returns no layer."""


def create_applied_layers(applied: Applied, plane: Plane) -> list[Layer]:
    """Return the layers of the reconstruction, the difference and the labels."""
    return [
        _create_reconstruction(applied, plane),
        _create_difference(applied, plane),
        Labels(
            applied.labels.reshape(plane.placement.shape(applied.labels.shape)),
            **_attributes(plane, "partition", visible=False),
        ),
    ]


def _create_reconstruction(applied: Applied, plane: Plane) -> Image:
    """Return the rebuilt image, with the colours of the image."""
    image, shown = plane.layer, applied.reconstruction
    if image.rgb:
        shape = (*plane.placement.shape(shown.shape[:-1]), shown.shape[-1])
        return Image(shown.reshape(shape), rgb=True, **_attributes(plane, "reconstruction"))
    place = plane.placement_with_channels
    return Image(
        shown.reshape(place.shape(shown.shape)),
        colormap=image.colormap.name,
        contrast_limits=image.contrast_limits,
        **_attributes(plane, "reconstruction") | place.transform,
    )


def _create_difference(applied: Applied, plane: Plane) -> Image:
    """Return the difference; green where the image is brighter than rebuilt."""
    is_signed = applied.difference.min(initial=0) < 0
    return Image(
        applied.difference.reshape(plane.placement.shape(applied.difference.shape)),
        colormap="PiYG" if is_signed else "magma",
        contrast_limits=(-applied.limit if is_signed else 0, applied.limit),
        **_attributes(plane, "difference", visible=False),
    )


def create_gain_layer(compared: Compared, plane: Plane) -> Image:
    """Return the layer of a comparison: green where this dictionary is closer."""
    return Image(
        compared.gain.reshape(plane.placement.shape(compared.gain.shape)),
        colormap="PiYG",
        contrast_limits=(-compared.limit, compared.limit),
        **_attributes(plane, "compared"),
    )


def _attributes(plane: Plane, kind: str, visible: bool = True) -> dict[str, Any]:
    """Return attributes of a layer that was computed from an image."""
    name = f"{plane.layer.name} [{kind}]"
    return {"name": name, "visible": visible, "metadata": {METADATA_KEY: {}}} | (
        plane.placement.transform
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AtomLabels:
    """A layer whose label l is atom l - 1 of a dictionary."""

    layer: Labels
    image: Image
    shown: ColoredDictionary

    def label_of(self, atom_id: int) -> int | None:
        """Return the label of an atom; None if the dictionary has no such atom."""
        atom_ids = self.shown.atom_ids
        return atom_ids.index(atom_id) + 1 if atom_id in atom_ids else None

    def highlight(self, atom_ids: Collection[int]) -> None:
        """Show the colours of the atoms, pale where others are highlighted."""
        colors = np.concatenate([np.zeros((1, 4), np.float32), self.shown.colors])
        labels = [label for label in map(self.label_of, atom_ids) if label is not None]
        if labels:
            pale = np.setdiff1d(np.arange(len(colors)), labels)
            colors[pale, 3] *= _DIMMED_ALPHA
        self.layer.colormap = CyclicLabelColormap(colors=colors, background_value=0)
        if len(labels) == len(atom_ids) == 1:
            self.layer.selected_label = labels[0]


class AtomLabelsList:
    """The layers of a viewer that show where atoms are used; removed ones are forgotten."""

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self._known: list[AtomLabels] = []
        viewer.layers.events.removed.connect(self._on_removed)

    def add(self, layer: Labels, image: Image, shown: ColoredDictionary) -> None:
        """Add a layer; earlier ones of the same image are hidden."""
        for earlier in self._known:
            if earlier.image == image:
                earlier.layer.visible = False
        new = AtomLabels(layer, image, shown)
        new.highlight(())
        layer.metadata.setdefault(METADATA_KEY, {})[DICTIONARY_KEY] = shown.dictionary
        self._known.append(new)

    def highlight(self, atom_ids: Collection[int]) -> None:
        """Show where atoms are used; none: show all."""
        for one in self._known:
            one.highlight(atom_ids)

    def labels_of(self, atom_id: int) -> AtomLabels | None:
        """Return where an atom is used: on the selected layer, or the newest."""
        able = [one for one in self._known if one.label_of(atom_id) is not None]
        active = self._viewer.layers.selection.active
        found = [one for one in able if active in (one.layer, one.image)] or able
        return found[-1] if found else None

    def release(self) -> None:
        """Disconnect from the viewer."""
        self._viewer.layers.events.removed.disconnect(self._on_removed)
        self._known.clear()

    def _on_removed(self, event: Any) -> None:
        gone = event.value
        self._known = [one for one in self._known if gone not in (one.layer, one.image)]


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], LayerData] | None:
    """Return what reads a dictionary, if a path may be one."""
    paths = [path] if isinstance(path, str) else path
    is_dictionary = all(Path(one).suffix.lower() == DICTIONARY_SUFFIX for one in paths)
    return _read_dictionaries if is_dictionary else None


def _read_dictionaries(path: str | list[str]) -> LayerData:
    """Open dictionaries in the dock; without a window, as a stack of atoms."""
    paths = [Path(path)] if isinstance(path, str) else [Path(one) for one in path]
    viewer = napari.current_viewer()
    if viewer is not None:
        _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Patch dictionary")
        for one in paths:
            dock.load(one)
        return _NO_LAYER
    layers: LayerData = []
    for one in paths:
        dictionary = PatchDictionary.load(one)
        is_rgb = dictionary.n_channels == 3
        atoms = dictionary.atoms if is_rgb else dictionary.atoms.mean(axis=-1)
        layers.append((atoms, {"name": one.stem, "rgb": is_rgb}, "image"))
    return layers


def write_dictionary(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save the dictionary whose atoms a layer of labels shows."""
    entry = attributes.get("metadata", {}).get(METADATA_KEY)
    dictionary = entry.get(DICTIONARY_KEY) if isinstance(entry, dict) else None
    if not isinstance(dictionary, PatchDictionary):
        raise InvalidInput(
            f"{attributes.get('name', 'layer')}: expected labels that a patch dictionary made"
        )
    dictionary.save(path)
    return [path]
