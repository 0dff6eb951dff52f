"""A comparison as a picture, a page or a table in a file."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from napari_saf.comparison._comparison import Comparison
from napari_saf.comparison._table import Row, comparison_table, html_table, save_table
from napari_saf.comparison._variants import Layout, lay_out, short_names
from napari_saf.errors import InvalidInput
from napari_saf.io import (
    FIGURE_SUFFIXES,
    atomic_write,
    color_labels,
    color_table,
    displayed_plane,
    map_labels,
    middle_plane,
    printable,
    thinned,
)

COMPARISON_SUFFIXES = (".html", *FIGURE_SUFFIXES, ".csv")
"""What the name of a saved comparison may end in."""

_Pixels = NDArray[np.uint8]
_DPI = 160
_MOST_SWATCHES = 48
_ABSENT = 205.0
"""The grey of labels that are in other planes only."""
_PANEL_WIDTH, _PANEL_HEIGHT = 2.7, 4.5
_TITLE, _GAP, _MARGIN = 0.42, 0.14, 0.1
"""In inches."""
_FEWEST_IN_A_LINE, _MOST_IN_A_LINE = 16, 20
"""Swatches below a panel."""
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1.5rem;
       max-width: 90rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.quiet { color: #888; }
img { max-width: 100%; border-radius: 4px; }
.table, pre { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td b { color: #2e9e5b; font-weight: 600; }
details { border-bottom: 1px solid #8884; padding: .3rem 0; }
""".strip()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Swatch:
    """The colour of a label; dead if the result does not have it and others do."""

    number: int
    color: _Pixels
    is_dead: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """A picture of shape (height, width, 3), words above it, swatches below it."""

    title: str
    note: str
    pixels: _Pixels
    swatches: tuple[Swatch, ...] = ()


