"""Exceptions of napari-saf, and helpers for their messages."""

from __future__ import annotations

from collections.abc import Callable


def one_line(error: BaseException) -> str:
    """Return an error's message on one line of at most 200 characters, else its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def format_count(number: int) -> str:
    """Return a number with thousands separators, such as ``"12,345"``."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``"1 label"`` and ``"2,000 labels"``."""
    return f"{format_count(number)} {noun}" if number == 1 else f"{format_count(number)} {noun}s"


class Cancelled(Exception):
    """Raised to end a cancelled computation; not an error."""


def raise_if(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise Cancelled


class SafError(Exception):
    """Base class of the errors that napari-saf raises.

    Not a `RuntimeError`, which Qt worker threads suppress inside generators.

    Examples
    --------
    >>> try:
    ...     saf.SLK(n_clusters=1)
    ... except saf.SafError as error:
    ...     print(error)
    n_clusters: expected at least 2 ..., got 1
    """


class InvalidInput(SafError, ValueError):
    """Invalid argument, image or file content.

    Examples
    --------
    >>> saf.GridGraph((8, 8), window=4)
    Traceback (most recent call last):
    napari_saf.errors.InvalidInput: window: expected odd ..., got 4
    """


class NotFinite(InvalidInput):
    """Some pixels are NaN or infinite; a mask can exclude them."""


class ComputeError(SafError):
    """Failed computation, for lack of memory or a device.

    Examples
    --------
    >>> image = np.zeros((1000, 1000))
    >>> saf.GridGraph(image.shape, window=201).contrast_weights(image.reshape(-1, 1), sigma2=1)
    Traceback (most recent call last):
    napari_saf.errors.ComputeError: not enough memory: ...
    """


class FormatError(SafError, ValueError):
    """Unreadable file: wrong type, truncated, or of an unknown version.

    Examples
    --------
    >>> np.save("image.npy", np.eye(3))
    >>> saf.load_recipe("image.npy")
    Traceback (most recent call last):
    napari_saf.errors.FormatError: image.npy: cannot be read as a recipe: ...
    """
