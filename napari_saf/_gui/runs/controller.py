"""Controller of the run of a dock: displays the newest frame of its thread in the result layer."""

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
    """Signals of the runs of all docks, and the controllers that are `running`.

    Signals carry the controller; `returned` is emitted once the layer shows the result.
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
    """Starts, displays and stops the run of a dock, at most one at a time.

    A timer displays the newest frame; run and main thread never wait for each other. A new run
    starts once the previous one has ended. Removing its image or its result layer stops a run.
    Layers are compared by equality, since plugins receive many proxies of the same layer. The
    `reader` may be used by other work while no run is active.
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
        self.waiting: RunJob | None = None  # queued until the current run ends
        self._has_returned = self._is_in_sight = self._discards = False
        self._frame: Frame | None = None
        self._frame_seconds = self._began_showing = 0.0
        # Qt handles a timer with zero interval after pending paint events.
        self._timer, self._painted = QTimer(self, singleShot=True), QTimer(self, singleShot=True)
        self._timer.timeout.connect(self._show_newest)
        self._painted.timeout.connect(self._on_painted)
        self.reader = ProblemReader()
        self.note = ""  # on other layers hidden for the labels
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

    def stop(self, *, discards: bool = False) -> None:
        """Stop the run; with `discards`, none of its labels are shown any more."""
        self.waiting = None
        if self.run is not None:
            if discards:
                self._discards, self._frame = True, None
            self.run.cancel()

    def shut_down(self) -> None:
        """Stop the run, if any, and disconnect from it."""
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
        self._has_returned = self._is_in_sight = self._discards = False
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
        """Stop the run if another controller started one on the same layer."""
        if started is not self and self.live is not None and self.live is started.live:
            self.stop()

    def _show_newest(self) -> None:
        self._began_showing = time.perf_counter()
        if self.run is not None and self.run.mailbox and not self._discards:
            self._show(self.run.mailbox.pop())
        self._painted.start()

    def _show(self, shown: Frame | Segmentation) -> None:
        """Show labels in their layer, which is created if its image is still open.

        They are made visible, hiding earlier labels, once per run, so that parallel runs do not
        flicker.
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
        """Notify the docks of the frame, then pause for twice the time spent displaying it."""
        frame, self._frame = self._frame, None
        if frame is not None:
            self.advanced.emit(frame)
        if self.run is not None and not self._has_returned:
            seconds = time.perf_counter() - self._began_showing
            self._timer.start(round(1000 * max(self._frame_seconds, 2 * seconds)))

    def _on_returned(self, result: Segmentation) -> None:
        run = self.run
        is_replaced = self.waiting is not None and self.waiting.live is self.live
        if run is None or is_replaced or self._discards:
            return
        self._has_returned = True
        self._timer.stop()
        if run.mailbox and not self._is_in_sight:
            self._show(run.mailbox.pop())
        self._on_painted()  # listeners receive the first frame of every run
        self._show(result)
        self._runs.returned.emit(self, result)
        self.returned.emit(result)

    def _on_prototypes_learned(self, prototypes: PrototypeSet) -> None:
        if self._has_returned and self.run is not None and self.run.live.layer is not None:
            self.run.learned = prototypes
            self.run.live.teach(prototypes)

    def _on_merged(self, tree: RegionHierarchy) -> None:
        """Show the regions at the level of the job, and make their layer active."""
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