def save_comparison(
    path: str | os.PathLike[str],
    comparison: Comparison,
    image: ArrayLike,
    *,
    truth: ArrayLike | None = None,
    paint: Literal["mean", "palette"] = "mean",
    colors: Mapping[int, Sequence[float]] | None = None,
    channel_axis: int | None = None,
    title: str = "",
) -> Path:
    """Save a comparison in the form that the suffix names.

    Parameters
    ----------
    path : path
        Ends in ``.png``, ``.svg`` or ``.pdf`` (pictures side by side, below each the colours of
        all labels, those crossed that it does not have), ``.html`` (one file with the pictures,
        the table and the recipes) or ``.csv`` (the table).
    comparison : Comparison
        See `compare`.
    image : array
        What was labelled.
    truth : array of int, optional
        Image-shaped; with it the table holds the agreement of each result.
    paint : {"mean", "palette"}
        Labels in the mean colour that the image has there, or in the same clear colour in all
        results.
    colors : mapping of int to sequence of float, optional
        The palette: red, green, blue in [0, 1] by label.
    channel_axis : int, optional
        Axis of the channels of the image; None: a last axis beyond those of the labels.
    title : str
        Words above the image.

    Raises
    ------
    InvalidInput
        If the suffix is unknown, the comparison is empty, or image or truth have another shape.
    SafError
        If the file cannot be written.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in COMPARISON_SUFFIXES:
        known = ", ".join(COMPARISON_SUFFIXES)
        raise InvalidInput(f"{target}: expected a name that ends in {known}")
    if not comparison.results:
        raise InvalidInput("comparison: expected at least one result")
    rows = comparison_table(comparison, truth)
    if suffix == ".csv":
        return save_table(target, rows)
    labels = comparison.results[0].labels
    pixels = _image_pixels(labels, image, channel_axis)
    given = [Panel(title or "image", "", pixels)]
    if truth is not None:
        given.append(_truth_panel(np.asarray(truth)))
    results = result_panels(comparison, rows, pixels, paint=paint, colors=colors)
    figure = _draw(given, results, lay_out([one.variant for one in comparison.results]))
    with atomic_write(target) as temporary:
        if suffix == ".html":
            text = _page(title or "image", comparison, rows, figure)
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            figure.savefig(temporary, dpi=_DPI, format=suffix[1:])
    return target


def _image_pixels(labels: NDArray[Any], image: ArrayLike, channel_axis: int | None) -> _Pixels:
    index = tuple(side // 2 for side in labels.shape[:-2])
    plane = displayed_plane(np.asarray(image), labels, channel_axis, index)
    pixels = plane if plane.dtype == np.uint8 else np.round(255 * np.clip(plane, 0, 1))
    colored = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=-1)
    return np.asarray(colored, np.uint8)


def _truth_panel(regions: NDArray[Any]) -> Panel:
    label_map = map_labels(regions)
    pixels = color_labels(thinned(middle_plane(regions, regions.ndim)), label_map)
    count = label_map.n_columns
    return Panel("truth", f"{count} region{'s' * (count != 1)}", pixels)


def result_panels(
    comparison: Comparison,
    rows: Sequence[Row],
    pixels: _Pixels,
    *,
    paint: Literal["mean", "palette"] = "mean",
    colors: Mapping[int, Sequence[float]] | None = None,
) -> list[Panel]:
    """Return a panel for each result; of a stack the middle is shown.

    Parameters
    ----------
    comparison : Comparison
        With at least one result.
    rows : sequence of Row
        Of the same results.
    pixels : array of uint8 of shape (height, width, 3)
        The plane of the image that is shown.
    paint, colors
        As in `save_comparison`.

    Raises
    ------
    InvalidInput
        If `paint` is unknown.
    """
    if paint not in ("mean", "palette"):
        raise InvalidInput(f"paint: expected mean or palette, got {paint!r}")
    count = comparison.n_numbers
    planes = [thinned(middle_plane(r.labels, r.labels.ndim)) for r in comparison.results]
    if paint == "mean":
        tables = _mean_colors(planes, pixels, count)
    else:
        tables = [color_table(map_labels(np.arange(count + 1), colors=colors))[1:]] * len(planes)
    names = short_names([one.variant for one in comparison.results])
    panels = []
    for k, (row, table) in enumerate(zip(rows, tables, strict=True)):
        dead = comparison.dead(k)
        shown = range(1, min(count, _MOST_SWATCHES) + 1)
        note = f"{row.n_labels} label{'s' * (row.n_labels != 1)}"
        if not np.isnan(row.covering):
            note += f", covering {row.covering:.2f}"
        colored = np.vstack([np.zeros((1, 3), np.uint8), table])[planes[k]]
        swatches = tuple(Swatch(number, table[number - 1], number in dead) for number in shown)
        panels.append(Panel(names[k], note, colored, swatches))
    return panels


def _mean_colors(planes: Sequence[NDArray[Any]], pixels: _Pixels, count: int) -> list[_Pixels]:
    """Return for each plane of labels the mean colour of each of `count` labels.

    A label without pixels in a plane has its mean over the planes that show it.
    """
    channels = pixels.reshape(-1, 3).T
    means = []
    for plane in planes:
        flat = plane.ravel()
        sizes = np.bincount(flat, minlength=count + 1)[1:]
        sums = [np.bincount(flat, channel, minlength=count + 1)[1:] for channel in channels]
        with np.errstate(invalid="ignore"):
            means.append(np.stack(sums, axis=1) / sizes[:, None])
    stacked = np.stack(means)
    n_known = (~np.isnan(stacked)).sum(axis=0)
    together = np.where(n_known > 0, np.nansum(stacked, axis=0) / np.maximum(n_known, 1), _ABSENT)
    return [np.where(np.isnan(one), together, one).astype(np.uint8) for one in means]


def _draw(given: Sequence[Panel], results: Sequence[Panel], layout: Layout) -> Figure:
    """Draw what was given in columns of their own at the left, then the results.

    All panels have the aspect of their picture, and the same size.
    """
    n_before = math.ceil(len(given) / layout.n_rows)
    places = [(k % layout.n_rows, k // layout.n_rows) for k in range(len(given))]
    places += [(row, n_before + column) for row, column in layout.places]
    n_high, n_wide = results[0].pixels.shape[:2]
    width = min(_PANEL_WIDTH, _PANEL_HEIGHT * n_wide / n_high)
    height = width * n_high / n_wide
    count = max(1, *(len(panel.swatches) for panel in results))
    n_lines = math.ceil(count / _MOST_IN_A_LINE)
    a_line = max(_FEWEST_IN_A_LINE, math.ceil(count / n_lines))
    strip = n_lines * width / a_line
    cell = _TITLE + height + _GAP / 2 + strip + _GAP
    n_columns = n_before + layout.n_columns
    size = (n_columns * (width + _GAP) + 2 * _MARGIN, layout.n_rows * cell + 2 * _MARGIN)
    figure = Figure(size)
    FigureCanvasAgg(figure)

    def axes_at(left: float, top: float, wide: float, high: float) -> Axes:
        """Place axes by inches from the left and the top."""
        box = (left / size[0], 1 - (top + high) / size[1], wide / size[0], high / size[1])
        axes: Axes = figure.add_axes(box)
        axes.set_axis_off()
        return axes

    for panel, (row, column) in zip([*given, *results], places, strict=True):
        left = _MARGIN + column * (width + _GAP)
        top = _MARGIN + row * cell + _TITLE
        axes = axes_at(left, top, width, height)
        axes.imshow(panel.pixels, interpolation="none", aspect="auto")
        _write_above(axes, panel.title, 14 if panel.note else 4, 9, "black")
        _write_above(axes, panel.note, 4, 7.5, "0.35")
        if panel.swatches:
            strip_axes = axes_at(left, top + height + _GAP / 2, width, strip)
            strip_axes.set(xlim=(0, a_line), ylim=(n_lines, 0))
            _draw_swatches(strip_axes, panel.swatches, a_line)
    return figure


def _write_above(axes: Axes, words: str, points: float, size: float, color: str) -> None:
    axes.annotate(
        printable(words),
        (0, 1),
        (0, points),
        xycoords="axes fraction",
        textcoords="offset points",
        annotation_clip=False,
        parse_math=False,
        fontsize=size,
        color=color,
    )


def _draw_swatches(axes: Axes, swatches: Sequence[Swatch], a_line: int) -> None:
    for place, swatch in enumerate(swatches):
        line, column = divmod(place, a_line)
        left, top, side = column + 0.06, line + 0.06, 0.88
        axes.add_patch(Rectangle((left, top), side, side, fc=swatch.color / 255, ec="0.4", lw=0.5))
        if swatch.is_dead:
            for low, high in ((top, top + side), (top + side, top)):
                axes.plot([left, left + side], [low, high], color="white", lw=1.8)
                axes.plot([left, left + side], [low, high], color="black", lw=0.8)


def _page(title: str, comparison: Comparison, rows: Sequence[Row], figure: Figure) -> str:
    """Return an HTML page that needs no other file: figure, table, failures, recipes."""
    drawing = io.BytesIO()
    figure.savefig(drawing, format="svg")  # holds every pixel, at any size
    source = "data:image/svg+xml;base64," + base64.b64encode(drawing.getvalue()).decode("ascii")
    count, heading = len(comparison.results), escape(f"{title}: comparison")
    summary = f"{count} result{'s' * (count != 1)}, {comparison.n_numbers} labels between them."
    if not comparison.is_complete:
        summary += " Stopped before the others."
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>",
        f'<h1>{heading}</h1>\n<p class="quiet">{summary}</p>',
        f'<img alt="{escape(title)}" src="{source}">',
        '<p class="quiet">The same label has the same place below each picture. A label that '
        "others have and a result has not is crossed.</p>",
        f'<h2>Numbers</h2>\n<div class="table">{html_table(rows)}</div>',
    ]
    dead = [comparison.dead(k).tolist() for k in range(count)]
    if any(dead):
        entries = [
            f"<li>{escape(row.name)}: without label {', '.join(map(str, labels))}</li>"
            for row, labels in zip(rows, dead, strict=True)
            if labels
        ]
        parts.append(f"<ul>{''.join(entries)}</ul>")
    if comparison.failures:
        entries = [
            f"<li>{escape(one.variant.name)}: {escape(str(one.error))}</li>"
            for one in comparison.failures
        ]
        parts.append(f"<h2>Not run</h2><ul>{''.join(entries)}</ul>")
    parts.append("<h2>Recipes</h2>")
    for one in comparison.results:
        recipe = escape(json.dumps(one.recipe, indent=2, ensure_ascii=False))
        parts.append(
            f"<details><summary>{escape(one.variant.name)}</summary><pre>{recipe}</pre></details>"
        )
    return "\n".join([*parts, "</body>\n</html>\n"])
