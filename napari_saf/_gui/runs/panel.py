"""Run and Stop buttons and status line of a dock, with an estimate of the remaining time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

import napari
import numpy as np
from napari.utils.notifications import show_error
from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtWidgets import QWidget

from napari_saf._gui.forms.controls import StatusArea
from napari_saf._gui.forms.display_text import describe_error, duration_text
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import create_button
from napari_saf._gui.runs.controller import RunController, RunsOfViewer
from napari_saf._gui.runs.run import Frame, Run, RunJob
from napari_saf._gui.runs.task import BackgroundTasks, Task, load_libraries
from napari_saf.errors import NotFinite, SafError, counted
from napari_saf.result import FULL, PREVIEW, STATUS_TEXTS, Segmentation, Status

_MASK = "Mask them and run"
RUN_KEY = "Shift-R"
RUN_KEY_TEXT = RUN_KEY.replace("-", "+")
_STOP_HELP = f"Stop and keep the results so far ({RUN_KEY_TEXT})."
_CLOCK_MILLISECONDS = 500
_RECENT = 0.3
"""Share of the elapsed time over which the rate of progress is measured."""
_SLOWDOWN = 2.0
"""Progress slows down towards the end of a flow: in four of five cases, of twelve runs of flows and
clusterings on photographs, extrapolation gave a third to all of the true remaining time."""
_LEAST_FRACTION = 0.05
_FORESEEABLE = 4.0
"""Longest estimate, in multiples of the elapsed time; beyond, progress has stalled."""


class Subject(Enum):
    """Kind of message in the status line."""

    NOTHING = auto()
    REASON = auto()  # why Run is disabled
    PROGRESS = auto()
    NOTE = auto()
    OUTCOME = auto()
    ERROR = auto()


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """Button below the status: its text and the request it emits."""

    text: str
    request: object


@dataclasses.dataclass(frozen=True)
class _TaskCalls:
    """Callbacks of the current task, and its final texts."""

    returned: Callable[[Any], object]
    advanced: Callable[[Any], object]
    finished: Callable[[], object]
    masked: object
    stopped_text: str


class RunPanel(QObject):
    """Run and Stop buttons and status of a dock; one run or task at a time.

    Calculations in the `background` run in parallel. The dock lays out `run_button`, with text and
    tooltip `run`, `stop_button` and `status`. The panel displays the runs of the `controller`.
    `run_clicked` is also emitted by the shortcut. An accepted suggestion is started if it is a
    job, else emitted as `repeat_asked`; jobs of the dock get suggestions only if `repeats`. `unit`
    names what a run counts, `outcome_text` formats its result; the image is named if it is not
    the `chosen` one.
    """

    run_clicked = Signal()
    stop_clicked = Signal()
    busy_changed = Signal(bool)
    repeat_asked = Signal(object)
    libraries_loaded = Signal()

    def __init__(
        self,
        parent: QWidget,
        viewer: napari.viewer.Viewer,
        runs: RunsOfViewer,
        run: tuple[str, str] = ("", ""),
        *,
        begin_text: str = "reading the image …",
        unit: str = "label",
        repeats: bool = False,
        chosen: ImageInput | None = None,
        outcome_text: Callable[[Segmentation, float], str] | None = None,
        suggest: Callable[[Run, Segmentation], Suggestion | None] = lambda *_: None,
    ) -> None:
        super().__init__(parent)
        self._viewer, self._begin_text, self._unit = viewer, begin_text, unit
        self._repeats, self._chosen = repeats, chosen
        self._outcome_text, self._suggest = outcome_text or self._usual_text, suggest
        self.controller, self.background = RunController(viewer, runs), BackgroundTasks(self)
        self.status, self.time_left = StatusArea(), TimeLeft()
        self.stop_button = create_button("Stop", _STOP_HELP, self.stop)
        self.stop_button.setEnabled(False)
        text, self._run_help = run
        self.run_button = create_button(text, self._run_help, self.run_clicked)
        self.subject, self._reason = Subject.NOTHING, ""
        self._fault = ""  # why the last run was stopped, if not by the user
        self._suggestion: Suggestion | None = None
        self._frame: Frame | None = None
        self.task: Task | None = None
        self._task_text = ""
        self._calls: _TaskCalls  # of the current task
        self._is_showing = self._has_ended = False
        self._provisional = ""
        self._said: tuple[str, float, Suggestion | None, str] = "", 0.0, None, ""  # last outcome
        self.outcome = ""  # final status of the last run
        self._clock = QTimer(self, interval=_CLOCK_MILLISECONDS)
        self._clock.timeout.connect(self._show_progress)
        self.status.suggested_action_clicked.connect(self._on_suggestion_accepted)
        self.background.failed.connect(self._on_calculation_failed)
        self.controller.began.connect(self._on_began)
        self.controller.advanced.connect(self._on_advanced)
        self.controller.returned.connect(self._on_returned)
        self.controller.failed.connect(self._on_run_failed)
        self.controller.abandoned.connect(self._on_abandoned)
        self.controller.finished.connect(self._on_finished)
        if chosen is not None:
            chosen.image_changed.connect(self.forget)
        QTimer.singleShot(0, self._load_libraries)

    @property
    def current_image(self) -> Any:
        """The image chosen in the dock; None without one."""
        return None if self._chosen is None else self._chosen.image

    # Work under way
    @property
    def is_busy(self) -> bool:
        return self.controller.is_running or self.task is not None or self._is_showing

    @property
    def is_calculating(self) -> bool:
        return self.background.is_busy

    def set_showing(self, is_showing: bool) -> None:
        """Stay busy while results are still being added to the viewer."""
        self._is_showing = is_showing
        self._update_busy()

    def stop(self) -> None:
        """Stop the run or task, keeping its results so far."""
        self.stop_clicked.emit()
        if self.task is None:
            self.controller.stop()
        else:
            self.task.cancel()
        self._show(Subject.PROGRESS, None, "stopping …")

    def run_or_stop(self) -> bool:
        """Stop the work under way or else request a run; return False if neither is possible."""
        if self.stop_button.isEnabled():
            self.stop()
        elif self._run_help:
            self.run_clicked.emit()
        else:
            return False
        return True

    def begin_task(
        self,
        text: str,
        function: Callable[[Callable[[object], None], Callable[[], bool]], Any],
        on_returned: Callable[[Any], object],
        on_advanced: Callable[[Any], object] | None = None,
        *,
        on_finished: Callable[[], object] = lambda: None,
        masked: object = None,
        stopped_text: str = "stopped",
    ) -> None:
        """Start a `Task`; ignored while other work is under way.

        Reports go to `on_advanced`, by default as a fraction and a text to display. `masked` is the
        request to suggest if pixels are NaN or infinite.
        """
        if self.is_busy:
            return
        advanced = on_advanced or self.show_task
        self._calls = _TaskCalls(on_returned, advanced, on_finished, masked, stopped_text)
        # Bound slots, since Qt may delete this panel before the task ends.
        task, self._task_text = Task(function), text
        self.task = task
        for ended in (task.returned, task.failed, task.abandoned):
            ended.connect(self._clock.stop)  # it would overwrite the outcome
        task.advanced.connect(self._on_task_advanced)
        task.returned.connect(self._on_task_returned)
        task.failed.connect(self._on_task_failed)
        task.abandoned.connect(self._on_task_abandoned)
        task.finished.connect(self._end_task)
        self._show(Subject.PROGRESS, 0, f"{text} …")
        self._clock.start()
        self._update_busy()
        task.start()

    def show_task(self, step: tuple[float, str]) -> None:
        """Show the progress (fraction, text) of the current task."""
        fraction, self._task_text = step
        self._show(Subject.PROGRESS, fraction, self._task_text)
        self._show_progress()

    @contextmanager
    def showing_errors(self) -> Iterator[None]:
        """Catch a SafError raised in the block and show it."""
        try:
            yield
        except SafError as error:
            self.show_error(describe_error(error))

    def shut_down(self) -> None:
        """Stop all work and emit no further signals."""
        self._has_ended, self._is_showing = True, False
        self._clock.stop()
        task, self.task = self.task, None
        if task is not None:
            self.background.drop_task(task)
        self.background.shut_down()
        self.controller.shut_down()

    # The status

    def set_reason(self, reason: str, *, is_free: bool = True) -> None:
        """Enable Run, or disable it with a reason, shown in the status if no work is under way."""
        self.run_button.setEnabled(is_free and not reason)
        self.run_button.setToolTip(reason or self._run_help)
        is_new = reason != self._reason
        self._reason = reason
        if not reason and self.subject is Subject.REASON:
            self.clear()
        elif reason and not self.is_busy and (is_new or self.subject is not Subject.ERROR):
            if is_new or self.subject is not Subject.REASON:
                self._show(Subject.REASON, 0, "\n".join(filter(None, [self._fault, reason])))

    def explain_reason(self, reason: str, *notes: str) -> None:
        """Show the reason why Run is disabled, with notes below, until it changes."""
        self._reason = reason
        self._show(Subject.REASON, 0, "\n".join(filter(None, [reason, *notes])))

    def note(self, text: str) -> None:
        self._show(Subject.NOTE, 0, text)

    def hint(self, text: str) -> None:
        """Change only the text."""
        self._show(Subject.NOTE, None, text)

    def add_note(self, text: str) -> None:
        """Add a text below the current one, until that changes."""
        if text:
            self.status.set_text("\n".join(filter(None, [self.status.text, text])))

    def show_outcome(
        self,
        text: str,
        fraction: float = 1,
        suggestion: Suggestion | None = None,
        fault: str = "",
    ) -> None:
        """Show what was done, and below in red what failed."""
        self._said = text, fraction, suggestion, fault
        self._show(Subject.OUTCOME, fraction, self._provisional or text, suggestion, fault)

    def set_provisional(self, text: str) -> None:
        """Show a text in place of progress and outcome; an empty one restores them."""
        self._provisional = text
        if self.subject is Subject.OUTCOME:
            self.show_outcome(*self._said)
        elif text:
            self._show_progress()

    def show_error(self, text: str, suggestion: Suggestion | None = None) -> None:
        """Show an error below Run and as a napari notification."""
        self.show_fault(text, suggestion)
        show_error(text)

    def show_fault(self, text: str, suggestion: Suggestion | None = None) -> None:
        """Show an error below Run only."""
        self._show(Subject.ERROR, 0, text, suggestion)

    def clear(self) -> None:
        """Clear the status, except the reason why Run is disabled."""
        is_reason, self._fault = bool(self._reason) and not self.is_busy, ""
        self._show(Subject.REASON if is_reason else Subject.NOTHING, 0, self._reason * is_reason)

    def forget(self, *changed: object) -> None:
        """Clear the status of an earlier choice, unless work is under way."""
        if not self.is_busy:
            self.clear()

    def forget_error(self) -> None:
        if self.subject is Subject.ERROR:
            self.clear()

    def _show(
        self,
        subject: Subject,
        fraction: float | None,
        text: str,
        suggestion: Suggestion | None = None,
        fault: str = "",
    ) -> None:
        self.subject = subject
        if fraction is None:
            self.status.set_text(text)
            return
        self._suggestion = suggestion
        action = "" if suggestion is None else suggestion.text
        if subject is Subject.ERROR:
            self.status.show_error(text, action)
        else:
            self.status.show_progress(fraction, text, action, fault)

    def _show_progress(self) -> None:
        """Show the progress and memory use of the work."""
        run, frame = self.controller.run, self._frame
        if self.task is not None:
            text = "stopping" if self.task.is_cancelled else self._task_text
            self._show(Subject.PROGRESS, None, f"{text} …  {self.task.seconds:.1f} s")
            return
        if run is None:
            return
        fraction, seconds = 0.0 if frame is None else frame.fraction, f"{run.seconds:.1f} s"
        if run.is_cancelled:
            lines = [f"stopping …  {seconds}"]
        elif self._provisional:
            lines = [f"{self._provisional}  {seconds}", run.memory_note]
        elif frame is None:
            lines = [f"preparing …  {seconds}", run.memory_note]
        else:
            share = f"{100 * frame.fraction:.0f} %"
            done = {PREVIEW: PREVIEW, FULL: f"{FULL} {share}"}.get(frame.stage, share)
            count = counted(frame.n_labels, self._unit)
            text = f"{done}   {count}   t = {frame.time:.3g}   {seconds}"
            lines = [text, self.time_left.words(run.seconds), run.memory_note]
        self._show(Subject.PROGRESS, fraction, "\n".join(filter(None, lines)))

    # Slots of runs and tasks
    def _on_began(self) -> None:
        self._frame, self.outcome, self._fault = None, "", ""
        self.time_left.reset()
        self._clock.start()
        self._update_busy()
        self._show(Subject.PROGRESS, 0, self._begin_text)

    def _on_advanced(self, frame: Frame) -> None:
        self._frame, run = frame, self.controller.run
        if run is not None:
            self.time_left.update(run.seconds, frame.fraction)
        self._show_progress()

    def _on_returned(self, result: Any) -> None:
        self._clock.stop()
        run, is_stopped = self.controller.run, result.status is Status.CANCELLED
        assert run is not None
        if run.fault:
            self._note_fault(run.fault)
            return
        if run.live.is_lost:
            self.clear()
            return
        self.outcome = self._with_notes(result, self._outcome_text(result, run.seconds))
        fraction = self._frame.fraction if self._frame is not None and is_stopped else 1
        suggestion = self._suggest(run, result)
        if run.problem is not None and run.problem.notes and self._may_repeat(run.job):
            suggestion = Suggestion("Scale this image by itself", run.job.rescaled())
        self.show_outcome(self.outcome, fraction, suggestion)

    def _usual_text(self, result: Segmentation, seconds: float) -> str:
        count = counted(result.n_labels, self._unit)
        return f"{STATUS_TEXTS[result.status]}: {count} in {seconds:.1f} s"

    def _with_notes(self, result: Segmentation, text: str) -> str:
        """Return the outcome of a run, with its notes below."""
        run = self.controller.run
        assert run is not None
        job, of_image = run.job, () if run.problem is None else run.problem.notes
        notes = [f"{job.image.name}: {x}" if x in of_image else x for x in result.notes]
        is_other = self._chosen is not None and job.image != self._chosen.image
        text = f"{job.image.name}: {text}" if is_other else text
        return "\n".join(filter(None, [text, job.note, self.controller.note, *notes]))

    def _on_run_failed(self, error: Exception) -> None:
        self._clock.stop()
        job = self.controller.job
        is_repeated = job is not None and self._may_repeat(job)
        self._show_failure(job.masked() if job is not None and is_repeated else None, error)

    def _show_failure(self, masked: object, error: Exception) -> None:
        """Show an error; if non-finite pixels are the cause, suggest the `masked` request."""
        is_offered = masked is not None and isinstance(error, NotFinite)
        self.show_error(describe_error(error), Suggestion(_MASK, masked) if is_offered else None)

    def _may_repeat(self, job: RunJob) -> bool:
        return self._repeats or job.is_applied

    def _on_abandoned(self) -> None:
        self._clock.stop()
        run = self.controller.run
        if run is not None and run.fault:
            self._note_fault(run.fault)
        else:
            self.note("stopped before the first labels")

    def _note_fault(self, fault: str) -> None:
        self._fault = fault
        self.note(fault)

    def _on_finished(self, job: RunJob) -> None:
        self._clock.stop()
        if self.subject is Subject.PROGRESS and self.outcome:  # stopped after the first labels
            self.show_outcome(*self._said)
        self._update_busy()

    def _on_calculation_failed(self, key: str, error: Exception) -> None:
        self.show_error(describe_error(error))

    def _on_task_advanced(self, step: Any) -> None:
        self._calls.advanced(step)

    def _on_task_returned(self, result: Any) -> None:
        self._calls.returned(result)

    def _on_task_failed(self, error: Exception) -> None:
        self._show_failure(self._calls.masked, error)

    def _on_task_abandoned(self) -> None:
        self.note(self._calls.stopped_text)

    def _end_task(self) -> None:
        self.task, finished = None, self._calls.finished
        self._clock.stop()
        self._update_busy()
        finished()

    def _update_busy(self) -> None:
        self.stop_button.setEnabled(self.controller.is_running or self.task is not None)
        self.busy_changed.emit(self.is_busy)

    def _on_suggestion_accepted(self) -> None:
        request = None if self._suggestion is None else self._suggestion.request
        if isinstance(request, RunJob):
            self.controller.start(request)
        elif request is not None:
            self.repeat_asked.emit(request)

    def _load_libraries(self) -> None:
        """Import the libraries of the first run in the background, once the dock is shown."""
        if not self._has_ended:
            loaded = self.libraries_loaded
            self.background.run("libraries", load_libraries, lambda _: loaded.emit())


class TimeLeft:
    """Smoothed estimate of the remaining time from the recent rate of progress."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._times: list[float] = []
        self._fractions: list[float] = []
        self._end: float | None = None

    def update(self, seconds: float, fraction: float) -> None:
        """Record the fraction done after some seconds."""
        self._times.append(seconds)
        self._fractions.append(fraction)
        remaining = self._estimate()
        if remaining is None or self._end is None:
            self._end = None if remaining is None else seconds + remaining
            return
        shown = max(self._end - seconds, 1.0)
        weight = 1.0 if not shown / 3 < remaining < shown * 2 else 0.3
        self._end += weight * (seconds + remaining - self._end)

    def seconds_left(self, seconds: float) -> float | None:
        """Return the estimated seconds left after some elapsed ones; None if unknown."""
        return None if self._end is None else max(self._end - seconds, 1.0)

    def words(self, seconds: float) -> str:
        remaining = self.seconds_left(seconds)
        return "" if remaining is None else f"{duration_text(remaining)} left"

    def _estimate(self) -> float | None:
        times, fractions = self._times, self._fractions
        passed = times[-1] - times[0]
        if passed < 1 or len(times) < 3 or fractions[-1] < _LEAST_FRACTION:
            return None
        since = int(np.searchsorted(times[:-1], times[-1] - _RECENT * passed, side="right")) - 1
        rise = fractions[-1] - fractions[max(since, 0)]
        span = times[-1] - times[max(since, 0)]
        remaining = _SLOWDOWN * (1 - fractions[-1]) * span / rise if rise > 0 else np.inf
        return remaining if remaining <= _FORESEEABLE * passed else None
