"""Names, locks and prototypes of the labels of a layer or a file, and their edits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray

from napari_saf._gui.docks.label_table import LabelRow
from napari_saf._gui.forms.controls import fill_colors
from napari_saf._gui.layers import metadata
from napari_saf._gui.layers.live import N_COLORS, label_colors
from napari_saf.errors import InvalidInput
from napari_saf.io import PrototypeSet
from napari_saf.problem import ImageOptions

_LOCKS_KEY = "locked_labels"
Prototypes = Mapping[int, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class LabelState:
    """Names, locks and prototypes of labels, and descriptions of the edits by hand.

    Locked labels keep pixels and prototypes. Prototypes have shape (n_rows, n_features); a merged
    label keeps the rows of all its parts.
    """

    names: Mapping[int, str] = field(default_factory=dict)
    locked: frozenset[int] = frozenset()
    prototypes: Prototypes = field(default_factory=dict)
    edits: tuple[str, ...] = ()

    def name(self, number: int) -> str:
        return self.names.get(number, f"label {number}")

    def renamed(self, number: int, name: str) -> LabelState:
        """Rename a label; an empty name restores the default."""
        names = {key: old for key, old in self.names.items() if key != number}
        if name.strip() and name.strip() != f"label {number}":
            names[number] = name.strip()
        return replace(self, names=names)

    def with_lock(self, number: int, locked: bool) -> LabelState:
        change = self.locked.union if locked else self.locked.difference
        return replace(self, locked=change({number}))

    def with_prototypes(self, prototypes: Prototypes) -> LabelState:
        return replace(self, prototypes={**self.prototypes, **prototypes})

    def without(self, numbers: Collection[int]) -> LabelState:
        return replace(
            self,
            names={n: name for n, name in self.names.items() if n not in numbers},
            locked=self.locked - frozenset(numbers),
            prototypes={n: rows for n, rows in self.prototypes.items() if n not in numbers},
        )

    def merged(self, numbers: Collection[int], into: int) -> LabelState:
        """Merge labels into one, which keeps the prototypes of all."""
        gone = sorted({*numbers} - {into})
        rows = [self.prototypes[n] for n in (into, *gone) if n in self.prototypes]
        names = [self.names[n] for n in (into, *gone) if n in self.names]
        merged = self.with_prototypes({into: np.concatenate(rows)} if rows else {}).without(gone)
        merged = merged.renamed(into, names[0] if names else "")
        return merged.with_edit(f"merged {', '.join(map(str, gone))} into {into}")

    def deleted(self, numbers: Collection[int]) -> LabelState:
        listed = ", ".join(map(str, sorted(numbers)))
        return self.without(numbers).with_edit(f"deleted {listed}")

    def split(self, number: int, new: int, prototypes: Prototypes) -> LabelState:
        """Split a label in two with new prototypes; the second is named after the first."""
        name = f"{self.names[number]} 2" if number in self.names else ""
        halves = self.renamed(new, name).with_prototypes(prototypes)
        return halves.with_edit(f"split {number} into {number} and {new}")

    def after_run(self, numbers: NDArray[np.integer], rows: NDArray[np.floating]) -> LabelState:
        """Adopt the prototypes of a run of the labels `numbers`, row l - 1 for label l.

        Locked labels and labels with several prototypes keep theirs; one without pixels has none.
        """
        prototypes = dict(self.prototypes)
        for number in {int(n) for n in numbers} - self.locked:
            if len(prototypes.get(number, ())) > 1:
                continue
            prototypes.pop(number, None)
            if np.isfinite(rows[number - 1]).all():
                prototypes[number] = np.asarray(rows[number - 1 : number], dtype=np.float32)
        return replace(self, prototypes=prototypes)

    def with_edit(self, description: str) -> LabelState:
        return replace(self, edits=(*self.edits, description))


@dataclass
class LayerSource:
    """The label state of a Labels layer, stored in its metadata."""

    layer: Labels

    @property
    def title(self) -> str:
        return str(self.layer.name)

    @property
    def state(self) -> LabelState:
        locked = frozenset(self.layer.metadata.get(_LOCKS_KEY, ()))
        edits = metadata.metadata_of(self.layer).get(metadata.EDITS_KEY, ())
        return LabelState(
            metadata.class_names(self.layer), locked, metadata.points_of(self.layer), edits
        )

    @state.setter
    def state(self, state: LabelState) -> None:
        self.layer.metadata[_LOCKS_KEY] = state.locked
        self.layer.metadata[metadata.NAMES_KEY] = dict(state.names)
        if metadata.stored_recipe(self.layer) is None:
            return
        entries = metadata.prototype_entries(state.prototypes) | {metadata.EDITS_KEY: state.edits}
        self.layer.metadata[metadata.METADATA_KEY] = metadata.metadata_of(self.layer) | entries

    @property
    def why_not_edited(self) -> str:
        """Reason why the pixels cannot be changed; empty if they can."""
        data = self.layer.data
        if self.layer.multiscale:
            return "labels at several resolutions cannot be edited here"
        if not isinstance(data, np.ndarray) or not data.flags.writeable:
            return "these labels are stored in a file: duplicate the layer into memory to edit them"
        return "" if data.dtype.kind in "iu" else f"expected whole numbers, got {data.dtype}"

    @property
    def options(self) -> ImageOptions | None:
        """Options by which the features were computed, or None if unknown."""
        try:
            return metadata.recipe_of(self.layer).options
        except InvalidInput:
            return None

    def colors(self, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
        return metadata.colors_of(self.layer, numbers)


class FileSource:
    """The prototypes of a file, which has no pixels."""

    layer = None
    why_not_edited = ""

    def __init__(self, title: str, loaded: PrototypeSet) -> None:
        self.title = title
        self.options = loaded.options
        self.state = LabelState(dict(loaded.names), prototypes=loaded.by_label())
        self._default_colors, self._colors = label_colors(), loaded.colors

    def colors(self, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
        colors = np.array(self._default_colors[(numbers - 1) % N_COLORS + 1], dtype=float)
        for k, number in enumerate(numbers.tolist()):
            if number in self._colors:
                colors[k] = (*self._colors[number], 1)
        return colors.reshape(-1, 4)


Source = LayerSource | FileSource


def prototype_set(source: Source, rescale: bool | None = None) -> PrototypeSet:
    """Return the prototypes of a layer or a file in the form that files store.

    `rescale` sets how other images are scaled; None keeps the earlier choice.
    """
    state, options = source.state, source.options
    numbers = np.array(sorted(state.prototypes), dtype=np.int64)
    if not len(numbers):
        raise InvalidInput("these labels have no prototypes")
    colors = dict(zip(numbers.tolist(), source.colors(numbers)[:, :3].tolist(), strict=True))
    if options is not None and options.extractor is None:
        options = None
    if options is not None and rescale is not None:
        options = replace(options, rescale=rescale)
    return PrototypeSet.from_points(
        state.prototypes, names=state.names, colors=colors, options=options
    )


def rows_of(source: Source, sizes: Mapping[int, int]) -> list[LabelRow]:
    """Return the table rows of a layer with these label sizes, or of a file."""
    state = source.state
    numbers = np.array(sorted(state.prototypes if source.layer is None else sizes), dtype=np.int64)
    if not len(numbers):
        return []
    features = "" if source.options is None else source.options.features
    total = max(1, sum(sizes.values()))
    every = np.concatenate([*state.prototypes.values()]) if state.prototypes else np.zeros((1, 1))
    low, high = float(every.min()), float(every.max())
    nothing = np.full((len(every), 3), np.nan)
    colors = iter(fill_colors(every, features, nothing))
    fills_of = {n: [next(colors) for _ in points] for n, points in state.prototypes.items()}
    rows = []
    for number, color in zip(numbers.tolist(), source.colors(numbers), strict=True):
        points, fills = list(state.prototypes.get(number, [])), fills_of.get(number, [])
        has_colors = bool(fills) and bool(np.isfinite(fills[0]).all())
        row = LabelRow(
            number,
            state.name(number),
            color,
            f": label {number}",
            fills=fills if has_colors else (),
            profile=None if has_colors or not fills else (points[0] - low) / max(high - low, 1e-12),
            locked=number in state.locked,
        )
        if source.layer is not None:
            row = replace(row, size=sizes[number], share=sizes[number] / total)
        rows.append(row)
    return rows
