"""Which labels of several label images are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

__all__ = ["align", "renumbered"]

_Flat = NDArray[np.int64]


def align(
    images: Sequence[NDArray[Any]], is_fixed: Sequence[bool] | None = None
) -> list[NDArray[np.int64]]:
    """Return common numbers for the labels of several label images of one shape.

    Parameters
    ----------
    images : sequence of array of int
        Label images; 0 is no label.
    is_fixed : sequence of bool, optional
        Which of them keep their numbers, because these have a meaning; by default none.

    Returns
    -------
    list of array of int
        Entry l - 1 of array k is the common number of label l of image k; 0 where no pixel
        has that label. No two labels of an image share a number.

    Notes
    -----
    The image with most labels comes first and keeps its numbers; of several such, the one that
    agrees best with all images. Each of the others is matched to all before it by the optimal
    assignment (scipy, https://doi.org/10.1109/TAES.2016.140952) that maximises the number of
    pixels on which they agree. A label that shares no pixel with a number that is left gets a
    new one. So the outcome does not depend on the order of the images, ties apart.
    """
    flat = [np.asarray(image).ravel().astype(np.int64) for image in images]
    fixed = [False] * len(flat) if is_fixed is None else list(is_fixed)
    present = [np.flatnonzero(np.bincount(image, minlength=1)[1:]) + 1 for image in flat]
    order = _order(flat, present, fixed)
    numbers: list[NDArray[np.int64]] = [np.arange(0)] * len(flat)
    aligned: list[_Flat] = []
    for k in order:
        is_first = not aligned
        found = present[k] if is_first or fixed[k] else _matched(flat[k], present[k], aligned)
        numbers[k] = np.zeros(int(flat[k].max(initial=0)), np.int64)
        numbers[k][present[k] - 1] = found
        aligned.append(renumbered(flat[k], numbers[k]))
    return numbers


def renumbered(labels: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Return a label image with label l called numbers[l - 1]."""
    table = np.concatenate([[0], numbers])
    return np.asarray(table.astype(np.result_type(np.min_scalar_type(int(table.max()))))[labels])


def _order(flat: list[_Flat], present: list[NDArray[np.int64]], fixed: list[bool]) -> list[int]:
    """Return in which order images are matched."""
    agreement = np.zeros(len(flat))
    for k in range(len(flat)):
        for other in range(k):
            table = _overlaps(flat[k], flat[other])
            rows, columns = linear_sum_assignment(table, maximize=True)
            agreement[[k, other]] += table[rows, columns].sum()
    return sorted(range(len(flat)), key=lambda k: (not fixed[k], -len(present[k]), -agreement[k]))


def _matched(own: _Flat, present: NDArray[np.int64], aligned: list[_Flat]) -> NDArray[np.int64]:
    """Return a number for each label that is present, as in the images that are aligned."""
    last = max(int(image.max(initial=0)) for image in aligned)
    score = np.sum([_overlaps(own, image, last) for image in aligned], axis=0)[present - 1]
    rows, columns = linear_sum_assignment(score, maximize=True)
    numbers = np.zeros(len(present), np.int64)
    is_match = score[rows, columns] > 0
    numbers[rows[is_match]] = columns[is_match] + 1
    is_new = numbers == 0
    numbers[is_new] = last + 1 + np.arange(np.count_nonzero(is_new))
    return numbers


def _overlaps(one: _Flat, other: _Flat, n_columns: int | None = None) -> NDArray[np.int64]:
    """Return how many pixels each label of one shares with each label of the other."""
    height = int(one.max(initial=0)) + 1
    width = 1 + (int(other.max(initial=0)) if n_columns is None else n_columns)
    counts = np.bincount(one * width + other, minlength=height * width)
    return np.asarray(counts.reshape(height, width)[1:, 1:])
