"""The directive ``method-parameters``: a table of what a method asks for, from its code."""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from napari_saf.cli._options import summary
from napari_saf.methods import METHODS
from napari_saf.parameters import describe

_TITLES = ("In the app", "Name", "Values", "Meaning")


class MethodParameters(SphinxDirective):
    """A section for each method, with a table of its parameters."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        return [_section(name) for name in METHODS]


def _section(name: str) -> nodes.section:
    method = METHODS[name]
    title = f"{method.title}: {name}"
    section = nodes.section("", nodes.title("", title), ids=[f"parameters-{name}"], names=[])
    rows = [
        (item.label, item.name, "; ".join([*_choices(item.choices), summary(item)]), item.help)
        for item in describe(method)
    ]
    section += _table(rows)
    return section


def _choices(choices: tuple[str, ...]) -> list[str]:
    return [" or ".join(choices)] if choices else []


def _table(rows: list[tuple[str, ...]]) -> nodes.table:
    group = nodes.tgroup("", cols=len(_TITLES))
    group += [nodes.colspec("", colwidth=width) for width in (2, 3, 3, 5)]
    head, body = nodes.thead(), nodes.tbody()
    head += _row(_TITLES)
    body += [_row(row) for row in rows]
    group += [head, body]
    return nodes.table("", group, classes=["colwidths-given"])


def _row(cells: tuple[str, ...]) -> nodes.row:
    row = nodes.row()
    row += [nodes.entry("", nodes.paragraph("", cell)) for cell in cells]
    return row


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("method-parameters", MethodParameters)
    return {"parallel_read_safe": True}
