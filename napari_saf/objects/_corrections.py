"""Fit of neck depth and minimum size to corrected objects; see `learn`."""

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
"""Weight of a change in neck depth relative to one in log minimum size."""
_UNTOUCHED = 0.2
"""Weight of an uncorrected object, relative to a corrected one."""
_AGREES = 0.7
"""Minimum agreement at which a correction counts as met."""
_GAIN, _MARGIN = 2, 0.1
"""Additional corrections met, and relative decrease of the loss, required for a change."""


@dataclasses.dataclass(frozen=True, eq=False)
class Corrections:
    """Corrected objects, and the split before correction.

    `labels` are the object numbers after correction, `split` those before, split with `smallest`
    and `neck`, `kinds` (n_numbers,) the kind of each object of `labels`, and `held` the numbers of
    objects corrected before that split.
    """

    labels: NDArray[np.integer]
    split: NDArray[np.integer]
    kinds: NDArray[np.int64]
    smallest: int
    neck: float
    held: NDArray[np.int64]

    @cached_property
    def origins(self) -> NDArray[np.integer]:
        """Number of the split object with identical pixels, by object number; 0 for none."""
        return _origins(self.labels, self.split, len(self.kinds))

    @cached_property
    def is_by_hand(self) -> NDArray[np.bool_]:
        """Whether each object was corrected, by object number."""
        is_other = self.origins == 0
        is_other[self.held] = True
        return np.asarray(is_other & (self.kinds > 0))

    @cached_property
    def is_deleted(self) -> NDArray[np.bool_]:
        """Whether most pixels of each split object are now background, by its number."""
        sizes = np.bincount(self.split.ravel())
        is_deleted = 2 * np.bincount(self.split[self.labels == 0], minlength=len(sizes)) > sizes
        is_deleted[0] = False
        return is_deleted


def _origins(
    labels: NDArray[np.integer], split: NDArray[np.integer], count: int
) -> NDArray[np.integer]:
    """Return for each of `count` labels the label of `split` with the same pixels, or 0."""
    sizes, split_sizes = np.bincount(labels.ravel(), minlength=count), np.bincount(split.ravel())
    origins = np.zeros(len(sizes), split.dtype)
    origins[labels] = split
    is_same = sizes == split_sizes[origins]
    is_same[labels[split != origins[labels]]] = False
    return np.where(is_same, origins, 0)


def learn(parts: Parts, corrections: Corrections) -> Corrections | None:
    """Fit the split parameters to corrections, and split the uncorrected objects again.

    Return None if the parameters stay. Corrected objects keep their pixels, deleted ones stay
    deleted. The agreement of an object is its highest intersection over union with a split object,
    that of a deleted object 1 minus this, and that of a split object its highest with an object.
    The sum of 1 - agreement, with weight 0.2 for uncorrected objects, is minimised over a grid;
    parameters change only if it falls by 10 % and two more corrections have an agreement above 0.7.
    """
    smallest, neck = best = corrections.smallest, corrections.neck
    fit = _Fit(parts, corrections)
    least, loss = fit.rate(*best)
    least, loss = least + _GAIN, (1 - _MARGIN) * loss

    def change(numbers: tuple[int, float]) -> float:
        return abs(math.log(numbers[0] / smallest)) + _NECK_STEPS * abs(numbers[1] - neck)

    # The nearest parameters win a tie.
    for numbers in sorted(itertools.product(_SIZES, _NECKS), key=change):
        n_met, candidate_loss = fit.rate(*numbers)
        if n_met >= least and candidate_loss < loss:
            loss, best = candidate_loss, numbers
    return None if best == (smallest, neck) else split_rest(parts, corrections, *best)


class _Fit:
    """Overlaps of parts with current and with deleted objects."""

    def __init__(self, parts: Parts, corrections: Corrections) -> None:
        self._parts = parts
        now, split = corrections.labels.astype(np.int64), corrections.split.astype(np.int64)
        self._n_now = n_now = len(corrections.kinds)
        is_gone = (now == 0) & corrections.is_deleted[split]
        targets = np.where(is_gone, n_now + split, now).ravel()
        self._n = n_now + len(corrections.is_deleted)
        entries = parts.labels.ravel(), targets
        counts = np.ones(targets.size, np.int64)
        self._both = sparse.csr_array((counts, entries), (len(parts.kinds), self._n)).tocoo()
        self._sizes = np.bincount(targets, minlength=self._n)
        is_there = self._sizes > 0
        is_by_hand = np.append(corrections.is_by_hand, corrections.is_deleted)
        self._is_corrected = is_there & is_by_hand
        self._weights = np.where(is_by_hand, 1, _UNTOUCHED) * is_there
        self._weights[0] = 0

    def rate(self, smallest: int, neck: float) -> tuple[int, float]:
        """Return the number of corrections met by a split, and its loss."""
        numbers, _ = self._parts.number(smallest, neck)
        both, (part, target) = self._both, self._both.coords
        keys = numbers[part].astype(np.int64) * self._n + target
        keys, inverse = np.unique(keys, return_inverse=True)
        shared = np.bincount(inverse, weights=both.data)
        number, target = np.divmod(keys, self._n)
        inside = (number > 0) & (target > 0)
        number, target, shared = number[inside], target[inside], shared[inside]
        sizes = np.bincount(numbers, weights=self._parts.sizes)
        overlap = shared / (sizes[number] + self._sizes[target] - shared)
        best, fitting = np.zeros(self._n), np.zeros(len(sizes))
        np.maximum.at(best, target, overlap)
        np.maximum.at(fitting, number, np.where(target < self._n_now, overlap, 0))
        agreement = np.where(np.arange(self._n) < self._n_now, best, 1 - best)
        n_met = int((agreement[self._is_corrected] > _AGREES).sum())
        return n_met, float(self._weights @ (1 - agreement) + _UNTOUCHED * (1 - fitting[1:]).sum())


def split_rest(parts: Parts, corrections: Corrections, smallest: int, neck: float) -> Corrections:
    now, split, kinds = corrections.labels, corrections.split, corrections.kinds
    is_gone = (now == 0) & (split > 0)
    is_anew = ~(corrections.is_by_hand[now] | is_gone)
    # Parts that are mostly fixed keep all of their objects.
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
    old_numbers = np.flatnonzero(np.bincount(old.ravel(), minlength=1))
    spare = np.append(np.setdiff1d(old_numbers, table), len(kinds) + np.arange(len(table)))
    table[is_other] = spare[: is_other.sum()]
    labels = np.where(is_anew, table[new], now)
    all_kinds = np.zeros(max(len(kinds), int(table.max()) + 1), np.int64)
    all_kinds[: len(kinds)] = kinds
    all_kinds[old_numbers] = 0
    all_kinds[table] = new_kinds
    all_kinds[0] = 0
    new_split = np.where(is_gone, split, labels).astype(np.uint32)
    held = np.flatnonzero(corrections.is_by_hand)
    return Corrections(labels, new_split, all_kinds, smallest, neck, held)
