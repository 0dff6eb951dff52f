"""Objects that a person corrects: merged, cut along a line, deleted; with undo and redo."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from napari_saf.errors import InvalidInput
from napari_saf.objects._split import Objects

_LEAST_SHARE = 0.01
"""Of an object that is cut: what is smaller belongs to the part next to it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Edit:
    places: NDArray[np.integer]
    before: NDArray[np.unsignedinteger]
    after: NDArray[np.unsignedinteger] | int
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]]


class ObjectEditor:
    """Objects in an array of their own, `labels`, which every edit changes in place.

    The `kinds` are those of the objects by their number, 0 for a number that no object has.
    It has 16 bits a pixel, which napari shows as they are, where that leaves as many numbers for
    new objects as there are objects. Errors leave all as it was: InvalidInput for numbers that no
    object has, objects of several kinds, a line that parts nothing, or if no number is left.
    """

    def __init__(self, objects: Objects) -> None:
        is_small = 2 * len(objects.kinds) < 2**16
        kind = np.uint16 if is_small else np.uint32
        self.labels: NDArray[np.unsignedinteger] = objects.labels.astype(kind)
        self._objects = objects
        self.kinds = objects.kinds.copy()
        self._done: list[_Edit] = []
        self._undone: list[_Edit] = []
        self.is_painted = False

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
            raise InvalidInput("objects: no number is left for another; save them, and load them")
        table = np.zeros(len(sizes), self.labels.dtype)
        table[order] = numbers
        places = np.ravel_multi_index(
            tuple(axis + side.start for axis, side in zip(np.nonzero(inside), box, strict=True)),
            self.labels.shape,
        )
        own = np.full(len(order) - 1, self.kinds[number])
        self._apply(places, table[parts[tuple(nearest)][inside]], np.append(self.kinds, own))
        return numbers

    def adopt(self, kind: int) -> None:
        """Take numbers that somebody painted as objects of a kind.

        Edits before cannot be taken back then: the pixels are not as they left them.
        """
        counts = np.bincount(self.labels.ravel(), minlength=len(self.kinds))
        kinds = np.append(self.kinds, np.zeros(len(counts) - len(self.kinds), np.int64))
        new = np.flatnonzero((counts > 0) & (kinds == 0))
        kinds[new[new > 0]] = kind
        kinds[counts == 0] = 0
        self.kinds, self.is_painted = kinds, True
        self._done.clear()
        self._undone.clear()

    def undo(self) -> None:
        """Take the last edit back."""
        edit = self._done.pop()
        self.labels.reshape(-1)[edit.places] = edit.before
        self.kinds = edit.kinds[0]
        self._undone.append(edit)

    def redo(self) -> None:
        """Do again what was taken back last."""
        edit = self._undone.pop()
        self.labels.reshape(-1)[edit.places] = edit.after
        self.kinds = edit.kinds[1]
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
        flat = self.labels.reshape(-1)
        self._done.append(_Edit(places, flat[places], after, (self.kinds, kinds)))
        self._undone.clear()
        flat[places] = after
        self.kinds = kinds
