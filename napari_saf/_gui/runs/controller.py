"""The runs of a viewer: a thread that fills a mailbox, and the timer that shows what is in it."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal

from napari_saf._gui.layers.live import LiveLayer, RegionsLayer
from napari_saf._gui.layers.metadata import SoftLabels
from napari_saf._gui.layers.reading import ProblemReader
from napari_saf._gui.layers.view import middle_on_screen, visibility_of
from napari_saf._gui.runs.job import RecordedStart, RunJob, StoppedStart
from napari_saf._gui.runs.tasks import Task
from napari_saf._gui.settings import current_settings
from napari_saf.io import PrototypeSet
from napari_saf.methods import Cancelled, SweepMethod, run_to_end
from napari_saf.parts import in_view
from napari_saf.pipeline import NumberedRun, Pipeline, RunStart
from napari_saf.problem import Problem
from napari_saf.recording import Recording
from napari_saf.regions import RegionHierarchy
from napari_saf.result import LabelImage, LabelMap, Segmentation, Snapshot

_CLOSING_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What the screen shows of a snapshot; owns its arrays.

    Entry k of `numbers` is the label of column k on screen: the number it was painted with.
    """

    labels: LabelImage
    numbers: NDArray[np.int64]
    shares: NDArray[np.float64]
    prototypes: NDArray[np.float32]
    n_labels: int
    time: float
    fraction: float
    stage: str


class Run(Task):
    """A run, as a job asks for it, and the layer that shows it.

    The `mailbox` holds at most one frame: the run makes one when it is empty, and whoever takes it
    asks so for another; neither waits for the other. `first_labels` is sent with the first. A sweep
    through the fairness weights sends `swept` before it returns its last solution. What follows the
    labels does not hold them up: `prototypes_learned` from strokes, and regions that are `merged`.

    A `recording` can be set while a run goes on, if it is recordable. The `problem` is what was
    read, with strokes numbered without gaps; the `classes` are the numbers of the strokes. At full
    resolution parts of a large image come first that are near the `centre` of the screen, in pixels
    of the image. The `fault` says what ended the run, if it was no person.
    """

    first_labels = Signal()
    swept = Signal(object)
    prototypes_learned = Signal(object)
    merged = Signal(object)

    def __init__(self, job: RunJob, live: LiveLayer, reader: ProblemReader) -> None:
        super().__init__(self._label)
        self.job, self.live, self._reader = job, live, reader
        self._start = job.start or RunStart()
        if isinstance(self._start, StoppedStart):
            self._began -= self._start.outcome.seconds
        self._numbered: NumberedRun | None = None
        self._left: tuple[Segmentation, LabelImage, Problem] | None = None
        self._has_labels = False
        self.mailbox: deque[Frame] = deque(maxlen=1)
        self.centre: NDArray[np.floating] | None = None
        self.recording = job.recording
        self.learned: PrototypeSet | None = None  # from strokes, once that was sent
        self.fault = ""

    @property
    def problem(self) -> Problem | None:
        return None if self._numbered is None else self._numbered.problem

    @property
    def classes(self) -> LabelMap:
        return LabelMap.identity(0) if self._numbered is None else self._numbered.classes

    @property
    def pipeline(self) -> Pipeline | None:
        """What repeats the run; None before the image was read."""
        if self.problem is None:
            return None
        return Pipeline(self.job.method, self.problem.options, prototypes=self.learned)

    def record(self) -> Recording | None:
        """Return the recording, begun now if there is none; None of sweeps and edited labels."""
        if self.recording is None and self._start.is_recorded and not self.job.is_sweep:
            self.recording = Recording()
        return self.recording

    def by_label(self, result: Segmentation) -> Segmentation:
        """Return the result with prototypes, exemplars and columns by the labels on screen.

        Those of a sweep are so already.
        """
        is_done = self.job.is_sweep or self._numbered is None
        return result if is_done else self._numbered.by_label(result)  # type: ignore[union-attr]

    def _label(self, report: object, cancelled: Callable[[], bool]) -> Segmentation:
        method, job = self.job.method, self.job.image_job
        read = self._reader.read(job, cancelled)
        run = self._numbered = NumberedRun(method, read, self._start)
        problem = self._reader.problem
        assert problem is not None
        if cancelled():
            raise Cancelled
        if self.job.is_sweep:
            assert isinstance(method, SweepMethod)
            weights = method.iterate_sweep(run.problem, cancelled=cancelled)
            sweep = run_to_end(weights, self._put)
            if not sweep.points:
                raise Cancelled
            results = [run.finish(_last(point.segmentation)) for point in sweep.points]
            points = tuple(
                dataclasses.replace(point, segmentation=run.by_label(result))
                for point, result in zip(sweep.points, results, strict=True)
            )
            self._send(self.swept, dataclasses.replace(sweep, points=points))
            return points[-1].segmentation
        with in_view(lambda: self.centre):
            result = run_to_end(run.iterate(cancelled), self._put)
        if isinstance(self._start, RecordedStart) and self.recording:
            # The history begins before the recorded state that the run started from.
            result = dataclasses.replace(result, history=self.recording.history())
        finished = run.finish(_last(result))
        labels = job.with_locked(finished.labels)  # type: ignore[arg-type]
        self._left = result, labels, problem
        return dataclasses.replace(finished, labels=labels)

    def _put(self, snapshot: Snapshot) -> None:
        """Put a frame into the mailbox if it is empty; record the step."""
        if not self.mailbox and not self.is_cancelled:
            self.mailbox.append(self._frame_of(snapshot))
            if not self._has_labels:
                self._has_labels = True
                self._send(self.first_labels)
        recording = self.recording  # another thread may take it away
        if recording is not None:
            recording.watch(snapshot)

    def _frame_of(self, snapshot: Snapshot) -> Frame:
        columns, labels = snapshot.label_map.numbers, snapshot.labels
        image = labels[-1] if isinstance(labels, list) else labels
        return Frame(
            self.job.image_job.with_locked(self._start.paint(image, self.classes)),
            self.classes.extended(int(columns.max())).numbers[columns - 1],
            snapshot.record.label_shares,
            snapshot.prototypes,
            snapshot.n_labels,
            snapshot.record.time,
            snapshot.fraction,
            snapshot.stage,
        )

    def _clean_up(self) -> None:
        if self._left is None:
            return
        (result, labels, problem), self._left = self._left, None
        job, level = self.job.image_job, self.job.level
        if job.seeds is not None and not self.is_cancelled:
            prototypes = PrototypeSet.fit(problem, labels)
            if prototypes is not None:
                self._send(self.prototypes_learned, prototypes)
        recording = self.recording
        if recording is not None:
            recording.finish(result)
        if level is not None and not self.is_cancelled:
            with suppress(Cancelled):
                self._send(self.merged, job.merge_regions(labels, lambda: self.is_cancelled)[0])


def _last(result: Segmentation) -> Segmentation:
    """Return the result of the image that is asked for, of several that are labelled together."""
    images = result.labels
    return dataclasses.replace(result, labels=images[-1]) if isinstance(images, list) else result


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
