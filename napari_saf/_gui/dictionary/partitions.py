"""The layers of labels that dictionaries made: where an atom is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from napari.utils.colormaps import CyclicLabelColormap

from napari_saf._gui.dictionary.edition import Edition
from napari_saf._gui.layers.metadata import METADATA_KEY
from napari_saf.dictionary import PatchDictionary

__all__ = ["DICTIONARY_KEY", "Partition", "Partitions", "dictionary_of"]

DICTIONARY_KEY = "dictionary"
"""Where the metadata of a layer hold the dictionary whose atoms it shows."""
_DIMMED_ALPHA = 0.12


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A layer of labels whose label l is atom l - 1 of an edition."""

    layer: Labels
    image: Image
    edition: Edition

    def label_of(self, identity: int) -> int | None:
        """Return the label of an atom; None if the edition has no such atom."""
        identities = self.edition.identities
        return identities.index(identity) + 1 if identity in identities else None

    def colormap(self, highlighted: Collection[int]) -> CyclicLabelColormap:
        """Return the colours of the atoms, pale where others are highlighted."""
        colors = np.concatenate([np.zeros((1, 4), np.float32), self.edition.colors])
        labels = [self.label_of(identity) for identity in highlighted]
        if any(label is not None for label in labels):
            pale = np.setdiff1d(np.arange(len(colors)), [label for label in labels if label])
            colors[pale, 3] *= _DIMMED_ALPHA
        return CyclicLabelColormap(colors=colors, background_value=0)


class Partitions:
    """The layers of labels of a viewer that show atoms; removed ones are forgotten.

    Parameters
    ----------
    viewer : napari.Viewer
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self._partitions: list[Partition] = []
        viewer.layers.events.removed.connect(self._on_removed)

    def add(self, layer: Labels, image: Image, edition: Edition) -> Partition:
        """Take note of a layer; earlier ones of the same image are hidden."""
        for earlier in self._partitions:
            if earlier.image == image:
                earlier.layer.visible = False
        new = Partition(layer, image, edition)
        layer.colormap = new.colormap(())
        layer.metadata.setdefault(METADATA_KEY, {})[DICTIONARY_KEY] = edition.dictionary
        self._partitions.append(new)
        return new

    def highlight(self, identities: Collection[int]) -> None:
        """Show where atoms are used; none: show all."""
        for partition in self._partitions:
            partition.layer.colormap = partition.colormap(identities)
            labels = [partition.label_of(identity) for identity in identities]
            if len(labels) == 1 and labels[0] is not None:
                partition.layer.selected_label = labels[0]

    def find(self, identity: int) -> Partition | None:
        """Return a partition that has an atom: that of the selected layer, or the newest."""
        able = [p for p in self._partitions if p.label_of(identity) is not None]
        active = self._viewer.layers.selection.active
        selected = [p for p in able if active in (p.layer, p.image)]
        found = selected or able
        return found[-1] if found else None

    def release(self) -> None:
        """Let go of the viewer."""
        self._viewer.layers.events.removed.disconnect(self._on_removed)
        self._partitions.clear()

    def _on_removed(self, event: Any) -> None:
        gone = event.value
        self._partitions = [p for p in self._partitions if gone not in (p.layer, p.image)]


def dictionary_of(metadata: dict[str, Any]) -> PatchDictionary | None:
    """Return the dictionary that the metadata of a layer hold, or None."""
    entry = metadata.get(METADATA_KEY)
    found = entry.get(DICTIONARY_KEY) if isinstance(entry, dict) else None
    return found if isinstance(found, PatchDictionary) else None
