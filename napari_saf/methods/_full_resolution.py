"""From labels at a reduced size to labels at the resolution of the image.

Borders are moved onto the edges of the image. Where the pixels of a label look alike, a few means
of their features at full resolution then stand for it, and the assignment flow labels the image by
them, in parts if it is large: what is smaller than a node of the reduced size appears.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from scipy.spatial.distance import cdist

from napari_saf.arrays import check_window
from napari_saf.device import in_threads, interruptible, raise_if_interrupted
from napari_saf.errors import Cancelled, ComputeError
from napari_saf.flow import AdamsBashforthMoulton, AdamsSchedule, StoppingRule
from napari_saf.graph import CoarseGrid, GraphUnion, GridGraph
from napari_saf.methods._assignment import AssignmentFlow, method_with_prototypes
from napari_saf.methods._method import AbstractMethod, Call, Iteration, map_steps, run_to_end
from napari_saf.methods._stroke_costs import grids_of
from napari_saf.parameters import to_plain
from napari_saf.parts import (
    LEAST_SIDE,
    WINDOWS_OF_HALO,
    ImageParts,
    Region,
    blocks_of,
    blocks_with_labels,
    cut,
    grown,
    halo_of,
    nearest_to_view,
    tiles_of,
)
from napari_saf.points import sampled_means
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import (
    FULL,
    PREVIEW,
    LabelImage,
    LabelMap,
    Segmentation,
    Snapshot,
    Status,
)
from napari_saf.sharpening import sharpen_labels

_MOST_MEANS, _MOST_MEANS_EACH = 256, 8
"""Means of features that stand for all labels, and for one."""
_MEANS_OF_FEATURE = 4
"""Means of a label for each feature: with more, the tails of noise have means that are beyond the
other label's. F1 of balls in noise is .973 so, .916 with 8."""
_LEAST_SHARE = 0.5
"""Share of the pixels nearest to a mean that have its label."""
_WIDEST = 5
"""Longest side of the windows."""
_MOST_ROWS = 2**15
"""Pixels of a label of which means are made."""
_MOST_FIELDS = 2**30
"""Bytes of the fields of a flow; larger images are labelled in parts."""
_MOST_CHANGED = 0.3
"""Share of the blocks up to which only those are labelled anew that strokes changed."""
_MOST_REACHES = 4
"""By how far borders move: the width around a block that its sharp borders depend on."""
_COST = 0.3
"""Of the work on a node, about what a pixel takes afterwards: for the share that is done."""
_LOOSE = 8.0
"""By what the tolerance of the steps is multiplied: 0.01 % of the labels of nuclei change."""
_PRIOR = 0.1
"""Weight, beside features, of the shares of labels around once borders are sharp: without it four
images of nuclei had F1 .006 to .055 lower than at a reduced size."""
_SHARPENED = 0.2
"""Share of the time after which borders are sharp."""


