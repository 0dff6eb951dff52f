"""The runs of a viewer: start, follow, stop, go on with, shut down."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import napari
import numpy as np
from qtpy.QtCore import QObject, QTimer, Signal

from napari_saf._gui.forms.layout import create_button
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import SoftLabels, metadata_of
from napari_saf._gui.layers.reading import ProblemReader, fingerprint
from napari_saf._gui.layers.view import EventWatch, middle_on_screen
from napari_saf._gui.layers.visibility import visibility_of
from napari_saf._gui.runs.run import Frame, Run, RunJob, StoppedStart
from napari_saf._gui.settings import current_settings
from napari_saf.io import PrototypeSet
from napari_saf.result import Segmentation

_CLOSING_SECONDS = 5.0
_RESUME_HELP = (
    "Go on where the run was stopped, with the settings that it had, in the same layer. It ends as "
    "if it had not been stopped, but for few pixels."
)


class RunsOfViewer(QObject):
    """Tells of the runs of all docks, each with its controller, in the main thread.

    Of a return with the result, once the layer shows what came of it.
    """

    began = Signal(object)
    returned = Signal(object, object)
    ended = Signal(object)


class RunController(QObject):
    """The run of a viewer and the layer that shows it.

    A timer takes the newest frame of the run and shows it; the run never waits for that, nor the
    main thread for the run. A run begins only when the one before has ended. It ends early when
    its image or its result is removed. Layers are compared by equality: a plugin is handed proxies,
    of which there are many of one layer. The `reader` may serve other work while there is no run.
    """

    began = Signal()
    advanced = Signal(object)
    swept = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal()

    def __init__(self, viewer: napari.Viewer, runs: RunsOfViewer) -> None:
        super().__init__()
        self._viewer, self._runs = viewer, runs
        self.run: Run | None = None
        self.waiting: RunJob | None = None  # for the end of the present run
        self._has_returned = self._is_in_sight = False
        self._frame: Frame | None = None
        self._frame_seconds = self._began_showing = 0.0
        # Qt handles a timer of no time after what is to be painted.
        self._timer, self._painted = QTimer(self, singleShot=True), QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._show_newest)
        self._painted.timeout.connect(self._on_painted)
        self.reader = ProblemReader()
        self.note = ""  # on what the labels of the run are under, or were
        viewer.layers.events.removed.connect(self._on_layer_removed)
        runs.began.connect(self._on_other_began)

    @property
    def is_running(self) -> bool:
        return self.run is not None

    @property
    def is_stopping(self) -> bool:
        return self.run is not None and self.run.is_cancelled

    @property
    def seconds(self) -> float:
        return 0.0 if self.run is None else self.run.seconds

    @property
    def job(self) -> RunJob | None:
        return None if self.run is None else self.run.job

    @property
    def live(self) -> LiveLayer | None:
        return None if self.run is None else self.run.live

    def start(self, job: RunJob) -> None:
        if self.run is None:
            self._begin(job)
        else:
            self.waiting = job
            self.run.cancel()

    def stop(self) -> None:
        self.waiting = None
        if self.run is not None:
            self.run.cancel()

    def shut_down(self) -> None:
        """End the run, if there is one, and take no notice of it any more."""
        self.stop()
        self._timer.stop()
        self._painted.stop()
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        run, self.run = self.run, None
        self._runs.began.disconnect(self._on_other_began)
        self._runs.ended.emit(self)
        if run is not None:
            run.silence()
            run.wait(_CLOSING_SECONDS)

    def _begin(self, job: RunJob) -> None:
        live = job.live or job.create_layer(self._viewer, job.title)
        self._has_returned = self._is_in_sight = False
        self.note = ""
        self._frame_seconds = 1 / current_settings().frames
        run = self.run = Run(job, live, self.reader)
        for signal, slot in (
            (run.first_labels, self._show_newest),
            (run.swept, self.swept),
            (run.returned, self._on_returned),
            (run.taught, self._on_taught),
            (run.failed, self.failed),
            (run.abandoned, self.abandoned),
            (run.finished, self._on_finished),
        ):
            signal.connect(slot)
        self.began.emit()
        self._runs.began.emit(self)
        run.start()

    def _on_other_began(self, other: RunController) -> None:
        """End a run to whose layer another one writes."""
        if other is not self and self.live is not None and self.live is other.live:
            self.stop()

    def _show_newest(self) -> None:
        self._began_showing = time.perf_counter()
        if self.run is not None and self.run.mailbox:
            self._show(self.run.mailbox.pop())
        self._painted.start()

    def _show(self, shown: Frame | Segmentation) -> None:
        """Show labels, where there is a layer for them or an image to make one for.

        They come to sight once a run, and hide earlier ones: runs side by side do not flicker.
        """
        assert self.run is not None
        job, live, problem = self.run.job, self.run.live, self.run.problem
        if isinstance(shown, Frame):
            self._frame = shown
        if live.layer is None and job.image not in self._viewer.layers:
            return
        if isinstance(shown, Frame):
            live.show(shown.labels, int(shown.numbers.max(initial=0)))
            if live.layer is not None:
                middle = middle_on_screen(self._viewer, live.layer)
                self.run.centre = np.delete(middle, job.placement.singletons)
        else:
            graph = None if problem is None else problem.graph
            shown = self.run.by_label(shown)
            fixed = job.image_job.locked
            soft = None if problem is None else SoftLabels.of(problem, shown, fixed)
            live.finish(shown, graph, soft)
        if not self._is_in_sight:
            self._is_in_sight = True
            index = job.image_job.pixels.index
            self.note = visibility_of(self._viewer).show_result(job.image, live.layer, index)

    def _on_painted(self) -> None:
        """Let the docks show the frame, too; then rest twice as long as all that took."""
        frame, self._frame = self._frame, None
        if frame is not None:
            self.advanced.emit(frame)
        if self.run is not None and not self._has_returned:
            seconds = time.perf_counter() - self._began_showing
            self._timer.start(round(1000 * max(self._frame_seconds, 2 * seconds)))

    def _on_returned(self, result: Segmentation) -> None:
        run = self.run
        if run is None or (self.waiting is not None and self.waiting.live is run.live):
            return
        self._has_returned = True
        self._timer.stop()
        if run.mailbox and not self._is_in_sight:
            self._show(run.mailbox.pop())
        self._on_painted()  # listeners see how every run began
        self._show(result)
        self._runs.returned.emit(self, result)
        self.returned.emit(result)

    def _on_taught(self, taught: PrototypeSet) -> None:
        if self._has_returned and self.run is not None and self.run.live.layer is not None:
            self.run.live.teach(taught)

    def _on_finished(self) -> None:
        self._timer.stop()
        self.run = self._frame = None
        job, self.waiting = self.waiting, None
        self._runs.ended.emit(self)
        self.finished.emit()
        if job is not None and job.image in self._viewer.layers:
            self._begin(job)

    def _on_layer_removed(self, event: Any) -> None:
        self.reader.forget()
        run = self.run
        if run is not None and event.value in (run.job.image, run.live.layer, *run.job.others):
            run.cancel()


class StoppedRun(QObject):
    """The job that goes on with a run that was stopped, and a button that is there while it can.

    It cannot once the image or the result is gone, another run wrote to the result, or strokes
    were changed since the run began.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._job: tuple[RunJob, LiveLayer, Segmentation] | None = None  # with what it left
        self._checksum = 0
        self.button = create_button("Resume", _RESUME_HELP)
        self.button.hide()
        self._strokes = EventWatch(self, 100)
        self._strokes.changed.connect(self.check)

    def begin(self, job: RunJob) -> None:
        """Take note of the strokes of a run that begins."""
        self._checksum = _checksum(job)

    def keep(self, run: Run, outcome: Segmentation) -> None:
        """Offer to go on from the outcome of the run that began last, if that can be."""
        start, recording = StoppedStart(outcome), run.recording
        job = dataclasses.replace(run.job, live=run.live, start=start, recording=recording)
        self._job = job, run.live, outcome
        if run.job.strokes is not None:
            events = run.job.strokes.events
            self._strokes.watch((events.paint, events.set_data))
        self.button.show()
        self.check()

    def forget(self) -> None:
        self._job = None
        self._strokes.watch()
        self.button.hide()

    def check(self) -> RunJob | None:
        """Return the job that goes on; None, and nothing is offered, where it cannot."""
        if self._job is None:
            return None
        (job, live, outcome), layers = self._job, self._viewer.layers
        is_there = job.image in layers and live.layer is not None and not live.is_lost
        if job.strokes is not None:
            is_there &= job.strokes in layers and _checksum(job) == self._checksum
        if is_there and metadata_of(live.layer).get("history") is outcome.history:
            return job
        self.forget()
        return None


def _checksum(job: RunJob) -> int:
    return 0 if job.strokes is None else fingerprint(job.strokes.data, None)
