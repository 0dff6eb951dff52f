"""Names of files and labels, for what cannot hold every name."""

from __future__ import annotations

__all__ = ["printable", "table_cell"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(words: str) -> str:
    """Return words as text: a byte of a name of a file that is no text becomes an escape."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def table_cell(words: str) -> str:
    """Return words that a spreadsheet shows and does not compute, as an apostrophe makes them.

    Source: OWASP, CSV injection, https://owasp.org/www-community/attacks/CSV_Injection.
    """
    return f"'{words}" if words.startswith(_FORMULA) else words
