"""Bounds of areas and counts of objects, from label probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from napari_saf.arrays import as_dict, own_floats
from napari_saf.errors import InvalidInput
from napari_saf.objects._split import Objects, check_objects

CONFIDENCE = 0.9
_N_LEVELS = 9
_FARTHEST = 20.0
"""Maximum distance in pixels from an object at which pixels count towards its area."""


def object_bounds(
    objects: Objects,
    probabilities: Mapping[int, ArrayLike],
    *,
    confidence: float = CONFIDENCE,
    smallest: int = 1,
) -> dict[str, NDArray[Any]]:
    """Compute bounds of the area of each object and of the number of objects of its kind.

    Parameters
    ----------
    objects : Objects
        Objects of a labelled image.
    probabilities : mapping of int to array
        Probability of each pixel, 0 to 1, by kind, as returned by `probability_maps`.
    confidence : float
        Share of the thresholds that the bounds cover, between 0 and 1.
    smallest : int
        Minimum size in pixels of an object that counts.

    Returns
    -------
    dict of str to array
        One entry per object, ascending by number: object, kind, pixels, area_low, area_high,
        count_low, count_high (of its kind); areas in pixels.

    Raises
    ------
    InvalidInput
        If a kind has no map, a shape differs or numbers are outside their ranges.

    Notes
    -----
    Errors of neighbouring pixels are correlated: an uncertain border is uncertain along its whole
    length. The pixels of a kind are therefore modelled as {i : p_i > t}, with one threshold t for
    all of them, uniform in [0, 1]. The area of an object, |{i in Z : p_i > t}|, where Z are the
    pixels within 20 pixels that are nearer to it than to other objects, decreases with t:
    `area_low` is its value at t = (1 + confidence) / 2, and `area_high` that at t = (1 -
    confidence) / 2, both widened to include its number of pixels. Objects are counted at nine
    thresholds from one to the other: an object is lost if fewer than `smallest` of its pixels
    exceed t, and a connected region of at least `smallest` other pixels above t is new if it
    touches no remaining object. `count_low` and `count_high` are the extreme counts, the current
    number included.

    Examples
    --------
    >>> share = np.array([[0.0, 0.6, 1.0, 1.0, 0.6, 0.0, 0.0, 0.3, 0.0]])
    >>> objects = saf.Objects((share > 0.5).astype(int), np.array([0, 1]))
    >>> bounds = saf.object_bounds(objects, {1: share})
    >>> {name: column.tolist() for name, column in bounds.items() if "_" in name}
    {'area_low': [2], 'area_high': [5], 'count_low': [1], 'count_high': [2]}
    """
    check_objects(objects)
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence: expected a number between 0 and 1, got {confidence!r}")
    maps = as_dict(probabilities, "probabilities")
    labels, numbers = objects.labels, objects.numbers
    n_numbers = len(objects.kinds)
    kinds = objects.kinds[numbers]
    pixels = np.bincount(labels.ravel(), minlength=n_numbers)
    far, nearest = ndimage.distance_transform_edt(labels == 0, return_indices=True)
    zone = np.where(far <= _FARTHEST, labels[tuple(nearest)], 0)
    bounds = np.stack([pixels] * 4)  # of area and count, low and high, by number
    levels = np.linspace((1 - confidence) / 2, (1 + confidence) / 2, _N_LEVELS)
    for kind in np.unique(kinds).tolist():
        share = _checked(maps.get(kind), kind, labels.shape)
        members = np.flatnonzero(objects.kinds == kind)
        counts = [len(members)]
        for level in levels:
            is_likely = share > level
            areas = np.bincount(zone[is_likely], minlength=n_numbers)
            remaining = np.isin(labels, members[areas[members] >= smallest])
            regions, n_regions = ndimage.label(is_likely & (labels == 0) | remaining,
                                               np.ones((3,) * labels.ndim))  # fmt: skip
            is_new = np.bincount(regions.ravel(), minlength=n_regions + 1) >= smallest
            is_new[np.unique(regions[labels > 0])] = False
            is_new[0] = False
            counts.append(int((areas[members] >= smallest).sum() + is_new.sum()))
            bounds[0, members] = np.minimum(bounds[0, members], areas[members])
            bounds[1, members] = np.maximum(bounds[1, members], areas[members])
        bounds[2, members], bounds[3, members] = min(counts), max(counts)
    names = ("area_low", "area_high", "count_low", "count_high")
    columns = dict(zip(names, bounds[:, numbers], strict=True))
    return {"object": numbers, "kind": kinds, "pixels": pixels[numbers], **columns}


def with_bounds(
    table: Mapping[str, NDArray[Any]],
    objects: Objects,
    probabilities: Mapping[int, ArrayLike],
    *,
    smallest: int = 1,
) -> dict[str, NDArray[Any]]:
    """Add the columns of `object_bounds` to a table of objects, areas in the unit of the table.

    The table stays as it is if a kind has no probability map. Other arguments as in
    `object_bounds`.
    """
    if not table or not {*objects.kinds[objects.numbers].tolist()} <= probabilities.keys():
        return dict(table)
    bounds = object_bounds(objects, probabilities, smallest=smallest)
    rows = np.searchsorted(bounds["object"], table["object"])
    size = next(name for name in table if name.startswith(("area_", "volume_")))
    measure, _, unit = size.partition("_")
    of_a_pixel = table[size] / table["pixels"]
    added = {f"{measure}_{end}_{unit}": bounds[f"area_{end}"][rows] * of_a_pixel
             for end in ("low", "high")}  # fmt: skip
    return {**table, **added, **{name: bounds[name][rows] for name in ("count_low", "count_high")}}


def _checked(
    probabilities: ArrayLike | None, kind: int, shape: tuple[int, ...]
) -> NDArray[np.floating[Any]]:
    if probabilities is None:
        raise InvalidInput(f"probabilities: expected a map for kind {kind}, got none")
    share = own_floats(probabilities, "probabilities")
    if share.shape != shape or not ((share >= 0) & (share <= 1 + 1e-5)).all():
        raise InvalidInput(f"probabilities: expected numbers from 0 to 1 of shape {shape}")
    return share
