"""Edits of labels: merge, split, delete, refine; they run in a worker and know no widget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from napari.layers import Image, Labels
from numpy.typing import NDArray
from scipy import ndimage

from napari_saf._gui.layers.placement import labelled_axes, pixels_of
from napari_saf._gui.layers.reading import ImageJob, Pixels, ProblemReader
from napari_saf._gui.prototypes.labels import LabelState, Source
from napari_saf._gui.runs.run import RunJob
from napari_saf.device import torch
from napari_saf.errors import InvalidInput
from napari_saf.graph import GridGraph
from napari_saf.io import count_labels
from napari_saf.methods import AbstractMethod, method_for_warm_start, method_with_prototypes
from napari_saf.pipeline import RunStart
from napari_saf.points import distances, k_means
from napari_saf.problem import Problem
from napari_saf.result import LabelImage, LabelMap, Segmentation

_ODDS = 10.0
"""How much more a node belongs to its label than to any other at the start."""
_MOST_SAMPLES = 20_000
_NO_LABELS = "run Segment, open a Labels layer, or load prototypes"
_NEEDS = {
    "merge": ("labels", "rows", "unlocked"),
    "split": ("labels", "one row", "flow", "unlocked"),
    "delete": ("labels", "row", "unlocked"),
    "refine": ("labels", "flow"),
    "save": ("prototypes",),
    "apply": ("prototypes", "features"),
}
"""What each button needs; the first that is missing is its tooltip."""


@dataclass(frozen=True, slots=True, eq=False)
class EditTarget:
    """The labels that an edit works on, as seen at a click.

    The pixels leave out axes of length 1 before the plane. `job` is the image under the labels and
    `method` what continues from edited ones; where these are not known, `reason` says why.
    """

    pixels: Pixels
    job: ImageJob | None
    method: AbstractMethod | None
    reason: str
    state: LabelState
    selected: Sequence[int]
    reader: ProblemReader

    @classmethod
    def of(
        cls,
        layer: Labels,
        image: Image | None = None,
        state: LabelState | None = None,
        selected: Sequence[int] = (),
        reader: ProblemReader | None = None,
    ) -> EditTarget:
        axes = labelled_axes(layer)
        index = tuple(slice(None) if axis in axes else 0 for axis in range(layer.ndim))
        pixels, job, method, reason = Pixels(pixels_of(layer), index), None, None, ""
        try:
            run = RunJob.of(layer, image)
            job, method = run.image_job, method_for_warm_start(run.method)
        except InvalidInput as error:
            reason = str(error)
        state, reader = state or LabelState(), reader or ProblemReader()
        return cls(pixels, job, method, reason, state, selected, reader)

    def read(self, cancelled: Callable[[], bool]) -> NDArray[Any]:
        return np.array(self.pixels.read(cancelled))

    def job_within(self, inside: NDArray[np.bool_]) -> ImageJob:
        if self.job is None:
            raise InvalidInput(self.reason)
        return replace(self.job, mask=None if inside.all() else Pixels(inside))


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """All labels after an edit, how their state changes, what to select, the run that follows."""

    labels: NDArray[Any]
    change: Callable[[LabelState], LabelState]
    selection: tuple[int, ...] = ()
    run: tuple[ImageJob, AbstractMethod, EditedStart] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EditedStart(RunStart):
    """Edited labels from which a run continues.

    `numbers` are the labels on screen of the columns of the run, ascending; several may be of one
    label. `labels` are 0 outside and where a label is sought, `free` are the pixels that may
    change. Others of the run only start it, and keep their labels at the end: as seeds they would
    outweigh the features of their neighbours.
    """

    is_recorded: ClassVar[bool] = False
    numbers: NDArray[np.int64]
    labels: NDArray[Any]
    free: NDArray[np.bool_]

    def begin(self, problem: Problem, method: AbstractMethod) -> tuple[Problem, LabelMap]:
        return problem, LabelMap(self.numbers)

    def initial(
        self, problem: Problem, classes: LabelMap, method: AbstractMethod
    ) -> NDArray[np.float32]:
        """Return an assignment that is uncertain of the labels, so that they can change."""
        labels = _grid(problem).from_image(self.labels).astype(np.int64)
        columns = LabelMap(self.numbers).unpaint(labels)
        start = np.ones((len(columns), classes.n_columns), dtype=np.float32)
        labelled = np.flatnonzero(columns)  # 0 where a label is sought
        start[labelled, columns[labelled] - 1] = _ODDS
        return np.asarray(start / start.sum(axis=1, keepdims=True))

    def paint(self, columns: LabelImage, classes: LabelMap) -> LabelImage:
        """Return labels on screen; pixels that are not free keep theirs."""
        new = classes.paint(columns)
        return np.asarray(np.where(self.free, new, self.labels), dtype=self.labels.dtype)

    def finish(self, result: Segmentation, classes: LabelMap) -> Segmentation:
        """Return the result with labels as on screen; row l - 1 of the prototypes is label l."""
        assert not isinstance(result.labels, list)
        labels = self.paint(result.label_map.unpaint(result.labels), classes)
        by_column = np.full((classes.n_columns, result.prototypes.shape[1]), np.nan, np.float32)
        has_column = result.columns >= 0
        by_column[result.columns[has_column]] = result.prototypes[has_column]
        rows = classes.rows(by_column)
        label_map = LabelMap.identity(len(rows))
        return replace(result, labels=labels, prototypes=rows, label_map=label_map)


def merge(target: EditTarget, labels: NDArray[Any], cancelled: Callable[[], bool]) -> Edited:
    """Give the pixels of the selected labels to the largest of them."""
    sizes, numbers = count_pixels(labels), target.selected
    into = max(sorted(numbers), key=lambda number: sizes.get(number, 0))
    merged = np.where(np.isin(labels, sorted(numbers)), labels.dtype.type(into), labels)
    return Edited(merged, lambda state: state.merged(numbers, into), selection=(into,))


def delete(target: EditTarget, labels: NDArray[Any], cancelled: Callable[[], bool]) -> Edited:
    """Take the selected labels away; the flow gives their pixels to the others, where it can.

    The flow sees these pixels and those around them, as far as the window reaches, and the
    prototypes of the labels that are left.
    """
    free = np.isin(labels, target.selected)
    means: dict[int, NDArray[np.float32]] = {}

    def change(state: LabelState) -> LabelState:
        return state.deleted(target.selected).with_prototypes(means)

    remaining = sorted({*count_pixels(labels)} - {*target.selected})
    only = remaining[0] if len(remaining) == 1 and target.job is not None else 0
    edited = np.where(free, labels.dtype.type(only), labels)
    if target.job is None or len(remaining) < 2 or not free.any():
        return Edited(edited, change)
    unknown = sorted({*remaining} - {*target.state.prototypes})
    if unknown:
        problem = target.reader.read(target.job_within(np.isin(labels, unknown)), cancelled)
        nodes = _grid(problem).from_image(labels)
        rows = {number: problem.features[nodes == number] for number in unknown}
        means |= {number: _mean(features) for number, features in rows.items() if len(features)}
    prototypes = {**target.state.prototypes, **means}
    points = [prototypes[number] for number in remaining]
    method = method_with_prototypes(np.concatenate(points), target.method)
    columns = np.repeat(remaining, [len(rows) for rows in points])
    start = EditedStart(columns, edited, free)
    # The flow sees as far as the window around a free pixel reaches.
    options = target.job.options
    ratio = max(1.0, max(free.shape) / (options.max_side or math.inf))
    window = np.broadcast_to(options.window, free.ndim)
    sides = [2 * math.ceil(ratio * (side // 2)) + 1 for side in window]
    job = target.job_within((labels > 0) & ndimage.maximum_filter(free, size=sides))
    return Edited(edited, change, run=(job, method, start))


def split(target: EditTarget, labels: NDArray[Any], cancelled: Callable[[], bool]) -> Edited:
    """Divide the selected label in two by its features; the flow then makes the halves smooth.

    Two means of the features, averaged over the window within the label: halves are connected.
    """
    number = target.selected[0]
    new = free_number({*count_pixels(labels), *target.state.names}, labels.dtype)
    inside = labels == number
    job = target.job_within(inside)
    problem = target.reader.read(job, cancelled)
    grid = _grid(problem)
    nodes = np.flatnonzero(grid.from_image(labels) == number)
    if len(nodes) < 2:
        raise InvalidInput(f"label {number}: expected two pixels or more, to split it")
    weights = np.zeros((problem.n_nodes, 1), dtype=np.float32)
    weights[nodes] = 1
    smooth = grid.average(problem.features * weights)[nodes] / grid.average(weights)[nodes]
    halves = np.zeros(len(nodes), dtype=np.int64)
    if (smooth != smooth[0]).any():
        sample = smooth[:: max(1, len(nodes) // _MOST_SAMPLES)]
        centres = torch.from_numpy(k_means(sample, 2, n_starts=3))
        halves = distances(torch.from_numpy(smooth), centres).argmin(dim=1).numpy()
    if halves.all() or not halves.any():
        raise InvalidInput(f"label {number}: all its pixels are alike, there is nothing to split")
    if halves.mean() > 0.5:  # the larger half keeps the number
        halves = 1 - halves
    second = np.zeros(problem.n_nodes, dtype=np.uint8)
    second[nodes] = halves
    is_new = inside & (np.asarray(grid.to_image(second)) == 1)
    edited = np.where(is_new, labels.dtype.type(new), labels)
    features = problem.features[nodes]
    means = {number: _mean(features[halves == 0]), new: _mean(features[halves == 1])}
    assert target.method is not None
    start = EditedStart(np.array(sorted([number, new])), edited, inside)
    return Edited(
        edited,
        lambda state: state.split(number, new, means),
        (number, new),
        (job, target.method, start),
    )


def refine(target: EditTarget, labels: NDArray[Any], cancelled: Callable[[], bool]) -> Edited:
    locked = target.state.locked
    numbers = sorted({*count_pixels(labels)} - locked)
    if len(numbers) < 2:
        unlocked = " that are not locked" if locked else ""
        raise InvalidInput(f"the flow needs two labels or more to go on from{unlocked}")
    free = np.isin(labels, numbers)
    job = target.job_within(free)
    assert target.method is not None
    start = EditedStart(np.array(numbers), labels, free)
    return Edited(labels, lambda state: state.with_edit("refined"), run=(job, target.method, start))


def count_pixels(labels: NDArray[Any]) -> dict[int, int]:
    if not labels.size or labels.dtype.kind not in "iub":
        return {}
    numbers, sizes = count_labels(labels)
    return dict(zip(numbers.tolist(), sizes.tolist(), strict=True))


def _mean(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.asarray(rows.mean(axis=0, keepdims=True), dtype=np.float32)


def free_number(taken: Collection[int], dtype: np.dtype[Any]) -> int:
    """Return the smallest label that is not taken; InvalidInput if the type holds no more."""
    last, number = int(np.iinfo(dtype).max), next(n for n in itertools.count(1) if n not in taken)
    if number > last:
        raise InvalidInput(f"labels: {dtype} holds no more than {last} labels")
    return number


def why_not(
    source: Source | None, target: EditTarget | None, selected: Sequence[int]
) -> dict[str, str]:
    """Return why each button is disabled; empty where it is not."""
    state = LabelState() if source is None else source.state
    has_lock = not state.locked.isdisjoint(selected)
    has_features = source is not None and source.options is not None
    reasons = {
        "labels": _NO_LABELS if source is None else source.why_not_edited,
        "row": "" if selected else "choose a row",
        "one row": "" if len(selected) == 1 else "choose one row",
        "rows": "" if len(selected) > 1 else "choose two rows or more, with Ctrl or Shift",
        "unlocked": "a chosen label is locked" if has_lock else "",
        "flow": "a file has no pixels" if target is None else target.reason,
        "prototypes": "" if state.prototypes else "these have no prototypes",
        "features": "" if has_features else "their features are not known",
    }
    return {
        button: next((reasons[need] for need in needs if reasons[need]), "")
        for button, needs in _NEEDS.items()
    }


def _grid(problem: Problem) -> GridGraph:
    assert isinstance(problem.graph, GridGraph)
    return problem.graph
