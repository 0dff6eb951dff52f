"""A run that is recorded, and the layers that show what it was like at an earlier time."""

from __future__ import annotations

import dataclasses
from typing import Any

import napari
import numpy as np
from numpy.typing import NDArray

from napari_saf._gui.layers.live import LiveLayer, UncertaintyLayer
from napari_saf._gui.runs.controller import RunController, RunJob
from napari_saf.label_map import LabelMap
from napari_saf.problem import Problem
from napari_saf.recording import RecordedLabels, RecordedState, Recording
from napari_saf.result import LabelImage


@dataclasses.dataclass(slots=True, eq=False)
class RecordedRun:
    """A run of some dock, under way or over.

    Attributes
    ----------
    controller : RunController or None
        Whose run it is; None once it is over.
    live : LiveLayer
        Shows its labels.
    problem : Problem or None
        What was labelled, once it was read.
    numbers : array of int
        The numbers with which classes were painted.
    columns : array of int or None
        Entry l - 1 is the column of label l, once the run is over.
    before : RecordedRun or None
        The run that the same layer shows as long as this one has come to nothing.
    """

    controller: RunController | None
    job: RunJob
    live: LiveLayer
    recording: Recording
    problem: Problem | None = None
    numbers: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.arange(0))
    columns: NDArray[np.int64] | None = None
    before: RecordedRun | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is under way."""
        return self.controller is not None

    def note(self) -> None:
        """Take note of what is known by now of the run under way."""
        if self.controller is not None:
            self.problem, self.numbers = self.controller.problem, self.controller.numbers

    def state_near(self, time: float) -> RecordedState | None:
        """Return the recorded soft labels whose time is nearest."""
        states = self.recording.states
        return min(states, key=lambda state: abs(state.time - time), default=None)

    def shown_numbers(self, n_columns: int) -> NDArray[np.int64]:
        """Return the number of each column on screen: painted, by size, or as it comes."""
        if len(self.numbers):
            return LabelMap(self.numbers).extended(n_columns).numbers[:n_columns]
        numbers = np.zeros(n_columns, dtype=np.int64)
        if self.columns is not None:
            numbers[self.columns] = np.arange(1, len(self.columns) + 1)
        return LabelMap(numbers).extended(n_columns).numbers

    def labels_at(self, recorded: RecordedLabels) -> LabelImage:
        """Return recorded labels, numbered as on screen."""
        own = recorded.labels()[-1]
        return LabelMap(self.shown_numbers(int(own.max(initial=0)))).paint(own)

    def color(self, column: int) -> NDArray[np.float32]:
        """Return the colour of a column."""
        if len(self.numbers):
            return self.live.color(int(self.shown_numbers(column + 1)[column]) - 1)
        return self.live.color(column)


class EarlierLayers:
    """Layers with the labels, and the entropy, of a run at an earlier time.

    The result stays as it is; it is out of sight as long as earlier labels are shown.
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self._labels: LiveLayer | None = None
        self._entropy: UncertaintyLayer | None = None
        self._result: Any = None

    @property
    def labels(self) -> Any:
        """The layer of earlier labels that is shown, or None."""
        return None if self._result is None or self._labels is None else self._labels.layer

    @property
    def entropy(self) -> Any:
        return None if self._entropy is None else self._entropy.layer

    def show_labels(self, run: RecordedRun, labels: LabelImage, time: float) -> None:
        """Show labels in place of the result of a run."""
        result = run.live.layer
        if result is None or run.live.is_lost:
            return
        if self._labels is None or self._result not in (None, result) or self._labels.is_lost:
            self._drop_labels()
            # It takes the colours of the result and lies below it.
            image, place = run.job.image, run.live.placement
            self._labels = LiveLayer(self._viewer, image, "earlier", place, result)
        self._labels.show(labels, int(labels.max(initial=0)))
        self._labels.layer.name = f"{result.name} at t = {time:.3g}"
        self._labels.layer.visible = True
        if self._result is None:
            self._labels.recolor()
            self._result = result
            result.visible = False

    def show_result(self) -> None:
        """Show the result again."""
        result, self._result = self._result, None
        if result is None or self._labels is None:
            return
        if self._labels.layer in self._viewer.layers:
            self._labels.layer.visible = False
        if result in self._viewer.layers:
            result.visible = True

    def show_entropy(self, run: RecordedRun, values: NDArray[np.floating], time: float) -> None:
        """Show entropies, image-shaped, 0 to 1."""
        if self._entropy is None:
            name = f"{run.job.image.name} entropy"
            place = run.live.placement
            self._entropy = UncertaintyLayer(self._viewer, name, place, full=1.0, covers=True)
        is_new = self.entropy is None or self.entropy not in self._viewer.layers
        self._entropy.show(values)
        self.entropy.name = f"{run.job.image.name} entropy at t = {time:.3g}"
        if is_new and run.live.layer in self._viewer.layers:
            self._viewer.layers.selection.active = run.live.layer

    def hide_entropy(self) -> None:
        if self._entropy is not None:
            self._entropy.hide()

    def forget(self) -> None:
        """Show the result again and take the layers away."""
        self.show_result()
        self._drop_labels()
        if self.entropy is not None and self.entropy in self._viewer.layers:
            self._viewer.layers.remove(self.entropy)
        self._entropy = None

    def let_go(self) -> None:
        """Forget the layers and leave them as they are."""
        self._labels = self._entropy = self._result = None

    def _drop_labels(self) -> None:
        labels, self._labels = self._labels, None
        if labels is not None and labels.layer is not None and labels.layer in self._viewer.layers:
            self._viewer.layers.remove(labels.layer)
