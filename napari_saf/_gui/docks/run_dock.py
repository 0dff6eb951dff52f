"""What docks that run a method have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import napari
from napari.utils.events import EventEmitter
from napari.utils.notifications import show_error
from qtpy.QtCore import QEvent, Qt, QTimer
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from napari_saf._gui.docks.frame import DockLifetime, bind_keys, unbind_keys
from napari_saf._gui.forms.choices import ImageList, LayerChoice
from napari_saf._gui.forms.controls import StatusArea
from napari_saf._gui.forms.display_text import describe_error
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormArea, create_button, create_row
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.runs.controller import RunController
from napari_saf._gui.runs.run import Frame, RunJob, Task, load_libraries
from napari_saf._gui.runs.time_left import TimeLeft
from napari_saf._gui.session.workspace import RecoveryLine, frame_of
from napari_saf.errors import NotFinite, SafError, counted
from napari_saf.result import FULL, PREVIEW, STATUS_TEXTS, Segmentation, Status

_RESCALE = "Scale this image by itself"
"""What a button offers where many values lie outside a scaling that was kept."""
_MASK = "Mask them and run"
"""What a button offers where pixels are NaN or infinite."""
LEAST_WIDTH = 340
"""In pixels; below it words beside sliders are cut."""
OBJECTS, BORDERS = "Objects", "Sharpen borders"
_NEXT = {
    OBJECTS: "Count, correct and measure the single things of these labels.",
    BORDERS: "Move the borders of these labels onto the edges of the image, by a slider.",
}
"""Docks that go on with labels, and their help."""
_CLOSING_SECONDS = 5.0
_Callback = Callable[[Any], None]


class RunDock(QWidget):
    """A dock that runs a method, or does other work in a thread, one thing at a time, with Stop.

    Small calculations may go on in the background meanwhile. All work ends when the dock goes.

    Subclasses lay themselves out with `_lay_out`, connect themselves with `_connect` and release
    what else they hold in `_release`. Their `shortcuts` are keys of the viewer and the methods that
    those call, `first_text` is what the status says as a run begins.
    """

    shortcuts: ClassVar[Mapping[str, str]] = {"Shift-R": "run_or_stop"}
    first_text: ClassVar[str] = "reading the image …"
    can_run_again: ClassVar[bool] = False  # by `_run_again`; what was applied can be in any dock
    form: MethodForm | None = None
    input: ImageInput | None = None
    applying: Any = None  # the dialog Apply to image
    dictionary_file: Path | None = None  # of what is shown, in the dock of dictionaries

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._frame: Frame | None = None
        self._time_left = TimeLeft()
        self._begun: RunJob | None = None  # the run that began last
        self._task: Task | None = None
        self._task_text = ""
        self._background: dict[str, Task] = {}
        self._ending: set[Task] = set()
        self._events: list[tuple[EventEmitter, Callable[..., Any]]] = []
        self.finite_only = self._is_applied = False
        self._shown_reason = ""
        self.status = StatusArea()
        self.next_buttons: dict[str, QPushButton] = {}
        self.next_row: QWidget | None = None
        key = self._key_of("run_or_stop")
        self.stop_button = create_button("Stop", f"End the work and keep what there is ({key}).")
        self._clock = QTimer(self, interval=500)
        self.setMinimumWidth(LEAST_WIDTH)
        # Else napari adds a stretch, which takes the room of what grows.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.visited = time.monotonic()  # by the mouse
        bind_keys(viewer, self)
        self.lifetime = DockLifetime(viewer, self, self._on_gone)
        self.workspace = self.lifetime.workspace
        self.controller = RunController(viewer, self.workspace.runs)
        self._connect(
            (self.stop_button.clicked, self._on_stop_clicked),
            (self._clock.timeout, self._on_clock),
            (self.status.suggested_action_clicked, self._on_suggested_action_clicked),
            (self.controller.began, self._on_began),
            (self.controller.advanced, self._on_advanced),
        )
        self._follow(self.controller, self._on_returned, self._on_abandoned, self._on_finished)
        QTimer.singleShot(0, self._load_libraries)

    def _load_libraries(self) -> None:
        """Import what the first run needs, in the background, once the dock is there."""
        if not self.lifetime.has_ended:
            self.run_in_background("libraries", load_libraries, self._on_form_changed)

    def _on_form_changed(self, *changed: object) -> None:
        """Show what is possible now, and what only the libraries know."""

    def start(self) -> bool | None:
        """Start a run with what the dock says; return False in a dock that only follows runs."""
        return False

    def apply(self, finite_only: bool = False) -> None:
        """Label what Apply to image says, in a dock that has it."""
        self.finite_only = finite_only
        with self.showing_errors():
            self._apply()

    def _apply(self) -> None:
        """Do so; SafErrors are shown."""

    @property
    def result(self) -> Any:
        """The Labels layer that came of the last run; None without one."""

    def create_next_row(self) -> QWidget:
        """Return buttons, shown once there is a result, that open what goes on with it."""
        for title, help in _NEXT.items():
            button = create_button(f"{title} …", help, partial(self.open_on_result, title))
            self.next_buttons[title] = button
        self.next_row = create_row(*self.next_buttons.values())
        return self.next_row

    def open_on_result(self, title: str, *clicked: object) -> Any:
        """Return the dock of a title, opened on the result and in sight; None without a window."""
        dock = self.workspace.dock(title)
        if dock is not None:
            dock.labels.choose(self.result)
            if (frame := frame_of(dock)) is not None:
                frame.raise_()
        return dock

    def values(self) -> dict[str, Any]:
        """Return what the dock says, as values for JSON; layers that are chosen are left out."""
        chosen = {} if self.input is None else self.input.plain_values()
        return chosen | ({} if self.form is None else self.form.plain_values())

    def show_values(self, values: Mapping[str, Any]) -> None:
        """Show what `values` returned, as far as the dock still has it."""
        if self.input is not None:
            self.input.show_plain_values(values)
        if self.form is not None:
            self.form.show_plain_values(values)

    def run_or_stop(self) -> bool:
        """Stop what goes on, else start a run; return whether the dock can."""
        if not self.stop_button.isEnabled():
            return self.start() is not False
        self._on_stop_clicked()
        return True

    def enterEvent(self, event: QEvent) -> None:
        self.visited = time.monotonic()
        super().enterEvent(event)

    def shut_down(self) -> None:
        """End the run and let go of the viewer; the widget is of no use after."""
        self.lifetime.end()

    def _on_gone(self) -> None:
        for task in (*self._background.values(), *filter(None, [self._task])):
            self._drop(task)
        for task in self._ending:
            task.wait(_CLOSING_SECONDS)
        self._task = None
        self._background.clear()
        self._ending.clear()
        self._clock.stop()
        unbind_keys(self._viewer, self)
        self.controller.shut_down()
        for choice in (*self.findChildren(LayerChoice), *self.findChildren(ImageList)):
            choice.disconnect_viewer()
        for event, slot in self._events:
            event.disconnect(slot)
        self._events.clear()
        self._release()

    def _release(self) -> None:
        """Let go of what was made in the viewer; events and choices of layers are disconnected."""

    def _connect(self, *pairs: tuple[Any, Callable[..., Any]]) -> None:
        for signal, slot in pairs:
            signal.connect(slot)
            if isinstance(signal, EventEmitter):
                self._events.append((signal, slot))

    def _lay_out(self, parts: list[QWidget], buttons: list[QWidget], below: list[QWidget]) -> None:
        """Put parts into a form that scrolls; right under it a row of buttons, status, the rest."""
        if self.input is not None:
            self._connect((self.input.image_changed, self._on_image_changed))
        content = QWidget()
        inner = QVBoxLayout(content)
        inner.setContentsMargins(8, 6, 8, 6)
        recovery = [RecoveryLine(self.workspace)] if self.workspace.recoverable else []
        for part in (*recovery, *parts):
            inner.addWidget(part)
        area, row = QVBoxLayout(), QHBoxLayout()
        area.setContentsMargins(8, 0, 8, 6)
        for widget in buttons:
            row.addWidget(widget, stretch=1)
        area.addLayout(row)
        for widget in (self.status, *below):
            grows = bool(widget.sizePolicy().expandingDirections() & Qt.Orientation.Vertical)
            area.addWidget(widget, stretch=int(grows))
        area.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(FormArea(content))
        layout.addLayout(area, stretch=1)

    def _key_of(self, method: str) -> str:
        keys = (key for key, name in self.shortcuts.items() if name == method)
        return next(keys).replace("-", "+")

    def _follow(
        self,
        work: RunController | Task,
        on_returned: _Callback,
        on_abandoned: Callable[[], None],
        on_finished: Callable[[], None],
    ) -> None:
        """Connect the end of a run or task to methods of this dock: connections end with it."""
        # The status says how it ended: the clock, which writes there, stops before.
        for ended in (work.returned, work.failed, work.abandoned):
            ended.connect(self._clock.stop)
        work.returned.connect(on_returned)
        work.failed.connect(self._on_failed)
        work.abandoned.connect(on_abandoned)
        work.finished.connect(on_finished)

    def _on_began(self) -> None:
        self._frame, self._time_left = None, TimeLeft()
        self._begun = job = self.controller.job
        self._is_applied = job is not None and job.is_applied
        self._clock.start()
        self._update_enabled()
        self.status.reset(self.first_text)

    def _on_stop_clicked(self) -> None:
        if self._task is None:
            self.controller.stop()
        else:
            self._task.cancel()
        self.status.set_text("stopping …")

    def _on_clock(self) -> None:
        if self._task is not None:
            text = "stopping" if self._task.is_cancelled else self._task_text
            self.status.set_text(f"{text} …  {self._task.seconds:.1f} s")
        elif self.controller.is_stopping:
            fraction = 0.0 if self._frame is None else self._frame.fraction
            self.status.show_progress(fraction, f"stopping …  {self.controller.seconds:.1f} s")
        elif self._frame is None:
            text = f"preparing …  {self.controller.seconds:.1f} s"
            self._show_progress(0.0, text)
        else:
            self._show_frame(self._frame)

    def _on_advanced(self, frame: Frame) -> None:
        self._frame = frame
        self._time_left.update(self.controller.seconds, frame.fraction)
        if not self.controller.is_stopping:
            self._show_frame(frame)

    def _show_frame(self, frame: Frame) -> None:
        seconds = self.controller.seconds
        share = f"{100 * frame.fraction:.0f} %"
        done = {PREVIEW: PREVIEW, FULL: f"{FULL} {share}"}.get(frame.stage, share)
        text = (
            f"{done}   {counted(frame.n_labels, 'label')}   t = {frame.time:.3g}   {seconds:.1f} s"
        )
        left = self._time_left.words(seconds)
        self._show_progress(frame.fraction, f"{text}\n{left}" if left else text)

    def _show_progress(self, fraction: float, text: str) -> None:
        """Show how far the run is, and the memory that it takes."""
        memory = "" if self.controller.run is None else self.controller.run.memory_note
        words = "\n".join(filter(None, [text, memory]))
        self.status.show_progress(fraction, words)

    def _on_returned(self, result: Any) -> None:
        text = f"{STATUS_TEXTS[result.status]}: {counted(result.n_labels, 'label')}"
        self._show_outcome(result, f"{text} in {self.controller.seconds:.1f} s")

    def _show_outcome(self, result: Segmentation, text: str) -> str:
        """Show how a run ended, and below it what should be known of it; return all of the text."""
        run, frame = self.controller.run, self._frame
        assert run is not None
        job, own = run.job, () if run.problem is None else run.problem.notes
        notes = [f"{job.image.name}: {note}" if note in own else note for note in result.notes]
        is_other = self.input is not None and job.image != self.input.image
        text = f"{job.image.name}: {text}" if is_other else text
        text = "\n".join(filter(None, [text, job.note, self.controller.note, *notes]))
        fraction = frame.fraction if frame is not None and result.status is Status.CANCELLED else 1
        can_run_again = self.can_run_again or self._is_applied
        self.status.show_progress(fraction, text, _RESCALE if own and can_run_again else "")
        return text

    def _on_failed(self, error: Exception) -> None:
        is_masked = isinstance(error, NotFinite) and (self.can_run_again or self._is_applied)
        self._show_error(describe_error(error), _MASK if is_masked else "")

    def _on_suggested_action_clicked(self) -> None:
        rescale = self.status.suggested_action == _RESCALE
        self.finite_only |= not rescale
        if self._is_applied:
            self.applying.brightness.choose(rescale or self.applying.brightness.value)
            self.apply(self.finite_only)
        else:
            self._run_again(rescale=rescale)

    def _run_again(self, *, rescale: bool) -> None:
        """Repeat a run of the dock, with an image scaled by itself or as `finite_only` says."""

    def _on_abandoned(self) -> None:
        self.status.reset("stopped before the first labels")

    def _on_finished(self) -> None:
        self._clock.stop()
        job, self._begun = self._begun, None
        if job is not None and job.image not in self._viewer.layers:
            self._forget_outcome()
        self._update_enabled()

    def _update_enabled(self) -> None:
        self.stop_button.setEnabled(self.is_busy)
        if self.next_row is not None:
            self.next_row.setVisible(self.result is not None)

    def _offer(self, button: QPushButton, reason: str, tooltip: str, is_free: bool = True) -> None:
        """Enable the button of the dock's work, or say in the status line why that cannot be."""
        button.setEnabled(is_free and not reason)
        button.setToolTip(reason or tooltip)
        is_new = reason != self._shown_reason
        if reason and not self.is_busy and (is_new or not self.status.is_error):
            if not self.status.text.startswith(reason):
                self.status.reset(reason)
        elif self.status.text == self._shown_reason:
            self.status.reset()
        self._shown_reason = reason

    @property
    def is_busy(self) -> bool:
        return self.controller.is_running or self._task is not None

    @property
    def is_calculating(self) -> bool:
        return bool(self._background)

    def begin_task(
        self,
        words: str,
        function: Callable[[Callable[[object], None], Callable[[], bool]], Any],
        on_returned: _Callback,
        on_advanced: _Callback | None = None,
    ) -> None:
        """Do some work (see `Task`), in words; nothing happens while other work is under way."""
        if self.is_busy:
            return

        def work(report: Callable[[object], None], cancelled: Callable[[], bool]) -> Any:
            return on_returned, function(lambda step: report((on_advanced, step)), cancelled)

        task = self._task = Task(work)
        self._task_text = words
        self._follow(task, self._call_back, self._on_task_abandoned, self._on_task_finished)
        task.advanced.connect(self._call_back)
        self.status.reset(f"{words} …")
        self._clock.start()
        self._update_enabled()
        task.start()

    def show_task(self, fraction: float, text: str) -> None:
        self._task_text = text
        self.status.show_progress(fraction, text)
        self._on_clock()

    def run_in_background(
        self, key: str, function: Callable[[Callable[[], bool]], Any], then: _Callback
    ) -> None:
        """Calculate something small; a new call with the same key takes the place of the old."""
        self.drop_background(key)
        task = self._background[key] = Task(lambda report, cancelled: (then, function(cancelled)))
        task.returned.connect(self._call_back)
        task.failed.connect(self._on_failed)
        task.finished.connect(self._on_background_finished)
        task.start()

    def drop_background(self, key: str) -> None:
        """Take no notice of what is calculated under this key, if there is anything."""
        task = self._background.pop(key, None)
        if task is not None:
            self._drop(task)

    def _drop(self, task: Task) -> None:
        """Take no notice of a task any more; it is kept until its thread has ended."""
        task.silence()
        self._ending = {other for other in self._ending if not other.wait(0)} | {task}

    def _call_back(self, found: tuple[_Callback | None, Any]) -> None:
        then, result = found
        if then is not None:
            then(result)

    def _on_task_abandoned(self) -> None:
        self.status.reset("stopped")

    def _on_task_finished(self) -> None:
        self._task = None
        self._clock.stop()
        self._update_enabled()

    def _on_background_finished(self) -> None:
        ended = self.sender()
        self._background = {k: task for k, task in self._background.items() if task is not ended}
        self._ending = {other for other in self._ending if not other.wait(0)}

    def _on_image_changed(self, *changed: object) -> None:
        """Say no more of what was chosen before; work under way keeps its status."""
        if not self.is_busy:
            self._forget_outcome()

    def _forget_outcome(self) -> None:
        self.status.reset()

    def _forget_error(self) -> None:
        if self.status.is_error:
            self.status.reset()

    def _show_error(self, text: str, suggested_action: str = "") -> None:
        self.status.show_error(text, suggested_action)
        show_error(text)

    @contextmanager
    def showing_errors(self) -> Iterator[None]:
        """Show a SafError of what is done within; the rest of that is left out."""
        try:
            yield
        except SafError as error:
            self._show_error(describe_error(error))
