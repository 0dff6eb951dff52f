"""Objects that a person corrects: merged, cut along a line, deleted; with undo and redo."""

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
"""Of an object that is cut: what is smaller belongs to the part next to it."""
_FULL = "objects: no number is left for another; save them, and load them"


class _State(NamedTuple):
    """All but the labels, and what these were after the last split; see `Corrections`."""

    kinds: NDArray[np.int64]
    split: NDArray[np.integer]
    numbers: tuple[int, float]
    held: NDArray[np.int64]
    n_corrections: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Edit:
    places: NDArray[np.integer]
    before: NDArray[np.unsignedinteger]
    after: NDArray[np.unsignedinteger] | int
    states: tuple[_State, _State]


class ObjectEditor:
    """Objects in an array of their own, `labels`, which every edit changes in place.

    It has 16 bits a pixel, which napari shows as they are, where that leaves as many numbers for
    new objects as there are objects. Errors leave all as it was: InvalidInput for numbers that no
    object has, objects of several kinds, a line that parts nothing, or if no number is left.
    """

    def __init__(self, objects: Objects, smallest: int = SMALLEST, neck: float = NECK) -> None:
        is_small = 2 * len(objects.kinds) < 2**16
        kind = np.uint16 if is_small else np.uint32
        self.labels: NDArray[np.unsignedinteger] = objects.labels.astype(kind)
        self._objects = objects
        held = np.zeros(0, np.int64)
        self._state = _State(objects.kinds.copy(), objects.labels, (smallest, neck), held, 0)
        self._done: list[_Edit] = []
        self._undone: list[_Edit] = []
        self.is_painted = False

    @property
    def kinds(self) -> NDArray[np.int64]:
        """The kind of each object by its number, 0 for a number that no object has."""
        return self._state.kinds

    @property
    def split_by(self) -> tuple[int, float]:
        """The least size, and the depth of necks, that they were split by."""
        return self._state.numbers

    @property
    def n_corrections(self) -> int:
        """How many objects were merged, cut, deleted or painted."""
        return self._state.n_corrections

    @property
    def corrections(self) -> Corrections:
        """The objects as they are now, beside those of the split."""
        kinds, split, numbers, held, _ = self._state
        return Corrections(self.labels.copy(), split, kinds, *numbers, held)

    @property
    def objects(self) -> Objects:
        """The objects as they are now, in an image of their own."""
        labels = self.labels.astype(np.uint32)
        return dataclasses.replace(self._objects, labels=labels, kinds=self.kinds)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the objects as they are now, ascending."""
        return np.flatnonzero(self.kinds)

    @property
    def next_number(self) -> int:
        """The number of the next new object."""
        return len(self.kinds)

    @property
    def is_corrected(self) -> bool:
        """Whether there is anything that objects found anew would lose."""
        return self.is_painted or bool(self._done)

    @property
    def can_undo(self) -> bool:
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    def merge(self, numbers: Sequence[int]) -> int:
        """Give objects of one kind the number of the first, which is returned."""
        first, *others = self._checked(numbers, 2)
        if len(set(self.kinds[[first, *others]].tolist())) > 1:
            raise InvalidInput("merge: the objects are of several kinds")
        kinds = self.kinds.copy()
        kinds[others] = 0
        self._apply(np.flatnonzero(np.isin(self.labels, others)), first, kinds)
        return first

    def delete(self, numbers: Sequence[int]) -> None:
        """Leave objects out."""
        gone, kinds = self._checked(numbers, 1), self.kinds.copy()
        kinds[gone] = 0
        self._apply(np.flatnonzero(np.isin(self.labels, gone)), 0, kinds)

    def cut(self, number: int, line: ArrayLike) -> list[int]:
        """Part an object along a line, through all slices of a volume; return the numbers.

        The line (n, 2) is of rows and columns; the largest part keeps the number.
        """
        from skimage.draw import line as pixels_between

        self._checked([number], 1)
        points = np.round(np.asarray(line, float)).astype(int)
        box = ndimage.find_objects((self.labels == number).astype(np.uint8))[0]
        inside = self.labels[box] == number
        rest = inside.copy()
        corner = np.array([side.start for side in box[-2:]])
        for start, end in zip(points[:-1] - corner, points[1:] - corner, strict=True):
            rows, columns = pixels_between(*start, *end)
            is_in = (rows >= 0) & (rows < rest.shape[-2]) & (columns >= 0)
            is_in &= columns < rest.shape[-1]
            rest[..., rows[is_in], columns[is_in]] = False
        parts, _ = ndimage.label(rest)
        sizes = np.bincount(parts.ravel())
        sizes[0] = 0
        kept = np.flatnonzero(sizes >= max(1, _LEAST_SHARE * inside.sum()))
        if len(kept) < 2:
            raise InvalidInput(f"cut: the line does not part object {number}")
        nearest = ndimage.distance_transform_edt(
            ~np.isin(parts, kept), return_distances=False, return_indices=True
        )
        order = kept[np.argsort(-sizes[kept], kind="stable")]
        numbers = [number, *range(self.next_number, self.next_number + len(order) - 1)]
        if numbers[-1] > 2 ** (8 * self.labels.itemsize) - 1:
            raise InvalidInput(_FULL)
        table = np.zeros(len(sizes), self.labels.dtype)
        table[order] = numbers
        places = np.ravel_multi_index(
            tuple(axis + side.start for axis, side in zip(np.nonzero(inside), box, strict=True)),
            self.labels.shape,
        )
        own = np.full(len(order) - 1, self.kinds[number])
        self._apply(places, table[parts[tuple(nearest)][inside]], np.append(self.kinds, own))
        return numbers

    def replace(self, corrections: Corrections) -> None:
        """Take objects that were split by other numbers, in one step; see `learn`."""
        if len(corrections.kinds) - 1 > np.iinfo(self.labels.dtype).max:
            raise InvalidInput(_FULL)
        places = np.flatnonzero(corrections.labels != self.labels)
        after = corrections.labels.reshape(-1)[places].astype(self.labels.dtype)
        numbers = corrections.smallest, corrections.neck
        state = (corrections.kinds, corrections.split, numbers, corrections.held)
        self._step(places, after, _State(*state, self.n_corrections))

    def adopt(self, kind: int) -> None:
        """Take numbers that somebody painted as objects of a kind; huge ones become the next ones.

        Edits before cannot be taken back then: the pixels are not as they left them.
        """
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
        """Take the last edit back."""
        edit = self._done.pop()
        self.labels.reshape(-1)[edit.places] = edit.before
        self._state = edit.states[0]
        self._undone.append(edit)

    def redo(self) -> None:
        """Do again what was taken back last."""
        edit = self._undone.pop()
        self.labels.reshape(-1)[edit.places] = edit.after
        self._state = edit.states[1]
        self._done.append(edit)

    def _checked(self, numbers: Sequence[int], least: int) -> list[int]:
        given = list(dict.fromkeys(int(number) for number in numbers))
        known = [n for n in given if 0 < n < len(self.kinds) and self.kinds[n]]
        if len(known) < len(given) or len(given) < least:
            raise InvalidInput(f"objects: expected {least} or more of those there are, got {given}")
        return given

    def _apply(
        self,
        places: NDArray[np.integer],
        after: NDArray[np.unsignedinteger] | int,
        kinds: NDArray[np.int64],
    ) -> None:
        count = self.n_corrections + 1
        self._step(places, after, self._state._replace(kinds=kinds, n_corrections=count))

    def _step(
        self,
        places: NDArray[np.integer],
        after: NDArray[np.unsignedinteger] | int,
        state: _State,
    ) -> None:
        flat = self.labels.reshape(-1)
        self._done.append(_Edit(places, flat[places], after, (self._state, state)))
        self._undone.clear()
        flat[places] = after
        self._state = state


def lower_numbers(labels: NDArray[np.unsignedinteger], next_number: int) -> None:
    """Change huge numbers to the next ones, in place: tables have a row for every number."""
    numbers = np.unique(labels)
    is_huge = numbers > MOST_NUMBER
    first = max(next_number, 1 + int(numbers[~is_huge].max(initial=0)))
    for number, new in zip(numbers[is_huge], itertools.count(first), strict=False):
        labels[labels == number] = new
