"""Edits of labels in worker threads, with undo and redo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from napari_saf._gui.layers.live import EditedLayer
from napari_saf._gui.layers.view import visibility_of
from napari_saf._gui.prototypes import edits
from napari_saf._gui.prototypes.edits import Edited, EditedStart, EditTarget
from napari_saf._gui.prototypes.labels import LabelState, LayerSource, Source
from napari_saf._gui.runs.panel import RunPanel
from napari_saf._gui.runs.run import RunJob
from napari_saf.errors import InvalidInput
from napari_saf.recording import PackedArray
from napari_saf.result import Segmentation

EDITS = {
    "merge": (edits.merge, "merging", "merge"),
    "split": (edits.split, "splitting", "split of {}"),
    "delete": (edits.delete, "deleting", "delete"),
    "refine": (edits.refine, "preparing", "refinement"),
}
"""Function that each button runs in a thread, and its texts during and after the edit."""
_CHANGED_MEANWHILE = "the layer has changed meanwhile: nothing was done"
_MOST_STEPS, _MOST_BYTES = 50, 128 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class UndoStep:
    """State before an edit; None for the parts that it did not change.

    `added` is a layer or file that the edit added.
    """

    name: str
    source: Source
    state: LabelState | None = None
    pixels: PackedArray | None = None
    added: Any = None

    @property
    def title(self) -> str:
        return f"{self.name}, {self.source.title}"


class UndoHistory:
    """Steps to undo and redo, the latest last; the oldest are dropped beyond a memory limit."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.past: list[UndoStep] = []
        self.future: list[UndoStep] = []

    @property
    def n_bytes(self) -> int:
        steps = self.past + self.future
        return sum(step.pixels.n_bytes for step in steps if step.pixels is not None)

    def push(self, step: UndoStep) -> None:
        """Add a new edit and clear the steps to redo."""
        self.future.clear()
        self.past.append(step)
        self._trim()

    def exchange(self, step: UndoStep, inverse: UndoStep, *, is_undo: bool) -> None:
        """Move an undone (or redone) step to the other stack as its inverse."""
        source, target = (self.past, self.future) if is_undo else (self.future, self.past)
        if step in source:
            source.remove(step)
            target.append(inverse)
            self._trim()

    def discard(self, is_obsolete: Callable[[UndoStep], bool]) -> None:
        for steps in (self.past, self.future):
            steps[:] = [step for step in steps if not is_obsolete(step)]

    def _trim(self) -> None:
        while len(self.past) > 1 and (
            len(self.past) > _MOST_STEPS or self.n_bytes > self._most_bytes
        ):
            del self.past[0]


