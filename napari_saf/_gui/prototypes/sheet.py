"""What is known of the labels of a layer or a file, and how edits change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray

from napari_saf._gui.layers.live import N_COLORS
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
from napari_saf.io import PrototypeSet
from napari_saf.problem import ImageOptions

__all__ = ["FileBook", "LayerBook", "Sheet"]

_EDITS = "edits"
Points = Mapping[int, NDArray[np.float32]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """Names, locks and prototypes by label.

    Attributes
    ----------
    names : mapping of int to str
        Of labels that were given one.
    locked : frozenset of int
        Labels whose pixels and prototypes stay.
    points : mapping of int to array of shape (n_own, n_features)
        Prototypes; merged labels keep those of all that they were.
    edits : tuple of str
        What was done by hand, in words.
    """

    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    locked: frozenset[int] = frozenset()
    points: Points = dataclasses.field(default_factory=dict)
    edits: tuple[str, ...] = ()

    def name(self, number: int) -> str:
        """Return the name of a label."""
        return self.names.get(number, f"label {number}")

    def renamed(self, number: int, name: str) -> Sheet:
        """Return the sheet with another name for a label; an empty one takes its name away."""
        names = {key: old for key, old in self.names.items() if key != number}
        if name.strip() and name.strip() != f"label {number}":
            names[number] = name.strip()
        return dataclasses.replace(self, names=names)

    def with_lock(self, number: int, locked: bool) -> Sheet:
        """Return the sheet with a label locked, or not."""
        change = {number}
        return dataclasses.replace(
            self, locked=self.locked | change if locked else self.locked - change
        )

    def merged(self, numbers: Collection[int], into: int) -> Sheet:
        """Return the sheet with some labels in one, which keeps the prototypes of all."""
        own = [self.points[n] for n in (into, *sorted({*numbers} - {into})) if n in self.points]
        points = dict(self.points) | ({into: np.concatenate(own)} if own else {})
        name = self.names.get(into) or next(
            (self.names[n] for n in sorted(numbers) if n in self.names), ""
        )
        words = ", ".join(str(n) for n in sorted({*numbers} - {into}))
        merged = dataclasses.replace(self, points=points).without({*numbers} - {into})
        return merged.renamed(into, name).noted(f"merged {words} into {into}")

    def without(self, numbers: Collection[int]) -> Sheet:
        """Return the sheet without some labels."""
        return dataclasses.replace(
            self,
            names={n: name for n, name in self.names.items() if n not in numbers},
            locked=self.locked - frozenset(numbers),
            points={n: own for n, own in self.points.items() if n not in numbers},
        )

    def deleted(self, numbers: Collection[int]) -> Sheet:
        """Return the sheet without labels that a person deleted."""
        words = ", ".join(str(n) for n in sorted(numbers))
        return self.without(numbers).noted(f"deleted {words}")

    def split(self, number: int, new: int, points: Points) -> Sheet:
        """Return the sheet with a label split in two, which have these prototypes."""
        names = {n: name for n, name in self.names.items() if n != new}
        if number in names:
            names[new] = f"{names[number]} 2"
        sheet = dataclasses.replace(self, names=names, points={**self.points, **points})
        return sheet.noted(f"split {number} into {number} and {new}")

    def with_points(self, points: Points) -> Sheet:
        """Return the sheet with other prototypes."""
        return dataclasses.replace(self, points=dict(points))

    def followed(self, numbers: NDArray[np.integer], rows: NDArray[np.floating]) -> Sheet:
        """Return the sheet after a run of some labels, where row l - 1 is that of label l.

        Locked labels keep their prototypes, and so do labels with several; of a label that
        died none is left.
        """
        points = dict(self.points)
        for number in {int(n) for n in numbers} - self.locked:
            if len(points.get(number, ())) > 1:
                continue
            points.pop(number, None)
            if np.isfinite(rows[number - 1]).all():
                points[number] = np.asarray(rows[number - 1 : number], dtype=np.float32)
        return dataclasses.replace(self, points=points)

    def table(self) -> NDArray[np.float32] | None:
        """Return a row a label, the mean of its prototypes, NaN where there is none."""
        if not self.points:
            return None
        width = next(iter(self.points.values())).shape[1]
        rows = np.full((max(self.points), width), np.nan, dtype=np.float32)
        for number, own in self.points.items():
            rows[number - 1] = own.mean(axis=0)
        return rows

    def noted(self, words: str) -> Sheet:
        """Return the sheet with a note of what was done."""
        return dataclasses.replace(self, edits=(*self.edits, words))


class LayerBook:
    """The sheet of a Labels layer; all but the locks stands in the metadata of the layer.

    Parameters
    ----------
    layer : Labels
    """

    def __init__(self, layer: Labels) -> None:
        self.layer = layer
        self._locked: frozenset[int] = frozenset()

    @property
    def title(self) -> str:
        """What it is called."""
        return str(self.layer.name)

    @property
    def sheet(self) -> Sheet:
        """What is known now; runs and other docks change it, too."""
        edits = metadata_of(self.layer).get(_EDITS, ())
        return Sheet(class_names(self.layer), self._locked, points_of(self.layer), edits)

    @sheet.setter
    def sheet(self, sheet: Sheet) -> None:
        self._locked = sheet.locked
        self.layer.metadata[NAMES_KEY] = dict(sheet.names)
        if raw_recipe(self.layer) is None:
            return
        several = {n: own for n, own in sheet.points.items() if len(own) > 1}
        self.layer.metadata[METADATA_KEY] = metadata_of(self.layer) | {
            "prototypes": sheet.table(),
            PARTS_KEY: several,
            _EDITS: sheet.edits,
        }

    @property
    def options(self) -> ImageOptions | None:
        """How the image became features, or None where that is not known."""
        try:
            return recipe_of(self.layer).options
        except InvalidInput:
            return None

    def colors(self, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the colour (r, g, b, a) of each of some labels."""
        # A colormap that shows the chosen label alone would leave the others black.
        colormap = self.layer.colormap.model_copy(update={"use_selection": False})
        found = np.asarray(colormap.map(numbers), dtype=float).reshape(-1, 4)
        return np.asarray(np.clip(found, 0, 1))


class FileBook:
    """The sheet of a file of prototypes, which has no pixels.

    Parameters
    ----------
    title : str
    found : PrototypeSet
    colors : array of shape (256, 4)
        For labels that the file gives none.
    """

    layer = None

    def __init__(self, title: str, found: PrototypeSet, colors: NDArray[np.floating]) -> None:
        self.title = title
        self.options = found.options
        self.sheet = Sheet(dict(found.names), points=found.by_label())
        self._colors, self._given = colors, found.colors

    def colors(self, numbers: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the colour (r, g, b, a) of each of some labels."""
        found = np.array(self._colors[(numbers - 1) % N_COLORS + 1], dtype=float)
        for k, number in enumerate(numbers):
            if int(number) in self._given:
                found[k] = (*self._given[int(number)], 1)
        return found.reshape(-1, 4)
