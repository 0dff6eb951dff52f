"""The runs of a viewer: start, follow, stop, start again, shut down; and who observes them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, QTimer, Signal

from napari_saf._gui.forms.choices import parameters_by_hand
from napari_saf._gui.layers.live import LiveLayer
from napari_saf._gui.layers.metadata import image_id_of, is_given
from napari_saf._gui.layers.placement import Placement, layers_over
from napari_saf._gui.layers.reading import ImageJob, ProblemReader
from napari_saf._gui.runs.run import Frame, Run, RunStart
from napari_saf._gui.settings import current_settings
from napari_saf.io import PrototypeSet
from napari_saf.methods import AbstractMethod
from napari_saf.problem import Problem
from napari_saf.recording import Recording
from napari_saf.result import Segmentation

_CLOSING_SECONDS = 5.0
_MOST_LETTERS = 40
"""Of a title, so that there is room for the name of the image."""
_MOST_COVERED = 0.5
"""Share of a result from which on what lies over it is hidden."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RunJob:
    """What a click on Run asks for, as read at that time.

    With `live`, the labels go on in the layer of a run before; that of a run that is ended for
    this one is then left as it is. The `others` are images labelled together with this one. A run
    whose `start` is a recorded state goes on with its `recording`. The `note` is shown at the end.
    The `options` are what was set of the image by hand, in words.
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

    @property
    def title(self) -> str:
        """What distinguishes the result: the method and all that is not as by default."""
        title = self.method.name.upper()
        for words in (*self.options, *parameters_by_hand(self.method)):
            if len(title) + len(words) > _MOST_LETTERS:
                return f"{title}, …"
            title = f"{title}, {words}"
        return title

    def masked(self) -> RunJob:
        job = dataclasses.replace(self.image_job, finite_only=True)
        return dataclasses.replace(self, image_job=job)


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

    def __init__(self, viewer: napari.Viewer) -> None:
        super().__init__()
        self._viewer = viewer
        self._run: Run | None = None
        self.waiting: RunJob | None = None  # for the end of the present run
        self._has_returned = self._is_in_sight = False
        self._frame: Frame | None = None
        self._frame_seconds = self._began_showing = 0.0
        # Qt handles a timer of no time after what is to be painted.
        self._timer, self._painted = QTimer(self), QTimer(self)
        for timer, slot in ((self._timer, self._show_newest), (self._painted, self._on_painted)):
            timer.setSingleShot(True)
            timer.timeout.connect(slot)
        self.reader = ProblemReader()
        self.job: RunJob | None = None
        self.live: LiveLayer | None = None
        self.note = ""  # on what the labels of the run are under, or were
        viewer.layers.events.removed.connect(self._on_layer_removed)
        self._registry = run_registry(viewer)
        self._registry.controllers.add(self)

    @property
    def is_running(self) -> bool:
        return self._run is not None

    @property
    def is_stopping(self) -> bool:
        return self._run is not None and self._run.is_cancelled

    @property
    def seconds(self) -> float:
        return 0.0 if self._run is None else self._run.seconds

    @property
    def memory_note(self) -> str:
        """How much memory the run takes, where that is much."""
        return "" if self._run is None else self._run.memory_note

    @property
    def problem(self) -> Problem | None:
        return None if self._run is None else self._run.problem

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers with which the classes of the run's strokes were painted."""
        return np.arange(0) if self._run is None else self._run.classes.numbers

    def record(self) -> Recording | None:
        """Return the recording of the run, begun now if there is none; None where none can be."""
        if self._run is None or not self._run.is_recordable:
            return None
        if self._run.recording is None:
            self._run.recording = Recording()
        return self._run.recording

    @property
    def recording(self) -> Recording | None:
        """The recording of the run, if there is one."""
        return None if self._run is None else self._run.recording

    def stop_recording(self) -> None:
        if self._run is not None:
            self._run.recording = None

    def start(self, job: RunJob) -> None:
        """Start a run, once the present one has ended."""
        if self._run is None:
            self._begin(job)
        else:
            self.waiting = job
            self._run.cancel()

    def stop(self) -> None:
        """End the run with what it has."""
        self.waiting = None
        if self._run is not None:
            self._run.cancel()

    def shut_down(self) -> None:
        """End the run, if there is one, and take no notice of it any more."""
        self.stop()
        self._timer.stop()
        self._painted.stop()
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        run, self._run = self._run, None
        self._registry.controllers.discard(self)
        for watcher in self._registry.watchers:
            watcher.run_ended(self)
        if run is not None:
            for signal, slot in self._connections(run):
                signal.disconnect(slot)
            run.wait(_CLOSING_SECONDS)

    def _connections(self, run: Run) -> list[tuple[Any, Any]]:
        return [
            (run.first_labels, self._show_newest),
            (run.swept, self.swept),
            (run.returned, self._on_returned),
            (run.taught, self._on_taught),
            (run.failed, self.failed),
            (run.abandoned, self.abandoned),
            (run.finished, self._on_finished),
        ]

    def _begin(self, job: RunJob) -> None:
        self.job = job
        self.live = job.live or LiveLayer(
            self._viewer, job.image, job.title, job.placement, job.strokes
        )
        self._has_returned = self._is_in_sight = False
        self.note = ""
        self._frame_seconds = 1 / current_settings().frames
        run = self._run = Run(job.image_job, job.method, job.is_sweep, self.reader, job.start)
        run.recording = job.recording
        for signal, slot in self._connections(run):
            signal.connect(slot)
        self.began.emit()
        self._registry.began(self)
        run.start()

    def _show_newest(self) -> None:
        """Show the newest frame, if there is one."""
        self._began_showing = time.perf_counter()
        if self._run is not None and self._run.mailbox:
            self._show(self._run.mailbox.pop())
        self._painted.start()

    def _show(self, shown: Frame | Segmentation) -> None:
        """Show labels, where there is a layer for them or an image to make one for.

        They come to sight once a run, and hide earlier ones: runs side by side do not flicker.
        """
        assert self._run is not None and self.live is not None and self.job is not None
        if isinstance(shown, Frame):
            self._frame = shown
        if self.live.layer is None and self.job.image not in self._viewer.layers:
            return
        if isinstance(shown, Frame):
            self.live.show(shown.labels, int(shown.numbers.max(initial=0)))
        else:
            graph = None if self._run.problem is None else self._run.problem.graph
            self.live.finish(self._run.by_label(shown), graph)
        if not self._is_in_sight:
            self._is_in_sight = True
            index = self.job.image_job.pixels.index
            self.note = self._registry.show_result(self.job.image, self.live.layer, index)

    def _on_painted(self) -> None:
        """Let the docks show the frame, too; then rest twice as long as all that took."""
        frame, self._frame = self._frame, None
        if frame is not None:
            self.advanced.emit(frame)
        if self._run is not None and not self._has_returned:
            seconds = time.perf_counter() - self._began_showing
            self._timer.start(round(1000 * max(self._frame_seconds, 2 * seconds)))

    def _on_returned(self, result: Segmentation) -> None:
        run = self._run
        if run is None or self.live is None:
            return
        if self.waiting is not None and self.waiting.live is self.live:
            return
        self._has_returned = True
        self._timer.stop()
        if run.mailbox and not self._is_in_sight:
            self._show(run.mailbox.pop())
        self._on_painted()  # listeners see how every run began
        self._show(result)
        for watcher in self._registry.watchers:
            watcher.run_returned(self, result)
        self.returned.emit(result)

    def _on_taught(self, taught: PrototypeSet) -> None:
        if self._has_returned and self.live is not None and self.live.layer is not None:
            self.live.teach(taught)

    def _on_finished(self) -> None:
        if self._run is not None:
            self._run.wait(_CLOSING_SECONDS)
        self._timer.stop()
        self._run = self.job = self.live = self._frame = None
        job, self.waiting = self.waiting, None
        for watcher in self._registry.watchers:
            watcher.run_ended(self)
        self.finished.emit()
        if job is not None and job.image in self._viewer.layers:
            self._begin(job)

    def _on_layer_removed(self, event: Any) -> None:
        self.reader.forget()
        if self._run is None or self.job is None:
            return
        result = None if self.live is None else self.live.layer
        if event.value in (self.job.image, result, *self.job.others):
            self._run.cancel()


