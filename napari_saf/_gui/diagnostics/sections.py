"""What folds in the Diagnostics dock: how far apart labels are, and a branch of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtWidgets import QHeaderView, QLabel, QVBoxLayout, QWidget

from napari_saf._gui.docks.label_table import ROW_HEIGHT, create_cell, create_table, table_texts
from napari_saf._gui.forms.controls import OddSlider
from napari_saf._gui.forms.image_input import side_of, with_side
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.runs.controller import RunJob
from napari_saf.errors import SafError
from napari_saf.methods import AbstractMethod
from napari_saf.parameters import build, values_of

_MOST_ROWS = 6
_SCALE_HELP = "Side of the window over which labels are averaged (N)."


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
        self._table.setColumnCount(3)
        self._table.setHorizontalHeaderLabels(["Label", "Most like", "Apart"])
        self._table.verticalHeader().hide()
        self._table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._summary)
        layout.addWidget(self._table)
        self.show_message("")

    def show_message(self, text: str) -> None:
        """Show a line and no table."""
        self._summary.setText(text)
        self._table.hide()

    def show_separability(
        self,
        whole: float,
        pairs: NDArray[np.float64],
        numbers: NDArray[np.int64],
        color: Callable[[int], NDArray[np.floating]],
    ) -> None:
        """Show how far apart all columns and every two are, with their numbers and colours."""
        present = np.flatnonzero(~np.isnan(pairs).all(axis=1))
        if not len(present):
            self.show_message("One label only: nothing to tell apart.")
            return
        nearest = np.nanargmin(pairs[present], axis=1)
        apart = pairs[present, nearest]
        order = np.argsort(apart, kind="stable")
        self._table.setRowCount(len(order))
        for row, k in enumerate(order):
            for place, column in enumerate((int(present[k]), int(nearest[k]))):
                self._table.setItem(row, place, create_cell(f"{numbers[column]}", color(column)))
            self._table.setItem(row, 2, create_cell(f"{apart[k]:.3g}"))
        first, second = sorted(numbers[[present[order[0]], nearest[order[0]]]])
        self._summary.setText(
            f"All labels: {whole:.3g}. Least apart: {first} and {second} ({apart[order[0]]:.2g})."
        )
        header = self._table.horizontalHeader().sizeHint().height()
        self._table.setFixedHeight(header + min(len(order), _MOST_ROWS) * ROW_HEIGHT + 4)
        self._table.show()

    def texts(self) -> tuple[str, list[list[str]]]:
        """Return the line, and the table row by row."""
        rows = [] if self._table.isHidden() else table_texts(self._table)
        return str(self._summary.text()), rows


class BranchForm(QWidget):
    """The parameters of a run, to be changed, and a button that continues with them."""

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._job: RunJob | None = None
        self._parameters: QWidget | None = None
        self.form: MethodForm | None = None
        self.scale = OddSlider(5)
        self._own = FormSection()
        self._own.add_row("Scale", self.scale, _SCALE_HELP)
        self.button = create_button(
            "Branch", "Go on from here with these parameters, in a layer of its own."
        )
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.addWidget(self._own)
        self._layout.addWidget(self.button)

    def show_job(self, job: RunJob) -> None:
        """Show the parameters of a run, unless they are those shown already."""
        if job is self._job:
            return
        self.release()
        self._job = job
        self.form = form = MethodForm(
            self._viewer, [type(job.method)], asks_prototypes=False, asks_start=False
        )
        self._parameters = QWidget()
        layout = QVBoxLayout(self._parameters)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(form.basic)
        layout.addWidget(create_fold("Advanced", form.advanced))
        self._layout.insertWidget(1, self._parameters)
        side = side_of(job.image_job.options.window)
        if side is not None:
            self.scale.set_value(side)
        form.changed.connect(self._show_scale)
        try:
            form.set_values(values_of(job.method))
        except SafError:
            self.button.setEnabled(False)
        self._show_scale()

    def job(self) -> RunJob:
        """Return what the run shown would be with the parameters as they are now.

        Raises
        ------
        SafError
            If a value is out of bounds.
        """
        assert self._job is not None
        image_job = self._job.image_job
        if self._own.is_shown(self.scale):
            window = with_side(image_job.options.window, self.scale.value)
            options = dataclasses.replace(image_job.options, window=window)
            image_job = dataclasses.replace(image_job, options=options)
        return dataclasses.replace(self._job, method=self._method(), image_job=image_job)

    def release(self) -> None:
        """Let go of the viewer and of the run."""
        if self.form is not None and self._parameters is not None:
            self.form.release()
            self._layout.removeWidget(self._parameters)
            self._parameters.hide()
            self._parameters.deleteLater()
        self._job = self.form = self._parameters = None

    def _method(self) -> AbstractMethod:
        assert self._job is not None and self.form is not None
        method = self._job.method
        return build(type(method), values_of(method) | self.form.values())

    def _show_scale(self) -> None:
        """Ask for the scale where it matters and is one number."""
        assert self._job is not None
        try:
            uses_window = self._method().uses_window
        except SafError:
            return
        has_one = side_of(self._job.image_job.options.window) is not None
        self._own.show_row(self.scale, has_one and uses_window)
