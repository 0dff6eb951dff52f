"""A dictionary on screen: its atoms keep their colours when others are dropped."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from napari_saf._gui.layers.live import N_COLORS, label_colors
from napari_saf.dictionary import PatchDictionary

__all__ = ["Edition", "describe_dictionary"]

_identities = itertools.count()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Edition:
    """A dictionary, and for each atom what tells it from all others on screen.

    Attributes
    ----------
    dictionary : PatchDictionary
    identities : tuple of int
        An atom that stays when others are dropped keeps its number here.
    colors : array of shape (n_atoms, 4)
    """

    dictionary: PatchDictionary
    identities: tuple[int, ...]
    colors: NDArray[np.float32]

    @classmethod
    def of(cls, dictionary: PatchDictionary, colors: NDArray[np.float32] | None = None) -> Edition:
        """Return a new edition, in the colours of labels unless others are given."""
        n_atoms = dictionary.n_atoms
        if colors is None:
            colors = label_colors()[np.arange(n_atoms) % N_COLORS + 1]
        identities = tuple(next(_identities) for _ in range(n_atoms))
        return cls(dictionary, identities, np.asarray(colors, np.float32))

    def without(self, identities: Sequence[int]) -> Edition:
        """Return the edition without some atoms.

        Raises
        ------
        InvalidInput
            If none would be left.
        """
        dropped = [k for k, own in enumerate(self.identities) if own in identities]
        kept = [k for k in range(len(self.identities)) if k not in dropped]
        return Edition(
            self.dictionary.without(dropped),
            tuple(self.identities[k] for k in kept),
            self.colors[kept],
        )

    @property
    def title(self) -> str:
        """What tells this dictionary from others, in a line."""
        words = f"{self.dictionary.n_atoms} atoms, {self.dictionary.patch_size} px"
        names = ", ".join(self.dictionary.images)
        return f"{words}: {names}" if names else words


def describe_dictionary(dictionary: PatchDictionary) -> str:
    """Return the number and the size of the atoms in words."""
    n_atoms, side = dictionary.n_atoms, dictionary.patch_size
    kind = {1: "grey", 3: "RGB"}.get(dictionary.n_channels, f"{dictionary.n_channels} channels")
    return f"{n_atoms} atom{'s' * (n_atoms != 1)} of {side} × {side} px, {kind}"
