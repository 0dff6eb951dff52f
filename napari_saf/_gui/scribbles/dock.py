"""The Scribbles dock: paint a few strokes, and the whole image follows."""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from qtpy.QtWidgets import QCheckBox

from napari_saf._gui.docks.apply import (
    BUSY,
    ApplyDialog,
    ApplyRequest,
    save_classifier,
    start_applying,
)
from napari_saf._gui.docks.base import DockBase, NextRow
from napari_saf._gui.docks.large import LargeSection
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, create_row
from napari_saf._gui.forms.method_form import MethodForm
from napari_saf._gui.layers.metadata import is_given
from napari_saf._gui.layers.view import EventWatch
from napari_saf._gui.napari_workarounds import dims_of
from napari_saf._gui.runs.panel import RUN_KEY, RUN_KEY_TEXT, RunPanel, Subject
from napari_saf._gui.runs.run import RunJob
from napari_saf._gui.scribbles.automatic import AutomaticSettings, StrokeChooser
from napari_saf._gui.scribbles.result import TITLE
from napari_saf._gui.scribbles.results import StrokeResults
from napari_saf._gui.scribbles.strokes import Strokes, StrokeTools, above_0, paint_box
from napari_saf.errors import SafError
from napari_saf.methods import METHODS, AbstractMethod, SweepMethod, stroke_choices
from napari_saf.problem import ImageOptions
from napari_saf.result import STATUS_TEXTS, Segmentation

DEFAULT_OPTIONS = stroke_choices()["object"].options
"""What the dock begins with; see ``benchmarks/scribbles.py choices``."""
_SUGGEST_HELP = "Mark the place where the next stroke would help most (Shift+S)."
_RUN_HELP = f"Label the image by the strokes that there are now ({RUN_KEY_TEXT})."
_SCALE_HELP = (
    "Side of the window over which labels are averaged, in pixels of the size at which the dock "
    "works (N)."
)
_MORE_ROWS = {
    "base": (
        "Start from",
        "Labels of an earlier run become classes. A stroke on a label turns it into the class "
        "painted: two labels painted alike are merged; one painted with two classes is split.",
    ),
    "warm_start": (
        "",
        "Labels stay but for those around strokes that contradict them, and those that look alike: "
        "what was painted first counts for more. Without it the same strokes give the same labels "
        "in whatever order, unless they are dots on one object.",
    ),
}
_UNCERTAINTY_HELP = "Show how uncertain each pixel is: bright where a stroke helps most."
_APPLY_HELP = (
    "Label that image by what the classes look like in this one: an open image, or all of a folder."
)


