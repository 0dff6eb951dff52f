"""The Compare dock: several methods or a grid of parameter values on one image."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import napari

from napari_saf._gui.compare.choice import ComparisonChoice, ComparisonJob, whole_name
from napari_saf._gui.compare.results import ChangeQueue, ComparisonLayers, ComparisonTable
from napari_saf._gui.compare.truth import TruthSection
from napari_saf._gui.docks.base import DockBase
from napari_saf._gui.forms.choices import Choice
from napari_saf._gui.forms.controls import Swatches, ask_for_path
from napari_saf._gui.forms.display_text import describe_error, named
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_button, create_fold, create_row
from napari_saf._gui.layers.placement import image_folder
from napari_saf._gui.layers.view import SideBySide
from napari_saf._gui.runs.panel import RUN_KEY, RUN_KEY_TEXT, RunPanel
from napari_saf.comparison import Compared, save_comparison
from napari_saf.errors import InvalidInput, SafError, counted
from napari_saf.io import file_stem
from napari_saf.methods import AbstractMethod, SweepMethod

_RUN_HELP = f"Run every combination, one after another ({RUN_KEY_TEXT})."
_STOP_HELP = f"End with the results that are finished ({RUN_KEY_TEXT})."
_SCALE_HELP = "Side of the window over which labels are averaged, where it does not vary (N)."
_PAINT = (("mean colour", "mean"), ("clear colour", "palette"))
_PAINT_HELP = "Label colours in the saved picture: mean colours in the image, or as in the layers."
_FILTERS = "Picture (*.png *.svg *.pdf);;Table (*.csv)"


class CompareWidget(DockBase):
    """Runs variants on an image, and shows results side by side with their measures.

    `outcome` is the last finished job, `results` its layers, which are added one per turn of the
    event loop.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self.outcome: ComparisonJob | None = None
        self.results: ComparisonLayers | None = None
        self._why_not = self._scale_note = ""
        self.input, self.choice = ImageInput(viewer), ComparisonChoice()
        self.kept_parts = (self.input,)
        self.panel = RunPanel(
            self, viewer, self.workspace.runs, ("Compare", _RUN_HELP), chosen=self.input
        )
        self.status, self.controller = self.panel.status, self.panel.controller
        self.run_button = self.panel.run_button
        self._changes = ChangeQueue(self, self.panel.set_showing)  # of layers
        self.scoring = TruthSection(viewer, self.panel)
        self.truth = self.scoring.truth
        self.table, self.swatches, self._paint = ComparisonTable(), Swatches(), Choice(_PAINT)
        self._side = SideBySide(viewer, self._on_grid_left)
        self._lay_out_controls()
        self.bind_keys({RUN_KEY: self.panel.run_or_stop})
        self.at_end(self.panel.shut_down, self._release, self.scoring.release)
        self.connect_all(
            (self.panel.run_clicked, self.start),
            (self.panel.repeat_asked, self._begin),
            (self.panel.busy_changed, self._refresh),
            (self.choice.changed, self._on_choice_changed),
            (self.input.image_changed, self._on_choice_changed),
            (self.table.row_chosen, self._on_row_chosen),
            (self.truth.layer_changed, self._on_truth_changed),
            (viewer.layers.events.removed, self._on_layer_removed),
        )
        self._on_choice_changed()
        self._refresh()

    def _lay_out_controls(self) -> None:
        self.panel.stop_button.setToolTip(_STOP_HELP)
        help = "Show the results in napari's grid, or leave it."
        self._side_button = create_button("Side by side", help, self.show_side_by_side)
        self._side_button.setCheckable(True)
        help = "Save a picture or the table."
        self._save_button = create_button("Save …", help, self._ask_to_save)
        self._paint.setToolTip(_PAINT_HELP)
        self._rows = FormSection()
        self._rows.add_row("Scale", self.input.scale, _SCALE_HELP)
        features = create_fold("Features", self.input.features)
        methods, truth = create_fold("Methods", self.choice), create_fold("Truth", self.scoring)
        methods.expand(animate=False)
        truth.toggled.connect(lambda is_open: is_open and methods.collapse(animate=False))
        below = create_row(self._side_button, self._save_button, self._paint)
        for column, stretch in enumerate((3, 2, 4)):
            below.layout().setStretch(column, stretch)
        self.lay_out(
            [self.input.section, methods, self._rows, features, truth],
            [self.run_button, self.panel.stop_button],
            [self.status, self.table, self.swatches, below],
        )

    def start(self) -> None:
        if not self.panel.is_busy:
            with self.panel.showing_errors():
                self._begin(self._job())

    def save_to(self, path: str) -> None:
        """Save a figure or a table by the suffix, by default .png."""
        outcome, layers = self.outcome, self.results
        if outcome is None or layers is None:
            return
        target = Path(path)
        target = target if target.suffix else target.with_name(f"{target.name}.png")
        job = outcome.image_job
        save = partial(
            save_comparison,
            target,
            outcome.comparison,
            truth=outcome.truth,
            paint=self._paint.value,
            colors={n: layers.color(n) for n in range(1, outcome.comparison.n_numbers + 1)},
            channel_axis=job.options.channel_axis,
            title=layers.image.name,
            names=[layers.names[result.variant] for result in outcome.comparison.results],
        )
        self.panel.begin_task(
            "saving",
            lambda report, cancelled: save(job.pixels.read(cancelled)),
            lambda path: self.panel.show_outcome(f"saved {named(path)}"),
        )

    def show_side_by_side(self, visible: bool) -> None:
        """Show the results in grid mode, or end it."""
        outcome, layers = self.outcome, self.results
        if not visible:
            self._side.leave()
        elif outcome is not None and layers is not None:
            self._side.enter(*layers.grid(outcome.comparison, self.truth.layer))
        self._side_button.setChecked(self._side.is_on)

    def _release(self) -> None:
        self._changes.clear()
        self._side.release()
        self.results = self.outcome = None

    def _begin(self, job: ComparisonJob) -> None:
        is_fixed = "window" not in self.choice.axis_names
        uses_scale = is_fixed and any(variant.method.uses_window for variant in job.variants)
        self._scale_note = self.input.read().scale_note() if uses_scale else ""
        self._side.leave()
        if self.results is not None:
            self.results.hide()
        self.outcome = None
        self.table.show_rows([], [])
        self.swatches.show_swatches([])
        self.results = ComparisonLayers(
            self._viewer, job.region.image, job.region.placement, job.variants
        )
        truth = job.region.over(self.truth.layer)
        self.panel.begin_task(
            "comparing",
            lambda report, cancelled: job.run(truth, report, cancelled),
            self._on_compared,
            self._on_reported,
            masked=job.masked(),
        )

    def _job(self) -> ComparisonJob:
        """Return the job of the form, with the method of the Segment dock if so chosen."""
        configured: dict[str, AbstractMethod] = {}
        if self.choice.settings.value:
            segment = self.workspace.docks.get("Segment")
            if segment is None:
                raise InvalidInput("settings: open the Segment dock, or choose the defaults")
            method = segment.form.read()
            configured = {method.name: method}
        selection = self.input.read()
        job = selection.job()
        return ComparisonJob(job, selection.region(), self.choice.variants(job.options, configured))

    def _on_choice_changed(self, layer: object = None) -> None:
        self.panel.forget_error()
        spreads = any(issubclass(method, SweepMethod) for method in self.choice.methods)
        self.input.show_row("groups", spreads)
        self._rows.show_row(self.input.scale, "window" not in self.choice.axis_names)
        n_runs, self._why_not = 0, ""
        try:
            n_runs = len(self._job().variants)
        except SafError as error:
            if not self.choice.settings.value:  # settings of Segment are checked on run
                self._why_not = describe_error(error)
        self.run_button.setText(f"Compare {n_runs} runs" if n_runs > 1 else "Compare")
        self._refresh()

    def _on_reported(self, report: Any) -> None:
        if isinstance(report, Compared):
            assert self.results is not None
            self._changes.add(partial(self.results.add, report))
        else:
            fraction, name = report
            self.panel.show_task((fraction, f"{100 * fraction:.0f} %   {name}"))

    def _on_compared(self, outcome: ComparisonJob) -> None:
        assert self.panel.task is not None and self.results is not None
        comparison, show = outcome.comparison, self.results.renumber
        finish = partial(self._finish, outcome, self.panel.task.seconds)
        changes = [partial(show, result, comparison.n_numbers) for result in comparison.results]
        self._changes.add(*changes, finish)

    def _finish(self, outcome: ComparisonJob, seconds: float) -> None:
        assert self.results is not None
        self.results.sort()
        comparison = outcome.comparison
        count = len(comparison.results)
        image = "" if self._is_of_image else f"{self.results.image.name}: "
        lines = [
            f"{image}{counted(count, 'result')} in {seconds:.1f} s",
            self._scale_note,
            *(f"not run: {whole_name(v)}: {error}" for v, error in comparison.failures),
            "" if comparison.is_complete else "stopped before the remaining runs",
            self.results.note,
        ]
        self.panel.show_outcome("\n".join(filter(None, lines)), count / len(outcome.variants))
        self._show_results(outcome)
        if outcome.region.image not in self._viewer.layers:
            self.panel.clear()
        if count > 1:
            self.show_side_by_side(True)

    def _show_results(self, outcome: ComparisonJob) -> None:
        assert self.results is not None
        self.outcome = outcome
        variants = [result.variant for result in outcome.comparison.results]
        names = [(self.results.names[variant], whole_name(variant)) for variant in variants]
        self.table.show_rows(outcome.rows, names)

    def _on_truth_changed(self, layer: Any) -> None:
        """Measure existing results against the truth."""
        outcome = self.outcome
        if outcome is None or self.panel.is_busy:
            return
        truth = outcome.region.over(layer)

        def show(measured: ComparisonJob) -> None:
            if self.outcome is not None and measured.comparison is self.outcome.comparison:
                self._show_results(measured)

        self.panel.forget_error()
        self.panel.background.run("truth", partial(outcome.with_truth, truth), show)

    def _on_row_chosen(self, number: int) -> None:
        """Select the layer of a result and show its labels, extinct ones crossed out."""
        outcome, layers = self.outcome, self.results
        if outcome is None or layers is None:
            return
        self.swatches.show_swatches(layers.swatches(outcome.comparison, number))
        chosen = layers.layer(outcome.comparison.results[number].variant)
        if chosen is None:
            return
        if not self._side.is_on:
            self.scoring.hide_errors()
            layers.show_only(chosen)
        self._viewer.layers.selection.select_only(chosen)

    def _on_grid_left(self, has_newer_labels: bool) -> None:
        self._side_button.setChecked(False)
        if self.table.chosen is not None and not has_newer_labels:
            self._on_row_chosen(self.table.chosen)

    def _ask_to_save(self) -> None:
        name = f"{file_stem(self.results.image.name)}_comparison.png" if self.results else ""
        start = str(image_folder(self._viewer) / name)
        ask_for_path(self, "Save comparison", start, _FILTERS, self.save_to)

    def _on_layer_removed(self, event: Any) -> None:
        is_needed = self.results is not None and event.value == self.results.image
        if is_needed and self.panel.task is not None:
            self.panel.stop()

    @property
    def _is_of_image(self) -> bool:
        return self.results is not None and self.results.image == self.input.image

    def _refresh(self, *changed: object) -> None:
        is_there = self.outcome is not None and self._is_of_image
        for results in (self.table, self.swatches):
            results.setVisible(is_there)
        is_free = not self.panel.is_busy
        is_done = is_there and is_free
        self.panel.set_reason(self._why_not, is_free=is_free)
        self._side_button.setEnabled(is_done)
        self._save_button.setEnabled(is_done)
