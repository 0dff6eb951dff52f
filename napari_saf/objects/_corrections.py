"""Corrections of objects teach: depth of necks and least size are fitted to them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from napari_saf.objects._split import Parts

_NECKS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
_SIZES = (1, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500)
_NECK_STEPS = 10
"""Change of the neck depth that counts as one of the least size by a factor of e, inverse."""
_UNTOUCHED = 0.2
"""Weight of an object that was left as it was split, beside one that was corrected."""
_AGREES = 0.7
"""Least agreement of a correction that counts as met."""
_GAIN, _MARGIN = 2, 0.1
"""Numbers change if so many corrections more are met, and the loss is lower by this share."""


@dataclasses.dataclass(frozen=True, eq=False)
class Corrections:
    """Objects as a person left them, beside those of the split that they were made of.

    Attributes
    ----------
    labels, split : arrays of int of one shape
        Numbers of the objects as they are and as they were split, 0 for none.
    kinds : array of int
        Kind of each object of `labels` by its number, 0 for a number that none has.
    smallest, neck
        What they were split by; see `split_objects`.
    held : array of int
        Numbers of objects that were by hand already when they were split so.
    """

    labels: NDArray[np.integer]
    split: NDArray[np.integer]
    kinds: NDArray[np.int64]
    smallest: int
    neck: float
    held: NDArray[np.int64]

    @cached_property
    def origins(self) -> NDArray[np.integer]:
        """The object of the split that has just the pixels of an object, by its number; 0: none."""
        return _origins(self.labels, self.split, len(self.kinds))

    @cached_property
    def is_by_hand(self) -> NDArray[np.bool_]:
        """Whether an object is none of the split, by its number."""
        is_other = self.origins == 0
        is_other[self.held] = True
        return np.asarray(is_other & (self.kinds > 0))

    @cached_property
    def is_deleted(self) -> NDArray[np.bool_]:
        """Whether most pixels of an object of the split are in none now, by its number."""
        sizes = np.bincount(self.split.ravel())
        is_deleted = 2 * np.bincount(self.split[self.labels == 0], minlength=len(sizes)) > sizes
        is_deleted[0] = False
        return is_deleted


def _origins(
    labels: NDArray[np.integer], split: NDArray[np.integer], count: int
) -> NDArray[np.integer]:
    """Return for each of so many labels the label of another image that has its pixels, or 0."""
    sizes, split_sizes = np.bincount(labels.ravel(), minlength=count), np.bincount(split.ravel())
    origins = np.zeros(len(sizes), split.dtype)
    origins[labels] = split
    is_same = sizes == split_sizes[origins]
    is_same[labels[split != origins[labels]]] = False
    return np.where(is_same, origins, 0)


def learn(parts: Parts, corrections: Corrections) -> Corrections | None:
    """Split what was not corrected anew, by what agrees best with corrections.

    Objects that are by hand keep their pixels and numbers, and so do those that come out as they
    were; no object is where one was deleted.

    Parameters
    ----------
    parts : Parts
        What is joined.
    corrections : Corrections
        Objects of these parts, as a person left them.

    Returns
    -------
    Corrections or None
        The same corrections of objects that were split by other numbers; None if the numbers stay.

    Notes
    -----
    An object agrees with a split by its highest intersection over union with an object of that, a
    deleted one by 1 less that, and an object of the split by its highest with an object. The sum
    of 1 less these is least, what was not corrected counts a fifth. Numbers are of a grid, and stay
    unless others lower that sum by a tenth and meet two corrections more: agree with them by more
    than .7.
    """
    smallest, neck = _fit(parts, corrections)
    if (smallest, neck) == (corrections.smallest, corrections.neck):
        return None
    return split_rest(parts, corrections, smallest, neck)


def _fit(parts: Parts, corrections: Corrections) -> tuple[int, float]:
    """Return the least size and the depth of necks that agree best with corrections."""
    fit, best = _Fit(parts, corrections), (corrections.smallest, corrections.neck)
    least, loss = fit.rate(*best)
    least, loss = least + _GAIN, (1 - _MARGIN) * loss
    smallest, neck = best

    def change(numbers: tuple[int, float]) -> float:
        return abs(math.log(numbers[0] / smallest)) + _NECK_STEPS * abs(numbers[1] - neck)

    # Of several that agree as well, the nearest.
    for numbers in sorted(itertools.product(_SIZES, _NECKS), key=change):
        n_met, other = fit.rate(*numbers)
        if n_met >= least and other < loss:
            loss, best = other, numbers
    return best


class _Fit:
    """Pixels that parts share with objects, corrected or not, and with those that were deleted."""

    def __init__(self, parts: Parts, corrections: Corrections) -> None:
        self._parts = parts
        now, split = corrections.labels.astype(np.int64), corrections.split.astype(np.int64)
        self._n_now = n_now = len(corrections.kinds)
        is_gone = (now == 0) & corrections.is_deleted[split]
        targets = np.where(is_gone, n_now + split, now).ravel()
        self._n = n_now + len(corrections.is_deleted)
        places = parts.labels.ravel(), targets
        ones = np.ones(targets.size, np.int64)
        self._both = sparse.csr_array((ones, places), (len(parts.kinds), self._n)).tocoo()
        self._sizes = np.bincount(targets, minlength=self._n)
        is_there = self._sizes > 0
        is_by_hand = np.append(corrections.is_by_hand, corrections.is_deleted)
        self._is_corrected = is_there & is_by_hand
        self._weights = np.where(is_by_hand, 1, _UNTOUCHED) * is_there
        self._weights[0] = 0

    def rate(self, smallest: int, neck: float) -> tuple[int, float]:
        """Return how many corrections a split meets, and its loss."""
        numbers, _ = self._parts.number(smallest, neck)
        both, (part, target) = self._both, self._both.coords
        keys = numbers[part].astype(np.int64) * self._n + target
        keys, inverse = np.unique(keys, return_inverse=True)
        shared = np.bincount(inverse, weights=both.data)
        own, target = np.divmod(keys, self._n)
        inside = (own > 0) & (target > 0)
        own, target, shared = own[inside], target[inside], shared[inside]
        sizes = np.bincount(numbers, weights=self._parts.sizes)
        overlap = shared / (sizes[own] + self._sizes[target] - shared)
        best, fitting = np.zeros(self._n), np.zeros(len(sizes))
        np.maximum.at(best, target, overlap)
        np.maximum.at(fitting, own, np.where(target < self._n_now, overlap, 0))
        agreement = np.where(np.arange(self._n) < self._n_now, best, 1 - best)
        n_met = int((agreement[self._is_corrected] > _AGREES).sum())
        return n_met, float(self._weights @ (1 - agreement) + _UNTOUCHED * (1 - fitting[1:]).sum())


def split_rest(parts: Parts, corrections: Corrections, smallest: int, neck: float) -> Corrections:
    """Split anew what is neither by hand nor deleted; see `learn`."""
    now, split, kinds = corrections.labels, corrections.split, corrections.kinds
    is_gone = (now == 0) & (split > 0)
    is_anew = ~(corrections.is_by_hand[now] | is_gone)
    # Parts of which most is fixed stay as they are, with all of the objects in them.
    fixed = np.bincount(parts.labels[~is_anew], minlength=len(parts.kinds))
    is_free = 2 * fixed <= parts.sizes
    is_free[0] = False
    is_anew &= is_free[parts.labels]
    is_partly = np.zeros(len(kinds), bool)
    is_partly[now[~is_anew]] = True
    is_partly[0] = False
    is_anew &= ~is_partly[now]
    between = is_free[parts.pairs].all(axis=1)
    free = dataclasses.replace(parts, pairs=parts.pairs[between], saddles=parts.saddles[between])
    numbers, new_kinds = free.number(smallest, neck)
    new, old = np.where(is_anew, numbers[parts.labels], 0), np.where(is_anew, now, 0)
    table = _origins(new, old, len(new_kinds)).astype(np.uint32)
    is_other = (np.bincount(new.ravel(), minlength=len(table)) > 0) & (table == 0)
    is_other[0] = False
    before = np.flatnonzero(np.bincount(old.ravel(), minlength=1))
    spare = np.append(np.setdiff1d(before, table), len(kinds) + np.arange(len(table)))
    table[is_other] = spare[: is_other.sum()]
    labels = np.where(is_anew, table[new], now)
    known = np.zeros(max(len(kinds), int(table.max()) + 1), np.int64)
    known[: len(kinds)] = kinds
    known[before] = 0
    known[table] = new_kinds
    known[0] = 0
    after = np.where(is_gone, split, labels).astype(np.uint32)
    held = np.flatnonzero(corrections.is_by_hand)
    return Corrections(labels, after, known, smallest, neck, held)
