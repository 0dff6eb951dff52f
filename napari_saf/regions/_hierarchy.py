"""A hierarchy of regions: parts of labels, cut by colour and merged one pair at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_labels
from napari_saf.errors import InvalidInput, raise_if
from napari_saf.features import channels_last, is_rgb
from napari_saf.methods import not_cancelled
from napari_saf.regions._graph import JOINED, WEIGHTS, RegionGraph
from napari_saf.regions._separate import SPECK, Separate, find_separate

USUAL_LEVEL = 0.62
"""The level with the best mean covering of the photographs that the weights were fitted to."""

LEVEL_OF_THINGS = 0.1
"""Of separate things: the level at which nine in ten of the nuclei that are apart are regions."""

LEAST_SHARE = 0.0025
"""Of the labelled pixels: smaller regions are merged first; 400 pixels of 321 x 481."""


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
    separate : (int, float)
        How many separate things the labels are of, many, small and alike on a ground, such as
        nuclei, and their size, for `split_objects`; (0, 0) where labels are of places.
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
    separate: Separate = Separate()
    sizes: NDArray[np.int64] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        sizes = np.bincount(self.finest.ravel())
        sizes[0] = 0
        object.__setattr__(self, "sizes", sizes)

    @property
    def usual_level(self) -> float:
        """The level to begin with: 0.62 of places, 0.1 of separate things."""
        return LEVEL_OF_THINGS if self.separate.number else USUAL_LEVEL

    def at_level(self, level: float | None = None) -> NDArray[np.int32]:
        """Return the regions at a level from 0, many, to 1, few: 1, 2, ..., largest first.

        None is the `usual_level`.
        """
        return self.numbers_at_level(level)[self.finest]

    def numbers_at_level(self, level: float | None = None) -> NDArray[np.int32]:
        """Return, of shape (n_finest + 1,), in which region at a level each of the finest is."""
        level = self.usual_level if level is None else level
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
    least_share: float | None = None,
    progress: Callable[[float], object] | None = None,
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
    least_share : float, optional
        0 to 1; a region of fewer than this share of the labelled pixels is merged before others.
        None: 0.0025, and less if the labels are of many separate things that are smaller.
    progress : callable, optional
        Called with the share of the work that is done, 0 to 1.
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
    were fitted to 120 photographs that people segmented. The time is linear in the number of
    pixels: there are at most 2,000 finest regions, the smallest parts belong to the nearest other.

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

    def report(share: float) -> None:
        raise_if(cancelled)
        if progress is not None:
            progress(share)

    report(0.0)
    separate = find_separate(array)
    least = least_size(array, separate, least_share)
    graph = RegionGraph.of(array, channels, least, report)
    found: list[tuple[int, int, float]] = []
    for merge in graph.merges(WEIGHTS, least):
        report(JOINED + (1 - JOINED) * len(found) / graph.n)
        found.append(merge)
    report(1.0)
    heights = np.maximum.accumulate([height for *_, height in found], dtype=float)
    pairs = np.array([pair for *pair, _ in found], dtype=np.int64).reshape(-1, 2)
    return RegionHierarchy(graph.finest, pairs, heights, separate)


def least_size(
    labels: NDArray[np.integer], separate: Separate, share: float | None = None
) -> float:
    """Return below how many pixels a region is merged before others."""
    least = (LEAST_SHARE if share is None else share) * np.count_nonzero(labels)
    return min(least, SPECK * separate.size) if separate.number and share is None else least
