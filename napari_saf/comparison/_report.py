"""A comparison as a picture or a table in a file."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.color import gray2rgb

from napari_saf import io
from napari_saf.arrays import as_path, check_kind
from napari_saf.comparison._comparison import Comparison, Row, comparison_table
from napari_saf.comparison._variants import Layout, lay_out, short_names
from napari_saf.errors import InvalidInput, counted
from napari_saf.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPARISON_SUFFIXES = (*io.FIGURE_SUFFIXES, ".csv")
"""What the name of a saved comparison may end in."""

_Pixels = NDArray[np.uint8]
_DPI = 160
_MOST_SWATCHES = 48
_ABSENT = 205.0
"""The grey of labels that are in other planes only."""
_PANEL_WIDTH, _PANEL_HEIGHT, _TEXT_HEIGHT = 2.9, 4.7, 0.5
"""In inches."""
_IN_A_LINE = 16
"""Swatches below a panel."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """A picture of shape (height, width, 3), text above it, colours of labels below it."""

    title: str
    note: str
    pixels: _Pixels
    colors: _Pixels = dataclasses.field(default_factory=lambda: np.empty((0, 3), np.uint8))
    is_dead: NDArray[np.bool_] = dataclasses.field(default_factory=lambda: np.empty(0, bool))
    """Which labels the result does not have and others do."""


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
        all labels, those crossed that it does not have) or ``.csv`` (the table).
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
        Text above the image.

    Raises
    ------
    InvalidInput
        If the suffix is unknown, the comparison is empty, or image or truth have another shape.
    SafError
        If the file cannot be written.

    Examples
    --------
    >>> image = np.kron([[0.0, 1.0]], np.ones((16, 16)))
    >>> comparison = saf.compare(image, [saf.Variant(saf.SLK(n_clusters=2))])
    >>> saf.save_comparison("comparison.csv", comparison, image).name
    'comparison.csv'
    """
    target = as_path(path)
    suffix = io.check_suffix(target, COMPARISON_SUFFIXES)
    check_kind(comparison, Comparison, "comparison", "what saf.compare gives")
    if not comparison.results:
        raise InvalidInput("comparison: expected at least one result")
    rows = comparison_table(comparison, truth)
    if suffix == ".csv":
        import pandas  # takes half a second to load

        table = pandas.DataFrame(map(dataclasses.asdict, rows))
        io.write_csv(target, table.replace([np.inf, -np.inf], np.nan))
        return target
    labels = comparison.results[0].labels
    middle = tuple(side // 2 for side in labels.shape[:-2])
    plane = io.displayed_plane(np.asarray(image), labels, channel_axis, middle)
    plane = plane if plane.dtype == np.uint8 else np.round(255 * np.clip(plane, 0, 1))
    pixels = np.asarray(plane if plane.ndim == 3 else gray2rgb(plane), np.uint8)
    given = [Panel(title or "image", "", pixels)]
    if truth is not None:
        regions = np.asarray(truth)
        label_map = io.map_labels(regions)
        note = counted(label_map.n_columns, "region")
        given.append(Panel("truth", note, io.color_labels(io.thinned(regions[middle]), label_map)))
    results = result_panels(comparison, rows, pixels, paint, colors)
    figure = _draw(given, results, lay_out([one.variant for one in comparison.results]))
    with atomic_write(target) as temporary:
        figure.savefig(temporary, dpi=_DPI, format=suffix[1:])
    return target


def result_panels(
    comparison: Comparison,
    rows: Sequence[Row],
    pixels: _Pixels,
    paint: str = "mean",
    colors: Mapping[int, Sequence[float]] | None = None,
) -> list[Panel]:
    """Return a panel for each result; of a stack the middle is shown, as in `pixels`."""
    if paint not in ("mean", "palette"):
        raise InvalidInput(f"paint: expected mean or palette, got {paint!r}")
    count = comparison.n_numbers
    middle = tuple(side // 2 for side in comparison.results[0].labels.shape[:-2])
    planes = [io.thinned(result.labels[middle]) for result in comparison.results]
    if paint == "palette":
        tables = [io.color_table(io.map_labels(np.arange(count + 1), colors=colors))[1:]] * len(
            planes
        )
    else:
        # A label without pixels in a plane has its mean over the planes that show it.
        import pandas

        values, numbers = pandas.DataFrame(pixels.reshape(-1, 3)), range(1, count + 1)
        means = [values.groupby(plane.ravel()).mean().reindex(numbers) for plane in planes]
        everywhere = pandas.concat(means).groupby(level=0).mean().fillna(_ABSENT)
        tables = [one.fillna(everywhere).to_numpy().astype(np.uint8) for one in means]
    names = short_names([one.variant for one in comparison.results])
    panels = []
    for k, (row, table) in enumerate(zip(rows, tables, strict=True)):
        note = counted(row.n_labels, "label")
        if not math.isnan(row.covering):
            note += f", covering {row.covering:.2f}"
        painted = np.vstack([np.zeros((1, 3), np.uint8), table])[planes[k]]
        is_dead = np.isin(np.arange(1, count + 1), comparison.dead(k))
        shown = slice(_MOST_SWATCHES)
        panels.append(Panel(names[k], note, painted, table[shown], is_dead[shown]))
    return panels


def _draw(given: Sequence[Panel], results: Sequence[Panel], layout: Layout) -> Figure:
    """Draw what was given in columns of their own at the left, then the results."""
    from matplotlib.figure import Figure  # matplotlib takes half a second to load

    n_before = math.ceil(len(given) / layout.n_rows)
    places = [(k % layout.n_rows, k // layout.n_rows) for k in range(len(given))]
    places += [(row, n_before + column) for row, column in layout.places]
    aspect = results[0].pixels.shape[0] / results[0].pixels.shape[1]
    width = min(_PANEL_WIDTH, _PANEL_HEIGHT / aspect)
    n_lines = math.ceil(len(results[0].colors) / _IN_A_LINE)
    height = width * (aspect + n_lines / _IN_A_LINE) + _TEXT_HEIGHT
    n_columns = n_before + layout.n_columns
    figure = Figure((n_columns * width, layout.n_rows * height), layout="constrained")
    panels = figure.subplots(layout.n_rows, n_columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for panel, place in zip([*given, *results], places, strict=True):
        _draw_panel(panels[place], panel, aspect)
    return figure


def _draw_panel(axes: Axes, panel: Panel, aspect: float) -> None:
    """Draw a picture, text above it, and below it a square for each label, crossed if dead."""
    axes.imshow(panel.pixels, interpolation="none")
    text = "\n".join(filter(None, [io.printable(panel.title), panel.note]))
    axes.set_title(text, loc="left", fontsize=8, parse_math=False)
    n_lines = math.ceil(len(panel.colors) / _IN_A_LINE)
    if n_lines:
        lines, places = np.divmod(np.arange(len(panel.colors)), _IN_A_LINE)
        high = n_lines / _IN_A_LINE / aspect
        below = axes.inset_axes((0, -high - 0.02, 1, high))
        below.set(xlim=(0, _IN_A_LINE), ylim=(n_lines, 0))
        below.set_axis_off()
        style: dict[str, Any] = {"edgecolor": "0.4", "linewidth": 0.5, "align": "edge"}
        below.bar(places, 0.88, 0.88, lines, color=panel.colors / 255, **style)
        dead = panel.is_dead
        for color, width in (("white", 1.8), ("black", 0.8)):
            x, y = places[dead] + 0.44, lines[dead] + 0.44
            below.scatter(x, y, 40, color, marker="x", linewidths=width)
