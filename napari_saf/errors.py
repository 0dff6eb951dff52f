"""Exceptions that napari-saf raises on purpose."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
    """Return what an error says in a line of at most 200 characters, else its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class Cancelled(Exception):
    """Raised inside work that was cancelled; not an error."""


class SafError(Exception):
    """Base of every error that napari-saf raises.

    Never a `RuntimeError`: worker threads of Qt swallow those inside generators.
    """


class InvalidInput(SafError, ValueError):
    """An argument, an image or a file's content is not what was expected."""


class NotFinite(InvalidInput):
    """Some pixels are NaN or infinite: a mask can leave them out."""


class ComputeError(SafError):
    """A computation could not be carried out, for want of memory or a device."""


class FormatError(SafError, ValueError):
    """A file cannot be read: wrong type, truncated, or of an unknown version."""
