"""Watershed basins of a mask, from the distance transform weighted by image edges."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

MARGIN = 4
"""Margin in pixels around a mask, for smoothing and the background colour."""
_BLUR = 0.7
"""Standard deviation in pixels of the blur that smooths discrete distances."""
_HOLE = 20
"""Holes of fewer pixels, as in texture, are filled."""
_EDGE_BLUR, _EDGE = 1.5, 0.4
"""Standard deviation in pixels of the blur before a gradient, and the gradient scale."""
_DARKEST, _LIGHTEST = -0.5, 3.0
"""Range of relative brightness (background 0, foreground 1) in which edges count."""


def edge_weights(
    image: NDArray[Any], mask: NDArray[np.bool_], sides: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return edge weights exp(-(g / 0.4)^2) of the relative gradient g; see `split_objects`."""
    is_known = np.isfinite(image).all(axis=-1)
    foreground = mask & is_known
    background = ndimage.maximum_filter(mask, 2 * MARGIN + 1) & ~mask & is_known
    if not (foreground.any() and background.any()):
        return np.ones(mask.shape)
    object_colour, background_colour = (
        np.median(image[region], axis=0) for region in (foreground, background)
    )
    change = object_colour - background_colour
    if not change @ change > 0:
        return np.ones(mask.shape)
    # A median deviation above 1 is noise or texture beyond the contrast: no usable edges.
    levels = ((image - background_colour) @ (change / (change @ change))).astype(np.float32)
    if np.median(np.abs(levels[foreground] - 1)) > 1:
        return np.ones(mask.shape)
    levels = ndimage.gaussian_filter(levels.clip(_DARKEST, _LIGHTEST), _EDGE_BLUR / _lengths(sides))
    axes = [axis for axis, side in enumerate(mask.shape) if side > 1]
    if sides.ndim == 1:
        steps = [np.gradient(levels, sides[axis], axis=axis) for axis in axes]
    else:  # the gradient in world coordinates, up to a rotation
        along = np.stack([np.gradient(levels, axis=axis) for axis in axes], axis=-1)
        metric = (sides.T @ sides)[np.ix_(axes, axes)]
        steps = [*np.moveaxis(along @ np.linalg.cholesky(np.linalg.inv(metric)), -1, 0)]
    return np.asarray(np.exp(-np.nan_to_num(sum(step**2 for step in steps)) / _EDGE**2))


