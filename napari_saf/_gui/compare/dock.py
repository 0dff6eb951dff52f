"""The Compare dock: several methods, or a grid of values, on one image, side by side."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Labels
from qtpy.QtWidgets import QComboBox, QFileDialog, QHBoxLayout, QPushButton, QWidget

from napari_saf._gui.compare.choice import ComparisonChoice, whole_name
from napari_saf._gui.compare.results import ComparisonLayers, ComparisonTable
from napari_saf._gui.compare.work import ComparisonWork, Outcome, Progress
from napari_saf._gui.docks.run_dock import (
    RunDock,
    describe_error,
    suggested_action_for,
)
from napari_saf._gui.forms.choices import LayerChoice
from napari_saf._gui.forms.controls import Swatch, Swatches, fill_color
from napari_saf._gui.forms.image_input import ImageInput
from napari_saf._gui.forms.layout import FormSection, create_fold
from napari_saf._gui.layers.placement import pixels_of
from napari_saf._gui.layers.view import SideBySide
from napari_saf.comparison import Compared, lay_out
from napari_saf.errors import InvalidInput, SafError
from napari_saf.io import file_stem
from napari_saf.methods import METHODS, AbstractMethod, SweepMethod
from napari_saf.result import STATUS_TEXTS

_SCALE_HELP = "Side of the window over which labels are averaged, where it does not vary (N)."
_TRUTH_HELP = (
    "Regions as they should be, 0 where unknown: the table then says how well each result agrees."
)
_PAINT_HELP = (
    "Labels in the saved page or picture: the mean colour of the image, or those of the layers."
)
_FILTERS = "Page (*.html);;Picture (*.png *.svg *.pdf);;Table (*.csv)"


class CompareWidget(RunDock):
    """Choose an image and what to compare; run; see results side by side, and their numbers.

    Attributes
    ----------
    outcome : Outcome or None
        Of the last comparison.
    """

    def __init__(self, viewer: napari.viewer.Viewer) -> None:
        super().__init__(viewer)
        self._is_adding = False
        self.input, self.choice = ImageInput(viewer), ComparisonChoice()
        self.table, self.swatches = ComparisonTable(), Swatches()
        self.outcome: Outcome | None = None
        self._layers: ComparisonLayers | None = None
        self._progress: Progress | None = None
        self._scale_note = ""
        self._truth = LayerChoice(viewer, lambda layer: isinstance(layer, Labels), none="none")
        self._side = SideBySide(viewer, self._on_grid_left)
        self._create_controls()
        self._create_layout()
        self._connect()
        self._on_choice_changed()
        self._update_enabled()

    @property
    def is_busy(self) -> bool:
        """Whether work is under way, or its layers are being sorted."""
        return super().is_busy or self._is_adding

    def choose_truth(self, layer: Labels | None) -> None:
        """Choose the regions as they should be."""
        self._truth.choose(layer)

    def start(self) -> None:
        """Run what is asked for."""
        self._start(finite_only=False)

    def save_to(self, path: str) -> None:
        """Save a page, a picture or a table, by the suffix; none stands for a page."""
        outcome, layers = self.outcome, self._layers
        if outcome is None or layers is None:
            return
        target = Path(path)
        target = target if target.suffix else target.with_name(f"{target.name}.html")
        paint = self._paint.currentData()
        colors = {n: layers.color(n) for n in range(1, outcome.comparison.n_numbers + 1)}
        self.begin_task(
            "saving",
            lambda report, cancelled: outcome.save(target, paint, colors, cancelled),
            lambda saved: self.status.show_progress(1.0, f"saved {saved.name}"),
        )

    def show_side_by_side(self, wanted: bool) -> None:
        """Show the results in napari's grid, or leave it."""
        if not wanted:
            self._side.leave()
        elif self.outcome is not None and self._layers is not None:
            self._side.enter(*self._grid_of(self.outcome, self._layers))
        self._side_button.setChecked(self._side.is_on)

    def _release(self) -> None:
        self._viewer.layers.events.removed.disconnect(self._on_layer_removed)
        self._side.release()
        self.input.release()
        self._truth.disconnect_viewer()
        if self._layers is not None:
            self._layers.release()
        self._layers = self.outcome = None

    def _create_controls(self) -> None:
        key = self._key_of("run_or_stop")
        self._run_button = QPushButton("Compare")
        self._run_button.setToolTip(f"Run every combination, one after another ({key}).")
        self._stop_button.setToolTip(f"End with the results that are finished ({key}).")
        self._side_button, self._save_button = QPushButton("Side by side"), QPushButton("Save …")
        self._side_button.setCheckable(True)
        self._side_button.setToolTip("Show the results in napari's grid, or leave it.")
        self._save_button.setToolTip("Save a page, a picture or the table.")
        self._paint = QComboBox()
        self._paint.addItem("mean colour", "mean")
        self._paint.addItem("clear colour", "palette")
        self._paint.setToolTip(_PAINT_HELP)

    def _create_layout(self) -> None:
        self._rows = FormSection()
        self._rows.add_row("Scale", self.input.scale, _SCALE_HELP)
        self._rows.add_row("Truth", self._truth, _TRUTH_HELP)
        features = create_fold("Features", self.input.features)
        below = QWidget()
        layout = QHBoxLayout(below)
        layout.setContentsMargins(0, 0, 0, 0)
        for widget, stretch in ((self._side_button, 3), (self._save_button, 2), (self._paint, 4)):
            layout.addWidget(widget, stretch=stretch)
        self._lay_out(
            [self.input.section, self.choice, self._rows, features],
            [self._run_button, self._stop_button],
            [self.table, self.swatches, below],
        )

    def _connect(self) -> None:
        self._run_button.clicked.connect(self.start)
        self.status.suggested_action_clicked.connect(lambda: self._start(finite_only=True))
        self._side_button.clicked.connect(self.show_side_by_side)
        self._save_button.clicked.connect(self._on_save_clicked)
        self.choice.changed.connect(self._on_choice_changed)
        self.input.image_changed.connect(self._on_choice_changed)
        self.table.row_chosen.connect(self._on_row_chosen)
        self._truth.layer_changed.connect(self._on_truth_changed)
        self._viewer.layers.events.removed.connect(self._on_layer_removed)

    def _start(self, *, finite_only: bool) -> None:
        if self.input.image is None:
            self._show_error("no image: open or choose an image layer first")
            return
        with self._showing_errors():
            self._begin(self._work(finite_only=finite_only))

    def _begin(self, work: ComparisonWork) -> None:
        if self.is_busy:
            return
        is_given = "window" not in self.choice.axis_names
        uses_scale = is_given and any(variant.method.uses_window for variant in work.variants)
        self._scale_note = self.input.scale_note() if uses_scale else ""
        self._side.leave()
        if self._layers is not None:
            for layer in self._layers.layers():
                layer.visible = False
            self._layers.release()
        self.outcome = self._progress = None
        self.table.show_rows([], [])
        self.swatches.show_swatches([])
        self._layers = ComparisonLayers(
            self._viewer, self, self.input.image, self.input.region().placement, list(work.variants)
        )
        self.begin_task("comparing", work.run, self._on_compared, self._on_reported)

    def _work(self, *, finite_only: bool = False) -> ComparisonWork:
        job, truth = self.input.job(finite_only=finite_only), self._truth.layer
        variants = self.choice.variants(job.options, self._known_methods())
        regions = None if truth is None else pixels_of(truth)
        return ComparisonWork(job, variants, self.input.image.name, regions)

    def _known_methods(self) -> dict[str, AbstractMethod]:
        """Return the method of the Segment dock, if its parameters count."""
        if not self.choice.follows_segment:
            return {}
        chosen = [dock.chosen_method() for dock in self.window().findChildren(RunDock)]
        methods = [method for method in chosen if method is not None]
        if not methods:
            raise InvalidInput("settings: open the Segment dock, or choose the defaults")
        return {methods[-1].name: methods[-1]}

    def _on_choice_changed(self, layer: object = None) -> None:
        self._forget_error()
        spreads = any(issubclass(METHODS[name], SweepMethod) for name in self.choice.names)
        self.input.show_row("groups", spreads)
        self._rows.show_row(self.input.scale, "window" not in self.choice.axis_names)
        text = "Compare"
        if self.input.image is not None:
            with contextlib.suppress(SafError):
                n_runs = len(self._work().variants)
                text = f"Compare {n_runs} runs" if n_runs > 1 else text
        self._run_button.setText(text)

    def _on_reported(self, report: object) -> None:
        if isinstance(report, Compared) and self._layers is not None:
            self._layers.add(report)
        elif isinstance(report, Progress):
            self._progress = report
            self._on_clock()

    def _on_clock(self) -> None:
        progress, task = self._progress, self._task
        if progress is None or task is None or task.is_cancelled:
            super()._on_clock()
            return
        text = f"{100 * progress.fraction:.0f} %   {progress.name}   {task.seconds:.1f} s"
        self.status.show_progress(progress.fraction, text)

    def _on_compared(self, outcome: Outcome) -> None:
        seconds = 0.0 if self._task is None else self._task.seconds
        self._progress = None
        if self._layers is None:
            return
        self._is_adding = True
        self._layers.finish(outcome.comparison, lambda: self._on_layers_done(outcome))
        found = outcome.comparison
        count = len(found.results)
        text = [f"{count} result{'s' * (count != 1)} in {seconds:.1f} s"]
        text += [self._scale_note] * bool(self._scale_note)
        text += [f"not run: {whole_name(one.variant)}: {one.error}" for one in found.failures]
        text += ["stopped before the others"] * (not found.is_complete)
        self.status.show_progress(count / len(outcome.work.variants), "\n".join(text))

    def _on_layers_done(self, outcome: Outcome) -> None:
        self._is_adding = False
        self.outcome = outcome
        self._show_rows()
        self._update_enabled()
        if len(outcome.comparison.results) > 1:
            self.show_side_by_side(True)

    def _show_rows(self) -> None:
        if self.outcome is None or self._layers is None:
            return
        results = self.outcome.comparison.results
        names = [(self._layers.name(one.variant), whole_name(one.variant)) for one in results]
        rows = [
            dataclasses.replace(row, status=STATUS_TEXTS[result.status])
            for row, result in zip(self.outcome.rows, results, strict=True)
        ]
        self.table.show_rows(rows, names)

    def _on_truth_changed(self, layer: Any) -> None:
        """Measure the results that are there."""
        outcome = self.outcome
        if outcome is None or self.is_busy:
            return
        self._forget_error()
        data = None if layer is None else pixels_of(layer)
        self.run_in_background(
            "truth", lambda cancelled: outcome.with_truth(data, cancelled), self._on_measured
        )

    def _on_measured(self, outcome: Outcome) -> None:
        if self.outcome is not None and outcome.comparison is self.outcome.comparison:
            self.outcome = outcome
            self._show_rows()

    def _on_row_chosen(self, number: int) -> None:
        """Choose the layer of a result, and show its labels; those that died are crossed."""
        outcome, layers = self.outcome, self._layers
        if outcome is None or layers is None:
            return
        self._show_swatches(outcome, layers, number)
        layer = layers.layer(outcome.comparison.results[number].variant)
        if layer is None:
            return
        if not self._side.is_on:
            for other in layers.layers():
                other.visible = other == layer
        self._viewer.layers.selection.select_only(layer)

    def _show_swatches(self, outcome: Outcome, layers: ComparisonLayers, number: int) -> None:
        result = outcome.comparison.results[number]
        dead = set(outcome.comparison.dead(number).tolist())
        swatches = []
        for label in range(1, outcome.comparison.n_numbers + 1):
            border = np.asarray(layers.color(label))
            fill = fill_color(result.prototypes[label - 1], result.variant.options.features, border)
            share = result.sizes[label - 1] / result.labels.size
            text = f"label {label}: {100 * share:.1f} % of the pixels"
            text = f"label {label}: died out here, others have it" if label in dead else text
            swatches.append(Swatch(fill, border, text, label in dead))
        self.swatches.show_swatches(swatches)

    def _grid_of(
        self, outcome: Outcome, layers: ComparisonLayers
    ) -> tuple[list[Any], tuple[int, int]]:
        """Return the layers for the grid, and its shape.

        A full table of two parameters is shown as such; else image and truth come first.
        """
        variants = [result.variant for result in outcome.comparison.results]
        shown = [layer for layer in map(layers.layer, variants) if layer is not None]
        layout = lay_out(variants)
        if layout.is_table and len(shown) == len(variants):
            return shown, (layout.n_rows, layout.n_columns)
        wanted = [layers.image, self._truth.layer, *shown]
        return [layer for layer in self._viewer.layers if layer in wanted], (-1, -1)

    def _on_grid_left(self) -> None:
        self._side_button.setChecked(False)
        if self.table.chosen is not None:
            self._on_row_chosen(self.table.chosen)

    def _on_save_clicked(self) -> None:
        name = f"{file_stem(self.outcome.work.title)}_comparison.html" if self.outcome else ""
        path, _ = QFileDialog.getSaveFileName(
            self, "Save comparison", str(Path.cwd() / name), _FILTERS
        )
        if path:
            self.save_to(path)

    def _on_layer_removed(self, event: Any) -> None:
        is_needed = self._layers is not None and event.value == self._layers.image
        if is_needed and self._task is not None:
            self._on_stop_clicked()

    def _on_failed(self, error: Exception) -> None:
        self._show_error(describe_error(error), suggested_action_for(error))

    def _update_enabled(self) -> None:
        super()._update_enabled()
        is_done = self.outcome is not None and not self.is_busy
        self._run_button.setEnabled(not self.is_busy)
        self._side_button.setEnabled(is_done)
        self._save_button.setEnabled(is_done)
