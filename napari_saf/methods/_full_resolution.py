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

from napari_saf.arrays import check_window
from napari_saf.device import interruptible, raise_if_interrupted
from napari_saf.errors import Cancelled
from napari_saf.flow import AdamsBashforthMoulton, AdamsSchedule, StoppingRule
from napari_saf.graph import CoarseGrid, GraphUnion
from napari_saf.methods._assignment import AssignmentFlow, method_with_prototypes
from napari_saf.methods._method import AbstractMethod, Call, Iteration, map_steps, run_to_end
from napari_saf.methods._stroke_costs import grids_of
from napari_saf.parts import ImageParts, Region, cut, grown, halo_of
from napari_saf.points import sampled_means
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import LabelImage, Segmentation, Snapshot, Status
from napari_saf.sharpening import sharpen_labels

_MOST_MEANS, _MOST_MEANS_EACH = 256, 8
"""Means of features that stand for all labels, and for one."""
_BLOCK = {1: 2**14, 2: 256, 3: 48}
"""Side of the blocks of a large image whose pixels say how labels look, by the number of axes."""
_MOST_LEARNED = 2**19
"""Pixels of these blocks."""
_MOST_FIELDS = 2**30
"""Bytes of the fields of a flow; larger images are labelled in parts."""
_LEAST_SIDE = 64
"""Sides of parts are not halved below."""
_SHARPENED = 0.2
"""Share of the time after which borders are sharp."""
_STEP = 4
"""Every so many pixels along an axis are counted where blocks are chosen."""


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


def at_full_resolution(method: AbstractMethod, call: Call, result: Segmentation) -> Iteration:
    """Yield snapshots while labels of a reduced size become those of the image; return these.

    What is cancelled on the way keeps the labels that it has by then.
    """
    options, several = call.problem.options, result.labels
    listed = several if isinstance(several, list) else [several]
    pairs = zip(grids_of(call.problem.graph), listed, strict=False)
    images = [
        _Image(labels, grid)
        for (grid, _), labels in pairs
        if isinstance(grid, CoarseGrid) and grid.image is not None
    ]
    is_wanted = options is not None and options.full_resolution and images
    if not is_wanted or result.status is Status.CANCELLED:
        return result
    assert options is not None
    record, began = result.history.records()[-1], time.perf_counter()

    def now() -> LabelImage | list[LabelImage]:
        done = {id(image.grid): image.labels.copy() for image in images}
        labels = [
            done.get(id(grid), labels)
            for (grid, _), labels in zip(grids_of(call.problem.graph), listed, strict=True)
        ]
        return labels if isinstance(several, list) else labels[0]

    def snapshot(fraction: float) -> Snapshot:
        seconds = result.seconds + time.perf_counter() - began
        return Snapshot(
            record,
            fraction,
            seconds,
            result.label_map,
            now,
            lambda: result.prototypes,
            lambda: np.log(result.assignment.clip(1e-10)),
            stage="full resolution",
        )

    status: Status = result.status
    try:
        with interruptible(call.cancelled):
            for image in images:
                image.sharpen()
        yield snapshot(_SHARPENED)
        if method.labels_look_alike and _can_be_learned(options):
            for fraction in _relabel(method, images, options, call.cancelled):
                yield snapshot(_SHARPENED + (1 - _SHARPENED) * fraction)
    except Cancelled:
        status = Status.CANCELLED
    seconds = result.seconds + time.perf_counter() - began
    return dataclasses.replace(result, labels=now(), status=status, seconds=seconds)


def _can_be_learned(options: ImageOptions) -> bool:
    """Return whether features of any part of an image can be made in reasonable time."""
    return options.extractor is not None and options.extractor.stride == 1


def _relabel(
    method: AbstractMethod,
    images: list[_Image],
    options: ImageOptions,
    cancelled: Callable[[], bool],
) -> Iterator[float]:
    """Label images anew by how their labels look; yield the share that is done."""
    options = dataclasses.replace(options, channel_axis=-1, max_side=None, groups=None)
    window = check_window(options.window, images[0].shape)  # type: ignore[arg-type]
    n_labels = len(np.unique(np.concatenate([np.unique(image.labels) for image in images])))
    assert options.extractor is not None
    n_features = _n_features(options, images)
    most = _MOST_FIELDS // (4 * (5 * n_labels + 12 + 4 * n_features))
    is_whole = sum(math.prod(image.shape) for image in images) <= most
    regions = [
        [_whole(image.shape)] if is_whole else _blocks(image.labels, window, len(images))
        for image in images
    ]
    with interruptible(cancelled):
        parts = _parts(images, regions)
        # The parts of a large image share what is known of the noise.
        noise = parts.noise(options) if options.weights == "contrast" and not is_whole else None
        extractor = options.extractor.placed((0,), images[0].shape)
        extractor = extractor.for_parts(parts.scaled(window, options))
        options = dataclasses.replace(options, features=extractor)
        problem = parts.problem(options, noise)
        flow = _taught(method, problem, images, regions)
    steps = flow.iterate(problem, cancelled=cancelled)
    if is_whole:
        result = yield from map_steps(steps, lambda snapshot: snapshot.fraction)
        _raise_if_cancelled(result)
        found = result.labels if isinstance(result.labels, list) else [result.labels]
        for image, labels in zip(images, found, strict=True):
            image.labels = np.asarray(labels, image.labels.dtype)
        return
    learned = run_to_end(steps)
    _raise_if_cancelled(learned)
    flow = dataclasses.replace(
        flow,
        stepper=AdamsSchedule(tuple(np.diff(learned.history.time).tolist())),
        stop=StoppingRule(entropy=0, changed=0, max_steps=max(1, len(learned.history) - 1)),
    )
    halo = halo_of(extractor, window, has_weights=options.weights != "uniform")
    tiles = [
        (image, region) for image in images for region in _tiles(image.shape, window, halo, most)
    ]
    for n_done, (image, region) in enumerate(tiles):
        crop = grown(region, halo, image.shape)
        with interruptible(cancelled):
            part = _parts([image], [[crop]])
            if part.values:
                run = flow.iterate(part.problem(options, noise), cancelled=cancelled)
                result = run_to_end(run)
                _raise_if_cancelled(result)
                labels = np.asarray(result.labels, image.labels.dtype)
                image.labels[region] = cut(labels.reshape(image.labels[crop].shape), crop, region)
        yield (n_done + 1) / len(tiles)