class LabelEditor(QObject):
    """Edits labels of a layer or a file, with undo and redo, also of steps that a dock pushes.

    Signals: `changed` of a state; `pixels_changed` of a layer, with label sizes and the new
    selection; `restored` of a step, with whether it was undone; `ended` of an edit.
    """

    changed = Signal()
    pixels_changed = Signal(object, object, object)
    restored = Signal(object, bool)
    ended = Signal()

    def __init__(self, panel: RunPanel, viewer: napari.Viewer) -> None:
        super().__init__(panel)
        self._panel, self._viewer = panel, viewer
        self.history = UndoHistory()
        self.refining: tuple[str, Source, RunJob] | None = None  # the run that follows an edit
        self._restoring: UndoStep | None = None
        panel.controller.finished.connect(self._on_run_finished)

    def release(self) -> None:
        self.history.discard(lambda step: True)
        self.refining = None

    def forget_layer(self, layer: Any) -> None:
        """Forget the edits of a removed layer, except one whose undo removes it."""
        self.history.discard(
            lambda step: step is not self._restoring and layer in (step.source.layer, step.added)
        )

    def edit_state(
        self, name: str, source: Source, change: Callable[[LabelState], LabelState]
    ) -> None:
        self.history.push(UndoStep(name, source, source.state))
        source.state = change(source.state)
        self.changed.emit()

    def rename(self, source: Source, number: int, name: str) -> None:
        if source.state.name(number) != name.strip():
            title = f"name of label {number}"
            self.edit_state(title, source, lambda old: old.renamed(number, name))

    def lock(self, source: Source, number: int, locked: bool) -> None:
        title = f"lock of label {number}"
        self.edit_state(title, source, lambda old: old.with_lock(number, locked))

    def edit(self, how: str, source: Source, image: Any, selected: Sequence[int]) -> None:
        """Merge, split or delete selected labels, or refine all, in a thread except for files."""
        edit, text, name = EDITS[how]
        name, layer = name.format(*selected), source.layer
        if layer is None:
            merge = partial(LabelState.merged, numbers=selected, into=selected[0])
            delete = partial(LabelState.deleted, numbers=selected)
            self.edit_state(name, source, merge if how == "merge" else delete)
            return
        visibility_of(self._viewer).restore(layer)
        live, reader = EditedLayer(self._viewer, image, layer), self._panel.controller.reader
        target = EditTarget.of(layer, image, source.state, selected, reader)

        def compute(report: object, stop: Callable[[], bool]) -> tuple[Any, ...]:
            labels = target.read(stop)
            edited = edit(target, labels, stop)
            sizes = edits.count_pixels(edited.labels)
            return PackedArray.of(labels), edited.labels != labels, sizes, edited

        show = partial(self._show_edited, name, source, live)
        self._panel.begin_task(text, compute, show, on_finished=self._start_refining)

    def _show_edited(
        self,
        name: str,
        source: Source,
        live: EditedLayer,
        computed: tuple[PackedArray, NDArray[np.bool_], dict[int, int], Edited],
    ) -> None:
        previous, changed, sizes, edited = computed
        if live.is_lost:
            self._panel.note(_CHANGED_MEANWHILE)
            return
        # Names and locks may have changed since the click.
        self.history.push(UndoStep(name, source, source.state, previous))
        source.state = edited.change(source.state)
        if changed.any():
            live.write(edited.labels, changed)
        self.pixels_changed.emit(live.layer, sizes, edited.selection)
        self._panel.note(f"done: {name}")
        if edited.run is not None:
            job, method, start = edited.run
            run = RunJob(live.image, job, method, live.placement, live=live, start=start)
            self.refining = (name, source, run)

    def _start_refining(self) -> None:
        """Start the run that follows the edit, if any."""
        if self.refining is not None and self.refining[2].image in self._viewer.layers:
            self._panel.controller.start(self.refining[2])
        else:
            self._on_run_finished()

    def _on_run_finished(self, job: object = None) -> None:
        self.refining = None
        self.ended.emit()

    def take_refined(self, job: RunJob, result: Segmentation) -> None:
        """Adopt the prototypes of the run that followed an edit."""
        if self.refining is not None and not job.method.labels_are_given:
            # Else the run used the prototypes of the state.
            source = self.refining[1]
            assert isinstance(job.start, EditedStart)
            source.state = source.state.after_run(job.start.numbers, result.prototypes)

    def take_applied(self, name: str, source: Source, layer: Labels) -> None:
        """Adopt the labels of another image, with the names and prototypes that made them."""
        state = LabelState(source.state.names, prototypes=source.state.prototypes)
        LayerSource(layer).state = state
        self.history.push(UndoStep(name, source, added=layer))

    def undo(self) -> None:
        self._restore(is_undo=True)

    def redo(self) -> None:
        self._restore(is_undo=False)

    def _restore(self, *, is_undo: bool) -> None:
        """Restore the last step, its pixels in a thread."""
        steps = self.history.past if is_undo else self.history.future
        if self._panel.is_busy or not steps:
            return
        step = steps[-1]
        layer, pixels = step.source.layer, step.pixels
        if layer is None or pixels is None:
            self._show_restored(step, None, is_undo=is_undo)
            return
        target, live = EditTarget.of(layer), EditedLayer(self._viewer, None, layer)

        def compute(report: object, stop: Callable[[], bool]) -> tuple[Any, ...]:
            now, then = target.read(stop), pixels.unpack()
            if now.shape != then.shape:
                raise InvalidInput("the layer has another shape now: this cannot be undone")
            return PackedArray.of(now), then, now != then

        def show(computed: tuple[Any, ...]) -> None:
            replaced, labels, changed = computed
            if live.is_lost:
                self._panel.note(_CHANGED_MEANWHILE)
            else:
                live.write(labels, changed)
                self._show_restored(step, replaced, is_undo=is_undo)

        text = "undoing" if is_undo else "redoing"
        self._panel.begin_task(text, compute, show, on_finished=self._start_refining)

    def _show_restored(self, step: UndoStep, pixels: PackedArray | None, *, is_undo: bool) -> None:
        """Restore a step except its pixels; `pixels` are the replaced ones."""
        inverse, self._restoring = step, step
        layers, added = self._viewer.layers, step.added
        if step.state is not None:
            inverse = UndoStep(step.name, step.source, step.source.state, pixels)
            step.source.state = step.state
        if isinstance(added, Labels):
            if is_undo and added in layers:
                layers.remove(added)
            elif not is_undo and added not in layers:
                self._viewer.add_layer(added)
        self._restoring = None
        self.history.exchange(step, inverse, is_undo=is_undo)
        self.restored.emit(step, is_undo)
        self._panel.note(f"{'undone' if is_undo else 'redone'}: {step.name}")
