"""What labels are called and how they look."""

from __future__ import annotations

import colorsys
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_saf.arrays import as_dict
from napari_saf.errors import InvalidInput
from napari_saf.io._paths import printable

__all__ = ["Legend", "count_labels"]

_GOLDEN = 0.618034
"""Hues of numbers that follow each other are far apart with this step."""
_MOST_COUNTED = 2**24


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Legend:
    """The labels of a label image, their names, colours and sizes.

    Attributes
    ----------
    labels : array of int of shape (n_labels,)
        Ascending, without 0.
    names : tuple of str
        ``"label 3"`` where no name was given.
    colors : array of uint8 of shape (n_labels, 3)
    sizes : array of int of shape (n_labels,)
        Pixels of each label.
    """

    labels: NDArray[np.int64]
    names: tuple[str, ...]
    colors: NDArray[np.uint8]
    sizes: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        labels: NDArray[Any],
        names: Mapping[int, str] | None = None,
        colors: Mapping[int, Sequence[float]] | None = None,
    ) -> Legend:
        """Return the legend of a label image.

        Parameters
        ----------
        labels : array of int
            0 for no label.
        names : mapping of int to str, optional
            Names by label; not all need one.
        colors : mapping of int to sequence of float, optional
            Red, green, blue and perhaps more in [0, 1], by label; others get one of their own.

        Raises
        ------
        InvalidInput
            If a name is no text, or a colour not three numbers from 0 to 1.
        """
        present, sizes = count_labels(labels)
        named = {} if names is None else as_dict(names, "names")
        coloured = {} if colors is None else as_dict(colors, "colors")
        words = tuple(_name(int(label), named) for label in present)
        table = [_color(int(label), coloured) for label in present]
        return cls(present, words, np.array(table, np.uint8).reshape(-1, 3), sizes)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Share of the labelled pixels that each label owns."""
        return self.sizes / max(1, int(self.sizes.sum()))

    def palette(self) -> NDArray[np.uint8]:
        """Return a colour for each number up to 255: black for 0 and for numbers that are none."""
        table = np.zeros((256, 3), np.uint8)
        is_small = self.labels < 256
        table[self.labels[is_small]] = self.colors[is_small]
        return table


def count_labels(labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the labels above 0 that a label image holds, ascending, and the pixels of each."""
    if labels.size and labels.min() >= 0 and labels.max() < _MOST_COUNTED:
        counts = np.bincount(labels.ravel())
        present = np.flatnonzero(counts)
        sizes = counts[present]
    else:
        present, sizes = np.unique(labels, return_counts=True)
    is_label = present > 0
    return present[is_label].astype(np.int64), sizes[is_label].astype(np.int64)


def _name(label: int, names: Mapping[int, str]) -> str:
    name = names.get(label, f"label {label}")
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"names: expected a text for label {label}, got {name!r}")
    return printable(name.strip())


def _color(label: int, colors: Mapping[int, Sequence[float]]) -> NDArray[np.uint8]:
    given = colors.get(label)
    if given is None:
        given = colorsys.hsv_to_rgb(label * _GOLDEN % 1, 0.65, 0.95)
    color = np.asarray(given, dtype=float)
    if color.ndim != 1 or len(color) < 3 or not ((color >= 0) & (color <= 1)).all():
        raise InvalidInput(f"colors: expected red, green, blue from 0 to 1, got {given!r}")
    return np.round(255 * color[:3]).astype(np.uint8)
