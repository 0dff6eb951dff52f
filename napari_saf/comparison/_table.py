"""The numbers of a comparison as a table."""

from __future__ import annotations

import dataclasses
import html
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.comparison._comparison import Compared, Comparison
from napari_saf.errors import InvalidInput
from napari_saf.io import atomic_write, printable, table_cell
from napari_saf.metrics import (
    matched_accuracy,
    normalized_mutual_information,
    region_agreement,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The numbers of one result; NaN for what needs a truth, where there is none."""

    name: str
    n_labels: int
    covering: float
    information: float
    rand_index: float
    mutual_information: float
    accuracy: float
    objective: float
    n_evaluations: int
    seconds: float
    status: str


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    Attributes
    ----------
    field : str
        Of `Row`.
    heading, help : str
        Words for it.
    form : str
        How a number is written.
    best : {"largest", "smallest"} or None
        Which value is best, where one is.
    """

    field: str
    heading: str
    help: str
    form: str = ""
    best: Literal["largest", "smallest"] | None = None

    def text(self, row: Row) -> str:
        """Return the entry of a row in words."""
        value = getattr(row, self.field)
        if isinstance(value, float) and not math.isfinite(value):
            return ""
        return f"{value:{self.form}}"

    def best_of(self, rows: Sequence[Row]) -> float | None:
        """Return the best value, if there is one among several."""
        values = [float(getattr(row, self.field)) for row in rows] if self.best else []
        values = [value for value in values if math.isfinite(value)]
        if len(values) < 2:
            return None
        return max(values) if self.best == "largest" else min(values)


COLUMNS = (
    Column("name", "Name", "What was run."),
    Column("n_labels", "Labels", "Labels that own at least one pixel.", "d"),
    Column("covering", "Covering",
           "How well the best matching labels cover the regions of the truth: 1 is perfect.",
           ".3f", "largest"),
    Column("information", "VI",
           "Variation of information, in bits: what one of labels and truth tells and the "
           "other does not; 0 is perfect.", ".3f", "smallest"),
    Column("rand_index", "Rand",
           "Share of the pairs of pixels on which labels and truth agree: 1 is perfect.",
           ".3f", "largest"),
    Column("mutual_information", "NMI",
           "Normalised mutual information: 0 is independent of the truth, 1 is perfect.",
           ".3f", "largest"),
    Column("accuracy", "Accuracy",
           "Share of the pixels that are right under the best matching of labels to regions.",
           ".3f", "largest"),
    Column("objective", "Objective",
           "What the method raises or lowers; to be compared within one method only.", ".5g"),
    Column("n_evaluations", "Steps", "Right-hand sides, or inner updates, evaluated.", "d"),
    Column("seconds", "Time", "Duration in seconds, the reading of the image not counted.", ".2f"),
    Column("status", "Ended", "Why the run ended."),
)  # fmt: skip
"""What the table shows of a `Row`."""
_MEASURES = ("covering", "information", "rand_index", "mutual_information", "accuracy")


def comparison_table(comparison: Comparison, truth: ArrayLike | None = None) -> list[Row]:
    """Return a row of numbers for each result.

    Parameters
    ----------
    comparison : Comparison
        See `compare`.
    truth : array of int, optional
        Image-shaped; the regions 1, 2, ... as they should be. Pixels that are 0 do not count.

    Raises
    ------
    InvalidInput
        If the truth has another shape, is 0 everywhere, or holds other than whole numbers.
    """
    return [_row(one, truth) for one in comparison.results]


def _row(result: Compared, truth: ArrayLike | None) -> Row:
    measures = dict.fromkeys(_MEASURES, float("nan"))
    if truth is not None:
        measures = _measures(result.labels, np.asarray(truth))
    return Row(
        name=result.variant.name,
        n_labels=len(result.present),
        objective=result.objective,
        n_evaluations=result.n_evaluations,
        seconds=result.seconds,
        status=result.status.value.replace("_", " "),
        **measures,
    )


def _measures(labels: NDArray[Any], truth: NDArray[Any]) -> dict[str, float]:
    if truth.shape != labels.shape:
        raise InvalidInput(f"truth: expected the shape {labels.shape}, got {truth.shape}")
    regions = region_agreement(labels, truth)
    inside = truth != 0
    own, classes = labels[inside], truth[inside]
    return {
        **dataclasses.asdict(regions),
        "mutual_information": normalized_mutual_information(classes, own),
        "accuracy": matched_accuracy(classes, own),
    }


def save_table(path: str | os.PathLike[str], rows: Sequence[Row]) -> Path:
    """Save rows as CSV, at full precision.

    Raises
    ------
    SafError
        If the file cannot be written.
    """
    import pandas

    frame = pandas.DataFrame([dataclasses.asdict(row) for row in rows])
    frame = frame[[column.field for column in COLUMNS]].replace([np.inf, -np.inf], np.nan)
    frame = frame.map(lambda cell: table_cell(printable(cell)) if isinstance(cell, str) else cell)
    with atomic_write(path) as temporary:
        frame.to_csv(temporary, index=False, lineterminator="\r\n")
    return Path(path)


def html_table(rows: Sequence[Row]) -> str:
    """Return rows as an HTML table; columns without any value are left out, best values bold."""
    import pandas

    shown = [column for column in COLUMNS if any(column.text(row) for row in rows)]
    cells = {}
    for column in shown:
        best, texts = column.best_of(rows), [html.escape(column.text(row)) for row in rows]
        heading = f'<span title="{html.escape(column.help)}">{html.escape(column.heading)}</span>'
        cells[heading] = [
            f"<b>{text}</b>" if best is not None and getattr(row, column.field) == best else text
            for row, text in zip(rows, texts, strict=True)
        ]
    table: str = pandas.DataFrame(cells).to_html(index=False, escape=False, border=0)
    return table
