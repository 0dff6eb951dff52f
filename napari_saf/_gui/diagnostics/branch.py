"""The form of a branch: continue from a recorded state with other parameters."""

from __future__ import annotations

import dataclasses

import napari
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QPushButton, QVBoxLayout, QWidget

from napari_saf._gui.forms.controls import OddSlider
from napari_saf._gui.forms.image_input import side_of, with_side
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.runs.controller import RunJob
from napari_saf.errors import SafError
from napari_saf.parameters import build, values_of

_SCALE_HELP = "Side of the window over which labels are averaged (N)."


class BranchForm(QWidget):
    """The parameters of a run, to be changed, and a button."""

    clicked = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._job: RunJob | None = None
        self.form: MethodForm | None = None
        self.scale = OddSlider(5)
        self._own = FormSection()
        self._own.add_row("Scale", self.scale, _SCALE_HELP)
        self._basic, self._advanced = (_create_place() for _ in range(2))
        self.button = QPushButton("Branch")
        self.button.setToolTip("Go on from here with these parameters, in a layer of its own.")
        self.button.clicked.connect(self.clicked)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        for widget in (self._own, self._basic, create_fold("Advanced", self._advanced)):
            layout.addWidget(widget)
        layout.addWidget(self.button)

    def show_job(self, job: RunJob | None) -> None:
        """Show the parameters of a run, unless they are those shown already."""
        if job is self._job:
            return
        self.release()
        self._job = job
        if job is None:
            return
        self.form = form = MethodForm(
            self._viewer, [type(job.method)], asks_prototypes=False, asks_start=False
        )
        self._basic.layout().addWidget(form.basic)
        self._advanced.layout().addWidget(form.advanced)
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
        assert self._job is not None and self.form is not None
        job, image_job = self._job, self._job.image_job
        method = build(type(job.method), values_of(job.method) | self.form.values())
        if self._own.is_shown(self.scale):
            window = with_side(image_job.options.window, self.scale.value)
            options = dataclasses.replace(image_job.options, window=window)
            image_job = dataclasses.replace(image_job, options=options)
        return dataclasses.replace(job, method=method, image_job=image_job)

    def release(self) -> None:
        """Let go of the viewer and of the run."""
        self._job = None
        if self.form is None:
            return
        self.form.release()
        for place, section in (
            (self._basic, self.form.basic),
            (self._advanced, self.form.advanced),
        ):
            place.layout().removeWidget(section)
            section.hide()
            section.deleteLater()
        self.form = None

    def _show_scale(self) -> None:
        """Ask for the scale where it matters and is one number."""
        assert self._job is not None and self.form is not None
        has_one = side_of(self._job.image_job.options.window) is not None
        try:
            uses_window = build(
                type(self._job.method), values_of(self._job.method) | self.form.values()
            ).uses_window
        except SafError:
            return
        self._own.show_row(self.scale, has_one and uses_window)


def _create_place() -> QWidget:
    place = QWidget()
    layout = QVBoxLayout(place)
    layout.setContentsMargins(0, 0, 0, 0)
    return place