def _whole(shape: Sequence[int]) -> Region:
    return tuple(slice(0, n) for n in shape)


def _raise_if_cancelled(result: Segmentation) -> None:
    if result.status is Status.CANCELLED:
        raise Cancelled


def _n_features(options: ImageOptions, images: list[_Image]) -> int:
    """Return how many features a pixel has."""
    image = images[0]
    assert options.extractor is not None
    few = tuple(slice(0, min(n, 2 * _LEAST_SIDE)) for n in image.shape)
    values = np.zeros(image.read(few)[0].shape, np.float32)
    return int(options.extractor.features(values).shape[-1])


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
    means = [sampled_means(problem.features[nodes == number], n_each) for number in numbers]
    labels = np.repeat(numbers, [len(some) for some in means])
    flow = method_with_prototypes(np.concatenate(means), like=method, labels=labels)
    assert isinstance(flow, AssignmentFlow)
    tolerance = getattr(flow.stepper, "tolerance", AdamsBashforthMoulton().tolerance)
    return dataclasses.replace(flow, stepper=AdamsBashforthMoulton(tolerance))


def _blocks(labels: LabelImage, window: Sequence[int], n_images: int) -> list[Region]:
    """Return blocks of an image in which every label is, the rarest first, as evenly as can be."""
    n_axes = max(1, min(3, sum(side > 1 for side in window)))
    sides = [
        min(n, max(_BLOCK[n_axes], 3 * side)) if side > 1 else 1
        for n, side in zip(labels.shape, window, strict=True)
    ]
    counts_of = [max(1, n // side) for n, side in zip(labels.shape, sides, strict=True)]
    places = list(itertools.product(*map(range, counts_of)))
    regions = [
        tuple(slice(k * s, k * s + s) for k, s in zip(place, sides, strict=True))
        for place in places
    ]
    numbers, inverse = np.unique(labels, return_inverse=True)
    inverse = inverse.reshape(labels.shape)
    step = tuple(slice(None, None, _STEP if side > 1 else None) for side in window)
    counts = np.array(
        [np.bincount(inverse[region][step].ravel(), minlength=len(numbers)) for region in regions]
    )[:, numbers > 0]
    n_blocks = max(1, _MOST_LEARNED // (math.prod(sides) * n_images))
    n_each = -(-n_blocks // max(1, counts.shape[1]))
    chosen: list[int] = []
    for column in np.argsort(counts.sum(axis=0), kind="stable"):
        order = np.argsort(-counts[:, column], kind="stable")
        order = order[: max(1, np.count_nonzero(counts[:, column]) // 2)]
        at = np.linspace(0, len(order) - 1, min(n_each, len(order))).astype(int)
        chosen += [k for k in order[at].tolist() if k not in chosen]
    return [regions[k] for k in chosen[: max(n_blocks, counts.shape[1])]]


def _tiles(
    shape: Sequence[int], window: Sequence[int], halo: Sequence[int], most: int
) -> list[Region]:
    """Return regions that cover an image and have, with their halo, at most so many pixels."""
    sides = list(shape)

    def n_pixels() -> int:
        return math.prod(min(n, s + 2 * h) for n, s, h in zip(shape, sides, halo, strict=True))

    while n_pixels() > most:
        # Along axes without windows nothing is labelled twice.
        free = [k for k, side in enumerate(window) if side == 1 and sides[k] > 1]
        wide = [k for k, side in enumerate(window) if side > 1 and sides[k] > _LEAST_SIDE]
        if not free and not wide:
            break
        longest = max(free or wide, key=lambda k: sides[k])
        sides[longest] = -(-sides[longest] // 2)
    corners = itertools.product(*(range(0, n, s) for n, s in zip(shape, sides, strict=True)))
    return [
        tuple(slice(k, min(k + s, n)) for k, s, n in zip(corner, sides, shape, strict=True))
        for corner in corners
    ]
