"""Docstrings are written for the terminal, too: an upright line in them is a norm or a modulus."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_LITERAL_OR_LINE = re.compile(r"(``.*?``)|\|")


def escape(app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Take upright lines for what they are, in place."""
    lines[:] = [_LITERAL_OR_LINE.sub(lambda m: m[1] or r"\|", line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", escape)
    return {"parallel_read_safe": True}