def _lengths(sides: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return pixel sizes per axis, from sizes or from a matrix of axis vectors."""
    return sides if sides.ndim == 1 else np.asarray(np.linalg.norm(sides, axis=0))


def find_basins(
    mask: NDArray[np.bool_], weights: NDArray[np.floating], sides: NDArray[np.float64]
) -> tuple[NDArray[Any], ...]:
    """Return labelled basins of a mask, heights, peak heights, adjacent pairs and their saddles."""
    from skimage.morphology import local_maxima
    from skimage.segmentation import watershed

    around = np.ones((3,) * mask.ndim, bool)
    pieces, n_pieces = ndimage.label(mask, around)
    boxes = ndimage.find_objects(pieces)
    heights = _distances(pieces, boxes, sides)
    heights *= weights
    # Normalised blur: averages over pixels of the mask only.
    shares = ndimage.gaussian_filter(mask.astype(np.float32), _BLUR / _lengths(sides))
    heights = ndimage.gaussian_filter(heights, _BLUR / _lengths(sides))
    heights = np.divide(heights, shares, out=np.zeros_like(heights), where=mask)
    inner = (slice(1, -1),) * mask.ndim
    # Padded, since scikit-image finds no maximum in a constant image.
    maxima = local_maxima(np.pad(heights, 1), connectivity=mask.ndim)[inner] & mask
    markers, n_basins = ndimage.label(maxima, around)
    peaks = np.zeros(n_basins + 1, np.float32)
    peaks[markers[maxima]] = heights[maxima]
    piece_of = np.zeros(n_basins + 1, np.int64)
    piece_of[markers[maxima]] = pieces[maxima]
    basins = np.zeros(n_pieces + 1, np.int32)
    basins[piece_of[1:]] = np.arange(1, n_basins + 1)
    crowded = np.bincount(piece_of[1:], minlength=n_pieces + 1) > 1
    basins[crowded] = 0  # components with several maxima are flooded
    flooded = np.zeros(mask.shape, np.int32)
    for piece in np.flatnonzero(crowded):
        box = boxes[piece - 1]
        inside = pieces[box] == piece
        starts = np.where(inside, markers[box], 0)
        flooded[box] += watershed(-heights[box], starts, around, mask=inside)
    pairs, saddles = find_saddles(flooded, heights)
    return basins[pieces] + flooded, heights, peaks[1:], pairs, saddles


def first_places(
    parts: NDArray[np.int32], heights: NDArray[np.float32], peaks: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Return the flat index of the first maximum of each part."""
    first = np.zeros(len(peaks), np.int64)
    indices = np.flatnonzero((heights == peaks[parts]) & (parts > 0))[::-1]
    first[parts.reshape(-1)[indices]] = indices
    return first


def _distances(
    pieces: NDArray[np.integer], boxes: Sequence[tuple[slice, ...]], sides: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return the distance of each pixel to the border of its connected component."""
    distances = np.zeros(pieces.shape, np.float32)
    for piece, box in enumerate(boxes, start=1):
        # Pad with background, except at the image border.
        ends = zip(box, pieces.shape, strict=True)
        frame = [(int(span.start > 0), int(span.stop < side)) for span, side in ends]
        inside = np.pad(pieces[box] == piece, frame)
        covered = inside | _small_holes(inside)
        depth = np.ones(inside.shape)
        if not covered.all():
            depth = _to_border(covered, sides)
        shown = zip(frame, inside.shape, strict=True)
        inner = tuple(slice(first, side - last) for (first, last), side in shown)
        distances[box] += np.where(inside, depth, 0)[inner]
    return distances


def _to_border(covered: NDArray[np.bool_], sides: NDArray[np.float64]) -> NDArray[np.float64]:
    if sides.ndim == 1:
        return np.asarray(ndimage.distance_transform_edt(covered, sampling=sides))
    from scipy.spatial import KDTree

    distances = np.zeros(covered.shape)
    border = ndimage.binary_dilation(covered, np.ones((3,) * covered.ndim)) & ~covered
    tree = KDTree(np.argwhere(border) @ sides.T)
    distances[covered], _ = tree.query(np.argwhere(covered) @ sides.T)
    return distances


def _small_holes(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    holes, _ = ndimage.label(~inside)
    is_small = np.bincount(holes.ravel()) < _HOLE
    is_small[0] = False
    for axis in range(inside.ndim):
        is_small[np.take(holes, (0, -1), axis=axis).ravel()] = False
    return np.asarray(is_small[holes])


def find_saddles(
    basins: NDArray[np.int32], heights: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return pairs of adjacent basins (8- or 26-connected), and the height of each saddle."""
    n = int(basins.max(initial=0)) + 1
    keys, values = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for step in itertools.product((-1, 0, 1), repeat=basins.ndim):
        if step <= (0,) * basins.ndim:
            continue
        ends = [(max(-k, 0), side - max(k, 0)) for k, side in zip(step, basins.shape, strict=True)]
        here = tuple(slice(*end) for end in ends)
        there = tuple(slice(a + k, b + k) for (a, b), k in zip(ends, step, strict=True))
        first, second = basins[here], basins[there]
        touch = (first != second) & (first > 0) & (second > 0)
        both = first[touch].astype(np.int64), second[touch].astype(np.int64)
        keys.append(np.minimum(*both) * n + np.maximum(*both))
        values.append(np.minimum(heights[here][touch], heights[there][touch]))
    pairs, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    saddles = np.zeros(len(pairs), np.float32)
    np.maximum.at(saddles, inverse, np.concatenate(values))
    return np.stack(np.divmod(pairs, n), axis=1), saddles
