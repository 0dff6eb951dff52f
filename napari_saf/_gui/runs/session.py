"""One run at a time on a viewer: start, follow, stop, start again, go away."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal
from qtpy.QtWidgets import QWidget

from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.placement import Placement
from napari_saf._gui.layers.reading import ImageJob, ProblemReader
from napari_saf._gui.runs.fluency import painted_later, prepare_lines
from napari_saf._gui.runs.hub import hub_of
from napari_saf._gui.runs.origin import Origin
from napari_saf._gui.runs.worker import Frame, Run
from napari_saf.methods import AbstractMethod
from napari_saf.problem import Problem
from napari_saf.recording import Recording
from napari_saf.result import Segmentation

__all__ = ["Request", "Session", "connect_run"]

_CLOSING_SECONDS = 5.0
_TURN_MILLISECONDS = 5
_PAINTING_MILLISECONDS = 100
"""In which the outcome is painted on a slow screen."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a click on Run asks for, as read at that moment.

    With `live`, the labels go on in the layer of a run before; that of a run that is ended for
    this one is then left as it is. The `others` are images labelled together with this one. The
    `origin` says where the run begins: one that begins at a recorded moment goes on with its
    `recording`. The `note` is for the line that tells how it ended.
    """

    image: Image
    job: ImageJob
    method: AbstractMethod
    placement: Placement
    is_sweep: bool = False
    strokes: Labels | None = None
    live: LiveLayer | None = None
    origin: Origin | None = None
    others: tuple[Image, ...] = ()
    recording: Recording | None = None
    note: str = ""

    def masked(self) -> Request:
        """Return the same without the pixels that are NaN or infinite."""
        return dataclasses.replace(self, job=dataclasses.replace(self.job, finite_only=True))


class Session(QObject):
    """The run of a viewer and the layer that shows it.

    Layers are compared by equality: a plugin is handed proxies, of which there are many of one
    layer. A run begins only when the one before has ended. It ends early when its image or its
    result is removed.

    Parameters
    ----------
    viewer : napari.Viewer
    widget : QWidget, optional
        In the window of the viewer; without it a new layer is painted at once.

    Attributes
    ----------
    reader : ProblemReader
        Of the runs; for work beside them while there is none.
    """

    began = Signal()
    advanced = Signal(object)
    swept = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal()

    def __init__(self, viewer: napari.Viewer, widget: QWidget | None = None) -> None:
        super().__init__()
        self._viewer = viewer
        self._widget = widget
        self._run: Run | None = None
        self._has_returned = self._is_in_sight = False
        self._next: Request | None = None
        self.reader = ProblemReader()
        self.request: Request | None = None
        self.live: LiveLayer | None = None
        viewer.layers.events.removed.connect(self._on_layer_removed)
        self._hub = hub_of(viewer)
        self._hub.join(self)
        QTimer.singleShot(0, prepare_lines)

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self._run is not None

    @property
    def seconds(self) -> float:
        """Time since the run began."""
        return 0.0 if self._run is None else self._run.seconds

    @property
    def problem(self) -> Problem | None:
        """What the run works on, once it was read."""
        return None if self._run is None else self._run.problem

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers with which the classes of the run's strokes were painted."""
        return np.arange(0) if self._run is None else self._run.numbers

    def words(self, first: str, result: Segmentation) -> str:
        """Return words on the end of a run, and below them what should be known of it."""
        if self.request is None:
            return "\n".join([first, *result.notes])
        own = () if self.problem is None else self.problem.notes
        name = self.request.image.name
        notes = [f"{name}: {note}" if note in own else note for note in result.notes]
        return "\n".join(filter(None, [first, self.request.note, *notes]))

    def record(self) -> Recording | None:
        """Return what takes note of the run, from now on if nothing did; None where none can."""
        if self._run is None or not self._run.is_recordable:
            return None
        if self._run.recording is None:
            self._run.recording = Recording()
        return self._run.recording

    def stop_recording(self) -> None:
        """Take no more note of the run."""
        if self._run is not None:
            self._run.recording = None

    @property
    def is_stopping(self) -> bool:
        """Whether the run was told to end."""
        return self._run is not None and self._run.is_cancelled

    @property
    def waiting(self) -> Request | None:
        """The run that waits for the end of this one, if any."""
        return self._next

    def start(self, request: Request) -> None:
        """Start a run, once the present one has ended."""
        if self._run is None:
            self._begin(request)
        else:
            self._next = request
            self._run.cancel()

    def stop(self) -> None:
        """End the run with what it has."""
        self._next = None
        if self._run is not None:
            self._run.cancel()

    def forget_image(self) -> None:
        """Read the image anew in the next run."""
        self.reader.forget()

    def shut_down(self) -> None:
        """End the run, if there is one, and take no notice of it any more."""
        self.stop()
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        run, self._run = self._run, None
        self._hub.leave(self)
        if run is None:
            return
        for signal in (
            run.advanced,
            run.swept,
            run.returned,
            run.failed,
            run.abandoned,
            run.finished,
        ):
            signal.disconnect()
        run.wait(_CLOSING_SECONDS)

    def _begin(self, request: Request) -> None:
        self.request = request
        self.live = request.live or LiveLayer(
            self._viewer,
            request.image,
            request.method.name.upper(),
            request.placement,
            request.strokes,
        )
        self._has_returned = self._is_in_sight = False
        run = self._run = Run(
            request.job, request.method, request.is_sweep, self.reader, request.origin
        )
        run.recording = request.recording
        run.advanced.connect(self._on_advanced)
        run.swept.connect(self.swept)
        run.returned.connect(self._on_returned)
        run.failed.connect(self.failed)
        run.abandoned.connect(self.abandoned)
        run.finished.connect(self._on_finished)
        self.began.emit()
        self._hub.began(self)
        run.start()

    def _on_advanced(self, frame: Frame) -> None:
        run = self._run
        if run is None or self.live is None:
            return
        if self.live.layer is None and self._may_show():
            self.live.prepare(frame.labels, frame.n_shown)
            self._later(self._show_first, run, frame)
            return
        if self._may_show():
            self.live.show(frame.labels, frame.n_shown)
        self._later(self._tell, run, frame)

    def _later(self, step: Callable[[Run, Frame], None], run: Run, frame: Frame) -> None:
        """Take a step in a later turn of the event loop, if the run has not ended by then.

        Labels, what our widgets show of them and the painting of both are too much for one turn.
        The run rests until all is painted.
        """

        def take_step() -> None:
            if run is self._run and not self._has_returned:
                step(run, frame)

        QTimer.singleShot(_TURN_MILLISECONDS, take_step)

    def _show_first(self, run: Run, frame: Frame) -> None:
        assert self.live is not None
        with painted_later(self._widget, partial(self._later, self._tell, run, frame)):
            if self._may_show():
                self.live.show(frame.labels, frame.n_shown)

    def _tell(self, run: Run, frame: Frame) -> None:
        assert self.live is not None
        if self.live.layer is not None:
            self._bring_to_sight()
        self.advanced.emit(frame)
        self._later(lambda run, _: run.consume(), run, frame)

    def _on_returned(self, result: Segmentation) -> None:
        run = self._run
        if run is None or self.live is None:
            return
        if self._next is not None and self._next.live is self.live:
            run.consume()
            return
        self._has_returned = True
        if self._may_show():
            problem = self.problem
            with painted_later(self._widget if self.live.layer is None else None):
                graph = None if problem is None else problem.graph
                self.live.finish(run.by_label(result), graph)
            self._bring_to_sight()
        self._hub.returned(self, result)
        self.returned.emit(result)
        QTimer.singleShot(_PAINTING_MILLISECONDS, run.consume)

    def _on_finished(self) -> None:
        if self._run is not None:
            self._run.wait(_CLOSING_SECONDS)
        self._run = self.request = self.live = None
        request, self._next = self._next, None
        self._hub.ended(self)
        self.finished.emit()
        if request is not None and request.image in self._viewer.layers:
            self._begin(request)

    def _on_layer_removed(self, event: Any) -> None:
        self.reader.forget()
        if self._run is None or self.request is None:
            return
        result = None if self.live is None else self.live.layer
        if event.value in (self.request.image, result, *self.request.others):
            self._run.cancel()

    def _may_show(self) -> bool:
        """Return whether there is a layer to show labels on, or an image to make one for."""
        assert self.live is not None and self.request is not None
        return self.live.layer is not None or self.request.image in self._viewer.layers

    def _bring_to_sight(self) -> None:
        """Show the labels once a run, and hide earlier ones: runs side by side do not flicker."""
        if self._is_in_sight:
            return
        self._is_in_sight = True
        assert self.live is not None and self.request is not None
        self._hub.show_result(self.request.image, self.live.layer, self.request.job.index)


def connect_run(session: Session, clock: QTimer, listener: Any) -> None:
    """Connect what a session tells to the methods of a listener.

    The clock of the listener stands once the run has told how it ended, so that this stays.
    """
    clock.timeout.connect(listener._on_clock)
    for ended in (session.returned, session.failed, session.abandoned):
        ended.connect(clock.stop)
    session.began.connect(listener._on_began)
    session.advanced.connect(listener._on_advanced)
    session.returned.connect(listener._on_returned)
    session.failed.connect(listener._on_failed)
    session.abandoned.connect(listener._on_abandoned)
    session.finished.connect(listener._on_finished)
