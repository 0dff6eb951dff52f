"""Work in threads of their own: tasks, where a run begins, and the run that fills a mailbox."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal
from threadpoolctl import threadpool_limits

from napari_saf._gui.forms.display_text import parameters_by_hand
from napari_saf._gui.layers.live import LiveLayer, label_colors
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.layers.placement import (
    Placement,
    image_region,
    labelled_axes,
    pixels_of,
    placement_of,
)
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf._gui.napari_workarounds import prepare_labels_layers
from napari_saf._gui.settings import current_settings
from napari_saf.device import (
    interruptible,
    memory_errors_translated,
    memory_limit,
    size_text,
    torch,
)
from napari_saf.errors import InvalidInput, SafError
from napari_saf.flow import kernels
from napari_saf.io import PrototypeSet
from napari_saf.methods import AbstractMethod, Cancelled, SweepMethod, run_to_end
from napari_saf.parts import in_view
from napari_saf.points import k_means
from napari_saf.problem import Problem
from napari_saf.recording import RecordedState, Recording
from napari_saf.result import LabelImage, LabelMap, Segmentation, Snapshot

_logger = logging.getLogger(__name__)
_LEAST, _SMOOTHING = 1e-10, 0.1
LARGE_SHARE = 0.25
"""Of the memory that is free; from here on it is said how much a run takes."""
_MOST_LETTERS = 40
"""Of a title, so that there is room for the name of the image."""


class Task(QObject):
    """A call of a function in a thread of its own, under the settings of the time of its making.

    The function is called as ``function(report, cancelled)``: what it reports is sent as
    `advanced`; it asks `cancelled` now and then, and ends or raises `Cancelled` once that returns
    True. Signals are sent in the thread that made the task: exactly one of `returned`, `failed` and
    `abandoned`, then `finished`, once the other thread has ended.
    """

    _sending = Signal(object)
    advanced = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal()

    def __init__(
        self, function: Callable[[Callable[[object], None], Callable[[], bool]], object]
    ) -> None:
        super().__init__()
        self._function: Any = function
        self._settings = current_settings()
        self._began = time.perf_counter()
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._work, name="napari-saf run")
        self._memory = 0.0, 0.0
        self.memory_note = ""  # where much of it is needed
        self._sending.connect(self._send_here)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        self._cancelled.set()

    def silence(self) -> None:
        """Ask the work to end, and tell nobody any more."""
        self.cancel()
        self.blockSignals(True)

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _note_memory(self, n_bytes: float, room: float) -> None:
        """Add up what is needed, and say so where that is much."""
        taken, free = self._memory
        self._memory = taken + n_bytes, free or room
        if self._memory[0] > LARGE_SHARE * self._memory[1]:
            need, there = map(size_text, self._memory)
            self.memory_note = f"memory: about {need} of {there} that were free"

    def _send(self, signal: Any, *values: object) -> None:
        """Have a signal of this task sent in the thread that made it."""
        self._sending.emit(partial(signal.emit, *values))

    def _send_here(self, send: Callable[[], None]) -> None:
        send()

    def _end(self) -> None:
        self._thread.join()
        self.finished.emit()

    def _clean_up(self) -> None:
        """Do what can be done once the outcome was sent."""

    def _work(self) -> None:
        settings, function = self._settings, self._function
        self._function = None  # which may hold this task
        torch.get_num_threads()  # torch sets it once in each thread, when first asked
        try:
            with (
                # OpenMP has a number of threads for each thread: all others keep theirs.
                threadpool_limits(settings.threads, "openmp")
                if settings.threads
                else nullcontext(),
                memory_limit(settings.memory_limit, self._note_memory),
                memory_errors_translated(),
                interruptible(self._cancelled.is_set),
            ):
                report = partial(self._send, self.advanced)
                self._send(self.returned, function(report, self._cancelled.is_set))
                self._clean_up()
        except Cancelled:
            self._send(self.abandoned)
        except Exception as error:
            if not isinstance(error, SafError):
                _logger.exception("the run failed")
            self._send(self.failed, error)
        finally:
            self._sending.emit(self._end)


def load_libraries(cancelled: Callable[[], bool]) -> None:
    """Load what runs need and docks do not, in that order; `Task` has imported torch."""
    k_means(np.array([[0.0], [1.0]]), 2)  # scikit-learn looks for all thread pools once
    kernels()
    prepare_labels_layers()
    import sklearn.decomposition  # noqa: F401 - which few runs need


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


class RunStart:
    """Begins from nothing, with labels numbered as the strokes are; subclasses begin otherwise."""

    is_recorded: ClassVar[bool] = True

    def begin(self, problem: Problem, method: AbstractMethod) -> tuple[Problem, LabelMap]:
        """Return the problem to solve, and the labels on screen of its first columns."""
        if method.labels_are_given:
            return problem, LabelMap.identity(0)
        return without_gaps(problem)

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32] | Segmentation | None:
        """Return what to start from, see `iterate`; None for the own start of the method."""
        return None

    def paint(self, columns: LabelImage, classes: LabelMap) -> LabelImage:
        """Return labels on screen for columns counted from 1, 0 for outside."""
        return classes.extended(int(columns.max(initial=0))).paint(columns)

    def finish(self, result: Segmentation, classes: LabelMap) -> Segmentation:
        """Return the result with labels as on screen, of the image that is asked for."""
        own = result.labels[-1] if isinstance(result.labels, list) else result.labels
        return dataclasses.replace(result, labels=self.paint(own, classes))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WarmStart(RunStart):
    """The labels (n_nodes,) of an earlier run, to continue from, and those of runs before it.

    The `columns` of nodes are of the classes painted with `numbers`; `painted` (n_nodes,) are the
    strokes that they follow. Some pixels get another label than from a fresh start: what was
    painted first counts for more. Strokes taken back lead back to the labels before them.
    """

    columns: NDArray[np.integer]
    numbers: NDArray[np.int64]
    painted: NDArray[np.integer]
    earlier: WarmStart | None = None

    @classmethod
    def after(
        cls,
        problem: Problem,
        result: Segmentation,
        numbers: NDArray[np.int64],
        last: RunStart | None,
    ) -> WarmStart | None:
        """Return the start for the strokes that follow a run, whose start was of the `last` ones.

        None where the labels do not follow strokes of these classes.
        """
        if problem.seeds is None or result.assignment.shape[1] != len(numbers):
            return None
        painted = np.append(0, numbers)[problem.seeds]
        columns = result.assignment.argmax(axis=1).astype(np.uint16)
        earlier = last.of_fewer(painted) if isinstance(last, WarmStart) else None
        return cls(columns, numbers, painted, earlier)

    def of_fewer(self, painted: NDArray[np.integer]) -> WarmStart | None:
        """Return the newest start whose strokes are a part of those that are painted now."""
        start: WarmStart | None = self
        while start is not None:
            if len(start.painted) == len(painted):
                is_more = start.painted != painted
                if is_more.any() and not start.painted[is_more].any():
                    break
            start = start.earlier
        return start

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32] | None:
        """Return an assignment that can be changed, of classes that are the same; None if none."""
        if not method.follows_seeds or problem.seeds is None:
            return None  # new labels would have no column in it
        start = self.of_fewer(classes.paint(problem.seeds))
        if start is None:
            return None
        table = np.full((problem.n_nodes, classes.n_columns), _LEAST**_SMOOTHING, np.float32)
        _, new, old = np.intersect1d(classes.numbers, start.numbers, return_indices=True)
        for column, before in zip(new, old, strict=True):
            table[start.columns == before, column] = 1
        return np.asarray(table / table.sum(axis=1, keepdims=True))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordedStart(RunStart):
    """A recorded state, from which a run continues unchanged, and so does its recording."""

    state: RecordedState

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32]:
        return self.state.assignment()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StoppedStart(RunStart):
    """What a run left when it was stopped: the run goes on, and so do its clock and counts."""

    outcome: Segmentation

    def initial(self, problem: Problem, classes: LabelMap, method: AbstractMethod) -> Segmentation:
        return self.outcome


def without_gaps(problem: Problem) -> tuple[Problem, LabelMap]:
    """Return the problem with seeds 1, 2, ... and the labels that they had."""
    if problem.seeds is None:
        return problem, LabelMap.identity(0)
    classes = LabelMap.from_seeds(problem.seeds)
    return problem.with_seeds(classes.unpaint(problem.seeds)), classes


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RunJob:
    """What a click on Run asks for, as read at that time.

    With `live`, the labels go on in the layer of a run before; that of a run that is ended for
    this one is then left as it is. The `others` are images labelled together with this one. A run
    whose `start` is a recorded state goes on with its `recording`. The `note` is shown at the end.
    The `options` are what was set of the image by hand, in words. A job that `is_applied` repeats a
    recipe.
    """

    image: Image
    image_job: ImageJob
    method: AbstractMethod
    placement: Placement
    is_sweep: bool = False
    strokes: Labels | None = None
    live: LiveLayer | None = None
    start: RunStart | None = None
    others: tuple[Image, ...] = ()
    recording: Recording | None = None
    note: str = ""
    options: Sequence[str] = ()
    is_applied: bool = False

    @classmethod
    def of(cls, labels: Labels, image: Image | None) -> RunJob:
        """Return what would label an image again as its labels were; InvalidInput: why none can."""
        recipe, axes = recipe_of(labels), labelled_axes(labels)
        region = None if image is None else image_region(labels, image, axes)
        if image is None or region is None:
            raise InvalidInput("choose the image that was labelled")
        if recipe.options is None:
            raise InvalidInput("the labels are of a graph, not of an image")
        channels = None if image.rgb else region[1]
        options = dataclasses.replace(recipe.options, channel_axis=channels, groups=None)
        job = ImageJob(Pixels(pixels_of(image), region[0]), options)
        return cls(image, job, recipe.method, placement_of(labels))

    @property
    def title(self) -> str:
        """What distinguishes the result: the method and all that is not as by default."""
        title = self.method.name.upper()
        for words in (*self.options, *parameters_by_hand(self.method)):
            if len(title) + len(words) > _MOST_LETTERS:
                return f"{title}, …"
            title = f"{title}, {words}"
        return title

    def create_layer(self, viewer: Any, title: str) -> LiveLayer:
        """Return a layer for the labels, whose colours are by label where those are given."""
        colors = label_colors() if self.method.labels_are_given else None
        return LiveLayer(viewer, self.image, title, self.placement, self.strokes, colors)


class Run(Task):
    """A run, as a job asks for it, and the layer that shows it.

    The `mailbox` holds at most one frame: the run makes one when it is empty, and whoever takes it
    asks so for another; neither waits for the other. `first_labels` is sent with the first. A sweep
    through the fairness weights sends `swept` before it returns its last solution. What strokes
    have `taught` is sent after the labels, which do not wait for it.

    A `recording` can be set while a run goes on, if it is recordable. The `problem` is what was
    read, with strokes numbered without gaps; the `classes` are the numbers of the strokes. At full
    resolution parts of a large image come first that are near the `centre` of the screen, in pixels
    of the image.
    """

    first_labels = Signal()
    swept = Signal(object)
    taught = Signal(object)

    def __init__(self, job: RunJob, live: LiveLayer, reader: ProblemReader) -> None:
        super().__init__(self._label)
        self.job, self.live, self._reader = job, live, reader
        self._start = job.start or RunStart()
        if isinstance(self._start, StoppedStart):
            self._began -= self._start.outcome.seconds
        self._left: tuple[Segmentation, LabelImage | None, Problem | None] | None = None
        self._has_labels = False
        self.mailbox: deque[Frame] = deque(maxlen=1)
        self.centre: NDArray[np.floating] | None = None
        self.recording = job.recording
        self.problem: Problem | None = None
        self.classes = LabelMap.identity(0)

    def record(self) -> Recording | None:
        """Return the recording, begun now if there is none; None of sweeps and edited labels."""
        if self.recording is None and self._start.is_recorded and not self.job.is_sweep:
            self.recording = Recording()
        return self.recording

    def by_label(self, result: Segmentation) -> Segmentation:
        """Return the result with prototypes, exemplars and columns by the labels on screen.

        Those of a sweep are so already.
        """
        return result if self.job.is_sweep else self._by_label(result)

    def _by_label(self, result: Segmentation) -> Segmentation:
        rows, nodes = result.prototypes, result.exemplars
        columns = result.label_map.numbers
        shown = self.classes.extended(max(len(rows), int(columns.max(initial=0))))
        if nodes is not None:
            places = shown.columns
            nodes = np.where(places < 0, -1, nodes[places.clip(max=len(nodes) - 1)])
        return dataclasses.replace(
            result,
            prototypes=self.classes.extended(len(rows)).rows(rows),
            exemplars=nodes,
            label_map=LabelMap(np.concatenate([[0], shown.numbers])[columns]),
        )

    def _label(self, report: object, cancelled: Callable[[], bool]) -> Segmentation:
        method, read = self.job.method, self._reader.read(self.job.image_job, cancelled)
        problem, self.classes = self._start.begin(read, method)
        self.problem, whole = problem, self._reader.problem
        if cancelled():
            raise Cancelled
        if self.job.is_sweep:
            assert isinstance(method, SweepMethod)
            weights = method.iterate_sweep(problem, cancelled=cancelled)
            found = run_to_end(weights, self._put)
            if not found.points:
                raise Cancelled
            results = [self._start.finish(one.segmentation, self.classes) for one in found.points]
            points = tuple(
                dataclasses.replace(point, segmentation=self._by_label(one))
                for point, one in zip(found.points, results, strict=True)
            )
            self._send(self.swept, dataclasses.replace(found, points=points))
            return points[-1].segmentation
        initial = self._start.initial(problem, self.classes, method)
        steps = method.iterate(problem, initial, cancelled=cancelled)
        with in_view(lambda: self.centre):
            result = run_to_end(steps, self._put)
        if isinstance(self._start, RecordedStart) and self.recording:
            # The history begins before the recorded state that the run started from.
            result = dataclasses.replace(result, history=self.recording.history())
        finished, labels = self._start.finish(result, self.classes), None
        if self.job.image_job.seeds is not None and not isinstance(finished.labels, list):
            labels = self.job.image_job.with_locked(finished.labels)
            finished = dataclasses.replace(finished, labels=labels)
        self._left = result, labels, whole
        return finished

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
        own = labels[-1] if isinstance(labels, list) else labels
        return Frame(
            self.job.image_job.with_locked(self._start.paint(own, self.classes)),
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
        if labels is not None and problem is not None and not self.is_cancelled:
            taught = PrototypeSet.fit(problem, labels)
            if taught is not None:
                self._send(self.taught, taught)
        recording = self.recording
        if recording is not None:
            recording.finish(result)
