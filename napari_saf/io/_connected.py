"""The connected regions of labels, each with a number of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from napari_saf.arrays import as_whole
from napari_saf.errors import InvalidInput
from napari_saf.io._axes import label_axes
from napari_saf.io._legend import Legend

__all__ = ["check_labels", "check_min_pixels", "connected_regions", "number_regions", "ranks_of"]

_MOST = np.iinfo(np.int64).max


def number_regions(
    labels: ArrayLike, *, axes: str | None = None, min_pixels: int = 1
) -> NDArray[np.int32]:
    """Give each connected region of a label image a number of its own.

    The numbers are those of the column ``region`` of `region_table` with ``connected=True``.
    Pixels that touch at a corner are connected.

    Parameters
    ----------
    labels : array of int
        Label image, 0 for no label.
    axes : str, optional
        A letter an axis, such as ``"tyx"``. Along an axis of time every frame is gone through by
        itself, and the numbers run on.
    min_pixels : int
        Regions of fewer pixels, 1 or more, become 0.

    Returns
    -------
    array of int32 of the shape of the labels
        0 for no region; then 1, 2, ..., label by label.

    Raises
    ------
    InvalidInput
        If the labels are no image of whole numbers from 0, or `min_pixels` is less than 1.

    Examples
    --------
    >>> number_regions([[1, 0, 1], [2, 0, 1]])
    array([[1, 0, 2],
           [3, 0, 2]], dtype=int32)
    """
    array = check_labels(labels)
    check_min_pixels(min_pixels)
    is_series = label_axes(array.ndim, axes, None, None).names.startswith("t")
    parts, count = [], 0
    for frame in array if is_series else array[None]:
        present = Legend.of(frame).labels
        regions, owners = connected_regions(frame, present, min_pixels)
        parts.append(np.where(regions > 0, regions + np.int32(count), 0))
        count += len(owners)
    return np.stack(parts).reshape(array.shape)


def connected_regions(
    labels: NDArray[Any], present: NDArray[np.int64], min_pixels: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the connected regions, numbered from 1 label by label, and the label of each.

    Label by label: labelling a large image in one call would keep all threads waiting.
    """
    from scipy.ndimage import find_objects, label

    ranks = ranks_of(labels, present)
    around = np.ones((3,) * ranks.ndim)
    regions = np.zeros(ranks.shape, np.int32)
    owners: list[int] = []
    for rank, box in enumerate(find_objects(ranks), start=1):
        if box is not None:
            own, _ = label(ranks[box] == rank, around)
            is_kept = np.bincount(own.ravel()) >= min_pixels
            is_kept[0] = False
            number = np.where(is_kept, is_kept.cumsum() + len(owners), 0).astype(np.int32)
            regions[box] += number[own]
            owners += [int(present[rank - 1])] * np.count_nonzero(is_kept)
    return regions, np.array(owners, np.int64)


def ranks_of(labels: NDArray[Any], present: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places, from 1, of labels among those that are present; 0 for no label."""
    return np.where(labels > 0, np.searchsorted(present, labels) + 1, 0)


def check_labels(labels: ArrayLike) -> NDArray[Any]:
    """Return a label image as an array of whole numbers, or raise InvalidInput."""
    array = np.asarray(labels)
    is_image = 2 <= array.ndim <= 4 and array.size > 0
    if (
        array.dtype.kind not in "biu"
        or not is_image
        or not 0 <= array.min() <= array.max() <= _MOST
    ):
        raise InvalidInput(
            "labels: expected an image of 2 to 4 axes, whole numbers from 0 to 2**63 - 1, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def check_min_pixels(min_pixels: object) -> None:
    """Raise InvalidInput if this is no number of pixels."""
    if (as_whole(min_pixels) or 0) < 1:
        raise InvalidInput(f"min_pixels: expected a whole number of 1 or more, got {min_pixels!r}")
