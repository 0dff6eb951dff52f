"""Undo and redo within a bound of memory; used by every dock that edits something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_MOST_STEPS = 50
_MOST_BYTES = 128 * 2**20

Step = TypeVar("Step")


class UndoHistory(Generic[Step]):
    """Steps to undo and to redo, the latest last; the oldest are forgotten.

    `size_of` returns the bytes that a step keeps, of which there may be `most_bytes` together; the
    latest step always stays.
    """

    def __init__(
        self, size_of: Callable[[Step], int] | None = None, most_bytes: int = _MOST_BYTES
    ) -> None:
        self._size_of, self._most_bytes = size_of, most_bytes
        self.past: list[Step] = []
        self.future: list[Step] = []

    @property
    def n_bytes(self) -> int:
        """What the steps keep together."""
        return 0 if self._size_of is None else sum(map(self._size_of, self.past + self.future))

    def push(self, step: Step) -> None:
        """Add a new edit: what was undone before can no longer be redone."""
        self.future.clear()
        self.past.append(step)
        self._trim()

    def exchange(self, step: Step, inverse: Step, *, is_undo: bool) -> None:
        """Replace a step that was undone (or redone) by its inverse on the other side."""
        source, target = (self.past, self.future) if is_undo else (self.future, self.past)
        if step in source:
            source.remove(step)
            target.append(inverse)
            self._trim()

    def discard(self, is_obsolete: Callable[[Step], bool]) -> None:
        """Forget steps that cannot be undone any more."""
        for steps in (self.past, self.future):
            steps[:] = [step for step in steps if not is_obsolete(step)]

    def clear(self) -> None:
        """Forget all steps."""
        self.past.clear()
        self.future.clear()

    def _trim(self) -> None:
        while len(self.past) > 1 and (
            len(self.past) > _MOST_STEPS or self.n_bytes > self._most_bytes
        ):
            del self.past[0]
