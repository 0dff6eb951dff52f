"""One run at a time on a viewer: start, follow, stop, start again, go away."""

from __future__ import annotations

import dataclasses
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtCore import QObject, Signal

from napari_saf._gui._live_layer import LiveLayer
from napari_saf._gui._placement import Placement
from napari_saf._gui._reading import ImageJob
from napari_saf._gui._worker import Frame, Run
from napari_saf.methods import AbstractMethod
from napari_saf.problem import Problem
from napari_saf.result import Segmentation

__all__ = ["Request", "Session"]

_CLOSING_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What a click on Run asks for, as read at that moment."""

    image: Image
    job: ImageJob
    method: AbstractMethod
    placement: Placement
    is_sweep: bool = False
    strokes: Labels | None = None


class Session(QObject):
    """The run of a viewer and the layer that shows it.

    Layers are compared by equality: a plugin is handed proxies, of which there are many of one
    layer. A run begins only when the one before has ended. It ends early when its image or its
    result is removed.

    Parameters
    ----------
    viewer : napari.Viewer
    """

    began = Signal()
    advanced = Signal(object)
    swept = Signal(object)
    returned = Signal(object)
    failed = Signal(object)
    abandoned = Signal()
    finished = Signal()

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._run: Run | None = None
        self._next: Request | None = None
        self._results: list[tuple[Image, Labels]] = []
        self.request: Request | None = None
        self.live: LiveLayer | None = None
        viewer.layers.events.removed.connect(self._on_layer_removed)

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
    def is_stopping(self) -> bool:
        """Whether the run was told to end."""
        return self._run is not None and self._run.is_cancelled

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

    def shut_down(self) -> None:
        """End the run, if there is one, and take no notice of it any more."""
        self.stop()
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        run, self._run = self._run, None
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
        self.live = LiveLayer(
            self._viewer, request.image, request.method.name, request.placement, request.strokes
        )
        run = self._run = Run(request.job, request.method, request.is_sweep)
        run.advanced.connect(self._on_advanced)
        run.swept.connect(self.swept)
        run.returned.connect(self._on_returned)
        run.failed.connect(self.failed)
        run.abandoned.connect(self.abandoned)
        run.finished.connect(self._on_finished)
        self.began.emit()
        run.start()

    def _on_advanced(self, frame: Frame) -> None:
        if self._run is None or self.live is None:
            return
        if self._may_show():
            self.live.show(frame.labels, len(frame.shares))
            self._hide_earlier_results()
        self._run.consume()
        self.advanced.emit(frame)

    def _on_returned(self, result: Segmentation) -> None:
        if self.live is None:
            return
        if self._may_show():
            problem = self.problem
            self.live.finish(result, None if problem is None else problem.graph)
            self._hide_earlier_results()
        self.returned.emit(result)

    def _on_finished(self) -> None:
        if self._run is not None:
            self._run.wait(_CLOSING_SECONDS)
        self._run = self.request = self.live = None
        request, self._next = self._next, None
        self.finished.emit()
        if request is not None and request.image in self._viewer.layers:
            self._begin(request)

    def _on_layer_removed(self, event: Any) -> None:
        self._results = [pair for pair in self._results if event.value not in pair]
        if self._run is None or self.request is None:
            return
        result = None if self.live is None else self.live.layer
        if event.value in (self.request.image, result):
            self._run.cancel()

    def _may_show(self) -> bool:
        """Return whether there is a layer to show labels on, or an image to make one for."""
        assert self.live is not None and self.request is not None
        return self.live.layer is not None or self.request.image in self._viewer.layers

    def _hide_earlier_results(self) -> None:
        """Hide the results that this session made of the same image before, once."""
        assert self.live is not None and self.request is not None
        new = (self.request.image, self.live.layer)
        if new in self._results:
            return
        for image, result in self._results:
            if image == new[0]:
                result.visible = False
        self._results.append(new)
