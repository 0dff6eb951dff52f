"""The Scribbles dock: label the whole image by a few painted strokes."""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial
from typing import Any

import napari
from napari.layers import Image, Labels
from qtpy.QtWidgets import QCheckBox

from napari_saf._gui.docks.apply import BUSY, ApplyDialog
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
from napari_saf._gui.scribbles.automatic import AutomaticSettings, StrokeChooser
from napari_saf._gui.scribbles.results import StrokeResults
from napari_saf._gui.scribbles.strokes import Strokes, StrokeTools
from napari_saf.errors import SafError
from napari_saf.methods import METHODS, AbstractMethod, SweepMethod, stroke_choices
from napari_saf.problem import ImageOptions
from napari_saf.result import STATUS_TEXTS

DEFAULT_OPTIONS = stroke_choices()["object"].options
"""Initial options, chosen with ``benchmarks/scribbles.py choices``."""
_SUGGEST_HELP = "Mark the most uncertain spot, where a stroke helps most (Shift+S)."
_RUN_HELP = f"Label the image by the current strokes ({RUN_KEY_TEXT})."
_SCALE_HELP = "Side of the window that labels are averaged over, in pixels at the working size (N)."
_BASE_HELP = "Labels of an earlier run become classes, which strokes merge and split."
_WARM_START_HELP = (
    "Labels change only near strokes that contradict them, and where the image looks similar."
)
_UNCERTAINTY_HELP = "Show how uncertain each pixel is: bright where a stroke helps most."
_APPLY_HELP = "Label another image or a folder by the appearance of the classes in this image."


