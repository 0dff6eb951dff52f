"""What folds in the Diagnostics dock: how far apart labels are, and a branch of the run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtWidgets import QHeaderView, QLabel, QVBoxLayout, QWidget

from napari_saf._gui.docks.label_table import ROW_HEIGHT, create_cell, create_table
from napari_saf._gui.forms.controls import OddSlider
from napari_saf._gui.forms.image_input import side_of, with_side
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, fill_layout
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.runs.controller import RunJob
from napari_saf.errors import SafError
from napari_saf.parameters import build, values_of

_MOST_ROWS = 6
_SCALE_HELP = "Side of the window over which labels are averaged (N)."
_SUMMARY_HELP = (
    "How far apart labels are in colour or whatever describes a pixel: the scatter between them "
    "over the scatter within them; larger is better (tr S_B / tr S_W)."
)


class SeparabilityTable(QWidget):
    """A line with the number for all labels, and a row a label, the least apart first."""

    def __init__(self) -> None:
        super().__init__()
        self.summary = QLabel()
        self.summary.setWordWrap(True)
        self.summary.setToolTip(_SUMMARY_HELP)
        self.table = create_table(
            "Each label, the label it is least apart from, and how far apart they are."
        )
        self.table.setColumnCount(3)
        self.table.setHorizontalHeaderLabels(["Label", "Most like", "Apart"])
        self.table.verticalHeader().hide()
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        fill_layout(QVBoxLayout(self), self.summary, self.table)
        self.show_message("")

    def show_message(self, text: str) -> None:
        self.summary.setText(text)
        self.table.hide()

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
        order = np.argsort(pairs[present, nearest], kind="stable")
        couples = [(int(present[k]), int(nearest[k])) for k in order]
        self.table.setRowCount(len(couples))
        for row, couple in enumerate(couples):
            for place, column in enumerate(couple):
                self.table.setItem(row, place, create_cell(f"{numbers[column]}", color(column)))
            self.table.setItem(row, 2, create_cell(f"{pairs[couple]:.3g}"))
        first, second = sorted(numbers[list(couples[0])])
        self.summary.setText(
            f"All labels: {whole:.3g}. Least apart: {first} and {second} ({pairs[couples[0]]:.2g})."
        )
        header = self.table.horizontalHeader().sizeHint().height()
        self.table.setFixedHeight(header + min(len(order), _MOST_ROWS) * ROW_HEIGHT + 4)
        self.table.show()


class BranchForm(FormSection):
    """The parameters of a run, to be changed, and a button that continues with them."""

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._job: RunJob | None = None
        self.form: MethodForm | None = None
        self.scale = OddSlider(5)
        self.add_row("Scale", self.scale, _SCALE_HELP)
        self.button = create_button(
            "Branch", "Go on from here with these parameters, in a layer of its own."
        )
        self.layout().addWidget(self.button)

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
        fold = create_fold("Advanced", form.advanced)
        fill_layout(QVBoxLayout(self._parameters), form.basic, fold)
        self.layout().insertWidget(1, self._parameters)
        self.scale.set_value(side_of(job.image_job.options.window) or self.scale.value)
        try:
            form.set_values(values_of(job.method))
        except SafError:
            self.button.setEnabled(False)
        form.changed.connect(self._show_scale)
        self._show_scale()

    def job(self) -> RunJob:
        """Return the run with the parameters as they are now; SafError if one is out of bounds."""
        assert self._job is not None and self.form is not None
        method, image_job = self._job.method, self._job.image_job
        method = build(type(method), values_of(method) | self.form.values())
        if self.is_shown(self.scale):
            side, window = self.scale.value, image_job.options.window
            assert side is not None and not isinstance(window, str)
            window = with_side(window, side)
            options = dataclasses.replace(image_job.options, window=window)
            image_job = dataclasses.replace(image_job, options=options)
        return dataclasses.replace(self._job, method=method, image_job=image_job)

    def release(self) -> None:
        if self.form is not None:
            self._parameters.hide()
            self._parameters.deleteLater()
        self._job = self.form = None

    def _show_scale(self) -> None:
        """Ask for the scale where it matters and is one number."""
        assert self._job is not None
        has_one = side_of(self._job.image_job.options.window) is not None
        with contextlib.suppress(SafError):
            self.show_row(self.scale, has_one and self.job().method.uses_window)
