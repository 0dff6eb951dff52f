"""Detection of labels of separate objects, such as nuclei on a background."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage.measure import label as label_components

from napari_saf.arrays import Floats, Integers
from napari_saf.errors import counted

_LEAST_GROUND = 0.4
"""Minimum share of the labelled pixels in the largest component, the background."""
_LEAST_NUMBER = 10
"""Minimum effective number of objects, (sum of sizes)^2 / sum of sizes^2."""
_MOST_OF_ONE = 0.05
"""Maximum share of the labelled pixels in each other component."""
SPECK = 0.125
"""Share of the usual size below which components are not counted."""


class Separate(NamedTuple):
    """Number of separate objects, 0 if none, and their usual size in pixels."""

    number: int = 0
    size: float = 0.0

    @property
    def note(self) -> str:
        return f"{counted(self.number, 'separate thing')}: see Objects" if self.number else ""


def slices_of(shape: Sequence[int], axes: Sequence[int] | None) -> list[tuple[int | slice, ...]]:
    """Return the index of each slice along `axes`, None for all axes."""
    chosen = range(len(shape)) if axes is None else axes
    sides = [[slice(None)] if k in chosen or n == 1 else range(n) for k, n in enumerate(shape)]
    return list(itertools.product(*sides))


def find_separate(labels: Integers, axes: Sequence[int] | None = None) -> Separate:
    """Detect many small, similar components on a background; the size is their mean over pixels.

    Components and background are those of each slice along `axes`; None: all axes.
    """
    slices = [labels[each] for each in slices_of(labels.shape, axes)]
    components = [_components(each) for each in slices if each.any()]
    if not components:
        return Separate()
    grounds = np.cumsum([0, *(len(sizes) for sizes, _ in components[:-1])])
    grounds += [int(sizes.argmax()) for sizes, _ in components]
    sizes = np.concatenate([sizes for sizes, _ in components])
    owner = np.unique(np.concatenate([own for _, own in components]), return_inverse=True)[1]
    squares = np.bincount(owner, sizes**2)
    alike = np.bincount(owner, sizes) ** 2 / squares
    alike[owner[grounds]] = 0
    objects = sizes[owner == alike.argmax()]
    total = sizes.sum()
    is_separate = (
        alike.max() >= _LEAST_NUMBER
        and sizes[grounds].sum() >= _LEAST_GROUND * total
        and np.delete(sizes, grounds).max() <= _MOST_OF_ONE * total / len(components)
    )
    usual = float((objects**2).sum() / objects.sum())
    return Separate(int((objects >= SPECK * usual).sum()), usual) if is_separate else Separate()


def _components(labels: Integers) -> tuple[Floats, NDArray[np.int64]]:
    """Return size and label of each connected component."""
    parts = np.asarray(label_components(labels, background=0, connectivity=1), dtype=np.int32)
    sizes = np.bincount(parts.ravel())[1:].astype(float)
    owner = np.zeros(len(sizes) + 1, np.int64)
    owner[parts.ravel()] = labels.ravel()
    return sizes, owner[1:]
