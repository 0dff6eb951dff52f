"""Undo and redo within a bound of memory."""

from __future__ import annotations

import dataclasses
from typing import Any

from napari_saf._gui.prototypes.sheet import FileBook, LayerBook, Sheet
from napari_saf.recording import PackedArray

__all__ = ["History", "Moment", "PackedLabels"]

_MOST_STEPS = 50
_MOST_BYTES = 128 * 2**20
PackedLabels = PackedArray


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """What an edit is about to change: goes back to it.

    Attributes
    ----------
    words : str
        The edit.
    book : LayerBook or FileBook
        What was edited.
    sheet : Sheet or None
        As it was; None where it did not change.
    pixels : PackedLabels or None
        As they were; None where they did not change.
    added : Any
        A layer or a file that the edit added; None where it added none.
    """

    words: str
    book: LayerBook | FileBook
    sheet: Sheet | None = None
    pixels: PackedLabels | None = None
    added: Any = None


class History:
    """Moments to go back to, and those gone back from; the oldest are forgotten.

    Parameters
    ----------
    most_bytes : int
        What label images of all moments may take together.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.past: list[Moment] = []
        self.future: list[Moment] = []

    @property
    def n_bytes(self) -> int:
        """What the label images take."""
        return sum(_size(moment) for moment in (*self.past, *self.future))

    def push(self, moment: Moment) -> None:
        """Take note of a new edit: what was undone before can no longer be redone."""
        self.future.clear()
        self.past.append(moment)
        self._trim()

    def exchange(self, moment: Moment, now: Moment, *, is_undo: bool) -> None:
        """Replace the moment gone to by the one gone from, on the other side."""
        source, target = (self.past, self.future) if is_undo else (self.future, self.past)
        if moment in source:
            source.remove(moment)
            target.append(now)
            self._trim()

    def forget(self, layer: Any, but: Moment | None = None) -> None:
        """Forget all of a layer that is gone, but the moment that removes it now."""
        for moments in (self.past, self.future):
            moments[:] = [m for m in moments if m is but or layer not in (m.book.layer, m.added)]

    def _trim(self) -> None:
        while len(self.past) > 1 and (
            len(self.past) > _MOST_STEPS or self.n_bytes > self._most_bytes
        ):
            del self.past[0]


def _size(moment: Moment) -> int:
    return 0 if moment.pixels is None else moment.pixels.n_bytes
