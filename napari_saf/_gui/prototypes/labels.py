"""Names, locks and prototypes of the labels of a layer or a file, and how edits change them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray

from napari_saf._gui.docks.undo import UndoHistory
from napari_saf._gui.layers.live import N_COLORS, label_colors
from napari_saf._gui.layers.metadata import (
    METADATA_KEY,
    NAMES_KEY,
    PARTS_KEY,
    class_names,
    metadata_of,
    points_of,
    raw_recipe,
    recipe_of,
)
from napari_saf.errors import InvalidInput
from napari_saf.features import FEATURES
from napari_saf.io import PrototypeSet
from napari_saf.problem import ImageOptions
from napari_saf.recording import PackedArray

_EDITS_KEY = "edits"
Prototypes = Mapping[int, NDArray[np.float32]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelState:
    """The metadata of a layer of labels.

    Attributes
    ----------
    names : mapping of int to str
        Of labels that were given one.
    locked : frozenset of int
        Labels whose pixels and prototypes stay.
    prototypes : mapping of int to array of shape (n_own, n_features)
        Merged labels keep those of all that they were.
    edits : tuple of str
        Descriptions of the manual edits.
    """

    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    locked: frozenset[int] = frozenset()
    prototypes: Prototypes = dataclasses.field(default_factory=dict)
    edits: tuple[str, ...] = ()

    def name(self, number: int) -> str:
        return self.names.get(number, f"label {number}")

    def renamed(self, number: int, name: str) -> LabelState:
        """Name a label; an empty name takes its name away."""
        names = {key: old for key, old in self.names.items() if key != number}
        if name.strip() and name.strip() != f"label {number}":
            names[number] = name.strip()
        return dataclasses.replace(self, names=names)

    def with_lock(self, number: int, locked: bool) -> LabelState:
        """Lock a label, or unlock it."""
        others = self.locked - {number}
        return dataclasses.replace(self, locked=others | {number} if locked else others)

    def with_prototypes(self, prototypes: Prototypes) -> LabelState:
        """Replace all prototypes."""
        return dataclasses.replace(self, prototypes=dict(prototypes))

    def without(self, numbers: Collection[int]) -> LabelState:
        """Leave some labels out."""
        return dataclasses.replace(
            self,
            names={n: name for n, name in self.names.items() if n not in numbers},
            locked=self.locked - frozenset(numbers),
            prototypes={n: own for n, own in self.prototypes.items() if n not in numbers},
        )

    def merged(self, numbers: Collection[int], into: int) -> LabelState:
        """Make one label of some, which keeps the prototypes of all."""
        others = sorted({*numbers} - {into})
        own = [self.prototypes[n] for n in (into, *others) if n in self.prototypes]
        prototypes = dict(self.prototypes) | ({into: np.concatenate(own)} if own else {})
        names = [self.names[n] for n in (into, *sorted(numbers)) if n in self.names]
        merged = self.with_prototypes(prototypes).without(others)
        merged = merged.renamed(into, names[0] if names else "")
        return merged.with_edit(f"merged {_listed(others)} into {into}")

    def deleted(self, numbers: Collection[int]) -> LabelState:
        """Drop the labels that the user deleted."""
        return self.without(numbers).with_edit(f"deleted {_listed(sorted(numbers))}")

    def split(self, number: int, new: int, prototypes: Prototypes) -> LabelState:
        """Divide a label in two, which have these prototypes."""
        names = {n: name for n, name in self.names.items() if n != new}
        if number in names:
            names[new] = f"{names[number]} 2"
        divided = self.with_prototypes({**self.prototypes, **prototypes})
        divided = dataclasses.replace(divided, names=names)
        return divided.with_edit(f"split {number} into {number} and {new}")

    def after_run(self, numbers: NDArray[np.integer], rows: NDArray[np.floating]) -> LabelState:
        """Take over the prototypes of a run of some labels, row l - 1 for label l.

        Locked labels keep theirs, and so do labels with several; a label without pixels has none.
        """
        prototypes = dict(self.prototypes)
        for number in {int(n) for n in numbers} - self.locked:
            if len(prototypes.get(number, ())) > 1:
                continue
            prototypes.pop(number, None)
            if np.isfinite(rows[number - 1]).all():
                prototypes[number] = np.asarray(rows[number - 1 : number], dtype=np.float32)
        return self.with_prototypes(prototypes)

    def with_edit(self, description: str) -> LabelState:
        """Add a line to the list of edits."""
        return dataclasses.replace(self, edits=(*self.edits, description))

    def mean_rows(self) -> NDArray[np.float32] | None:
        """Return the mean prototype of label l in row l - 1, NaN where there is none."""
        if not self.prototypes:
            return None
        width = next(iter(self.prototypes.values())).shape[1]
        rows = np.full((max(self.prototypes), width), np.nan, dtype=np.float32)
        for number, own in self.prototypes.items():
            rows[number - 1] = own.mean(axis=0)
        return rows


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(map(str, numbers))


class LayerSource:
    """The state of a Labels layer; all but the locks is stored in the metadata of the layer."""

    def __init__(self, layer: Labels) -> None:
        self.layer = layer
        self._locked: frozenset[int] = frozenset()

    @property
    def title(self) -> str:
        """The name of the layer."""
        return str(self.layer.name)

    @property
    def state(self) -> LabelState:
        """The state now; runs and other docks change it, too."""
        edits = metadata_of(self.layer).get(_EDITS_KEY, ())
        return LabelState(class_names(self.layer), self._locked, points_of(self.layer), edits)

    @state.setter
    def state(self, state: LabelState) -> None:
        self._locked = state.locked
        self.layer.metadata[NAMES_KEY] = dict(state.names)
        if raw_recipe(self.layer) is not None:
            self.layer.metadata[METADATA_KEY] = metadata_of(self.layer) | {
                "prototypes": state.mean_rows(),
                PARTS_KEY: {n: own for n, own in state.prototypes.items() if len(own) > 1},
                _EDITS_KEY: state.edits,
            }

    @property
    def options(self) -> ImageOptions | None:
        """How the image became features, or None where that is not known."""
        try:
            return recipe_of(self.layer).options
        except InvalidInput:
            return None

    def colors(self, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the colours of labels, of shape (n, 4)."""
        # A colormap that shows the chosen label alone would leave the others black.
        colormap = self.layer.colormap.model_copy(update={"use_selection": False})
        found = np.asarray(colormap.map(numbers), dtype=float).reshape(-1, 4)
        return np.asarray(np.clip(found, 0, 1))


