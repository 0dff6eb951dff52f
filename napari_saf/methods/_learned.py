"""Labels of image regions at full resolution, learned from the labels at a reduced size.

Each label has a few feature means, by which the assignment flow labels every region with the same
time steps; this recovers objects smaller than a node of the reduced size.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.ndimage import uniform_filter
from scipy.spatial.distance import cdist

from napari_saf.arrays import Array, Floats, Int64s, Region, check_window
from napari_saf.device import in_threads, raise_if_interrupted
from napari_saf.features import FeatureExtractor, Pixels
from napari_saf.flow import AdamsBashforthMoulton, AdamsSchedule, StoppingRule, not_cancelled
from napari_saf.graph import CoarseGrid, GraphUnion
from napari_saf.methods._assignment import AssignmentFlow, method_with_prototypes
from napari_saf.methods._method import AbstractMethod, run_to_end
from napari_saf.methods._stroke_costs import grids_of
from napari_saf.parts import (
    ImageParts,
    blocks_with_labels,
    cut,
    even_blocks,
    grown,
    halo_of,
    reach_of,
)
from napari_saf.points import sampled_means
from napari_saf.problem import ImageOptions, Problem
from napari_saf.result import LabelImage, Segmentation
from napari_saf.sharpening import Part, Sharpener

_MOST_MEANS, _MOST_MEANS_EACH = 256, 8
"""Most feature means of all labels, and of one."""
_MEANS_OF_FEATURE = 4
"""Most means of a label per feature: with 8 in place of 4 they overfit the tails of noise, and F1
of balls in noise is .916 in place of .973."""
_LEAST_SHARE = 0.5
"""Least share of pixels with the label of the mean among those nearest to it."""
_WIDEST = 5
"""Longest side of the windows in pixels."""
_MOST_ROWS = 2**15
"""Most pixels of a label sampled for its means."""
_LOOSE = 8.0
"""Factor of the step tolerance, which changes 0.01 % of the labels of nuclei."""
_MOST_REACH = 8
"""Largest displacement of borders in volumes, which limits the halos of tiles."""
_PRIOR = 0.1
"""Weight of the local label shares relative to features: without it F1 on four images of nuclei was
.006 to .055 lower than at a reduced size."""


@dataclasses.dataclass(slots=True, eq=False)
class ReducedImage:
    """Image that is read by region, with its labels at a reduced size.

    `nodes` are the labels in the shape of the grid, 0 outside the mask. `labels` are the labels of
    all pixels, if in memory: first enlarged, then sharpened.
    """

    grid: CoarseGrid
    pixels: Pixels
    nodes: LabelImage
    labels: LabelImage | None = None
    sharpener: Sharpener | None = None
    is_sharp: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.image_shape

    @property
    def ratios(self) -> list[float]:
        """Pixels per node along each axis."""
        return [n / m for n, m in zip(self.shape, self.grid.shape, strict=True)]

    @property
    def reach(self) -> int:
        """Largest displacement of borders in pixels."""
        reach = math.ceil(2 * max(self.ratios))
        return reach if len(self.reduced_axes) < 3 else min(reach, _MOST_REACH)

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """Axes along which borders move; none if unsupported."""
        axes = tuple(k for k, ratio in enumerate(self.ratios) if ratio > 1)
        return axes if len(axes) in (2, 3) else ()

    def surroundings(self, region: Region) -> Region:
        """Return the region to read for sharpening a region."""
        axes, sharpener, crop = self.reduced_axes, self.sharpener, list(region)
        if sharpener is not None and axes:
            shape = [self.shape[axis] for axis in axes]
            inner = grown(tuple(region[axis] for axis in axes), sharpener.halo, shape)
            for axis, side in zip(axes, sharpener.aligned(inner, shape), strict=True):
                crop[axis] = side
        return tuple(crop)

    def enlarged(self, region: Region) -> LabelImage:
        """Return the labels of the nodes in a region, 0 outside the mask."""
        if self.labels is not None and not self.is_sharp:
            return self.labels[region]
        labels: Any = self.grid.enlarged(self.nodes, region)
        mask = self.pixels.read(region)[1] if self.pixels.has_mask else None
        if mask is not None:
            labels[~mask] = 0
        return np.asarray(labels, self.nodes.dtype)

    def sharpened(self, region: Region) -> LabelImage:
        """Return labels of a region with borders moved onto edges of the image, plane by plane."""
        if self.labels is not None and self.is_sharp:
            return self.labels[region]
        crop, sharpener = self.surroundings(region), self.sharpener
        labels = self.enlarged(crop).copy()
        if sharpener is not None:
            for plane, (plane_labels, values, mask) in self._planes(crop, labels):
                labels[plane] = sharpener(plane_labels, values, mask)
        return cut(labels, crop, region)

    def learn_borders(self, regions: Sequence[Region], evenly: Sequence[Region]) -> None:
        """Fit the sharpener to `regions` with borders and to regions spread `evenly`."""
        axes = self.reduced_axes
        if not axes or self.sharpener is not None:
            return
        shape = [self.shape[axis] for axis in axes]
        at_borders, all_over = (
            [part for region in blocks for _, part in self._planes(region, self.enlarged(region))]
            for blocks in (regions, evenly)
        )
        if at_borders and all_over:
            self.sharpener = Sharpener.of(at_borders, shape, self.reach, all_over=all_over)

    def _planes(self, crop: Region, labels: LabelImage) -> Iterator[tuple[tuple[Any, ...], Part]]:
        """Yield the indices, labels, values and masks of planes or volumes of a region."""
        values, mask = self.pixels.read(crop)
        axes = self.reduced_axes
        ranges = [range(1 if axis in axes else n) for axis, n in enumerate(labels.shape)]
        for index in itertools.product(*ranges):
            raise_if_interrupted()
            plane = tuple(slice(None) if a in axes else k for a, k in enumerate(index))
            if mask is None or mask[plane].any():
                plane_mask = None if mask is None else mask[plane]
                yield plane, (np.asarray(labels[plane]), values[plane], plane_mask)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RegionFlow:
    """Flow for regions of an image, with options and noise; a prior adds local label shares."""

    flow: AssignmentFlow
    options: ImageOptions
    noise: list[float] | None
    has_prior: bool = True

    @property
    def window(self) -> tuple[int, ...]:
        return _window_of(self.options)

    @property
    def halo(self) -> list[int]:
        """Pixels around a region, per axis, on which its labels depend."""
        return halo_of(self.window)

    def surroundings(self, region: Region, image: ReducedImage) -> Region:
        """Return the region to read for the labels of a region."""
        inner = grown(region, self.halo, image.shape)
        extractor, reach = _reach_of(self.options)
        crop = grown(inner, reach, image.shape, extractor.stride)
        if not self.has_prior:
            return crop
        far = image.surroundings(grown(inner, _radii(image), image.shape))
        pairs = zip(crop, far, strict=True)
        return tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in pairs)

    def label(
        self,
        image: ReducedImage,
        region: Region,
        make: Callable[[Region], Problem | None] | None = None,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> tuple[LabelImage, Problem, Segmentation] | None:
        """Return the labels of a region with its halo, the problem and its result; None if empty.

        `make` returns the problem of the region with its halo, by default `region_problem`.
        """
        crop = grown(region, self.halo, image.shape)
        if make is None:
            problem = region_problem(image, [crop], self.options, self.noise)
        else:
            problem = make(crop)
        if problem is None:
            return None
        if self.has_prior:
            problem = with_prior(problem, [image], [[crop]], self.flow)
        result = run_to_end(self.flow.iterate(problem, cancelled=cancelled))
        labels: Any = result.labels[0] if isinstance(result.labels, list) else result.labels
        return labels.reshape([side.stop - side.start for side in crop]), problem, result


def full_options(options: ImageOptions, shape: Sequence[int]) -> ImageOptions:
    """Return the options at full resolution that match those of a run at a reduced size."""
    widest = check_window(options.window, shape)  # type: ignore[arg-type]
    window = tuple(min(side, _WIDEST) for side in widest)
    return dataclasses.replace(options, window=window, channel_axis=-1, max_side=None, groups=None)


def _window_of(options: ImageOptions) -> tuple[int, ...]:
    assert isinstance(options.window, tuple)
    return options.window


def _reach_of(options: ImageOptions) -> tuple[FeatureExtractor, list[int]]:
    """Return the extractor, and the receptive field per axis of features and weights."""
    extractor = options.extractor
    assert extractor is not None
    has_weights = options.weights != "uniform"
    return extractor, reach_of(extractor, _window_of(options), has_weights=has_weights)


def read_parts(image: ReducedImage, regions: Sequence[Region], options: ImageOptions) -> ImageParts:
    """Return regions of an image with the pixels around them on which features depend."""
    extractor, reach = _reach_of(options)
    return ImageParts.read(regions, image.pixels, reach, extractor.stride)


def region_problem(
    image: ReducedImage, regions: Sequence[Region], options: ImageOptions, noise: list[float] | None
) -> Problem | None:
    """Return the problem of regions, with the features of the whole image."""
    parts = read_parts(image, regions, options)
    return parts.problem(options, noise) if parts.values else None


def can_be_learned(options: ImageOptions) -> bool:
    """Return whether features can be computed by region in reasonable time."""
    return options.extractor is not None and options.extractor.stride == 1


def fitted_to(
    images: Sequence[ReducedImage],
    options: ImageOptions,
    blocks: Sequence[Sequence[Region]] | None = None,
) -> tuple[ImageOptions, list[float] | None]:
    """Return options with features fitted to `blocks`, by default evenly spread, and the noise."""
    extractor, window = options.extractor, _window_of(options)
    assert extractor is not None
    parts = ImageParts([], [], [], [])
    for k, image in enumerate(images):
        regions = even_blocks(image.nodes, image.shape, window, len(images))
        regions = regions if blocks is None else list(blocks[k])
        image_parts = read_parts(image, regions, options)
        for field in dataclasses.fields(ImageParts):
            getattr(parts, field.name).extend(getattr(image_parts, field.name))
    noise = parts.noise(options) if options.weights == "contrast" else None
    placed = extractor.placed((0,), images[0].shape)
    shared = placed.for_parts(parts.scaled(window, options))
    return dataclasses.replace(options, features=shared), noise


def learned_blocks(images: Sequence[ReducedImage], options: ImageOptions) -> list[list[Region]]:
    """Return the blocks of each image from which labels are learned."""
    window, n_images = _window_of(options), len(images)
    return [blocks_with_labels(image.nodes, image.shape, window, n_images) for image in images]


def learn_all_borders(images: Sequence[ReducedImage], options: ImageOptions) -> None:
    """Fit the sharpener of each image, see `ReducedImage.learn_borders`."""
    for image, regions in zip(images, learned_blocks(images, options), strict=True):
        evenly = even_blocks(image.nodes, image.shape, _window_of(options), len(images))
        image.learn_borders(regions, evenly)


def union_of(problems: Sequence[Problem]) -> Problem:
    """Return the union of problems."""
    if len(problems) == 1:
        return problems[0]
    grids: list[Any] = []
    for problem in problems:
        graph = problem.graph
        grids += graph.grids if isinstance(graph, GraphUnion) else [graph]
    features = np.concatenate([problem.features for problem in problems])
    return Problem(features=features, graph=GraphUnion(grids), options=problems[0].options)


def scheduled(flow: AssignmentFlow, steps: Sequence[float]) -> AssignmentFlow:
    """Return a flow with prescribed time steps."""
    stop = StoppingRule(entropy=0, changed=0, max_steps=max(1, len(steps)))
    return dataclasses.replace(flow, stepper=AdamsSchedule(tuple(steps)), stop=stop)


def learn_labels(
    method: AbstractMethod,
    images: Sequence[ReducedImage],
    options: ImageOptions,
    make: Callable[[int, Region], Problem | None],
) -> tuple[AssignmentFlow, Problem]:
    """Return the flow with feature means of each label, and the problem of its blocks.

    `make` returns the problem of a region of image k; None if it has no nodes.
    """
    blocks = learned_blocks(images, options)
    parts = [(k, block, make(k, block)) for k, members in enumerate(blocks) for block in members]
    regions = [[block for j, block, part in parts if j == k and part] for k in range(len(images))]
    problem = union_of([part for _, _, part in parts if part is not None])
    flow = _with_means(method, problem, images, regions)
    return flow, with_prior(problem, images, regions, flow)


def _with_means(
    method: AbstractMethod,
    problem: Problem,
    images: Sequence[ReducedImage],
    regions: Sequence[Sequence[Region]],
) -> AssignmentFlow:
    """Return the flow with a few feature means of each label in regions of images."""
    seeds = [image.sharpened(region) for image, region in _seen(images, regions)]
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


def _seen(
    images: Sequence[ReducedImage], regions: Sequence[Sequence[Region]]
) -> Iterator[tuple[ReducedImage, Region]]:
    """Yield the regions of images with pixels within the mask."""
    for image, image_regions in zip(images, regions, strict=True):
        for region in image_regions:
            mask = image.pixels.read(region)[1] if image.pixels.has_mask else None
            if mask is None or mask.any():
                yield image, region


def _typical_means(
    means_of: list[Floats], rows_of: list[Floats], sizes: Array
) -> tuple[Floats, Int64s]:
    """Return means (n_means, n_features) of labels, and the label index of each mean.

    Means whose nearest pixels mostly have another label are dropped: they represent small objects
    lost at the reduced size.
    """
    means = np.concatenate(means_of)
    owners = np.repeat(np.arange(len(means_of)), [len(rows) for rows in means_of])
    counts = np.zeros((len(means), len(means_of)))
    for label, (rows, size) in enumerate(zip(rows_of, sizes, strict=True)):
        nearest = cdist(rows, means, "sqeuclidean").argmin(axis=1)
        counts[:, label] = np.bincount(nearest, minlength=len(means)) * size / len(rows)
    shares = counts[np.arange(len(means)), owners] / counts.sum(axis=1).clip(min=1)
    best = [np.flatnonzero(owners == k)[shares[owners == k].argmax()] for k in range(len(means_of))]
    is_typical = shares >= _LEAST_SHARE
    is_typical[best] = True
    return means[is_typical], owners[is_typical]


def with_prior(
    problem: Problem,
    images: Sequence[ReducedImage],
    regions: Sequence[Sequence[Region]],
    flow: AssignmentFlow,
) -> Problem:
    """Return the problem with the local label shares around each node as further features."""
    numbers = np.unique(np.asarray(flow.prototype_labels))
    n_features = problem.features.shape[1]
    features = np.empty((problem.n_nodes, n_features + len(numbers)), np.float32)
    features[:, :n_features] = problem.features
    seen = _seen(images, regions)
    for (image, region), (grid, nodes) in zip(seen, grids_of(problem.graph), strict=True):
        radii = _radii(image)
        around = grown(region, radii, image.shape)
        share = partial(_share_around, image.sharpened(around), [2 * k + 1 for k in radii])
        for column, share_image in enumerate(in_threads(share, numbers.tolist()), start=n_features):
            inner = grid.gather(cut(share_image, around, region))
            np.multiply(inner, _PRIOR, out=features[nodes, column])
    return dataclasses.replace(problem, features=features)


def _radii(image: ReducedImage) -> list[int]:
    """Return the radii per axis of the windows of local label shares."""
    return [round(ratio) if ratio > 1 else 0 for ratio in image.ratios]


def _share_around(labels: LabelImage, sides: Sequence[int], number: int) -> Floats:
    return np.asarray(uniform_filter((labels == number).astype(np.float32), sides))
