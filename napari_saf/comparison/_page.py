"""A comparison as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from PIL import Image

from napari_saf.comparison._comparison import Comparison
from napari_saf.comparison._panels import Panel, Swatch
from napari_saf.comparison._table import COLUMNS, Column, Row
from napari_saf.comparison._variants import Layout

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #888; --best: #2e9e5b; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1.5rem;
       max-width: 90rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.quiet { color: var(--quiet); }
.panels { display: grid; --gap: 1rem; gap: 1.2rem var(--gap); margin: 1rem 0; overflow-x: auto; }
figure { margin: 0; }
figure img { width: 100%; image-rendering: pixelated; display: block; border-radius: 4px; }
figcaption { min-height: 2.9em; }
.swatches { display: flex; flex-wrap: wrap; gap: 3px; margin-top: 6px; }
.swatches svg { width: 17px; height: 17px; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td.best { color: var(--best); font-weight: 600; }
details { border-bottom: 1px solid var(--line); padding: .3rem 0; } pre { overflow-x: auto; }
""".strip()
_FEWEST_PLACES = 3
"""Pictures beside each other; so one or two do not fill the page."""


def page(
    title: str,
    comparison: Comparison,
    rows: Sequence[Row],
    given: Sequence[Panel],
    results: Sequence[Panel],
    layout: Layout,
) -> str:
    """Return the page: pictures, table, what could not be run, recipes."""
    n_places = max(_FEWEST_PLACES, layout.n_columns)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(_summary(comparison))}</p>',
        _grid(given, len(given), n_places),
        _grid(results, layout.n_columns, n_places),
        '<p class="quiet">The same label has the same place below each picture. A label that '
        "others have and a result has not is crossed.</p>",
        "<h2>Numbers</h2>",
        _table(rows),
        _failures(comparison),
        "<h2>Recipes</h2>",
        *(_recipe(one.variant.name, one.recipe) for one in comparison.results),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _summary(comparison: Comparison) -> str:
    count = len(comparison.results)
    words = f"{count} result{'s' * (count != 1)}, {comparison.n_numbers} labels between them."
    return words if comparison.is_complete else f"{words} Stopped before the others."


def _grid(panels: Sequence[Panel], n_columns: int, n_places: int) -> str:
    """Lay panels out in columns; all panels of the page have the width of one of the places."""
    width = f"calc((100% - {n_places - 1} * var(--gap)) / {n_places})"
    style = f"grid-template-columns: repeat({n_columns}, {width})"
    return f'<div class="panels" style="{style}">{"".join(map(_panel, panels))}</div>'


def _panel(panel: Panel) -> str:
    swatches = "".join(map(_swatch, panel.swatches))
    below = f'<div class="swatches">{swatches}</div>' if swatches else ""
    title, note = escape(panel.title), escape(panel.note)
    return (
        f'<figure><figcaption>{title}<br><span class="quiet">{note}</span></figcaption>'
        f'<img alt="{title}" src="{_data_uri(panel)}">{below}</figure>'
    )


def _swatch(swatch: Swatch) -> str:
    color = "#{:02x}{:02x}{:02x}".format(*(int(x) for x in swatch.color))
    state = ", dead" if swatch.is_dead else ""
    cross = '<path d="M2 2L15 15M15 2L2 15" stroke="white" stroke-width="4"/>'
    cross += '<path d="M2 2L15 15M15 2L2 15" stroke="black" stroke-width="1.6"/>'
    return (
        f'<svg viewBox="0 0 17 17" role="img"><title>label {swatch.number}{state}</title>'
        f'<rect x=".5" y=".5" width="16" height="16" rx="3" fill="{color}" stroke="#8888"/>'
        f"{cross if swatch.is_dead else ''}</svg>"
    )


def _data_uri(panel: Panel) -> str:
    buffer = io.BytesIO()
    Image.fromarray(panel.pixels).save(buffer, format="png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _table(rows: Sequence[Row]) -> str:
    shown = [column for column in COLUMNS if any(column.text(row) for row in rows)]
    head = "".join(f'<th title="{escape(c.help)}">{escape(c.heading)}</th>' for c in shown)
    best = {column.field: column.best_of(rows) for column in shown}
    body = "".join(
        "<tr>" + "".join(_cell(column, row, best[column.field]) for column in shown) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(column: Column, row: Row, best: float | None) -> str:
    is_best = best is not None and getattr(row, column.field) == best
    mark = ' class="best"' if is_best else ""
    return f"<td{mark}>{escape(column.text(row))}</td>"


def _failures(comparison: Comparison) -> str:
    lines = [
        f"<li>{escape(one.variant.name)}: {escape(str(one.error))}</li>"
        for one in comparison.failures
    ]
    return f"<h2>Not run</h2><ul>{''.join(lines)}</ul>" if lines else ""


def _recipe(name: str, recipe: dict[str, Any]) -> str:
    text = json.dumps(recipe, indent=2, ensure_ascii=False)
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