class ScribblesWidget(DockBase):
    """Dock to paint strokes of two or more classes, which label all other pixels."""

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
            outcome_text=lambda result, seconds: (
                f"{STATUS_TEXTS[result.status]} in {seconds:.2g} s"
            ),
        )
        self.status, self.controller = self.panel.status, self.panel.controller
        offered = [method for method in METHODS.values() if not issubclass(method, SweepMethod)]
        offered.sort(key=lambda method: not method().follows_seeds)
        self.form = MethodForm(viewer, offered, asks_prototypes=False, for_strokes=True)
        self.automatic = AutomaticSettings(self.input, self.form)
        self.kept_parts = self.input, self.form, self.automatic
        self.base = LayerChoice(viewer, Labels, none="nothing")  # labels to start from
        self.warm_start = QCheckBox("Continue from last labels")
        self.follow, self.uncertainty = QCheckBox("Follow"), QCheckBox("Uncertainty")
        self.tools = StrokeTools(viewer, self.panel, self.input, self.strokes)
        self.classes, self.box = self.tools.classes, self.tools.box
        self.new_strokes, self.add_class = self.tools.new_strokes, self.tools.add_class
        self._results = StrokeResults(
            viewer, self.panel, self.input, self.form, self.base, self.classes
        )
        self._chooser = StrokeChooser(self.panel, self.automatic, self._results)
        dims = dims_of(viewer).events
        self._slices = EventWatch(self, 100, (dims.current_step, dims.order))
        self._index: Any = None  # region that the dock labels
        self._add_controls()
        self._connect_controls()
        self._on_form_changed()
        self._on_strokes_chosen()

    def _add_controls(self) -> None:
        suggest = create_button("Suggest spot", _SUGGEST_HELP, self.suggest)
        self.buttons = self.tools.buttons | {"suggest": suggest}
        self.buttons["update_labels"] = self.panel.run_button
        self.follow.setChecked(True)
        self.follow.setToolTip("Update the labels after every stroke, undo and redo.")
        self.uncertainty.setToolTip(_UNCERTAINTY_HELP)
        self._method, start_rows = FormSection(), FormSection()
        self._method.add_row("Method", self.form.box, "How the strokes are propagated.")
        self._method.add_row("Automatic", self.automatic, self.automatic.toolTip())
        self._method.add_row("Scale", self.input.scale, _SCALE_HELP)
        start_rows.add_row("Start from", self.base, _BASE_HELP)
        start_rows.add_row("", self.warm_start, _WARM_START_HELP)
        images = lambda x: is_given(x) and x != self.input.image, "choose an image"
        self.applying = ApplyDialog(
            self, self._viewer, self.panel, _APPLY_HELP, *images, has_classifier=True
        )
        self.next_row = NextRow(self.workspace, lambda: self.result)
        self.large = LargeSection(self._viewer, self.input, self._results.learner)
        row = create_row(self.follow, self.uncertainty, suggest)
        parts = [self.input.section, self.tools, row, self._method, self.form.basic]
        parts += [create_fold("Start from labels", start_rows), self.next_row, self.applying.row]
        parts.append(create_fold("Features", self.input.features))
        parts.append(create_fold("Advanced", self.form.advanced))
        buttons = [self.panel.run_button, self.panel.stop_button]
        self.lay_out(parts, buttons, [self.status, self.large])

    def _connect_controls(self) -> None:
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
            (self.applying.apply_asked, self._results.apply),
            (self.applying.save_asked, self._results.save_classifier),
            (self.applying.changed, self._refresh),
            (self.uncertainty.toggled, self._results.show_uncertainty),
            (self.base.layer_changed, self._on_base_chosen),
            (self.tools.box_drawn, self._results.paint_box),
            (self.box.ended, self._results.show_current),
            (self.tools.restored, self.start),
            (self.form.changed, self._on_form_changed),
            (self.automatic.switched, self.start),
            (self._chooser.changed, self.start),
            (self.input.strokes_changed, self._on_strokes_chosen),
            (self.input.choices["extent"].activated, self._follow_strokes),
            (self.input.image_changed, self._on_image_chosen),
            (self.input.axes_changed, self._on_region_changed),
            (self.input.options_changed, self._check),
            (self._slices.changed, self._on_region_changed),
            (dims_of(self._viewer).events.axis_labels, self.input.read_axis_names),
            (self.strokes.changed, self._on_strokes_changed),
            (self.workspace.session.shown, self._turn_to),
            (self._viewer.layers.events.removed, self._on_layer_removed),
            (self._viewer.layers.events.inserted, self._results.show_shares),
            (self.classes.recolored, self.workspace.autosave_soon),
            (self.classes.renamed, self.workspace.autosave_soon),
            (self.classes.lock_toggled, self._on_lock_toggled),
        )

    def settings(self) -> tuple[AbstractMethod, ImageOptions]:
        """Return method and options, for the Project dock; raise SafError if one is invalid."""
        chosen = self.input.read()
        options = dataclasses.replace(chosen.whole_options(), max_side=chosen.options.max_side)
        return self.form.read(), options

    @property
    def result(self) -> Any:
        """The displayed Labels layer; None without a result."""
        return self._results.layer

    def suggest(self) -> None:
        """Mark the most uncertain spot, or show why there is none."""
        if self._results.suggest():
            self.panel.hint("paint in the ring, where a stroke helps most")
        elif self.panel.subject is not Subject.ERROR and not self.controller.is_running:
            self.panel.hint(self._results.why_no_ring())

    def update_labels(self) -> None:
        self.controller.reader.forget()
        self.automatic.reader.forget()
        self.start()

    def start(self, is_chosen: bool = False) -> None:
        """Label the image by the current strokes, or show what is missing.

        `is_chosen` is whether the settings were just chosen by these strokes.
        """
        self._chooser.drop()
        self._check()
        if self._results.state.fault:
            self.panel.show_error(self._results.why_disabled)
        elif self._results.why_disabled:
            self._results.clear_labels()
        elif is_chosen or not self._chooser.choose_first():
            continues = self.warm_start.isChecked() or self.automatic.corrects
            with self.panel.showing_errors():
                job = self._results.request(continues, self.automatic.note, self.automatic.name)
                if is_chosen:
                    self._chooser.settle(job)
                self.controller.start(job)

    def _follow_strokes(self, *changed: object) -> None:
        """Update the labels, unless they follow the current strokes."""
        if self.follow.isChecked() and self._results.are_old:
            self.start()
        else:
            self._check()

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
        self._results.hide_ring()
        self._follow_strokes()

    def _on_image_chosen(self) -> None:
        self.controller.stop()
        self._results.finite_only = False
        self._chooser.drop()
        if self.input.image is not None:
            self.input.choose(strokes=self._results.fitting_strokes())
        self.automatic.start_anew(self._results.choice)
        self._index = self._results.index
        self.applying.image.refresh()
        self._on_region_shown()

    def _on_layer_removed(self, event: Any) -> None:
        self.tools.take_removal(event)
        self._results.take_removal(event)
        self._refresh()

    def _on_base_chosen(self) -> None:
        base = self.base.layer
        if base is None or self.input.image is None:
            return
        if self.input.strokes is None:
            self.tools.new_strokes_for(base)
        with self.panel.showing_errors():
            self._results.job()
            self.strokes.name_labels(self._results.read(base))
            self.classes.refresh()
            self.start()

    def _on_lock_toggled(self, number: int, locked: bool) -> None:
        self._results.lock(locked)
        if not locked:
            self._follow_strokes()

    def _on_region_changed(self) -> None:
        previous, self._index = self._index, self._results.index
        if self._index != previous and self.input.strokes is not None:
            self._on_region_shown()

    def _on_region_shown(self) -> None:
        """Show the state of the labels in view; update them, unless a project kept them."""
        self._results.show_current()
        if self._results.current is None or self._results.are_kept:
            self._check()
        else:
            self._follow_strokes()

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
        self._results.show_age()

    def _refresh(self, *changed: object) -> None:
        self.next_row.refresh()
        self.tools.refresh()
        self.buttons["suggest"].setEnabled(self.input.strokes is not None)
        reason, busy = self._results.why_disabled, BUSY if self.panel.is_busy else ""
        self.panel.set_reason(reason)
        is_unpainted = bool(reason) and self.result is None
        why_not = "paint strokes of two classes first" if is_unpainted else busy
        self.applying.update_enabled(why_not, why_not)
