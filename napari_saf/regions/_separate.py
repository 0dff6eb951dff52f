"""Whether labels are of separate things, such as nuclei on a ground, rather than of places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage.measure import label as label_components

_LEAST_GROUND = 0.4
"""Of the labelled pixels, in one connected part of another label."""
_LEAST_NUMBER = 10
"""Of things of the same size that vary as much: (sum of sizes)^2 / sum of (sizes^2)."""
_MOST_OF_ONE = 0.05
"""Of the labelled pixels, in the largest part of any label besides that one."""
SPECK = 0.125
"""Of the usual size: smaller parts are not counted."""


class Separate(NamedTuple):
    """How many things there are, 0 where labels are of places, and their usual size in pixels."""

    number: int = 0
    size: float = 0.0

    @property
    def note(self) -> str:
        """What to say of it; empty where labels are of places."""
        return f"{self.number:,} separate things: see Objects" if self.number else ""


def find_separate(labels: NDArray[np.integer]) -> Separate:
    """Return the connected parts of one label, if they are many, small, alike, and on a ground.

    Beside the ground no label has a large part. The size is that of the thing in which a pixel of
    one lies, on average.
    """
    parts = np.asarray(label_components(labels, background=0, connectivity=1), dtype=np.int32)
    sizes = np.bincount(parts.ravel())[1:].astype(float)
    if not len(sizes):
        return Separate()
    owner = np.zeros(len(sizes) + 1, np.int64)
    owner[parts.ravel()] = labels.ravel()
    owner = np.unique(owner[1:], return_inverse=True)[1]
    squares = np.bincount(owner, sizes**2)
    alike = np.bincount(owner, sizes) ** 2 / squares
    ground = sizes.argmax()
    alike[owner[ground]] = 0
    things = sizes[owner == alike.argmax()]
    is_separate = (
        alike.max() >= _LEAST_NUMBER
        and sizes[ground] >= _LEAST_GROUND * sizes.sum()
        and np.delete(sizes, ground).max() <= _MOST_OF_ONE * sizes.sum()
    )
    usual = float((things**2).sum() / things.sum())
    return Separate(int((things >= SPECK * usual).sum()), usual) if is_separate else Separate()
