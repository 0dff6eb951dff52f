"""The public names, by what they are for: what the Python reference includes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import napari_saf as saf

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LISTING = "reference/names.rst"
_TITLES = {
    "problem": "What to label",
    "methods": "Methods",
    "result": "What comes out",
    "dictionary": "Patch dictionaries",
    "graph": "Graphs",
    "flow": "Flows: which nodes are alike, time stepping and stopping",
    "io": "Files",
    "metrics": "Metrics",
    "errors": "Errors",
}
_SUMMARY = ".. autosummary::\n   :toctree: api\n"


def listing() -> str:
    """Return a section of autosummaries for each part of the library."""
    found: dict[str, list[str]] = {}
    for name in saf.__all__:
        item = getattr(saf, name)
        if name == "metrics":
            found[name] = [f"metrics.{inner}" for inner in dir(saf.metrics) if inner[0] != "_"]
        elif callable(item):
            found.setdefault(item.__module__.split(".")[1], []).append(name)
    order = [*_TITLES, *sorted(set(found) - set(_TITLES))]
    return "\n".join(_section(part, found[part]) for part in order if part in found)


def _section(part: str, names: list[str]) -> str:
    title = _TITLES.get(part, part.capitalize())
    rows = "\n".join(f"   napari_saf.{name}" for name in names)
    return f"{title}\n{'-' * len(title)}\n\n{_SUMMARY}\n{rows}\n"


def write(app: Sphinx) -> None:
    """Write the listing where it is included."""
    target, text = Path(app.srcdir) / LISTING, listing()
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx, before stubs of the names are made."""
    app.connect("builder-inited", write, priority=100)
    return {"parallel_read_safe": True}
