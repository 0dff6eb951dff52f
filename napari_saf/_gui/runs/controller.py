"""The run of a dock: a timer shows the newest frame of its thread in the layer of the results."""

from __future__ import annotations

import time
from typing import Any

import napari
import numpy as np
from qtpy.QtCore import QObject, QTimer, Signal

from napari_saf._gui.layers.live import LiveLayer, RegionsLayer
from napari_saf._gui.layers.metadata import SoftLabels
from napari_saf._gui.layers.reading import ProblemReader
from napari_saf._gui.layers.view import middle_on_screen, visibility_of
from napari_saf._gui.runs.run import Frame, Run, RunJob
from napari_saf._gui.settings import current_settings
from napari_saf.io import PrototypeSet
from napari_saf.regions import RegionHierarchy
from napari_saf.result import Segmentation

_CLOSING_SECONDS = 5.0


class RunsOfViewer(QObject):
    """The runs of all docks: signals that carry the controller, and those that are `running`.

    `returned` has the result, once the layer shows it.
    """

    began = Signal(object)
    returned = Signal(object, object)
    ended = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.running: list[RunController] = []
        self.began.connect(self.running.append)
        self.ended.connect(self._on_ended)

    def _on_ended(self, controller: RunController) -> None:
        self.running = [active for active in self.running if active is not controller]


class RunController(QObject):
    """The run of a viewer and the layer that shows it.

    A timer takes the newest frame of the run and shows it; the run never waits for that, nor the
    main thread for the run. A run begins only when the one before has ended. It ends early when
    its image or its result is removed. Layers are compared by equality: a plugin is handed proxies,
    of which there are many of one layer. The `reader` may serve other work while there is no run.
    """

    began = Signal(object)  # the job
    advanced = Signal(object)
    swept = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal(object)  # the job

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
        live = job.live or job.create_layer(self._viewer)
        self._has_returned = self._is_in_sight = False
        self.note = ""
        self._frame_seconds = 1 / current_settings().frames
        run = self.run = Run(job, live, self.reader)
        for signal, slot in (
            (run.first_labels, self._show_newest),
            (run.swept, self.swept),
            (run.returned, self._on_returned),
            (run.prototypes_learned, self._on_prototypes_learned),
            (run.merged, self._on_merged),
            (run.failed, self.failed),
            (run.abandoned, self.abandoned),
            (run.finished, self._on_finished),
        ):
            signal.connect(slot)
        self.began.emit(job)
        self._runs.began.emit(self)
        run.start()

    def _on_other_began(self, started: RunController) -> None:
        """Stop the run if another controller started one that writes to its layer."""
        if started is not self and self.live is not None and self.live is started.live:
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
        run = self.run
        assert run is not None and run.problem is not None
        job, live = run.job, run.live
        if isinstance(shown, Frame):
            self._frame = shown
        if live.layer is None and job.image not in self._viewer.layers:
            return
        if isinstance(shown, Frame):
            live.show(shown.labels, int(shown.numbers.max(initial=0)))
            if live.layer is not None:
                middle = middle_on_screen(self._viewer, live.layer)
                run.centre = np.delete(middle, job.placement.singletons)
        else:
            shown = run.by_label(shown)
            soft = SoftLabels.of(run.problem, shown, job.image_job.locked)
            live.finish(shown, run.problem.graph, soft)
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

    def _on_prototypes_learned(self, prototypes: PrototypeSet) -> None:
        if self._has_returned and self.run is not None and self.run.live.layer is not None:
            self.run.learned = prototypes
            self.run.live.teach(prototypes)

    def _on_merged(self, tree: RegionHierarchy) -> None:
        """Show the regions that the job asks for, and make them active."""
        run = self.run
        if run is None or run.job.level is None or run.live.is_lost or not self._has_returned:
            return
        regions = RegionsLayer(self._viewer, run.live)
        regions.show_level(tree, run.job.level)
        index = run.job.image_job.pixels.index
        visibility_of(self._viewer).show_result(run.job.image, regions.layer, index)
        self._viewer.layers.selection.active = regions.layer

    def _on_finished(self) -> None:
        ended, self._frame = self.job, None
        self._timer.stop()
        self.run = None
        job, self.waiting = self.waiting, None
        self._runs.ended.emit(self)
        self.finished.emit(ended)
        if job is not None and job.image in self._viewer.layers:
            self._begin(job)

    def _on_layer_removed(self, event: Any) -> None:
        self.reader.forget()
        run = self.run
        layers = () if run is None else (run.job.image, run.live.layer, *run.job.extra_images)
        if run is not None and event.value in layers:
            is_labels = event.value == run.live.layer
            which = "the layer of its labels" if is_labels else "its image"
            run.fault = f"stopped: {which} was removed"
            run.cancel()
