"""How far apart labels are in what describes a pixel: a line and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from qtpy.QtWidgets import QHeaderView, QLabel, QVBoxLayout, QWidget

from napari_saf._gui.docks.tables import ROW_HEIGHT, create_cell, create_table, table_texts
from napari_saf.metrics import class_separability, pairwise_separability

_MOST_ROWS = 6
_HEADERS = ("Label", "Most like", "Apart")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Separability:
    """How far apart labels are.

    Attributes
    ----------
    whole : float
        Of all labels: see `class_separability`.
    pairs : array of shape (n_columns, n_columns)
        Of every two columns: see `pairwise_separability`.
    """

    whole: float
    pairs: NDArray[np.float64]

    def rows(self) -> list[tuple[int, int, float]]:
        """Return each column with the one least apart from it and how far, ascending."""
        present = np.flatnonzero(~np.isnan(self.pairs).all(axis=1))
        rows = []
        for column in present:
            other = int(np.nanargmin(self.pairs[column]))
            rows.append((int(column), other, float(self.pairs[column, other])))
        return sorted(rows, key=lambda row: row[2])


def separate(features: NDArray[np.floating], columns: NDArray[np.int64]) -> Separability:
    """Return how far apart the columns of nodes are."""
    labels = columns + 1
    whole = class_separability(features, labels)
    return Separability(whole, pairwise_separability(features, labels))


class SeparabilityTable(QWidget):
    """A line with the number for all labels, and a row a label, the least apart first."""

    def __init__(self) -> None:
        super().__init__()
        self._summary = QLabel()
        self._summary.setWordWrap(True)
        self._summary.setToolTip(
            "How far apart labels are in colour or whatever describes a pixel: the scatter "
            "between them over the scatter within them; larger is better (tr S_B / tr S_W)."
        )
        self._table = create_table(
            "Each label, the label it is least apart from, and how far apart they are."
        )
        self._table.setColumnCount(len(_HEADERS))
        self._table.setHorizontalHeaderLabels(_HEADERS)
        self._table.verticalHeader().hide()
        self._table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._summary)
        layout.addWidget(self._table)
        self.say("")

    @property
    def words(self) -> str:
        """The line."""
        return str(self._summary.text())

    def say(self, words: str) -> None:
        """Show a line and no table."""
        self._summary.setText(words)
        self._table.hide()

    def show_separability(
        self,
        found: Separability,
        numbers: NDArray[np.int64],
        color: Callable[[int], NDArray[np.floating]],
    ) -> None:
        """Show it, with the number on screen and the colour of each column."""
        rows = found.rows()
        if not rows:
            self.say("One label only: nothing to tell apart.")
            return
        one, other, least = rows[0]
        first, second = sorted((int(numbers[one]), int(numbers[other])))
        self._summary.setText(
            f"All labels: {found.whole:.3g}. Least apart: {first} and {second} ({least:.2g})."
        )
        self._table.setRowCount(len(rows))
        for row, (column, nearest, apart) in enumerate(rows):
            for place, own in enumerate((column, nearest)):
                self._table.setItem(row, place, create_cell(f"{numbers[own]}", color(own)))
            self._table.setItem(row, 2, create_cell(f"{apart:.3g}"))
        header = self._table.horizontalHeader().sizeHint().height()
        self._table.setFixedHeight(header + min(len(rows), _MOST_ROWS) * ROW_HEIGHT + 4)
        self._table.show()

    def table_texts(self) -> list[list[str]]:
        """Return what the table shows, row by row."""
        return [] if self._table.isHidden() else table_texts(self._table)
