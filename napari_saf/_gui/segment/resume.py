"""A run that was stopped, and the button that goes on with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import napari
from qtpy.QtCore import QObject

from napari_saf._gui.forms.layout import create_button
from napari_saf._gui.layers.metadata import metadata_of
from napari_saf._gui.layers.reading import fingerprint
from napari_saf._gui.layers.view import EventWatch
from napari_saf._gui.runs.run import Run, RunJob, StoppedStart
from napari_saf.result import Segmentation

_HELP = (
    "Go on where the run was stopped, with the settings that it had, in the same layer. It ends as "
    "if it had not been stopped, but for few pixels."
)


class StoppedRun(QObject):
    """The job that goes on with a run that was stopped, and a button that is there while it can.

    It cannot once the image or the result is gone, another run wrote to the result, or strokes
    were changed since the run began.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._job: RunJob | None = None
        self._outcome: Segmentation | None = None
        self._checksum = 0
        self.button = create_button("Resume", _HELP)
        self.button.hide()
        self._strokes = EventWatch(self, 100)
        self._strokes.changed.connect(self.check)

    def begin(self, job: RunJob) -> None:
        """Take note of the strokes of a run that begins."""
        self._checksum = _checksum(job)

    def keep(self, run: Run, outcome: Segmentation) -> None:
        """Offer to go on from the outcome of the run that began last, if that can be."""
        self._outcome, job, strokes = outcome, run.job, run.job.strokes
        start, recording = StoppedStart(outcome), run.recording
        self._job = dataclasses.replace(job, live=run.live, start=start, recording=recording)
        if strokes is not None:
            self._strokes.watch((strokes.events.paint, strokes.events.set_data))
        self.button.show()
        self.check()

    def forget(self) -> None:
        self._job = self._outcome = None
        self._strokes.watch()
        self.button.hide()

    def check(self, event: Any = None) -> RunJob | None:
        """Return the job that goes on; None, and nothing is offered, where it cannot."""
        job = self._job
        if job is None or self._outcome is None:
            return None
        layers, live = self._viewer.layers, job.live
        assert live is not None
        is_there = job.image in layers and live.layer is not None and not live.is_lost
        if job.strokes is not None:
            is_there &= job.strokes in layers and _checksum(job) == self._checksum
        if is_there and metadata_of(live.layer).get("history") is self._outcome.history:
            return job
        self.forget()
        return None


def _checksum(job: RunJob) -> int:
    return 0 if job.strokes is None else fingerprint(job.strokes.data, None)
