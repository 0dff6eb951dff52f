"""What a click on Run asks for, frozen, and what a run begins from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray

from napari_saf._gui.forms.display_text import parameters_by_hand
from napari_saf._gui.layers.live import LiveLayer, label_colors
from napari_saf._gui.layers.metadata import recipe_of
from napari_saf._gui.layers.placement import (
    Placement,
    image_region,
    labelled_axes,
    pixels_of,
    placement_of,
)
from napari_saf._gui.layers.reading import ImageJob, Pixels
from napari_saf.errors import InvalidInput
from napari_saf.methods import AbstractMethod
from napari_saf.pipeline import Pipeline, RunStart
from napari_saf.problem import Problem
from napari_saf.recording import RecordedState, Recording
from napari_saf.result import LabelMap, Segmentation

_LEAST, _SMOOTHING = 1e-10, 0.1
_MOST_LETTERS = 40
"""Of a title, so that there is room for the name of the image."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WarmStart(RunStart):
    """The labels (n_nodes,) of an earlier run, to continue from, and those of runs before it.

    The `columns` of nodes are of the classes painted with `numbers`; `painted` (n_nodes,) are the
    strokes that they follow. Some pixels get another label than from a fresh start: what was
    painted first counts for more. Strokes taken back lead back to the labels before them.
    """

    columns: NDArray[np.integer]
    numbers: NDArray[np.int64]
    painted: NDArray[np.integer]
    earlier: WarmStart | None = None

    @classmethod
    def after(
        cls,
        problem: Problem,
        result: Segmentation,
        numbers: NDArray[np.int64],
        last: WarmStart | None,
    ) -> WarmStart | None:
        """Return the start for the strokes that follow a run, whose start was of the `last` ones.

        None where the labels do not follow strokes of these classes.
        """
        if problem.seeds is None or result.assignment.shape[1] != len(numbers):
            return None
        painted = np.append(0, numbers)[problem.seeds]
        columns = result.assignment.argmax(axis=1).astype(np.uint16)
        earlier = None if last is None else last.of_fewer(painted)
        return cls(columns, numbers, painted, earlier)

    def of_fewer(self, painted: NDArray[np.integer]) -> WarmStart | None:
        """Return the newest start whose strokes are a part of those that are painted now."""
        start: WarmStart | None = self
        while start is not None:
            if len(start.painted) == len(painted):
                is_more = start.painted != painted
                if is_more.any() and not start.painted[is_more].any():
                    break
            start = start.earlier
        return start

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32] | None:
        """Return an assignment that can be changed, of classes that are the same; None if none."""
        if not method.follows_seeds or problem.seeds is None:
            return None  # new labels would have no column in it
        start = self.of_fewer(classes.paint(problem.seeds))
        if start is None:
            return None
        table = np.full((problem.n_nodes, classes.n_columns), _LEAST**_SMOOTHING, np.float32)
        _, new, old = np.intersect1d(classes.numbers, start.numbers, return_indices=True)
        for column, old_column in zip(new, old, strict=True):
            table[start.columns == old_column, column] = 1
        return np.asarray(table / table.sum(axis=1, keepdims=True))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RecordedStart(RunStart):
    """A recorded state, from which a run continues unchanged, and so does its recording."""

    state: RecordedState

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32]:
        return self.state.assignment()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StoppedStart(RunStart):
    """What a run left when it was stopped: the run goes on, and so do its clock and counts."""

    outcome: Segmentation

    def initial(self, problem: Problem, classes: LabelMap, method: AbstractMethod) -> Segmentation:
        return self.outcome


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RunJob:
    """A request to label an image, read from a form once: all that its run needs.

    With `live`, the labels go on in the layer of an earlier run; that of a run that is ended for
    this one is then left as it is. The `extra_images` are labelled together with this one. A run
    whose `start` is a recorded state goes on with its `recording`. The `note` is shown at the end.
    The `options` are what was set of the image by hand, in words. The layer has a `title`, by
    default the method and these, and the `names` and `colors` of labels that are known before. A
    job that `is_applied` repeats a recipe, whose regions are those of a `level`, if it has one.
    """

    image: Image
    image_job: ImageJob
    method: AbstractMethod
    placement: Placement
    _: dataclasses.KW_ONLY
    is_sweep: bool = False
    strokes: Labels | None = None
    live: LiveLayer | None = None
    start: RunStart | None = None
    extra_images: tuple[Image, ...] = ()
    recording: Recording | None = None
    note: str = ""
    options: Sequence[str] = ()
    title: str = ""
    names: Mapping[int, str] | None = None
    colors: Mapping[int, Sequence[float]] | None = None
    is_applied: bool = False
    level: float | None = None

    @classmethod
    def of(cls, labels: Labels, image: Image | None, recipe: Pipeline | None = None) -> RunJob:
        """Return what would label an image again as its labels were; InvalidInput: why none can."""
        recipe = recipe_of(labels) if recipe is None else recipe
        axes = labelled_axes(labels)
        region = None if image is None else image_region(labels, image, axes)
        if image is None or region is None:
            raise InvalidInput("choose the image that was labelled")
        if recipe.options is None:
            raise InvalidInput("the labels are of a graph, not of an image")
        channels = None if image.rgb else region[1]
        options = dataclasses.replace(recipe.options, channel_axis=channels, groups=None)
        job = ImageJob(Pixels(pixels_of(image), region[0]), options)
        return cls(image, job, recipe.method, placement_of(labels))

    def masked(self) -> RunJob:
        """Return the same without the pixels that are NaN or infinite."""
        job = dataclasses.replace(self.image_job, finite_only=True)
        return dataclasses.replace(self, image_job=job)

    def rescaled(self) -> RunJob:
        """Return the same with the image scaled by its own values.

        A run that was to go on begins anew: its states are of other features.
        """
        options = dataclasses.replace(self.image_job.options, scaling=None)
        job = dataclasses.replace(self.image_job, options=options)
        if isinstance(self.start, StoppedStart | RecordedStart):
            return dataclasses.replace(self, image_job=job, start=None, recording=None)
        return dataclasses.replace(self, image_job=job)

    def create_layer(self, viewer: Any) -> LiveLayer:
        """Return a layer for the labels, whose colours are by label where those are given."""
        is_colored = self.colors is not None or self.method.labels_are_given
        colors = label_colors(self.colors) if is_colored else None
        title = self.title or self._settings
        return LiveLayer(
            viewer, self.image, title, self.placement, self.strokes, colors, self.names
        )

    @property
    def _settings(self) -> str:
        """The method and all settings that are not as by default, as far as there is room."""
        text = self.method.name.upper()
        for words in (*self.options, *parameters_by_hand(self.method)):
            if len(text) + len(words) > _MOST_LETTERS:
                return f"{text}, …"
            text = f"{text}, {words}"
        return text
