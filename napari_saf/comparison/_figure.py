"""The picture of a comparison: panels in rows and columns, swatches below each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from napari_saf.comparison._panels import Panel, Swatch
from napari_saf.comparison._variants import Layout
from napari_saf.io import printable

__all__ = ["draw_panels"]

_WIDTH = 2.7
_MOST_HEIGHT = 4.5
_TITLE = 0.42
_GAP = 0.14
_MARGIN = 0.1
_FEWEST_IN_A_LINE, _MOST_IN_A_LINE = 16, 20


def draw_panels(given: Sequence[Panel], results: Sequence[Panel], layout: Layout) -> Figure:
    """Return a figure: what was given in columns of their own at the left, then the results.

    All panels have the aspect of their picture, and the same size.
    """
    n_before = math.ceil(len(given) / layout.n_rows)
    places = [(k % layout.n_rows, k // layout.n_rows) for k in range(len(given))]
    places += [(row, n_before + column) for row, column in layout.places]
    high, wide = results[0].pixels.shape[:2]
    width = min(_WIDTH, _MOST_HEIGHT * wide / high)
    height = width * high / wide
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
        _draw_picture(axes_at(left, top, width, height), panel)
        if panel.swatches:
            strip_axes = axes_at(left, top + height + _GAP / 2, width, strip)
            _draw_swatches(strip_axes, panel.swatches, a_line, n_lines)
    return figure


def _draw_picture(axes: Axes, panel: Panel) -> None:
    axes.imshow(panel.pixels, interpolation="nearest", aspect="auto")
    _write_above(axes, panel.title, 14 if panel.note else 4, 9, "black")
    _write_above(axes, panel.note, 4, 7.5, "0.35")


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


def _draw_swatches(axes: Axes, swatches: Sequence[Swatch], a_line: int, n_lines: int) -> None:
    axes.set(xlim=(0, a_line), ylim=(n_lines, 0))
    for place, swatch in enumerate(swatches):
        line, column = divmod(place, a_line)
        left, top, side = column + 0.06, line + 0.06, 0.88
        axes.add_patch(Rectangle((left, top), side, side, fc=swatch.color / 255, ec="0.4", lw=0.5))
        if swatch.is_dead:
            for low, high in ((top, top + side), (top + side, top)):
                axes.plot([left, left + side], [low, high], color="white", lw=1.8)
                axes.plot([left, left + side], [low, high], color="black", lw=0.8)