class FileSource:
    """The state of a file of prototypes, which has no pixels."""

    layer = None

    def __init__(self, title: str, loaded: PrototypeSet) -> None:
        self.title = title
        self.options = loaded.options
        self.state = LabelState(dict(loaded.names), prototypes=loaded.by_label())
        self._default_colors, self._colors = label_colors(), loaded.colors

    def colors(self, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the colours of labels, of shape (n, 4)."""
        colors = np.array(self._default_colors[(numbers - 1) % N_COLORS + 1], dtype=float)
        for k, number in enumerate(numbers.tolist()):
            if number in self._colors:
                colors[k] = (*self._colors[number], 1)
        return colors.reshape(-1, 4)


Source = LayerSource | FileSource


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class UndoStep:
    """What an edit was about to change, as it was; None for what it did not change.

    `added` is a layer or a file that the edit added.
    """

    name: str
    source: Source
    state: LabelState | None = None
    pixels: PackedArray | None = None
    added: Any = None

    @property
    def n_bytes(self) -> int:
        """What the pixels take."""
        return 0 if self.pixels is None else self.pixels.n_bytes


class SourceList:
    """The layers and open files whose labels are edited, and the history of their edits."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        self._viewer = viewer
        self._layers: list[LayerSource] = []
        self._restored: UndoStep | None = None
        self.files: list[FileSource] = []
        self.history: UndoHistory[UndoStep] = UndoHistory(lambda step: step.n_bytes)
        viewer.layers.events.removed.connect(self._on_layer_removed)

    def of(self, value: Any) -> Source | None:
        """Return the source of a layer; that of a file, or None, as it is."""
        if value is None or isinstance(value, FileSource):
            return value
        return self.of_layer(value)

    def of_layer(self, layer: Any) -> LayerSource:
        """Return the source of a layer, the same at every call while the viewer has the layer."""
        known = next((one for one in self._layers if one.layer == layer), None)
        if known is None:
            known = LayerSource(layer)
            if layer in self._viewer.layers:
                self._layers.append(known)
        return known

    def edit(
        self, source: Source, name: str, state: LabelState, before: PackedArray | None = None
    ) -> None:
        """Change the state of a source, and note it with the pixels as they were."""
        self.history.push(UndoStep(name, source, source.state, before))
        source.state = state

    def restore(self, step: UndoStep, pixels: PackedArray | None, *, is_undo: bool) -> None:
        """Undo or redo a step whose pixels were restored already; `pixels` are those before."""
        inverse, self._restored = step, step
        if step.state is not None:
            inverse = UndoStep(step.name, step.source, step.source.state, pixels)
            step.source.state = step.state
        layers, added = self._viewer.layers, step.added
        if isinstance(added, FileSource):
            self.files = [one for one in self.files if one is not added]
            self.files += [] if is_undo else [added]
        elif is_undo and added is not None and added in layers:
            layers.remove(added)
        elif not is_undo and added is not None and added not in layers:
            self._viewer.add_layer(added)
        self._restored = None
        self.history.exchange(step, inverse, is_undo=is_undo)

    def release(self) -> None:
        """Disconnect from the viewer and forget its layers."""
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        self._layers.clear()
        self.files.clear()
        self.history.clear()

    def _on_layer_removed(self, event: Any) -> None:
        gone = event.value
        self._layers = [one for one in self._layers if one.layer != gone]
        self.history.discard(
            lambda step: step is not self._restored and gone in (step.source.layer, step.added)
        )


def prototype_set(source: Source, rescale: bool | None = None) -> PrototypeSet:
    """Return the prototypes of a layer or a file, as a file stores them.

    `rescale` selects how other images are scaled; None keeps the earlier choice.
    """
    state, options = source.state, source.options
    numbers = np.array(sorted(state.prototypes), dtype=np.int64)
    if not len(numbers):
        raise InvalidInput("these labels come without prototypes")
    colors = dict(zip(numbers.tolist(), source.colors(numbers)[:, :3].tolist(), strict=True))
    if options is not None and options.features not in FEATURES:
        options = None
    if options is not None and rescale is not None:
        options = dataclasses.replace(options, rescale=rescale)
    return PrototypeSet.from_points(
        state.prototypes, names=state.names, colors=colors, options=options
    )
