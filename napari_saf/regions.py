"""A hierarchy of regions: parts of labels, cut by colour and merged one pair at a time."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import (
    distance_transform_edt,
    gaussian_filter,
    gaussian_gradient_magnitude,
    maximum_filter,
    minimum_filter,
)
from scipy.spatial.distance import cdist
from scipy.special import expit
from skimage.color import rgb2lab
from skimage.measure import label as label_components

from napari_saf.arrays import as_labels
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.features import Scaling, channels_last, is_rgb
from napari_saf.methods import not_cancelled
from napari_saf.points import sampled_means

__all__ = ["RegionHierarchy", "merge_regions"]

USUAL_LEVEL = 0.62
"""The level with the best mean covering of the photographs that the weights were fitted to."""

_N_BINS = 16
_RANGES = ((0.0, 1.0), (-0.6, 0.6), (-0.6, 0.6), (np.log(0.01), np.log(0.3)))
"""What the bins of lightness, the two of colour, and texture cover."""
_SMOOTH, _AROUND, _WIDTHS = 1.5, 4.0, (1.5, 3.0, 6.0)
"""In pixels: blur of colours, width of a texture, and of the edges that are sought."""
LEAST_SHARE = 0.0025
"""Of the labelled pixels: smaller regions are merged first; 400 pixels of 321 x 481."""
_FIRST = 1e6
"""Added to the log odds of regions that are too small."""
ABSORBED = 0.15
"""Components below this share of the least size go to the nearest before any are compared."""
MOST_COMPONENTS = 2000
_N_COLOURS, _BLUR, _LEAST_WIDTH = 8, 2.0, 7
"""Labels are cut where another of so many means of the colours, blurred so much more, is nearest,
into pieces that are so wide somewhere.
"""
WEIGHTS = np.array(
    [-0.13, -4.06, -3.27, -3.41, -15.84, 9.87, -11.80, -0.96, -0.21, -0.30, 0.82, 0.49]
)
"""Of the cues and 1 in the log odds that two regions are one: fitted to those of a first click.

