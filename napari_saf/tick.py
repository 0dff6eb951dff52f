"""What long work calls between its parts, so that it can be ended there."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Tick", "go_on"]

Tick = Callable[[], None]
"""Called between parts of the work; an exception ends it."""


def go_on() -> None:
    """Do not end the work."""
