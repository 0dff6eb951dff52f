"""Save a comparison as a picture, a page or a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from napari_saf.comparison._comparison import Comparison
from napari_saf.comparison._figure import draw_panels
from napari_saf.comparison._page import page
from napari_saf.comparison._panels import Colors, given_panels, result_panels
from napari_saf.comparison._table import comparison_table, save_table
from napari_saf.comparison._variants import lay_out
from napari_saf.errors import InvalidInput
from napari_saf.io import FIGURE_SUFFIXES, atomic_write

__all__ = ["COMPARISON_SUFFIXES", "save_comparison"]

COMPARISON_SUFFIXES = (".html", *FIGURE_SUFFIXES, ".csv")
"""What the name of a saved comparison may end in."""

_DPI = 160


def save_comparison(
    path: str | os.PathLike[str],
    comparison: Comparison,
    image: ArrayLike,
    *,
    truth: ArrayLike | None = None,
    paint: Colors = "mean",
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
    given = given_panels(labels, image, truth, channel_axis, title)
    results = result_panels(
        comparison, rows, image, paint=paint, colors=colors, channel_axis=channel_axis
    )
    layout = lay_out([one.variant for one in comparison.results])
    with atomic_write(target) as temporary:
        if suffix == ".html":
            words = f"{title or 'image'}: comparison"
            text = page(words, comparison, rows, given, results, layout)
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            figure = draw_panels(given, results, layout)
            figure.savefig(temporary, dpi=_DPI, format=suffix[1:])
    return target
