"""Which label is which: from the columns of an assignment to label numbers, names and colours."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.errors import InvalidInput

__all__ = ["MOST_LABELS", "LabelMap"]

Color = tuple[float, float, float, float]

MOST_LABELS = 2**16 - 1
"""The largest label that has a prototype: tables by label have a row for each up to it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LabelMap:
    """The label number of each column of an assignment, and what labels are called.

    Immutable. Made once the numbers of a run are fixed (by size, by seeds, by given prototypes)
    and carried along: nobody else translates between columns and labels.

    `numbers` (n_columns,) are the labels of the columns, 1, 2, ...; 0 where a column owns none.
    Gaps are allowed, and several columns may share a label. `names` and `colors` (red, green,
    blue and alpha in [0, 1]) are by label number.
    """

    numbers: NDArray[np.int64]
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    colors: Mapping[int, Color] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        given = np.asarray(self.numbers)
        is_whole = given.dtype.kind in "biu" or not given.size
        if given.ndim != 1 or not is_whole or (given.size and given.min() < 0):
            raise InvalidInput(f"numbers: expected whole numbers from 0 on, got {given!r:.60}")
        numbers = given.astype(np.int64)
        numbers.setflags(write=False)
        object.__setattr__(self, "numbers", numbers)
        for name in ("names", "colors"):
            object.__setattr__(self, name, types.MappingProxyType(dict(getattr(self, name))))

    @classmethod
    def identity(cls, n_columns: int) -> LabelMap:
        """Return the map in which label l is column l - 1."""
        return cls(np.arange(1, n_columns + 1))

    @classmethod
    def by_size(cls, sizes: ArrayLike) -> LabelMap:
        """Return the map that numbers columns by size, largest first; an empty one has no label."""
        given = np.asarray(sizes)
        order = np.argsort(-given, kind="stable")  # of equal columns the first comes first
        order = order[given[order] > 0]
        numbers = np.zeros(len(given), dtype=np.int64)
        numbers[order] = np.arange(1, len(order) + 1)
        return cls(numbers)

    @classmethod
    def from_seeds(cls, seeds: ArrayLike) -> LabelMap:
        """Return the map with a column for each class of the seeds, ascending; 0 is no seed."""
        present = np.unique(np.asarray(seeds))
        return cls(present[present > 0])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.numbers)

    @property
    def columns(self) -> NDArray[np.int64]:
        """Column of each label: entry l - 1 is that of label l, -1 where no column has it.

        Of several columns with one label the first. Labels above `MOST_LABELS` are left out.
        """
        own = np.flatnonzero((self.numbers > 0) & (self.numbers <= MOST_LABELS))[::-1]
        columns = np.full(int(self.numbers[own].max(initial=0)), -1, dtype=np.int64)
        columns[self.numbers[own] - 1] = own
        return columns

    def paint(self, columns_image: NDArray[np.integer[Any]]) -> NDArray[np.unsignedinteger[Any]]:
        """Return label numbers for an image of columns counted from 1, 0 outside.

        In the smallest unsigned type that holds all labels of the map; the image itself if
        nothing changes.
        """
        table = np.concatenate([[0], self.numbers])
        table = table.astype(np.min_scalar_type(int(table.max())))
        is_identity = (table == np.arange(len(table))).all()
        if is_identity and columns_image.dtype == table.dtype:
            return cast("NDArray[np.unsignedinteger[Any]]", columns_image)
        return np.asarray(table[columns_image])

    def unpaint(self, labels: NDArray[np.integer[Any]]) -> NDArray[np.unsignedinteger[Any]]:
        """Return columns counted from 1 for an image of labels; 0 where no column has the label.

        The inverse of `paint`, where no two columns share a label.
        """
        kind, columns = np.min_scalar_type(self.n_columns), self.columns
        if labels.size and labels.max() <= len(columns):
            return np.asarray(np.concatenate([[0], columns + 1]).astype(kind)[labels])
        own = np.flatnonzero(self.numbers)
        numbers, first = np.unique(self.numbers[own], return_index=True)
        place = np.searchsorted(numbers, labels)
        table = np.concatenate([own[first] + 1, [0]]).astype(kind)
        matches = np.concatenate([numbers, [-1]])[place] == labels
        return np.where(matches, table[place], table.dtype.type(0))

    def rows(self, prototypes: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Return prototypes (n_columns, n_features) in rows by label: row l - 1 is that of label l.

        Rows of labels that no column has are NaN, and of several columns with one label the mean
        of those that are finite. Labels above `MOST_LABELS` and columns beyond those of the map
        are left out.
        """
        numbers = self.numbers[: len(prototypes)]
        known = (numbers > 0) & (numbers <= MOST_LABELS)
        n_rows = int(numbers[known].max(initial=0))
        if np.array_equal(numbers, np.arange(1, len(prototypes) + 1)):
            return prototypes.astype(np.float32, copy=False)
        known &= np.isfinite(prototypes[: len(numbers)]).all(axis=1)
        sums = np.zeros((n_rows, prototypes.shape[1]))
        np.add.at(sums, numbers[known] - 1, prototypes[: len(numbers)][known])
        counts = np.bincount(numbers[known] - 1, minlength=n_rows)
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / counts[:, None], dtype=np.float32)

    def extended(self, n_columns: int) -> LabelMap:
        """Return the map of at least so many columns: those without label come last."""
        n_more = max(0, n_columns - self.n_columns)
        numbers = np.concatenate([self.numbers, np.zeros(n_more, dtype=np.int64)])
        free = np.flatnonzero(numbers == 0)
        numbers[free] = int(numbers.max(initial=0)) + np.arange(1, len(free) + 1)
        return dataclasses.replace(self, numbers=numbers)
