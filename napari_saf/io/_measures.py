"""Vectorised region measures, with the names and formulas of scikit-image.

`region_sums` computes the sums of the regions of one part of an image, `join_sums` combines parts,
and `measures_of` derives the measures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sums = dict[str, NDArray[Any]]
_STRAIGHT, _DIAGONAL = (5, 7, 15, 17, 25, 27), (21, 33)
_MIXED = (13, 23)
"""Perimeter weights by the sum over the neighbours of an outline pixel, 2 for each orthogonal and
10 for each diagonal one; see `skimage.measure.perimeter`."""
_FOLDS = {
    "first": np.minimum, "last": np.maximum, "least": np.minimum, "most": np.maximum,
    "order": np.minimum,
}  # fmt: skip
"""Reductions of sums across parts, where not addition."""
HALO = 2
"""Halo in pixels that outlines within a part depend on."""


def region_sums(
    ids: NDArray[np.integer[Any]], image: NDArray[Any] | None, first: Sequence[int]
) -> Sums:
    """Return sums over the pixels of each region of a part of an image that begins at `first`.

    One row per region id above 0: number of pixels, mean position, central second moments, first
    and last position; total, minimum and maximum of each channel.
    """
    positions = np.nonzero(ids)
    rows = ids[positions]
    base = int(rows.min(initial=0))
    counts = np.bincount(rows - base)
    present = np.flatnonzero(counts)
    rows = (np.cumsum(counts > 0) - 1)[rows - base]
    pixels = counts[present]
    n_rows, n_axes = len(present), ids.ndim
    sums: Sums = {"id": present + base, "pixels": pixels}
    means = [np.bincount(rows, position, n_rows) / pixels for position in positions]
    offsets = [position - mean[rows] for position, mean in zip(positions, means, strict=True)]
    spread = np.zeros((n_rows, n_axes, n_axes))
    for a, b in itertools.combinations_with_replacement(range(n_axes), 2):
        spread[:, a, b] = np.bincount(rows, offsets[a] * offsets[b], n_rows)
        spread[:, b, a] = spread[:, a, b]
    sums["mean"] = np.reshape(means, (n_axes, n_rows)).T + np.asarray(first)
    sums["spread"] = spread
    for name, fold in (("first", np.minimum), ("last", np.maximum)):
        ends = [_fold(fold, rows, position, n_rows) for position in positions]
        sums[name] = np.reshape(ends, (n_axes, n_rows)).T + np.asarray(first)
    if image is not None and image.shape[-1]:
        channels = [channel[positions] for channel in np.moveaxis(image, -1, 0)]
        sums["total"] = np.stack([np.bincount(rows, values, n_rows) for values in channels], 1)
        for name, fold in (("least", np.minimum), ("most", np.maximum)):
            sums[name] = np.stack([_fold(fold, rows, values, n_rows) for values in channels], 1)
    return sums


def join_sums(parts: Sequence[Sums], owner: NDArray[np.integer[Any]]) -> Sums:
    """Return the sums of regions across parts; `owner` is the final region of each id."""
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    present, rows_of = np.unique(owner[rows.pop("id")], return_inverse=True)
    n_rows, pixels = len(present), rows.pop("pixels")
    counts = np.bincount(rows_of, pixels, n_rows)
    sums: Sums = {"id": present, "pixels": counts.astype(np.int64)}
    mean, spread = rows.pop("mean"), rows.pop("spread")
    totals = [np.bincount(rows_of, pixels * column, n_rows) for column in mean.T]
    centre = np.stack(totals, 1) / counts[:, None]
    apart = mean - centre[rows_of]
    spread = spread + pixels[:, None, None] * apart[:, :, None] * apart[:, None, :]
    sums |= {"mean": centre, "spread": _summed(rows_of, spread, n_rows)}
    for name, values in rows.items():
        if name in _FOLDS:
            columns = values.reshape(len(values), -1).T
            ends = np.stack([_fold(_FOLDS[name], rows_of, column, n_rows) for column in columns], 1)
            sums[name] = ends.reshape(n_rows, *values.shape[1:])
        else:
            sums[name] = _summed(rows_of, values, n_rows)
    return sums


def measures_of(
    sums: Sums, spacing: Sequence[float], steps: NDArray[np.float64] | None = None
) -> dict[str, NDArray[Any]]:
    """Return measures by scikit-image name; `steps` are those of sheared axes."""
    pixels, n_axes = sums["pixels"], sums["mean"].shape[1]
    sides = np.asarray(spacing, float)
    size = pixels * (math.prod(spacing) if steps is None else float(np.prod(np.diag(steps))))
    measures: dict[str, NDArray[Any]] = {"area": size}
    for axis in range(n_axes):
        measures[f"centroid-{axis}"] = sums["mean"][:, axis] * sides[axis]
    spread = sums["spread"]
    spread = spread * np.outer(sides, sides) if steps is None else steps @ spread @ steps.T
    measures |= _ellipses(spread, pixels, size)
    for axis in range(n_axes):
        measures[f"bbox-{axis}"] = sums["first"][:, axis]
        measures[f"bbox-{axis + n_axes}"] = sums["last"][:, axis] + 1
    measures["extent"] = pixels / np.prod(sums["last"] + 1 - sums["first"], axis=1)
    if "perimeter" in sums:
        measures["perimeter"] = sums["perimeter"] * spacing[0]
    if "euler_number" in sums:
        measures["euler_number"] = np.round(sums["euler_number"]).astype(np.int64)
    for k in range(sums["total"].shape[1] if "total" in sums else 0):
        measures[f"intensity_mean-{k}"] = sums["total"][:, k] / pixels
        measures[f"intensity_min-{k}"] = sums["least"][:, k]
        measures[f"intensity_max-{k}"] = sums["most"][:, k]
    return measures


def _fold(
    call: np.ufunc, rows: NDArray[np.integer], values: NDArray[Any], count: int
) -> NDArray[Any]:
    result = np.empty(count, values.dtype)
    result[rows] = values  # initialised with one of its values
    with np.errstate(invalid="ignore"):  # NaN propagates, without a warning
        call.at(result, rows, values)
    return result


def _summed(rows: NDArray[np.integer], values: NDArray[Any], count: int) -> NDArray[np.float64]:
    columns = values.reshape(len(values), -1).T
    sums = np.stack([np.bincount(rows, column, count) for column in columns], 1)
    return np.asarray(sums.reshape(count, *values.shape[1:]))


def _ellipses(
    spread: NDArray[np.float64], pixels: NDArray[Any], size: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Return axis lengths and orientation of the ellipses with the same second moments."""
    n_axes = spread.shape[1]
    measures: dict[str, NDArray[Any]] = {}
    spread = spread / pixels[:, None, None]
    values = np.linalg.eigvalsh(spread)[:, ::-1].clip(min=0)
    if n_axes == 2:
        major, minor = 4 * np.sqrt(values.T)
        with np.errstate(invalid="ignore"):
            ratio = np.where(values[:, 0] > 0, values[:, 1] / values[:, 0], 1.0)
        measures["eccentricity"] = np.sqrt(1 - ratio)
        mixed, steepness = spread[:, 0, 1], spread[:, 0, 0] - spread[:, 1, 1]
        round_ones = np.where(mixed > 0, np.pi / 4, -np.pi / 4)
        angle = 0.5 * np.arctan2(2 * mixed, steepness)
        measures["orientation"] = np.where(steepness == 0, round_ones, angle)
        diameter = 2 * np.sqrt(size / np.pi)
    else:
        # scikit-image uses the eigenvalues of the inertia tensor, which are sums of two of these.
        major, minor = np.sqrt(20 * values[:, 0]), np.sqrt(20 * values[:, 2])
        diameter = 2 * (3 * size / (4 * np.pi)) ** (1 / 3)
    measures |= {"axis_major_length": major, "axis_minor_length": minor}
    return measures | {"equivalent_diameter_area": diameter}


