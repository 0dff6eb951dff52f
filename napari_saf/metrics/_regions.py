"""Agreement of a label image with one or several reference label images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import entropy
from skimage.metrics import contingency_table

from napari_saf.errors import InvalidInput

__all__ = ["probabilistic_rand_index", "segmentation_covering", "variation_of_information"]


def segmentation_covering(labels: ArrayLike, references: ArrayLike) -> float:
    """Return how well the best matching labels cover the regions of the references.

    Parameters
    ----------
    labels : array of int of shape (...)
        Label image of any dimension. 0 is a label like any other here.
    references : array of int of shape (...) or (n_references, ...), or sequence of such arrays
        One or several reference label images of the shape of `labels`. Pixels that are 0 in
        a reference are left out of it.

    Returns
    -------
    float
        In (0, 1]; 1 if every reference equals `labels` up to the names of the labels.

    Raises
    ------
    InvalidInput
        If values are not whole numbers or negative, shapes differ, there is no reference, or
        a reference is 0 everywhere.

    Notes
    -----
    C = (1 / N) sum_R |R| max_L |R n L| / |R u L| over the regions R of a reference and the
    labels L, averaged over the references: the covering of the ground truth by the
    segmentation. Not symmetric. Regions and labels are taken as sets of pixels; whether a label
    should first be split into its connected components is for the caller to decide.

    References
    ----------
    Arbelaez, Maire, Fowlkes and Malik, "Contour detection and hierarchical image segmentation",
    IEEE TPAMI 33 (2011), https://doi.org/10.1109/TPAMI.2010.161.
    """
    return _average(_covering, labels, references)


def probabilistic_rand_index(labels: ArrayLike, references: ArrayLike) -> float:
    """Return the share of the pairs of pixels on which labels and references agree.

    A pair agrees if both hold its pixels together or both hold them apart.

    Parameters
    ----------
    labels, references
        As for `segmentation_covering`.

    Returns
    -------
    float
        In [0, 1]; 1 if every reference equals `labels` up to the names of the labels.

    Raises
    ------
    InvalidInput
        As `segmentation_covering`.

    Notes
    -----
    The mean over the references of the Rand index; it is not adjusted for chance. A single
    pixel counts as full agreement.

    References
    ----------
    Unnikrishnan, Pantofaru and Hebert, "Toward objective evaluation of image segmentation
    algorithms", IEEE TPAMI 29 (2007), https://doi.org/10.1109/TPAMI.2007.1046.
    """
    return _average(_rand_index, labels, references)


def variation_of_information(labels: ArrayLike, references: ArrayLike) -> float:
    """Return the information that is in one of labels and reference but not in the other.

    Parameters
    ----------
    labels, references
        As for `segmentation_covering`.

    Returns
    -------
    float
        In bits, from 0 (equal up to the names of the labels) to log2 of the number of pixels.

    Raises
    ------
    InvalidInput
        As `segmentation_covering`.

    Notes
    -----
    H(labels | reference) + H(reference | labels), averaged over the references. A metric on
    the partitions of the pixels.

    References
    ----------
    Meila, "Comparing clusterings: an information based distance", J. Multivariate Analysis 98
    (2007), https://doi.org/10.1016/j.jmva.2006.11.013.
    """
    return _average(_information, labels, references)


_Table = Any  # a sparse matrix of scipy, which has no types


def _average(
    measure: Callable[[_Table], float],
    labels: ArrayLike,
    references: ArrayLike,
) -> float:
    tables = _tables(labels, references)
    return float(np.mean([measure(table) for table in tables]))


def _tables(labels: ArrayLike, references: ArrayLike) -> Iterator[_Table]:
    """Yield the numbers of pixels (regions, labels) that each reference shares with `labels`."""
    own = _whole_numbers(labels, "labels")
    try:
        given = _whole_numbers(references, "references")
    except ValueError as error:
        raise InvalidInput(f"references: expected arrays of one shape ({error})") from None
    if given.ndim == own.ndim:
        given = given[None]
    if given.shape[1:] != own.shape:
        raise InvalidInput(f"references: expected shape {own.shape}, got {given.shape[1:]}")
    # A sparse table has as many columns as the largest number: leave no gaps.
    own = np.unique(own, return_inverse=True)[1]
    for reference in given:
        if not reference.any():
            raise InvalidInput("references: expected labelled pixels, got 0 everywhere")
        values, regions = np.unique(reference, return_inverse=True)
        ignored = [0] if values[0] == 0 else []
        yield contingency_table(regions, own, ignore_labels=ignored)


def _whole_numbers(values: ArrayLike, name: str) -> NDArray[np.generic]:
    array = np.asarray(values)
    if array.dtype.kind not in "biu" or array.size == 0:
        raise InvalidInput(
            f"{name}: expected whole numbers, got {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0:
        raise InvalidInput(f"{name}: expected 0, 1, 2, ..., got {array.min()}")
    return array


def _covering(table: _Table) -> float:
    shared = table.tocoo()
    in_region, in_label = _margins(table)
    union = in_region[shared.row] + in_label[shared.col] - shared.data
    best = np.zeros(len(in_region))
    np.maximum.at(best, shared.row, shared.data / np.maximum(union, 1))
    return float(in_region @ best / in_region.sum())


def _rand_index(table: _Table) -> float:
    in_region, in_label = _margins(table)
    n = in_region.sum()
    if n < 2:
        return 1.0
    together = np.square(table.data).sum()
    differing = np.square(in_region).sum() + np.square(in_label).sum() - 2 * together
    return float(1 - differing / (n * (n - 1)))


def _information(table: _Table) -> float:
    parts = (entropy(sizes, base=2) for sizes in _margins(table))
    return max(0.0, float(2 * entropy(table.data, base=2) - sum(parts)))


def _margins(table: _Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sizes of the regions and of the labels."""
    return np.ravel(table.sum(axis=1)), np.ravel(table.sum(axis=0))