class RunObserver(Protocol):
    """Follows the runs of a viewer, in the main thread."""

    def run_began(self, controller: RunController) -> None:
        """Handle that a run is under way."""

    def run_returned(self, controller: RunController, result: Any) -> None:
        """Handle what came of a run, once its layer shows it."""

    def run_ended(self, controller: RunController) -> None:
        """Handle that a run is over."""


@dataclasses.dataclass(slots=True, eq=False)
class _Result:
    """A result layer, and the slice of an image that it labels: axes and positions, if any."""

    image: ReferenceType[Any]
    layer: ReferenceType[Any]
    fixed: frozenset[tuple[int, int]]
    is_hidden: bool = False

    def hide(self) -> None:
        layer = self.layer()
        if layer is not None and layer.visible:
            layer.visible = False
            self.is_hidden = True


class RunRegistry:
    """Controllers of a viewer, results, watchers, and ids of layers `seen`; keeps none alive."""

    def __init__(self, viewer: Callable[[], Any] = lambda: None) -> None:
        self._viewer, self.seen = viewer, set[str]()
        self.controllers = WeakSet[RunController]()
        self._results = list[_Result]()
        self._watchers = WeakSet[RunObserver]()

    @property
    def watchers(self) -> list[RunObserver]:
        return list(self._watchers)

    def show_result(self, image: Any, layer: Any, index: tuple[int | slice, ...] = ()) -> str:
        """Keep a new result in sight, and hide the earlier ones at its place of the image, once.

        The `index` is what is labelled of the image: other slices stay in sight, a volume hides
        those of its slices. Return a note on what else was hidden, see `uncover`.
        """
        fixed = frozenset((axis, at) for axis, at in enumerate(index) if isinstance(at, int))
        here, layer = self._results_at(image, fixed), _unwrapped(layer)
        if not here or here[-1].layer() is not layer or here[-1].is_hidden:
            self._show(_Result(ref(_unwrapped(image)), ref(layer), fixed), layer)
        return self.uncover(image, layer)

    def bring_back(self, layer: Any) -> None:
        """Show a result that another one hid, and hide those at its place."""
        own = _unwrapped(layer)
        for result in [] if own.visible else list(self._results):
            if result.layer() is own and result.is_hidden:
                self._show(_Result(result.image, result.layer, result.fixed), own)
                self.uncover(result.image(), own)

    def reveal(self, image: Any, layer: Any) -> str:
        """Show a layer that is no result, and its image; see `uncover`."""
        _make_visible(image, layer)
        return self.uncover(image, layer)

    def uncover(self, image: Any, layer: Any) -> str:
        """Hide what lies over a layer of an image; return a note of the images for the status.

        What is over less than half of it, such as the next tile, stays, and is noted, too. With an
        image that is shown again comes what was hidden with it.
        """
        viewer, notes = self._viewer(), list[str]()
        images, hidden = list[Any](), list[Any]()
        covers = [] if viewer is None or image is None else layers_over(viewer, layer, image)
        for other, share in covers:
            is_image = is_given(other) and isinstance(other, Image)
            if share < _MOST_COVERED:
                notes += [f"{other.name} lies over a part of {layer.name}"] * is_image
                continue
            for result in self._results:
                if result.layer() is other:
                    result.hide()
            other.visible = False
            (images if is_image else hidden).append(other)
            notes += [f"{other.name} is hidden: it lay over {image.name}"] * is_image
        for other in images:
            _show_together(other, hidden)
        return "\n".join(notes)

    def _show(self, result: _Result, layer: Any) -> None:
        for other in self._results_at(result.image(), result.fixed):
            other.hide()
        self._results = [r for r in self._results if r.layer() not in (None, layer)]
        self._results.append(result)
        _make_visible(result.image(), layer)

    def _results_at(self, image: Any, fixed: frozenset[tuple[int, int]]) -> list[_Result]:
        return [r for r in self._results_of(image) if r.fixed <= fixed or fixed <= r.fixed]

    def hide_results(self, image: Any) -> None:
        for result in self._results_of(image):
            result.hide()

    def _results_of(self, image: Any) -> list[_Result]:
        return [result for result in self._results if result.image() is _unwrapped(image)]

    def watch(self, watcher: RunObserver) -> None:
        """Tell somebody of all runs, those under way included."""
        self._watchers.add(watcher)
        for controller in list(self.controllers):
            if controller.is_running:
                watcher.run_began(controller)

    def unwatch(self, watcher: RunObserver) -> None:
        """End `watch`; runs that nobody watches are not recorded on."""
        self._watchers.discard(watcher)
        if not self._watchers:
            for controller in list(self.controllers):
                controller.stop_recording()

    def began(self, controller: RunController) -> None:
        """Tell that a run is under way; another that writes to its layer ends."""
        for other in list(self.controllers):
            if other is not controller and other.is_running and other.live is controller.live:
                other.stop()
        for watcher in self.watchers:
            watcher.run_began(controller)


_REGISTRIES: WeakKeyDictionary[Any, RunRegistry] = WeakKeyDictionary()


def run_registry(viewer: Any) -> RunRegistry:
    own = _unwrapped(viewer)
    return _REGISTRIES.setdefault(own, RunRegistry(ref(own)))


def _make_visible(*layers: Any) -> None:
    """Show those that are hidden; to others it would not be nothing: they lose their mode."""
    for layer in layers:
        if layer is not None and not layer.visible:
            layer.visible = True


def _show_together(image: Image, layers: list[Any]) -> None:
    """Show those layers of an image that are left then, once it is shown again."""
    own = WeakSet(layer for layer in layers if image_id_of(layer) == str(image.unique_id))

    def on_visible(event: object) -> None:
        if image.visible:
            image.events.visible.disconnect(on_visible)
            _make_visible(*own)

    if own:
        image.events.visible.connect(on_visible)


def _unwrapped(held: Any) -> Any:
    """Return a viewer or layer itself, of which a plugin may hold a proxy."""
    return getattr(held, "__wrapped__", held)
