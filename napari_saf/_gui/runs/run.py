"""A run: the job that a click on Run creates, and the task that executes it."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtCore import Signal

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
from napari_saf._gui.runs.task import Task
from napari_saf.errors import InvalidInput
from napari_saf.io import PrototypeSet
from napari_saf.methods import AbstractMethod, Cancelled, SweepMethod
from napari_saf.parts import in_view
from napari_saf.pipeline import NumberedRun, Pipeline, RunStart
from napari_saf.problem import Problem
from napari_saf.recording import RecordedState, Recording
from napari_saf.result import LabelImage, LabelMap, Segmentation, Snapshot

_LEAST, _SMOOTHING = 1e-10, 0.1
_MOST_LETTERS = 40
"""Maximum length of a title, which leaves space for the image name."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WarmStart(RunStart):
    """Labels of an earlier run to continue from, and those of the runs before it.

    `columns` (n_nodes,) index the class `numbers`; `painted` (n_nodes,) are the strokes of that
    run. The result may differ from a fresh start, since earlier strokes weigh more. Undoing strokes
    returns to the labels before them.
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
        last: WarmStart | None,
    ) -> WarmStart | None:
        """Return the start for a run after this `result`, which itself began from `last`.

        None if the labels do not follow strokes of these classes.
        """
        if problem.seeds is None or result.assignment.shape[1] != len(numbers):
            return None
        painted = np.append(0, numbers)[problem.seeds]
        columns = result.assignment.argmax(axis=1).astype(np.uint16)
        earlier = None if last is None else last.of_fewer(painted)
        return cls(columns, numbers, painted, earlier)

    def of_fewer(self, painted: NDArray[np.integer]) -> WarmStart | None:
        """Return the newest start whose strokes are a proper subset of the painted ones."""
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
        """Return a smoothed assignment (n_nodes, n_columns) of the common classes, if any."""
        if not method.follows_seeds or problem.seeds is None:
            return None  # such a method may add labels, which have no column
        start = self.of_fewer(classes.paint(problem.seeds))
        if start is None:
            return None
        table = np.full((problem.n_nodes, classes.n_columns), _LEAST**_SMOOTHING, np.float32)
        _, new, old = np.intersect1d(classes.numbers, start.numbers, return_indices=True)
        for column, old_column in zip(new, old, strict=True):
            table[start.columns == old_column, column] = 1
        return np.asarray(table / table.sum(axis=1, keepdims=True))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordedStart(RunStart):
    """A recorded state from which a run and its recording continue."""

    state: RecordedState

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32]:
        return self.state.assignment()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StoppedStart(RunStart):
    """Outcome of a stopped run to resume, with its elapsed time and iteration counts."""

    outcome: Segmentation

    def initial(self, problem: Problem, classes: LabelMap, method: AbstractMethod) -> Segmentation:
        return self.outcome


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RunJob:
    """A request to label an image, with all that its run needs.

    Labels are written to the layer `live` of an earlier run, if set; a run stopped for this one
    then leaves it unchanged. `extra_images` are labelled jointly with the image. `recording` is
    continued if `start` is a recorded state. `note` is shown at the end. `options` describes image
    options set by the user. `title` of the layer defaults to method and options; `names` and
    `colors` are those of labels known in advance. If `is_applied`, the job applies a recipe, with
    regions at `level`, if set.
    """

    image: Image
    image_job: ImageJob
    method: AbstractMethod
    placement: Placement
    _: dataclasses.KW_ONLY
    is_sweep: bool = False
    strokes: Labels | None = None
    live: LiveLayer | None = None
    start: RunStart | None = None
    extra_images: tuple[Image, ...] = ()
    recording: Recording | None = None
    note: str = ""
    options: Sequence[str] = ()
    title: str = ""
    names: Mapping[int, str] | None = None
    colors: Mapping[int, Sequence[float]] | None = None
    is_applied: bool = False
    level: float | None = None

    @classmethod
    def of(cls, labels: Labels, image: Image | None, recipe: Pipeline | None = None) -> RunJob:
        """Return the job that reproduces labels on an image; raise InvalidInput if impossible."""
        recipe = recipe_of(labels) if recipe is None else recipe
        axes = labelled_axes(labels)
        region = None if image is None else image_region(labels, image, axes)
        if image is None or region is None:
            raise InvalidInput("choose the image that was labelled")
        if recipe.options is None:
            raise InvalidInput("the labels are of a graph, not of an image")
        channels = None if image.rgb else region[1]
        options = dataclasses.replace(recipe.options, channel_axis=channels, groups=None)
        job = ImageJob(Pixels(pixels_of(image), region[0]), options)
        return cls(image, job, recipe.method, placement_of(labels))

    def masked(self) -> RunJob:
        """Return the job without pixels that are NaN or infinite."""
        job = dataclasses.replace(self.image_job, finite_only=True)
        return dataclasses.replace(self, image_job=job)

    def rescaled(self) -> RunJob:
        """Return the job with the image scaled by its own intensity range.

        A continued run is restarted, since its states are of other features.
        """
        options = dataclasses.replace(self.image_job.options, scaling=None)
        job = dataclasses.replace(self.image_job, options=options)
        if isinstance(self.start, StoppedStart | RecordedStart):
            return dataclasses.replace(self, image_job=job, start=None, recording=None)
        return dataclasses.replace(self, image_job=job)

    def create_layer(self, viewer: Any) -> LiveLayer:
        """Return a layer for the labels, with the colours of the job if set."""
        is_colored = self.colors is not None or self.method.labels_are_given
        colors = label_colors(self.colors) if is_colored else None
        title = self.title or self._settings
        return LiveLayer(
            viewer, self.image, title, self.placement, self.strokes, colors, self.names
        )

    @property
    def _settings(self) -> str:
        """The method and its non-default settings, truncated with an ellipsis."""
        text = self.method.name.upper()
        for words in (*self.options, *parameters_by_hand(self.method)):
            if len(text) + len(words) > _MOST_LETTERS:
                return f"{text}, …"
            text = f"{text}, {words}"
        return text


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Displayed part of a snapshot; owns its arrays.

    Entry k of `numbers` is the displayed label of column k: the number painted by the user.
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
    """Task that executes a job, and the layer of its labels.

    The `mailbox` holds at most one frame: the run fills it when it is empty, without waiting for
    the display. `first_labels` is emitted with the first frame, `swept` before a sweep of the
    fairness weight returns its last solution. `prototypes_learned` from strokes and `merged`
    regions follow the labels.

    A `recording` may be set during the run. `problem` has strokes numbered without gaps; `classes`
    are their painted numbers. At full resolution, parts of a large image near the `centre` of the
    view, in image pixels, are computed first. `fault` is the reason if the run was not stopped by
    the user.
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
        self._solution: tuple[Segmentation, LabelImage, Problem] | None = None
        self._result: Segmentation
        self._has_labels = False
        self.mailbox: deque[Frame] = deque(maxlen=1)
        self.centre: NDArray[np.floating] | None = None
        self.recording = job.recording
        self.learned: PrototypeSet | None = None  # from strokes, set after the run
        self.fault = ""

    @property
    def problem(self) -> Problem | None:
        return None if self._numbered is None else self._numbered.problem

    @property
    def classes(self) -> LabelMap:
        return LabelMap.identity(0) if self._numbered is None else self._numbered.classes

    @property
    def pipeline(self) -> Pipeline | None:
        """The pipeline that reproduces the run; None before the image was read."""
        if self.problem is None:
            return None
        return Pipeline(self.job.method, self.problem.options, prototypes=self.learned)

    def record(self) -> Recording | None:
        """Return the recording, started if necessary; None for sweeps and edited labels."""
        if self.recording is None and self._start.is_recorded and not self.job.is_sweep:
            self.recording = Recording()
        return self.recording

    def by_label(self, result: Segmentation) -> Segmentation:
        """Return the result with prototypes, exemplars and columns ordered by displayed label.

        Results of a sweep already are.
        """
        assert self._numbered is not None
        return result if self.job.is_sweep else self._numbered.by_label(result)

    def _label(self, report: object, cancelled: Callable[[], bool]) -> Segmentation:
        with in_view(lambda: self.centre):
            for snapshot in self._iterate(cancelled):
                self._put(snapshot)
        result = self._result
        del self._result  # free the memory of its tables
        return result

    def _iterate(self, cancelled: Callable[[], bool]) -> Generator[Snapshot, None, None]:
        """Read the image and yield snapshots; the result has the painted label numbers."""
        method, job = self.job.method, self.job.image_job
        read = self._reader.read(job, cancelled)
        run = self._numbered = NumberedRun(method, read, self._start)
        problem = self._reader.problem
        assert problem is not None
        if cancelled():
            raise Cancelled
        if self.job.is_sweep:
            assert isinstance(method, SweepMethod)
            sweep = yield from method.iterate_sweep(run.problem, cancelled=cancelled)
            if not sweep.points:
                raise Cancelled
            results = [run.finish(_last(point.segmentation)) for point in sweep.points]
            points = tuple(
                dataclasses.replace(point, segmentation=run.by_label(result))
                for point, result in zip(sweep.points, results, strict=True)
            )
            self._send(self.swept, dataclasses.replace(sweep, points=points))
            self._result = points[-1].segmentation
            return
        result = yield from run.iterate(cancelled)
        if isinstance(self._start, RecordedStart) and self.recording:
            # The history begins before the recorded state that the run started from.
            result = dataclasses.replace(result, history=self.recording.history())
        finished = run.finish(_last(result))
        labels = job.with_locked(finished.labels)  # type: ignore[arg-type]
        self._solution = result, labels, problem
        self._result = dataclasses.replace(finished, labels=labels)

    def _put(self, snapshot: Snapshot) -> None:
        """Put a frame into the mailbox if it is empty; record the step."""
        if not self.mailbox and not self.is_cancelled:
            columns, labels = snapshot.label_map.numbers, snapshot.labels
            image = labels[-1] if isinstance(labels, list) else labels
            frame = Frame(
                self.job.image_job.with_locked(self._start.paint(image, self.classes)),
                self.classes.extended(int(columns.max())).numbers[columns - 1],
                snapshot.record.label_shares,
                snapshot.prototypes,
                snapshot.n_labels,
                snapshot.record.time,
                snapshot.fraction,
                snapshot.stage,
            )
            self.mailbox.append(frame)
            if not self._has_labels:
                self._has_labels = True
                self._send(self.first_labels)
        recording = self.recording  # another thread may reset it
        if recording is not None:
            recording.watch(snapshot)

    def _clean_up(self) -> None:
        if self._solution is None:
            return
        (result, labels, problem), self._solution = self._solution, None
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
    """Return the result of the requested image, the last of those labelled jointly."""
    images = result.labels
    return dataclasses.replace(result, labels=images[-1]) if isinstance(images, list) else result
