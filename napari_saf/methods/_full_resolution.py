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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from scipy.spatial.distance import cdist

from napari_saf.arrays import check_window
from napari_saf.device import interruptible, raise_if_interrupted
from napari_saf.errors import Cancelled, ComputeError
from napari_saf.flow import AdamsBashforthMoulton, AdamsSchedule, StoppingRule
from napari_saf.graph import CoarseGrid, GraphUnion, GridGraph
from napari_saf.methods._assignment import AssignmentFlow, method_with_prototypes
from napari_saf.methods._method import AbstractMethod, Call, Iteration, map_steps, run_to_end
from napari_saf.methods._stroke_costs import grids_of
from napari_saf.parts import (
    LEAST_SIDE,
    ImageParts,
    Region,
    blocks_with_labels,
    cut,
    grown,
    halo_of,
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
_LEAST_SHARE = 0.5
"""Share of the pixels nearest to a mean that have its label."""
_WIDEST = 5
"""Longest side of the windows."""
_MOST_ROWS = 2**15
"""Pixels of a label of which means are made."""
_MOST_FIELDS = 2**30
"""Bytes of the fields of a flow; larger images are labelled in parts."""
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

    def sharpen(self) -> None:
        """Move borders onto edges of the image, plane by plane where only planes are reduced."""
        ratios = np.divide(self.shape, self.grid.shape)
        reduced = tuple(np.flatnonzero(ratios > 1))
        if len(reduced) not in (2, 3):
            return
        others = [range(1 if axis in reduced else n) for axis, n in enumerate(self.shape)]
        labels = np.empty_like(self.labels)
        for place in itertools.product(*others):
            raise_if_interrupted()
            part = tuple(slice(None) if a in reduced else k for a, k in enumerate(place))
            values, mask = self.read(part)
            reach = math.ceil(2 * ratios.max())
            labels[part] = sharpen_labels(
                self.labels[part], values, channel_axis=-1, mask=mask, reach=reach
            )
        self.labels = labels


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
    notes = result.notes
    try:
        with interruptible(call.cancelled):
            for image in progress.images:
                image.sharpen()
        yield progress.snapshot(_SHARPENED)
        if method.labels_look_alike and _can_be_learned(problem.options):
            for share in _relabel(method, problem, progress.images, call.cancelled):
                yield progress.snapshot(_SHARPENED + (1 - _SHARPENED) * share)
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


def _relabel(
    method: AbstractMethod,
    reduced: Problem,
    images: list[_Image],
    cancelled: Callable[[], bool],
) -> Iterator[float]:
    """Label images anew by how their labels look; yield the share that is done."""
    assert reduced.options is not None
    widest = check_window(reduced.options.window, images[0].shape)  # type: ignore[arg-type]
    window = tuple(min(side, _WIDEST) for side in widest)
    options = dataclasses.replace(
        reduced.options, channel_axis=-1, max_side=None, groups=None, window=window
    )
    most = _most_pixels(options, images)
    is_whole = sum(math.prod(image.shape) for image in images) <= most
    regions = [
        [_whole(image.shape)] if is_whole else blocks_with_labels(image.labels, window, len(images))
        for image in images
    ]

    def learn() -> tuple[ImageOptions, list[float] | None, Problem]:
        """Return the options with the features that parts share, their noise and problem."""
        parts, extractor = _parts(images, regions), options.extractor
        assert extractor is not None
        noise = parts.noise(options) if options.weights == "contrast" and not is_whole else None
        extractor = extractor.placed((0,), images[0].shape)
        extractor = extractor.for_parts(parts.scaled(window, options))
        fitted = dataclasses.replace(options, features=extractor)
        return fitted, noise, parts.problem(fitted, noise)

    with interruptible(cancelled):
        # No strokes change what is known of the whole.
        options, noise, problem = (
            reduced.remember("full resolution", learn) if is_whole else learn()
        )
        flow = _taught(method, problem, images, regions)
        problem = _with_prior(problem, images, regions, flow)
    steps = flow.iterate(problem, cancelled=cancelled)
    if not is_whole:
        learned = _finished(run_to_end(steps))
        schedule = AdamsSchedule(tuple(np.diff(learned.history.time).tolist()))
        n_steps = max(1, len(learned.history) - 1)
        stop = StoppingRule(entropy=0, changed=0, max_steps=n_steps)
        flow = dataclasses.replace(flow, stepper=schedule, stop=stop)
        yield from _label_parts(flow, images, options, noise, most, cancelled)
        return
    result = _finished((yield from map_steps(steps, lambda snapshot: snapshot.fraction)))
    several = result.labels if isinstance(result.labels, list) else [result.labels]
    for image, labels in zip(images, several, strict=True):
        image.labels = np.asarray(labels, image.labels.dtype)


def _label_parts(
    flow: AssignmentFlow,
    images: list[_Image],
    options: ImageOptions,
    noise: list[float] | None,
    most: int,
    cancelled: Callable[[], bool],
) -> Iterator[float]:
    """Label images in parts of so many pixels at most; yield the share that is done."""
    window = check_window(options.window, images[0].shape)  # type: ignore[arg-type]
    assert options.extractor is not None
    halo = halo_of(options.extractor, window, has_weights=options.weights != "uniform")
    parts = [
        (image, region) for image in images for region in tiles_of(image.shape, window, halo, most)
    ]
    for n_done, (image, region) in enumerate(parts, start=1):
        crop = grown(region, halo, image.shape)
        with interruptible(cancelled):
            part = _parts([image], [[crop]])
            problem = part.problem(options, noise) if part.values else None
            if problem is not None:
                problem = _with_prior(problem, [image], [[crop]], flow)
        if problem is not None:
            result = _finished(run_to_end(flow.iterate(problem, cancelled=cancelled)))
            labels = np.asarray(result.labels, image.labels.dtype)
            image.labels[region] = cut(labels.reshape(image.labels[crop].shape), crop, region)
        yield n_done / len(parts)


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
    n_each = max(1, min(_MOST_MEANS_EACH, _MOST_MEANS // len(numbers)))
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
    grids, rows = iter(grids_of(problem.graph)), []
    for image, some in zip(images, regions, strict=True):
        ratios = np.divide(image.shape, image.grid.shape)
        sides = [2 * round(ratio) + 1 if ratio > 1 else 1 for ratio in ratios]
        for region in some:
            if not ((mask := image.read(region)[1]) is None or mask.any()):
                continue
            (grid, _), labels = next(grids), image.labels[region]
            shares = [
                grid.gather(uniform_filter((labels == number).astype(np.float32), sides))
                for number in numbers
            ]
            rows.append(_PRIOR * np.stack(shares, axis=1))
    return dataclasses.replace(
        problem, features=np.concatenate([problem.features, np.concatenate(rows)], axis=1)
    )
