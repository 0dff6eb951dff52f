"""Dictionaries on screen: their colours, the layers that show their atoms, napari's files."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels, Layer
from napari.utils.colormaps import CyclicLabelColormap
from numpy.typing import NDArray

from napari_saf._gui.layers.live import N_COLORS, colormap_of, label_colors
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf.dictionary import DICTIONARY_SUFFIX, PatchDictionary
from napari_saf.errors import InvalidInput

_DICTIONARY_KEY = "dictionary"
"""Where the metadata of a layer hold the dictionary whose atoms it shows."""
_DIMMED_ALPHA = 0.12
LayerData = tuple[Any, dict[str, Any], str]
_ids = itertools.count()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ColoredDictionary:
    """A dictionary on screen: its atoms keep ids and colours when others are dropped."""

    dictionary: PatchDictionary
    atom_ids: tuple[int, ...]
    colors: NDArray[np.float32]

    @classmethod
    def of(
        cls, dictionary: PatchDictionary, colors: NDArray[np.float32] | None = None
    ) -> ColoredDictionary:
        """Give new ids to all atoms, and the colours of labels unless others are given."""
        if colors is None:
            colors = label_colors()[np.arange(dictionary.n_atoms) % N_COLORS + 1]
        return cls(dictionary, tuple(itertools.islice(_ids, dictionary.n_atoms)), colors)

    def without(self, atom_ids: Collection[int]) -> ColoredDictionary:
        """Leave some atoms out, but not all."""
        dropped = [k for k, own in enumerate(self.atom_ids) if own in atom_ids]
        return ColoredDictionary(
            self.dictionary.without(dropped),
            tuple(own for own in self.atom_ids if own not in atom_ids),
            np.delete(self.colors, dropped, axis=0),
        )

    def label_of(self, atom_id: int) -> int:
        """Return the label of an atom; 0 if the dictionary has no such atom."""
        return self.atom_ids.index(atom_id) + 1 if atom_id in self.atom_ids else 0

    def colormap(self, atom_ids: Collection[int] = ()) -> CyclicLabelColormap:
        """Return the colours of the labels, pale where others are highlighted."""
        colors = np.concatenate([np.zeros((1, 4), np.float32), self.colors])
        labels = [self.label_of(atom_id) for atom_id in atom_ids]
        if any(labels):
            colors[np.setdiff1d(np.arange(len(colors)), labels), 3] *= _DIMMED_ALPHA
        return colormap_of(colors)

    @property
    def title(self) -> str:
        """What tells it from other dictionaries: atoms, size and images."""
        text = f"{self.dictionary.n_atoms} atoms, {self.dictionary.patch_size} px"
        names = ", ".join(self.dictionary.images)
        return f"{text}: {names}" if names else text

    @property
    def description(self) -> str:
        """The number, the size and the channels of the atoms."""
        side, n_channels = self.dictionary.patch_size, self.dictionary.n_channels
        kind = {1: "grey", 3: "RGB"}.get(n_channels, f"{n_channels} channels")
        return f"{count_atoms(self.dictionary.n_atoms)} of {side} × {side} px, {kind}"


def count_atoms(n_atoms: int) -> str:
    return f"{n_atoms} atom{'s' * (n_atoms != 1)}"


class AtomLabelsList:
    """The layers of a viewer whose label l is atom l - 1 of a dictionary, with their images."""

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self.known: list[tuple[Labels, Image, ColoredDictionary]] = []

    def add(self, layer: Labels, image: Image, shown: ColoredDictionary) -> None:
        layer.metadata.setdefault(METADATA_KEY, {})[_DICTIONARY_KEY] = shown.dictionary
        layer.colormap = shown.colormap()
        self.known.append((layer, image, shown))

    def highlight(self, atom_ids: Collection[int]) -> None:
        """Show where atoms are used; none: show all."""
        for layer, _, shown in self.known:
            layer.colormap = shown.colormap(atom_ids)
            if len(atom_ids) == 1:
                layer.selected_label = shown.label_of(*atom_ids) or layer.selected_label

    def where(self, atom_id: int) -> tuple[Labels, int] | None:
        """Return the layer and the label of an atom: the layer that is selected, or the newest."""
        able = [one for one in self.known if one[2].label_of(atom_id)]
        active = self._viewer.layers.selection.active
        found = [one for one in able if active in one[:2]] or able
        return (found[-1][0], found[-1][2].label_of(atom_id)) if found else None

    def forget(self, layer: Layer) -> None:
        """Let go of a layer that was removed, and of those that show atoms on it."""
        self.known = [one for one in self.known if layer not in one[:2]]


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], list[Any]] | None:
    """Return what reads a dictionary, if a path may be one."""
    paths = [path] if isinstance(path, str) else path
    is_dictionary = all(Path(one).suffix.lower() == DICTIONARY_SUFFIX for one in paths)
    return _read_dictionaries if is_dictionary else None


def _read_dictionaries(path: str | list[str]) -> list[Any]:
    """Open dictionaries in the dock; without a window, as a stack of atoms."""
    paths = [Path(one) for one in ([path] if isinstance(path, str) else path)]
    viewer = napari.current_viewer()
    if viewer is not None:
        _, dock = viewer.window.add_plugin_dock_widget("napari-saf", "Patch dictionary")
        for one in paths:
            dock.load(one)
        return [(None,)]  # napari's sign for no layer
    layers = []
    for one in paths:
        dictionary = PatchDictionary.load(one)
        is_rgb = dictionary.n_channels == 3
        atoms = dictionary.atoms if is_rgb else dictionary.atoms.mean(axis=-1)
        layers.append((atoms, {"name": one.stem, "rgb": is_rgb}, "image"))
    return layers


def write_dictionary(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save the dictionary whose atoms a layer of labels shows."""
    entry = attributes.get("metadata", {}).get(METADATA_KEY)
    dictionary = entry.get(_DICTIONARY_KEY) if isinstance(entry, dict) else None
    if not isinstance(dictionary, PatchDictionary):
        raise InvalidInput(
            f"{attributes.get('name', 'layer')}: expected labels that a patch dictionary made"
        )
    dictionary.save(path)
    return [path]
