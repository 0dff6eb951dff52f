"""The Truth section: scores of a Labels layer against a true one, and a layer of errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import napari
import numpy as np
from napari.layers import Labels, Tracks
from numpy.typing import NDArray
from qtpy.QtWidgets import QCheckBox, QLabel, QTableView, QVBoxLayout, QWidget
from scipy.ndimage import center_of_mass
from scipy.spatial import KDTree

from napari_saf._gui.docks.tables import TableSection, to_qcolor
from napari_saf._gui.forms.choices import Choice, LayerChoice
from napari_saf._gui.forms.controls import ask_for_path
from napari_saf._gui.forms.display_text import named
from napari_saf._gui.forms.layout import FormSection, create_button, create_row, enable, fill_layout
from napari_saf._gui.layers.live import colormap_of
from napari_saf._gui.layers.metadata import NAMES_KEY, SCORE_KEY
from napari_saf._gui.layers.placement import image_folder, pixels_of, place, world_affine
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.layers.view import selection_kept, set_visible, visibility_of
from napari_saf._gui.napari_workarounds import grid_of
from napari_saf._gui.runs.panel import RunPanel
from napari_saf.errors import InvalidInput
from napari_saf.io import file_stem
from napari_saf.methods import Cancelled
from napari_saf.scoring import ERROR_COLORS, Score, ScoreKind, save_score_figure, score

_KINDS = {
    "pixels": "Labels are classes of pixels: confusion, IoU, F1, borders.",
    "objects": "Labels are numbers of objects: AP and F1 by overlap, split and merged.",
    "classes": "Classes of the matched objects: those of an objects layer, or the labels, "
    "whose connected regions are the objects.",
    "tracks": "Labels are numbers of tracks, frames along the first axis, or of objects that a "
    "Tracks layer links: TRA and DET (needs py-ctcmetrics).",
}
_SCORE_HELP = "Score the labels, and show missed and false pixels as a layer."
_HEADLINES = ("accuracy", "TRA", "F1 at 0.5")
"""The first available of these is shown in the status."""
_N_ROWS = 8
"""Number of visible rows of the table."""
_FIGURES = "Figure (*.png *.svg *.pdf)"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoreJob:
    """The layers to score and the kind of score, as read from the form."""

    labels: Labels
    truth: Labels
    kind: ScoreKind
    ignore: int | None
    tracks: Tracks | None
    true_tracks: Tracks | None

    def run(self, report: Callable[[object], None], cancelled: Callable[[], bool]) -> Score:
        """Read both layers and score them, in a worker thread."""
        labels, truth = (
            Pixels(pixels_of(layer)).read(cancelled) for layer in (self.labels, self.truth)
        )
        if self.kind == "tracks":
            labels, parents = _as_tracks(labels, self.labels, self.tracks)
            truth, true_parents = _as_tracks(truth, self.truth, self.true_tracks)
            scores = score(labels, truth, "tracks", parents=parents, true_parents=true_parents)
        else:
            of_objects = self.kind == "classes"
            scores = score(
                labels,
                truth,
                self.kind,
                ignore=self.ignore,
                classes=_classes_of(self.labels) if of_objects else None,
                true_classes=_classes_of(self.truth) if of_objects else None,
            )
        if cancelled():
            raise Cancelled
        return scores


def why_no_score(labels: Labels | None, truth: Labels | None, kind: ScoreKind = "pixels") -> str:
    """Return the reason why labels cannot be scored against a truth; empty if they can."""
    if truth is None:
        return "choose a truth: a Labels layer"
    if labels is None or labels is truth:
        return "choose labels other than the truth"
    shape, expected = (tuple(pixels_of(layer).shape) for layer in (labels, truth))
    if shape != expected:
        return f"{labels.name} has the shape {shape}, {truth.name} {expected}"
    if not np.allclose(world_affine(labels), world_affine(truth)):
        return f"{labels.name} and {truth.name} differ in scale or position"
    if kind == "tracks" and len(shape) < 3:
        return f"tracks: expected frames along the first axis, {labels.name} has the shape {shape}"
    return ""


class TruthSection(QWidget):
    """The form, its button, the table of scores, and a legend of the layer of errors."""

    def __init__(self, viewer: napari.Viewer, panel: RunPanel) -> None:
        super().__init__()
        self._viewer, self._panel = viewer, panel
        self.score: Score | None = None
        self._folder, self._layer = Path(), None
        self.truth = LayerChoice(viewer, Labels, _is_no_score, none="none")
        self.labels = LayerChoice(viewer, Labels, _is_no_score)
        self.kind = Choice([(kind, kind) for kind in _KINDS])
        self.unknown = QCheckBox("0 is not labelled")
        self.tracks = LayerChoice(viewer, Tracks, none="by number")
        self.true_tracks = LayerChoice(viewer, Tracks, none="by number")
        self.button = create_button("Score", _SCORE_HELP, self.start)
        help = "Save the figure of the scores and errors (.png, .svg, .pdf)."
        self.figure_button = create_button("Save figure …", help, self._ask_to_save)
        self.legend, self.table = QLabel(wordWrap=True), TableSection(panel.status)
        self.table.view.setSelectionMode(QTableView.SelectionMode.NoSelection)
        self.table.view.setToolTip("The scores; a click on a heading sorts them.")
        self.table.view.horizontalHeader().setStretchLastSection(True)
        linking = "The Tracks layer that links the objects of the {}, including divisions."
        self._rows = FormSection()
        for text, field, help in (
            ("Truth", self.truth, "The true labels. Results of Compare are also measured against "
             "them, except where they are 0."),
            ("Labels", self.labels, "The labels that are scored."),
            ("Compare", self.kind, "What the labels represent."),
            ("", self.unknown, "Pixels that are 0 in the truth do not count."),
            ("Tracks", self.tracks, linking.format("labels")),
            ("True tracks", self.true_tracks, linking.format("truth")),
        ):  # fmt: skip
            self._rows.add_row(text, field, help)
        for kind, help in _KINDS.items():
            self.kind.explain(kind, help)
        buttons = create_row(self.button, self.figure_button)
        fill_layout(QVBoxLayout(self), self._rows, buttons, self.legend, self.table)
        for choice in (self.truth, self.labels, self.tracks, self.true_tracks):
            choice.layer_changed.connect(self._on_changed)
        self.kind.changed.connect(self._on_changed)
        self.unknown.toggled.connect(self._on_changed)
        panel.busy_changed.connect(self._refresh)
        self._on_changed()

    def start(self) -> None:
        labels, truth, kind = self.labels.layer, self.truth.layer, self.kind.value
        if self._panel.is_busy or why_no_score(labels, truth, kind):
            return
        ignore = 0 if kind == "pixels" and self.unknown.isChecked() else None
        job = ScoreJob(labels, truth, kind, ignore, self.tracks.layer, self.true_tracks.layer)
        self._panel.begin_task("scoring", job.run, lambda scores: self._show(job, scores))

    def save_to(self, path: str) -> None:
        """Save the figure; the suffix defaults to .png."""
        target, scores = Path(path), self.score
        target = target if target.suffix else target.with_name(f"{target.name}.png")
        if scores is not None:
            self._panel.begin_task(
                "saving",
                lambda report, cancelled: save_score_figure(target, scores),
                lambda saved: self._panel.show_outcome(f"saved {named(saved)}"),
            )

    def hide_errors(self) -> None:
        if self._layer in self._viewer.layers:
            set_visible(self._layer, False)

    def release(self) -> None:
        self.score = self._layer = None

    def _show(self, job: ScoreJob, scores: Score) -> None:
        self.score = scores
        source = job.labels.source.path
        folder = Path(source).parent if source else image_folder(self._viewer)
        self.table.path = folder / f"{file_stem(job.labels.name)}_score"
        self.table.show_table(scores.table, {})
        self.table.view.setFixedHeight(self.table.view.height_of(_N_ROWS))
        squares = [
            f"<span style='color:{to_qcolor(np.array(ERROR_COLORS[number])).name()}'>■</span> "
            f"{name}"
            for number, name in scores.error_names.items()
        ]
        self.legend.setText("<br>".join(["&nbsp;&nbsp; ".join(squares), *scores.notes]))
        self._show_layer(job, scores)
        values = dict(zip(scores.table["measure"], scores.table["value"], strict=True))
        measure = next(name for name in _HEADLINES if name in values)
        text = f"{job.labels.name} beside {job.truth.name}: {measure} = {values[measure]:.3f}"
        self._panel.show_outcome(text)
        self._refresh()

    def _show_layer(self, job: ScoreJob, scores: Score) -> None:
        """Show the errors as a layer, replacing an earlier one, and hide the scored layers."""
        layers, labels = self._viewer.layers, job.labels
        grid_of(self._viewer).enabled = False  # the errors lie over the image
        errors = scores.errors.reshape(pixels_of(labels).shape)
        with selection_kept(self._viewer):
            if self._layer in layers:
                layers.remove(self._layer)
            colors = np.array([(0, 0, 0, 0), *ERROR_COLORS.values()], np.float32)
            names = scores.error_names
            self._layer = self._viewer.add_labels(
                errors,
                name=f"{labels.name} [Score]",
                colormap=colormap_of(colors),
                metadata={SCORE_KEY: scores.kind, NAMES_KEY: names},
                features={"index": [*names], "score": [*names.values()]},
                **place(labels, tuple(range(labels.ndim)), {}).transform,
            )
        for layer in layers:  # their colours would mix with those of the errors
            if isinstance(layer, Labels) and layer != self._layer:
                visibility_of(self._viewer).hide(layer)

    def _on_changed(self, *changed: object) -> None:
        """Clear the scores of an earlier choice."""
        is_of_tracks = self.kind.value == "tracks"
        self._rows.show_row(self.unknown, self.kind.value == "pixels")
        self._rows.show_row(self.tracks, is_of_tracks)
        self._rows.show_row(self.true_tracks, is_of_tracks)
        self.kind.setToolTip(_KINDS[self.kind.value])
        self.score = None
        self.legend.setText("")
        self._refresh()

    def _refresh(self, *changed: object) -> None:
        reason = why_no_score(self.labels.layer, self.truth.layer, self.kind.value)
        enable(self.button, reason, _SCORE_HELP)
        if self._panel.is_busy:
            self.button.setEnabled(False)
        if self.score is None:
            self.table.show_reason(reason)
        has_score = self.score is not None
        self.legend.setVisible(has_score)
        self.table.setVisible(has_score or bool(reason))
        for button in self.table.buttons:
            button.setVisible(has_score)
        self.figure_button.setEnabled(has_score and not self._panel.is_busy)

    def _ask_to_save(self) -> None:
        ask_for_path(self, "Save figure", f"{self.table.path}.png", _FIGURES, self.save_to)


def _is_no_score(layer: Any) -> bool:
    return SCORE_KEY not in layer.metadata


def _classes_of(layer: Labels) -> dict[int, str] | None:
    """Return the class of each object from the features of a layer, or None."""
    table = layer.features
    column = next((name for name in ("class", "name") if name in table), None)
    if column is None or "index" not in table:
        return None
    pairs = zip(table["index"].tolist(), table[column].tolist(), strict=True)
    return {number: str(name) for number, name in pairs if name}


def _as_tracks(
    labels: NDArray[Any], layer: Labels, tracks: Tracks | None
) -> tuple[NDArray[Any], dict[int, int]]:
    """Return labels renumbered by the nearest track, and the parent of each track."""
    if tracks is None:
        return labels, {}
    n_axes = tracks.data.shape[1] - 1
    frames = labels.reshape(labels.shape[-n_axes:]) if n_axes < labels.ndim else labels
    if frames.ndim != n_axes:
        raise InvalidInput(f"tracks: expected {labels.ndim} axes, got {n_axes}")
    axes = [*range(layer.ndim - n_axes, layer.ndim), layer.ndim]
    to_labels = np.linalg.solve(world_affine(layer)[np.ix_(axes, axes)], world_affine(tracks))
    points = tracks.data[:, 1:] @ to_labels[:-1, :-1].T + to_labels[:-1, -1]
    numbered = np.zeros(frames.shape, np.int64)
    for k, frame in enumerate(frames):
        rows = np.flatnonzero(np.round(points[:, 0]) == k)
        numbers = np.unique(frame[frame > 0])
        if len(rows) and len(numbers):
            centres = center_of_mass(frame > 0, frame, numbers)
            nearest = KDTree(centres).query(points[rows, 1:])[1]
            track_of = np.zeros(int(numbers[-1]) + 1, np.int64)
            track_of[numbers[nearest]] = tracks.data[rows, 0]
            numbered[k] = track_of[frame]
    return numbered, {child: parents[0] for child, parents in tracks.graph.items()}
