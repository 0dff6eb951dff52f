"""Editing of objects: merge, cut, delete and paint, with undo and redo."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from napari_saf.errors import InvalidInput
from napari_saf.objects._corrections import Corrections
from napari_saf.objects._load import MOST_NUMBER
from napari_saf.objects._split import NECK, SMALLEST, Objects

_LEAST_SHARE = 0.01
"""Share of a cut object below which a part joins its neighbour."""
_FULL = "objects: all numbers are in use; save the objects and load them again"


class _State(NamedTuple):
    """State of the editor except `labels`; `split` are the labels after the last split."""

    kinds: NDArray[np.int64]
    split: NDArray[np.integer]
    numbers: tuple[int, float]
    held: NDArray[np.int64]
    n_corrections: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Edit:
    indices: NDArray[np.integer]
    old: NDArray[np.unsignedinteger]
    new: NDArray[np.unsignedinteger] | int
    states: tuple[_State, _State]


class ObjectEditor:
    """Editor of objects; edits change the array `labels` in place, or on errors not at all.

    `labels` is uint16, which napari displays without a copy, if at least half of the numbers are
    free.
    """

    def __init__(self, objects: Objects, smallest: int = SMALLEST, neck: float = NECK) -> None:
        is_small = 2 * len(objects.kinds) < 2**16
        dtype = np.uint16 if is_small else np.uint32
        self.labels: NDArray[np.unsignedinteger] = objects.labels.astype(dtype)
        self._objects = objects
        held = np.zeros(0, np.int64)
        self._state = _State(objects.kinds.copy(), objects.labels, (smallest, neck), held, 0)
        self._done: list[_Edit] = []
        self._undone: list[_Edit] = []
        self.is_painted = False

    @property
    def kinds(self) -> NDArray[np.int64]:
        """Kind of each object by its number, 0 for unused numbers."""
        return self._state.kinds

    @property
    def split_by(self) -> tuple[int, float]:
        """Minimum size and neck depth of the split."""
        return self._state.numbers

    @property
    def n_corrections(self) -> int:
        """Number of objects merged, cut, deleted or painted."""
        return self._state.n_corrections

    @property
    def corrections(self) -> Corrections:
        kinds, split, numbers, held, _ = self._state
        return Corrections(self.labels.copy(), split, kinds, *numbers, held)

    @property
    def objects(self) -> Objects:
        labels = self.labels.astype(np.uint32)
        return dataclasses.replace(self._objects, labels=labels, kinds=self.kinds)

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.kinds)

    @property
    def next_number(self) -> int:
        return len(self.kinds)

    @property
    def is_corrected(self) -> bool:
        """Whether a new split would discard edits."""
        return self.is_painted or bool(self._done)

    @property
    def can_undo(self) -> bool:
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    def merge(self, numbers: Sequence[int]) -> int:
        """Merge objects of one kind into the first one, and return its number."""
        first, *merged = self._checked(numbers, 2)
        if len(set(self.kinds[[first, *merged]].tolist())) > 1:
            raise InvalidInput("merge: expected objects of the same kind, got several kinds")
        kinds = self.kinds.copy()
        kinds[merged] = 0
        self._apply(np.flatnonzero(np.isin(self.labels, merged)), first, kinds)
        return first

    def delete(self, numbers: Sequence[int]) -> None:
        gone, kinds = self._checked(numbers, 1), self.kinds.copy()
        kinds[gone] = 0
        self._apply(np.flatnonzero(np.isin(self.labels, gone)), 0, kinds)

    def cut(self, number: int, line: ArrayLike) -> list[int]:
        """Cut an object along a polyline (n, 2) in all slices; return the parts, largest first."""
        from skimage.draw import line as pixels_between

        self._checked([number], 1)
        points = np.round(np.asarray(line, float)).astype(int)
        box = ndimage.find_objects((self.labels == number).astype(np.uint8))[0]
        inside = self.labels[box] == number
        remaining = inside.copy()
        corner = np.array([side.start for side in box[-2:]])
        for start, end in zip(points[:-1] - corner, points[1:] - corner, strict=True):
            rows, columns = pixels_between(*start, *end)
            is_in = (rows >= 0) & (rows < remaining.shape[-2]) & (columns >= 0)
            is_in &= columns < remaining.shape[-1]
            remaining[..., rows[is_in], columns[is_in]] = False
        parts, _ = ndimage.label(remaining)
        sizes = np.bincount(parts.ravel())
        sizes[0] = 0
        large = np.flatnonzero(sizes >= max(1, _LEAST_SHARE * inside.sum()))
        if len(large) < 2:
            raise InvalidInput(
                f"cut: the line does not divide object {number}; draw it across the whole object"
            )
        nearest = ndimage.distance_transform_edt(
            ~np.isin(parts, large), return_distances=False, return_indices=True
        )
        order = large[np.argsort(-sizes[large], kind="stable")]
        numbers = [number, *range(self.next_number, self.next_number + len(order) - 1)]
        if numbers[-1] > 2 ** (8 * self.labels.itemsize) - 1:
            raise InvalidInput(_FULL)
        table = np.zeros(len(sizes), self.labels.dtype)
        table[order] = numbers
        indices = np.ravel_multi_index(
            tuple(axis + side.start for axis, side in zip(np.nonzero(inside), box, strict=True)),
            self.labels.shape,
        )
        new_kinds = np.full(len(order) - 1, self.kinds[number])
        self._apply(indices, table[parts[tuple(nearest)][inside]], np.append(self.kinds, new_kinds))
        return numbers

    def replace(self, corrections: Corrections) -> None:
        """Replace the split as one undo step, by a result of `learn` or `split_rest`."""
        if len(corrections.kinds) - 1 > np.iinfo(self.labels.dtype).max:
            raise InvalidInput(_FULL)
        indices = np.flatnonzero(corrections.labels != self.labels)
        new = corrections.labels.reshape(-1)[indices].astype(self.labels.dtype)
        numbers = corrections.smallest, corrections.neck
        state = (corrections.kinds, corrections.split, numbers, corrections.held)
        self._step(indices, new, _State(*state, self.n_corrections))

    def adopt(self, kind: int) -> None:
        """Register painted numbers as objects of a kind, which clears the undo history."""
        lower_numbers(self.labels, self.next_number)
        counts = np.bincount(self.labels.ravel(), minlength=len(self.kinds))
        kinds = np.append(self.kinds, np.zeros(len(counts) - len(self.kinds), np.int64))
        new = np.flatnonzero((counts > 0) & (kinds == 0))
        kinds[new[new > 0]] = kind
        kinds[counts == 0] = 0
        n_corrections = self.n_corrections + len(new[new > 0])
        self._state = self._state._replace(kinds=kinds, n_corrections=n_corrections)
        self.is_painted = True
        self._done.clear()
        self._undone.clear()

    def undo(self) -> None:
        edit = self._done.pop()
        self.labels.reshape(-1)[edit.indices] = edit.old
        self._state = edit.states[0]
        self._undone.append(edit)

    def redo(self) -> None:
        edit = self._undone.pop()
        self.labels.reshape(-1)[edit.indices] = edit.new
        self._state = edit.states[1]
        self._done.append(edit)

    def _checked(self, numbers: Sequence[int], least: int) -> list[int]:
        requested = list(dict.fromkeys(int(number) for number in numbers))
        valid = [n for n in requested if 0 < n < len(self.kinds) and self.kinds[n]]
        if len(valid) < len(requested) or len(requested) < least:
            raise InvalidInput(
                f"objects: expected {least} or more existing object numbers, got {requested}"
            )
        return requested

    def _apply(
        self,
        indices: NDArray[np.integer],
        new: NDArray[np.unsignedinteger] | int,
        kinds: NDArray[np.int64],
    ) -> None:
        count = self.n_corrections + 1
        self._step(indices, new, self._state._replace(kinds=kinds, n_corrections=count))

    def _step(
        self,
        indices: NDArray[np.integer],
        new: NDArray[np.unsignedinteger] | int,
        state: _State,
    ) -> None:
        flat = self.labels.reshape(-1)
        self._done.append(_Edit(indices, flat[indices], new, (self._state, state)))
        self._undone.clear()
        flat[indices] = new
        self._state = state


def lower_numbers(labels: NDArray[np.unsignedinteger], next_number: int) -> None:
    """Renumber labels above `MOST_NUMBER` from the next free number, in place."""
    numbers = np.unique(labels)
    is_huge = numbers > MOST_NUMBER
    first = max(next_number, 1 + int(numbers[~is_huge].max(initial=0)))
    for number, new in zip(numbers[is_huge], itertools.count(first), strict=False):
        labels[labels == number] = new
