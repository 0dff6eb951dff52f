"""Labels at full resolution from the labels of a run at a reduced size.

Borders are moved onto image edges; labels of similar pixels are then recomputed by the assignment
flow, region by region. `then_full_resolution` wraps every run. Read next: `_learned`.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

import napari_saf.methods._learned as learned
from napari_saf.arrays import Region, check_window
from napari_saf.device import interruptible
from napari_saf.errors import Cancelled, ComputeError
from napari_saf.features import Pixels
from napari_saf.graph import CoarseGrid, GridGraph
from napari_saf.methods._learned import ReducedImage, RegionFlow
from napari_saf.methods._method import AbstractMethod, Call, Iteration, map_steps
from napari_saf.methods._stroke_costs import grids_of
from napari_saf.parameters import to_plain
from napari_saf.parts import LEAST_SIDE, blocks_of, cut, grown, nearest_to_view, reach_of, tiles_of
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import (
    FULL,
    PREVIEW,
    History,
    LabelImage,
    LabelMap,
    Segmentation,
    Snapshot,
    Status,
)

_MOST_FIELDS = 2**30
"""Bytes of the fields of a flow above which features are computed by region."""
_MOST_AT_ONCE = 2**20
"""Pixels labelled at once if features are in memory."""
_MOST_CHANGED = 0.3
"""Share of changed blocks above which all blocks are relabelled after new strokes."""
_COST = 0.3
"""Run time of a pixel at full resolution relative to that of a node at the reduced size."""
_SHARPENED = 0.2
"""Share of the run time taken by sharpening."""

Make = Callable[[int, Region], Problem | None]
"""Function that returns the problem of a region of image k; None if it has no nodes."""


@dataclasses.dataclass(slots=True, eq=False)
class _Labels:
    """Labels of all images of a run, reused by a later run with other strokes.

    Labels at the reduced size, after sharpening, and at full resolution. `settings` are the
    parameters of the method, `history` is that of the flow at full resolution.
    """

    settings: Mapping[str, Any]
    images: list[ReducedImage]
    reduced: list[LabelImage]
    sharp: list[LabelImage] = dataclasses.field(default_factory=list)
    full: list[LabelImage] = dataclasses.field(default_factory=list)
    history: History | None = None


def then_full_resolution(method: AbstractMethod, call: Call, steps: Iteration) -> Iteration:
    """Yield the snapshots of a run, then those of labelling reduced images at full resolution.

    A cancelled run returns its current labels.
    """
    problem, options = call.problem, call.problem.options
    grids = [grid for grid, _ in grids_of(problem.graph)]
    reduced = [grid for grid in grids if isinstance(grid, CoarseGrid) and grid.image is not None]
    if options is None or not options.full_resolution or not reduced:
        return (yield from steps)
    n_pixels = sum(math.prod(grid.image_shape) for grid in reduced)
    share = problem.n_nodes / (problem.n_nodes + _COST * n_pixels)
    label_map = LabelMap.identity(0)

    def preview(snapshot: Snapshot) -> Snapshot:
        nonlocal label_map
        label_map = snapshot.label_map
        return dataclasses.replace(snapshot, fraction=share * snapshot.fraction, stage=PREVIEW)

    result = yield from map_steps(steps, preview)
    if result.status is Status.CANCELLED:
        return result
    run, notes = _FullRun(method, call, result), result.notes
    status: Status = result.status
    try:
        for fraction in run.steps():
            yield run.snapshot(label_map, share + (1 - share) * fraction)
    except Cancelled:
        status = Status.CANCELLED
    except ComputeError as error:
        notes += (f"labels are not at full resolution: {error}",)
    labels = run.labels(result.label_map)
    return dataclasses.replace(
        result, labels=labels, status=status, notes=notes, seconds=run.seconds
    )


class _FullRun:
    """Labels at full resolution of the images in the `result` of a run at a reduced size."""

    def __init__(self, method: AbstractMethod, call: Call, result: Segmentation) -> None:
        assert call.problem.options is not None
        self._method, self._problem, self._cancelled = method, call.problem, call.cancelled
        self._options: ImageOptions = call.problem.options
        self._result, self._began = result, time.perf_counter()
        columns = result.assignment.argmax(axis=1)
        self.images: list[ReducedImage] = []
        for (grid, nodes), labels in zip(grids_of(call.problem.graph), self._several, strict=True):
            if isinstance(grid, CoarseGrid) and grid.image is not None:
                pixels = Pixels.of(grid.image, grid.image_mask)
                node_labels: Any = grid.spread(result.label_map.paint(columns[nodes] + 1))
                self.images.append(ReducedImage(grid, pixels, node_labels, labels.copy()))
        self._memory: dict[str, _Labels] = call.problem.remember("labels at full resolution", dict)
        is_correction = call.initial is not None and call.previous is None
        self._last = self._memory.get("last") if is_correction else None
        self._now = _Labels(to_plain(method), self.images, self._current())
        self._changed = self._changed_blocks()

    @property
    def _several(self) -> list[LabelImage]:
        labels = self._result.labels
        return labels if isinstance(labels, list) else [labels]

    @property
    def seconds(self) -> float:
        return self._result.seconds + time.perf_counter() - self._began

    def labels(self, label_map: LabelMap) -> LabelImage | list[LabelImage]:
        """Return a copy of the current labels, numbered by a map."""
        full: dict[GridGraph, Any] = {image.grid: image.labels for image in self.images}
        grids = (grid for grid, _ in grids_of(self._problem.graph))
        numbered = [
            label_map.paint(self._result.label_map.unpaint(full.get(grid, labels)))
            for grid, labels in zip(grids, self._several, strict=True)
        ]
        return numbered if isinstance(self._result.labels, list) else numbered[0]

    def snapshot(self, label_map: LabelMap, fraction: float) -> Snapshot:
        """Return a snapshot with the label numbers of the snapshots at the reduced size."""
        return Snapshot(
            self._result.history.records()[-1],
            fraction,
            self.seconds,
            label_map,
            lambda: self.labels(label_map),
            lambda: self._result.prototypes,
            lambda: np.log(self._result.assignment.clip(1e-10)),
            FULL,
        )

    def steps(self) -> Iterator[float]:
        """Sharpen borders, then label by appearance if possible; yield the completed share."""
        with interruptible(self._cancelled):
            self._sharpen()
        self._now.sharp = self._current()
        yield _SHARPENED
        if self._method.labels_look_alike and learned.can_be_learned(self._options):
            for share in self._relabel():
                yield _SHARPENED + (1 - _SHARPENED) * share
        self._now.full = self._current()
        self._memory["last"] = self._now

    def _current(self) -> list[Any]:
        return [image.labels for image in self.images]

    def _changed_blocks(self) -> list[list[Region]] | None:
        """Return the blocks per image that changed since the last run; None if most changed."""
        last, now = self._last, self._now
        if last is None or last.settings != now.settings or len(last.reduced) != len(now.reduced):
            return None
        window = check_window(self._options.window, now.reduced[0].shape)  # type: ignore[arg-type]
        blocks = [blocks_of(labels.shape, window) for labels in now.reduced]
        changed = [
            [block for block in image_blocks if (labels[block] != previous[block]).any()]
            for image_blocks, labels, previous in zip(
                blocks, now.reduced, last.reduced, strict=True
            )
        ]
        n_changed, n_blocks = (sum(map(len, several)) for several in (changed, blocks))
        return changed if n_changed <= _MOST_CHANGED * n_blocks else None

    def _sharpen(self) -> None:
        """Sharpen the borders of all images, or of changed blocks of the last run's labels."""
        if self._changed is None or self._last is None:
            learned.learn_all_borders(
                self.images, learned.full_options(self._options, self.images[0].shape)
            )
            for image in self.images:
                image.labels = image.sharpened(_everything(image))
                image.is_sharp = True
            return
        last = zip(self._last.images, self._last.sharp, strict=True)
        for image, blocks, (previous, sharp) in zip(self.images, self._changed, last, strict=True):
            image.sharpener, labels = previous.sharpener, sharp.copy()
            for block in blocks:
                labels[block] = image.sharpened(block)
            image.labels, image.is_sharp = labels, True

    def _relabel(self) -> Iterator[float]:
        """Label all images, or changed blocks, by feature means of the labels."""
        images, last = self.images, self._last
        unfitted = learned.full_options(self._options, images[0].shape)
        with interruptible(self._cancelled):
            options, noise = self._problem.remember(
                "shared by parts", lambda: learned.fitted_to(images, unfitted)
            )
            most = _most_pixels(options, images)
            make = self._maker(options, noise, most)
            flow, problem = learned.learn_labels(self._method, images, options, make)
        if self._changed is not None and last is not None and last.history is not None:
            self._now.history = last.history
            region_flow = RegionFlow(learned.scheduled(flow, _steps(last.history)), options, noise)
            yield from self._label_parts(region_flow, self._changed, make, last.full)
            return
        n_learned, n_pixels = problem.n_nodes, sum(math.prod(image.shape) for image in images)
        masks = [image.grid.image_mask for image in images]
        n_all = [math.prod(image.shape) for image in images]
        n_inside = sum(n if m is None else int(m.sum()) for n, m in zip(n_all, masks, strict=True))
        first = 1.0 if n_learned == n_inside else n_learned / (n_learned + n_pixels)
        steps = flow.iterate(problem, cancelled=self._cancelled)
        result = yield from map_steps(steps, lambda snapshot: first * snapshot.fraction)
        _raise_if_cancelled(result)
        self._now.history = result.history
        if n_learned == n_inside:  # the problem already contains all pixels
            several = result.labels if isinstance(result.labels, list) else [result.labels]
            for image, labels in zip(images, several, strict=True):
                assert image.labels is not None
                image.labels = np.asarray(labels, image.labels.dtype)
            return
        region_flow = RegionFlow(learned.scheduled(flow, _steps(result.history)), options, noise)
        halo, at_once = region_flow.halo, _MOST_AT_ONCE
        if n_pixels > most:  # features are computed by region
            assert options.extractor is not None
            reach = reach_of(options.extractor, region_flow.window, has_weights=True)
            halo, at_once = [a + b for a, b in zip(halo, reach, strict=True)], most
        tiles = [tiles_of(image.shape, region_flow.window, halo, at_once) for image in images]
        for share in self._label_parts(region_flow, tiles, make, self._current()):
            yield first + (1 - first) * share

    def _maker(self, options: ImageOptions, noise: list[float] | None, most: int) -> Make:
        """Return a factory of problems; features of up to `most` pixels are computed only once."""
        images = self.images
        if sum(math.prod(image.shape) for image in images) > most:
            return lambda k, region: learned.region_problem(images[k], [region], options, noise)

        def read() -> list[tuple[Problem, Any]]:
            problems = []
            for image in images:
                problem = learned.region_problem(image, [_everything(image)], options, noise)
                assert problem is not None and isinstance(problem.graph, GridGraph)
                problems.append((problem, problem.graph.spread(problem.features)))
            return problems

        # independent of strokes
        problems = self._problem.remember("full resolution", read)

        def make(k: int, region: Region) -> Problem | None:
            problem, features = problems[k]
            grid = problem.graph
            assert isinstance(grid, GridGraph)
            if region == _everything(images[k]):
                return problem
            if grid.mask is not None and not grid.mask[region].any():
                return None
            part = grid.cropped(region)
            part_features = np.asarray(part.gather(features[region]), np.float32)
            return Problem(features=part_features, graph=part, options=options)

        return make

    def _label_parts(
        self, flow: RegionFlow, regions: list[list[Region]], make: Make, previous: list[LabelImage]
    ) -> Iterator[float]:
        """Label regions, those nearest to the view first; others keep their `previous` labels."""
        sharp = [dataclasses.replace(image) for image in self.images]
        for image, labels in zip(self.images, previous, strict=True):
            image.labels = labels.copy()
        parts = [(k, region) for k, image_regions in enumerate(regions) for region in image_regions]
        n_parts = len(parts)
        while parts:
            k, region = parts.pop(nearest_to_view([region for _, region in parts]))
            image = self.images[k]
            with interruptible(self._cancelled):
                labelled = flow.label(sharp[k], region, partial(make, k), self._cancelled)
            if labelled is not None:
                labels, _, result = labelled
                _raise_if_cancelled(result)
                assert image.labels is not None
                image.labels[region] = cut(labels, grown(region, flow.halo, image.shape), region)
            yield 1 - len(parts) / n_parts


def _steps(history: History) -> list[float]:
    return np.diff(history.time).tolist()  # type: ignore[no-any-return]


def _raise_if_cancelled(result: Segmentation) -> None:
    if result.status is Status.CANCELLED:
        raise Cancelled


def _everything(image: ReducedImage) -> Region:
    return tuple(slice(0, n) for n in image.shape)


def _most_pixels(options: ImageOptions, images: list[ReducedImage]) -> int:
    """Return the number of pixels whose fields and weights take `_MOST_FIELDS` bytes."""
    n_labels = np.count_nonzero(
        np.unique(np.concatenate([np.unique(image.nodes) for image in images]))
    )
    assert options.extractor is not None
    corner = tuple(slice(0, min(n, 2 * LEAST_SIDE)) for n in images[0].shape)
    values = np.zeros(images[0].pixels.read(corner)[0].shape, np.float32)
    n_features = options.extractor.features(values).shape[-1] + n_labels
    weights = images[0].grid.window_weights
    n_of_weights = 0 if weights is None else weights.images.itemsize * len(weights.images)
    return int(_MOST_FIELDS // (4 * (5 * n_labels + 12 + 4 * n_features) + n_of_weights))
