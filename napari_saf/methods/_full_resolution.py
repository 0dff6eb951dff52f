"""From labels at a reduced size to labels at the resolution of the image.

Borders are moved onto the edges of the image. Where the pixels of a label look alike, a few means
of their features at full resolution then stand for it, and the assignment flow labels the image by
them, part by part, those in view first.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from napari_saf.arrays import check_window
from napari_saf.device import interruptible
from napari_saf.errors import Cancelled, ComputeError
from napari_saf.features import Pixels
from napari_saf.graph import CoarseGrid, GridGraph
from napari_saf.methods._learned import (
    ReducedImage,
    RegionFlow,
    can_be_learned,
    fitted_to,
    full_options,
    learn_all_borders,
    learn_labels,
    region_problem,
    scheduled,
)
from napari_saf.methods._method import AbstractMethod, Call, Iteration, map_steps
from napari_saf.methods._stroke_costs import grids_of
from napari_saf.parameters import to_plain
from napari_saf.parts import (
    LEAST_SIDE,
    Region,
    blocks_of,
    cut,
    grown,
    nearest_to_view,
    reach_of,
    tiles_of,
)
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
"""Bytes of the fields of a flow; larger images are read in parts, whose features are made anew."""
_MOST_AT_ONCE = 2**20
"""Pixels that are labelled at once where features are there."""
_MOST_CHANGED = 0.3
"""Share of the blocks up to which only those are labelled anew that strokes changed."""
_COST = 0.3
"""Of the work on a node, about what a pixel takes afterwards: for the share that is done."""
_SHARPENED = 0.2
"""Share of the time after which borders are sharp."""


@dataclasses.dataclass(slots=True, eq=False)
class _Kept:
    """Labels of a run for the next, with other strokes: as reduced, with sharp borders, in full."""

    method: dict[str, Any]
    reduced: list[LabelImage]
    sharp: list[LabelImage]
    full: list[LabelImage]
    images: list[ReducedImage]
    history: History | None = None


@dataclasses.dataclass(slots=True, eq=False)
class _Progress:
    """What a run left at a reduced size, and the labels in full that come of it.

    Snapshots have the numbers of those before, `label_map`, and begin at the share `before`.
    """

    result: Segmentation
    images: list[ReducedImage]
    grids: list[GridGraph]
    label_map: LabelMap
    before: float
    began: float = dataclasses.field(default_factory=time.perf_counter)

    @classmethod
    def of(
        cls,
        result: Segmentation,
        reduced: list[CoarseGrid],
        grids: list[GridGraph],
        shown: LabelMap,
        before: float,
    ) -> _Progress:
        several = result.labels if isinstance(result.labels, list) else [result.labels]
        columns = result.assignment.argmax(axis=1)
        first, images = 0, []
        for grid, labels in zip(grids, several, strict=True):
            own = columns[first : first + grid.n_nodes]
            first += grid.n_nodes
            if isinstance(grid, CoarseGrid) and grid in reduced:
                assert grid.image is not None
                nodes: Any = grid.spread(result.label_map.paint(own + 1))
                pixels = Pixels.of(grid.image, grid.image_mask)
                images.append(ReducedImage(grid, pixels, nodes, labels.copy()))
        return cls(result, images, grids, shown, before)

    @property
    def seconds(self) -> float:
        return self.result.seconds + time.perf_counter() - self.began

    def labels(self, label_map: LabelMap) -> LabelImage | list[LabelImage]:
        """Return a copy of the labels so far, numbered by a map."""
        result = self.result
        full: dict[GridGraph, Any] = {image.grid: image.labels for image in self.images}
        several = result.labels if isinstance(result.labels, list) else [result.labels]
        numbered = [
            label_map.paint(result.label_map.unpaint(full.get(grid, labels)))
            for grid, labels in zip(self.grids, several, strict=True)
        ]
        return numbered if isinstance(result.labels, list) else numbered[0]

    def snapshot(self, fraction: float) -> Snapshot:
        return Snapshot(
            self.result.history.records()[-1],
            self.before + (1 - self.before) * fraction,
            self.seconds,
            self.label_map,
            lambda: self.labels(self.label_map),
            lambda: self.result.prototypes,
            lambda: np.log(self.result.assignment.clip(1e-10)),
            FULL,
        )


def then_full_resolution(method: AbstractMethod, call: Call, steps: Iteration) -> Iteration:
    """Yield the snapshots of a run; then label each pixel of images that it labelled reduced.

    What is cancelled on the way keeps the labels that it has by then.
    """
    problem, reduced = call.problem, _reduced(call.problem)
    if problem.options is None or not reduced:
        return (yield from steps)
    n_pixels = sum(math.prod(grid.image_shape) for grid in reduced)
    before = problem.n_nodes / (problem.n_nodes + _COST * n_pixels)
    shown = LabelMap.identity(0)

    def preview(snapshot: Snapshot) -> Snapshot:
        nonlocal shown
        shown = snapshot.label_map
        return dataclasses.replace(snapshot, fraction=before * snapshot.fraction, stage=PREVIEW)

    result = yield from map_steps(steps, preview)
    if result.status is Status.CANCELLED:
        return result
    grids = [grid for grid, _ in grids_of(problem.graph)]
    progress = _Progress.of(result, reduced, grids, shown, before)
    status: Status = result.status
    notes, images = result.notes, progress.images
    memory: dict[str, _Kept] = problem.remember("labels at full resolution", dict)
    last = memory.get("last") if call.initial is not None and call.previous is None else None
    kept = _Kept(to_plain(method), _labels_of(images), [], [], images)
    changed = _changed_blocks(last, kept, problem.options)
    try:
        with interruptible(call.cancelled):
            _sharpen(images, changed, last, problem.options)
        kept.sharp = _labels_of(images)
        yield progress.snapshot(_SHARPENED)
        if method.labels_look_alike and can_be_learned(problem.options):
            for share in _relabel(method, problem, kept, changed, last, call.cancelled):
                yield progress.snapshot(_SHARPENED + (1 - _SHARPENED) * share)
        kept.full = _labels_of(images)
        memory["last"] = kept
    except Cancelled:
        status = Status.CANCELLED
    except ComputeError as error:
        notes += (f"labels are not at full resolution: {error}",)
    labels = progress.labels(result.label_map)
    return dataclasses.replace(
        result, labels=labels, status=status, notes=notes, seconds=progress.seconds
    )


def _reduced(problem: Problem) -> list[CoarseGrid]:
    """Return the grids of images that are to be labelled in full and are not yet."""
    if problem.options is None or not problem.options.full_resolution:
        return []
    grids = [grid for grid, _ in grids_of(problem.graph)]
    return [grid for grid in grids if isinstance(grid, CoarseGrid) and grid.image is not None]


def _changed_blocks(
    last: _Kept | None, kept: _Kept, options: ImageOptions
) -> list[list[Region]] | None:
    """Return the blocks of images to label anew after the last run; None if all or most are."""
    if last is None or last.method != kept.method or len(last.reduced) != len(kept.reduced):
        return None
    window = check_window(options.window, kept.reduced[0].shape)  # type: ignore[arg-type]
    blocks = [blocks_of(labels.shape, window) for labels in kept.reduced]
    changed = [
        [block for block in some if (labels[block] != before[block]).any()]
        for some, labels, before in zip(blocks, kept.reduced, last.reduced, strict=True)
    ]
    n_changed, n_blocks = (sum(map(len, several)) for several in (changed, blocks))
    return changed if n_changed <= _MOST_CHANGED * n_blocks else None


def _labels_of(images: list[ReducedImage]) -> list[Any]:
    return [image.labels for image in images]


def _sharpen(
    images: list[ReducedImage],
    changed: list[list[Region]] | None,
    last: _Kept | None,
    options: ImageOptions,
) -> None:
    """Sharpen the borders of images, or of blocks that changed; the others are as they were."""
    if changed is None or last is None:
        learn_all_borders(images, full_options(options, images[0].shape))
        for image in images:
            image.labels = image.sharpened(_whole(image))
            image.is_sharp = True
        return
    for image, blocks, sharp, before in zip(images, changed, last.sharp, last.images, strict=True):
        image.sharpener, labels = before.sharpener, sharp.copy()
        for block in blocks:
            labels[block] = image.sharpened(block)
        image.labels, image.is_sharp = labels, True


def _relabel(
    method: AbstractMethod,
    reduced: Problem,
    kept: _Kept,
    changed: list[list[Region]] | None,
    last: _Kept | None,
    cancelled: Callable[[], bool],
) -> Iterator[float]:
    """Label images anew by how their labels look; yield the share that is done.

    Only blocks that `changed`, if they are known, with the steps of the `last` run; the others are
    as they were.
    """
    assert reduced.options is not None
    images = kept.images
    asked = full_options(reduced.options, images[0].shape)
    with interruptible(cancelled):
        options, noise = reduced.remember("shared by parts", lambda: fitted_to(images, asked))
        most = _most_pixels(options, images)
        make = _maker(reduced, images, options, noise, most)
        flow, problem = learn_labels(method, images, options, make)
    if changed is not None and last is not None and last.history is not None:
        kept.history = last.history
        region_flow = RegionFlow(scheduled(flow, _steps(last.history)), options, noise)
        yield from _label_parts(region_flow, images, changed, make, cancelled, last.full)
        return
    n_learned, n_pixels = problem.n_nodes, sum(math.prod(image.shape) for image in images)
    masks = [image.grid.image_mask for image in images]
    n_inside = [math.prod(image.shape) for image in images]
    counts = [n if m is None else int(m.sum()) for n, m in zip(n_inside, masks, strict=True)]
    is_all = n_learned == sum(counts)
    first = 1.0 if is_all else n_learned / (n_learned + n_pixels)
    steps = flow.iterate(problem, cancelled=cancelled)
    result = _finished((yield from map_steps(steps, lambda snapshot: first * snapshot.fraction)))
    kept.history = result.history
    if is_all:
        several = result.labels if isinstance(result.labels, list) else [result.labels]
        for image, labels in zip(images, several, strict=True):
            assert image.labels is not None
            image.labels = np.asarray(labels, image.labels.dtype)
        return
    region_flow = RegionFlow(scheduled(flow, _steps(result.history)), options, noise)
    halo, at_once = region_flow.halo, _MOST_AT_ONCE
    if n_pixels > most:  # features are made for each part
        assert options.extractor is not None
        reach = reach_of(options.extractor, region_flow.window, has_weights=True)
        halo, at_once = [a + b for a, b in zip(halo, reach, strict=True)], most
    tiles = [tiles_of(image.shape, region_flow.window, halo, at_once) for image in images]
    before = _labels_of(images)
    for share in _label_parts(region_flow, images, tiles, make, cancelled, before):
        yield first + (1 - first) * share


def _maker(
    reduced: Problem,
    images: list[ReducedImage],
    options: ImageOptions,
    noise: list[float] | None,
    most: int,
) -> Callable[[int, Region], Problem | None]:
    """Return what makes the problem of a region of image k; None where that has no nodes.

    The features of images of at most so many pixels together are made once.
    """
    if sum(math.prod(image.shape) for image in images) > most:
        return lambda k, region: region_problem(images[k], [region], options, noise)

    def read() -> list[tuple[Problem, Any]]:
        found = []
        for image in images:
            problem = region_problem(image, [_whole(image)], options, noise)
            assert problem is not None and isinstance(problem.graph, GridGraph)
            found.append((problem, problem.graph.spread(problem.features)))
        return found

    # No strokes change what is known of the whole.
    whole = reduced.remember("full resolution", read)

    def make(k: int, region: Region) -> Problem | None:
        problem, image = whole[k]
        grid = problem.graph
        assert isinstance(grid, GridGraph)
        if region == _whole(images[k]):
            return problem
        if grid.mask is not None and not grid.mask[region].any():
            return None
        part = grid.cropped(region)
        features = np.asarray(part.gather(image[region]), np.float32)
        return Problem(features=features, graph=part, options=options)

    return make


def _label_parts(
    flow: RegionFlow,
    images: list[ReducedImage],
    regions: list[list[Region]],
    make: Callable[[int, Region], Problem | None],
    cancelled: Callable[[], bool],
    before: list[LabelImage],
) -> Iterator[float]:
    """Label regions of images, those in view first; yield the share that is done.

    What is in no region is as `before`.
    """
    sharp = [dataclasses.replace(image) for image in images]
    for image, labels in zip(images, before, strict=True):
        image.labels = labels.copy()
    parts = [(k, region) for k, some in enumerate(regions) for region in some]
    n_parts = len(parts)
    for n_left in range(n_parts, 0, -1):
        k, region = parts.pop(nearest_to_view([region for _, region in parts]))
        image = images[k]
        with interruptible(cancelled):
            found = flow.label(sharp[k], region, partial(make, k), cancelled)
        if found is not None:
            labels, _, result = found
            _finished(result)
            assert image.labels is not None
            crop = grown(region, flow.halo, image.shape)
            image.labels[region] = cut(labels, crop, region)
        yield 1 - (n_left - 1) / n_parts


def _steps(history: History) -> list[float]:
    return np.diff(history.time).tolist()  # type: ignore[no-any-return]


def _finished(result: Segmentation) -> Segmentation:
    if result.status is Status.CANCELLED:
        raise Cancelled
    return result


def _whole(image: ReducedImage) -> Region:
    return tuple(slice(0, n) for n in image.shape)


def _most_pixels(options: ImageOptions, images: list[ReducedImage]) -> int:
    """Return how many pixels are labelled at once, by the bytes of their fields and weights."""
    numbers = np.unique(np.concatenate([np.unique(image.nodes) for image in images]))
    n_labels = np.count_nonzero(numbers)
    assert options.extractor is not None
    few = tuple(slice(0, min(n, 2 * LEAST_SIDE)) for n in images[0].shape)
    values = np.zeros(images[0].pixels.read(few)[0].shape, np.float32)
    n_features = options.extractor.features(values).shape[-1] + n_labels
    weights = images[0].grid.window_weights
    n_of_weights = 0 if weights is None else weights.images.itemsize * len(weights.images)
    return int(_MOST_FIELDS // (4 * (5 * n_labels + 12 + 4 * n_features) + n_of_weights))