@dataclasses.dataclass(slots=True, eq=False)
class _Image:
    """An image in full, channels last, with its labels so far."""

    labels: LabelImage
    grid: CoarseGrid

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.image_shape

    def read(self, region: tuple[Any, ...]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        assert self.grid.image is not None
        mask = self.grid.image_mask
        return self.grid.image[region], None if mask is None else mask[region]

    @property
    def reach(self) -> int:
        """How far borders move, in pixels."""
        return math.ceil(2 * float(np.divide(self.shape, self.grid.shape).max()))

    def sharpened(self, region: Region) -> LabelImage:
        """Return labels of a region, their borders moved onto edges of the image.

        Plane by plane where only planes are reduced.
        """
        labels, (values, mask) = self.labels[region].copy(), self.read(region)
        reduced = tuple(np.flatnonzero(np.divide(self.shape, self.grid.shape) > 1))
        if len(reduced) not in (2, 3):
            return labels
        others = [range(1 if axis in reduced else n) for axis, n in enumerate(labels.shape)]
        for plane in itertools.product(*others):
            raise_if_interrupted()
            part = tuple(slice(None) if a in reduced else k for a, k in enumerate(plane))
            labels[part] = sharpen_labels(
                labels[part],
                values[part],
                channel_axis=-1,
                mask=None if mask is None else mask[part],
                reach=self.reach,
            )
        return labels


@dataclasses.dataclass(slots=True, eq=False)
class _Kept:
    """Labels of a run for the next, with other strokes: as reduced, with sharp borders, in full."""

    method: dict[str, Any]
    reduced: list[LabelImage]
    sharp: list[LabelImage]
    full: list[LabelImage]


@dataclasses.dataclass(slots=True, eq=False)
class _Progress:
    """What a run left at a reduced size, and the labels in full that come of it.

    Snapshots have the numbers of those before, `label_map`, and begin at the share `before`.
    """

    result: Segmentation
    images: list[_Image]
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
        pairs = zip(grids, several, strict=True)
        images = [
            _Image(labels.copy(), grid)
            for grid, labels in pairs
            if isinstance(grid, CoarseGrid) and grid in reduced
        ]
        return cls(result, images, grids, shown, before)

    @property
    def seconds(self) -> float:
        return self.result.seconds + time.perf_counter() - self.began

    def labels(self, label_map: LabelMap) -> LabelImage | list[LabelImage]:
        """Return a copy of the labels so far, numbered by a map."""
        result = self.result
        full: dict[GridGraph, LabelImage] = {image.grid: image.labels for image in self.images}
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
    last = memory.get("last") if call.initial is not None and call.before is None else None
    kept = _Kept(to_plain(method), [image.labels for image in images], [], [])
    changed = _changed_blocks(last, kept, problem.options)
    try:
        with interruptible(call.cancelled):
            _sharpen(images, changed, last)
        kept.sharp = [image.labels for image in images]
        yield progress.snapshot(_SHARPENED)
        if method.labels_look_alike and _can_be_learned(problem.options):
            for share in _relabel(method, problem, images, changed, last, call.cancelled):
                yield progress.snapshot(_SHARPENED + (1 - _SHARPENED) * share)
        kept.full = [image.labels for image in images]
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


def _can_be_learned(options: ImageOptions) -> bool:
    """Return whether features of any part of an image can be made in reasonable time."""
    return options.extractor is not None and options.extractor.stride == 1


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


def _sharpen(images: list[_Image], changed: list[list[Region]] | None, last: _Kept | None) -> None:
    """Sharpen the borders of images, or of blocks that changed; the others are as they were."""
    if changed is None or last is None:
        for image in images:
            image.labels = image.sharpened(_whole(image.shape))
        return
    for image, blocks, sharp in zip(images, changed, last.sharp, strict=True):
        labels = sharp.copy()
        for block in blocks:
            crop = grown(block, [_MOST_REACHES * image.reach] * len(block), image.shape)
            labels[block] = cut(image.sharpened(crop), crop, block)
        image.labels = labels


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    """Regions of images at full resolution, of all of each (`is_whole`) or of blocks.

    The `options` have the features that parts share, the `noise` is what contrasts of parts share.
    """

    problem: Problem
    options: ImageOptions
    noise: list[float] | None
    regions: list[list[Region]]
    halo: list[int]
    is_whole: bool


def _learn(reduced: Problem, images: list[_Image], most: int, options: ImageOptions) -> _Learned:
    window, extractor = options.window, options.extractor
    assert extractor is not None and isinstance(window, tuple)
    is_whole = sum(math.prod(image.shape) for image in images) <= most
    regions = [
        [_whole(image.shape)] if is_whole else blocks_with_labels(image.labels, window, len(images))
        for image in images
    ]

    def read() -> _Learned:
        parts = _parts(images, regions)
        noise = parts.noise(options) if options.weights == "contrast" and not is_whole else None
        placed = extractor.placed((0,), images[0].shape)
        fitted = placed.for_parts(parts.scaled(window, options))
        shared = dataclasses.replace(options, features=fitted)
        halo = halo_of(fitted, window, has_weights=options.weights != "uniform")
        problem = parts.problem(shared, noise)
        return _Learned(problem, shared, noise, regions, halo, is_whole)

    # No strokes change what is known of the whole.
    return reduced.remember("full resolution", read) if is_whole else read()


def _relabel(
    method: AbstractMethod,
    reduced: Problem,
    images: list[_Image],
    changed: list[list[Region]] | None,
    last: _Kept | None,
    cancelled: Callable[[], bool],
) -> Iterator[float]:
    """Label images anew by how their labels look; yield the share that is done.

    Only blocks that `changed`, if they are known; the others are as in the `last` run.
    """
    assert reduced.options is not None
    widest = check_window(reduced.options.window, images[0].shape)  # type: ignore[arg-type]
    window = tuple(min(side, _WIDEST) for side in widest)
    options = dataclasses.replace(
        reduced.options, channel_axis=-1, max_side=None, groups=None, window=window
    )
    most = _most_pixels(options, images)
    with interruptible(cancelled):
        learned = _learn(reduced, images, most, options)
        flow = _taught(method, learned.problem, images, learned.regions)
    if learned.is_whole and changed is not None and last is not None:
        yield from _label_blocks(flow, learned, images, changed, last.full, cancelled)
        return
    with interruptible(cancelled):
        problem = _with_prior(learned.problem, images, learned.regions, flow)
    steps = flow.iterate(problem, cancelled=cancelled)
    if learned.is_whole:
        result = _finished((yield from map_steps(steps, lambda snapshot: snapshot.fraction)))
        several = result.labels if isinstance(result.labels, list) else [result.labels]
        for image, labels in zip(images, several, strict=True):
            image.labels = np.asarray(labels, image.labels.dtype)
        return
    history = _finished(run_to_end(steps)).history
    schedule = AdamsSchedule(tuple(np.diff(history.time).tolist()))
    stop = StoppingRule(entropy=0, changed=0, max_steps=max(1, len(history) - 1))
    flow = dataclasses.replace(flow, stepper=schedule, stop=stop)

    def read(k: int, crop: Region) -> Problem | None:
        part = _parts([images[k]], [[crop]])
        return part.problem(learned.options, learned.noise) if part.values else None

    tiles = [tiles_of(image.shape, window, learned.halo, most) for image in images]
    yield from _label_parts(flow, images, tiles, learned.halo, read, cancelled)


def _label_blocks(
    flow: AssignmentFlow,
    learned: _Learned,
    images: list[_Image],
    blocks: list[list[Region]],
    before: list[LabelImage],
    cancelled: Callable[[], bool],
) -> Iterator[float]:
    """Label blocks anew, where all else is as before; yield the share that is done."""
    grids = grids_of(learned.problem.graph)
    window = check_window(learned.options.window, images[0].shape)  # type: ignore[arg-type]
    halo = [WINDOWS_OF_HALO[3] * side for side in window]

    def read(k: int, crop: Region) -> Problem | None:
        grid, nodes = grids[k]
        if grid.mask is not None and not grid.mask[crop].any():
            return None
        part, image = grid.cropped(crop), grid.spread(learned.problem.features[nodes])
        features = np.asarray(part.gather(image[crop]), np.float32)
        return dataclasses.replace(learned.problem, graph=part, features=features, groups=None)

    yield from _label_parts(flow, images, blocks, halo, read, cancelled, before)


def _label_parts(
    flow: AssignmentFlow,
    images: list[_Image],
    regions: list[list[Region]],
    halo: list[int],
    read: Callable[[int, Region], Problem | None],
    cancelled: Callable[[], bool],
    before: list[LabelImage] | None = None,
) -> Iterator[float]:
    """Label regions of images, those in view first; yield the share that is done.

    `read` returns the problem of a region of image k with the halo around it, None where it has no
    nodes. What is in no region is as `before`.
    """
    sharp = [image.labels for image in images]
    for k, image in enumerate(images):
        image.labels = (sharp if before is None else before)[k].copy()
    parts = [(k, region) for k, some in enumerate(regions) for region in some]
    n_parts = len(parts)
    for n_left in range(n_parts, 0, -1):
        k, region = parts.pop(nearest_to_view([region for _, region in parts]))
        image = images[k]
        crop = grown(region, halo, image.shape)
        with interruptible(cancelled):
            problem = read(k, crop)
            if problem is not None:
                problem = _with_prior(problem, [_Image(sharp[k], image.grid)], [[crop]], flow)
        if problem is not None:
            result = _finished(run_to_end(flow.iterate(problem, cancelled=cancelled)))
            labels = np.asarray(result.labels, image.labels.dtype)
            image.labels[region] = cut(labels.reshape(image.labels[crop].shape), crop, region)
        yield 1 - (n_left - 1) / n_parts


def _finished(result: Segmentation) -> Segmentation:
    if result.status is Status.CANCELLED:
        raise Cancelled
    return result


def _whole(shape: Sequence[int]) -> Region:
    return tuple(slice(0, n) for n in shape)


def _most_pixels(options: ImageOptions, images: list[_Image]) -> int:
    """Return how many pixels are labelled at once, by the bytes of their fields and weights."""
    n_labels = len(np.unique(np.concatenate([np.unique(image.labels) for image in images])))
    assert options.extractor is not None
    few = tuple(slice(0, min(n, 2 * LEAST_SIDE)) for n in images[0].shape)
    values = np.zeros(images[0].read(few)[0].shape, np.float32)
    n_features = options.extractor.features(values).shape[-1] + n_labels
    weights = images[0].grid.window_weights
    n_of_weights = 0 if weights is None else weights.images.itemsize * len(weights.images)
    return int(_MOST_FIELDS // (4 * (5 * n_labels + 12 + 4 * n_features) + n_of_weights))


def _parts(images: list[_Image], regions: Sequence[Sequence[Region]]) -> ImageParts:
    """Return regions of each image."""
    parts = [
        ImageParts.read(some, image.shape, image.read)
        for image, some in zip(images, regions, strict=True)
    ]
    return ImageParts(
        [values for part in parts for values in part.values],
        [mask for part in parts for mask in part.masks],
        [place for part in parts for place in part.places],
    )


def _taught(
    method: AbstractMethod,
    problem: Problem,
    images: list[_Image],
    regions: Sequence[Sequence[Region]],
) -> AssignmentFlow:
    """Return the flow with a few means of the features of each label in regions of images."""
    seeds = [
        image.labels[region]
        for image, some in zip(images, regions, strict=True)
        for region in some
        if (mask := image.read(region)[1]) is None or mask.any()
    ]
    nodes = problem.with_seeds(seeds if isinstance(problem.graph, GraphUnion) else seeds[0]).seeds
    assert nodes is not None
    numbers = np.unique(nodes[nodes > 0])
    n_each = min(_MOST_MEANS_EACH, _MEANS_OF_FEATURE * problem.features.shape[1])
    n_each = max(1, min(n_each, _MOST_MEANS // len(numbers)))
    rows_of, means_of = [], []
    for number in numbers:
        raise_if_interrupted()
        rows = np.flatnonzero(nodes == number)
        rows_of.append(problem.features[rows[:: max(1, len(rows) // _MOST_ROWS)]])
        means_of.append(sampled_means(rows_of[-1], n_each))
    sizes = np.bincount(nodes)[numbers]
    means, owners = _typical_means(means_of, rows_of, sizes)
    labels = numbers[owners]
    shares = _PRIOR * (labels[:, None] == numbers)
    points = np.concatenate([means, shares], axis=1)
    flow = method_with_prototypes(points, like=method, labels=labels)
    assert isinstance(flow, AssignmentFlow)
    tolerance = getattr(flow.stepper, "tolerance", AdamsBashforthMoulton().tolerance)
    loose = AdamsBashforthMoulton(min(0.1, _LOOSE * tolerance))
    return dataclasses.replace(flow, stepper=loose)


def _typical_means(
    means_of: list[NDArray[np.floating]], rows_of: list[NDArray[np.floating]], sizes: NDArray[Any]
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return means (n_means, n_features) of labels, and which label each is of.

    Left out are those that look like another label: few of the pixels nearest to them have theirs.
    They come of small things that the labels of the reduced size lost.
    """
    means = np.concatenate(means_of)
    owners = np.repeat(np.arange(len(means_of)), [len(some) for some in means_of])
    counts = np.zeros((len(means), len(means_of)))
    for label, (rows, size) in enumerate(zip(rows_of, sizes, strict=True)):
        nearest = cdist(rows, means, "sqeuclidean").argmin(axis=1)
        counts[:, label] = np.bincount(nearest, minlength=len(means)) * size / len(rows)
    shares = counts[np.arange(len(means)), owners] / counts.sum(axis=1).clip(min=1)
    best = [np.flatnonzero(owners == k)[shares[owners == k].argmax()] for k in range(len(means_of))]
    kept = shares >= _LEAST_SHARE
    kept[best] = True
    return means[kept], owners[kept]


def _with_prior(
    problem: Problem,
    images: list[_Image],
    regions: Sequence[Sequence[Region]],
    flow: AssignmentFlow,
) -> Problem:
    """Return the problem with features more: the shares of the labels around each node."""
    numbers = np.unique(np.asarray(flow.prototype_labels))
    n_features, grids = problem.features.shape[1], iter(grids_of(problem.graph))
    features = np.empty((problem.n_nodes, n_features + len(numbers)), np.float32)
    features[:, :n_features] = problem.features
    for image, some in zip(images, regions, strict=True):
        ratios = np.divide(image.shape, image.grid.shape)
        sides = [2 * round(ratio) + 1 if ratio > 1 else 1 for ratio in ratios]
        for region in some:
            if not ((mask := image.read(region)[1]) is None or mask.any()):
                continue
            (grid, nodes), labels = next(grids), image.labels[region]

            around = partial(_share_around, labels, sides)
            for column, share in enumerate(in_threads(around, numbers.tolist()), start=n_features):
                np.multiply(grid.gather(share), _PRIOR, out=features[nodes, column])
    return dataclasses.replace(problem, features=features)


def _share_around(labels: LabelImage, sides: Sequence[int], number: int) -> NDArray[np.floating]:
    return np.asarray(uniform_filter((labels == number).astype(np.float32), sides))