`benchmarks/hierarchy.py` fits such weights anew, and compares them with these.
"""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RegionHierarchy:
    """Regions of an image from many to one; made by `merge_regions`.

    Attributes
    ----------
    finest : array of int32 of the shape of the labels
        The regions before any merge, 1, 2, ...; 0 where there is no label.
    merges : array of int of shape (n_merges, 2)
        Pairs of regions in the order in which they are merged: the second becomes the first.
    heights : array of shape (n_merges,)
        The level, 0 to 1, from which on a pair is one region; ascending.
    sizes : array of int of shape (n_finest + 1,)
        Pixels of each of the finest regions; the first entry, for no label, is 0.

    Examples
    --------
    >>> labels = np.kron([[1, 2], [2, 1]], np.ones((20, 20), int))
    >>> regions = saf.merge_regions(labels, labels / 2)
    >>> [int(regions.with_count(n).max()) for n in (4, 2, 1)]
    [4, 2, 1]
    >>> len(np.unique(regions.at_level(1)))
    1
    """

    finest: NDArray[np.int32]
    merges: NDArray[np.int64]
    heights: NDArray[np.float64]
    sizes: NDArray[np.int64] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        sizes = np.bincount(self.finest.ravel())
        sizes[0] = 0
        object.__setattr__(self, "sizes", sizes)

    def at_level(self, level: float = USUAL_LEVEL) -> NDArray[np.int32]:
        """Return the regions at a level from 0, many, to 1, few: 1, 2, ..., largest first."""
        return self.numbers_at_level(level)[self.finest]

    def numbers_at_level(self, level: float = USUAL_LEVEL) -> NDArray[np.int32]:
        """Return, of shape (n_finest + 1,), in which region at a level each of the finest is."""
        if not 0 <= level <= 1:
            raise InvalidInput(f"level: expected a number from 0 to 1, got {level}")
        return self._after(int(np.searchsorted(self.heights, level, side="right")))

    def with_count(self, n_regions: int) -> NDArray[np.int32]:
        """Return so many regions, or as many as there can be: regions that do not touch stay."""
        if n_regions < 1:
            raise InvalidInput(f"n_regions: expected 1 or more, got {n_regions}")
        n_merges = int(self.finest.max()) - n_regions
        return self._after(min(max(n_merges, 0), len(self.merges)))[self.finest]

    def _after(self, n_merges: int) -> NDArray[np.int32]:
        owner = np.arange(len(self.sizes))
        for first, second in self.merges[n_merges - 1 :: -1] if n_merges else ():
            owner[second] = owner[first]
        sizes = np.bincount(owner, self.sizes, minlength=len(owner))
        ranks = np.zeros(len(owner), np.int32)
        order = np.argsort(-sizes, kind="stable")
        ranks[order] = np.where(sizes[order] > 0, np.arange(1, len(owner) + 1), 0)
        return ranks[owner]


def merge_regions(
    labels: ArrayLike,
    image: ArrayLike,
    *,
    channel_axis: int | None = None,
    least_share: float = LEAST_SHARE,
    cancelled: Callable[[], bool] = not_cancelled,
) -> RegionHierarchy:
    """Merge parts of labels, those first that are most likely one region.

    Parameters
    ----------
    labels : array of int
        Label image, 0 for no label: the finest regions are parts of labels cut by colour.
    image : array
        Image of that shape, with or without channels.
    channel_axis : int, optional
        Axis of the channels. None: a last axis of 3 or 4 is taken for RGB(A); pixels that are
        wholly transparent belong to no region.
    least_share : float
        0 to 1; a region of fewer than this share of the labelled pixels is merged before others.
    cancelled : callable
        Asked now and then; once it returns True, Cancelled is raised.

    Returns
    -------
    RegionHierarchy

    Raises
    ------
    InvalidInput
        If the labels are no whole numbers from 0, all are 0, or the shapes disagree.

    Notes
    -----
    Labels are cut where another of eight means of the blurred colours is nearest; what is connected
    then, and nowhere a mere strip, are the finest regions. The most likely pair of neighbours is
    merged, and compared anew with the neighbours of both (Arbelaez, Maire, Fowlkes and Malik,
    https://doi.org/10.1109/TPAMI.2010.161, who merge by boundaries alone). The log odds that two
    regions are one are linear in the earth mover's distances of their histograms of lightness,
    colour (L*a*b*) and local contrast, the mean gradients of both along their boundary, their
    sizes, and the share of the boundary of the smaller one that they have in common. The weights
    were fitted to 120 photographs that people segmented.

    Examples
    --------
    >>> labels = np.kron([[1, 2], [2, 1]], np.ones((20, 20), int))  # a chessboard
    >>> regions = saf.merge_regions(labels, labels / 2)
    >>> int(regions.finest.max()), int(regions.with_count(2).max())
    (4, 2)
    """
    array, channels = as_labels(labels, "labels"), channels_last(image, channel_axis)[0]
    if array.shape != channels.shape[:-1]:
        raise InvalidInput(f"labels: expected shape {channels.shape[:-1]}, got {array.shape}")
    pixels = np.asarray(image)
    if channel_axis is None and is_rgb(pixels.shape) and pixels.shape[-1] == 4:
        array = np.where(pixels[..., 3] > 0, array, 0)
    if not array.any():
        raise InvalidInput("labels: expected at least one pixel with a label, all are 0")
    least = least_share * np.count_nonzero(array)
    graph = RegionGraph.of(array, channels, least, cancelled)
    found = []
    for merge in graph.merges(WEIGHTS, least):
        raise_if(cancelled)
        found.append(merge)
    heights = np.maximum.accumulate([height for *_, height in found], dtype=float)
    pairs = np.array([pair for *pair, _ in found], dtype=np.int64).reshape(-1, 2)
    return RegionHierarchy(graph.finest, pairs, heights)


def connected_components(labels: NDArray[np.integer], least: float) -> NDArray[np.int32]:
    """Return the connected components; those below `least` pixels belong to the nearest other.

    Of more than `MOST_COMPONENTS`, as noise has them, the largest stay.
    """
    components = np.asarray(label_components(labels, background=0, connectivity=1), dtype=np.int32)
    sizes = np.bincount(components.ravel())
    order = 1 + np.argsort(-sizes[1:], kind="stable")
    n_large = min(max(1, int((sizes[1:] >= least).sum())), MOST_COMPONENTS)
    small = np.ones(len(sizes), bool)
    small[order[:n_large]] = False
    if n_large < len(order):
        nearest = distance_transform_edt(
            small[components], return_distances=False, return_indices=True
        )
        components = np.where(components > 0, components[tuple(nearest)], 0)
    is_present = np.bincount(components.ravel()) > 0
    is_present[0] = False
    return np.asarray(is_present.cumsum(dtype=np.int32)[components])


class RegionGraph:
    """Adjacency graph of regions, with sums over their pixels and over their boundaries.

    A merge adds them up, which costs as much as the regions have neighbours.
    """

    @classmethod
    def of(
        cls,
        labels: NDArray[np.integer],
        channels: NDArray[np.generic],
        least: float,
        cancelled: Callable[[], bool] = not_cancelled,
    ) -> RegionGraph:
        """Return the graph of labels cut by colour; few regions are much smaller than `least`."""
        values, gradients = _describe(channels, cancelled)
        finest = connected_components(_cut(labels, values[:3], cancelled), ABSORBED * least)
        return cls(finest, values, gradients)

    def __init__(
        self,
        finest: NDArray[np.int32],
        values: Sequence[NDArray[np.floating]],
        gradients: NDArray[np.float32],
    ) -> None:
        self.finest = finest
        owner = finest.ravel()
        self.n = int(owner.max()) + 1
        self.sizes = np.bincount(owner, minlength=self.n).astype(float)
        self.total = self.sizes[1:].sum()
        histograms = []
        for value, (low, high) in zip(values, _RANGES, strict=True):
            bins = np.clip((value.ravel() - low) / (high - low) * _N_BINS, 0, _N_BINS - 1)
            counts = np.bincount(owner * _N_BINS + bins.astype(int), minlength=self.n * _N_BINS)
            histograms.append(counts.reshape(self.n, _N_BINS).cumsum(axis=1))
        self.histograms = np.stack(histograms, axis=1).astype(float)  # cumulative
        self.boundaries = self._boundaries(gradients)
        self.perimeters = np.array([sum(e[0] for e in own.values()) for own in self.boundaries])

    def _boundaries(self, gradients: NDArray[np.float32]) -> list[dict[int, NDArray[np.float64]]]:
        """Return for each region its neighbours: length and summed gradients of the boundary."""
        keys, sums = [], []
        for axis in range(self.finest.ndim):
            here, there = (
                np.moveaxis(self.finest, axis, 0)[rows] for rows in (slice(-1), slice(1, None))
            )
            along = np.moveaxis(gradients, axis + 1, 1)
            is_edge = (here != there) & (here > 0) & (there > 0)
            ends = here[is_edge].astype(np.int64), there[is_edge].astype(np.int64)
            keys.append(np.minimum(*ends) * self.n + np.maximum(*ends))
            sums.append((along[:, :-1][:, is_edge] + along[:, 1:][:, is_edge]) / 2)
        found, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        columns = [None, *np.concatenate(sums, axis=1)]
        table = np.stack([np.bincount(inverse, w, minlength=len(found)) for w in columns], axis=1)
        boundaries: list[dict[int, NDArray[np.float64]]] = [{} for _ in range(self.n)]
        for key, edge in zip(found.tolist(), table, strict=True):
            first, second = divmod(key, self.n)
            boundaries[first][second] = boundaries[second][first] = edge
        return boundaries

    def cues(self, a: int, b: int) -> NDArray[np.float64]:
        """Return what speaks for and against that two neighbours are one region, and 1."""
        edge, (small, large) = self.boundaries[a][b], sorted((self.sizes[a], self.sizes[b]))
        shares = self.histograms[a] / self.sizes[a] - self.histograms[b] / self.sizes[b]
        smaller = min(self.perimeters[a], self.perimeters[b])
        return np.array(
            [
                *np.abs(shares).mean(axis=1),
                *edge[1:] / edge[0],
                np.log(small / self.total),
                np.log(large / self.total),
                edge[0] / smaller,
                1.0,
            ]
        )

    def _merge(self, a: int, b: int) -> None:
        self.sizes[a] += self.sizes[b]
        self.histograms[a] += self.histograms[b]
        common = self.boundaries[a].pop(b)[0]
        self.perimeters[a] += self.perimeters[b] - 2 * common
        del self.boundaries[b][a]
        for other, edge in self.boundaries[b].items():
            del self.boundaries[other][b]
            both = edge + self.boundaries[a].get(other, 0.0)
            self.boundaries[a][other] = self.boundaries[other][a] = both
        self.boundaries[b] = {}

    def merges(
        self, weights: NDArray[np.float64], least: float
    ) -> Iterator[tuple[int, int, float]]:
        """Yield two regions and how likely they are two, then merge them, until none touch.

        Regions of fewer pixels than `least` come first.
        """
        queue: list[tuple[float, int, int, int, int]] = []
        versions = [0] * self.n

        def offer(a: int, b: int) -> None:
            odds = float(self.cues(a, b) @ weights)
            if min(self.sizes[a], self.sizes[b]) < least:
                odds += _FIRST
            heapq.heappush(queue, (-odds, a, b, versions[a], versions[b]))

        for a, own in enumerate(self.boundaries):
            for b in own:
                if a < b:
                    offer(a, b)
        while queue:
            score, a, b, *then = heapq.heappop(queue)
            if [versions[a], versions[b]] == then:
                yield a, b, float(expit(score))
                self._merge(a, b)
                versions[a] += 1
                versions[b] = -1
                for other in self.boundaries[a]:
                    offer(min(a, other), max(a, other))


def _cut(
    labels: NDArray[np.integer],
    colours: Sequence[NDArray[np.floating]],
    cancelled: Callable[[], bool],
) -> NDArray[np.int32]:
    """Return connected components of labels, cut where another mean colour is nearest.

    Pixels that no window within one piece holds, as along blurred edges, go to the nearest piece
    of their component; a component without such a window stays whole.
    """
    raise_if(cancelled)
    components = np.asarray(label_components(labels, background=0, connectivity=1), dtype=np.int32)
    cut = components * np.int32(_N_COLOURS) + _nearest_means(labels, colours, cancelled)
    is_wide = minimum_filter(cut, _LEAST_WIDTH) == maximum_filter(cut, _LEAST_WIDTH)
    raise_if(cancelled)
    if not is_wide.any():
        return components
    n_components = int(components.max()) + 1
    counts = np.bincount(cut[is_wide], minlength=_N_COLOURS * n_components)
    usual = np.arange(n_components, dtype=np.int32) * _N_COLOURS
    usual += counts.reshape(-1, _N_COLOURS).argmax(axis=1)
    nearest = distance_transform_edt(~is_wide, return_distances=False, return_indices=True)
    wide = cut[tuple(nearest)]
    return np.where(wide // _N_COLOURS == components, wide, usual[components]) * (components > 0)


def _nearest_means(
    labels: NDArray[np.integer],
    colours: Sequence[NDArray[np.floating]],
    cancelled: Callable[[], bool],
) -> NDArray[np.int32]:
    """Return which of a few means of the blurred colours is nearest to each pixel."""
    blurred = np.stack([gaussian_filter(plane, _BLUR) for plane in colours], axis=-1)
    means = sampled_means(blurred[labels > 0], _N_COLOURS)
    found = np.empty(labels.shape, np.int32)
    for nearest, colour in zip(found, blurred, strict=True):
        raise_if(cancelled)
        apart = cdist(colour.reshape(-1, len(colours)), means, "sqeuclidean")
        nearest[...] = apart.argmin(axis=1).reshape(nearest.shape)
    return found


def _describe(
    channels: NDArray[np.generic], cancelled: Callable[[], bool] = not_cancelled
) -> tuple[list[NDArray[np.floating]], NDArray[np.float32]]:
    """Return lightness, two of colour and texture of the pixels, and gradients (n, *shape)."""
    finite = np.isfinite(channels)
    known = channels[finite]
    image = Scaling.of([known]).apply(np.where(finite, channels, known.min()))
    n_axes = image.ndim - 1
    if image.shape[-1] == 3:
        colour = rgb2lab(image) / 100
    else:
        light = image.mean(axis=-1, keepdims=True)
        rest = (image - light).reshape(-1, image.shape[-1])
        n_axes_of_colour = min(2, rest.shape[1] - 1)
        from sklearn.decomposition import PCA  # takes half a second to load

        scores = rest[:, :0]
        if n_axes_of_colour:
            scores = PCA(n_axes_of_colour, random_state=0).fit_transform(rest)
        scores = np.pad(scores, ((0, 0), (0, 2 - n_axes_of_colour)))
        colour = np.concatenate([light, scores.reshape(*image.shape[:-1], 2)], axis=-1)
    light = colour[..., 0]
    mean = gaussian_filter(light, _AROUND)
    variance = gaussian_filter(light**2, _AROUND) - mean**2
    texture = np.log(np.sqrt(np.maximum(variance, 0)) + 0.01)
    smooth = gaussian_filter(colour, (_SMOOTH,) * n_axes + (0,))
    sought = [(np.moveaxis(colour, -1, 0), width) for width in _WIDTHS] + [([texture], _AROUND)]
    gradients = np.empty((len(sought), *light.shape), np.float32)
    for found, (planes, width) in zip(gradients, sought, strict=True):
        squares: float | NDArray[np.floating] = 0.0
        for plane in planes:
            raise_if(cancelled)
            squares = squares + gaussian_gradient_magnitude(plane, width) ** 2
        found[...] = width * np.sqrt(squares)
    return [smooth[..., 0], smooth[..., 1], smooth[..., 2], texture], gradients