def outline_lengths(regions: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return the contribution of each pixel of a plane to its region's perimeter, in pixels."""
    framed = np.pad(regions, 1)

    def around(
        picture: NDArray[Any], pixels: Sequence[NDArray[np.integer]], is_corner: bool
    ) -> list[NDArray[Any]]:
        steps = itertools.product((-1, 0, 1), repeat=2)
        steps_of_kind = [step for step in steps if sum(map(abs, step)) == 1 + is_corner]
        return [picture[pixels[0] + 1 + dy, pixels[1] + 1 + dx] for dy, dx in steps_of_kind]

    positions = np.nonzero(regions)
    inside = regions[positions]
    across = around(framed, positions, False)
    is_edge = np.any([neighbour != inside for neighbour in across], axis=0)
    edge, numbers = [position[is_edge] for position in positions], inside[is_edge]
    outline = np.zeros_like(framed)
    outline[edge[0] + 1, edge[1] + 1] = numbers
    across, corners = (
        np.sum([neighbour == numbers for neighbour in around(outline, edge, is_corner)], axis=0)
        for is_corner in (False, True)
    )
    lengths = np.zeros(50)
    lengths[[*_STRAIGHT]], lengths[[*_DIAGONAL]] = 1, math.sqrt(2)
    lengths[[*_MIXED]] = (1 + math.sqrt(2)) / 2
    summed = np.zeros(regions.shape)
    summed[tuple(edge)] = lengths[1 + 2 * across + 10 * corners]
    return summed


def euler_counts(
    labels: NDArray[np.integer[Any]], ids: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Return vertices - edges + faces (- cubes) of regions, by id; sums over parts: Euler numbers.

    Pixels are closed squares or cubes: those that touch at a corner are connected. Cells count
    whose last pixel, along each axis, is not the first one of the part. Pixels of one label within
    a cell belong to one region.
    """
    n_axes, inner = labels.ndim, [slice(1, n) for n in labels.shape]
    counts = np.zeros(int(ids.max()) + 1)
    for along in itertools.product((0, 1), repeat=n_axes):
        seen: list[NDArray[Any]] = []
        for step in itertools.product(*[range(k + 1) for k in along]):
            at = tuple(slice(i.start - s, i.stop - s) for i, s in zip(inner, step, strict=True))
            shifted = labels[at]
            is_new = shifted > 0
            for earlier in seen:
                is_new &= shifted != earlier
            seen.append(shifted)
            sign = (-1) ** (n_axes - sum(along))
            counts += sign * np.bincount(ids[at][is_new], None, len(counts))
    return counts
