"""The form of the Objects dock: labels, image, kinds and split parameters."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from functools import partial
from typing import Any

import napari
import numpy as np
from napari.layers import Image, Labels
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox, QPushButton, QWidget

from napari_saf._gui.docks.apply import BUSY
from napari_saf._gui.docks.tables import LabelList
from napari_saf._gui.forms.choices import Choice, LayerChoice
from napari_saf._gui.forms.layout import FormSection, create_fold, create_row, enable
from napari_saf._gui.forms.method_form import OptionsForm
from napari_saf._gui.layers.metadata import (
    OBJECTS_KEY,
    carry_objects,
    labels_to_choose,
    recipe_of,
)
from napari_saf._gui.layers.placement import (
    image_region,
    labelled_axes,
    labelled_image,
    pixels_of,
    slice_word,
    squeezed_axes,
)
from napari_saf._gui.layers.reading import Pixels
from napari_saf._gui.objects.corrections import NUMBERS
from napari_saf._gui.objects.layers import Source
from napari_saf._gui.runs.task import BackgroundTasks
from napari_saf.errors import SafError, counted
from napari_saf.features import Foreground
from napari_saf.io import count_labels
from napari_saf.objects import TRACK_BY, ObjectStep
from napari_saf.parameters import describe, to_plain

_OF_RUN = "that of the run, if known"
_TONES = (
    "Tones of an object are objects of their own: tick a single label, or set Labels up to 2 in "
    "Segment."
)
_HELP = {
    "image": "For the brightness of objects, which are also split at its edges.",
    "uncertainty": "Objects are also split where labels are uncertain (0 to 1). That of the run is "
    "known for labels computed from strokes.",
    "track": "Track objects through the slices of a time series, by distance of centroids or, for "
    "long or large objects, by overlap (needs laptrack). A track has one class.",
}


class ObjectForm(QObject):
    """Choices of layers, kinds and parameters; kinds are counted in the background."""

    labels_changed = Signal()
    image_changed = Signal()
    kinds_changed = Signal()
    """Emitted when the kinds, or the use of slices or of the uncertainty, change."""

    def __init__(
        self, viewer: napari.viewer.Viewer, background: BackgroundTasks, track: QPushButton
    ) -> None:
        super().__init__()
        self._viewer, self._background = viewer, background
        self.labels = LayerChoice(viewer, Labels, is_kinds)
        self.labels.choose(labels_to_choose(viewer))
        self.image = LayerChoice(viewer, Image, self.fits, none="none")
        self.uncertainty = LayerChoice(viewer, Image, self.fits, none=_OF_RUN)
        self.uncertainty.set_others([(_OF_RUN, None), ("none", "none")])
        self.kinds, self.slices = LabelList(), QCheckBox("each by itself")
        self._is_counted = False
        self.split_form = OptionsForm(viewer, FormSection(), FormSection())
        self.track_by = Choice([(measure, measure) for measure in TRACK_BY])
        self._track = track
        self._frames = create_row(track, self.track_by)
        self._frames.layout().setStretch(1, 2)  # keeps "distance" legible
        rows, self._advanced = self.split_form.basic, self.split_form.advanced
        rows.add_row("Labels", self.labels, "The Labels layer whose labels are the kinds.")
        rows.add_row("Image", self.image, _HELP["image"])
        rows.add_row("Kinds", self.kinds, "The labels to split into objects.")
        rows.add_row("Slices", self.slices, "Split and measure each slice alone, not the volume.")
        self.split_form.ask_for(ObjectStep, [x for x in describe(ObjectStep) if x.name in NUMBERS])
        self._advanced.add_row("Uncertainty", self.uncertainty, _HELP["uncertainty"])
        rows.add_row("Frames", self._frames, _HELP["track"])
        self.labels.layer_changed.connect(self.take_labels)
        self.image.layer_changed.connect(self.image_changed)
        for signal in (self.uncertainty.layer_changed, self.kinds.itemChanged, self.slices.toggled):
            signal.connect(self.kinds_changed)

    @property
    def sections(self) -> list[QWidget]:
        return [self.split_form.basic, create_fold("Advanced", self._advanced)]

    @property
    def numbers(self) -> tuple[int, float]:
        """Smallest size in pixels, and neck."""
        step: ObjectStep = self.split_form.read()
        return step.smallest, step.neck

    @property
    def why_not(self) -> str:
        """Reason why nothing can be split; empty if something can."""
        if self.labels.layer is None:
            return "no labels: run Segment, or open a Labels layer"
        if self.kinds.ticked:
            return ""
        if not self._is_counted:
            return "counting the labels …"
        return "tick a label under Kinds" if self.kinds.count() else "this layer has no labels"

    def enable_track(self, source: Source | None, *, is_free: bool) -> None:
        """Enable Track for objects of slices, else say why it is disabled."""
        why_not = "" if is_free else BUSY
        if source is None:
            why_not = "split the labels first"
        elif source.slice_axis != 0:
            why_not = "objects reach through the slices: tick each by itself"
        enable(self._track, why_not, _HELP["track"])

    def source(self) -> Source:
        """Return the chosen layers in their current state."""
        by_slice = self.slices.isChecked()
        return Source.of(
            self.labels.layer, self.image.layer, self.uncertainty.value, by_slice=by_slice
        )

    def carry_step(self, source: Source) -> None:
        """Add the split into objects to the recipe of the labels."""
        step: ObjectStep = dataclasses.replace(
            self.split_form.read(),
            kinds=tuple(self.kinds.ticked) or None,
            by_slice=source.slice_axis == 0,
            by_uncertainty=self.uncertainty.value != "none",
        )
        carry_objects(source.layer, to_plain(step))

    def outcome(self, n_objects: int) -> str:
        """Return the outcome of a split, with a hint if labels may be tones of the same objects."""
        text = counted(n_objects, "object")
        with suppress(SafError):  # of other origin
            recipe = recipe_of(self.labels.layer)
            extractor = None if recipe.options is None else recipe.options.extractor
            is_first_click = isinstance(extractor, Foreground) and recipe.prototypes is None
            if is_first_click and len(self.kinds.ticked) > 1:
                text += f"\n{_TONES}"
        return text

    def fits(self, image: Image) -> bool:
        labels = self.labels.layer
        return labels is not None and image_region(labels, image) is not None

    def take_labels(self, layer: object = None) -> None:
        """Offer the images and features that fit the chosen labels, and count the labels."""
        labels = self.labels.layer
        self.image.refresh()
        self.uncertainty.refresh()
        self._background.drop("kinds")
        self.kinds.clear()
        self._is_counted = False
        if labels is not None:
            axes = squeezed_axes(labels)
            for field in (self.slices, self._frames):
                self.split_form.basic.show_row(field, len(axes) > 2)
            is_series = slice_word(self._viewer, labels, axes[0]) == "frame"
            is_sliced = is_series or labelled_by_slice(labels, axes[0])
            self.slices.setChecked(len(axes) > 2 and is_sliced)
            self.image.choose(labelled_image(self._viewer, labels, self.fits))
            pixels = Pixels(pixels_of(labels))
            self._background.run(
                "kinds",
                lambda cancelled: count_labels(np.asarray(pixels.read(cancelled))),
                partial(self._show_kinds, labels),
            )
        self.labels_changed.emit()

    def _show_kinds(self, labels: Labels, counted: tuple[Any, Any]) -> None:
        self.kinds.show_labels(labels, *counted)
        self._is_counted = True
        self.labels_changed.emit()


def labelled_by_slice(layer: Labels, axis: int) -> bool:
    """Return whether each slice of an axis was labelled by itself, according to the recipe."""
    try:
        options = recipe_of(layer).options
    except SafError:
        return False
    axes = labelled_axes(layer)
    shape = [pixels_of(layer).shape[k] for k in axes]
    return options is not None and axes.index(axis) not in options.averaged_axes(shape)


def is_kinds(layer: Any) -> bool:
    """Return whether the labels of a layer can be kinds of objects."""
    return not layer.multiscale and OBJECTS_KEY not in layer.metadata
