"""Settings chosen automatically by the strokes, until the user changes one of them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox
from superqt.utils import signals_blocked

from napari_saf._gui.forms.image_input import FEATURE_LABELS, ImageInput
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.large import ground_in
from napari_saf._gui.layers.reading import ImageJob, ProblemReader
from napari_saf._gui.runs.panel import RunPanel
from napari_saf._gui.runs.run import Frame, RunJob
from napari_saf._gui.scribbles.results import StrokeResults
from napari_saf._gui.settings import current_settings
from napari_saf.arrays import Int64s, Integers
from napari_saf.errors import SafError, one_line
from napari_saf.methods import StrokeChoice, choose_by, stroke_choices
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import FULL, Segmentation, Status

_FIRST = "object"
_BY_HAND = "as set below"
_CHOOSING = "choosing settings by the strokes"
_PROVISIONAL = f"first labels; {_CHOOSING} …"
_BOXES = ("features", "weights", "max_side")
_TOOLTIP = (
    "Choose features, scale, working size and the range of strokes automatically by the strokes, "
    "until one of them is changed by hand."
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Painted:
    """Painted pixels (n,) of strokes on a region of this shape, and their classes (n,)."""

    shape: tuple[int, ...]
    pixels: Int64s
    numbers: Integers

    @classmethod
    def of(cls, seeds: Integers) -> _Painted:
        pixels = np.flatnonzero(seeds)
        return cls(seeds.shape, pixels, seeds.ravel()[pixels])

    def extends(self, earlier: _Painted) -> bool:
        """Return whether these are the earlier strokes and, perhaps, more of the same classes."""
        if self.shape != earlier.shape or len(np.setdiff1d(self.numbers, earlier.numbers)):
            return False
        _, now, before = np.intersect1d(self.pixels, earlier.pixels, True, return_indices=True)
        same = self.numbers[now] == earlier.numbers[before]
        return len(before) == len(earlier.pixels) and bool(same.all())


class AutomaticSettings(QCheckBox):
    """Check box to choose the settings of an input and a form by the strokes.

    Its text names the settings in use. `switched` is emitted when the user checks it, since the
    settings may change.
    """

    switched = Signal()

    def __init__(self, chosen: ImageInput, form: MethodForm) -> None:
        super().__init__()
        self._input, self._form = chosen, form
        self._name, self._applied = _FIRST, False
        self._is_paused = False  # by a method without these settings
        self._chosen: list[tuple[_Painted, str]] = []  # oldest strokes of a choice, and its name
        self._painted: _Painted | None = None  # strokes of the last choice
        self._fault = ""  # error of the deep features
        self.reader, self._reading = ProblemReader(), threading.Lock()
        self.setToolTip(_TOOLTIP)
        self.setChecked(True)
        self.toggled.connect(self._on_toggled)
        boxes = [chosen.choices[name] for name in _BOXES]
        changes = (chosen.scale.changed, form.changed, *(box.changed for box in boxes))
        for changed in changes:
            changed.connect(self._on_setting_changed)
        chosen.axes_changed.connect(self.refresh)
        self.refresh()

    @property
    def choice(self) -> StrokeChoice:
        choices = self._choices()
        return choices.get(self._name) or choices[_FIRST]  # the network may have been removed

    @property
    def is_quick(self) -> bool:
        """Whether settings are chosen automatically, without features of a network."""
        return self.isChecked() and "deep" not in self._choices()

    @property
    def corrects(self) -> bool:
        """Whether strokes correct earlier labels, as in `StrokeChoice`."""
        return self.isChecked() and self.choice.corrects

    @property
    def note(self) -> str:
        """The automatic features, scale and working size; empty if set by hand."""
        options = self.choice.options
        features = FEATURE_LABELS[options.features_name].partition(" (")[0]
        text = f"automatic: {features}, scale {options.window}, {options.max_side} px"
        fault = f"\nnetwork of the preferences: {self._fault}" if self._fault else ""
        return f"{text}{fault}" if self.isChecked() else ""

    @property
    def name(self) -> str:
        """The name of the choice; empty if set by hand."""
        return self._name if self.isChecked() else ""

    def start_anew(self, name: str) -> None:
        """Reset, for another image, to the choice that made its labels; "" is the initial one."""
        self.reader.forget()
        self._chosen.clear()
        self._name = name or _FIRST
        self.refresh()

    def plain_values(self) -> dict[str, str]:
        return {"automatic": self.name}

    def show_plain_values(self, values: Mapping[str, Any]) -> None:
        """Restore the choice of a saved session; an empty name stands for settings by hand."""
        name = values.get("automatic")
        if name == "" or name in self._choices():
            self._name, self._is_paused = name or self._name, False
            self._check(bool(name))

    def refresh(self) -> None:
        if self.isChecked():
            self._applied = False  # these changes are not by the user
            options = self.choice.options
            self._input.scale.set_value(_side(options.window))
            self._input.choose(**{name: getattr(options, name) for name in _BOXES})
            self._form.set_values(dict(self.choice.parameters))
            self._applied = True
        self.setText(self.choice.summary if self.isChecked() else _BY_HAND)

    def take(self, name: str) -> bool:
        """Show the settings of a choice; return whether they differ from the current ones."""
        if name == "" or not self.isChecked():
            return False
        if self._painted is not None and self._previous(self._painted) != name:
            self._chosen.append((self._painted, name))
        if name == self._name:
            return False
        self._name = name
        self.refresh()
        return True

    def chooser(self, job: ImageJob) -> Callable[[Callable[[], bool]], str]:
        """Return a function for a worker thread that chooses settings by the strokes of a job.

        It returns the name of the choice for `take`, or "" if fewer than two classes are painted.
        """
        choices, region, n_axes = self._choices(), self._input.pixels().region(), self._n_axes()
        mask = self._input.pixels().mask
        painted = dataclasses.replace(job, base_labels=None, locked=None)

        def choose(cancelled: Callable[[], bool]) -> str:
            seeds = painted.read_seeds(cancelled)
            if seeds is None or len(np.setdiff1d(seeds, 0)) < 2:
                return ""
            self._painted = _Painted.of(seeds)
            previous = self._previous(self._painted)

            def read(chosen: ImageOptions) -> Problem:
                window = region.window(_side(chosen.window))[0]
                options = dataclasses.replace(chosen, window=window, scaling=job.options.scaling)
                axis = job.options.channel_axis
                options = dataclasses.replace(options, channel_axis=axis)
                read_job = dataclasses.replace(painted, options=options, features=None)
                with self._reading:
                    return self.reader.read(read_job, cancelled)

            def has_ground() -> bool:
                return n_axes == 2 and ground_in(region, job.options, mask) is not None

            self._fault = ""
            try:
                return choose_by(read, choices, has_ground, cancelled, previous)
            except SafError as error:
                if "deep" not in choices:
                    raise
                self._fault = one_line(error)
            simpler = {name: choice for name, choice in choices.items() if name != "deep"}
            return choose_by(read, simpler, has_ground, cancelled, previous)

        return choose

    def _previous(self, painted: _Painted) -> str:
        """Return the name of the newest choice whose strokes these extend; "" for none."""
        names = (name for earlier, name in reversed(self._chosen) if painted.extends(earlier))
        return next(names, "")

    def _choices(self) -> dict[str, StrokeChoice]:
        has_colour = "lab" in self._input.choices["features"].values()
        if self._input.image is None:
            return stroke_choices(3 if has_colour else 1)
        longest, deep = max(self._input.pixels().region().shape), current_settings().deep
        return stroke_choices(3 if has_colour else 1, self._n_axes(), longest, deep)

    def _n_axes(self) -> int:
        region = self._input.pixels().region()
        axes = [axis for axis in region.axes if axis in region.together]
        return sum(axis not in region.fixed for axis in axes)

    def _on_toggled(self) -> None:
        self.refresh()
        if self.isChecked():
            self.switched.emit()

    def _on_setting_changed(self) -> None:
        """Uncheck the box if the user changed one of the settings, or until the method has them."""
        values, parameters = self._form.values(), self.choice.parameters
        is_possible, are_shown = parameters.keys() <= values.keys(), self._are_options_shown()
        self.setEnabled(is_possible)
        self._is_paused &= are_shown
        are_shown = are_shown and parameters.items() <= values.items()
        if self._applied and self.isChecked() and not are_shown:
            self._is_paused = not is_possible
            self._check(False)
        elif self._is_paused and is_possible:
            self._check(True)

    def _check(self, is_checked: bool) -> None:
        with signals_blocked(self):
            self.setChecked(is_checked)
        self.refresh()

    def _are_options_shown(self) -> bool:
        """Return whether the controls of the input match the choice."""
        boxes = {name: self._input.choices[name].value for name in _BOXES}
        boxes["features_name"] = boxes.pop("features")
        boxes["window"] = self._input.scale.value
        return all(getattr(self.choice.options, name) == value for name, value in boxes.items())


class StrokeChooser(QObject):
    """Chooses settings by the strokes: before the first labels, then once per run.

    Until then labels of the run are provisional. `changed` requests a run, with whether its
    settings were chosen by the current strokes.
    """

    changed = Signal(bool)

    def __init__(
        self, panel: RunPanel, automatic: AutomaticSettings, results: StrokeResults
    ) -> None:
        super().__init__(panel)
        self._panel, self._automatic, self._results = panel, automatic, results
        self._chosen_in: RunJob | None = None
        self._first: str | None = None  # choice before the first labels
        panel.controller.advanced.connect(self._on_advanced)
        panel.controller.returned.connect(self._on_returned)
        panel.background.failed.connect(self._on_failed)

    def drop(self) -> None:
        self._panel.background.drop("choice")
        self._panel.set_provisional("")

    def choose_first(self) -> bool:
        """Choose settings before the first labels; return whether the run has to wait for them.

        It does not wait for features of a network, which take longer than the run.
        """
        results, panel = self._results, self._panel
        if panel.is_busy or results.has_base or not self._automatic.is_quick:
            return panel.task is not None
        result, strokes = results.in_view(), results.checksum()
        if result.live.layer is not None:
            return False
        choose, self._first = self._automatic.chooser(results.job()), None

        def choose_or_leave(report: object, cancelled: Callable[[], bool]) -> str:
            with suppress(SafError):  # the run shows the error
                return choose(cancelled)
            return ""

        def take(name: str) -> None:
            self._first = name

        def finish() -> None:
            if result is not results.current:
                results.show_current()
            elif self._first is not None:
                self._automatic.take(self._first)
                self.changed.emit(strokes == results.checksum())

        stopped = "stopped before the first labels"
        panel.begin_task(_CHOOSING, choose_or_leave, take, on_finished=finish, stopped_text=stopped)
        return True

    def settle(self, job: RunJob) -> None:
        """Keep the settings of a job, which were chosen for it."""
        self._chosen_in = job

    def _on_advanced(self, frame: Frame) -> None:
        shown = self._results.of_run_in_view
        if shown is not None and (frame.stage == FULL or not shown.has_labels):
            if not self._panel.controller.is_stopping:
                self._choose()

    def _on_returned(self, result: Segmentation) -> None:
        if self._results.of_run is None:
            return
        if result.status is Status.CANCELLED:
            self.drop()
        elif self._results.of_run_in_view is not None:
            self._choose()

    def _choose(self) -> None:
        job = self._panel.controller.job
        if self._chosen_in is job:
            return
        self._chosen_in = job
        if self._automatic.isChecked() and not self._results.has_base:
            self._panel.set_provisional(_PROVISIONAL)
            choose = self._automatic.chooser(self._results.job())
            self._panel.background.run("choice", choose, self._take)

    def _take(self, name: str) -> None:
        if self._automatic.take(name):
            self.changed.emit(True)
        else:
            self.drop()

    def _on_failed(self, key: str, error: Exception) -> None:
        if key == "choice":
            self._panel.set_provisional("")


def _side(window: int | tuple[int, ...] | str) -> int:
    assert isinstance(window, int)
    return window