class ScribblesWidget(DockBase):
    """Paint strokes of two or more classes; all other pixels follow after each stroke."""

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.strokes = Strokes()
        self.input = ImageInput(viewer, DEFAULT_OPTIONS, strokes="none yet: press New")
        self.panel = RunPanel(
            self,
            viewer,
            self.workspace.runs,
            ("Update", _RUN_HELP),
            begin_text="following the strokes …",
            repeats=True,
            chosen=self.input,
            outcome_text=_outcome_text,
        )
        self.status, self.controller = self.panel.status, self.panel.controller
        offered = [method for method in METHODS.values() if not issubclass(method, SweepMethod)]
        offered.sort(key=lambda method: not method().follows_seeds)
        self.form = MethodForm(viewer, offered, asks_prototypes=False, for_strokes=True)
        self.automatic = AutomaticSettings(self.input, self.form)
        self.kept_parts = self.input, self.form, self.automatic
        self.base = LayerChoice(viewer, Labels, none="nothing")  # labels that become classes
        self.warm_start = QCheckBox("Continue from last labels")
        self.follow, self.uncertainty = QCheckBox("Follow"), QCheckBox("Uncertainty")
        self.tools = StrokeTools(viewer, self.panel, self.input, self.strokes)
        self.classes, self.box = self.tools.classes, self.tools.box
        self.new_strokes, self.add_class = self.tools.new_strokes, self.tools.add_class
        chosen = self.input, self.form, self.base
        self._results = StrokeResults(viewer, self.panel, *chosen, self.classes)
        self._chooser = StrokeChooser(self.panel, self.automatic, self._results)
        dims = dims_of(viewer).events
        self._slices = EventWatch(self, 100, (dims.current_step, dims.order))
        self._index: Any = None
        self._add_controls()
        self._connect_controls()
        self._on_form_changed()
        self._on_strokes_chosen()

    def _add_controls(self) -> None:
        suggest = create_button("Suggest spot", _SUGGEST_HELP, self.suggest)
        self.buttons = self.tools.buttons | {"suggest": suggest}
        self.buttons["update_labels"] = self.panel.run_button
        self.follow.setChecked(True)
        self.follow.setToolTip("Label the image anew after every stroke, undo and redo.")
        self.uncertainty.setToolTip(_UNCERTAINTY_HELP)
        self._method, start_rows = FormSection(), FormSection()
        self._method.add_row("Method", self.form.box, "How the strokes teach.")
        self._method.add_row("Automatic", self.automatic, self.automatic.toolTip())
        self._method.add_row("Scale", self.input.scale, _SCALE_HELP)
        for name, (text, tooltip) in _MORE_ROWS.items():
            start_rows.add_row(text, getattr(self, name), tooltip)
        self.applying = ApplyDialog(
            self,
            self._viewer,
            self.panel,
            _APPLY_HELP,
            lambda layer: is_given(layer) and layer != self.input.image,
            has_classifier=True,
            none="choose an image",
        )
        self.next_row = NextRow(self.workspace, lambda: self.result)
        self.large = LargeSection(self._viewer, self.input, self._results.learner)
        sections = [
            self.input.section,
            self.tools,
            create_row(self.follow, self.uncertainty, suggest),
            self._method,
            self.form.basic,
            create_fold("Start from labels", start_rows),
            self.next_row,
            self.applying.row,
            create_fold("Features", self.input.features),
            create_fold("Advanced", self.form.advanced),
        ]
        buttons_of_run = [self.panel.run_button, self.panel.stop_button]
        self.lay_out(sections, buttons_of_run, [self.status, self.large])

    def _connect_controls(self) -> None:
        layers = self._viewer.layers.events
        self.bind_keys(
            {
                RUN_KEY: self.panel.run_or_stop,
                "Shift-S": self.suggest,
                ".": partial(self.classes.step, 1),
                ",": partial(self.classes.step, -1),
            }
        )
        releases = self.large.release, self.tools.release, self._slices.watch
        self.at_end(self.panel.shut_down, *releases)
        self.connect_all(
            (self.panel.run_clicked, self.update_labels),
            (self.panel.busy_changed, self._refresh),
            (self.applying.apply_asked, self._apply),
            (self.applying.save_asked, self._save_classifier),
            (self.applying.changed, self._refresh),
            (self.uncertainty.toggled, self._results.show_uncertainty),
            (self.base.layer_changed, self._on_base_chosen),
            (self.tools.box_drawn, self._paint_box),
            (self.tools.restored, self.start),
            (self.form.changed, self._on_form_changed),
            (self.automatic.switched, self.start),
            (self._chooser.changed, self.start),
            (self.input.strokes_changed, self._on_strokes_chosen),
            (self.input.image_changed, self._on_image_chosen),
            (self.input.axes_changed, self._on_region_changed),
            (self.input.axes_changed, self._check),
            (self._slices.changed, self._on_region_changed),
            (self.strokes.changed, self._on_strokes_changed),
            (self.workspace.session.shown, self._turn_to),
            (layers.removed, self.tools.take_removal),
            (layers.inserted, self._results.show_shares),
            (self.classes.recolored, self.workspace.autosave_soon),
            (self.classes.renamed, self.workspace.autosave_soon),
            (self.classes.lock_toggled, self._on_lock_toggled),
        )

    def settings(self) -> tuple[AbstractMethod, ImageOptions]:
        """Return how strokes label here, for the Project dock; SafError: a value is wrong."""
        chosen = self.input.read()
        options = dataclasses.replace(chosen.whole_options(), max_side=chosen.options.max_side)
        return self.form.read(), options

    @property
    def result(self) -> Any:
        """The Labels layer that is shown as the result; None without one."""
        current = self._results.current
        return None if current is None else current.live.layer

    def suggest(self) -> None:
        result = self._results.current
        if result is None or result.last is None:
            if self.panel.subject is not Subject.ERROR and not self.controller.is_running:
                self.panel.hint(self._results.why_no_labels())
        elif self._results.suggest(result):
            self.panel.hint("paint in the ring: there a stroke helps most")
        else:
            self.panel.hint("nothing is uncertain")

    def _paint_box(self, corners: NDArray[Any]) -> None:
        with self.panel.showing_errors():
            strokes = self.input.strokes
            paint_box(self._results.job(), self.input.image, corners, strokes)
            self._viewer.layers.selection.active = strokes

    def update_labels(self) -> None:
        self.controller.reader.forget()
        self.automatic.reader.forget()
        self.start()

    def start(self) -> None:
        """Label the image by the strokes that there are now, or say what is missing."""
        self._chooser.drop()
        self._check()
        if self._results.state.fault:
            self.panel.show_error(self._results.why_disabled)
        elif self._results.why_disabled:
            self._results.clear_labels()
        else:
            with self.panel.showing_errors():
                self.controller.start(self._request())

    def _request(self) -> RunJob:
        method, job = self.form.read(), self._results.job()
        result = self._results.begin(job.pixels.index)
        goes_on = self.warm_start.isChecked() or self.automatic.corrects
        note = self.input.read().note(uses_window=method.uses_window)
        return RunJob(
            result.image,
            job,
            method,
            result.live.placement,
            live=result.live,
            strokes=result.strokes,
            start=result.warm_start if goes_on else None,
            note="\n".join(filter(None, [note, self.automatic.note])),
        )

    def _follow_strokes(self) -> None:
        """Label the image anew, unless that was done with these strokes."""
        if self.follow.isChecked() and self._results.are_old:
            self.start()
        else:
            self._check()

    def _apply(self, request: ApplyRequest) -> None:
        with self.panel.showing_errors():
            start_applying(
                self.panel,
                self._viewer,
                request,
                self._results.classifier(),
                self.result,
                title=TITLE,
                strokes=self.input.strokes,
            )

    def _save_classifier(self, path: str, rescale: bool) -> None:
        with self.panel.showing_errors():
            prototypes = self._results.classifier().with_rescale(rescale).prototypes
            assert prototypes is not None
            save_classifier(self.panel, path, prototypes)

    def _on_strokes_chosen(self) -> None:
        self.strokes.follow(self.input.strokes)
        self._index = self._results.index
        self.panel.forget_error()
        self.classes.locked.clear()
        self.classes.refresh()
        self._results.show_shares()
        self._check()

    def _on_strokes_changed(self) -> None:
        self.workspace.autosave_soon()
        self.classes.refresh()
        self._follow_strokes()

    def _on_image_chosen(self) -> None:
        self.controller.stop()
        self._results.finite_only = False
        self._chooser.drop()
        self.automatic.start_anew()
        if self.input.image is not None:
            strokes = self._results.fitting_strokes()
            if strokes != self.input.strokes:
                self.input.choose(strokes=strokes)
        self._index = self._results.index
        self.applying.image.refresh()
        self._check()
        self._results.show_current()

    def _on_base_chosen(self) -> None:
        base = self.base.layer
        if base is None or self.input.image is None:
            return
        if self.input.strokes is None:
            self.new_strokes()
            self.strokes.names.clear()
            self.strokes.layer.colormap = base.colormap
        with self.panel.showing_errors():
            self._results.job()
            for number in np.unique(above_0(self._results.read(base))):
                self.strokes.names.setdefault(int(number), f"label {number}")
            self.classes.refresh()
            self.start()

    def _on_lock_toggled(self, number: int, locked: bool) -> None:
        self._results.lock(locked)
        if not locked:
            self._follow_strokes()

    def _on_region_changed(self) -> None:
        previous, self._index = self._index, self._results.index
        if self._index != previous and self.input.strokes is not None:
            self._results.show_current()
            if self._results.current is not None:
                self._follow_strokes()
            else:
                self._check()

    def _turn_to(self, image: Image, strokes: Labels | None) -> None:
        self.input.choose(image=image, strokes=strokes)

    def _on_form_changed(self, *changed: object) -> None:
        with contextlib.suppress(SafError):
            uses_window = self.form.read().uses_window
            self._method.show_row(self.input.scale, uses_window)
            self.input.show_row("weights", uses_window)
        self._check()

    def _check(self, *changed: object) -> None:
        self._results.check()
        self._refresh()

    def _refresh(self, *changed: object) -> None:
        self.next_row.refresh()
        self.tools.refresh()
        self.buttons["suggest"].setEnabled(self.input.strokes is not None)
        reason, busy = self._results.why_disabled, BUSY if self.panel.is_busy else ""
        self.panel.set_reason(reason)
        is_unpainted = bool(reason) and self.result is None
        why_not = "paint strokes of two classes first" if is_unpainted else busy
        self.applying.update_enabled(why_not, why_not)


def _outcome_text(result: Segmentation, seconds: float) -> str:
    return f"{STATUS_TEXTS[result.status]} in {seconds:.2g} s"
